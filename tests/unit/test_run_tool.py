"""Compilers end, and with them what they start."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from p3s.base.errors import P3SError
from p3s.base.host import compiling


def test_a_compiler_that_is_stopped_is_ended_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = tmp_path / "child"
    stopped = f"sleep 600 & echo $! >{child}; kill -STOP $$"
    deadline, start = time.monotonic() + 120, subprocess.Popen

    def started(*words: Any, **options: Any) -> subprocess.Popen[str]:
        """Start it; its time begins when its child is there, on a busy machine some time later."""
        process = start(*words, **options)
        while not (child.exists() and child.read_text()) and time.monotonic() < deadline:
            time.sleep(0.01)
        return process

    monkeypatch.setattr(compiling, "_TIMEOUT_S", 1.0)
    monkeypatch.setattr(subprocess, "Popen", started)
    with pytest.raises(P3SError, match="cannot compile it with sh: it did not end within 1 s"):
        compiling.run_tool(["sh", "-c", stopped], "compile it")
    number = int(child.read_text())
    while _lives(number) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _lives(number), "what the compiler has started is still there"


def test_the_first_error_of_a_compiler_is_told() -> None:
    said = "echo note; echo 'a.c:1: error: no such thing' >&2; exit 1"
    with pytest.raises(P3SError, match="cannot compile it with sh: a.c:1: error: no such thing"):
        compiling.run_tool(["sh", "-c", said], "compile it")
    assert compiling.run_tool(["echo", "done"], "say it") == "done\n"


def _lives(number: int) -> bool:
    """Tell whether a process is there and no zombie, which its new parent may not ask for."""
    try:
        os.kill(number, 0)
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
