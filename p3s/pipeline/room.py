"""Whether what is to be written has room."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from p3s.base.errors import P3SError
from p3s.base.study import Study
from p3s.base.text import size_text

#: Bytes of a row of a scaled trace; packed they are fewer.
ROW_BYTES = 32
#: Ranks whose rows are counted to tell how many all have.
_SAMPLE = 64


def check_room(root: Path, needed: int, what: str = "a study") -> None:
    """Raise P3SError where a directory cannot be written or has no room."""
    place = next(path for path in (root.absolute(), *root.absolute().parents) if path.exists())
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise P3SError(f"{root}: {place} cannot be written; name another study directory")
    free = shutil.disk_usage(place).free
    if free < needed:
        raise P3SError(
            f"{root}: {size_text(free)} are free, {what} needs {size_text(needed)}; make room, "
            "or name a directory on another disk"
        )


def check_scaled_room(study: Study, counts: Sequence[int]) -> None:
    """Raise P3SError where the scaled traces of ``counts`` do not fit on the disk."""
    needed = sum(scaled_bytes(study, n) for n in counts)
    named = ", ".join(map(str, counts))
    check_room(study.root, max(needed, 1), f"the scaled trace of {named} processes")


def scaled_bytes(study: Study, n: int) -> int:
    """Return how large the scaled trace of ``n`` processes becomes at most, from some ranks."""
    import numpy as np

    from p3s.model.evaluate import SPREAD, SPREAD_RUN, Evaluator
    from p3s.model.stage import load
    from p3s.program.types import MOST_RANKS

    some = np.unique(np.linspace(0, n - 1, min(n, _SAMPLE)).astype(np.int64))
    rows = len(Evaluator(load(study.root), n).rows(some).rank)
    written = n if n <= MOST_RANKS else SPREAD * SPREAD_RUN
    return int(rows / len(some) * written * ROW_BYTES)
