"""A queue of tasks: workers ask a server for the next one, and whoever asks first gets it.

Which worker does which task depends on timing; how many there are does not. A run is a closed
queue: each worker computes, asks, waits for its turn at the server, is served, and computes again
(the machine repairman's model). ``run`` follows the requests one by one; ``throughput`` is the mean
value analysis of the same queue (Reiser and Lavenberg, J. ACM 27, 1980) for tasks without end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heapreplace
from itertools import combinations

import numpy as np
import numpy.typing as npt

from p3s.base.arrays import Floats, Ints
from p3s.laws.statistics import low_median_high

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
    outcomes = [_one(queue, part, k, rng) for part, k in zip(parts, crew, strict=True) if k > 0]
    if not outcomes:
        return Course(0.0, 0.0, 0.0)
    long = max(seconds for seconds, _ in outcomes)
    busy = sum(served for _, served in outcomes) / len(outcomes)
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


def draw_run_time(
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
    courses = []
    for i in range(draws):
        one = tasks[i % len(tasks)]
        if not fixed or len(one) != number:
            pool = rng.choice(one, len(one))
            one = rng.choice(pool, number)
        service = queue.service * max(1.0 + error * float(rng.standard_normal()), 0.0)
        courses.append(run(replace(queue, service=service), one, workers, rng))
    seconds = np.array([each.seconds for each in courses])
    low, middle, high = low_median_high(seconds)
    return Range(
        float(middle),
        float(low),
        float(high),
        float(np.mean([each.busy for each in courses])),
        float(np.mean([each.working for each in courses])),
    )


@dataclass(frozen=True)
class ServerRecord:
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
        numbers_seen = list(self.numbers.values())
        return float(min(numbers_seen)), float(np.median(numbers_seen)), float(max(numbers_seen))

    def scale(self, n: int) -> float:
        """Return by how much a task at n is longer than at the largest traced count."""
        return float((self.workers(n) / self.workers(max(self.counts))) ** self.slope)

    def scales(self, n: int) -> set[float]:
        """Return the ends of ``scale``: what the power misses, and that tasks stay as they are
        where it misses much."""
        usual = self.scale(n)
        ends = {usual * (1.0 - self.misfit), usual * (1.0 + self.misfit)} if self.slope else {usual}
        return ends | {1.0} if self.misfit > _ALIKE else ends


def queue_of(runs: Mapping[int, Sequence[tuple[ServerRecord, ...]]]) -> TaskQueue | None:
    """Return the queue of a program from the servers of its runs, by count; None: it has none.

    Every run has to have the same servers, and all that are not servers have to be workers. A rank
    with a counter may be one, too.
    """
    flat = [(n, records) for n, several in sorted(runs.items()) for records in several]
    ranks = {tuple(one.server for one in records) for _, records in flat}
    if len(ranks) != 1 or not (servers := ranks.pop()):
        return None
    if len({_shape(n, records) for n, records in flat}) != 1 or (apart := _shape(*flat[0])) is None:
        return None
    tasks = tuple(np.concatenate([one.tasks for one in records]) for _, records in flat)
    counts = tuple(n for n, _ in flat)
    every = [one for _, records in flat for one in records]
    service = np.concatenate([one.service for one in every])
    numbers = {n: len(each) for n, each in zip(counts, tasks, strict=True)}
    shares = {n: np.concatenate([one.shares for one in records]) for n, records in flat}
    return TaskQueue(
        servers,
        numbers,
        _exact(numbers, len(apart)),
        tasks,
        counts,
        len(servers) == 1 and every[0].rounds == 1 and _has_fixed_tasks(tasks),
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


def _shape(n: int, records: Sequence[ServerRecord]) -> tuple[int, ...] | None:
    """Return a run's servers that do no tasks; None unless all others do, of one server each."""
    doing = [worker for one in records for worker in one.workers]
    servers = {one.server for one in records}
    both = {one.server for one in records if one.counter} & set(doing)
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


def _has_fixed_tasks(tasks: Sequence[Floats]) -> bool:
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


def time_of(task_queue: TaskQueue, n: int, way: float, software: float) -> Range:
    """Return the time of the queue at n processes, in s, with a 90 % interval.

    ``way``: seconds of a message between two ranks; ``software``: of the server's calls for a
    request. The ends hold the numbers of tasks that were seen where they have no law, and what the
    law of the mean task misses.
    """
    queue = Queue(task_queue.service + software, way, task_queue.spread, len(task_queue.servers))
    middle = _draw_range(task_queue, queue, n, task_queue.number(n)[1], task_queue.scale(n))
    ends = [middle]
    for number in sorted(set(task_queue.number(n))):
        for scale in sorted(task_queue.scales(n)):
            ends.append(_draw_range(task_queue, queue, n, number, scale))
    low, high = min(end.low for end in ends), max(end.high for end in ends)
    return Range(middle.seconds, low, high, middle.busy, middle.working)


def _draw_range(task_queue: TaskQueue, queue: Queue, n: int, number: float, scale: float) -> Range:
    # Lengths of other counts go with the workers; each run's are brought to what they are at n.
    last = task_queue.workers(max(task_queue.counts))
    samples = [
        each * scale * (last / task_queue.workers(count)) ** task_queue.slope
        for count, each in zip(task_queue.counts, task_queue.tasks, strict=True)
    ]
    error = task_queue.spread / max(task_queue.service, 1e-300) / np.sqrt(max(task_queue.served, 1))
    one = round(number / task_queue.rounds)
    drawn = draw_run_time(
        queue, samples, one, task_queue.workers(n), fixed=task_queue.fixed, error=error, seed=n
    )
    seconds, low, high = (task_queue.rounds * x for x in (drawn.seconds, drawn.low, drawn.high))
    return replace(drawn, seconds=seconds, low=low, high=high)
