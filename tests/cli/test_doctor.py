#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Usage: tests/cli/test_doctor.py PATH-TO-PINION [TEST...]

Tests `pinion doctor` and `pinion explain` by taking away, for real, what doctor looks at.
"""
import ctypes
import errno
import json
import mmap
import os
import re
import resource
import signal

import restrict
import test_cli
from test_cli import Skip, has_ring

TESTS = []
ROWS = {"ground", "module", "module signature", "memory", "cgroup", "memlock", "THP", "NUMA", "hugetlb", "hugetlb cgroup", "/dev/shm",
        "udmabuf", "max_map_count", "open files", "container"}


def test(fn):
    TESTS.append(fn)
    return fn


def lines_of(out):
    """{what: [(finding, text)]} of doctor's lines."""
    found = {}
    for line in out.splitlines():
        m = re.fullmatch(r"(ok|warn|FAIL) +(.{19})  (.+)", line)
        assert m, f"no line of doctor's: {line!r}"
        found.setdefault(m[2].strip(), []).append((m[1], m[3]))
    return found


def doctor(c, *args, code=0, **kw):
    return lines_of(c.run("doctor", *args, code=code, **kw)[0])


def one(lines, what):
    assert len(lines.get(what, [])) == 1, (what, lines)
    return lines[what][0]


def module_state():
    """What doctor's line about the module must begin with here."""
    if os.path.exists("/dev/pinion"):
        return "loaded"
    return "loaded, but" if os.path.exists("/sys/module/pinion") else "built for|not built|not there"


@test
def it_has_a_line_for_each_thing_and_what_to_type(c):
    out = c.run("doctor")[0]
    lines = lines_of(out)
    assert ROWS | {"runtime directory", "shmem THP", "io_uring"} <= set(lines), out
    assert all(finding in ("ok", "warn") for rows in lines.values() for finding, _ in rows), out
    assert re.match(module_state(), one(lines, "module")[1]), lines["module"]
    assert one(lines, "runtime directory")[1].startswith(c.dir + ", "), lines
    nodes = [e for e in os.listdir("/sys/devices/system/node") if re.fullmatch(r"node\d+", e)] if os.path.isdir("/sys/devices/system/node") else [""]
    assert len([t for _, t in lines["NUMA"] if "are asked for" not in t]) == len(nodes) == len(lines["hugetlb"]), lines
    # Whoever is warned is told what to type; what a newer kernel alone would give is the exception.
    for what, rows in lines.items():
        for finding, text in rows:
            assert finding == "ok" or text.endswith("]") or "Linux" in text or "no transparent huge pages" in text, (what, text)


@test
def json_says_the_same_with_stable_keys(c):
    lines = lines_of(c.run("doctor")[0])
    objects = json.loads(c.run("doctor", "--json")[0])
    assert [o["what"] for o in objects] == [w for w in dict.fromkeys(o["what"] for o in objects) for _ in lines[w]], objects
    ids = {row["id"] for row in json.loads(c.run("explain", "--json")[0])}
    for o in objects:
        assert set(o) == {"finding", "what", "text", "fix", "id"}, o
        assert (o["fix"] is None) == (o["id"] is None) and (o["id"] is None or o["id"] in ids), o
        assert o["finding"] in ("ok", "warn", "FAIL") and o["text"], o


@test
def what_does_not_fit_exits_4_and_what_does_not_work_1(c):
    lines = doctor(c, "--for", "4096TiB", code=4)
    finding, text = one(lines, "memory")
    assert finding == "FAIL" and text.startswith("4096") and text.endswith("[memory]"), text
    doctor(c, "--for", "1MiB")
    for wrong in ("nonsense", "0"):
        c.run("doctor", "--for", wrong, code=2)
    os.makedirs(c.dir, mode=0o755, exist_ok=True)
    os.chmod(c.dir, 0o755)
    finding, text = one(doctor(c, "--for", "4096TiB", code=1), "ground")
    objects = json.loads(c.run("doctor", "--json", code=1)[0])
    os.chmod(c.dir, 0o700)
    assert finding == "FAIL" and f"chmod 700 {c.dir}" in text and text.endswith("[dir-mode]"), text
    ground = [o for o in objects if o["what"] == "ground"][0]
    assert ground["fix"].startswith(f"chmod 700 {c.dir}") and ground["id"] == "dir-mode" and "chmod" not in ground["text"], ground
    c.env["PINION_GROUND"] = "moon"
    err = c.run("info", code=1)[1]
    del c.env["PINION_GROUND"]
    assert "moon" in err, err


