# SPDX-License-Identifier: MIT
"""Usage: command.py pinion.1.scd pinion.c COMMAND: prints the manual page of one command, cut out of that of all; scdoc's source.

What is said of a command stands in one place; its line is that of `pinion help`, in the command's own table. A command that is not
there, in the synopsis and in COMMANDS, is an error.
"""
import re
import sys


def sections(text):
    """{heading: lines}"""
    found, heading = {}, None
    for line in text.splitlines():
        if line.startswith("# "):
            heading = line[2:]
            found[heading] = []
        elif heading:
            found[heading].append(line)
    return found


def entry(lines, command):
    """The lines of one command in COMMANDS: from its own to the next that is not set in."""
    out = []
    for line in lines:
        if not line.startswith("\t") and line.startswith("*"):
            inside = re.match(rf"\*{command}\*", line) is not None
        elif not line.startswith("\t") and line:
            inside = False
        if out or (line.startswith("*") and inside):
            if not inside:
                break
            out.append(line)
    return out


def brief_of(path, command):
    if command == "help":
        return "list the commands, or the options of one"
    with open(path, encoding="utf-8") as f:
        row = re.search(rf'{{ "{command}", "[^"]*",\s*((?:"[^"]*"\s*)+),\s*cmd_', f.read())
    if not row:
        sys.exit(f"{path} has no row for {command}")
    text = "".join(re.findall(r'"([^"]*)"', row[1])).rstrip(".")
    return text[0].lower() + text[1:]


def dedent(lines):
    return [line[1:] if line.startswith("\t") else line for line in lines]


def main():
    path, table, command = sys.argv[1:]
    brief = brief_of(table, command)
    with open(path, encoding="utf-8") as f:
        parts = sections(f.read())
    synopsis = [line for line in parts["SYNOPSIS"] if line.startswith(f"*pinion {command}*")]
    body = dedent(entry(parts["COMMANDS"], command)[1:])
    if not synopsis or not body:
        sys.exit(f"{path} does not say what {command} is")
    print(f"pinion-{command}(1)\n\n; SPDX-License-Identifier: MIT\n\n# NAME\n\npinion-{command} - {brief}\n\n# SYNOPSIS\n")
    print("\n".join(line.removesuffix("++") for line in synopsis))
    print("\n# DESCRIPTION\n")
    print("\n".join(body).strip("\n"))
    for heading in ("OUTPUT", "EXIT STATUS", "ENVIRONMENT"):
        print(f"\n# {heading}\n\nAs of all commands, see *pinion*(1).")
    print("\n# SEE ALSO\n\n*pinion*(1)")


main()
