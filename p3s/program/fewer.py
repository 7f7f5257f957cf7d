"""A program of many ranks on fewer of them, each with the sizes, numbers and work of one of many.

What ranks do depends on how they lie to the ends of the process grid and to each other, and most of
a large grid is alike. On a grid of the same form with shorter sides the same ranks are there, less
often; a rank there has the amounts of the rank of the large grid that lies as far from the nearer
end, in every dimension.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from math import prod

import numpy as np

from p3s.base.arrays import Floats, Ints
from p3s.model.evaluate import Amounts, Evaluator, model_grid
from p3s.model.grid.at import GridAt, dimensions
from p3s.model.law_types import TraceOrder
from p3s.model.types import Model
from p3s.program.parts import Builder, Laws
from p3s.program.scaled import ScaledTrace

#: The shortest sides: of a grid of one or two dimensions, and of more.
_SHORTEST, _SHORTEST_OF_MANY = 6, 4
_MANY = 3
#: A side is shortened to this part or not at all: longer ones tell how times change with it.
_SHORTER = 4


@dataclass(frozen=True, eq=False)
class Fewer:
    """A process grid and a smaller one of the same form.

    ``dims``: extents of the smaller one. ``periods``: after how many places its ranks are of the
    same kinds again, in each dimension (:func:`periods_of`). ``stands_for``: for each of its ranks,
    the rank of the large grid whose amounts it has, ascending.
    """

    model: Model
    large: GridAt
    dims: tuple[int, ...]
    periods: tuple[int, ...] = ()

    @cached_property
    def grid(self) -> GridAt:
        """The smaller grid."""
        left_out = self.large.n - int(np.prod(self.large.dims))
        return self.model.grid.family.of(int(np.prod(self.dims)) + left_out, self.dims)

    @property
    def n(self) -> int:
        """Ranks of the smaller grid."""
        return self.grid.n

    def communicators(self) -> tuple[tuple[int, int], ...]:
        """Return how many members each has of the communicators along the dimensions, and how many
        on the large grid.

        Those of all ranks last. Left out are numbers of which only one is a power of two: there
        are algorithms for these alone.
        """
        sizes = {}
        for size in range(1, len(self.dims) + 1):
            for axes in combinations(range(len(self.dims)), size):
                small, large = (
                    prod(dims[d] for d in axes) for dims in (self.dims, self.large.dims)
                )
                sizes[small] = large
        sizes[self.n] = self.large.n
        return tuple(
            (small, large)
            for small, large in sizes.items()
            if (small & (small - 1) == 0) == (large & (large - 1) == 0)
        )

    @cached_property
    def stands_for(self) -> Ints:
        """The rank of the large grid whose amounts each rank has."""
        places = map(outer_places, self.dims, self.large.dims)
        return _map_ranks(list(places), self.grid, self.grid, self.large)

    @cached_property
    def weight(self) -> Ints:
        """How many ranks of the large grid each stands for."""
        return np.bincount(self.stood_for_by, minlength=self.n)

    @cached_property
    def stood_for_by(self) -> Ints:
        """The rank of the smaller grid that stands for each rank of the large one."""
        return self.standing_for(None)

    def standing_for(self, ranks: Ints | None) -> Ints:
        """Return the rank of the smaller grid that stands for each of some ranks, None: of all.

        Ranks between those at the ends are stood for by those in the middle, one after the other.
        """
        return self._standing_in(
            self.large if ranks is None else self.large.only(ranks), self.large
        )

    def standing_for_those_of(self, longer: Fewer) -> Ints:
        """Return the rank of this grid that stands for each rank of a longer one."""
        return self._standing_in(longer.grid, longer.grid)

    def _standing_in(self, part: GridAt, whole: GridAt) -> Ints:
        """Return the rank that stands for each of some ranks of a grid; ``whole``: all of them."""
        periods = self.periods or (1,) * len(self.dims)
        places = map(inner_places, self.dims, whole.dims, periods)
        return _map_ranks(list(places), part, whole, self.grid)


def _map_ranks(places: Sequence[Ints], part: GridAt, whole: GridAt, to: GridAt) -> Ints:
    """Return the rank of another grid for each of some ranks of a grid; ``whole``: all of them.

    places: the place on the other one for each along every dimension. Ranks that are not on the
    grid go to such ranks, one after the other.
    """
    coords = np.stack([each[at] for each, at in zip(places, part.coords, strict=True)])
    on = part.inside
    mapped = np.empty(part.size, dtype=np.int64)
    mapped[on] = to.rank_at(coords[:, on])
    outside = np.searchsorted(np.flatnonzero(~whole.inside), part.r[~on])
    mapped[~on] = np.flatnonzero(~to.inside)[outside]
    return mapped


def outer_places(few: int, count: int) -> Ints:
    """Return the places of ``count`` that ``few`` stand for: as far from the nearer end."""
    at = np.arange(few)
    return np.where(at < (few + 1) // 2, at, at + count - few)


def inner_places(few: int, count: int, period: int = 1) -> Ints:
    """Return which of ``few`` places stands for each of ``count``.

    Within a quarter of ``few`` from an end it lies as far from that end; those between take turns
    in the half in the middle, so that what repeats from place to place (nodes, say) repeats. They
    do so in whole multiples of ``period``, as far as one fits in there.
    """
    at = np.arange(count)
    edge = few // 4
    middle = max(few - 2 * edge, 1)
    middle = middle // period * period or middle
    inside = edge + (at - edge) % middle
    return np.where(at < edge, at, np.where(at >= count - edge, at - count + few, inside))


def shortest(large: GridAt, layout: str, cores: int) -> tuple[int, ...]:
    """Return the extents of the smallest grid that stands for a large one.

    ``layout``: the order of its ranks. Its fastest dimensions hold the ranks of a node of
    ``cores``, so that ranks have as many neighbours on other nodes. Extents are halved, so that
    what goes by powers of two goes on.
    """
    dims = list(large.dims)
    least = _SHORTEST_OF_MANY if len(dims) >= _MANY else _SHORTEST
    slow_first = range(len(dims)) if layout == "reverse" else dimensions(layout, len(dims))
    faster = 1
    for d in reversed(list(slow_first)):
        min_extent = max(least, -(-cores // faster))
        if len(dims) == 1:
            min_extent = max(min_extent, least * cores)
        few = dims[d]
        while few >= 2 * min_extent and few % 2 == 0:
            few //= 2
        if few >= 2 * min_extent:  # what is odd stays odd
            few = min_extent + (few - min_extent) % 2
        if dims[d] >= _SHORTER * few:
            dims[d] = few
        faster *= dims[d]
    return tuple(dims)


def periods_of(few: Fewer, cores: int) -> tuple[int, ...]:
    """Return after how many places in each dimension ranks make the same calls again.

    As the ranks in the middle of the smaller grid tell, with the nodes of ``cores`` where they lie
    along the only dimension; 1 where all are alike, or nothing repeats.
    """
    kind = np.zeros(few.n, dtype=np.uint64)
    rows = Evaluator(few.model, few.n, grid=few.grid).rows(work=False)
    call = rows.item * (int(rows.slot.max(initial=0)) + 1) + rows.slot
    marks = np.random.default_rng(0).integers(1 << 63, size=int(call.max(initial=0)) + 1)
    np.add.at(kind, rows.rank, marks.astype(np.uint64)[call])
    on = few.grid.inside
    at = np.zeros(few.dims, dtype=np.uint64)
    at[tuple(few.grid.coords[:, on])] = kind[on]
    periods = []
    for d, side in enumerate(few.dims):
        middle = np.moveaxis(at, d, 0)[side // 4 : side - side // 4]
        size = len(middle)
        fits = (p for p in range(1, size // 2 + 1) if np.array_equal(middle[p:], middle[:-p]))
        period = next(fits, 1)
        both = math.lcm(period, cores)
        periods.append(both if len(few.dims) == 1 and period > 1 and both <= size else period)
    return tuple(periods)


def longer(few: Fewer, dimensions: Sequence[int], times: int) -> Fewer:
    """Return a grid that is so many times as long in some dimensions."""
    dims = [side * times if d in dimensions else side for d, side in enumerate(few.dims)]
    return Fewer(few.model, few.large, tuple(dims), few.periods)


def fewer(model: Model, n: int, cores: int) -> Fewer | None:
    """Return the smallest grid that stands for the program's at ``n``; None where it has no laws.

    That is where who takes part or how much is sent follows no law of the place on the grid, but
    was sampled or is shared out among all ranks.
    """
    if any(
        slot.count.total is not None or slot.count.sample is not None
        for item in model.items
        for slot in item.slots
    ):
        return None
    large = model_grid(model, n)
    if len(large.dims) != model.grid.family.ndims:
        return None
    dims = shortest(large, model.grid.family.arrangement(), cores)
    if dims == large.dims:
        return None
    few = Fewer(model, large, dims)
    return replace(few, periods=periods_of(few, cores))


def means_of(few: Fewer) -> Floats:
    """Return the mean work of all ranks of the large grid in each phase, as its trace has it."""
    return np.asarray(Evaluator(few.model, few.large.n, grid=few.large).means, dtype=np.float64)


def trace_of(few: Fewer, laws: Laws, means: Floats) -> tuple[ScaledTrace, TraceOrder]:
    """Return the scaled trace of the smaller grid with the amounts of the large one, and its order.

    means: the mean work of all ranks of the large grid (:func:`means_of`).
    """
    from p3s.program.generate import order_of

    amounts = Amounts(few.large, few.stands_for, means)
    builder = Builder(laws, few.n, few.grid, amounts)
    return builder.trace(), order_of(few.model, builder.evaluator)
