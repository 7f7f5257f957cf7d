"""Non-negative real laws for work and time, over counts and over parameters of an input."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import comb, log2
from typing import Any

import numpy as np

from p3s.base.errors import P3SError
from p3s.laws import symbolic
from p3s.laws.exact import Settings
from p3s.laws.expr import Expr, add, mul, num, power, sym
from p3s.laws.mixture import (
    MAX_TERMS,
    SHAPES,
    Points,
    choose_model,
    columns,
    fits,
    interval,
    mixture,
)
from p3s.laws.statistics import FAR, FLOAT_ERROR, PER_DOUBLING

#: Counts, as multiples of the largest traced one, at which the interval is stored.
BAND_STEPS = tuple(2**k for k in range(0, 13, 2))
#: An interval wider than this factor, at FAR times the largest count, tells nothing.
REFUSE_FACTOR = 4.0
#: Bits by which an exact sum of terms must beat chance, beyond the number of sums tried.
EXACT_MARGIN = 6.0


@dataclass(frozen=True)
class WorkLaw:
    """A non-negative law for an amount of work: sum of coefficient x shape.

    terms: (coefficient, power of n as a fraction, power of log2 n); rel_half_width: half width
    of the 90 % interval relative to the value at the largest traced count max_n; band: counts from
    max_n on with the ends of the interval as multiples of the value; refused: why the points
    cannot tell, None if they can. The unit is the one of the samples.
    """

    terms: tuple[tuple[float, Fraction, int], ...]
    rel_half_width: float
    max_n: int
    band: tuple[tuple[float, float, float], ...] = ()
    refused: str | None = None

    def value(self, n: Any) -> Any:
        """Return the work at ``n`` processes (array or scalar)."""
        n = np.asarray(n, dtype=float)
        total = np.zeros_like(n)
        for coef, a, b in self.terms:
            total = total + coef * n ** float(a) * np.log2(np.maximum(n, 1)) ** b
        return total

    def half_width(self, n: float) -> float:
        """Return the relative half width of the 90 % interval at ``n``, the longer side."""
        if not self.band:
            beyond = max(0.0, float(np.log2(max(n, 1) / self.max_n)))
            return self.rel_half_width * (1.0 + PER_DOUBLING * beyond)
        low, high = self._ends(n)
        return max(high - 1.0, 1.0 - low)

    def interval(self, n: float) -> tuple[float, float]:
        """Return the 90 % interval at ``n`` in the unit of the samples; never negative."""
        value = float(self.value(n))
        if not self.band:
            half = self.half_width(n)
            return max(0.0, value * (1 - half)), value * (1 + half)
        low, high = self._ends(n)
        return value * low, value * high

    def _ends(self, n: float) -> tuple[float, float]:
        """Return the interval as multiples of the value; beyond the band it goes on growing."""
        at = np.log2([b[0] for b in self.band])
        x = log2(max(n, 1.0))
        ends = []
        for side in (1, 2):
            y = np.log2([max(b[side], 1e-9) for b in self.band])
            inside = float(np.interp(x, at, y))
            if x > at[-1] and len(at) > 1:
                inside += (x - at[-1]) * float(y[-1] - y[-2]) / float(at[-1] - at[-2])
            ends.append(float(2.0 ** min(max(inside, -60.0), 60.0)))
        return min(ends[0], 1.0), max(ends[1], 1.0)

    def to_json(self) -> dict[str, Any]:
        """Return the law as plain data."""
        data: dict[str, Any] = {
            "terms": [[c, a.numerator, a.denominator, b] for c, a, b in self.terms],
            "rel_half_width": self.rel_half_width,
            "max_n": self.max_n,
            "band": [list(b) for b in self.band],
        }
        return {**data, "refused": self.refused} if self.refused else data

    @staticmethod
    def from_json(data: dict[str, Any]) -> WorkLaw:
        """Return the law from :meth:`to_json` data."""
        return WorkLaw(
            tuple((float(c), Fraction(int(p), int(q)), int(b)) for c, p, q, b in data["terms"]),
            float(data["rel_half_width"]),
            int(data["max_n"]),
            tuple((float(n), float(lo), float(hi)) for n, lo, hi in data.get("band", ())),
            data.get("refused"),
        )

    @property
    def expr(self) -> Expr:
        """The law as an equation of n."""
        return add(*(mul(num(Fraction(c)), shape) for c, shape in self._shapes))

    @property
    def _shapes(self) -> list[tuple[float, Expr]]:
        n = sym("n")
        return [(c, mul(*[["log2", n]] * b, *[power(n, a)] * (a != 0))) for c, a, b in self.terms]

    @property
    def shapes(self) -> list[Expr]:
        """What the coefficients of the terms are times."""
        return [shape for _, shape in self._shapes]

    def text(self, unit: str = "") -> str:
        """Return the law as one line of text."""
        parts = [symbolic.term_text(c, shape) for c, shape in self._shapes]
        return (" + ".join(parts) or "0") + (f" {unit}" if unit else "")

    def latex(self) -> str:
        """Return the law as LaTeX for math mode."""
        return " + ".join(map(symbolic.sympy_to_latex, self._decimals)) or "0"

    def mathml(self) -> str:
        """Return the law as presentation MathML without the <math> around it."""
        return symbolic.total(list(map(symbolic.sympy_to_mathml, self._decimals)))

    @property
    def _decimals(self) -> list[Any]:
        """The terms in sympy, in their order, with four figures."""
        return [symbolic.decimal(mul(num(Fraction(c)), shape)) for c, shape in self._shapes]


def fit_work(
    ns: Sequence[int], values: Sequence[float], resolution: Sequence[float] = ()
) -> WorkLaw:
    """Fit a non-negative law to work per occurrence; always returns one.

    One to three typed terms. values are in one unit, ns in counts; a count that is repeated has
    repeated measurements. resolution: what each value may be off by beside noise, in its unit, as
    far as that is known. Where the points cannot tell, ``refused`` of the law says why.
    """
    return _fit(
        tuple(float(n) for n in ns),
        tuple(max(0.0, float(v)) for v in values),
        tuple(float(r) for r in resolution),
    )


@lru_cache(maxsize=4096)
def _fit(
    ns: tuple[float, ...], values: tuple[float, ...], resolution: tuple[float, ...]
) -> WorkLaw:
    top = int(max(ns, default=1))
    if not any(v > 0 for v in values):
        return WorkLaw((), 0.0, top)
    points = Points.of(ns, values, resolution)
    if len(points.n) == 1:
        return WorkLaw(
            ((float(points.mean[0]), Fraction(0), 0),),
            1.64,
            top,
            refused="one count cannot tell how the work scales",
        )
    at = points.n[-1] * np.array(BAND_STEPS, dtype=float)
    exact = _without_noise(points, values)
    if exact is not None:
        which, share, error = exact
        law = _law(which.tolist(), share, points, top)
        # every value may be off by its error: the interval holds all laws that this leaves
        size = columns(at, float(points.n[-1]))[:, which] * points.size[-1]
        design = columns(points.n, float(points.n[-1]))[:, which] * points.size[-1]
        off = np.abs(size @ np.linalg.pinv(design / points.size[:, None])) @ error
        ends = np.stack([law.value(at) - off, law.value(at) + off], axis=1)
    else:
        models = mixture(points)
        if not models:  # terms of both signs, as in a*n - b: no sum without a minus is like it
            return _nearest(points, top)
        best = choose_model(models, points)
        law = _law(best.which, best.share, points, top)
        ends = interval(models, points, at)
    value = np.maximum(law.value(at), 1e-300)
    low, high = np.clip(ends[:, 0] / value, 0.0, 1.0), np.maximum(ends[:, 1] / value, 1.0)
    band = tuple(
        (float(n), float(f"{lo:.6g}"), float(f"{hi:.6g}"))
        for n, lo, hi in zip(at, low, high, strict=True)
    )
    half = float(max(high[0] - 1.0, 1.0 - low[0]))
    done = WorkLaw(law.terms, half, top, band)
    return WorkLaw(law.terms, half, top, band, _why_refused(done, len(points.n)))


def _nearest(points: Points, top: int) -> WorkLaw:
    """Return the one term that is nearest to points which no non-negative sum is like."""
    y = points.mean / points.size[-1]
    size = points.size / points.size[-1]  # a value of 0 is met to a thousandth of the largest
    shapes, y = columns(points.n, float(points.n[-1])) / size[:, None], y / size
    share = y @ shapes / np.maximum((shapes**2).sum(axis=0), 1e-300)
    error = np.abs(shapes * share - y[:, None]).max(axis=0)
    best = int(np.argmin(error))
    law = _law([best], share[[best]], points, top)
    return WorkLaw(
        law.terms,
        float(error[best]),
        top,
        refused="no sum of non-negative terms is like the points",
    )


def _law(which: Sequence[int], share: np.ndarray, points: Points, top: int) -> WorkLaw:
    n = float(points.n[-1])
    terms = []
    for i, s in zip(which, share, strict=True):
        a, b, _ = SHAPES[i]
        coef = float(s * points.size[-1] / (n ** float(a) * np.log2(max(n, 1.0)) ** b))
        if coef > 0:
            terms.append((coef, a, b))
    return WorkLaw(tuple(terms), 0.0, top)


def _why_refused(law: WorkLaw, counts: int) -> str | None:
    if counts < 3:
        return "two counts cannot tell how the work scales"
    low, high = law.interval(law.max_n * FAR)
    if high > REFUSE_FACTOR * max(low, 1e-300):
        return (
            f"the points fit laws that differ by more than a factor of {REFUSE_FACTOR:g} at "
            f"{FAR} times the largest traced count"
        )
    return None


def _without_noise(
    points: Points, values: Sequence[float]
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Return the sum of fewest terms that meets every value but for rounding: its shapes, their
    shares, and the rounding, relative. None without one.
    """
    if points.spread > points.total * FLOAT_ERROR**2 or np.any(points.mean <= 0):
        return None
    error = np.maximum(FLOAT_ERROR, points.known)
    found = _meeting(points, error)
    if found is None and all(v == round(v) for v in values):
        error = np.maximum(error, 0.5000001 / points.mean)
        found = _meeting(points, error)
    return None if found is None else (*found, error)


