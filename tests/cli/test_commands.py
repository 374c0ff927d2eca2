#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Usage: tests/cli/test_commands.py PATH-TO-PINION [TEST...]

Tests alloc, rm --when-unused, leaks, selftest, bench and top; and of all commands that what --json prints has the keys that are
documented, that bash completes them, and that each has a manual page.
"""
import fcntl
import json
import os
import re
import resource
import select
import signal
import stat
import struct
import subprocess
import sys
import termios
import time

import restrict
import test_cli
from test_cli import TREE, WAIT_S, Skip, alive, hear, small_gguf

TESTS = []
SANITIZED = "detect_leaks" in os.environ.get("ASAN_OPTIONS", "")


def test(fn):
    TESTS.append(fn)
    return fn


def commands(c):
    return re.findall(r"^  ([a-z]+) ", c.run("help")[0], re.M)


def start_alloc(c, *args, **kw):
    """`alloc` in the foreground, and the line that it says."""
    p = c.start("alloc", *args, stdin=subprocess.PIPE, bufsize=0, **kw)
    return p, hear(p)


# ---- alloc ---------------------------------------------------------------------------------------------------------------

@test
def alloc_holds_until_its_input_ends(c):
    p, line = start_alloc(c, "m", "--size", "8MiB")
    assert re.match(r"m: 8\.0 MiB|m: 8 MiB|m: 10\.0 MiB|m: 10 MiB", line) and f"held by process {p.pid}" in line, line
    row = c.ls()[0]
    assert row["name"] == "m" and row["state"] == "ready" and row["pid"] == p.pid and row["format"] == "storage", row
    p.stdin.write(b"what is typed is of no interest\n")
    time.sleep(0.05)
    assert p.poll() is None
    p.stdin.close()
    assert p.wait(WAIT_S) == 0 and c.ls() == []


@test
def alloc_ends_well_when_told_and_when_removed(c):
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        p, _ = start_alloc(c, "m", "--size", "1MiB")
        p.send_signal(sig)
        assert p.wait(WAIT_S) == 0 and c.ls() == [], sig
    p, _ = start_alloc(c, "m", "--size", "1MiB")
    c.run("rm", "m")
    assert p.wait(WAIT_S) == 0 and c.ls() == []


@test
def alloc_without_a_name_tries_whether_so_much_can_be_had(c):
    out = c.run("alloc", "--size", "4MiB")[0]
    assert re.match(r"[0-9.]+ MiB, ", out), out
    err = c.run("alloc", "--size", "1024TiB", code=4)[1]
    assert err.endswith("[memory]\n") or err.endswith("[cgroup]\n"), err
    assert not [f for f in os.listdir(c.dir) if f.endswith((".name", ".sock"))]


@test
def alloc_keep_leaves_a_holder_that_rm_ends(c):
    told = json.loads(c.run("alloc", "kept", "--size", "2MiB", "--keep", "--json")[0])
    row = c.ls()[0]
    assert row["pid"] == told["pid"] and told["name"] == "kept" and told["bytes"] >= told["asked_bytes"] == 2 << 20, (row, told)
    with open(f"/proc/{told['pid']}/stat", encoding="ascii") as f:
        assert f.read().rsplit(")", 1)[1].split()[3] == str(told["pid"]), "the holder is in its caller's session"
    assert os.readlink(f"/proc/{told['pid']}/cwd") == "/"
    assert "kept" in c.run("alloc", "kept", "--size", "1MiB", code=5)[1]
    assert "[name-held]" in c.run("alloc", "kept", "--size", "1MiB", "--keep", code=5)[1]
    c.run("rm", "kept")
    c.until("the holder is gone", lambda: not alive(told["pid"]))


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
            return [int(child) for child in f.read().split()]
    except FileNotFoundError:
        return []


def alloc_keep_half_way(c, end):
    """`alloc --keep` that end(command, holder) comes upon while memory is made."""
    for _ in range(50):
        p = c.start("alloc", "half", "--size", "256MiB", "--keep")
        while p.poll() is None and not children(p.pid):
            pass
        for holder in children(p.pid):
            end(p.pid, holder)
            out, err = p.communicate(timeout=WAIT_S)
            # One that said what it had was through.
            if p.returncode and not out:
                return p.returncode, holder, out, err
        # This machine was faster.
        p.communicate(timeout=WAIT_S)
        for row in c.ls():
            test_cli.kill_process(row["pid"])
            c.until("the holder is gone", lambda pid=row["pid"]: not alive(pid))
    raise AssertionError("no alloc could be met half-way")


@test
def alloc_keep_and_its_holder_end_together(c):
    code, _, out, err = alloc_keep_half_way(c, lambda command, holder: os.kill(holder, signal.SIGKILL))
    assert code == 1 and out == b"" and b"killed by signal 9" in err, (code, out, err)
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        code, holder, out, err = alloc_keep_half_way(c, lambda command, holder, s=sig: os.kill(command, s))
        assert code == -sig and not alive(holder) and out == b"" and err == b"", (code, out, err)
    assert c.ls() == []


def memory_figures():
    """The machine's MemAvailable and Shmem, in bytes."""
    with open("/proc/meminfo", encoding="ascii") as f:
        text = f.read()
    return [int(re.search(rf"^{key}: +(\d+) kB", text, re.M)[1]) << 10 for key in ("MemAvailable", "Shmem")]


@test
def alloc_is_killed_and_nothing_stays(c):
    """user-needs row 1, with names: create, touch, SIGKILL; `ls` is empty and memory is back."""
    for _ in range(5):
        available, shmem = memory_figures()
        for _ in range(20):
            p, _ = start_alloc(c, "m", "--size", "64MiB")
            p.kill()
            p.wait()
        assert c.ls() == []
        assert json.loads(c.run("leaks", "--json")[0]) == []
        # 20 that stayed would be 1.25 GiB, by either figure and each time; others move one, or now and then both.
        for _ in range(50):
            now = memory_figures()
            if now[0] > available - (512 << 20) or now[1] < shmem + (512 << 20):
                return
            time.sleep(0.1)
    raise AssertionError("the memory is not back")


