"""p3s characterize --signature from the command line: what it prints, writes and refuses."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from commands import Shown, cli
from test_signature_run import alive
from tracer_helpers import PROGRAMS, compile_c, the_mpi, usable_mpi

from p3s.base.errors import P3SError, UsageError
from p3s.base.settings import traces_of
from p3s.base.study import Study
from p3s.capture.chunks import read_header
from p3s.capture.recording_plan import Enough
from p3s.cli.values import parse_enough as enough
from p3s.signature.plans import plan_of
from p3s.signature.store import load_phases

needs_mpi = [pytest.mark.mpi, pytest.mark.skipif(the_mpi() is None, reason="no usable MPI")]
OUTER, INNER = 40, 12
#: At this count the steps of turns.c have no end.
ENDLESS = 4


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of turns.c where it ends, with its model."""
    folder = tmp_path_factory.mktemp("study")
    program = compile_c(PROGRAMS / "turns.c", folder / "turns")
    with contextlib.chdir(folder):
        cli("characterize -n 2,3,5 -o study --work cpu --timeout 60", *command(program))
        cli("model study", code=(0, 3))
    return folder / "study"


def command(program: Path) -> list[str]:
    install = usable_mpi()
    return ["--", install.mpiexec, "-n", "{np}", str(program), str(OUTER), str(INNER), str(ENDLESS)]


def of(study: Path) -> list[str]:
    return command(study.parent / "turns")


def signature(study: Path, *options: str, json: bool = True) -> Shown:
    """Run a signature."""
    words = [*options, "--json"] if json else options
    with contextlib.chdir(study.parent):
        return cli(f"characterize --signature -o {study} --timeout 60", *words, *of(study))


class TestWithMpi:
    pytestmark = needs_mpi

    def test_a_signature_is_a_run_of_the_study(self, study: Path) -> None:
        before = load_phases(traces_of(Study(study)))
        signature(study, "-n", "2", "--turns", "10-10")
        info = json.loads((study / "runs" / "np0002.r0" / "run.json").read_text())
        assert info["status"] == "complete" and info["signature"]["largest"] == 10
        after = load_phases(traces_of(Study(study)))
        assert not after.recorded[2].ended
        # Two halves of each shift, a reduction, a barrier in every tenth step; four outside.
        whole = 2 * (OUTER * (2 * INNER + 1) + OUTER // 10 + 4)
        assert after.recorded[2].events == whole and after.recorded[2].detail < whole / 5
        for one, other in zip(before.phases, after.phases, strict=True):
            here, there = one.per_count[2], other.per_count[2]
            assert (here.weight, here.operations) == (there.weight, there.operations)
            assert (here.events, here.bytes) == (there.events, there.bytes)
        assert "2 processes: a signature" in " ".join(cli(f"phases {study} --all").out.split())

    def test_a_program_without_end_is_stopped(self, study: Path) -> None:
        signature(study, "-n", str(ENDLESS), "--stop", "--turns", "10-10")
        run = study / "runs" / f"np{ENDLESS:04d}.r0"
        assert json.loads((run / "run.json").read_text())["status"] == "stopped"
        for rank in range(ENDLESS):
            pid = read_header(run / f"rank-{rank:06d}.p3t").pid
            assert pid > 0 and not alive(pid)
        phases = load_phases(traces_of(Study(study)))
        assert phases.recorded[ENDLESS].ended
        assert [p.per_count[ENDLESS].weight for p in phases.phases] == [1, OUTER, OUTER * INNER]
        calls = {call.op for call in phases.tree.calls() if ENDLESS in call.count}
        assert {"MPI_Bcast", "MPI_Gather", "MPI_Finalize"} <= calls
        said = " ".join(cli(f"model {study}", code=(0, 3)).out.split())
        assert f"{ENDLESS} processes: a signature" in said and "is as at 2, 3, 5 processes" in said

    def test_what_is_refused(self, study: Path) -> None:
        typed = f"characterize --signature -o {study}"
        for options, says, expected in (
            (["-n", "3", "--stop"], "--stop would replace", 2),
            (["-n", "2", "--work", "wall"], "measured in", 2),
            (["-n", "2", "--width", "0"], "--width 0", 2),
            (["-n", "2", "--turns", "9-3"], "--turns 9-3", 2),
        ):
            cli(typed, *options, *of(study), code=expected, err=says)

    def test_the_plan_follows_the_phases(self, study: Path) -> None:
        phases = load_phases(traces_of(Study(study)))
        plan = plan_of(phases, 2, Enough())
        assert len(plan.loops) == 3 and plan.loops[0].parent == -1
        assert [row.phase for row in plan.loops] == [0, 1, 2]
        assert {call.op for call in plan.calls if call.phase == 2} == {
            "MPI_Sendrecv",
            "MPI_Sendrecv_recv",
        }
        assert not plan.relevant[0]
        # All of a program that is stopped is known after a twentieth of its iterations.
        stopped = plan_of(phases, 2, Enough(smallest=1000), stop=True).text().splitlines()
        most = [line.split()[3:] for line in stopped if line.startswith("phase")]
        assert most[1:] == [
            [str(int(0.05 * weight)), str(int(0.09 * weight))] for weight in (OUTER, OUTER * INNER)
        ]


@pytest.mark.parametrize(
    ("width", "confidence", "turns", "wanted"),
    [("2%", "95%", "20-1000", (0.02, 0.95, 20, 1000)), ("0.05", "99 %", "2-2", (0.05, 0.99, 2, 2))],
)
def test_settings(width: str, confidence: str, turns: str, wanted: tuple[float, ...]) -> None:
    found = enough(width, confidence, turns)
    assert (found.width, found.confidence, found.smallest, found.largest) == wanted


@pytest.mark.parametrize(
    ("width", "confidence", "turns"),
    [
        ("2", "95%", "20-30"),
        ("-1%", "95%", "20-30"),
        ("2%", "100%", "20-30"),
        ("2%", "95%", "1-30"),
        ("2%", "95%", "20"),
        ("nan", "95%", "20-30"),
    ],
)
def test_settings_that_are_none(width: str, confidence: str, turns: str) -> None:
    with pytest.raises(UsageError):
        enough(width, confidence, turns)


def test_a_quantile_is_students() -> None:
    assert Enough().quantile(5) == pytest.approx(2.776, abs=1e-3)
    with pytest.raises(P3SError):
        load_phases(traces_of(Study(Path("/nowhere"))))
