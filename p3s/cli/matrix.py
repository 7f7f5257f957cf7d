"""``p3s matrix``: who sends how much to whom, on the terminal or as a picture."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.base.errors import P3SError, UsageError
from p3s.base.text import quote_word
from p3s.cli.common import emit, out, say

if TYPE_CHECKING:
    from p3s.capture import RunTrace


#: Text goes to files and pipes in this width.
_WIDTH = 100


def matrix(path: Path, count: int | None, what: str, png: Path | None, json_: bool) -> int:
    """Show the communication matrix of a traced run: point-to-point messages, source by row.

    Exit code 3 when the capture is partial or damaged: what is intact is shown all the same.
    """
    if what not in ("messages", "bytes"):
        raise UsageError(f"--what {what}: give messages or bytes")
    from p3s.capture.rewrite import whole_as_messages
    from p3s.report.matrix import render
    from p3s.report.pictures import MATRIX_CELLS, MATRIX_SIZE, format_of, matrix_picture
    from p3s.signature.matrix import communication_matrix

    if png is not None:
        format_of(png)
    run = whole_as_messages(_run_at(path, count))
    traffic = communication_matrix(run)
    if png is not None:
        matrix_picture(traffic, what, MATRIX_SIZE, MATRIX_CELLS).save(png)
    if json_:
        columns = (traffic.source, traffic.destination, traffic.messages, traffic.bytes)
        pairs = zip(*(column.tolist() for column in columns), strict=True)
        emit(
            "matrix",
            np=traffic.np,
            run=str(run.path),
            complete=not run.problem,
            messages=int(traffic.messages.sum()),
            bytes=int(traffic.bytes.sum()),
            collective_calls=traffic.collective_calls,
            collective_bytes=traffic.collective_bytes,
            columns=["source", "destination", "messages", "bytes"],
            pairs=[list(pair) for pair in pairs],
            notes=list(traffic.notes),
            picture=None if png is None else str(png),
        )
    else:
        out(render(traffic, what, _width(), _shades()))
        if png is not None:
            out(f"picture: {png}")
    if run.problem:
        say(f"partial: {run.problem}")
        return 3
    return 0


def _run_at(path: Path, count: int | None) -> RunTrace:
    """Return the run to show: of a study the first one at the count."""
    from p3s.capture import read_run
    from p3s.pipeline.records import load_study

    if not (path / "study.json").exists() and any(path.glob("rank-*.p3t")):
        run = read_run(path)
        if count is not None and count != run.np:
            raise UsageError(f"-n {count}: {path} is a run at {run.np} processes")
        return run
    study = load_study(path)
    runs = study.runs()
    if not runs:
        raise P3SError(
            f"{path}: holds no run; trace the program: p3s characterize -n 4,8,16 "
            f"-o {quote_word(path)} -- mpiexec -n {{np}} PROGRAM"
        )
    complete = study.counts()
    np = (complete or [run.np for run in runs])[-1] if count is None else count
    of_count = [run for run in runs if run.np == np]
    if not of_count:
        present = ", ".join(map(str, sorted({run.np for run in runs})))
        raise UsageError(f"-n {np}: {path} has no run at {np} processes; it has {present}")
    # The first repeat; a partial one only where there is nothing better.
    return read_run(min(of_count, key=lambda run: (run.status != "complete", run.rep)).path)


def _shades() -> str:
    """Return block characters for a terminal that can show them, else plain ones."""
    from p3s.report.matrix import ASCII, BLOCKS

    if not sys.stdout.isatty() or "NO_COLOR" in os.environ:
        return ASCII
    try:
        BLOCKS.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return ASCII
    return BLOCKS


def _width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH
