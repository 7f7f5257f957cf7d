"""A method from outside adds commands, a part of reports and what Python offers."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from commands import cli
from made_predictions import made_prediction
from report_studies import put_study
from tiny_method import small

import p3s
from p3s.base import extensions
from p3s.cli import making


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a study with a prediction, while the method is installed."""
    known = [EntryPoint("tiny", "tiny_method", extensions.GROUP)]
    monkeypatch.setattr(extensions.metadata, "entry_points", lambda group: known)
    yield from _forgetting(put_study(tmp_path / "study", made_prediction()).root)


def _forgetting(root: Path) -> Iterator[Path]:
    for when in (True, False):
        extensions.extensions.cache_clear()
        making.load_command.cache_clear()
        if when:
            yield root


def test_its_commands(study: Path) -> None:
    for words in ("tiny", "machine tiny"):
        assert cli(words, study, code=3).out == "tiny: study\n"
    cli("help --all", out="Show what is tiny.")
    cli("machine --help", out="Show a tiny machine.")
    cli("tiny --help", out="p3s tiny study")


def test_its_option_of_another_command(study: Path) -> None:
    assert cli("phases --fast", study, code=3).out == "tiny: study\n"
    cli("phases", study, code=1)
    text = cli("phases --help").out
    assert text.index("--tree") < text.index("--thesis") < text.index("--fast")
    assert text.index("--fast") < text.index("--json")


def test_its_part_of_a_report(study: Path) -> None:
    cli("report", study, code=(0, 3), out="tiny: half is enough\n")
    page = (study / "report.html").read_text()
    for text in ('id="tiny"', "What is tiny", "Half of it &amp; more.", "&lt;b&gt;"):
        assert text in page
    for text in ("Made by hand", "half the time", "Half is enough."):
        assert text in page
    for text in (">half the time</text>", ">a regression of the run times"):
        assert page.count(text) == 2, "the regression and its curve, in two charts"


def test_what_python_offers(study: Path) -> None:
    assert p3s.open(study).small(2, more=1) == "studystudy!" and small.__doc__
    with pytest.raises(AttributeError, match="a study has no large"):
        _ = p3s.open(study).large


def test_nobody_knows_it_elsewhere() -> None:
    cli("tiny study", code=2, err="No such command")


def test_one_that_cannot_be_imported(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = [EntryPoint("huge", "no_such_module", extensions.GROUP)]
    monkeypatch.setattr(extensions.metadata, "entry_points", lambda group: known)
    extensions.extensions.cache_clear()
    cli("report", study, code=1, err="extension no_such_module cannot be loaded")
