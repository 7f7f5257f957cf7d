"""Two predictions of one study at the same time: the counts of both are kept."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import corpus
import pytest
from paths import ROOT
from test_any_counts import put_times

import p3s
from p3s.pipeline import predicting
from p3s.pipeline.saved import read_prediction

#: What nothing waits for longer than.
LIMIT_S = 300.0


def test_the_counts_of_both_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second one that comes while the first predicts says that it waits, and adds to it."""
    study = put_times(tmp_path / "study", corpus.ring(), (4, 8, 16), "cpu_ns")
    others: list[subprocess.Popen[str]] = []
    said: list[str] = []

    def meanwhile(*args: Any, **more: Any) -> Any:
        found = predict(*args, **more)
        command = [sys.executable, "-m", "p3s", "predict", str(study.root), "-n", "64"]
        command += ["--what-if", "none"]
        other = subprocess.Popen(
            command,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        others.append(other)
        limit = threading.Timer(LIMIT_S, other.kill)
        limit.start()
        assert other.stderr is not None
        for line in other.stderr:  # until it waits, or has ended
            said.append(line)
            if "another p3s predict" in line:
                break
        limit.cancel()
        return found

    predict = predicting.predict
    monkeypatch.setattr(predicting, "predict", meanwhile)
    try:
        p3s.open(study.root).predict([32], what_if=["none"])
        assert any(
            line == f"another p3s predict is writing {study.prediction_path}; this one goes on when"
            " it is done\n"
            for line in said
        ), said
        others[0].communicate(timeout=LIMIT_S)
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert [row.n for row in read_prediction(study.prediction_path).counts] == [4, 8, 16, 32, 64]
    assert not list(study.root.glob(".*"))
