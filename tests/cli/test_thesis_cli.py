"""`p3s phases --thesis`: the phases as the thesis finds them, beside the loops."""

from __future__ import annotations

from pathlib import Path

import pytest
from capture_writer import put_run_json
from commands import cli
from test_bad_captures import good

from p3s.base.study import Study


@pytest.fixture
def study(tmp_path: Path) -> str:
    """A ring with a sum in each of 40 turns, at 2 and 4 ranks."""
    made = Study.create(tmp_path / "study", ["mpiexec", "-n", "{np}", "./app"])
    for n in (2, 4):
        folder = made.runs_dir(n)
        folder.mkdir(parents=True)
        good(folder, n, turns=40)
        put_run_json(folder, n)
    made.update()
    return str(made.root)


def test_weights_are_those_of_the_loops(study: str) -> None:
    cli("phases", study, "--thesis", out="Phases of the thesis at 4 processes")
    data = cli("phases", study, "--thesis", "-n", "2", "--json").data
    assert data["schema"] == "p3s.phases.thesis" and data["np"] == 2
    relevant = [p for p in data["phases"] if p["relevant"]]
    assert sum(p["weight"] for p in relevant if p["loop_phase"] == 1) == 40
    assert sum(p["share"] for p in data["phases"]) == pytest.approx(1.0, abs=0.02)


def test_a_stricter_likeness_is_a_setting(study: str) -> None:
    data = cli("phases", study, "--thesis", "--similar", "0,50%,60,100%", "--json").data
    assert data["settings"] == {"volume": 0.0, "compute": 0.5, "events": 0.6, "relevance": 1.0}
    assert not any(p["relevant"] for p in data["phases"] if p["share"] < 1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--similar", "5%,90%"], "--similar 5%,90%: not four percentages"),
        (["--similar", "5,90,80,x"], "not four percentages"),
        (["--similar", "5,90,80,200"], "not four percentages"),
        (["-n", "2,4"], "of one count"),
    ],
)
def test_wrong_use_is_one_line(study: str, words: list[str], said: str) -> None:
    err = cli("phases", study, "--thesis", *words, code=2).err.strip().splitlines()
    assert len(err) == 1 and said in err[0]
