#!/bin/sh
# SPDX-License-Identifier: MIT
# Usage: tests/surface.sh BUILD-DIR: what users build against. Each public header compiles alone, as C and as C++; what the headers
# declare, the map names and the library exports are one list; an installed copy serves a program by pkg-config. And the folders of lib/
# include what is below them alone.
set -u
build=$1
here=$(cd "$(dirname "$0")/.." && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0 skipped=0

ok() { passed=$((passed + 1)); echo "ok $1"; }
bad() { failed=$((failed + 1)); echo "FAIL $1"; }
check() { # NAME COMMAND...
	name=$1
	shift
	if "$@" >"$tmp/out" 2>&1; then ok "$name"; else bad "$name"; cat "$tmp/out"; fi
}

for header in "$here"/lib/include/pinion/*.h; do
	name=$(basename "$header")
	echo "#include <pinion/$name>" >"$tmp/one.c"
	check "header_${name}_compiles_alone_as_c11" cc -std=c11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I"$here/lib/include" "$tmp/one.c"
	if command -v c++ >/dev/null 2>&1; then
		cp "$tmp/one.c" "$tmp/one.cc"
		check "header_${name}_compiles_alone_as_cxx17" c++ -std=c++17 -Wall -Wextra -Werror -fsyntax-only -I"$here/lib/include" "$tmp/one.cc"
	fi
done
if ! command -v c++ >/dev/null 2>&1; then
	skipped=$((skipped + 1))
	echo "SKIP headers_compile_as_cxx17: no C++ compiler here"
fi

grep -ohE '\bpinion_[a-z0-9_]+\(' "$here"/lib/include/pinion/*.h | tr -d '(' | grep -v '_fn$' | sort -u >"$tmp/declared"
# A name that the comments mention is declared as well, or the comment is wrong.
grep -oE 'pinion_[a-z0-9_]+;' "$here/lib/libpinion.map" | tr -d ';' | sort -u >"$tmp/map"
nm -D --defined-only "$build/lib/libpinion.so.0" | awk '$2 == "T" { sub(/@.*/, "", $3); print $3 }' | sort -u >"$tmp/exported"
check headers_and_map_are_one_list diff "$tmp/declared" "$tmp/map"
check map_and_library_are_one_list diff "$tmp/map" "$tmp/exported"

# Documentation/overview.md: each folder of lib/ uses those below it, which are named before it here.
awk 'BEGIN { split("machine provider quant memory work dispatch model", order); for (i in order) rank[order[i]] = i }
	/^#include "\.\.\/[a-z]+\// {
		n = split(FILENAME, part, "/"); from = part[n - 1]; split($2, part, "/"); to = part[2]
		if (!(from in rank) || !(to in rank) || rank[to] > rank[from]) print FILENAME ": " $0
	}' "$here"/lib/*/*.[ch] >"$tmp/upward"
if [ -s "$tmp/upward" ]; then bad arrows_point_down; cat "$tmp/upward"; else ok arrows_point_down; fi

for header in "$here"/uapi/linux/*.h; do
	echo "#include <linux/$(basename "$header")>" >"$tmp/one.c"
	check "uapi_$(basename "$header")_compiles_alone" cc -std=gnu11 -Wall -Wextra -Werror -fsyntax-only -I"$here/uapi" "$tmp/one.c"
done

if DESTDIR="$tmp/root" meson install -C "$build" --no-rebuild >"$tmp/out" 2>&1; then
	ok install_to_a_destdir
	pc=$(dirname "$(find "$tmp/root" -name pinion.pc)")
	awk '/^```c/ { on = 1; next } /^```/ { on = 0 } on' "$here/README.md" >"$tmp/example.c"
	export PKG_CONFIG_PATH="$pc" PKG_CONFIG_SYSROOT_DIR="$tmp/root"
	# shellcheck disable=SC2046
	check readme_example_builds_with_pkg_config cc -Wall -Wextra -Werror -o "$tmp/example" "$tmp/example.c" $(pkg-config --cflags --libs pinion)
	lines=$(wc -l <"$tmp/example.c")
	if [ "$lines" -le 15 ]; then ok readme_example_is_short; else bad "readme_example_is_short: $lines lines"; fi
	lib=$(dirname "$(find "$tmp/root" -name libpinion.so.0)")
	PINION_DIR="$tmp/run" LD_LIBRARY_PATH=$lib "$tmp/example" no-such-name >"$tmp/out" 2>&1
	if grep -q "nobody holds 'no-such-name'" "$tmp/out"; then ok readme_example_says_why_it_fails; else bad readme_example_says_why_it_fails; cat "$tmp/out"; fi
	for example in "$here"/Documentation/examples/uapi/*.c; do
		ex=$(basename "$example" .c)
		check "example_uapi_${ex}_builds" cc -Wall -Wextra -Werror -I"$here/uapi" -o "$tmp/$ex" "$example"
	done
	for example in "$here"/Documentation/examples/*.c; do
		ex=$(basename "$example" .c)
		# shellcheck disable=SC2046
		check "example_${ex}_builds" cc -Wall -Wextra -Werror -D_GNU_SOURCE -o "$tmp/$ex" "$example" $(pkg-config --cflags --libs pinion)
		check "example_${ex}_runs" env PINION_DIR="$tmp/run-$ex" LD_LIBRARY_PATH="$lib" "$tmp/$ex"
	done
else
	bad install_to_a_destdir
	cat "$tmp/out"
fi

missing=$(cd "$here" && git ls-files 2>/dev/null | grep -E '\.(c|h|py|sh|scd)$|meson|Makefile|^\.ci' | while read -r f; do head -n 3 "$f" | grep -q SPDX-License-Identifier || echo "$f"; done)
if [ -z "$missing" ]; then ok every_source_has_its_licence_line; else bad "every_source_has_its_licence_line: $missing"; fi

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
