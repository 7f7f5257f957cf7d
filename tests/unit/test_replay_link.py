"""Medians, links and call costs of a replay against numbers that are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from replay_made import event, program_of, world_of

from p3s.replay.costs.link import Flood, fit_link
from p3s.replay.costs.messages import PAIR, TRACE, message_costs, observations
from p3s.replay.costs.thesis import MEASURED, NONE, call_costs
from p3s.replay.engine.results import ProgramResult, interval_rank, median_interval
from p3s.replay.plan.classes import CallClass, MessageClass
from p3s.replay.plan.program import Code


def test_median_interval_is_that_of_order_statistics() -> None:
    # 95 % tables: of 10 values the 2nd and 9th, of 20 the 6th and 15th, of 100 the 40th and 61st.
    for count, rank in ((6, 0), (10, 1), (20, 5), (100, 39)):
        assert interval_rank(count) == rank
    assert abs(interval_rank(1000) - 468) <= 1
    found = median_interval([3.0, 1.0, 2.0, math.nan])
    assert (found.cost_ns, found.low_ns, found.high_ns, found.n_samples) == (2.0, 1.0, 3.0, 3)
    assert median_interval([]).n_samples == 0


def bucket(
    senders: int,
    rate: float,
    burst: float,
    *,
    noise: float,
    latency: float = 60_000.0,
    fast: float = 1.0,
    messages: int = 40,
    size: float = 65536.0,
) -> Flood:
    """Return arrivals behind a token bucket, with noise of the median over passes."""
    rng = np.random.default_rng(3)
    sent = np.arange(1, messages + 1) * size
    ns = latency + np.maximum(sent / fast, (sent - burst) / rate)
    return Flood(senders, sent, np.sort(ns * np.exp(rng.normal(0.0, noise, len(ns)))))


@pytest.mark.parametrize(("rate", "burst"), [(0.0238, 131072.0), (0.119, 262144.0)])
def test_link_finds_rate_and_burst(rate: float, burst: float) -> None:
    found = fit_link([bucket(1, rate, burst, noise=0.0)])
    assert found.rate == pytest.approx(rate, rel=0.005)
    assert found.burst == pytest.approx(burst, rel=0.1)
    assert found.residual < 0.005
    noisy = fit_link([bucket(1, rate, burst, noise=0.01)])
    assert noisy.rate == pytest.approx(rate, rel=0.03)
    assert noisy.burst == pytest.approx(burst, rel=0.35)
    assert noisy.low <= noisy.rate * 1.02 and noisy.high >= noisy.rate * 0.98


def test_link_without_burst_is_a_steady_rate() -> None:
    found = fit_link([bucket(1, 12.5, 0.0, noise=0.002, fast=100.0, size=1 << 20)])
    assert found.rate == pytest.approx(12.5, rel=0.02)
    assert found.burst == pytest.approx(0.0, abs=3e6)


def test_link_that_senders_do_not_share_has_no_limit() -> None:
    # Each sender is as fast as its core; together they carry four times as much.
    one = Flood(1, np.arange(1, 41) * 65536.0, np.arange(1, 41) * 20_000.0)
    four = Flood(4, np.arange(1, 161) * 65536.0, np.arange(1, 161) * 5_000.0)
    assert math.isinf(fit_link([one, four]).rate)
    shared = Flood(4, np.arange(1, 161) * 65536.0, np.arange(1, 161) * 20_000.0)
    assert fit_link([one, shared]).rate == pytest.approx(65536.0 / 20_000.0, rel=0.01)
    assert math.isinf(fit_link([]).rate)


def results_of(transfer: np.ndarray, event_ns: np.ndarray, sampled: list[int]) -> ProgramResult:
    passes = len(event_ns)
    return ProgramResult(
        passes,
        np.zeros((passes, 4)),
        np.array(sampled, dtype=np.int64),
        event_ns,
        np.zeros(len(sampled)),
        transfer,
        np.zeros((passes, 0)),
        0.0,
        np.zeros(0),
    )


def test_messages_take_the_pair_before_the_trace_and_only_what_waits_alone() -> None:
    world = world_of(1)
    lists = {
        0: [event(Code.SEND, 1, bytes=100, sample=0)] * 2,
        1: [event(Code.RECV, 0, bytes=100, sample=1)] * 2,
    }
    # class 0 completes alone in the trace, class 1 does not; class 2 has no sample anywhere
    trace = program_of(world, lists, pairing=[(0, 0, 1, 0, 0, 0, 1), (1, 0, 1, 1, 1, 1, 0)])
    pair = program_of(world, lists, what="pair", pairing=[(1, 0, 1, 1, 1, 1, 1)])
    passes = 8
    event_ns = np.full((passes, 4), 10.0)
    first = np.column_stack([np.full(passes, 50.0), np.full(passes, 999.0)])
    first[3, 0] = np.nan  # nobody waited in that pass
    second = np.full((passes, 1), 80.0)
    classes = [
        MessageClass(100, 1, 1, 5.0),
        MessageClass(200, 1, 1, 5.0),
        MessageClass(300, 1, 1, 5.0),
    ]
    found = message_costs(
        classes,
        observations(
            classes,
            [trace, pair],
            {
                0: results_of(first, event_ns, [0, 1, 2, 3]),
                1: results_of(second, event_ns, [0, 1, 2, 3]),
            },
            world,
        ),
    )
    assert [cost.how for cost in found] == [TRACE, PAIR, "none"]
    assert [cost.estimate.cost_ns for cost in found] == [50.0, 80.0, 0.0]
    assert found[0].estimate.n_samples == passes - 1


def test_calls_cost_the_mean_of_a_pass() -> None:
    world = world_of(1)
    lists = {
        0: [event(Code.SEND, 1, bytes=100, sample=0)] * 2,
        1: [event(Code.RECV, 0, bytes=100, sample=1)] * 2,
    }
    trace = program_of(world, lists)
    event_ns = np.tile([10.0, 30.0, 5.0, 7.0], (9, 1))
    send = CallClass("MPI_Send", "send", 100, 1, 1, 0, 0, 2.0)
    classes = [
        send,
        CallClass("MPI_Recv", "recv", 100, 1, 1, 0, 0, 2.0),
        CallClass("MPI_Send", "send", 200, 1, 4, 0, 0, 2.0),
        CallClass("MPI_Allreduce", "collective", 8, 1, 1, 0, 4, 2.0),
    ]
    results = {0: results_of(np.zeros((9, 0)), event_ns, [0, 1, 2, 3])}
    found = call_costs(classes, [trace], results)
    assert [cost.how for cost in found] == [MEASURED, MEASURED, NONE, NONE]
    assert [cost.estimate.cost_ns for cost in found] == [20.0, 6.0, 0.0, 0.0]
