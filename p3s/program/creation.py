"""What a rank does by itself when a communicator is made or freed: memory, tables, sorting.

The messages by which the members agree are p3s.program.collectives's. What is left of a
call does not depend on the others: a base, which is that of the same call on MPI_COMM_SELF, and
what grows with the members, their table and the sorting of their keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from p3s.base.arrays import Floats, Ints
from p3s.program.collectives.choose import MPICH
from p3s.program.scaled import COMM, ScaledTrace

#: Table of a member, and a comparison of two keys, in ns: least, usual, largest. Sorting is that
#: of all keys of the parent at most, of one's own colour at least: none.
_MEMBER_NS = (0.5, 2.0, 10.0)
_COMPARE_NS = (0.0, 8.0, 16.0)
#: Calls that sort colours and keys.
_SORTS = ("MPI_Comm_split", "MPI_Comm_split_type", "MPI_Cart_sub", "MPI_Intercomm_merge")
_FREES = ("MPI_Comm_free", "MPI_Comm_disconnect")


@dataclass(frozen=True)
class OwnPart:
    """Times on MPI_COMM_SELF, ns, each least, usual, largest; ``measured``: on this machine."""

    dup: tuple[float, float, float]
    split: tuple[float, float, float]
    free: tuple[float, float, float]
    measured: bool = False


def usual(family: str) -> OwnPart:
    """Return what is taken where nothing was measured: Open MPI 4.1 and MPICH 4.0 on one core.

    The usual ones are medians on a core of 2.6 GHz, the ends a third and three times of that.
    """
    dup, split, free = (650.0, 770.0, 60.0) if family == MPICH else (2700.0, 2900.0, 800.0)
    return OwnPart(_around(dup), _around(split), _around(free))


def _around(ns: float) -> tuple[float, float, float]:
    return (ns / 3, ns, 3 * ns)


def measured(network: Mapping[str, Any]) -> OwnPart | None:
    """Return what ``p3s machine measure`` found ("create" of its costs of messages), or None.

    The high end is as far above the median as the least time is below.
    """
    found = network.get("create")
    if not isinstance(found, Mapping) or not {"dup", "split", "free"} <= set(found):
        return None
    parts = []
    for name in ("dup", "split", "free"):
        low, median = (float(ns) for ns in found[name])
        parts.append((low, median, 2 * median - low))
    return OwnPart(parts[0], parts[1], parts[2], measured=True)


def creation_ns(trace: ScaledTrace, phases: Sequence[int], own: OwnPart) -> Floats:
    """Return the time of the run that each rank spends by itself in these calls.

    Shape (3, n, phases) in ns: least, usual, largest; waiting and messages are not in it.
    """
    cells = np.zeros((3, trace.n * len(phases)))
    rows = np.flatnonzero(trace.is_kind(COMM) & (trace.repeat > 0))
    if len(rows):
        number = np.array(sorted(phases))
        place = np.searchsorted(number, trace.phase[rows])
        column = np.argsort(np.asarray(phases))[place]
        cell = trace.rank[rows] * len(phases) + column
        for end in range(3):
            each = _each(trace, rows, own, end) * trace.repeat[rows]
            cells[end] = np.bincount(cell, weights=each, minlength=cells.shape[1])
    return cells.reshape(3, trace.n, len(phases))


def _each(trace: ScaledTrace, rows: Ints, own: OwnPart, end: int) -> Floats:
    """Return the time of one call of each row."""
    sorts, frees = (trace.is_op(*names)[rows] for names in (_SORTS, _FREES))
    base = np.where(sorts, own.split[end], np.where(frees, own.free[end], own.dup[end]))
    sizes = {c: max(len(them), 1) for c, them in trace.members.items()}
    k = np.array([sizes.get(c, 1) for c in trace.comm[rows].tolist()], dtype=np.float64)
    grows = np.where(frees, 0.0, _MEMBER_NS[end] * k)
    return np.asarray(base + grows + np.where(sorts, _COMPARE_NS[end] * k * np.log2(k), 0.0))
