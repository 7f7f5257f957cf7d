"""Model families of run times behind one interface, and intervals of those that are fitted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p3s.base.arrays import Floats
from p3s.base.errors import P3SError, UsageError
from p3s.laws.statistics import nonnegative
from p3s.methods.baseline import regression, threeterm
from p3s.methods.baseline.times import REDUCTIONS, Point, Series

WEIGHTS = ("relative", "absolute")


def weights_of(kind: str, seconds: Floats) -> Floats:
    """Return the factor of every residual (unit: 1/s, or none for absolute ones).

    "relative" makes relative errors small (1/T: the largest counts weigh as much as the smallest),
    "absolute" those in seconds, as plain least squares.
    """
    if kind == "relative":
        return np.asarray(1.0 / seconds)
    if kind == "absolute":
        return np.ones_like(seconds)
    raise UsageError(f"{kind}: no weights of this name; one of {', '.join(WEIGHTS)}")


#: What a fit is made of: plain numbers and lists, so that it can be saved as they are.
Parameters = dict[str, Any]


@dataclass(frozen=True)
class Data:
    """Points as columns: counts, seconds, and one column of values per input parameter."""

    n: Floats
    seconds: Floats
    inputs: Floats
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, points: Sequence[Point], names: Sequence[str] = ()) -> Data:
        """Return the columns of some points."""
        return cls(
            np.array([p.n for p in points], dtype=np.float64),
            np.array([p.seconds for p in points], dtype=np.float64),
            np.array([p.inputs for p in points], dtype=np.float64).reshape(len(points), len(names)),
            tuple(names),
        )

    @classmethod
    def of_series(cls, series: Series) -> Data:
        """Return the columns of a series."""
        return cls.of(series.points, series.inputs)

    def only(self, keep: NDArray[np.bool_] | NDArray[np.int64]) -> Data:
        """Return some of the points."""
        return Data(self.n[keep], self.seconds[keep], self.inputs[keep], self.names)


#: Key of a coefficient that files hold as the power of two that it is the logarithm of.
_FACTOR = "factor"


@dataclass(frozen=True)
class Family:
    """One form of model: seconds, or with ``logs`` their log2, as a sum of coefficients x columns.

    ``needs``: fewest distinct counts; ``columns``: of counts, inputs and knots; ``keys``: names of
    the coefficients in files with how many of them are a list there, -1: all others (0: a plain
    number); ``positive``: no coefficient is negative; ``knots``: whether the columns have knots;
    ``takes_inputs``: whether there are terms for input parameters; ``automatic``: whether it is
    tried when none is asked for.
    """

    name: str
    what: str
    needs: int
    columns: Callable[[Floats, Floats, Floats], Floats]
    keys: Mapping[str, int]
    logs: bool = False
    positive: bool = False
    knots: bool = False
    takes_inputs: bool = False
    automatic: bool = True

    def fit(self, data: Data, weights: Floats) -> Parameters:
        """Return the parameters; P3SError where the points do not determine them."""
        knots = regression.knots_of(data.n) if self.knots else np.zeros(0)
        columns = self.columns(data.n, data.inputs, knots)
        if self.positive:
            solution = nonnegative(columns, data.seconds, weights)
        elif self.logs:
            # A small error of log2 T is a relative one: a residual in seconds is T times as large.
            logarithms, factors = np.log2(data.seconds), weights * data.seconds
            solution = regression.solve(columns, logarithms, factors, self.name)
        else:
            solution = regression.solve(columns, data.seconds, weights, self.name)
        parameters: Parameters = {"knots": knots.tolist()} if self.knots else {}
        rest = solution.tolist()
        for key, size in self.keys.items():
            count = 1 if size == 0 else len(rest) if size < 0 else size
            parameters[key], rest = (rest[:count] if size else rest[0]), rest[count:]
        if _FACTOR in parameters:
            parameters[_FACTOR] = float(np.exp2(parameters[_FACTOR]))
        return {**parameters, "n_params": len(solution)}

    def evaluate(self, p: Parameters, q: Floats, x: Floats) -> Floats:
        """Return seconds at counts and inputs, a row each."""
        scaled = {**p, _FACTOR: np.log2(p[_FACTOR])} if _FACTOR in self.keys else p
        coefficients = np.concatenate([np.atleast_1d(scaled[key]) for key in self.keys])
        values = self.columns(q, x, np.array(p.get("knots", ()))) @ coefficients
        return np.asarray(np.exp2(values) if self.logs else values)


@dataclass(frozen=True)
class FittedFamily:
    """A family with its parameters: a function of the count and the inputs."""

    family: str
    parameters: Parameters
    inputs: tuple[str, ...] = ()

    @property
    def n_params(self) -> int:
        """Number of fitted coefficients."""
        return int(self.parameters["n_params"])

    def predict(self, n: Sequence[float] | Floats, inputs: Floats | None = None) -> Floats:
        """Return seconds at counts; ``inputs``: one row per count, or one for all of them."""
        q = np.asarray(n, dtype=np.float64)
        x = np.zeros((len(q), 0)) if inputs is None else np.atleast_2d(np.asarray(inputs, float))
        if x.shape[1] != len(self.inputs):
            raise UsageError(
                f"{self.family}: needs values of {', '.join(self.inputs) or 'nothing'}"
                f", given are {x.shape[1]}"
            )
        x = np.broadcast_to(x, (len(q), x.shape[1]))
        with np.errstate(over="ignore", invalid="ignore"):
            return family_of(self.family).evaluate(self.parameters, q, x)


def fit(name: str, data: Data, weights: Floats) -> FittedFamily:
    """Fit one family; ``weights``: factor of every residual in seconds.

    Errors: UsageError for a family that is not known; P3SError where there are too few counts, the
    points do not determine the coefficients, or inputs vary that the family has no term for.
    """
    family = family_of(name)
    counts = len(np.unique(data.n))
    if counts < family.needs:
        raise P3SError(f"{name}: needs {family.needs} distinct counts, there are {counts}")
    if data.names and not family.takes_inputs:
        raise P3SError(
            f"{name}: has no term for {', '.join(data.names)}, of which there are several values; "
            f"choose one (--where {data.names[0]}=VALUE) or a family that takes inputs: "
            + ", ".join(f.name for f in FAMILIES.values() if f.takes_inputs)
        )
    return FittedFamily(name, family.fit(data, weights), data.names)


def family_of(name: str) -> Family:
    """Return a family by name; UsageError for another."""
    if name not in FAMILIES:
        raise UsageError(f"{name}: no model family; one of {', '.join(FAMILIES)}")
    return FAMILIES[name]


FAMILIES = {
    family.name: family
    for family in (
        Family(
            "three-term",
            "a n + b/n + c/sqrt(n), none negative",
            3,
            lambda q, x, _: threeterm.design(q),
            dict.fromkeys("abc", 0),
            positive=True,
        ),
        Family(
            "amdahl",
            "s + p/n, none negative",
            2,
            lambda q, x, _: regression.shares(q),
            {"serial": 0, "parallel": 0},
            positive=True,
        ),
        Family(
            "power-law",
            "f n^k",
            2,
            lambda q, x, _: regression.logarithms(q, x, 1),
            {_FACTOR: 0, "exponent": 0},
            logs=True,
        ),
        Family(
            "barnes-1",
            "log T linear in log n and the logs of the inputs",
            2,
            lambda q, x, _: regression.logarithms(q, x, 1),
            {"gamma": 2, "beta": -1},
            logs=True,
            takes_inputs=True,
            automatic=False,
        ),
        Family(
            "barnes-2",
            "the same with the square of log n",
            3,
            lambda q, x, _: regression.logarithms(q, x, 2),
            {"gamma": 3, "beta": -1},
            logs=True,
            takes_inputs=True,
        ),
        Family(
            "spline",
            "log T a restricted cubic spline of log n, with interactions",
            4,
            regression.splines,
            {"linear": -1},
            logs=True,
            knots=True,
            takes_inputs=True,
            automatic=False,
        ),
        Family(
            "explicit",
            "linear in n and the inputs as they are",
            2,
            lambda q, x, _: np.column_stack([x, q]),
            {"linear": -1},
            takes_inputs=True,
            automatic=False,
        ),
    )
}


def text_of(fitted: FittedFamily, digits: int = 4) -> str:
    """Return the formula with its numbers, in seconds."""
    p = fitted.parameters

    def number(value: float) -> str:
        return f"{value:.{digits}g}"

    if fitted.family == "three-term":
        return f"{number(p['a'])} n + {number(p['b'])}/n + {number(p['c'])}/sqrt(n)"
    if fitted.family == "amdahl":
        return f"{number(p['serial'])} + {number(p['parallel'])}/n"
    if fitted.family == "power-law":
        return f"{number(p['factor'])} n^{number(p['exponent'])}"
    if fitted.family.startswith("barnes"):
        g0, g1, *rest = p["gamma"]
        square = f" {rest[0]:+.{digits}g} log2(n)^2" if rest else ""
        inputs = "".join(
            f" {beta:+.{digits}g} log2({name})"
            for beta, name in zip(p["beta"], fitted.inputs, strict=True)
        )
        return f"2^({number(g0)} {g1:+.{digits}g} log2(n){square}{inputs})"
    return f"{family_of(fitted.family).what}; {fitted.n_params} numbers"


LEVEL = 0.90
DRAWS = 200
#: From so many counts on, whole configurations are drawn; fewer of them miss one end too often.
_MANY = 6


def interval(
    points: Sequence[Point],
    fitted: FittedFamily,
    at: Sequence[int],
    inputs: Floats | None = None,
    *,
    weights: str = "relative",
    reduction: str = "min",
    draws: int = DRAWS,
    seed: int = 0,
) -> tuple[Floats, Floats] | None:
    """Return the lower and upper ends of the 90 % interval in seconds at counts ``at``.

    From six points on they are drawn with replacement, and their repeats within each; of fewer the
    relative residuals of the fit, made larger for what the coefficients took of them, are put on
    its curve. The same seed gives the same ends. None where the points do not leave any freedom: as
    many coefficients as points, or more.
    """
    if len(points) <= _count_freedom(fitted):
        return None
    where = np.asarray(at, dtype=np.float64)
    rng = np.random.default_rng(seed)
    draw = (
        _configurations(points, fitted, rng, reduction)
        if len(points) >= _MANY
        else _residuals(points, fitted, rng)
    )
    draws_found = []
    for _ in range(draws):
        data = next(draw)
        try:
            again = fit(fitted.family, data, weights_of(weights, data.seconds))
        except P3SError:  # drawn too few distinct counts
            continue
        times_drawn = again.predict(where, inputs)
        if np.isfinite(times_drawn).all():
            draws_found.append(times_drawn)
    if len(draws_found) < draws / 2:
        return None
    low, high = np.quantile(np.array(draws_found), [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    middle = fitted.predict(where, inputs)
    return np.minimum(low, middle), np.maximum(high, middle)


def _count_freedom(fitted: FittedFamily) -> int:
    """Return how many coefficients took freedom: those that a sign holds at zero did not."""
    family = family_of(fitted.family)
    if not family.positive:
        return fitted.n_params
    result: int = max(1, sum(fitted.parameters[name] > 0 for name in family.keys))
    return result


def _configurations(
    points: Sequence[Point], fitted: FittedFamily, rng: np.random.Generator, reduction: str
) -> Iterator[Data]:
    """Draw points with replacement, and the repeats of each, for ever."""
    data = Data.of(points, fitted.inputs)
    repeated = any(len(point.repeats) > 1 for point in points)
    reduce = REDUCTIONS[reduction]
    while True:
        chosen = rng.integers(len(points), size=len(points))
        drawn = data.only(chosen)
        if repeated:
            seconds = [
                reduce(rng.choice(points[i].repeats, len(points[i].repeats)).tolist())
                for i in chosen.tolist()
            ]
            drawn = Data(drawn.n, np.array(seconds), drawn.inputs, drawn.names)
        yield drawn


def _residuals(
    points: Sequence[Point], fitted: FittedFamily, rng: np.random.Generator
) -> Iterator[Data]:
    """Put residuals on the fitted curve, for ever."""
    data = Data.of(points, fitted.inputs)
    curve = np.maximum(fitted.predict(data.n, data.inputs), 1e-12 * data.seconds)
    freedom = math.sqrt(len(points) / (len(points) - _count_freedom(fitted)))
    off = np.log(data.seconds / curve) * freedom
    off = off - off.mean()
    while True:
        # Signs are drawn too: a handful of residuals has hardly two alike.
        chosen = rng.choice(off, size=len(points)) * rng.choice([-1.0, 1.0], size=len(points))
        yield Data(data.n, curve * np.exp(chosen), data.inputs, data.names)
