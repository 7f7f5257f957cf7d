"""Which cells of a multi-partition a rank has: settled by all slots of the program together.

A cell has three coordinates, each the sum of the rank's coordinates and of plus or minus the
number of the cell along its diagonal. One slot seldom tells the arrangement; what fits at one
slot votes, and the arrangement that fits most slots of the program wins.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from p3s.laws.expr import Expr

#: (slope, coefficients of the rank's coordinates, offset) of one coordinate of a cell.
Coordinate = tuple[int, tuple[int, ...], int]
Key = Hashable


def arrangement(kind: str, coords: Sequence[Coordinate]) -> Key:
    """Return what is common to all ways of numbering the cells of one arrangement."""
    forms = []
    for flip in (1, -1):
        hats = [(flip * s, tuple(flip * s * k for k in a), flip * s * o) for s, a, o in coords]
        for _, base, offset in hats:
            forms.append(
                tuple(
                    sorted(
                        (s, tuple(x - y for x, y in zip(a, base, strict=True)), o - offset)
                        for s, a, o in hats
                    )
                )
            )
    return kind, min(forms)


def with_third(
    kind: str, one: Coordinate, two: Coordinate, third: Sequence[Coordinate]
) -> frozenset[Key]:
    """Return the arrangements in which two coordinates are given and the third is one of some."""
    return frozenset(arrangement(kind, [one, two, x]) for x in third)


def swept(dims: int) -> list[Coordinate]:
    """Return what the coordinate along a sweep may be: the iteration, from either end, one
    later."""
    return [(s, (0,) * dims, o - (s < 0)) for s, o in product((1, -1), (0, 1, -1))]


@dataclass(frozen=True)
class Candidate:
    """An equation that fits one slot, the extents in it, and the arrangements it goes with.

    cost: how involved it is; surprise: how uncommon its way of cutting is, which makes it no less
    of a rival; rivals: other cuts of its extents that fit; scalar: what multiplies the blocks.
    """

    cost: float
    surprise: float
    expr: Expr
    extents: tuple[int, ...]
    kind: str
    keys: frozenset[Key] = frozenset()
    rivals: tuple[tuple[str, str, int, str, int], ...] = ()
    scalar: Expr | None = None


@dataclass
class Votes:
    """How many different slots of the program each arrangement fits."""

    votes: dict[Key, int] = field(default_factory=dict)
    heard: set[bytes] = field(default_factory=set)

    def hear(self, slot: bytes, candidates: Sequence[Candidate]) -> None:
        """Count a slot's arrangements, once."""
        if slot in self.heard:
            return
        self.heard.add(slot)
        for key in frozenset().union(*(c.keys for c in candidates)):
            self.votes[key] = self.votes.get(key, 0) + 1

    def best(self, candidates: Sequence[Candidate], uses: Mapping[int, int]) -> list[Candidate]:
        """Return the candidates of the arrangement that fits most slots, simplest first.

        uses: how often each extent was found elsewhere in the program.
        """
        top = max(uses.values(), default=1)

        def cost(c: Candidate) -> float:
            known = sum(uses.get(e, 0) / top for e in c.extents) / max(len(c.extents), 1)
            return c.cost + c.surprise - 3 * known

        def support(c: Candidate) -> int:
            return max((self.votes.get(k, 0) for k in c.keys), default=0)

        most = max(map(support, candidates))
        return sorted((c for c in candidates if support(c) == most), key=cost)
