"""Ways to write the element counts of one slot, each an attempt of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, product

import numpy as np

from p3s.laws.expr import Expr, add, block, block_size, evaluate, mul, num, sym, symbols_of
from p3s.laws.lawfinder import find_law
from p3s.laws.whole import evaluate_int
from p3s.model.sizes.affine import fit_affine
from p3s.model.sizes.blocks import (
    GHOSTS,
    MAX_EXTENTS,
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
    solve_product,
)
from p3s.model.sizes.levels import blocks_in, replaced, scalar_law
from p3s.model.sizes.positions import composite_axes, decides, moving, plain_axes

#: Ways of writing sizes by one block that are compared.
MAX_ALIKE = 24


class Attempts:
    """The observations of one slot with what all attempts need."""

    def __init__(self, obs: Observations, pool: ExtentPool, counts: np.ndarray) -> None:
        self.obs, self.pool, self.counts = obs, pool, counts
        self.value = obs.value
        self.axes: list[Axis] = [a for a in plain_axes(obs) if a.varies()]
        #: along these, a single block may give the sizes
        self.single = [a for a in self.axes if decides(obs, [a])]
        named = [a for a in self.axes if a.c[0] == "sym"]
        self.plain = [a for a in named if a.c[1][0] in "cr"]
        #: a rank that receives blocks of all others has blocks of the sizes that they have
        self.theirs = [a for a in named if a.c[1][0] == "q"]
        self.kinds = pool.kinds()
        self.cuts = [k for k in self.kinds if k not in PADDED]
        self.common = [k for k in self.kinds if k not in RARE]
        self.factors = divisors(int(np.gcd.reduce(obs.value)))[:MAX_FACTORS]
        self.even = all(len(np.unique(obs.value[obs.env["n"] == n])) == 1 for n in counts)

    def done(
        self,
        extents: Sequence[int],
        used: Sequence[Axis],
        kind: str,
        factor: int = 1,
        ghost: int = 0,
    ) -> FittedSize:
        """Return the law, its extents noted, with the rival ways of cutting that remain."""
        pool = self.pool
        rivals = rivals_of(extents, used, kind, self.pool)
        for e in extents:
            pool.note(e, kind)
            if not rivals:
                pool.certain[(e, kind)] = pool.certain.get((e, kind), 0) + 1
        if kind in PADDED and rivals and all((e, kind) in pool.certain for e in extents):
            rivals = ()  # shares of this very extent are rounded so at other slots
        sure = {k for _, k in pool.certain if k not in PADDED}
        if kind in sure:  # the program cuts in one way: other slots have shown which
            rivals = tuple(
                r
                for r in rivals
                if r[3] in sure and (r[3] != kind or (r[2], kind) not in pool.certain)
            )
        parts = [block(kind, e, a.p, a.c) for e, a in zip(extents, used, strict=True)]
        # a remainder that fell on no rank's side shows nothing, unless there was one
        even = self.even and all(
            np.all(e % a.count == 0) for e, a in zip(extents, used, strict=True)
        )
        return FittedSize(
            add(mul(num(factor), *parts), num(ghost)),
            len(extents) + (factor != 1) + (ghost != 0),
            len(self.counts),
            even,
            rivals,
        )

    def solved(
        self, value: np.ndarray, axis: Axis, kind: str, factor: int = 1, ghost: int = 0
    ) -> FittedSize | None:
        """Return the law of one block along ``axis`` whose sizes are ``value``."""
        found = solve_one(value, axis, kind)
        if not found:
            return None
        return self.done([best_extent(found, self.pool)], [axis], kind, factor, ghost)

    def pairs(self, size: int) -> list[tuple[Axis, ...]]:
        """Return sets of different grid dimensions along which blocks may be multiplied: the rank's
        own coordinates, the partner's where these do not tell the sizes."""
        for axes in (self.plain, self.theirs):
            found = [
                u
                for u in combinations(axes, size)
                if len({a.name for a in u}) == size
                and "n" not in {a.name for a in u}
                and decides(self.obs, u)
            ]
            if found:
                return found
        return []

    def typed(self) -> FittedSize | None:
        """Nothing in even sizes tells 4 * 60/p from 240/p; a 60 that the user typed does."""
        if not (self.even and self.pool.typed):
            return None
        for factor, axis in product(self.factors, self.axes):
            for e in solve_one(self.value // factor, axis, self.kinds[0]):
                if e in self.pool.typed and e >= 8 * int(axis.count.max()):
                    return self.done([e], [axis], self.kinds[0], factor)
        return None

    def one_block(self, along: Sequence[Axis]) -> FittedSize | None:
        """Try one block along each of the dimensions."""
        return next(
            (
                law
                for kind, axis in product(self.kinds, along)
                if axis in self.single and (law := self.solved(self.value, axis, kind)) is not None
            ),
            None,
        )

    def one(self) -> FittedSize | None:
        """Try one block along any dimension, with and without a factor."""
        return self.one_block(self.axes) or self.factor()

    def products(self, kinds: Sequence[str] = ()) -> FittedSize | None:
        """Try products of two and three blocks."""
        for kind in kinds or self.cuts:
            for used in (*self.pairs(2), *self.pairs(3)):
                extents = solve_product(self.value, used, kind, self.pool, [2000])
                if extents:
                    return self.done(extents, used, kind)
        return None

    def known_product(self) -> FittedSize | None:
        """Try extents of the program on a halo's face, where even sizes leave the choice."""
        face = [a for a in self.plain if a.name != "n" and int(a.name[1:]) in self.obs.across]
        if not self.even or len(face) < 2:
            return None
        blocks = {
            (kind, i, e): block_size(kind, e, a.count, a.at)
            for kind in self.cuts
            for i, a in enumerate(face)
            for e in self.pool.extents()[:8]
        }
        ghosts = [(0,) * len(face), *self.pool.ghosts]
        for g, kind, chosen in product(
            ghosts, self.cuts, product(self.pool.extents()[:8], repeat=len(face))
        ):
            if len(g) != len(face):
                continue
            parts = [blocks[kind, i, e] for i, e in enumerate(chosen)]
            times = _how_often(self.value, parts, g)
            if times is not None and (times == 1 or any(g)):
                return self.wide(chosen, face, kind, times, g)
        return None

    def wide(
        self,
        extents: Sequence[int],
        used: Sequence[Axis],
        kind: str,
        factor: int,
        ghosts: tuple[int, ...],
    ) -> FittedSize:
        """Return the law of a factor times blocks, each wider by its ghost width."""
        law = self.done(extents, used, kind)
        if any(ghosts) and ghosts not in self.pool.ghosts:
            self.pool.ghosts += sorted(
                {ghosts, ghosts[::-1], (max(ghosts),) * len(ghosts)} - set(self.pool.ghosts)
            )
        parts = [
            add(block(kind, e, a.p, a.c), num(g))
            for e, a, g in zip(extents, used, ghosts, strict=True)
        ]
        return FittedSize(
            mul(num(factor), *parts),
            len(parts) + (factor > 1) + any(ghosts),
            len(self.counts),
            law.even,
            law.rivals,
        )

    def factor(self, kinds: Sequence[str] = ()) -> FittedSize | None:
        """Try a factor times one block."""
        return next(
            (
                law
                for f, axis in product(self.factors[1:], self.single)
                for kind in kinds_possible(self.value // f, axis, kinds or self.kinds)
                if (law := self.solved(self.value // f, axis, kind, f)) is not None
            ),
            None,
        )

    def ghost(self, kinds: Sequence[str] = ()) -> FittedSize | None:
        """Try one block widened by a ghost width."""
        for g, axis in product(GHOSTS[1:], self.single):
            for kind in kinds_possible(self.value - g, axis, kinds or self.kinds):
                law = self.solved(self.value - g, axis, kind, 1, g)
                if law is not None:
                    return law
        return None

    def products_with_factor(self, kinds: Sequence[str] = ()) -> FittedSize | None:
        """Try a factor times two blocks."""
        for kind, f in product(kinds or self.cuts, self.factors[1:24]):
            for used in self.pairs(2):
                extents = solve_product(self.value // f, used, kind, self.pool, [500])
                if extents:
                    return self.done(extents, used, kind, f)
        return None

    def factor_and_ghost(self, kinds: Sequence[str] = ()) -> FittedSize | None:
        """Try a factor times one widened block."""
        for g, f, axis in product(GHOSTS[1:], self.factors[1:16], self.single):
            value = self.value // f - g
            for kind in (
                kinds_possible(value, axis, kinds or self.kinds) if np.all(value > 0) else ()
            ):
                law = self.solved(value, axis, kind, f, f * g)
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

    def alike(self, most: int) -> Iterator[Expr]:
        """Yield ways to write the sizes by one block with no more than ``most`` numbers."""
        found = 0
        for g, f, axis in product(GHOSTS, self.factors[:16], self.single):
            value = self.value // f - g
            if 1 + (f > 1) + (g > 0) > most or np.any(value <= 0):
                continue
            for kind in kinds_possible(value, axis, self.kinds):
                extents = solve_one(value, axis, kind)
                if extents:
                    e = best_extent(extents, self.pool)
                    yield mul(num(f), add(block(kind, e, axis.p, axis.c), num(g)))
                    found += 1
                    if found == MAX_ALIKE:
                        return

    def multiples(self, expr: Expr) -> Iterator[Expr]:
        """Yield equations with a smaller extent times a factor, for cuts that allow of both."""
        for b in blocks_in(expr):
            extent = b[2][1] if b[2][0] == "num" else 0
            for f in (f for f in range(2, 9) if b[1] in RARE and extent and extent % f == 0):
                other = replaced(
                    expr,
                    lambda x, b=b, f=f: (
                        mul(  # type: ignore[misc]
                            num(f), ["block", b[1], num(b[2][1] // f), *b[3:]]
                        )
                        if x == b
                        else x
                    ),
                )
                if np.array_equal(evaluate_int(other, self.obs.env, undefined=-1), self.value):
                    yield other

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

    def widened(self) -> FittedSize | None:
        """Try a factor times two blocks both wider by a ghost width, of one extent or a known."""
        ghosts = sorted(
            ((g, h) for g in GHOSTS for h in GHOSTS if (g or h) and (g == h or self.even)),
            key=lambda g: (g[0] != g[1], sum(g)),
        )
        for kind, f, g in product(self.cuts[:3], self.factors[:16], ghosts):
            value = self.value // f
            for used in self.pairs(2):
                extents = self._wide_pair(value, used, kind, g)
                if extents is not None:
                    return self.wide(extents, used, kind, f, g)
        return None

    def _wide_pair(
        self, value: np.ndarray, used: Sequence[Axis], kind: str, ghosts: tuple[int, int]
    ) -> tuple[int, int] | None:
        one, two = used
        g, h = ghosts
        most = math.isqrt(int((value * one.count * two.count).min())) + int(one.count.max())
        low = math.isqrt(int((value * one.count * two.count).max()) // 4)
        both = np.arange(min(most, low + MAX_EXTENTS), max(low, 2) - 1, -1)
        for part in (slice(0, 4), slice(4, None)):
            size = (block_size(kind, both[:, None], one.count[part], one.at[part]) + g) * (
                block_size(kind, both[:, None], two.count[part], two.at[part]) + h
            )
            both = both[np.all(size == value[part], axis=1)]
        if len(both):
            e = best_extent([int(x) for x in both], self.pool)
            return e, e
        for e in self.pool.extents()[:8]:
            wide = block_size(kind, e, one.count, one.at) + g
            rest = value // np.maximum(wide, 1) - h
            if np.any(wide <= 0) or np.any(value % np.maximum(wide, 1)) or np.any(rest <= 0):
                continue
            found = solve_one(rest, two, kind)
            if found:
                return e, best_extent(found, self.pool)
        return None

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
            part = Attempts(self.obs.of(self.value // times), self.pool, self.counts)
            for step in (
                lambda part=part: part.one_block(part.axes),
                part.products,
                part.factor,
                part.products_with_factor,
                part.ghost,
                part.factor_and_ghost,
            ):
                law = step()
                if law is not None:
                    return FittedSize(
                        mul(add(sym(name), num(-k)), law.expr),
                        law.free + 1,
                        law.points,
                        law.even,
                        law.rivals,
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
                    law = self.done([e], [axis], kind)
                    own = mul(num(-1), block(kind, e, axis.p, axis.c))
                    return FittedSize(
                        mul(num(f), add(num(e), own)), 1 + (f != 1), law.points, False, law.rivals
                    )
        return None


def _how_often(value: np.ndarray, parts: Sequence[np.ndarray], ghosts: Sequence[int]) -> int | None:
    """Return what the product of wider blocks must be multiplied by to be ``value``, if one."""
    first = math.prod(int(part[0]) + g for part, g in zip(parts, ghosts, strict=True))
    if first <= 0 or int(value[0]) % first:  # one observation tells nearly always
        return None
    times = int(value[0]) // first
    size = math.prod(part + g for part, g in zip(parts, ghosts, strict=True))
    return times if np.all(size > 0) and np.array_equal(size * times, value) else None
