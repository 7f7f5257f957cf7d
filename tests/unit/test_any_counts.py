"""From any three counts to a prediction: programs that are quiet, or another, on few ranks.

Every stage of a study ends, with numbers in all that it writes, whatever vanishes at a count.
"""

from __future__ import annotations

from pathlib import Path

import corpus
import numpy as np
import pytest
import timed_study as ts
from artefacts import no_numbers
from corpus.cases import FIRST, GRIDS, SIZES
from corpus.nests import PROGRAMS as NESTS
from test_estimators import machine_file

from p3s.base.errors import P3SError
from p3s.base.study import write_json
from p3s.costs.types import COMPUTE, NO_WORK, NOT_LEFT, Unknown
from p3s.costs.types import load as load_compute
from p3s.model.stage import as_file
from p3s.model.stage import load as load_model
from p3s.pipeline.costing import build_compute
from p3s.pipeline.predicting import predict_study as predict
from p3s.predict.estimates import Estimation
from p3s.program.generate import write_scaled
from p3s.report.compute import remarks
from p3s.signature.times import save_times

COUNTS = ((1, 2, 4), (1, 2, 4, 8), (2, 3, 5))


def late_loop(rec: corpus.Recorder) -> None:
    """A loop that exists at the largest of the counts only."""
    for _ in range(10):
        rec("Allreduce", nbytes=8, work=300_000)
    if rec.n >= 4:
        for _ in range(10):
            rec("Bcast", nbytes=8, root=0, work=300_000)


def quiet_on_one_rank(rec: corpus.Recorder) -> None:
    """A loop without a call at one process, and hardly any computation."""
    for _ in range(6 if rec.n > 1 else 0):
        rec.exchange(
            "Sendrecv", (rec.rank + 1) % rec.n, (rec.rank - 1) % rec.n, 800, work=150, rest=0
        )


def idle(rec: corpus.Recorder) -> None:
    """Calls and no computation at all."""
    for _ in range(4):
        rec("Barrier", work=0)


PROGRAMS: dict[str, corpus.Program] = {
    "late-loop": late_loop,
    "quiet": quiet_on_one_rank,
    "idle": idle,
}
PROGRAMS |= {name: program for name, program, *_ in (*FIRST, *SIZES, *GRIDS)}
PROGRAMS |= {f"nest-{name}": program for name, (program, _) in NESTS.items()}
#: Those that `make test` runs, one of them at all counts.
QUICK = ("late-loop", "quiet", "idle", "ring", "jacobi2d", "null-borders", "cg")


def _cases():
    for name in PROGRAMS:
        for counts in COUNTS:
            quick = name in QUICK and (counts == COUNTS[0] or name == "quiet")
            yield pytest.param(
                name,
                counts,
                id=f"{name}-{'-'.join(map(str, counts))}",
                marks=() if quick else pytest.mark.slow,
            )


def runs_at(program: corpus.Program, counts: tuple[int, ...]) -> bool:
    """Tell whether a program can be run at all these counts: some take squares only."""
    try:
        runs = [corpus.run(program, n) for n in counts]
        return all(call.peer < run.np for run in runs for call in run.calls) and all(
            max(comm.members) < run.np for run in runs for comm in run.comms
        )
    except (AssertionError, IndexError, ValueError, ZeroDivisionError):
        return False


def put_times(root: Path, program: corpus.Program, counts: tuple[int, ...], unit: str):
    """Make a study whose computation takes the time that its work is, with some noise."""
    study, tables = ts.put_study(root, program, counts, unit)
    for table in tables:
        took = table.segments[:, 4] * (1.0 if unit == "cpu_ns" else 0.4)
        save_times(ts.times_of(table, took, noise=0.02), study.times_path(table.np))
    machine_file(root / "machine.json")
    return study


@pytest.mark.parametrize(("name", "counts"), list(_cases()))
def test_every_stage_ends_with_numbers(name, counts, tmp_path):
    program = PROGRAMS[name]
    if not runs_at(program, counts):
        pytest.skip("the program does not run at these counts")
    for unit in ("cpu_ns", "instructions"):
        study = put_times(tmp_path / unit, program, counts, unit)
        made = build_compute(study.root)
        assert made is not None and COMPUTE.data(load_compute(study.root)) == COMPUTE.data(made)
        for n in (2 * max(counts), 1):
            try:
                write_scaled(study.root, n)
            except P3SError as err:
                assert "process grid" in str(err)
                continue
            result = predict(study, [n], Estimation("machine"))
            row = result.counts[0]
            ends = [row.low_s, row.high_s]
            if ends == [None, None]:
                assert "emptied" in {reason.code for reason in result.reasons}
                ends = []
            assert np.isfinite([row.time_s, *ends]).all()
        assert no_numbers(study.root) == []


def test_what_is_not_known_of_a_cost_has_a_code_and_a_sentence(tmp_path):
    """A loop that the largest count alone has is not held out; one whose work the model says to be
    nothing has no cost; all other phases have theirs."""
    study = put_times(tmp_path / "late", late_loop, (1, 2, 4), "cpu_ns")
    made = build_compute(study.root)
    each = {e.phase: e for e in made.holdout.each}
    assert each[2].unknown == NOT_LEFT and each[2].error is None
    assert each[1].unknown is None and abs(each[1].error) < 0.1
    assert [p.unknown for p in made.phases] == [None] * 3
    assert any(
        line.startswith("phase 2 (") and "at 4 processes only" in line for line in remarks(made)
    )

    model = as_file(load_model(study.root))
    for place in model["phases"][2]["work"]["places"]:
        for segment in place["segments"]:
            segment["terms"] = []
    write_json(study.model_path, model)
    made = build_compute(study.root)
    assert made.phases[2].unknown == Unknown(NO_WORK, pytest.approx(0.5, abs=0.05))
    assert made.phases[1].turns and made.phases[1].unknown is None
    (said,) = made.unknown_costs()
    assert said.startswith("phase 2 (Bcast): nothing says how its computation grows")
    assert {e.phase: e.unknown for e in made.holdout.each} == {1: None, 2: NO_WORK}
