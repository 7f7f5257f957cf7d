"""Versions of a program: the predicted time at one count, each against the one before."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from p3s.base.errors import P3SError
from p3s.base.text import NOT_KNOWN, ends, factor, percent, processes, seconds, visible
from p3s.predict.types import Count, Prediction, Reason, filter_untrusted, in_short
from p3s.report.compare import CountPair, pair_of
from p3s.report.counts import DOUBTFUL, interval_of
from p3s.report.show import Columns, Page, Part, show_page, table_of
from p3s.report.sure import reasons_of


@dataclass(frozen=True)
class Step:
    """A version and its time at the count, in s; ``change``: against the one before, if any."""

    study: str
    time_s: float
    low_s: float | None
    high_s: float | None
    interval: str
    efficiency: float
    change: CountPair | None


@dataclass(frozen=True)
class History:
    """Versions in their order; ``warning``: that one is not to be trusted, "" if all are."""

    n: int
    steps: list[Step]
    reasons: list[Reason]
    warning: str


def history_of(predictions: Sequence[Prediction], names: Sequence[str], n: int | None) -> History:
    """Return what predictions say of a count, by default the largest that all have.

    Raises P3SError where there is none, or ``n`` is not among them.
    """
    common = set.intersection(*({row.n for row in one.counts} for one in predictions))
    if not common or n not in (None, *common):
        raise P3SError(
            f"{'no process count is' if n is None else f'{processes(n)} are not'} in all"
            f" {len(names)} predictions; predict one for all with p3s predict"
        )
    at = max(common) if n is None else n
    names = [visible(os.path.relpath(name, _parent(names))) for name in names]
    steps: list[Step] = []
    before: Count | None = None
    for one, name in zip(predictions, names, strict=True):
        row = one.at(at)
        change = None if before is None else pair_of(before, row)
        shown = interval_of(row), row.efficiency, change
        steps.append(Step(name, row.time_s, row.low_s, row.high_s, *shown))
        before = row
    reasons = [
        reason
        for one, name in zip(predictions, names, strict=True)
        for reason in reasons_of(one, name)
    ]
    against = filter_untrusted(reasons)
    warning = f"Do not rely on this comparison: {in_short(against)}." if against else ""
    return History(at, steps, reasons, warning)


def _parent(names: Sequence[str]) -> str:
    """Return the directory that all are in."""
    common = os.path.commonpath([os.path.abspath(name) for name in names])
    return os.path.dirname(common) if common in map(os.path.abspath, names) else common


def as_text(found: History) -> str:
    """Return a history as text: the changes that the intervals tell apart, then every version."""
    changes = [(step, step.change) for step in found.steps if step.change is not None]
    apart = [(step, change) for step, change in changes if change.apart]
    told = [
        f"{step.study} takes {_times(change)} as long as the one before." for step, change in apart
    ]
    table = table_of("Versions", _COLUMNS, found.steps, (0,))
    doubtful = any(change.doubtful for _, change in changes)
    page = Page(
        f"{len(found.steps)} versions at {processes(found.n)}",
        "",
        told or ["No interval is apart from the one before."],
        found.warning,
        filter_untrusted(found.reasons),
        [each for each in found.reasons if not each.untrustworthy],
        [
            Part(
                "versions",
                f"Run time at {processes(found.n)}",
                tables=[table],
                notes=[DOUBTFUL] * doubtful,
            )
        ],
    )
    return show_page(page)


def as_json(found: History) -> dict[str, Any]:
    """Return a history as an object for JSON; times in s, null where not known."""
    return asdict(found)


def as_columns(found: History) -> dict[str, list[Any]]:
    """Return the versions as columns, for CSV; times in s."""
    keys = ("study", "time_s", "low_s", "high_s", "efficiency")
    return {key: [getattr(step, key) for step in found.steps] for key in keys} | {
        "ratio": [step.change and step.change.ratio for step in found.steps]
    }


def _times(change: CountPair | None) -> str:
    return NOT_KNOWN if change is None or change.ratio is None else factor(change.ratio)


def _ends(step: Step) -> str:
    change = step.change
    if change is None or change.low is None or change.high is None:
        return NOT_KNOWN
    return ends(change.low, change.high, ".2f")


_COLUMNS: Columns[Step] = {
    "version": lambda step: step.study,
    "time": lambda step: seconds(step.time_s),
    "interval": lambda step: step.interval,
    "efficiency": lambda step: percent(step.efficiency),
    "change": lambda step: _times(step.change),
    "its interval": _ends,
}
