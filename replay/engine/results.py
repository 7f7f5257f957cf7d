"""What one program of a replay has measured, and its file."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from p3s.base.arrays import Floats, Ints
from p3s.base.artefacts import file_bytes
from p3s.base.errors import P3SError
from p3s.base.tables import read_arrays

#: Written into every file; other versions are refused.
VERSION = 3
_SCALARS = ("passes", "clock_error_ns")


@dataclass(frozen=True)
class ProgramResult:
    """Measurements of one program; times in ns, passes in the order they were made.

    ``pass_ns`` (passes, processes): from the start of the pass to the end of the process's last
    event. ``event``: positions in Program.events of the sampled events; ``event_ns`` (passes,
    sampled events): how long each took; ``begin_ns`` (sampled events): when it began after the
    start of the pass, median.
    ``transfer_ns`` (passes, messages of Program.pairing): completion minus the later start, NaN
    where nobody waited (replay/engine/collect.py). ``link_ns`` (passes, messages): when each
    message of a link program had arrived, after the first send began; LINK_RECV events in the
    order of Program.events. ``clock_error_ns``: how far clocks of two nodes may be
    off in this. ``work_error_ns``: what emulated computation took beyond its length, every one
    (thinned out evenly when there are very many).
    """

    passes: int
    pass_ns: Floats
    event: Ints
    event_ns: Floats
    begin_ns: Floats
    transfer_ns: Floats
    link_ns: Floats
    clock_error_ns: float
    work_error_ns: Floats

    @staticmethod
    def empty(processes: int) -> ProgramResult:
        """Return the result of no pass."""
        none = np.zeros((0, 0))
        return ProgramResult(
            0,
            np.zeros((0, processes)),
            np.zeros(0, dtype=np.int64),
            none,
            np.zeros(0),
            none,
            none,
            0.0,
            np.zeros(0),
        )


_ARRAYS = tuple(each.name for each in fields(ProgramResult) if each.name not in _SCALARS)


def save_result(path: Path, result: ProgramResult) -> None:
    """Write a result; the file is there completely or not at all. Errors: OSError."""
    columns: dict[str, Any] = {name: getattr(result, name) for name in _ARRAYS}
    columns.update({name: np.float64(getattr(result, name)) for name in _SCALARS})
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(draft, "wb") as file:
            np.savez(file, version=np.int64(VERSION), **columns)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def read_result(path: Path) -> ProgramResult:
    """Read a result. Errors: P3SError in one line when it is missing or damaged."""
    try:
        found = read_arrays(file_bytes(path), ("version", *_SCALARS, *_ARRAYS))
        if found["version"].shape != () or int(found["version"]) != VERSION:
            raise P3SError(f"{path}: written by another version of P3S; replay with --again")
        arrays = {name: found[name] for name in _ARRAYS}
        passes, clock_error_ns = (float(found[name]) for name in _SCALARS)
        made = ProgramResult(passes=int(passes), clock_error_ns=clock_error_ns, **arrays)
        _check(made)
    except (OSError, TypeError, ValueError, OverflowError) as err:
        why = " ".join(str(err).split())[:120]
        raise P3SError(f"{path}: missing or damaged ({why}); replay with --again") from err
    return made


def _check(made: ProgramResult) -> None:
    """Raise ValueError where arrays do not fit each other, or hold what no clock says."""
    events = len(made.event)
    shapes = {
        "pass_ns": (made.passes, None),
        "event": (None,),
        "event_ns": (made.passes, events),
        "begin_ns": (events,),
        "transfer_ns": (made.passes, None),
        "link_ns": (made.passes, None),
        "work_error_ns": (None,),
    }
    for name, wanted in shapes.items():
        values, where = getattr(made, name), f"{name} of {made.passes} passes"
        _check_shape(values.shape, wanted, where)
        if np.isinf(values).any():
            raise ValueError(f"{name} is infinite")
    if made.event.dtype.kind != "i" or made.event.min(initial=0) < 0:
        raise ValueError("a sampled event has no position")
    # Clocks that differ: a short time may come out below 0 by as much.
    least = -max(made.clock_error_ns, 0.0)
    if not math.isfinite(made.clock_error_ns) or np.nanmin(made.pass_ns, initial=0.0) < least:
        raise ValueError("a time is none")


def _check_shape(shape: tuple[int, ...], wanted: tuple[int | None, ...], where: str) -> None:
    same = len(shape) == len(wanted) and all(
        there == size for there, size in zip(shape, wanted, strict=True) if size is not None
    )
    if not same and 0 not in shape:  # nothing was measured of it
        raise ValueError(f"{where} has shape {shape}")
