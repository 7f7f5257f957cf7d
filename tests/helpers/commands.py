"""The one runner of commands: what a user types, its exit code, and what it says."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from p3s.cli.main import run

Texts = str | tuple[str, ...]
#: What starts the command line in a process of its own.
P3S = (sys.executable, "-m", "p3s")
LIMIT_S = 600.0


@dataclass(frozen=True)
class Shown:
    """What a command came to: its exit code, and what stands on its two streams."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """Return what --json printed."""
        return json.loads(self.out)

    @property
    def last(self) -> str:
        """Return the last line on stderr."""
        return self.err.splitlines()[-1]

    @property
    def said(self) -> list[str]:
        """Return the lines on stderr that are the command's own."""
        return [line for line in self.err.splitlines() if line.startswith("p3s: ")]


class _Stream(io.TextIOWrapper):
    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="UTF-8", newline="", write_through=True)

    def text(self) -> str:
        return self.buffer.getvalue().decode()  # type: ignore[attr-defined,no-any-return]


def cli(
    line: object,
    *words: object,
    code: int | tuple[int, ...] | None = 0,
    out: Texts = (),
    err: Texts = (),
) -> Shown:
    """Run a command in this process; its exit code and words on its streams are as expected.

    line: as typed behind "p3s", split at blanks; words: more arguments, taken as they are; code:
    None where any will do; out, err: texts that each stand on stdout and stderr.
    """
    stdout, stderr = _Stream(), _Stream()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        came = run([*shlex.split(str(line)), *map(str, words)])
    return _as_expected(Shown(came, stdout.text(), stderr.text()), code, out, err)


#: A range whose ends read the same: "measured from 15.5 ms to 15.5 ms".
DEGENERATE = re.compile(r"(?<![\w.,])(\d[\d.,]*(?: (?:%|[^\W\d]+))?) to \1(?![\w.,])")


def _as_expected(shown: Shown, code: int | tuple[int, ...] | None, out: Texts, err: Texts) -> Shown:
    for text in (shown.out, shown.err):
        assert not (same := DEGENERATE.search(text)), f"{same[0]!r} is no range, in {text}"
    assert code is None or shown.code in ((code,) if isinstance(code, int) else code), shown
    for expected, text in ((out, shown.out), (err, shown.err)):
        for each in (expected,) if isinstance(expected, str) else expected:
            assert each in text, f"{each!r} is not in {shown}"
    return shown


def started(
    words: Sequence[object],
    cwd: Path | None = None,
    timeout_s: float = LIMIT_S,
    env: Mapping[str, str] | None = None,
    stdin: Any = subprocess.DEVNULL,
    input: str | None = None,
) -> Shown:
    """Run a program in a process group of its own, which is gone when this returns."""
    process = subprocess.Popen(
        [str(word) for word in words],
        cwd=cwd,
        env=env,
        stdin=stdin if input is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(input, timeout=timeout_s)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM if process.poll() is None else signal.SIGKILL)
        process.wait(30)
    return Shown(process.returncode, out, err)


def p3s(
    line: object,
    *words: object,
    code: int | tuple[int, ...] | None = 0,
    out: Texts = (),
    err: Texts = (),
    **settings: Any,
) -> Shown:
    """Run a command as ``cli`` does, in a process of its own; settings: those of ``started``."""
    shown = started([*P3S, *shlex.split(str(line)), *words], **settings)
    assert "Traceback" not in shown.err and shown.code != 70, shown
    return _as_expected(shown, code, out, err)
