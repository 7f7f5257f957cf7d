"""Persistent operations of measured ranks: which one each start starts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from p3s.replay.plan.build_blocks import Table
from p3s.replay.plan.build_traffic import Traffic, dense
from p3s.replay.plan.loaded import Loaded
from p3s.replay.plan.program import EVENT, Code
from p3s.simulate.steps import Op

_CODES = {Op.START_SEND: Code.ISEND, Op.START_SSEND: Code.ISSEND, Op.START_RECV: Code.IRECV}


def persistent_of(
    table: Table, loaded: Loaded, traffic: Traffic, processes: int
) -> tuple[npt.NDArray[np.void], ...]:
    """Return the persistent operations of each process; fill in ``arg`` of the starts.

    Starts of the same message use one operation if each is complete before the next, as far as
    the steps tell; else each start has its own.
    """
    steps = loaded.steps
    events = table.events
    starts = np.flatnonzero(events["code"] == Code.START)
    local = table.local[starts]
    if len(starts) == 0:
        return tuple(np.zeros(0, dtype=EVENT) for _ in range(processes))
    # The step that surely completes each request: a wait for all it lists.
    never = len(steps)
    complete = np.full(len(steps) + 1, never, dtype=np.int64)
    waiter = np.repeat(np.arange(len(steps)), np.diff(steps.done_start))
    sure = steps.op[waiter] == Op.WAIT
    complete[steps.done[sure]] = waiter[sure]
    key = dense(
        table.process[starts],
        steps.op[local],
        events["peer"][starts],
        events["tag"][starts],
        events["bytes"][starts],
    )
    order = np.lexsort((local, key))
    again = np.flatnonzero(key[order][1:] == key[order][:-1])
    late = complete[local[order[again]]] >= local[order[again + 1]]
    busy = np.zeros(int(key.max()) + 1, dtype=bool)
    busy[key[order[again]][late]] = True
    operation = dense(table.process[starts], key, np.where(busy[key], local, -1))
    _, first = np.unique(operation, return_index=True)
    process = table.process[starts[first]]
    begin = np.searchsorted(process, np.arange(processes + 1))
    events["arg"][starts] = operation - begin[table.process[starts]]
    records = np.zeros(len(first), dtype=EVENT)
    for name in ("peer", "tag", "bytes", "offset"):
        records[name] = events[name][starts[first]]
    records["code"] = [int(_CODES[Op(op)]) for op in steps.op[local[first]].tolist()]
    for name in ("slot", "comm", "at_ns", "sample"):
        records[name] = -1
    return tuple(records[begin[p] : begin[p + 1]] for p in range(processes))
