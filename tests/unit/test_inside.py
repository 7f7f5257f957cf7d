"""The inside of a node from hwloc's XML, and ranks on its cores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p3s.base.errors import P3SError, UsageError
from p3s.machine.topology.inside import Core, Inside, read_inside
from p3s.methods.placement.phases import traffic
from p3s.methods.placement.within import as_text, in_order, on_cores
from p3s.program.mapping import rank_map


def xml(sockets: int, caches: int, cores: int, *, socket: str = "Package") -> str:
    """What lstopo 2 writes, with hyperthreads, a memory object and a private cache each."""
    core = '<object type="Core"><object type="PU"/><object type="PU"/></object>'
    core = f'<object type="L2Cache">{core}</object>'
    shared = f'<object type="L3Cache">{core * cores}</object>'
    whole = f'<object type="{socket}"><object type="NUMANode"/>{shared * caches}</object>'
    return (
        '<?xml version="1.0"?><!DOCTYPE topology SYSTEM "hwloc2.dtd"><topology version="2.0">'
        f'<object type="Machine">{whole * sockets}</object></topology>'
    )


def read(path: Path, text: str) -> Inside:
    path.write_text(text)
    return read_inside(path)


def test_cores_know_their_socket_and_the_cache_that_they_share(tmp_path: Path) -> None:
    found = read(tmp_path / "n.xml", xml(2, 2, 3))
    assert len(found.cores) == 12 and found.sockets == 2 and found.caches.tolist() == [3] * 4
    assert found.cores[0] == Core(0, 0, 0) and found.cores[-1] == Core(1, 5, 3, 1)
    assert found.cores[6] == Core(1, 0, 2, 1)
    old = read(tmp_path / "o.xml", xml(1, 1, 2, socket="Socket"))
    assert [core.socket for core in old.cores] == [0, 0]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<topology/>", "tells of no cores"),
        ("<other><object type='Core'/></other>", "tells of no cores"),
        ("<topology>", "no XML of hwloc"),
        ("cores=4", "no XML of hwloc"),
    ],
)
def test_what_is_not_hwloc_s(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(P3SError, match=why) as caught:
        read(tmp_path / "n.xml", text)
    assert "\n" not in str(caught.value)
    with pytest.raises(P3SError, match="cannot be read"):
        read_inside(tmp_path / "none.xml")


def test_pairs_share_a_socket(tmp_path: Path) -> None:
    """Ranks 0 and 2, 1 and 3 talk: in their order they would be on two sockets."""
    inside = read(tmp_path / "n.xml", xml(2, 1, 2))
    placed = rank_map("block", np.array([0, 0, 0, 0, 1, 1, 1, 1]), ("a", "b"))
    sent = traffic(8, [0, 1, 4, 5], [2, 3, 6, 7], 1000)
    found = on_cores(sent, placed, inside)
    assert in_order(placed, inside).between_sockets(sent, placed) == 4000
    assert found.between_sockets(sent, placed) == 0
    lines = as_text(placed, "openmpi", found).splitlines()
    assert len({line.split("=", 1)[1] for line in lines}) == 8, "no core has two ranks"
    slots = [line.rsplit("=", 1)[1] for line in lines]
    assert slots[0].split(":")[0] == slots[2].split(":")[0] != slots[1].split(":")[0]
    with pytest.raises(UsageError, match="has 4 cores, a node gets 8 ranks"):
        on_cores(sent, rank_map("all", np.zeros(8, dtype=np.int64)), inside)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 3), st.integers(1, 2), st.integers(1, 3), st.data())
def test_every_rank_has_a_core_of_its_own(
    sockets: int, caches: int, cores: int, data: st.DataObject
) -> None:
    number = sockets * caches * cores
    inside = Inside(
        "node",
        tuple(Core(k // (caches * cores), k % (caches * cores), k // cores) for k in range(number)),
    )
    ranks = data.draw(st.integers(1, 2 * number))
    placed = rank_map("block", np.arange(ranks) // number)
    ends = data.draw(st.lists(st.tuples(*[st.integers(0, ranks - 1)] * 2), max_size=20))
    sent = traffic(ranks, [a for a, _ in ends], [b for _, b in ends], 100)
    found = on_cores(sent, placed, inside)
    pairs = set(zip(placed.node_of.tolist(), found.core_of.tolist(), strict=True))
    assert len(pairs) == ranks and found.core_of.min() >= 0 and found.core_of.max() < number
    usual = in_order(placed, inside)
    assert found.between_sockets(sent, placed) <= usual.between_sockets(sent, placed)
