# SPDX-License-Identifier: MIT
"""What a guest starts from: busybox, modules in the order they are to be loaded, programs, and the plan that init follows."""
import gzip
import lzma
import os
import stat
import subprocess
import tarfile

HERE = os.path.dirname(os.path.abspath(__file__))
BUSYBOX = "/bin/busybox"


class Archive:
    """A cpio of the kind the kernel unpacks ("newc")."""

    def __init__(self):
        self.parts = []
        self.inode = 1
        self.folders = set()

    def entry(self, name, mode, data, uid=0, gid=0):
        name = name.strip("/").encode() + b"\0"
        # magic, inode, mode, uid, gid, links, time, size, device (2), special device (2), length of the name, checksum
        head = b"070701" + b"".join(b"%08X" % n for n in (self.inode, mode, uid, gid, 1, 0, len(data), 0, 0, 0, 0, len(name), 0))
        self.inode += 1
        self.parts += [head + name + b"\0" * (-(len(head) + len(name)) % 4), data + b"\0" * (-len(data) % 4)]

    def folder(self, name):
        name = name.strip("/")
        if name and name not in self.folders:
            self.folder(os.path.dirname(name))
            self.folders.add(name)
            self.entry(name, stat.S_IFDIR | 0o755, b"")

    def file(self, name, data, mode=0o644):
        self.folder(os.path.dirname(name))
        self.entry(name, stat.S_IFREG | mode, data)

    def tree(self, path):
        """All files, folders and links of a tar, with owners and modes; a second of the same name replaces the first."""
        kinds = {tarfile.DIRTYPE: stat.S_IFDIR, tarfile.SYMTYPE: stat.S_IFLNK}
        with tarfile.open(path) as tar:
            for member in tar:
                kind = kinds.get(member.type, stat.S_IFREG)
                # A hard link is a file of its own here.
                data = member.linkname.encode() if member.issym() else b"" if member.isdir() else tar.extractfile(member).read()
                name = member.name.removeprefix("./")
                if member.isdir():
                    self.folders.add(name)
                self.entry(name, kind | member.mode, data, member.uid, member.gid)

    def whole(self):
        self.entry("TRAILER!!!", 0, b"")
        return b"".join(self.parts)

    def packed(self):
        return gzip.compress(self.whole(), 1)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def read_module(path):
    return lzma.decompress(read(path)) if path.endswith(".xz") else read(path)


def module_name(path):
    return os.path.basename(path).split(".")[0].replace("-", "_")


class Modules:
    """An image's own modules by name, with what each needs, as depmod found it."""

    def __init__(self, image):
        self.root, self.paths, self.needs, self.builtin = image.modules, {}, {}, set()
        if not self.root:
            return
        with open(os.path.join(self.root, "modules.dep"), encoding="utf-8") as f:
            for line in f:
                path, _, needs = line.partition(":")
                self.paths[module_name(path)] = path
                self.needs[module_name(path)] = [module_name(n) for n in needs.split()]
        with open(os.path.join(self.root, "modules.builtin"), encoding="utf-8") as f:
            self.builtin = {module_name(line.strip()) for line in f}

    def order(self, name):
        """[(name, path)] to be loaded one after another, the module itself last; empty when the kernel has it built in."""
        if not self.root or name in self.builtin:
            return []
        # modules.dep names the last to be loaded first.
        return [(n, os.path.join(self.root, self.paths[n])) for n in [*reversed(self.needs[name]), name]]


def libraries(path):
    """The shared objects that a program of the host needs, its loader included."""
    p = subprocess.run(["ldd", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    return [word for line in p.stdout.decode().splitlines() for word in line.split() if word.startswith("/")]


def ext4_image(scratch):
    """A small file system for loop mounts; made once."""
    path = os.path.join(scratch, "ext4.img")
    if not os.path.exists(path):
        with open(path + ".new", "wb") as f:
            f.truncate(8 << 20)
        env = {**os.environ, "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"}
        subprocess.run(["mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", path + ".new"], check=True, env=env,
                       stdin=subprocess.DEVNULL)
        os.rename(path + ".new", path)
    return path


def make(modules, files, plan):
    """The initramfs's bytes. modules: [(name, path)]; files: {path in the guest: path here}; plan: the lines init follows."""
    archive = Archive()
    archive.file("bin/busybox", read(BUSYBOX), 0o755)
    archive.file("init", read(os.path.join(HERE, "init")), 0o755)
    for folder in ("proc", "sys", "dev", "tmp", "mnt", "run", "root", "etc"):
        archive.folder(folder)
    archive.file("etc/passwd", b"root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n")
    archive.file("etc/group", b"root:x:0:\nnogroup:x:65534:\n")
    for name, path in modules:
        archive.file(f"mod/{name}.ko", read_module(path))
    for target, path in files.items():
        archive.file(target, read(path), 0o755)
    archive.file("plan", "".join(line + "\n" for line in plan).encode())
    return archive.packed()
