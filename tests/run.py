#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Usage: tests/run.py BUILD-DIR [ASAN-BUILD-DIR] [--asan-only] [--user NAME] [--engine uring|threads]

Runs every test of a build and adds the counts up; the last line is `N passed, N failed, N skipped`.
A test that skips must be named in tests/skips, else the run fails.
  --asan-only  what is built with ASan, nothing of BUILD-DIR but the library that Python loads
  --user       the unit programs and the command as this user, with a home of its own; only root may say another than itself
  --engine     the unit programs and the command with $PINION_ENGINE
"""
import argparse
import concurrent.futures
import contextlib
import os
import pathlib
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

TESTS = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(TESTS)
LIMIT_S = 480
CLI = ("cli", "commands", "doctor", "around")
WHOLE = ("named", "surface", "demo --quick", "vm smoke")  # of the tree, and once
# Lanes of their own: what keeps a processor busy and locks nothing, and what mostly waits, for deadlines and for other processes.
BUSY = ("test_counters_model", "vm smoke")
WAITING = ("test_flush", "test_reservation", "test_work")
ENGINES = ("test_stream", "test_stream_ops")  # run on threads too
ON_THREADS = " on threads"
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


def run(argv, env, who, limit=LIMIT_S):
    """The program's output, exit status and CPU seconds, its reaped children's included; its whole process group ends with it."""
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                          start_new_session=True, env=env, **who) as p:
        timer = threading.Timer(limit, os.killpg, (p.pid, signal.SIGKILL))
        timer.start()
        out = p.stdout.read().decode(errors="replace")
        # A program that closed its output and goes on is waited for as well. Not reaped yet, its group's number is nobody else's.
        os.waitid(os.P_PID, p.pid, os.WEXITED | os.WNOWAIT)
        late = not timer.is_alive()
        timer.cancel()
        timer.join()
        _, status, used = os.wait4(p.pid, 0)
        p.returncode = 1 if late else os.waitstatus_to_exitcode(status)
    if late:
        out += f"\nended after {limit} s\n"
    return out, p.returncode, used.ru_utime + used.ru_stime


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


def programs(build, asan=None, python=sys.executable):
    """(label, argv, environment) of each test program."""
    for kind, where in (("", build), ("asan ", asan)):
        if not where:
            continue
        env = {"LIBPINION": os.path.join(where, "lib", "libpinion.so.0")}
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
                if name in ENGINES:
                    yield kind + name + ON_THREADS, [path], {**env, "PINION_ENGINE": "threads"}
        # Its own attachers are Python, which cannot load a library built for ASan.
        for name in CLI:
            yield kind + name, [python, os.path.join(TESTS, "cli", f"test_{name}.py"), os.path.join(where, "tools", "pinion")], \
                {**env, "LIBPINION": os.path.join(build, "lib", "libpinion.so.0")}
        if not kind:
            yield "named", [python, os.path.join(TESTS, "named.py")], env
            yield "surface", ["sh", os.path.join(TESTS, "surface.sh"), where], env
            yield "demo --quick", ["bash", os.path.join(TESTS, "demo", "run.sh"), where, "--quick"], env
            yield "vm smoke", [python, os.path.join(TESTS, "vm", "run.py"), "--smoke", "--build", os.path.join(build, "vm")], env


def kept_out(who, paths):
    """What of @paths, or on the way there, those who start as @who may not enter or read, or None."""
    for path in paths:
        for folder in reversed(pathlib.Path(os.path.realpath(path)).parents):
            if subprocess.run(["test", "-x", folder], cwd="/", check=False, **who).returncode:
                return folder
    shut = ["(", "!", "-readable", "-o", "-type", "d", "!", "-executable", ")", "-print", "-quit"]
    return subprocess.run(["find", *paths, *shut], cwd="/", stdout=subprocess.PIPE, check=False, **who).stdout.decode().rstrip("\n") or None


def python_of(who):
    """A Python that those who start as @who may run: this one may be in somebody's home."""
    for path in (sys.executable, *(os.path.join(folder, "python3") for folder in os.get_exec_path())):
        with contextlib.suppress(OSError):
            if not subprocess.run([path, "-c", ""], cwd="/", check=False, **who).returncode:
                return path
    return None


