"""`p3s scale` and `p3s predict` where structures that explain the traced runs differ at a count."""

from __future__ import annotations

import json
from pathlib import Path

import corpus
import grid_programs
import pytest
from made_captures import write_study
from old_studies import called


@pytest.fixture(scope="module")
def either_grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study whose grid is 6x6 or 9x4 at 36 processes, and 8x6 by all rules at 48."""
    program = grid_programs.split_on_grid(lambda r, _n: r % 4)
    return write_study(tmp_path_factory.mktemp("grid") / "study", program, (4, 8, 12, 16))


def test_the_grids_are_named_where_they_differ(either_grid: Path) -> None:
    code, out, err = called("scale", str(either_grid), "-n", "36", "--json")
    assert code == 3
    assert json.loads(out)["counts"][0]["open"]["grids"] == [[9, 4]]
    assert "(open): at 36 processes the traced runs allow process grids 6x6 or 9x4" in err
    assert "p3s next" in err


@pytest.mark.parametrize("n", [8, 16, 32])
def test_nothing_is_open_at_traced_counts_and_where_all_agree(either_grid: Path, n: int) -> None:
    code, out, err = called("scale", str(either_grid), "-n", str(n), "--json")
    assert (code, json.loads(out)["counts"][0].get("open")) == (0, None), err


def test_a_prediction_says_so(either_grid: Path) -> None:
    code, out, _ = called("predict", str(either_grid), "-n", "36", "--no-replay", "--json")
    assert code == 3
    (reason,) = [each for each in json.loads(out)["reasons"] if each["code"] == "open"]
    assert "6x6 or 9x4" in reason["text"]


def test_borders_that_say_who_sends_leave_no_rule_with_a_guard(tmp_path: Path) -> None:
    """c + 1 within the border is the rule: no c - 3 modulo the extent, for all but the last."""
    study = write_study(tmp_path / "study", corpus.jacobi2d(), (2, 4, 8, 16))
    code, out, err = called("scale", str(study), "-n", "64", "--json")
    (count,) = json.loads(out)["counts"]
    assert (code, count.get("open")) == (0, None), err