@test
def an_engine_that_is_none_is_said(c):
    finding, text = one(doctor(c, code=None), "io_uring")
    if finding != "ok":
        raise Skip(f"io_uring is not allowed here: {text}")
    finding, text = one(doctor(c, code=1, env={**c.env, "PINION_ENGINE": "fibres"}), "io_uring")
    assert finding == "FAIL" and "no stream can be made: PINION_ENGINE is neither" in text, text
    assert "engine: none (PINION_ENGINE is neither" in c.run("info", env={**c.env, "PINION_ENGINE": "fibres"})[0]
    finding, text = one(doctor(c, env={**c.env, "PINION_ENGINE": "threads"}), "io_uring")
    assert finding == "ok" and "told to run on threads" in text, text


@test
def a_small_memlock_is_said_to_a_plain_user(c):
    """user-needs row 8: `ulimit -l 64`."""
    restrict.as_user(c)
    finding, text = one(doctor(c, preexec_fn=restrict.all_of(restrict.memlock(64), restrict.plain_user())), "memlock")
    assert finding == "warn" and text.startswith("64 KiB soft, 64 KiB hard, ") and "ulimit -l unlimited" in text, text
    finding, text = one(doctor(c, "--for", "32KiB", preexec_fn=restrict.all_of(restrict.memlock(4096), restrict.plain_user())), "memlock")
    assert finding == "ok", text
    finding, text = one(doctor(c, "--for", "1GiB", preexec_fn=restrict.all_of(restrict.memlock(64), restrict.plain_user())), "memlock")
    assert finding == "warn" and text.startswith("1024 MiB are asked for, the limit is 64 KiB soft") and text.endswith("[memlock]"), text


@test
def what_is_locked_already_counts(c):
    restrict.as_user(c)
    # Another process of the user may lock something, or let it go, between the one look and the other; not each time.
    seen = [locked_before_and_after(c) for _ in range(3)]
    assert all(locked == b"y" for _, locked, _ in seen), seen
    assert any(re.search(r"(?<!\d)0 B used", before) and "128 KiB used" in after[1] and after[0] == "warn" for before, _, after in seen), seen


def locked_before_and_after(c):
    limits = restrict.all_of(restrict.memlock(192), restrict.plain_user())
    before = one(doctor(c, "--for", "64KiB", preexec_fn=limits), "memlock")[1]
    held, told = mmap.mmap(-1, 128 << 10), os.pipe()
    libc, start = ctypes.CDLL(None), ctypes.addressof(ctypes.c_char.from_buffer(held))
    pid = os.fork()
    if not pid:
        try:
            limits()
            os.write(told[1], b"n" if libc.mlock(ctypes.c_void_p(start), 128 << 10) else b"y")
            signal.pause()
        finally:
            os._exit(1)
    try:
        locked = os.read(told[0], 1)
        after = one(doctor(c, "--for", "96KiB", preexec_fn=limits), "memlock")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        for fd in told:
            os.close(fd)
    return before, locked, after


@test
def a_seccomp_filter_that_refuses_io_uring_is_named(c):
    """user-needs row 10; told apart from a kernel without it, which gives the same number as some filters do."""
    if not has_ring():
        raise Skip("io_uring is not allowed here")
    for err in (errno.EPERM, errno.ENOSYS):
        for call in restrict.CALLS:
            out = c.run("doctor", code=None, preexec_fn=restrict.seccomp([call], err))[0]
            lines = lines_of(out)
            rows = [(w, *r) for w, rs in lines.items() if w.startswith("io_uring") for r in rs if r[0] != "ok"]
            assert rows and all("[io-uring-seccomp]" in r[2] for r in rows), (call, err, rows)
            assert any("--security-opt seccomp=" in r[2] for r in rows), rows
            assert "a seccomp filter binds this process" in one(lines, "container")[1], lines
            if call == "io_uring_setup":
                assert re.search(r"io_uring_setup: ", one(lines, "io_uring")[1]), lines


