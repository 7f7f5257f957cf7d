"""What becomes of a changed file, and heads that fit what was changed beside them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from p3s.base.artefacts import digest_of, write_json

#: The count that the study of these files predicts.
AT = 12


#: By the clock so many times as long: other programs may have the cores.
_WAITS = 20


class Hung(BaseException):
    """Something took longer than its limit."""


def _hung(_number: int, _frame: Any) -> None:
    raise Hung


@contextlib.contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise Hung in what takes more than so much processor time, or waits for twenty times that."""
    numbers = (signal.SIGPROF, signal.SIGALRM)
    before = [signal.signal(number, _hung) for number in numbers]
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.alarm(_WAITS * seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


class Outcome(StrEnum):
    """What became of a changed file.

    OTHER: its digest was made to fit the change, so that it is another file, and gave other
    results; SILENT: it did so although the digest did not fit.
    """

    REFUSED = "refused"
    UNCHANGED = "unchanged"
    OTHER = "other"
    SILENT = "silent"
    CRASHED = "crashed"
    HUNG = "hung"


@dataclass(frozen=True)
class Trial:
    """One input: its format and number, what was changed, what came of it, and what was said."""

    format: str
    seed: int
    what: str
    outcome: Outcome
    said: str


def fit_head(path: Path, data: bytes) -> None:
    """Let the head of a changed table say of it what it would say had it been written so."""
    for head in sorted(path.parent.glob("*.json")):
        content = json.loads(head.read_bytes())
        known = content.get("tables", {}).get(path.name)
        mine = known is not None or head.with_suffix(".parquet") == path
        if not mine:
            continue
        with contextlib.suppress(pa.ArrowException, OSError, ValueError):
            rows = pq.ParquetFile(path).metadata.num_rows
            content |= {"rows": rows} if known is None and "rows" in content else {}
            if known is not None:
                known["rows"] = rows
        if known is not None:
            known["digest"] = digest_of(data)
        elif "table_crc" in content:
            content["table_crc"] = zlib.crc32(data)
        before = head.stat()
        write_json(head, content)
        os.utime(head, ns=(before.st_atime_ns, before.st_mtime_ns))
