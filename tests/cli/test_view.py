"""The page of a study in a browser: opened, or served to this machine alone."""

from __future__ import annotations

import os
import threading
import urllib.error
import urllib.request
import webbrowser
from pathlib import Path

import pytest
from made_predictions import made_prediction
from report_studies import put_study

from p3s.base.errors import P3SError
from p3s.cli.main import run
from p3s.cli.view import server_of
from p3s.report import view


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A study with a prediction and no page."""
    return put_study(tmp_path / "study", made_prediction()).root


def test_the_page_is_written_and_opened(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or True)
    page = study / "report.html"
    page.unlink(missing_ok=True)
    assert run(["view", str(study)]) == 0
    assert opened == [page.as_uri()] and page.exists()
    os.utime(page, (0, 0))  # older than the prediction
    assert run(["view", str(study)]) == 0
    assert page.stat().st_mtime > 0


def test_a_page_for_others_quotes_no_source(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "open", lambda url: True)
    real = view.view_of
    monkeypatch.setattr(
        view, "view_of", lambda *all, source=True: asked.append(source) or real(*all, source=source)
    )
    assert run(["view", str(study)]) == 0
    assert run(["view", str(study), "--no-source"]) == 0
    assert asked[-1] is False
    assert run(["view", str(study)]) == 0
    assert asked[-1] is False  # the page is there, and as new as the prediction


def test_only_who_knows_the_address_gets_the_page(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text("<p>curve</p>")
    server, path = server_of(page, 0)
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_port}"
        try:
            with urllib.request.urlopen(base + path, timeout=120) as answer:
                assert answer.read() == b"<p>curve</p>"
            for other in ("/", "/report.html", path + "x", "/../report.html"):
                with pytest.raises(urllib.error.HTTPError):
                    urllib.request.urlopen(base + other, timeout=120)
            with pytest.raises(P3SError, match="take another"):
                server_of(page, server.server_port)
        finally:
            server.shutdown()


def test_without_a_prediction_it_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["view", str(tmp_path / "none")]) != 0
    assert "none" in capsys.readouterr().err
