#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Usage: tests/vm/run.py [--smoke] [--tier NAME,...] [--boot NAME] [--program NAME] [--source DIR] [--build DIR] [--coverage]
                       [--long]

Runs the module's tests in virtual machines: tiers um, 6.1, 6.12, debug and kcsan, as far as `make vm-images` made them. A program fails
by what it says ("not ok"), by its exit status, and by what the kernel's log says meanwhile. The last line is
`N passed, N failed, N skipped`; what skips must be named in tests/skips.
  --smoke      one boot per tier, the programs marked so
  --source     the tree that has Kbuild, kmod/ and uapi/ (default: this one)
  --build      where modules, programs and logs go (default: build/vm)
  --long       what takes too long for every run, and nothing else
  --coverage   the module notes which blocks ran; coverage.py reads the result
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import run as suite  # noqa: E402  tests/run.py: how output is counted and which skips are allowed

sys.path.insert(0, HERE)
import boot  # noqa: E402
import build  # noqa: E402
import images  # noqa: E402
import initramfs  # noqa: E402
import klog  # noqa: E402
import plan  # noqa: E402

TAP = re.compile(r"^(not )?ok (\d+) - (.*?)(?:\s+# (.*))?$")
KTAP = re.compile(r"^ {4,}(not )?ok (\d+)(?: -)? (\S.*)$")
STEP_S = 120  # for steps that are no program
SLOW = {"debug": 3, "kcsan": 3}  # times longer; most of it is what the checkers do, not the machine


class Tally:
    """Counts of one tier."""

    def __init__(self, tier, allowed):
        self.tier, self.allowed_skips = tier, allowed
        self.passed = self.failed = self.skipped = self.retried = 0

    def fail(self, what, why, detail=()):
        self.failed += 1
        print(f"FAIL {self.tier} {what}: {why}", flush=True)
        for text in detail:
            print(f"     {text}")

    def skip(self, name, why):
        token = re.sub(r"[^\w.]+", "_", name)
        self.skipped += 1
        if token in self.allowed_skips:
            print(f"SKIP {token}: {why} ({self.tier})", flush=True)
        else:
            self.fail(token, f"skipped ({why}) and is not in tests/skips")

    def line(self):
        retried = f", {self.retried} boot{'s' if self.retried > 1 else ''} retried" if self.retried else ""
        return f"{self.tier}: {self.passed} passed, {self.failed} failed, {self.skipped} skipped{retried}"


class Job:
    """One line of a guest's plan and what is to be thought of its outcome."""

    def __init__(self, label, line, seconds=STEP_S, allowed=(), program=None):
        self.label, self.line, self.seconds, self.allowed, self.program = label, line, seconds, allowed, program
        # Where the module did not come, or did not go, each program after it would fail.
        self.needed = line.split(" ")[0] in ("load", "unload")


def count_program(tally, where, step):
    """The points of a program: TAP, or the lines of libcheck that tests/run.py counts."""
    text = "\n".join(step.out)
    points = [m for m in map(TAP.match, step.out) if m]
    if not points:
        passed, failed, skips = suite.count(text, step.rc if step.rc is not None else 1)
        tally.passed += passed
        for name, why in skips:
            tally.skip(name, why)
        if failed:
            tally.fail(where, f"{failed} failed", step.out[-40:])
            tally.failed += failed - 1
        return
    bad = 0
    for m in points:
        note = m.group(4) or ""
        if m.group(1):
            bad += 1
            tally.fail(f"{where}: {m.group(3)}", note or "not ok")
        elif note.upper().startswith("SKIP"):
            tally.skip(m.group(3), note[4:].strip())
        else:
            tally.passed += 1
    if step.rc and not bad:
        tally.fail(where, f"exit status {step.rc}", step.out[-20:])
    elif bad:
        for text in step.out[-40:]:
            print(f"     {text}")


def count_ktap(tally, where, lines):
    """The cases of KUnit suites that a module ran when it was loaded; a suite's own line is not indented. Returns how many."""
    points = [m for m in map(KTAP.match, map(klog.without_stamp, lines)) if m]
    for m in points:
        name, _, note = m.group(3).partition(" # ")
        if m.group(1):
            tally.fail(f"{where}: {name}", note or "not ok", lines[-40:])
        elif note.startswith("SKIP"):
            tally.skip(name, note[4:].strip())
        else:
            tally.passed += 1
    return len(points)


