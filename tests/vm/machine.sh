# SPDX-License-Identifier: MIT
# Sourced by dkms.sh and stage.sh, with $root, the checkout: a Debian 12 in a folder, $chroot, with DKMS, systemd and the headers of
# a 6.1 and a 6.12, in which things are installed as an administrator does it. What is fetched stays in $PINION_CACHE/dkms; one at a
# time uses it.

export PATH="$PATH:/usr/sbin:/sbin"
PREPARED=2 # of what prepare does; a change makes the machine anew
cache=${PINION_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/pinion}/dkms
chroot=$cache/root
version=$(sed -n 's/^PACKAGE_VERSION="\(.*\)"$/\1/p' "$root/dkms.conf")
log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0
failed=0

skip() { # WHY
	echo "SKIP $what: $1"
	echo "0 passed, 0 failed, 1 skipped"
	exit 0
}

point() { # NAME COMMAND...
	name=$1
	shift
	if "$@" >"$log" 2>&1; then
		passed=$((passed + 1))
		echo "ok   $what: $name"
	else
		failed=$((failed + 1))
		echo "FAIL $what: $name"
		tail -n 30 "$log"
		# What DKMS says of a failed build is in a file of its own.
		find "$chroot/var/lib/dkms/pinion" -name make.log -exec tail -n 30 {} + 2>/dev/null
	fi
}

# DKMS wants /proc: in a mount namespace that ends with the command.
inside() {
	unshare --mount --pid --fork --mount-proc="$chroot/proc" chroot "$chroot" \
		env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C DEBIAN_FRONTEND=noninteractive "$@"
}

# The mirror and the proxy of this machine's apt are as good as the default.
prepare() {
	[ "$(cat "$cache/stamp" 2>/dev/null)" = "$PREPARED" ] && return
	rm -rf "$chroot" "$cache/stamp"
	debootstrap --variant=minbase bookworm "$chroot" "${MIRROR:-http://deb.debian.org/debian}" >"$log" 2>&1 || return 1
	echo "deb ${MIRROR_SECURITY:-http://deb.debian.org/debian-security} bookworm-security main" >>"$chroot/etc/apt/sources.list"
	cp /etc/resolv.conf "$chroot/etc/" 2>/dev/null
	# Packages are to be unpacked and set up, not to start anything.
	printf '#!/bin/sh\nexit 101\n' >"$chroot/usr/sbin/policy-rc.d"
	chmod +x "$chroot/usr/sbin/policy-rc.d"
	inside apt-get update >"$log" 2>&1 || return 1
	# The headers of 6.12 depend on their image, which wants an initramfs; not this one.
	inside env INITRD=No apt-get install -y --no-install-recommends dkms kmod systemd-sysv udev libjansson4 liburing2 libnuma1 \
		libnettle8 libncursesw6 linux-headers-amd64 linux-headers-6.12-amd64 >"$log" 2>&1 || return 1
	inside apt-get clean
	echo "$PREPARED" >"$cache/stamp"
}

# Holds the machine for this process, and ends the test TEST where there can be none.
machine() { # TEST
	what=$1
	[ "$(id -u)" = 0 ] || skip "not root"
	command -v debootstrap >/dev/null || skip "no debootstrap"
	unshare --mount --pid --fork --mount-proc true 2>/dev/null || skip "namespaces refused"
	mkdir -p "$cache" || exit 1
	exec 9>"$cache/lock"
	flock 9
	prepare || {
		tail -n 3 "$log"
		skip "no Debian 12 could be set up (network?)"
	}
	kernels=$(inside sh -c 'ls -d /lib/modules/*/build' | sed 's,/lib/modules/\(.*\)/build,\1,')
}

# What a user has: the files that git knows, as they are here, or all of a tree without git.
checkout() {
	rm -rf "$chroot/srv/pinion" && mkdir -p "$chroot/srv/pinion" || return 1
	(cd "$root" && git ls-files -z 2>/dev/null || find Kbuild Makefile dkms.conf kmod uapi tools LICENSES -type f -print0) |
		(cd "$root" && xargs -0 tar cf - --ignore-failed-read 2>/dev/null) | tar xf - -C "$chroot/srv/pinion"
	[ -e "$chroot/srv/pinion/Makefile" ]
}

in_checkout() { # RELEASE TARGET [VARIABLE=VALUE...]
	kver=$1
	shift
	inside make -C /srv/pinion "$@" KVER="$kver" B=/srv/build
}

# As the kernel's own modprobe would load it, and only this one file.
is_there() { # RELEASE
	found=$(inside modprobe -S "$1" --show-depends pinion) && have=$(inside modinfo -k "$1" -F vermagic pinion) || return 1
	echo "$found: $have"
	case $found in "insmod /lib/modules/$1/updates/"*pinion.ko*) ;; *) return 1 ;; esac
	[ "$(echo "$found" | wc -l)" = 1 ] && [ "${have%% *}" = "$1" ]
}

# Udev gives the node to the group; a rule without its group does nothing.
has_its_device() {
	grep -q '^pinion:' "$chroot/etc/group" && cmp "$root/kmod/60-pinion.rules" "$chroot/usr/lib/udev/rules.d/60-pinion.rules" &&
		cmp "$root/kmod/pinion.modules-load" "$chroot/usr/lib/modules-load.d/pinion.conf"
}

# Whatever a run before this one left, or this one: as if pinion had never been there. The group too, which stays with its files.
forget() {
	inside make -C /srv/pinion modules_uninstall >/dev/null 2>&1
	rm -rf "$chroot"/usr/src/pinion-* "$chroot/var/lib/dkms/pinion" "$chroot/srv/build"
	sed -i /^pinion:/d "$chroot/etc/group" "$chroot/etc/gshadow"
}

# Files of ours outside the checkout, and what modprobe still knows.
left_nothing() { # RELEASE
	! (cd "$chroot" && find lib/modules usr/src usr/lib/udev usr/lib/sysusers.d usr/lib/modules-load.d var/lib/dkms \
		-name '*pinion*') | grep . && ! inside modprobe -S "$1" --show-depends pinion
}
