"""The tracer's phases: turns are those of the loop nest, and a phase is left when it is known."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from corpus.nests import PROGRAMS as PROGRAMS_AS_NESTS
from corpus.trees import Leaf, Tree, sequences, truth
from scipy.stats import t
from tracer_helpers import PROGRAMS, the_mpi, usable_mpi

from p3s.base.host import mpi
from p3s.capture.recording_plan import WORK, Enough, KnownCall, Plan, Row
from p3s.signature_runner import build
from p3s.signature_runner.tracer import generate

pytestmark = pytest.mark.skipif(the_mpi() is None, reason="no usable MPI")

OPEN, TIGHT, MOST, ENOUGH = range(4)
NEVER = Enough(early=0, smallest=1 << 20, largest=1 << 20)


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tracer's phases as a program of their own."""
    install = usable_mpi()
    folder = tmp_path_factory.mktemp("harness")
    text = mpi.preprocess(install.mpicc, "#include <mpi.h>\n")
    assert text is not None
    (folder / "p3s_generated.h").write_text(generate.generate(text)[0])
    sources = build.source_paths()[0].parent
    target = folder / "saturation"
    subprocess.run(
        [
            install.mpicc,
            "-O1",
            "-g",
            "-std=gnu11",
            "-w",
            "-I",
            str(folder),
            "-I",
            str(sources),
            str(PROGRAMS / "saturation.c"),
            str(sources / "p3s_chunk.c"),
            "-o",
            str(target),
        ],
        check=True,
        timeout=120,
        capture_output=True,
    )
    return target


@dataclass(frozen=True)
class PhaseRow:
    """What the tracer knows of a phase at the end."""

    state: int
    turns: int
    early: int
    measured: int
    batches: int
    mean: float
    variance: float
    left_out: int
    detailed: int
    detailed_mean: float


