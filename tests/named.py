#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Usage: tests/named.py

Every test that Documentation names as what states a row is there and is run. A page names `PROGRAM:CASE` (or `PROGRAM: CASE, CASE`):
  storage:CASE    a test of tests/unit/test_storage.c; conform:CASE one of tests/unit/conform*.c
  cli:CASE        a test of tests/cli/test_cli.py
  vm/life:CASE    a point of tests/vm/guest/life.c, its words joined by underscores
  FILE.sh:CASE    a point of tests/vm/FILE.sh, likewise
The tables of reports.md have every row, each with a test or with words that say why there is none.
Last line: `N passed, N failed, 0 skipped`.
"""
import glob
import os
import re
import sys

TESTS = os.path.dirname(os.path.abspath(__file__))
PAGES = os.path.join(os.path.dirname(TESTS), "Documentation")
NAMING = {"contract.md": 180, "contract-load.md": 300, "reports.md": 130}  # and how many names it has at least
# Section of reports.md: its rows.
ROWS = {"kernel-practice": [str(n) for n in range(1, 39)] + ["38b"] + [str(n) for n in range(39, 45)],
        "user-needs": [str(n) for n in range(1, 41)]}
STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')


def text_of(*path):
    with open(os.path.join(TESTS, *path), encoding="utf-8") as f:
        return f.read()


def token(words):
    return re.sub(r"[^\w.]+", "_", words).strip("_")


def unit_cases(paths):
    """Those that are written and added to a case."""
    text = "".join(text_of(path) for path in paths)
    added = set(re.findall(r"tcase_add\w*test\w*\(\s*\w+,\s*(\w+)", text))
    return set(re.findall(r"START_TEST\((\w+)\)", text)) & added


def programs():
    """{program: names of its cases}, of those that are built and run."""
    found = {}
    built = text_of("unit", "meson.build")
    for path in glob.glob(os.path.join(TESTS, "unit", "test_*.c")):
        name = os.path.basename(path)[len("test_"):-len(".c")]
        # A list of what is built may have the ends of names.
        if re.search(rf"\b{name}\b|'{name.removeprefix('select')}'", built):
            found[name] = unit_cases([path])
    found["conform"] = unit_cases(glob.glob(os.path.join(TESTS, "unit", "conform*.c")))
    # What tests one noun may be in several programs.
    found["select"] = found["select"].union(*(cases for name, cases in found.items() if name.startswith("select_")))
    found["cli"] = set(re.findall(r"^@test\ndef (\w+)\(", text_of("cli", "test_cli.py"), re.M))
    planned = set(re.findall(r'Program\(\s*"(\w+)"', text_of("vm", "plan.py")))
    for path in glob.glob(os.path.join(TESTS, "vm", "guest", "*.c")):
        name = os.path.basename(path)[:-len(".c")]
        if name in planned:
            found[f"vm/{name}"] = {token(words) for words in STRING.findall(text_of(path))}
    for path in glob.glob(os.path.join(TESTS, "vm", "*.sh")):
        found[os.path.basename(path)] = {token(words) for words in STRING.findall(text_of(path))}
    return found


def named(page, known):
    """(program, case) of each test that a page's tables name; a program that is none is a name as well."""
    for line in text_of(PAGES, page).splitlines():
        if line.startswith("`") or line.startswith("#"):
            continue
        for program, cases in re.findall(r"(?<![\w./`-])((?:vm/)?[a-z]\w*(?:\.sh)?):[ ]?([\w.]+(?:, [\w.]+(?![\w.:/]))*)", line):
            if program in known or program.startswith("vm/") or program.endswith(".sh"):
                for case in cases.rstrip(".").split(", "):
                    # A word of prose may follow a colon too.
                    if "_" in case or case in known.get(program, ()):
                        yield program, case


def rows(page):
    """{section: {row: (report, test)}} of the tables of a page."""
    found, section = {}, None
    for line in text_of(PAGES, page).splitlines():
        if line.startswith("## "):
            section = next((name for name in ROWS if name in line), None)
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if section and len(cells) == 3 and re.fullmatch(r"\d+b?", cells[0]):
            found.setdefault(section, []).append(cells)
    return found


def main():
    known = programs()
    passed, failed = 0, []
    for page, least in NAMING.items():
        tests = list(named(page, known))
        bad = [f"{page}: {program}:{case} is no test" for program, case in tests if case not in known.get(program, ())]
        if len(tests) < least:
            bad.append(f"{page}: {len(tests)} tests are named, not {least} or more")
        failed += bad
        passed += len(tests) - len(bad)
    for section, want in ROWS.items():
        have = rows("reports.md").get(section, [])
        if [cells[0] for cells in have] == want:
            passed += 1
        else:
            failed.append(f"reports.md: the rows of {section} are {' '.join(cells[0] for cells in have)}")
        failed += [f"reports.md: {section} {row}: neither a test nor a reason" for row, report, test in have if not report or not test]
    for what in failed:
        print(f"FAIL {what}")
    print(f"{passed} passed, {len(failed)} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
