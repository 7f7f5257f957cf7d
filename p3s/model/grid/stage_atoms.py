"""Kinds of atoms on the stage of a relation, the partner, other atoms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from p3s.model.grid.at import GridAt
from p3s.model.grid.atom import MORE, PARTNER, STAGE, Atom, Guard, Peers

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


@dataclass(frozen=True)
class Within(Atom, kind="within", opposite="beyond"):
    """The rank is below 2**(s + k)."""

    k: int
    reads = STAGE
    tried = ((0,), (1,))
    price = (1.5, 1.5)
    words = ("r < 2**(s+{k})", "r >= 2**(s+{k})")

    def hit(self, g: GridAt, peers: Peers) -> Any:
        return g.r < 1 << min(g.stage + self.k, 62)


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
class Not(Atom, kind="not"):
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
