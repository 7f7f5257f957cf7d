"""How sure a prediction is: estimators, parts of the interval, residuals, verdicts, hold-out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from p3s.model.types import Model
from p3s.predict.estimated import ESTIMATORS
from p3s.report.equations import listed, missed_rules
from p3s.report.points import checked_rows
from p3s.report.values import amount, count, lines, mapping, pair, rows, words
from p3s.text import percent, seconds, span, visible

#: What the parts of an interval are, in the order of the page.
PARTS = {
    "work": "how much work each rank has",
    "cost": "what a unit of work costs",
    "replay": "what messages cost",
    "model": "how far the estimators are apart",
    "residual": "what was missed at the measured counts",
}


@dataclass(frozen=True)
class Estimate:
    """What one estimator says at the largest count; times in seconds, None if unknown."""

    name: str
    what: str
    chosen: bool
    time: float | None
    low: float | None
    high: float | None
    cells: list[str]
    notes: list[str]


@dataclass(frozen=True)
class IntervalPart:
    """One part of the interval at the largest count, as factors of the time."""

    name: str
    what: str
    low: float
    high: float
    text: str


@dataclass(frozen=True)
class Residual:
    """A measured value beside that of the model; ``ratio``: measured over model."""

    n: int
    what: str
    ratio: float | None
    cells: list[str]
    representative: bool


ESTIMATE_HEAD = [
    "run time",
    "interval",
    "compute",
    "communication",
    "waiting",
    "transfer",
    "software",
]
_ESTIMATE_KEYS = ("compute_s", "comm_s", "waiting_s", "transfer_s", "software_s")


def estimates_of(prediction: Mapping[str, Any]) -> list[Estimate]:
    """Return what the estimators say at the largest count, in the order they are preferred."""
    last = checked_rows(prediction)[-1]
    given = mapping(last.get("estimators"))
    names = [name for name in ESTIMATORS if name in given]
    names += [name for name in given if name not in ESTIMATORS]
    chosen = last.get("estimator") or prediction.get("estimator")
    found = []
    for name in names:
        entry = mapping(given[name])
        time, low, high = (amount(entry.get(k)) for k in ("time_s", "low_s", "high_s"))
        cells = [
            seconds(time),
            span(low, high) if time is not None else seconds(None),
            *(seconds(amount(entry.get(key))) for key in _ESTIMATE_KEYS),
        ]
        why = words(entry.get("why_not"))
        found.append(
            Estimate(
                visible(str(name), 60),
                ESTIMATORS.get(name, ""),
                name == chosen,
                time,
                low,
                high,
                cells,
                _few([*([why] if why else []), *lines(entry.get("notes"))]),
            )
        )
    return found


def _few(notes: list[str], most: int = 3) -> list[str]:
    """Return the first notes of a list; the others are among what was approximated."""
    notes = list(dict.fromkeys(notes))
    more = len(notes) - most
    return [*notes[:most], *([f"and {more} more, below"] if more > 0 else [])]


def interval_parts(prediction: Mapping[str, Any]) -> list[IntervalPart]:
    """Return what the interval at the largest count is made of."""
    given = mapping(checked_rows(prediction)[-1].get("interval_parts"))
    found = []
    for name in [*(k for k in PARTS if k in given), *(k for k in given if k not in PARTS)]:
        ends = pair(given[name])
        if ends is not None and ends[0] > 0 and ends[1] > 0:
            text = f"{_signed(ends[0])} to {_signed(ends[1])}"
            found.append(IntervalPart(visible(str(name), 40), PARTS.get(name, ""), *ends, text))
    return found


def _signed(value: float) -> str:
    change = 100 * (value - 1)
    return f"{change:+.1f} %".replace("-", "−") if abs(change) >= 0.05 else "0 %"


RESIDUAL_HEAD = ["processes", "compared", "measured", "model", "measured / model"]


def residuals_of(prediction: Mapping[str, Any]) -> list[Residual]:
    """Return what was measured beside what the model says, by count."""
    found = []
    for entry in rows(prediction.get("residuals")):
        n, ratio = count(entry.get("n")), amount(entry.get("ratio"))
        if n is None:
            continue
        what = words(entry.get("what"), 60)
        found.append(
            Residual(
                n,
                what,
                ratio,
                [
                    f"{n:,}",
                    what,
                    seconds(amount(entry.get("measured_s"))),
                    seconds(amount(entry.get("model_s"))),
                    "–" if ratio is None else f"{ratio:.3f}",
                ],
                bool(entry.get("representative", True)),
            )
        )
    return sorted(found, key=lambda each: (each.what, each.n))


@dataclass(frozen=True)
class Shares:
    """The share of every verdict; ``columns``: its parts by what they are a share of."""

    names: list[str]
    columns: dict[str, list[float]]
    rows: list[list[str]]


#: Verdicts in the order of a bar, the surest first; others follow. They are of messages, sizes and
#: weights: work is fitted whatever they say.
_SURE = ("exact", "fitted", "stated", "statistical", "ambiguous", "not seen", "unknown")
SHARES_HEAD = ["verdict", "events", "bytes"]


def shares_of(prediction: Mapping[str, Any]) -> Shares:
    """Return the shares of the verdicts at the largest count."""
    given = mapping(prediction.get("verdict_share"))
    share = {
        str(name): mapping(given[name])
        for name in sorted(given, key=lambda name: verdict_order(str(name)))
    }
    kinds = SHARES_HEAD[1:]
    return Shares(
        [visible(name, 40) for name in share],
        {kind: [amount(entry.get(kind)) or 0.0 for entry in share.values()] for kind in kinds},
        [
            [visible(name), *(percent(amount(entry.get(kind))) for kind in kinds)]
            for name, entry in share.items()
        ],
    )


def verdict_order(name: str) -> tuple[int, str]:
    """Return a key that sorts verdicts by how sure they are."""
    name = name.replace("_", " ")
    return (_SURE.index(name) if name in _SURE else len(_SURE), name)


def holdout_of(model: Model) -> list[str]:
    """Return how the model did on its held-out count, as lines."""
    held = model.holdout
    if held is None:
        return ["No count was held out: nothing was checked."]
    there = held.comparison
    if there is None:
        return [f"Not possible: {visible(held.problem)}"]
    said = [f"Fitted without {held.without} and compared there."]
    for both, name in ((there.p2p_triples, "messages"), (there.collectives, "collectives")):
        said.append(f"{name}: {both.equal} of {both.true} equal, {both.predicted} predicted")
    missed = missed_rules(model)
    if missed is not None:
        met = f"{len(model.items) - len(missed)} of {len(model.items)}"
        said.append(
            f"calls by an exact rule that it met: {met}"
            + (f"; not {listed(missed)}" if missed else "")
        )
    said.append(f"weights: {there.weights.exact} of {there.weights.phases}")
    said.append(
        f"work, which is fitted: off by {percent(there.work.off)}, in the worst phase by "
        f"{percent(there.work.max_abs_error)}"
    )
    return [visible(line) for line in said]
