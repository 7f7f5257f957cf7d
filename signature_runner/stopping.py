"""Sees when all ranks of a run have seen every relevant phase often enough."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.base.errors import P3SError
from p3s.capture import layout
from p3s.capture.capture import NAME, read_header
from p3s.capture.recording_plan import Plan

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Seconds between two looks; ranks on other machines are seen through the shared file system.
LOOK_S = 0.05


class Saturation:
    """Looks at the captures of a run that is under way."""

    def __init__(self, run_dir: Path, np: int, plan: Plan) -> None:
        self._run_dir = run_dir
        self._np = np
        self._ranks = dict(plan.ranks)
        self._at: dict[int, int] = {}  # rank -> where its chunk of phases begins

    def reached(self) -> bool:
        """Whether the program may be ended now."""
        tables = self._tables()
        if tables is None or not self._ranks:
            return False
        for phase, wanted in self._ranks.items():
            done = sum(bool(table["state"][phase]) for table in tables)
            if done < wanted:
                return False
        return True

    def _tables(self) -> list[NDArray[np.void]] | None:
        """Return the rows of phases of every rank, None while one has none."""
        found = []
        for rank in range(self._np):
            table = self._table(rank)
            if table is None:
                return None
            found.append(table)
        return found

    def _table(self, rank: int) -> NDArray[np.void] | None:
        import numpy as np

        path = self._run_dir / NAME.format(rank)
        dtype = np.dtype(layout.PHASE_FIELDS)
        try:
            if rank not in self._at:
                read_header(path)  # whole, and of this version
            with open(path, "rb") as file:
                handle = file.fileno()
                if rank not in self._at:
                    raw = os.pread(handle, 8, layout.PHASES_AT_OFFSET)
                    self._at[rank] = int(struct.unpack("<Q", raw)[0])
                at = self._at[rank]
                if not at:
                    del self._at[rank]  # not written yet
                    return None
                state = layout.CHUNK.unpack(os.pread(handle, layout.CHUNK_BYTES, at))[-3]
                payload = os.pread(handle, state & 0xFFFFFFFF, at + layout.CHUNK_BYTES)
        except (OSError, P3SError, struct.error):
            return None
        rows = len(payload) // dtype.itemsize
        if rows <= max(self._ranks, default=-1):
            return None
        return np.frombuffer(payload[: rows * dtype.itemsize], dtype=dtype)
