#!/bin/sh
# SPDX-License-Identifier: MIT
# Usage: tests/vm/dkms.sh
#
# DKMS builds the module for kernels that are not running: a fresh Debian 12 in a folder, two headers packages (6.1 and 6.12) in it,
# the sources as `make dkms DESTDIR=` lays them down, and the vermagic of what comes out. Then as an administrator there does it, with the
# checkout in that machine: `make modules`, `make modules_install` and `make dkms`, none of them told of another place. What is fetched
# stays in $PINION_CACHE/dkms.
# Last line: `N passed, N failed, N skipped`.
set -u

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=tests/vm/machine.sh
. "$here/machine.sh"
machine dkms

checkout && forget || exit 1
point "the sources are laid down" env DESTDIR="$chroot" sh "$root/tools/modules.sh" dkms
point "dkms add" inside dkms add "pinion/$version"

vermagic_is() { # RELEASE
	ko=$(find "$chroot/lib/modules/$1/updates" -name 'pinion.ko*')
	[ -n "$ko" ] || return 1
	have=$(inside modinfo -F vermagic "${ko#"$chroot"}")
	echo "$ko: $have"
	[ "${have%% *}" = "$1" ]
}

# As a kernel's installation calls it: for that kernel, every module that asks for it.
for release in $kernels; do
	point "dkms autoinstall for $release" inside dkms autoinstall -k "$release"
	point "vermagic is that of $release" vermagic_is "$release"
	[ "$release" != "$(uname -r)" ] || echo "     $release is the running kernel: proves less"
done

both() {
	case $kernels in *6.1.0-*6.12.*) ;; *) return 1 ;; esac
}
point "there was a 6.1 and a 6.12" both

excluded() {
	pattern=$(sed -n 's/^BUILD_EXCLUSIVE_KERNEL="\(.*\)"$/\1/p' "$root/dkms.conf")
	for release in 5.10.0-30-amd64 5.19.7 6.0.0-6-amd64 4.19.0; do
		echo "$release" | grep -qE "$pattern" && return 1
	done
	for release in 6.1.0-57-amd64 6.12.117+deb12-amd64 7.0.1 10.2; do
		echo "$release" | grep -qE "$pattern" || return 1
	done
}
point "kernels before 6.1 are left alone, later ones are not" excluded
point "dkms remove leaves nothing" inside sh -c "dkms remove pinion/$version --all && ! find /lib/modules -name 'pinion.ko*' | grep ."

# ---- without DESTDIR ----

as_it_was() {
	(cd "$chroot/srv/pinion" && find . -type f -exec sha256sum {} + | sort -k 2)
}

clean() { # RELEASE
	in_checkout "$1" modules_clean && ! find "$chroot/srv/build" -type f | grep . && [ "$(as_it_was)" = "$sources" ]
}

# A package's build: the same files elsewhere, and nothing of that system's own.
staged() { # RELEASE
	in_checkout "$1" modules_install DESTDIR=/srv/stage && find "$chroot/srv/stage/lib/modules/$1/updates" -name 'pinion.ko*' | grep . &&
		[ "$(find "$chroot/srv/stage/usr" -type f | wc -l)" = 3 ] && left_nothing "$1" &&
		in_checkout "$1" modules_uninstall DESTDIR=/srv/stage && ! find "$chroot/srv/stage" -type f | grep .
}

forget
sources=$(as_it_was)
first=${kernels%%[[:space:]]*}
for release in $kernels; do
	point "make modules for $release" in_checkout "$release" modules
	point "it is staged elsewhere, and taken back" staged "$release"
	point "make modules_install for $release" in_checkout "$release" modules_install
	point "make modules_clean leaves the checkout as it was" clean "$release"
	point "modprobe of $release finds it" is_there "$release"
	point "group, rule and load-at-boot file are there" has_its_device
	point "make modules_uninstall" in_checkout "$release" modules_uninstall
	point "leaves nothing" left_nothing "$release"
	forget
	point "make dkms for $release" in_checkout "$release" dkms
	[ "$release" != "$first" ] || point "make dkms again, where it is there" in_checkout "$release" dkms
	point "modprobe of $release finds what DKMS built" is_there "$release"
	point "DKMS brings group, rule and load-at-boot file" has_its_device
	point "make modules_uninstall, of what DKMS has" in_checkout "$release" modules_uninstall
	point "leaves nothing there either" left_nothing "$release"
	forget
done

no_systemd() {
	inside sh -c 'mount --bind /dev/null /usr/bin/systemd-sysusers && ! command -v systemd-sysusers && make -C /srv/pinion modules_device' &&
		has_its_device
}
point "without systemd there is a group too" no_systemd
forget

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
