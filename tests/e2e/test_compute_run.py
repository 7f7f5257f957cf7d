"""A real program from its runs to seconds at a count that nobody ran."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pyarrow.parquet as pq
from commands import p3s
from test_end_to_end import launcher  # noqa: F401


def test_the_ring_is_timed_modelled_and_predicted(
    examples: Path,
    launcher: list[str],  # noqa: F811
    tmp_path: Path,
) -> None:
    study = tmp_path / "study"
    command = [*launcher, str(examples / "ring"), "--bodies", "3000", "--steps", "2"]
    p3s(f"characterize -n 2,3,4 -r 2 --no-repeat -o {study} --", *command)
    done = p3s(f"model {study} --compute --csv -n 6", code=(0, 3))
    rows = list(csv.DictReader(io.StringIO(done.out)))
    compute = json.loads((study / "compute.json").read_text())
    assert [r["np"] for r in compute["runs"]] == [2, 2, 3, 3, 4, 4]
    main = max(compute["laws"], key=lambda e: (e["share"], e["kind"] == "phase"))["phase"]
    own = {r["processes"]: r for r in rows if r["phase"] == str(main) and r["source"] == "own"}
    assert set(own) == {"2", "3", "4"}
    for r in own.values():  # of the machine's noise, not of the arithmetic
        assert 0.5 < float(r["predicted_ns"]) / float(r["measured_ns"]) < 2.0
    told = next(r for r in rows if r["phase"] == str(main) and r["source"] == "predicted")
    assert float(told["low_ns"]) <= float(told["predicted_ns"]) <= float(told["high_ns"])

    prediction = p3s(f"predict {study} -n 6 --budget 1 --json", code=(0, 3)).data
    assert [row["n"] for row in prediction["counts"]] == [2, 3, 4, 6]
    for row in prediction["counts"]:
        head = json.loads((study / "scaled" / f"np{row['n']:06d}" / "scaled.json").read_text())
        phase = next(p for p in row["phases"] if p["phase"] == main)
        scaled = next(p for p in head["phases"] if p["phase"] == main)
        mean = scaled["compute_ns"] / row["n"] / 1e9
        assert phase["compute_low_s"] <= phase["compute_s"] <= phase["compute_high_s"]
        assert 0.9 * mean <= phase["compute_s"] <= 2.0 * mean
        assert phase["crm_i_s"] > 0 and phase["crm_c_s"] is None
        if row["measured"]:
            assert 0.5 < row["work_s"] / row["measured_work_s"] < 2.0
    six = prediction["counts"][-1]
    assert next(p for p in six["phases"] if p["phase"] == main)["outside"] > 1.2
    table = pq.read_table(study / "scaled" / "np000006" / "part-00000.parquet")
    assert (table["compute_ns"].to_numpy() >= 0).all()

    p3s(f"report {study} --json", code=(0, 3))
    page = (study / "report.html").read_text()
    assert "Time of one process in one iteration of each phase" in page and "CRM_i" in page
