"""`p3s scale` and `p3s predict` where structures that explain the traced runs differ at a count."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import corpus
import pytest
from commands import cli
from corpus import grids
from made_captures import write_study

from p3s.predict import checks
from p3s.predict.case import Case
from p3s.predict.types import Reason


@pytest.fixture(scope="module")
def either_grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study whose grid is 6x6 or 9x4 at 36 processes, and 8x6 by all rules at 48."""
    program = grids.split_on_grid(lambda r, _n: r % 4)
    return write_study(tmp_path_factory.mktemp("grid") / "study", program, (4, 8, 12, 16))


@pytest.fixture(scope="module")
def either_partner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study whose ranks may be on many grids, with partners by two rules, above 16 processes."""
    program = grids.row_gather()
    return write_study(tmp_path_factory.mktemp("row") / "study", program, (4, 8, 12, 16))


def test_partners_that_are_as_likely_as_others_are_an_exit_code(either_partner: Path) -> None:
    said = "(open): at 36 processes the traced runs allow process grids 6x6, 9x4, 4x9 or"
    shown = cli("scale -n 36 --json", either_partner, code=3, err=said)
    assert shown.data["counts"][0]["open"]["chance"] == 0.5


def test_the_grids_are_named_where_they_differ(either_grid: Path) -> None:
    """One that few programs have is to be minded."""
    said = "caution (open): at 36 processes the traced runs allow process grids 6x6 or 9x4"
    shown = cli("scale -n 36 --json", either_grid, err=(said, "p3s next"))
    (found,) = (count["open"] for count in shown.data["counts"])
    assert found["grids"] == [[9, 4]] and 0.0 < found["chance"] < 0.1


@pytest.mark.parametrize("n", [8, 16, 32])
def test_nothing_is_open_at_traced_counts_and_where_all_agree(either_grid: Path, n: int) -> None:
    shown = cli(f"scale -n {n} --json", either_grid)
    assert shown.data["counts"][0].get("open") is None, shown


@pytest.mark.parametrize(("share", "against"), [(0.5, True), (0.01, False)])
def test_a_prediction_says_so_and_distrusts_it_where_ranks_talk_much(
    either_partner: Path, monkeypatch: pytest.MonkeyPatch, share: float, against: bool
) -> None:
    """A grid that is open changes messages: where these take a hundredth, it is to be minded."""
    real = checks.structure

    def talking(case: Case) -> Iterable[Reason]:
        rows = [
            replace(row, comm_s=(share + 0.2) * row.model_s, waiting_s=0.2 * row.model_s)
            for row in case.rows
        ]
        return real(replace(case, rows=rows))

    monkeypatch.setattr(
        checks, "BEFORE", tuple(talking if each is real else each for each in checks.BEFORE)
    )
    words = "predict -n 36 --no-replay --json --what-if none"
    shown = cli(words, either_partner, code=3 if against else None)
    (reason,) = [each for each in shown.data["reasons"] if each["code"] == "open"]
    assert "grids 6x6, 9x4, 4x9 or 4x3x3" in reason["text"] and reason["untrustworthy"] is against


def test_borders_that_say_who_sends_leave_no_rule_with_a_guard(tmp_path: Path) -> None:
    """c + 1 within the border is the rule: no c - 3 modulo the extent, for all but the last."""
    study = write_study(tmp_path / "study", corpus.jacobi2d(), (2, 4, 8, 16))
    shown = cli("scale -n 64 --json", study)
    (count,) = shown.data["counts"]
    assert count.get("open") is None, shown
