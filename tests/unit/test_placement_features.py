"""Features of classes A, B and C: an example worked out by hand, and what holds for all traffic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p3s.base.errors import P3SError
from p3s.machine.topology.fabric import Level
from p3s.machine.topology.read import read_fabric
from p3s.methods.placement.features import (
    CLASS_A,
    Hierarchy,
    check_ranks,
    class_a,
    class_b,
    class_c,
)
from p3s.methods.placement.phases import Traffic, traffic
from p3s.program.mapping import RankMap, block, rank_map

#: Eight ranks on four nodes, two a node: what each sends to whom.
SENT = traffic(
    8, [0, 0, 1, 2, 4, 6, 7], [1, 2, 4, 0, 6, 7, 3], [100, 200, 300, 50, 400, 10, 500],
    [1, 1, 1, 2, 1, 1, 1],
)  # fmt: skip


def features(
    sent: Traffic, placed: RankMap, hierarchy: Hierarchy | None = None
) -> dict[str, float]:
    """Return the features of all classes."""
    check_ranks(sent, placed)
    found = class_a(sent, placed) | class_b(sent, placed)
    return found if hierarchy is None else found | class_c(sent, placed, hierarchy)


def vilje(switch: list[int], rack: list[int]) -> Hierarchy:
    return Hierarchy((Level("sw", "S", np.array(switch)), Level("r", "R", np.array(rack))))


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


def test_columns_of_the_three_machines_are_as_many_as_in_the_source() -> None:
    node = np.arange(4)
    aries = Hierarchy(
        (Level("a", "A", node), Level("c", "C", node // 2), Level("g", "G", node // 2)),
        first=1,
        pairs=True,
    )
    daint = class_c(SENT, block(8, 2), aries)
    assert len(daint) == 45 and len(features(SENT, block(8, 2), aries)) == 64
    assert "n/a(max)" not in daint and "c/g(max)" in daint
    # Between the two groups: 300 in one message there, 500 in one back.
    assert (daint["GGD"], daint["GGM"]) == (500, 1)
    one = Hierarchy((Level("sw1", "S1", node // 2),), ratios=("min", "avg", "max"))
    aris = class_c(SENT, block(8, 2), one)
    # The source has three more, L1 switches per L2 switch: all of them, as each joins every L2.
    assert len(aris) + 3 == 19
    assert len(CLASS_A) == 5 and len(features(SENT, block(8, 2))) == 19


def test_levels_that_do_not_fit_are_refused() -> None:
    for hierarchy, why in (
        (vilje([0, 0, 1], [0, 0, 0]), "there are 4"),
        (vilje([0, 0, 1, 1], [0, 1, 1, 1]), "lowest to the highest"),
    ):
        with pytest.raises(P3SError, match=why):
            class_c(SENT, block(8, 2), hierarchy)
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
def placed_traffic(draw) -> tuple[Traffic, RankMap, Hierarchy]:
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
    return traffic(ranks, s, d, b, m), placed, Hierarchy(levels, pairs=True)


@settings(max_examples=200, deadline=None)
@given(placed_traffic())
def test_what_one_level_sends_the_next_one_keeps_or_sends(made) -> None:
    sent, placed, hierarchy = made
    found = features(sent, placed, hierarchy)

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
