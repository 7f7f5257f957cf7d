"""Computation in a prediction: its interval, how far outside it is, and the thesis beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handmade import phase, put_model, put_replay, put_scaled
from phase_times import changed
from test_predict import run_of, times_at

from p3s.base.study import Study
from p3s.pipeline.predicting import predict_study as predict
from p3s.predict.checks import OUTSIDE_LIMIT
from p3s.predict.prediction import compose
from p3s.predict.residual import RunMeasurement, run_times
from p3s.predict.times import PhaseTimes

TIMED: dict[str, Any] = {
    "compute_ns": 8e9,
    "compute_low": 0.7,
    "compute_high": 1.2,
    "crm_i_ns": 3e9,
    "crm_c_ns": None,
    "x": [10.0, 12.0],
    "covered": [60.0, 900.0],
    "outside": 6.0,
    "below": True,
}


def timed_at(n: int, seconds: float, **more: Any) -> PhaseTimes:
    made = times_at(n, seconds)
    return replace(made, phases=[{**phase(0), **TIMED, **more}])


def test_the_interval_is_that_of_the_time_not_of_the_work() -> None:
    row = compose({8: timed_at(8, 2.0)}, {}, [2]).counts[0]
    assert (row.model_low_s, row.model_high_s) == pytest.approx((1.4, 2.4), rel=0.01)
    found = row.phases[0]
    assert (found.compute_low_s, found.compute_high_s) == pytest.approx((1.4, 2.4))
    assert found.crm_i_s == 3.0 and found.crm_c_s is None
    assert found.outside == 6.0 and found.x == (10.0, 12.0)
    # without an interval of the time that of the work stands in, one-sided ends are not crossed
    row = compose({8: timed_at(8, 2.0, compute_low=None)}, {}, [2]).counts[0]
    assert (row.model_low_s, row.model_high_s) == pytest.approx((1.82, 2.18), rel=0.01)


@pytest.mark.parametrize(
    ("more", "said", "doubted"),
    [
        (
            {},
            "each process has 1/6 of the least work per iteration that was measured (phase 0)",
            False,
        ),
        ({"outside": 1.4}, None, False),
        ({"outside": OUTSIDE_LIMIT * 1.01}, "1/16 of the least", True),
        ({"outside": 40.0, "below": False}, "40 times the most work per iteration", True),
        ({"outside": 2.25}, "1/2.2 of the least", False),
    ],
)
def test_what_is_outside_is_noted_and_far_outside_doubted(
    more: dict[str, Any], said: str | None, doubted: bool
) -> None:
    result = compose({64: timed_at(64, 1.0, **more)}, {}, [4, 8])
    notes = [note for note in result.notes if "is extrapolated" in note]
    assert len(notes) == (said is not None)
    assert said is None or said in notes[0]
    found = {reason.code: reason.text for reason in result.reasons}
    assert ("outside" in found) is doubted
    assert not doubted or "limit 16" in found["outside"]


def test_traced_counts_and_phases_that_compute_little_are_not_outside() -> None:
    times = {4: timed_at(4, 1.0, outside=50.0)}
    made = compose(times, {}, [4])
    assert {reason.code for reason in made.reasons} == {"wide"}  # 0.7 to 1.2 s
    small = timed_at(64, 1.0, outside=1.0)
    both = changed(
        small,
        phases=[*small.phases, {**phase(1), **TIMED, "outside": 99.0}],
        compute=np.tile([1.0, 0.01], (64, 1)),
        comm=np.zeros((64, 2)),
        comm_low=np.zeros((64, 2)),
        comm_high=np.zeros((64, 2)),
    )
    made = compose({64: both}, {}, [4])
    assert {reason.code for reason in made.reasons} == {"wide"}


def test_a_trace_with_times_takes_them_instead_of_the_work(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    study = Study.create(tmp_path / "study", ["mpiexec", "-n", "{np}", "./app"])
    put_model(study)
    put_scaled(
        study,
        2,
        [(0, 0, 10, 5e6), (1, 0, 10, 7e6), (1, 0, 1, 9e9, "MPI_Init")],
        [{**phase(0), **TIMED, "outside": 1.0}],
        work_unit="instructions",
    )
    part = next(study.scaled_dir(2).glob("*.parquet"))
    table = pq.read_table(part)
    pq.write_table(table.append_column("compute_ns", [[1e6, 3e6, 8e9]]), part)
    put_replay(study, 2, [(0, 0, 0.0, 0.0, 0.0), (1, 0, 0.0, 0.0, 0.0)])
    row = predict(study, [2]).counts[0]
    assert row.compute_s == pytest.approx(30e-3)
    assert row.low_s == pytest.approx(0.7 * 30e-3, rel=0.01)


def test_the_work_of_a_run_in_an_emulator_is_no_time() -> None:
    made = run_of({"start_ns": [-100, 500, 2000], "elapsed_ns": [100, 7, 0], "work": [9, 40, 3]})
    counted = replace(made, work_unit="instructions")
    times = run_times(replace(counted, work_origin="qemu plugin"))
    assert times.wall_s == 2000e-9 and np.isnan(times.work_s) and times.off_core == 0.0
    assert run_times(counted).work_s == 1993e-9, "the clock beside the counters tells"
    run = RunMeasurement(2, 1.0, 1.0, times.work_s, False)
    row = compose({2: timed_at(2, 1.0)}, {2: run}, [2]).counts[0]
    assert row.measured_work_s is None and row.time_from == "measured"