@test
def alloc_is_usable_by_another_process(c):
    """user-needs row 19: a reader's exit leaves the bytes to its maker and to those who come later."""
    p, _ = start_alloc(c, "m", "--size", "1MiB")
    for turn in ("first", "second"):
        code = f"""
import sys; sys.path.insert(0, {os.path.join(TREE, 'tests', 'cli')!r}); import ctypes, test_cli
lib, ctx = test_cli.open_library()
st = ctypes.c_void_p()
lib.pinion_storage_open_named.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p]
dtype = ctypes.c_int()
assert lib.pinion_dtype_parse(b"u8", ctypes.byref(dtype)) == 0
ret = lib.pinion_storage_open_named(ctx, b"m", dtype.value, 1 << 20, None, ctypes.byref(st))
print(ret, lib.pinion_error().decode() if ret else "")
"""
        out = subprocess.run([sys.executable, "-c", code], env=c.env, capture_output=True, timeout=WAIT_S, check=False)
        assert out.stdout.startswith(b"0"), (out, turn)
    assert c.ls()[0]["state"] == "ready" and p.poll() is None


@test
def alloc_says_what_it_wants(c):
    for args in ([], ["m"], ["--size", "0"], ["--size", "x"], ["--size", "1MiB", "--keep"], ["a", "b", "--size", "1"],
                 ["m", "--size", "1MiB", "--pages", "large"], ["m", "--size", "1MiB", "--hold", "x"]):
        out, err = c.run("alloc", *args, code=2)
        assert out == "" and err.startswith("pinion alloc"), (args, out, err)
    assert "no name" in c.run("alloc", ".m", "--size", "1", code=1)[1] or True
    assert "begin with" in c.run("alloc", ".m", "--size", "1", code=1)[1]


# ---- rm ------------------------------------------------------------------------------------------------------------------

@test
def rm_when_unused_waits_for_the_last_to_go(c):
    c.load(small_gguf(c.path("m.gguf")), "m")
    user = c.child("attach", "m", c.path("m.gguf"))
    assert hear(user) == "attached"
    err = c.run("rm", "m", code=5)[1]
    assert "[name-used]" in err and "--when-unused m" in err, err
    assert "[name-used]" in c.run("rm", "--when-unused", "--timeout", "0.2", "m", code=5)[1]
    p = c.start("rm", "--when-unused", "m")
    time.sleep(0.1)
    assert p.poll() is None and len(c.ls()) == 1
    user.kill()
    assert p.wait(WAIT_S) == 0 and c.ls() == []
    assert "[name-unknown]" in c.run("rm", "--when-unused", "m", code=1)[1]
    for args in (["--timeout", "1", "m"], ["--when-unused", "--timeout", "0", "m"], ["--when-unused"]):
        c.run("rm", *args, code=2)


# ---- leaks ---------------------------------------------------------------------------------------------------------------

@test
def leaks_says_none_when_there_is_none(c):
    assert c.run("leaks") == ("none\n", "")
    p, _ = start_alloc(c, "m", "--size", "1MiB")
    assert c.run("leaks") == ("none\n", "") and json.loads(c.run("leaks", "--json")[0]) == []
    p.kill()


@test
def leaks_shows_what_the_dead_left_and_removes_it(c):
    p, _ = start_alloc(c, "dead", "--size", "1MiB")
    living, _ = start_alloc(c, "living", "--size", "1MiB")
    p.kill()
    p.wait()
    for name in ("stray.sock", "half.new", "living.new"):
        with open(os.path.join(c.dir, name), "w", encoding="ascii") as f:
            f.write("x")
    with open(os.path.join(c.dir, "notes.txt"), "w", encoding="ascii") as f:
        f.write("a user's own")
    found = {(o["kind"], o["what"]): o for o in json.loads(c.run("leaks", "--json", code=1)[0])}
    assert set(found) == {("name", "dead"), ("file", "stray.sock"), ("file", "half.new"), ("file", "living.new")}, found
    dead = found["name", "dead"]
    assert dead["pid"] == p.pid and dead["why"] == f"its holder, process {p.pid}, is dead", dead
    assert dead["fix"] == "pinion leaks --remove" and dead["id"] == "orphans" and dead["removed"] is False, dead
    text = c.run("leaks", code=1)[0]
    assert re.search(rf"^name +dead +{p.pid} ", text, re.M) and re.search(r"^file +stray\.sock ", text, re.M), text
    removed = json.loads(c.run("leaks", "--remove", "--json")[0])
    assert len(removed) == 4 and all(o["removed"] and o["fix"] is None for o in removed), removed
    assert c.run("leaks")[0] == "none\n"
    left = sorted(os.listdir(c.dir))
    assert "notes.txt" in left and "living.name" in left and "living.sock" in left and not [f for f in left if f.startswith(("dead", "stray", "half"))], left
    assert [r["name"] for r in c.ls()] == ["living"] and living.poll() is None


@test
def leaks_shows_who_is_stopped(c):
    """user-needs row 27: one that hangs is visible, with its pid."""
    p, _ = start_alloc(c, "m", "--size", "1MiB")
    worker = c.child("count", "gpu:leak", "3")
    assert hear(worker) == "counting"
    for q in (p, worker):
        q.send_signal(signal.SIGSTOP)
    found = c.until("both are seen stopped", lambda: (lambda f: f if len(f) == 2 else None)(
        {o["kind"]: o for o in json.loads(c.run("leaks", "--json", code=None)[0])}))
    assert found["silent"]["pid"] == p.pid and found["silent"]["what"] == "m" and f"kill -CONT {p.pid}" in found["silent"]["fix"], found
    units = found["units"]
    assert units["pid"] == worker.pid and units["what"] == "gpu:leak" and units["why"].startswith("3 units"), found
    for q in (p, worker):
        q.send_signal(signal.SIGCONT)
    assert c.run("leaks")[0] == "none\n"


