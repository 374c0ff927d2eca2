#!/bin/sh
# SPDX-License-Identifier: MIT
# In a guest that is the machine of stage.sh, as its last service at boot: what an administrator and two users find there. The
# module was installed, and nobody loaded it by hand.
NODE=/dev/pinion
BUFFERS=/sys/class/misc/pinion/buffers
USERS=/sys/module/pinion/refcnt
CHECKOUT=/srv/pinion
# shellcheck source=tests/vm/said.sh
. "${0%/*}/said.sh"

uptime() {
	read -r now _ </proc/uptime
	echo "$now"
}

holds() { # NAME COMMAND...
	name=$1
	shift
	"$@" >/tmp/out 2>&1
	point "$name" $?
}

# udevd may be at it still.
node_is() { # OWNER
	i=0
	while [ $i -lt 300 ] && [ "$(stat -c '%F %a %U:%G' $NODE 2>&1)" != "character special file 660 $1" ]; do
		udevadm settle --timeout=10
		sleep 0.1
		i=$((i + 1))
	done
	ls -l $NODE
	[ "$(stat -c '%F %a %U:%G' $NODE)" = "character special file 660 $1" ]
}

loaded() {
	grep -q '^pinion .* Live' /proc/modules
}

unloaded() {
	! grep '^pinion ' /proc/modules && [ ! -e $NODE ]
}

# By the sender's own name: of a process that has ended already the journal may not know the unit.
by_the_file() {
	systemctl is-active systemd-modules-load && journalctl -b -t systemd-modules-load | grep "Inserted module .pinion"
}

installed() {
	modinfo -n pinion
	modinfo -n pinion | grep -q "^/lib/modules/$(uname -r)/updates/"
}

no_unit_failed() {
	systemctl --failed --plain --no-legend
	[ -z "$(systemctl --failed --plain --no-legend)" ]
}

system_group() {
	getent group pinion && [ "$(getent group pinion | cut -d : -f 3)" -lt 1000 ]
}

by_the_rule() {
	udevadm info $NODE | grep "TAGS=.*:systemd:" && udevadm test /sys/class/misc/pinion 2>&1 | grep "60-pinion.rules:.* GROUP"
}

waited() {
	systemctl is-active dev-pinion.device && systemctl is-active waits.service
}

at_boot() {
	holds "the module is loaded, by nobody" loaded
	holds "systemd-modules-load did it, by the file" by_the_file
	holds "from where it was installed" installed
	holds "no unit has failed" no_unit_failed
	holds "the group is a system group" system_group
	holds "the node is root's and the group's, 0660" node_is root:pinion
	holds "by the rule" by_the_rule
	holds "a unit that waits for the device ran, as a user of the group" waited
}

users() { # WHEN
	as root "pinion doctor"
	said "doctor, root$1" 0 "^ok .* ground .* kmod: buffers are pinned" "^ok .* module .* loaded, ABI 1, 0 B of"
	as root "pinion info"
	said "info, root$1" 0 "^ground: kmod" "^counts: kmod" "^module: loaded, ABI 1"
	as inside "pinion doctor"
	said "doctor, a user of the group$1" 0 "^ok .* ground .* kmod: buffers are pinned" "^ok .* module .* loaded, ABI 1"
	as inside "pinion info"
	said "info, a user of the group$1" 0 "^ground: kmod" "^module: loaded, ABI 1"
	as inside "pinion load /tmp/small --name m && pinion ls && pinion ls --buffers && pinion rm m"
	said "a user of the group loads, lists and lets go$1" 0 "^m: .* pinned, sealed read-only" " pages .* $(id -u inside) "
	as outside "exec 3<>$NODE"
	said "another user may not open it$1" 2 "Permission denied"
	as outside "pinion info"
	said "info, another user$1" 0 "^ground: memfd" "^module: .*may not open"
}

# What doctor says to a user who is not of the group, typed.
advice() {
	as outside "pinion doctor"
	said "doctor tells another user what root is to type" 0 "^warn .* module .* may not open /dev/pinion.*usermod -aG pinion"
	as root "usermod -aG pinion outside"
	as outside "pinion info"
	said "after which that user may" 0 "^ground: kmod"
	gpasswd -d outside pinion >/dev/null
}

# What a holder has goes when its process has ended.
unused() {
	i=0
	while [ "$(cat $BUFFERS $USERS | sort -u)" != 0 ] && [ $i -lt 60 ]; do
		sleep 1
		i=$((i + 1))
	done
	cat $BUFFERS $USERS
	[ "$(cat $BUFFERS $USERS | sort -u)" = 0 ]
}

held() {
	as inside "pinion load /tmp/small --name m"
	as root "modprobe -r pinion"
	said "while a buffer is held the module stays" 1 "in use"
	holds "and says that there is one" grep -x '[1-9][0-9]*' $BUFFERS
	as inside "pinion rm m"
	said "which is let go" 0
	holds "and then there is none" unused
}

again() {
	as root "modprobe -r pinion"
	said "it is unloaded" 0
	udevadm settle --timeout=10
	holds "and the node with it" unloaded
	as root "pinion doctor"
	said "doctor says what to type" 0 "^warn .* module .*as root: modprobe pinion" "^ok .* ground .* memfd"
	as root "pinion info"
	said "info says so too" 0 "^ground: memfd" "^module: .*not loaded.*modprobe pinion"
	echo "options pinion max_user_bytes=1073741824" >/etc/modprobe.d/pinion.conf
	as root "modprobe pinion"
	said "typed, it is loaded" 0
	holds "the node has group and mode again" node_is root:pinion
	holds "with the parameters of /etc/modprobe.d" grep -x 1073741824 /sys/module/pinion/parameters/max_user_bytes
}

nothing_is_left() {
	! find /lib/modules/ /usr/src /usr/lib/udev /usr/lib/sysusers.d /usr/lib/modules-load.d /var/lib/dkms -name '*pinion*' | grep .
}

# Off this machine: what is loaded stays loaded.
gone() {
	as root "make -C $CHECKOUT modules_uninstall"
	said "make modules_uninstall, while it is loaded" 0
	holds "nothing is left" nothing_is_left
	holds "the loaded module is not, and is unused" unused
	as root "modprobe -r pinion; rmmod pinion"
	holds "and can be unloaded" unloaded
	as root "modprobe pinion"
	said "there is none to be loaded" 1 "not found"
	as root "pinion doctor"
	said "doctor says that it is not there" 0 "^warn .* module .* not there" "make modules modules_install"
	holds "a boot would not miss it" systemctl restart systemd-modules-load
}

exec </dev/null 2>&1
echo "@@ready $(uptime) $(uname -r)"
echo "pinion-vm: begin 0" >/dev/kmsg
echo "@@begin 0"
ldconfig
model /tmp/small 3000000
at_boot
users ""
advice
held
again
users ", loaded again"
gone
echo "1..$n"
echo "@@end 0 $bad $(uptime)"
echo "pinion-vm: end 0" >/dev/kmsg
echo "@@done $(uptime)"
