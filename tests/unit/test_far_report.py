"""far.json as text: what runs stand for, and why some stand for nothing."""

from __future__ import annotations

from typing import Any

import pytest

from p3s.base.serialise import from_data
from p3s.costs.small_runs.summary import FarFile
from p3s.report.small_runs import render


def row(phase: int, n: float | None, cost: float | None = 0.257, **more: Any) -> dict[str, Any]:
    found = {"n": n, "nearest": round(n), "distance": 0.0087} if n else {}
    ns = 512345.0 * (cost or 0.0)
    point = [["Send", "MPI_Send"], phase, n, 512345.0, 51234.5, ns, ns, 4, 1, "far/w1", 4]
    return {
        "np": 4,
        "phase": phase,
        "ranks": [[0, 3]],
        "turns": 10.0,
        "x": 51234.5,
        "nbytes": 80.0,
        "n": n,
        "by_work": found,
        "by_bytes": {},
        "points": [point] if cost else [],
        **more,
    }


def file(unit: str, **more: Any) -> FarFile:
    empty = {"error": None, "places": "by call site", "rows": [], "minimum": []}
    far = {"name": "far/w1", "command": ["./a"], "counts": [4], **empty, **more}
    names = [f"Send{phase}" for phase in range(4)]
    return from_data(FarFile, {"work_unit": unit, "phases": names, "workloads": [far]})


def page(
    unit: str,
    rows: list[dict[str, Any]],
    minimum: list[dict[str, Any]] | None = None,
    error: str | None = None,
) -> str:
    command = ["mpiexec", "-n", "{np}", "./a\x1b[31m"]
    made = file(unit, command=command, rows=rows, minimum=minimum or [], error=error)
    return "\n".join(render(made))


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
    same = row(2, None, by_work={"why": "is the same at every count"})
    text = page("instructions", [row(1, 64.0), same])
    assert (
        "phase 2 Send2 stands for no count: its work per iteration is the same at every count"
        in text
    )
    why = "cannot be compared: its messages are as large as those of the original"
    text = page("cpu_ns", [row(1, None, None, by_bytes={"why": why})]).replace("\n    ", " ")
    assert f"stands for no count: {why}" in text and "--work instructions" in text


def test_how_the_places_of_another_build_were_matched() -> None:
    def told(**more: str) -> str:
        return "\n".join(render(file("instructions", rows=[row(1, 64.0)], **more)))

    assert "its places were matched by function and line" in told(places="by function and line")
    assert "matched" not in told(places="by call site")


def test_another_shape_and_another_program() -> None:
    text = page("instructions", [row(3, 64.0, by_bytes={"n": 100.0})]).replace("\n    ", " ")
    assert "phase 3: by the bytes of the messages it is another count" in text
    assert "far/w1: another program" in page("instructions", [], error="far/w1: another program")
