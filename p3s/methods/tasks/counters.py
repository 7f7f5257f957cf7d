"""Hardware counters by sampling: sets that exclude each other take turns over the iterations.

Source: A. Castellanos Carrazana, UAB 2014, section 3.5.1: processors do not count every pair of
events at once, so each thread reads one set in some of its iterations, drawn at random, and scales
each count to all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from p3s.base.errors import P3SError, UsageError

#: Blocks of iterations that take turns for each set, at least, where there are iterations enough.
BLOCKS = 32


class Backend(Protocol):
    """What counts events of the calling thread."""

    def why_not(self, events: Sequence[str]) -> str:
        """Return why these cannot be counted together here, "" where they can."""

    def start(self, events: Sequence[str]) -> None:
        """Begin to count."""

    def stop(self) -> Sequence[float]:
        """End, and return the counts in the order of the events."""


@dataclass(frozen=True)
class Sampled:
    """A scaled count: of all iterations; read: in how many of them it was counted."""

    event: str
    count: float
    read: int
    iterations: int


def sample(
    backend: Backend,
    sets: Sequence[Sequence[str]],
    iterations: int,
    body: Callable[[int, int], None],
    *,
    seed: int = 0,
) -> list[Sampled]:
    """Run ``body`` (first, past the last iteration) over all iterations and return all counts.

    sets: events that are counted together, one set at a time. Iterations are cut into blocks that
    sets are drawn for; every set has as many blocks, give or take one. P3SError where a set cannot
    be counted here or there are fewer iterations than sets.
    """
    if not sets or not all(sets) or iterations < len(sets):
        raise UsageError(
            f"{iterations} iterations cannot be shared by {len(sets)} sets of counters"
        )
    for events in sets:
        why = backend.why_not(events)
        if why:
            raise P3SError(f"counters {', '.join(events)}: unavailable: {why}")
    bounds = _bounds(iterations, len(sets))
    turns = _turns(len(bounds) - 1, len(sets), seed)
    totals = {event: 0.0 for events in sets for event in events}
    read = dict.fromkeys(totals, 0)
    for which, first, last in zip(turns, bounds[:-1], bounds[1:], strict=True):
        backend.start(sets[which])
        body(first, last)
        for event, count in zip(sets[which], backend.stop(), strict=True):
            totals[event] += count
            read[event] += last - first
    return [
        Sampled(event, total * iterations / read[event], read[event], iterations)
        for event, total in totals.items()
    ]


def _bounds(iterations: int, sets: int) -> list[int]:
    """Return where blocks of iterations begin, and the end."""
    blocks = min(BLOCKS * sets, iterations // sets * sets)
    return [int(at) for at in np.linspace(0, iterations, blocks + 1).round()]


def _turns(blocks: int, sets: int, seed: int) -> list[int]:
    """Return the set of each block: in every row of blocks each set once, in random order.

    So no set is bound to a part of the loop, and a rate that rises along it is met by all.
    """
    rng = np.random.default_rng(seed)
    rows = [rng.permutation(sets) for _ in range(-(-blocks // sets))]
    return [int(which) for which in np.concatenate(rows)[:blocks]]
