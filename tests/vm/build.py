# SPDX-License-Identifier: MIT
"""Builds what goes into a guest: modules against an image's kernel, and static programs. All below the build folder."""
import contextlib
import fcntl
import glob
import os
import re
import shutil
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
WARNING = re.compile(r"^\S*?(?:kmod|uapi|tests|src)/\S+:\d+.*\b(?:warning|error):", re.M)
LIBRARIES = (("<liburing.h>", ["-luring"]), ("<xf86drm.h>", ["-I/usr/include/libdrm", "-ldrm"]))


class BuildError(Exception):
    """What the compiler said."""


def command(argv, **kwargs):
    p = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False, **kwargs)
    out = p.stdout.decode(errors="replace")
    if p.returncode:
        raise BuildError(f"{' '.join(argv)}\n{out}")
    return out


def mirror(source, target):
    """Makes target a copy of source; files that are equal keep their times, so that make does only what is needed."""
    wanted = set()
    for folder, _, names in os.walk(source):
        for name in names:
            path = os.path.join(folder, name)
            copy = os.path.join(target, os.path.relpath(path, source))
            wanted.add(copy)
            os.makedirs(os.path.dirname(copy), exist_ok=True)
            with open(path, "rb") as f:
                data = f.read()
            if os.path.exists(copy):
                with open(copy, "rb") as f:
                    if f.read() == data:
                        continue
            with open(copy, "wb") as f:
                f.write(data)
    # A source that went away must not be compiled any more.
    for folder, _, names in os.walk(target):
        for name in names:
            path = os.path.join(folder, name)
            if name.endswith((".c", ".h")) and path not in wanted and not name.endswith(".mod.c"):
                os.unlink(path)


def make_modules(image, scratch, options=()):
    """{name: path, stripped} of every .ko of a scratch folder that has a Kbuild; warnings of compiler and sparse are errors."""
    # Debian's headers ask for BTF, which wants pahole and is thrown away by strip anyhow.
    argv = ["make", "-C", image.build, f"M={scratch}", f"ARCH={image.arch}", "W=1", "KCFLAGS=-Werror",
            "CONFIG_DEBUG_INFO_BTF_MODULES=", f"-j{os.cpu_count()}"]
    # Sparse sees what is compiled for the stock kernels; the others are the same sources.
    if image.modules and shutil.which("sparse"):
        argv += ["C=2", "CF=-D__CHECK_ENDIAN__"]
    out = command(argv + list(options) + ["modules"])
    # With C=2 sparse looks at a file that is not compiled again, but make is not told of what it found.
    if WARNING.search(out):
        raise BuildError(out)
    modules = {}
    for folder, _, names in os.walk(scratch):
        for name in names:
            if name.endswith(".ko") and not name.endswith(".stripped.ko"):
                path = os.path.join(folder, name)
                stripped = path[:-3] + ".stripped.ko"
                command(["strip", "-g", "-o", stripped, path])
                modules[name[:-3].replace("-", "_")] = stripped
    return modules


def below(image, scratch, coverage):
    return os.path.join(scratch, f"{image.name}-coverage" if coverage else image.name)


def pinion(image, source, scratch, coverage=False):
    """The module of a source tree (Kbuild, kmod/, uapi/). With coverage its code notes which of its blocks ran."""
    scratch = os.path.join(below(image, scratch, coverage), "pinion")
    for part in ("kmod", "uapi"):
        mirror(os.path.join(source, part), os.path.join(scratch, part))
    if coverage:
        shutil.copy(os.path.join(HERE, "coverage.c"), os.path.join(scratch, "kmod", "coverage.c"))
        with open(os.path.join(HERE, "coverage.kbuild"), encoding="utf-8") as extra, \
                open(os.path.join(scratch, "kmod", "Kbuild"), "a", encoding="utf-8") as kbuild:
            kbuild.write(extra.read())
    shutil.copy(os.path.join(source, "Kbuild"), os.path.join(scratch, "Kbuild"))
    return make_modules(image, scratch, ["PINION_FAULTS=y"])


def extra(image, name, scratch, coverage=False):
    """The modules of tests/vm/NAME/, built in a folder beside the sources that pinion() put there."""
    scratch = os.path.join(below(image, scratch, coverage), name)
    mirror(os.path.join(HERE, name), scratch)
    return make_modules(image, scratch)


def examples(scratch):
    """The C of Documentation/uapi.rst, which is one program, as guest/uapi_rst.h; the folder of that."""
    with open(os.path.join(ROOT, "Documentation", "uapi.rst"), encoding="utf-8") as f:
        blocks = re.findall(r"^\.\. code-block:: c\n((?:   .*\n|\n)+)", f.read(), re.M)
    folder = os.path.join(scratch, "guest")
    with whole(os.path.join(folder, "uapi_rst.h")) as part, open(part, "w", encoding="utf-8") as f:
        f.writelines(re.sub(r"^   ", "", block, flags=re.M) for block in blocks)
    return folder


def lock(scratch, tier):
    """Keeps others out of the folder, or out of what one tier has there; held as long as what comes back is."""
    os.makedirs(scratch, exist_ok=True)
    held = [open(os.path.join(scratch, "lock"), "w", encoding="utf-8")]
    fcntl.flock(held[0], fcntl.LOCK_SH if tier else fcntl.LOCK_EX)
    if tier:
        held.append(open(os.path.join(scratch, f"lock-{tier}"), "w", encoding="utf-8"))
        fcntl.flock(held[1], fcntl.LOCK_EX)
    return held


@contextlib.contextmanager
def whole(target):
    """A name to write to that becomes target at the end: another run may be making it too."""
    part = f"{target}.{os.getpid()}"
    yield part
    os.replace(part, target)


def program(name, scratch):
    """The static program of tests/vm/guest/NAME.c."""
    source = os.path.join(HERE, "guest", f"{name}.c")
    target = os.path.join(scratch, "guest", name)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    headers = glob.glob(os.path.join(HERE, "*", "*.h")) + glob.glob(os.path.join(ROOT, "uapi", "linux", "*.h"))
    headers.append(os.path.join(ROOT, "Documentation", "uapi.rst"))
    headers += glob.glob(os.path.join(ROOT, "Documentation", "examples", "uapi", "*.c"))
    newest = max(os.path.getmtime(p) for p in [source] + headers)
    if os.path.exists(target) and os.path.getmtime(target) > newest:
        return target
    with open(source, encoding="utf-8") as f:
        text = f.read()
    flags = [flag for header, of_it in LIBRARIES if header in text for flag in of_it]
    if '"uapi_rst.h"' in text:
        flags.append("-I" + examples(scratch))
    with whole(target) as part:
        command(["gcc", "-O2", "-g0", "-std=gnu11", "-static", "-pthread", "-Wall", "-Wextra", "-Werror",
                 "-I" + os.path.join(ROOT, "uapi"), "-I" + os.path.join(HERE, "guest"), source, "-o", part] + flags)
    return target
