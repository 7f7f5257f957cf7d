"""Traffic of phases of a scaled trace: messages, and collectives by the library's algorithms."""

from __future__ import annotations

import numpy as np

from p3s.methods.placement.phases import PhaseTraffic, all_traffic, phase_traffic
from p3s.program.collectives.choose import Library, library_of
from p3s.program.order.sections import sections_of
from p3s.program.scaled import ScaledTrace, build

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
    assert rows_of(one.traffic) == [
        (0, 1, 10, 100),
        (1, 2, 10, 100),
        (2, 3, 10, 100),
        (3, 0, 10, 100),
    ]
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
