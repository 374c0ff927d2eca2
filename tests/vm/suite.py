#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Usage: tests/vm/suite.py UNIT-BUILD [--tier NAME,...] [--tests NAME[:CASE],...] [--long] [--nodes] [--build DIR] [--memory MIB]

Runs the library's unit and conformance tests and the command, as UNIT-BUILD (a meson build folder) has them, on the module in virtual
machines. The last line is `N passed, N failed, N skipped`, as run.py's.
  --tests      these, NAME as in test_NAME, or command; else those that say most about the ground
  --long       all
  --nodes      on a machine of two nodes with memory, 1 GiB together
"""
import argparse
import importlib.util
import os
import signal
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import build  # noqa: E402
import images  # noqa: E402
import initramfs  # noqa: E402
import plan  # noqa: E402

TESTS = os.path.dirname(HERE)
DATA = ("golden", "hostile")
SOURCES = ("Documentation/backends.md", "Documentation/errors.md", "tests/unit/test_backend.c")  # which tests compare
TIERS = ("um", *plan.STOCK)  # the checkers of the others are for the kernel
SECONDS = 1500  # guest time of one program
# What each run tries: buffers and what is made of them, the names they are handed out under, and counts.
SHORT = ("buffer", "pages", "import", "share", "storage", "storage_named", "context", "attach", "conform", "counts_module", "reservation", "flush", "stream_count", "command")
# What they show is shown on the host: no library in the first, the other ground under the others.
LEFT_OUT = ("counters_model", "sweep_calls", "sweep_memory")


def sibling():
    """run.py of this folder. It imports that of the folder above by the same name, so it goes by another."""
    spec = importlib.util.spec_from_file_location("vm_run", os.path.join(HERE, "run.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stripped(path, folder):
    """A copy without what only a debugger reads: all of it travels into the guest's memory."""
    target = os.path.join(folder, os.path.basename(path))
    if not os.path.exists(target) or os.path.getmtime(target) < os.path.getmtime(path):
        os.makedirs(folder, exist_ok=True)
        with build.whole(target) as part:
            build.command(["strip", "-o", part, path])
    return target


def data_files(scratch):
    """What the programs read of the tree, below /tree; unit.sh puts that where they were told it is, which a guest may mount over."""
    root = os.path.dirname(TESTS)
    paths = [os.path.join(root, name) for name in SOURCES]
    paths += [os.path.join(folder, name) for part in DATA for folder, _, names in os.walk(os.path.join(TESTS, part)) for name in names]
    for path in paths:
        yield "tree" + path.removeprefix(root), path
    told = os.path.join(scratch, "root")
    with build.whole(told) as part, open(part, "w", encoding="utf-8") as f:
        f.write(root + "\n")
    yield "tree/root", told


def unit_names(units):
    unit = os.path.join(units, "tests", "unit")
    return sorted(n[len("test_"):] for n in os.listdir(unit)
                  if n.startswith("test_") and os.path.isfile(os.path.join(unit, n)) and os.access(os.path.join(unit, n), os.X_OK))


def with_libraries(target, path, common):
    """(path in the guest, path here) of a program of the host and what it needs. Each program brings all: it may be the first of a boot."""
    files = {target: path, **common}
    # The command does not find the library beside its stripped copy, so what that needs is asked of itself.
    libraries = initramfs.libraries(path) + initramfs.libraries(common["u/libpinion.so.0"])
    # glibc loads it when a thread ends by pthread_exit(), so ldd does not know.
    libraries += [lib for lib in (os.path.join(os.path.dirname(p), "libgcc_s.so.1") for p in libraries) if os.path.exists(lib)]
    files.update({lib.lstrip("/"): os.path.realpath(lib) for lib in libraries})
    return tuple(files.items())


def programs(units, names, scratch):
    """A program for each test."""
    common = dict(data_files(scratch))
    common["u/libpinion.so.0"] = os.path.realpath(os.path.join(units, "lib", "libpinion.so.0"))
    result = []
    for name, *case in names:
        if name == "command":
            files = with_libraries("u/pinion", stripped(os.path.join(units, "tools", "pinion"), os.path.join(scratch, "unit")),
                                   {**common, "t/said.sh": os.path.join(HERE, "said.sh")})
            path = os.path.join(HERE, "command.sh")
            result.append(plan.Program("command", path=path, seconds=SECONDS, files=files))
            result.append(plan.Program("command", args=("memlock",), params="memlock=1", path=path, seconds=SECONDS, files=files))
            continue
        path = stripped(os.path.join(units, "tests", "unit", f"test_{name}"), os.path.join(scratch, "unit"))
        result.append(plan.Program(f"unit-test_{name}", args=tuple(case), path=os.path.join(HERE, "unit.sh"), seconds=SECONDS,
                                   files=with_libraries(f"u/test_{name}", path, common)))
    return tuple(result)


def chosen(args):
    """[(NAME[, CASE])] of what is to run."""
    found = unit_names(args.units)
    if args.tests:
        names = [tuple(n.split(":", 1)) for n in args.tests.split(",")]
    else:
        names = [(n,) for n in ((*(n for n in found if n not in LEFT_OUT), "command") if args.long else SHORT)]
    unknown = [n for n, *_ in names if n not in (*found, "command")]
    if unknown:
        sys.exit(f"suite.py: no such test in {args.units}: {', '.join(unknown)}")
    return names


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n", maxsplit=1)[0].removeprefix("Usage: "))
    parser.add_argument("units")
    parser.add_argument("--tier", default="")
    parser.add_argument("--tests", default="")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--nodes", action="store_true")
    parser.add_argument("--build", default=os.path.join("build", "vm"))
    parser.add_argument("--memory", type=int, default=2048)
    args = parser.parse_args()
    args.tier = args.tier or ",".join(plan.STOCK if args.nodes else TIERS)
    if args.nodes and "um" in args.tier.split(","):
        parser.error("user-mode Linux has no nodes")
    args.source, args.coverage = os.path.dirname(TESTS), False
    args.build = os.path.abspath(args.build)
    # Two runs in one folder would build into each other.
    held = build.lock(args.build, args.tier)
    # An end by a signal ends the virtual machine too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    run = sibling()
    names = chosen(args)
    total = [0, 0, 0]
    for name in args.tier.split(","):
        image = images.find(name)
        if not image:
            print(f"SKIP tier_{name}: no image: make vm-images VM={name}")
            total[2] += 1
            continue
        tally = run.Tally(name, run.suite.allowed_skips())
        try:
            what = programs(args.units, names, args.build)
            boot = plan.Boot("suite-two-nodes", what, qemu=plan.TWO_NODES) if args.nodes else plan.Boot("suite", what, memory=args.memory)
            run.Runner(image, args, tally).boot(boot, list(what))
        except build.BuildError as e:
            tally.fail("build", "does not build", str(e).splitlines()[-40:])
        print(tally.line(), flush=True)
        for i, n in enumerate((tally.passed, tally.failed, tally.skipped)):
            total[i] += n
    print(f"{total[0]} passed, {total[1]} failed, {total[2]} skipped")
    del held
    return 1 if total[1] or not any(total) else 0


if __name__ == "__main__":
    sys.exit(main())
