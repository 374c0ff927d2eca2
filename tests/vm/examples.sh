#!/bin/sh
# SPDX-License-Identifier: MIT
# Usage: tests/vm/examples.sh [OUTPUT]
# Takes the C out of Documentation/uapi.rst, which is one program, compiles it (and keeps it as OUTPUT, static), and runs it where
# /dev/pinion is. Compiles the programs of Documentation/examples/uapi, on the header alone; the guest's counts_page runs them. Last
# line: `N passed, N failed, N skipped`.
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0 skipped=0

ok() { echo "ok   $1" && passed=$((passed + 1)); }
bad() { echo "FAIL $1" && failed=$((failed + 1)); }
compile() { "${CC:-cc}" -std=gnu11 -Wall -Wextra -Werror -O1 -static -D_GNU_SOURCE -I"$root/uapi" "$1" -o "$2"; }

awk '/^\.\. code-block:: c$/ { on = 1; next } on && /^[^ ]/ { on = 0 } on { sub(/^   /, ""); print }' "$root/Documentation/uapi.rst" >"$tmp/uapi.c"
if compile "$tmp/uapi.c" "$tmp/uapi"; then
	ok "uapi_examples compile"
	[ $# = 0 ] || cp "$tmp/uapi" "$1"
	"$tmp/uapi"
	case $? in
	0) ok "uapi_examples run" ;;
	77) echo "SKIP uapi_examples_run: no node that this user may open" && skipped=1 ;;
	*) bad uapi_examples_run ;;
	esac
else
	bad "uapi_examples: Documentation/uapi.rst does not compile"
fi
for example in "$root"/Documentation/examples/uapi/*.c; do
	name=$(basename "$example" .c)
	if compile "$example" "$tmp/$name"; then ok "example_$name compile"; else bad "example_$name: does not compile"; fi
done
# What it is there to show.
lines=$(sed -n '/^int main/,/^}/p' "$root/Documentation/examples/uapi/pending.c" | wc -l)
if [ "$lines" -le 10 ]; then ok "example_pending is short"; else bad "example_pending_is_short: $lines lines"; fi

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
