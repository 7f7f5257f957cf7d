"""Calls on communicators with processes of another MPI_COMM_WORLD: spawned, connected, joined.

What those processes do is not recorded, so that such a call has a partner that nobody knows. Read
for characterizing, it has a name of its own (p3s.base.ops.outside) and no communicator.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from p3s.base import ops
from p3s.capture.types import Call, Comm, RunTrace

#: World rank of a process of another world, and the communicator of a call that has none.
UNKNOWN = -1


def reaches_outside(comm: Comm) -> bool:
    """Tell whether a communicator has a process of another world."""
    return UNKNOWN in comm.members


def unmodelled_events(
    calls: tuple[Call, ...], comms: Sequence[Comm], events: Iterable[int]
) -> dict[str, int]:
    """Return operation -> events of those that the model does not cover; events: of each call."""
    out: dict[str, int] = {}
    for call, count in zip(_named(calls, comms), events, strict=True):
        if not ops.is_modelled(call.op):
            out[call.op] = out.get(call.op, 0) + count
    return out


def named_outside(run: RunTrace) -> RunTrace:
    """Return a run whose calls with processes of other worlds are named so."""
    calls = _named(run.calls, run.comms)
    return run if calls is run.calls else replace(run, calls=calls)


def _named(calls: tuple[Call, ...], comms: Sequence[Comm]) -> tuple[Call, ...]:
    beyond = {number for number, comm in enumerate(comms) if reaches_outside(comm)}
    if not beyond:
        return calls
    return tuple(
        replace(call, op=ops.outside(call.op), comm=UNKNOWN) if call.comm in beyond else call
        for call in calls
    )
