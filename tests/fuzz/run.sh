#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Usage: tests/fuzz/run.sh BUILD-DIR SECONDS [TARGET...]: each libFuzzer target for so long, under ASan and UBSan, from its
# seeds. What it finds stays in BUILD-DIR, and its path is printed.
set -euo pipefail
build=$1 seconds=$2
shift 2
here=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$build"
build=$(cd "$build" && pwd)
[ $# -gt 0 ] || set -- gguf safetensors
lib=(error.c model/builder.c model/gguf.c model/index.c model/layout.c model/reader.c model/safetensors.c quant/type.c)
for target; do
	clang -std=gnu11 -D_GNU_SOURCE -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
		-I"$here/lib" -I"$here/lib/include" -o "$build/fuzz_$target" "$here/tests/fuzz/fuzz_$target.c" \
		"${lib[@]/#/$here/lib/}" $(pkg-config --libs jansson)
	mkdir -p "$build/corpus-$target"
	log=$build/$target.log
	if "$build/fuzz_$target" -max_total_time="$seconds" -max_len=65536 -timeout=10 -rss_limit_mb=1024 -print_final_stats=1 \
		-artifact_prefix="$build/$target-" "$build/corpus-$target" "$here/tests/fuzz/seeds/$target" >"$log" 2>&1; then
		echo "ok   fuzz $target: $(awk '/stat::number_of_executed_units/ { print $2 }' "$log") inputs in $seconds s, clean"
	else
		tail -n 40 "$log"
		echo "FAIL fuzz $target: see $log"
		exit 1
	fi
done
