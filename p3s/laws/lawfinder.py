"""Points in, law out: the law finder of P3S, for its models and for use on its own.

    from p3s.laws.lawfinder import find_law

    found = find_law({4: 3, 8: 7, 16: 15, 32: 31})
    found.text()        'n - 1'
    found.value(4096)   4095.0
    found.verdict       'exact'

Exact laws are looked for first (counts.py), in integers and fractions; only then a sum of terms
with real coefficients that are not negative, in n or in parameters (worklaws.py).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from numbers import Integral
from typing import Any, Literal, get_args

import numpy as np

from p3s.base.errors import P3SError
from p3s.laws import expr as ex
from p3s.laws import symbolic
from p3s.laws.counts import (
    MARGIN,
    Law,
    candidates,
    in_parameters,
    irrational,
    is_quotient,
    listed_bits,
    parameter_rivals,
    rivals_of,
)
from p3s.laws.exact import Symbols, bits_of, exact_value, value_at
from p3s.laws.expr import Expr, mul, num
from p3s.laws.shares import remainder
from p3s.laws.worklaws import Powers, WorkLaw, fit_powers, fit_work

#: Where a value was seen: a process count, or a mapping of symbols.
At = int | Symbols
Points = Mapping[int, Any] | Iterable[Sequence[Any]]
Kind = Literal["any", "count", "whole", "work"]
Of = Literal["processes", "parameters"]

#: Largest common denominator of values that are taken for fractions.
MAX_DENOMINATOR = 1 << 12
#: Bits of evidence for L mod n, which the search of exact laws asks more for.
REMAINDER_EVIDENCE = 6.0

#: Counts that are tried for a difference that cannot be solved for.
MOST_TRIED = 4096

EXACT, FITTED, AMBIGUOUS, REFUSED = "exact", "fitted", "ambiguous", "refused"


@dataclass(frozen=True)
class FoundLaw:
    """A law with what is known about it.

    verdict: exact (an equation that meets every value, with points to spare), ambiguous (exact,
    but rivals meet them too and differ at larger counts of the same form, or no point is to
    spare), fitted (a real law with an interval), refused (the points cannot tell; reason says
    why). expr is None for real laws; work is the real law in n, powers the one in parameters.
    law: the equation as rules of a model take it, None where a number in it is open. points: places
    with values; free: numbers fitted; bits: the price of an exact law.
    """

    verdict: str
    expr: Expr | None
    work: WorkLaw | None
    points: int
    free: int
    rivals: tuple[Expr, ...] = ()
    reason: str | None = None
    law: Law | None = None
    powers: Powers | None = None
    bits: float = math.nan

    @property
    def fit(self) -> WorkLaw:
        """The real law in n; raises P3SError where another one was found."""
        if self.work is None:
            raise P3SError(f"law: no law of work in n: {self.reason or 'it is an equation'}")
        return self.work

    @property
    def equation(self) -> Expr:
        """The law as an expression, whatever its kind; sympy's by symbolic.to_sympy."""
        return self.expr or (self.powers or self.fit).expr

    def decided_at(self, above: int) -> int | None:
        """Return the count beyond ``above`` by which each rival has differed from the law.

        None without rivals, or where one is the law at every count that is tried.
        """
        apart = [first_difference(self.equation, r, above) for r in self.rivals]
        return max((n for n in apart if n is not None), default=None) if all(apart) else None

    def value(self, n: At) -> float:
        """Return the value at ``n`` processes (or at symbols n, p0, ...); never negative."""
        if self.verdict == REFUSED:
            raise P3SError(f"law: no value at {n}: {self.reason}; trace another count")
        env = _environment(n)
        if self.expr is not None:
            exact = exact_value(self.expr, env)
            return max(0.0, float(exact if exact is not None else ex.evaluate(self.expr, env)))
        if self.powers is not None:
            return max(0.0, self.powers.value(env))
        return float(self.fit.value(env["n"]))

    def interval(self, n: At) -> tuple[float, float]:
        """Return the 90 % interval at ``n``; an exact law and its rivals give their extremes."""
        env = _environment(n)
        if self.work is not None:
            return self.work.interval(float(env["n"]))
        if self.powers is not None:
            raise P3SError(
                "law: of parameters only the error is known, not an interval at a setting"
            )
        values = [self.value(env), *(max(0.0, float(ex.evaluate(r, env))) for r in self.rivals)]
        return min(values), max(values)

    def text(self) -> str:
        """Return the law as one line of text."""
        if self.expr is not None:
            return symbolic.to_text(self.expr)
        if self.powers is not None:
            return self.powers.text()
        shown = self.work is not None and (self.work.terms or self.verdict == FITTED)
        return self.fit.text() if shown else f"no law: {self.reason}"

    def latex(self) -> str:
        """Return the law as LaTeX for math mode, empty if refused."""
        if self.expr is not None:
            return symbolic.to_latex(self.expr)
        return self.work.latex() if self.work else ""


