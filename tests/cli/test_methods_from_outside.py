"""A method from outside adds commands, a part of reports and what Python offers."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from made_predictions import made_prediction
from report_studies import put_study
from tiny_method import small

import p3s
from p3s.base import extensions
from p3s.cli import main, making


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a study with a prediction, while the method is installed."""
    known = [EntryPoint("tiny", "tiny_method", extensions.GROUP)]
    monkeypatch.setattr(extensions.metadata, "entry_points", lambda group: known)
    yield from _forgetting(put_study(tmp_path / "study", made_prediction()).root)


def _forgetting(root: Path) -> Iterator[Path]:
    for when in (True, False):
        extensions.extensions.cache_clear()
        making.loaded.cache_clear()
        if when:
            yield root


def test_its_commands(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["tiny"], ["machine", "tiny"]):
        assert main.run([*words, str(study)]) == 3
        assert capsys.readouterr().out == "tiny: study\n"
    assert main.run(["help", "--all"]) == main.run(["machine", "--help"]) == 0
    text = capsys.readouterr().out
    assert "Show what is tiny." in text and "Show a tiny machine." in text
    assert main.run(["tiny", "--help"]) == 0 and "p3s tiny study" in capsys.readouterr().out


def test_its_option_of_another_command(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["phases", str(study), "--fast"]) == 3
    assert capsys.readouterr().out == "tiny: study\n"
    assert main.run(["phases", str(study)]) == 1
    assert main.run(["phases", "--help"]) == 0
    text = capsys.readouterr().out
    assert text.index("--tree") < text.index("--thesis") < text.index("--fast")
    assert text.index("--fast") < text.index("--json")


def test_its_part_of_a_report(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["report", str(study)]) in (0, 3)
    assert "tiny: half is enough\n" in capsys.readouterr().out
    page = (study / "report.html").read_text()
    for text in ('id="tiny"', "What is tiny", "Half of it &amp; more.", "&lt;b&gt;"):
        assert text in page
    for text in ("Made by hand", "half the time", "Half is enough."):
        assert text in page
    assert page.count('"otherline"') == 4, "the regression and its curve, in two charts"


def test_what_python_offers(study: Path) -> None:
    assert p3s.open(study).small(2, more=1) == "studystudy!" and small.__doc__
    with pytest.raises(AttributeError, match="a study has no large"):
        _ = p3s.open(study).large


def test_nobody_knows_it_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["tiny", "study"]) == 2
    assert "No such command" in capsys.readouterr().err


def test_one_that_cannot_be_imported(
    study: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = [EntryPoint("huge", "no_such_module", extensions.GROUP)]
    monkeypatch.setattr(extensions.metadata, "entry_points", lambda group: known)
    extensions.extensions.cache_clear()
    assert main.run(["report", str(study)]) == 1
    assert "extension no_such_module cannot be loaded" in capsys.readouterr().err
