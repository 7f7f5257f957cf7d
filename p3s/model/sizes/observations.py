"""Sizes as they were seen, and the axes along which blocks of data may be numbered."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations

import numpy as np

from p3s.laws.expr import Expr, add, evaluate, mul, num, sym


def distinct_columns(columns: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the distinct entries of columns, where each is first, and which one every row has.

    columns: whole numbers, of equal length; the entries are in ascending order, (columns, entries).
    """
    key, most = np.zeros(len(columns[0]), dtype=np.int64), 1
    for column in columns:
        low = int(column.min(initial=0))
        many = int(column.max(initial=0)) - low + 1
        if most * many > 1 << 62:
            key = np.unique(key, return_inverse=True)[1].ravel()
            most = len(key)
        key, most = key * many + (column - low), most * many
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    return np.stack([column[first] for column in columns]), first, which.ravel()


def cells_of(columns: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the same as :func:`distinct_columns`, remembered: many slots have equal rows."""
    return _cells_of(tuple(column.tobytes() for column in columns))


@lru_cache(maxsize=512)
def _cells_of(columns: tuple[bytes, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    found = distinct_columns([np.frombuffer(column, dtype=np.int64) for column in columns])
    for part in found:
        part.setflags(write=False)
    return found


@dataclass(frozen=True, eq=False)
class Axis:
    """A way of numbering blocks: how many there are and which one, as expressions and values.

    count, at: int64 arrays, one entry per row of the observations.
    """

    p: Expr
    c: Expr
    count: np.ndarray
    at: np.ndarray

    @property
    def name(self) -> str:
        """The symbol of the number of blocks; empty where it is none."""
        return str(self.p[1]) if self.p[0] == "sym" else ""

    def varies(self) -> bool:
        """Tell whether the rows differ in the number of blocks or in the position."""
        return bool(np.any(self.count != self.count[0]) or np.any(self.at != self.at[0]))


@dataclass
class Observations:
    """Element counts of one slot: row i was seen at count ``n[i]`` with these symbols.

    env: symbol -> int64 array (n, r, p0.., c0.., q0.., s, t); value: int64 array of elements;
    across: for a shift, the dimensions it does not move along (a halo's face), tried first;
    whole: whether every rank is there at every count, stage and iteration that is there at all.
    """

    env: dict[str, np.ndarray]
    value: np.ndarray
    ndims: int
    across: tuple[int, ...] = ()
    whole: bool = False

    def unique(self) -> Observations:
        """Return the same observations without repeated rows."""
        names = sorted(k for k in self.env if k != "r")
        return self.take(distinct_columns([*(self.env[k] for k in names), self.value])[1])

    @cached_property
    def digest(self) -> bytes:
        """What tells these observations from others."""
        parts = [k.encode() + self.env[k].tobytes() for k in sorted(self.env)]
        parts += [self.value.tobytes(), repr((self.across, self.whole)).encode()]
        return hashlib.blake2b(b"|".join(parts), digest_size=16).digest()

    @cached_property
    def counts(self) -> np.ndarray:
        """The process counts of the rows, ascending, each once."""
        return np.unique(self.env["n"])

    def even(self) -> bool:
        """Tell whether all rows of each count have one value."""
        n = self.env["n"]
        return all(len(np.unique(self.value[n == m])) == 1 for m in self.counts)

    def take(self, keep: np.ndarray) -> Observations:
        """Return the rows selected by a mask or index array."""
        env = {k: v[keep] for k, v in self.env.items()}
        return Observations(env, self.value[keep], self.ndims, self.across, self.whole)

    def of(self, value: np.ndarray) -> Observations:
        """Return other values at the same rows."""
        return Observations(self.env, value, self.ndims, self.across, self.whole)

    def without(self, symbol: str) -> Observations:
        """Return the observations as if a symbol were 0 everywhere."""
        env = {**self.env, symbol: np.zeros(len(self.value), dtype=np.int64)}
        return Observations(env, self.value, self.ndims, self.across, self.whole)

    def by_count(self) -> list[tuple[dict[str, int], int]]:
        """Return n and the extents of each count with the value of its first row."""
        _, rows = np.unique(self.env["n"], return_index=True)
        names = ["n", *(f"p{d}" for d in range(self.ndims))]
        return [({k: int(self.env[k][i]) for k in names}, int(self.value[i])) for i in rows]


def joined_symbols(parts: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return the symbols of rows of several counts."""
    return {k: np.concatenate([e[k] for e in parts]) for k in parts[0]}


def distinct(obs: Observations) -> Observations:
    """Return the observations that tell something: each once, idle iterations forgotten."""
    for u in moving(obs):
        rest = [obs.env[v] for v in ("t", "s") if v in obs.env and v != u]
        ranks = Axis(sym("n"), sym("r"), obs.env["n"], obs.env["r"])
        partner = [(f"p{d}", f"q{d}") for d in range(obs.ndims) if "q0" in obs.env]
        axes = [Axis(sym(p), sym(q), obs.env[p], obs.env[q]) for p, q in partner]
        if decides(obs, [ranks], rest) or (axes and decides(obs, axes, rest)):
            obs = obs.without(u)
    return obs.unique()


def axis_of(obs: Observations, p: Expr, c: Expr) -> Axis:
    """Return the axis with its values at every row of ``obs``."""
    m = len(obs.value)

    def column(e: Expr) -> np.ndarray:
        return np.broadcast_to(np.rint(evaluate(e, obs.env)).astype(np.int64), (m,))

    return Axis(p, c, column(p), column(c))


def plain_axes(obs: Observations) -> list[Axis]:
    """Return the axes along which blocks are cut as a rule: own and partner's coordinates, ranks.

    The dimensions a shift does not move along (``obs.across``) come first.
    """
    names: list[tuple[str, str]] = []
    if obs.ndims > 1:
        order = [*obs.across, *(d for d in range(obs.ndims) if d not in obs.across)]
        names += [(f"p{d}", f"c{d}") for d in order]
        names += [(f"p{d}", f"q{d}") for d in order if f"q{d}" in obs.env]
    names.append(("n", "r"))
    out = [axis_of(obs, sym(p), sym(c)) for p, c in names]
    if "q0" in obs.env:  # the partner's rank
        rank: Expr = sym("q0")
        for d in range(1, obs.ndims):
            rank = add(mul(rank, sym(f"p{d}")), sym(f"q{d}"))
        out.append(axis_of(obs, sym("n"), rank))
    # shares of workers, where the first rank has none
    out += [
        axis_of(obs, add(a.p, num(-1)), add(a.c, num(-1)))
        for a in out
        if a.p == sym("n") and len(a.at) and a.at.min() > 0 and a.count.min() > 2
    ]
    return [a for i, a in enumerate(out) if not any(_equal_axes(a, b) for b in out[:i])]


def _equal_axes(a: Axis, b: Axis) -> bool:
    return a.p == b.p and np.array_equal(a.at, b.at) and np.array_equal(a.count, b.count)


def composite_axes(obs: Observations) -> list[Axis]:
    """Return axes of blocks cut over two dimensions of the grid at once, either one first."""
    out = []
    for a, b in combinations(range(obs.ndims), 2):
        p = mul(sym(f"p{a}"), sym(f"p{b}"))
        out.append(axis_of(obs, p, add(mul(sym(f"c{b}"), sym(f"p{a}")), sym(f"c{a}"))))
        if obs.ndims > 2:
            out.append(axis_of(obs, p, add(mul(sym(f"c{a}"), sym(f"p{b}")), sym(f"c{b}"))))
    return out


def moving(obs: Observations) -> list[str]:
    """Return the symbols of iteration and stage that change within the observations."""
    return (
        [u for u in ("t", "s") if u in obs.env and np.ptp(obs.env[u]) > 0] if len(obs.value) else []
    )


def decides(obs: Observations, axes: Sequence[Axis], extra: Sequence[np.ndarray] = ()) -> bool:
    """Tell whether the value is a function of the count and the position along the axes."""
    _, first, which = cells_of([obs.env["n"], *(a.at for a in axes), *extra])
    return bool(np.array_equal(obs.value[first][which], obs.value))


def step_of(obs: Observations, d: int) -> int:
    """Return how far partners are along a dimension, where that is the same for all, else 1."""
    if f"q{d}" not in obs.env:
        return 1
    apart = (obs.env[f"q{d}"] - obs.env[f"c{d}"]) % obs.env[f"p{d}"]
    for step in (0, 1, -1):
        if np.array_equal(apart, step % obs.env[f"p{d}"]):
            return step
    return 1


def elsewhere(obs: Observations) -> dict[str, np.ndarray]:
    """Return symbols of ranks on grids larger than those seen, to compare laws there.

    Along each axis every number of blocks up to four times the largest, on the others as many as
    were seen and one more, the first, a middle, and the last block; symbol ``grid`` numbers them.
    Of sizes that change from turn to turn or stage to stage all ranks of three grids.
    """
    dimensions = range(obs.ndims)
    top = tuple(int(obs.env[f"p{d}"].max()) for d in dimensions)
    steps = tuple(step_of(obs, d) for d in dimensions)
    still = _elsewhere(top, steps)
    if not moving(obs):
        return dict(still)
    alike = all(np.array_equal(obs.env["p0"], obs.env[f"p{d}"]) for d in dimensions)
    stages = 1 + int(obs.env["s"].max()) if "s" in obs.env else 1
    turns = MOST_TURNS if "t" in obs.env and obs.env["t"].any() else 1
    return dict(_in_turns(top if not alike else (max(top),) * len(top), steps, turns, stages))


#: Turns and stages at which laws are compared, and ranks of a grid there.
MOST_TURNS, MOST_STAGES, MOST_RANKS = 8, 4, 4096


@lru_cache(maxsize=64)
def _in_turns(
    top: tuple[int, ...], steps: tuple[int, ...], turns: int, stages: int
) -> dict[str, np.ndarray]:
    """Return the symbols of :func:`elsewhere` of sizes that change in turns or stages."""
    parts: list[np.ndarray] = []
    for extra in (1, 2, 3):
        dims = np.array([p + extra for p in top])
        if dims.prod() > MOST_RANKS and parts:
            break
        coords = np.array(np.unravel_index(np.arange(dims.prod()), dims.tolist()))
        shown = min(int(dims.max()), turns), min(stages, MOST_STAGES)
        for t, s in np.ndindex(shown):
            fixed = np.tile(np.array([[*dims, t, s]]).T, coords.shape[1])
            parts.append(np.concatenate([fixed, coords]))
    cells, k = np.concatenate(parts, axis=1), len(top)
    sizes = [part.shape[1] for part in parts]
    return _symbols(cells[:k], cells[k + 2 :], steps, cells[k], cells[k + 1], sizes)


@lru_cache(maxsize=64)
def _elsewhere(top: tuple[int, ...], steps: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Return the symbols of :func:`elsewhere`; many slots were seen on the same grids."""
    parts: list[np.ndarray] = []
    for d, p in enumerate(top):
        for more in sorted({*range(2, min(4 * p, p + 24) + 1), 3 * p, 4 * p}):
            for besides in range(1 + (more > p)):  # where the other extents divide, and do not
                dims = np.array([q + besides if e != d else more for e, q in enumerate(top)])
                places = [
                    np.arange(x) if e == d else np.unique([0, x // 2, x - 1])
                    for e, x in enumerate(dims.tolist())
                ]
                at = np.stack([x.ravel() for x in np.meshgrid(*places, indexing="ij")])
                parts.append(np.concatenate([np.broadcast_to(dims[:, None], at.shape), at]))
    cells, k = np.concatenate(parts, axis=1), len(top)
    zero = np.zeros(cells.shape[1], dtype=np.int64)
    return _symbols(cells[:k], cells[k:], steps, zero, zero, [part.shape[1] for part in parts])


def _symbols(
    dims: np.ndarray,
    coords: np.ndarray,
    steps: Sequence[int],
    t: np.ndarray,
    s: np.ndarray,
    sizes: Sequence[int],
) -> dict[str, np.ndarray]:
    """Return symbols of ranks at coordinates, (dimensions, ranks); sizes: ranks of each grid."""
    n = np.prod(dims, axis=0)
    env = {"n": n, "s": s, "t": t, "r": np.zeros(len(n), dtype=np.int64)}
    for d, (p, c) in enumerate(zip(dims, coords, strict=True)):
        env |= {f"p{d}": p, f"c{d}": c, f"q{d}": (c + steps[d]) % p}
        env["r"] = env["r"] * p + c
    env["b"] = n - env["r"]  # the ranks of a tree's branch: any will do to tell laws apart
    env["grid"] = np.repeat(np.arange(len(sizes)), sizes)
    for column in env.values():
        column.setflags(write=False)
    return env
