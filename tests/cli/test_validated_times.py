"""``p3s validate`` beside the prediction: what a run took, and whether that can be compared."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from comparisons import comparison
from handmade import put_model
from made_predictions import made_prediction

from p3s.base.study import Study, write_json
from p3s.pipeline.validating import WHY_NOT, Validation, run_time
from p3s.predict.residual import RunMeasurement
from p3s.report.validated import _run_time

N = 64
ROW = next(row for row in made_prediction()["counts"] if row["n"] == N)
ONE_S: dict[str, Any] = {
    "wall_s": ROW["model_s"],
    "wall_max_s": 0.0,
    "work_s": 9.0,
    "shared_cores": False,
}


def compared(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    run: dict[str, Any] | None = None,
    study: Study | None = None,
    **prediction: Any,
) -> dict[str, Any]:
    """Compare a run with a prediction at 64 processes, none of the latter for ``counts`` ()."""
    study = study or Study.create(root / "s", ["mpiexec", "-n", "{np}", "./app"])
    put_model(study)
    if prediction.get("counts") != ():
        write_json(study.prediction_path, made_prediction(**prediction))
    run_dir = study.validate_run_dir(N)
    head = {"schema": "p3s.run", "schema_version": 1, "status": "complete", "cores": 2}
    write_json(run_dir / "run.json", head)
    made = None if run is None else RunMeasurement(N, **{**ONE_S, **run})
    monkeypatch.setattr("p3s.pipeline.validating.measured_in", lambda records, n: made)
    return run_time(study.root, run_dir, N)


@pytest.mark.parametrize(
    ("times", "inside", "said"),
    [
        (1.0, True, "inside the interval"),
        (3.0, False, "outside the interval, 3.00x the predicted"),
        (0.2, False, "outside the interval, 0.20x the predicted"),
    ],
)
def test_whether_a_run_is_inside_of_the_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: float, inside: bool, said: str
) -> None:
    found = compared(tmp_path, monkeypatch, {"wall_s": times * ROW["model_s"]})
    assert found["inside"] is inside and found["why_not"] == ""
    assert found["predicted_s"] == pytest.approx(ROW["model_s"])
    assert found["low_s"] < found["predicted_s"] < found["high_s"]
    lines = _run_time(Validation((4, 8), 0, comparison(N), (), found, ()), str(tmp_path / "s"))
    assert lines[0].startswith("run time: predicted ") and said in lines[0]
    assert lines[1].startswith("computation of the busiest rank: predicted ")


@pytest.mark.parametrize(
    ("run", "prediction", "why"),
    [
        (None, {}, "untimed"),
        ({"shared_cores": True}, {}, "shared-cores"),
        ({"shared_cores": True}, {"counts": ()}, "shared-cores"),
        ({"off_core": 0.4}, {}, "off-core"),
        ({}, {"counts": ()}, "not-predicted"),
        ({}, {"counts": (4, 8, 16)}, "not-predicted"),
        (
            {},
            {"network": {"name": "hdr", "label": "InfiniBand HDR", "source": "typical"}},
            "other-network",
        ),
        ({}, {"representative": False}, "not-representative"),
    ],
)
def test_what_cannot_be_compared(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run: dict[str, Any] | None,
    prediction: dict[str, Any],
    why: str,
) -> None:
    found = compared(tmp_path, monkeypatch, run, **prediction)
    assert found["inside"] is None and found["why_not"] == why and why in WHY_NOT
    (line, *_) = _run_time(Validation((4, 8), 0, comparison(N), (), found, ()), str(tmp_path / "s"))
    assert "not compared: " in line and "{" not in line
    json.dumps(found, allow_nan=False)
    if why == "shared-cores":
        assert line.endswith("the ranks shared 2 cores")
    if why == "not-predicted":
        assert line.endswith(f"p3s predict {tmp_path / 's'} -n 64")


def test_a_prediction_older_than_the_model_is_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Study.create(tmp_path / "s", ["mpiexec", "-n", "{np}", "./app"])
    assert compared(tmp_path, monkeypatch, {}, study)["inside"] is True
    later = study.prediction_path.stat().st_mtime_ns + 10**9
    os.utime(study.model_path, ns=(later, later))
    run_dir = study.validate_run_dir(N)
    assert run_time(study.root, run_dir, N)["why_not"] == "outdated"
