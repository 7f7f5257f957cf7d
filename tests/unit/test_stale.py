"""What is made again because of the dates of files."""

from __future__ import annotations

import os
import time
from pathlib import Path

from p3s.base.artefacts import is_stale


def dated(path: Path, ahead_s: float) -> Path:
    path.touch()
    os.utime(path, (time.time() + ahead_s,) * 2)
    return path


def test_what_is_older_than_its_input_is_made_again(tmp_path: Path) -> None:
    made, read = dated(tmp_path / "made", -10), dated(tmp_path / "read", -20)
    assert not is_stale(made, [read]) and is_stale(read, [made])
    assert is_stale(tmp_path / "missing", [])
    assert not is_stale(made, [tmp_path / "missing"])


def test_what_was_made_while_the_clock_was_ahead_is_made_again(tmp_path: Path) -> None:
    read = dated(tmp_path / "read", 0)
    assert is_stale(dated(tmp_path / "made", 86400), [read])
    assert not is_stale(dated(tmp_path / "made", 60), [read]), "a file server a minute ahead"