@contextlib.contextmanager
def user_of(name, builds):
    """(how its processes start, environment, Python) of a user, who has a home of its own meanwhile."""
    try:
        entry = pwd.getpwnam(name) if name else None
    except KeyError:
        sys.exit(f"run.py: there is no user {name}")
    if not entry or entry.pw_uid == os.geteuid():
        yield {}, {}, sys.executable
        return
    if os.geteuid():
        sys.exit(f"run.py: --user {name} needs root, which alone can become another user")
    who = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    home = tempfile.mkdtemp(prefix="pinion-home-")
    try:
        env = {"HOME": home, "TMPDIR": os.path.join(home, "tmp"), "XDG_RUNTIME_DIR": os.path.join(home, "run"), "USER": name, "LOGNAME": name}
        for folder in (home, env["TMPDIR"], env["XDG_RUNTIME_DIR"]):
            os.makedirs(folder, mode=0o700, exist_ok=True)
            os.chown(folder, entry.pw_uid, entry.pw_gid)
        read = [os.path.join(build, part) for build in builds for part in ("lib", "tools", "tests/unit")]
        shut = kept_out(who, [home, TESTS, os.path.join(TREE, "Documentation"), *read])
        if shut:
            sys.exit(f"run.py: {name} may not enter or read {shut}: checkout, builds and $TMPDIR must be where every user may (chmod a+rX, or another place)")
        python = python_of(who)
        if not python:
            sys.exit(f"run.py: {name} may run no python3 of the PATH")
        yield who, env, python
    finally:
        shutil.rmtree(home)


def run_all(chosen, who):
    """Runs @chosen, (label, argv, environment) each, and tells how they ended: the exit status of all."""
    # One after another, because what a user may lock is one limit for all of them, and free memory one figure; beside them the others.
    with concurrent.futures.ThreadPoolExecutor(1) as one, concurrent.futures.ThreadPoolExecutor(1) as busy, \
            concurrent.futures.ThreadPoolExecutor(1) as waiting:
        runs = [(label, lane(label, one, busy, waiting).submit(timed, argv, env, who)) for label, argv, env in chosen]
        return tell(runs, allowed_skips())


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n", maxsplit=1)[0].removeprefix("Usage: "))
    parser.add_argument("build")
    parser.add_argument("asan", nargs="?")
    parser.add_argument("--asan-only", action="store_true")
    parser.add_argument("--user")
    parser.add_argument("--engine", choices=("uring", "threads"))
    args = parser.parse_args()
    if args.asan_only and not args.asan:
        parser.error("--asan-only needs ASAN-BUILD-DIR")
    args.build, args.asan = os.path.abspath(args.build), args.asan and os.path.abspath(args.asan)
    base = dict(os.environ)
    if args.user or args.engine:
        # Somebody's own settings are not what is asked for.
        base = {k: v for k, v in base.items() if not k.startswith("XDG_") and k != "PINION_DIR"}
    with user_of(args.user, [b for b in (args.build, args.asan) if b]) as (who, own, python):
        base.update(own, **({"PINION_ENGINE": args.engine} if args.engine else {}))
        chosen = [(label, argv, {**base, **env}) for label, argv, env in programs(args.build, args.asan, python)
                  if (not args.asan_only or label.startswith("asan "))
                  and (not args.user and not args.engine or label not in WHOLE)
                  and (not args.engine or not label.endswith(ON_THREADS))]
        return run_all(chosen, who)


def lane(label, one, busy, waiting):
    name = label.removeprefix("asan ")
    return busy if name in BUSY else waiting if name in WAITING else one


def timed(argv, env, who):
    start = time.monotonic()
    out, status, used = run(argv, env, who, LIMIT_S * 4 if "--smoke" in argv else LIMIT_S)
    return out, status, time.monotonic() - start, used


def tell(runs, allowed):
    total = [0, 0, 0]
    if any(label.startswith("asan ") for label, _ in runs):
        print("asan: a fifth of the rounds of loops over hundreds and more, of which the plain build runs all", flush=True)
    for label, future in sorted(runs, key=lambda r: r[0] in BUSY):
        out, status, seconds, used = future.result()
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
              f"{seconds:.1f} s ({used:.1f} s of CPU)", flush=True)
        if failed:
            print(out)
    print(f"{total[0]} passed, {total[1]} failed, {total[2]} skipped")
    return 1 if total[1] or not total[0] else 0


if __name__ == "__main__":
    sys.exit(main())
