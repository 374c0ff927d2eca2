#!/bin/sh
# SPDX-License-Identifier: MIT
# Usage: tests/vm/images.sh [6.1] [6.12] [um] [debug] [kcsan]      (without names: 6.1 6.12 um)
#
# Fetches or builds the kernels that the tests boot, into $PINION_CACHE/vm (default: ~/.cache/pinion/vm):
#   6.1, 6.12   Debian's own images and headers, as the archive has them today, unpacked and not installed
#   um          User-mode Linux from Debian's 6.1 source with um.config
#   debug       that source for QEMU with debug.config: KASAN, lockdep, kmemleak and more
#   kcsan       the same with kcsan.config on top: looks for data races instead of bad accesses
# With the stock kernels comes Debian's udev, for the module's rule.
# Each has an `image` file (sh syntax) that says where its parts are, and a `stamp` of its version and configuration: what is up
# to date is left alone, what was interrupted goes on where it stopped. Nothing of the running system is changed but the packages
# of tests/need.sh. JOBS=N sets the compilers that run at once (default: one per CPU).
set -eu

here=$(cd "$(dirname "$0")" && pwd)
FORMAT=2 # of the image files; a change makes every image anew
EDITS=1  # of what edit_source does; a change unpacks the source and builds what is made of it anew

die() {
	echo "vm-images: $*" >&2
	exit 1
}

say() {
	echo "vm-images: $*"
}

sh "$here/../need.sh" vm

vm=${PINION_CACHE:-${XDG_CACHE_HOME:-${HOME:-}/.cache}/pinion}/vm
mkdir -p "$vm/deb" 2>/dev/null && [ -w "$vm/deb" ] || die "$vm cannot be written; PINION_CACHE names another cache folder"
vm=$(cd "$vm" && pwd)
# One at a time fills it.
exec 9>"$vm/lock"
flock 9

log=$vm/log
: >"$log"
jobs=${JOBS:-$(nproc)}

# Runs a command whose output is only of interest when it fails.
quietly() { # WHAT COMMAND...
	what=$1
	shift
	"$@" >>"$log" 2>&1 || {
		tail -n 25 "$log" >&2
		die "$what failed; the whole log: $log"
	}
}

# What a package depends on, directly, as the archive has it now.
depends() { # PACKAGE PATTERN
	apt-cache depends --no-recommends --no-suggests "$1" 2>/dev/null |
		sed -n 's/^ *|\{0,1\}Depends: \([^<]*\)$/\1/p' | grep -E "$2" | head -n 1
}

version() { # PACKAGE
	apt-cache show --no-all-versions "$1" 2>/dev/null | sed -n 's/^Version: //p' | head -n 1
}

# A machine whose package lists were never fetched, or are older than the archive.
refresh() {
	[ "$(id -u)" = 0 ] && [ "${PINION_NO_APT:-0}" != 1 ] || die "the package lists are missing or old. As root: apt-get update"
	say "apt-get update"
	quietly "apt-get update" apt-get update
}

# Leaves the path of the package's file in $deb.
fetch() { # PACKAGE VERSION
	deb=$vm/deb/${1}_$(echo "$2" | sed 's/:/%3a/').deb
	[ -e "$deb" ] && return
	# A file that apt-get download itself left there, or somebody put there, is as good.
	for have in "$vm/deb/${1}_$(echo "$2" | sed 's/:/%3a/')"_*.deb; do
		[ -e "$have" ] && dpkg-deb -f "$have" Version >/dev/null 2>&1 && mv "$have" "$deb" && return
	done
	say "downloading $1 $2"
	rm -rf "$vm/deb/partial"
	mkdir -p "$vm/deb/partial"
	(cd "$vm/deb/partial" && apt-get download "$1=$2") >>"$log" 2>&1 || {
		refresh
		(cd "$vm/deb/partial" && quietly "downloading $1=$2" apt-get download "$1=$2")
	}
	mv "$vm/deb/partial/"*.deb "$deb"
	rm -rf "$vm/deb/partial"
}

# True when image $1 is already what $2 describes.
current() { # NAME WANTED
	[ "$(cat "$vm/$1/stamp" 2>/dev/null)" = "$2" ]
}

size() { # FOLDER
	du -sm "$1" | awk '{ print $1 " MB" }'
}

