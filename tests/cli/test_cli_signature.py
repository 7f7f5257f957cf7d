"""p3s characterize --signature from the command line: what it prints, writes and refuses."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
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
from p3s.signature.plans import Weights, plan_of, too_rare, traced_weights
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

    def test_a_signature_is_run(self, study: Path) -> None:
        before = [(r.np, r.rep, r.status) for r in Study.open(study).runs()]
        phases = (study / "signature" / "phases.json").read_bytes()
        result = signature(study, "-n", "2", "--turns", "10-10").data
        (found,) = result["sampled"]
        assert found["np"] == 2 and not found["stopped"]
        assert found["weights_from"] == "this run"
        events = found["events"]
        # Two halves of each shift, a reduction, a barrier in every tenth step; four outside.
        whole = 2 * (OUTER * (2 * INNER + 1) + OUTER // 10 + 4)
        assert events["recorded"] + events["counted"] == events["run"] == whole
        assert events["share_in_detail"] < 0.1
        by_turns = {row["turns"]: row for row in found["phases"] if row["turns"] > 1}
        assert set(by_turns) == {OUTER, OUTER * INNER}
        assert by_turns[OUTER * INNER]["in_detail"] == [15, 15]
        assert abs(found["of_this_run"]["difference"]) < 0.5
        assert found["of_full_run"]["time"] > 0
        assert found["predicted"] > 0 and math.isfinite(found["half_width"])
        kept = json.loads((study / "sampled" / "np0002.json").read_text())
        assert kept.pop("digest") and kept == found
        info = json.loads((study / "sampled" / "np0002" / "run.json").read_text())
        assert info["status"] == "complete" and info["signature"]["largest"] == 10
        # The study has the runs and phases it had.
        assert [(r.np, r.rep, r.status) for r in Study.open(study).runs()] == before
        assert (study / "signature" / "phases.json").read_bytes() == phases

    def test_a_program_without_end_is_stopped(self, study: Path) -> None:
        result = signature(study, "-n", str(ENDLESS), "--stop", "--turns", "10-10").data
        (found,) = result["sampled"]
        assert found["stopped"] and found["weights_from"] == "the model"
        assert found["of_this_run"] is None and found["of_full_run"] is None
        assert found["predicted"] > 0
        info = json.loads((study / "sampled" / "np0004" / "run.json").read_text())
        assert info["status"] == "stopped"
        for rank in range(ENDLESS):
            pid = read_header(study / "sampled" / "np0004" / f"rank-{rank:06d}.p3t").pid
            assert pid > 0 and not alive(pid)
        # What was stopped is no run to make phases of.
        assert Study.open(study).counts() == [2, 3, 5]

    def test_the_text(self, study: Path) -> None:
        out = signature(study, "-n", "3", "--turns", "10-10", json=False).out
        assert "full detail for" in out and "by the iterations in full detail alone" in out
        assert "the full run:" in out and "captures" in out

    def test_what_is_refused(self, study: Path, tmp_path: Path) -> None:
        copy = tmp_path / "study"
        shutil.copytree(study, copy, ignore=shutil.ignore_patterns("sampled"))
        (copy / "model.json").unlink()
        typed = f"characterize --signature -o {copy}"
        for options, says, expected in (
            (["-n", "4", "--stop"], "weights at 4 processes are not known", 1),
            (["-n", "2", "--work", "wall"], "is measured in cpu", 2),
            (["-n", "2", "--width", "0"], "--width 0", 2),
            (["-n", "2", "--turns", "9-3"], "--turns 9-3", 2),
        ):
            shown = cli(typed, *options, *of(study), code=expected, err=says)
            assert shown.err.count("\n") == 1
        cli(f"{typed} -n 2", *of(study), "more", code=2, err="another command")
        assert not (copy / "sampled").exists()
        (copy / "signature" / "phases.json").write_text(
            json.dumps({"schema": "p3s.phases", "schema_version": 1, "counts": [2, 3, 5]})
        )
        os.utime(copy / "signature" / "phases.json", (2e9, 2e9))
        assert cli(f"{typed} -n 2", *of(study), code=1, err="damaged").err.count("\n") == 1

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
        assert too_rare(phases, 2, plan_of(phases, 2, Enough(smallest=1000))) != []
        weights = traced_weights(phases, 3)
        assert weights is not None and weights.most[1:] == (OUTER, OUTER * INNER)
        assert traced_weights(phases, 4) is None


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


def test_weights_of_ranks_that_differ_keep_their_proportion() -> None:
    import numpy as np

    weights = Weights("x", (1.0, 100.0, 60.0), (1.0, 100.0, 20.0))
    most = np.array([1.0, 30.0, 12.0])
    assert weights.of_rank(most, most).tolist() == [1.0, 100.0, 60.0]
    assert weights.of_rank(np.array([1.0, 7.0, 4.0]), most).tolist() == [1.0, 100.0, 20.0]
    assert weights.of_rank(np.array([1.0, 0.0, 0.0]), most).tolist() == [1.0, 0.0, 0.0]


def test_a_quantile_is_students() -> None:
    assert Enough().quantile(5) == pytest.approx(2.776, abs=1e-3)
    with pytest.raises(P3SError):
        load_phases(traces_of(Study(Path("/nowhere"))))
