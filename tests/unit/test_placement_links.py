"""Distances, loads, outliers and queues: examples by hand, and what always holds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traffic_patterns import at_faces, fixed_halo

from p3s.base.errors import P3SError
from p3s.machine.topology.read import read_fabric
from p3s.methods.placement.links import (
    above_average,
    link_bytes,
    link_features,
    longest_queue,
    mean_of,
    near_largest,
    paths,
    prior_metrics,
)
from p3s.methods.placement.phases import traffic
from p3s.program.mapping import block, rank_map


def test_six_metrics_on_a_ring_of_four() -> None:
    ring = read_fabric("torus:4", 4)
    # 0 to 1, 10 bytes; 0 to 2 by way of 1, 20 bytes: eight directed links in all.
    sent = traffic(4, [0, 0], [1, 2], [10, 20])
    assert prior_metrics(paths(sent, block(4, 1), ring), ring) == {
        "max dilation": 2,
        "avg dilation": 1.5,
        "hop-bytes": 50,
        "hops per byte": 50 / 30,
        "avg bytes": 50 / 8,
        "max bytes": 30,
    }


def test_links_of_nodes_count_on_networks_of_switches() -> None:
    tree = read_fabric("fat-tree:2,1,2", 4)
    sent = traffic(4, [0, 0], [1, 2], [10, 20])
    found = prior_metrics(paths(sent, block(4, 1), tree), tree)
    # Node, leaf, node: 2 links; node, leaf, top, leaf, node: 4. Twelve directed links.
    assert found["max dilation"] == 4 and found["avg dilation"] == 3
    assert found["max bytes"] == 30 and found["avg bytes"] == (20 + 80) / 12


def test_outliers() -> None:
    v = np.array([1, 2, 3, 10, 9.6])
    assert v[above_average(v)].tolist() == [10, 9.6] and v[near_largest(v)].tolist() == [10, 9.6]
    same = np.array([0.1] * 6)
    assert mean_of(same, above_average(same)) == 0
    assert near_largest(same).all() and mean_of(same, near_largest(same)) == pytest.approx(0.1)
    none = np.zeros(0)
    assert mean_of(none, above_average(none)) == mean_of(none, near_largest(none)) == 0


def test_queues_of_a_ring() -> None:
    ring = read_fabric("torus:8", 8)
    sent = traffic(8, [0, 0, 0, 0, 0], [1, 2, 3, 7, 0], 8)  # three up, one down, one to itself
    found = paths(sent, block(8, 1), ring)
    assert longest_queue(found, ring) == 3
    assert longest_queue(paths(sent, block(8, 8), ring), ring) == 0


def test_far_messages_and_nodes() -> None:
    ring = read_fabric("torus:8", 8)
    # Distances 1, 1, 4 and twice 2: mean 10 / 5 = 2, above it only the one of 4.
    sent = traffic(8, [0, 1, 2, 3], [1, 2, 6, 5], 8, [1, 1, 1, 2])
    found = link_features(sent, block(8, 1), ring)
    assert found["sum dilation AO"] == found["sum hops AO"] == 4
    # Nodes: 1, 1, 4, 2 and four with none: mean 1, above it 4 and 2.
    assert found["sum maxdil AO"] == 6


def test_nodes_by_name() -> None:
    ring = read_fabric("torus:4", 4)
    sent = traffic(2, [0], [1], 10)
    found = paths(sent, rank_map("", np.array([0, 1]), ("+n3", "+n1")), ring)
    assert (found.source.tolist(), found.dest.tolist(), found.dilation.tolist()) == ([3], [1], [2])
    with pytest.raises(P3SError, match="has 4 nodes"):
        paths(sent, rank_map("", np.array([0, 1]), ("+n3", "+n4")), ring)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["torus:3x4x2", "mesh:6x4", "fat-tree:4,2,6", "dragonfly:3,2,4", "torus:24"]),
    st.lists(st.tuples(*(st.integers(0, 47),) * 2, st.integers(0, 99), st.integers(1, 3))),
    st.permutations(range(24)),
)
def test_links_carry_what_messages_are_times_how_far_they_go(told, rows, order) -> None:
    fabric = read_fabric(told, 24)
    s, d, b, m = ([row[k] for row in rows] for k in range(4))
    sent = traffic(48, s, d, b, m)
    found = paths(sent, rank_map("", np.repeat(order, 2), ("",) * 24), fabric)
    loads, metrics = link_bytes(found, fabric), prior_metrics(found, fabric)
    assert loads.sum() == metrics["hop-bytes"]
    assert loads.mean() == pytest.approx(metrics["avg bytes"])
    values = link_features(sent, rank_map("", np.repeat(order, 2), ("",) * 24), fabric)
    assert all(np.isfinite(list(values.values())))
    assert values["avg bytes"] <= values["avg bytes TO"] + 1e-9 <= values["max bytes"] + 2e-9


def test_a_halo_on_a_torus_of_its_shape_goes_one_link() -> None:
    torus = read_fabric("torus:4x4", 16)
    values = link_features(fixed_halo((4, 4), at_faces(2), 100), block(16, 1), torus)
    assert values["max dilation"] == values["avg dilation"] == 1
    assert values["avg bytes"] == values["max bytes"] == 100 and values["max FIFO"] == 1
    assert values["sum dilation AO"] == values["avg bytes AO"] == 0
