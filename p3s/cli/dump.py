"""``p3s dump``: everything a capture holds, as text, totals, JSON or Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.base.text import plural
from p3s.cli.common import emit, out, say, write_out

if TYPE_CHECKING:
    from p3s.capture import RunTrace
    from p3s.capture.recover import Place


def dump(path: Path, rank: int | None, summary: bool, parquet: Path | None, json_: bool) -> int:
    """Print every record of a capture, or its totals; or write it as Parquet.

    Exit code 3 when the capture is partial or damaged: what is intact is there all the same.
    """
    from p3s.capture.dump import json_pieces, text, write_parquet
    from p3s.capture.recover import one_place, places_at

    if summary:
        return _summaries(places_at(path), json_)
    place = one_place(path)
    run = place.read()
    if parquet is not None:
        events = write_parquet(run, parquet, rank)
        if json_:
            emit("dump", parquet=str(parquet), events=events)
        else:
            out(f"{parquet}: {plural(events, 'event')}")
    elif json_:
        for piece in json_pieces(run, rank):
            write_out(piece)
        out("")
    else:
        for block in text(run, rank):
            out(block)
    return _code([run])


def _summaries(places: Sequence[Place], json_: bool) -> int:
    from p3s.report.captured import totals_of, totals_text

    runs, totals = [], []
    for place in places:
        run = place.read()
        runs.append(run)
        totals.append(totals_of(place.path, run))
        if not json_:
            out(totals_text(totals[-1]))
    if json_:
        emit("dump", runs=totals)
    return _code(runs)


def _code(runs: Sequence[RunTrace]) -> int:
    problems = [run.problem for run in runs if run.problem]
    for problem in problems:
        say(f"partial: {problem}")
    return 3 if problems else 0
