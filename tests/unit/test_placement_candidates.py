"""Candidates for placements, features of their traffic, and the links that it takes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traffic_patterns import at_faces, fixed_halo

from p3s.base.errors import P3SError, UsageError
from p3s.machine.topology.fabric import Level
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
    tiles_of,
    visit_rows,
    visit_tiles,
    visit_tilted,
)
from p3s.methods.placement.features import CLASS_A, class_a, class_b, class_c
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
from p3s.methods.placement.phases import Traffic, traffic
from p3s.methods.placement.within import as_text, returns
from p3s.program.mapping import RankMap, block, cyclic, rank_map, read_rank_file


def test_orders_by_hand() -> None:
    assert visit_rows((2, 3), (1, 0)).tolist() == [0, 3, 1, 4, 2, 5]
    assert snake((2, 3)).tolist() == [0, 1, 2, 5, 4, 3]
    assert morton((2, 4)).tolist() == [0, 1, 4, 5, 2, 3, 6, 7]
    assert hilbert((2, 2)).tolist() in ([0, 2, 3, 1], [0, 1, 3, 2])
    assert visit_tiles((4, 4), [(2, 2)]).tolist()[:8] == [0, 1, 4, 5, 2, 3, 6, 7]
    assert visit_tiles((4, 4), [(1, 2), (2, 1)]).tolist() == visit_tiles((4, 4), [(2, 2)]).tolist()
    assert visit_tiles((2, 3), [(2, 2)]).tolist() == [0, 1, 3, 4, 2, 5]
    assert visit_tilted((3, 3), 0, 1, 1).tolist() == [0, 1, 2, 4, 5, 3, 8, 6, 7]
    assert tiles_of((4, 6), 6) == [(1, 6), (2, 3)] and tiles_of((3, 3), 4) == []
    for bad in (lambda: visit_tiles((2, 2), [(2,)]), lambda: visit_tilted((2, 2), 1, 1, 1)):
        with pytest.raises(P3SError):
            bad()


dims = st.lists(st.integers(1, 6), min_size=1, max_size=4)


@settings(max_examples=80, deadline=None)
@given(dims)
def test_every_order_visits_every_cell_once(grid) -> None:
    cells = list(range(math.prod(grid)))
    for order in (rows, snake, morton, hilbert):
        assert sorted(order(grid)) == cells
    assert sorted(visit_tiles(grid, [[2] * len(grid), [3] * len(grid)])) == cells
    if len(grid) > 1:
        assert sorted(visit_tilted(grid, 0, 1, 2)) == cells


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


#: Eight ranks on four nodes, two a node: what each sends to whom.
SENT = traffic(
    8, [0, 0, 1, 2, 4, 6, 7], [1, 2, 4, 0, 6, 7, 3], [100, 200, 300, 50, 400, 10, 500],
    [1, 1, 1, 2, 1, 1, 1],
)  # fmt: skip


Levels = tuple[Level, ...]


def features(sent: Traffic, placed: RankMap, levels: Levels = (), pairs: bool = False):
    """Return the features of all classes."""
    found = class_a(sent, placed) | class_b(sent, placed)
    return found | class_c(sent, placed, levels, pairs)


def vilje(switch: list[int], rack: list[int]) -> Levels:
    return Level("sw", "S", np.array(switch)), Level("r", "R", np.array(rack))


def spread(name: str, *values: float) -> dict[str, float]:
    return dict(zip((f"{name}({s})" for s in ("min", "avg", "max")), values, strict=True))


def test_all_columns_of_an_example_by_hand() -> None:
    # Node 0 sends 200 to node 1 and 300 to node 2, node 1 sends 2 x 50 to node 0, node 2 sends
    # 400 to node 3, node 3 sends 500 to node 1; switches hold nodes 0, 1 and 2, 3.
    found = features(SENT, block(8, 2), vilje([0, 0, 1, 1], [0, 0, 0, 0]))
    assert found == {
        "n": 4, "ppn": 2, "l(max)": 500, "PD(max)": 500, "PM(max)": 2,
        **spread("ND", 100, 375, 500), **spread("NM", 1, 1.5, 2),
        **spread("iND", 0, 27.5, 100), **spread("iNM", 0, 0.5, 1),
        "TD": 1500, "TM": 6,
        "sw": 2, "r": 1, "n/sw(avg)": 2, "n/sw(max)": 2, "sw/r(avg)": 2, "sw/r(max)": 2,
        **spread("SD", 300, 400, 500), **spread("SM", 1, 1, 1),
        **spread("iSD", 300, 350, 400), **spread("iSM", 1, 2, 3),
        **spread("RD", 0, 0, 0), **spread("RM", 0, 0, 0),
        **spread("iRD", 800, 800, 800), **spread("iRM", 2, 2, 2),
    }  # fmt: skip
    assert len(found) == 49


def test_the_most_between_two_groups_is_a_column_too() -> None:
    node = np.arange(4)
    aries = Level("a", "A", node), Level("c", "C", node // 2), Level("g", "G", node // 2)
    daint = class_c(SENT, block(8, 2), aries, pairs=True)
    # The source has two less, nodes of each Aries: all of its have as many.
    assert len(daint) - 2 == 45 and len(features(SENT, block(8, 2), aries, pairs=True)) - 2 == 64
    # Between the two groups: 300 in one message there, 500 in one back.
    assert (daint["GGD"], daint["GGM"]) == (500, 1)
    assert len(CLASS_A) == 5 and len(features(SENT, block(8, 2))) == 19


def test_levels_that_do_not_fit_are_refused() -> None:
    for levels, why in (
        (vilje([0, 0, 1], [0, 0, 0]), "there are 4"),
        (vilje([0, 0, 1, 1], [0, 1, 1, 1]), "lowest to the highest"),
    ):
        with pytest.raises(P3SError, match=why):
            class_c(SENT, block(8, 2), levels)
    with pytest.raises(P3SError, match="placement is of 4 ranks"):
        features(SENT, block(4, 2))


def test_levels_of_a_tree(tmp_path) -> None:
    file = tmp_path / "topology.conf"
    file.write_text(
        "SwitchName=s0 Nodes=n[0-1]\nSwitchName=s1 Nodes=n[2-3]\nSwitchName=s2 Nodes=n4\n"
        "SwitchName=r0 Switches=s[0-1]\nSwitchName=top Switches=r0,s2\n"
    )
    first, second = read_fabric(str(file), 5).levels()
    assert first.of.tolist() == [0, 0, 1, 1, 2]
    assert second.of.tolist() == [3, 3, 3, 3, 4]
    assert first.at(np.array([4, 0])).of.tolist() == [2, 0]


@st.composite
def placed_traffic(draw) -> tuple[Traffic, RankMap, Levels]:
    nodes = draw(st.integers(1, 8))
    ranks = draw(st.integers(1, 24))
    rank, node = st.integers(0, ranks - 1), st.integers(0, nodes - 1)
    rows = draw(st.lists(st.tuples(rank, rank, st.integers(0, 999), st.integers(1, 3))))
    s, d, b, m = ([row[k] for row in rows] for k in range(4))
    node_of = np.array(draw(st.lists(node, min_size=ranks, max_size=ranks)))
    switch = np.array(draw(st.lists(st.integers(0, 4), min_size=nodes, max_size=nodes)))
    rack = np.array(draw(st.lists(st.integers(0, 2), min_size=5, max_size=5)))[switch]
    levels = (Level("sw", "S", switch), Level("r", "R", rack))
    placed = rank_map("", node_of, tuple(f"h{k}" for k in range(nodes)))
    return traffic(ranks, s, d, b, m), placed, levels


@settings(max_examples=200, deadline=None)
@given(placed_traffic())
def test_what_one_level_sends_the_next_one_keeps_or_sends(made) -> None:
    sent, placed, levels = made
    found = features(sent, placed, levels, pairs=True)

    def whole(name: str, number: float) -> float:
        return found[f"{name}(avg)"] * number

    nodes, switches, racks = placed.nodes, found["sw"], found["r"]
    for kind, total in (("D", sent.volume.sum()), ("M", sent.number)):
        close = pytest.approx
        assert found[f"T{kind}"] + whole(f"iN{kind}", nodes) == close(total)
        assert whole(f"N{kind}", nodes) == close(found[f"T{kind}"])
        assert whole(f"N{kind}", nodes) == close(
            whole(f"iS{kind}", switches) + whole(f"S{kind}", switches)
        )
        assert whole(f"S{kind}", switches) == close(
            whole(f"iR{kind}", racks) + whole(f"R{kind}", racks)
        )
        assert found[f"RR{kind}"] <= found[f"R{kind}(max)"]
        if racks == 1:
            assert found[f"R{kind}(max)"] == 0
        if nodes == 1:
            assert found[f"T{kind}"] == 0
    for name, value in found.items():
        if name.endswith("(avg)"):
            assert value <= found[name.replace("avg", "max")] + 1e-9


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
