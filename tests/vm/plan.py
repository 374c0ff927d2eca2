# SPDX-License-Identifier: MIT
"""What is run where. A boot is one start of a kernel; its programs run one after another and share the loaded module."""
import os
import subprocess
from dataclasses import dataclass, field

import images
import initramfs

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
ALL = ("um", "6.1", "6.12", "debug", "kcsan")
STOCK = ("6.1", "6.12")
QEMU = STOCK + ("debug",)


@dataclass(frozen=True)
class Program:
    """One program of tests/vm/guest/NAME.c, or of the host (path). allowed: what it makes the kernel say. params: the module is
    loaded anew with these. seconds: guest time after which it is ended. long: only run by --long, and alone then. No argument has a
    space in it."""
    name: str
    args: tuple = ()
    env: tuple = ()  # "NAME=VALUE"
    allowed: tuple = ()
    params: str = ""
    seconds: int = 600  # many times what the longest takes on a slow machine
    tiers: tuple = ALL
    smoke: bool = False
    long: bool = False
    path: str = ""
    files: tuple = ()  # (path in the guest, path here)


@dataclass(frozen=True)
class Boot:
    """modules: the image's, loaded first (what a kernel has built in, or has not at all, is left out). extra: folders of tests/vm
    with modules of our own, loaded after pinion. cmdline, qemu, memory: as boot.Boot. ext4: /t/ext4.img is there."""
    name: str
    programs: tuple
    tiers: tuple = ALL
    modules: tuple = ()
    extra: tuple = ()
    cmdline: str = ""
    qemu: tuple = ()
    memory: int = 1024
    ext4: bool = False


@dataclass(frozen=True)
class Canary:
    """A bug planted by tests/vm/canary, and what the log must say of it. Each has a boot of its own: a first report may turn the
    checkers off."""
    bug: str
    says: str
    tiers: tuple = field(default=ALL)


# Node 1 has no memory, node 2 no processor.
TWO_NODES = ("-object", "memory-backend-ram,id=m0,size=512M", "-object", "memory-backend-ram,id=m1,size=512M",
             "-numa", "node,nodeid=0,cpus=0,memdev=m0", "-numa", "node,nodeid=1,cpus=1", "-numa", "node,nodeid=2,memdev=m1")

# What the kernel says of a page fault that finds no memory, before it is tried again, and of a tracepoint that finds none.
FAULT_WITHOUT_MEMORY = (r"Huh VM_FAULT_OOM leaked out",)
LOAD_WITHOUT_MEMORY = (r"cut here", r"WARNING: .* at kernel/trace/trace_events\.c:\d+ event_define_fields")
# Kernels of our own let each step of theirs fail.
KERNEL_FAILS = (
    Program("abi_faults", ("kernel",), tiers=("um", "debug"), seconds=900, allowed=FAULT_WITHOUT_MEMORY),
    Program("abi_faults", ("load",), tiers=("um", "debug"), allowed=LOAD_WITHOUT_MEMORY),
)

# What buffers are good for; where there is DMA, with an importer of our own.
BUFFERS = (
    Program("map"),
    Program("io"),
    Program("rights"),
    Program("pin"),
    Program("dma", tiers=QEMU),
) + KERNEL_FAILS

# So that stock kernels too see who writes to what was given back, when it is given out again.
FREE_IS_POISON = "page_poison=1 slub_debug=FZP"

# Everything at random; for long under the kernel that looks for bugs.
FUZZ = (
    Program("fuzz", ("20",)),
    Program("fuzz", ("600",), seconds=1200, tiers=("debug", "kcsan"), long=True),
)



def udev_files():
    """Debian's udev as images.sh unpacked it, and what `make modules_install` lays beside it; () where it is not there."""
    binary = os.path.join(images.cache(), "udev", "root", "bin", "udevadm")
    if not os.path.exists(binary) or "not found" in subprocess.run(["ldd", binary], stdout=subprocess.PIPE, check=False).stdout.decode():
        return ()
    files = {"bin/udevadm": binary, "lib/systemd/systemd-udevd": binary,
             "usr/lib/udev/rules.d/60-pinion.rules": os.path.join(ROOT, "kmod", "60-pinion.rules"),
             "usr/lib/sysusers.d/pinion.conf": os.path.join(ROOT, "kmod", "pinion.sysusers")}
    files.update({lib.lstrip("/"): os.path.realpath(lib) for lib in initramfs.libraries(binary)})
    return tuple(files.items())