stock() { # NAME IMAGE-METAPACKAGE HEADERS-METAPACKAGE
	image=$(depends "$2" '^linux-image-[0-9]')
	[ -n "$image" ] || {
		refresh
		image=$(depends "$2" '^linux-image-[0-9]')
	}
	[ -n "$image" ] || die "apt knows no $2: the stock kernels are those of Debian 12"
	headers=$(depends "$3" '^linux-headers-[0-9]')
	common=$(depends "$headers" '^linux-headers-.*-common$')
	kbuild=$(depends "$headers" '^linux-kbuild-')
	release=${image#linux-image-}
	wanted="$FORMAT $image $(version "$image") $kbuild $(version "$kbuild")"
	if current "$1" "$wanted"; then
		say "$1: $release is there"
		return
	fi
	began=$(date +%s)
	out=$vm/$1
	rm -rf "$out"
	mkdir -p "$out"
	for package in "$image" "$headers" "$common" "$kbuild"; do
		fetch "$package" "$(version "$package")"
		quietly "unpacking $package" dpkg-deb -x "$deb" "$out/root"
		rm -f "$deb"
	done
	build=$out/root/usr/src/$headers
	# The headers' makefile names its other half by the path it has when installed.
	sed -i "s#include /usr/src#include $out/root/usr/src#" "$build/Makefile"
	quietly "depmod" depmod -b "$out/root" "$release"
	{
		echo "arch=x86"
		echo "release=$release"
		echo "kernel=$out/root/boot/vmlinuz-$release"
		echo "build=$build"
		echo "modules=$out/root/lib/modules/$release"
	} >"$out/image"
	echo "$wanted" >"$out/stamp"
	say "$1: $release, $(size "$out"), $(($(date +%s) - began)) s"
}

# The daemon that makes what the rule says of the node; it runs in guests with this machine's libraries.
udev() {
	[ -n "$(version udev)" ] || refresh
	wanted="$FORMAT udev $(version udev)"
	current udev "$wanted" && return
	rm -rf "$vm/udev"
	mkdir -p "$vm/udev"
	fetch udev "$(version udev)"
	quietly "unpacking udev" dpkg-deb -x "$deb" "$vm/udev/root"
	rm -f "$deb"
	echo "$wanted" >"$vm/udev/stamp"
	say "udev: $(version udev), $(size "$vm/udev")"
}

# Each edit must be there afterwards: a newer source may have other lines.
edited() { # FILE TEXT
	grep -qF "$2" "$source/$1" || die "the edit of $1 found no place"
}

edit_source() {
	# With DEBUG_VM the headers' mmap_assert_locked() calls dump_mm(), which 6.1 does not export: no module could use it.
	grep -q 'EXPORT_SYMBOL(dump_mm)' "$source/mm/debug.c" ||
		sed -i '/^void dump_mm(/,/^}/s/^}/}\nEXPORT_SYMBOL(dump_mm);/' "$source/mm/debug.c"
	edited mm/debug.c 'EXPORT_SYMBOL(dump_mm)'
	# User-mode Linux forks the host's process with all that is mapped there. What the parent keeps to itself (MADV_DONTFORK) the
	# child's page tables do not know, so nothing would take it away, and whatever is mapped there later is not looked up. The child
	# begins empty instead, and faults in what it has.
	sed -i '/^\tret = init_new_ldt(to_mm, from_mm);/{
		i\	ret = unmap(\&to_mm->id, 0, TASK_SIZE, 1, \&(void *){ NULL });
		i\	if (ret) {
		i\		os_kill_ptraced_process(to_mm->id.u.pid, 1);
		i\		goto out_free;
		i\	}
	}' "$source/arch/um/kernel/skas/mmu.c"
	edited arch/um/kernel/skas/mmu.c 'unmap(&to_mm->id'
}

# The source tree that um and debug share, without what no configuration of ours compiles (Kconfig files stay). Sets $source.
unpack_source() {
	package=linux-source-6.1
	source_version=$(version "$package")
	[ -n "$source_version" ] || {
		refresh
		source_version=$(version "$package")
	}
	[ -n "$source_version" ] || die "apt knows no $package: the kernels that are built here are made from Debian 12's"
	source=$vm/source-$source_version
	[ "$(cat "$source/.unpacked" 2>/dev/null)" = "$EDITS" ] && return
	fetch "$package" "$source_version"
	say "unpacking $package $source_version"
	rm -rf "$vm"/source-*
	mkdir -p "$source"
	quietly "unpacking $package" dpkg-deb -x "$deb" "$source/deb"
	quietly "unpacking the source" tar -xJf "$source/deb/usr/src/$package.tar.xz" -C "$source" --strip-components=1 \
		--wildcards --wildcards-match-slash --exclude-from="$here/source.exclude"
	rm -rf "$source/deb" "$deb"
	edit_source
	echo "$EDITS" >"$source/.unpacked"
}

