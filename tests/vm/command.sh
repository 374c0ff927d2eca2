#!/bin/sh
# SPDX-License-Identifier: MIT
# In a guest: the command against the loaded module, as root, as a user who may not open it and as one who may; and what it says when
# one of the module's limits is short. With the argument "memlock", and the module loaded with memlock=1: that limit.
export LD_LIBRARY_PATH=/u
P=/u/pinion
PARAMETERS=/sys/module/pinion/parameters
# shellcheck source=tests/vm/said.sh
. "${0%/*}/said.sh"
ulimit -l unlimited

# Nothing of ours is left: what a holder had goes when its process has ended.
left() { # BYTES
	tries=0
	until $P info >/tmp/out && grep -q "^module bytes: $1 of" /tmp/out; do
		[ $tries -lt 60 ] || return 1
		tries=$((tries + 1))
		sleep 1
	done
}

echo "root:x:0:0::/root:/bin/sh
outside:x:1000:1000::/:/bin/sh
inside:x:1001:1001::/:/bin/sh" >/etc/passwd
echo "root:x:0:
pinion:x:900:inside
outside:x:1000:
inside:x:1001:" >/etc/group
chgrp pinion /dev/pinion
chmod 660 /dev/pinion
chmod 1777 /tmp /dev/shm
model /tmp/small 3000000
model /tmp/large 9000000

memlock() {
	as root "ulimit -l unlimited; $P load /tmp/small --name m"
	said "memlock=1 with no limit: it loads" 0 "pinned"
	as root "$P rm m"
	as inside "ulimit -l 1024; $P load /tmp/small --name m"
	said "memlock=1 with 1 MiB: the limit, the need and the parameter" 4 "RLIMIT_MEMLOCK is 1048576" "parameters/memlock"
	left "0 B"
	point "nothing is left" $?
}

# What doctor must say of rings that share what is registered, by the kernel.
sharing() {
	case $(uname -r) in
	6.12.*) echo "^warn .* io_uring clone .* of one buffer at a time" ;;
	6.1.*) echo "^warn .* io_uring clone .* not in this kernel .* charged once all the same" ;;
	*) echo "io_uring" ;;
	esac
}

by_root() {
	as root "$P doctor"
	said "doctor, root" 0 "^ok .* ground .* kmod: buffers are pinned" "^ok .* module .* loaded, ABI 1, 0 B of" "^ok .* module limits" \
		"$(sharing)"
	as root "$P info"
	said "info, root" 0 "^ground: kmod" "^module: loaded, ABI 1" "^module bytes of this user: 0 B of"
	as root "$P load /tmp/small --name m"
	said "load, root: pinned and sealed" 0 "^m: .* pinned, sealed read-only"
	as root "$P load /tmp/small --name locked --hold pinned"
	said "load --hold pinned" 0 " pinned, "
	as root "$P ls"
	said "ls names the hold" 0 "^m .* pinned "
	as root "$P ls --buffers"
	said "ls --buffers shows the holder's memory" 0 "MEMORY .* KIND" " pages .* r .* 0 "
	as root "$P show m"
	said "show: the name and its memory" 0 "pinned" "MEMORY .* KIND" " pages "
	as root "PINION_GROUND=memfd $P load /tmp/small --name beside --hold pinned"
	said "the other ground has no such hold, and says where it is had" 1 "module"
}

by_others() {
	as outside "$P doctor"
	said "doctor, a user who may not open it" 0 "^warn .* module .* may not open /dev/pinion.*usermod -aG pinion" "^ok .* ground .* memfd"
	as outside "$P info"
	said "info, a user who may not open it" 0 "^ground: memfd" "^module: .*may not open"
	as outside "PINION_GROUND=kmod $P info"
	said "the ground that was asked for and is refused" 1 "may not open /dev/pinion"
	as outside "$P ls --buffers"
	said "ls --buffers, a user who may not open it" 1 "may not open /dev/pinion"
	as outside "$P load /tmp/small --name mine"
	said "load, a user who may not open it: on memfd" 0 "^mine: .* sealed read-only"
	as outside "$P rm mine"
	as inside "$P doctor --for 1TiB"
	said "doctor --for more than there may be" 4 "module limits .* are left of max_user_bytes; as root: echo"
	as inside "$P load /tmp/small --name mine && $P ls && $P ls --buffers"
	said "load and ls, a user of the group" 0 "^mine: .* pinned, sealed read-only" "^mine " " pages .* 1001 "
	as inside "$P rm mine"
	said "rm, a user of the group" 0
}

# Lowered PARAMETER to VALUE, a load by the user of the group is refused with PATTERN.
short() { # PARAMETER VALUE CODE PATTERN...
	parameter=$1 was=$(cat "$PARAMETERS/$1")
	echo "$2" >"$PARAMETERS/$1"
	as inside "$P load /tmp/large --name large"
	echo "$was" >"$PARAMETERS/$parameter"
	shift 2
	said "$parameter is short: said, with its use and what mends it" "$@"
}

limits() {
	short max_bytes 8388608 4 "needs 90[0-9]* bytes" "max_bytes is 8388608, of which [0-9]* are in use" "as root: echo [0-9]* > $PARAMETERS/max_bytes"
	short max_user_bytes 4194304 4 "max_user_bytes is 4194304, of which 0 are in use" "$PARAMETERS/max_user_bytes"
	short max_user_buffers 0 4 "as many buffers and slices as the module allows" "$PARAMETERS/max_user_buffers"
	as inside "$P load /tmp/large --name large && $P rm large"
	said "with the limits back it loads" 0 " pinned, "
}

if [ "$1" = memlock ]; then
	memlock
else
	by_root
	by_others
	limits
	as root "$P rm m && $P rm locked && $P ls"
	said "rm, root" 0
	left "0 B"
	point "nothing is left" $?
fi
echo "1..$n"
exit $bad
