"""The process grid at one count, rules of grids, and conditions on ranks of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import combinations, groupby
from typing import Any, ClassVar, Self

import numpy as np

from p3s.base.errors import P3SError
from p3s.model.registry import Rule, plain

#: Multiples of this, less what is whole, lie evenly wherever one stops.
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class GridAt:
    """The process grid at one count: n, extents, coordinates (ndims, n).

    order: rank at each place of the grid in row-major order (None: the place itself); ranks that
    are not on the grid have coordinates of -1. stage of how many stages: where guards are
    evaluated. Rules are evaluated for all ranks, or for some (``only``): then coords are those
    of the ``ranks``, and ``whole`` is the grid of all."""

    n: int
    dims: tuple[int, ...]
    coords: np.ndarray
    order: np.ndarray | None = None
    stage: int = 0
    stages: int = 1
    layout: str = "row"
    ranks: np.ndarray | None = None
    whole: GridAt | None = None

    def only(self, ranks: np.ndarray) -> GridAt:
        """Return the grid for some of its ranks (numbers of ranks), ascending."""
        whole = self.whole or self
        return replace(self, coords=whole.coords[:, ranks], ranks=ranks, whole=whole)

    @property
    def r(self) -> np.ndarray:
        """The ranks that rules are evaluated for."""
        return np.arange(self.n) if self.ranks is None else self.ranks

    @property
    def size(self) -> int:
        """How many these are."""
        return self.n if self.ranks is None else len(self.ranks)

    def at(self, stage: int = 0, stages: int = 1) -> GridAt:
        """Return the same grid at a stage."""
        if (stage, stages) == (self.stage, self.stages):
            return self
        return replace(self, stage=stage, stages=stages)

    def rank_at(self, coords: np.ndarray) -> np.ndarray:
        """Return the ranks at ``coords``, shape (ndims, m), all inside the grid."""
        place = np.ravel_multi_index(tuple(coords), self.dims).astype(np.int64)
        result: np.ndarray = place if self.order is None else self.order[place]
        return result

    @property
    def inside(self) -> np.ndarray:
        """Which ranks are on the grid; the coordinates of the others are -1."""
        return np.asarray(self.coords[0] >= 0)

    @property
    def symbols(self) -> dict[str, int]:
        """The symbols of laws that hold for all ranks: n and the extents."""
        return {"n": self.n, **{f"p{d}": p for d, p in enumerate(self.dims)}}

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells grids apart, stages left out."""
        return (self.n, self.dims, self.layout)


def standing_for_all(grid: GridAt, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return ranks that stand for all of a grid, ascending, and how many each stands for.

    All up to ``most``; of more some of the places along each dimension. Those near its ends stand
    for themselves, so that a root or a border counts as often as there is one.
    """
    if grid.n <= most:
        return np.arange(grid.n), np.ones(grid.n)
    left, places = most, {}
    for k, d in enumerate(sorted(range(len(grid.dims)), key=lambda d: grid.dims[d])):
        each = int((left + 0.5) ** (1 / (len(grid.dims) - k)))
        places[d] = _some_places(grid.dims[d], max(each, 1))
        left = max(left // len(places[d][0]), 1)
    pairs = [places[d] for d in range(len(grid.dims))]
    coords = np.stack([c.ravel() for c in np.meshgrid(*(at for at, _ in pairs), indexing="ij")])
    weight = np.ones(1)
    for _, times in pairs:
        weight = np.multiply.outer(weight, times).ravel()
    outside = np.flatnonzero(~grid.inside)
    at, times = _some_places(len(outside), most)
    ranks = np.concatenate([grid.rank_at(coords), outside[at]])
    order = np.argsort(ranks)
    return ranks[order], np.concatenate([weight, times])[order]


def _some_places(extent: int, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return about ``number`` places of an extent, and how many each stands for.

    A quarter of them at each end, for themselves; those between fill it evenly, whatever repeats.
    """
    if extent <= number:
        return np.arange(extent), np.ones(extent)
    edge = number // 4
    inside = extent - 2 * edge
    between = np.unique((np.arange(1, number - 2 * edge + 1) * _GOLDEN % 1.0 * inside).astype(int))
    at = np.concatenate([np.arange(edge), edge + between, np.arange(extent - edge, extent)])
    times = np.ones(len(at))
    times[edge : edge + len(between)] = inside / len(between)
    return at, times


def low_power(n: int) -> int:
    """Return the largest power of two that is at most ``n``."""
    return 1 << (n.bit_length() - 1)


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


def propose_atoms(reads: str, ndims: int) -> list[Atom]:
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


#: Bits that cost as much as a relation.
RELATION_BITS = 20.0
#: What is said beside the kind of a grid costs, in relations: another dimension (many short ones
#: would explain anything), the extents at a count, that ranks are left out.
SAID = 0.5
#: How many times as many grids of the corpus are row-major, or of all ranks, as are not.
_PLAIN = 36.0


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
    #: How many programs of the corpus have such a grid, plus a half (tests/data/frozen: 99 lines,
    #: 144 grids of several dimensions).
    seen: ClassVar[float] = 0.5
    #: For which grids that leave ranks out it is tried (PARTS).
    parts: ClassVar[tuple[str, ...]] = ()
    #: Fields that files name beside order and extent.
    named_too: ClassVar[tuple[str, ...]] = ()

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

    def extents(self, n: int) -> tuple[int, ...] | None:
        """Return the extents of a grid of ``n`` ranks, or None where the rule has none."""
        raise NotImplementedError

    def cost(self) -> float:
        """Return what the rule costs more than a simple one, in relations."""
        return self.price

    def weight(self) -> float:
        """Return how often programs have such grids, relative to other rules."""
        variants = max(sum(1 for _ in self.proposed(self.ndims)), 1)
        plain = (self.layout == "row") + (not self.part)
        return float(self.seen / variants * _PLAIN ** (plain - 2))

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
        own = {name: plain(getattr(self, name)) for name in self.named_too}
        out.update(order=list(self.order), extent=self.extent, **own)
        if self.layout != "row":
            out["layout"] = self.layout
        if self.part:
            out["part"] = self.part
        return out

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
