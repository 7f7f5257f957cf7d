"""Laws of a queue of tasks, from runs of a simulated master and workers with known parameters."""

import heapq

import numpy as np
import pytest

from p3s.methods.tasks.queue import ServerRecord, TaskQueue, queue_of, time_of

SERVICE, WAY = 5e-6, 2e-6


def dealt(tasks: list[float], workers: int, service: float = SERVICE) -> tuple[float, ServerRecord]:
    """What a master with these tasks does: its time, and what a trace of it shows."""
    asks = [(WAY, w) for w in range(1, workers + 1)]
    free, left, of = 0.0, list(reversed(tasks)), []
    end, stopped = 0.0, 0
    while stopped < workers:
        arrives, worker = heapq.heappop(asks)
        free = max(free, arrives) + service
        if left:
            heapq.heappush(asks, (free + 2 * WAY + left.pop(), worker))
            of.append(worker)
        else:
            end, stopped = free + WAY, stopped + 1
    served = np.full(len(tasks) + workers, service)
    ranks = tuple(range(1, workers + 1))
    return end, ServerRecord(0, ranks, np.array(tasks), np.array(of), served, 64.0, 8.0, ())


def learned(make, counts=(3, 5, 8)) -> TaskQueue:  # type: ignore[no-untyped-def]
    found = queue_of({n: [(dealt(make(n), n - 1)[1],)] for n in counts})
    assert found is not None
    return found


def test_tasks_per_worker_and_other_tasks_in_every_run() -> None:
    def make(n: int) -> list[float]:
        return np.random.default_rng(n).gamma(3.0, 2e-4, 20 + 40 * (n - 1)).tolist()

    found = learned(make)
    assert not found.fixed and found.exact == (20, 40)
    for n in (16, 32):
        truth, _ = dealt(make(n), n - 1)
        made = time_of(found, n, WAY, 0.0)
        assert made.low <= truth <= made.high
        assert made.seconds == pytest.approx(truth, rel=0.1)


def test_tasks_that_get_shorter_with_more_workers() -> None:
    def make(n: int) -> list[float]:
        return np.random.default_rng(n).gamma(50.0, 1e-2 / 50 / (n - 1), 600).tolist()

    found = learned(make)
    assert found.slope == pytest.approx(-1.0, abs=0.02)
    truth, _ = dealt(make(32), 31)
    assert time_of(found, 32, WAY, 0.0).seconds == pytest.approx(truth, rel=0.1)


def test_numbers_without_a_law_are_told_by_what_was_seen() -> None:
    numbers = {3: 100, 5: 140, 8: 110}
    found = learned(lambda n: [1e-3] * numbers[n])
    assert found.exact is None and found.number(16) == (100.0, 110.0, 140.0)
    made = time_of(found, 16, WAY, 0.0)
    assert made.low <= dealt([1e-3] * 110, 15)[0] <= made.high
    assert made.high / made.low > 1.2


def test_other_servers_at_other_counts_are_no_queue_with_a_law() -> None:
    one = dealt([1e-3] * 20, 2)[1]
    other = ServerRecord(1, (0, 2), one.tasks, one.of, one.service, 1.0, 1.0, ())
    assert queue_of({3: [(one,), (other,)]}) is None
    assert queue_of({4: [(one,)]}) is None  # rank 3 does no tasks
    assert queue_of({3: [()]}) is None
