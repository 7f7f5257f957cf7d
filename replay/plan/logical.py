"""The logical order of steps: who can be done before whom, whatever anything costs (Lamport)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from p3s.base.arrays import Ints
from p3s.simulate.network import Network, Path, line
from p3s.simulate.simulate import simulate
from p3s.simulate.steps import Steps


@dataclass(frozen=True)
class Transit:
    """Messages between nodes in one section, in logical order.

    ``source``, ``target``: nodes; ``sent``, ``taken``: ticks between which it is on its way;
    ``bytes``; ``ticks``: length of the section.
    """

    source: Ints
    target: Ints
    sent: Ints
    taken: Ints
    bytes: Ints
    ticks: int


def completers(steps: Steps) -> Ints:
    """Return for each step the one that completes its request, -1 where none does."""
    found = np.full(len(steps), -1, dtype=np.int64)
    found[steps.done] = np.repeat(np.arange(len(steps)), np.diff(steps.done_start))
    return found


def logical_time(steps: Steps) -> tuple[Ints, Ints]:
    """Return the ticks at which every step begins and ends, from the start of the section.

    A step comes after the one before it on its rank and takes a tick, a completion one for each
    message that it receives; a message is there a tick after its send at the earliest (thesis
    A.4.2 counts receives a tick earlier). It is a simulation in which everything costs one and
    computation nothing. Errors: P3SError when ranks wait for each other for ever.
    """
    one = line(1.0)
    unit = Network({0: Path(one, one, one, math.inf, False)}, post=1.0, source="logical order")
    found = simulate(
        replace(steps, work_ns=np.zeros(len(steps))),
        np.zeros(steps.n, dtype=np.int64),
        unit,
        collective_ns=np.ones(len(steps)),
    )
    return np.rint(found.begin_ns).astype(np.int64), np.rint(found.end_ns).astype(np.int64)


def order_on_ranks(steps: Steps) -> tuple[Ints, Ints]:
    """Return the place of each step on its rank as its tick, where there is no order of all."""
    place = np.arange(len(steps)) - np.repeat(steps.start[:-1], np.diff(steps.start))
    return place, place + 1