@test
def rings_that_cannot_share_are_said_to_cost_time_and_no_charge(c):
    """As the library does it: where the kernel cannot clone, requests name memory by address, and nothing is charged again."""
    clone = 30  # IORING_REGISTER_CLONE_BUFFERS
    lines = doctor(c, code=None, preexec_fn=restrict.ring_op(clone, errno.EINVAL))
    if one(lines, "io_uring")[0] != "ok" or "can be registered" not in lines["io_uring buffers"][0][1]:
        raise Skip("io_uring is not allowed here, or registers nothing")
    finding, text = one(lines, "io_uring clone")
    assert finding == "warn" and text.startswith("not in this kernel (Linux 6.12)") and "by its address" in text, text
    assert "charged once" in text and "again" not in text, text
    finding, text = one(doctor(c, preexec_fn=restrict.ring_op(clone, errno.EPERM)), "io_uring clone")
    assert finding == "warn" and text.endswith("[io-uring-seccomp]"), text
    finding, text = one(doctor(c), "io_uring clone")
    release = tuple(int(n) for n in os.uname().release.split(".")[:2])
    if release >= (6, 13):
        assert finding == "ok" and text.endswith("registered and charged once"), text
    elif release == (6, 12):
        assert finding == "warn" and "one buffer at a time (more: Linux 6.13)" in text, text


@test
def where_there_is_no_dev_shm_it_is_said(c):
    for hide in ("mkdir /tmp/none.$$ && mount --bind -o ro /tmp/none.$$ /dev/shm && mount -o remount,bind,ro /dev/shm; rmdir /tmp/none.$$ || true",
                 "mount -t tmpfs -o mode=755 tmpfs /dev"):
        finding, text = one(lines_of(test_cli.mounted(c, hide, "doctor")[0]), "/dev/shm")
        assert finding == "warn" and text.endswith("[shm-absent]") and "mount -t tmpfs" in text, text


@test
def a_tiny_tmpfs_is_said(c):
    """user-needs row 20: 64 KiB of /dev/shm and of the runtime directory."""
    tiny = f"mount -t tmpfs -o size=64k,mode=1777 tmpfs /dev/shm; mkdir -p {c.dir}; mount -t tmpfs -o size=64k,mode=700 tmpfs {c.dir}"
    lines = lines_of(test_cli.mounted(c, tiny, "doctor", "--for", "1MiB")[0])
    finding, text = one(lines, "/dev/shm")
    assert finding == "warn" and text.startswith("64 KiB of 64 KiB are left") and "size=1048576 /dev/shm" in text, text
    finding, text = one(lines, "runtime directory")
    assert finding == "warn" and text.endswith("[disk-full]"), text
    full = tiny.replace("size=64k,mode=700", "size=4k,mode=700") + f"; dd if=/dev/zero of={c.dir}/fill bs=4096 count=1 2>/dev/null; true"
    finding, text = one(lines_of(test_cli.mounted(c, full, "doctor", code=1)[0]), "ground")
    assert finding == "FAIL" and text.endswith("[disk-full]"), text


@test
def a_read_only_home_is_survived_or_named(c):
    """The runtime directory is looked for elsewhere when it was not named; else the mount is."""
    home = c.path("home")
    os.makedirs(home)
    script = f"mount --bind {home} {home} && mount -o remount,bind,ro {home}"
    env = {**c.env, "HOME": home, "XDG_RUNTIME_DIR": home, "XDG_CACHE_HOME": home}
    del env["PINION_DIR"]
    cover = f"{script} && mount -t tmpfs tmpfs /run && mkdir /run/pinion && chmod 700 /run/pinion"
    finding, text = one(lines_of(test_cli.mounted(c, cover, "doctor", env=env)[0]), "runtime directory")
    assert finding == "ok" and text.startswith("/run/pinion, in memory"), text
    finding, text = one(lines_of(test_cli.mounted(c, script, "doctor", code=1, env={**env, "PINION_DIR": home + "/run"})[0]), "ground")
    assert finding == "FAIL" and home in text and text.endswith("[read-only]"), text


@test
def a_small_control_group_is_named(c):
    """user-needs row 15: with the file, the limit, what is in use, and what to type; the process lives."""
    group = restrict.Group(96 << 20)
    try:
        lines = doctor(c, "--for", "512MiB", code=4, preexec_fn=group.enter)
        finding, text = [r for r in lines["cgroup"] if group.path in r[1]][0]
        assert finding == "FAIL" and f"{group.path}/{group.file} is 96 MiB" in text and text.endswith("[cgroup]"), text
        enough = int(re.search(r"echo (\d+) >", text)[1])
        assert (512 << 20) <= enough <= (608 << 20), text
        lines = doctor(c, "--for", "16MiB", preexec_fn=group.enter)
        assert [r for r in lines["cgroup"] if group.path in r[1]][0][0] == "ok", lines
        err = c.run("alloc", "--size", "512MiB", code=4, preexec_fn=group.enter)[1] if "alloc" in c.run("help")[0] else ""
        assert not err or (group.path in err and err.rstrip().endswith("[cgroup]")), err
    finally:
        group.close()


def hugetlb_groups(c, version, files):
    """For mounted(): the controller of huge pages, in that version, with this process in /a/b of it and @files, as {path: text}."""
    top = c.path(f"hugetlb{version}")
    for path, text in files.items():
        os.makedirs(os.path.dirname(f"{top}/{path}"), exist_ok=True)
        with open(f"{top}/{path}", "w", encoding="ascii") as f:
            f.write(text + "\n")
    os.makedirs(f"{top}/a/b", exist_ok=True)
    for name, text in (("mountinfo", f"30 20 0:26 / {top} rw - " + ("cgroup2 cgroup2 rw" if version == 2 else "cgroup cgroup rw,hugetlb")),
                       ("groups", "0::/a/b" if version == 2 else "5:hugetlb:/a/b\n0::/"), ("some", "8")):
        with open(f"{top}/{name}", "w", encoding="ascii") as f:
            f.write(text + "\n")
    some = [f"/sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages" for kib in (2048, 1048576)]
    if not all(os.path.exists(path) for path in some):
        raise Skip("this kernel has no pools of huge pages of both sizes")
    over = {"some": some, "mountinfo": ["/proc/$$/mountinfo"], "groups": ["/proc/$$/cgroup"]}
    return top, " && ".join(f"mount --bind {top}/{name} {path}" for name, paths in over.items() for path in paths)


@test
def limits_on_huge_pages_are_read_of_every_group_above(c):
    """As Kubernetes and others set them, in both versions, of both sizes, of pages that are there and of reservations."""
    names = {1: ("hugetlb.%s.limit_in_bytes", "hugetlb.%s.usage_in_bytes"), 2: ("hugetlb.%s.max", "hugetlb.%s.current")}
    none = {1: str((1 << 63) - (2 << 20)), 2: "max"}
    for version, (limit, use) in names.items():
        top, script = hugetlb_groups(c, version, {
            f"a/{limit % '2MB'}": str(64 << 20), f"a/{use % '2MB'}": str(24 << 20),
            f"a/b/{limit % '2MB.rsvd'}": "0", f"a/b/{use % '2MB.rsvd'}": "0",
            f"a/b/{limit % '2MB'}": none[version], f"a/b/{use % '2MB'}": "0",
            f"{limit % '1GB'}": str(3 << 30), f"{use % '1GB'}": "0"})
        rows = lines_of(test_cli.mounted(c, script, "doctor", "--for", "48MiB")[0])["hugetlb cgroup"]
        assert len(rows) == 3, rows
        # From this process's own group upwards, first of one size, then of the other.
        finding, text = rows[0]
        assert finding == "warn" and text.startswith(f"{top}/a/b/{limit % '2MB.rsvd'} is 0 B, of which 0 B are left: "), rows
        assert f"echo {48 << 20} > FILE" in text and text.endswith("[cgroup-huge]"), rows
        finding, text = rows[1]
        assert finding == "warn" and text.startswith(f"{top}/a/{limit % '2MB'} is 64 MiB, of which 40 MiB are left: what is asked"), rows
        assert f"echo {72 << 20} > FILE" in text, rows
        assert rows[2] == ("ok", f"{top}/{limit % '1GB'} is 3072 MiB, of which 3072 MiB are left"), rows
        rows = lines_of(test_cli.mounted(c, script, "doctor")[0])["hugetlb cgroup"]
        assert [r[0] for r in rows] == ["warn", "ok", "ok"] and "no buffer is had in pages of 2 MiB" in rows[0][1], rows


