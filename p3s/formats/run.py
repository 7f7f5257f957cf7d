"""A run, traced or simulated, as exports write it: its calls in their order, its messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from p3s.base.arrays import Floats
from p3s.base.ops import COLLECTIVE, RECV, SEND, kind_of, place_of
from p3s.capture.callpath import FrameInfo
from p3s.capture.types import Call, RankTrace, RunTrace
from p3s.simulate.steps import Section


@dataclass(frozen=True)
class Run:
    """A run and what is known around it.

    ``places`` of frames; ``hosts`` of the ranks (empty: all on one machine); the ``program`` with
    its arguments; ``weights``: of a simulated run, of each rank and event how often it occurs in
    the whole run, None where the trace is the whole run. The work of its events is then ns.
    ``waiting``: of it, ns of each event; ``sections``: its sections with begin and end in ns;
    ``about``: what it was simulated with.
    """

    trace: RunTrace
    places: Mapping[str, FrameInfo] = field(default_factory=dict)
    hosts: Sequence[str] = ()
    program: Sequence[str] = ()
    weights: Sequence[Floats] | None = None
    waiting: Sequence[Floats] = ()
    sections: Sequence[tuple[Section, float, float]] = ()
    about: Mapping[str, str] = field(default_factory=dict)

    @property
    def simulated(self) -> bool:
        """Whether it was simulated."""
        return self.weights is not None

    @property
    def notes(self) -> list[str]:
        """What is to be said where ranks are shown beside each other."""
        text = (
            "clocks of ranks begin when MPI_Init returns and are not synchronised: a "
            "message may arrive before it is sent"
        )
        return [] if self.simulated else [text]

    @property
    def nodes(self) -> dict[str, list[int]]:
        """The ranks of each node, "node" where it is not known."""
        nodes: dict[str, list[int]] = {}
        for rank, host in enumerate(self.hosts or [""] * self.trace.np):
            nodes.setdefault(host or "node", []).append(rank)
        return nodes

    @cached_property
    def shift(self) -> int:
        """What is added to the times of all ranks, so that none is before 0."""
        firsts = [int(rank.start_ns.min()) for rank in self.trace.ranks if len(rank.start_ns)]
        return -min([0, *firsts])

    @cached_property
    def threads(self) -> list[int]:
        """How many threads of each rank make MPI calls."""
        return [1 + max(threads_of(rank), default=0) for rank in self.trace.ranks]

    def weight(self, rank: RankTrace) -> Floats:
        """Return how often each event of a rank occurs in the whole run."""
        return np.ones(len(rank.call)) if self.weights is None else self.weights[rank.rank]

    def before(self, rank: RankTrace) -> Floats:
        """Return the time in ns that a rank computes before each of its events.

        Of a traced run: what its thread was outside of calls since the one before.
        """
        if self.weights is not None:
            return rank.work.astype(np.float64)
        gaps = np.zeros(len(rank.call))
        threads = np.array(threads_of(rank))
        for thread in set(threads.tolist()):
            at = np.flatnonzero(threads == thread)
            ends = rank.start_ns[at] + rank.elapsed_ns[at]
            gaps[at[1:]] = rank.start_ns[at[1:]] - ends[:-1]
        return np.maximum(gaps, 0.0)


def threads_of(rank: RankTrace) -> list[int]:
    """Return the thread that makes each call of a rank."""
    return [0] * len(rank.call) if rank.thread is None else rank.thread.tolist()


class Visit(NamedTuple):
    """One event of a rank: its number, call and thread, begin and end in ns from 0."""

    event: int
    call: Call
    thread: int
    begin: int
    end: int


def visits(run: Run, rank: RankTrace) -> Iterator[Visit]:
    """Yield the events of a rank in their order.

    Times of a thread never fall: what a cut-off clock says is moved up. The second half of an
    exchange (ops.HALVES) is an event of its own behind the first.
    """
    last = [0] * run.threads[rank.rank]
    columns = (rank.call, rank.start_ns + run.shift, rank.elapsed_ns)
    rows = zip(*(column.tolist() for column in columns), threads_of(rank), strict=True)
    for index, (call, start, long, thread) in enumerate(rows):
        begin = max(start, last[thread])
        last[thread] = max(start + long, begin)
        yield Visit(index, run.trace.calls[call], thread, begin, last[thread])


class End(NamedTuple):
    """One end of a message: rank and thread, when it was posted and when it ended, its bytes."""

    rank: int
    thread: int
    posted: int
    ended: int
    nbytes: int


def messages(run: Run) -> tuple[list[tuple[End, End, int]], int]:
    """Return (send, receive, tag) of each message, and how many ends have no other one.

    The k-th send of a way belongs to its k-th receive. A send ends when it begins, a receive where
    it is completed.
    """
    ways: dict[tuple[int, ...], tuple[list[End], list[End]]] = defaultdict(lambda: ([], []))
    for rank in run.trace.ranks:
        me, every = rank.rank, list(visits(run, rank))
        completed = {posting: every[by].end for by, posting in rank.done.tolist()}
        cancelled = set(rank.done[rank.cancelled, 1].tolist())
        for index, call, thread, begin, end in every:
            kind = kind_of(call.op)
            if kind not in (SEND, RECV) or call.peer < 0 or index in cancelled:
                continue
            sends = kind == SEND
            way = (me, call.peer) if sends else (call.peer, me)
            ended = begin if sends else max(completed.get(index, end), begin)
            one = End(me, thread, begin, ended, call.bytes)
            ways[(*way, call.comm, max(call.tag, 0))][not sends].append(one)
    pairs = [
        (send, receive, way[-1])
        for way, ends in ways.items()
        for send, receive in zip(*ends, strict=False)
    ]
    return pairs, sum(abs(len(sends) - len(receives)) for sends, receives in ways.values())


def name_call(op: str) -> str:
    """Return the name of the call that an event is part of; of a persistent one, what starts it."""
    return place_of(op) if kind_of(op) in (SEND, RECV, COLLECTIVE) else op


def plain(text: object) -> str:
    """Return text that is one line, and that XML can hold."""
    return "".join(c if c.isprintable() else "?" for c in str(text))
