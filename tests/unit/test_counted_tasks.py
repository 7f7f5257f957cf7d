"""Counters that hand out tasks, told from those whose numbers are always used."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from p3s.capture.types import Call, RankTrace, RunTrace
from p3s.methods.tasks.queue import queue_of, time_of
from p3s.methods.tasks.recognise import counter_of

FETCH, FLUSH, ADD, BARRIER, END = range(5)


def _call(op: str, peer: int, nbytes: int, window: int = 0, comm: int = -1) -> Call:
    return Call(op, 3, comm, peer, nbytes, 8, -1, -1, count=nbytes // 8, window=window)


CALLS = (
    _call("MPI_Fetch_and_op", 0, 8),
    _call("MPI_Win_flush", 0, 0),
    _call("MPI_Accumulate", 1, 3200),
    _call("MPI_Barrier", -1, 0, -1, 0),
    _call("MPI_Finalize", -1, 0, -1),
)


@dataclass
class _Rank:
    call: list[int] = field(default_factory=list)
    start: list[int] = field(default_factory=list)
    work: list[int] = field(default_factory=list)

    def event(self, call: int, start: float, work: float = 0.0) -> None:
        self.call.append(call)
        self.start.append(int(start * 1e9))
        self.work.append(int(work * 1e9))


def _run(ranks: dict[int, _Rank], calls: tuple[Call, ...] = CALLS) -> RunTrace:
    traces = [
        RankTrace(
            number,
            True,
            np.array(rank.call, dtype=np.int32),
            np.array(rank.start, dtype=np.int64),
            np.zeros(len(rank.call), dtype=np.int64),
            np.array(rank.work, dtype=np.int64),
        )
        for number, rank in sorted(ranks.items())
    ]
    return RunTrace(len(traces), Path("run"), calls, (), (), traces)


def dealt(
    tasks: list[float], n: int, *, apart: bool = False, rounds: int = 1, used: bool = False
) -> RunTrace:
    """A run of n ranks that take the next number and do that task; rank 0 only if not ``apart``.

    used: the last number that a rank gets means work, too.
    """
    ranks = {r: _Rank() for r in range(n)}
    clock = 0.0
    for _ in range(rounds):
        free = [(clock, r) for r in range(int(apart), n)]
        before = dict.fromkeys(ranks, 0.0)
        left = list(reversed(tasks))
        while free:
            now, r = heapq.heappop(free)
            clock = max(clock, now)
            ranks[r].event(FETCH, now, before[r])
            ranks[r].event(FLUSH, now)
            before[r] = 0.0
            if left:
                task = left.pop()
                ranks[r].event(ADD, now, task / 2)
                before[r] = task / 2
                heapq.heappush(free, (now + task, r))
            elif used:
                before[r] = float(np.mean(tasks))
        for r, rank in ranks.items():
            rank.event(BARRIER, clock, before[r])
    for rank in ranks.values():
        rank.event(END, clock)
    return _run(ranks)


TASKS = np.random.default_rng(2).lognormal(-7, 0.6, 200).tolist()


@pytest.mark.parametrize("apart", [False, True])
def test_what_a_counter_hands_out(apart: bool) -> None:
    served = counter_of(dealt(TASKS, 5, apart=apart))
    assert served is not None and served.counter and served.server == 0
    assert served.workers == tuple(range(int(apart), 5))
    assert served.tasks == pytest.approx(TASKS, abs=3e-9)  # in the order of their numbers
    assert served.shares.sum() == len(TASKS) and (served.asked, served.rounds) == (8.0, 1)
    # there, back, the flush's answer, and the sum that is added
    requests = len(TASKS) + len(served.workers)
    assert served.messages == pytest.approx((3 * requests + len(TASKS)) / requests)
    assert served.inside == (1.0, 3200.0)


@pytest.mark.parametrize(("apart", "rounds"), [(False, 1), (True, 1), (False, 4)])
def test_the_time_at_other_counts(apart: bool, rounds: int) -> None:
    runs = {n: [(counter_of(dealt(TASKS, n, apart=apart, rounds=rounds)),)] for n in (3, 5, 8)}
    found = queue_of(runs)  # type: ignore[arg-type]
    assert found is not None and found.workers(32) == 32 - apart
    assert found.exact == (rounds * len(TASKS), 0) and found.fixed == (rounds == 1)
    truth = max(r.start_ns[-1] for r in dealt(TASKS, 32, apart=apart, rounds=rounds).ranks) / 1e9
    made = time_of(found, 32, 1e-9, 0.0)
    assert made.seconds == pytest.approx(truth, rel=1e-3 if rounds == 1 else 0.15)


def test_numbers_that_are_always_used_are_no_tasks() -> None:
    assert counter_of(dealt(TASKS, 5)) is not None
    assert counter_of(dealt(TASKS, 5, used=True)) is None


def test_numbers_taken_once_between_collectives_are_no_tasks() -> None:
    ranks = {r: _Rank() for r in range(4)}
    for rank in ranks.values():
        for step in range(20):
            rank.event(FETCH, step)
            rank.event(BARRIER, step + 0.5, 1e-3)
        rank.event(END, 20)
    assert counter_of(_run(ranks)) is None


def test_several_places_are_no_counter() -> None:
    calls = (*CALLS, _call("MPI_Fetch_and_op", 1, 8))
    run = dealt(TASKS, 5)
    assert counter_of(RunTrace(5, run.path, calls, (), (), run.ranks)) is None
