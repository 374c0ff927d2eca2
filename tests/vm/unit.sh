#!/bin/sh
# SPDX-License-Identifier: MIT
# In a guest, under the name unit-TEST [CASE]: runs one unit test of the host on the module's ground. A context takes the module where it may
# open it; what gives up its rights stands on memfd, as it would anywhere.
export PINION_TEST_OWN_MACHINE=1 PINION_CONFORM_GROUND=kmod PINION_TEST_SCALE="${PINION_TEST_SCALE:-10}" LIBPINION=/u/libpinion.so.0
ulimit -l unlimited
read -r root </tree/root
[ -e "$root" ] || { mkdir -p "${root%/*}" && ln -s /tree "$root"; }
[ $# -eq 0 ] || export CK_RUN_CASE="$1"
exec "/u/${0##*/unit-}"