def find_law(
    points: Points,
    kind: Kind = "any",
    known: Collection[int] = (),
    resolution: Sequence[float] = (),
    of: Of = "processes",
) -> FoundLaw:
    """Find the law that points follow.

    points: process count -> value or list of repeated values; or pairs (count, value), where a
    count may come again and may be a mapping of symbols (n, p0, p1, ...) to whole numbers; of
    parameters of the input: mappings of their names to fractions.
    kind: "count" (exact laws only), "whole" (of these the ones whose every number the points tell,
    as rules of a model need them), "work" (real laws only) or "any" (exact first).
    known: extents the program is known to have. resolution: what each value of work may be off by
    beside its noise, in its unit; without it none is known.
    Raises P3SError on points that are no numbers.
    """
    if kind not in get_args(Kind):
        raise P3SError(f"law: unknown kind {kind!r}; use {', '.join(get_args(Kind))}")
    if of == "parameters":
        return _in_parameters(list(points.items() if isinstance(points, Mapping) else points), kind)
    envs, values, resolution = _read_points(points, resolution)
    if kind == "work":
        return _work(envs, values, resolution)
    if not envs:
        return FoundLaw(REFUSED, None, None, 0, 0, reason="there are no points")
    whole = kind == "whole"
    found = _exact(envs, values, known, whole) if whole or envs[0] != envs[-1] else None
    if not whole:
        found = found or _irrational(envs, values) or _but_for_some(envs, values, known)
    if found is not None or kind == "any":
        return found or _work(envs, values, resolution)
    reason = "no exact law meets the values in fewer bits than they take"
    return FoundLaw(REFUSED, None, None, len({e["n"] for e in envs}), 0, reason=reason)


def _work(envs: Sequence[Symbols], values: Sequence[Any], resolution: Sequence[float]) -> FoundLaw:
    """Return the real law in n; of values below zero one that takes them for zero, refused."""
    ns = [int(e["n"]) for e in envs]
    work = fit_work(ns, values, resolution)
    reason = work.refused
    if any(v < 0 for v in values):
        reason = "work and time are never negative, some values are"
    elif not ns:
        reason = "there are no points"
    verdict = REFUSED if reason else FITTED
    return FoundLaw(verdict, None, work, len(set(ns)), len(work.terms), reason=reason)


def _in_parameters(points: Sequence[Sequence[Any]], kind: Kind) -> FoundLaw:
    """Return the law in parameters of an input: exact, else a sum of products of powers."""
    envs, values = [at for at, _ in points], [value for _, value in points]
    rational = kind != "work" and not any(isinstance(v, float) for v in values)
    y = [Fraction(v) for v in values] if rational else []
    found = in_parameters(envs, y) if rational else []
    if found:
        best, rivals = found[0], tuple(parameter_rivals(found, envs))
        verdict = EXACT if best.points > best.free and not rivals else AMBIGUOUS
        return FoundLaw(verdict, best.expr, None, len(y), best.free, rivals)
    if kind in ("count", "whole"):
        return FoundLaw(REFUSED, None, None, len(values), 0, reason="no exact law meets the values")
    powers = fit_powers(envs, [float(v) for v in values])
    return FoundLaw(FITTED, None, None, len(values), len(powers.terms), powers=powers)