def judge(tally, where, job, n, vm):
    """Counts one step. What a program left behind is a failure of its own where nothing else of it failed."""
    failed = tally.failed
    judge_outcome(tally, where, job, n, vm)
    left = [text.removeprefix("@@left ") for text in vm.steps[n].out if text.startswith("@@left ")]
    if left and tally.failed == failed:
        tally.fail(where, f"leaves behind {'; '.join(left)}")
    elif left:
        print(f"     {where} leaves behind {'; '.join(left)}", flush=True)


def judge_outcome(tally, where, job, n, vm):
    """Counts one step, but for what is left after it."""
    step = vm.steps[n]
    if step.rc is None and not step.bad:
        tally.fail(where, vm.ended or "did not end", step.out[-20:] + vm.log.lines[-20:])
        return
    if step.bad:
        tally.fail(where, f"the kernel's log: {len(step.bad)} lines it may not have", vm.log.around(n, step.bad[0]))
        if step.out and not job.program:
            print("\n".join(f"     {text}" for text in step.out[:60]))
    if any(text.startswith("@@late") for text in step.out):
        tally.fail(where, f"did not end within {job.seconds} s", step.out[-10:] + vm.log.by_step.get(n, [])[-40:])
    elif job.program and step.rc is not None:
        count_program(tally, where, step)
    elif not job.program and step.rc:
        tally.fail(where, f"exit status {step.rc}", step.out[-20:])
    elif job.line.startswith("load "):
        if not count_ktap(tally, where, vm.log.by_step.get(n, [])) and job.line.endswith("_kunit"):
            tally.fail(where, "no KUnit result in the log")
    elif not job.program and not step.bad and job.line.split()[0] in ("unload", "leaks"):
        tally.passed += 1


