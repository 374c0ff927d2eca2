#!/bin/sh
# SPDX-License-Identifier: MIT
# Usage: tests/vm/stage.sh modules|dkms UNIT-BUILD FOLDER
#
# Installs pinion on the Debian 12 of machine.sh for its 6.12, as an administrator does it: the module by `make modules_install` or by
# `make dkms`, user space by `make install`. Leaves what that machine starts from in FOLDER: `vmlinuz`, and `root.tar`, which is the
# machine without what only a compiler or a reader needs and without the kernel's own modules, none of which is loaded.
# Last line: `N passed, N failed, N skipped`.
set -u

way=$1
units=$(cd "$2" && pwd) || exit 1
out=$3
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=tests/vm/machine.sh
. "$here/machine.sh"
machine installed
release=$(echo "$kernels" | grep '^6\.12\.') || skip "no 6.12 in that machine"
prefix=$chroot/srv/prefix
rm -rf "$prefix" "$out/root.tar"
mkdir -p "$prefix" "$out" && checkout && forget || exit 1

point "$way: make install" make -C "$root" install B="$units" DESTDIR="$prefix"
# A build of a newer system than that one says so when it starts.
path=$(find "$prefix" -name libpinion.so.0)
command=$(find "$prefix" -path '*/bin/pinion')
inside env LD_LIBRARY_PATH="$(dirname "${path#"$chroot"}")" ldd "${command#"$chroot"}" >"$out/ldd" 2>&1
! grep 'GLIBC_.*not found' "$out/ldd" || skip "this build is for a newer C library than that machine's"
all_found() {
	grep libpinion "$out/ldd" && ! grep 'not found' "$out/ldd"
}
point "$way: its libraries are there" all_found

case $way in
modules)
	point "$way: make modules" in_checkout "$release" modules
	point "$way: make modules_install" in_checkout "$release" modules_install
	point "$way: make modules_clean" in_checkout "$release" modules_clean
	;;
dkms) point "$way: make dkms" in_checkout "$release" dkms ;;
esac
point "$way: modprobe finds it" is_there "$release"
point "$way: group, rule and load-at-boot file are there" has_its_device

# /lib is a link into /usr.
pack() {
	set --
	for path in 'usr/src/linux-*' usr/lib/gcc usr/share/doc usr/share/man usr/share/locale usr/share/zoneinfo 'usr/lib/modules/*/kernel' \
		var/cache var/lib/apt var/lib/dpkg boot 'dev/*' 'proc/*' 'run/*' srv/prefix srv/build; do
		set -- "$@" --exclude="./$path"
	done
	tar cf "$out/root.tar.part" -C "$chroot" "$@" . && tar rf "$out/root.tar.part" -C "$prefix" . &&
		cp "$chroot/boot/vmlinuz-$release" "$out/vmlinuz" && mv "$out/root.tar.part" "$out/root.tar"
}

point "$way: the machine is packed" pack
forget
rm -rf "$prefix"
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
