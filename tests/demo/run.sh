#!/bin/sh
# SPDX-License-Identifier: MIT
# Usage: tests/demo/run.sh BUILD-DIR [--quick]
#
# pinion's main job on real input: loads a model file once, lets four workers attach to its pages and multiply its
# tensors, shows what they have in flight, kills one of them, checks every result, and says what it cost. --quick: a
# small model that is made up, a few seconds.
#
#   MODEL=FILE            that file instead of the one that is fetched
#   PINION_DEMO_SYNTH=1   a synthesised file; nothing is fetched
#   PINION_CACHE=FOLDER   where what is fetched stays (default: ~/.cache/pinion)
set -eu

usage() {
	echo "usage: $0 BUILD-DIR [--quick]" >&2
	exit 2
}

build=
small=
show_ms=2400
for argument in "$@"; do
	case $argument in
	--quick) small=--small show_ms=800 ;;
	-*) usage ;;
	*) [ -z "$build" ] || usage; build=$argument ;;
	esac
done
[ -n "$build" ] || usage
here=$(cd "$(dirname "$0")" && pwd)
programs=$(cd "$build/tests/demo" && pwd)
tool=$(cd "$build/tools" && pwd)/pinion

# Short, because the user's own names live elsewhere and nothing here may disturb them.
work=$(mktemp -d "${TMPDIR:-/tmp}/pinion-demo.XXXXXX")
export PINION_DIR="$work/run"
stage="starting"
held=no

# Workers are gone by now; the holder may not have noticed yet.
end_holder() {
	[ "$held" = yes ] || return 0
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		"$tool" rm demo >/dev/null 2>&1 && return 0
		[ -n "$("$tool" show demo 2>/dev/null)" ] || return 0
		sleep 0.2
	done
	pid=$("$tool" show demo 2>/dev/null | sed -n 's/^pid: //p')
	[ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null || :
}

clean_up() {
	status=$?
	trap - EXIT
	trap '' INT TERM HUP
	end_holder
	rm -rf "$work"
	case $status in
	0) ;;
	129 | 130 | 143) echo "demo: interrupted, at: $stage" ;;
	*) echo "demo: failed, at: $stage (exit status $status)" ;;
	esac
	exit "$status"
}
trap clean_up EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

. "$here/model.sh"

heading() {
	stage=$1
	printf '\n== %s\n' "$1"
}

heading "finding a model"
find_model $small
exec 9>&-
make_reference

heading "loading it once"
held=yes
"$tool" load "$model" --name demo
"$tool" ls

heading "four workers on the same pages"
"$programs/demo-crew" demo "$work/reference" "$programs/demo-worker" "$tool" "$show_ms" "$work/summary"

heading "what it cost"
sed -n '/^checked\|^unchecked/!p' "$work/summary"
"$programs/demo-mapped" demo "$model" >"$work/mapped"
"$tool" rm demo
held=no
"$programs/demo-loads" "$model"
cat "$work/mapped"

stage="counting the results"
checked=$(sed -n 's/^checked //p' "$work/summary")
unchecked=$(sed -n 's/^unchecked //p' "$work/summary")
echo
# The line that tests/run.py counts.
[ -z "$small" ] || echo "$checked passed, 0 failed, 0 skipped"
echo "demo: ok, $checked results checked and equal, $unchecked unchecked"
