"""Kinds of relations to one partner: a rank, a place, the next, the mirrored one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from p3s.laws.expr import add, mul, num, sym
from p3s.model.grid.at import GridAt
from p3s.model.grid.axes import Axis, line
from p3s.model.partners.pairs import Pairs
from p3s.model.partners.relation import (
    Coordinate,
    Place,
    Relation,
    Tried,
    along,
    coordinate,
    describe_axis,
    index_of,
    place_text,
    shift_coordinate,
)


@dataclass(frozen=True, kw_only=True)
class Oneself(Relation, kind="self"):
    """The rank itself."""

    words = "self"

    @classmethod
    def for_everybody(cls, pairs: Sequence[Pairs]) -> Tried:
        yield 1.0, cls()

    def to(self, g: GridAt) -> np.ndarray:
        return g.r.copy()


@dataclass(frozen=True, kw_only=True)
class Root(Relation, kind="root"):
    """One rank for all: 0, -1 (the last), "half", or any other."""

    rank: Place

    @classmethod
    def for_everybody(cls, pairs: Sequence[Pairs]) -> Tried:
        yield from ((1.0, cls(rank=rank)) for rank in (0, -1))
        same = {int(q) for p in pairs for q in p.peer}
        if len(same) == 1:
            yield 1.0, cls(rank=same.pop())
        yield 1.3, cls(rank="half")

    def to(self, g: GridAt) -> np.ndarray:
        rank = int(index_of(self.rank, g.n, g))
        return np.full(g.size, rank if 0 <= rank < g.n else -1, dtype=np.int64)

    def text(self) -> str:
        return "rank " + {"half": "n//2", -1: "n-1"}.get(self.rank, str(self.rank))


@dataclass(frozen=True, kw_only=True)
class PlaceOn(Relation, kind="place"):
    """One place of the axis for all on it."""

    axis: Axis = along()
    rank: Place

    @classmethod
    def on_line(cls, axis: Axis, ndims: int) -> Tried:
        if axis is not None:
            yield from ((1.0, cls(axis=axis, rank=k)) for k in (0, -1))
            yield 1.3, cls(axis=axis, rank="half")
        if isinstance(axis, int):
            yield from ((1.2, cls(axis=axis, rank=f"c{d}")) for d in range(ndims) if d != axis)

    def to(self, g: GridAt) -> np.ndarray:
        ln = line(self.axis, g)
        return ln.ranks(index_of(self.rank, ln.p, g))

    def text(self) -> str:
        return f"place {place_text(self.rank)}{describe_axis(self.axis)}"


@dataclass(frozen=True, kw_only=True)
class Skew(Relation, kind="skew"):
    """c plus or minus own coordinate ``of``, periodic."""

    words = "c {plus} c{of} mod p{on}"
    axis: Axis = along()
    of: int
    sign: int

    @classmethod
    def on_line(cls, axis: Axis, ndims: int) -> Tried:
        if isinstance(axis, int):
            for d in range(ndims):
                if d != axis:
                    yield from ((1.4, cls(axis=axis, of=d, sign=sign)) for sign in (1, -1))

    def to(self, g: GridAt) -> np.ndarray:
        ln = line(self.axis, g)
        return ln.ranks((ln.c + self.sign * g.coords[self.of]) % np.maximum(ln.p, 1))


@dataclass(frozen=True, kw_only=True)
class Mirror(Relation, kind="mirror"):
    """p - 1 - c."""

    axis: Axis = along()

    @classmethod
    def on_grid(cls, ndims: int) -> Tried:
        yield 1.2, cls()

    @classmethod
    def on_line(cls, axis: Axis, ndims: int) -> Tried:
        if ndims > 1 or axis is not None:
            yield 1.1, cls(axis=axis)

    def to(self, g: GridAt) -> np.ndarray:
        ln = line(self.axis, g)
        return ln.ranks(ln.p - 1 - ln.c)

    def formula(self) -> list[Coordinate]:
        if self.axis is not None and not isinstance(self.axis, int):
            return []
        place, extent = coordinate(self.axis)
        return [(add(extent, num(-1), mul(num(-1), place)), None)]

    def text(self) -> str:
        return f"p - 1 - c{describe_axis(self.axis)}" if self.axis is not None else "n - 1 - r"


@dataclass(frozen=True, kw_only=True)
class Along(Relation, kind="along"):
    """c + by."""

    words = "c {by:+d}{mod}{on}"
    axis: Axis = along()
    by: int
    wrap: bool

    @classmethod
    def on_line(cls, axis: Axis, ndims: int) -> Tried:
        if not isinstance(axis, int) and (ndims > 1 or axis is not None):
            for by in (1, -1):
                yield from ((1.0, cls(axis=axis, by=by, wrap=w)) for w in (False, True))

    def to(self, g: GridAt) -> np.ndarray:
        ln = line(self.axis, g)
        to = ln.c + self.by
        return ln.ranks(to % np.maximum(ln.p, 1) if self.wrap else to)

    def formula(self) -> list[Coordinate]:
        return shift_coordinate(self.axis, num(self.by), self.wrap)


@dataclass(frozen=True, kw_only=True)
class Opposite(Relation, kind="opposite"):
    """(r + n // 2) mod n."""

    words = "(r + n//2) mod n"

    @classmethod
    def on_grid(cls, ndims: int) -> Tried:
        yield 1.1, cls()

    def to(self, g: GridAt) -> np.ndarray:
        return np.asarray((g.r + g.n // 2) % g.n)

    def formula(self) -> list[Coordinate]:
        return shift_coordinate(None, ["quot", sym("n"), num(2)], True)


@dataclass(frozen=True, kw_only=True)
class Transpose(Relation, kind="transpose"):
    """Coordinates of two dimensions exchanged; of extents 2:1, pairs of ranks are."""

    axes: tuple[int, int] = (0, 1)

    @classmethod
    def on_grid(cls, ndims: int) -> Tried:
        yield from ((1.2, cls(axes=axes)) for axes in combinations(range(ndims), 2))

    def to(self, g: GridAt) -> np.ndarray:
        a, b = self.axes
        rows, cols = g.dims[a], g.dims[b]
        i, j = g.coords[a], g.coords[b]
        to = g.coords.copy()
        out = np.full(g.size, -1, dtype=np.int64)
        if rows == cols:
            to[a], to[b] = j, i
        elif cols == 2 * rows:
            to[a], to[b] = j // 2, 2 * i + j % 2
        elif rows == 2 * cols:
            to[a], to[b] = 2 * j + i % 2, i // 2
        else:
            return out
        out[g.inside] = g.rank_at(to[:, g.inside])
        return out

    def text(self) -> str:
        return "transpose of dimensions " + ",".join(map(str, self.axes))


@dataclass(frozen=True, kw_only=True)
class Modulo(Relation, kind="modulo"):
    """r mod k."""

    words = "rank r mod {k}"
    k: int

    @classmethod
    def read_off(cls, pairs: Sequence[Pairs]) -> Tried:
        tops = {int(p.peer.max()) for p in pairs}
        if (
            len(tops) == 1
            and (top := tops.pop()) + 1 < pairs[-1].grid.n
            and all((p.peer < p.rank).all() for p in pairs)
        ):
            yield 1.6, cls(k=top + 1)

    def to(self, g: GridAt) -> np.ndarray:
        return np.asarray(g.r % self.k)
