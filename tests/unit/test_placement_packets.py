"""Packets on links: times worked out by hand, what is conserved, and what waiting tells."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packets import simulate_packets

from p3s.machine.topology.fabric import Fabric
from p3s.machine.topology.read import read_fabric
from p3s.methods.placement.allocation import allocation
from p3s.methods.placement.candidates import random_on
from p3s.methods.placement.links import link_features, network_links, paths
from p3s.methods.placement.phases import traffic
from p3s.program.mapping import block

RING = read_fabric("torus:8", 8)
K = 10


def cycles(fabric: Fabric, source: list[int], dest: list[int], **options: object) -> int:
    sent = traffic(fabric.nodes, source, dest, 512 * K)
    return simulate_packets(sent, block(fabric.nodes, 1), fabric, **options).cycles


@pytest.mark.parametrize("adaptive", [False, True])
def test_one_flow_takes_its_packets_and_its_way(adaptive) -> None:
    # One cycle to inject the first packet, one for each of the rest, one for each link.
    assert cycles(RING, [0], [1], adaptive=adaptive) == K + 1
    assert cycles(RING, [0], [4], adaptive=adaptive) == K + 4
    assert cycles(RING, [0], [7], adaptive=adaptive) == K + 1
    # Into two directions at once, and on links far from each other.
    assert cycles(RING, [0, 0], [3, 5], adaptive=adaptive) == K + 3
    assert cycles(RING, [0, 4], [2, 6], adaptive=adaptive) == K + 2


def test_two_flows_on_one_link_wait_for_each_other() -> None:
    sent = traffic(8, [0, 1], [2, 2], 512 * K)
    found = simulate_packets(sent, block(8, 1), RING)
    assert found.cycles == 2 * K + 1 and found.packets == 2 * K
    assert found.counters.buffered.sum() > 0
    apart = simulate_packets(traffic(8, [0, 4], [2, 6], 512 * K), block(8, 1), RING)
    assert apart.counters.buffered.sum() == 0


def test_messages_inside_nodes_and_none_take_no_time() -> None:
    for sent in (traffic(8, [0, 2], [1, 3], 99), traffic(8, [], [], [])):
        found = simulate_packets(sent, block(8, 2), read_fabric("torus:4", 4))
        assert found.cycles == found.packets == found.counters.received.sum() == 0


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["torus:3x4x2", "mesh:6x4", "fat-tree:4,2,6", "dragonfly:3,2,4"]),
    st.lists(st.tuples(*(st.integers(0, 47),) * 2, st.integers(0, 3000), st.integers(1, 3))),
    st.booleans(),
    st.integers(0, 5),
)
def test_what_is_sent_passes_as_many_links_as_its_way_has(told, rows, adaptive, seed) -> None:
    fabric = read_fabric(told, 24)
    s, d, b, m = ([row[k] for row in rows] for k in range(4))
    sent = traffic(48, s, d, b, m)
    adaptive = adaptive and told[0] in "tm"
    placed = random_on(48, allocation(24, 2), seed)
    found = simulate_packets(sent, placed, fabric, adaptive=adaptive, seed=seed)
    links = network_links(fabric)
    way = paths(sent, placed, fabric)
    values = link_features(sent, placed, fabric)
    assert found.counters.nbytes.sum() == pytest.approx(values["hop-bytes"])
    assert found.counters.nbytes[~links].sum() == 0
    assert (found.counters.buffered <= found.counters.received).all()
    number = np.maximum(-(-sent.nbytes // 512), 1) * sent.messages
    assert found.counters.received.sum() == (number * way.dilation[way.row]).sum()
    if not adaptive:
        loads = fabric.loads(way.source, way.dest, way.nbytes)
        assert found.counters.nbytes[links] == pytest.approx(loads[links])
        busiest = found.counters.received[links].max(initial=0)
        assert busiest <= found.cycles <= found.packets * (2 + way.dilation.max(initial=0))
    again = simulate_packets(sent, placed, fabric, adaptive=adaptive, seed=seed)
    assert again.cycles == found.cycles
    assert (again.counters.buffered == found.counters.buffered).all()
