#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Usage: tests/fuzz/run.sh BUILD-DIR SECONDS [TARGET...]: each libFuzzer target for so long, under ASan and UBSan, from its
# seeds: those in seeds/, and what the target makes itself (--seeds). What it finds stays in BUILD-DIR, and its path is printed.
# FUZZ_JOBS=N at a time (default: one for each processor). The last line is `N passed, N failed, N skipped`.
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
jobs=${FUZZ_JOBS:-$(nproc)}
# A folder for each, which is also the runtime directory of those that have one.
dir=$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || echo "$build")" pinion-fuzz-XXXXXX)
# Each job a process group: the shell of a job alone would leave its fuzzer running.
set -m
end() {
	local pid
	for pid in $(jobs -p); do
		kill -- "-$pid" 2>/dev/null || true
	done
	wait
	rm -rf "$dir"
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

fuzz() { # TARGET
	local target=$1 log=$build/$1.log seeds=$here/tests/fuzz/seeds/$1
	local fuzz=$build/tests/fuzz/fuzz_$target
	export PINION_DIR=$dir/$target
	mkdir -m 700 "$PINION_DIR"
	mkdir -p "$build/corpus-$target"
	if [ ! -d "$seeds" ]; then
		seeds=$build/seeds-$target
		mkdir -p "$seeds"
		"$fuzz" --seeds "$seeds" || return
	fi
	if "$fuzz" -max_total_time="$seconds" -max_len=65536 -timeout=60 -rss_limit_mb=1024 -print_final_stats=1 \
		-artifact_prefix="$build/$target-" "$build/corpus-$target" "$seeds" >"$log" 2>&1; then
		echo "ok   fuzz $target: $(awk '/stat::number_of_executed_units/ { print $2 }' "$log") inputs in $seconds s, clean"
		touch "$dir/$target.ok"
	else
		echo "FAIL fuzz $target: see $log"
		tail -n 40 "$log"
	fi
}

for target; do
	while [ "$(jobs -pr | wc -l)" -ge "$jobs" ]; do
		wait -n || true
	done
	fuzz "$target" &
done
wait
passed=0
for target; do
	[ ! -e "$dir/$target.ok" ] || passed=$((passed + 1))
done
echo "$passed passed, $(($# - passed)) failed, 0 skipped"
[ "$passed" -eq $# ]
