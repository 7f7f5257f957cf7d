"""What a relation is, and shifts on the process grid: who a rank's partner is, in coordinates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations, product
from typing import Any, ClassVar

import numpy as np

from p3s.laws.expr import Expr, add, num, sym
from p3s.model.grid.at import GridAt
from p3s.model.grid.axes import Axis, Line, line
from p3s.model.partners.communicator_laws import CommunicatorLaw
from p3s.model.partners.pairs import Pairs
from p3s.model.registry import Rule, left_out

#: A coordinate as an equation, and the extent where it is taken modulo one.
Coordinate = tuple[Expr, Expr | None]
#: Relations that are tried, each with its cost.
Tried = Iterator[tuple[float, "Relation"]]
#: A place on an axis: 0, 1, ..., -1 (the last), "half", or own coordinate "c0".
Place = int | str
#: What partners without a rule cost, and what a relation costs more where no rule tells whose it is
#: (a shift the second).
NO_GUARD, NO_GUARD_SHIFT = 12.0, 3.0


@dataclass(frozen=True, kw_only=True)
class Relation(Rule, what="relation"):
    """A relation; a kind says where it leads, how it reads, and which ones are tried where."""

    kinds: ClassVar[dict[str, type[Relation]]]
    words: ClassVar[str] = ""
    #: What it costs more where no rule tells which ranks have it.
    no_guard: ClassVar[float] = NO_GUARD
    #: Whether few of the ranks that it leads from need to have it.
    sparse: ClassVar[bool] = False

    @classmethod
    def for_everybody(cls, pairs: Sequence[Pairs]) -> Tried:
        """Yield relations that are tried before all others."""
        yield from ()

    @classmethod
    def on_grid(cls, ndims: int) -> Tried:
        """Yield relations that are tried once on a grid of so many dimensions."""
        yield from ()

    @classmethod
    def on_line(cls, axis: Axis, ndims: int) -> Tried:
        """Yield relations that are tried along an axis of at least two places."""
        yield from ()

    @classmethod
    def on_long_line(cls, axis: Axis, ndims: int, sign: int) -> Tried:
        """Yield relations that are tried along an axis of some length: up, down, both (0)."""
        yield from ()

    @classmethod
    def read_off(cls, pairs: Sequence[Pairs]) -> Tried:
        """Yield relations whose numbers the pairs show."""
        yield from ()

    def table(self, g: GridAt) -> np.ndarray:
        """Return partners, shape (stages, n): world ranks, -1 where there is none."""
        return self.to(g)[None, :]

    def to(self, g: GridAt) -> np.ndarray:
        """Return the partners of a relation that has one, shape (n,)."""
        raise NotImplementedError

    def walks(self) -> list[Relation]:
        """Return the same with its stages in every order in which programs go through them."""
        return [self]

    def stage_at(self, g: GridAt, stage: int, stages: int) -> GridAt:
        """Return the grid at a stage, as guards want it: 2**stage is the distance."""
        return g.at(stage, stages)

    def levels(self, used: np.ndarray, table: np.ndarray, g: GridAt) -> int:
        """Return how many stages are used, where ``used`` are cells of the table of partners."""
        return int(used.any(axis=1).sum())

    def text(self) -> str:
        """Return the relation for people: its words, with what its fields say."""
        own = vars(self)
        said = {"plus": plus(own.get("sign", 1)), "mod": mod_p(own.get("wrap", False))}
        return self.words.format(**own, **said, on=describe_axis(own.get("axis")))

    def formula(self) -> list[Coordinate]:
        """Return the partner as equations, a coordinate each; none where it has words only."""
        return []


@dataclass(frozen=True, kw_only=True)
class StagedRelation(Relation):
    """A relation of several stages along an axis; descending: from the last to the first.

    grows: how many there are is a law of the axis's length.
    """

    grows: ClassVar[bool] = True
    #: Whether it leads down a tree, or up one (``sign`` is negative), at any count.
    tree: ClassVar[bool] = False
    descending: bool = left_out(False, last=True)

    @property
    def along(self) -> Axis:
        """The axis."""
        axis: Axis = getattr(self, "axis")  # noqa: B009
        return axis

    def table(self, g: GridAt) -> np.ndarray:
        """Return partners, shape (stages, n)."""
        rows = self.stages(line(self.along, g), g)
        table = np.array(rows, dtype=np.int64).reshape(len(rows), g.size)
        return np.ascontiguousarray(table[::-1]) if self.descending else table

    def stages(self, ln: Line, g: GridAt) -> list[np.ndarray]:
        """Return the partners at each stage, ascending."""
        raise NotImplementedError

    def walks(self) -> list[Relation]:
        """Return it ascending and descending."""
        return [self, replace(self, descending=True)]

    def stage_at(self, g: GridAt, stage: int, stages: int) -> GridAt:
        """Return the grid at a stage."""
        return g.at(stages - 1 - stage if self.descending else stage, stages)


def along(axis: Axis = None) -> Any:
    """Return the field of an axis."""
    return field(default=axis, metadata={"read": _read_axis})


def _read_axis(axis: Any) -> Axis:
    return axis if axis is None or isinstance(axis, int) else CommunicatorLaw.load(axis)


def coordinate(axis: Axis) -> tuple[Expr, Expr]:
    """Return coordinate and extent in a dimension; rank and processes where there is none."""
    return (sym("r"), sym("n")) if axis is None else (sym(f"c{axis}"), sym(f"p{axis}"))


def shift_coordinate(axis: Axis, by: Expr, wrap: bool) -> list[Coordinate]:
    """Return the equation of a step along an axis; none along communicators."""
    if axis is not None and not isinstance(axis, int):
        return []
    place, extent = coordinate(axis)
    return [(add(place, by), extent if wrap else None)]


def index_of(place: Place, p: Any, g: GridAt) -> Any:
    """Return a place on lines of length p as an index."""
    if isinstance(place, str):
        return p // 2 if place == "half" else g.coords[int(place[1:])]
    return place + 0 * p if place >= 0 else p + place


def digits(p: int, base: int = 2) -> int:
    """Return how many powers of ``base`` are below p."""
    k = 0
    while base**k < p:
        k += 1
    return k


# ---- words -------------------------------------------------------------------------------------
def describe_axis(axis: Axis) -> str:
    """Return along which axis, for people."""
    if axis is None:
        return ""
    return f" in dimension {axis}" if isinstance(axis, int) else f" among {axis.text()}"


def plus(sign: int) -> str:
    """Return the sign."""
    return "+" if sign > 0 else "-"


def mod_p(wrap: bool) -> str:
    """Return that it goes round."""
    return " mod p" if wrap else ""


def place_text(place: Place) -> str:
    """Return a place for people."""
    return {"half": "half-way", -1: "last"}.get(place, str(place))


#: Steps beyond it are no neighbours.
MAX_REACH = 4


@dataclass(frozen=True, kw_only=True)
class Shift(Relation, kind="shift"):
    """The rank at a vector from one's own, dimensions bordered or periodic (wrap)."""

    vec: tuple[int, ...]
    wrap: tuple[bool, ...]
    no_guard = NO_GUARD_SHIFT

    @classmethod
    def read_off(cls, pairs: Sequence[Pairs]) -> Tried:
        """Yield one step around a line that all ranks take, also one of more than half of it."""
        if len(pairs[0].grid.dims) > 1 or any(len(p.rank) < p.grid.n for p in pairs):
            return
        longest = max(p.grid.n for p in pairs)
        for by in (s for k in range(1, longest) for s in (k, -k)):
            if all(((p.rank + by - p.peer) % p.grid.n == 0).all() for p in pairs):
                yield 2.0, cls(vec=(by,), wrap=(True,))
                return

    def to(self, g: GridAt) -> np.ndarray:
        coords = g.coords + np.array(self.vec, dtype=np.int64)[:, None]
        inside = g.inside.copy()
        for d, p in enumerate(g.dims):
            if self.wrap[d]:
                coords[d] %= p
            else:
                inside &= (coords[d] >= 0) & (coords[d] < p)
        out = np.full(g.size, -1, dtype=np.int64)
        out[inside] = g.rank_at(coords[:, inside])
        return out

    def formula(self) -> list[Coordinate]:
        line = len(self.vec) == 1
        steps = enumerate(zip(self.vec, self.wrap, strict=True))
        return [
            c
            for d, (by, w) in steps
            if by
            for c in shift_coordinate(None if line else d, num(by), w)
        ]

    def text(self) -> str:
        parts = []
        for (to, extent), by in zip(self.formula(), filter(None, self.vec), strict=True):
            place = f"{to[1][1]} {'+' if by > 0 else '-'} {abs(by)}"
            parts.append(place if extent is None else f"({place}) mod {extent[1]}")
        return ", ".join(parts) or "self"


