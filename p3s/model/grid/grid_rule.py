"""What a rule of process grids is: which extents a program gives its grid at each count.

Kinds are in grids.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from p3s.model.grid.at import GridAt, low_power
from p3s.model.registry import Rule, plain

LAYOUTS = ("row", "column", "reverse")
_LAYOUT_TEXTS = {"row": "", "column": ", column-major", "reverse": ", last rank first"}
#: Which ranks form a grid that leaves ranks out, with its text.
PARTS = {
    "": "",
    "last": ", the last rank apart",
    "first": ", the first rank apart",
    "root": ", of the largest such number of ranks",
    "power": ", of the largest power of two of the ranks",
}


@dataclass(frozen=True)
class GridRule(Rule, what="process grid"):
    """A rule from process count to grid extents and to the order of the ranks on the grid.

    order, extent, rest, listed: what a kind makes of them. layout: row-major, column-major,
    row-major from the last rank down (reverse), or the dimensions from the slowest to the fastest
    ("102"). part: which ranks form the grid: all (empty), all but the last or the first one (last,
    first), the first of a number that the rule admits: the largest square, cube, ... (root) or
    power of two (power).
    """

    kinds: ClassVar[dict[str, type[GridRule]]]
    #: What it costs more than the extents of other kinds.
    price: ClassVar[float] = 0.0

    ndims: int
    order: tuple[int, ...] = ()
    extent: int = 0
    rest: str = "balanced"
    layout: str = "row"
    part: str = ""
    listed: tuple[tuple[int, tuple[int, ...]], ...] = ()

    @classmethod
    def proposed(cls, ndims: int) -> Iterator[GridRule]:
        """Yield the rules that are tried with so many dimensions."""
        yield from ()

    @classmethod
    def of_divisors(cls, divisors: Sequence[int]) -> Iterator[GridRule]:
        """Yield the rules that are tried for common divisors of the counts, after all others."""
        yield from ()

    @classmethod
    def in_part(cls, ndims: int, part: str) -> Iterator[GridRule]:
        """Yield the rules that are tried for grids that leave ranks out."""
        yield from ()

    def extents(self, n: int) -> tuple[int, ...] | None:
        """Return the extents of a grid of ``n`` ranks, or None where the rule has none."""
        raise NotImplementedError

    def cost(self) -> float:
        """Return what the rule costs more than a simple one, in relations."""
        return self.price

    def words(self) -> str:
        """Return the rule of the extents for people."""
        raise NotImplementedError

    def members(self, n: int) -> tuple[int, int]:
        """Return the first rank of the grid and how many ranks it has."""
        if self.part == "root":
            k = int(n ** (1 / self.ndims) + 1e-9)
            return 0, k**self.ndims
        if self.part == "power":
            return 0, low_power(n)
        return (int(self.part == "first"), n - 1) if self.part else (0, n)

    def dims(self, n: int) -> tuple[int, ...] | None:
        """Return the extents at ``n`` processes, or None where the rule does not admit ``n``.

        One process has one place, whatever the rule says of several.
        """
        n = self.members(n)[1]
        if n < 1:
            return None
        if n == 1 and not self.part:
            return (1,) * self.ndims
        return self.extents(n)

    def coordinates(self, n: int, dims: tuple[int, ...]) -> np.ndarray:
        """Return the coordinates of all ranks, (ndims, n)."""
        if self.layout == "reverse":
            return coords_of(dims, n)[:, ::-1]
        slow_first = dimensions(self.layout, self.ndims)
        coords = np.empty((len(dims), n), dtype=np.int64)
        coords[list(slow_first)] = coords_of(tuple(dims[d] for d in slow_first), n)
        return coords

    def arrangement(self) -> str:
        """Return what tells orders of the ranks on the same extents apart."""
        return self.part or self.layout

    def at(self, n: int) -> GridAt | None:
        """Return the grid at ``n`` processes, or None where the rule does not admit ``n``."""
        dims = self.dims(n)
        return None if dims is None else self.of(n, dims)

    def of(self, n: int, dims: tuple[int, ...]) -> GridAt:
        """Return the grid of ``n`` processes with extents that the rule may not give it.

        ``n`` has room for them and for the ranks that this kind of grid leaves out.
        """
        how = self.arrangement()
        if self.part:
            first, m = int(self.part == "first"), int(np.prod(dims))
            coords = np.full((len(dims), n), -1, dtype=np.int64)
            coords[:, first : first + m] = coords_of(dims, m)
            return GridAt(n, dims, coords, np.arange(first, first + m), layout=how)
        coords = self.coordinates(n, dims)
        if how == "row":
            return GridAt(n, dims, coords)
        order = np.empty(n, dtype=np.int64)
        order[np.ravel_multi_index(tuple(coords), dims)] = np.arange(n)
        return GridAt(n, dims, coords, order, layout=how)

    def to_json(self) -> dict[str, Any]:
        """Return the rule as plain data."""
        out: dict[str, Any] = {"kind": self.kind, "ndims": self.ndims}
        own = {name: plain(value) for name, value in self.own().items()}
        out.update(order=list(self.order), extent=self.extent, **own)
        if self.layout != "row":
            out["layout"] = self.layout
        if self.part:
            out["part"] = self.part
        return out

    def own(self) -> dict[str, Any]:
        """Return what files name of this kind only."""
        return {}

    @classmethod
    def named(cls, kind: str, ndims: int, *more: Any, **named: Any) -> GridRule:
        """Return the rule of a kind that is given by name."""
        if kind not in cls.kinds:
            raise cls.unknown(kind)
        return cls.kinds[kind](ndims, *more, **named)

    def text(self) -> str:
        """Return a short description for people."""
        order = _LAYOUT_TEXTS.get(
            self.layout, f", dimension {self.layout[-1]} fastest, {self.layout[0]} slowest"
        )
        return self.words() + order + PARTS[self.part]


def dimensions(layout: str, ndims: int) -> tuple[int, ...]:
    """Return the dimensions from the slowest to the fastest of a layout other than reverse."""
    if layout in ("row", "column"):
        return tuple(range(ndims)) if layout == "row" else tuple(range(ndims))[::-1]
    return tuple(map(int, layout))


def layout_of(slow_first: Sequence[int]) -> str:
    """Return the layout in which the dimensions run from the slowest to the fastest."""
    names = {tuple(range(len(slow_first))): "row", tuple(range(len(slow_first)))[::-1]: "column"}
    return names.get(tuple(slow_first), "".join(map(str, slow_first)))


def coords_of(dims: tuple[int, ...], n: int) -> np.ndarray:
    """Return the row-major coordinates of ranks 0..n-1, shape (ndims, n)."""
    return np.array(np.unravel_index(np.arange(n), dims), dtype=np.int64).reshape(len(dims), n)


def rank_of(dims: tuple[int, ...], coords: np.ndarray) -> np.ndarray:
    """Return row-major ranks of ``coords``, shape (ndims, m), all inside the grid."""
    result: np.ndarray = np.ravel_multi_index(tuple(coords), dims).astype(np.int64)
    return result