# What the kernel says of memory that a test breaks, and of who touches it.
BROKEN_MEMORY = (r"Memory failure:", r"MCE: Killing")

# Devices and what is in flight on them.
COUNTS = (
    Program("counts"),
    Program("counts_page"),
    Program("counts_abi"),
    Program("counts_faults"),
    Program("counts_devices"),
    Program("counts_claims"),
    Program("counts_seen"),
    Program("counts_seen", ("group",), params="window_group=1"),
    Program("counts_elsewhere"),
    Program("counts_death", ("1000000",), tiers=("um",)),
    Program("counts_death", ("100000",), tiers=QEMU),
    Program("counts_gone"),
    Program("counts_restart"),
    Program("counts_flush"),
    Program("counts_wake"),
    Program("counts_uring"),
    Program("counts_cost", tiers=("um",)),
    Program("counts_cost", tiers=("6.12",), long=True),
    Program("counts_hostile", ("4", "1000"), tiers=("um",)),
    Program("counts_hostile", ("4", "300"), tiers=QEMU),
    Program("counts_fuzz", ("20",)),
    Program("counts_wake", ("1000000",), seconds=3600, tiers=("um", "6.1", "6.12"), long=True),
    Program("counts_fuzz", ("600",), seconds=1200, tiers=("debug", "kcsan"), long=True),
)

BOOTS = (
    Boot("plain", (
        Program("smoke", smoke=True),
        Program("kept", tiers=("um",)),
        Program("abi"),
        Program("abi_faults"),
        Program("list"),
        Program("limits"),
        Program("seen"),
        Program("node"),
        Program("udev", path=os.path.join(HERE, "udev.sh"), files=udev_files(), tiers=STOCK),
        Program("limits", ("memlock",), params="memlock=1"),
    ), modules=("vgem", "loop", "crc32c_generic", "ext4"), ext4=True),
    Boot("kunit", (
        Program("smoke", tiers=("um",)),
    ), tiers=("um",), extra=("kunit",)),
    Boot("buffers", BUFFERS, tiers=("um",), ext4=True),
    Boot("importers", BUFFERS, tiers=QEMU, modules=("vgem", "loop", "crc32c_generic", "ext4"), extra=("importer",),
         ext4=True),
    Boot("swiotlb", (
        Program("smoke"),
        Program("rights"),
        Program("dma"),
    ), tiers=QEMU, modules=("vgem",), extra=("importer",), cmdline="swiotlb=force"),
    Boot("lives", (
        Program("advise", allowed=BROKEN_MEMORY),
        Program("life"),
        Program("press"),
    ), modules=("vgem", "loop", "crc32c_generic", "ext4"), ext4=True),
    Boot("large", (
        Program("large"),
    ), tiers=("6.12",), memory=4864),
    Boot("counts", COUNTS),
    # To memory and back: q35 can, where it is not told otherwise. Freezing patches a jump of all code that may sleep while the other
    # processor runs it. An emulator of a thread each may still run the breakpoint of a patch that is done, which the kernel takes for
    # an unknown one (met once, on 6.12); one thread for both has no such moment.
    Boot("suspend", (
        Program("suspend"),
    ), tiers=STOCK, qemu=("-accel", "tcg,thread=single", "-global", "ICH9-LPC.disable_s3=0")),
    Boot("fuzz", FUZZ, tiers=("um",)),
    Boot("fuzz", FUZZ, tiers=STOCK, extra=("importer",), cmdline=FREE_IS_POISON),
    Boot("fuzz", FUZZ, tiers=("debug", "kcsan"), extra=("importer",)),
    Boot("two-nodes", (
        Program("smoke"),
        Program("nodes"),
    ), tiers=STOCK, qemu=TWO_NODES),
    # Without ACPI nobody tells that kernel of nodes.
    Boot("two-nodes", (
        Program("nodes", ("fake",)),
    ), tiers=("debug",), cmdline="numa=fake=2"),
)

CANARIES = (
    Canary("warn", r"WARNING: "),
    Canary("badpage", r"BUG: Bad page state"),
    Canary("leak", r"kmemleak: \d+ new", ("um", "debug")),
    Canary("uaf", r"KASAN: (?:slab-)?use-after-free", ("debug",)),
    Canary("locks", r"possible circular locking dependency", ("debug",)),
    Canary("atomic", r"sleeping function called from invalid context", ("debug",)),
    Canary("shift", r"UBSAN: shift-out-of-bounds", ("debug",)),
    Canary("race", r"KCSAN: data-race in .*\[canary\]", ("kcsan",)),
)
