"""Element counts as laws of grid extents, coordinates, stages and iterations, simplest first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import combinations, product

import numpy as np

from p3s.laws.expr import Expr, add, block, block_size, evaluate, mul, num, sym, symbols_of
from p3s.laws.lawfinder import find_law
from p3s.laws.whole import evaluate_int
from p3s.model.sizes.affine import fit_affine
from p3s.model.sizes.blocks import (
    MAX_FACTORS,
    PADDED,
    RARE,
    Axis,
    ExtentPool,
    FittedSize,
    Observations,
    best_extent,
    divisors,
    kinds_possible,
    rivals_of,
    solve_one,
)
from p3s.model.sizes.diagonal import fit_diagonal
from p3s.model.sizes.joint import alone
from p3s.model.sizes.levels import blocks_in, fit_chunks, fit_levels, scalar_law
from p3s.model.sizes.positions import composite_axes, decides, moving, plain_axes

#: Different values that a symbol needs at one count, and rows beyond the numbers of a law.
_VALUES, _SPARE = 3, 3


def fit_branch(obs: Observations) -> FittedSize | None:
    """Return a size as a number times the ranks of a tree's branch: data dealt down a tree."""
    if "b" not in obs.env or np.any(obs.env["b"] <= 0):
        return None
    ranks = obs.env["b"]
    factor = int(obs.value[0]) // int(ranks[0])
    several = len(np.unique(ranks)) >= _VALUES
    if not (several and factor and np.array_equal(obs.value, factor * ranks)):
        return None
    return FittedSize(mul(num(factor), sym("b")), 1, len(np.unique(obs.env["n"])))


def fit_linear(obs: Observations) -> FittedSize | None:
    """Return a size as a * x + b or a * x + e * p + b, with whole numbers.

    x: the rank or a coordinate, or the partner's, the iteration or the stage; p: n or an extent.
    Laws of other symbols that meet all sizes, too, are kept beside the first.
    """
    found = list(_met(obs))
    if not found:
        return None
    (free, expr), *others = sorted(found, key=lambda each: each[0])
    points = len(np.unique(obs.env["n"]))
    return FittedSize(expr, free, points, others=tuple(e for _, e in others))


def _met(obs: Observations) -> Iterator[tuple[int, Expr]]:
    steps = [u for u in _symbols(obs, "rcqts") if _several(obs, u)]
    extents = [u for u in _symbols(obs, "np") if len(np.unique(obs.env[u])) > 1]
    for names in (*((x,) for x in steps), *((x, p) for x in steps for p in extents)):
        expr = _solved(obs, names)
        if expr is not None:
            yield len(names) + 1, expr
    if not steps:
        return
    for pair in combinations(steps, 2):
        expr = _solved(obs, pair)
        if expr is not None:
            yield len(pair) + 1, expr


def _symbols(obs: Observations, letters: str) -> list[str]:
    names = {"n", "r", "t", "s"} | {f"{k}{d}" for k in "pcq" for d in range(obs.ndims)}
    if obs.ndims == 1:
        names -= {"p0", "c0"}
    return [u for u in obs.env if u in names and u[0] in letters]


def _several(obs: Observations, name: str) -> bool:
    n = obs.env["n"]
    return any(len(np.unique(obs.env[name][n == m])) >= _VALUES for m in np.unique(n))


def _solved(obs: Observations, names: tuple[str, ...]) -> Expr | None:
    """Return the sum that meets every size, None where there is none or too little to show it."""
    columns = np.stack(
        [*(obs.env[u].astype(float) for u in names), np.ones(len(obs.value))], axis=1
    )
    if len(np.unique(columns, axis=0)) < columns.shape[1] + _SPARE:
        return None
    numbers, _, rank, _ = np.linalg.lstsq(columns, obs.value.astype(float), rcond=None)
    whole = np.rint(numbers).astype(np.int64)
    if rank < columns.shape[1] or np.any(np.abs(numbers - whole) > 1e-6) or np.any(whole[:-1] == 0):
        return None
    terms = [mul(num(int(k)), sym(u)) for k, u in zip(whole[:-1], names, strict=True)]
    expr = add(*terms, num(int(whole[-1])))
    return expr if np.array_equal(evaluate_int(expr, obs.env), obs.value) else None


