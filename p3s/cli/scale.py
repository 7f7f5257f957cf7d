"""``p3s scale``: the logical trace at counts that were never run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from p3s.base.text import table
from p3s.cli.common import emit, out, quote_word, say, say_reasons
from p3s.cli.progress import progress
from p3s.cli.values import parse_counts, parse_ranks

if TYPE_CHECKING:
    from p3s.predict.types import Reason


def scale(study_dir: Path, counts: str, ranks: str | None, json_: bool) -> int:
    """Write the logical trace at larger counts: one row per event and rank, as Parquet."""
    from p3s.pipeline.commands import Commands
    from p3s.pipeline.prediction import check_study
    from p3s.pipeline.records import load_study
    from p3s.pipeline.stages import (
        check_scaled_room,
        doubt_counts,
        ensure_compute,
        ensure_model,
        trace_of,
    )
    from p3s.predict.doubts import of_structure

    counts_asked = parse_counts(counts)
    chosen_ranks = parse_ranks(ranks) if ranks is not None else None
    doubts: list[Reason] = []
    study = load_study(study_dir)
    check_study(study_dir)
    written = []
    with progress(len(counts_asked)) as bar:
        ensure_model(study, bar)
        ensure_compute(study, bar)
        for n, why in doubt_counts(study, counts_asked).items():
            say(f"n={n}: {why}")
        if chosen_ranks is None:
            check_scaled_room(study, counts_asked)
        for n in counts_asked:
            bar.start(f"n={n}: scaling")
            head, where = trace_of(study, n, chosen_ranks)
            bar.done(f"n={n}: {where}")
            written.append((n, head, where))
            doubts += of_structure(head, Commands(study))
    if json_:
        emit("scale", counts=[{**head, "n": n, "path": str(where)} for n, head, where in written])
    else:
        rows = [
            [str(n), "x".join(map(str, head["grid"])) or "-", str(len(head["phases"])), str(where)]
            for n, head, where in written
        ]
        out(table(rows, ["processes", "grid", "phases", "scaled trace"], left=1))
    if chosen_ranks is None:
        say(f"next: p3s replay {quote_word(study.root)} -n {','.join(map(str, counts_asked))}")
    for reason in doubts:
        if not reason.untrustworthy:
            say(f"caution ({reason.code}): {reason.sentence}")
    return say_reasons(doubts, "scaled trace")
