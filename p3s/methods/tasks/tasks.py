"""Laws of a queue of tasks over the process count: how many there are, how long, how served.

Totals are laws; which worker did how many is not, it depends on timing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from p3s.methods.tasks.queue import Floats, Queue, Range, drawn
from p3s.methods.tasks.served import Served

#: Correlation of the k-th tasks of two runs from which on they are the same tasks.
_SAME = 0.9
#: Mean tasks of different counts that differ by no more are the same; and those whose trend is
#: not above so many of its standard errors, by the spread of the tasks.
_ALIKE, _BEYOND_CHANCE = 0.10, 3.0


@dataclass(frozen=True)
class TaskQueue:
    """A program's queue as its traced runs show it.

    ``servers``: their ranks, the same at every count; ``apart``: those that do no tasks
    themselves; ``counter``: it is one that workers fetch from. ``numbers``: tasks by count.
    ``exact``:
    (constant, per worker) of the law of their number, None where it is none. ``tasks``: of each
    run, seconds in the order in which they were handed out, ``counts``: of these runs.
    ``fixed``: the k-th task is the same one in every run. ``slope``: power of the number
    of workers with which the mean task goes, 0 where it stays; ``misfit``: by which part that
    misses a mean at most. ``service``, ``spread``: of the server for one request, in s, of
    ``served`` requests.
    ``asked``, ``told``: bytes of a message to the server, and from it. ``shares``: least and
    most tasks of a worker, by count. ``rounds``: the tasks are handed out in so many parts, with
    all together in between; ``messages``, ``inside``, ``phases``: as in Served.
    """

    servers: tuple[int, ...]
    numbers: Mapping[int, int]
    exact: tuple[int, int] | None
    tasks: tuple[Floats, ...]
    counts: tuple[int, ...]
    fixed: bool
    slope: float
    misfit: float
    service: float
    spread: float
    served: int
    asked: float
    told: float
    shares: Mapping[int, tuple[int, int]]
    apart: tuple[int, ...]
    counter: bool = False
    rounds: int = 1
    messages: float = 2.0
    inside: tuple[float, float] = (0.0, 0.0)
    phases: int = 2

    def workers(self, n: int) -> int:
        """Return how many of n processes do tasks."""
        return n - len(self.apart)

    def exchanged(self, n: int) -> float:
        """Return the most messages at n processes that belong to tasks and requests."""
        return self.messages * (self.number(n)[2] + self.workers(n) * self.rounds)

    def number(self, n: int) -> tuple[float, float, float]:
        """Return the tasks at n processes: the least, the usual, and the most."""
        if n in self.numbers:
            return (float(self.numbers[n]),) * 3
        if self.exact is not None:
            constant, each = self.exact
            return (float(constant + each * self.workers(n)),) * 3
        seen = list(self.numbers.values())
        return float(min(seen)), float(np.median(seen)), float(max(seen))

    def scale(self, n: int) -> float:
        """Return by how much a task at n is longer than at the largest traced count."""
        return float((self.workers(n) / self.workers(max(self.counts))) ** self.slope)

    def scales(self, n: int) -> set[float]:
        """Return the ends of ``scale``: what the power misses, and that tasks stay as they are
        where it misses much."""
        there = self.scale(n)
        ends = {there * (1.0 - self.misfit), there * (1.0 + self.misfit)} if self.slope else {there}
        return ends | {1.0} if self.misfit > _ALIKE else ends


def queue_of(runs: Mapping[int, Sequence[tuple[Served, ...]]]) -> TaskQueue | None:
    """Return the queue of a program from the servers of its runs, by count; None: it has none.

    Every run has to have the same servers, and all that are not servers have to be workers. A rank
    with a counter may be one, too.
    """
    flat = [(n, found) for n, several in sorted(runs.items()) for found in several]
    ranks = {tuple(one.server for one in found) for _, found in flat}
    if len(ranks) != 1 or not (servers := ranks.pop()):
        return None
    if len({_shape(n, found) for n, found in flat}) != 1 or (apart := _shape(*flat[0])) is None:
        return None
    tasks = tuple(np.concatenate([one.tasks for one in found]) for _, found in flat)
    counts = tuple(n for n, _ in flat)
    every = [one for _, found in flat for one in found]
    service = np.concatenate([one.service for one in every])
    numbers = {n: len(each) for n, each in zip(counts, tasks, strict=True)}
    shares = {n: np.concatenate([one.shares for one in found]) for n, found in flat}
    return TaskQueue(
        servers,
        numbers,
        _exact(numbers, len(apart)),
        tasks,
        counts,
        len(servers) == 1 and every[0].rounds == 1 and _fixed(tasks),
        *_slope([n - len(apart) for n in counts], tasks),
        float(np.mean(service)),
        float(np.std(service)),
        len(service),
        float(np.mean([one.asked for one in every])),
        float(np.mean([one.told for one in every])),
        {n: (int(each.min()), int(each.max())) for n, each in shares.items()},
        apart,
        every[0].counter,
        every[0].rounds,
        max(one.messages for one in every),
        tuple(np.mean([one.inside for one in every], axis=0).tolist()),
        max(one.phases for one in every),
    )


def _shape(n: int, found: Sequence[Served]) -> tuple[int, ...] | None:
    """Return a run's servers that do no tasks; None unless all others do, of one server each."""
    doing = [worker for one in found for worker in one.workers]
    servers = {one.server for one in found}
    both = {one.server for one in found if one.counter} & set(doing)
    if len(set(doing)) != len(doing) or len(servers | set(doing)) != n:
        return None
    return tuple(sorted(servers - both)) if servers & set(doing) == both else None


