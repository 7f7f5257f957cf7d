"""Element counts as laws of grid extents and coordinates, simplest first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, product

import numpy as np

from p3s.model.blocks import (
    GHOSTS,
    MAX_FACTORS,
    Axis,
    ExtentPool,
    Observations,
    axes_of,
    best_extent,
    divisors,
    rivals_of,
    solve_one,
    solve_product,
    varies_with,
)
from p3s.model.expr import add, block, block_size, mul, num, sym
from p3s.model.laws import Law, fit_exact


def fit_elements(obs: Observations, pool: ExtentPool) -> Law | None:
    """Return the simplest exact law for the element counts, or None.

    obs: every (count, rank) at which the slot was seen. A constant first, then laws without a
    factor (one block, a law of n and the extents alone, products of blocks), then with a factor,
    a ghost width, both. The extents of the law found are noted in ``pool``.
    """
    obs = obs.unique()
    counts = np.unique(obs.env["n"])
    if len(obs.value) == 0:
        return None
    if np.all(obs.value == obs.value[0]):
        return Law(num(int(obs.value[0])), 1, len(counts))
    if len(counts) < 2:
        return None
    fit = _Fit(obs, pool, counts)
    steps: list[Callable[[], Law | None]] = [fit.typed]
    if obs.across:  # the face of a halo is a product over the grid before a share of all ranks
        on_grid = [a for a in fit.axes if a[0] != "n"]
        in_line = [a for a in fit.axes if a[0] == "n"]
        steps += [fit.known_product, lambda: fit.one_block(on_grid), fit.products,
                  lambda: fit.one_block(in_line), fit.scalar]
    else:
        steps += [lambda: fit.one_block(fit.axes), fit.scalar, fit.products]
    steps += [fit.factor, fit.ghost, fit.products_with_factor, fit.factor_and_ghost, fit.widened]
    return next((law for step in steps if (law := step()) is not None), None)


class _Fit:
    """The observations of one slot with what all attempts need."""

    def __init__(self, obs: Observations, pool: ExtentPool, counts: np.ndarray) -> None:
        self.obs, self.pool, self.counts = obs, pool, counts
        self.value = obs.value
        self.axes: list[Axis] = [a for a in axes_of(obs) if varies_with(obs, a)]
        self.plain = [a for a in self.axes if a[1][0] in "cr"]
        self.kinds = pool.kinds()
        self.factors = divisors(int(np.gcd.reduce(obs.value)))[:MAX_FACTORS]
        self.even = all(len(np.unique(obs.value[obs.env["n"] == n])) == 1 for n in counts)

    def done(self, extents: Sequence[int], used: Sequence[Axis], kind: str, factor: int = 1,
             ghost: int = 0) -> Law:
        """Return the law, its extents noted, with the rival ways of cutting that remain."""
        pool = self.pool
        rivals = rivals_of(self.obs, extents, used, kind)
        for e in extents:
            pool.note(e, kind)
            if not rivals:
                pool.certain[(e, kind)] = pool.certain.get((e, kind), 0) + 1
        sure = {k for _, k in pool.certain}
        if kind in sure:  # the program cuts in one way: other slots have shown which
            rivals = tuple(r for r in rivals if r[3] in sure
                           and (r[3] != kind or (r[2], kind) not in pool.certain))
        parts = [block(kind, e, sym(a[0]), sym(a[1])) for e, a in zip(extents, used, strict=True)]
        return Law(add(mul(num(factor), *parts), num(ghost)),
                   len(extents) + (factor != 1) + (ghost != 0), len(self.counts), self.even, rivals)

    def solved(self, value: np.ndarray, axis: Axis, kind: str, factor: int = 1,
               ghost: int = 0) -> Law | None:
        """Return the law of one block along ``axis`` whose sizes are ``value``."""
        found = solve_one(self.obs, value, axis, kind)
        if not found:
            return None
        return self.done([best_extent(found, self.pool)], [axis], kind, factor, ghost)

    def pairs(self, size: int) -> list[tuple[Axis, ...]]:
        """Return sets of different grid dimensions along which blocks may be multiplied."""
        return [u for u in combinations(self.plain, size)
                if len({a[0] for a in u}) == size and ("n", "r") not in u]

    def typed(self) -> Law | None:
        """Nothing in even sizes tells 4 * 60/p from 240/p; a 60 that the user typed does."""
        if not (self.even and self.pool.typed):
            return None
        for factor, axis in product(self.factors, self.axes):
            for e in solve_one(self.obs, self.value // factor, axis, self.kinds[0]):
                if e in self.pool.typed and e >= 8 * int(self.obs.env[axis[0]].max()):
                    return self.done([e], [axis], self.kinds[0], factor)
        return None

    def one_block(self, along: Sequence[Axis]) -> Law | None:
        """Try one block along each of the dimensions."""
        return next((law for kind, axis in product(self.kinds, along)
                     if (law := self.solved(self.value, axis, kind)) is not None), None)

    def products(self) -> Law | None:
        """Try products of two and three blocks."""
        for kind in self.kinds:
            for used in (*self.pairs(2), *self.pairs(3)):
                extents = solve_product(self.obs, self.value, used, kind, self.pool, [2000])
                if extents:
                    return self.done(extents, used, kind)
        return None

    def known_product(self) -> Law | None:
        """Try extents of the program on a halo's face, where even sizes leave the choice."""
        face = [a for a in self.plain if a[0] != "n" and int(a[0][1:]) in self.obs.across]
        if not self.even or len(face) < 2:
            return None
        for kind, chosen in product(self.kinds, product(self.pool.extents()[:8],
                                                        repeat=len(face))):
            size = np.ones(len(self.value), dtype=np.int64)
            for e, a in zip(chosen, face, strict=True):
                size = size * block_size(kind, e, self.obs.env[a[0]], self.obs.env[a[1]])
            if np.array_equal(size, self.value):
                return self.done(chosen, face, kind)
        return None

    def factor(self) -> Law | None:
        """Try a factor times one block."""
        return next((law for kind, f, axis in product(self.kinds, self.factors[1:], self.axes)
                     if (law := self.solved(self.value // f, axis, kind, f)) is not None), None)

    def ghost(self) -> Law | None:
        """Try one block widened by a ghost width."""
        for g, kind, axis in product(GHOSTS[1:], self.kinds, self.axes):
            if np.all(self.value > g):
                law = self.solved(self.value - g, axis, kind, 1, g)
                if law is not None:
                    return law
        return None

    def products_with_factor(self) -> Law | None:
        """Try a factor times two blocks."""
        for kind, f in product(self.kinds, self.factors[1:]):
            for used in self.pairs(2):
                extents = solve_product(self.obs, self.value // f, used, kind, self.pool, [500])
                if extents:
                    return self.done(extents, used, kind, f)
        return None

    def factor_and_ghost(self) -> Law | None:
        """Try a factor times one widened block."""
        for g, kind, f, axis in product(GHOSTS[1:], self.kinds, self.factors[1:16], self.axes):
            if np.all(self.value > f * g):
                law = self.solved(self.value // f - g, axis, kind, f, f * g)
                if law is not None:
                    return law
        return None

    def widened(self) -> Law | None:
        """Try a factor times two blocks both wider by a ghost width; one extent is known."""
        for kind, f, g in product(self.kinds[:3], self.factors[:16], GHOSTS[1:]):
            value = self.value // f
            for used, e1 in product(self.pairs(2), self.pool.extents()[:8]):
                wide = block_size(kind, e1, self.obs.env[used[0][0]],
                                  self.obs.env[used[0][1]]) + g
                rest = value // np.maximum(wide, 1) - g
                if np.any(wide <= 0) or np.any(value % np.maximum(wide, 1)) or np.any(rest <= 0):
                    continue
                found = solve_one(self.obs, rest, used[1], kind)
                if found:
                    extents = (e1, best_extent(found, self.pool))
                    parts = [add(block(kind, e, sym(a[0]), sym(a[1])), num(g))
                             for e, a in zip(extents, used, strict=True)]
                    return Law(mul(num(f), *parts), 3 + (f > 1), len(self.counts), self.even,
                               rivals_of(self.obs, extents, used, kind))
        return None

    def scalar(self) -> Law | None:
        """Try a law of n and the extents alone, where all ranks agree at every count."""
        envs, values = [], []
        names = ["n", *(f"p{d}" for d in range(self.obs.ndims))]
        for n in self.counts:
            rows = np.flatnonzero(self.obs.env["n"] == n)
            if np.any(self.value[rows] != self.value[rows[0]]):
                return None
            envs.append({name: int(self.obs.env[name][rows[0]]) for name in names})
            values.append(int(self.value[rows[0]]))
        return fit_exact(envs, values, self.obs.ndims)
