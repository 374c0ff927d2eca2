#!/bin/sh
# SPDX-License-Identifier: MIT
# In a guest: Debian's udevd and the rule, as they are installed. The node that the module makes gets its group and mode when the
# module is loaded under udevd, and when udevd comes later and is told to look; without the group it stays root's.
UDEVD=/lib/systemd/systemd-udevd
NODE=/dev/pinion
RULE=/usr/lib/udev/rules.d/60-pinion.rules
GID=977
n=0
bad=0

point() { # NAME STATUS
	n=$((n + 1))
	if [ "$2" -eq 0 ]; then
		echo "ok $n - $1"
	else
		bad=1
		echo "not ok $n - $1"
		ls -l $NODE /dev/ 2>&1 | grep -e pinion -e rror | sed 's/^/# /'
		sed 's/^/# /' /tmp/out
	fi
}

node_is() { # MODE UID:GID
	[ "$(stat -c '%a %u:%g' $NODE)" = "$1 $2" ]
}

# A device's event is done when the queue is empty; a queue that has not begun is empty too.
settled() { # MODE UID:GID
	i=0
	while ! node_is "$1" "$2" && [ $i -lt 300 ]; do
		udevadm settle --timeout=10
		sleep 0.1
		i=$((i + 1))
	done
	udevadm settle --timeout=10 && node_is "$1" "$2"
}

# The device's event is done: udevd has noted when.
handled() {
	i=0
	while ! udevadm info --query=property /sys/class/misc/pinion | grep -q USEC_INITIALIZED && [ $i -lt 300 ]; do
		sleep 0.1
		i=$((i + 1))
	done
	[ $i -lt 300 ]
}

start_udevd() {
	$UDEVD --debug >/tmp/out 2>&1 &
	udevd=$!
	i=0
	while ! udevadm control --ping --timeout=2 2>/dev/null && [ $i -lt 150 ]; do
		sleep 0.2
		i=$((i + 1))
	done
}

stop_udevd() {
	udevadm control --exit --timeout=10
	wait $udevd
}

again() {
	rmmod pinion && insmod /mod/pinion.ko
}

: >/tmp/out
if [ ! -x $UDEVD ]; then
	echo "ok 1 - udev rule # SKIP no udev in the cache: make vm-images"
	exit 0
fi
node_is 660 0:0
point "without udev the node is root's" $?

# What systemd-sysusers makes of pinion.conf.
[ "$(sed -n 's/^g \([a-z]*\) -$/\1/p' /usr/lib/sysusers.d/pinion.conf)" = pinion ]
point "sysusers has the rule's group" $?
echo "pinion:x:$GID:" >>/etc/group
echo "pinion:x:1000:$GID::/:/bin/sh" >>/etc/passwd

udevadm test /sys/class/misc/pinion >/tmp/out 2>&1 && grep -q "$RULE:[0-9]* GROUP $GID" /tmp/out && grep -q "$RULE:[0-9]* MODE 0660" /tmp/out
point "udev reads the rule as it is meant" $?
! grep -i -e 'unknown' -e 'invalid' -e 'failed' /tmp/out | grep pinion
point "and complains of nothing in it" $?

start_udevd
udevadm trigger --action=add /sys/class/misc/pinion
settled 660 0:$GID
point "udevd that came later sets group and mode when it is told to look" $?
udevadm info --query=property /sys/class/misc/pinion >/tmp/info && grep -q '^TAGS=.*:systemd:' /tmp/info && grep -q '^CURRENT_TAGS=.*:systemd:' /tmp/info
point "a systemd unit can wait for the device" $?

again && settled 660 0:$GID
point "a module that is loaded under udevd has them by itself" $?
su -s /bin/sh pinion -c "exec 3<>$NODE"
point "a member of the group opens it" $?
! su -s /bin/sh nobody -c "exec 3<>$NODE" 2>/dev/null
point "another user does not" $?

rmmod pinion
udevadm settle --timeout=10
[ ! -e $NODE ]
point "the node goes with the module" $?
stop_udevd

# A machine where the group was not made: the rule must not open the node to anybody.
sed -i '/^pinion:/d' /etc/group /etc/passwd
start_udevd
insmod /mod/pinion.ko && handled && node_is 660 0:0
point "without the group the node stays root's" $?
stop_udevd
exit $bad
