"""Orders of ranks and nodes, placements in allocations, and the files that launchers read."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traffic_patterns import at_faces, fixed_halo

from p3s.base.errors import P3SError, UsageError
from p3s.machine.topology.read import read_fabric
from p3s.methods.placement.allocation import allocation, put
from p3s.methods.placement.candidates import (
    block_on,
    candidates,
    cyclic_on,
    hilbert,
    morton,
    random_on,
    rows,
    snake,
    tiled,
    tiles_of,
    tilted,
    turned,
)
from p3s.methods.placement.links import link_features
from p3s.methods.placement.within import as_text, returns
from p3s.program.mapping import block, cyclic, rank_map, read_rank_file


def test_orders_by_hand() -> None:
    assert turned((2, 3), (1, 0)).tolist() == [0, 3, 1, 4, 2, 5]
    assert snake((2, 3)).tolist() == [0, 1, 2, 5, 4, 3]
    assert morton((2, 4)).tolist() == [0, 1, 4, 5, 2, 3, 6, 7]
    assert hilbert((2, 2)).tolist() in ([0, 2, 3, 1], [0, 1, 3, 2])
    assert tiled((4, 4), [(2, 2)]).tolist()[:8] == [0, 1, 4, 5, 2, 3, 6, 7]
    assert tiled((4, 4), [(1, 2), (2, 1)]).tolist() == tiled((4, 4), [(2, 2)]).tolist()
    assert tiled((2, 3), [(2, 2)]).tolist() == [0, 1, 3, 4, 2, 5]
    assert tilted((3, 3), 0, 1, 1).tolist() == [0, 1, 2, 4, 5, 3, 8, 6, 7]
    assert tiles_of((4, 6), 6) == [(1, 6), (2, 3)] and tiles_of((3, 3), 4) == []
    for bad in (lambda: tiled((2, 2), [(2,)]), lambda: tilted((2, 2), 1, 1, 1)):
        with pytest.raises(P3SError):
            bad()


dims = st.lists(st.integers(1, 6), min_size=1, max_size=4)


@settings(max_examples=80, deadline=None)
@given(dims)
def test_every_order_visits_every_cell_once(grid) -> None:
    cells = list(range(math.prod(grid)))
    for order in (rows, snake, morton, hilbert):
        assert sorted(order(grid)) == cells
    assert sorted(tiled(grid, [[2] * len(grid), [3] * len(grid)])) == cells
    if len(grid) > 1:
        assert sorted(tilted(grid, 0, 1, 2)) == cells


@pytest.mark.parametrize("order", [snake, hilbert])
@pytest.mark.parametrize("grid", [(4, 4), (16, 16), (4, 4, 4), (8, 8, 8), (2, 2, 2, 2)])
def test_steps_of_curves_are_to_neighbours(order, grid) -> None:
    at = np.stack(np.unravel_index(order(grid), grid))
    assert (np.abs(np.diff(at, axis=1)).sum(axis=0) == 1).all()


def test_placements_in_an_allocation() -> None:
    where = allocation(3, [2, 1, 3])
    assert block_on(6, where).node_of.tolist() == [0, 0, 1, 2, 2, 2]
    assert cyclic_on(6, where).node_of.tolist() == [0, 1, 2, 0, 2, 2]
    assert block_on(2, where).nodes == 3
    found = put("", np.array([3, 1, 2, 0]), np.array([2, 0, 1]), where)
    assert found.node_of.tolist() == [0, 2, 2, 2]
    assert (random_on(6, where, 1).node_of == random_on(6, where, 1).node_of).all()
    assert (random_on(6, where, 1).sizes == where.slots).all()
    even = allocation(3, 4)
    assert (block_on(12, even).node_of == block(12, 4).node_of).all()
    assert (cyclic_on(12, even).node_of == cyclic(12, 4).node_of).all()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: allocation(0, 1), "at least one"),
        (lambda: allocation(2, 0), "0 ranks per node"),
        (lambda: allocation(2, [1, 2, 3]), "slots of 3 nodes"),
        (lambda: allocation(2, 1, ["a"]), "1 hosts are named"),
        (lambda: allocation(2, 1, ["a", "a"]), "host a is named twice"),
        (lambda: block_on(5, allocation(2, 2)), "5 ranks need 5 slots, 2 nodes have 4"),
        (lambda: candidates(5, allocation(2, 2)), "5 ranks need"),
        (lambda: candidates(4, allocation(2, 2), grid=(3, 2)), "does not have 4 ranks"),
    ],
)
def test_what_does_not_fit_is_one_line(make, why) -> None:
    with pytest.raises(P3SError, match=why) as err:
        make()
    assert "\n" not in str(err.value)


@pytest.mark.parametrize("told", ["torus:4x4x4", "fat-tree:8,4,8", "dragonfly:8,4,2", "mesh:8x8"])
@pytest.mark.parametrize("grid", [(8, 8, 8), (), (16, 32)])
def test_eighty_four_different_placements(told, grid) -> None:
    where, fabric = allocation(64, 8), read_fabric(told, 64)
    found = candidates(512, where, grid=grid, fabric=fabric, seed=3)
    assert len({x.node_of.tobytes() for x in found}) == len(found) == 84
    assert len({x.kind for x in found}) == 84
    assert [x.kind for x in found[:2]] == ["block", "cyclic"]
    assert all((x.sizes == 8).all() for x in found)
    again = candidates(512, where, grid=grid, fabric=fabric, seed=3)
    assert all((a.node_of == b.node_of).all() for a, b in zip(found, again, strict=True))
    assert sum("random" in x.kind for x in found) >= 28


def test_few_ranks_have_few_placements() -> None:
    assert len(candidates(1, allocation(1, 1))) == 1
    # Four ranks on two nodes: two of four on the first.
    assert len(candidates(4, allocation(2, 2), number=200)) == 6


def test_tiles_shorten_the_way_of_a_halo() -> None:
    torus, where = read_fabric("torus:4x4x4", 64), allocation(64, 8)
    sent = fixed_halo((8, 8, 8), at_faces(3), 1000)
    cost = {
        x.kind: link_features(sent, x, torus)["hop-bytes"]
        for x in candidates(512, where, grid=(8, 8, 8), fabric=torus)
    }
    assert min(cost, key=cost.__getitem__) == "tiles 2x2x2"
    assert cost["tiles 2x2x2"] < cost["block"] < cost["random 0"]


def test_nodes_that_are_a_part_of_a_torus(tmp_path) -> None:
    torus = read_fabric("torus:4x4", 16)
    names = tuple(f"+n{k}" for k in (1, 2, 5, 6, 9, 10))
    found = candidates(12, allocation(6, 2, names), grid=(3, 4), fabric=torus, number=20)
    assert all((x.sizes == 2).all() and x.names == names for x in found)


def test_files_by_hand() -> None:
    placed = rank_map("", np.array([0, 1, 1, 0]), ("a", "b"))
    assert as_text(placed, "openmpi").splitlines() == [
        "rank 0=a slot=0", "rank 1=b slot=0", "rank 2=b slot=1", "rank 3=a slot=1",
    ]  # fmt: skip
    assert as_text(placed, "mpich") == "a:1\nb:2\na:1\n"
    assert as_text(placed, "slurm") == "a\nb\nb\na\n"
    nameless = rank_map("", np.array([0, 1]), ("", ""))
    assert as_text(nameless, "openmpi") == "rank 0=+n0 slot=0\nrank 1=+n1 slot=0\n"
    for format_, why in (("mpich", "needs the names"), ("slurm", "--hosts"), ("x", "no such")):
        with pytest.raises(UsageError, match=why):
            as_text(nameless, format_)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 99), st.sampled_from("mos"))
def test_what_is_written_is_read(tmp_path_factory, nodes, ppn, seed, first) -> None:
    format_ = {"m": "mpich", "o": "openmpi", "s": "slurm"}[first]
    where = allocation(nodes, ppn, [f"n{k}.site" for k in range(nodes)])
    placed = random_on(max(where.room - 1, 1), where, seed)
    path = tmp_path_factory.mktemp("placed") / "file"
    path.write_text(as_text(placed, format_))
    again = read_rank_file(path, placed.n)
    hosts, wanted = ([each.names[k] for k in each.node_of] for each in (again, placed))
    assert hosts == wanted and (again.slot_of == placed.slot_of).all()


def test_mpich_lists_count_ranks(tmp_path) -> None:
    path = tmp_path / "hosts"
    path.write_text("a:2  # two\nb\na:5\n")
    assert read_rank_file(path, 5).node_of.tolist() == [0, 0, 1, 0, 0]


def test_ranks_that_come_back_to_a_host_are_noticed() -> None:
    where = allocation(4, 2)
    assert not returns(block_on(8, where)) and returns(cyclic_on(8, where))
    assert not returns(cyclic_on(4, where))
