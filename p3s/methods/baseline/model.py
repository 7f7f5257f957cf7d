"""A fitted baseline: what was fitted to what, saved as numbers; what it says of other counts."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from p3s.base.arrays import Floats
from p3s.base.artefacts import write_json
from p3s.base.errors import P3SError, UsageError
from p3s.base.serialise import FileFormat, Natural, NotNegative
from p3s.base.text import plural, processes
from p3s.laws.statistics import relative_error
from p3s.methods.baseline import threeterm
from p3s.methods.baseline.families import (
    FAMILIES,
    WEIGHTS,
    Data,
    FittedFamily,
    fit,
    interval,
    text_of,
    weights_of,
)
from p3s.methods.baseline.times import REDUCTIONS, Point, Series

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

    fitted: FittedFamily
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
    candidates = list(families) or [
        name
        for name, family in FAMILIES.items()
        if family.automatic and (family.takes_inputs or not data.names)
    ]
    counts = sorted({int(n) for n in data.n})
    held_counts: list[int] = []
    trials = [Trial(name, None, why_not="too few counts to hold one out") for name in candidates]
    if len(counts) >= 3:
        held_counts = held_out(counts, hold)
        trials = [_trial(name, data, held_counts, weights) for name in candidates]
    good = [trial for trial in trials if trial.error is not None]
    if len(candidates) == 1:
        order, why = candidates, "asked for"
    elif good:
        order = [min(good, key=lambda trial: (trial.missed, trial.n_params)).family]
        held_text, them = ", ".join(map(str, held_counts)), "them" if len(held_counts) > 1 else "it"
        why = f"closest at {held_text} processes, fitted without {them}"
    else:  # two counts tell forms apart badly: the paper's form, or the first that can be fitted
        order = sorted(candidates, key=lambda name: name != USUAL)
        why = "too few counts to choose by holding one out"
    first: P3SError | None = None
    for name in order:
        try:
            fitted = fit(name, data, weights_of(weights, data.seconds))
        except P3SError as error:
            first = first or error
            continue
        return Choice(fitted, tuple(trials), tuple(held_counts), why)
    raise first or P3SError("no model family to fit")


def _trial(name: str, data: Data, held_counts: Sequence[int], weights: str) -> Trial:
    out = np.isin(data.n, held_counts)
    kept_data = data.only(~out)
    try:
        fitted = fit(name, kept_data, weights_of(weights, kept_data.seconds))
        predicted = fitted.predict(data.n[out], data.inputs[out])
    except UsageError:
        raise
    except P3SError as error:
        return Trial(name, None, why_not=str(error))
    if not np.isfinite(predicted).all():
        return Trial(name, None, why_not=f"{name}: no finite time at the held-out counts")
    signed = [
        relative_error(float(p), float(t))
        for p, t in zip(predicted, data.seconds[out], strict=True)
    ]
    return Trial(
        name, math.sqrt(sum(e * e for e in signed) / len(signed)), tuple(signed), fitted.n_params
    )


#: How many times the largest count the method was tried at: from 128 to 1,024 processes.
TESTED_RATIO = 8.0


@dataclass(frozen=True)
class BaselineEstimate:
    """What a baseline says of one count.

    Seconds; ``low`` and ``high``: the 90 % interval, made wide enough for the curves of the other
    families that the counts do not tell from this one (None where there is neither); ``ratio``:
    how many times the largest fitted count it is.
    """

    n: int
    seconds: float
    low: float | None
    high: float | None
    ratio: float

    @property
    def ends(self) -> tuple[float, float]:
        """Ends of the interval; the time itself where there is none."""
        return (
            self.seconds if self.low is None else self.low,
            self.seconds if self.high is None else self.high,
        )


@dataclass(frozen=True)
class Baseline:
    """A chosen family with its numbers and everything its predictions rest on, as its file has it.

    ``parameters``: those of the family. ``why``, ``held_out``, ``trials``: how it was chosen.
    """

    family: str
    parameters: Mapping[str, Any]
    inputs: tuple[str, ...]
    labels: Mapping[str, str]
    why: str
    held_out: tuple[int, ...]
    trials: tuple[Trial, ...]
    weights: str
    reduction: str
    points: tuple[Point, ...]
    notes: tuple[str, ...]
    machine: str
    created: str
    command: tuple[str, ...]

    def valid(self) -> None:
        """Raise ValueError for words that are not known, and for numbers that predict nothing."""
        for word, allowed in (
            *((name, FAMILIES) for name in (self.family, *(t.family for t in self.trials))),
            (self.weights, WEIGHTS),
            (self.reduction, REDUCTIONS),
        ):
            if word not in allowed:
                raise ValueError(f"{word!r:.40} is not known")
        if len(set(self.inputs)) != len(self.inputs):
            raise ValueError("two inputs have one name")
        if any(len(point.inputs) != len(self.inputs) for point in self.points):
            raise ValueError("a point has other inputs")
        if not isinstance(self.parameters.get("n_params"), int):
            raise ValueError("parameters have no number")
        if len(self.counts) < 2:
            raise ValueError("no points that can have been fitted")
        for name in FAMILIES[self.family].keys if FAMILIES[self.family].positive else ():
            if not 0 <= self.parameters[name] < math.inf:
                raise ValueError(f"{name} cannot be this")
        self.fitted.predict(self.counts, np.ones((1, len(self.inputs))))  # missing numbers show now

    @property
    def fitted(self) -> FittedFamily:
        """The family with its parameters."""
        return FittedFamily(self.family, dict(self.parameters), self.inputs)

    @property
    def choice(self) -> Choice:
        """How the family was chosen."""
        return Choice(self.fitted, self.trials, self.held_out, self.why)

    @property
    def counts(self) -> list[int]:
        """Counts that were fitted."""
        return sorted({point.n for point in self.points})

    @property
    def turnover(self) -> float | None:
        """Count from which the time rises; None where it never does, or no formula tells."""
        p = self.fitted.parameters
        if self.fitted.family == "three-term":
            return threeterm.turnover(np.array([p["a"], p["b"], p["c"]]))
        if self.fitted.family == "barnes-2" and not self.inputs and p["gamma"][2] > 0:
            return float(2.0 ** min(-p["gamma"][1] / (2 * p["gamma"][2]), 1000.0))
        return None

    def ratio(self, n: int) -> float:
        """How many times the largest fitted count ``n`` is."""
        return n / max(self.counts)

    def say(
        self, counts: Sequence[int], inputs: Mapping[str, float] | None = None
    ) -> list[BaselineEstimate]:
        """Return what it says of counts; ``inputs`` needs a value of each of its inputs.

        Errors: UsageError for missing or unknown inputs, P3SError where a time is no positive
        number.
        """
        input_values = inputs or {}
        if set(input_values) != set(self.inputs):
            raise UsageError(
                "this baseline depends on "
                + (", ".join(self.inputs) or "the count only")
                + "; give exactly these: --input NAME=VALUE"
            )
        row = np.array([[input_values[name] for name in self.inputs]]) if self.inputs else None
        predicted = self.fitted.predict(list(counts), row)
        for n, seconds in zip(counts, predicted, strict=True):
            if not 0 < seconds < math.inf:
                raise P3SError(
                    f"{self.fitted.family} says {seconds:.3g} s of {n} processes: it "
                    "does not hold there; choose another family (--family)"
                )
        ends = interval(
            self.points, self.fitted, counts, row, weights=self.weights, reduction=self.reduction
        )
        curves = [*(ends or ()), *self._other_curves(counts, row)]
        spread = np.array([predicted, *curves])
        low, high = spread.min(axis=0).tolist(), spread.max(axis=0).tolist()
        return [
            BaselineEstimate(
                int(n),
                float(predicted[i]),
                low[i] if curves else None,
                high[i] if curves else None,
                self.ratio(int(n)),
            )
            for i, n in enumerate(counts)
        ]

    def _other_curves(self, counts: Sequence[int], row: Floats | None) -> list[Floats]:
        """Return the curves of the families that cannot be told from the chosen one."""
        data = Data.of(self.points, self.inputs)
        curves = []
        for name in self.choice.alike:
            try:
                other = fit(name, data, weights_of(self.weights, data.seconds))
                curve = other.predict(list(counts), row)
            except P3SError:
                continue
            if np.isfinite(curve).all() and (curve > 0).all():
                curves.append(curve)
        return curves

    def as_file(self) -> dict[str, Any]:
        """Return it as JSON that predicts the same to the last bit when read again."""
        derived = {"text": text_of(self.fitted), "turnover": self.turnover}
        return {**BASELINE.data(self), **derived}

    def save(self, path: Path) -> None:
        """Write it, whole or not at all."""
        write_json(path, self.as_file())


BASELINE = FileFormat("p3s.baseline", 1, Baseline, True, "fit it again: p3s baseline fit")


def fit_series(
    series: Series,
    families: Sequence[str] = (),
    *,
    weights: str = "relative",
    hold: int | None = None,
    command: Sequence[str] = (),
) -> Baseline:
    """Fit a series; see :func:`choose`.

    Errors: P3SError where no family can be fitted.
    """
    data = Data.of_series(series)
    choice = choose(data, families, weights=weights, hold=hold)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    notes, aside = list(series.notes), series.aside
    if aside:
        notes.append(
            f"{plural(len(aside), 'run')} set aside; {processes(aside[0].n)}: {aside[0].why}"
        )
    fitted = choice.fitted
    return Baseline(
        fitted.family,
        fitted.parameters,
        series.inputs,
        dict(series.labels),
        choice.why,
        choice.held,
        choice.trials,
        weights,
        series.reduction,
        series.points,
        tuple(notes),
        platform.node(),
        now,
        tuple(command),
    )
