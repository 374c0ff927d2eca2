#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Usage: tests/vm/coverage.py [--build DIR] TIER [--missed]

After `tests/vm/run.py --coverage --tier TIER`: how many of the module's blocks ran in all of that run's boots, by file; with
--missed the source lines of those that did not.
"""
import collections
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TRACE = "__sanitizer_cov_trace_pc"
SECTION = re.compile(r"^Relocation section '\.rela(\.\S+)'")
CALL = re.compile(rf"^([0-9a-f]+)\s+\S+\s+R_X86_64_(?:PLT32|PC32)\s+[0-9a-f]+\s+{TRACE}\b")
OURS = re.compile(r"^\S*/((?:kmod|uapi)/)(?:\./)?(\S+)")
UNCOUNTED = (".init.text", ".exit.text")


def lines_of(argv, stdin=None):
    return subprocess.run(argv, stdout=subprocess.PIPE, input=stdin, check=True, text=True).stdout.splitlines()


def sites(module):
    """{(section, return address within it)} of every block."""
    found, section = set(), ""
    for line in lines_of(["readelf", "-rW", module]):
        if m := SECTION.match(line):
            section = m.group(1)
        elif (m := CALL.match(line)) and section not in UNCOUNTED:
            found.add((section, int(m.group(1), 16) + 4))
    return found


def hits(path, all_sites):
    """What the guests reported: lines `section NAME ADDRESS`, then `at ADDRESS`, again for every time the module was loaded."""
    found, sections, last = set(), {}, ""
    with open(path, encoding="utf-8") as f:
        for words in map(str.split, f):
            if words[0] == "section":
                sections = {} if last == "at" else sections
                sections[words[1]] = int(words[2], 16)
            elif words[0] == "at":
                found |= {(name, int(words[1], 16) - base) for name, base in sections.items()} & all_sites
            last = words[0]
    return found


def places(module, wanted):
    """{site: "file:line"}; what was inlined from a kernel header belongs to the line of ours that called it."""
    where = {}
    for section in {s for s, _ in wanted}:
        offsets = sorted(o for s, o in wanted if s == section)
        # The call itself, not what comes after it.
        out = lines_of(["addr2line", "-a", "-i", "-e", module, "-j", section], "".join(f"{o - 1:x}\n" for o in offsets))
        for line in out:
            if line.startswith("0x"):
                site = (section, int(line, 16) + 1)
                continue
            m = OURS.match(line)
            # Innermost first.
            if m and (site not in where or not where[site].startswith(("kmod/", "uapi/"))):
                where[site] = m.group(1) + m.group(2)
            where.setdefault(site, line.split(" ")[0])
    return where


def main():
    args = sys.argv[1:]
    missed = "--missed" in args
    args = [a for a in args if a != "--missed"]
    folder = os.path.join(os.path.dirname(os.path.dirname(HERE)), "build", "vm")
    if args[:1] == ["--build"]:
        folder, args = args[1], args[2:]
    if len(args) != 1:
        print(__doc__.splitlines()[0], file=sys.stderr)
        return 2
    module = os.path.join(folder, f"{args[0]}-coverage", "pinion", "kmod", "pinion.ko")
    all_sites = sites(module)
    ran = hits(os.path.join(folder, f"coverage-{args[0]}.txt"), all_sites)
    where = places(module, all_sites)
    total, hit, lost = collections.Counter(), collections.Counter(), collections.defaultdict(set)
    for site in all_sites:
        file, _, number = where[site].partition(":")
        total[file] += 1
        if site in ran:
            hit[file] += 1
        else:
            lost[file].add(number)
    for file in sorted(total):
        print(f"{hit[file]:5} of {total[file]:5} blocks  {100 * hit[file] / total[file]:5.1f} %  {file}")
        if missed and lost[file]:
            print("      not run: lines " + ", ".join(sorted(lost[file], key=lambda n: int(n) if n.isdigit() else 0)))
    n, of = sum(hit.values()), max(1, sum(total.values()))
    print(f"{n:5} of {of:5} blocks  {100 * n / of:5.1f} %  {args[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
