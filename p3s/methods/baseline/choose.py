"""Which family: the one that does best at the largest counts, fitted without them.

Source: ESTIMA, as Kazmina and Antonov give it (section 2): all but the few largest configurations
are fitted, those choose.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from p3s.base.errors import P3SError, UsageError
from p3s.base.scores import relative_error
from p3s.base.serialise import Natural, NotNegative
from p3s.methods.baseline.families import FAMILIES, Data, Fitted, fit, weights_of

#: Held-out counts, at most, and the share of all counts that they are, at most.
_MOST, _SHARE = 3, 0.25
#: The paper's own form: what is taken where counts are too few to choose.
USUAL = "three-term"


#: Families that miss the held-out counts by at most so many times the least error, or by so much
#: more, cannot be told from the best: single counts are disturbed by as much.
_TIMES, _CLOSE = 2.0, 0.02


@dataclass(frozen=True)
class Trial:
    """How one family did at the held-out counts.

    ``error`` is the root of the mean squared relative error there, None with the reason in
    ``why_not`` where it could not be fitted; ``signed`` are the single errors by point.
    """

    family: str
    error: NotNegative | None
    signed: tuple[float, ...] = field(default=(), metadata={"always": True})
    n_params: Natural = field(default=0, metadata={"always": True})
    why_not: str = field(default="", metadata={"always": True})

    @property
    def missed(self) -> float:
        """The error, infinite without one: what trials are sorted by."""
        return math.inf if self.error is None else self.error


@dataclass(frozen=True)
class Choice:
    """A family, fitted to all points, and how it was chosen; ``held``: the held-out counts."""

    fitted: Fitted
    trials: tuple[Trial, ...]
    held: tuple[int, ...]
    why: str

    @property
    def held_error(self) -> float | None:
        """The chosen family's error at the held-out counts; None where nothing was held out."""
        for trial in self.trials:
            if trial.family == self.fitted.family:
                return trial.error
        return None

    @property
    def alike(self) -> list[str]:
        """The other families that the counts do not tell from the chosen one.

        Those that did about as well, and those that could not be tested.
        """
        error = self.held_error
        if error is None:
            return [trial.family for trial in self.trials if trial.family != self.fitted.family]
        limit = max(_TIMES * error, error + _CLOSE)
        return [
            trial.family
            for trial in self.trials
            if trial.family != self.fitted.family and (trial.missed <= limit or trial.why_not)
        ]


def held_out(counts: Sequence[int], hold: int | None = None) -> list[int]:
    """Return the counts that are held out: the largest quarter, one to three of them."""
    if hold is None:
        hold = max(1, min(_MOST, int(_SHARE * len(counts))))
    if not 0 < hold <= len(counts) - 2:
        raise UsageError(f"holding out {hold} of {len(counts)} counts leaves too few to fit")
    return sorted(counts)[-hold:]


def choose(
    data: Data, families: Sequence[str] = (), *, weights: str = "relative", hold: int | None = None
) -> Choice:
    """Return the family with the least error at the held-out counts, fitted to all points.

    ``families``: those to choose from [default: the automatic ones that have terms for the
    inputs]; with one, nothing is chosen, but its held-out error is still found. Errors: P3SError
    where none can be fitted.
    """
    given = list(families) or [
        name
        for name, family in FAMILIES.items()
        if family.automatic and (family.takes_inputs or not data.names)
    ]
    counts = sorted({int(n) for n in data.n})
    held: list[int] = []
    trials = [Trial(name, None, why_not="too few counts to hold one out") for name in given]
    if len(counts) >= 3:
        held = held_out(counts, hold)
        trials = [_trial(name, data, held, weights) for name in given]
    good = [trial for trial in trials if trial.error is not None]
    if len(given) == 1:
        fitted = fit(given[0], data, weights_of(weights, data.seconds))
        return Choice(fitted, tuple(trials), tuple(held), "asked for")
    if good:
        best = min(good, key=lambda trial: (trial.missed, trial.n_params))
        fitted = fit(best.family, data, weights_of(weights, data.seconds))
        which = ", ".join(map(str, held))
        them = "them" if len(held) > 1 else "it"
        return Choice(
            fitted,
            tuple(trials),
            tuple(held),
            f"closest at {which} processes, fitted without {them}",
        )
    return _unchosen(data, given, weights, trials, held)


def _unchosen(
    data: Data, given: Sequence[str], weights: str, trials: Sequence[Trial], held: Sequence[int]
) -> Choice:
    """Take the paper's form, or the first that can be fitted: two counts tell forms apart badly."""
    order = sorted(given, key=lambda name: name != USUAL)
    why = ""
    for name in order:
        try:
            fitted = fit(name, data, weights_of(weights, data.seconds))
        except P3SError as error:
            why = why or str(error)
            continue
        return Choice(
            fitted, tuple(trials), tuple(held), "too few counts to choose by holding one out"
        )
    raise P3SError(why or "no model family to fit")


def _trial(name: str, data: Data, held: Sequence[int], weights: str) -> Trial:
    out = np.isin(data.n, held)
    kept = data.only(~out)
    try:
        fitted = fit(name, kept, weights_of(weights, kept.seconds))
        told = fitted.predict(data.n[out], data.inputs[out])
    except UsageError:
        raise
    except P3SError as error:
        return Trial(name, None, why_not=str(error))
    if not np.isfinite(told).all():
        return Trial(name, None, why_not=f"{name}: no finite time at the held-out counts")
    signed = [
        relative_error(float(p), float(t)) for p, t in zip(told, data.seconds[out], strict=True)
    ]
    return Trial(
        name, math.sqrt(sum(e * e for e in signed) / len(signed)), tuple(signed), fitted.n_params
    )
