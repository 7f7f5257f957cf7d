"""Ways to write the element counts of one slot that are no product of blocks, each an attempt."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from p3s.laws.expr import Expr, add, block, block_size, mul, num, sym
from p3s.laws.lawfinder import find_law
from p3s.model.sizes.affine import fit_affine
from p3s.model.sizes.blocks import (
    MAX_FACTORS,
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
from p3s.model.sizes.hypotheses import alone
from p3s.model.sizes.levels import scalar_law
from p3s.model.sizes.positions import composite_axes, decides, moving, plain_axes


class Attempts:
    """The observations of one slot with what all attempts need."""

    def __init__(self, obs: Observations, pool: ExtentPool) -> None:
        self.obs, self.pool, self.value = obs, pool, obs.value
        self.counts = np.unique(obs.env["n"])
        self.kinds = pool.kinds()
        self.factors = divisors(int(np.gcd.reduce(obs.value)))[:MAX_FACTORS]
        self.even = all(len(np.unique(obs.value[obs.env["n"] == n])) == 1 for n in self.counts)

    def single(self) -> list[Axis]:
        """Return the axes along which a single block may give the sizes."""
        return [a for a in plain_axes(self.obs) if a.varies() and decides(self.obs, [a])]

    def blocks(self) -> FittedSize | None:
        """Return the product of blocks that is named in the fewest bits."""
        return alone(self.obs, self.pool)

    def _one(
        self, value: np.ndarray, axis: Axis, kind: str, factor: int, more: int
    ) -> FittedSize | None:
        """Return a factor times the block whose sizes are ``value``, and as much more."""
        extents = solve_one(value, axis, kind)
        if not extents:
            return None
        e = best_extent(extents, self.pool)
        rivals = rivals_of([e], [axis], kind, self.pool)
        self.pool.note(e, kind, sure=not rivals)
        expr = add(mul(num(factor), block(kind, e, axis.p, axis.c)), num(more))
        free = 1 + (factor != 1) + (more != 0)
        return FittedSize(expr, free, len(self.counts), rivals=rivals)

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
        for k, axis in product(range(first, first + 8 * step + 1, step), self.single()):
            value = (self.value - k) // step
            for kind in kinds_possible(value, axis, self.kinds) if np.all(value > 0) else ():
                law = self._one(value, axis, kind, step, k)
                if law is not None:
                    return law
        return None

    def scalar(self) -> FittedSize | None:
        """Try a law of n and the extents alone, where all ranks agree at every count."""
        if not self.even:
            return None
        _, rows = np.unique(self.obs.env["n"], return_index=True)
        names = ["n", *(f"p{d}" for d in range(self.obs.ndims))]
        law = find_law(
            (({k: int(self.obs.env[k][i]) for k in names}, int(self.value[i])) for i in rows),
            "whole",
            known=[*sorted(self.pool.typed), *self.pool.extents()],
        ).law
        if law is None:
            return None
        return FittedSize(law.expr, law.free, law.points, law.even, law.rivals)

    def level_scalar(self) -> FittedSize | None:
        """Try a law that all ranks share, of the count and the turn."""
        law = scalar_law(self.obs)
        return None if law is None else FittedSize(law[0], law[1], len(self.counts))

    def multiplied(self) -> FittedSize | None:
        """Try products of blocks times p, p - 1 or p - 2 of any extent."""
        names = ["n"] if self.obs.ndims == 1 else [*(f"p{d}" for d in range(self.obs.ndims)), "n"]
        for name, k in product(names, (1, 0, 2)):
            times = self.obs.env[name] - k
            if np.any(times <= 0) or np.any(self.value % times) or np.all(times == times[0]):
                continue
            law = alone(self.obs.of(self.value // times), self.pool)
            if law is not None:
                expr = mul(add(sym(name), num(-k)), law.expr)
                return FittedSize(expr, law.free + 1, law.points, law.even)
        return None

    def over_two(self) -> FittedSize | None:
        """Try a block cut over two dimensions of the grid at once, and floor(L / (p_a p_b))."""
        axes = [a for a in composite_axes(self.obs) if decides(self.obs, [a])]
        for f, kind, axis in product(self.factors[:16], self.kinds, axes):
            law = self._one(self.value // f, axis, kind, f, 0)
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
        for kind, f, axis in product(self.kinds[:5], self.factors[:16], self.single()):
            if np.any(axis.count < 2):
                continue
            for e in self._whole(self.value // f, axis):
                if np.all(e - self.value // f == block_size(kind, e, axis.count, axis.at)):
                    rivals = rivals_of([e], [axis], kind, self.pool)
                    self.pool.note(e, kind, sure=not rivals)
                    own: Expr = mul(num(-1), block(kind, e, axis.p, axis.c))
                    return FittedSize(
                        mul(num(f), add(num(e), own)), 1 + (f != 1), len(self.counts), rivals=rivals
                    )
        return None

    @staticmethod
    def _whole(value: np.ndarray, axis: Axis) -> Iterator[int]:
        """Yield extents of which all but one block may have these sizes."""
        k = int(np.argmin(axis.count))
        near = int(value[k] * axis.count[k] // (axis.count[k] - 1))
        yield from range(max(near - 4, 1), near + 5)
