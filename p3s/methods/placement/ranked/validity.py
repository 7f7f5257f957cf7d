"""How far a program is what models of communication phases assume of it."""

from __future__ import annotations

import numpy as np

from p3s.base.ops import like
from p3s.machine.topology.units import Bools
from p3s.methods.placement.phases import PhaseTraffic
from p3s.methods.placement.ranked.types import Validity
from p3s.predict.times import PhaseTimes
from p3s.program.scaled import COLLECTIVE, COMPLETION, SEND, ScaledTrace

#: Calls that leave a request open.
_OPENS = ("MPI_I", "MPI_Start")


def validity(trace: ScaledTrace, phases: list[PhaseTraffic], alone: PhaseTimes) -> Validity:
    """Return what speaks for or against phases that are balanced and do not overlap."""
    busy = alone.compute.sum(axis=1)
    mean = float(busy.mean()) if busy.size else 0.0
    return Validity(
        left_out=left_out(trace, phases),
        imbalance=float(busy.max()) / mean - 1.0 if mean > 0 else 0.0,
        overlap=overlap(trace),
    )


def left_out(trace: ScaledTrace, phases: list[PhaseTraffic]) -> float:
    """Return the share of the calls that communicate whose messages are not known.

    Of a collective of which some calls in a phase are left out, all there count.
    """
    talks = trace.is_kind(SEND) | trace.is_kind(COLLECTIVE)
    lost = talks & ~trace.known
    for phase in phases:
        gone = [k for k, op in enumerate(trace.ops) if op in phase.left_out]
        lost |= trace.is_kind(COLLECTIVE) & (trace.phase == phase.phase) & np.isin(trace.op, gone)
    calls = float(trace.repeat[talks].sum())
    return float(trace.repeat[lost].sum()) / calls if calls else 0.0


def overlap(trace: ScaledTrace) -> float:
    """Return the share of the computation that comes between a request and its completion."""
    work = trace.work * trace.repeat
    whole = float(work.sum())
    if not whole:
        return 0.0
    row = np.arange(trace.rows)
    group = np.ones(trace.rows, dtype=bool)  # rows begin a rank's phase
    group[1:] = (np.diff(trace.rank) != 0) | (np.diff(trace.phase) != 0)
    first = np.maximum.accumulate(np.where(group, row, 0))
    opened = _last_before(_opens(trace), first)
    closed = _last_before(trace.is_kind(COMPLETION), first)
    return float(work[opened > closed].sum()) / whole


def _last_before(what: Bools, first: np.ndarray) -> np.ndarray:
    """Return for each row the last one of the same rank and phase before it; -1: there is none."""
    row = np.arange(len(what))
    last = np.maximum.accumulate(np.where(what, row, -1))
    before = np.concatenate([[-1], last[:-1]]) if len(last) else last
    return np.where(before >= first, before, -1)


def _opens(trace: ScaledTrace) -> Bools:
    opens = [like(op).startswith(_OPENS) and op != "MPI_Init" for op in trace.ops]
    names = np.array(opens or [False], dtype=bool)
    return np.asarray(names[trace.op] if trace.rows else np.zeros(0), dtype=bool)