# The options of fragments; of one that is in several, the last line.
merged() { # FRAGMENT...
	cat "$@" | sed -n 's/^# \(CONFIG_[A-Z0-9_]*\) is not set$/\1 &/p; s/^\(CONFIG_[A-Z0-9_]*\)=.*/\1 &/p' |
		awk '{ key = $1; sub(/^[^ ]* /, ""); if (!(key in line)) order[n++] = key; line[key] = $0 }
			END { for (i = 0; i < n; i++) print line[order[i]] }'
}

# tinyconfig and the fragments; says which of their lines did not stick. The folder stays for modules to be built against.
own() { # NAME ARCH TARGET KERNEL FRAGMENT...
	name=$1 arch=$2 target=$3 kernel=$4
	shift 4
	# Asked first: a kernel that is there needs no source tree to be called up to date.
	source_version=$(version linux-source-6.1)
	wanted="$FORMAT $EDITS $source_version $(cat "$@" | sha256sum) $(gcc -dumpfullversion)"
	if current "$name" "$wanted"; then
		say "$name: $(sed -n 's/^release=//p' "$vm/$name/image") is there"
		return
	fi
	unpack_source
	wanted="$FORMAT $EDITS $source_version $(cat "$@" | sha256sum) $(gcc -dumpfullversion)"
	began=$(date +%s)
	out=$vm/$name
	if [ "$(cat "$out/building" 2>/dev/null)" != "$wanted" ]; then
		rm -rf "$out"
		mkdir -p "$out"
		quietly "tinyconfig" make -s -C "$source" ARCH="$arch" O="$out" tinyconfig
		merged "$@" >"$out/fragment"
		(cd "$source" && quietly "merging fragments" ./scripts/kconfig/merge_config.sh -m -O "$out" "$out/.config" "$out/fragment")
		quietly "olddefconfig" make -s -C "$source" ARCH="$arch" O="$out" olddefconfig
		echo "$wanted" >"$out/building"
	fi
	merged "$@" | grep '^CONFIG_' | while read -r line; do
		grep -qxF "$line" "$out/.config" || say "$name: $line did not stick"
	done
	say "$name: building with $jobs compilers"
	quietly "building $name" make -C "$source" ARCH="$arch" O="$out" -j "$jobs" "$target"
	quietly "preparing $name for modules" make -C "$source" ARCH="$arch" O="$out" -j "$jobs" modules_prepare
	cp "$out/vmlinux.symvers" "$out/Module.symvers"
	# The objects are most of it, and a module's build wants only scripts/ and tools/.
	find "$out" \( -path "$out/scripts" -o -path "$out/tools" \) -prune -o \
		\( -name '*.o' -o -name '*.a' -o -name '.*.cmd' \) -type f -exec rm -f {} +
	rm -f "$out/building"
	{
		echo "arch=$arch"
		echo "release=$(cat "$out/include/config/kernel.release")"
		echo "kernel=$out/$kernel"
		echo "build=$out"
		echo "modules="
	} >"$out/image"
	echo "$wanted" >"$out/stamp"
	say "$name: $(cat "$out/include/config/kernel.release"), $(size "$out"), $(($(date +%s) - began)) s"
}

[ $# -gt 0 ] || set -- 6.1 6.12 um
for name; do
	case $name in
	6.1) stock 6.1 linux-image-amd64 linux-headers-amd64 && udev ;;
	6.12) stock 6.12 linux-image-6.12-amd64 linux-headers-6.12-amd64 && udev ;;
	um) own um um linux linux "$here/um.config" ;;
	debug) own debug x86 bzImage arch/x86/boot/bzImage "$here/debug.config" ;;
	kcsan) own kcsan x86 bzImage arch/x86/boot/bzImage "$here/debug.config" "$here/kcsan.config" ;;
	*) die "no image is called $name: 6.1, 6.12, um, debug, kcsan" ;;
	esac
done
