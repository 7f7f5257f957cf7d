"""How sure a prediction is: estimators, parts of the interval, residuals, verdicts, hold-out."""

from __future__ import annotations

from dataclasses import dataclass

from p3s.base.text import percent, seconds, span, visible
from p3s.predict.estimated import ESTIMATORS
from p3s.predict.types import Prediction, Residual, part_s
from p3s.report.verdict import lines

#: What the parts of an interval are, in the order of the page.
PARTS = {
    "work": "how much work each rank has",
    "cost": "what a unit of work costs",
    "replay": "what messages cost",
    "files": "what files cost",
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


ESTIMATE_HEAD = [
    "run time",
    "interval",
    "compute",
    "communication",
    "waiting",
    "transfer",
    "software",
]
_ESTIMATE_PARTS = ("compute", "comm", "waiting", "transfer", "software")


def estimates_of(prediction: Prediction) -> list[Estimate]:
    """Return what the estimators say at the largest count, in the order they are preferred."""
    last = prediction.last
    given = last.estimators
    names = [name for name in ESTIMATORS if name in given]
    names += [name for name in given if name not in ESTIMATORS]
    found = []
    for name in names:
        entry = given[name]
        time, low, high = entry.time_s, entry.low_s, entry.high_s
        cells = [
            seconds(time),
            span(low, high) if time is not None else seconds(None),
            *(seconds(part_s(entry, part)) for part in _ESTIMATE_PARTS),
        ]
        why = visible(entry.why_not, 400)
        found.append(
            Estimate(
                visible(name, 60),
                ESTIMATORS[name].summary if name in ESTIMATORS else "",
                name == last.estimator,
                time,
                low,
                high,
                cells,
                _few([*([why] if why else []), *lines(entry.notes)]),
            )
        )
    return found


def _few(notes: list[str], most: int = 3) -> list[str]:
    """Return the first notes of a list; the others are among what was approximated."""
    notes = list(dict.fromkeys(notes))
    more = len(notes) - most
    return [*notes[:most], *([f"and {more} more, below"] if more > 0 else [])]


def change(value: float) -> str:
    """Return a factor as a change in per cent."""
    by = 100 * (value - 1)
    return f"{by:+.1f} %".replace("-", "−") if abs(by) >= 0.05 else "0 %"


RESIDUAL_HEAD = ["processes", "compared", "measured", "model", "measured / model"]


def residuals_of(prediction: Prediction) -> list[Residual]:
    """Return what was measured beside what the model says, by what is compared and count."""
    return sorted(prediction.residuals, key=lambda each: (each.what, each.n))


def residual_cells(entry: Residual) -> list[str]:
    """Return a residual as a row under RESIDUAL_HEAD."""
    return [
        f"{entry.n:,}",
        entry.what,
        seconds(entry.measured_s),
        seconds(entry.model_s),
        "–" if entry.ratio is None else f"{entry.ratio:.3f}",
    ]


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


def shares_of(prediction: Prediction) -> Shares:
    """Return the shares of the verdicts at the largest count."""
    given = prediction.verdict_share
    share = {name: given[name] for name in sorted(given, key=verdict_order)}
    kinds = SHARES_HEAD[1:]
    return Shares(
        [visible(name, 40) for name in share],
        {kind: [entry.get(kind, 0.0) for entry in share.values()] for kind in kinds},
        [
            [visible(name), *(percent(entry.get(kind)) for kind in kinds)]
            for name, entry in share.items()
        ],
    )


def verdict_order(name: str) -> tuple[int, str]:
    """Return a key that sorts verdicts by how sure they are."""
    name = name.replace("_", " ")
    return (_SURE.index(name) if name in _SURE else len(_SURE), name)
