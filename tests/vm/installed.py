#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Usage: tests/vm/installed.py UNIT-BUILD [--way modules,dkms] [--build DIR]

A Debian 12 with its 6.12 and systemd on which pinion was installed (stage.sh), by `make modules_install` or by `make dkms`, boots in a
virtual machine, and what is there is looked at and taken away (installed.sh). The last line is `N passed, N failed, N skipped`, as
run.py's.
"""
import argparse
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import boot  # noqa: E402
import build  # noqa: E402
import initramfs  # noqa: E402
import plan  # noqa: E402
from suite import sibling  # noqa: E402

SECONDS = 600
PROGRAM = plan.Program("installed", seconds=SECONDS)
# Who is there, and a service that waits for the device.
ACCOUNTS = {
    "etc/sysusers.d/accounts.conf": "u inside 1001 - - /bin/sh\nu outside 1000 - - /bin/sh\nm inside pinion\n",
}
UNITS = {
    "waits": "[Unit]\nRequires=dev-pinion.device\nAfter=dev-pinion.device systemd-user-sessions.service\n"
             "[Service]\nType=oneshot\nRemainAfterExit=yes\nUser=inside\nExecStart=/bin/sh -c 'exec 3<>/dev/pinion'\n",
    "installed": "[Unit]\nAfter=multi-user.target waits.service\n"
                 "[Service]\nType=oneshot\nStandardOutput=tty\nTTYPath=/dev/ttyS1\nExecStart=/t/installed.sh\n",
}


def initrd(folder):
    """The whole machine is its initramfs: it needs no disk, and none of the kernel's own modules. What stage.sh packed is used up."""
    archive = initramfs.Archive()
    archive.tree(os.path.join(folder, "root.tar"))
    os.unlink(os.path.join(folder, "root.tar"))
    archive.entry("init", 0o120777, b"/lib/systemd/systemd")
    for path, text in ACCOUNTS.items():
        archive.file(path, text.encode())
    for name in ("installed.sh", "said.sh"):
        archive.file(f"t/{name}", initramfs.read(os.path.join(HERE, name)), 0o755)
    for name, text in UNITS.items():
        archive.file(f"etc/systemd/system/{name}.service", text.encode())
        archive.folder("etc/systemd/system/multi-user.target.wants")
        archive.entry(f"etc/systemd/system/multi-user.target.wants/{name}.service", 0o120777, f"../{name}.service".encode())
    # A guest unpacks slowly.
    return archive.whole()


def stage(run, tally, way, args, folder):
    """True when there is a machine to boot."""
    p = subprocess.run(["sh", os.path.join(HERE, "stage.sh"), way, args.units, folder], stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False)
    out = p.stdout.decode(errors="replace")
    passed, failed, skips = run.suite.count(out, p.returncode)
    tally.passed += passed
    for name, why in skips:
        tally.skip(name, why)
    if failed:
        tally.fail(f"stage.sh {way}", f"{failed} failed", out.splitlines()[-40:])
        tally.failed += failed - 1
    return not (failed or skips)


def boots(run, tally, way, args, folder):
    image = SimpleNamespace(name="installed", arch="x86", kernel=os.path.join(folder, "vmlinuz"))
    vm = boot.Boot(image, initrd(folder), [SECONDS], [()], cmdline="systemd.getty_auto=0 systemd.show_status=0", memory=2048)
    vm.run()
    log = os.path.join(args.build, "log", f"installed-{way}.txt")
    os.makedirs(os.path.dirname(log), exist_ok=True)
    with open(log, "w", encoding="utf-8") as f:
        f.write("\n".join(vm.log.lines + ["", "== installed"] + vm.steps[0].out) + "\n")
    if vm.ready is None:
        tally.fail(way, f"does not come up: {vm.ended}", vm.log.lines[-40:])
        return
    print(f"     installed {way}: {vm.release}, all services after {vm.ready:.0f} s, in all {vm.wall_s:.0f} s wall, {vm.cpu_s:.0f} s CPU",
          flush=True)
    early = vm.log.bad(-1)
    if early:
        tally.fail(f"{way} boot", "the kernel's log", vm.log.around(-1, early[0]))
    run.judge(tally, way, run.Job("installed", "", SECONDS, program=PROGRAM), 0, vm)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n", maxsplit=1)[0].removeprefix("Usage: "))
    parser.add_argument("units")
    parser.add_argument("--way", default="modules,dkms")
    parser.add_argument("--build", default=os.path.join("build", "vm"))
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    held = build.lock(args.build, "installed")
    # An end by a signal ends the virtual machine too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    run = sibling()
    tally = run.Tally("installed", run.suite.allowed_skips())
    for way in args.way.split(","):
        folder = os.path.join(args.build, "installed", way)
        if stage(run, tally, way, args, folder):
            boots(run, tally, way, args, folder)
    print(f"{tally.passed} passed, {tally.failed} failed, {tally.skipped} skipped")
    del held
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