def run(
    harness: Path,
    folder: Path,
    plan: Plan,
    keys: Sequence[str],
    events: Sequence[tuple[int, int, int]],
) -> tuple[str, list[PhaseRow]]:
    """Return (0 or 1 for each event: was it recorded, the rows)."""
    plan.write(folder)
    (folder / "file").unlink(missing_ok=True)
    lines = [f"{len(keys)} {len(events)}", *keys, *(" ".join(map(str, e)) for e in events)]
    done = subprocess.run(
        [str(harness), str(folder / "signature.plan"), str(folder / "file")],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    wanted, *rows = done.stdout.splitlines()
    found = []
    for row in rows:
        words = row.split()
        state, turns, early, measured, batches = map(int, words[:5])
        found.append(
            PhaseRow(
                state,
                turns,
                early,
                measured,
                batches,
                float(words[5]),
                float(words[6]),
                int(words[7]),
                int(words[8]),
                float(words[9]),
            )
        )
    return wanted, found


# ---- turns


def plan_of(tree: Tree, enough: Enough) -> tuple[Plan, dict[tuple[str, str], int], list[Tree]]:
    """Return (plan with a phase per loop, number of each node, the loops)."""
    loops: list[Row] = []
    calls: list[KnownCall] = []
    trees: list[Tree] = []
    nodes: dict[tuple[str, str], int] = {}

    def visit(loop: Tree, parent: int, place: int) -> None:
        number = len(loops)
        loops.append(Row(parent, place, number))
        trees.append(loop)
        for at, child in enumerate(loop.children):
            if isinstance(child, Leaf):
                key = nodes.setdefault((child.site, child.op), len(nodes))
                calls.append(KnownCall(f"{key + 1:016x}", "MPI_X", number, at, number))
            else:
                visit(child, number, at)

    visit(tree, -1, 0)
    relevant = [number > 0 for number in range(len(loops))]
    return Plan(loops, calls, relevant, enough), nodes, trees


@pytest.mark.parametrize("name", PROGRAMS_AS_NESTS)
def test_turns_of_every_rank_are_those_of_the_nest(
    name: str, harness: Path, tmp_path: Path
) -> None:
    top, counts = PROGRAMS_AS_NESTS[name][0], PROGRAMS_AS_NESTS[name][1][:2]
    plan, nodes, trees = plan_of(truth(top, counts), NEVER)
    keys = [f"{number + 1:016x}" for number in range(len(nodes))]
    members, listed = sequences(top, counts)
    for member, events in members.items():
        rows = [(nodes[listed[number]], 1, 2) for number in events]
        wanted, found = run(harness, tmp_path, plan, keys, rows)
        assert wanted == "1" * len(rows)
        turns = [loop.turns.get(member, 0) for loop in trees]
        assert [row.turns for row in found][1:] == turns[1:], member


# ---- when it is enough


def loop_of(enough: Enough, relevant: bool = True) -> Plan:
    """One call outside, and a loop of two calls."""
    calls = [
        KnownCall("1", "MPI_X", 0, 0, 0),
        KnownCall("2", "MPI_X", 1, 0, 1),
        KnownCall("3", "MPI_X", 1, 1, 1),
    ]
    return Plan([Row(-1, 0, 0), Row(0, 1, 1)], calls, [False, relevant], enough)


KEYS = ["1", "2", "3", "4"]


def turns(costs: Sequence[int]) -> list[tuple[int, int, int]]:
    """A start, then a turn for each cost (time in the first call, work before the second)."""
    events = [(0, 5, 5)]
    for cost in costs:
        events += [(1, cost // 2, 0), (2, 0, cost - cost // 2)]
    return events


def reference(costs: Sequence[int]) -> tuple[float, float, int]:
    """Mean, variance of it and batches, as many turns as fill batches."""
    length, batches = 1, [float(c) for c in costs]
    while len(batches) > 32:
        length *= 2
        batches = [
            sum(costs[i : i + length]) / length for i in range(0, len(costs) - length + 1, length)
        ]
    return float(np.mean(batches)), float(np.var(batches, ddof=1) / len(batches)), len(batches)


def test_a_steady_phase_is_left_after_the_fewest_turns(harness: Path, tmp_path: Path) -> None:
    enough = Enough(early=3, smallest=7, largest=1000)
    costs = [9000, 500, 400, *[100] * 40]
    wanted, rows = run(harness, tmp_path, loop_of(enough), KEYS, turns(costs))
    # The turn is over when the next begins, which is only counted then.
    assert wanted == "1" + "11" * 10 + "00" * 33
    assert rows[1] == PhaseRow(TIGHT, 43, 3, 38, 19, 100.0, 0.0, 66, 7, 100.0)
    assert rows[0].state == OPEN and rows[0].turns == 1 and rows[0].left_out == 0


@pytest.mark.parametrize("spread", [0.05, 0.2, 0.6])
def test_a_phase_that_varies_is_left_when_its_mean_is_known(
    spread: float, harness: Path, tmp_path: Path
) -> None:
    chance = random.Random(f"{spread}")
    costs = [int(chance.gauss(10000, 10000 * spread)) for _ in range(6000)]
    enough = Enough(width=0.04, early=0, smallest=10, largest=100000)
    wanted, rows = run(harness, tmp_path, loop_of(enough), KEYS, turns(costs))
    row = rows[1]
    mean, variance, batches = reference(costs[: row.detailed])
    assert row.state == TIGHT and wanted.count("1") == 1 + 2 * row.detailed
    assert row.detailed_mean == pytest.approx(mean)
    # Turns that are only counted are measured too; the last one does not end.
    all_mean, all_variance, all_batches = reference(costs[:-1])
    assert row.batches == all_batches and row.measured <= len(costs) - 1
    assert row.mean == pytest.approx(all_mean) and row.variance == pytest.approx(all_variance)
    half = t.ppf(0.975, batches - 1) * variance**0.5
    assert half <= 0.04 * mean
    # No look before this one was good enough.
    looks = [10, 24, 32, *(k * 2**i for i in range(1, 12) for k in (24, 32))]
    for at in (look for look in looks if look < row.detailed):
        early_mean, early_variance, n = reference(costs[:at])
        assert t.ppf(0.975, n - 1) * early_variance**0.5 > 0.04 * early_mean
    assert row.detailed in looks


def test_turns_that_are_alike_in_a_row_are_not_taken_for_many(
    harness: Path, tmp_path: Path
) -> None:
    slow_and_fast = [10000 + 3000 * (-1) ** (i // 60) for i in range(6000)]
    chance = random.Random(1)
    mixed = list(slow_and_fast)
    chance.shuffle(mixed)
    enough = Enough(width=0.03, early=0, smallest=64, largest=100000)
    found = [
        run(harness, tmp_path, loop_of(enough), KEYS, turns(costs))[1][1].detailed
        for costs in (slow_and_fast, mixed)
    ]
    assert found[0] > 2 * found[1]


def test_a_small_phase_need_not_be_known_as_well(harness: Path, tmp_path: Path) -> None:
    chance = random.Random(5)
    costs = [int(chance.gauss(10000, 3000)) for _ in range(6000)]
    enough = Enough(width=0.02, early=0, smallest=10, largest=100000)
    plan = loop_of(enough)
    found = []
    for share in (1.0, 0.25, 0.04):
        again = Plan(plan.loops, plan.calls, plan.relevant, enough, {}, (1.0, share))
        row = run(harness, tmp_path, again, KEYS, turns(costs))[1][1]
        mean, variance, batches = reference(costs[: row.detailed])
        assert t.ppf(0.975, batches - 1) * variance**0.5 <= 0.02 / share**0.5 * mean
        found.append(row.detailed)
    assert found[0] > found[1] > found[2]


def test_a_phase_is_left_after_the_most_turns(harness: Path, tmp_path: Path) -> None:
    costs = [1, 1000] * 50
    enough = Enough(early=0, smallest=5, largest=20)
    wanted, rows = run(harness, tmp_path, loop_of(enough), KEYS, turns(costs))
    assert rows[1].state == MOST and rows[1].detailed == 20
    assert wanted.count("1") == 1 + 2 * 20


def test_a_phase_that_does_not_matter_is_left_at_once(harness: Path, tmp_path: Path) -> None:
    costs = [1, 1000] * 50
    enough = Enough(early=2, smallest=5, largest=90)
    _, rows = run(harness, tmp_path, loop_of(enough, relevant=False), KEYS, turns(costs))
    assert rows[1].state == ENOUGH and rows[1].early + rows[1].detailed == 7


def test_work_alone_can_decide(harness: Path, tmp_path: Path) -> None:
    """Time in calls varies without end, work does not."""
    events = [(0, 0, 0)]
    for turn in range(100):
        events += [(1, 10 ** (turn % 5), 70), (2, 0, 30)]
    enough = Enough(early=0, smallest=8, largest=1000, measure=WORK)
    _, rows = run(harness, tmp_path, loop_of(enough), KEYS, events)
    assert (rows[1].state, rows[1].detailed, rows[1].mean) == (TIGHT, 8, 100.0)


def test_calls_that_are_not_in_the_plan_are_recorded(harness: Path, tmp_path: Path) -> None:
    events = turns([100] * 50)
    events[60:60] = [(3, 1, 1)]
    enough = Enough(early=0, smallest=5, largest=1000)
    wanted, rows = run(harness, tmp_path, loop_of(enough), KEYS, events)
    # So is a call that does not follow as it did when it was last seen: the one after the
    # unknown call, and the one where the unknown call came the time before.
    assert wanted[58:66] == "00110100"
    assert rows[1].turns == 50


@pytest.mark.parametrize(
    "text",
    ["", "p3s-plan 2\n", "p3s-plan 1\nsizes 1 0 1 33 0 5 9 time\nloop 4 0 0\n", "\xff\xfe\0"],
)
def test_a_damaged_plan_is_no_plan(text: str, harness: Path, tmp_path: Path) -> None:
    (tmp_path / "plan").write_text(text)
    done = subprocess.run(
        [str(harness), str(tmp_path / "plan"), str(tmp_path / "file")],
        input="0 0",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 2  # everything is recorded