def _on_grid(p: Pairs) -> Pairs:
    """Return the pairs of which both are on the grid."""
    both = p.grid.inside[p.rank] & p.grid.inside[p.peer]
    return p if both.all() else Pairs(p.grid, p.rank[both], p.peer[both])


def shift_vectors(
    pairs: Sequence[Pairs], periods: tuple[bool, ...] | None, known: bool = False
) -> tuple[list[Shift], set[int]]:
    """Return shift relations covering the pairs, and the axes whose direction stays open.

    known: the grid is known, so dimensions of two ranks end as those that show how they end.
    """
    ndims = len(pairs[0].grid.dims)
    found: dict[tuple[int, ...], list[bool]] = {}
    unclear: list[tuple[Pairs, np.ndarray]] = []
    for p in pairs:
        dims = np.array(p.grid.dims)[:, None]
        p = _on_grid(p)
        delta = p.grid.coords[:, p.peer] - p.grid.coords[:, p.rank]
        open_sign = ((2 * np.abs(delta) == dims) | (dims == 1)).any(axis=0)
        unclear.append((p, open_sign))
        clear = ~open_sign
        wraps = 2 * np.abs(delta) > dims
        vec = np.where(wraps, delta - np.sign(delta) * dims, delta)
        for col, w in zip(vec[:, clear].T, wraps[:, clear].T, strict=True):
            flags = found.setdefault(tuple(int(x) for x in col), [False] * ndims)
            for d in range(ndims):
                flags[d] |= bool(w[d])
    rels = [_shift(v, f, periods) for v, f in found.items()]
    two_sided = bool(found) and all(tuple(-x for x in v) in found for v in found)
    bordered = known and two_sided and not any(map(any, found.values()))
    ambiguous: set[int] = set()
    for p, mask in unclear:
        left = mask.copy()
        for rel in rels:
            if not left.any():
                break
            left &= rel.to(p.grid)[p.rank] != p.peer
        if not left.any():
            continue
        delta = p.grid.coords[:, p.peer[left]] - p.grid.coords[:, p.rank[left]]
        cols = sorted({tuple(int(x) for x in c) for c in delta.T}, reverse=True)
        for col in cols:
            if not any(col):
                continue
            mirror = tuple(-x for x in col)
            open_axes = [d for d in range(ndims) if col[d] and 2 * abs(col[d]) == p.grid.dims[d]]
            both = mirror in cols
            if both and col < mirror:
                continue
            wrap = [
                bool(both and d in open_axes) and not bordered
                if periods is None
                else bool(periods[d])
                for d in range(ndims)
            ]
            rels.append(Shift(vec=col, wrap=tuple(wrap)))
            if both and periods is not None and not any(periods[d] for d in open_axes):
                rels.append(Shift(vec=mirror, wrap=tuple(wrap)))
            elif both:
                ambiguous.update(open_axes)
                if two_sided:  # as in the dimensions where it shows, both ways through one call
                    rels.append(Shift(vec=mirror, wrap=tuple(wrap)))
    return rels, ambiguous


