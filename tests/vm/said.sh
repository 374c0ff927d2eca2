# SPDX-License-Identifier: MIT
# Sourced in a guest by what tries the command there: points, and what a command said.
n=0
bad=0

point() { # NAME STATUS
	n=$((n + 1))
	if [ "$2" -eq 0 ]; then
		echo "ok $n - $1"
	else
		bad=1
		echo "not ok $n - $1"
		sed 's/^/# /' /tmp/out
	fi
}

# As USER in the group or not, or as root: runs the command; its words go to /tmp/out, its exit code to $rc.
as() { # USER COMMAND
	user=$1
	shift
	if [ "$user" = root ]; then
		sh -c "$*" >/tmp/out 2>&1
	else
		su -s /bin/sh "$user" -c "$*" >/tmp/out 2>&1
	fi
	rc=$?
}

# The last command ended with CODE and said each PATTERN.
said() { # NAME CODE PATTERN...
	name=$1 ok=0
	[ "$rc" -eq "$2" ] || ok=1
	shift 2
	for pattern; do
		grep -q -- "$pattern" /tmp/out || { ok=1 && echo "# no: $pattern"; }
	done
	point "$name" $ok
}

# A safetensors file with one tensor of so many bytes.
model() { # PATH BYTES
	header=$(printf '%-96s' "{\"w\":{\"dtype\":\"U8\",\"shape\":[$2],\"data_offsets\":[0,$2]}}")
	{
		printf '\140\0\0\0\0\0\0\0%s' "$header"
		head -c "$2" /dev/zero
	} >"$1"
	chmod 644 "$1"
}
