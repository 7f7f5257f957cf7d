"""Commands that run stages: what is run, what is kept, what is said. Stages are stood in for."""

from __future__ import annotations

import json
import os
import shutil
import sys
import types
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import models
import pytest
from capture_writer import put_run_json
from commands import Shown, cli
from comparisons import comparison, held_out, work
from handmade import phase, put_replay, put_scaled
from made_predictions import made_prediction

from p3s.base.errors import P3SError, RunFailure
from p3s.base.records import Traces, signature_path
from p3s.base.study import SCHEMA_VERSION, Study, write_json
from p3s.model.comparison import HoldOut, Overlap, Weights
from p3s.model.stage import as_file
from p3s.model.types import Model, NotModelled
from p3s.pipeline.records import as_of_now
from p3s.pipeline.saved import PredictionFile
from p3s.pipeline.validating import Validation
from p3s.program.types import ScaledHead, ScaledPhase
from p3s.replay.settings import ReplaySettings
from p3s.signature.store import VERSION

LAUNCH = ["mpiexec", "-n", "{np}", "./app", "-o", "out", "--json", "--", "-n", "7"]
#: A replay at every count, no table: the traces made here have no more in them than one needs.
REPLAYED = ("--estimator", "simulation", "--what-if", "none")
#: Nothing was measured in a run, and nothing predicted for it.
UNTIMED = {
    "predicted_s": None,
    "low_s": None,
    "high_s": None,
    "measured_s": None,
    "inside": None,
    "why_not": "untimed",
    "cores": None,
    "work_s": None,
    "measured_work_s": None,
}


def made_head(n: int) -> ScaledHead:
    """Return what is said of a scaled trace of n ranks in one phase."""
    return ScaledHead(
        n=n,
        work_unit="cpu_ns",
        work_units={},
        grid=(n,),
        grid_rule="line",
        rows=n,
        counts=(2, 4, 8),
        extrapolation=n / 8,
        first_seen={},
        unmodelled_ops={},
        not_modelled=(),
        tracing={},
        phases=(
            ScaledPhase(
                0, "phase", weight=1.0, events_per_iteration=1.0, work=64e6, work_rel_half_width=0.0
            ),
        ),
        share={},
        traced_share={},
        unknown=(),
    )


@dataclass(frozen=True)
class Outcome:
    exit_code: int
    wall_s: float
    np: int
    oversubscribed: bool
    problems: list[str]
    run_dir: Path


