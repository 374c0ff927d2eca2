#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Usage: tests/cli/test_cli.py PATH-TO-PINION [TEST...]

Tests the command by its output, its exit codes and what it leaves behind. Each test has a runtime directory of its own.
Processes that attach and count use the library at $LIBPINION, or the one in the build of the command.
"""
import contextlib
import ctypes
import errno
import glob
import hashlib
import json
import os
import pty
import re
import resource
import select
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import termios
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(HERE))
SHARED = os.environ.get("PINION_SHARED", os.path.join(TREE, "..", "shared"))
WAIT_S = 60
GIB = 1 << 30
IO_URING_SETUP = 425  # the same on every architecture but alpha

TESTS = []


class Skip(Exception):
    pass


def test(fn):
    TESTS.append(fn)
    return fn


# ---- files ---------------------------------------------------------------------------------------------------------------

def gguf_string(text):
    return struct.pack("<Q", len(text)) + text


def gguf_header(tensors, name=b"a test"):
    """The bytes before the data of a GGUF file with F32 tensors, given as (name, elements, offset in the data)."""
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 2)
    for key, value in ((b"general.architecture", b"test"), (b"general.name", name)):
        out += gguf_string(key) + struct.pack("<I", 8) + gguf_string(value)
    for tensor, elements, offset in tensors:
        out += gguf_string(tensor) + struct.pack("<IQIQ", 1, elements, 0, offset)
    return out + bytes(-len(out) % 32)


def small_gguf(path):
    """Two tensors whose bytes say where they belong."""
    with open(path, "wb") as f:
        f.write(gguf_header([(b"first", 1000, 0), (b"second", 64, 4000)]))
        f.write(b"".join(struct.pack("<f", i) for i in range(1064)))
    return path


def sparse_gguf(path, data_bytes):
    """One tensor, a hole but for its last element, which is 1.0."""
    header = gguf_header([(b"hole", data_bytes // 4, 0)])
    with open(path, "wb") as f:
        f.write(header)
        f.truncate(len(header) + data_bytes)
        f.seek(len(header) + data_bytes - 4)
        f.write(struct.pack("<f", 1.0))
    return path


def small_shards(folder, total_size):
    """Two safetensors files of one tensor each, the second in another folder, and their list."""
    for name, tensor in (("m-00001-of-00002.safetensors", "a"), ("there/m-00002-of-00002.safetensors", "b")):
        os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
        header = json.dumps({tensor: {"dtype": "U8", "shape": [5000], "data_offsets": [0, 5000]}}).encode()
        with open(os.path.join(folder, name), "wb") as f:
            f.write(struct.pack("<Q", len(header)) + header + tensor.encode() * 5000)
    os.symlink("there/m-00002-of-00002.safetensors", os.path.join(folder, "m-00002-of-00002.safetensors"))
    path = os.path.join(folder, "m.safetensors.index.json")
    with open(path, "w", encoding="ascii") as f:
        json.dump({"metadata": {"total_size": total_size},
                   "weight_map": {"a": "m-00001-of-00002.safetensors", "b": "m-00002-of-00002.safetensors"}}, f)
    return path


def available_bytes():
    with open("/proc/meminfo", encoding="ascii") as f:
        return int(re.search(r"MemAvailable:\s+(\d+) kB", f.read()).group(1)) * 1024


# ---- a process that attaches or counts, by ctypes ------------------------------------------------------------------------

class Tensor(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("type", ctypes.c_uint32), ("rank", ctypes.c_uint32),
                ("shape", ctypes.c_uint64 * 8), ("bytes", ctypes.c_uint64), ("file_offset", ctypes.c_uint64),
                ("offset", ctypes.c_uint64), ("data", ctypes.c_void_p), ("shard", ctypes.c_uint32)]


class AttachOpts(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("deadline_ns", ctypes.c_int64)]


class Ticket(ctypes.Structure):
    _fields_ = [("device", ctypes.c_void_p), ("cost", ctypes.c_uint64), ("state", ctypes.c_uint32),
                ("reserved", ctypes.c_uint32)]


def say(text):
    print(text, flush=True)


def open_library():
    lib = ctypes.CDLL(os.environ["LIBPINION"])
    lib.pinion_error.restype = ctypes.c_char_p
    lib.pinion_deadline_in.restype = ctypes.c_int64
    lib.pinion_deadline_in.argtypes = [ctypes.c_int64]
    lib.pinion_model_tensor_at.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.POINTER(Tensor)]
    lib.pinion_work_begin.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.POINTER(Ticket)]
    ctx = ctypes.c_void_p()
    if lib.pinion_open(None, ctypes.byref(ctx)):
        sys.exit(lib.pinion_error().decode())
    return lib, ctx


def child_attach(name, path):
    """Says `nobody` once there is none, `loading` once it is, then waits for it; says `attached`, or the errno and the sentence.
    Then compares with the file at each line of stdin."""
    lib, ctx = open_library()
    model, opts, said = ctypes.c_void_p(), AttachOpts(ctypes.sizeof(AttachOpts), 0), set()
    while True:
        ret = lib.pinion_model_attach(ctx, name.encode(), ctypes.byref(opts), ctypes.byref(model))
        word = {-errno.EBUSY: "loading", -errno.ENOENT: "nobody"}.get(ret)
        if not word or "loading" in said:
            break
        if word not in said:
            said.add(word)
            say(word)
        if word == "loading":
            opts.deadline_ns = lib.pinion_deadline_in(WAIT_S * 10**9)
        else:
            time.sleep(0.001)
    if ret:
        say(f"{errno.errorcode[-ret]} {lib.pinion_error().decode()}")
        return
    say("attached")
    for line in sys.stdin:
        if line.strip() == "raise":
            sys.excepthook = lambda *_: None
            raise RuntimeError("asked to")
        say(compare_tensors(lib, model, path))


def compare_tensors(lib, model, path):
    tensor, i = Tensor(), 0
    with open(path, "rb") as f:
        while not lib.pinion_model_tensor_at(model, i, ctypes.byref(tensor)):
            f.seek(tensor.file_offset)
            if ctypes.string_at(tensor.data, tensor.bytes) != f.read(tensor.bytes):
                return f"tensor {tensor.name.decode()} differs from the file"
            i += 1
    return f"{i} tensors equal"


def child_count(key, units):
    """Has @units units in flight on device @key until stdin ends."""
    lib, ctx = open_library()
    device, tickets = ctypes.c_void_p(), (Ticket * int(units))()
    if lib.pinion_device_add(ctx, key.encode(), None, ctypes.byref(device)):
        sys.exit(lib.pinion_error().decode())
    for ticket in tickets:
        if lib.pinion_work_begin(device, 7, ctypes.byref(ticket)):
            sys.exit(lib.pinion_error().decode())
    say("counting")
    sys.stdin.read()


class ReservationInfo(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("key", ctypes.c_char * 64), ("generation", ctypes.c_uint64),
                ("bytes", ctypes.c_uint64), ("units", ctypes.c_uint32), ("exclusive", ctypes.c_bool)]


def child_add(n):
    """Adds devices d0, d1, ... that nobody counts on."""
    lib, ctx = open_library()
    device = ctypes.c_void_p()
    for i in range(int(n)):
        if lib.pinion_device_add(ctx, f"d{i}".encode(), None, ctypes.byref(device)):
            sys.exit(lib.pinion_error().decode())
    say("added")


def child_adopt():
    """Adopts the claim that `run` left open, closes what it was given, says what the claim is, and holds it until stdin ends."""
    lib, ctx = open_library()
    lib.pinion_reservation_adopt.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p)]
    lib.pinion_reservation_info.argtypes = [ctypes.c_void_p, ctypes.POINTER(ReservationInfo)]
    claim, info = ctypes.c_void_p(), ReservationInfo(ctypes.sizeof(ReservationInfo))
    fd = int(os.environ["PINION_CLAIM_FD"])
    if lib.pinion_reservation_adopt(ctx, fd, ctypes.byref(claim)) or lib.pinion_reservation_info(claim, ctypes.byref(info)):
        sys.exit(lib.pinion_error().decode())
    os.close(fd)
    say(f"{os.getpid()} {info.key.decode()} {info.bytes} {info.units}")
    sys.stdin.read()


# ---- what a test works with ----------------------------------------------------------------------------------------------

class Case:
    """A folder with a runtime directory, and the processes of one test."""

    def __init__(self):
        self.tmp = tempfile.mkdtemp(prefix="pinion-cli-")
        self.dir = os.path.join(self.tmp, "run")
        self.env = {k: v for k, v in os.environ.items() if k not in ("NOTIFY_SOCKET", "ARGP_HELP_FMT")}
        self.env.update(PINION_DIR=self.dir, LC_ALL="C.UTF-8")
        self.started = []

    def path(self, name):
        return os.path.join(self.tmp, name)

    def start(self, *args, **kw):
        kw.setdefault("stdin", subprocess.DEVNULL)
        kw.setdefault("stdout", subprocess.PIPE)
        kw.setdefault("stderr", subprocess.PIPE)
        kw.setdefault("env", self.env)
        p = subprocess.Popen([PINION, *args], **kw)
        self.started.append(p)
        return p

    def run(self, *args, code=0, **kw):
        """Runs pinion, wants that exit code (None: any), returns (stdout, stderr)."""
        p = self.start(*args, **kw)
        out, err = p.communicate(timeout=WAIT_S)
        out, err = (out or b"").decode(errors="replace"), (err or b"").decode(errors="replace")
        assert code in (None, p.returncode), f"pinion {' '.join(map(str, args))}: exit {p.returncode}, not {code}: {out}{err}"
        assert "\033" not in out + err, f"an escape where no terminal is: {out!r} {err!r}"
        return out, err

    def child(self, *args):
        p = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--child", *args], env=self.env,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.started.append(p)
        return p

    def ls(self, **kw):
        return json.loads(self.run("ls", "--json", **kw)[0])

    def load(self, path, name, *args):
        return self.run("load", path, "--name", name, *args)[0]

    def until(self, what, fn):
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            value = fn()
            if value:
                return value
            time.sleep(0.005)
        raise AssertionError(f"waited {WAIT_S} s in vain until {what}")

    def close(self):
        for p in self.started:
            if p.poll() is None:
                p.kill()
            for stream in (p.stdin, p.stdout, p.stderr):
                if stream:
                    stream.close()
            p.wait()
        if os.path.isdir(self.dir):
            os.chmod(self.dir, 0o700)
            # A holder that was left behind is another user's where the folder is.
            uid = os.stat(self.dir).st_uid
            for entry in self.ls(**{} if uid == os.geteuid() else {"user": uid, "group": uid, "extra_groups": []}):
                kill_process(entry["pid"])
        self.until("its folder is gone", lambda: removed(self.tmp))


def removed(folder):
    """Whether nothing is left of it. Who is just going may remove its own files meanwhile, or make the directory's lock anew."""
    shutil.rmtree(folder, ignore_errors=True)
    return not os.path.lexists(folder)


