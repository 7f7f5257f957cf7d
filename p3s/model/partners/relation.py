"""What a relation is: who a rank's partner is, in process-grid coordinates. Kinds: relations.py.

Most relations lead along an axis (axes.py): all ranks (None), a dimension or a communicator law;
c is the place on it, p its length. Staged ones have several partners, one at each stage
s = 0, 1, ... in the order in which these run; all others have one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from p3s.laws.expr import Expr, add, sym
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
#: What a staged relation, and another one, cost more where no rule tells whose they are.
NO_GUARD, NO_GUARD_SHIFT = 12.0, 3.0


@dataclass(frozen=True, kw_only=True)
class Relation(Rule, what="relation"):
    """A relation; a kind says where it leads, how it reads, and which ones are tried where."""

    kinds: ClassVar[dict[str, type[Relation]]]
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
        """Return the relation for people."""
        raise NotImplementedError

    def formula(self) -> list[Coordinate]:
        """Return the partner as equations, a coordinate each; none where it has words only."""
        return []


@dataclass(frozen=True, kw_only=True)
class Staged(Relation):
    """A relation of several stages along an axis; descending: from the last to the first.

    grows: how many there are is a law of the axis's length.
    """

    grows: ClassVar[bool] = True
    descending: bool = left_out(False, last=True)

    @property
    def tree(self) -> bool:
        """Whether it leads down a tree, or up one (``sign`` is negative), at any count."""
        return False

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


def moved(axis: Axis, by: Expr, wrap: bool) -> list[Coordinate]:
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
def on(axis: Axis) -> str:
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
