"""Sums over the cells of a multi-partition, with or without those at a border.

With p extents in all directions a rank has p cells, one in every plane of each direction: cell j
lies at ((w + j) mod p, j, ...), w a sum of the rank's coordinates. What a rank sends across the
faces of its cells is the sum of products of two blocks over the cells, less those at the border.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from p3s.laws.expr import BLOCK_KINDS, Expr, add, block, block_size, mul, num, sym
from p3s.laws.shares import divisors
from p3s.model.sizes.hypotheses import Hypothesis, Written, prior, whole_bits, written
from p3s.model.sizes.observations import Observations, moving
from p3s.model.sizes.travelling import arrangement

#: Factors, pairs of extents for each and all of them that are tried.
MAX_FACTORS, MAX_PAIRS, MAX_TRIES = 24, 12, 60


@dataclass(frozen=True)
class _Position:
    """A position mod p: whole coefficients of the coordinates and an offset."""

    coefs: tuple[int, ...]
    offset: int

    @property
    def bits(self) -> float:
        """What it takes to say which numbering of an arrangement this is."""
        turned = sum(map(abs, self.coefs)) + sum(k < 0 for k in self.coefs)
        return turned + 2.0 * abs(self.offset) + 2.0 * (self.offset != 0)

    def plus(self, other: _Position, sign: int) -> _Position:
        return _Position(
            tuple(a + sign * b for a, b in zip(self.coefs, other.coefs, strict=True)),
            self.offset + sign * other.offset,
        )

    def expr(self, j: int = 0) -> Expr:
        """Return the position as an expression, ``j`` times the bound symbol added."""
        parts = [mul(num(k), sym(f"c{d}")) for d, k in enumerate(self.coefs) if k]
        if j:
            parts.append(mul(num(j), sym("j")))
        parts.append(num(self.offset))
        if len(parts) == 2 and not self.offset and parts[0][0] == "sym":
            return parts[0]
        return ["mod", add(*parts), sym("p0")]


def over_diagonals(obs: Observations, known: Sequence[int]) -> Iterator[Hypothesis]:
    """Yield the laws of sums over the cells of each rank.

    All ranks have to be there: then all values of a count together are (p - borders) times the
    whole face, which leaves few extents to try. known: extents of the program.
    """
    p = obs.env["p0"]
    if not obs.whole or obs.ndims > 2 or np.any(obs.value <= 0) or obs.even():
        return
    if moving(obs):
        return
    if np.any(p**obs.ndims != obs.env["n"]):
        return
    factors = divisors(int(np.gcd.reduce(obs.value)))[:MAX_FACTORS]
    places = _Places(obs)
    tries: list[tuple[tuple[float, ...], int, int, int, int, int]] = []
    for borders in (0, 1, 2) if obs.ndims == 2 else (0,):
        face = _face(obs, borders)
        for trim, factor in product((0, 1), factors):
            if face is None or face % factor:
                continue
            for a, b in _extents(face // factor, trim, int(p.max()), known):
                order: tuple[float, ...] = (
                    -float((a in known) + (b in known)),
                    max(a, b) / min(a, b),
                    float(trim),
                    float(borders),
                    float(factor),
                )
                tries.append((order, a, b, trim, factor, borders))
    shape: tuple[float, ...] = ()
    for order, a, b, trim, factor, borders in sorted(tries)[:MAX_TRIES]:
        if shape and order[:3] != shape:
            return  # extents as plain as these fit already
        for kind in BLOCK_KINDS[:5]:
            for h in _Search(places, a, b, kind, trim, factor, borders).hypotheses():
                shape = order[:3]
                yield h


def _face(obs: Observations, borders: int) -> int | None:
    """Return factor times area of the whole face, the same at every count, or None."""
    found: set[int] = set()
    for n in np.unique(obs.env["n"]):
        rows = obs.env["n"] == n
        p = int(obs.env["p0"][rows][0])
        planes = p ** (obs.ndims - 1) - borders if borders else p ** (obs.ndims - 1)
        total = int(obs.value[rows].sum())
        if planes <= 0 or total % planes:
            return None
        found.add(total // planes)
    return found.pop() if len(found) == 1 else None


def _extents(area: int, trim: int, p: int, known: Sequence[int]) -> list[tuple[int, int]]:
    """Return pairs of extents with this area, equal and known ones first."""
    pairs = [(d + 2 * trim, area // d + 2 * trim) for d in divisors(area)]
    pairs = [pair for pair in pairs if min(pair) >= p]
    return sorted(pairs, key=lambda x: (-(x[0] in known) - (x[1] in known), max(x) / min(x)))[
        :MAX_PAIRS
    ]


class _Places:
    """All positions of a diagonal or of a border, at every row; the largest counts first."""

    def __init__(self, obs: Observations) -> None:
        rows = np.argsort(-obs.env["p0"], kind="stable")
        self.obs, self.value, self.p = obs, obs.value[rows], obs.env["p0"][rows]
        self.extents = np.unique(self.p)
        self.index = np.searchsorted(self.extents, self.p)
        coords = np.array([obs.env[f"c{d}"][rows] for d in range(obs.ndims)])
        self.all = [
            _Position(c, o) for c, o in product(product((0, 1, -1), repeat=obs.ndims), (0, -1, 1))
        ]
        self.at = np.array([np.tensordot(x.coefs, coords, 1) + x.offset for x in self.all]) % self.p


class _Search:
    """One pair of extents: all positions of the diagonal and of the border are compared at once."""

    def __init__(
        self, places: _Places, a: int, b: int, kind: str, trim: int, factor: int, borders: int
    ) -> None:
        self.places, self.a, self.b, self.kind, self.trim = places, a, b, kind, trim
        self.factor, self.borders = factor, borders
        most = int(places.extents[-1])
        self.first = np.zeros((len(places.extents), most), dtype=np.int64)
        self.second = np.zeros_like(self.first)
        for k, p in enumerate(places.extents):
            c = np.arange(p)
            border = trim * ((c == 0).astype(np.int64) + (c == p - 1))
            self.first[k, :p] = block_size(kind, a, p, c) - border
            self.second[k, :p] = block_size(kind, b, p, c) - border

    def hypotheses(self) -> Iterator[Hypothesis]:
        """Yield all diagonals, with their borders, whose sums are the values."""
        for sign in (1, -1):
            for i, k in self._matches(sign):
                w = self.places.all[i]
                at = None if k is None else self.places.all[k]
                expr, blocks = self._expr(w, at, sign), self._expr(w, None, sign)
                # the positions are those of the arrangement, but for the numbering
                bits = prior("sum") + whole_bits(self.factor) + w.bits + (sign < 0) / 2
                if at is not None:
                    bits += at.bits / 2 + sum(map(abs, w.plus(at, sign).coefs)) / 4
                shared = written(blocks, 3).constants
                if at is None:
                    yield Written(expr, bits, 3, shared)
                    continue
                dims = self.places.obs.ndims
                own = [(sign, w.coefs, w.offset), (1, (0,) * dims, 0)]
                thirds = [
                    (s, tuple(-s * x for x in at.coefs), -s * at.offset - end)
                    for s, end in product((1, -1), (0, 1))
                ]
                for cells in dict.fromkeys(arrangement([*own, third]) for third in thirds):
                    yield Written(expr, bits, 3, shared | {("cells", cells)})

    def _matches(self, sign: int) -> list[tuple[int, int | None]]:
        """Return (position of the diagonal, position of the border) that give all values."""
        pl = self.places
        total, cell = self._tables(sign)
        few = min(len(pl.value), 12)
        out: list[tuple[int, int | None]] = []
        for w, at in enumerate(pl.at):
            if not self.borders:
                if np.array_equal(self.factor * total[pl.index, at], pl.value):
                    out.append((w, None))
                continue
            near = np.arange(len(pl.all))
            for rows in (slice(0, few), slice(few, None)):  # most fail at once
                if not len(near):
                    break
                k, mine, border = pl.index[rows], at[rows], pl.at[near][:, rows]
                each = cell[k, mine, border]
                if self.borders == 2:
                    each = each + cell[k, mine, (border - 1) % pl.p[rows]]
                got = self.factor * (total[k, mine] - each)
                near = near[np.all(got == pl.value[rows], axis=1)]
            out += [(w, int(i)) for i in near]
        return out

    def _tables(self, sign: int) -> tuple[np.ndarray, np.ndarray]:
        """Return per extent the sum over the cells of a diagonal, and each cell of it."""
        most = self.first.shape[1]
        total = np.zeros((len(self.first), most), dtype=np.int64)
        cell = np.zeros((len(self.first), most, most), dtype=np.int64)
        for k, p in enumerate(self.places.extents):
            w, j = np.ogrid[:p, :p]
            cell[k, :p, :p] = self.first[k, (w + sign * j) % p] * self.second[k, j]
            total[k, :p] = cell[k, :p, :p].sum(axis=1)
        return total, cell

    def _expr(self, w: _Position, at: _Position | None, sign: int) -> Expr:
        def one(x: Expr, y: Expr) -> Expr:
            return mul(self._block(self.a, x), self._block(self.b, y))

        parts: list[Expr] = [["sum", sym("p0"), one(w.expr(sign), sym("j"))]]
        for k in range(self.borders if at is not None else 0):
            assert at is not None
            here = _Position(at.coefs, at.offset - k)
            parts.append(mul(num(-1), one(w.plus(here, sign).expr(), here.expr())))
        return mul(num(self.factor), add(*parts))

    def _block(self, extent: int, c: Expr) -> Expr:
        if not self.trim:
            return block(self.kind, extent, sym("p0"), c)
        border: Sequence[Expr] = (
            ["min", c, num(1)],
            ["min", add(sym("p0"), num(-1), mul(num(-1), c)), num(1)],
        )
        return add(block(self.kind, extent, sym("p0"), c), *border, num(-2))