class Attempts:
    """The observations of one slot with what all attempts need."""

    def __init__(self, obs: Observations, pool: ExtentPool, counts: np.ndarray) -> None:
        self.obs, self.pool, self.counts = obs, pool, counts
        self.value = obs.value
        self.axes: list[Axis] = [a for a in plain_axes(obs) if a.varies()]
        #: along these, a single block may give the sizes
        self.single = [a for a in self.axes if decides(obs, [a])]
        self.kinds = pool.kinds()
        self.common = [k for k in self.kinds if k not in RARE]
        self.factors = divisors(int(np.gcd.reduce(obs.value)))[:MAX_FACTORS]
        self.even = all(len(np.unique(obs.value[obs.env["n"] == n])) == 1 for n in counts)

    def done(
        self, extent: int, axis: Axis, kind: str, factor: int = 1, ghost: int = 0
    ) -> FittedSize:
        """Return the law, its extent noted, with the rival ways of cutting that remain."""
        pool = self.pool
        rivals = rivals_of(extent, axis, kind, pool)
        pool.note(extent, kind, sure=not rivals)
        if kind in PADDED and rivals and (extent, kind) in pool.certain:
            rivals = ()  # shares of this very extent are rounded so at other slots
        sure = {k for _, k in pool.certain if k not in PADDED}
        if kind in sure:  # the program cuts in one way: other slots have shown which
            rivals = tuple(
                r
                for r in rivals
                if r[3] in sure and (r[3] != kind or (r[2], kind) not in pool.certain)
            )
        return FittedSize(
            add(mul(num(factor), block(kind, extent, axis.p, axis.c)), num(ghost)),
            1 + (factor != 1) + (ghost != 0),
            len(self.counts),
            # a remainder that fell on no rank's side shows nothing, unless there was one
            self.even and bool(np.all(extent % axis.count == 0)),
            rivals,
        )

    def solved(
        self, value: np.ndarray, axis: Axis, kind: str, factor: int = 1, ghost: int = 0
    ) -> FittedSize | None:
        """Return the law of one block along ``axis`` whose sizes are ``value``."""
        found = solve_one(value, axis, kind)
        if not found:
            return None
        return self.done(best_extent(found, self.pool), axis, kind, factor, ghost)

    def empty(self) -> FittedSize | None:
        """Try a factor times one block, where some ranks have none of it."""
        if np.all(self.value > 0):
            return None
        for f, axis in product(self.factors, self.single):
            for kind in kinds_possible(self.value // f, axis, self.kinds):
                law = self.solved(self.value // f, axis, kind, f)
                if law is not None:
                    return law
        return None

    def header(self) -> FittedSize | None:
        """Try a factor times one block and a few elements more than any ghost width explains.

        Only where blocks differ inside a count: their difference is the factor.
        """
        step = 0
        for n in self.counts:
            sizes = np.unique(self.value[self.obs.env["n"] == n])
            step = int(np.gcd.reduce(np.append(np.diff(sizes), step)))
        if step < 1:
            return None
        first = int(self.value[0]) % step
        for k, axis in product(range(first, first + 8 * step + 1, step), self.single):
            value = (self.value - k) // step
            for kind in kinds_possible(value, axis, self.common) if np.all(value > 0) else ():
                law = self.solved(value, axis, kind, step, k)
                if law is not None:
                    return law
        return None

    def fractional(self, expr: Expr) -> bool:
        """Tell whether a law gives fractions at counts like those seen."""
        ns = [int(n) for n in self.counts]
        top = ns[-1]
        kinds: list[tuple[Callable[[int], bool], list[int]]] = [
            (lambda n: n & (n - 1) == 0, [2 * top, 4 * top]),
            (lambda n: math.isqrt(n) ** 2 == n, [(math.isqrt(top) + k) ** 2 for k in (1, 2, 3)]),
        ]
        more = next(
            (far for like, far in kinds if len(ns) > 2 and all(map(like, ns))),
            [top + 1, top + 2, 2 * top],
        )
        if symbols_of(expr) - {"n"}:
            return False
        value = np.asarray(evaluate(expr, {"n": np.array(more)}), dtype=float)
        there = value[np.isfinite(value)]
        return len(there) < len(value) or bool(np.any(np.abs(there - np.rint(there)) > 1e-6))

    def scalar(self, most: int = 9) -> FittedSize | None:
        """Try a law of n and the extents alone, where all ranks agree at every count.

        most: free numbers in it; a slope and a constant pass for many a rounded share.
        """
        if not self.even:
            return None
        _, rows = np.unique(self.obs.env["n"], return_index=True)
        names = ["n", *(f"p{d}" for d in range(self.obs.ndims))]
        law = find_law(
            (({k: int(self.obs.env[k][i]) for k in names}, int(self.value[i])) for i in rows),
            "whole",
            known=[*sorted(self.pool.typed), *self.pool.extents()],
        ).law
        if law is None or law.free > most or (most == 1 and "block" in str(law.expr)):
            return None  # a share rounded off is a block, whose rivals are known
        even = law.free <= 2 and self.fractional(law.expr)
        return FittedSize(law.expr, law.free, law.points, even)

    def level_scalar(self) -> FittedSize | None:
        """Try a law that all ranks share, of the count and the turn."""
        law = scalar_law(self.obs)
        return None if law is None else FittedSize(law[0], law[1], len(self.counts))

    def multiplied(self) -> FittedSize | None:
        """Try blocks and their products times p, p - 1 or p - 2 of any extent."""
        names = ["n"] if self.obs.ndims == 1 else [*(f"p{d}" for d in range(self.obs.ndims)), "n"]
        for name, k in product(names, (1, 0, 2)):
            times = self.obs.env[name] - k
            if np.any(times <= 0) or np.any(self.value % times) or np.all(times == times[0]):
                continue
            found = alone(self.obs.of(self.value // times), self.pool.typed)
            if found.law is not None and found.usual:
                law, factor = found.law, add(sym(name), num(-k))
                others = tuple(mul(factor, e) for e in law.others)
                return FittedSize(mul(factor, law.expr), law.free + 1, law.points, others=others)
        return None

    def over_two(self) -> FittedSize | None:
        """Try a block cut over two dimensions of the grid at once, and floor(L / (p_a p_b))."""
        axes = [a for a in composite_axes(self.obs) if decides(self.obs, [a])]
        for f, kind, axis in product(self.factors[:16], self.kinds, axes):
            law = self.solved(self.value // f, axis, kind, f)
            if law is not None:
                return law
        return None

    def affine(self) -> FittedSize | None:
        """Try blocks at positions that are sums of coordinates and the turn."""
        if self.even and not moving(self.obs):
            return None
        return fit_affine(self.obs, self.pool, scalar_law)

    def complement(self) -> FittedSize | None:
        """Try everything but the own block: f * (L - block)."""
        for kind, f, axis in product(self.kinds[:5], self.factors[:16], self.single):
            if np.any(axis.count < 2):
                continue
            k = int(np.argmin(axis.count))
            near = int(self.value[k] // f * axis.count[k] // (axis.count[k] - 1))
            for e in range(max(near - 4, 1), near + 5):
                if np.all(e - self.value // f == block_size(kind, e, axis.count, axis.at)):
                    law = self.done(e, axis, kind)
                    own = mul(num(-1), block(kind, e, axis.p, axis.c))
                    return FittedSize(
                        mul(num(f), add(num(e), own)), 1 + (f != 1), law.points, False, law.rivals
                    )
        return None


def fit_elements(obs: Observations, pool: ExtentPool) -> FittedSize | None:
    """Return the simplest exact law for the element counts, or None.

    obs: every (count, rank, stage, iteration) at which the slot was seen. A constant first; then
    the cheapest product of blocks, or a law of n and the extents alone where that is cheaper; other
    forms only where no blocks fit. Sizes that change from turn to turn have laws of their own. The
    extents of the law found are noted in ``pool``."""
    obs = distinct(obs)
    if len(obs.value) == 0:
        return None
    key = obs.digest()
    state, law = pool.known.get(key, (None, None))
    if state is None or (state != pool.state() and (law is None or law.open())):
        law = _fit(obs, pool)
        pool.known[key] = (pool.state(), law)
    result: FittedSize | None = law
    return result


def known_law(obs: Observations, pool: ExtentPool) -> FittedSize | None:
    """Return the law that was found for element counts."""
    law: FittedSize | None = pool.known.get(distinct(obs).digest(), (None, None))[1]
    return law


def distinct(obs: Observations) -> Observations:
    """Return the observations that tell something: each once, idle iterations forgotten."""
    return _without_idle(obs).unique()


def _without_idle(obs: Observations) -> Observations:
    """Forget iterations and stages that tell no sizes apart."""
    for u in moving(obs):
        rest = [obs.env[v] for v in ("t", "s") if v in obs.env and v != u]
        ranks = Axis(sym("n"), sym("r"), obs.env["n"], obs.env["r"])
        if decides(obs, [ranks], rest) or (
            "q0" in obs.env and decides(obs, _partner(obs), rest)  # the sender's own sizes
        ):
            env = {**obs.env, u: np.zeros(len(obs.value), dtype=np.int64)}
            obs = Observations(env, obs.value, obs.ndims, obs.across, obs.whole)
    return obs


def _partner(obs: Observations) -> list[Axis]:
    """Return the axes of the partner's place."""
    names = [(sym(f"p{d}"), sym(f"q{d}")) for d in range(obs.ndims)]
    return [Axis(p, q, obs.env[str(p[1])], obs.env[str(q[1])]) for p, q in names]


def _fit(obs: Observations, pool: ExtentPool) -> FittedSize | None:
    counts = np.unique(obs.env["n"])
    if np.all(obs.value == obs.value[0]):
        return FittedSize(num(int(obs.value[0])), 1, len(counts))
    if len(counts) < 2 or np.any(obs.value < 0):
        return None
    fit = Attempts(obs, pool, counts)
    if moving(obs):
        return _first(_turned(fit))
    law = fit_branch(obs)
    if law is not None:
        return law
    found = alone(obs, pool.typed)
    law = None if obs.across or found.plain or not found.usual else fit.scalar(1)
    if not found.usual:
        law = _first(_others(fit))
    if law is not None and found.law is not None:
        found = alone(obs, pool.typed, law)
    if found.law is None:
        return law
    for _, kind, extent, *_ in blocks_in(found.law.expr):
        if extent[0] == "num":
            pool.note(extent[1], kind, sure=not found.law.others)
    return found.law


def _first(steps: Iterable[Callable[[], FittedSize | None]]) -> FittedSize | None:
    """Return what the first of attempts that has a law leads to."""
    return next((law for step in steps if (law := step()) is not None), None)


def _turned(fit: Attempts) -> Iterable[Callable[[], FittedSize | None]]:
    """Return the attempts for sizes that change from turn to turn."""
    return (
        fit.level_scalar,
        fit.header,
        fit.affine,
        lambda: fit_linear(fit.obs),
        lambda: fit_levels(fit.obs, fit.pool, fit_elements),
        lambda: fit_chunks(fit.obs, fit.pool, fit_elements),
    )


def _others(fit: Attempts) -> Iterable[Callable[[], FittedSize | None]]:
    """Return the attempts for sizes that are no product of blocks."""
    return (
        fit.empty,
        fit.header,
        fit.scalar,
        fit.multiplied,
        fit.over_two,
        lambda: fit_linear(fit.obs),
        fit.affine,
        lambda: fit_diagonal(fit.obs, fit.pool),
        fit.complement,
    )