class Runner:
    """Everything that is the same for all boots of a tier."""

    def __init__(self, image, args, tally):
        self.image, self.args, self.tally = image, args, tally
        self.own = initramfs.Modules(image)
        self.pinion = build.pinion(image, args.source, args.build, args.coverage)
        self.coverage = os.path.join(args.build, f"coverage-{image.name}.txt")
        if args.coverage and os.path.exists(self.coverage):
            os.unlink(self.coverage)

    def load_lines(self, spec):
        """(jobs, modules) of what is loaded before the programs; what this kernel has not is left out: its tests say so."""
        jobs, modules, seen = [], [], set()
        for name in spec.modules:
            if self.own.root and name not in self.own.needs and name not in self.own.builtin:
                continue
            for dep, path in self.own.order(name):
                if dep not in seen:
                    seen.add(dep)
                    modules.append((dep, path))
                    jobs.append(Job(f"load {dep}", f"load {dep}"))
        return jobs, modules

    def jobs(self, spec, programs):
        """The plan of a boot: load, programs (the module anew where its parameters change), leaks, unload."""
        jobs, modules = self.load_lines(spec)
        modules += sorted(self.pinion.items())
        ours = []
        for folder in spec.extra:
            for name, path in sorted(build.extra(self.image, folder, self.args.build, self.args.coverage).items()):
                modules.append((name, path))
                ours.append(name)
        loaded = None
        for program in programs:
            if program.params != loaded:
                if loaded is not None:
                    jobs += self.unload(ours)
                loaded = program.params
                jobs.append(Job("load pinion", f"load pinion {loaded}".rstrip()))
                jobs += [Job(f"load {name}", f"load {name}") for name in ours]
            env = ("/bin/env", *program.env) if program.env else ()
            seconds = program.seconds * SLOW.get(self.image.name, 1)
            line = " ".join(("run", str(seconds), *env, f"/t/{program.name}", *program.args))
            jobs.append(Job(program.name, line, seconds, program.allowed, program))
            jobs += self.read_coverage()
        if self.image.leaks:
            jobs.append(Job("leaks", "leaks"))
        jobs += self.unload(ours)
        if self.image.leaks:
            jobs.append(Job("leaks after unload", "leaks"))
        return jobs, modules

    def read_coverage(self):
        """What the module's code did goes with the module, which a program may load anew."""
        return [Job("coverage", "coverage")] if self.args.coverage else []

    def unload(self, ours):
        return [*(Job(f"unload {name}", f"unload {name}") for name in reversed(ours)), *self.read_coverage(), Job("unload pinion", "unload pinion")]

    def files(self, spec, programs):
        files = {}
        for program in programs:
            path = program.path or build.program(program.name, self.args.build)
            files[f"t/{program.name}"] = path
            if program.path:
                files.update({lib.lstrip("/"): os.path.realpath(lib) for lib in initramfs.libraries(path)})
            files.update(dict(program.files))
        if spec.ext4:
            files["t/ext4.img"] = initramfs.ext4_image(self.args.build)
        return files

    def start(self, spec, jobs, modules, files):
        """Boots; once more when process 1 was not reached, which is said and counted."""
        initrd = initramfs.make(modules, files, [job.line for job in jobs])
        for attempt in (1, 2):
            vm = boot.Boot(self.image, initrd, [job.seconds for job in jobs], [job.allowed for job in jobs],
                           spec.cmdline, spec.qemu, spec.memory, needed=[job.needed for job in jobs])
            vm.run()
            log = os.path.join(self.args.build, "log", f"{self.image.name}-{spec.name}.txt")
            os.makedirs(os.path.dirname(log), exist_ok=True)
            with open(log, "a" if attempt > 1 else "w", encoding="utf-8") as f:
                f.write("\n".join(vm.log.lines) + "\n")
                for job, step in zip(jobs, vm.steps):
                    f.write(f"\n== {job.label}: {step.rc}\n" + "\n".join(step.out) + "\n")
            if vm.ready is not None or attempt == 2:
                break
            self.tally.retried += 1
            print(f"RETRY {self.image.name} {spec.name}: {vm.ended} before process 1 ran", flush=True)
        if vm.ready is not None:
            print(f"     {self.image.name} {spec.name}: {vm.release}, process 1 after {vm.ready:.1f} s, "
                  f"in all {vm.wall_s:.1f} s wall, {vm.cpu_s:.1f} s CPU", flush=True)
        return vm

    def boot(self, spec, programs):
        """Runs programs; after one that spoils its kernel or leaves a module that does not go, the rest in a fresh boot."""
        while programs:
            jobs, modules = self.jobs(spec, programs)
            vm = self.start(spec, jobs, modules, self.files(spec, programs))
            name = f"{self.image.name}/{spec.name}"
            if vm.ready is None:
                self.tally.fail(spec.name, f"does not boot: {vm.ended}", vm.log.lines[-30:])
                return
            early = vm.log.bad(-1)
            if early:
                self.tally.fail(f"{spec.name} boot", "the kernel's log before the first step", vm.log.around(-1, early[0]))
            last = next((n for n, step in enumerate(vm.steps) if step.rc is None or step.bad or vm.spoils(n)), len(jobs) - 1)
            for n, job in enumerate(jobs[:last + 1]):
                judge(self.tally, f"{spec.name} {job.label}", job, n, vm)
                if job.label == "coverage":
                    self.save_coverage(vm.steps[n].out)
            ran = {id(job.program) for job in jobs[:last + 1] if job.program}
            rest = [p for p in programs if id(p) not in ran]
            if rest and last == len(jobs) - 1 or len(rest) == len(programs):
                if rest:
                    self.tally.fail(spec.name, f"{len(rest)} programs could not be run")
                return
            if rest:
                print(f"     {name}: a fresh boot for {len(rest)} more programs", flush=True)
            programs = rest

    def save_coverage(self, lines):
        with open(self.coverage, "a", encoding="utf-8") as f:
            f.writelines(text + "\n" for text in lines if text.startswith(("section ", "at ")))

    def canary(self, canary, modules):
        """A planted bug passes when the log rule fails it, with the words that name it."""
        jobs = [Job("load", f"load canary bug={canary.bug}")]
        if canary.bug == "leak":
            jobs.append(Job("leaks", "leaks"))
        spec = plan.Boot(f"canary-{canary.bug}", ())
        vm = self.start(spec, jobs, sorted(modules.items()), {})
        caught = next((line for step in vm.steps for line in step.bad if re.search(canary.says, line)), None)
        if caught:
            self.tally.passed += 1
            print(f"ok   {self.image.name} canary {canary.bug}: caught: {caught}", flush=True)
        else:
            self.tally.fail(f"canary {canary.bug}", f"not caught: no line with {canary.says}", vm.log.lines[-20:])


