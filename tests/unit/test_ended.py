"""Programs that were ended once their phases were known: read as if they had gone to the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import corpus
import made_captures
import pytest
from commands import cli

import p3s
from p3s.base.errors import P3SError

TURNS = 40
Part = Callable[[corpus.Recorder, int], None]


def ring(rec: corpus.Recorder) -> None:
    """Record a message to the next rank and one from the last."""
    rec("Isend", "there", (rec.rank + 1) % rec.n, nbytes=64 * rec.n)
    rec("Irecv", "back", (rec.rank - 1) % rec.n, nbytes=64 * rec.n)
    rec("Waitall", "wait", nbytes=2)  # so many requests


def plain(rec: corpus.Recorder, turn: int) -> None:
    """Record the same iteration each time."""
    ring(rec)
    rec("Allreduce", "sum", nbytes=8)


def from_the_second_on(rec: corpus.Recorder, turn: int) -> None:
    """Record a sum at the beginning of each iteration but the first."""
    if turn:
        rec("Allreduce", "sum", nbytes=8)
    ring(rec)


def each_fifth(rec: corpus.Recorder, turn: int) -> None:
    """Record a sum at the end of each fifth iteration."""
    ring(rec)
    if turn % 5 == 4:
        rec("Allreduce", "sum", nbytes=8)


def looped(part: Part, turns: int, whole: bool) -> corpus.Program:
    """Return a program of iterations between a beginning and an end, or only so many of these."""

    def run(rec: corpus.Recorder) -> None:
        rec("Bcast", "input", root=0, nbytes=64)
        for turn in range(turns):
            part(rec, turn)
        if whole:
            rec("Reduce", "output", root=0, nbytes=8)

    return run


def messages(study: Path, n: int) -> Counter[tuple[object, ...]]:
    """Return the calls of the trace of a count."""
    frame = p3s.open(study).scale(n).to_frame()
    found: Counter[tuple[object, ...]] = Counter()
    for *call, times in frame[["rank", "op", "peer", "bytes", "repeat"]].values.tolist():
        found[tuple(call)] += times
    return found


@pytest.mark.parametrize("part", [plain, from_the_second_on, each_fifth])
def test_models_of_runs_left_early_are_those_of_whole_runs(part: Part, tmp_path: Path) -> None:
    program, early = looped(part, TURNS, whole=True), looped(part, 12, whole=False)
    counts = (4, 6, 8)
    full = made_captures.write_study(tmp_path / "full", program, counts)
    few = made_captures.write_study(tmp_path / "few", program, counts, {4: early, 8: early})
    assert messages(full, 16) == messages(few, 16)
    assert "was ended once its phases were known" in cli("check", few).out


def test_unlike_messages_after_the_iterations_are_refused(tmp_path: Path) -> None:
    def program(rec: corpus.Recorder) -> None:
        looped(plain, TURNS, whole=False)(rec)
        rec("Send", "check", (rec.rank + 2) % rec.n, nbytes=8)

    left = {8: looped(plain, 12, whole=False)}
    few = made_captures.write_study(tmp_path / "few", program, (4, 6, 8), left)
    with pytest.raises(P3SError, match="calls follow that are not the same on all ranks"):
        p3s.open(few).scale(16)
