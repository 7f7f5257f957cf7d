"""Trace a program as ``p3s trace`` does, from Python: the same command as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from p3s.base import workers
from p3s.base.errors import P3SError, PartialResult, UsageError
from p3s.base.progress import Progress

#: What the command puts before why it failed.
_FAILED = "p3s: "
#: What an interrupted command gets to end its runs, in s.
_GRACE_S = 30.0


def trace(
    root: Path, command: Sequence[str], counts: Sequence[int], options: Sequence[str], bar: Progress
) -> None:
    """Trace a launcher command at process counts into the study in ``root``.

    ``options``: more of those of p3s trace. The lines that it says go to ``bar``. Raises what the
    command ends with, in one line; with runs missing it has said so, and this returns.
    """
    workers.check_may_launch()
    listed = ",".join(map(str, counts))
    words = ["-n", listed, "-o", str(root), *options, "--", *command]
    # A clone that is not installed is found as this process has found it.
    clone = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, [clone, os.environ.get("PYTHONPATH", "")]))
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "p3s", "trace", *words],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    bar.expect(len(counts))
    bar.start(f"tracing at {listed} processes")
    failed = ""
    try:
        assert process.stderr is not None
        for line in map(str.rstrip, process.stderr):
            if line.startswith(_FAILED):
                failed = line.removeprefix(_FAILED)
            elif line.startswith("np="):
                bar.done(line)
            elif line and not line.startswith("next: "):
                bar.say(line)
        code = process.wait()
    except BaseException:
        _end(process)
        raise
    if code == PartialResult.exit_code:
        bar.say(failed)
    elif code:
        kind = UsageError if code == UsageError.exit_code else P3SError
        raise kind(failed or f"p3s trace: ended with exit code {code}")


def _end(process: subprocess.Popen[str]) -> None:
    """End a command as Ctrl-C does: it ends its runs and keeps what was finished."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
