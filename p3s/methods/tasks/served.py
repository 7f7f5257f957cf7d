"""What ranks that hand out tasks did in a run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Served:
    """What one server did in a run.

    ``server``: its rank; ``workers``: those that it heard from. ``tasks``: seconds of computation
    of each task, in the order in which they were handed out; ``of``: which worker did it.
    ``service``: seconds of computation of the server for each request that it answered;
    ``asked``, ``told``: mean bytes of a message to the server, and from it. ``sites``: call sites
    (indices of RunTrace.sites) of its wildcard calls. ``counter``: workers fetch from it, and it
    may be a worker itself; ``rounds``: how often all tasks of a kind were handed out, with a
    collective call behind them. ``messages`` of a request, those of its task among them;
    ``inside``: how many of a task are its own, and their mean bytes. ``phases``: of the program
    that all this is in, at most.
    """

    server: int
    workers: tuple[int, ...]
    tasks: Floats
    of: Ints
    service: Floats
    asked: float
    told: float
    sites: tuple[int, ...]
    counter: bool = False
    rounds: int = 1
    messages: float = 2.0
    inside: tuple[float, float] = (0.0, 0.0)
    phases: int = 2

    @property
    def shares(self) -> Ints:
        """How many tasks each worker did, ascending by worker."""
        return np.array([(self.of == w).sum() for w in self.workers], dtype=np.int64)