@test
def few_open_files_are_said(c):
    finding, text = one(doctor(c, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))), "open files")
    assert finding == "warn" and text.startswith("64 soft, 64 hard") and "ulimit -n" in text, text


@test
def what_the_kernel_was_told_is_read(c):
    """Files of the kernel with other text over them: doctor reads the real ones elsewhere."""
    cover = {"/proc/sys/vm/max_map_count": "1000\n"}
    for path, text in (("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n"),
                       ("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "always within_size [advise] never deny force\n")):
        if os.path.exists(path):
            cover[path] = text
    lines = lines_of(test_cli.with_files_over(c, cover, "doctor"))
    finding, text = one(lines, "max_map_count")
    assert finding == "warn" and text.startswith("1000 mappings") and text.endswith("[mappings]"), text
    if len(cover) == 3:
        assert one(lines, "THP")[0] == "warn" and one(lines, "THP")[1].endswith("[thp-off]"), lines
        assert one(lines, "shmem THP")[0] == "ok" and one(lines, "shmem THP")[1].startswith("advise: "), lines


@test
def a_refused_sysctl_is_told_from_a_filter(c):
    if not os.path.exists("/proc/sys/kernel/io_uring_disabled") or not has_ring():
        raise Skip("this kernel has no kernel.io_uring_disabled, or no io_uring")
    cover = "echo 2 > /tmp/over.$$ && mount --bind /tmp/over.$$ /proc/sys/kernel/io_uring_disabled && rm /tmp/over.$$"
    # The kernel is not told, so that a filter of one call stands in for its refusal; what is read says 2.
    out = test_cli.mounted(c, cover, "doctor", code=None, preexec_fn=restrict.seccomp(["io_uring_setup"]))[0]
    finding, text = one(lines_of(out), "io_uring")
    assert "kernel.io_uring_disabled is 2" in text and text.endswith("[io-uring-sysctl]") and finding in ("FAIL", "warn"), text


@test
def a_container_is_recognized(c):
    env = {**c.env, "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    text = one(doctor(c, env=env), "container")[1]
    assert re.match("docker|podman|kubernetes", text), text
    if not os.path.exists("/.dockerenv") and not os.path.exists("/run/.containerenv"):
        assert text.startswith("kubernetes: "), text


@test
def errors_end_in_what_explain_explains(c):
    rows = json.loads(c.run("explain", "--json")[0])
    assert len(rows) > 40 and all(set(r) == {"id", "when", "fix"} and r["when"] and r["fix"] for r in rows), rows
    err = c.run("show", "nobody", code=1)[1]
    name = re.search(r"; (.*) \[([a-z0-9-]+)\]\n$", err)
    assert name and name[2] == "name-unknown" and "--name nobody" in name[1], err
    out = c.run("explain", name[2])[0]
    row = [r for r in rows if r["id"] == name[2]][0]
    assert out == f"{row['id']}\n\n{row['when']}\n\n  {row['fix']}\n", out
    assert json.loads(c.run("explain", name[2], "--json")[0]) == [row]
    listed = c.run("explain")[0].splitlines()
    assert [line.split()[0] for line in listed[1:]] == [r["id"] for r in rows], listed
    assert "pinion explain lists them" in c.run("explain", "nonsense", code=1)[1]
    with open(os.path.join(test_cli.TREE, "Documentation", "errors.md"), encoding="utf-8") as f:
        assert re.findall(r"^## (\S+)$", f.read(), re.M) == [r["id"] for r in rows]


if __name__ == "__main__":
    test_cli.start(TESTS)
