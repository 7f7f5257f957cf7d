"""What an atom of a guard is: one condition on ranks. Their kinds are in atoms.py.

In files an atom is a list, its name and then its numbers; most kinds have a second name for the
opposite.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from itertools import combinations, groupby
from typing import Any, ClassVar, Self

import numpy as np

from p3s.base.errors import P3SError
from p3s.model.grid.at import GridAt
from p3s.model.registry import Rule, plain

#: What an atom depends on: the rank alone, the stage, the partner, more.
RANK, STAGE, PARTNER, MORE = "rank", "stage", "partner", "more"
#: Atoms up to this cost speak of places on the grid; dearer ones of numbers. Above the second a
#: guard is no obvious one, and less usual ones are tried.
GEOMETRIC, DEAR = 1.7, 2.2
Peers = np.ndarray | None


@dataclass(frozen=True)
class Atom(Rule, what="guard"):
    """A condition that holds for some ranks; ``negated``: for the others.

    A kind says by these what it is (methods where that is not enough):

    reads: what it depends on. ndims: of how many dimensions it speaks, its first fields.
    tried: what else its fields are in proposals; numbered: tried with numbers of ranks, too.
    price: its cost, and that of the opposite: geometric ones least, remainders and numbers most.
    words: how both read ({c}, {p}: coordinate and extent).
    """

    kinds: ClassVar[dict[str, tuple[type[Atom], bool]]] = {}
    reads: ClassVar[str] = RANK
    ndims: ClassVar[int] = 0
    opposite: ClassVar[str] = ""
    tried: ClassVar[Sequence[tuple[Any, ...]]] = ()
    numbered: ClassVar[bool] = False
    price: ClassVar[tuple[float, float]] = (1.0, 1.0)
    words: ClassVar[tuple[str, ...]] = ()
    negated: bool = field(default=False, kw_only=True)

    def __init_subclass__(cls, *, kind: str = "", opposite: str = "", **more: Any) -> None:
        super().__init_subclass__(kind=kind, **more)
        cls.opposite = opposite or cls.opposite
        for name, negated in ((kind, False), (opposite, True)):
            if name:
                cls.kinds[name] = (cls, negated)

    @classmethod
    def proposed(cls, ndims: int, *dims: int) -> Iterator[Atom]:
        """Yield the atoms that are tried on grids of ``ndims`` dimensions, of these dimensions."""
        for values in cls.tried:
            yield from cls.both(*dims, *values)

    @classmethod
    def both(cls, *values: Any) -> Iterator[Atom]:
        """Yield an atom, and its opposite where that has a name."""
        yield cls(*values)
        if cls.opposite:
            yield cls(*values, negated=True)

    def tells(self, grids: Sequence[GridAt]) -> bool:
        """Return whether the atom can be meant on any of the grids."""
        return True

    def holds(self, g: GridAt, peers: Peers = None) -> np.ndarray:
        """Return a bool array over ranks; ``peers`` are their partners (-1 outside the grid)."""
        hit = np.asarray(self.hit(g, peers))
        return ~hit if self.negated else hit

    def hit(self, g: GridAt, peers: Peers) -> Any:
        """Return the same of an atom that is not negated."""
        raise NotImplementedError

    @property
    def cost(self) -> float:
        """What the atom costs."""
        return self.price[self.negated]

    @property
    def bits(self) -> float:
        """How many bits it takes to name it; geometric atoms come to mind first."""
        return 2.5 if self.cost <= 1.2 else 4.5 if self.cost <= GEOMETRIC else 7.0

    def text(self) -> str:
        """Return the atom for people."""
        return self.words[self.negated].format(**vars(self))

    def to_json(self) -> list[Any]:
        """Return the atom as plain data."""
        values = [plain(getattr(self, f.name)) for f in fields(self) if f.name != "negated"]
        return [self.opposite if self.negated else self.kind, *values]

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Return the atom of :meth:`to_json` data. Raises P3SError where it cannot be one."""
        name = data[0] if isinstance(data, (list, tuple)) and data else None
        if not isinstance(name, str) or name not in cls.kinds:
            raise cls.unknown(name)
        made, negated = cls.kinds[name]
        try:
            return made.read(data[1:], negated)  # type: ignore[return-value]
        except (TypeError, ValueError, IndexError):
            raise P3SError(f"model: a guard ({name}) is malformed; run `p3s model` again") from None

    @classmethod
    def read(cls, values: Sequence[Any], negated: bool) -> Atom:
        """Return the atom of what a file has after its name. Raises TypeError, ValueError."""
        return cls(*map(int, values), negated=negated)


@dataclass(frozen=True)
class Guard:
    """The ranks for which all atoms hold; none: all ranks."""

    atoms: tuple[Atom, ...] = ()

    def __len__(self) -> int:
        return len(self.atoms)

    def __add__(self, other: Guard) -> Guard:
        return Guard(self.atoms + other.atoms)

    def holds(self, g: GridAt, peers: Peers = None) -> np.ndarray:
        """Return the conjunction of the atoms over all ranks."""
        mask = np.ones(g.size, dtype=bool)
        for atom in self.atoms:
            mask &= atom.holds(g, peers)
        return mask

    @property
    def cost(self) -> float:
        """The cost of the conjunction."""
        return sum(a.cost for a in self.atoms) + 0.2 * max(len(self.atoms) - 1, 0)

    @property
    def bits(self) -> float:
        """How many bits it takes to name all atoms."""
        return sum(a.bits for a in self.atoms)

    def text(self) -> str:
        """Return the guard for people."""
        return " and ".join(a.text() for a in self.atoms) or "all"

    def to_json(self) -> list[list[Any]]:
        """Return the guard as plain data."""
        return [a.to_json() for a in self.atoms]

    @staticmethod
    def from_json(data: Sequence[Any]) -> Guard:
        """Return the guard of :meth:`to_json` data."""
        return Guard(tuple(map(Atom.load, data)))


def proposed(reads: str, ndims: int) -> list[Atom]:
    """Return the atoms that are tried on grids of so many dimensions, in the order of their kinds.

    Of neighbours in that order that speak of as many dimensions, each dimension has its turn.
    """
    kinds = [c for c, opposite in Atom.kinds.values() if c.reads == reads and not opposite]
    return [
        atom
        for many, alike in groupby(kinds, key=lambda c: c.ndims)
        for of in [list(alike)]
        for dims in combinations(range(ndims), many)
        for kind in of
        for atom in kind.proposed(ndims, *dims)
    ]