@test
def leaks_shows_names_that_nobody_uses_when_asked(c):
    start_alloc(c, "m", "--size", "1MiB")
    assert c.run("leaks")[0] == "none\n"
    assert "unused" in c.run("leaks", "--unused", "0", code=1)[0]
    assert c.run("leaks", "--unused", "3600")[0] == "none\n"
    c.run("leaks", "--unused", "x", code=2)


# ---- limits met by the command -------------------------------------------------------------------------------------------

@test
def a_load_under_a_small_memlock_works_and_says_how_it_is_held(c):
    """user-needs rows 8 and 9: `ulimit -l 64` as a plain user; the right data, and one line that says what it is not."""
    restrict.as_user(c)
    path = small_gguf(c.path("m.gguf"))
    os.chmod(path, 0o644)
    limits = restrict.all_of(restrict.memlock(64), restrict.plain_user())
    p = c.start("load", path, "--name", "m", "--foreground", preexec_fn=limits, bufsize=0)
    line = hear(p)
    assert re.search(r"(locked|unlocked|pinned|registered)", line) and "2 tensors" in line, line
    big = test_cli.sparse_gguf(c.path("big.gguf"), 1 << 20)
    os.chmod(big, 0o644)
    q = c.start("load", big, "--name", "big", "--foreground", preexec_fn=limits, bufsize=0)
    line = hear(q)
    # The address sanitizer's mlock does nothing, and says that it did.
    assert "pinned" in line or SANITIZED or re.search(r"unlocked \(.*RLIMIT_MEMLOCK is 64 KiB, need \d+ KiB\)", line), line
    err = c.run("load", big, "--name", "other", "--hold", "locked", code=None, preexec_fn=limits)[1]
    assert "pinned" in line or SANITIZED or err.rstrip().endswith("[memlock]"), err
    for holder in (p, q):
        holder.terminate()
        assert holder.wait(WAIT_S) == 0


@test
def huge_pages_that_cannot_be_had_leave_nothing_behind(c):
    """user-needs row 40: the first is refused, the second works."""
    p = c.start("alloc", "m", "--size", "64MiB", "--huge", stdin=subprocess.PIPE, bufsize=0)
    ready, _, _ = select.select([p.stdout, p.stderr], [], [], WAIT_S)
    if p.stdout in ready and hear(p):
        p.stdin.close()
        raise Skip("there are huge pages here")
    err = p.communicate(timeout=WAIT_S)[1].decode()
    assert p.returncode == 1 and re.search(r"\[(shmem-thp-off|huge-none|huge-short)\]\n$", err), err
    assert c.ls() == [] and c.run("leaks")[0] == "none\n"
    assert start_alloc(c, "m", "--size", "1MiB")[1].startswith("m: ")


@test
def of_eight_who_race_for_a_quarter_of_a_budget_four_win(c):
    """user-needs row 13, and pain 7: the answer is a reservation."""
    keep = c.child("count", "gpu:race", "0")
    assert hear(keep) == "counting"
    c.run("devices", "--add", "gpu:budget", "--budget", "1GiB")
    if "gpu:budget" not in [d["key"] for d in json.loads(c.run("devices", "--json")[0])]:
        raise Skip("a device without a user does not stay where the module counts")
    for turn in range(10):
        racers = [c.start("run", "--on", "gpu:budget", "--need", "256MiB", "--", "sh", "-c", "echo won; read x", stdin=subprocess.PIPE, bufsize=0)
                  for _ in range(8)]
        said = [hear(p) for p in racers]
        assert sorted(said) == [""] * 4 + ["won"] * 4, (turn, said)
        for p, word in zip(racers, said):
            p.stdin.close()
            assert p.wait(WAIT_S) == (1 if word else 4), (turn, word)  # read of sh: the end of its input
            assert word or p.stderr.read().decode().rstrip().endswith("[device-room]")


@test
def two_who_want_a_device_of_their_own_get_different_ones(c):
    """user-needs row 26."""
    for key in ("gpu:a", "gpu:b"):
        c.run("devices", "--add", key, "--capacity", "4")
    if len([d for d in json.loads(c.run("devices", "--json")[0]) if d["key"].startswith("gpu:")]) != 2:
        raise Skip("a device without a user does not stay where the module counts")
    for turn in range(20):
        both = [c.start("run", "--on", "gpu:a", "--on", "gpu:b", "--exclusive", "--", "sh", "-c", "echo $PINION_DEVICE; read x", stdin=subprocess.PIPE,
                        bufsize=0) for _ in range(2)]
        assert sorted(hear(p) for p in both) == ["gpu:a", "gpu:b"], turn
        for p in both:
            p.stdin.close()
            p.wait(WAIT_S)


# ---- selftest and bench --------------------------------------------------------------------------------------------------

@test
def a_device_that_is_not_there_is_said_or_required(c):
    c.run("devices", "--add", "gpu:there", "--budget", "1GiB")
    if "gpu:there" not in [d["key"] for d in json.loads(c.run("devices", "--json")[0])]:
        raise Skip("where the module counts a device goes with the command that added it")
    both = ["--need", "1MiB", "--on", "gpu:gone", "--on", "gpu:there"]
    out, err = c.run("pick", *both)
    assert out == "gpu:there\n" and err.startswith("pinion pick: passed over: ") and "gpu:gone" in err, (out, err)
    devices = {d["device"]: d for d in json.loads(c.run("pick", "--json", *both)[0])["devices"]}
    assert devices["gpu:there"]["result"] == "chosen" and devices["gpu:gone"]["result"] == "refused", devices
    assert "gpu:gone" in devices["gpu:gone"]["why"], devices
    assert "gpu:gone" in c.run("run", *both, "--", "true")[1]
    for command in (["pick", "--require", *both], ["run", "--require", *both, "--", "true"]):
        out, err = c.run(*command, code=3)
        assert out == "" and "gpu:gone" in err and "passed over" not in err, err
    assert c.run("pick", "--need", "1MiB", "--on", "gpu:gone", code=3)[0] == ""
    assert "--require" in c.run("pick", "--need", "1MiB", "--require", code=2)[1]


