#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Usage: tests/coverage.py [--again] BUILD-DIR

Which lines of the library the unit tests and those of the command run, the sweeps among them: how many of each file, then
each line that did not run and is not in tests/uncovered (new), and what is listed there and ran (stale). --again: by the counts
of the last run. The build is one for this alone, where every line counts by itself (-O0).

A line of tests/uncovered is `FILE FUNCTION: TEXT`, the text as in the source without the blanks around it, or `FILES: *` for
all of some files, where * stands for any characters. Those below a line `# REASON` have that reason. Below `# Now and then: REASON` they may
run or not, as threads come.
"""
import collections
import fnmatch
import glob
import json
import os
import subprocess
import sys

import run

TESTS = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(TESTS)
LIST = os.path.join(TESTS, "uncovered")
COUNTED = ("lib/", "backends/")
# What runs the library: not what looks at the tree or boots other kernels.
LEFT_OUT = (*run.WHOLE, "test_counters_model")
WANTED = 95.0


def build(where):
    # Users without rights write counts too.
    os.umask(0)
    if not os.path.exists(os.path.join(where, "build.ninja")):
        subprocess.run(["meson", "setup", where, "--werror", "-Db_coverage=true", "-Doptimization=0"], cwd=ROOT, check=True,
                       stdout=subprocess.DEVNULL)
    subprocess.run(["ninja", "-C", where], check=True, stdout=subprocess.DEVNULL)
    for old in glob.glob(os.path.join(where, "**", "*.gcda"), recursive=True):
        os.unlink(old)
    for folder, _, _ in os.walk(where):
        os.chmod(folder, 0o777)


def run_tests(where):
    """True when all passed."""
    programs = run.programs(os.path.abspath(where))
    return not run.run_all([(label, argv, {**os.environ, **env}) for label, argv, env in programs if label not in LEFT_OUT], {})


class Line:
    def __init__(self):
        self.count = 0
        self.function = ""


def take(files, data, known):
    """Adds what one object's counts say of each line; @known: only of those that are there, since tests are compiled otherwise."""
    for source in data["files"]:
        name = os.path.relpath(os.path.join(data["current_working_directory"], source["file"]), ROOT)
        if not name.startswith(COUNTED):
            continue
        for row in source["lines"]:
            if known and row["line_number"] not in files[name]:
                continue
            line = files[name][row["line_number"]]
            line.count += row["count"]
            line.function = line.function or row.get("function_name", "")


def read_counts(where):
    files = collections.defaultdict(lambda: collections.defaultdict(Line))
    # The library's first. Some tests compile a part of it once more, to be in the middle of it; headers are in all.
    for folder in ("lib", "tests/unit"):
        for note in sorted(glob.glob(os.path.join(where, folder, "*.p", "*.gcno"))):
            out = subprocess.run(["gcov", "--json-format", "--stdout", os.path.abspath(note)], cwd=where, check=True,
                                 capture_output=True).stdout
            for text in out.decode().splitlines():
                take(files, json.loads(text), folder != "lib")
    return files


def read_list():
    """[(file, function, text)] in order, those of them that may run, and the patterns of whole files."""
    lines, maybe, whole = [], [], []
    now_and_then = False
    with open(LIST, encoding="utf-8") as f:
        for row in f:
            row = row.rstrip("\n")
            if row.startswith("#"):
                now_and_then = row.startswith("# Now and then: ")
            if not row or row.startswith("#"):
                continue
            where, text = row.split(": ", 1)
            if text == "*":
                whole.append(where)
            else:
                lines.append((*where.split(" ", 1), text))
                if now_and_then:
                    maybe.append(lines[-1])
    return lines, maybe, whole


def source(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as f:
        return [""] + [line.strip() for line in f]


def compare(name, lines, wanted):
    """Prints the missed lines of a file; how many are not in @wanted, which loses the others."""
    text = source(name)
    new = 0
    for n in sorted(lines):
        if lines[n].count:
            continue
        key = (name, lines[n].function, text[n])
        known = wanted[key] > 0
        wanted[key] -= known
        new += not known
        print(f"{'listed' if known else 'new   '} {name}:{n}: {lines[n].function}: {text[n]}")
    return new


def tell(files, listed, maybe, whole):
    """Prints what ran of each file and what differs from the list; (lines that ran, lines), how many differ."""
    counted = [name for name in sorted(files) if not any(fnmatch.fnmatch(name, pattern) for pattern in whole)]
    total = collections.Counter()
    apart = collections.Counter()
    for name in sorted(files):
        ran, lines = sum(line.count > 0 for line in files[name].values()), len(files[name])
        (total if name in counted else apart).update(ran=ran, lines=lines)
        print(f"{ran:6} of {lines:5} {100 * ran / lines:6.1f} %  {name}{'' if name in counted else ', counted apart'}")
    wanted = collections.Counter(listed)
    differ = sum(compare(name, files[name], wanted) for name in counted)
    for name, function, text in sorted((wanted - collections.Counter(maybe)).elements()):
        print(f"stale  {name} {function}: {text}")
        differ += 1
    if apart:
        print(f"counted apart: {apart['ran']} of {apart['lines']} lines")
    return total["ran"], total["lines"], differ


def main():
    args = sys.argv[1:]
    again = args[:1] == ["--again"]
    args = args[again:]
    if len(args) != 1:
        print(__doc__.splitlines()[0], file=sys.stderr)
        return 2
    passed = True
    if not again:
        build(args[0])
        passed = run_tests(args[0])
    ran, lines, differ = tell(read_counts(args[0]), *read_list())
    print(f"{ran} of {lines} lines, {100 * ran / lines:.2f} %, {WANTED} % wanted; {differ} differ from tests/uncovered")
    return 0 if passed and not differ and 100 * ran >= WANTED * lines else 1


if __name__ == "__main__":
    sys.exit(main())
