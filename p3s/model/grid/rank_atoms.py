"""Kinds of atoms on the rank and its coordinates.

They are tried in the order of this file, which decides among equally cheap ones. A new kind is one
more class, here or anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from p3s.base.errors import P3SError
from p3s.model.grid.at import GridAt, low_power
from p3s.model.grid.atom import Atom, Peers

#: Below this extent the lower half is the border and the upper one all else.
_HALVES = 4


@dataclass(frozen=True)
class Rank(Atom, kind="rank", opposite="notrank"):
    """r == 0, r == n - 1 (k is -1), or another rank."""

    k: int
    tried = ((0,), (-1,))
    numbered = True

    def hit(self, g: GridAt, peers: Peers) -> Any:
        return g.r == (self.k if self.k >= 0 else g.n + self.k)

    @property
    def cost(self) -> float:
        return 1.0 if self.k in (0, -1) else 2.2

    def text(self) -> str:
        return f"r {'!=' if self.negated else '=='} {self.k if self.k >= 0 else 'n-1'}"


@dataclass(frozen=True)
class OnGrid(Atom, kind="ingrid", opposite="outgrid"):
    """The rank is on the grid."""

    tried = ((),)
    words = ("on the grid", "not on the grid")

    def hit(self, g: GridAt, peers: Peers) -> Any:
        return g.inside


# ---- coordinates -------------------------------------------------------------------------------
@dataclass(frozen=True)
class OfPlace(Atom):
    """A condition on coordinates, which no rank off the grid meets."""

    tried: ClassVar[Sequence[tuple[Any, ...]]] = ((),)

    def holds(self, g: GridAt, peers: Peers = None) -> np.ndarray:
        hit, inside = super().holds(g, peers), g.inside
        return hit if not len(g.dims) or inside.all() else hit & inside


@dataclass(frozen=True)
class OfOne(OfPlace):
    """A condition on the coordinate c and the extent p of dimension d."""

    d: int
    ndims = 1

    def hit(self, g: GridAt, peers: Peers) -> Any:
        return self.at(g.coords[self.d], g.dims[self.d])

    def at(self, c: np.ndarray, p: int) -> Any:
        raise NotImplementedError


@dataclass(frozen=True)
class OfTwo(OfPlace):
    """A condition on the coordinates of dimensions a and b."""

    a: int
    b: int
    ndims = 2

    def hit(self, g: GridAt, peers: Peers) -> Any:
        return self.at(g.coords[self.a], g.coords[self.b], g.dims[self.a])

    def at(self, a: np.ndarray, b: np.ndarray, p: int) -> Any:
        raise NotImplementedError


@dataclass(frozen=True)
class First(OfOne, kind="first", opposite="notfirst"):
    """The rank is the first in a dimension."""

    words = ("c{d} == 0", "c{d} != 0")

    def at(self, c: np.ndarray, p: int) -> Any:
        return c == 0


@dataclass(frozen=True)
class Last(OfOne, kind="last", opposite="notlast"):
    """The rank is the last in a dimension."""

    words = ("c{d} == p{d}-1", "c{d} != p{d}-1")

    def at(self, c: np.ndarray, p: int) -> Any:
        return c == p - 1


@dataclass(frozen=True)
class Wide(OfOne, kind="wide"):
    """The grid has more than k ranks in a dimension."""

    k: int
    tried = ((1,), (2,))
    price = (1.2, 1.2)
    bits = 1.0
    words = ("p{d} > {k}",)

    def at(self, c: np.ndarray, p: int) -> Any:
        return np.full(c.shape, p > self.k)


@dataclass(frozen=True)
class Diagonal(OfTwo, kind="diag", opposite="offdiag"):
    """Two coordinates are equal."""

    price = (1.4, 1.2)
    words = ("c{a} == c{b}", "c{a} != c{b}")

    def at(self, a: np.ndarray, b: np.ndarray, p: int) -> Any:
        return a == b


@dataclass(frozen=True)
class Parity(OfPlace, kind="parity"):
    """The sum of all coordinates is even (k is 0) or odd (1)."""

    k: int
    tried = ((0,), (1,))
    price = (1.4, 1.4)
    words = ("sum of c mod 2 == {k}",)

    def hit(self, g: GridAt, peers: Peers) -> Any:
        return g.coords.sum(axis=0) % 2 == self.k


@dataclass(frozen=True)
class Mod(OfOne, kind="mod"):
    """Every m-th coordinate of a dimension."""

    m: int
    k: int
    tried = tuple((m, k) for m in (2, 4, 8) for k in range(m))
    words = ("c{d} mod {m} == {k}",)

    def at(self, c: np.ndarray, p: int) -> Any:
        return c % self.m == self.k

    @property
    def cost(self) -> float:
        return 2.0 + self.m / 8 if self.m > 2 else 1.5


@dataclass(frozen=True)
class Half(OfOne, kind="lower", opposite="upper"):
    """The rank is in the lower half of a dimension."""

    price = (1.5, 1.5)
    words = ("c{d} < p{d}//2", "c{d} >= p{d}//2")

    def tells(self, grids: Sequence[GridAt]) -> bool:
        return max(g.dims[self.d] for g in grids) >= _HALVES

    def at(self, c: np.ndarray, p: int) -> Any:
        return c < p // 2


@dataclass(frozen=True)
class Middle(OfOne, kind="mid", opposite="notmid"):
    """The rank is in the middle of a dimension."""

    price = (1.6, 1.6)
    words = ("c{d} == p{d}//2", "c{d} != p{d}//2")

    def at(self, c: np.ndarray, p: int) -> Any:
        return c == p // 2


@dataclass(frozen=True)
class Less(OfTwo, kind="less"):
    """One coordinate is less than another."""

    price = (1.5, 1.5)
    words = ("c{a} < c{b}",)

    @classmethod
    def proposed(cls, ndims: int, *dims: int) -> Iterator[Atom]:
        yield from (cls(*dims), cls(*dims[::-1]))

    def at(self, a: np.ndarray, b: np.ndarray, p: int) -> Any:
        return a < b


@dataclass(frozen=True)
class Anti(OfTwo, kind="anti"):
    """The rank is on the other diagonal of two dimensions."""

    price = (1.6, 1.6)
    words = ("c{a} + c{b} == p{a}-1",)

    def at(self, a: np.ndarray, b: np.ndarray, p: int) -> Any:
        return a + b == p - 1


# ---- numbers of ranks --------------------------------------------------------------------------
@dataclass(frozen=True)
class Below(Atom, kind="below", opposite="from"):
    """The rank is below a number, or a law of n: half of n, what pairs cover, powers of two."""

    bound: int | str
    tried = (("half",), ("pairs",), ("power",), ("rest",), ("folded",))
    numbered = True

    def hit(self, g: GridAt, peers: Peers) -> Any:
        if isinstance(self.bound, int):
            return g.r < self.bound
        n, low = g.n, low_power(g.n)
        half, rest = n // 2, n - low
        laws = {"half": half, "pairs": half * 2, "power": low, "rest": rest, "folded": 2 * rest}
        return g.r < laws[self.bound]

    @property
    def cost(self) -> float:
        return 2.0 + min(self.bound, 16) / 16 if isinstance(self.bound, int) else 1.7

    def text(self) -> str:
        low = "2**floor(log2 n)"
        laws = {"half": "n//2", "pairs": "2*(n//2)", "power": low, "rest": f"n - {low}"}
        laws["folded"] = f"2*(n - {low})"
        return f"r {'>=' if self.negated else '<'} {laws.get(str(self.bound), self.bound)}"

    @classmethod
    def read(cls, values: Sequence[Any], negated: bool) -> Atom:
        if not isinstance(values[0], str):
            return super().read(values, negated)
        if (values[0],) not in cls.tried:
            made = "the file was made by another version"
            raise P3SError(f"model: unknown bound {values[0]!r}; {made}")
        return cls(values[0], negated=negated)


@dataclass(frozen=True)
class RankMod(Atom, kind="rankmod", opposite="notrankmod"):
    """Every m-th rank."""

    m: int
    k: int
    words = ("r mod {m} == {k}", "r mod {m} != {k}")

    @classmethod
    def proposed(cls, ndims: int, *dims: int) -> Iterator[Atom]:
        for negated in (False, True):  # of two, one is the opposite of the other
            for m in range(2 + negated, 9):
                yield from (cls(m, k, negated=negated) for k in range(m))

    def hit(self, g: GridAt, peers: Peers) -> Any:
        return g.r % self.m == self.k

    @property
    def cost(self) -> float:
        return 2.0 + self.m / 16


@dataclass(frozen=True)
class Above(Atom, kind="above"):
    """Only at more than k processes."""

    k: int
    words = ("n > {k}",)

    def hit(self, g: GridAt, peers: Peers) -> Any:
        return np.full(g.size, g.n > self.k)
