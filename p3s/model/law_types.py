"""Laws of a model: how often, how many elements, which root, in which order."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from p3s.laws.expr import Expr, evaluate
from p3s.laws.statistics import PER_DOUBLING
from p3s.laws.worklaws import WorkLaw
from p3s.model.comparison import Moved
from p3s.model.partners.irregular import Total


@dataclass(frozen=True)
class Amount:
    """A non-negative law of an amount, with how far it can be off.

    expr: in n and p0.. ; rel_half_width: half width of the 90 % interval at the largest count
    fitted, relative; max_n: that count; points: how many counts were fitted; rim: the rim of
    its product, if it is one.
    """

    expr: Expr
    rel_half_width: float
    max_n: int
    points: int
    rim: float | None = None

    def value(self, env: Mapping[str, Any]) -> Any:
        """Return the amount for symbols n, p0, ... (arrays broadcast), never negative."""
        return np.maximum(evaluate(self.expr, env), 0.0)

    def half_width(self, n: float) -> float:
        """Return the relative half width of the 90 % interval, growing with the distance."""
        beyond = max(0.0, math.log2(max(n, 1) / self.max_n))
        return self.rel_half_width * (1.0 + PER_DOUBLING * beyond)

    def to_json(self) -> dict[str, Any]:
        """Return the law as plain data; the rim is of use while others are fitted only."""
        return {
            "expr": self.expr,
            "rel_half_width": self.rel_half_width,
            "max_n": self.max_n,
            "points": self.points,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Amount:
        """Return the law from :meth:`to_json` data."""
        return Amount(
            data["expr"], float(data["rel_half_width"]), int(data["max_n"]), int(data["points"])
        )


@dataclass(frozen=True)
class Sampled:
    """Numbers of the pairs of an irregular neighbourhood: in proportion to those of the reference
    pairs, and the law of what all pairs have together."""

    values: tuple[float, ...]
    total: Total


@dataclass(frozen=True)
class CountLaw:
    """How often: one of expr (per rank), total (shared out), stat (a mean), follows (requests).

    points, free: counts the equation was fitted to, constants in it; factor: as often as the items
    that it follows, times this fraction; together: one call completes what is posted in an
    iteration: of all followed items ("all"), or of those of one number each ("alike"), the one
    that a rank posts most often counts; per_turn: the law of one iteration of a loop whose number
    the user states; sample: of the pairs of an irregular neighbourhood, in units of the equation or
    mean.
    """

    expr: Expr | None = None
    points: int | None = None
    free: int | None = None
    rivals: tuple[Expr, ...] | None = None
    total: Expr | None = None
    stat: WorkLaw | None = None
    follows: tuple[int, ...] | None = None
    factor: tuple[int, int] | None = None
    together: Literal["all", "alike"] | None = None
    per_turn: Expr | None = None
    stated: int | None = None
    holds_from: int | None = field(default=None, metadata={"key": "from"})
    sample: Sampled | None = None


@dataclass(frozen=True)
class SizeLaw:
    """Elements of one message: one of expr, stat (a mean) and sample.

    rivals: equations that meet all points, too, and differ elsewhere; means: rows (count, mean,
    messages) of what has no equation.
    """

    expr: Expr | None = None
    points: int | None = None
    free: int | None = None
    rivals: tuple[Expr, ...] | None = None
    stat: Amount | None = None
    means: tuple[tuple[int, float, int], ...] | None = None
    sample: Sampled | None = None


@dataclass(frozen=True)
class IterationsLaw:
    """The iterations that a rank and stage has: number of them from the first on, by steps."""

    step: int
    first: Expr
    number: Expr


@dataclass(frozen=True)
class RootLaw:
    """A place in the communicator: index (-1: the last), the middle one, or an equation."""

    index: int | None = None
    half: bool | None = None
    expr: Expr | None = None


@dataclass(frozen=True)
class When:
    """Patterns, one per loop around (p3s.model.order.patterns), for ranks with certain items.

    items: None for all ranks; when: None where no pattern was found.
    """

    items: tuple[int, ...] | None
    when: tuple[list[Any], ...] | None


@dataclass(frozen=True)
class Walk:
    """The order of a loop that goes from partner to partner: by stage, iteration, peer or rules.

    sign: of the partners' ranks, ascending or descending; order: items that come together, in
    order; then: what comes second.
    """

    by: str
    sign: int = 1
    order: tuple[tuple[int, ...], ...] = ()
    then: str = ""


@dataclass(frozen=True)
class TripLaw:
    """Iterations each time a loop is entered: an equation, changed by the index of a loop around.

    level: of that loop; step: added per index; shift: halved per index; listed: one by one.
    """

    expr: Expr | None = None
    listed: tuple[int, ...] | None = field(default=None, metadata={"key": "list"})
    level: int | None = None
    step: int | None = None
    shift: int | None = None


@dataclass(frozen=True)
class Trips:
    """How often a loop goes round, for ranks with certain items, and when it is entered.

    items: None for all ranks; law: None where none was found.
    """

    items: tuple[int, ...] | None
    when: tuple[list[Any], ...] | None
    law: TripLaw | None


@dataclass(frozen=True)
class LoopRule:
    """A loop: the one around it (0: the program), its place at every level, its iterations."""

    loop: int
    parent: int
    at: tuple[int, ...]
    walk: Walk | None
    trips: tuple[Trips, ...]


@dataclass(frozen=True)
class Order:
    """The order of events: all loops, outer ones first; where it is not that of the traced runs."""

    loops: tuple[LoopRule, ...]
    moved: tuple[Moved, ...] = ()


@dataclass(frozen=True)
class OrderedSlot:
    """In which iterations a slot is carried out."""

    when: tuple[When, ...] | None


@dataclass(frozen=True)
class OrderedItem:
    """What of an item the order of events needs."""

    op: str
    kind: str
    loops: tuple[int, ...] | None
    at: tuple[int, ...] | None
    slots: tuple[OrderedSlot, ...]


@dataclass(frozen=True)
class TraceOrder:
    """What unfolds the rows of a scaled trace into events, order.json; loops: None if not known.

    coordinates: of all ranks in each dimension of the grid, where the order depends on them.
    """

    n: int
    grid: tuple[int, ...]
    loops: tuple[LoopRule, ...] | None
    items: tuple[OrderedItem, ...]
    coordinates: tuple[tuple[int, ...], ...] | None = None

    @property
    def coords(self) -> np.ndarray | None:
        """The coordinates, shape (dimensions, n)."""
        return None if self.coordinates is None else np.array(self.coordinates, dtype=np.int64)

    @property
    def dims(self) -> tuple[int, ...]:
        """The extents of the grid, as a grid of the model has them."""
        return self.grid
