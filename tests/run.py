#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Usage: tests/run.py BUILD-DIR [ASAN-BUILD-DIR]

Runs every test of a build and adds the counts up; the last line is `N passed, N failed, N skipped`.
A test that skips must be named in tests/skips, else the run fails.
"""
import concurrent.futures
import os
import re
import signal
import subprocess
import sys
import time

TESTS = os.path.dirname(os.path.abspath(__file__))
LIMIT_S = 240
BESIDE = ("test_counters_model", "vm smoke")
CHECK_LINE = re.compile(r"^\d+%: Checks: (\d+), Failures: (\d+), Errors: (\d+)$", re.M)
PLAIN_LINE = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", re.M)
SKIP_LINE = re.compile(r"^SKIP ([^:\s]+): (.*)$", re.M)


def allowed_skips():
    names = set()
    with open(os.path.join(TESTS, "skips"), encoding="utf-8") as f:
        for line in f:
            if line.strip() and not line.startswith("#"):
                names.add(line.split()[0])
    return names


def run(argv, env, limit=LIMIT_S):
    """The program's output and exit status; its whole process group ends with it."""
    p = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                         start_new_session=True, env=env)
    try:
        out, _ = p.communicate(timeout=limit)
        return out.decode(errors="replace"), p.returncode
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, signal.SIGKILL)
        out, _ = p.communicate()
        return out.decode(errors="replace") + f"\nended after {limit} s\n", 1


def count(out, status):
    """(passed, failed, skips) of one program: libcheck's line or the plain one."""
    skips = SKIP_LINE.findall(out)
    check = CHECK_LINE.findall(out)
    plain = PLAIN_LINE.findall(out)
    if check:
        checks, failures, errors = map(int, check[-1])
        failed = failures + errors
        passed = checks - failed - len(skips)
    elif plain:
        passed, failed, _ = map(int, plain[-1])
    else:
        passed, failed = 0, 1
    if status != 0 and failed == 0:
        failed = 1
    return passed, failed, skips


def programs(build, asan):
    """(label, argv, environment) of each test program."""
    for kind, where in (("", build), ("asan ", asan)):
        if not where:
            continue
        env = {"LIBPINION": os.path.join(os.path.abspath(where), "lib", "libpinion.so.0")}
        if kind:
            env["ASAN_OPTIONS"] = "detect_leaks=1:abort_on_error=0:allocator_may_return_null=1"
            env["UBSAN_OPTIONS"] = "halt_on_error=1:print_stacktrace=1"
        unit = os.path.join(where, "tests", "unit")
        for name in sorted(os.listdir(unit)):
            path = os.path.join(unit, name)
            if name.startswith("test_") and os.access(path, os.X_OK) and os.path.isfile(path):
                # The model checker runs the protocol, not the library: the sanitizers would only slow it down.
                if kind and name == "test_counters_model":
                    continue
                yield kind + name, [path], env
        # Its own attachers are Python, which cannot load a library built for ASan.
        yield kind + "cli", [sys.executable, os.path.join(TESTS, "cli", "test_cli.py"), os.path.join(where, "tools", "pinion")], \
            {**env, "LIBPINION": os.path.join(os.path.abspath(build), "lib", "libpinion.so.0")}
        if not kind:
            yield "surface", ["sh", os.path.join(TESTS, "surface.sh"), where], env
            yield "demo --quick", ["bash", os.path.join(TESTS, "demo", "run.sh"), where, "--quick"], env
            yield "vm smoke", [sys.executable, os.path.join(TESTS, "vm", "run.py"), "--smoke", "--build", os.path.join(build, "vm")], env


def main():
    if len(sys.argv) not in (2, 3):
        print(__doc__.splitlines()[0], file=sys.stderr)
        return 2
    allowed = allowed_skips()
    # One after another, because what a user may lock is one limit for all of them; beside them those that lock nothing.
    with concurrent.futures.ThreadPoolExecutor(1) as beside, concurrent.futures.ThreadPoolExecutor(1) as one:
        runs = [(label, (beside if label in BESIDE else one).submit(timed, argv, {**os.environ, **extra}))
                for label, argv, extra in programs(sys.argv[1], sys.argv[2] if len(sys.argv) == 3 else None)]
        return tell(runs, allowed)


def timed(argv, env):
    start = time.monotonic()
    out, status = run(argv, env, LIMIT_S * 4 if "--smoke" in argv else LIMIT_S)
    return out, status, time.monotonic() - start


def tell(runs, allowed):
    total = [0, 0, 0]
    for label, future in sorted(runs, key=lambda r: r[0] in BESIDE):
        out, status, seconds = future.result()
        passed, failed, skips = count(out, status)
        for name, reason in skips:
            if name not in allowed:
                print(f"FAIL {label}: {name} skipped ({reason}) and is not in tests/skips")
                failed += 1
            else:
                print(f"SKIP {name}: {reason}")
        for i, n in enumerate((passed, failed, len(skips))):
            total[i] += n
        print(f"{'ok  ' if failed == 0 else 'FAIL'} {label}: {passed} passed, {failed} failed, {len(skips)} skipped, "
              f"{seconds:.1f} s", flush=True)
        if failed:
            print(out)
    print(f"{total[0]} passed, {total[1]} failed, {total[2]} skipped")
    return 1 if total[1] or not total[0] else 0


if __name__ == "__main__":
    sys.exit(main())