def links_of(pid):
    """What each descriptor of a process leads to. One may be closed meanwhile."""
    links = {}
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            links[int(fd)] = os.readlink(f"/proc/{pid}/fd/{fd}")
    return links


def hear(child):
    """The next line of a child, "" at its end."""
    ready, _, _ = select.select([child.stdout], [], [], WAIT_S)
    assert ready, "a child says nothing"
    return child.stdout.readline().decode(errors="replace").rstrip("\n")


def ask_to_compare(child):
    child.stdin.write(b"\n")
    return hear(child)


def kill_process(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def children_of(pid):
    """The pids of those it has, of which some may have ended."""
    found = []
    for other in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{other}/stat", "rb") as f:
            if int(f.read().rsplit(b")", 1)[1].split()[1]) == pid:
                found.append(int(other))
    return found


def process_state(pid):
    """Its letter in /proc, "X" when there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            return f.read().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def alive(pid):
    return process_state(pid) not in "ZX"


def model_files(kind):
    """(name, path) of the small files of the tree, and of those beside it where there are some."""
    folders = (os.path.join(SHARED, "inputs", "hostile"), os.path.join(TREE, "tests", "hostile"))
    return [(os.path.basename(p), p) for folder in folders for p in sorted(glob.glob(os.path.join(folder, kind + "_*")))]


# ---- help and usage ------------------------------------------------------------------------------------------------------

@test
def no_argument_says_what_it_is_and_what_is_next(c):
    out, err = c.run()
    assert err == "" and len(out.splitlines()) <= 15, out
    assert "pinion check FILE" in out and "pinion load FILE --name NAME" in out and "Next:" in out, out


@test
def help_and_version(c):
    listed = c.run("help")[0]
    assert listed == c.run("--help")[0]
    for command in ("info", "doctor", "check", "load", "ls", "show", "rm", "top"):
        assert re.search(rf"^  {command} ", listed, re.M), listed
        assert c.run("help", command)[0] == c.run(command, "--help")[0]
    assert re.fullmatch(r"pinion \d+\.\d+\.\d+\n", c.run("--version")[0])
    assert not os.path.exists(c.dir), "help made a runtime directory"


@test
def usage_errors_exit_2(c):
    for args in (["nonsense"], ["help", "nonsense"], ["help", "ls", "rm"], ["check"], ["check", "a", "b"], ["check", "--nonsense", "a"],
                 ["load"], ["load", "a"], ["load", "--name", "n"], ["load", "a", "--name", "n", "--pages", "x"],
                 ["load", "a", "--name", "n", "--io", "x"], ["load", "a", "--name", "n", "--hold", "x"],
                 ["load", "a", "b", "--name", "n"], ["ls", "a"], ["ls", "--jso=1"], ["show"], ["show", "a", "b"], ["rm"], ["rm", "a", "b"],
                 ["top", "a"], ["top", "--interval", "0"], ["top", "--interval", "nan"], ["top", "--interval", "1x"], ["info", "a"]):
        out, err = c.run(*args, code=2)
        assert out == "" and err.startswith("pinion"), (args, out, err)
    assert not os.path.exists(c.dir), "a usage error made a runtime directory"


def has_ring():
    fd = ctypes.CDLL(None).syscall(IO_URING_SETUP, 1, ctypes.create_string_buffer(120))
    if fd >= 0:
        os.close(fd)
    return fd >= 0


@test
def info_says_what_it_stands_on(c):
    engine = "io_uring" if has_ring() else r"threads \(.*io_uring.*\)"
    if os.environ.get("PINION_ENGINE") == "threads":
        engine = r"threads \(PINION_ENGINE says so\)"
    lines = dict(line.split(": ", 1) for line in c.run("info")[0].splitlines())
    assert lines["ground"] == ("kmod" if lines["module"].startswith("loaded,") else "memfd") and re.fullmatch(engine, lines["engine"]), lines
    assert lines["runtime directory"] == c.dir, lines
    assert {"version", "module", "small pages", "huge pages", "memlock limit"} <= set(lines), lines


@test
def buffers_of_the_module_are_listed_or_refused(c):
    if os.path.exists("/dev/pinion") and os.access("/dev/pinion", os.R_OK):
        assert isinstance(json.loads(c.run("ls", "--buffers", "--json")[0]), list)
        return
    err = c.run("ls", "--buffers", code=3 if not os.path.exists("/dev/pinion") else 1)[1]
    assert "module" in err and "as root" in err, err


# ---- check ---------------------------------------------------------------------------------------------------------------

@test
def check_accepts_what_is_right(c):
    files = model_files("ok")
    assert len(files) >= 4
    for _, path in files:
        out, err = c.run("check", path, "--tensors")
        assert err == "" and "format: " in out and "bytes needed for a load: " in out and "NAME" in out, out


@test
def check_refuses_hostile_files_with_a_sentence(c):
    files = model_files("bad")
    assert len(files) >= 17
    for name, path in files:
        out, err = c.run("check", path, code=1)
        assert out == "" and err.count("\n") == 1, (name, out, err)
        assert err.startswith("pinion check: ") and name[-20:] in err and len(err) > len(name) + 30, err


@test
def check_shows_types_and_tensors(c):
    out = c.run("check", small_gguf(c.path("m.gguf")), "--tensors")[0]
    assert "format: gguf 3, aligned to 32\n" in out and "architecture: test\n" in out and "name: a test\n" in out, out
    assert "tensors: 2\n" in out and "tensor bytes: 4256 (4.2 KiB)\n" in out and "bytes a load must move: 0\n" in out, out
    assert re.search(r"^f32 +2 +4256$", out, re.M), out
    assert re.search(r"^first +f32 +1000 +\d+ +4000$", out, re.M) and re.search(r"^second +f32 +64 +\d+ +256$", out, re.M), out


@test
def check_shows_the_files_of_a_model(c):
    out = c.run("check", small_shards(c.path("set"), 10000))[0]
    assert "\nfiles: 2\n" in out and "total_size" not in out, out
    assert re.search(r"^m-00001-of-00002.safetensors +1 +\d+ *$", out, re.M), out
    assert re.search(r"^m-00002-of-00002.safetensors +1 +\d+  \(in another folder, by a symbolic link\)$", out, re.M), out
    out = c.run("check", small_shards(c.path("other"), 999))[0]
    assert "tensor bytes by metadata.total_size: 999" in out and "which is wrong" in out, out
    os.unlink(c.path("other/m-00002-of-00002.safetensors"))
    err = c.run("check", c.path("other/m.safetensors.index.json"), code=1)[1]
    assert "m-00002-of-00002.safetensors of the same folder cannot be opened" in err, err


@test
def a_model_in_several_files_is_held_under_one_name(c):
    path = small_shards(c.path("set"), 10000)
    # As the cache of a model hub has it: the list is a link to a name beside which there is nothing.
    os.rename(path, c.path("blob"))
    os.symlink("../blob", path)
    out = c.load(os.path.relpath(path), "m")
    assert "2 tensors" in out, out
    (row,) = c.ls()
    assert row["tensors"] == 2 and row["format"] == "safetensors" and row["path"] == os.path.realpath(path), row
    child = c.child("attach", "m", path)
    assert hear(child) == "attached"
    child.stdin.close()
    child.wait(WAIT_S)
    c.run("rm", "m")


@test
def check_refuses_what_is_no_file(c):
    os.mkfifo(c.path("fifo"))
    open(c.path("empty"), "wb").close()
    for path, why in ((c.path("none"), "No such file"), (c.tmp, "directory"), (c.path("fifo"), "FIFO"), (c.path("empty"), "empty")):
        assert why in c.run("check", path, code=1)[1]


@test
def labels_in_files_are_printed_without_control_characters(c):
    with open(c.path("m.gguf"), "wb") as f:
        f.write(gguf_header([(b"w", 8, 0)], name=b"\x1b[31mred\x07\xff\xc2\x9b") + bytes(32))
    out = c.run("check", c.path("m.gguf"))[0]
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", out), repr(out)


# ---- load, ls, show, rm --------------------------------------------------------------------------------------------------

RESULT = (r"{}: [\d.]+ [KMG]?i?B, \d+ tensors, read [\d.]+ [MG]B/s \(direct \d+ %.*\), moved [\d.]+ [KMG]?i?B, "
          r"(huge pages \d+ of \d+ MiB|pages of \d+ KiB), (pinned|registered|(un)?locked \(.+\)), sealed read-only, ready in [\d.]+ s\n")


def life_cycle(c, path, tensors):
    out, err = c.run("load", path, "--name", "m")
    assert re.fullmatch(RESULT.format("m"), out), out
    assert err == "" and f" {tensors} tensors," in out, (out, err)
    row, = c.ls()
    assert (row["name"], row["state"], row["tensors"], row["path"]) == ("m", "ready", tensors, os.path.realpath(path)), row
    assert row["bytes"] % row["page_size"] == 0 and row["done"] == row["total"] and row["attached"] == 0, row
    assert re.search(rf"^m +ready .* {row['pid']} .*{re.escape(os.path.basename(path))}$", c.run("ls")[0], re.M)
    shown = c.run("show", "m")[0]
    assert f"pid: {row['pid']}\n" in shown and f"tensors: {tensors}\n" in shown and "state: ready\n" in shown, shown
    child = c.child("attach", "m", path)
    assert hear(child) == "attached"
    assert ask_to_compare(child) == f"{tensors} tensors equal"
    child.communicate()
    c.until("nobody is attached", lambda: c.ls()[0]["attached"] == 0)
    assert c.run("rm", "m") == ("", "")
    assert c.ls() == [] and c.run("ls") == ("", "")
    c.until("the holder is gone", lambda: not alive(row["pid"]))
    assert not [f for f in os.listdir(c.dir) if f.startswith("m.")], os.listdir(c.dir)


@test
def life_of_a_name(c):
    life_cycle(c, small_gguf(c.path("m.gguf")), 2)


@test
def life_of_a_name_with_real_files(c):
    files = glob.glob(os.path.join(SHARED, "inputs", "real", "*.gguf")) + glob.glob(os.path.join(SHARED, "inputs", "real", "*.safetensors"))
    if not files:
        raise Skip("no real model files beside the checkout")
    for path in files:
        with open(path + ".manifest.tsv", encoding="utf-8") as f:
            life_cycle(c, path, sum(1 for line in f if line.strip()) - 1)


@test
def ls_json_has_its_keys(c):
    c.load(small_gguf(c.path("m.gguf")), "m")
    row, = c.ls()
    assert list(row) == ["name", "state", "bytes", "tensors", "page_size", "huge_bytes", "hold", "hold_why", "attached", "locked",
                         "pid", "age_seconds", "path", "format", "done", "total"], list(row)
    assert row["format"] == "gguf" and row["hold"] in ("pinned", "registered", "locked", "unlocked"), row
    assert (row["hold_why"] == "") == (row["hold"] in ("pinned", "registered")), row


@test
def load_options_are_obeyed(c):
    path = sparse_gguf(c.path("m.gguf"), 8 << 20)
    out = c.load(path, "buffered", "--io", "buffered", "--hold", "none", "--pages", "small")
    assert "(direct 0 %" in out and "unlocked (not asked for)" in out and f"pages of {os.sysconf('SC_PAGESIZE') // 1024} KiB" in out, out
    assert "hold: unlocked\nhold why: not asked for\n" in c.run("show", "buffered")[0]
    c.load(path, "direct", "--io", "direct")
    huge = "huge pages: none" not in c.run("info")[0]
    out, err = c.run("load", path, "--name", "huge", "--pages", "huge", code=0 if huge else None)
    # How many the kernel found depends on how much memory is in one piece, but none would be a refusal. And a pool may have some
    # for a while, which is the machine's.
    assert re.search(r"huge pages [1-9]\d* of (8|10) MiB", out) if huge or out else "huge pages were asked for" in err, (out, err)


@test
def pinned_pages_are_the_modules(c):
    c.env["PINION_GROUND"] = "memfd"
    err = c.run("load", small_gguf(c.path("m.gguf")), "--name", "m", "--hold", "pinned", code=1)[1]
    assert "module" in err and c.ls() == [], err


@test
def locked_pages_are_locked_by_each_process(c):
    path = small_gguf(c.path("m.gguf"))
    assert ", locked (" in c.load(path, "m", "--hold", "locked")
    child = c.child("attach", "m", path)
    assert hear(child) == "attached"
    c.until("the holder has heard of it", lambda: c.ls()[0]["locked"] == 1)
    shown = c.run("show", "m")[0]
    assert "hold: locked by 1 of 1\n" in shown and re.search(rf"^ *{child.pid} .* yes +\d+ s$", shown, re.M), shown
    assert " locked by 1 of 1 " in c.run("ls")[0]


@test
def files_are_shown_by_their_whole_path(c):
    os.mkdir(c.path("folder"))
    small_gguf(c.path("folder/m.gguf"))
    os.symlink("folder/m.gguf", c.path("link"))
    c.run("load", "link", "--name", "m", cwd=c.tmp)
    assert c.ls()[0]["path"] == os.path.realpath(c.path("folder/m.gguf"))


HELD = "pinion rm m, or choose another name [name-held]\n"


@test
def a_taken_name_exits_5(c):
    path = small_gguf(c.path("m.gguf"))
    c.load(path, "m")
    pid = c.ls()[0]["pid"]
    out, err = c.run("load", path, "--name", "m", "--foreground", code=5)
    assert out == "" and err == f"pinion load: 'm' is held by process {pid}; {HELD}", (out, err)
    out, err = c.run("load", small_gguf(c.path("other.gguf")), "--name", "m", code=5)
    assert out == "" and err.startswith(f"pinion load: m is already held by pid {pid}, and ") and "other.gguf is another file" in err, (out, err)
    assert err.endswith(HELD), err
    with open(path, "ab") as f:
        f.write(b"x")
    err = c.run("load", path, "--name", "m", code=5)[1]
    size = os.path.getsize(path)
    assert f"m.gguf had {size - 1} bytes when it was loaded and has {size} now" in err, err
    assert c.ls()[0]["pid"] == pid


@test
def a_name_that_a_storage_has_exits_5_and_says_so(c):
    c.run("alloc", "m", "--size", "4KiB", "--keep")
    pid = c.ls()[0]["pid"]
    for args in ([], ["--json"], ["--hash"]):
        out, err = c.run("load", small_gguf(c.path("m.gguf")), "--name", "m", *args, code=5)
        assert out == "" and err.startswith(f"pinion load: m is already held by pid {pid}; 'm' is a storage, not a model"), (out, err)
        assert err.endswith(HELD), err


@test
def a_load_under_the_name_of_a_stopped_holder_ends(c):
    path = small_gguf(c.path("m.gguf"))
    c.load(path, "m")
    pid = c.ls()[0]["pid"]
    os.kill(pid, signal.SIGSTOP)
    c.until("it stopped", lambda: process_state(pid) == "T")
    out, err = c.run("load", path, "--name", "m", code=5)
    assert out == "" and err.startswith(f"pinion load: m is already held by pid {pid}; "), (out, err)
    assert err.endswith(f"; kill -CONT {pid}, or kill -KILL {pid} [name-silent]\n"), err
    os.kill(pid, signal.SIGCONT)
    assert f"m: already held by pid {pid}, " in c.run("load", path, "--name", "m")[0]


@test
def a_stream_goes_through_and_holds_nothing(c):
    path = small_gguf(c.path("m.gguf"))
    with open(path, "rb") as f:
        whole = f.read()
    digest = hashlib.sha256(whole).hexdigest()
    out = c.run("load", "--stream", path, "--hash", "--buffers", "2", "--buffer-size", "4KiB")[0]
    assert "m.gguf: 4.2 KiB, 2 tensors, read " in out and "through 2 buffers of 4 KiB" in out, out
    assert out.endswith(f"\n{digest}  m.gguf\n"), out
    c.run("load", "--stream", path, "--sha256", digest.upper())
    err = c.run("load", "--stream", path, "--sha256", "0" * 64, code=1)[1]
    assert f"its SHA-256 is {digest}, not 0000" in err, err
    with open(c.path("out"), "wb") as out:
        err = c.run("load", "--stream", path, "--pipe", stdout=out)[1]
    with open(c.path("out"), "rb") as f:
        assert f.read() == whole[-1064 * 4:]
    assert "m.gguf: 4.2 KiB, 2 tensors" in err, err
    out = c.run("load", "--stream", small_shards(c.path("set"), 10000), "--hash")[0]
    assert len(re.findall(r"^[0-9a-f]{64}  m-0000[12]-of-00002.safetensors$", out, re.M)) == 2, out
    out, err = c.run("load", "--stream", small_shards(c.path("two"), 10000), "--sha256", digest, "--pipe", code=1)
    assert out == "" and "it is 2 files, and --sha256 is of one" in err, "it was streamed first"
    for args in (["--name", "m"], ["--foreground"], ["--hold", "none"], ["--sha256", "xy"], ["--buffers", "0"], ["--buffer-size", "x"]):
        c.run("load", "--stream", path, *args, code=2)
    for args in (["--pipe"], ["--sha256", digest], ["--buffers", "2"]):
        c.run("load", path, "--name", "m", *args, code=2)
    assert c.run("load", "--stream", path, "--buffer-size", "5000", code=1)[1].startswith("pinion load: ")
    assert c.ls() == []


@test
def a_stream_that_nobody_reads_or_that_is_interrupted_ends(c):
    path = sparse_gguf(c.path("large.gguf"), 1 << 30)
    p = c.start("load", "--stream", path, "--pipe")
    p.stdout.read(1 << 20)
    assert p.poll() is None, "it did not wait for its reader"
    p.stdout.close()
    assert p.wait(timeout=WAIT_S) in (0, -signal.SIGPIPE)
    p = c.start("load", "--stream", path, "--pipe")
    p.stdout.read(1 << 20)
    p.send_signal(signal.SIGINT)
    assert p.wait(timeout=WAIT_S) == -signal.SIGINT
    assert c.ls() == []


@test
def the_same_file_under_the_same_name_is_not_loaded_twice(c):
    path = small_gguf(c.path("m.gguf"))
    with open(path, "rb") as f:
        digest = hashlib.sha256(f.read()).hexdigest()
    assert f", SHA-256 {digest}, " in c.load(path, "m", "--hash")
    pid = c.ls()[0]["pid"]
    for args in ([], ["--hash"]):
        out, err = c.run("load", path, "--name", "m", *args)
        assert out.startswith(f"m: already held by pid {pid}, loaded from the same file; ") and err == "", (out, err)
    assert len(c.ls()) == 1 and c.ls()[0]["attached"] == 0
    stat_before = os.stat(path)
    with open(path, "r+b") as f:
        f.seek(-1, 2)
        f.write(b"\1")
    os.utime(path, ns=(stat_before.st_atime_ns, stat_before.st_mtime_ns))
    assert "its SHA-256 is the same" not in c.run("load", path, "--name", "m")[0]
    assert f"the SHA-256 of m.gguf was {digest} when it was loaded and is " in c.run("load", path, "--name", "m", "--hash", code=5)[1]


@contextlib.contextmanager
def orphans_adopted():
    """Meanwhile whoever loses its parent is this process's child, and stays one when it has ended."""
    prctl, set_child_subreaper = ctypes.CDLL(None).prctl, 36
    assert prctl(set_child_subreaper, 1, 0, 0, 0) == 0
    try:
        yield
    finally:
        prctl(set_child_subreaper, 0, 0, 0, 0)


@test
def a_load_of_what_is_held_leaves_no_process_behind(c):
    path = small_gguf(c.path("m.gguf"))
    with orphans_adopted():
        c.load(path, "m")
        pid = c.ls()[0]["pid"]
        c.load(path, "m")
        c.run("load", small_gguf(c.path("other.gguf")), "--name", "m", code=5)
        assert children_of(os.getpid()) == [pid], (children_of(os.getpid()), pid)
        c.run("rm", "m")
        os.waitpid(pid, 0)


@test
def a_taken_name_that_nobody_can_reach_is_said_to_be_taken(c):
    path = small_gguf(c.path("m.gguf"))
    c.load(path, "m")
    pid = c.ls()[0]["pid"]
    os.unlink(os.path.join(c.env["PINION_DIR"], "m.sock"))
    err = c.run("load", path, "--name", "m", code=5)[1]
    assert err.startswith(f"pinion load: 'm' is held by process {pid}; "), err
    os.kill(pid, signal.SIGTERM)


@test
def of_many_loads_of_one_name_one_wins(c):
    path = small_gguf(c.path("m.gguf"))
    loads = [c.start("load", path, "--name", "m") for _ in range(8)]
    codes = sorted(p.wait(timeout=WAIT_S) for p in loads)
    assert codes == [0] * 8, codes
    assert len(c.ls()) == 1
    assert sum("nothing was read" in p.stdout.read().decode() for p in loads) == 7


@test
def invalid_names_are_refused(c):
    path = small_gguf(c.path("m.gguf"))
    for name in ("", ".hidden", "a/b", "..", "a b", "a\nb", "\x1b[31m", "é", "x" * 65):
        out, err = c.run("load", path, f"--name={name}", code=1)
        assert out == "" and err.startswith("pinion load: a name ") and err.count("\n") == 1, (name, out, err)
        for command in ("show", "rm"):
            assert c.run(command, "--", name, code=1)[1].startswith(f"pinion {command}: a name "), name
    c.load(path, "x" * 64)
    c.load(path, "A-b_c.9")
    assert len(c.ls()) == 2


@test
def unknown_names_exit_1(c):
    for command in ("show", "rm"):
        out, err = c.run(command, "nobody", code=1)
        assert out == "" and "nobody holds 'nobody'" in err, (out, err)


@test
def rm_while_attached_exits_5_and_names_the_process(c):
    path = small_gguf(c.path("m.gguf"))
    c.load(path, "m")
    child = c.child("attach", "m", path)
    assert hear(child) == "attached"
    out, err = c.run("rm", "m", code=5)
    assert out == "" and f"pid {child.pid}" in err, (out, err)
    assert c.ls()[0]["attached"] == 1
    assert re.search(rf"^ *{child.pid} +{os.getuid()} +python\S* +(yes|no) +\d+ s$", c.run("show", "m")[0], re.M)
    child.kill()
    c.until("nobody is attached", lambda: c.ls()[0]["attached"] == 0)
    c.run("rm", "m")


@test
def how_a_reader_ends_is_nothing_to_the_others(c):
    path = small_gguf(c.path("m.gguf"))
    c.load(path, "m")
    readers = [c.child("attach", "m", path) for _ in range(4)]
    for child in readers:
        assert hear(child) == "attached"
    stays, leaves, raises, killed = readers
    leaves.stdin.close()
    raises.stdin.write(b"raise\n")
    killed.kill()
    assert [p.wait(WAIT_S) for p in (leaves, raises, killed)] == [0, 1, -signal.SIGKILL]
    c.until("the others are detached", lambda: c.ls()[0]["attached"] == 1)
    later = c.child("attach", "m", path)
    assert hear(later) == "attached"
    for child in (stays, later):
        assert ask_to_compare(child).endswith("tensors equal")
    assert c.ls()[0]["state"] == "ready"
    for child in (stays, later):
        child.kill()
    c.until("nobody is attached", lambda: c.ls()[0]["attached"] == 0)
    c.run("rm", "m")


@test
def a_failed_load_says_why_and_frees_the_name(c):
    bad = c.path("bad.gguf")
    with open(bad, "wb") as f:
        f.write(gguf_header([(b"w", 1000, 0)]) + bytes(100))
    for args in ([], ["--foreground"]):
        out, err = c.run("load", bad, "--name", "m", *args, code=1)
        assert out == "" and err == c.run("check", bad, code=1)[1].replace("pinion check:", "pinion load:"), (out, err)
        assert c.ls() == []
    assert "No such file" in c.run("load", c.path("none"), "--name", "m", code=1)[1]
    c.load(small_gguf(c.path("m.gguf")), "m")


@test
def what_does_not_fit_exits_4(c):
    path = sparse_gguf(c.path("m.gguf"), 1 << 42)
    out, err = c.run("load", path, "--name", "m", code=4)
    assert out == "" and re.search(r"the buffer needs 439804\d{7} bytes", err) and err.count("\n") == 1, err
    assert c.ls() == []


# ---- the holder ----------------------------------------------------------------------------------------------------------

@test
def the_holder_keeps_nothing_of_its_caller(c):
    path = small_gguf(c.path("m.gguf"))
    with open(c.path("kept"), "w", encoding="ascii") as kept:
        fd = os.dup2(kept.fileno(), 200, inheritable=True)
        c.run("load", path, "--name", "m", pass_fds=(fd, kept.fileno()), cwd=c.tmp)
        os.close(fd)
    pid = c.ls()[0]["pid"]
    # The command ends when it has heard that the holder is ready, who then closes the pipe that it said so through.
    c.until("its pipe is closed", lambda: not [link for link in links_of(pid).values() if link.startswith("pipe:")])
    links = links_of(pid)
    assert c.path("kept") not in links.values() and path not in links.values(), links
    assert [links[i] for i in range(3)] == ["/dev/null"] * 3, links
    assert os.readlink(f"/proc/{pid}/cwd") == "/" and os.getsid(pid) == pid
    with open(f"/proc/{pid}/status", encoding="utf-8") as f:
        assert "Umask:\t0077\n" in f.read()


@test
def a_killed_holder_leaves_a_free_name(c):
    path = small_gguf(c.path("m.gguf"))
    c.load(path, "m")
    child = c.child("attach", "m", path)
    assert hear(child) == "attached"
    pid = c.ls()[0]["pid"]
    os.kill(pid, signal.SIGKILL)
    c.until("the holder is gone", lambda: not alive(pid))
    assert c.ls() == [] and "nobody holds 'm'" in c.run("show", "m", code=1)[1]
    assert ask_to_compare(child) == "2 tensors equal", "those attached keep what they have"
    c.load(path, "m")
    assert c.ls()[0]["pid"] != pid


@test
def a_terminated_holder_cleans_up(c):
    path = small_gguf(c.path("m.gguf"))
    c.load(path, "m")
    pid = c.ls()[0]["pid"]
    os.kill(pid, signal.SIGTERM)
    c.until("the holder is gone", lambda: not alive(pid))
    assert not [f for f in os.listdir(c.dir) if f.startswith("m.")], os.listdir(c.dir)


@test
def a_stopped_holder_is_said_not_to_answer(c):
    c.load(small_gguf(c.path("m.gguf")), "m")
    pid = c.ls()[0]["pid"]
    os.kill(pid, signal.SIGSTOP)
    c.until("it stopped", lambda: process_state(pid) == "T")
    row, = c.ls()
    assert row["state"] == "not answering" and row["pid"] == pid, row
    assert re.search(rf"^m +not answering .* {pid} ", c.run("ls")[0], re.M)
    os.kill(pid, signal.SIGCONT)
    c.until("it answers", lambda: c.ls()[0]["state"] == "ready")


@test
def of_many_stopped_holders_the_first_is_waited_for(c):
    path = small_gguf(c.path("m.gguf"))
    for i in range(20):
        c.load(path, f"m{i}")
    pids = [row["pid"] for row in c.ls()]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    for pid in pids:
        c.until("it stopped", lambda: process_state(pid) == "T")
    # Two seconds each would be 40; for all of them they may take ten times as long.
    p = c.start("ls", "--json")
    rows = json.loads(p.communicate(timeout=20)[0])
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    assert [row["state"] for row in rows] == ["not answering"] * 20, rows


@test
def where_ulimit_f_is_small_it_is_said(c):
    out, err = c.run("load", sparse_gguf(c.path("m.gguf"), 8 << 20), "--name", "m", code=1,
                     preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)))
    assert out == "" and "File too large" in err, (out, err)
    assert c.ls() == []


