"""What a prediction says of files: which calls, how much, by whom, and how long it takes."""

from __future__ import annotations

from dataclasses import dataclass

from p3s.base.text import percent, seconds, size_text, span, visible
from p3s.predict.types import Prediction

#: Calls that are listed.
MOST = 12
HEAD = ["call", "what", "processes", "files", "bytes", "calls", "pattern", "time", "interval"]


@dataclass(frozen=True)
class FileTable:
    """The calls on files at the largest count; source: whose costs the times are."""

    n: int
    head: list[str]
    rows: list[list[str]]
    source: str
    cut: str


def files_of(prediction: Prediction) -> FileTable | None:
    """Return the calls on files, those that take longest first; None without any."""
    uses = prediction.files
    if not uses:
        return None
    rows = [
        [
            visible(use.op, 40),
            use.what,
            f"{use.processes:,}",
            use.files,
            size_text(use.nbytes) if use.nbytes else "",
            f"{use.calls:,.0f}",
            _pattern(use.pattern, use.follows) if use.nbytes else "",
            seconds(use.seconds),
            span(use.low_s, use.high_s),
        ]
        for use in uses[:MOST]
    ]
    left = sum(use.seconds for use in uses[MOST:])
    cut = f"{len(uses) - MOST} more calls with {seconds(left)}" if len(uses) > MOST else ""
    return FileTable(prediction.last.n, HEAD, rows, visible(prediction.files_from, 200), cut)


def _pattern(pattern: str, follows: float) -> str:
    """Return how the bytes of a call lie, and how many accesses go on where one ended."""
    shape = {"dense": "contiguous", "strided": "strided"}.get(pattern, pattern)
    return f"{shape}, {percent(follows)} in a row" if follows >= 0.01 else shape
