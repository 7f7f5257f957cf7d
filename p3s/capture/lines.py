"""Functions and source lines of addresses in a file, as binutils' addr2line says them.

It takes 3 ms for the addresses of a source file, of which Python would need a third of a second.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from p3s.capture.callpath import FrameInfo
from p3s.capture.modules import readable

_TIMEOUT_S = 120.0
_PLACE = re.compile(r"^(?P<file>.*):(?P<line>\d+|\?)(?: \(discriminator \d+\))?$")


def reader() -> str | None:
    """Return the path of the program that reads lines, None where none is installed."""
    return shutil.which("addr2line") or shutil.which("llvm-addr2line")


def lines_of(path: Path, addresses: Iterable[int]) -> dict[int, FrameInfo]:
    """Return what debug information says of addresses in a file; those it does not know are absent.

    The innermost inlined function is named; no frames nor modules are.
    """
    tool = reader()
    if tool is None:
        return {}
    try:
        process = subprocess.run(
            [tool, "-a", "-f", "-i", "-e", str(path)],
            input="".join(f"{address:#x}\n" for address in sorted(set(addresses))),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    frames: dict[int, list[FrameInfo]] = {}
    inlined: list[FrameInfo] = []
    rows = iter(process.stdout.splitlines())
    for row in rows:
        if row.startswith("0x"):
            inlined = frames.setdefault(int(row, 16), [])
            continue
        place = _PLACE.match(next(rows, ""))
        if place is None:
            return {}
        number = 0 if place["line"] == "?" else int(place["line"])
        name = "" if row == "??" else readable(row)
        inlined.append(FrameInfo("", function=name, file=place["file"], line=number))
    return {
        address: replace(lines[0], around=tuple(lines[1:]))
        for address, lines in frames.items()
        if lines and lines[0].line
    }
