"""Text in the terminal is as wide as that is, within bounds; tables keep their own width."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

import models
import pytest
from made_predictions import made_prediction, reason, record
from paths import ROOT

from p3s.base.text import text_width
from p3s.report.equations import render as render_model
from p3s.report.terminal import render

WORDS = " ".join(["word"] * 60)


@pytest.mark.parametrize(
    ("columns", "width"), [("80", 80), ("20", 60), ("500", 120), ("", 100), ("0", 100), ("x", 100)]
)
def test_columns_are_followed_within_bounds(
    monkeypatch: pytest.MonkeyPatch, columns: str, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert text_width() == width


@pytest.mark.parametrize(("columns", "width"), [(72, 72), (200, 120), (0, 100)])
def test_a_terminal_is_followed_within_bounds(columns: int, width: int) -> None:
    """One that does not know how wide it is says 0."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    try:
        env = {k: v for k, v in os.environ.items() if k != "COLUMNS"} | {"PYTHONPATH": str(ROOT)}
        code = "from p3s.base.text import text_width; print(text_width())"
        subprocess.run([sys.executable, "-c", code], stdout=theirs, env=env, check=True, timeout=60)
        assert int(os.read(ours, 100)) == width
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize("width", [60, 90, 120])
def test_reasons_of_a_prediction_follow(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """The line that is told is as long as the width allows."""
    monkeypatch.setenv("COLUMNS", str(width))
    made = record(made_prediction(reasons=[reason("wide", WORDS)]))
    lines = [line for line in render(made).splitlines() if "word word" in line]
    assert width - 5 < max(map(len, lines)) <= width


def test_a_models_text_follows_and_its_tables_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    narrow = render_model(models.built("jacobi2d")).splitlines()
    monkeypatch.delenv("COLUMNS")
    usual = render_model(models.built("jacobi2d")).splitlines()
    symbols = [
        next(line for line in each if line.startswith("symbols")) for each in (narrow, usual)
    ]
    assert len(symbols[0]) <= 60 < len(symbols[1]) <= 100
    rows = [[line for line in each if "  Irecv  " in line] for each in (narrow, usual)]
    assert rows[0] == rows[1] and rows[0]