def lacking(image):
    """What a boot of this image needs and this machine has not, or None."""
    tools = [initramfs.BUSYBOX, "gcc", "make", "strip"] + (["qemu-system-x86_64"] if image.arch == "x86" else [])
    return next((tool for tool in tools if not shutil.which(tool)), None)


def run_tier(image, args, tally):
    name = image.name
    try:
        runner = Runner(image, args, tally)
    except build.BuildError as e:
        tally.fail("module", "does not build without warnings", str(e).splitlines()[-40:])
        return
    tally.passed += 1
    for spec in plan.BOOTS:
        if name not in spec.tiers or args.boot and args.boot != spec.name:
            continue
        programs = [p for p in spec.programs if name in p.tiers and (p.smoke or not args.smoke) and p.long == args.long
                    and args.program in ("", p.name)]
        try:
            runner.boot(spec, programs)
        except build.BuildError as e:
            tally.fail(spec.name, "does not build", str(e).splitlines()[-40:])
    if args.smoke or args.long or args.program or args.boot and args.boot != "canary":
        return
    try:
        modules = build.extra(image, "canary", args.build)
    except build.BuildError as e:
        tally.fail("canary", "does not build", str(e).splitlines()[-40:])
        return
    for canary in plan.CANARIES:
        if name in canary.tiers:
            runner.canary(canary, modules)


def run_scripts(allowed):
    """What needs no kernel of its own: the examples of uapi.rst compile, DKMS builds for kernels that do not run."""
    tally = Tally("host", allowed)
    for name in ("examples.sh", "dkms.sh"):
        p = subprocess.run(["sh", os.path.join(HERE, name)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                           check=False)
        out = p.stdout.decode(errors="replace")
        passed, failed, skips = suite.count(out, p.returncode)
        tally.passed += passed
        for skipped, why in skips:
            tally.skip(skipped, why)
        if failed:
            tally.fail(name, f"{failed} failed", out.splitlines()[-40:])
            tally.failed += failed - 1
    return tally


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n", maxsplit=1)[0].removeprefix("Usage: "))
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--tier", default="")
    parser.add_argument("--boot", default="")
    parser.add_argument("--program", default="")
    parser.add_argument("--source", default=build.ROOT)
    parser.add_argument("--build", default=os.path.join(build.ROOT, "build", "vm"))
    parser.add_argument("--coverage", action="store_true")
    parser.add_argument("--long", action="store_true")
    args = parser.parse_args()
    args.build, args.source = os.path.abspath(args.build), os.path.abspath(args.source)
    # Two runs in one folder would build into each other.
    held = build.lock(args.build, args.tier)
    # The kernels that look for bugs take too long for a smoke.
    tiers = [t for t in args.tier.split(",") if t] or [t for t in images.TIERS if not (args.smoke and t in ("debug", "kcsan"))]
    allowed = suite.allowed_skips()
    tallies = []
    for tier in tiers:
        if tier == "host":
            tallies.append(run_scripts(allowed))
            continue
        began = time.monotonic()
        tally = Tally(tier, allowed)
        tallies.append(tally)
        image = images.find(tier)
        if not image and args.smoke:
            continue
        if not image:
            tally.skip(f"tier_{tier}", f"no image: make vm-images VM={tier}")
        elif lacking(image):
            tally.skip(f"tier_{tier}", f"no {lacking(image)}: sh tests/need.sh vm")
        else:
            run_tier(image, args, tally)
        print(f"{'FAIL' if tally.failed else 'ok  '} {tier} in {time.monotonic() - began:.0f} s", flush=True)
    if not (args.smoke or args.tier):
        tallies.append(run_scripts(allowed))
    if args.smoke and not any(images.find(tier) for tier in tiers):
        tallies[0].skip("vm_smoke", "no kernels: make vm-images")
    for tally in tallies:
        print(tally.line())
    total = [sum(getattr(t, k) for t in tallies) for k in ("passed", "failed", "skipped")]
    print(f"{total[0]} passed, {total[1]} failed, {total[2]} skipped")
    del held
    return 1 if total[1] else 0


if __name__ == "__main__":
    sys.exit(main())