# ---- a load that does not come to its end ---------------------------------------------------------------------------------

def child_of(pid):
    """The pid of one, or None."""
    return next(iter(children_of(pid)), None)


def half_way(c, end):
    """Has someone wait for a load, ends it by end(command, pid of its holder) while it is under way; these and what the waiter heard."""
    path = sparse_gguf(c.path("big.gguf"), min(GIB, available_bytes() // 4) & ~4095)
    for _ in range(20):
        waiter = c.child("attach", "big", path)
        assert hear(waiter) == "nobody"
        # A hash takes time.
        loader = c.start("load", path, "--name", "big", "--io", "buffered", "--hash")
        heard = hear(waiter)
        holder = child_of(loader.pid) if heard == "loading" else None
        if holder:
            end(loader, holder)
        if heard == "loading":
            heard = hear(waiter)
        if holder and heard != "attached":
            return loader, holder, heard
        # This machine loads faster than @end comes.
        for entry in c.ls():
            kill_process(entry["pid"])
            c.until("the holder is gone", lambda pid=entry["pid"]: not alive(pid))
        waiter.communicate()
    raise AssertionError("no load could be met half-way")


def check_gone(c, holder):
    c.until("the holder is gone", lambda: not alive(holder))
    assert c.ls() == []
    small_gguf(c.path("m.gguf"))
    c.load(c.path("m.gguf"), "big")
    assert c.ls()[0]["tensors"] == 2


@test
def a_killed_loader_takes_its_holder_with_it(c):
    loader, holder, heard = half_way(c, lambda p, _: p.kill())
    # And not that its time is over.
    assert heard.split()[0] in ("EPIPE", "ENOENT"), heard
    assert loader.wait(timeout=WAIT_S) == -signal.SIGKILL
    check_gone(c, holder)


@test
def an_interrupted_load_is_over_when_the_command_is(c):
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loader, holder, heard = half_way(c, lambda p, _, s=sig: p.send_signal(s))
        assert heard.split()[0] in ("EPIPE", "ENOENT"), heard
        assert loader.wait(timeout=WAIT_S) == -sig, loader.returncode
        assert not alive(holder) and loader.stdout.read() == b""
        c.load(small_gguf(c.path("m.gguf")), "big")
        c.run("rm", "big")


@test
def a_killed_holder_ends_the_load_with_a_sentence(c):
    loader, holder, heard = half_way(c, lambda _, pid: os.kill(pid, signal.SIGKILL))
    assert heard.split()[0] in ("EPIPE", "ENOENT"), heard
    out, err = loader.communicate(timeout=WAIT_S)
    assert loader.returncode == 1 and out == b"" and b"killed by signal 9" in err, (loader.returncode, err)
    check_gone(c, holder)


@test
def a_name_that_is_loading_is_shown_so(c):
    seen = ()

    def end(loader, _):
        nonlocal seen
        seen = c.ls(), c.run("ls")[0], c.run("show", "big")[0]
        loader.kill()

    holder = half_way(c, end)[1]
    (row,), listed, shown = seen
    assert row["pid"] == holder, row
    assert row["state"] == "loading" and row["tensors"] == 0 and row["done"] <= row["total"], row
    assert re.search(r"^big +loading \d+ % ", listed, re.M), listed
    assert "state: loading\n" in shown and "attached:" not in shown, shown


@test
def waiting_for_a_load_gets_all_of_it(c):
    path = sparse_gguf(c.path("big.gguf"), min(GIB, available_bytes() // 4) // 4 & ~4095)
    waiter = c.child("attach", "big", path)
    assert hear(waiter) == "nobody"
    loader = c.start("load", path, "--name", "big")
    heard = hear(waiter)
    if heard == "loading":
        heard = hear(waiter)
    assert heard == "attached", heard
    assert ask_to_compare(waiter) == "1 tensors equal"
    assert loader.wait(timeout=WAIT_S) == 0


# ---- in the foreground ----------------------------------------------------------------------------------------------------

def notified(c, address):
    """Starts a holder in the foreground and waits until it tells the socket."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sock.settimeout(WAIT_S)
    sock.bind(address)
    c.env["NOTIFY_SOCKET"] = "@" + address[1:] if address[0] == "\0" else address
    holder = c.start("load", small_gguf(c.path("m.gguf")), "--name", "m", "--foreground")
    assert sock.recv(100) == b"READY=1"
    del c.env["NOTIFY_SOCKET"]
    assert c.ls()[0]["pid"] == holder.pid
    return holder


@test
def foreground_tells_a_service_manager_and_ends_well(c):
    for address, sig in ((c.path("notify"), signal.SIGTERM), (f"\0pinion-test-{os.getpid()}", signal.SIGINT)):
        holder = notified(c, address)
        assert holder.poll() is None
        holder.send_signal(sig)
        out, err = holder.communicate(timeout=WAIT_S)
        assert holder.returncode == 0 and re.fullmatch(RESULT.format("m"), out.decode()) and err == b"", (holder.returncode, out, err)
        assert c.ls() == [] and not [f for f in os.listdir(c.dir) if f.startswith("m.")]


@test
def foreground_ends_with_rm(c):
    holder = notified(c, c.path("notify"))
    c.run("rm", "m")
    assert holder.wait(timeout=WAIT_S) == 0


@test
def foreground_ends_when_told_while_attached(c):
    holder = notified(c, c.path("notify"))
    child = c.child("attach", "m", c.path("m.gguf"))
    assert hear(child) == "attached"
    holder.terminate()
    assert holder.wait(timeout=WAIT_S) == 0 and c.ls() == []
    assert ask_to_compare(child) == "2 tensors equal"


@test
def foreground_says_when_nobody_can_be_told(c):
    c.env["NOTIFY_SOCKET"] = c.path("nobody")
    holder = c.start("load", small_gguf(c.path("m.gguf")), "--name", "m", "--foreground")
    assert b"m: " in holder.stdout.readline()
    assert b"NOTIFY_SOCKET" in holder.stderr.readline()
    holder.terminate()
    assert holder.wait(timeout=WAIT_S) == 0


# ---- standard streams -----------------------------------------------------------------------------------------------------

@test
def nobody_reading_is_quiet(c):
    path = small_gguf(c.path("m.gguf"))
    for args in (["help"], ["check", path, "--tensors"], ["load", path, "--name", "m"], ["ls"], ["ls", "--json"], ["show", "m"],
                 ["top", "--json"], ["top", "--interval", "0.1"], ["rm", "m"], ["info"]):
        reader, writer = os.pipe()
        os.close(reader)
        _, err = c.run(*args, stdout=writer)
        os.close(writer)
        assert err == "", (args, err)


@test
def closed_streams_are_not_printed_into(c):
    path = small_gguf(c.path("m.gguf"))
    for args in (["load", path, "--name", "m"], ["ls"], ["top", "--once"], ["rm", "m"]):
        code = subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", PINION, *args], env=c.env, timeout=WAIT_S, check=False)
        assert code.returncode == 0, (args, code.returncode)
    c.load(path, "m")
    with open(os.path.join(c.dir, ".lock"), "rb") as f:
        assert f.read() == b""


@test
def a_full_disk_is_said(c):
    with open("/dev/full", "wb") as full:
        for args in (["info"], ["ls", "--json"], ["top", "--interval", "0.1"], ["help"]):
            assert "No space left" in c.run(*args, stdout=full, code=1)[1]


@test
def progress_is_shown_on_a_terminal_only(c):
    path = sparse_gguf(c.path("m.gguf"), 64 << 20)
    assert c.run("load", path, "--name", "a")[1] == ""
    code, text, _ = on_terminal(c, ["load", path, "--name", "b"])
    assert code == 0 and "\rb: making the buffer" in text, text
    assert re.search(r"\r\033\[Kb: 64 MiB, 1 tensors", text), repr(text)
    assert "\033[K" in on_terminal(c, ["load", c.path("m.gguf"), "--name", "b"])[1]


# ---- the runtime directory ------------------------------------------------------------------------------------------------

@test
def an_open_runtime_directory_is_refused(c):
    os.mkdir(c.dir)
    os.chmod(c.dir, 0o755)
    path = small_gguf(c.path("m.gguf"))
    for args in (["info"], ["ls"], ["show", "m"], ["rm", "m"], ["top", "--once"], ["load", path, "--name", "m"]):
        out, err = c.run(*args, code=1)
        assert out == "" and "0755" in err and "chmod 700" in err and err.count("\n") == 1, err
    assert os.listdir(c.dir) == []


@test
def a_relative_runtime_directory_works(c):
    c.env["PINION_DIR"] = "run"
    path = small_gguf(c.path("m.gguf"))
    for command in (["load", path, "--name", "m"], ["show", "m"], ["rm", "m"], ["load", path, "--name", "m"]):
        c.run(*command, cwd=c.tmp)
    assert stat.S_IMODE(os.stat(c.dir).st_mode) == 0o700
    c.env["PINION_DIR"] = c.dir
    assert len(c.ls()) == 1


@test
def bytes_of_paths_are_shown_safely(c):
    path = os.path.join(os.fsencode(c.tmp), b'\xff"\\\x1b[31m\t\xc3\xa9.gguf')
    small_gguf(path)
    c.run("load", path, "--name", "m")
    assert c.ls()[0]["path"].endswith('/\ufffd"\\\x1b[31m\té.gguf'), c.ls()
    for args in (["ls"], ["show", "m"]):
        out = c.run(*args)[0]
        assert '/?"\\?[31m?é.gguf\n' in out and not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", out), repr(out)
    err = c.run("check", os.path.join(os.fsencode(c.tmp), b"\x1b[31m\xff"), code=1)[1]
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", err), repr(err)


# ---- top -----------------------------------------------------------------------------------------------------------------

def device(c, key):
    return next(d for d in json.loads(c.run("top", "--json")[0])["devices"] if d["key"] == key)


@test
def top_json_has_its_keys(c):
    child = c.child("count", "test:0", "3")
    assert hear(child) == "counting"
    assert device(c, "hostio")["users"] == []
    dev = device(c, "test:0")
    assert list(dev) == ["key", "generation", "capacity", "pending_low", "pending_high", "pending_cost", "submitted", "reclaimed",
                         "sessions", "shared_lanes", "users"], list(dev)
    assert (dev["pending_low"], dev["pending_high"], dev["pending_cost"], dev["submitted"], dev["sessions"]) == (3, 3, 21, 3, 1), dev
    user, = dev["users"]
    assert list(user) == ["pid", "uid", "comm", "pending", "submitted", "age_seconds"], list(user)
    assert (user["pid"], user["uid"], user["pending"]) == (child.pid, os.getuid(), 3), user
    child.kill()
    child.wait()
    dev = device(c, "test:0")
    assert (dev["pending_high"], dev["reclaimed"], dev["users"]) == (0, 3, []), dev


@test
def devices_are_added_listed_and_removed(c):
    c.run("devices", "--add", "gpu:0", "--budget", "1GiB", "--capacity", "4")
    rows = json.loads(c.run("devices", "--json")[0])
    row = [r for r in rows if r["key"] == "gpu:0"][0]
    assert sorted(row) == sorted(["key", "generation", "budget", "reserved", "capacity", "reserved_units", "claims", "pending",
                                  "sessions", "numa", "backends"]), row
    assert row["budget"] == 1 << 30 and row["capacity"] == 4 and row["claims"] == 0, row
    assert row["numa"] is None and row["backends"] == [], row
    assert re.search(r"^gpu:0 +- +1024 MiB +0 B +1024 MiB +4 +0 +0 +0 +0 +-$", c.run("devices")[0], re.M)
    c.run("devices", "--remove", "gpu:0")
    assert "gpu:0" not in c.run("devices")[0]
    # A device that is not there is one exit code, whoever asks for it.
    c.run("devices", "--remove", "gpu:0", code=3)
    c.run("pick", "--on", "gpu:0", "--need", "1", code=3)
    c.run("devices", "--budget", "1", code=2)
    c.run("devices", "--add", "x", "--budget", "-1", code=2)


def host_nodes():
    try:
        with open("/sys/devices/system/node/has_memory", encoding="ascii") as f:
            return f.read().strip()
    except FileNotFoundError:
        return None


@test
def devices_that_are_always_there_are_listed_unused(c):
    rows = {r["key"]: r for r in json.loads(c.run("devices", "--json")[0])}
    assert set(rows) == {"hostio", "cpu", "reference"}, rows
    for row in rows.values():
        assert row["numa"] == host_nodes() and row["backends"] == ["cpu"], row
    # A device without a queue has no number in flight, not even 0.
    assert [rows[key]["pending"] for key in ("hostio", "cpu", "reference")] == [0, None, None], rows
    nodes = re.escape(host_nodes() or "-")
    assert re.search(rf"^cpu +{nodes} +- +0 B +- +- +0 +0 +- +0 +cpu$", c.run("devices")[0], re.M)
    assert [d["key"] for d in json.loads(c.run("top", "--json")[0])["devices"]] == ["hostio"]


@test
def looking_at_devices_makes_none_give_way(c):
    child = c.child("add", "62")
    assert hear(child) == "added" and child.wait(timeout=WAIT_S) == 0
    rows = json.loads(c.run("top", "--json")[0])["devices"] + json.loads(c.run("devices", "--json")[0])
    keys = [r["key"] for r in rows]
    # The table has room for two more.
    assert {*(f"d{i}" for i in range(62)), "hostio", "cpu"} == set(keys), keys


def mounted(c, script, *args, code=0, env=None, preexec_fn=None):
    """Runs the command in a mount namespace of its own, after @script. (stdout, stderr). @code None: it may exit with any.
    Who is not root is it there, in a user namespace."""
    p = subprocess.run(["unshare", *(["-r"] if os.geteuid() else []), "-m", "--propagation", "private", "sh", "-c", f'{{ {script}\n}} || exit 77\nexec "$@"', "sh", PINION, *args],
                       env=env or c.env, stdin=subprocess.DEVNULL, capture_output=True, timeout=WAIT_S, preexec_fn=preexec_fn, check=False)
    out, err = p.stdout.decode(), p.stderr.decode()
    if p.returncode == 77 or err.startswith("unshare:"):
        raise Skip(f"mounting is refused: {err}")
    assert code is None or p.returncode == code, f"exit {p.returncode}, not {code}: {out}{err}"
    return out, err


def with_files_over(c, cover, *args):
    """What pinion prints where each file of @cover, a dictionary, has the text that is said there."""
    mounts = []
    for i, (path, text) in enumerate(cover.items()):
        with open(c.path(f"over{i}"), "w", encoding="ascii") as f:
            f.write(text)
        mounts.append(f"mount --bind {c.path(f'over{i}')} {path}")
    return mounted(c, " && ".join(mounts), *args)[0]


@test
def nodes_of_devices_are_the_kernels(c):
    there = sorted(glob.glob("/sys/bus/pci/devices/*/numa_node"))
    if not there or host_nodes() is None:
        raise Skip("this kernel has no nodes or no PCI devices")
    address = there[0].split("/")[-2]
    on_node = (f"gpu:{address}", f"gpu:{address.upper()}", address)
    for key in (*on_node, "gpu:1" + address, "gpu:" + address[1:], address + "/0", "gpu:ffff:ff:1f.7"):
        c.run("devices", "--add", key)
    for node in ("3", "-1"):
        cover = {os.path.realpath(there[0]): node + "\n", "/sys/devices/system/node/has_memory": "0,2-3\n"}
        rows = {r["key"]: r["numa"] for r in json.loads(with_files_over(c, cover, "devices", "--json"))}
        for key, numa in rows.items():
            want = "0,2-3" if key in ("hostio", "cpu", "reference") else "3" if key in on_node and node == "3" else None
            assert numa == want, (key, numa, want)


@test
def what_a_device_cannot_be_is_said(c):
    for key in ("hostio", "cpu", "reference"):
        for option in ("--budget", "--capacity"):
            err = c.run("devices", "--add", key, option, "1", code=2)[1]
            assert f"'{key}' is a device of pinion's own" in err, err
        c.run("devices", "--add", key)
    err = c.run("devices", "--add", "auto", code=2)[1]
    assert "--on auto is every device" in err, err
    c.run("devices", "--add", "d0", "--capacity", "2")
    for args in (["--on", "auto", "--on", "d0"], ["--on", "d0", "--on", "auto"]):
        for command in ("pick", "run"):
            err = c.run(command, *args, "--units", "1", "--", *(["true"] if command == "run" else []), code=2)[1]
            assert "does not go with --on d0" in err, err
    assert c.run("pick", "--on", "auto", "--on", "auto", "--units", "1")[0] in ("d0\n", "hostio\n")


@test
def advice_is_what_to_type(c):
    for args in (["pick", "--on", "nope", "--need", "1"], ["run", "--on", "nope", "--need", "1", "--", "true"],
                 ["devices", "--remove", "nope"]):
        err = c.run(*args, code=3)[1]
        assert "no device has the key 'nope'; pinion devices --add nope [device-unknown]\n" in err and "()" not in err, err


@test
def numbers_have_no_sign_and_no_blanks(c):
    c.run("devices", "--add", "d0", "--capacity", "2", "--budget", "1 GiB")
    for bad in (" -18446744073709551615", " 1", "1 ", "+1", "-1", "0x1", "1e0", "", " ", "\t1", "nan", "inf"):
        for args in (["pick", "--on", "d0", "--units", bad], ["pick", "--on", "d0", "--need", bad],
                     ["devices", "--add", "d1", "--capacity", bad], ["devices", "--add", "d1", "--budget", bad],
                     ["doctor", "--for", bad], ["top", "--once", "--interval", bad]):
            out, err = c.run(*args, code=2)
            shown = bad.replace("\t", "?")
            assert out == "" and f"'{shown}'" in err, (args, out, err)
    for bad in ("1.5", "4294967296", "99999999999999999999"):
        c.run("pick", "--on", "d0", "--units", bad, code=2)
        c.run("devices", "--add", "d1", "--capacity", bad, code=2)
    assert "d1" not in c.run("devices")[0]
    for bad in ("1.5", "0.5B", "1.5 B"):
        c.run("pick", "--on", "d0", "--need", bad, code=2)
        c.run("devices", "--add", "d1", "--budget", bad, code=2)
    for good in ("1", "2.0", "1.5K", "1.5 KiB", "1 M", "4096B"):
        c.run("pick", "--on", "d0", "--need", good)
    c.run("devices", "--add", "d2", "--capacity", "4294967295")
    assert device(c, "d2")["capacity"] == 4294967295
    c.run("top", "--once", "--interval", "0.5")


@test
def pick_says_where_it_fits_and_why_not(c):
    c.run("devices", "--add", "small", "--budget", "1MiB", "--capacity", "1")
    c.run("devices", "--add", "large", "--budget", "1GiB", "--capacity", "1")
    for policy in ("chained", "fit"):
        assert c.run("pick", "--need", "512MiB", "--on", "small", "--on", "large", "--policy", policy)[0] == "large\n"
    picked = json.loads(c.run("pick", "--need", "1M", "--units", "1", "--on", "small", "--json")[0])
    assert picked["device"] == "small" and picked["bytes"] == 1 << 20 and picked["exclusive"] is False, picked
    err = c.run("pick", "--need", "2GiB", "--on", "small", "--on", "large", code=4)[1]
    assert "'small' has 1048576 of 1048576 bytes left, 2147483648 are asked for" in err and "'large' has" in err, err
    c.run("pick", code=2)
    c.run("pick", "--need", "much", code=2)
    c.run("pick", "--need", "1", "--policy", "best", code=2)
    c.run("pick", "--need", "1", "--on", "nowhere", code=3)


@test
def run_claims_and_counts_for_the_life_of_a_command(c):
    c.run("devices", "--add", "gpu:0", "--budget", "1GiB", "--capacity", "4")
    p = c.start("run", "--on", "gpu:0", "--need", "768MiB", "--", "sh", "-c", "echo $PINION_DEVICE; exec sleep 60")
    assert p.stdout.readline().strip() in (b"gpu:0", "gpu:0")
    row = [r for r in json.loads(c.run("devices", "--json")[0]) if r["key"] == "gpu:0"][0]
    assert row["reserved"] == 768 << 20 and row["claims"] == 1 and row["pending"] == 1, row
    err = c.run("run", "--on", "gpu:0", "--need", "512MiB", "--", "true", code=4)[1]
    assert "268435456 of 1073741824 bytes left" in err, err
    c.run("pick", "--on", "gpu:0", "--exclusive", code=5)
    p.send_signal(signal.SIGTERM)
    assert p.wait(timeout=WAIT_S) == 128 + signal.SIGTERM
    row = [r for r in json.loads(c.run("devices", "--json")[0]) if r["key"] == "gpu:0"][0]
    assert row["reserved"] == 0 and row["claims"] == 0 and row["pending"] == 0, row
    c.run("run", "--on", "gpu:0", "--need", "1", "sh", "-c", "exit 7", code=7)
    c.run("run", "--on", "gpu:0", "--need", "1", "--", "/no/such/command", code=127)
    c.run("run", "--on", "gpu:0", "--need", "1", code=2)
    for absent in ("nope", "metal"):
        c.run("pick", "--on", absent, "--need", "1", code=3)
        c.run("run", "--on", absent, "--need", "1", "--", "true", code=3)


@test
def a_command_adopts_the_claim_it_runs_with(c):
    def claims():
        return [r for r in json.loads(c.run("devices", "--json")[0]) if r["key"] == "gpu:0"][0]["claims"]

    c.run("devices", "--add", "gpu:0", "--budget", "1GiB", "--capacity", "4")
    p = c.start("run", "--on", "gpu:0", "--need", "768MiB", "--units", "3", "--", sys.executable, os.path.abspath(__file__),
                "--child", "adopt", stdin=subprocess.PIPE)
    said = hear(p).split()
    assert said[1:] == ["gpu:0", str(768 << 20), "3"], (said, p.stderr.read() if p.poll() is not None else "")
    # Now the one who adopted it is alone with it.
    p.kill()
    p.wait()
    assert claims() == 1
    kill_process(int(said[0]))
    c.until("the claim ends", lambda: claims() == 0)


@test
def a_claim_outlives_the_run_that_was_killed_but_not_its_command(c):
    c.run("devices", "--add", "gpu:0", "--budget", "1GiB")
    p = c.start("run", "--on", "gpu:0", "--exclusive", "--", "sh", "-c", "echo $$; exec sleep 60")
    child = int(p.stdout.readline())
    p.kill()
    p.wait()
    c.run("pick", "--on", "gpu:0", "--need", "1", code=5)
    os.kill(child, signal.SIGKILL)
    deadline = time.monotonic() + WAIT_S
    while subprocess.run([PINION, "pick", "--on", "gpu:0", "--need", "1"], env=c.env, capture_output=True).returncode:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@test
def top_once_shows_devices_and_users(c):
    child = c.child("count", "test:0", "2")
    assert hear(child) == "counting"
    out = c.run("top", "--once")[0]
    assert re.search(r"^DEVICE +IN FLIGHT +COST +CAPACITY +SESSIONS +SUBMITTED +RECLAIMED$", out, re.M), out
    assert re.search(r"^test:0 +2 +14 +- +1 +2 +0$", out, re.M), out
    assert re.search(rf"^  {child.pid} python\S* +2 +2$", out, re.M), out


@test
def top_prints_a_block_per_interval_without_a_terminal(c):
    top = c.start("top", "--interval", "0.1")
    blocks = b""
    while blocks.count(b"\n\n") < 3:
        blocks += os.read(top.stdout.fileno(), 4096)
    assert b"DONE/S" in blocks and b"\033" not in blocks, blocks
    top.send_signal(signal.SIGINT)
    assert top.wait(timeout=WAIT_S) == 0


def terminal():
    """Both ends of a new one."""
    try:
        return pty.openpty()
    except OSError as e:
        raise Skip(f"no terminal can be made: {e}") from e


def on_terminal(c, args):
    """Runs pinion on a terminal of its own: (exit code, what it showed, whether the terminal is as it was)."""
    main, sub = terminal()
    before = termios.tcgetattr(sub)
    p = subprocess.Popen([PINION, *args], stdin=sub, stdout=sub, stderr=sub, env=c.env, start_new_session=True)
    c.started.append(p)
    text = b""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        # First, so that what it said last is there when nothing more comes.
        ended = p.poll() is not None
        if select.select([main], [], [], 0.05)[0]:
            text += os.read(main, 65536)
        elif ended:
            break
    same = termios.tcgetattr(sub) == before
    os.close(main)
    os.close(sub)
    return p.poll(), text.decode(errors="replace"), same


@test
def ls_tells_a_person_that_there_is_nothing(c):
    code, text, _ = on_terminal(c, ["ls"])
    assert code == 0 and f"No name is held in {c.dir}" in text, text


# ---- the whole -----------------------------------------------------------------------------------------------------------

def outcome(fn, case):
    try:
        fn(case)
        return "ok", ""
    except Skip as why:
        return "SKIP", str(why)
    except Exception as why:
        return "FAIL", f"line {traceback.extract_tb(why.__traceback__)[1].lineno}: {type(why).__name__} {why}".replace("\n", " | ")


def run_test(fn):
    case, result = Case(), None
    try:
        result = outcome(fn, case)
    finally:
        try:
            case.close()
        except Exception as why:
            # What one leaves is no reason for the others not to be run.
            result = result if result and result[0] == "FAIL" else ("FAIL", f"ending what it left: {why}".replace("\n", " | "))
    return result


def main(tests):
    # A shell starts what it sends to the background deaf to the one, nohup to the other, and the commands here would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    counts = {"ok": 0, "FAIL": 0, "SKIP": 0}
    for fn in tests:
        if len(sys.argv) > 2 and fn.__name__ not in sys.argv[2:]:
            continue
        result, why = run_test(fn)
        counts[result] += 1
        print(f"{result} {fn.__name__}{': ' + why if why else ''}", flush=True)
    print(f"{counts['ok']} passed, {counts['FAIL']} failed, {counts['SKIP']} skipped")
    return 1 if counts["FAIL"] or not counts["ok"] else 0


def start(tests):
    """What a file of tests ends with: runs those that its caller named, or all."""
    global PINION
    if len(sys.argv) < 2:
        sys.exit(__doc__.splitlines()[0])
    PINION = os.path.abspath(sys.argv[1])
    os.environ.setdefault("LIBPINION", os.path.join(os.path.dirname(PINION), "..", "lib", "libpinion.so.0"))
    sys.exit(main(tests))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        {"add": child_add, "adopt": child_adopt, "attach": child_attach, "count": child_count}[sys.argv[2]](*sys.argv[3:])
        sys.exit(0)
    start(TESTS)
