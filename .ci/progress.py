"""Prints how far pip is, from its output: python -u .ci/progress.py LOCK. Exit code 1: it failed.

One line on a terminal, a line for every ten packages elsewhere.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

#: What pip prints for a package of a lock file: one to be fetched, one that is there already.
_PACKAGE = re.compile(r"(?:Collecting|Requirement already satisfied:) ([\w.-]+)")
#: A package for other machines or versions of Python is not installed.
_PINNED = re.compile(r"^([\w.-]+)[\w\[\],.-]*==[^;\n]*$", re.MULTILINE)


def main(lock: str) -> int:
    """Copy the names of packages to stdout; return 1 where pip failed."""
    total = len(set(_PINNED.findall(Path(lock).read_text(encoding="utf-8").replace(" \\", ""))))
    ready: set[str] = set()
    terminal = sys.stdout.isatty()
    for line in sys.stdin:
        if line.strip() == "failed":
            print()
            return 1
        if found := _PACKAGE.match(line):
            ready.add(found[1])
            text = f"installing from {lock}: {len(ready)} of about {total} packages, {found[1]}"
            if terminal:
                print(f"\r{text:<78.78}", end="")
            elif len(ready) % 10 == 1:
                print(text)
        elif line.startswith("Installing collected"):
            print(("\n" if terminal else "") + "unpacking them")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
