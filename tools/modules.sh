#!/bin/sh
# SPDX-License-Identifier: MIT
# Usage: tools/modules.sh build|install|device|clean|dkms|uninstall
#        (make modules, modules_install, modules_device, modules_clean, dkms, modules_uninstall)
#
#   build     pinion.ko in $B/kmod, from copies, so that the tree stays clean
#   install   that into $DESTDIR/lib/modules/RELEASE/updates, and what device installs
#   device    udev rule, group and load-at-boot files, below $DESTDIR/usr/lib
#   dkms      the sources into $DESTDIR/usr/src/pinion-VERSION; without DESTDIR also to DKMS, for KVER (default: the running kernel)
#   uninstall takes away what install, device and dkms brought, for every kernel; the group stays, and a module that is loaded
#
# KDIR is the folder of a kernel's headers (default: those of KVER). Extra words for make go in KARGS (W=1, CC=...).
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
what=${1:-}
KVER=${KVER:-$(uname -r)}
KDIR=${KDIR:-/lib/modules/$KVER/build}
B=${B:-$root/build}
DESTDIR=${DESTDIR:-}
PATH=$PATH:/usr/sbin:/sbin
case $B in /*) ;; *) B=$root/$B ;; esac
out=$B/kmod
version=$(sed -n 's/^PACKAGE_VERSION="\(.*\)"$/\1/p' "$root/dkms.conf")

die() {
	echo "pinion: $*" >&2
	exit 1
}

headers() {
	[ ! -e "$KDIR/Makefile" ] || [ ! -e "$KDIR/include/generated/utsrelease.h" ] || return 0
	die "no kernel headers in $KDIR. They must be those of the kernel that is to load the module: as root,
        apt-get install linux-headers-$KVER        (Debian, Ubuntu; dnf install kernel-devel-$KVER on Fedora)
or name another folder with KDIR=, or another kernel with KVER=. Kernels that no package belongs to need the tree they were
built in, prepared with \`make modules_prepare'."
}

# What uname -r says of that kernel; Debian's kernel.release does not.
release() {
	sed -n 's/^#define UTS_RELEASE "\(.*\)"$/\1/p' "$KDIR/include/generated/utsrelease.h"
}

# The sources and nothing that a build in the tree may have left there. What has not changed keeps its time.
sources() { # TARGET
	(cd "$root" && find Kbuild kmod uapi -name '*.mod.c' -o -type f \( -name '*.[ch]' -o -name Kbuild \) -print) |
		while read -r name; do
			cmp -s "$root/$name" "$1/$name" && continue
			mkdir -p "$1/$(dirname "$name")"
			cp "$root/$name" "$1/$name"
		done
	find "$1" -name '*.mod.c' -o -type f -name '*.[ch]' -print | while read -r path; do
		[ -e "$root/${path#"$1"/}" ] || rm -f "$path"
	done
}

kbuild() { # TARGET...
	# Debian's headers ask for BTF, which wants pahole; a module loads without.
	command -v pahole >/dev/null || set -- "$@" CONFIG_DEBUG_INFO_BTF_MODULES=
	# shellcheck disable=SC2086
	env -u MAKEFLAGS -u MAKELEVEL make --no-print-directory -C "$KDIR" M="$out" -j "$(nproc)" "$@" ${KARGS:-}
}

build() {
	headers
	mkdir -p "$out"
	# Objects for other headers are of no use, and make would not notice.
	if [ "$(cat "$out/.kdir" 2>/dev/null)" != "$KDIR ${KARGS:-}" ]; then
		rm -rf "$out"
		mkdir -p "$out"
		echo "$KDIR ${KARGS:-}" >"$out/.kdir"
	fi
	sources "$out"
	kbuild modules
	ln -f "$out/kmod/pinion.ko" "$out/pinion.ko"
	echo "pinion: $out/pinion.ko, for $(release)"
}

device() {
	lib=$DESTDIR/usr/lib
	mkdir -p "$lib/udev/rules.d" "$lib/sysusers.d" "$lib/modules-load.d"
	cp "$root/kmod/60-pinion.rules" "$lib/udev/rules.d/60-pinion.rules"
	cp "$root/kmod/pinion.sysusers" "$lib/sysusers.d/pinion.conf"
	cp "$root/kmod/pinion.modules-load" "$lib/modules-load.d/pinion.conf"
	[ -z "$DESTDIR" ] || return 0
	# A rule that names a group which is not there does nothing.
	if ! grep -q '^pinion:' /etc/group; then
		if command -v systemd-sysusers >/dev/null; then
			systemd-sysusers pinion.conf
		else
			groupadd --system pinion
		fi
	fi
	[ ! -S /run/udev/control ] || udevadm control --reload
}

install_module() {
	[ -e "$out/pinion.ko" ] || die "no $out/pinion.ko: make modules first"
	KDIR=$(sed 's/ .*//' "$out/.kdir")
	headers
	release=$(release)
	# A signing key is the distribution's and not in its headers.
	kbuild modules_install INSTALL_MOD_PATH="$DESTDIR" INSTALL_MOD_DIR=updates CONFIG_MODULE_SIG_ALL= DEPMOD=true
	# A staging folder has not the kernel's own modules: there it is the package's installation that runs depmod.
	[ -n "$DESTDIR" ] && [ ! -e "$DESTDIR/lib/modules/$release/modules.order" ] || depmod -b "${DESTDIR:-/}" "$release"
	device
}

dkms_source() {
	source=$DESTDIR/usr/src/pinion-$version
	[ -n "$DESTDIR" ] || command -v dkms >/dev/null || die "no dkms: as root, apt-get install dkms (or make modules modules_install, once per kernel)"
	rm -rf "$source"
	mkdir -p "$source"
	sources "$source"
	cp "$root/dkms.conf" "$source/"
	mkdir -p "$source/LICENSES"
	cp "$root"/LICENSES/GPL-2.0* "$root"/LICENSES/MIT* "$source/LICENSES/"
	device
	[ -z "$DESTDIR" ] || return 0
	[ -z "$(dkms status "pinion/$version")" ] || dkms remove "pinion/$version" --all
	dkms add "pinion/$version"
	headers
	dkms install "pinion/$version" -k "$KVER"
}

uninstall() {
	if [ -z "$DESTDIR" ] && command -v dkms >/dev/null && [ -n "$(dkms status "pinion/$version")" ]; then
		dkms remove "pinion/$version" --all
	fi
	rm -rf "$DESTDIR/usr/src/pinion-$version"
	for kernel in "$DESTDIR"/lib/modules/*; do
		[ -e "$kernel/updates/kmod" ] || continue
		rm -f "$kernel/updates/kmod"/pinion.ko*
		rmdir "$kernel/updates/kmod" "$kernel/updates" 2>/dev/null || :
		[ -n "$DESTDIR" ] && [ ! -e "$kernel/modules.order" ] || depmod -b "${DESTDIR:-/}" "${kernel##*/}"
	done
	lib=$DESTDIR/usr/lib
	rm -f "$lib/udev/rules.d/60-pinion.rules" "$lib/sysusers.d/pinion.conf" "$lib/modules-load.d/pinion.conf"
	[ -n "$DESTDIR" ] || [ ! -S /run/udev/control ] || udevadm control --reload
}

case $what in
build) build ;;
install) install_module ;;
device) device ;;
clean) rm -rf "$out" ;;
dkms) dkms_source ;;
uninstall) uninstall ;;
*)
	sed -n '3,12s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
