"""A queue of tasks: workers ask a server for the next one, and whoever asks first gets it.

Which worker does which task depends on timing; how many there are does not. A run is a closed
queue: each worker computes, asks, waits for its turn at the server, is served, and computes again
(the machine repairman's model). ``run`` follows the requests one by one; ``throughput`` is the mean
value analysis of the same queue (Reiser and Lavenberg, J. ACM 27, 1980) for tasks without end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heapreplace

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

#: Requests that are followed one by one, at most; a longer run is this many and the rate after.
MOST_REQUESTS = 200_000
#: Draws, least and most, and how many requests they follow together.
_DRAWS, _REQUESTS = (8, 48), 200_000


@dataclass(frozen=True)
class Queue:
    """What a queue's times are, in seconds.

    ``service``: the server's time for one request, ``spread``: its standard deviation; ``way``: of
    one message between a worker and the server. ``servers``: ranks that hand out tasks, each to its
    own share of the workers.
    """

    service: float
    way: float
    spread: float = 0.0
    servers: int = 1


@dataclass(frozen=True)
class Course:
    """How a run went: its length, and the parts of it in which the server served, workers computed.

    ``busy``: of a server, ``working``: of a worker, both means and shares of ``seconds``.
    """

    seconds: float
    busy: float
    working: float


def run(
    queue: Queue, tasks: npt.ArrayLike, workers: int, rng: np.random.Generator | None = None
) -> Course:
    """Return the course of a run in which ``tasks`` (seconds, in this order) are handed out.

    All workers ask at the beginning and are told to stop at the end, first come, first served.
    Without ``rng`` every request takes the mean service. Several servers divide tasks and workers
    evenly; the run is as long as the longest of them.
    """
    todo = np.asarray(tasks, dtype=np.float64)
    parts = [todo[i :: queue.servers] for i in range(queue.servers)]
    crew = [len(range(i, workers, queue.servers)) for i in range(queue.servers)]
    found = [_one(queue, part, k, rng) for part, k in zip(parts, crew, strict=True) if k > 0]
    if not found:
        return Course(0.0, 0.0, 0.0)
    long = max(seconds for seconds, _ in found)
    busy = sum(served for _, served in found) / len(found)
    return Course(long, _share(busy, long), _share(float(todo.sum()) / workers, long))


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def _one(
    queue: Queue, tasks: Floats, workers: int, rng: np.random.Generator | None
) -> tuple[float, float]:
    """Return when the last worker of one server has stopped, and how long that has served."""
    followed = tasks[:MOST_REQUESTS]
    served = _services(queue, len(followed) + workers, rng)
    asks = [queue.way] * workers  # when requests arrive
    heapify(asks)
    free = 0.0
    away = 2 * queue.way
    for task, service in zip(followed.tolist(), served.tolist(), strict=False):
        free = max(free, asks[0]) + service
        heapreplace(asks, free + away + task)
    rest = tasks[len(followed) :]
    if len(rest):  # the same rate goes on
        last = len(followed) // 2
        rate = throughput(queue, float(followed[last:].mean()), workers)
        asks = [ask + len(rest) / rate for ask in asks]
        free += len(rest) / rate
    for ask, service in zip(sorted(asks), served[len(followed) :].tolist(), strict=True):
        free = max(free, ask) + service
    return free + queue.way, float(served.sum()) + len(rest) * queue.service


def _services(queue: Queue, number: int, rng: np.random.Generator | None) -> Floats:
    """Return service times; drawn from a gamma distribution, which is never negative."""
    if rng is None or not queue.spread > 0 or not queue.service > 0:
        return np.full(number, queue.service)
    shape = (queue.service / queue.spread) ** 2
    return np.asarray(rng.gamma(shape, queue.service / shape, number))


def throughput(queue: Queue, task: float, workers: int) -> float:
    """Return tasks per second in the long run, by mean value analysis; all servers together.

    Residence at the server with k workers is s (1 + length with k - 1), exact for exponential
    service; for less varying service it is a little low, at most by what the two bounds leave:
    1 / s and k / (s + task + 2 way).
    """
    crew = max(workers // queue.servers, 1)
    length, rate = 0.0, 0.0
    for k in range(1, crew + 1):
        stay = queue.service * (1.0 + length)
        rate = k / max(stay + task + 2 * queue.way, 1e-300)
        length = rate * stay
    return rate * queue.servers


def most_workers(queue: Queue, task: float) -> float:
    """Return the number of workers from which on the server is the limit: (s + t + 2 way) / s."""
    if not queue.service > 0:
        return np.inf
    return queue.servers * (queue.service + task + 2 * queue.way) / queue.service


@dataclass(frozen=True)
class Range:
    """The time of a run and the ends of its 90 % interval, in seconds; shares as in Course."""

    seconds: float
    low: float
    high: float
    busy: float
    working: float


def drawn(
    queue: Queue,
    tasks: Sequence[Floats],
    number: int,
    workers: int,
    *,
    fixed: bool,
    error: float = 0.0,
    seed: int = 0,
) -> Range:
    """Return the time of a run of ``number`` tasks, from tasks as they were measured in runs.

    ``tasks``: seconds of each run, in the order in which they were handed out. ``fixed``: the k-th
    task is the same one in every run: those of one run are taken after the other, as they are.
    Otherwise they are drawn: a sample of a run's tasks stands for it, so that what few tasks say of
    many is in the interval. ``error``: standard error of the mean service, relative.
    """
    draws = int(np.clip(_REQUESTS // max(number, 1), *_DRAWS))
    rng = np.random.default_rng(seed)
    found = []
    for i in range(draws):
        one = tasks[i % len(tasks)]
        if not fixed or len(one) != number:
            pool = rng.choice(one, len(one))
            one = rng.choice(pool, number)
        service = queue.service * max(1.0 + error * float(rng.standard_normal()), 0.0)
        found.append(run(replace(queue, service=service), one, workers, rng))
    seconds = np.array([each.seconds for each in found])
    low, middle, high = np.quantile(seconds, (0.05, 0.5, 0.95))
    return Range(
        float(middle),
        float(low),
        float(high),
        float(np.mean([each.busy for each in found])),
        float(np.mean([each.working for each in found])),
    )
