"""The steps of two loaded ranges, cut out of the steps of all ranks one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from p3s.replay.plan.loaded import Loaded
from p3s.simulate.steps import PLAIN, Op, Steps


def load(
    steps: Steps,
    sides: tuple[Sequence[int], Sequence[int]],
    begin_ns: np.ndarray | None = None,
    section: int = 0,
) -> Loaded:
    """Return what the ranks of both sides do; their slots are their places in ``sides``."""
    place = {rank: (side, slot) for side in (0, 1) for slot, rank in enumerate(sides[side])}
    ranks = sorted(place)
    where = [i for rank in ranks for i in range(*steps.of(rank).indices(len(steps)))]
    here = {old: new for new, old in enumerate(where)}
    at = np.asarray(where, dtype=np.int64)
    lengths = [steps.of(rank).stop - steps.of(rank).start for rank in ranks]
    done = [
        [here[int(d)] for d in steps.done[steps.done_start[i] : steps.done_start[i + 1]]]
        for i in where
    ]
    columns = {name: getattr(steps, name)[at] for name in PLAIN}

    def near(column: np.ndarray) -> np.ndarray:
        return np.array([here.get(int(x), -1) for x in column[at]], dtype=np.int64)

    mine = replace(
        steps,
        ranks=np.asarray(ranks, dtype=np.int64),
        start=np.concatenate(([0], np.cumsum(lengths))).astype(np.int64),
        **columns,
        done_start=np.concatenate(([0], np.cumsum([len(d) for d in done]))).astype(np.int64),
        done=np.asarray([d for them in done for d in them], dtype=np.int64),
        to=near(steps.to),
        source=near(steps.source),
    )
    own = np.where(columns["op"] == Op.SENDRECV, columns["bytes2"], columns["bytes"])
    source, to = steps.source[at], steps.to[at]
    arrives = np.where(source >= 0, steps.bytes[source], own)
    begin = np.full(len(steps) + 1, np.nan)
    if begin_ns is not None:
        begin[:-1] = begin_ns
    rank = mine.rank.tolist()
    return Loaded(
        section,
        (0, 1),
        mine,
        at,
        at,
        np.array([place[r][0] for r in rank], dtype=np.int64),
        np.array([place[r][1] for r in rank], dtype=np.int64),
        arrives,
        begin[source],
        begin[to],
        columns["bytes"],
        columns["call"],
    )