def _environment(n: At) -> dict[str, Any]:
    if not isinstance(n, Mapping):
        return {"n": int(n)}
    return {k: v if isinstance(v, Fraction) else int(v) for k, v in n.items()}


def _read_points(
    points: Points, resolution: Sequence[float]
) -> tuple[list[dict[str, Any]], list[Any], list[float]]:
    """Return symbols, value and resolution of every point, ordered by symbols."""
    pairs = points.items() if isinstance(points, Mapping) else points
    envs: list[dict[str, Any]] = []
    values: list[Any] = []
    for at, what in pairs:
        env = _environment(at)
        if env.get("n", 0) < 1 or any(v < 0 for v in env.values()):
            raise P3SError(f"law: {at} is no process count; counts are 1 and more")
        several = isinstance(what, (Sequence, np.ndarray))
        for v in np.asarray(what).ravel().tolist() if several else (what,):
            if not math.isfinite(v):
                raise P3SError(f"law: the value {v} at {at} is no number; leave it out")
            envs.append(env)
            values.append(_number(v))
    order = sorted(range(len(envs)), key=lambda i: sorted(envs[i].items()))
    return (
        [envs[i] for i in order],
        [values[i] for i in order],
        [float(resolution[i]) for i in order if resolution],
    )


def _number(v: Any) -> int | Fraction | float:
    """Return a value as a number of Python: those of numpy would overflow."""
    if isinstance(v, Fraction):
        return v
    return int(v) if isinstance(v, Integral) else float(v)


def _exact(
    envs: list[dict[str, Any]], values: list[Any], known: Collection[int], whole: bool
) -> FoundLaw | None:
    """Return the exact law of values that are fractions and equal wherever they are repeated.

    whole: none that leaves a number open.
    """
    at: dict[tuple[tuple[str, int], ...], Fraction] = {}
    for env, v in zip(envs, values, strict=True):
        exact = Fraction(v)
        if at.setdefault(tuple(sorted(env.items())), exact) != exact:
            return None
    where, y = [dict(k) for k in at], list(at.values())
    over = math.lcm(*(v.denominator for v in y))
    if over > MAX_DENOMINATOR:
        return None
    ndims = max(sum(k.startswith("p") for k in e) for e in where) or 1
    found = candidates(where, [int(v * over) for v in y], ndims, known)
    if not found:
        return None if whole or over != 1 else _remainder(where, [int(v) for v in y])
    best = found[0]
    formal, elsewhere = ([_over(r, over) for r in some] for some in rivals_of(found, where))
    spare = best.points > best.free
    reason = None if spare else "no point is left to check the law"
    if formal or elsewhere:
        reason = f"{len(formal) + len(elsewhere)} other laws meet the points and differ at larger "
        reason += "counts" + ("" if formal else " of another form")
    elif spare and over == 1 and is_quotient(best.expr) and best.expr[0] == "mul":
        reason = "all counts divide it evenly: how a remainder is dealt with is open"
    verdict = EXACT if spare and not formal else AMBIGUOUS
    law = Law(_over(best.expr, over), best.free, best.points, others=tuple(formal))
    rivals = (*formal, *elsewhere)
    return FoundLaw(verdict, law.expr, None, len(y), best.free, rivals, reason, law, bits=best.bits)


def _remainder(where: list[dict[str, int]], values: list[int]) -> FoundLaw | None:
    """Return L mod n, ambiguous: no points tell L from L plus a multiple of all counts."""
    found = remainder([e["n"] for e in where], values)
    if found is None or found[2] < REMAINDER_EVIDENCE:
        return None
    extent, step, _ = found
    rivals = tuple(["mod", num(extent + k * step), ex.sym("n")] for k in (1, 2))
    return FoundLaw(
        AMBIGUOUS,
        ["mod", num(extent), ex.sym("n")],
        None,
        len(where),
        1,
        rivals,
        f"the extent may be larger by any multiple of {step}",
    )


