"""Points in, law out: the law finder for use on its own.

    from p3s.laws.lawfinder import find_law

    found = find_law({4: 3, 8: 7, 16: 15, 32: 31})
    found.text()        'n - 1'
    found.value(4096)   4095.0
    found.verdict       'exact'

Exact laws are looked for first (laws.py), in integers and fractions; only then a sum of terms with
real coefficients that are not negative (worklaws.py).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Rational
from typing import Any

import numpy as np

from p3s.errors import P3SError
from p3s.laws import expr as ex
from p3s.laws import symbolic
from p3s.laws.counts import AFFINE_BITS, PRODUCT_BITS, candidates, is_quotient, rivals_of
from p3s.laws.counts import MAX_DENOMINATOR as SMALL_DENOMINATOR
from p3s.laws.exact import exact_value
from p3s.laws.expr import Expr, mul, num
from p3s.laws.shapes import basis, bits_of
from p3s.laws.shares import remainder
from p3s.laws.worklaws import WorkLaw, fit_work

Environment = Mapping[str, int]
Points = Mapping[int, Any] | Sequence[tuple[Any, float]]

#: Largest common denominator of values that are taken for fractions.
MAX_DENOMINATOR = 1 << 12
#: Bits of evidence for L mod n, which the search of exact laws asks more for.
REMAINDER_EVIDENCE = 6.0

EXACT, FITTED, AMBIGUOUS, REFUSED = "exact", "fitted", "ambiguous", "refused"


@dataclass(frozen=True)
class Found:
    """A law with what is known about it.

    verdict: exact (an equation that meets every value, with points to spare), ambiguous (exact,
    but rivals meet them too and differ at larger counts of the same form, or no point is to
    spare), fitted (a real
    law with an interval), refused (the points cannot tell; reason says why). expr is None for
    real laws, work None for exact ones. points: counts used; free: numbers fitted.
    """

    verdict: str
    expr: Expr | None
    work: WorkLaw | None
    points: int
    free: int
    rivals: tuple[Expr, ...] = ()
    reason: str | None = None

    def value(self, n: int | Environment) -> float:
        """Return the value at ``n`` processes (or at symbols n, p0, ...); never negative."""
        if self.verdict == REFUSED:
            raise P3SError(f"law: no value at {n}: {self.reason}; trace another count")
        env = _environment(n)
        if self.expr is not None:
            exact = exact_value(self.expr, env)
            return max(0.0, float(exact if exact is not None else ex.evaluate(self.expr, env)))
        assert self.work is not None
        return float(self.work.value(env["n"]))

    def interval(self, n: int | Environment) -> tuple[float, float]:
        """Return the 90 % interval at ``n``; an exact law and its rivals give their extremes."""
        env = _environment(n)
        if self.work is not None:
            return self.work.interval(env["n"])
        values = [self.value(env), *(max(0.0, float(ex.evaluate(r, env))) for r in self.rivals)]
        return min(values), max(values)

    def text(self) -> str:
        """Return the law as one line of text."""
        if self.expr is not None:
            return symbolic.to_text(self.expr)
        return self.work.text() if self.work else f"no law: {self.reason}"

    def latex(self) -> str:
        """Return the law as LaTeX for math mode, empty if refused."""
        if self.expr is not None:
            return symbolic.to_latex(self.expr)
        return self.work.latex() if self.work else ""

    def python(self, name: str = "law") -> str:
        """Return the source of a Python function of the symbols, empty if refused."""
        if self.expr is not None:
            return symbolic.to_python(self.expr, name)
        return self.work.python(name) if self.work else ""


def find_law(points: Points, kind: str = "any", known: Collection[int] = ()) -> Found:
    """Find the law that points follow.

    points: process count -> value or list of repeated values; or a sequence of (count, value),
    where a count may come again and may be a mapping of symbols (n, p0, p1, ...) to whole
    numbers. kind: "count" (exact laws only), "work" (real laws only) or "any" (exact first).
    known: extents the program is known to have. Raises P3SError on points that are no numbers.
    """
    if kind not in ("any", "count", "work"):
        raise P3SError(f"law: unknown kind {kind!r}; use count, work or any")
    envs, values = _read(points)
    if not envs:
        return Found(REFUSED, None, None, 0, 0, reason="there are no points")
    if kind != "work":
        found = _exact(envs, values, known) or _irrational(envs, values)
        if found is not None:
            return found
        if kind == "count":
            return Found(
                REFUSED,
                None,
                None,
                len({e["n"] for e in envs}),
                0,
                reason="no exact law meets the values in fewer bits than they take",
            )
    counts = len({e["n"] for e in envs})
    if any(v < 0 for v in values):
        return Found(
            REFUSED,
            None,
            None,
            counts,
            0,
            reason="work and time are never negative, some values are",
        )
    work = fit_work([e["n"] for e in envs], values)
    if work.refused:
        return Found(REFUSED, None, work, counts, len(work.terms), reason=work.refused)
    return Found(FITTED, None, work, counts, len(work.terms))


def _environment(n: int | Environment) -> dict[str, int]:
    return {"n": int(n)} if not isinstance(n, Mapping) else {k: int(v) for k, v in n.items()}


def _read(points: Points) -> tuple[list[dict[str, int]], list[Any]]:
    pairs = points.items() if isinstance(points, Mapping) else points
    envs: list[dict[str, int]] = []
    values: list[Any] = []
    for at, what in pairs:
        env = _environment(at)
        if env.get("n", 0) < 1 or any(v < 0 for v in env.values()):
            raise P3SError(f"law: {at} is no process count; counts are 1 and more")
        for v in np.atleast_1d(np.asarray(what)).tolist():
            if not math.isfinite(float(v)):
                raise P3SError(
                    f"law: the value {v} at {env['n']} processes is no number; leave it out"
                )
            envs.append(env)
            values.append(v if isinstance(v, Rational) else float(v))
    order = sorted(range(len(envs)), key=lambda i: sorted(envs[i].items()))
    return [envs[i] for i in order], [values[i] for i in order]


def _exact(envs: list[dict[str, int]], values: list[Any], known: Collection[int]) -> Found | None:
    """Return the exact law of values that are fractions and equal wherever they are repeated."""
    at: dict[tuple[tuple[str, int], ...], Fraction] = {}
    for env, v in zip(envs, values, strict=True):
        key = tuple(sorted(env.items()))
        if at.setdefault(key, Fraction(v)) != Fraction(v):
            return None
    over = math.lcm(*(v.denominator for v in at.values()))
    if over > MAX_DENOMINATOR:
        return None
    where = [dict(k) for k in at]
    if len(where) < 2:
        return None
    ndims = max(sum(k.startswith("p") for k in e) for e in where) or 1
    whole = [int(v * over) for v in at.values()]
    found = candidates(where, whole, ndims, known)
    if not found:
        return _remainder(where, whole) if over == 1 else None
    best = found[0]
    rivals, elsewhere = rivals_of(found, where)
    formal = bool(rivals)
    rivals += elsewhere
    spare = len(at) > best.free
    verdict = EXACT if spare and not formal else AMBIGUOUS
    reason = None if spare else "no point is left to check the law"
    if rivals:
        reason = f"{len(rivals)} other laws meet the points and differ at larger counts" + (
            "" if formal else " of another form"
        )
    elif spare and over == 1 and is_quotient(best.expr) and best.expr[0] == "mul":
        reason = "all counts divide it evenly: how a remainder is dealt with is open"
    return Found(
        verdict,
        _over(best.expr, over),
        None,
        len(at),
        best.free,
        tuple(_over(r, over) for r in rivals),
        reason,
    )


def _remainder(where: list[dict[str, int]], values: list[int]) -> Found | None:
    """Return L mod n, ambiguous: no points tell L from L plus a multiple of all counts."""
    found = remainder([e["n"] for e in where], values)
    if found is None or found[2] < REMAINDER_EVIDENCE:
        return None
    extent, step, _ = found
    rivals = tuple(["mod", num(extent + k * step), ex.sym("n")] for k in (1, 2))
    return Found(
        AMBIGUOUS,
        ["mod", num(extent), ex.sym("n")],
        None,
        len(where),
        1,
        rivals,
        f"the extent may be larger by any multiple of {step}",
    )


def _irrational(envs: list[dict[str, int]], values: list[Any]) -> Found | None:
    """Return the law of values that are no fractions themselves but follow one that is written
    with small ones, such as 4n - 4 sqrt(n): met to the last digits of a float, so not by chance.
    """
    ndims = max((sum(k.startswith("p") for k in e) for e in envs), default=0) or 1
    b = basis(envs, ndims)
    y = np.array(values, dtype=float)
    if len(y) < 3 or len({e["n"] for e in envs}) < len(y) or not len(b.shapes):
        return None
    options: list[tuple[float, int, Expr]] = []
    pairs = [(b.shapes[i], b.shapes[k]) for i, k in b.pairs]
    rows = np.concatenate([b.values, b.products()])
    for row, parts in zip(rows, [*((s,) for s in b.shapes), *pairs], strict=True):
        bits = sum(s.bits for s in parts) + (PRODUCT_BITS if len(parts) > 1 else 0.0)
        peak = int(np.argmax(np.abs(row)))
        k = _small(y[peak] / row[peak])
        if k and _close(float(k) * row, y):
            options.append((bits + bits_of(k), 1, mul(num(k), *(s.expr for s in parts))))
        if len(parts) == 1 and len(y) > 3:
            slope = (y[-1] - y[0]) / (row[-1] - row[0]) if row[-1] != row[0] else math.inf
            a, c = _small(slope), _small(y[0] - slope * row[0])
            if a and c and _close(float(a) * row + float(c), y):
                options.append(
                    (
                        bits + AFFINE_BITS + bits_of(a) + bits_of(c),
                        2,
                        ex.add(mul(num(a), parts[0].expr), num(c)),
                    )
                )
    if not options:
        return None
    _, free, expr = min(options, key=lambda o: o[0])
    return Found(EXACT, expr, None, len(y), free)


def _small(x: float) -> Fraction | None:
    """Return the fraction with a small denominator that a float stands for, if it does."""
    if not math.isfinite(x):
        return None
    f = Fraction(x).limit_denominator(SMALL_DENOMINATOR)
    return f if abs(float(f) - x) <= 1e-9 * max(1.0, abs(x)) else None


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.all(np.abs(a - b) <= 1e-10 * np.maximum(np.abs(b), 1e-30)))


def _over(expr: Expr, denominator: int) -> Expr:
    return expr if denominator == 1 else mul(num(Fraction(1, denominator)), expr)
