"""Ways to write the element counts of one slot that are no product of blocks."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import numpy as np

from p3s.laws.expr import Expr, add, block, block_size, evaluate, mul, num, sym, symbols_of
from p3s.laws.lawfinder import find_law
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
from p3s.model.sizes.joint import joint_sizes
from p3s.model.sizes.levels import scalar_law
from p3s.model.sizes.positions import composite_axes, decides, moving, plain_axes


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

    def cut(
        self, extent: int, axis: Axis, kind: str, factor: int = 1, ghost: int = 0
    ) -> FittedSize:
        """Return the law of one block, its extent noted, with the rival cuts that remain."""
        pool = self.pool
        rivals = rivals_of(extent, axis, kind, pool)
        pool.note(extent, kind)
        if not rivals:
            pool.certain[(extent, kind)] = pool.certain.get((extent, kind), 0) + 1
        elif kind in PADDED and (extent, kind) in pool.certain:
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
        return self.cut(best_extent(found, self.pool), axis, kind, factor, ghost) if found else None

    def one(self) -> FittedSize | None:
        """Try one block along any dimension, with and without a factor."""
        return next(
            (
                law
                for f, axis in product(self.factors, self.single)
                for kind in kinds_possible(self.value // f, axis, self.kinds)
                if (law := self.solved(self.value // f, axis, kind, f)) is not None
            ),
            None,
        )

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
        return FittedSize(law.expr, law.free, law.points, law.even, law.rivals)

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
            part = {0: (self.obs.of(self.value // times), None)}
            law = joint_sizes(part, frozenset(self.pool.typed)).get(0)
            if law is not None:
                return FittedSize(
                    mul(add(sym(name), num(-k)), law.expr),
                    law.free + 1,
                    law.points,
                    others=tuple(mul(add(sym(name), num(-k)), e) for e in law.others),
                )
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
                    law = self.cut(e, axis, kind)
                    own = mul(num(-1), block(kind, e, axis.p, axis.c))
                    return FittedSize(
                        mul(num(f), add(num(e), own)), 1 + (f != 1), law.points, False, law.rivals
                    )
        return None