def _irrational(envs: list[dict[str, int]], values: list[Any]) -> FoundLaw | None:
    """Return the law of values that are no fractions themselves but follow one that is written
    with small ones, such as 4n - 4 sqrt(n): met to the last digits of a float, so not by chance.
    """
    ndims = max((sum(k.startswith("p") for k in e) for e in envs), default=0) or 1
    if len({e["n"] for e in envs}) < len(envs):
        return None
    found = irrational(envs, [float(v) for v in values], ndims)
    return FoundLaw(EXACT, found[0].expr, None, len(values), found[0].free) if found else None


def _but_for_some(
    envs: list[dict[str, Any]], values: list[Any], known: Collection[int]
) -> FoundLaw | None:
    """Return the law that all points follow but the first few or any one, and name these.

    That they contradict the law costs their values and which they are, in bits; two points at least
    have to be to spare. Ambiguous: the law may be another one, or what was counted there is wrong.
    """
    m = len(values)
    if any(v != int(v) for v in values) or len({tuple(e.items()) for e in envs}) < m:
        return None
    listed = listed_bits([int(v) for v in values])
    best: tuple[float, FoundLaw] | None = None
    for some in [*(range(k) for k in range(1, m // 2)), *((k,) for k in range(1, m))]:
        rest = [k for k in range(m) if k not in some]
        found = _exact([envs[k] for k in rest], [values[k] for k in rest], known, True)
        if found is None or found.law is None or found.law.points < found.free + 2:
            continue
        bits = found.bits + sum(bits_of(int(values[k])) + math.log2(m) for k in some)
        if bits + MARGIN <= listed and (best is None or bits < best[0]):
            off = ", ".join(
                f"{values[k]:g} at {envs[k]['n']} (the law says {found.value(envs[k]):g})"
                for k in some
            )
            reason = f"the points contradict each other: {len(rest)} follow the law, not {off}"
            best = bits, replace(found, verdict=AMBIGUOUS, points=m, reason=reason, law=None)
    return best[1] if best is not None else None


def first_difference(a: Expr, b: Expr, above: int = 0) -> int | None:
    """Return the smallest n above a count at which two equations of n alone differ.

    None where sympy proves them equal, or where they are equal at every count that is tried.
    The counts at which smooth equations are equal are solved for; of others each is tried.
    """
    import sympy as sp

    apart = sp.simplify(symbolic.to_sympy(a) - symbolic.to_sympy(b))
    if apart == 0:
        return None
    most = MOST_TRIED
    if not apart.has(sp.floor, sp.ceiling, sp.Mod, sp.Min, sp.Max, sp.Sum):
        n = symbolic.to_sympy(ex.sym("n"))
        # log2 is a name to sympy: it is solved as the function that it stands for
        known = apart.replace(lambda e: type(e).__name__ == "log2", lambda e: sp.log(e.args[0], 2))
        equal_at = sp.solveset(known, n, sp.S.Integers)
        if isinstance(equal_at, sp.FiniteSet):
            most = above + len(equal_at) + 1
    for n in range(above + 1, most + 1):
        x, y = value_at(a, {"n": n}), value_at(b, {"n": n})
        if x != y or (x is None and not _alike(a, b, n)):
            return n
    return None


def _alike(a: Expr, b: Expr, n: int) -> bool:
    x, y = (float(ex.evaluate(e, {"n": float(n)})) for e in (a, b))
    return math.isclose(x, y, rel_tol=1e-12) or not (math.isfinite(x) or math.isfinite(y))


def _over(expr: Expr, denominator: int) -> Expr:
    return expr if denominator == 1 else mul(num(Fraction(1, denominator)), expr)