@dataclass
class Stages:
    """Stands in for the stages of others and notes every call."""

    calls: list[tuple[Any, ...]] = field(default_factory=list)
    exit_codes: dict[int, int] = field(default_factory=dict)
    raises: dict[int, P3SError] = field(default_factory=dict)
    stderr: str = ""
    problems: list[str] = field(default_factory=list)
    holdout: HoldOut | None = None
    not_modelled: tuple[NotModelled, ...] = ()
    program: str = "ring"  # whose model is the study's

    def run_traced(
        self, template: list[str], np: int, run_dir: Path, *, timeout_s: float | None, **_: Any
    ) -> Outcome:
        self.calls.append(("run", np, list(template)))
        (run_dir / "stderr.txt").write_text(self.stderr)
        (run_dir / "rank-000000.p3t").write_bytes(b"p3t")
        if np in self.raises:
            raise self.raises[np]
        self._finish(np, run_dir)
        if self.exit_codes.get(np):
            raise P3SError(
                f"./app: failed at {np} ranks (exit code {self.exit_codes[np]}): {self.stderr}"
            )
        return Outcome(0, 1.0, np, np > 2, self.problems, run_dir)

    def _finish(self, np: int, run_dir: Path) -> None:
        code = self.exit_codes.get(np, 0)
        status = "failed" if code else "partial" if self.problems else "complete"
        put_run_json(run_dir, np, status=status, exit_code=code, oversubscribed=np > 2)

    def characterize(self, traces: Traces, np: int) -> types.SimpleNamespace:
        self.calls.append(("characterize", np))
        write_json(
            signature_path(traces.root, np), {"schema": "p3s.signature", "schema_version": VERSION}
        )
        return types.SimpleNamespace(
            events=100 * np, phases=[1, 2], sites={}, not_modelled=(), tracing={}, buffers={}
        )

    def build(self, study: Study, holdout: bool = True) -> Model:
        self.calls.append(("model", holdout))
        counts = study.signature_counts()
        model = replace(
            models.built(self.program),
            counts=tuple(counts),
            holdout=self.holdout,
            not_modelled=self.not_modelled,
        )
        write_json(study.model_path, as_file(model))
        return model

    def write_scaled(
        self, study_dir: Path, n: int, ranks: list[int] | None = None, *, spread: bool = False
    ) -> ScaledHead:
        self.calls.append(("scale", n))
        study = Study(study_dir)
        shutil.rmtree(study.scaled_dir(n), ignore_errors=True)
        put_scaled(study, n, [(r, 0, 10, 64e6 / n) for r in range(n)], [phase(0)])
        return made_head(n)

    def replay(
        self, scaled_dir: Path, out_json: Path, settings: ReplaySettings, **more: Any
    ) -> dict[str, Any]:
        n = int(out_json.stem[2:])
        more["progress"]("measuring")
        self.calls.append(("replay", n, settings))
        study = Study(scaled_dir.parent.parent)
        why = {"representative": False, "why_not_representative": "4 ranks shared 2 cores"}
        put_replay(study, n, [(r, 0, 1e6, 1e6, 1e6) for r in range(n)], **why)
        return {
            "n": n,
            "iterations": 3,
            "messages": [],
            "classes": [],
            "phases": [],
            "measured_share": 1.0,
            **why,
        }

    def validate(self, study_dir: Path, run_dir: Path, n: int) -> Validation:
        self.calls.append(("validate", n, run_dir))
        found = comparison(
            n,
            p2p_triples=Overlap(10, 10, 10 - (n == 63)),
            collectives=Overlap(4, 4, 4),
            work=work(mean=0.03, worst=0.1),
        )
        return Validation((2, 4), 0, found, (), UNTIMED, ())

    def parse(self, template: list[str], np: int) -> Any:
        return types.SimpleNamespace(program=tuple(template[3:]))

    def kinds(self) -> list[tuple[Any, ...]]:
        return [call[:2] for call in self.calls]


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> Stages:
    stand_in = Stages()

    monkeypatch.setattr("p3s.signature_runner.launch.run_traced", stand_in.run_traced)
    monkeypatch.setattr("p3s.base.host.command.parse", stand_in.parse)
    monkeypatch.setattr("p3s.replay.run", stand_in.replay)
    monkeypatch.setattr("p3s.pipeline.prediction._check_launch", lambda _: None)
    monkeypatch.setattr("p3s.pipeline.stages.scaled_bytes", lambda *_: 0)
    monkeypatch.setattr("p3s.pipeline.validating.validate", stand_in.validate)
    monkeypatch.setattr("p3s.report.equations.render", lambda model, *_: "the equations")
    monkeypatch.setattr("p3s.signature.signature.characterize", stand_in.characterize)
    monkeypatch.setattr("p3s.signature.store.load_phases", lambda study_dir: {})
    monkeypatch.setattr("p3s.pipeline.stages.fit_model", stand_in.build)
    monkeypatch.setattr("p3s.program.generate.write_scaled", stand_in.write_scaled)
    monkeypatch.setattr("p3s.pipeline.prediction.read_measurement", lambda study, np: None)
    return stand_in


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "study"


def characterize(
    root: Path, counts: str, *more: str, command: list[str] = LAUNCH, **expected: Any
) -> Shown:
    return cli("characterize -n", counts, "-o", root, *more, "--", *command, **expected)


