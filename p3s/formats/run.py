"""A run, traced or simulated, as exports write it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from p3s.base.ops import COLLECTIVE, RECV, SEND, kind_of, place_of
from p3s.capture.frames import Where

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from p3s.capture import RankTrace, RunTrace

    Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Run:
    """A run and what is known around it.

    ``places`` of frames; ``hosts`` of the ranks (empty: all on one machine); the ``program`` with
    its arguments; ``weights``: of a simulated run, of each rank and event how often it occurs in
    the whole run, None where the trace is the whole run. The work of its events is then ns.
    """

    trace: RunTrace
    places: Mapping[str, Where] = field(default_factory=dict)
    hosts: Sequence[str] = ()
    program: Sequence[str] = ()
    weights: Sequence[Floats] | None = None

    @property
    def simulated(self) -> bool:
        """Whether it was simulated."""
        return self.weights is not None

    @property
    def nodes(self) -> dict[str, list[int]]:
        """The ranks of each node, "node" where it is not known."""
        nodes: dict[str, list[int]] = {}
        for rank, host in enumerate(self.hosts or [""] * self.trace.np):
            nodes.setdefault(host or "node", []).append(rank)
        return nodes

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


def shown(op: str) -> str:
    """Return the name of the call that an event is part of; of a persistent one, what starts it."""
    return place_of(op) if kind_of(op) in (SEND, RECV, COLLECTIVE) else op


def plain(text: object) -> str:
    """Return text that is one line, and that XML can hold."""
    return "".join(c if c.isprintable() else "?" for c in str(text))
