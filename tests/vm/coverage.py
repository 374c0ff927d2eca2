#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Usage: tests/vm/coverage.py [--build DIR] TIER... [--missed]

After `tests/vm/run.py --coverage --tier TIER`: how many of the module's blocks ran in all of that run's boots, by class and file;
with --missed the source lines of those that did not. Of several tiers a block has run in all when its line has no missed block in
one of them. Classes: what is ours; what the compiler inlined into it from the kernel's headers, where we choose nothing; what
the kernel's macros make of a tracepoint; and what only a bug reaches, the arm of a WARN_ON.
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
TRACE_MADE = re.compile(r"(?:__traceiter|__probestub|perf_trace|trace_event_raw_event|trace_raw_output|__bpf_trace|trace)_pinion_")
HEADER = re.compile(r"^\s*\[\s*\d+\]\s+(\.\S+)\s+PROGBITS\s+[0-9a-f]+\s+([0-9a-f]+)")
CALL_OPCODE = 0xE8
UNCOUNTED = (".init.text", ".exit.text")


def lines_of(argv, stdin=None):
    return subprocess.run(argv, stdout=subprocess.PIPE, input=stdin, check=True, text=True).stdout.splitlines()


def sites(module):
    """{(section, return address within it)} of every block. What a function ends with may be a jump, which leaves no address."""
    found, section, start = set(), "", {}
    with open(module, "rb") as f:
        code = f.read()
    for line in lines_of(["readelf", "-SW", module]):
        if m := HEADER.match(line):
            start[m.group(1)] = int(m.group(2), 16)
    for line in lines_of(["readelf", "-rW", module]):
        if m := SECTION.match(line):
            section = m.group(1)
        elif (m := CALL.match(line)) and section not in UNCOUNTED:
            at = int(m.group(1), 16)
            if code[start[section] + at - 1] == CALL_OPCODE:
                found.add((section, at + 4))
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
    """{site: ("file:line", class)}; what was inlined from a kernel header belongs to the line of ours that called it."""
    where = {}
    for section in {s for s, _ in wanted}:
        offsets = sorted(o for s, o in wanted if s == section)
        # The call itself, not what comes after it. Of each an address, then function and place, innermost first.
        out = iter(lines_of(["addr2line", "-a", "-f", "-i", "-e", module, "-j", section],
                            "".join(f"{o - 1:x}\n" for o in offsets)))
        chains = {}
        for line in out:
            if line.startswith("0x"):
                chain = chains[(section, int(line, 16) + 1)] = []
            else:
                chain.append((line, next(out).split(" ")[0]))
        where.update({site: place_of(chain) for site, chain in chains.items()})
    return where


def place_of(chain):
    """The innermost line of ours, and the class; see the head."""
    ours = [m.group(1) + m.group(2) for m in (OURS.match(place) for _, place in chain) if m]
    place = ours[0] if ours else chain[-1][1]
    if any(TRACE_MADE.match(function) for function, _ in chain):
        return place, "tracepoints"
    return place, "ours" if OURS.match(chain[0][1]) else "inlined"


def is_warning(folder, place):
    """Whether the line says WARN_ON."""
    file, _, number = place.partition(":")
    with open(os.path.join(folder, file), encoding="utf-8") as f:
        lines = f.read().split("\n")
    return number.isdigit() and 0 < int(number) <= len(lines) and "WARN_ON" in lines[int(number) - 1]


class Tier:
    """The blocks of one kernel's module: {site: (place, class)}, and those that ran."""

    def __init__(self, folder, name):
        scratch = os.path.join(folder, f"{name}-coverage", "pinion")
        module = os.path.join(scratch, "kmod", "pinion.ko")
        every = sites(module)
        self.ran = hits(os.path.join(folder, f"coverage-{name}.txt"), every)
        self.blocks = places(module, every)
        for site, (place, kind) in self.blocks.items():
            if kind != "tracepoints" and place.startswith("kmod/") and site not in self.ran and is_warning(scratch, place):
                self.blocks[site] = (place, "bugs")
        self.missed = {place for site, (place, _) in self.blocks.items() if site not in self.ran}
        self.there = {place for place, _ in self.blocks.values()}


def report(name, tier, others, missed):
    """One tier's lines; a block whose line was missed here and not by one of the others that have it counts as run."""
    total, hit, lost = collections.Counter(), collections.Counter(), collections.defaultdict(collections.Counter)
    for site, (place, kind) in tier.blocks.items():
        file, _, number = place.partition(":")
        ran = site in tier.ran or any(place in o.there and place not in o.missed for o in others)
        for key in (kind, file, ""):
            total[key] += 1
            hit[key] += ran
        if not ran:
            lost[file][f"{number}{'' if kind == 'ours' else ' ' + kind}"] += 1
    for key in sorted(total):
        what = key or name
        print(f"{hit[key]:5} of {total[key]:5} blocks  {100 * hit[key] / total[key]:5.1f} %  {what}")
        if missed and lost[key]:
            print("      not run: " + ", ".join(sorted(lost[key])))


def main():
    args = sys.argv[1:]
    missed = "--missed" in args
    args = [a for a in args if a != "--missed"]
    folder = os.path.join(os.path.dirname(os.path.dirname(HERE)), "build", "vm")
    if args[:1] == ["--build"]:
        folder, args = args[1], args[2:]
    if not args:
        print(__doc__.splitlines()[0], file=sys.stderr)
        return 2
    tiers = {name: Tier(folder, name) for name in args}
    for name, tier in tiers.items():
        report(name, tier, [t for t in tiers.values() if t is not tier], missed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
