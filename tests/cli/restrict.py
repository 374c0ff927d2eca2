# SPDX-License-Identifier: MIT
"""What takes something away from a process, for real, before it becomes the command: limits, rights, calls, mounts, memory."""
import ctypes
import errno
import os
import resource
import struct
import sys
import tempfile
import time

import test_cli
from test_cli import Skip


def plain_uid():
    """A user of this run's own where there may be one: RLIMIT_MEMLOCK is shared by all that a user runs."""
    try:
        with open("/proc/self/uid_map", encoding="ascii") as f:
            _, _, count = f.readline().split()
    except OSError:
        return 65534
    uid = 100000 + os.getpid() % 60000
    return uid if int(count) > uid else 65534


NOBODY = plain_uid()
CALLS = {"io_uring_setup": test_cli.IO_URING_SETUP, "io_uring_enter": 426, "io_uring_register": 427}
NO_NEW_PRIVS, SET_SECCOMP, FILTER = 38, 22, 2


def filtered(code, err):
    """For preexec_fn: a seccomp filter that begins with @code, whose end allows and behind whose end the call gives @err."""
    code += struct.pack("<HBBI", 0x06, 0, 0, 0x7fff0000) + struct.pack("<HBBI", 0x06, 0, 0, 0x00050000 | err)
    libc = ctypes.CDLL(None, use_errno=True)

    def apply():
        buf = ctypes.create_string_buffer(code, len(code))
        prog = struct.pack("@HxxxxxxP" if ctypes.sizeof(ctypes.c_void_p) == 8 else "@HxxP", len(code) // 8, ctypes.addressof(buf))
        if libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(SET_SECCOMP, FILTER, prog, 0, 0):
            raise OSError(ctypes.get_errno(), "seccomp")
    return apply


def seccomp(calls, err=errno.EPERM):
    """For preexec_fn: a filter that answers @calls with @err, as a container engine's profile does."""
    names = [CALLS[c] for c in calls]
    code = struct.pack("<HBBI", 0x20, 0, 0, 0)
    for i, number in enumerate(names):
        code += struct.pack("<HBBI", 0x15, len(names) - i, 0, number)
    return filtered(code, err)


def ring_op(op, err):
    """For preexec_fn: io_uring_register of operation @op alone answers @err, as a kernel that has not got it does."""
    second_arg = 24 if sys.byteorder == "little" else 28
    return filtered(struct.pack("<HBBI", 0x20, 0, 0, 0) + struct.pack("<HBBI", 0x15, 0, 2, CALLS["io_uring_register"]) +
                    struct.pack("<HBBI", 0x20, 0, 0, second_arg) + struct.pack("<HBBI", 0x15, 1, 0, op), err)


def memlock(kib):
    return lambda: resource.setrlimit(resource.RLIMIT_MEMLOCK, (kib << 10, kib << 10))


def plain_user():
    """A user without rights; nothing to be done for one who is."""
    def apply():
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
    return apply


def all_of(*steps):
    def apply():
        for step in steps:
            step()
    return apply


def as_user(c):
    """Makes the case's folders the plain user's, who must reach the program too."""
    if os.geteuid():
        return
    path = test_cli.PINION
    while path != "/":
        if not os.stat(path).st_mode & 0o001:
            raise Skip(f"other users cannot reach {path}")
        path = os.path.dirname(path)
    for path in (c.tmp, c.dir):
        os.makedirs(path, mode=0o700, exist_ok=True)
        os.chown(path, NOBODY, NOBODY)


class Group:
    """A control group with a memory limit, of whichever version there is."""

    def __init__(self, limit):
        if os.geteuid():
            raise Skip("a control group needs root")
        v1, v2 = "/sys/fs/cgroup/memory", "/sys/fs/cgroup"
        base, self.file = (v1, "memory.limit_in_bytes") if os.path.isdir(v1) else (v2, "memory.max")
        try:
            self.path = tempfile.mkdtemp(prefix="pinion-test-", dir=base)
            with open(os.path.join(self.path, self.file), "w", encoding="ascii") as f:
                f.write(str(limit))
        except OSError as why:
            if hasattr(self, "path"):
                os.rmdir(self.path)
            raise Skip(f"no control group with a memory limit can be made: {why}") from why

    def enter(self):
        with open(os.path.join(self.path, "cgroup.procs"), "w", encoding="ascii") as f:
            f.write("0")

    def close(self):
        for _ in range(200):
            try:
                os.rmdir(self.path)
                return
            except OSError:
                time.sleep(0.1)  # a dead member is counted for a moment
