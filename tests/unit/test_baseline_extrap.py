"""Run times in Extra-P's JSON Lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from p3s.base.errors import P3SError
from p3s.formats.extrap import lines
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


def test_neither_call_path_nor_metric_is_needed(tmp_path: Path) -> None:
    file = points(tmp_path / "points.jsonl", {"params": {"p": 2}, "value": 3.5})
    assert [(run.n, run.seconds) for run in read(file).runs] == [(2, 3.5)]


def test_what_p3s_exports_is_read(tmp_path: Path) -> None:
    file = tmp_path / "times.jsonl"
    file.write_text("".join(lines([(4, "run", "time", 2.0), (8, "run", "time", 1.0)])))
    assert [(run.n, run.seconds) for run in read(file).runs] == [(4, 2.0), (8, 1.0)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"params": {"p": 4}, "metric": "visits", "value": 1}', "no metric is the time"),
        ("no json", "line 1: is not JSON"),
        ('{"p": 4}', "line 1: is no point"),
        ('{"params": {"p": 4}, "value": "long"}', "no number"),
        ('{"params": {"p": 4}, "value": []}', "no number"),
        ('{"params": {"p": 4.5}, "value": 1}', "no whole number"),
        ('{"params": {"p": 4}, "value": NaN}', "JSON|no number"),
    ],
)
def test_what_is_no_list_of_times_is_told_in_one_line(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "points.jsonl"
    file.write_text(text + "\n")
    with pytest.raises(P3SError, match=why) as told:
        read(file)
    assert "\n" not in str(told.value)
