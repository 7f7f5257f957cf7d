"""What a prediction says of files: which calls, how much, by whom, and how long it takes."""

from __future__ import annotations

from dataclasses import dataclass

from p3s.base.text import aligned, percent, seconds, size_text, span, visible
from p3s.costs.files.types import FileUseAt
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
    left = sum(use.seconds for use in uses[MOST:])
    cut = f"{len(uses) - MOST} more calls with {seconds(left)}" if len(uses) > MOST else ""
    source = visible(prediction.files_from, 200)
    return FileTable(prediction.last.n, HEAD, [_row(use) for use in uses[:MOST]], source, cut)


def _row(use: FileUseAt) -> list[str]:
    """Return a call; its pattern: how bytes lie, and how many accesses go on where one ended."""
    pattern = {"dense": "contiguous", "strided": "strided"}.get(use.pattern, use.pattern)
    pattern += f", {percent(use.follows)} in a row" if use.follows >= 0.01 else ""
    return [
        visible(use.op, 40),
        use.what,
        f"{use.processes:,}",
        use.files,
        size_text(use.nbytes) if use.nbytes else "",
        f"{use.calls:,.0f}",
        pattern if use.nbytes else "",
        seconds(use.seconds),
        span(use.low_s, use.high_s),
    ]


def terminal_lines(prediction: Prediction) -> list[str]:
    """Return the calls on files at the largest count, as lines of text."""
    found = files_of(prediction)
    if found is None:
        return []
    head = f"files at {found.n} processes, as {found.source} say:"
    return [head, *aligned([found.head, *found.rows]), *([found.cut] if found.cut else []), ""]
