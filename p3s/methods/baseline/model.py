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

from p3s.base.errors import Damaged, P3SError, UsageError
from p3s.base.serialise import Natural, NotNegative, ProcessCount, from_data
from p3s.base.text import plural, processes
from p3s.methods.baseline import threeterm
from p3s.methods.baseline.bootstrap import interval
from p3s.methods.baseline.choose import Choice, Trial, choose
from p3s.methods.baseline.families import FAMILIES, Array, Data, Fitted, fit, text_of
from p3s.methods.baseline.times import REDUCTIONS, Point, Series
from p3s.methods.baseline.weights import WEIGHTS, weights_of

BASELINE_SCHEMA = "p3s.baseline"
BASELINE_VERSION = 1
#: How many times the largest count the method was tried at: from 128 to 1,024 processes.
TESTED_RATIO = 8.0
#: Relative difference of the two solvers' predictions above which something is wrong.
AGREE = 1e-4


@dataclass(frozen=True)
class Said:
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


@dataclass(frozen=True)
class TrialRead:
    """How a family did at the held-out counts, as the file has it; error: None is no number."""

    family: str
    error: NotNegative | None
    signed: tuple[float, ...]
    n_params: Natural
    why_not: str


@dataclass(frozen=True)
class PointRead:
    """Times of one count and one set of inputs, as the file has them."""

    n: ProcessCount
    seconds: NotNegative
    repeats: tuple[NotNegative, ...]
    inputs: tuple[float, ...]

    def valid(self) -> None:
        """Raise ValueError for a time of 0."""
        if not self.repeats or min(self.seconds, *self.repeats) <= 0:
            raise ValueError("a time is none")


@dataclass(frozen=True)
class BaselineRead:
    """What a baseline's file holds; parameters are those of its family."""

    family: str
    parameters: Mapping[str, Any]
    inputs: tuple[str, ...]
    labels: Mapping[str, str]
    why: str
    held_out: tuple[int, ...]
    trials: tuple[TrialRead, ...]
    weights: str
    reduction: str
    points: tuple[PointRead, ...]
    notes: tuple[str, ...]
    machine: str
    created: str
    command: tuple[str, ...]

    def valid(self) -> None:
        """Raise ValueError for words that are not known, inputs that points do not have."""
        for word, known in (
            *((name, FAMILIES) for name in (self.family, *(t.family for t in self.trials))),
            (self.weights, WEIGHTS),
            (self.reduction, REDUCTIONS),
        ):
            if word not in known:
                raise ValueError(f"{word!r:.40} is not known")
        if len(set(self.inputs)) != len(self.inputs):
            raise ValueError("two inputs have one name")
        if any(len(point.inputs) != len(self.inputs) for point in self.points):
            raise ValueError("a point has other inputs")
        if not isinstance(self.parameters.get("n_params"), int):
            raise ValueError("parameters have no number")


