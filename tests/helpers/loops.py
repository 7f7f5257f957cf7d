"""Loops by hand: windows of some turns, and the same with all turns, for tests of folding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from p3s.base.arrays import Floats
from p3s.simulate.folded import Loop
from p3s.simulate.steps import SENDS, Op, Section, Steps

#: One turn: op, offset of the partner's place (rows, columns) or None, place of the partner's
#: call, requests completed (places of this turn; negative: of the turn before).
HALO = (
    [Op.IRECV] * 4 + [Op.ISEND] * 4 + [Op.WAIT],
    [(-1, 0), (1, 0), (0, -1), (0, 1)] * 2 + [None],
    [5, 4, 7, 6, 1, 0, 3, 2, -1],
    [[]] * 8 + [list(range(8))],
)
SWEEP = (
    [Op.RECV, Op.RECV, Op.SEND, Op.SEND],
    [(-1, 0), (0, -1), (1, 0), (0, 1)],
    [2, 3, 0, 1],
    [[]] * 4,
)
#: A receive is posted one turn before it is completed.
AHEAD = ([Op.WAIT, Op.IRECV, Op.SEND], [None, (0, -1), (0, 1)], [-1, 2, 1], [[-2], [], []])


def turns_of(
    pattern,
    rows: int,
    columns: int,
    turns: int,
    *,
    work: Floats,
    nbytes: int = 1000,
    periodic: bool = True,
) -> Steps:
    """Return the steps of ``turns`` turns of a pattern on a grid of ranks.

    ``work``: before the first call of each turn, shape (ranks,) or (ranks, turns), in ns.
    """
    ops, offsets, places, completed = pattern
    n, calls = rows * columns, len(ops)
    at = np.arange(n)
    r, c = at // columns, at % columns
    peer = np.full((n, calls), -1)
    for k, offset in enumerate(offsets):
        if offset is not None:
            there_r, there_c = r + offset[0], c + offset[1]
            inside = (there_r >= 0) & (there_r < rows) & (there_c >= 0) & (there_c < columns)
            rank = there_r % rows * columns + there_c % columns
            peer[:, k] = rank if periodic else np.where(inside, rank, -1)
    op = np.array([int(o) for o in ops])
    total = n * turns * calls
    peers = np.broadcast_to(peer[:, None, :], (n, turns, calls))
    turn = np.broadcast_to(np.arange(turns)[None, :, None], peers.shape)
    link = peers * turns * calls + turn * calls + np.array(places)
    link = np.where(peers >= 0, link, -1).reshape(-1)
    ops_all = np.tile(op, n * turns)
    sends = np.isin(ops_all, [int(o) for o in SENDS])
    start = np.arange(n + 1) * turns * calls
    done, counts = [], np.zeros(total, dtype=np.int64)
    for rank in range(n):
        for t in range(turns):
            for k, listed in enumerate(completed):
                base = start[rank] + t * calls
                found = [base + q if q >= 0 else base + q for q in listed]
                found = [q for q in found if q >= start[rank]]
                done += found
                counts[base + k] = len(found)
    works = np.zeros((n, turns, calls))
    works[:, :, 0] = work if np.ndim(work) == 2 else np.asarray(work)[:, None]
    zero, none = np.zeros(total, dtype=np.int64), np.full(total, -1, dtype=np.int64)
    row = np.broadcast_to((at[:, None] * calls + np.arange(calls))[:, None, :], peers.shape)
    return Steps(
        n=n,
        ranks=at,
        start=start,
        op=ops_all,
        peer=peers.reshape(-1).copy(),
        tag=zero,
        comm=zero,
        bytes=np.where(peers.reshape(-1) >= 0, nbytes, 0),
        peer2=none,
        tag2=none,
        bytes2=zero,
        call=zero,
        work_ns=works.reshape(-1),
        number=counts.copy(),
        row=row.reshape(-1).copy(),
        weight=np.ones(total),
        turn=turn.reshape(-1).copy(),
        done_start=np.concatenate(([0], np.cumsum(counts))),
        done=np.array(done, dtype=np.int64),
        to=np.where(sends, link, -1),
        source=np.where(sends, -1, link),
        calls=("MPI call",),
        members={0: at},
    )


def section_of(steps: Steps, run_turns: float, entries: float = 1.0) -> Section:
    """Return a section of ``run_turns`` turns of which a window is given, turn 0 first."""
    turns = int(steps.turn.max()) + 1
    share = (run_turns - 1) / (turns - 1) if turns > 1 else 1.0
    weight = np.where(steps.turn == 0, 1.0, share) * entries
    steps = replace(steps, weight=weight)
    return Section("loop", (0,), steps, turns, 0, int(run_turns), entries, ())


def loop_of(steps: Steps, run_turns: float, entries: float = 1.0) -> Loop:
    """Return the loop of such a section. Cells are ranks."""
    section = section_of(steps, run_turns, entries)
    steps = section.steps
    return Loop(section, steps, steps.rank, steps.weight, steps.n)
