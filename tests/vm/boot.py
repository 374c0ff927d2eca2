# SPDX-License-Identifier: MIT
"""One boot of one kernel: starts it, follows its two streams (kernel console, output of the steps), ends it."""
import ctypes
import os
import re
import selectors
import shutil
import signal
import subprocess
import tempfile
import time

import klog

COMMON = "rdinit=/init printk.devkmsg=on ignore_loglevel panic=-1 oops=panic nowatchdog rcupdate.rcu_cpu_stall_suppress=1"
BEGIN = re.compile(r"@@begin (\d+)$")
END = re.compile(r"@@end (\d+) (\d+) ([\d.]+)$")
READY = re.compile(r"@@ready ([\d.]+) (\S+)$")
DONE = re.compile(r"@@done ([\d.]+)$")
START_S = 300  # to process 1, without a line on either stream
SLACK_S = 120  # beyond a step's own limit, which is guest time


PR_SET_PDEATHSIG = 1


def end_with_parent():
    """Whoever runs tests may be killed; what it booted must not go on."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Step:
    """What one line of the plan gave."""

    def __init__(self):
        self.out = []
        self.rc = None
        self.bad = []


class Boot:
    """image: images.Image; initrd: bytes; cmdline: more of the kernel's command line; qemu: more of QEMU's; memory: MiB; limits:
    seconds of each step; allowed: regular expressions of each step; needed: of each step, whether what follows needs that it worked.
    run() leaves: ready (uptime of process 1 or None), release,
    steps, log, ended (why it stopped, or None), wall_s, cpu_s."""

    def __init__(self, image, initrd, limits, allowed, cmdline="", qemu=(), memory=1024, cpus=2, needed=()):
        self.image, self.initrd, self.limits, self.allowed = image, initrd, limits, allowed
        self.needed = needed or [False] * len(limits)
        self.cmdline, self.qemu, self.memory, self.cpus = cmdline, list(qemu), memory, cpus
        self.steps = [Step() for _ in limits]
        self.log = klog.Log()
        self.ready = self.release = self.ended = None
        self.current = -1
        self.done = False
        self.wall_s = self.cpu_s = 0.0

    def argv(self, folder, port):
        initrd = os.path.join(folder, "initrd")
        with open(initrd, "wb") as f:
            f.write(self.initrd)
        if self.image.arch == "um":
            # Its memory is a file that is mapped executable: where /dev/shm forbids that or is small, the temporary folder.
            return [self.image.kernel, f"mem={self.memory}M", f"initrd={initrd}", "con=null", "con0=null,fd:1",
                    f"con1=null,fd:{port}", "console=tty0", "pinion.port=tty1", f"umid=pinion{os.getpid()}", f"uml_dir={folder}",
                    *COMMON.split(), *self.cmdline.split()]
        # A socket for each CPU: nodes that share one are a warning at boot.
        return ["qemu-system-x86_64", "-M", "q35", *(() if "-accel" in self.qemu else ("-accel", "tcg,thread=multi")), "-cpu", "max",
                "-smp", f"{self.cpus},sockets={self.cpus}", "-m", str(self.memory),
                "-display", "none", "-nodefaults", "-no-reboot", "-serial", "stdio",
                "-chardev", f"file,id=steps,path=/dev/fd/{port}", "-serial", "chardev:steps",
                "-kernel", self.image.kernel, "-initrd", initrd,
                "-append", f"console=ttyS0 reboot=t pinion.port=ttyS1 {COMMON} {self.cmdline}".strip(), *self.qemu]

    def environment(self, folder):
        env = dict(os.environ)
        if self.image.arch == "um":
            room = os.statvfs("/dev/shm") if os.path.isdir("/dev/shm") else None
            enough = room and room.f_bavail * room.f_frsize > (self.memory + 64) << 20 and not room.f_flag & os.ST_NOEXEC
            env["TMPDIR"] = "/dev/shm" if enough else folder
        return env

    def run(self):
        folder = tempfile.mkdtemp(prefix="pinion-vm-")
        began = time.monotonic()
        out, port = os.pipe()
        p = subprocess.Popen(self.argv(folder, port), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             pass_fds=(port,), start_new_session=True, env=self.environment(folder), preexec_fn=end_with_parent)
        os.close(port)
        try:
            self.follow(p, p.stdout.fileno(), out)
        finally:
            # User-mode Linux has a process per guest process; a group ends with all of them.
            try:
                os.killpg(p.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            _, _, usage = os.wait4(p.pid, 0)
            p.returncode = 0
            p.stdout.close()
            os.close(out)
            shutil.rmtree(folder, ignore_errors=True)
            self.wall_s, self.cpu_s = time.monotonic() - began, usage.ru_utime + usage.ru_stime
        self.finish()

    def follow(self, p, console, out):
        """Reads both streams to their end, to the plan's end, to the first bad line's step's end, or to a limit."""
        sel = selectors.DefaultSelector()
        pending = {console: b"", out: b""}
        for fd in pending:
            os.set_blocking(fd, False)
            sel.register(fd, selectors.EVENT_READ)
        quiet_since = began = time.monotonic()
        step = self.current
        while sel.get_map():
            limit = START_S if self.current < 0 else self.limits[self.current] + SLACK_S
            events = sel.select(timeout=5)
            for key, _ in events:
                data = os.read(key.fd, 65536)
                if not data:
                    sel.unregister(key.fd)
                    continue
                *lines, pending[key.fd] = (pending[key.fd] + data).split(b"\n")
                for line in lines:
                    self.line(key.fd == console, line.decode(errors="replace").rstrip("\r"))
                quiet_since = time.monotonic()
            if self.judged():
                return
            now = time.monotonic()
            if step != self.current:
                step, began = self.current, now
            if now - quiet_since > limit:
                self.ended = f"nothing was heard for {limit} s"
                return
            if now - began > 4 * limit:
                self.ended = f"no end after {4 * limit} s"
                return
        if not self.done:
            self.ended = "the kernel stopped"

    def line(self, console, text):
        if console:
            self.log.add(text)
            return
        if m := READY.search(text):
            self.ready, self.release = float(m.group(1)), m.group(2)
        elif m := BEGIN.search(text):
            self.current = int(m.group(1))
        elif m := END.search(text):
            step = self.steps[int(m.group(1))]
            step.rc = int(m.group(2))
            # init ends a line that the program may have left open.
            if step.out and not step.out[-1]:
                step.out.pop()
        elif DONE.search(text):
            self.done = True
        elif self.current >= 0:
            self.steps[self.current].out.append(text)

    def judged(self):
        """True when there is no more to wait for: the plan is done, or a step ended that the log does not forgive or that was needed."""
        n = self.log.ended
        if n >= 0 and self.steps[n].rc is not None:
            bad = self.log.bad(n, self.allowed[n])
            if bad and not self.done and n + 1 < len(self.steps):
                self.ended = "the log is not clean, what follows would run on a tainted kernel"
            if bad or self.spoils(n):
                return True
        return self.done and n == len(self.steps) - 1

    def spoils(self, n):
        """A step that failed and is needed: what follows would fail too, and say nothing of itself."""
        return self.needed[n] and bool(self.steps[n].rc)

    def finish(self):
        for n, step in enumerate(self.steps):
            step.bad = self.log.bad(n, self.allowed[n])
