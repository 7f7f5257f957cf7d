"""What changes would save, as tables: one of the largest count, one of all counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from p3s.base.text import aligned, factor, interval, percent, processes, seconds, span, visible
from p3s.predict.types import Count, Prediction, WhatIf, WhatIfAt
from p3s.report.counts import thinned

#: Rows of a table, and counts of the one of all counts.
MAX_ROWS, MAX_COUNTS = 20, 8
#: Changes that a summary names.
MAX_BEST = 3


@dataclass(frozen=True)
class WhatIfTable:
    """Changes and what they save at the largest count ``n``, most first.

    ``curve_head``, ``curves``: speedups of those that were asked for over the counts, the program
    as it is in the first row; empty with one count. ``said``: what is to be kept in mind.
    """

    n: int
    head: list[str]
    rows: list[list[str]]
    curve_head: list[str]
    curves: list[list[str]]
    said: list[str]


def what_if_of(prediction: Prediction, shown: Callable[..., str] = span) -> WhatIfTable | None:
    """Return the tables of a prediction, intervals as ``shown``; None where nothing was changed."""
    found = [each for each in prediction.what_if if each.last.n == prediction.last.n]
    if not found:
        return None
    asked = [each for each in found if each.asked]
    several = bool(asked) and len(prediction.counts) > 1
    at = thinned(prediction.counts, MAX_COUNTS)
    return WhatIfTable(
        prediction.last.n,
        ["what if", "saves", "interval", "share", "time", "speedup", "interval"],
        [_row(each, prediction.last, shown) for each in found[:MAX_ROWS]],
        ["speedup", *(f"{row.n:,}" for row in at)] if several else [],
        _curves(asked[:MAX_ROWS], at) if several else [],
        _said(prediction, found),
    )


def terminal_lines(prediction: Prediction) -> list[str]:
    """Return the tables as lines of text; none where nothing was changed."""
    found = what_if_of(prediction, interval)
    if found is None:
        return []
    lines = [f"what if, at {processes(found.n)}:", *aligned([found.head, *found.rows], {0})]
    if found.curves:
        lines += ["", *aligned([found.curve_head, *found.curves], {0})]
    return [*lines, *(f"note: {text}" for text in found.said), ""]


def summary_lines(prediction: Prediction) -> list[str]:
    """Return what saves most at the largest count, in a line; none where nothing does."""
    last = prediction.last
    texts = []
    for each in prediction.what_if:
        at = each.last
        if at.n == last.n and at.saved_s > 0 and (at.saved_low_s is None or at.saved_low_s > 0):
            texts.append(f"{visible(each.text, 80)} {_share(at.saved_s, last.time_s)}")
    listed = ", ".join(texts[:MAX_BEST])
    what = f"what if: of the time at {processes(last.n)}, would be saved by {listed}"
    return [what] if texts else []


def _row(each: WhatIf, row: Count, shown: Callable[..., str]) -> list[str]:
    last = each.last
    return [
        visible(each.text, 80),
        seconds(last.saved_s),
        shown(last.saved_low_s, last.saved_high_s),
        _share(last.saved_s, row.time_s),
        seconds(last.time_s),
        factor(last.speedup),
        _factors(last, shown),
    ]


def _share(saved: float, time: float) -> str:
    """Return which part of the run time is saved; of one that is longer how much it is more."""
    share = percent(abs(saved) / time if time > 0 else 0.0)
    return f"-{share}" if saved < 0 and share != "0.0 %" else share


def _factors(at: WhatIfAt, shown: Callable[..., str]) -> str:
    """Return the interval of a speedup."""
    if at.speedup_low is None or at.speedup_high is None:
        return shown(None, None)
    joined = "–" if shown is span else "x to "
    return f"{factor(at.speedup_low)[:-1]}{joined}{factor(at.speedup_high)}"


def _curves(asked: list[WhatIf], at: list[Count]) -> list[list[str]]:
    """Return speedups over the counts: of the program as it is, and with each change."""
    rows = [["as it is", *(factor(row.speedup) for row in at)]]
    for each in asked:
        known = {one.n: one.speedup for one in each.counts}
        rows.append([visible(each.text, 80), *(factor(known.get(row.n)) for row in at)])
    return rows


def _said(prediction: Prediction, found: list[WhatIf]) -> list[str]:
    """Return what is to be kept in mind."""
    why = dict.fromkeys(visible(each.why, 300) for each in found if each.why)
    base = processes(prediction.baseline_n)
    said = [f"each change is made alone; speedups are over the program as it is with {base}"]
    if any((each.last.saved_low_s or 0.0) < 0 < each.last.saved_s for each in found if each.counts):
        said.append("where an interval reaches below 0 s the change may as well save nothing")
    notes = dict.fromkeys(visible(note, 300) for each in found for note in each.notes)
    return [*said, *why, *notes]