def test_the_programs_own_words_are_untouched(stages: Stages, root: Path) -> None:
    characterize(root, "2,4,8")
    assert {tuple(call[2]) for call in stages.calls if call[0] == "run"} == {tuple(LAUNCH)}
    assert Study.open(root).command() == LAUNCH


def test_the_dashes_may_be_left_out(stages: Stages, root: Path) -> None:
    cli(f"characterize -n 2,4,8 -o {root}", *LAUNCH)
    assert Study.open(root).command() == LAUNCH


def test_each_count_and_repeat_is_run_then_characterized(stages: Stages, root: Path) -> None:
    streams = characterize(root, "8,2,4", "-r", "2")
    expected = [[("run", n), ("run", n), ("characterize", n)] for n in (2, 4, 8)]
    assert stages.kinds() == [call for some in expected for call in some]
    assert f"next: p3s model {root}" in streams.err and "next" not in streams.out
    assert streams.out.splitlines()[0].split()[0] == "processes"
    assert len(streams.out.splitlines()) == 4
    assert sorted(p.name for p in (root / "runs").iterdir()) == [
        f"np000{n}.r{r}" for n in (2, 4, 8) for r in (0, 1)
    ]


def test_default_study_is_named_after_the_program(
    stages: Stages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cli("characterize -n 2,4,8 --", *LAUNCH)
    assert [p.name for p in tmp_path.iterdir()] == ["p3s-app"]


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["python3", "-u", "jobs/farm.py", "x.py"], "farm"),
        (["python3", "-c", "1"], "python3"),
        (["/opt/my app"], "my-app"),
        (["./.hidden"], "hidden"),
        (["../../"], "study"),
    ],
)
def test_names_of_default_studies(
    stages: Stages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    cli("characterize -n 2,4,8 -- mpiexec -n {np}", *words)
    assert [p.name for p in tmp_path.iterdir()] == [f"p3s-{name}"]


def test_characterize_json(stages: Stages, root: Path) -> None:
    result = characterize(root, "2,4,8", "--json").data
    assert result["schema"] == "p3s.characterize" and result["schema_version"] == SCHEMA_VERSION
    assert [row["np"] for row in result["counts"]] == [2, 4, 8]
    assert result["counts"][0]["signature"] == {"events": 200, "phases": 2, "sites": 0}
    assert result["next"] == f"p3s model {root}" and result["failed"] == []


def test_two_counts_may_complete_a_study(stages: Stages, root: Path) -> None:
    characterize(root, "2,4,8")
    characterize(root, "16")
    assert Study.open(root).counts() == [2, 4, 8, 16]
    characterize(root / "x", "2,4", code=2)
    assert not (root / "x").exists()


def test_refused_count_is_named_and_the_others_are_kept(stages: Stages, root: Path) -> None:
    stages.exit_codes = {8: 3}
    stages.stderr = "app: 8 is not a square"
    streams = characterize(root, "4,8,9,16", code=3)
    last = streams.err.splitlines()[-2]
    assert "np=8" in last and "exit code 3" in last and "8 is not a square" in last
    assert Study.open(root).counts() == [4, 9, 16]
    assert (root / "runs" / "np0008.r0.failed" / "stderr.txt").exists()
    assert ("characterize", 8) not in stages.kinds()
    assert streams.err.count("8 is not a square") == 1


def test_too_few_left_fails_but_keeps_them(stages: Stages, root: Path) -> None:
    stages.exit_codes = {8: 1, 2: 1}
    line = characterize(root, "2,4,8,16", code=1).err.splitlines()[-1]
    assert line.startswith("p3s: np=2, 8: ./app: failed") and "(kept: 4, 16)" in line
    assert Study.open(root).counts() == [4, 16]
    characterize(root, "9")


def test_dead_rank_is_named(stages: Stages, root: Path) -> None:
    stages.raises = {8: P3SError("np=8: rank 3 died in MPI_Send (signal 9)")}
    result = characterize(root, "2,4,8,16", "--json", code=3).data
    assert result["failed"] == [
        {"np": 8, "rep": 0, "exit_code": None, "reason": "np=8: rank 3 died in MPI_Send (signal 9)"}
    ]


def test_failure_before_the_start_is_not_repeated_for_every_count(
    stages: Stages, root: Path
) -> None:
    stages.raises = {n: P3SError("./app: not found") for n in (2, 4, 8, 16)}
    assert characterize(root, "2,4,8,16", code=1).last == "p3s: ./app: not found"
    assert stages.kinds() == [("run", 2)]
    assert (root / "runs" / "np0002.r0.failed" / "stderr.txt").exists()


def test_first_run_that_leaves_nothing_leaves_no_study(
    stages: Stages, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot_start(*_: Any, **__: Any) -> Outcome:
        raise P3SError("./app: not found")

    monkeypatch.setattr(sys.modules["p3s.signature_runner.launch"], "run_traced", cannot_start)
    characterize(root, "2,4,8", code=1)
    assert not root.exists()
    cli(f"predict {root} -n 16 --", *LAUNCH, code=1)
    assert not root.exists()
    root.mkdir()
    characterize(root, "2,4,8", code=1)
    assert root.exists()  # not made by p3s


@pytest.mark.parametrize(("left", "captured"), [("", False), ("stderr.txt", False), ("", True)])
def test_first_run_that_traces_nothing_leaves_no_study(
    stages: Stages, root: Path, monkeypatch: pytest.MonkeyPatch, left: str, captured: bool
) -> None:
    """What a program without MPI printed does not stay, unless it is named or came with events."""

    def untraced(_: Any, np: int, run_dir: Path, **__: Any) -> Outcome:
        (run_dir / "stdout.txt").write_text("hello")
        if captured:
            (run_dir / "rank-000000.p3t").write_bytes(b"p3t")
        put_run_json(run_dir, np, status="failed")
        raise RunFailure("./app: no MPI call seen", 0, "failed", left)

    monkeypatch.setattr(sys.modules["p3s.signature_runner.launch"], "run_traced", untraced)
    stays = bool(left) or captured
    characterize(root, "2,4,8", code=1)
    assert (root / "runs" / "np0002.r0.failed").exists() == root.exists() == stays
    root.mkdir(exist_ok=True)
    characterize(root, "2,4,8", code=1)
    assert root.exists()  # not made by this command


def test_failed_rerun_loses_nothing(stages: Stages, root: Path) -> None:
    characterize(root, "2,4,8")
    before = {p.name: p.stat().st_ino for p in (root / "runs").iterdir()}
    stages.exit_codes = {2: 1, 4: 1, 8: 1}
    characterize(root, "2,4,8", code=3)
    after = {p.name: p.stat().st_ino for p in (root / "runs").iterdir()}
    assert before.items() <= after.items()
    assert Study.open(root).counts() == [2, 4, 8]


def test_interrupt_leaves_no_half_run(stages: Stages, root: Path) -> None:
    stages.raises = {4: KeyboardInterrupt()}  # type: ignore[dict-item]
    characterize(root, "2,4,8", code=130)
    assert Study.open(root).counts() == [2]
    assert not [p for p in (root / "runs").iterdir() if p.name.startswith(".")]


def test_partial_run_does_not_replace_a_complete_one(stages: Stages, root: Path) -> None:
    characterize(root, "2,4,8")
    stages.problems = ["rank 1: recording stopped early"]
    characterize(root, "4", code=3)
    assert Study.open(root).counts() == [2, 4, 8]


def test_failed_json_is_one_object(stages: Stages, root: Path) -> None:
    stages.exit_codes = dict.fromkeys((2, 4, 8), 5)
    streams = characterize(root, "2,4,8", "--json", code=1)
    result = json.loads(streams.out)
    assert [row["exit_code"] for row in result["failed"]] == [5, 5, 5] and result["next"] is None
    assert streams.err.splitlines()[-1].startswith("p3s: np=2, 4, 8: ./app: failed (exit code 5)")


def test_different_exit_codes_are_told_apart(stages: Stages, root: Path) -> None:
    stages.exit_codes = {2: 5, 4: 6}
    line = characterize(root, "2,4,8,16,32", code=3).err.splitlines()[-2]
    assert "np=2:" in line and "exit code 5" in line and "np=4:" in line and "exit code 6" in line


def test_partial_capture_is_flagged(stages: Stages, root: Path) -> None:
    stages.problems = ["rank 1 did not reach MPI_Finalize"]
    characterize(root, "2,4,8", code=3, err="np=2: rank 1 did not reach MPI_Finalize")
    assert {run["status"] for run in Study.open(root).manifest()["runs"]} == {"partial"}


def test_another_command_needs_force(stages: Stages, root: Path) -> None:
    characterize(root, "2,4,8")
    other = ["mpiexec", "-n", "{np}", "./other"]
    characterize(root, "16", command=other, code=2, err="--force")
    said = cli(f"predict {root} -n 16 --", *other, code=2).err
    assert "leave the command out" in said and "--force" not in said and " -o " not in said[-90:]
    characterize(root, "16", "--force", command=other)
    assert Study.open(root).counts() == [2, 4, 8, 16]


def test_unwritable_place_is_found_before_anything_runs(stages: Stages) -> None:
    said = [
        line
        for line in characterize(Path("/proc/study"), "2,4,8", code=1).err.splitlines()
        if not line.startswith("note:")
    ]
    assert stages.calls == [] and len(said) == 1


def test_model_prints_equations(stages: Stages, root: Path) -> None:
    characterize(root, "2,4,8", code=None)
    assert cli(f"model {root}").out == "the equations\n"
    assert cli(f"model {root} --json --no-holdout").data["schema"] == "p3s.model"
    assert stages.calls[-2:] == [("model", True), ("model", False)]


def test_count_that_is_left_out_stays_so_until_it_is_taken_back(stages: Stages, root: Path) -> None:
    characterize(root, "2,4,8,16", code=None)

    def fitted(*args: str, **expected: Any) -> list[int]:
        cli(*args, code=(0, 3), **expected)
        return list(json.loads((root / "model.json").read_text())["counts"])

    assert fitted("model", str(root), "--without", "2", err="without 2") == [4, 8, 16]
    assert fitted("model", str(root)) == fitted("scale", str(root), "-n", "32") == [4, 8, 16]
    assert (root / "runs" / "np0002.r0" / "run.json").exists()
    characterize(root, "2", err=f"taken back with p3s model {root} --with 2")
    assert fitted("model", str(root), "--with", "2", "--without", "8") == [2, 4, 16]
    assert fitted("model", str(root), "--with", "8") == [2, 4, 8, 16]
    assert Study.open(root).manifest()["without"] == []


@pytest.mark.parametrize(
    ("time", "events", "code"), [(0.05, 0.1, 0), (0.45, 0.0, 3), (0.0, 0.2, 3)]
)
def test_a_model_that_leaves_too_much_out_says_so(
    stages: Stages, root: Path, time: float, events: float, code: int
) -> None:
    stages.not_modelled = (NotModelled("MPI_Put", "rma", 8, 4, events, time),)
    characterize(root, "2,4,8", code=None)
    for held in (None, held_out(8)):
        stages.holdout = held
        said = cli(f"model {root}", code=code).err
        told = f"calls that are not modelled (MPI_Put) are {100 * time:.0f} % of the time"
        assert (f"do not rely on this model (left-out): {told}" in said) == bool(code)


def test_no_model_from_runs_that_are_gone(stages: Stages, root: Path) -> None:
    characterize(root, "2,4,8,16", code=None)
    cli(f"scale {root} -n 32")
    shutil.rmtree(root / "runs" / "np0002.r0")
    cli(
        f"scale {root} -n 32",
        err=("the runs at 2 processes were deleted", "fitted from 4, 8 and 16"),
    )
    assert "deleted" not in cli(f"scale {root} -n 32").err
    data = made_prediction((4, 64), traced_counts=[2, 4, 8, 16])
    made = PredictionFile(data, root / "prediction.json")
    (reason,) = as_of_now(made).reasons
    assert reason.code == "outdated" and reason.untrustworthy
    assert reason.text.endswith("rests on runs at 2 processes, which were deleted since")
    assert reason.advice == f"make it again without them: p3s predict {root} -n 64"
    kept = PredictionFile({**data, "traced_counts": [4, 8, 16]}, made.source)
    assert as_of_now(kept) is kept and as_of_now(PredictionFile(data)).reasons == ()
    shutil.rmtree(root / "runs")
    for command in (["model", str(root)], ["predict", str(root), "-n", "32"]):
        cli(*command, code=1, err="the runs at 2, 4, 8 and 16 processes were deleted")


def test_signature_is_made_again_of_the_runs_that_stay(stages: Stages, root: Path) -> None:
    characterize(root, "2,4,8", "-r", "2", code=None)
    for n in (2, 4, 8):
        path = root / "signature" / f"np000{n}.json"
        head = {"schema": "p3s.signature", "schema_version": VERSION}
        write_json(path, {**head, "repeats": 2, "left_out": []})
    cli(f"scale {root} -n 32")
    stages.calls.clear()
    shutil.rmtree(root / "runs" / "np0004.r1")
    cli(f"scale {root} -n 32")
    assert [call for call in stages.calls if call[0] == "characterize"] == [("characterize", 4)]


@pytest.mark.parametrize(
    ("triples", "colls", "weights", "says"),
    [
        ((100, 100, 100), (8, 8, 8), (3, 3), ""),
        ((100, 100, 99), (8, 8, 8), (3, 3), "1 of 100 messages"),
        ((100, 101, 100), (8, 8, 8), (3, 3), "1 of 101 messages"),
        ((0, 0, 0), (8, 8, 0), (3, 3), "8 of 8 collectives"),
        ((0, 0, 0), (8, 8, 8), (3, 2), "1 of 3 phase weights"),
    ],
)
def test_model_that_misses_its_held_out_count_is_3(
    stages: Stages,
    root: Path,
    triples: tuple[int, ...],
    colls: tuple[int, ...],
    weights: tuple[int, ...],
    says: str,
) -> None:
    stages.holdout = held_out(
        8, p2p_triples=Overlap(*triples), collectives=Overlap(*colls), weights=Weights(*weights)
    )
    characterize(root, "2,4,8", code=None)
    streams = cli(f"model {root}", code=3 if says else 0)
    assert streams.out == "the equations\n"
    last = streams.err.splitlines()[-1]
    missed = (
        "p3s: do not rely on this model (holdout-missed): fitted without 8 processes, the model"
    )
    assert last.startswith(f"{missed} misses {says}; " if says else "next:")


def test_model_whose_work_was_off_at_its_held_out_count_is_3(stages: Stages, root: Path) -> None:
    stages.holdout = held_out(8, work=work((1.0, -0.3), mean=0.3, worst=0.3))
    characterize(root, "2,4,8", code=None)
    cli(
        f"model {root}",
        code=3,
        err="(holdout-work): fitted without 8 processes, the model's computation there is off by "
        "30 % (limit 25 %)",
    )


def test_scale_and_replay(stages: Stages, root: Path) -> None:
    characterize(root, "2,4,8", code=None)
    stages.calls.clear()
    cli(f"scale {root} -n 16,32", out="np000032")
    assert stages.kinds() == [("model", True), ("scale", 16), ("scale", 32)]
    stages.calls.clear()
    options = "--hosts a,b,c,d --cores-per-node 4 --budget 5"
    cli(
        f"replay {root} -n 32 {options} --launcher",
        "mpiexec -x 'y z'",
        err="4 ranks shared 2 cores",
    )
    assert stages.calls == [
        (
            "replay",
            32,
            ReplaySettings(
                hosts=("a", "b", "c", "d"),
                cores_per_node=4,
                budget_s=5.0,
                launcher=("mpiexec", "-x", "y z"),
            ),
        )
    ]


def test_predict_makes_what_is_missing_and_only_that(stages: Stages, root: Path) -> None:
    characterize(root, "2,4,8", code=None)
    stages.calls.clear()
    result = cli(f"predict {root} -n 16", *REPLAYED, "--json").data
    assert [row["n"] for row in result["counts"]] == [2, 4, 8, 16]
    assert [call[:2] for call in stages.calls] == [
        ("model", True),
        *[(stage, n) for stage in ("scale", "replay") for n in (2, 4, 8, 16)],
    ]
    stages.calls.clear()
    cli(f"predict {root} -n 16,32", *REPLAYED, out="efficiency")
    assert stages.kinds() == [("scale", 32), ("replay", 32)]


def test_without_counts_those_ahead_are_predicted(stages: Stages, root: Path) -> None:
    """Twice and four times the largest; a width that is demanded is an exit code."""
    characterize(root, "2,4,8", code=None)
    result = cli(f"predict {root}", *REPLAYED, "--json").data
    assert [row["n"] for row in result["counts"]] == [2, 4, 8, 16, 32]
    assert result["grade"] == "rough"
    cli(f"predict {root} --within 50%", *REPLAYED, code=0)
    cli(f"predict {root} --within 0.01", *REPLAYED, code=3, err="not known well enough")
    cli(f"predict {root} --within much", *REPLAYED, code=2, err="is no share")


def test_predict_rebuilds_what_is_older_than_its_inputs(stages: Stages, root: Path) -> None:
    characterize(root, "2,4,8", code=None)
    cli(f"predict {root} -n 16", *REPLAYED)
    stages.calls.clear()
    later = Study(root).prediction_path.stat().st_mtime_ns + 10**9
    os.utime(root / "runs" / "np0004.r0" / "run.json", ns=(later, later))
    cli(f"predict {root} -n 16", *REPLAYED)
    assert stages.kinds()[:2] == [("characterize", 4), ("model", True)]
    os.utime(Study(root).model_path, ns=(later, later))
    stages.calls.clear()
    cli(f"predict {root} -n 16", *REPLAYED)
    assert ("scale", 16) in stages.kinds() and ("replay", 16) in stages.kinds()


def test_predict_in_one_go(stages: Stages, root: Path) -> None:
    words = ["predict", str(root), "-n", "32", *REPLAYED]
    cli(*words, "--from", "2,4,8", "--", *LAUNCH)
    assert [c[1] for c in stages.calls if c[0] == "run"] == [2, 4, 8]
    assert {tuple(c[2]) for c in stages.calls if c[0] == "run"} == {tuple(LAUNCH)}
    stages.calls.clear()
    cli(*words, "--", *LAUNCH)
    assert [c for c in stages.calls if c[0] == "run"] == []
    cli(f"predict {root / 'two'} -n 32 --from 2,4 --", *LAUNCH, code=2)


def test_a_prediction_that_is_not_to_be_trusted_is_3(stages: Stages, root: Path) -> None:
    characterize(root, "2,4,8", code=None)
    streams = cli(f"predict {root} -n 300", *REPLAYED, code=3)
    assert "do not rely on this prediction: message costs were not measured as" in streams.err
    assert "extrapolated: the largest count is 38 times the largest traced count" in streams.out
    streams = cli(f"predict {root} -n 300", *REPLAYED, "--json", code=3)
    assert "p3s: do not rely on this prediction (not-representative): communication" in streams.err
    assert {each["code"] for each in json.loads(streams.out)["reasons"]} == {
        "not-representative",
        "extrapolated",
        "wide",
    }
    streams = cli(f"report {root}", code=3)
    assert str(root / "report.html") in streams.out
    assert (root / "report.html").exists() and (root / "speedup.png").exists()


def test_validate_runs_traced_and_compares(stages: Stages, root: Path) -> None:
    characterize(root, "2,4,8", code=None)
    stages.calls.clear()
    assert cli(f"validate {root} -n 64 --json --", *LAUNCH).data["p2p_triples"]["equal"] == 10
    assert stages.calls[1] == ("run", 64, LAUNCH)
    assert stages.calls[2][2] == root / "validate" / "np000064.r0"
    cli(f"validate {root} -n 63", code=3, out=("90.00 %", "work: off by 3.0 %"))
    assert Study.open(root).counts() == [2, 4, 8]


def test_a_count_without_a_process_grid_is_told_before_anything_runs(
    stages: Stages, root: Path
) -> None:
    """The model's grid is square: a run at 27 processes could not be compared with it."""
    stages.program = "turned"
    characterize(root, "4,9,16", code=None)
    stages.calls.clear()
    said = cli(f"validate {root} -n 27 --", *LAUNCH, code=1).err.splitlines()
    assert said[-1].startswith("p3s: the program's process grid (")
    assert "has no form at 27 processes; the nearest with one are 25 and 36" in said[-1]
    assert ("run", 27) not in stages.kinds() and ("validate", 27) not in stages.kinds()
    assert not (root / "validate").exists()
    cli(f"validate {root} -n 25 --", *LAUNCH)
    assert ("run", 25) in stages.kinds()


def test_validation_with_another_command_needs_force(stages: Stages, root: Path) -> None:
    characterize(root, "2,4,8", code=None)
    stages.calls.clear()
    other = [*LAUNCH[:3], "./other"]
    cli(f"validate {root} -n 64 --", *other, code=2, err=("./app", "./other", "--force"))
    assert stages.calls == []
    cli(f"validate {root} -n 64 --force --", *other)
    assert ("run", 64, other) in stages.calls


def test_lost_study_json_loses_no_run(stages: Stages, root: Path) -> None:
    characterize(root, "2,4,8", code=None)
    Study(root).manifest_path.write_text('{"schema": "p3s.st')
    stages.calls.clear()
    cli(f"validate {root} -n 64")
    assert ("run", 64, LAUNCH) in stages.calls
    Study(root).manifest_path.unlink()
    characterize(root, "16")
    assert Study.open(root).counts() == [2, 4, 8, 16]


def test_damaged_signature_is_made_again(
    stages: Stages, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    characterize(root, "2,4,8", code=None)
    stages.calls.clear()

    def load(study_dir: Path, np: int) -> None:
        if np == 4 and ("characterize", 4) not in stages.calls:
            raise P3SError("np=4: the signature is damaged")

    def build(study: Study, holdout: bool = True) -> Model:
        load(study.root, 4)
        return stages.build(study, holdout)

    monkeypatch.setattr("p3s.signature.store.load_table", load)
    monkeypatch.setattr("p3s.pipeline.stages._ensure_times", lambda *_: None)  # reads them too
    monkeypatch.setattr("p3s.pipeline.stages.fit_model", build)
    cli(f"model {root}")
    assert stages.calls == [("characterize", 4), ("model", True)]
    monkeypatch.setattr(
        "p3s.pipeline.stages.fit_model", lambda *_, **__: (_ for _ in ()).throw(P3SError("no fit"))
    )
    cli(f"model {root}", code=1)  # what is not the signatures' fault is not hidden


def test_failed_validation_run_is_one_line(stages: Stages, root: Path) -> None:
    characterize(root, "2,4,8", code=None)
    stages.exit_codes = {64: 9}
    assert "exit code 9" in cli(f"validate {root} -n 64", code=1).err.splitlines()[-1]
