#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Usage: tests/fuzz/run.sh BUILD-DIR SECONDS [TARGET...]: each libFuzzer target for so long, under ASan and UBSan, from its
# seeds: those in seeds/, and what the target makes itself (--seeds). What it finds stays in BUILD-DIR, and its path is printed.
set -euo pipefail
build=$1 seconds=$2
shift 2
here=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -gt 0 ] || set -- counters gguf handover safetensors weight_map
mkdir -p "$build"
instrument='-fsanitize=fuzzer-no-link -fno-sanitize-recover=all'
[ -e "$build/build.ninja" ] ||
	CC=clang meson setup "$build" "$here" --werror -Db_sanitize=address,undefined -Db_lundef=false -Doptimization=1 -Dfuzz=true \
		-Dtests=false -Dman=disabled -Dc_args="$instrument" >"$build/setup.log" || { cat "$build/setup.log"; exit 1; }
ninja -C "$build" "${@/#/tests/fuzz/fuzz_}" >"$build/build.log" || { tail -n 40 "$build/build.log"; exit 1; }
build=$(cd "$build" && pwd)
# The runtime directory of those that have one, in memory if possible.
dir=$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || echo "$build")" pinion-fuzz-XXXXXX)
trap 'rm -rf "$dir"' EXIT
for target; do
	rm -rf "${dir:?}"/* "$dir"/.lock
	export PINION_DIR=$dir
	fuzz=$build/tests/fuzz/fuzz_$target
	seeds=$here/tests/fuzz/seeds/$target
	mkdir -p "$build/corpus-$target"
	if [ ! -d "$seeds" ]; then
		seeds=$build/seeds-$target
		mkdir -p "$seeds"
		"$fuzz" --seeds "$seeds"
	fi
	log=$build/$target.log
	if "$fuzz" -max_total_time="$seconds" -max_len=65536 -timeout=10 -rss_limit_mb=1024 -print_final_stats=1 \
		-artifact_prefix="$build/$target-" "$build/corpus-$target" "$seeds" >"$log" 2>&1; then
		echo "ok   fuzz $target: $(awk '/stat::number_of_executed_units/ { print $2 }' "$log") inputs in $seconds s, clean"
	else
		tail -n 40 "$log"
		echo "FAIL fuzz $target: see $log"
		exit 1
	fi
done