@dataclass(frozen=True)
class Baseline:
    """A chosen family with its numbers and everything its predictions rest on."""

    choice: Choice
    points: tuple[Point, ...]
    inputs: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    weights: str = "relative"
    reduction: str = "min"
    notes: tuple[str, ...] = ()
    machine: str = ""
    created: str = ""
    command: tuple[str, ...] = ()

    @property
    def fitted(self) -> Fitted:
        """The family with its parameters."""
        return self.choice.fitted

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
        self,
        counts: Sequence[int],
        inputs: Mapping[str, float] | None = None,
        *,
        method: str = "auto",
    ) -> list[Said]:
        """Return what it says of counts; ``inputs`` needs a value of each of its inputs.

        Errors: UsageError for missing or unknown inputs, P3SError where a time is no positive
        number.
        """
        given = inputs or {}
        if set(given) != set(self.inputs):
            raise UsageError(
                "this baseline depends on "
                + (", ".join(self.inputs) or "the count only")
                + "; give exactly these: --input NAME=VALUE"
            )
        row = np.array([[given[name] for name in self.inputs]]) if self.inputs else None
        told = self.fitted.predict(list(counts), row)
        for n, seconds in zip(counts, told, strict=True):
            if not 0 < seconds < math.inf:
                raise P3SError(
                    f"{self.fitted.family} says {seconds:.3g} s of {n} processes: it "
                    "does not hold there; choose another family (--family)"
                )
        ends = interval(
            self.points,
            self.fitted,
            counts,
            row,
            weights=self.weights,
            reduction=self.reduction,
            method=method,
        )
        curves = [*(ends or ()), *self._others(counts, row)]
        if not curves:
            return [
                Said(int(n), float(t), None, None, self.ratio(int(n)))
                for n, t in zip(counts, told, strict=True)
            ]
        low, high = np.min([told, *curves], axis=0), np.max([told, *curves], axis=0)
        return [
            Said(int(n), float(told[i]), float(low[i]), float(high[i]), self.ratio(int(n)))
            for i, n in enumerate(counts)
        ]

    def _others(self, counts: Sequence[int], row: Array | None) -> list[Array]:
        """Return the curves of the families that cannot be told from the chosen one."""
        data = Data.of(self.points, self.inputs)
        found = []
        for name in self.choice.alike:
            try:
                other = fit(name, data, weights_of(self.weights, data.seconds))
                told = other.predict(list(counts), row)
            except P3SError:
                continue
            if np.isfinite(told).all() and (told > 0).all():
                found.append(told)
        return found

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON that predicts the same to the last bit when read again."""
        return {
            "schema": BASELINE_SCHEMA,
            "schema_version": BASELINE_VERSION,
            "family": self.fitted.family,
            "parameters": self.fitted.parameters,
            "text": text_of(self.fitted),
            "inputs": list(self.inputs),
            "labels": dict(self.labels),
            "why": self.choice.why,
            "held_out": list(self.choice.held),
            "trials": [
                {
                    "family": t.family,
                    "error": t.error if math.isfinite(t.error) else None,
                    "signed": list(t.signed),
                    "n_params": t.n_params,
                    "why_not": t.why_not,
                }
                for t in self.choice.trials
            ],
            "weights": self.weights,
            "reduction": self.reduction,
            "points": [
                {
                    "n": p.n,
                    "seconds": p.seconds,
                    "repeats": list(p.repeats),
                    "inputs": list(p.inputs),
                }
                for p in self.points
            ],
            "turnover": self.turnover,
            "notes": list(self.notes),
            "machine": self.machine,
            "created": self.created,
            "command": list(self.command),
        }

    def save(self, path: Path) -> None:
        """Write it, whole or not at all."""
        from p3s.base.study import write_json

        write_json(path, self.to_json())

    @classmethod
    def load(cls, path: Path) -> Baseline:
        """Read one; P3SError, one line, for another file, Damaged for one that is not whole."""
        from p3s.base.study import read_json

        found = read_json(path, BASELINE_SCHEMA, BASELINE_VERSION)
        try:
            return cls.from_json(found)
        except (
            KeyError,
            TypeError,
            ValueError,
            IndexError,
            AttributeError,
            OverflowError,
            P3SError,
        ) as error:
            raise Damaged(
                f"{path}: damaged ({type(error).__name__}: {str(error)[:80]}); fit it "
                "again: p3s baseline fit"
            ) from error

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Baseline:
        """Return the baseline of a JSON object; KeyError, TypeError or ValueError for another."""
        read = from_data(BaselineRead, found, more=True)
        fitted = Fitted(read.family, dict(read.parameters), read.inputs)
        _check(fitted)
        trials = tuple(
            Trial(
                t.family, math.inf if t.error is None else t.error, t.signed, t.n_params, t.why_not
            )
            for t in read.trials
        )
        points = tuple(Point(p.n, p.seconds, p.repeats, p.inputs) for p in read.points)
        made = cls(
            Choice(fitted, trials, read.held_out, read.why),
            points,
            read.inputs,
            dict(read.labels),
            read.weights,
            read.reduction,
            read.notes,
            read.machine,
            read.created,
            read.command,
        )
        if len(made.counts) < 2:
            raise ValueError("no points that can have been fitted")
        given = dict.fromkeys(made.inputs, 1.0)
        row = np.array([[given[name] for name in made.inputs]]) if made.inputs else None
        fitted.predict(made.counts, row)  # numbers that are missing show now
        return made


def _check(fitted: Fitted) -> None:
    """Raise ValueError for numbers that the family cannot have."""
    for name in {"three-term": "abc", "amdahl": ("serial", "parallel")}.get(fitted.family, ()):
        if not 0 <= fitted.parameters[name] < math.inf:
            raise ValueError(f"{name} cannot be this")


def fit_series(
    series: Series,
    families: Sequence[str] = (),
    *,
    weights: str = "relative",
    hold: int | None = None,
    command: Sequence[str] = (),
) -> Baseline:
    """Fit a series; see :func:`p3s.methods.baseline.choose.choose`.

    The three-term fit is made by both solvers, which must agree. Errors: P3SError where no family
    can be fitted, or the solvers differ.
    """
    data = Data.of_series(series)
    choice = choose(data, families, weights=weights, hold=hold)
    if choice.fitted.family == "three-term":
        check_solvers(data, weights)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    notes, aside = list(series.notes), series.aside
    if aside:
        notes.append(
            f"{plural(len(aside), 'run')} set aside; {processes(aside[0].n)}: {aside[0].why}"
        )
    return Baseline(
        choice,
        series.points,
        series.inputs,
        dict(series.labels),
        weights,
        series.reduction,
        tuple(notes),
        platform.node(),
        now,
        tuple(command),
    )


def check_solvers(data: Data, weights: str) -> float:
    """Return how far the two solvers' three-term curves are apart at the fitted counts, relative.

    Raises P3SError above 0.01 %.
    """
    w = weights_of(weights, data.seconds)
    one = threeterm.value(threeterm.by_nnls(data.n, data.seconds, w), data.n)
    other = threeterm.value(threeterm.by_levenberg_marquardt(data.n, data.seconds, w), data.n)
    apart = float(np.max(np.abs(one - other) / data.seconds))
    if not apart <= AGREE:
        raise P3SError(
            f"three-term: the two solvers differ by {100 * apart:.3g} %; this is a bug "
            "in p3s: please report it with the run times"
        )
    return apart
