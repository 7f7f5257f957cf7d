"""Traffic of phases: measured for training, priced by baselines, taken from scaled traces."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traffic_patterns import around, at_faces, at_faces_and_corners, halo, lulesh

from p3s.base.errors import P3SError
from p3s.machine.topology.read import read_fabric
from p3s.methods.placement.phases import (
    PhaseTraffic,
    Traffic,
    all_traffic,
    phase_traffic,
    together,
    traffic,
)
from p3s.methods.placement.training.campaign import random_pairs
from p3s.methods.placement.training.costs import Hockney, fit_ping_pong, seconds_of
from p3s.program.collectives.choose import Library, library_of
from p3s.program.mapping import block
from p3s.program.order.sections import sections_of
from p3s.program.scaled import ScaledTrace, build


def messages_of(found: Traffic) -> list[tuple[int, int, int]]:
    return sorted(
        (s, d, b)
        for s, d, m, b in zip(found.source, found.dest, found.messages, found.nbytes, strict=True)
        for _ in range(m)
    )


def sent_by(found: Traffic, rank: int) -> list[int]:
    return sorted(b for s, _, b in messages_of(found) if s == rank)


def test_columns_are_checked() -> None:
    found = traffic(3, [0, 1, 0], [1, 2, 1], 8, [2, 1, 0])
    assert messages_of(found) == [(0, 1, 8), (0, 1, 8), (1, 2, 8)] and found.number == 3
    assert found.volume.tolist() == [16, 8]
    twice = together([found, found]).merged()
    assert messages_of(twice) == sorted(messages_of(found) * 2) and len(twice) == 2
    for bad, why in (
        (lambda: traffic(2, [0], [2], 1), "destination 2 is no rank of 2"),
        (lambda: traffic(2, [-1], [1], 1), "source -1"),
        (lambda: traffic(2, [0], [1], -1), "bytes are less than 0"),
        (lambda: traffic(2, [0], [1], 1, [-1]), "messages are less than 0"),
        (lambda: traffic(2, [0, 1], [1], 1), "columns have"),
        (lambda: together([found, traffic(2, [], [], [])]), "cannot be put together"),
    ):
        with pytest.raises(P3SError, match=why) as err:
            bad()
        assert "\n" not in str(err.value)


def test_halo_sends_faces_of_the_domain() -> None:
    # 10 points over 3 ranks: 4, 3, 3; 5 over 2: 3, 2.
    found = halo((3, 2), (10, 5))
    assert messages_of(found) == [
        (0, 1, 32), (0, 2, 24), (1, 0, 32), (1, 3, 16),
        (2, 0, 24), (2, 3, 24), (2, 4, 24), (3, 1, 16), (3, 2, 24), (3, 5, 16),
        (4, 2, 24), (4, 5, 24), (5, 3, 16), (5, 4, 24),
    ]  # fmt: skip
    with pytest.raises(P3SError, match="less than one"):
        halo((3, 2), (2, 5))
    with pytest.raises(P3SError, match="dimensions"):
        halo((3, 2), (10,))


def test_lulesh_sizes() -> None:
    one, two, three = lulesh(27, 10)
    assert sent_by(one, 13) == [24] * 8 + [24 * 11] * 12 + [24 * 121] * 6
    assert sent_by(two, 13) == [24 * 100] * 6
    assert sent_by(three, 13) == [48] * 4 + [48 * 11] * 6 + [48 * 121] * 3
    # Half the messages, twice as long: as much in all.
    assert three.volume.sum() == one.volume.sum() and 2 * three.number == one.number
    # To those before a rank: x is the fastest dimension, z the slowest.
    assert {d for s, d, _ in messages_of(three) if s == 13} == set(range(13))
    with pytest.raises(P3SError, match="no cube"):
        lulesh(28, 10)


shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(shapes, st.booleans(), st.sampled_from([at_faces, around, at_faces_and_corners]))
def test_what_is_sent_is_what_comes_back(grid, periodic, neighbours) -> None:
    found = halo(grid, [4 * x + k for k, x in enumerate(grid)], neighbours(len(grid)), 8, periodic)
    back = sorted((d, s, b) for s, d, b in messages_of(found))
    assert back == messages_of(found)
    assert (found.source != found.dest).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 20), st.integers(0, 5), st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 9))
def test_rounds_of_random_pairs_are_matchings(ranks, messages, inside, seed) -> None:
    node_of = np.arange(ranks) // 4
    found, rounds = random_pairs(node_of, messages, 7, inside, seed)
    assert len(rounds) == messages
    for pair in rounds:
        assert (pair[pair] == np.arange(ranks)).all()
        if inside == 1.0:
            assert (node_of[pair] == node_of).all()
        else:
            assert inside or (pair == np.arange(ranks)).sum() == ranks % 2
    data = np.bincount(found.source, weights=found.volume, minlength=ranks)
    number = np.bincount(found.source, weights=found.messages, minlength=ranks)
    assert (data == 7 * number).all() and number.max(initial=0) <= messages
    assert messages_of(random_pairs(node_of, messages, 7, inside, seed)[0]) == messages_of(found)


PLAIN = Hockney(2.0, 0.5, 10.0)
TREE = read_fabric("fat-tree:2,1,2", 4)


def test_ping_pong() -> None:
    nbytes = np.array([8.0, 1024.0, 65536.0, 1 << 22])
    found = fit_ping_pong(nbytes, (2e-6 + nbytes / 5e9) * [1.01, 0.99, 1.01, 0.99])
    assert (found.alpha, found.beta) == pytest.approx((2e-6, 2e-10), rel=0.03)
    with pytest.raises(P3SError, match="several sizes"):
        fit_ping_pong(np.array([8.0, 8.0]), np.ones(2))


def test_costs_by_hand() -> None:
    # Rank 0 sends 3 messages of 4 bytes two switches further, rank 1 (its node) one of 20 bytes.
    sent = traffic(8, [0, 1], [4, 5], [4, 20], [3, 1])
    placed = block(8, 2)
    assert seconds_of(Hockney(2.0, 0.5), sent, placed, TREE) == max(3 * 2 + 6, 2 + 10)
    assert seconds_of(PLAIN, sent, placed, TREE) == max(3 * 22 + 6, 22 + 10)
    assert seconds_of(PLAIN, traffic(8, [], [], []), placed, TREE) == 0
    # Inside a node nothing is far.
    assert seconds_of(PLAIN, traffic(8, [0, 1], [1, 0], 4), placed, TREE) == 4


LIBRARY = library_of("openmpi", "4.1")
COLUMNS = ("rank", "phase", "index", "peer", "bytes", "comm", "tag", "root", "repeat")
KINDS = ("send", "recv", "collective")


def trace_of(n: int, rows: list[tuple], members: dict[int, list[int]]) -> ScaledTrace:
    """Return a trace of rows: COLUMNS without tag, call, kind, whether it is known."""
    ops = sorted({row[8] for row in rows})
    numbers = [(*row[:6], 0, *row[6:8]) for row in rows]
    columns = {
        name: np.array([row[k] for row in numbers], dtype=np.int64)
        for k, name in enumerate(COLUMNS)
    }
    return build(
        n, columns, np.zeros(len(rows)),
        np.array([ops.index(row[8]) for row in rows]), tuple(ops),
        np.array([KINDS.index(row[9]) for row in rows]), KINDS,
        np.array([row[10] for row in rows]),
        {c: np.array(them) for c, them in members.items()}, {1: 10.0, 2: 1.0}, {1: "loop"},
    )  # fmt: skip


def found_in(trace: ScaledTrace, library: Library = LIBRARY) -> tuple[list[PhaseTraffic], float]:
    return phase_traffic(trace, sections_of(trace, None), library)


def ring(n: int, phase: int, repeat: int) -> list[tuple]:
    return [
        row
        for r in range(n)
        for row in (
            (r, phase, 0, (r + 1) % n, 100, 0, -1, repeat, "MPI_Isend", "send", True),
            (r, phase, 1, (r - 1) % n, 100, 0, -1, repeat, "MPI_Recv", "recv", True),
        )
    ]


def calls(
    them: list[int], phase: int, index: int, op: str, nbytes: int, *, comm: int = 0,
    root: int = -1, repeat: int = 1, known: bool = True,
) -> list[tuple]:  # fmt: skip
    return [
        (r, phase, index, -1, nbytes, comm, root, repeat, op, "collective", known) for r in them
    ]


def rows_of(found) -> list[tuple[int, int, int, int]]:
    columns = (found.source, found.dest, found.messages, found.nbytes)
    return sorted(tuple(int(x) for x in row) for row in zip(*columns, strict=True))


def test_messages_are_those_of_the_whole_run() -> None:
    rows = ring(4, 1, 10) + ring(4, 2, 1)
    rows.append((0, 2, 2, -1, 9, 0, -1, 5, "MPI_Send", "send", True))  # to MPI_PROC_NULL
    (one, two), unknown = found_in(trace_of(4, rows, {0: [0, 1, 2, 3]}))
    assert (one.phase, one.name, one.iterations, unknown) == (1, "loop", 10.0, 0.0)
    assert rows_of(one.traffic) == [(r, (r + 1) % 4, 10, 100) for r in range(4)]
    assert two.traffic.number == 4
    assert all_traffic([one, two], 4).number == 44
    assert all_traffic([], 4).number == 0


def test_a_small_allreduce_doubles() -> None:
    everyone = [0, 1, 2, 3]
    trace = trace_of(4, calls(everyone, 1, 0, "MPI_Allreduce", 8, repeat=7), {0: everyone})
    ((found,), _) = found_in(trace)
    assert rows_of(found.traffic) == sorted(
        (r, r ^ mask, 7, 8) for r in everyone for mask in (1, 2)
    )


def test_members_of_a_communicator_are_in_its_order() -> None:
    # Ranks 5, 1, 3 are members 0, 1, 2; the root is rank 1; what it gathers has three sizes.
    rows = [
        (r, 1, 0, -1, size, 4, 1, 2, "MPI_Gatherv", "collective", True)
        for r, size in ((1, 10), (3, 30), (5, 50))
    ]
    ((found,), _) = found_in(trace_of(6, rows, {4: [5, 1, 3]}))
    assert rows_of(found.traffic) == [(3, 1, 2, 30), (5, 1, 2, 50)]


def test_the_kth_calls_of_all_are_one() -> None:
    # Two broadcasts in one phase, at other places in the program of each rank.
    rows = []
    for r in range(4):
        rows += calls([r], 1, r, "MPI_Bcast", 8, root=0)
        rows += calls([r], 1, r + 1, "MPI_Bcast", 800, root=3)
    ((found,), _) = found_in(trace_of(4, rows, {0: [0, 1, 2, 3]}))
    got = rows_of(found.traffic)
    assert sum(m for _, _, m, b in got if b == 8) == sum(m for _, _, m, b in got if b == 800) == 3
    assert {d for _, d, _, b in got if b == 8} == {1, 2, 3}
    assert {d for _, d, _, b in got if b == 800} == {0, 1, 2}


def test_what_is_not_known_is_left_out_and_told() -> None:
    everyone = [0, 1, 2]
    rows = (
        calls(everyone, 1, 0, "MPI_Allreduce", 8, known=False, repeat=3)
        + calls([0, 1], 1, 1, "MPI_Bcast", 8, root=0)
        + calls(everyone, 1, 2, "MPI_Neighbor_allgather", 8)
        + [(0, 1, 3, -1, 8, 0, -1, 4, "MPI_Send", "send", False)]
    )
    found, unknown = found_in(trace_of(3, rows, {0: everyone}))
    assert not found and unknown == 1.0


def test_an_all_to_all_sends_to_everybody() -> None:
    everyone = list(range(6))
    trace = trace_of(6, calls(everyone, 1, 0, "MPI_Alltoall", 6 * 4096), {0: everyone})
    ((found,), _) = found_in(trace)
    assert rows_of(found.traffic) == [(s, d, 1, 4096) for s in everyone for d in everyone if s != d]
