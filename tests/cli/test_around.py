#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Usage: tests/cli/test_around.py PATH-TO-PINION [TEST...]

Tests the command in odd surroundings: with signals that its parent ignores, streams that are closed or full, odd arguments and limits.
"""
import os
import re
import resource
import signal
import subprocess

import restrict
import test_cli
from test_cli import WAIT_S, hear, small_gguf

TESTS = []


def test(fn):
    TESTS.append(fn)
    return fn


def ignoring(*numbers):
    """For preexec_fn, which is called after Python has given SIGPIPE and SIGXFSZ back their defaults."""
    def apply():
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
    return apply


# ---- signals -------------------------------------------------------------------------------------------------------------

def ignored_by(out):
    mask = int(re.search(r"^SigIgn:\s*([0-9a-f]+)$", out, re.M)[1], 16)
    return {s for s in signal.Signals if mask >> (s - 1) & 1}


@test
def a_command_that_is_run_has_the_signals_that_it_was_given(c):
    show = ["cat", "/proc/self/status"]
    run = ["run", "--units", "1", "--", *show]
    # What runs the tests may ignore some itself, as a shell does for what it starts in the background.
    given = ignored_by(subprocess.run(show, stdout=subprocess.PIPE, check=True, text=True).stdout)
    assert ignored_by(c.run(*run)[0]) == given, given
    assert ignored_by(c.run(*run, preexec_fn=ignoring(signal.SIGPIPE))[0]) == given | {signal.SIGPIPE}, given
    err = c.run("run", "--units", "1", "--", "sh", "-c", "yes | head -n 1")[1]
    assert err == "", err


@test
def a_parent_that_ignores_its_children_changes_nothing(c):
    deaf = {"preexec_fn": ignoring(signal.SIGCHLD)}
    c.run("run", "--units", "1", "--", "sh", "-c", "exit 7", code=7, **deaf)
    c.run("run", "--units", "1", "--", "sh", "-c", "kill -KILL $$", code=128 + signal.SIGKILL, **deaf)
    path = small_gguf(c.path("m.gguf"))
    c.run("load", path, "--name", "m", **deaf)
    c.run("load", small_gguf(c.path("other.gguf")), "--name", "m", code=5, **deaf)
    lines = c.run("selftest", **deaf)[0].splitlines()
    assert lines and all(line.startswith("ok ") for line in lines), lines


# ---- streams -------------------------------------------------------------------------------------------------------------

@test
def help_that_cannot_be_written_is_a_failure(c):
    for args in (["--help"], ["load", "--help"], ["load", "--usage"], ["help"], ["help", "top"], ["--version"], ["ls", "--help"]):
        with open("/dev/full", "w", encoding="ascii") as full:
            err = c.run(*args, code=1, stdout=full)[1]
        assert err.endswith("writing to standard output: No space left on device\n"), (args, err)


# ---- arguments -----------------------------------------------------------------------------------------------------------

@test
def what_a_user_wrote_is_shown_without_what_a_terminal_obeys(c):
    """In the sentences of usage errors too."""
    odd = b"\x1b[2J\xff\x07"
    for args in (["doctor", "--for", odd], ["load", "m", "--name", "m", "--pages", odd], ["load", "m", "--name", "m", "--numa", odd],
                 ["alloc", "--size", odd], ["rm", "m", "--when-unused", "--timeout", odd], ["pick", "--need", "1", "--policy", odd],
                 ["check", "a", odd], ["top", "--interval", odd], ["bench", odd], ["devices", "--add", "d", "--budget", odd],
                 ["load", "--stream", "m", "--sha256", odd]):
        p = c.start(*args)
        out, err = p.communicate(timeout=WAIT_S)
        assert p.returncode == 2 and out == b"" and b"?[2J??" in err, (args, p.returncode, err)
        assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f-\xff]", err), (args, err)


@test
def a_size_has_one_blank_before_its_unit_or_none(c):
    for size in ("64KiB", "64 KiB", "65536"):
        assert c.run("alloc", "--size", size)[0].startswith("64 KiB, "), size
    for size in ("64  KiB", "64 ", " 64KiB", "64KiB ", "64 Ki B", "64 K i", "", " "):
        c.run("alloc", "--size", size, code=2)


@test
def advice_is_explained_with_its_brackets_and_without(c):
    assert c.run("explain", "[memlock]") == c.run("explain", "memlock")
    for bad in ("[]", "[", "]", "[memlock", "memlock]", "[[memlock]]"):
        c.run("explain", bad, code=1)


# ---- limits --------------------------------------------------------------------------------------------------------------

@test
def too_few_processes_are_said_with_the_line_to_type(c):
    """Whichever of its processes and threads is the one too many."""
    restrict.as_user(c)
    user = restrict.plain_user()
    path = small_gguf(c.path("m.gguf"))
    os.chmod(path, 0o644)
    refused = 0
    for most in range(1, 12):
        few = restrict.all_of(user, lambda n=most: resource.setrlimit(resource.RLIMIT_NPROC, (n, n)))
        for args in (["load", path, "--name", "m"], ["load", path, "--name", "f", "--foreground"], ["run", "--units", "1", "--", "true"]):
            # The leak detector's process would be one more.
            env = {**c.env, "ASAN_OPTIONS": "detect_leaks=0"}
            foreground = "--foreground" in args
            p = c.start(*args, preexec_fn=few, env=env, stdout=subprocess.PIPE if foreground else subprocess.DEVNULL, bufsize=0)
            # It says a line when it holds the name, and ends without one where it does not.
            if foreground and hear(p):
                p.send_signal(signal.SIGTERM)
            err = p.communicate(timeout=WAIT_S)[1].decode()
            assert p.returncode in (0, 1, 126), (most, args, p.returncode, err)
            refused += p.returncode != 0
            assert (err == "") if p.returncode == 0 else err.endswith(" [threads]\n"), (most, args, err)
        c.run("rm", "m", code=None, preexec_fn=user, env=env)
    assert os.geteuid() or refused > 3, refused


if __name__ == "__main__":
    test_cli.start(TESTS)
