"""Blocks: extents cut over grid dimensions, solved from the sizes that ranks were seen to have.

The extents found are pooled over the program: slots that determine an extent well are solved
first, the others choose among what was found. Small extents fit by chance, so a factor of one
and extents that are known are tried first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from p3s.model.expr import BLOCK_KINDS, block_size
from p3s.model.laws import roundness

GHOSTS = (0, 1, 2, 4)
#: Factors tried (fields, components, planes in one message), smallest first.
MAX_FACTORS = 64

#: Symbols of the number of blocks and of the block's position, for example ("p0", "c0").
Axis = tuple[str, str]


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


def axes_of(obs: Observations) -> list[Axis]:
    """Return (extent symbol, coordinate symbol) pairs along which blocks may be cut."""
    out: list[Axis] = []
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


def solve_one(
    obs: Observations, value: np.ndarray, axis: Axis, kind: str,
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


def best_extent(extents: list[int], pool: ExtentPool) -> int:
    known = pool.extents()
    for e in known:
        if e in extents:
            return e
    # several extents fit alike: a round one is what people type; else the middle of the range
    return max(extents, key=lambda e: (roundness(e), -abs(e - extents[len(extents) // 2])))


def divisors(v: int) -> list[int]:
    small = [d for d in range(1, math.isqrt(v) + 1) if v % d == 0]
    return sorted({*small, *(v // d for d in small)})


def solve_product(
    obs: Observations, value: np.ndarray, axes: Sequence[Axis], kind: str,
    pool: ExtentPool, budget: list[int],
) -> list[int] | None:
    """Return one extent per axis such that the product of their blocks equals ``value``."""
    if len(axes) == 1:
        found = [e for e in solve_one(obs, value, axes[0], kind)
                 if _believable(obs, axes[0], e, pool)]
        return [best_extent(found, pool)] if found else None
    p, c = obs.env[axes[0][0]], obs.env[axes[0][1]]
    k = int(np.lexsort((c, p))[0])
    pooled = pool.extents()
    tried: set[int] = set()
    # factors near the root first: extents of one program are seldom of very different size
    near = int(value[k]) ** (1.0 / len(axes))
    fresh = (int(e) for f in sorted(divisors(int(value[k])),
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
        rest = solve_product(obs, value // size, axes[1:], kind, pool, budget)
        if rest is not None:
            return [extent, *rest]
    return None


def rivals_of(obs: Observations, extents: Sequence[int], used: Sequence[Axis], kind: str
              ) -> tuple[tuple[str, str, int, str, int], ...]:
    """Return other ways to cut one of the extents that fit all sizes and differ further on.

    Each as (extent symbol, kind, extent, other kind, other extent).
    """
    out = []
    for extent, axis in zip(extents, used, strict=True):
        p = obs.env[axis[0]]
        sizes = block_size(kind, extent, p, obs.env[axis[1]])
        for other in BLOCK_KINDS[:5]:
            for e in solve_one(obs, sizes, axis, other)[:6]:
                if (other, e) != (kind, extent) and any(
                        differs(kind, extent, other, e, k) for k in range(2, 4 * int(p.max()) + 1)):
                    out.append((axis[0], kind, extent, other, e))
    return tuple(out)


def differs(kind: str, extent: int, other: str, other_extent: int, p: int) -> bool:
    """Return whether two ways of cutting give different blocks at ``p`` parts."""
    c = np.arange(p)
    return not np.array_equal(block_size(kind, extent, p, c), block_size(other, other_extent, p, c))


def varies_with(obs: Observations, axis: Axis) -> bool:
    return bool(np.any(obs.env[axis[0]] != obs.env[axis[0]][0])
                or np.any(obs.env[axis[1]] != obs.env[axis[1]][0]))


def _believable(obs: Observations, axis: Axis, extent: int, pool: ExtentPool) -> bool:
    """An extent over blocks whose number never changed must be large, or known elsewhere.

    Otherwise a plain factor (two fields, three dimensions) would pass for a tiny extent.
    """
    p = obs.env[axis[0]]
    return bool(np.any(p != p[0])) or extent >= 8 * int(p[0]) or extent in pool.extents()