def _meeting(points: Points, error: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return shapes and shares of the sum of fewest terms that meets every value within ``error``.

    None where no sum does, or where so many do that one meets by chance what fewer terms leave.
    """
    m = len(points.n)
    left = 1.0  # what fewer terms leave, relative
    for f in fits(points, min(MAX_TERMS, m - 1), error):
        k = f.which.shape[1]
        evidence = np.sort(np.log2(np.maximum(left / (2 * error), 1.0)))
        if evidence[: m - k].sum() < EXACT_MARGIN + log2(comb(len(SHAPES), k)):
            return None
        off = np.abs(f.residual) / np.sqrt(points.repeats)
        meets = np.all(off <= 1.0, axis=1) & np.all(f.share >= 0, axis=1)
        if meets.any():
            best = int(np.argmax(np.where(meets, f.prior, -np.inf)))
            return f.which[best], f.share[best]
        left = min(left, float((off * error).max(axis=1).min()))
    return None


@dataclass(frozen=True)
class Powers:
    """A sum of terms (coefficient, power of each of the parameters ``names``).

    ``error``: root mean square of the relative errors at settings left out.
    """

    names: tuple[str, ...]
    terms: tuple[tuple[float, tuple[float, ...]], ...]
    error: float

    @property
    def expr(self) -> Expr:
        """The law as an equation of the parameters."""
        return add(*(mul(num(Fraction(c)), self._shape(powers)) for c, powers in self.terms))

    def _shape(self, powers: Sequence[float]) -> Expr:
        named = zip(self.names, powers, strict=True)
        return mul(*(power(sym(name), Fraction(e)) for name, e in named if e))

    def text(self) -> str:
        """Return the law as one line of text."""
        parts = [symbolic.term_text(coef, self._shape(powers)) for coef, powers in self.terms]
        return " + ".join(parts) or "0"

    def value(self, setting: Mapping[str, Fraction]) -> float:
        """Return the value at a setting; raises P3SError where it has none."""
        at = [float(setting[name]) for name in self.names]
        try:
            return sum(
                c * math.prod(math.pow(v, e) for v, e in zip(at, p, strict=True))
                for c, p in self.terms
            )
        except (ValueError, OverflowError) as err:  # math.pow: of 0 and below
            raise P3SError("model: a law of the parameters has no value there") from err


def fit_powers(settings: Settings, values: Sequence[float]) -> Powers:
    """Return terms c * product of powers of the parameters, and their error where one is left out.

    One or two terms with positive coefficients; the error is the root mean square of the
    relative errors at each setting left out in turn, 1 where none can be left out.
    """
    names = tuple(settings[0])
    x = np.array([[float(s[name]) for name in names] for s in settings])
    y = np.array(values, dtype=float)
    flat = tuple(0.0 for _ in names)
    if len(y) < 2 or np.all(y == y[0]):
        return Powers(names, ((float(y[0]), flat),), 1.0 if len(y) < 2 else 0.0)
    if np.any(y < 0) or not np.all(np.isfinite(y)):
        return Powers(names, ((float(y.mean()), flat),), 1.0)
    steps = (-1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
    shapes = [flat]
    for d in range(len(names)):
        if len(np.unique(x[:, d])) > 1:
            has = np.all(x[:, d] > 0)  # powers have no value at 0 and below but some
            shapes += [
                tuple(e if k == d else s[k] for k in range(len(names)))
                for s in list(shapes)
                for e in steps
                if e and (has or e > 0 and e == round(e))
            ]
    columns = {s: np.prod(x ** np.array(s), axis=1) for s in dict.fromkeys(shapes)}
    sets: list[tuple[tuple[float, ...], ...]] = [(s,) for s in columns]
    if len(y) > 2:
        sets += [(flat, s) for s in columns if s != flat]
    best: tuple[float, float, Any] | None = None
    size = np.maximum(y, 1e-3 * y.max())
    for some in sets:
        matrix = np.stack([columns[s] for s in some], axis=1)
        coef = _positive(matrix, y, size)
        if coef is None:
            continue
        missed = []
        for k in range(len(y)):
            keep = np.arange(len(y)) != k
            part = _positive(matrix[keep], y[keep], size[keep])
            told = float(matrix[k] @ part) if part is not None else 0.0
            missed.append((told - y[k]) / size[k])
        error = float(np.sqrt(np.mean(np.square(missed))))
        key = (error + 1e-6) * (1.5 if len(some) > 1 else 1.0)
        if best is None or key < best[0]:
            best = (key, error, tuple((float(c), s) for c, s in zip(coef, some, strict=True)))
    if best is None:
        return Powers(names, ((float(y.mean()), flat),), 1.0)
    return Powers(names, best[2], best[1])


def _positive(matrix: np.ndarray, y: np.ndarray, size: np.ndarray) -> np.ndarray | None:
    """Return the least-squares coefficients, None unless all are positive; size: of y, positive."""
    if matrix.shape[0] < matrix.shape[1]:
        return None
    weight = 1.0 / size
    scale = np.abs(matrix).max(axis=0)
    if not np.all(scale > 0):
        return None
    coef, _, rank, _ = np.linalg.lstsq(matrix / scale * weight[:, None], y * weight, rcond=None)
    if rank < matrix.shape[1] or np.any(coef <= 0):
        return None
    return np.asarray(coef / scale)
