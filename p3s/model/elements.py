"""Element counts as laws of grid extents and coordinates: block partitions and their products.

The extents found are pooled over the program: slots that determine an extent well are solved
first, the others choose among what was found (structure.md of the design notes calls this
pooling; small extents overfit, so a factor of one and the largest extent are tried first).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations, product

import numpy as np

from p3s.model.expr import BLOCK_KINDS, Expr, add, block, block_size, mul, num, sym
from p3s.model.laws import Law, fit_exact

GHOSTS = (0, 1, 2, 4)
#: Factors tried (fields, components, planes in one message), smallest first.
MAX_FACTORS = 64


@dataclass
class Observations:
    """Element counts of one slot: row i was seen at count ``n[i]`` with these symbols.

    env: symbol -> int64 array (n, r, p0.., c0.., q0.., s); value: int64 array of elements;
    across: for a shift, the dimensions it does not move along (a halo's face), tried first.
    """

    env: dict[str, np.ndarray]
    value: np.ndarray
    ndims: int
    across: tuple[int, ...] = ()

    def unique(self) -> Observations:
        """Return the same observations without repeated rows."""
        names = sorted(k for k in self.env if k != "r")
        stack = np.stack([*(self.env[k] for k in names), self.value], axis=1)
        _, keep = np.unique(stack, axis=0, return_index=True)
        return Observations({k: v[keep] for k, v in self.env.items()}, self.value[keep],
                            self.ndims, self.across)


@dataclass
class ExtentPool:
    """Extents and partition kinds already found in the program, most used first."""

    seen: dict[tuple[int, str], int] = field(default_factory=dict)
    #: Extents with the one way of cutting them that fits, from slots that leave no choice.
    certain: dict[tuple[int, str], int] = field(default_factory=dict)
    #: Numbers the user typed as the program's arguments: extents are often among them.
    typed: frozenset[int] = frozenset()

    def note(self, extent: int, kind: str) -> None:
        """Count one more use of an extent."""
        self.seen[(extent, kind)] = self.seen.get((extent, kind), 0) + 1

    def extents(self) -> list[int]:
        """Return the extents, most used first."""
        best: dict[int, int] = {}
        for (extent, _), uses in self.seen.items():
            best[extent] = best.get(extent, 0) + uses
        return sorted(best, key=lambda e: (-best[e], -e))

    def kinds(self) -> list[str]:
        """Return all partition kinds, those the program uses for certain first."""
        uses: dict[str, int] = {}
        for (_, kind), k in self.certain.items():
            uses[kind] = uses.get(kind, 0) + k
        return sorted(BLOCK_KINDS, key=lambda k: (-uses.get(k, 0), BLOCK_KINDS.index(k)))


def _axes(obs: Observations) -> list[tuple[str, str]]:
    """Return (extent symbol, coordinate symbol) pairs along which blocks may be cut."""
    out: list[tuple[str, str]] = []
    if obs.ndims > 1:
        order = [*obs.across, *(d for d in range(obs.ndims) if d not in obs.across)]
        for d in order:
            out.append((f"p{d}", f"c{d}"))
        for d in order:
            if f"q{d}" in obs.env:
                out.append((f"p{d}", f"q{d}"))
    out.append(("n", "r"))
    if obs.ndims == 1 and "q0" in obs.env:
        out.append(("n", "q0"))
    return out


def _extent_range(p: int, v: int) -> np.ndarray:
    return np.arange(max(1, (v - p) * p), (v + p) * p + 1)


def _solve_one(
    obs: Observations, value: np.ndarray, axis: tuple[str, str], kind: str,
    candidates: Sequence[int] | None = None,
) -> list[int]:
    """Return all extents whose blocks along ``axis`` equal ``value`` in every row."""
    p, c = obs.env[axis[0]], obs.env[axis[1]]
    if candidates is None:
        k = int(np.lexsort((c, p))[0])
        extents = _extent_range(int(p[k]), int(value[k]))
        if len(extents) > 4096:
            extents = np.arange(max(1, (int(value[k]) - 1) * int(p[k])),
                                (int(value[k]) + 1) * int(p[k]) + 1)
    else:
        extents = np.array(candidates, dtype=np.int64)
    for i in np.argsort(-p, kind="stable"):
        if len(extents) == 0:
            return []
        got = block_size(kind, extents, int(p[i]), int(c[i]))
        extents = extents[got == value[i]]
    return [int(e) for e in extents[::-1]]


def _best_extent(extents: list[int], pool: ExtentPool) -> int:
    known = pool.extents()
    for e in known:
        if e in extents:
            return e
    # several extents fit alike: a round one is what people type; else the middle of the range
    return max(extents, key=lambda e: (_roundness(e), -abs(e - extents[len(extents) // 2])))


def _roundness(e: int) -> int:
    twos = (e & -e).bit_length() - 1
    tens = 0
    while e % 10 == 0:
        e //= 10
        tens += 1
    return max(2 * tens, twos // 2)


def _divisors(v: int) -> list[int]:
    small = [d for d in range(1, math.isqrt(v) + 1) if v % d == 0]
    return sorted({*small, *(v // d for d in small)})


def _product(
    obs: Observations, value: np.ndarray, axes: Sequence[tuple[str, str]], kind: str,
    pool: ExtentPool, budget: list[int],
) -> list[int] | None:
    """Return one extent per axis such that the product of their blocks equals ``value``."""
    if len(axes) == 1:
        found = [e for e in _solve_one(obs, value, axes[0], kind)
                 if _believable(obs, axes[0], e, pool)]
        return [_best_extent(found, pool)] if found else None
    p, c = obs.env[axes[0][0]], obs.env[axes[0][1]]
    k = int(np.lexsort((c, p))[0])
    pooled = pool.extents()
    tried: set[int] = set()
    # factors near the root first: extents of one program are seldom of very different size
    near = int(value[k]) ** (1.0 / len(axes))
    fresh = (int(e) for f in sorted(_divisors(int(value[k])),
                                    key=lambda f: max(f / near, near / f)) for e in
             range(max(1, (f - 1) * int(p[k])), (f + 1) * int(p[k]) + 1)
             if int(block_size(kind, e, int(p[k]), int(c[k]))) == f) \
        if value[k] < 10**9 and p[k] <= 64 else iter(())
    for extent in (*pooled, *sorted(pool.typed, reverse=True), *fresh):
        if extent in tried:
            continue
        tried.add(extent)
        if not _believable(obs, axes[0], extent, pool):
            continue
        budget[0] -= 1
        if budget[0] < 0:
            return None
        size = block_size(kind, extent, p, c)
        if np.any(size <= 0) or np.any(value % np.maximum(size, 1)):
            continue
        rest = _product(obs, value // size, axes[1:], kind, pool, budget)
        if rest is not None:
            return [extent, *rest]
    return None


def _rivals(obs: Observations, extents: Sequence[int], used: Sequence[tuple[str, str]], kind: str,
            factor: int, ghost: int) -> tuple[tuple[str, str, int, str, int], ...]:
    """Return other ways to cut one of the extents that fit all sizes and differ further on."""
    sizes = [block_size(kind, e, obs.env[a[0]], obs.env[a[1]])
             for e, a in zip(extents, used, strict=True)]
    out = []
    for i, (extent, axis) in enumerate(zip(extents, used, strict=True)):
        top = 4 * int(obs.env[axis[0]].max())
        for other in BLOCK_KINDS[:5]:
            for e in _solve_one(obs, sizes[i], axis, other)[:6]:
                if (other, e) != (kind, extent) and any(
                        differs(kind, extent, other, e, p) for p in range(2, top + 1)):
                    out.append((axis[0], kind, extent, other, e))
    return tuple(out)


def differs(kind: str, extent: int, other: str, other_extent: int, p: int) -> bool:
    """Return whether two ways of cutting give different blocks at ``p`` parts."""
    c = np.arange(p)
    return not np.array_equal(block_size(kind, extent, p, c), block_size(other, other_extent, p, c))


def _varies_with(obs: Observations, axis: tuple[str, str]) -> bool:
    return bool(np.any(obs.env[axis[0]] != obs.env[axis[0]][0])
                or np.any(obs.env[axis[1]] != obs.env[axis[1]][0]))


def _believable(obs: Observations, axis: tuple[str, str], extent: int, pool: ExtentPool) -> bool:
    """An extent over blocks whose number never changed must be large, or known elsewhere.

    Otherwise a plain factor (two fields, three dimensions) would pass for a tiny extent.
    """
    p = obs.env[axis[0]]
    return bool(np.any(p != p[0])) or extent >= 8 * int(p[0]) or extent in pool.extents()


def fit_elements(obs: Observations, pool: ExtentPool) -> Law | None:
    """Return the simplest exact law for the element counts, or None.

    obs: every (count, rank) at which the slot was seen. Tried in this order: constant, law of
    n and the extents alone, one block, one block with a ghost width or a factor, products of
    two and three blocks. The extents of the law found are noted in ``pool``.
    """
    obs = obs.unique()
    value = obs.value
    counts = np.unique(obs.env["n"])
    if len(value) == 0:
        return None
    if np.all(value == value[0]):
        return Law(num(int(value[0])), 1, len(counts))
    if len(counts) < 2:
        return None
    axes = [a for a in _axes(obs) if _varies_with(obs, a)]
    plain = [a for a in axes if a[1][0] in "cr"]
    kinds = pool.kinds()

    even = all(len(np.unique(value[obs.env["n"] == n])) == 1 for n in counts)

    def done(extents: Sequence[int], used: Sequence[tuple[str, str]], kind: str, factor: int = 1,
             ghost: int = 0) -> Law:
        rivals = _rivals(obs, extents, used, kind, factor, ghost)
        for e in extents:
            pool.note(e, kind)
            if not rivals:
                pool.certain[(e, kind)] = pool.certain.get((e, kind), 0) + 1
        sure = {k for _, k in pool.certain}
        if kind in sure:  # the program cuts in one way: other slots have shown which
            rivals = tuple(r for r in rivals if r[3] in sure
                           and (r[3] != kind or (r[2], kind) not in pool.certain))
        parts = [block(kind, e, sym(a[0]), sym(a[1])) for e, a in zip(extents, used, strict=True)]
        expr: Expr = mul(num(factor), *parts)
        return Law(add(expr, num(ghost)), len(extents) + (factor != 1) + (ghost != 0),
                   len(counts), even, rivals)

    gcd = int(np.gcd.reduce(value))
    if even and pool.typed:  # nothing in the sizes tells 4 * 60/p from 240/p; the user's 60 does
        for factor in _divisors(gcd)[:MAX_FACTORS]:
            for axis in axes:
                for e in _solve_one(obs, value // factor, axis, kinds[0]):
                    if e in pool.typed and e >= 8 * int(obs.env[axis[0]].max()):
                        return done([e], [axis], kinds[0], factor)
    def one_block(along: Sequence[tuple[str, str]]) -> Law | None:
        for kind in kinds:
            for axis in along:
                found = _solve_one(obs, value, axis, kind)
                if found:
                    return done([_best_extent(found, pool)], [axis], kind)
        return None

    def product_of_blocks() -> Law | None:
        for kind in kinds:
            for n_axes in (2, 3):
                for used in combinations(plain, n_axes):
                    if len({a[0] for a in used}) < n_axes or ("n", "r") in used:
                        continue
                    extents = _product(obs, value, used, kind, pool, [2000])
                    if extents:
                        return done(extents, used, kind)
        return None

    def known_product() -> Law | None:
        """Extents of the program, where even sizes leave the choice."""
        face = [a for a in plain if a[0] != "n" and int(a[0][1:]) in obs.across]
        if not even or len(face) < 2:
            return None
        for kind in kinds:
            for chosen in product(pool.extents()[:8], repeat=len(face)):
                size = np.ones(len(value), dtype=np.int64)
                for e, a in zip(chosen, face, strict=True):
                    size = size * block_size(kind, e, obs.env[a[0]], obs.env[a[1]])
                if np.array_equal(size, value):
                    return done(chosen, face, kind)
        return None

    on_grid = [a for a in axes if a[0] != "n"]
    in_line = [a for a in axes if a[0] == "n"]
    # The face of a halo is a product over the grid before it is a share of all ranks.
    steps = [known_product, lambda: one_block(on_grid), product_of_blocks,
             lambda: one_block(in_line), lambda: _scalar_law(obs, counts)]
    if not obs.across:
        steps = [lambda: one_block(axes), lambda: _scalar_law(obs, counts), product_of_blocks]
    for step in steps:
        law = step()
        if law is not None:
            return law
    # Fewer numbers first: a factor, two blocks with a factor, a ghost width, both.
    for kind, factor, axis in product(kinds, _divisors(gcd)[1:MAX_FACTORS], axes):
        found = _solve_one(obs, value // factor, axis, kind)
        if found:
            return done([_best_extent(found, pool)], [axis], kind, factor)
    for ghost, kind, axis in product(GHOSTS[1:], kinds, axes):
        found = _solve_one(obs, value - ghost, axis, kind) if np.all(value > ghost) else []
        if found:
            return done([_best_extent(found, pool)], [axis], kind, 1, ghost)
    for kind, factor in product(kinds, _divisors(gcd)[1:MAX_FACTORS]):
        for used in combinations(plain, 2):
            if len({a[0] for a in used}) < 2 or ("n", "r") in used:
                continue
            extents = _product(obs, value // factor, used, kind, pool, [500])
            if extents:
                return done(extents, used, kind, factor)
    for ghost, kind, factor, axis in product(GHOSTS[1:], kinds, _divisors(gcd)[1:16], axes):
        if np.all(value > factor * ghost):
            found = _solve_one(obs, value // factor - ghost, axis, kind)
            if found:
                return done([_best_extent(found, pool)], [axis], kind, factor, factor * ghost)
    return _widened_product(obs, plain, kinds, pool, gcd, len(counts))


def _widened_product(obs: Observations, plain: Sequence[tuple[str, str]], kinds: Sequence[str],
                     pool: ExtentPool, gcd: int, points: int) -> Law | None:
    """Products of two blocks that are both wider by a ghost width; one extent from the pool."""
    pairs = [u for u in combinations(plain, 2)
             if len({a[0] for a in u}) == 2 and ("n", "r") not in u]
    for kind, factor, ghost in product(kinds[:3], _divisors(gcd)[:16], GHOSTS[1:]):
        value = obs.value // factor
        for used, e1 in product(pairs, pool.extents()[:8]):
            wide = block_size(kind, e1, obs.env[used[0][0]], obs.env[used[0][1]]) + ghost
            rest = value // np.maximum(wide, 1) - ghost
            if np.any(wide <= 0) or np.any(value % np.maximum(wide, 1)) or np.any(rest <= 0):
                continue
            found = _solve_one(obs, rest, used[1], kind)
            if found:
                parts = [add(block(kind, e, sym(a[0]), sym(a[1])), num(ghost))
                         for e, a in zip((e1, _best_extent(found, pool)), used, strict=True)]
                return Law(mul(num(factor), *parts), 3 + (factor > 1), points)
    return None


def _scalar_law(obs: Observations, counts: np.ndarray) -> Law | None:
    """Return a law of n and the extents alone where all ranks agree at every count."""
    envs, values = [], []
    names = ["n", *(f"p{d}" for d in range(obs.ndims))]
    for n in counts:
        rows = obs.env["n"] == n
        if np.any(obs.value[rows] != obs.value[rows][0]):
            return None
        k = int(np.flatnonzero(rows)[0])
        envs.append({name: int(obs.env[name][k]) for name in names})
        values.append(int(obs.value[k]))
    return fit_exact(envs, values, obs.ndims)
