# SPDX-License-Identifier: MIT
"""What a kernel log may not say during a test, and which lines belong to which test."""
import re

BAD = re.compile("|".join((
    r"\bWARNING:", r"\bBUG\b", r"\bOops\b", r"general protection fault[,:]", r"\bKASAN:", r"\bKCSAN:", r"\bUBSAN:", r"\bKFENCE:",
    r"Bad page", r"Bad rss-counter", r"Bad pagetable", r"Kernel panic", r"cut here", r"[Uu]nable to handle", r"invalid opcode",
    r"possible (?:circular|recursive|irq lock inversion|unsafe)", r"possible deadlock", r"inconsistent lock state",
    r"bad unlock balance",
    r"held lock freed", r"lock held when returning", r"locks? still held", r"suspicious RCU usage", r"unsafe lock order",
    r"sleeping function called", r"scheduling while atomic", r"self-detected stall", r"detected stalls",
    r"blocked for more than", r"soft lockup", r"hard LOCKUP", r"ODEBUG:", r"DMA-API:", r"refcount_t:",
    r"list_(?:add|del) corruption",
    r"kmemleak: \d+ new", r"kmemleak: .*(?:invalid|freeing unknown|disabled)", r"page_table_check", r"double free",
    r"use-after-free",
    r"page allocation failure", r"invoked oom-killer", r"Out of memory", r"oom-kill:", r"Memory failure:", r"MCE:",
    r"Memory corruption", r"pagealloc: ",
    r"usercopy: Kernel memory", r"\bleaked\b", r"Object .* (?:overwritten|padding)", r"nobody cared", r"DEBUG_LOCKS_WARN_ON",
)))
# What a healthy kernel says of these things when it starts, or of its own defences.
HARMLESS = re.compile("|".join((
    r"[Cc]ommand line:", r"command line parameters", r"DMA-API: preallocated", r"DMA-API: debugging enabled",
    r"page_table_check.*enabled", r"KernelAddressSanitizer", r"mce: ", r"Lock dependency validator",
    r"RCU callback double-/use-after-free debug is enabled",
    r"kmemleak: Kernel memory leak detector initialized",
    # The kernel races with itself, mostly on purpose. The functions on both sides are named.
    r"BUG: KCSAN: (?!.*\[(?:pinion|importer|canary)\])",
)))
MARK = re.compile(r"pinion-vm: (begin|end) (\d+)")
STAMP = re.compile(r"^(?:<\d+>)?\[\s*\d+\.\d+\]\s?(?:\[\s*[TC]\d+\]\s?)?")


def without_stamp(line):
    return STAMP.sub("", line)


class Log:
    """The console's lines, sorted by the step during which they came; step -1 is before the first."""

    def __init__(self):
        self.lines = []
        self.by_step = {-1: []}
        self.step = -1
        self.ended = -1

    def add(self, line):
        self.lines.append(line)
        mark = MARK.search(line)
        if mark:
            n = int(mark.group(2))
            if mark.group(1) == "begin":
                self.step = n
                self.by_step[n] = []
            else:
                self.ended = n
            return
        # What comes after an end belongs to the step that ended: the next has not begun.
        self.by_step[self.step].append(line)

    def bad(self, step, allowed=()):
        """The lines of a step that fail it. allowed: regular expressions of what this test provokes."""
        return [line for line in self.by_step.get(step, ()) if BAD.search(line) and not HARMLESS.search(line)
                and not any(re.search(a, line) for a in allowed)]

    def around(self, step, line, before=2, after=24):
        """A report in full, as far as it is here."""
        lines = self.by_step.get(step, [])
        at = lines.index(line)
        return [without_stamp(text) for text in lines[max(0, at - before):at + after]]