@test
def selftest_keeps_every_promise_and_leaves_nothing(c):
    env = {**c.env, "TMPDIR": c.tmp}
    out = c.run("selftest", env=env)[0]
    rows = [re.fullmatch(r"(ok|FAIL) +([a-z]+) +(.*): (.*) \([0-9.]+ s\)", line) for line in out.splitlines()]
    assert all(rows) and [r[2] for r in rows] == ["allocate", "refuse", "share", "kill", "holders", "count", "claim", "flush", "fork", "load"], out
    assert all(r[1] == "ok" for r in rows), out
    assert c.ls() == [] and c.run("leaks")[0] == "none\n"
    assert not [d for d in json.loads(c.run("devices", "--json")[0]) if "selftest" in d["key"]]
    assert sorted(os.listdir(c.tmp)) == ["run"], os.listdir(c.tmp)
    found = json.loads(c.run("selftest", "--json", env=env)[0])
    assert all(set(o) == {"result", "check", "promise", "text", "ns"} and o["result"] == "ok" for o in found) and len(found) == 10, found


@test
def selftest_leaves_no_file_however_it_ends(c):
    """Nothing is written to a file that has a name, which would stay when it is killed."""
    p = c.start("selftest", env={**c.env, "TMPDIR": c.tmp})
    while p.poll() is None:
        for entry in os.scandir(c.tmp):
            try:
                assert entry.is_dir() or not os.stat(entry.path).st_size, entry.path
            except FileNotFoundError:
                pass
    assert p.returncode == 0


@test
def selftest_says_what_is_not_as_promised(c):
    """With the file's folder gone; with a small RLIMIT_FSIZE."""
    found = json.loads(c.run("selftest", "--json", code=1, env={**c.env, "TMPDIR": c.path("nowhere")})[0])
    bad = [o for o in found if o["result"] == "FAIL"]
    assert [o["check"] for o in bad] == ["load"] and "nowhere" in bad[0]["text"], found
    # Files, and memfds, of 8 MiB at most.
    found = json.loads(c.run("selftest", "--json", code=1, env={**c.env, "TMPDIR": c.tmp},
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 20, 8 << 20)))[0])
    bad = {o["check"]: o["text"] for o in found if o["result"] == "FAIL"}
    assert "load" in bad and "File too large" in bad["load"], found
    assert not [f for f in os.listdir(c.tmp) if "selftest" in f]


@test
def selftest_under_a_small_memlock(c):
    """user-needs row 8: what cannot be held is said, and every promise but that is kept."""
    restrict.as_user(c)
    found = json.loads(c.run("selftest", "--json", env={**c.env, "TMPDIR": c.tmp},
                             preexec_fn=restrict.all_of(restrict.memlock(64), restrict.plain_user()))[0])
    assert all(o["result"] == "ok" for o in found), found
    assert "64 KiB" in found[0]["text"] or "pinned" in found[0]["text"] or SANITIZED, found[0]


@test
def bench_measures_what_is_asked_for(c):
    err = c.run("bench", "nonsense", code=2)[1]
    assert "alloc, io, counter, handover and stream" in err, err
    c.run("bench", "--size", "1MiB", code=2)
    if SANITIZED:
        raise Skip("what measures is not built with the address sanitizer")
    report = json.loads(c.run("bench", "--json", "handover")[0])
    assert set(report) >= {"about", "rows"} and report["about"]["pinion"] and report["rows"], report
    assert {r["section"] for r in report["rows"]} == {"to another process"}, report


@test
def bench_says_when_it_is_not_installed(c):
    alone = c.path("pinion")
    with open(test_cli.PINION, "rb") as src, open(alone, "wb") as dst:
        dst.write(src.read())
    os.chmod(alone, 0o755)
    p = subprocess.run([alone, "bench", "alloc"], env={**c.env, "LD_LIBRARY_PATH": os.path.dirname(os.environ["LIBPINION"])}, capture_output=True,
                       timeout=WAIT_S, check=False)
    if p.returncode == 127 or b"rror while loading" in p.stderr or SANITIZED:
        raise Skip("the copy does not start without its library's path")
    if os.path.exists("/usr/local/libexec/pinion/pinion-bench"):
        raise Skip("it is installed here")
    assert p.returncode == 3 and b"pinion-bench is not installed" in p.stderr, p


# ---- top -----------------------------------------------------------------------------------------------------------------

