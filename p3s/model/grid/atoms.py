"""Kinds of atoms of guards: on the rank, its coordinates, the stage, the partner, other atoms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from p3s.base.errors import P3SError
from p3s.model.grid.at import MORE, PARTNER, STAGE, Atom, GridAt, Guard, Peers, low_power

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
class CoordinateOrder(OfTwo, kind="less"):
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


#: Whose digits a condition is on: the rank's, all coordinates'; else those of a dimension.
_RANK, _ALL = -1, -2


@dataclass(frozen=True)
class Stage(Atom, kind="stage", opposite="notstage"):
    """The first stage (k is 0) or the last one (-1)."""

    k: int
    reads = STAGE
    tried = ((0,), (-1,))
    price = (1.3, 1.3)

    def hit(self, g: GridAt, peers: Peers) -> Any:
        return np.full(g.size, g.stage == (0 if self.k == 0 else g.stages - 1))

    def text(self) -> str:
        which = "first stage" if self.k == 0 else "last stage"
        return f"not the {which}" if self.negated else which


@dataclass(frozen=True)
class Early(Atom, kind="early", opposite="late"):
    """The first half of the stages, the middle one of an odd number with it where k is 1."""

    k: int
    reads = STAGE
    tried = ((0,), (1,))
    price = (1.5, 1.5)
    words = ("first half of the stages", "second half of the stages")

    def hit(self, g: GridAt, peers: Peers) -> Any:
        return np.full(g.size, g.stage < (g.stages + self.k) // 2)


@dataclass(frozen=True)
class OfDigits(Atom):
    """A condition on digits of the rank (d is -1), of all coordinates (-2), of a dimension's."""

    d: int
    k: int
    reads = STAGE

    @classmethod
    def proposed(cls, ndims: int, *dims: int) -> Iterator[Atom]:
        for d in (_RANK, *((_ALL, *range(ndims)) if ndims > 1 else ())):
            yield from (cls(d, k) for k in (0, 1) if cls.known(d))

    @classmethod
    def known(cls, d: int) -> bool:
        """Return whether the condition is defined for d."""
        return True

    def name(self) -> str:
        """Return whose digits these are, for people."""
        return {_RANK: "r", _ALL: "all c"}.get(self.d, f"c{self.d}")


@dataclass(frozen=True)
class StageMultiple(OfDigits, kind="smod"):
    """Multiples of 2**(s + k)."""

    price = (1.3, 1.3)

    def hit(self, g: GridAt, peers: Peers) -> Any:
        step = 1 << min(g.stage + self.k, 62)
        if self.d == _ALL:
            return (g.coords % step == 0).all(axis=0)
        return (g.r if self.d == _RANK else g.coords[self.d]) % step == 0

    def text(self) -> str:
        return f"{self.name()} mod 2**(s+{self.k}) == 0"


@dataclass(frozen=True)
class StageBit(OfDigits, kind="sbit"):
    """Bit s is k."""

    price = (1.4, 1.4)

    @classmethod
    def known(cls, d: int) -> bool:
        return d != _ALL

    def hit(self, g: GridAt, peers: Peers) -> Any:
        return ((g.r if self.d == _RANK else g.coords[self.d]) >> g.stage) & 1 == self.k

    def text(self) -> str:
        return f"bit s of {self.name()} == {self.k}"


# ---- the partner -------------------------------------------------------------------------------
@dataclass(frozen=True)
class OfPeers(Atom):
    """A condition on the number of the partner; where there are none it holds."""

    reads = PARTNER

    def hit(self, g: GridAt, peers: Peers) -> Any:
        return np.ones(g.size, dtype=bool) if peers is None else self.meets(peers, g.r)

    def meets(self, peers: np.ndarray, ranks: np.ndarray) -> Any:
        raise NotImplementedError


@dataclass(frozen=True)
class HasPartner(OfPeers, kind="peer"):
    """The partner lies inside the grid: what all guards of messages begin with."""

    price = (0.0, 0.0)
    words = ("partner in grid",)

    def meets(self, peers: np.ndarray, ranks: np.ndarray) -> Any:
        return peers >= 0


@dataclass(frozen=True)
class NotSelf(OfPeers, kind="notself"):
    """The partner is another rank."""

    tried = ((),)
    bits = 1.0
    words = ("partner != self",)

    def meets(self, peers: np.ndarray, ranks: np.ndarray) -> Any:
        return peers != ranks


@dataclass(frozen=True)
class Down(OfPeers, kind="down"):
    """The partner is a lower rank."""

    tried = ((),)
    price = (1.1, 1.1)
    words = ("partner < r",)

    def meets(self, peers: np.ndarray, ranks: np.ndarray) -> Any:
        return peers < ranks


@dataclass(frozen=True)
class Up(OfPeers, kind="up"):
    """The partner is a higher rank."""

    tried = ((),)
    price = (1.1, 1.1)
    words = ("partner > r",)

    def meets(self, peers: np.ndarray, ranks: np.ndarray) -> Any:
        return peers > ranks


# ---- conditions on conditions ------------------------------------------------------------------
@dataclass(frozen=True)
class ForPartner(Atom, kind="partner"):
    """A condition that the partner meets."""

    atom: Atom
    reads = MORE

    def hit(self, g: GridAt, peers: Peers) -> Any:
        there = np.zeros(g.size, dtype=bool)
        if peers is not None:
            there[peers >= 0] = self.atom.holds(g.only(peers[peers >= 0]))
        return there

    @property
    def cost(self) -> float:
        return 0.4 + self.atom.cost

    @property
    def bits(self) -> float:
        return 1.0 + self.atom.bits

    def text(self) -> str:
        return f"partner's {self.atom.text()}"

    @classmethod
    def read(cls, values: Sequence[Any], negated: bool) -> Atom:
        return cls(Atom.from_json(values[0]))


@dataclass(frozen=True)
class Negation(Atom, kind="not"):
    """The ranks for which a conjunction does not hold."""

    inner: Guard
    reads = MORE

    def hit(self, g: GridAt, peers: Peers) -> Any:
        return ~self.inner.holds(g, peers)

    @property
    def cost(self) -> float:
        return 0.4 + self.inner.cost

    @property
    def bits(self) -> float:
        return 1.0 + self.inner.bits

    def text(self) -> str:
        return f"not ({self.inner.text()})"

    def to_json(self) -> list[Any]:
        return [self.kind, *self.inner.to_json()]

    @classmethod
    def read(cls, values: Sequence[Any], negated: bool) -> Atom:
        return cls(Guard(tuple(map(Atom.from_json, values))))
