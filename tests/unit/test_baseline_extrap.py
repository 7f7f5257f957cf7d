"""Run times in Extra-P's formats: text, JSON, JSON Lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from p3s.base.errors import P3SError
from p3s.formats.extrap import lines, text_lines
from p3s.methods.baseline.read import read


def points(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    return path


def test_the_time_of_the_outermost_call_path_counts(tmp_path: Path) -> None:
    file = points(
        tmp_path / "points.jsonl",
        {"params": {"p": 4, "size": 100}, "callpath": "main", "metric": "time", "value": [2.5, 2]},
        {"params": {"p": 4, "size": 100}, "callpath": "main->f", "metric": "time", "value": 1},
        {"params": {"p": 4, "size": 100}, "callpath": "main", "metric": "visits", "value": 1},
        {"params": {"p": 8, "size": 100}, "callpath": "main", "metric": "time", "value": 1.25},
    )
    found = read(file).runs
    assert [(run.n, run.repeat, run.seconds, run.inputs) for run in found] == [
        (4, 0, 2.5, (("size", 100.0),)),
        (4, 1, 2.0, (("size", 100.0),)),
        (8, 0, 1.25, (("size", 100.0),)),
    ]


def test_call_paths_beside_each_other_are_series(tmp_path: Path) -> None:
    rows = [{"params": {"p": 4}, "callpath": path, "metric": "time", "value": 1} for path in "ab"]
    found = read(points(tmp_path / "points.jsonl", *rows)).runs
    assert [run.labels for run in found] == [(("callpath", "a"),), (("callpath", "b"),)]


def test_what_p3s_exports_is_read(tmp_path: Path) -> None:
    file = tmp_path / "times.jsonl"
    file.write_text("".join(lines([(4, "run", "time", 2.0), (8, "run", "time", 1.0)])))
    assert [(run.n, run.seconds) for run in read(file).runs] == [(4, 2.0), (8, 1.0)]


#: The same run times in every format of Extra-P: repeats, another metric, another call path.
TEXT = """# from a script
PARAMETER p size
POINTS (4 100) (8 100)
METRIC time
REGION main
DATA 2.5 2
DATA 1.25
REGION main->f
DATA 1
DATA 1
METRIC visits
REGION main
DATA 1
DATA 1
"""
JSON = {
    "parameters": ["p", "size"],
    "measurements": {
        "main": {
            "time": [
                {"point": [4, 100], "values": [2.5, 2]},
                {"point": [8, 100], "values": [1.25]},
            ],
            "visits": [{"point": [4, 100], "values": [1]}, {"point": [8, 100], "values": [1]}],
        },
        "main->f": {
            "time": [{"point": [4, 100], "values": [1]}, {"point": [8, 100], "values": [1]}]
        },
    },
}
TABLES = {
    "parameters": [{"id": 1, "name": "p"}, {"id": 2, "name": "size"}],
    "callpaths": [{"id": 1, "name": "main"}, {"id": 2, "name": "main->f"}],
    "metrics": [{"id": 1, "name": "time"}, {"id": 2, "name": "visits"}],
    "coordinates": [
        {
            "id": k,
            "parameter_value_pairs": [
                {"parameter_id": 1, "parameter_value": p},
                {"parameter_id": 2, "parameter_value": 100},
            ],
        }
        for k, p in ((1, 4), (2, 8))
    ],
    "measurements": [
        {"coordinate_id": at, "callpath_id": path, "metric_id": metric, "value": value}
        for at, path, metric, value in [
            (1, 1, 1, 2.5),
            (1, 1, 1, 2),
            (2, 1, 1, 1.25),
            (1, 2, 1, 1),
            (2, 2, 1, 1),
            (1, 1, 2, 1),
            (2, 1, 2, 1),
        ]
    ],
}
FILES = {"points.txt": TEXT, "points.json": json.dumps(JSON, indent=1), "old": json.dumps(TABLES)}


@pytest.mark.parametrize("name", FILES)
def test_text_and_json_are_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(FILES[name])
    size = (("size", 100.0),)
    assert [(r.n, r.repeat, r.seconds, r.inputs) for r in read(tmp_path / name).runs] == [
        (4, 0, 2.5, size),
        (4, 1, 2.0, size),
        (8, 0, 1.25, size),
    ]


@pytest.mark.parametrize("name", FILES)
def test_extrap_has_the_same_measurements(tmp_path: Path, name: str) -> None:
    module = "text_file_reader" if name == "points.txt" else "json_file_reader"
    reader = pytest.importorskip(
        f"extrap.fileio.file_reader.{module}", reason="the package extrap is not installed"
    )
    (tmp_path / name).write_text(FILES[name])
    read_by_extrap = next(
        getattr(reader, key) for key in ("TextFileReader", "JsonFileReader") if hasattr(reader, key)
    )
    experiment = read_by_extrap().read_experiment(tmp_path / name)
    theirs = {
        int(m.coordinate[0]): m.minimum
        for (path, metric), every in experiment.measurements.items()
        for m in every
        if (path.name, metric.name) == ("main", "time")
    }
    ours: dict[int, float] = {}
    for run in read(tmp_path / name).runs:
        ours[run.n] = min(ours.get(run.n, run.seconds), run.seconds)
    assert theirs == ours


def test_the_text_that_p3s_exports_is_read(tmp_path: Path) -> None:
    points = [(4, "run", "time", 2.0), (8, "run", "time", 1.0), (8, "run", "time", 1.5)]
    (tmp_path / "times.txt").write_text("".join(text_lines(points)))
    assert [(r.n, r.seconds) for r in read(tmp_path / "times.txt").runs] == [
        (4, 2.0),
        (8, 1.0),
        (8, 1.5),
    ]


def test_p_is_the_process_count_and_n_the_size_unless_chosen(tmp_path: Path) -> None:
    rows = [{"params": {"p": p, "n": 1000}, "value": 1.0} for p in (4, 8)]
    both = points(tmp_path / "both.jsonl", *rows)
    assert [(r.n, r.inputs) for r in read(both).runs] == [(n, (("n", 1000.0),)) for n in (4, 8)]
    assert [(r.n, r.inputs[0]) for r in read(both, "n").runs] == [(1000, ("p", p)) for p in (4, 8)]
    alone = points(tmp_path / "alone.jsonl", {"params": {"n": 1000}, "value": 1.0})
    with pytest.raises(P3SError, match="no column for the process count.*--processes"):
        read(alone)
    assert read(alone, "n").runs[0].n == 1000
