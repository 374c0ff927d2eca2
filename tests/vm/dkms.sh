#!/bin/sh
# SPDX-License-Identifier: MIT
# Usage: tests/vm/dkms.sh
#
# DKMS builds the module for kernels that are not running: a fresh Debian 12 in a folder, two headers packages (6.1 and 6.12) in it,
# the sources as `make dkms DESTDIR=` lays them down, and the vermagic of what comes out. What is fetched stays in $PINION_CACHE/dkms.
# Last line: `N passed, N failed, N skipped`.
set -u

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
export PATH="$PATH:/usr/sbin:/sbin"
version=$(sed -n 's/^PACKAGE_VERSION="\(.*\)"$/\1/p' "$root/dkms.conf")
passed=0
failed=0

skip() {
	echo "SKIP dkms: $*"
	echo "0 passed, 0 failed, 1 skipped"
	exit 0
}

point() { # NAME COMMAND...
	name=$1
	shift
	if "$@" >"$log" 2>&1; then
		passed=$((passed + 1))
		echo "ok   dkms: $name"
	else
		failed=$((failed + 1))
		echo "FAIL dkms: $name"
		tail -n 30 "$log"
		# What DKMS says of a failed build is in a file of its own.
		find "$chroot/var/lib/dkms/pinion" -name make.log -exec tail -n 30 {} + 2>/dev/null
	fi
}

[ "$(id -u)" = 0 ] || skip "not root"
command -v debootstrap >/dev/null || skip "no debootstrap"
unshare --mount --pid --fork --mount-proc true 2>/dev/null || skip "namespaces refused"
cache=${PINION_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/pinion}/dkms
chroot=$cache/root
mkdir -p "$cache" || exit 1
exec 9>"$cache/lock"
flock 9
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# DKMS wants /proc: in a mount namespace that ends with the command.
inside() {
	unshare --mount --pid --fork --mount-proc="$chroot/proc" chroot "$chroot" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C DEBIAN_FRONTEND=noninteractive "$@"
}

# The mirror and the proxy of this machine's apt are as good as the default.
prepare() {
	[ -e "$cache/stamp" ] && return
	rm -rf "$chroot"
	debootstrap --variant=minbase bookworm "$chroot" "${MIRROR:-http://deb.debian.org/debian}" >"$log" 2>&1 || return 1
	echo "deb ${MIRROR_SECURITY:-http://deb.debian.org/debian-security} bookworm-security main" >>"$chroot/etc/apt/sources.list"
	cp /etc/resolv.conf "$chroot/etc/" 2>/dev/null
	# Packages are to be unpacked and set up, not to start anything.
	printf '#!/bin/sh\nexit 101\n' >"$chroot/usr/sbin/policy-rc.d"
	chmod +x "$chroot/usr/sbin/policy-rc.d"
	inside apt-get update >"$log" 2>&1 || return 1
	# The headers of 6.12 depend on their image, which wants an initramfs; not this one.
	inside env INITRD=No apt-get install -y --no-install-recommends dkms kmod linux-headers-amd64 linux-headers-6.12-amd64 >"$log" 2>&1 || return 1
	inside apt-get clean
	touch "$cache/stamp"
}

if ! prepare; then
	tail -n 3 "$log"
	skip "no Debian 12 could be set up (network?)"
fi

# Left from a run before.
inside dkms remove "pinion/$version" --all >/dev/null 2>&1
rm -rf "$chroot"/usr/src/pinion-* "$chroot"/var/lib/dkms/pinion
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
kernels=$(inside sh -c 'ls -d /lib/modules/*/build' | sed 's,/lib/modules/\(.*\)/build,\1,')
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

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
