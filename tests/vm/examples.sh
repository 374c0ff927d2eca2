#!/bin/sh
# SPDX-License-Identifier: MIT
# Usage: tests/vm/examples.sh [OUTPUT]
# Takes the C out of Documentation/uapi.rst, which is one program, compiles it (and keeps it as OUTPUT, static), and runs it where
# /dev/pinion is. Last line: `N passed, N failed, N skipped`.
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

awk '/^\.\. code-block:: c$/ { on = 1; next } on && /^[^ ]/ { on = 0 } on { sub(/^   /, ""); print }' "$root/Documentation/uapi.rst" >"$tmp/uapi.c"
if ! "${CC:-cc}" -std=gnu11 -Wall -Wextra -Werror -O1 -static -D_GNU_SOURCE -I"$root/uapi" "$tmp/uapi.c" -o "$tmp/uapi"; then
	echo "FAIL uapi_examples: Documentation/uapi.rst does not compile"
	echo "0 passed, 1 failed, 0 skipped"
	exit 1
fi
echo "ok   uapi_examples compile"
[ $# = 0 ] || cp "$tmp/uapi" "$1"
"$tmp/uapi"
case $? in
0) echo "ok   uapi_examples run" && echo "2 passed, 0 failed, 0 skipped" ;;
77) echo "SKIP uapi_examples_run: no node that this user may open" && echo "1 passed, 0 failed, 1 skipped" ;;
*) echo "FAIL uapi_examples_run" && echo "1 passed, 1 failed, 0 skipped" && exit 1 ;;
esac
