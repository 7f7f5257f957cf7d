"""How far laws over threads are off where they were not fitted: without the largest runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from p3s.machine.topology.node import Node
from p3s.methods.threads.law import LARGEST, MEAN, NOT_MEASURED, Measured, fit_law
from p3s.methods.threads.types import Samples

PROCESSES, THREADS = "processes", "threads"
#: Fewer runs tell nothing of a law.
_LEAST = 3


@dataclass(frozen=True)
class HeldOut:
    """A law fitted without the runs with most processes, or most threads of one, compared there.

    what: PROCESSES or THREADS; largest: of what was left out; rows: how many; error: relative, root
    mean square; inside: the part of them in the law's intervals, which do not contain the noise
    of one run.
    """

    phase: int
    what: str
    largest: int
    rows: int
    error: float
    inside: float


def held_out(
    samples: Samples, node: Node, *, of: str = LARGEST, measured: Measured = NOT_MEASURED
) -> tuple[HeldOut, ...]:
    """Return how far the law of one phase's samples is off at the largest runs without them.

    Nothing is said of what has too few runs without its largest ones.
    """
    found = []
    for what, column in ((PROCESSES, samples.n), (THREADS, samples.threads)):
        out = column == column.max()
        if out.all() or np.count_nonzero(~out) < _LEAST:
            continue
        law = fit_law(samples.take(~out), node, of=of, measured=measured)
        left = samples.take(out)
        told = law.value(left.uses, left.work)
        y = (
            left.seconds
            if of == MEAN
            else np.where(np.isfinite(left.largest), left.largest, left.seconds)
        )
        inside = (told.low <= y) & (y <= told.high)
        error = float(np.sqrt(np.mean((told.seconds / y - 1.0) ** 2)))
        row = HeldOut(law.phase, what, int(column.max()), len(y), error, float(inside.mean()))
        found.append(row)
    return tuple(found)