def _shift(vec: tuple[int, ...], flags: list[bool], periods: tuple[bool, ...] | None) -> Shift:
    wrap = [
        bool(periods[d]) or flags[d] if periods is not None and vec[d] else flags[d]
        for d in range(len(vec))
    ]
    return Shift(vec=vec, wrap=tuple(wrap))


def bordered_steps(pairs: Sequence[Pairs]) -> list[Shift]:
    """Return steps as they are, none around the edge: c + 2 is c - 1 on three ranks otherwise."""
    steps: set[tuple[int, ...]] = set()
    for p in pairs:
        delta = p.grid.coords[:, p.peer] - p.grid.coords[:, p.rank]
        steps.update(tuple(c) for c in np.unique(delta.T, axis=0).tolist())
        if len(steps) > 8 or not p.grid.inside.all():
            return []
    if any(max(map(abs, s)) < 2 for s in steps) or not steps:
        return []  # nearest neighbours: the other search knows their directions better
    if max(abs(x) for s in steps for x in s) > MAX_REACH:
        return []
    return [Shift(vec=s, wrap=(False,) * len(s)) for s in sorted(steps, reverse=True)]


def is_stencil(rels: Sequence[Relation]) -> bool:
    """Return whether relations are nearest neighbours on the grid, no dimension unlike another.

    These are neighbours along dimensions, or all vectors that permuting the dimensions and turning
    them round makes of each other. A grid of wrong extents needs others: (1, -1) without (1, 1).
    """
    vectors = {r.vec for r in rels if isinstance(r, Shift)}
    if len(vectors) < len(rels) or any(abs(x) > 1 for v in vectors for x in v):
        return False
    diagonal = {tuple(sorted(map(abs, v))) for v in vectors if sum(map(abs, v)) > 1}
    alike = {
        v
        for each in diagonal
        for order in permutations(each)
        for v in product(*((x, -x) for x in order))
    }
    return alike <= vectors
