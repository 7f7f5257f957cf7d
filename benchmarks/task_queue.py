"""Queues of tasks: predicted from few workers, beside a simulated run of many.

    python benchmarks/all.py --only task_queue

A master and workers are simulated one event at a time (no code in common with the model): tasks of
several distributions, new ones in every run, short and long services. What runs of 3, 5 and 8
processes show goes into the laws; 16, 32 and 64 processes are predicted and simulated.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np
from figures import Figure, Found

from p3s.methods.tasks.queue import ServerRecord, queue_of, time_of

TASKS, MEAN, WAY = 600, 1e-3, 2e-6
TRACED, ASKED = (3, 5, 8), (16, 32, 64)
SERVICES = (2e-6, 30e-6)
TRIALS = 10
Draw = Callable[[np.random.Generator], np.ndarray]


def _mean(values: np.ndarray) -> np.ndarray:
    return np.asarray(values * (MEAN * len(values) / values.sum()))


#: The first three were used while the model was written.
TASKS_OF: dict[str, Draw] = {
    "lognormal, sigma 0.8": lambda rng: rng.lognormal(np.log(MEAN) - 0.32, 0.8, TASKS),
    "gamma, shape 3": lambda rng: rng.gamma(3.0, MEAN / 3, TASKS),
    "constant": lambda rng: np.full(TASKS, MEAN),
    "exponential": lambda rng: rng.exponential(MEAN, TASKS),
    "one in 20 is 20 times as long": lambda rng: (
        np.where(rng.random(TASKS) < 0.05, 20.0, 1.0) * (MEAN / 1.95)
    ),
    "Pareto, index 2.5": lambda rng: (rng.pareto(2.5, TASKS) + 1.0) * MEAN * 0.6,
    "the same, ascending": lambda rng: np.sort(
        _mean(np.random.default_rng(7).lognormal(0.0, 1.0, TASKS))
    ),
    "the same, descending": lambda rng: (
        -np.sort(-_mean(np.random.default_rng(7).lognormal(0.0, 1.0, TASKS)))
    ),
}


def dealt(
    tasks: np.ndarray, workers: int, service: float, rng: np.random.Generator
) -> tuple[float, ServerRecord]:
    """Return how long a master with these tasks takes, and what its trace shows."""
    asks = [(WAY, worker) for worker in range(1, workers + 1)]
    left, of, took = tasks.tolist()[::-1], [], []
    free, stopped = 0.0, 0
    while stopped < workers:
        arrives, worker = heapq.heappop(asks)
        own = float(rng.gamma(4.0, service / 4))
        took.append(own)
        free = max(free, arrives) + own
        if left:
            heapq.heappush(asks, (free + 2 * WAY + left.pop(), worker))
            of.append(worker)
        else:
            stopped += 1
    ranks = tuple(range(1, workers + 1))
    shown = ServerRecord(0, ranks, tasks, np.array(of), np.array(took), 64.0, 8.0, ())
    return free + WAY, shown


def missed(draw: Draw, service: float) -> tuple[list[float], list[bool]]:
    """Return of all trials and counts the relative error, and whether the interval held."""
    off, inside = [], []
    for trial in range(TRIALS):
        rng = np.random.default_rng(trial)
        runs = {n: [(dealt(draw(rng), n - 1, service, rng)[1],)] for n in TRACED}
        found = queue_of(runs)
        assert found is not None
        for n in ASKED:
            truth, _ = dealt(draw(rng), n - 1, service, rng)
            made = time_of(found, n, WAY, 0.0)
            off.append(abs(made.seconds / truth - 1.0))
            inside.append(made.low <= truth <= made.high)
    return off, inside


def figures(quick: bool) -> Found:
    """Return the errors of each distribution, and how many intervals hold."""
    out, held, of_all = [], 0, 0
    for name, draw in list(TASKS_OF.items())[: 2 if quick else None]:
        for service in SERVICES:
            off, inside = missed(draw, service)
            of = f"queue of tasks, {name}, service of {service * 1e6:.0f} us"
            out.append(Figure(f"{of}: median error", 100 * float(np.median(off)), "%"))
            out.append(Figure(f"{of}: largest error", 100 * max(off), "%"))
            held, of_all = held + sum(inside), of_all + len(inside)
    share = 100 * held / of_all
    return Found((*out, Figure("queues of tasks: inside the 90 % interval", share, "%", 90, True)))