def _exact(numbers: Mapping[int, int], apart: int) -> tuple[int, int] | None:
    """Return (constant, per worker) of a law that all counts obey; two counts tell a constant."""
    points = sorted((n - apart, number) for n, number in numbers.items())
    if len({number for _, number in points}) == 1:
        return points[0][1], 0
    if len(points) < 3:
        return None
    (first, low), (last, high) = points[0], points[-1]
    each, rest = divmod(high - low, last - first)
    fits = not rest and all(number == low + each * (k - first) for k, number in points)
    return (low - each * first, each) if fits else None


def _fixed(tasks: Sequence[Floats]) -> bool:
    """Tell whether the k-th task is the same one in every run: equal numbers, alike in length."""
    if len(tasks) < 2 or len({len(each) for each in tasks}) != 1:
        return False
    return all(
        float(np.std(a)) > 0 and float(np.std(b)) > 0 and float(np.corrcoef(a, b)[0, 1]) >= _SAME
        for a, b in combinations(tasks, 2)
    )


def _slope(workers: Sequence[int], tasks: Sequence[Floats]) -> tuple[float, float]:
    """Return the power of the workers with which mean tasks go, and by which part it misses them.

    The power is 0 where they are alike, or differ by chance.
    """
    means = np.array([float(each.mean()) for each in tasks])
    if len(set(workers)) < 2 or not (means > 0).all():
        return 0.0, 0.0
    if means.max() <= (1.0 + _ALIKE) * means.min():
        return 0.0, 0.0
    x = np.log(np.array(workers, dtype=float))
    errors = np.array([float(each.std()) / np.sqrt(len(each)) for each in tasks]) / means
    slope, constant = np.polyfit(x, np.log(means), 1)
    away = (x - x.mean()) / float(((x - x.mean()) ** 2).sum())
    if abs(slope) <= _BEYOND_CHANCE * float(np.sqrt(((away * errors) ** 2).sum())):
        return 0.0, 0.0
    misfit = float(np.abs(np.expm1(np.log(means) - constant - slope * x)).max())
    return float(slope), min(misfit, 0.9)


def time_of(found: TaskQueue, n: int, way: float, software: float) -> Range:
    """Return the time of the queue at n processes, in s, with a 90 % interval.

    ``way``: seconds of a message between two ranks; ``software``: of the server's calls for a
    request. The ends hold the numbers of tasks that were seen where they have no law, and what the
    law of the mean task misses.
    """
    queue = Queue(found.service + software, way, found.spread, len(found.servers))
    middle = _drawn(found, queue, n, found.number(n)[1], found.scale(n))
    ends = [middle]
    for number in sorted(set(found.number(n))):
        for scale in sorted(found.scales(n)):
            ends.append(_drawn(found, queue, n, number, scale))
    low, high = min(end.low for end in ends), max(end.high for end in ends)
    return Range(middle.seconds, low, high, middle.busy, middle.working)


def _drawn(found: TaskQueue, queue: Queue, n: int, number: float, scale: float) -> Range:
    # Lengths of other counts go with the workers; each run's are brought to what they are at n.
    last = found.workers(max(found.counts))
    samples = [
        each * scale * (last / found.workers(count)) ** found.slope
        for count, each in zip(found.counts, found.tasks, strict=True)
    ]
    error = found.spread / max(found.service, 1e-300) / np.sqrt(max(found.served, 1))
    one = round(number / found.rounds)
    made = drawn(queue, samples, one, found.workers(n), fixed=found.fixed, error=error, seed=n)
    seconds, low, high = (found.rounds * x for x in (made.seconds, made.low, made.high))
    return replace(made, seconds=seconds, low=low, high=high)