class Terminal:
    """A terminal of its own, as far as ncurses uses an xterm: what it shows, by line."""

    def __init__(self, c, args, rows=24, columns=100):
        self.main, self.sub = test_cli.terminal()
        self.before = termios.tcgetattr(self.sub)
        self.rows = self.columns = 0
        self.resize(rows, columns)
        self.pending = ""
        self.p = subprocess.Popen([test_cli.PINION, *args], stdin=self.sub, stdout=self.sub, stderr=self.sub,
                                  env={k: v for k, v in {**c.env, "TERM": "xterm"}.items() if k not in ("LINES", "COLUMNS")},
                                  preexec_fn=self.take_terminal)
        c.started.append(self.p)

    @staticmethod
    def take_terminal():
        """Only its controlling terminal tells a process of its size and of its end."""
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def resize(self, rows, columns):
        kept = [row[:columns] + [" "] * (columns - len(row)) for row in self.cells[:rows]] if self.rows else []
        self.rows, self.columns = rows, columns
        self.cells = kept + [[" "] * columns for _ in range(rows - len(kept))]
        self.top, self.bottom = 0, rows - 1
        self.row = self.column = 0
        fcntl.ioctl(self.main, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def key(self, text):
        os.write(self.main, text.encode())

    def put(self, ch):
        if self.column >= self.columns:
            self.row, self.column = min(self.row + 1, self.rows - 1), 0
        if self.row < self.rows:
            self.cells[self.row][self.column] = ch
        self.column += 1

    def erase_from(self, row, column, to_row, to_column):
        for r in range(row, to_row + 1):
            for k in range(column if r == row else 0, to_column if r == to_row else self.columns):
                if r < self.rows and k < self.columns:
                    self.cells[r][k] = " "

    def control(self, args, final):
        n = [int(a) if a.isdigit() else 0 for a in args.split(";")]
        first = max(n[0], 1)
        if final == "H":
            self.row, self.column = first - 1, (max(n[1], 1) if len(n) > 1 else 1) - 1
        elif final == "d":
            self.row = first - 1
        elif final == "G":
            self.column = first - 1
        elif final in "ABCD":
            self.row += {"A": -first, "B": first}.get(final, 0)
            self.column += {"C": first, "D": -first}.get(final, 0)
        elif final == "J":
            self.erase_from(*((0, 0) if n[0] == 2 else (self.row, self.column)), self.rows - 1, self.columns)
        elif final == "K":
            if n[0] == 1:
                self.erase_from(self.row, 0, self.row, self.column + 1)
            else:
                self.erase_from(self.row, self.column, self.row, self.columns)
        elif final == "X":
            self.erase_from(self.row, self.column, self.row, self.column + first)
        elif self.row >= self.rows:
            pass  # of a size that the terminal had when it was painted
        elif final == "P":
            line = self.cells[self.row]
            line[self.column:] = (line[self.column + first:] + [" "] * first)[:self.columns - self.column]
        elif final == "@":
            line = self.cells[self.row]
            line[self.column:] = ([" "] * first + line[self.column:])[:self.columns - self.column]
        elif final == "r":
            self.bottom = min(n[1] if len(n) > 1 and n[1] else self.rows, self.rows) - 1
            self.top = min(first - 1, self.bottom)
            self.row = self.column = 0
        elif final in "LTM" or final == "S":
            for _ in range(first):
                self.scroll(self.row if final in "LM" else self.top, final in "SM")

    def scroll(self, top, up):
        """One line of the scrolling region from @top."""
        blank = [" "] * self.columns
        if up:
            del self.cells[top]
            self.cells.insert(self.bottom, blank)
        else:
            del self.cells[self.bottom]
            self.cells.insert(top, blank)

    def take(self, text):
        text = self.pending + text
        at = 0
        while at < len(text):
            if text[at] == "\033":
                m = re.compile(r"\033(?:\[([?0-9;]*)([@-~])|[()][0-9A-Za-z]|[=>78M])").match(text, at)
                if not m:
                    break
                if m[0] == "\033M":
                    self.row -= self.row > self.top
                    if self.row == self.top:
                        self.scroll(self.top, False)
                elif m[2] and not (m[1] or "").startswith("?"):
                    self.control(m[1] or "0", m[2])
                at = m.end()
                continue
            ch = text[at]
            at += 1
            if ch == "\r":
                self.column = 0
            elif ch == "\n" and self.row == self.bottom:
                self.scroll(self.top, True)
            elif ch == "\n":
                self.row += 1
            elif ch == "\b":
                self.column -= 1
            elif ch == "\t":
                self.column = (self.column // 8 + 1) * 8
            elif ch >= " ":
                self.put(ch)
        self.pending = text[at:]

    def read(self, seconds):
        while select.select([self.main], [], [], seconds)[0]:
            try:
                data = os.read(self.main, 65536)
            except OSError:
                return
            if not data:
                return
            self.take(data.decode(errors="replace"))
            seconds = 0.02

    def lines(self):
        return ["".join(row).rstrip() for row in self.cells]

    def until(self, what, fn):
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            self.read(0.1)
            if fn(self.lines()):
                return self.lines()
        raise AssertionError(f"waited in vain until {what}: {self.lines()}")

    def close(self):
        """Its exit code, and whether the terminal is as it was."""
        end = time.monotonic() + WAIT_S
        while self.p.poll() is None and time.monotonic() < end:
            self.read(0.05)
        same = termios.tcgetattr(self.sub) == self.before
        os.close(self.main)
        os.close(self.sub)
        return self.p.poll(), same


def has(line):
    return lambda lines: any(line in text for text in lines)


@test
def top_paints_a_terminal_and_obeys_keys(c):
    a, b = c.child("count", "gpu:few", "2"), c.child("count", "gpu:many", "5")
    assert hear(a) == hear(b) == "counting"
    t = Terminal(c, ["top", "--interval", "0.1"])
    t.until("it shows both", lambda ls: has("gpu:few")(ls) and has("gpu:many")(ls) and has("DONE/S")(ls))
    t.until("it says what it is", lambda ls: ls[0].startswith("pinion top: ") and "every 0.1 s" in ls[0] and "q end" in ls[-1])
    t.until("it shows the users", lambda ls: [line for line in ls if re.match(rf"  {b.pid} \S+ +5 ", line)])
    t.key("u")
    t.until("users are gone", lambda ls: "without users" in ls[0] and not has(f"  {b.pid} ")(ls))
    t.key("s")
    t.until("it is sorted", lambda ls: "by units in flight" in ls[0] and ls[2].startswith("gpu:many") and ls[3].startswith("gpu:few"))
    t.key("+")
    t.until("the interval is longer", lambda ls: "every 0.2 s" in ls[0])
    t.key("-")
    t.until("the interval is as it was", lambda ls: "every 0.1 s" in ls[0])
    t.key("h")
    t.until("keys are shown", has("WHAT IT DOES"))
    t.key("h")
    t.until("they are gone", lambda ls: not has("WHAT IT DOES")(ls) and has("DEVICE")(ls))
    t.key("p")
    t.until("it pauses", lambda ls: ls[0].endswith(", paused"))
    b.kill()
    b.wait()
    t.read(0.5)
    assert has("gpu:many")(t.lines()) and re.search(r"gpu:many +5 ", "\n".join(t.lines())), t.lines()
    t.key("r")
    t.until("it read though it pauses", lambda ls: re.search(r"gpu:many +0 ", "\n".join(ls)))
    t.key("xyz q")
    assert t.close() == (0, True)


@test
def top_fits_the_terminal_and_moves(c):
    child = c.child("add", "20")
    assert hear(child) == "added"
    units = c.child("count", "zz-last", "1")
    assert hear(units) == "counting"
    t = Terminal(c, ["top", "--interval", "0.1"], rows=10, columns=60)
    lines = t.until("it is painted", lambda ls: has("DEVICE")(ls) and "q end" in ls[-1] and all(ls))
    assert not has("RECLAIMED")(lines) and len(lines) == 10, lines
    shown = [ls.split()[0] for ls in lines[2:-1]]
    t.key("\033OB" * 3)  # the arrow down of a terminal in application mode, as keypad() asks for
    t.until("it moved down", lambda ls: ls[1].startswith("DEVICE") and ls[2].split()[:1] == [shown[3]])
    t.key("\033OC" * 3)
    t.until("it moved right", has("RECLAIMED"))
    t.key("\033OH")
    t.until("it is back", lambda ls: ls[1].startswith("DEVICE") and ls[2].split()[:1] == [shown[0]])
    t.resize(30, 120)
    t.until("it uses the room", lambda ls: has("RECLAIMED")(ls) and has("DONE/S")(ls) and sum(ls.startswith("d") for ls in ls) >= 20)
    t.resize(3, 20)
    t.until("it is small", lambda ls: len(ls) == 3 and ls[0].startswith("pinion top"))
    t.p.send_signal(signal.SIGTERM)
    assert t.close() == (0, True)


@test
def top_ends_with_its_terminal(c):
    t = Terminal(c, ["top", "--interval", "0.1"])
    t.until("it is painted", has("DEVICE"))
    os.close(t.main)
    os.close(t.sub)
    assert t.p.wait(WAIT_S) == 0, t.p.returncode


@test
def top_prints_blocks_where_the_terminal_is_unknown(c):
    main, sub = test_cli.terminal()
    # What ncurses allocates for a terminal it does not know is its own to free.
    env = {**c.env, "TERM": "no-such-terminal", "ASAN_OPTIONS": "detect_leaks=0"}
    p = subprocess.Popen([test_cli.PINION, "top", "--interval", "0.1"], stdin=sub, stdout=sub, stderr=sub, env=env, start_new_session=True)
    c.started.append(p)
    text = b""
    end = time.monotonic() + WAIT_S
    while text.count(b"DEVICE") < 2 and time.monotonic() < end:
        if select.select([main], [], [], 0.1)[0]:
            text += os.read(main, 65536)
    p.send_signal(signal.SIGTERM)
    code = p.wait(WAIT_S)
    os.close(main)
    os.close(sub)
    assert code == 0 and b"\033" not in text and text.count(b"DEVICE") >= 2, (code, text)


# ---- every command -------------------------------------------------------------------------------------------------------

NAME_KEYS = {"name", "state", "bytes", "tensors", "page_size", "huge_bytes", "hold", "hold_why", "attached", "locked", "pid", "age_seconds", "path",
             "format", "done", "total"}
MEMORY_KEYS = {"bytes", "page_size", "huge_bytes", "pages", "pages_why", "node", "node_bytes", "hold", "hold_why"}
SHARD_KEYS = {"file", "file_bytes", "tensors", "outside", "sha256"}
# command: (arguments, keys, {key: keys of the objects in it}); of an array the keys of each object.
JSON_KEYS = {
    "info": ([], {"version", "ground", "ground_why", "counts", "module", "dir", "engine", "page_size", "huge_size", "huge_why", "memlock_limit"}, {}),
    "doctor": ([], {"finding", "what", "text", "fix", "id"}, {}),
    "explain": ([], {"id", "when", "fix"}, {}),
    "check": (["FILE", "--tensors"], {"path", "format", "version", "alignment", "architecture", "model", "file_bytes", "tensors", "tensor_bytes",
                                      "claimed_bytes", "buffer_bytes", "moved_bytes", "shards", "types", "tensor_list"},
              {"shards": SHARD_KEYS, "types": {"type", "tensors", "bytes"},
               "tensor_list": {"name", "type", "shape", "shard", "file_offset", "bytes"}}),
    "load": (["FILE", "--name", "fresh"], MEMORY_KEYS | {"name", "path", "loaded", "pid", "format", "tensors", "tensor_bytes", "bytes_read",
                                                         "direct_bytes", "buffered_bytes", "buffered_why", "registered_bytes",
                                                         "unregistered_why", "cached_bytes", "cached_by", "moved_bytes", "staging_bytes",
                                                         "alloc_ns", "read_ns", "ns", "shards"}, {"shards": SHARD_KEYS}),
    "alloc": (["--size", "1MiB"], MEMORY_KEYS | {"name", "asked_bytes", "pid", "ns"}, {}),
    "ls": ([], NAME_KEYS, {}),
    "show": (["m"], NAME_KEYS | {"users"}, {"users": {"pid", "uid", "comm", "locked", "since_seconds"}}),
    "leaks": (["--unused", "0"], {"kind", "what", "pid", "bytes", "age_seconds", "why", "removed", "fix", "id"}, {}),
    "devices": ([], {"key", "generation", "budget", "reserved", "capacity", "reserved_units", "claims", "pending", "sessions", "numa", "backends"}, {}),
    "pick": (["--on", "gpu:0", "--units", "1"], {"device", "generation", "bytes", "units", "exclusive", "devices"},
             {"devices": {"device", "result", "why"}}),
    "top": ([], {"devices", "counts", "apart"}, {"devices": {"key", "generation", "capacity", "pending_low", "pending_high", "pending_cost", "submitted",
                                                             "reclaimed", "sessions", "shared_lanes", "users"}}),
    "selftest": ([], {"result", "check", "promise", "text", "ns"}, {}),
}
# What prints a line of its own, or what another command prints; bench has pinion-bench's report.
NO_JSON = {"rm", "run", "help"}


@test
def json_has_its_keys_in_every_command_and_they_are_documented(c):
    assert set(JSON_KEYS) | NO_JSON | {"bench"} == set(commands(c)), commands(c)
    page = open(os.path.join(TREE, "Documentation", "man", "pinion.1.scd"), encoding="utf-8").read().replace("\\", "")
    c.load(small_gguf(c.path("m.gguf")), "m")
    user = c.child("attach", "m", c.path("m.gguf"))
    assert hear(user) == "attached"
    worker = c.child("count", "gpu:0", "2")
    assert hear(worker) == "counting"
    c.run("devices", "--add", "gpu:1", "--capacity", "4")
    start_alloc(c, "unused", "--size", "1MiB")
    for command, (args, keys, inner) in JSON_KEYS.items():
        if command == "pick":
            args = ["--on", "gpu:1", "--units", "1"]
        args = [c.path("m.gguf") if arg == "FILE" else arg for arg in args]
        found = json.loads(c.run(command, "--json", *args, code=None, env={**c.env, "TMPDIR": c.tmp})[0])
        objects = found if isinstance(found, list) else [found]
        assert objects, command
        for o in objects:
            assert set(o) == keys, (command, set(o) ^ keys)
        for key, of in inner.items():
            rows = [row for o in objects for row in o[key]]
            assert rows and all(set(row) == of for row in rows), (command, key, rows)
        for key in keys | {k for of in inner.values() for k in of}:
            assert f"_{key}_" in page, f"{command}: pinion(1) does not say what {key} is"


STREAM_KEYS = {"path", "format", "tensors", "tensor_bytes", "bytes_read", "direct_bytes", "buffered_bytes", "buffered_why", "buffers",
               "buffer_bytes", "ns", "shards"}


@test
def json_of_a_load_says_what_was_done(c):
    path = small_gguf(c.path("m.gguf"))
    first = json.loads(c.run("load", path, "--name", "m", "--json")[0])
    assert first["loaded"] and first["path"] == path and first["bytes_read"] > 0 and first["shards"][0]["sha256"] is None, first
    assert first["tensors"] == json.loads(c.run("check", path, "--json")[0])["tensors"] and first["pid"] == c.ls()[0]["pid"], first
    assert first["registered_bytes"] <= first["direct_bytes"], first
    assert (first["unregistered_why"] == "") == (first["registered_bytes"] == first["direct_bytes"]), first
    again = json.loads(c.run("load", path, "--name", "m", "--json")[0])
    assert again["registered_bytes"] == 0 and again["unregistered_why"] == "", again
    assert not again["loaded"] and again["pid"] == first["pid"] and again["bytes_read"] == 0 and again["hold"] == first["hold"], again
    hashed = json.loads(c.run("load", path, "--name", "hashed", "--hash", "--json")[0])["shards"][0]["sha256"]
    streamed = json.loads(c.run("load", "--stream", "--hash", path, "--json")[0])
    assert set(streamed) == STREAM_KEYS and streamed["shards"][0]["sha256"] == hashed and len(hashed) == 64, streamed
    assert json.loads(c.run("load", "--stream", "--pipe", path, "--json", stdout=subprocess.DEVNULL)[1])["tensors"] == first["tensors"]
    assert c.run("check", path, "--json", "--tensors")[0].count('"file_offset"') == first["tensors"]
    assert json.loads(c.run("check", path, "--json")[0])["tensor_list"] is None


@test
def json_of_a_load_is_whole_however_long_it_is(c):
    folder = c.path("/".join(["a" * 200] * 12))
    os.makedirs(folder)
    path = small_gguf(os.path.join(folder, "m.gguf"))
    told = json.loads(c.run("load", path, "--name", "m", "--json")[0])
    assert told["path"] == path and told["loaded"], told


@test
def memory_is_on_the_node_and_in_the_pages_that_were_asked_for(c):
    told = json.loads(c.run("alloc", "--size", "4MiB", "--numa", "0", "--json")[0])
    assert told["node"] == 0 and told["node_bytes"] == told["bytes"], told
    assert ", all on node 0, " in c.run("alloc", "--size", "4MiB", "--numa", "0,prefer")[0]
    path = small_gguf(c.path("m.gguf"))
    told = json.loads(c.run("load", path, "--name", "m", "--numa", "0", "--pages", "1g,prefer", "--json")[0])
    assert told["node_bytes"] == told["bytes"] and (told["pages"] == "1g") == (told["pages_why"] == ""), told
    for args in (["alloc", "--size", "4MiB"], ["load", path, "--name", "n"]):
        for wish in ("", ",prefer"):
            err = c.run(*args, "--numa", "4711" + wish, code=1)[1]
            assert "there is no NUMA node 4711" in err, err
        for word in ("", "x", "-1", "0,", "prefer", "0,wish", "99999999999"):
            assert "--numa is the number of a node" in c.run(*args, "--numa", word, code=2)[1], word
    assert "no meaning" in c.run("load", "--stream", path, "--numa", "0", code=2)[1]
    assert [row["name"] for row in c.ls()] == ["m"]


@test
def every_command_has_a_manual_page_and_its_options_are_in_it(c):
    with open(os.path.join(TREE, "Documentation", "man", "pinion.1.scd"), encoding="utf-8") as f:
        page = f.read()
    built = os.path.join(os.path.dirname(test_cli.PINION), "..", "Documentation")
    for command in [*commands(c)]:
        assert re.search(rf"^\*pinion {command}\*", page, re.M), f"{command} is not in the synopsis"
        # One for each way to call it.
        sections = re.findall(rf"^\*{command}\*.*?(?=^\*[a-z]|^# )", page, re.M | re.S)
        assert sections, f"{command} has no section"
        if command != "help":
            for option in re.findall(r"--([a-z-]+)", c.run("help", command)[0]):
                shared = option in ("help", "usage") or (command == "run" and re.search(rf"--{option}\b", page))
                assert shared or f"--{option}" in "".join(sections), f"{command}: --{option} is not in its section"
        if os.path.exists(os.path.join(built, "pinion.1")):
            with open(os.path.join(built, f"pinion-{command}.1"), encoding="utf-8") as f:
                text = f.read()
            assert ".SH NAME" in text and ".SH SYNOPSIS" in text and ".SH DESCRIPTION" in text, command


def complete(c, *words):
    """What bash offers for the last of @words, by its own machinery."""
    script = os.path.join(TREE, "tools", "completion", "pinion")
    code = ('source "$1"; shift; complete -p pinion >/dev/null || exit 9; COMP_WORDS=("$PINION" "$@"); COMP_CWORD=$#; COMP_LINE="${COMP_WORDS[*]}"; '
            'COMP_POINT=${#COMP_LINE}; _pinion 2>&1; printf "%s\\n" "${COMPREPLY[@]}"')
    p = subprocess.run(["bash", "--norc", "--noprofile", "-c", code, "bash", script, *words], env={**c.env, "PINION": test_cli.PINION},
                       capture_output=True, timeout=WAIT_S, check=False, cwd=c.tmp)
    assert p.returncode == 0 and p.stderr == b"", p
    return sorted(filter(None, p.stdout.decode().splitlines()))


@test
def bash_completes_commands_options_names_and_devices(c):
    listed = commands(c)
    assert complete(c, "") == sorted([*listed, "--version", "--help"])
    assert complete(c, "se") == ["selftest"] and complete(c, "help", "l") == ["leaks", "load", "ls"]
    c.load(small_gguf(c.path("m.gguf")), "model-a")
    start_alloc(c, "scratch", "--size", "1MiB")
    assert complete(c, "rm", "") == complete(c, "show", "") == ["model-a", "scratch"] and complete(c, "rm", "s") == ["scratch"]
    assert "--when-unused" in complete(c, "rm", "--") and complete(c, "rm", "--w") == ["--when-unused"]
    assert complete(c, "load", "--pages", "") == ["1g", "2m", "auto", "huge", "small", "thp"] == complete(c, "alloc", "--pages", "=", "")
    assert "0" in complete(c, "load", "--numa", "") and "0" in complete(c, "alloc", "--numa", "")
    assert complete(c, "load", "m.g") == ["m.gguf"]
    c.run("devices", "--add", "gpu-uuid-1")
    if "gpu-uuid-1" in [d["key"] for d in json.loads(c.run("devices", "--json")[0])]:
        assert complete(c, "run", "--on", "gpu-") == ["gpu-uuid-1"] and "auto" in complete(c, "pick", "--on", "")
    assert complete(c, "pick", "--policy", "") == ["chained", "fit", "least-inflight"]
    assert "memlock" in complete(c, "explain", "mem") and complete(c, "bench", "h") == ["handover"]
    assert "bash" in complete(c, "run", "--need", "1", "--", "bas")
    for command in listed:
        if command not in ("help",):
            options = complete(c, command, "--")
            assert "--help" in options and all(o.startswith("--") for o in options), (command, options)


def install(c):
    """Where the build was installed. Its log is written elsewhere: who tests need not be one who may write into the build."""
    build = os.path.dirname(os.path.dirname(test_cli.PINION))
    os.makedirs(c.path("build/meson-logs"))
    os.makedirs(c.path("build/meson-private"))
    for name in ["meson-private/install.dat", *os.listdir(build)]:
        if name not in ("meson-logs", "meson-private"):
            os.symlink(os.path.join(build, name), c.path(os.path.join("build", name)))
    p = subprocess.run(["meson", "install", "-C", c.path("build"), "--no-rebuild"], env={**os.environ, "DESTDIR": c.path("root")},
                       capture_output=True, timeout=WAIT_S, check=False)
    assert p.returncode == 0, p.stdout + p.stderr
    return c.path("root")


@test
def it_is_installed_with_its_pages_and_its_completion(c):
    root = install(c)
    files = [os.path.join(d, f)[len(root):] for d, _, fs in os.walk(root) for f in fs]
    assert [f for f in files if f.endswith("/share/bash-completion/completions/pinion")], files
    assert SANITIZED or [f for f in files if f.endswith("/libexec/pinion/pinion-bench")], files
    if [f for f in files if f.endswith("man1/pinion.1")]:
        for command in commands(c):
            assert [f for f in files if f.endswith(f"man1/pinion-{command}.1")], command
    tool = [f for f in files if f.endswith("/bin/pinion")][0]
    assert os.stat(root + tool).st_mode & stat.S_IXOTH


@test
def first_steps_are_as_written(c):
    """A newcomer's walk: each line of Documentation/first-steps.md that begins with $, with its program, on an installed copy."""
    with open(os.path.join(TREE, "Documentation", "first-steps.md"), encoding="utf-8") as f:
        page = f.read()
    if SANITIZED:
        raise Skip("a program of one's own does not bring the address sanitizer")
    with open(c.path("app.c"), "w", encoding="utf-8") as f:
        f.write(re.search(r"```c\n(.*?)```", page, re.S)[1])
    small_gguf(c.path("model.gguf"))
    root = install(c)
    where = {f: d for d, _, fs in os.walk(root) for f in fs if f in ("pinion", "pinion.pc", "libpinion.so.0") and "completions" not in d}
    env = {**c.env, "PATH": where["pinion"] + ":" + os.environ["PATH"], "PKG_CONFIG_PATH": where["pinion.pc"], "PKG_CONFIG_SYSROOT_DIR": root,
           "LD_LIBRARY_PATH": where["libpinion.so.0"], "TMPDIR": c.tmp}
    said = {}
    # A line without $ after one with it, set in, is what it prints.
    for line, printed in re.findall(r"^    \$ (.*)\n((?:    [^$\n ].*\n)*)", page, re.M):
        p = subprocess.run(["bash", "-c", line], cwd=c.tmp, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=WAIT_S, check=False)
        said[line] = p.stdout.decode()
        assert p.returncode == 0, (line, p.returncode, p.stdout, p.stderr)
        assert not printed or said[line] == re.sub(r"^    ", "", printed, flags=re.M), (line, said[line])
    assert len(said) >= 14, said
    assert "first: 4000 bytes at " in said["./app"] and "my-worker" in said["pinion top --once"], said
    assert " 64 KiB hard" in said["(ulimit -l 64; pinion doctor --for 1GiB)"], said


if __name__ == "__main__":
    test_cli.start(TESTS)
