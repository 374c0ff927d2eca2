# SPDX-License-Identifier: MIT
"""The kernels that images.sh left in the cache."""
import os

TIERS = ("um", "6.1", "6.12", "debug", "kcsan")


def cache():
    base = os.environ.get("PINION_CACHE")
    if not base:
        base = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.join(os.environ.get("HOME", "/"), ".cache"), "pinion")
    return os.path.join(os.path.abspath(base), "vm")


class Image:
    """One kernel: name, arch (x86 or um), release, kernel (file), build (folder that modules are built against), modules (folder
    or ""), leaks (True when it can look for leaked objects)."""

    def __init__(self, name):
        self.name = name
        with open(os.path.join(cache(), name, "image"), encoding="utf-8") as f:
            fields = dict(line.rstrip("\n").split("=", 1) for line in f)
        self.arch, self.release = fields["arch"], fields["release"]
        self.kernel, self.build, self.modules = fields["kernel"], fields["build"], fields["modules"]
        # Kernels of our own have the checkers in.
        self.leaks = not self.modules


def find(name):
    """The image, or None when it is not there."""
    if not os.path.exists(os.path.join(cache(), name, "stamp")):
        return None
    return Image(name)
