"""Products of blocks at affine positions: cells of a multi-partition, blocks that travel.

The sizes at one count are taken apart into one profile per direction (the values are the product
of the profiles); each profile then is a block, wider by a ghost width or trimmed at the border.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np

from p3s.laws.exact import evaluate_int
from p3s.laws.expr import BLOCK_KINDS, Expr, add, block, block_size, mul, num
from p3s.model.sizes.blocks import (
    Axis,
    ExtentPool,
    FittedSize,
    Observations,
    best_extent,
    kinds_possible,
    rivals_of,
    solve_one,
)
from p3s.model.sizes.cells import Candidate, Coordinate, Key, swept, with_third
from p3s.model.sizes.positions import Direction, decides, directions, variants

#: (wider everywhere, less in the first block, less in the last block) and what each costs.
TRIMS = (
    ((0, 0, 0), 0.0),
    ((0, 1, 1), 1.5),
    ((1, 0, 0), 2.0),
    ((2, 0, 0), 2.0),
    ((4, 0, 0), 2.5),
    ((0, 1, 0), 2.5),
    ((0, 0, 1), 2.5),
    ((0, -1, -1), 2.5),
    ((-1, 0, 0), 2.5),
    ((-2, 0, 0), 2.5),
    ((0, 2, 2), 3.0),
)
#: Cuts into blocks that differ by one at most.
EVEN_CUTS = ("first", "floor", "last")
#: Ways of writing a profile that are kept, and combinations of two tried with a scalar law.
MAX_SHAPES, MAX_COMBINATIONS = 32, 48


@dataclass(frozen=True)
class Shape:
    """One way of writing a profile: a block with its extent, and its size at every row."""

    cost: float
    surprise: float
    expr: Expr
    size: np.ndarray
    extent: int
    kind: str
    at: Coordinate
    axis: Axis


def trimmed(kind: str, extent: int, axis: Axis, trim: Sequence[int]) -> Expr:
    """Return the expression of a block that is wider, or less at the borders."""
    wider, first, last = trim
    parts = [block(kind, extent, axis.p, axis.c), num(wider - first - last)]
    if first:
        parts.append(mul(num(first), ["min", axis.c, num(1)]))
    if last:
        parts.append(mul(num(last), ["min", add(axis.p, num(-1), mul(num(-1), axis.c)), num(1)]))
    return add(*parts)


def trim_of(axis: Axis, trim: Sequence[int]) -> np.ndarray:
    """Return what the trim adds to the block at every row."""
    first, last = axis.at == 0, axis.at == axis.count - 1
    out: np.ndarray = trim[0] - trim[1] * first - trim[2] * last
    return out


def _profile(
    n: np.ndarray, at: np.ndarray, other: np.ndarray, value: np.ndarray
) -> np.ndarray | None:
    """Return per row the profile along ``at``: whole numbers without a common factor per count.

    None where the values at some count are no product of a function of ``at`` and one of
    ``other``, or are not all there.
    """
    out = np.zeros(len(value), dtype=np.int64)
    for count in np.unique(n):
        rows = np.flatnonzero(n == count)
        xs, xi = np.unique(at[rows], return_inverse=True)
        ys, yi = np.unique(other[rows], return_inverse=True)
        table = np.zeros((len(xs), len(ys)), dtype=np.int64)
        table[xi, yi] = value[rows]
        if np.any(table[xi, yi] != value[rows]):
            return None
        filled = (table > 0).sum(axis=0)
        base = table[:, int(np.argmax(filled))]
        if np.any(base <= 0):
            return None
        start = np.argmax(table > 0, axis=0)
        lead = table[start, np.arange(len(ys))]
        fits = table * base[start][None, :] == lead[None, :] * base[:, None]
        if not np.all(fits | (table == 0)):
            return None
        out[rows] = (base // np.gcd.reduce(base))[xi]
    return out


def _informative(n: np.ndarray, profile: np.ndarray) -> np.ndarray:
    """Return a mask of the rows at counts where the profile is not flat."""
    mask = np.zeros(len(n), dtype=bool)
    for count in np.unique(n):
        rows = n == count
        mask[rows] = np.any(profile[rows] != profile[rows][0])
    return mask


def shapes_of(
    obs: Observations, d: Direction, profile: np.ndarray, pool: ExtentPool
) -> list[Shape]:
    """Return the ways of writing a profile along a direction as a block, simplest first."""
    n = obs.env["n"]
    rows = np.flatnonzero(_informative(n, profile))
    if not len(rows):
        return []
    kinds = [k for k in pool.kinds() if k in BLOCK_KINDS[:5]]
    found: list[Shape] = []
    for multiple in (1, 2, 3):
        value = _scaled(n[rows], profile[rows], obs, d) * multiple
        for cost, sign, offset, axis in variants(obs, d):
            part = Axis(axis.p, axis.c, axis.count[rows], axis.at[rows])
            for trim, more in TRIMS:
                wanted = value - trim_of(part, trim)
                if np.any(wanted < 0):
                    continue
                # a cut that leaves all of the remainder to one block is rare enough by itself
                for kind in kinds_possible(wanted, part, EVEN_CUTS if more else kinds):
                    extents = solve_one(wanted, part, kind)
                    if not extents:
                        continue
                    e = best_extent(extents, pool)
                    size = block_size(kind, e, axis.count, axis.at) + trim_of(axis, trim)
                    if np.all(size > 0) and not np.any(obs.value % size):
                        found.append(
                            Shape(
                                cost + more,
                                pool.surprise(kind),
                                trimmed(kind, e, axis, trim),
                                size,
                                e,
                                kind,
                                d.coordinate(sign, offset, obs.ndims),
                                axis,
                            )
                        )
        if found:
            break
    return sorted(found, key=lambda s: s.cost + s.surprise)[:MAX_SHAPES]


def _scaled(n: np.ndarray, profile: np.ndarray, obs: Observations, d: Direction) -> np.ndarray:
    """Return profiles in one scale: blocks of one extent are longer where they are fewer."""
    p = d.axis(obs).count
    weight = {
        int(c): float(profile[n == c].mean()) * int(p[obs.env["n"] == c][0]) for c in np.unique(n)
    }
    most = max(weight.values())
    scale = np.array([max(round(most / weight[int(c)]), 1) for c in n], dtype=np.int64)
    return profile * scale


Rest = Callable[[Observations], tuple[Expr, int] | None]


def fit_affine(obs: Observations, pool: ExtentPool, rest: Rest) -> FittedSize | None:
    """Return a law of one or two blocks at affine positions times a scalar, or None.

    rest: fits what remains when the blocks are divided out; its law and its free numbers.
    """
    if np.any(obs.value <= 0):
        return None
    every = directions(obs)
    for used in _candidates(obs, every):
        law = _law_along(obs, used, pool, rest)
        if law is not None:
            return law
    return None


def _candidates(obs: Observations, every: Sequence[Direction]) -> Iterator[tuple[Direction, ...]]:
    turning = [obs.env[u] for u in ("t", "s") if u in obs.env]
    axes = {d: d.axis(obs) for d in every}
    for d in every:
        if axes[d].varies() and decides(obs, [axes[d]], turning):
            yield (d,)
    pairs = sorted(combinations(every, 2), key=lambda p: sum(len(d.terms) for d in p))
    for a, b in pairs:
        if a.p == b.p and decides(obs, [axes[a], axes[b]]):
            yield (a, b)
    apart = [(a, b) for a, b in pairs if a.p != b.p and "n" not in (a.p, b.p)]
    for a, b in apart:
        if decides(obs, [axes[a], axes[b]]):
            yield (a, b)


def _law_along(
    obs: Observations, used: Sequence[Direction], pool: ExtentPool, rest: Rest
) -> FittedSize | None:
    n = obs.env["n"]
    axes = [d.axis(obs) for d in used]
    slot = obs.digest() + repr([(d.p, d.terms) for d in used]).encode()
    if slot not in pool.found:
        pool.found[slot] = _combined(obs, used, axes, pool, rest)
    candidates = pool.found[slot]
    if not candidates:
        return None
    best, equal = pool.settle(obs, candidates)
    others = different(obs, best.expr, pool.possible(best.expr, equal))
    pool.settled(best, not others and not best.rivals)
    # what a share of something did at even counts only says nothing of its remainder
    even = any(op in str(best.scalar) for op in ("pow", "block"))
    return FittedSize(
        best.expr,
        len(best.extents) + 1,
        len(np.unique(n)),
        even,
        best.rivals,
        others,
        bool(best.keys),
    )


def _combined(
    obs: Observations, used: Sequence[Direction], axes: Sequence[Axis], pool: ExtentPool, rest: Rest
) -> list[Candidate]:
    """Return the products of blocks along the directions that, times a scalar, fit."""
    n = obs.env["n"]
    # what is not a function of the position alone may be one of the iteration as well
    turning = np.zeros(len(n), dtype=np.int64)
    if len(used) == 1 and not decides(obs, axes):
        for u in ("t", "s"):
            if u in obs.env:
                turning = turning * (int(obs.env[u].max()) + 1) + obs.env[u]
    per: list[list[Shape]] = []
    for k, d in enumerate(used):
        profile = _profile(n, axes[k].at, axes[1 - k].at if len(used) == 2 else turning, obs.value)
        if profile is None:
            return []
        per.append(shapes_of(obs, d, profile, pool))
        if not per[-1]:
            return []
    combos = sorted(product(*per), key=lambda c: _cost(c) + _surprise(c))
    fitting: list[tuple[tuple[Shape, ...], Expr]] = []
    for combo in combos:
        size = np.prod([s.size for s in combo], axis=0)
        times = int(obs.value[0] // size[0])
        if np.array_equal(size * times, obs.value):
            fitting.append((combo, num(times)))
    for combo in combos[:MAX_COMBINATIONS] if not fitting else ():
        size = np.prod([s.size for s in combo], axis=0)
        scalar = rest(obs.of(obs.value // size)) if not np.any(obs.value % size) else None
        if scalar is not None:
            fitting.append((combo, scalar[0]))
    out: list[Candidate] = []
    for combo, times_law in fitting:
        keys = _keys(obs, combo)
        rivals = (
            [r for s in combo for r in rivals_of(s.extent, s.axis, s.kind, pool)]
            if not keys and not out
            else []
        )
        out.append(
            Candidate(
                _cost(combo),
                _surprise(combo),
                mul(times_law, *(s.expr for s in combo)),
                tuple(s.extent for s in combo),
                combo[0].kind,
                keys,
                tuple(rivals),
                times_law,
            )
        )
    return out


def _cost(combo: Sequence[Shape]) -> float:
    return (
        sum(s.cost for s in combo)
        + 2.0 * (len({s.extent for s in combo}) > 1)
        + (len({s.kind for s in combo}) > 1)
    )


def _surprise(combo: Sequence[Shape]) -> float:
    return max(s.surprise for s in combo)


def _keys(obs: Observations, combo: Sequence[Shape]) -> frozenset[Key]:
    """Return the arrangements of cells that a sweep with these two positions belongs to."""
    if len(combo) != 2 or not all(s.at[0] for s in combo):
        return frozenset()
    return with_third(combo[0].kind, combo[0].at, combo[1].at, swept(obs.ndims))


def further(obs: Observations) -> dict[str, np.ndarray]:
    """Return the symbols of all ranks at a few counts above those seen, to compare laws there."""
    top = [int(obs.env[f"p{d}"].max()) for d in range(obs.ndims)]
    equal = all(np.array_equal(obs.env["p0"], obs.env[f"p{d}"]) for d in range(obs.ndims))
    steps = [max(top)] * obs.ndims if equal else top
    parts: list[dict[str, np.ndarray]] = []
    for extra in (1, 2, 3):
        dims = tuple(p + extra for p in steps)
        n = int(np.prod(dims))
        if n > 4096:
            continue
        coords = np.array(np.unravel_index(np.arange(n), dims), dtype=np.int64)
        turns = min(max(dims), 8) if "t" in obs.env and obs.env["t"].any() else 1
        stages = 1 + int(obs.env["s"].max()) if "s" in obs.env else 1
        for t, s in product(range(turns), range(min(stages, 4))):
            env = {"n": np.full(n, n), "r": np.arange(n), "s": np.full(n, s), "t": np.full(n, t)}
            for d, p in enumerate(dims):
                env |= {
                    f"p{d}": np.full(n, p),
                    f"c{d}": coords[d],
                    f"q{d}": (coords[d] + step_of(obs, d)) % p,
                }
            parts.append(env)
    return {k: np.concatenate([e[k] for e in parts]) for k in parts[0]} if parts else {}


def step_of(obs: Observations, d: int) -> int:
    """Return how far partners are along a dimension, where that is the same for all, else 1."""
    if f"q{d}" not in obs.env:
        return 1
    apart = (obs.env[f"q{d}"] - obs.env[f"c{d}"]) % obs.env[f"p{d}"]
    for step in (0, 1, -1):
        if np.array_equal(apart, step % obs.env[f"p{d}"]):
            return step
    return 1


def different(
    obs: Observations, expr: Expr, others: Sequence[Expr], most: int = 3
) -> tuple[Expr, ...]:
    """Return those of other equations that differ from ``expr`` above the counts seen."""
    env = further(obs)
    if not env or not others:
        return ()
    values = [evaluate_int(expr, env, undefined=-1)]
    out: list[Expr] = []
    for other in others:
        mine = evaluate_int(other, env, undefined=-1)
        if all(np.any(mine != v) for v in values):
            values.append(mine)
            out.append(other)
            if len(out) == most:
                break
    return tuple(out)
