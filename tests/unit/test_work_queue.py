"""The queue of tasks against a simulator of the plainest kind, bounds, and theory."""

import numpy as np
import pytest

from p3s.methods.tasks.queue import (
    MOST_REQUESTS,
    Queue,
    draw_run_time,
    most_workers,
    run,
    throughput,
)


def plain(tasks: list[float], workers: int, service: float, way: float) -> float:
    """One event at a time, in the words of the program: no heap, no shortcuts."""
    clock = 0.0
    inbox = [(way, w) for w in range(workers)]  # (arrives, worker)
    stopped, todo, end = 0, list(tasks), 0.0
    while stopped < workers:
        inbox.sort()
        arrives, worker = inbox.pop(0)
        clock = max(clock, arrives) + service
        if todo:
            inbox.append((clock + way + todo.pop(0) + way, worker))
        else:
            stopped, end = stopped + 1, clock + way
    return end


@pytest.mark.parametrize("workers", [1, 2, 7, 31])
@pytest.mark.parametrize("service", [0.0, 1e-5, 1e-3])
def test_a_run_is_what_the_program_does(workers: int, service: float) -> None:
    tasks = np.random.default_rng(workers).gamma(2.0, 1e-3, 200)
    found = run(Queue(service, 2e-6), tasks, workers)
    assert found.seconds == pytest.approx(plain(tasks.tolist(), workers, service, 2e-6), rel=1e-12)
    assert 0 <= found.busy <= 1.0 + 1e-9 and 0 < found.working <= 1.0


def test_no_more_than_the_server_can_serve() -> None:
    queue = Queue(1e-3, 0.0)
    tasks = np.full(2000, 4e-3)
    assert most_workers(queue, 4e-3) == pytest.approx(5.0)
    few, many, more = (run(queue, tasks, k).seconds for k in (2, 20, 200))
    assert few == pytest.approx(2000 * 5e-3 / 2, rel=0.01)
    assert many == pytest.approx(2.0, rel=0.02) and more >= many


def test_mean_values_are_those_of_theory() -> None:
    # one worker: a cycle after the other; no waiting
    assert throughput(Queue(1.0, 0.5), 3.0, 1) == pytest.approx(1 / 5.0)
    # M/M/1//2 with z = s = 1: utilisation 1 - p0, p0 = 1 / (1 + 2 + 2)
    assert throughput(Queue(1.0, 0.0), 1.0, 2) == pytest.approx(0.8)


def test_the_long_run_goes_at_the_rate_of_mean_values() -> None:
    rng = np.random.default_rng(3)
    queue = Queue(1e-3, 0.0, spread=1e-3)  # exponential
    tasks = rng.exponential(8e-3, 20_000)
    found = run(queue, tasks, 8, rng)
    assert found.seconds == pytest.approx(20_000 / throughput(queue, 8e-3, 8), rel=0.03)


def test_more_requests_than_are_followed_go_on_at_the_same_rate() -> None:
    queue = Queue(1e-6, 1e-6)
    tasks = np.random.default_rng(1).gamma(4.0, 1e-4, MOST_REQUESTS + 100_000)
    whole = float(tasks.sum()) / 16
    assert run(queue, tasks, 16).seconds == pytest.approx(whole, rel=0.02)


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    """Traced at 4 workers, asked at 16 and 32: other draws of the same distribution."""
    inside = 0
    for trial in range(40):
        rng = np.random.default_rng(trial)
        traced = [rng.lognormal(-7.0, 0.8, 400) for _ in range(3)]
        queue = Queue(2e-6, 1e-6)
        workers = 16 if trial % 2 else 32
        truth = run(queue, rng.lognormal(-7.0, 0.8, 400), workers).seconds
        found = draw_run_time(queue, traced, 400, workers, fixed=False, seed=trial)
        inside += found.low <= truth <= found.high
        assert found.low <= found.seconds <= found.high
    assert inside >= 30  # 90 % of 40 are 36, by chance no less than 31 in 99 of 100 cases
