"""Placements worked out from traffic: halves that talk little, swaps that pay."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traffic_patterns import all_to_all_in_rows, at_faces, fixed_halo, halo

from p3s.base.errors import UsageError
from p3s.machine.topology.read import read_fabric
from p3s.methods.placement.allocation import allocation
from p3s.methods.placement.candidates import block_on, cyclic_on, random_on
from p3s.methods.placement.features import class_b
from p3s.methods.placement.links import link_bytes, paths
from p3s.methods.placement.phases import traffic
from p3s.methods.placement.search import bisect_ranks, improve_by_swaps, swapped_nodes

pytest.importorskip("kahip")
TREE = read_fabric("fat-tree:4,2,4", 16)


def test_ranks_that_talk_share_a_node() -> None:
    # Rows of four talk among themselves and are dealt out over the ranks.
    mixed = np.random.default_rng(0).permutation(64)
    rows = all_to_all_in_rows((16, 4), 1, 1000)
    sent = traffic(64, mixed[rows.source], mixed[rows.dest], rows.nbytes)
    where = allocation(16, 4)
    assert class_b(sent, block_on(64, where))["TD"] > 0
    found = bisect_ranks(sent, where, TREE)
    assert class_b(sent, found)["TD"] == 0 and (found.sizes == 4).all()


def link_cost(sent, fabric):
    """Return a cost: bytes of the busiest link, and a little for all others."""

    def cost(placed):
        loads = link_bytes(paths(sent, placed, fabric), fabric)
        return float(loads.max(initial=0.0) + loads.mean())

    return cost


@pytest.mark.parametrize("told", ["fat-tree:4,2,4", "torus:4x4", "dragonfly:4,2,2", "mesh:2x8"])
def test_a_halo_is_cut_better_than_dealt_out(told) -> None:
    fabric, where = read_fabric(told, 16), allocation(16, 4)
    sent = fixed_halo((8, 8), at_faces(2), 1000)
    cost = link_cost(sent, fabric)
    found = bisect_ranks(sent, where, fabric)
    assert cost(found) < cost(cyclic_on(64, where)) and cost(found) < cost(random_on(64, where, 0))
    assert class_b(sent, found)["TD"] <= 1.1 * 16 * 8 * 1000  # tiles of 2 x 2 send as much


@pytest.mark.parametrize(
    ("told", "most"),
    [("torus:4x4x4", 0.5), ("mesh:4x4x4", 0.5), ("torus:8x8", 0.8), ("dragonfly:4,4,4", 0.8)],
)
def test_halves_that_talk_are_near_each_other(told, most) -> None:
    fabric, where = read_fabric(told, 64), allocation(64, 4)
    sent = halo((4, 8, 8), (128, 128, 128))

    def cost(placed):
        loads = link_bytes(paths(sent, placed, fabric), fabric)
        return float(loads.max()), float(loads.sum())

    arranged = bisect_ranks(sent, where, fabric, arranged=True)
    found, usual = cost(arranged), cost(block_on(256, where))
    assert found[0] < most * usual[0] and found[1] < usual[1]


@given(st.integers(2, 9), st.integers(0, 1 << 30))
@settings(max_examples=40, deadline=None)
def test_nodes_change_their_ranks_for_fewer_bytes_times_links(number, seed) -> None:
    rng = np.random.default_rng(seed)
    between, apart = (np.triu(rng.integers(0, 9, (number, number)), 1) for _ in range(2))
    between, apart = between + between.T.astype(float), apart + apart.T.astype(float)
    slots = rng.integers(1, 3, number)
    goes = swapped_nodes(between, apart, slots)
    assert sorted(goes.tolist()) == list(range(number)) and (slots[goes] == slots).all()
    before, after = (between * apart).sum(), (between * apart[np.ix_(goes, goes)]).sum()
    assert after <= before
    for a, b in zip(*np.triu_indices(number, 1), strict=True):
        if slots[a] == slots[b]:
            other = goes.copy()
            other[[a, b]] = other[[b, a]]
            assert (between * apart[np.ix_(other, other)]).sum() >= after - 1e-9


def test_swaps_never_make_it_worse() -> None:
    where = allocation(16, 4)
    sent = fixed_halo((8, 8), at_faces(2), 1000)
    cost = link_cost(sent, TREE)
    begin = random_on(64, where, 0)
    found, least = improve_by_swaps(begin, cost, 300)
    assert least == cost(found) < cost(begin) and (found.sizes == 4).all()
    same, price = improve_by_swaps(begin, cost, 0)
    assert same is begin and price == cost(begin)
    alone = block_on(4, allocation(1, 4))
    assert improve_by_swaps(alone, lambda _: 1.0, 10) == (alone, 1.0)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=16),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 1 << 40))),
    st.sampled_from(["fat-tree:4,2,4", "torus:4x4", "dragonfly:4,2,2"]),
)
def test_every_rank_has_a_slot(slots, rows, told) -> None:
    where = allocation(len(slots), slots)
    ranks = min(10, where.room)
    s, d, b = ([row[k] % (ranks if k < 2 else 1 << 41) for row in rows] for k in range(3))
    for arranged in (False, True):
        sent, fabric = traffic(ranks, s, d, b), read_fabric(told, 16)
        found = bisect_ranks(sent, where, fabric, arranged=arranged)
        assert found.n == ranks and (found.sizes <= where.slots).all()


def test_too_few_slots() -> None:
    with pytest.raises(UsageError, match="9 ranks need 9 slots"):
        bisect_ranks(traffic(9, [], [], []), allocation(2, 4), TREE)
