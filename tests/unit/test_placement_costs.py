"""Costs of phases under placements: the quick one by hand, a learned one, iterations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p3s.machine.topology.read import read_fabric
from p3s.machine.topology.trees import one_switch
from p3s.methods.placement.costs import (
    LearnedCost,
    QuickCost,
    iterations_of,
    link_rates,
    whole_cost,
)
from p3s.methods.placement.learned import Card, Learned, Widening
from p3s.methods.placement.phases import PhaseTraffic, Traffic, traffic
from p3s.methods.placement.trees import Trees
from p3s.program.mapping import rank_map
from p3s.simulate.network import rough_network

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


def model_of(seconds: float, most: float) -> Learned:
    """A model that always says the same, learned from up to so many messages of a rank."""
    leaf = np.zeros(1, dtype=np.int64)
    ends = [
        Trees(leaf - 1, np.zeros(1), leaf - 1, leaf - 1, np.zeros(1), leaf, base=np.log(x))
        for x in (seconds, seconds / 2, seconds * 2)
    ]
    card = Card("box", "one switch", 20, 2)
    one = np.zeros(1), np.array([most]), Widening(), None, None
    return Learned(card, ("PM(max)",), *one, *ends)


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
