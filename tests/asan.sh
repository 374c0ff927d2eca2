#!/bin/sh
# SPDX-License-Identifier: MIT
# Usage: tests/asan.sh BUILD-DIR: builds everything with ASan and UBSan there.
set -eu
[ -e "$1/build.ninja" ] || meson setup "$1" --werror -Db_sanitize=address,undefined -Db_lundef=false -Dbuildtype=debugoptimized -Doptimization=1 >/dev/null
ninja -C "$1"
