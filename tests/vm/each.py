#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Usage: tests/vm/each.py UNIT-BUILD --build DIR [--jobs N]

Everything that check-vm runs, N at a time (two: a virtual machine keeps little more than one processor busy): run.py for each
tier and for what needs none, and suite.py for each kernel that it knows. What each printed comes when it has ended; the last line is
`N passed, N failed, N skipped`, the sum of theirs."""
import argparse
import concurrent.futures
import os
import re
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import images  # noqa: E402

COUNT = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", re.M)
running = set()


def run(argv):
    """(output, passed, failed, skipped); a run without a line of counts has failed."""
    with subprocess.Popen([sys.executable, *argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL) as p:
        running.add(p)
        out = p.communicate()[0].decode(errors="replace")
        running.discard(p)
    counts = COUNT.findall(out)
    passed, failed, skipped = map(int, counts[-1]) if counts else (0, 0, 0)
    if p.returncode and not failed:
        failed = 1
    return out, passed, failed, skipped


def jobs(args):
    """The longest first."""
    tiers = ("um", "6.12", "6.1")
    for tier in (*tiers, *(t for t in images.TIERS if t not in tiers), "host"):
        yield [os.path.join(HERE, "run.py"), "--tier", tier, "--build", args.build]
        if tier == tiers[-1]:
            yield from suites(args)


def suites(args):
    # Folders of their own: run.py builds the module for the same kernels.
    for tier in ("6.12", "6.1", "um"):
        yield [os.path.join(HERE, "suite.py"), args.units, "--tier", tier, "--build", f"{args.build}-suite"]
    yield [os.path.join(HERE, "suite.py"), args.units, "--tier", "6.12", "--nodes", "--tests", "pages", "--build", f"{args.build}-suite-nodes"]


def stop(*_):
    for p in list(running):
        p.terminate()
    sys.exit(143)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n", maxsplit=1)[0].removeprefix("Usage: "))
    parser.add_argument("units")
    parser.add_argument("--build", required=True)
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    total = [0, 0, 0]
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for done in concurrent.futures.as_completed([pool.submit(run, job) for job in jobs(args)]):
            out, *counts = done.result()
            # The sum alone has the form of a sum.
            print(COUNT.sub(r"  in all: \1 passed, \2 failed, \3 skipped", out), flush=True)
            total = [a + b for a, b in zip(total, counts)]
    print(f"{total[0]} passed, {total[1]} failed, {total[2]} skipped")
    return 1 if total[1] or not any(total) else 0


if __name__ == "__main__":
    sys.exit(main())
