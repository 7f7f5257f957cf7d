"""Guards as Python conditions on rank, coordinates, partner and stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from p3s.errors import P3SError
from p3s.model.grid.guards import Guard


class NotExpressible(P3SError):
    """A rule that has no plain Python form; the text says which."""


def condition(
    guard: Sequence[Sequence[Any]], ndims: int, alone: bool, part: bool = False
) -> tuple[str, set[str]]:
    """Return a conjunction as a Python condition, and the coordinates and extents it uses.

    alone: the call has no partner, so conditions on one hold; part: some ranks are not on the
    grid (their coordinates are -1), and no condition on places holds for them. The condition is
    of ``rank``, ``n``, ``partner``, ``step`` and ``stages`` (the list of partners); empty: always.
    """
    names = _Names(ndims, alone, part, set())
    try:
        found = Guard.load(guard).python(names)
    except P3SError:  # of another version
        found = None
    if found is None:
        raise NotExpressible("which ranks take part has no plain Python form in this version")
    return found, names.used


class _Names:
    rank = "rank"

    def __init__(self, ndims: int, alone: bool, part: bool, used: set[str]) -> None:
        self.ndims, self.alone, self.part, self.used = ndims, alone, part, used

    def coordinate(self, d: int) -> str:
        self.used.add(f"c{d}")
        return f"c{d}"

    def extent(self, d: int) -> str:
        self.used.add(f"p{d}")
        return f"p{d}"

    def of_partner(self) -> _Names:
        return _OfPartner(self.ndims, True, self.part, self.used)


class _OfPartner(_Names):
    rank = "partner"

    def coordinate(self, d: int) -> str:
        return f"GRID.coordinates(partner, n)[{d}]"
