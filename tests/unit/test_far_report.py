"""far.json as text: what runs stand for, and why some stand for nothing."""

from __future__ import annotations

from typing import Any

import pytest

from p3s.base.serialise import from_data
from p3s.costs.small_runs.summary import FarFile
from p3s.report.small_runs import render


def row(phase: int, n: float | None, **more: Any) -> dict[str, Any]:
    return {
        "np": 4,
        "phase": phase,
        "name": f"Send{phase}",
        "group": 0,
        "ranks": 4,
        "where": "0-3",
        "turns": 10.0,
        "work_per_turn": 51234.5,
        "bytes_per_turn": 80.0,
        "work": 512345.0,
        "least_ns": 900.0,
        "cost": 0.257,
        "n": n,
        "nearest": None if n is None else round(n),
        "distance": None if n is None else 0.0087,
        "n_by_work": n,
        "n_by_bytes": None,
        "why_not_by_work": "",
        "why_not_by_bytes": "",
        "bytes_over_work": None,
        "other_shape": False,
        **more,
    }


def page(
    unit: str,
    rows: list[dict[str, Any]],
    minimum: list[dict[str, Any]] | None = None,
    error: str | None = None,
) -> str:
    far = {
        "name": "far/w1",
        "command": ["mpiexec", "-n", "{np}", "./a\x1b[31m"],
        "counts": [4],
        "error": error,
        "places": "by call site",
        "rows": rows,
        "minimum": minimum or [],
    }
    return "\n".join(render(from_data(FarFile, {"work_unit": unit, "workloads": [far]})))


def test_a_row_says_what_it_stands_for() -> None:
    text = page("instructions", [row(1, 1681.0)])
    assert "\x1b" not in text
    (line,) = [x for x in text.splitlines() if "Send1" in x]
    assert line.split() == [
        "1",
        "Send1",
        "4",
        "4",
        "5.123e+04",
        "0.257",
        "1681.0",
        "1681",
        "0.87%",
        "-",
    ]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("reached", "least cost per unit of work reached at 16"),
        ("falling", "still falls at 16"),
        ("steady", "has not fallen at 4 to 16"),
        ("unknown", "is not known"),
    ],
)
def test_the_minimum_in_words(status: str, words: str) -> None:
    minimum = [
        {
            "phase": 1,
            "name": "Send1",
            "counts": [4, 16],
            "cost": [1.0, 0.5],
            "status": status,
            "at": 16,
        }
    ]
    assert words in page("instructions", [row(1, 64.0)], minimum)


def test_what_stands_for_no_count_says_why() -> None:
    same = row(2, None, why_not_by_work="is the same at every count")
    text = page("instructions", [row(1, 64.0), same])
    assert (
        "phase 2 Send2 stands for no count: its work per iteration is the same at every count"
        in text
    )
    why = "cannot be compared: its messages are as large as those of the original"
    text = page("cpu_ns", [row(1, None, cost=None, why_not_by_bytes=why)]).replace("\n    ", " ")
    assert f"stands for no count: {why}" in text and "--work instructions" in text


def test_how_the_places_of_another_build_were_matched() -> None:
    far = {
        "name": "far/w1",
        "command": ["./a.S"],
        "counts": [4],
        "error": None,
        "minimum": [],
        "rows": [row(1, 64.0)],
    }

    def told(**more: str) -> str:
        file = {"work_unit": "instructions", "workloads": [{**far, **more}]}
        return "\n".join(render(from_data(FarFile, file)))

    assert "its places were matched by function and line" in told(places="by function and line")
    assert "matched" not in told(places="by call site")


def test_another_shape_and_another_program() -> None:
    text = page("instructions", [row(3, 64.0, other_shape=True)]).replace("\n    ", " ")
    assert "phase 3: by the bytes of the messages it is another count" in text
    assert "far/w1: another program" in page("instructions", [], error="far/w1: another program")
