#!/bin/sh
# SPDX-License-Identifier: MIT
# Usage: tests/tsan.sh BUILD-DIR: builds the tests of streams and counters with ThreadSanitizer there and runs them, streams on the
# thread engine. Fails if it reports anything that tests/tsan.supp does not excuse. Fences in the code that it does not understand are no
# error to the compiler. Without die_after_fork=0 it lets no test have a child with threads.
set -eu
build=$1
here=$(cd "$(dirname "$0")" && pwd)
# The library leaves out what it is to leave out under each compiler that there is.
for cc in cc clang; do
	command -v "$cc" >/dev/null || continue
	for kind in thread address; do
		name=$(echo "$kind" | tr a-z A-Z)_SANITIZED
		printf '#include "sanitizer.h"\n_Static_assert(%s == 1, "");\n' "$name" | "$cc" -fsanitize="$kind" -I"$here/../lib" -x c -fsyntax-only -
		printf '#include "sanitizer.h"\n_Static_assert(%s == 0, "");\n' "$name" | "$cc" -I"$here/../lib" -x c -fsyntax-only -
	done
done
[ -e "$build/build.ninja" ] || meson setup "$build" "$here/.." -Db_sanitize=thread -Db_lundef=false -Dbuildtype=debugoptimized -Dc_args="['-Wno-tsan', '-Wno-unknown-warning-option']" >/dev/null
# Not those that count in a thread that ends, or make threads in a child that has some: what ThreadSanitizer knows of threads does not go
# so far.
tests="flush select_threads stream stream_ops"
# shellcheck disable=SC2046
ninja -C "$build" $(printf 'tests/unit/test_%s ' $tests)
export PINION_ENGINE=threads PINION_TEST_SCALE="${PINION_TEST_SCALE:-20}"
export TSAN_OPTIONS="suppressions=$here/tsan.supp halt_on_error=1 exitcode=66 die_after_fork=0"
for test in $tests; do
	"$build/tests/unit/test_$test"
done
