"""What datatypes with gaps cost: from calls to pieces, laws of blocks, time of ranks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from p3s.machine import programs, show
from p3s.model.types import block_at, packed_of
from p3s.predict.estimated import SOFTWARE, Communication
from p3s.predict.estimators.messages import with_packing
from p3s.program.own_costs import (
    PackCosts,
    measured_packing,
    ns_per_byte,
    packing_ns,
    usual_packing,
)
from p3s.program.scaled import ScaledTrace, build
from p3s.program.types import PackedCall
from p3s.signature import buffers

PRINTED = """rank 0 here 0
rank 1 here 1
eager 1
unattended 1
post 1 1
pack whole 16384 0.1 0.2 0.1 0.1
pack near 8 0.3 0.4 0.3 0.4
pack far 8 0.8 0.9 0.8 0.9
pack near 64 0.1 0.2 0.1 0.1
pack far 64 0.1 0.2 0.1 0.1
"""
COSTS = PackCosts(
    (8, 64),
    np.array([[1.0, 0.5], [2.0, 1.0], [4.0, 3.0]]),
    np.array([[2.0, 1.0], [3.0, 1.5], [6.0, 2.0]]),
    measured=True,
)


def pieces_of(sequence: list[int]) -> buffers.Pieces:
    """The pieces of a rank that makes some of four calls at three places."""
    calls: list[Any] = [
        SimpleNamespace(op=op, bytes=size, block=block)
        for op, size, block in (
            ("MPI_Send", 100, 0),
            ("MPI_Send", 80, 8),
            ("MPI_Recv", 64, 16),
            ("MPI_Barrier", 0, 0),
        )
    ]
    node = np.array([0, 0, 1, 2])
    rows = buffers.count_gaps(calls, node, 3)
    found: buffers.Pieces = {}
    times = np.bincount(np.array(sequence, dtype=np.int64), minlength=len(calls))
    nodes = [("a", "MPI_Send"), ("b", "MPI_Recv"), ("c", "MPI_Barrier")]
    buffers.add_pieces(found, rows, nodes, times)
    return found


def test_pieces_are_those_of_places_with_gaps() -> None:
    found = pieces_of([0, 1, 1, 2, 3])
    assert found == {"MPI_Send a": [260, 160, 20], "MPI_Recv b": [64, 64, 4]}
    buffers.join_pieces(found, pieces_of([2]))
    assert found["MPI_Recv b"] == [128, 128, 8]
    assert pieces_of([]) == {"MPI_Send a": [0, 0, 0], "MPI_Recv b": [0, 0, 0]}


def test_places_know_their_blocks_by_count() -> None:
    tables: list[Any] = [
        SimpleNamespace(np=4, pieces=pieces_of([0, 1])),
        SimpleNamespace(np=8, pieces={"MPI_Send a": [160, 160, 10]}),
    ]
    (packed,) = packed_of(tables)
    assert (packed.op, packed.site) == ("MPI_Send", "a")
    assert packed.block == {"4": 8.0, "8": 16.0}
    assert packed.share == 1.0


def test_blocks_are_constant_or_follow_a_power_within_an_interval() -> None:
    assert block_at({4: 8.0, 16: 8.0}, 1024) == (8.0, 8.0, 8.0)
    assert block_at({4: 800.0, 16: 200.0}, 64) == pytest.approx((50.0, 50.0, 200.0))
    assert block_at({4: 800.0, 16: 200.0}, 8) == pytest.approx((400.0,) * 3)
    assert block_at({4: 4.0, 16: 1.0}, 64) == (1.0, 1.0, 1.0)


def test_a_small_piece_costs_what_the_smallest_does() -> None:
    assert ns_per_byte((8, 64), COSTS.pack[1], 4) == 4.0
    assert ns_per_byte((8, 64), COSTS.pack[1], 1000) == 1.0
    assert 1.0 < ns_per_byte((8, 64), COSTS.pack[1], 20) < 2.0


def test_measured_costs_are_what_is_beyond_one_piece() -> None:
    sizes = [f"size {b} 9 100 110 10 11 10 11 5" for b in (0, 1, 2, 4)]
    found = programs.parse_network(PRINTED + "\n".join(sizes))
    costs = measured_packing(found)
    assert costs is not None
    assert costs.measured
    assert costs.blocks == (8, 64)
    assert costs.pack[:, 0] == pytest.approx([0.1, 0.4, 1.0])
    assert costs.pack[:, 1] == pytest.approx([0.0, 0.0, 0.3])
    assert costs.unpack[1, 0] == pytest.approx(0.5)
    text = show.render_packing(found["pack"])
    assert "8 B in a row" in text[0]
    assert show.render_packing({}) == []


def test_nothing_measured_is_usual_figures_with_wide_ends() -> None:
    assert measured_packing({}) is None
    for family in ("openmpi", "mpich"):
        costs = usual_packing(family)
        assert not costs.measured
        assert (costs.pack[0] <= costs.pack[1]).all()
        assert (costs.pack[1] < costs.pack[2]).all()


def trace() -> ScaledTrace:
    """Rank 0 sends, rank 1 receives, both reduce; the first two with gaps of 8 bytes."""
    rows = {
        "rank": [0, 1, 0, 1],
        "phase": [1, 1, 0, 0],
        "index": [0, 0, 0, 0],
        "peer": [1, 0, -1, -1],
        "bytes": [100, 100, 10, 10],
        "comm": [0, 0, 0, 0],
        "tag": [0, 0, -1, -1],
        "root": [-1] * 4,
        "repeat": [3, 3, 1, 1],
        "slot": [0, 1, 2, 2],
    }
    return build(
        2,
        {name: np.array(values) for name, values in rows.items()},
        np.zeros(4),
        np.array([0, 1, 2, 2]),
        ("MPI_Send", "MPI_Recv", "MPI_Allreduce"),
        np.array([0, 1, 2, 2]),
        ("send", "recv", "collective"),
        np.ones(4, dtype=bool),
        {0: np.arange(2)},
        {0: 1.0, 1: 3.0},
    )


def with_calls(*calls: PackedCall) -> ScaledTrace:
    """The trace with some of its calls packed."""
    from dataclasses import replace

    return replace(trace(), packed=calls)


EVEN = (8.0, 8.0, 8.0)
SEND = PackedCall("MPI_Send", "a", (0, 0), 1.0, EVEN)
RECV = PackedCall("MPI_Recv", "b", (1, 1), 0.5, EVEN)
SUM = PackedCall("MPI_Allreduce", "c", (2, 2), 1.0, EVEN)


def test_senders_pack_and_receivers_unpack() -> None:
    found = packing_ns(with_calls(SEND, RECV, SUM), (1, 0), COSTS)
    assert found[:, 0, 0].tolist() == [300.0, 600.0, 1200.0]
    assert found[:, 1, 0].tolist() == [300.0, 450.0, 900.0]
    assert found[:, 0, 1].tolist() == found[:, 1, 1].tolist() == [10.0, 20.0, 100.0]


def test_smaller_blocks_are_the_high_end() -> None:
    wide = PackedCall("MPI_Send", "a", (0, 0), 1.0, (8.0, 64.0, 64.0))
    found = packing_ns(with_calls(wide), (0, 1), COSTS)
    assert found[:, 0, 1].tolist() == [150.0, 300.0, 1200.0]


def test_packing_is_software_time_with_its_interval() -> None:
    one = np.ones((2, 2))
    plain = Communication("machine", 2, (0, 1), np.stack([one, 0 * one, 0 * one, one, one, one]))
    found = with_packing(plain, with_calls(SEND), COSTS)
    assert found.comm[0, 1] == found.seconds[SOFTWARE, 0, 1] == 1 + 600e-9
    assert (found.low[0, 1], found.high[0, 1]) == (1 + 300e-9, 1 + 1200e-9)
    assert found.notes == ("the cost of packing non-contiguous datatypes was measured",)
    assert with_packing(plain, trace(), COSTS) is plain
    even = with_packing(plain, with_calls(SEND), COSTS, ends=False)
    assert even.low[0, 1] == even.high[0, 1] == even.comm[0, 1]
