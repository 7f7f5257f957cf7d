"""Costs of placements: lines over features, fronts, agreement, quick and learned costs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau

from p3s.machine.topology.read import read_fabric
from p3s.machine.topology.trees import one_switch
from p3s.methods.placement.costs import (
    LearnedCost,
    QuickCost,
    iterations_of,
    link_rates,
    whole_cost,
)
from p3s.methods.placement.learned import Card, LearnedModel, Widening
from p3s.methods.placement.lines import fit_nonnegative
from p3s.methods.placement.phases import PhaseTraffic, Traffic, traffic
from p3s.methods.placement.ranked.types import layers, matters
from p3s.methods.placement.ranking import agreement, r_squared, rcc
from p3s.methods.placement.trees import Trees
from p3s.program.mapping import rank_map
from p3s.simulate.network import rough_network


def test_no_coefficient_is_below_nothing() -> None:
    x = np.linspace(1, 100, 50)
    columns = {"a": x, "b": 1 / x, "c": np.zeros(50)}
    found = fit_nonnegative(((), ("a",), ("b",), ("c",)), columns, 2 + 3 * x)
    assert found.coefficients == pytest.approx((2, 3, 0, 0), abs=1e-9)
    falling = fit_nonnegative(((), ("a",)), columns, 200 - x)
    assert falling.coefficients[1] == 0 < falling.coefficients[0]


#: Three layers of three configurations each.
CORES = [1, 2, 4, 1, 2, 4, 1, 2, 4]
SECONDS = [9.0, 5.0, 3.0, 10.0, 6.0, 4.0, 11.0, 7.0, 5.0]


def test_layers() -> None:
    assert layers(CORES, SECONDS).tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert layers([1, 1, 2], [5.0, 5.0, 5.0]).tolist() == [0, 0, 1]  # equal ones are both in front
    assert layers([1, 1], [5.0, 4.0]).tolist() == [1, 0]  # equal costs do dominate
    assert layers([], []).tolist() == []


def test_placements_that_are_all_as_good() -> None:
    assert not matters([1.0, 1.04]) and matters([1.0, 1.05]) and not matters([1.0])
    assert not matters([1.0, 1.05], 1.1)


def test_constant_error_keeps_the_order() -> None:
    t = np.array([1.0, 2.0, 4.0, 8.0])
    found = agreement(t, 1.2 * t)
    assert found.mmre == pytest.approx(0.2) and found.within == 1 and found.rcc == 1
    assert found.r2 < 1 and found.log_median == pytest.approx(math.log(1.2))
    assert found.score == found.r2 * found.rcc
    assert agreement(t, -t).log_median == math.inf
    assert math.isnan(agreement([], []).mmre)


def test_order_and_ties() -> None:
    up, down = [1.0, 2.0, 3.0], [3.0, 2.0, 1.0]
    assert rcc(up, up) == 1 and rcc(up, down) == 0
    assert rcc(up, [1.0, 1.0, 1.0]) == 0  # ties are wrong
    assert r_squared(up, [2.0, 2.0, 2.0]) == 0
    assert math.isnan(r_squared([1.0, 1.0], [1.0, 1.0])) and math.isnan(rcc([1.0], [1.0]))
    with pytest.raises(ValueError):
        rcc([1.0], [1.0, 2.0])


@settings(max_examples=80, deadline=None)
@given(st.permutations(range(12)))
def test_without_ties_it_is_kendalls_tau(order) -> None:
    t = np.arange(12.0)
    p = np.array(order, dtype=float)
    tau = kendalltau(t, p).statistic
    assert rcc(t, p) == pytest.approx((1 + tau) / 2, abs=1e-12)


#: 1 us and 1 byte/ns between nodes, 100 ns and 10 bytes/ns inside; calls of their own are free.
NETWORK = rough_network(
    latency_ns=1000, rate=1.0, inside_latency_ns=100, inside_rate=10, overhead_ns=0
)
FABRIC = read_fabric("fat-tree:2,1", 4)


def phase(found: Traffic, iterations: float = 1.0) -> PhaseTraffic:
    return PhaseTraffic(1, "loop", iterations, found)


def placed(*node_of: int):
    return rank_map("by hand", np.array(node_of), ("",) * 4)


def cost(found: Traffic, *node_of: int) -> float:
    return QuickCost(NETWORK).of(phase(found), placed(*node_of), FABRIC).middle * 1e9


def test_one_message_takes_its_link_and_its_latency() -> None:
    """Five per cent of the mean of the links that are used, all alike here, are on top."""
    one = traffic(4, [0], [1], 10_000)
    assert cost(one, 0, 1, 2, 3) == pytest.approx(1.05 * 10_000 + 1000 / 2)
    assert cost(one, 0, 0, 2, 3) == pytest.approx((100 + 1000) / 2)


def test_messages_that_share_a_link_take_longer_than_those_that_do_not() -> None:
    two = traffic(4, [0, 1], [2, 3], 10_000)
    across, inside = cost(two, 0, 1, 2, 3), cost(two, 0, 2, 1, 3)
    assert across > 1.9 * inside, "one cable leads up from a leaf"


def test_links_carry_what_is_stated_but_nodes_no_more_than_was_measured() -> None:
    fast = read_fabric("fat-tree:2,1@80Gbit/s", 4)  # 10 bytes/ns
    rates = link_rates(fast, NETWORK)
    assert rates[:4].tolist() == [1.0] * 4 and set(rates[4:]) == {10.0}
    assert set(link_rates(FABRIC, NETWORK)) == {1.0}


def test_the_whole_is_the_sum_of_the_phases() -> None:
    parts = [phase(traffic(4, [0], [k], 1000)) for k in (1, 2, 3)]
    model = QuickCost(NETWORK)
    where = placed(0, 1, 2, 3)
    whole = whole_cost(model, parts, where, FABRIC)
    assert whole.middle == sum(model.of(part, where, FABRIC).middle for part in parts)
    assert whole.low is whole.high is None


def test_rare_messages_are_a_part_of_their_own() -> None:
    sent = traffic(4, [0, 1, 2], [1, 2, 3], 100, [200, 10, 5])
    found = list(iterations_of(phase(sent, 100.0)))
    assert [times for _, times in found] == [100.0, 10.0]
    assert [part.messages.tolist() for part, _ in found] == [[2], [1, 1]]


def model_of(seconds: float, most: float) -> LearnedModel:
    """A model that always says the same, learned from up to so many messages of a rank."""
    leaf = np.zeros(1, dtype=np.int64)
    ends = [
        Trees(leaf - 1, np.zeros(1), leaf - 1, leaf - 1, np.zeros(1), leaf, base=np.log(x))
        for x in (seconds, seconds / 2, seconds * 2)
    ]
    card = Card("box", "one switch", 20, 2)
    one = np.zeros(1), np.array([most]), Widening(), None, None
    return LearnedModel(card, ("PM(max)",), *one, *ends)


def test_a_learned_time_is_of_one_iteration() -> None:
    sent = traffic(4, [0], [1], 100, 50)
    found = LearnedCost(model_of(1e-3, 10)).of(phase(sent, 10.0), placed(0, 1, 2, 3), FABRIC)
    assert found.middle == pytest.approx(1e-2)
    assert (found.low, found.high) == (pytest.approx(5e-3), pytest.approx(2e-2))
    assert found.outside == ()
    few = LearnedCost(model_of(1e-3, 3)).of(phase(sent, 10.0), placed(0, 1, 2, 3), FABRIC)
    assert few.outside == ("PM(max)",)
    none = LearnedCost(model_of(1e-3, 3)).of(
        phase(traffic(4, [], [], [])), placed(0, 1, 2, 3), FABRIC
    )
    assert none.middle == 0


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(*[st.integers(0, 3)] * 2, st.integers(0, 10**6)), max_size=20), st.randoms()
)
def test_more_messages_never_cost_less(rows: list[tuple[int, int, int]], random) -> None:
    source, dest, size = (list(column) for column in zip(*rows, strict=True)) if rows else ([],) * 3
    where = placed(*(random.randrange(4) for _ in range(4)))
    model = QuickCost(NETWORK)
    some = phase(traffic(4, source, dest, size))
    more = phase(traffic(4, [*source, 0], [*dest, 1], [*size, 1000]))
    # The mean of the other links may fall by as much as 5 % of the busiest one.
    a, b = (model.of(each, where, FABRIC).middle for each in (some, more))
    assert b >= a * (1 - 0.05)
    assert one_switch(4).links
