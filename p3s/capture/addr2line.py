"""Functions and lines from binutils' addr2line: for programs that are too large for Python."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace

from p3s.capture.dwarf import Line
from p3s.capture.modules import readable

_TIMEOUT_S = 120.0
_PLACE = re.compile(r"^(?P<file>.*):(?P<line>\d+|\?)(?: \(discriminator \d+\))?$")


def ask(path: str, wanted: Sequence[int]) -> dict[int, Line] | None:
    """Return what addr2line says of addresses in a file; None where it is not there or fails."""
    tool = shutil.which("addr2line")
    if tool is None:
        return None
    try:
        done = subprocess.run(
            [tool, "-a", "-f", "-i", "-e", path],
            input="".join(f"{a:#x}\n" for a in wanted),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    frames: dict[int, list[Line]] = {}
    here: list[Line] = []
    rows = iter(done.stdout.splitlines())
    for row in rows:
        if row.startswith("0x"):
            here = frames.setdefault(int(row, 16), [])
            continue
        place = _PLACE.match(next(rows, ""))
        if place is None:
            return None
        number = 0 if place["line"] == "?" else int(place["line"])
        here.append(Line("" if row == "??" else readable(row), place["file"], number))
    return {
        address: replace(lines[0], around=tuple(lines[1:]))
        for address, lines in frames.items()
        if lines and lines[0].line
    }
