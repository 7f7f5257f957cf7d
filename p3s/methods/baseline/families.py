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


Fit = Callable[[Floats, Floats, Floats, Floats, Sequence[str]], Parameters]
Evaluate = Callable[[Parameters, Floats, Floats], Floats]


@dataclass(frozen=True)
class Family:
    """One form of model.

    ``needs``: fewest distinct counts; ``takes_inputs``: whether it has terms for input parameters;
    ``automatic``: whether it is tried when none is asked for; ``fit`` takes counts, seconds,
    inputs, weights and names of inputs.
    """

    name: str
    what: str
    needs: int
    fit: Fit
    evaluate: Evaluate
    takes_inputs: bool = False
    automatic: bool = True


@dataclass(frozen=True)
class Fitted:
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


def fit(name: str, data: Data, weights: Floats) -> Fitted:
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
    found = family.fit(data.n, data.seconds, data.inputs, weights, data.names)
    return Fitted(name, found, data.names)


def family_of(name: str) -> Family:
    """Return a family by name; UsageError for another."""
    if name not in FAMILIES:
        raise UsageError(f"{name}: no model family; one of {', '.join(FAMILIES)}")
    return FAMILIES[name]


def _three_term(q: Floats, t: Floats, _x: Floats, w: Floats, _names: Sequence[str]) -> Parameters:
    a, b, c = nonnegative(threeterm.design(q), t, w).tolist()
    return {"a": a, "b": b, "c": c, "n_params": 3}


def _three_term_value(p: Mapping[str, Any], q: Floats, _x: Floats) -> Floats:
    return threeterm.value(np.array([p["a"], p["b"], p["c"]]), q)


def _amdahl(q: Floats, t: Floats, _x: Floats, w: Floats, _names: Sequence[str]) -> Parameters:
    columns = np.column_stack([np.ones_like(q), 1.0 / q])
    serial, parallel = nonnegative(columns, t, w).tolist()
    return {"serial": serial, "parallel": parallel, "n_params": 2}


def _amdahl_value(p: Mapping[str, Any], q: Floats, _x: Floats) -> Floats:
    return np.asarray(p["serial"] + p["parallel"] / q)


FAMILIES = {
    family.name: family
    for family in (
        Family(
            "three-term", "a n + b/n + c/sqrt(n), none negative", 3, _three_term, _three_term_value
        ),
        Family("amdahl", "s + p/n, none negative", 2, _amdahl, _amdahl_value),
        Family("power-law", "f n^k", 2, regression.fit_power, regression.power),
        Family(
            "barnes-1",
            "log T linear in log n and the logs of the inputs",
            2,
            regression.fit_barnes_1,
            regression.barnes,
            takes_inputs=True,
            automatic=False,
        ),
        Family(
            "barnes-2",
            "the same with the square of log n",
            3,
            regression.fit_barnes_2,
            regression.barnes,
            takes_inputs=True,
        ),
        Family(
            "spline",
            "log T a restricted cubic spline of log n, with interactions",
            4,
            regression.fit_spline,
            regression.spline,
            takes_inputs=True,
            automatic=False,
        ),
        Family(
            "explicit",
            "linear in n and the inputs as they are",
            2,
            regression.fit_explicit,
            regression.explicit,
            takes_inputs=True,
            automatic=False,
        ),
    )
}


def text_of(fitted: Fitted, digits: int = 4) -> str:
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
    fitted: Fitted,
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
    if len(points) <= _used(fitted):
        return None
    where = np.asarray(at, dtype=np.float64)
    rng = np.random.default_rng(seed)
    draw = (
        _configurations(points, fitted, rng, reduction)
        if len(points) >= _MANY
        else _residuals(points, fitted, rng)
    )
    found = []
    for _ in range(draws):
        data = next(draw)
        try:
            again = fit(fitted.family, data, weights_of(weights, data.seconds))
        except P3SError:  # drawn too few distinct counts
            continue
        told = again.predict(where, inputs)
        if np.isfinite(told).all():
            found.append(told)
    if len(found) < draws / 2:
        return None
    low, high = np.quantile(np.array(found), [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    middle = fitted.predict(where, inputs)
    return np.minimum(low, middle), np.maximum(high, middle)


def _used(fitted: Fitted) -> int:
    """Return how many coefficients took freedom: those that a sign holds at zero did not."""
    names = {"three-term": "abc", "amdahl": ("serial", "parallel")}.get(fitted.family)
    if names is None:
        return fitted.n_params
    result: int = max(1, sum(fitted.parameters[name] > 0 for name in names))
    return result


def _configurations(
    points: Sequence[Point], fitted: Fitted, rng: np.random.Generator, reduction: str
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


def _residuals(points: Sequence[Point], fitted: Fitted, rng: np.random.Generator) -> Iterator[Data]:
    """Put residuals on the fitted curve, for ever."""
    data = Data.of(points, fitted.inputs)
    curve = np.maximum(fitted.predict(data.n, data.inputs), 1e-12 * data.seconds)
    lost = math.sqrt(len(points) / (len(points) - _used(fitted)))
    off = np.log(data.seconds / curve) * lost
    off = off - off.mean()
    while True:
        # Signs are drawn too: a handful of residuals has hardly two alike.
        chosen = rng.choice(off, size=len(points)) * rng.choice([-1.0, 1.0], size=len(points))
        yield Data(data.n, curve * np.exp(chosen), data.inputs, data.names)
