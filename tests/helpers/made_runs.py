"""Runs put together by hand, in the shape in which captures are read."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from p3s.capture import Call, Comm, RankTrace, RunTrace, Site

NO_SITE = 0


def call(
    op: str, peer: int = -1, nbytes: int = 0, tag: int = -1, comm: int = 0, root: int = -1
) -> Call:
    return Call("MPI_" + op, NO_SITE, comm, peer, nbytes, 1, tag, root)


def run_of(
    ranks: list[list[tuple[Call, int, int]]],
    done: list[list[tuple[int, int]]],
    comms: tuple[Comm, ...],
    cancelled: dict[int, list[bool]] | None = None,
) -> RunTrace:
    """A run of events (call, start, elapsed) per rank; done: (completing, posting) events."""
    calls = list(dict.fromkeys(event[0] for events in ranks for event in events))
    traces = []
    for rank, events in enumerate(ranks):
        pairs = np.array(done[rank], dtype=np.int64).reshape(-1, 2)
        flags = (cancelled or {}).get(rank, [False] * len(pairs))
        traces.append(
            RankTrace(
                rank,
                True,
                np.array([calls.index(e[0]) for e in events], dtype=np.int32),
                np.array([e[1] for e in events], dtype=np.int64),
                np.array([e[2] for e in events], dtype=np.int64),
                np.zeros(len(events), dtype=np.int64),
                done=pairs,
                cancelled=np.array(flags, dtype=bool),
            )
        )
    return RunTrace(len(ranks), Path("run"), tuple(calls), comms, (Site("0" * 16, ()),), traces)


def world(n: int) -> Comm:
    return Comm(tuple(range(n)), "MPI_COMM_WORLD", -1, None, None, 0)
