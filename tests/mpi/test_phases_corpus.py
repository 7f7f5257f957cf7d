"""Phases and weights of real programs, at several counts, against what their sources state.

The programs are in tests/programs/phases/ and examples/; the expected trees are written by hand
from them (see expected_trees.py for the normal form) and never from what the tool prints.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import cli
from expected_trees import Loop, Ranks, differences, leaves, loop, phase_turns
from tracer_helpers import PROGRAMS, compile_c, make_examples, usable_mpi

from p3s.capture import read_run

CUBES, SQUARES = (4, 8, 16, 27), (4, 9, 16, 25)

#: Extents of the balanced 2-D grid.
GRID = {4: (2, 2), 8: (4, 2), 9: (3, 3), 16: (4, 4), 25: (5, 5), 27: (9, 3)}
LOG2 = {4: 2, 8: 3, 9: 4, 16: 4, 25: 5, 27: 5}  # rounded up
ROOT = {4: 2, 9: 3, 16: 4, 25: 5}

HALO = ("Irecv", "Irecv", "Isend", "Isend", "Waitall")
SHIFT = ("Sendrecv", "Sendrecv_recv")


def per_count(value: Any, counts: Mapping[int, Any] = LOG2) -> dict[int, int]:
    """Return the values of a law at the counts of the tests."""
    return {n: value(n) for n in counts}


@dataclass(frozen=True)
class Case:
    """A program with its arguments, counts and the body of its tree."""

    program: str
    args: tuple[int | str, ...]
    counts: tuple[int, ...]
    tree: tuple[Loop | str, ...]
    note: str = ""

    @property
    def id(self) -> str:
        """The name in test reports."""
        return "-".join([self.program, *([self.note] if self.note else [])])


# Rank r works on as many levels as 2 divides it, and one more; rank 0 on all. On its last level
# it sends its part away, which ends the way down, and waits for the answer, which begins the way
# up; on every other level it takes part of another rank and sends it back, if that rank exists.
VCYCLE = loop(
    5,
    loop(per_count(lambda n: 5 * LOG2[n]), *HALO, "Recv some", least=5),
    "Send",
    "Recv",
    loop(per_count(lambda n: 5 * LOG2[n]), "Send some", *HALO, least=5),
    "Allreduce",
)

# The finest level is entered from main, all others from the recursion: two places in the code.
RECURSIVE = loop(
    5,
    *HALO,
    "Send",
    "Recv",
    loop(per_count(lambda n: 5 * (LOG2[n] - 1)), *HALO, "Recv some", least=5),
    "Send",
    "Recv",
    loop(per_count(lambda n: 5 * (LOG2[n] - 1)), "Send some", *HALO, least=5),
    "Recv",
    "Send",
    *HALO,
    "Allreduce",
)

FACES = ("Irecv",) * 6 + ("Isend",) * 6 + ("Waitall",)
STAGES = per_count(lambda n: 7 * (ROOT[n] - 1), ROOT)


def octants(*body: str, least: int | None) -> tuple[Loop | str, ...]:
    """Three sweeps of 8 octants in 4 blocks; border ranks with guards may show fewer turns."""
    return "Init", loop(3, loop(96, *body, least=least), "Allreduce"), "Finalize"


def polling(tasks: int) -> tuple[Loop | str, ...]:
    """The master deals n - 1 tasks and answers each result by a task or a stop.

    Who does how many is chance, so is the number of turns of a worker.
    """
    return (
        "Init",
        loop(per_count(lambda n: n - 1), "Send", walk="partners"),
        loop(tasks, "Iprobe", "Recv", "Send some", "Send some"),
        loop(None, "Recv", "Send some"),
        "Barrier",
        "Finalize",
    )


def bordered(turns: int, most: bool) -> dict[int, int]:
    """Return turns times the most or the fewest neighbours in a bordered 2-D grid."""
    sides = {n: [min(2, p - 1) if most else 1 for p in GRID[n]] for n in ROOT}
    return {n: turns * sum(s) for n, s in sides.items()}


def bisected(turns: int, which: Callable[[list[int]], int]) -> dict[int, int]:
    """Return turns times the most or the fewest touching boxes of a rank in bisected.c."""

    def boxes(
        low: tuple[float, ...], high: tuple[float, ...], count: int, depth: int
    ) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
        if count == 1:
            return [(low, high)]
        d, half = depth % 2, count // 2
        cut = low[d] + (half / count + (depth % 3 - 1) * 0.03) * (high[d] - low[d])
        middle_high, middle_low = (
            ((cut, high[1]), (cut, low[1])) if d == 0 else ((high[0], cut), (low[0], cut))
        )
        return boxes(low, middle_high, half, depth + 1) + boxes(
            middle_low, high, count - half, depth + 1
        )

    out = {}
    for n in CUBES:
        parts = boxes((0.0, 0.0), (1.0, 1.0), n, 0)
        out[n] = turns * which(
            [
                sum(all(a[0][d] <= b[1][d] and b[0][d] <= a[1][d] for d in (0, 1)) for b in parts)
                - 1
                for a in parts
            ]
        )
    return out


CASES = [
    Case("vcycle", (5,), CUBES, ("Init", VCYCLE, "Finalize")),
    Case("recursive", (5,), CUBES, ("Init", RECURSIVE, "Finalize")),
    Case(
        "fft",
        (6,),
        CUBES,
        (
            "Init",
            "Comm_split",
            "Comm_split",
            "Alltoall",
            loop(6, *("Alltoall",) * 4, "Reduce"),
            "Comm_free",
            "Comm_free",
            "Finalize",
        ),
    ),
    Case(
        "multipartition",
        (7,),
        SQUARES,
        (
            "Init",
            "Bcast",
            *FACES,
            loop(7, *FACES, *(loop(STAGES, "Isend", "Irecv", "Wait", "Wait"),) * 6),
            "Allreduce",
            "Finalize",
        ),
    ),
    Case(
        "tenth",
        (25, 10),
        CUBES,
        ("Init", loop(25, *HALO, "Gather every 10"), "Barrier", "Finalize"),
        "guard",
    ),
    Case(
        "tenth",
        (40, 10),
        CUBES,
        ("Init", loop(4, loop(40, *HALO), "Gather"), "Barrier", "Finalize"),
        "nest",
    ),
    Case("polling", (60,), CUBES, polling(60)),
    Case(
        "rankring",
        (3,),
        CUBES,
        (
            "Init",
            loop(
                3,
                loop(per_count(lambda n: 3 * (n - 1)), "Send", least=3),
                loop(per_count(lambda n: 3 * (n - 1)), "Recv", least=3),
                "Allreduce",
            ),
            "Finalize",
        ),
    ),
    Case("octants", (3, 4, 0), SQUARES, octants("Recv", "Recv", "Send", "Send", least=96), "null"),
    Case(
        "octants",
        (3, 4, 1),
        SQUARES,
        octants("Recv some", "Recv some", "Send some", "Send some", least=None),
        "guards",
    ),
    Case(
        "bisected",
        (6,),
        CUBES,
        (
            "Init",
            loop(
                6,
                *(
                    loop(bisected(6, max), op, least=bisected(6, min), walk="partners")
                    for op in ("Irecv", "Isend")
                ),
                "Waitall",
                "Allreduce",
            ),
            "Finalize",
        ),
    ),
    Case(
        "turns",
        (9,),
        CUBES,
        (
            "Init",
            "Bcast",
            loop(9, *SHIFT, "Scan first", "Allreduce", "Gather last", "Barrier"),
            "Reduce",
            "Finalize",
        ),
    ),
    Case(
        "trips",
        (8,),
        SQUARES,
        (
            "Init",
            loop(8, loop(24, "Send", least=8), loop(24, "Recv", least=8), "Allreduce", "Barrier"),
            "Finalize",
        ),
    ),
    Case("fused", (4, 3), CUBES, ("Init", "Barrier", loop(12, *SHIFT), "Barrier", "Finalize")),
    # Every operation has one site: its calls are told apart by what they do and in which order.
    Case(
        "wrapper",
        (10,),
        SQUARES,
        (
            "Init",
            "Bcast",
            loop(10, *SHIFT, "Allreduce", *SHIFT, "Allreduce", "Barrier"),
            "Bcast",
            "Finalize",
        ),
    ),
    Case(
        "waitany",
        (7,),
        SQUARES,
        (
            "Init",
            loop(
                7,
                *(
                    loop(bordered(7, True), op, least=bordered(7, False), walk=walk)
                    for op, walk in (
                        ("Irecv", "partners"),
                        ("Send", "partners"),
                        ("Waitany", "requests"),
                    )
                ),
                "Allreduce",
            ),
            "Finalize",
        ),
    ),
    Case(
        "intercomm",
        (11,),
        CUBES,
        (
            "Init",
            "Comm_split",
            "Intercomm_create",
            loop(11, "Send", "Recv", "Recv", "Send"),
            "Comm_free",
            "Comm_free",
            "Barrier",
            "Finalize",
        ),
    ),
    # The examples.
    Case(
        "jacobi2d",
        ("--nx", 61, "--ny", 53, "--iterations", 12),
        CUBES,
        (
            "Init",
            "Cart_create",
            loop(12, *("Irecv",) * 4, *("Isend",) * 4, "Waitall", "Allreduce"),
            "Allreduce",
            "Comm_free",
            "Finalize",
        ),
    ),
    Case(
        "jacobi2d",
        ("--nx", 61, "--ny", 53, "--iterations", 11, "--check", 3),
        SQUARES,
        (
            "Init",
            "Cart_create",
            loop(11, *("Irecv",) * 4, *("Isend",) * 4, "Waitall", "Allreduce every 3"),
            "Allreduce",
            "Comm_free",
            "Finalize",
        ),
        "check",
    ),
    # A shift is all that a step does: steps and shifts are one loop.
    Case(
        "ring",
        ("--bodies", 101, "--steps", 3),
        CUBES,
        ("Init", loop(per_count(lambda n: 3 * (n - 1)), *SHIFT), "Allreduce", "Finalize"),
    ),
    # Only from three ranks per dimension on are all six neighbours different.
    Case(
        "halo3d",
        ("--iterations", 5),
        (4, 8, 27, 16),
        (
            "Init",
            "Cart_create",
            loop(
                5, loop(30, "Irecv", walk="partners"), loop(30, "Isend", walk="partners"), "Waitall"
            ),
            "Allreduce",
            "Comm_free",
            "Finalize",
        ),
    ),
]


def row_sum(turns: int) -> Loop:
    """The stages of a sum over a process row of 2, 4, 4, 8 ranks, ``turns`` times."""
    stages = {4: 1, 8: 2, 16: 2, 32: 3}
    return loop({n: turns * s for n, s in stages.items()}, "Irecv", "Send", "Wait", walk="partners")


EXCHANGE = ("Irecv", "Send", "Wait")
CASES += [
    # The matrix, then 3 iterations of: rho, 5 steps of (product, two dots), product, residual and
    # two dots.
    Case(
        "cg",
        ("--n", 203, "--iterations", 3, "--inner", 5),
        (4, 8, 16, 32),
        (
            "Init",
            row_sum(1),
            loop(
                3,
                row_sum(3),
                loop(15, row_sum(15), *EXCHANGE, row_sum(15), row_sum(15)),
                row_sum(3),
                *EXCHANGE,
                row_sum(3),
                row_sum(3),
                row_sum(3),
            ),
            "Finalize",
        ),
    ),
    # 5 iterations of 2 pairs of sweeps of 10 blocks.
    Case(
        "wavefront",
        (),
        SQUARES,
        (
            "Init",
            loop(
                5,
                loop(10, *(loop(100, "Recv", "Recv", "Send", "Send", least=None),) * 2),
                "Allreduce",
            ),
            "Finalize",
        ),
    ),
]


@pytest.fixture(scope="session")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("phases")
    for source in sorted((PROGRAMS / "phases").glob("*.c")):
        # Optimised, a loop may get copies of its body for the first or the last turn.
        compile_c(source, out / source.stem, "-O0")
    make_examples(out / "examples", "CFLAGS=-O0 -g")
    return out


def characterized(case: Case, counts: Sequence[int], binaries: Path, study: Path) -> dict[str, Any]:
    """Trace a program at the counts through the command line; return signature/phases.json."""
    install = usable_mpi()
    binary = binaries / case.program
    if not binary.exists():
        binary = binaries / "examples" / case.program
    cli(
        "characterize -n",
        ",".join(map(str, counts)),
        *("-o", study, "--timeout", 60, "--", install.mpiexec, "-n", "{np}", binary, *case.args),
    )
    found: dict[str, Any] = json.loads((study / "signature" / "phases.json").read_text())
    return found


def members_of(study: Path, counts: Sequence[int]) -> tuple[Ranks, dict[int, int]]:
    """Return the members (count, rank) that have each node, and the events per count."""
    ranks: dict[tuple[str, str], set[tuple[int, int]]] = {}
    events = {}
    for n in counts:
        run = read_run(study / "runs" / f"np{n:04d}.r0")
        events[n] = sum(len(r.call) for r in run.ranks)
        for rank in run.ranks:
            for number in np.unique(rank.call):
                call = run.calls[number]
                node = run.sites[call.site].key, call.op
                ranks.setdefault(node, set()).add((n, rank.rank))
    return ranks, events


def check(case: Case, counts: Sequence[int], found: Mapping[str, Any], study: Path) -> None:
    """Compare tree, phases, weights and sums of one study with what the source states."""
    ranks, events = members_of(study, counts)
    wrong = differences(case.tree, found["tree"]["body"], counts, ranks)
    assert not wrong, "\n".join(wrong)

    calls = leaves(found["tree"]["body"])
    for n in counts:
        assert sum(c["count"].get(str(n), 0) for c in calls) == events[n]
        weights = {p["loop"]: p["per_count"][str(n)]["weight"] for p in found["phases"]}
        assert weights == {0: 1, **phase_turns(found["tree"]["body"], n)}
        account = found["accounting"][str(n)]
        assert account["events"] == events[n]
        for key in ("events", "time_ns"):
            parts = [account[k][key] for k in ("start", "end", "relevant", "rest")]
            assert sum(parts) == account[key]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_tree_and_weights_at_three_counts(case, binaries, tmp_path):
    counts = case.counts[:3]
    check(case, counts, characterized(case, counts, binaries, tmp_path / "s"), tmp_path / "s")


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_tree_and_weights_at_four_counts(case, binaries, tmp_path):
    counts = case.counts
    check(case, counts, characterized(case, counts, binaries, tmp_path / "s"), tmp_path / "s")
