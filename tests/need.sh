#!/bin/sh
# SPDX-License-Identifier: MIT
# Usage: tests/need.sh build|fuzz|vm
# Finds out which Debian packages are missing. As root it prints the apt line and runs it, unless PINION_NO_APT=1; else it
# prints the line and fails. A tool or header that is there counts, wherever it came from.
set -eu

missing=

tool() { # COMMAND PACKAGE
	command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}

library() { # PKG-CONFIG-NAME PACKAGE
	command -v pkg-config >/dev/null 2>&1 && pkg-config --exists "$1" || missing="$missing $2"
}

case "${1:-}" in
build)
	tool cc gcc
	[ -e /usr/include/stdio.h ] || missing="$missing libc6-dev"
	tool meson meson
	tool ninja ninja-build
	tool pkg-config pkg-config
	tool python3 python3
	python3 -c 'import venv, ensurepip' 2>/dev/null || missing="$missing python3-venv"
	tool scdoc scdoc
	library jansson libjansson-dev
	library liburing liburing-dev
	library numa libnuma-dev
	library nettle nettle-dev
	library ncursesw libncurses-dev
	library check check
	;;
fuzz)
	tool clang clang
	echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { (void)d; (void)n; return 0; }' |
		clang -fsanitize=fuzzer,address,undefined -x c - -o /dev/null 2>/dev/null || missing="$missing libclang-rt-dev"
	;;
vm)
	tool make make
	tool gcc gcc
	tool python3 python3
	tool qemu-system-x86_64 qemu-system-x86
	# A guest has no libraries.
	[ -x /bin/busybox ] && ! ldd /bin/busybox >/dev/null 2>&1 || missing="$missing busybox-static"
	PATH=$PATH:/usr/sbin:/sbin tool depmod kmod
	PATH=$PATH:/usr/sbin:/sbin tool debootstrap debootstrap
	PATH=$PATH:/usr/sbin:/sbin tool mke2fs e2fsprogs
	tool flex flex
	tool bison bison
	tool bc bc
	tool perl perl
	tool xz xz-utils
	tool sparse sparse
	[ -e /usr/include/gelf.h ] || missing="$missing libelf-dev"
	[ -e /usr/include/openssl/ssl.h ] || missing="$missing libssl-dev"
	[ -e /usr/include/linux/types.h ] || missing="$missing linux-libc-dev"
	;;
*)
	echo "usage: $0 build|fuzz|vm" >&2
	exit 2
	;;
esac

[ -n "$missing" ] || exit 0
line="apt-get install -y --no-install-recommends$missing"
if [ "$(id -u)" != 0 ] || [ "${PINION_NO_APT:-0}" = 1 ]; then
	echo "pinion needs packages that are not here. As root:" >&2
	echo "  $line" >&2
	exit 1
fi
echo "+ apt-get update && $line"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# shellcheck disable=SC2086
if ! { apt-get update && $line; } >"$log" 2>&1; then
	tail -n 20 "$log" >&2
	exit 1
fi
