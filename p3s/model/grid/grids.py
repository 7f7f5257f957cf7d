"""Process grids: kinds of rules of their extents, and those that agree with what is known."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product
from math import gcd, prod
from typing import ClassVar

import numpy as np

from p3s.base.extents import dims_balanced, dims_greedy, dims_nested, dims_rounded, factorisations
from p3s.model.grid.at import LAYOUTS, PARTS, GridRule, coords_of

#: The most dimensions that are tried; those of domains and of nodes.
_MOST, DIMENSIONS = 4, (2, 3)


@dataclass(frozen=True)
class Line(GridRule, kind="line"):
    """All ranks in one dimension."""

    seen = 99.5
    parts = ("last", "first", "power")

    @classmethod
    def proposed(cls, ndims: int) -> Iterator[GridRule]:
        if ndims == 1:
            yield cls(1)

    def extents(self, n: int) -> tuple[int, ...] | None:
        return (n,)

    def words(self) -> str:
        return "1-D"


@dataclass(frozen=True)
class Several(GridRule):
    """Several dimensions; least: from how many of them on it is tried as it is (0: never).

    named_as: how long the dimensions are, for people, with what the rule (0) says.
    """

    least: ClassVar[int] = 0
    named_as: ClassVar[str] = ""

    @classmethod
    def proposed(cls, ndims: int) -> Iterator[GridRule]:
        if 0 < cls.least <= ndims:
            yield cls(ndims)

    def words(self) -> str:
        return f"{self.ndims}-D {self.how()}"

    def how(self) -> str:
        """Return how long the dimensions are, for people."""
        return self.named_as.format(self)


@dataclass(frozen=True)
class Cube(Several, kind="cube"):
    """Equal extents."""

    seen = 28.5
    least = 2
    parts = ("last", "first", "root", "power")
    named_as = "equal extents"

    def extents(self, n: int) -> tuple[int, ...] | None:
        root = round(n ** (1 / self.ndims))
        return (root,) * self.ndims if root**self.ndims == n else None


@dataclass(frozen=True)
class Factors(Several):
    """Extents that a rule makes of n and the number of dimensions; turned: the other way round."""

    least = 2
    rule: ClassVar[Callable[[int, int], tuple[int, ...]]]
    turned: ClassVar[bool] = False

    def extents(self, n: int) -> tuple[int, ...] | None:
        dims = type(self).rule(n, self.ndims)
        return dims[::-1] if self.turned else dims


@dataclass(frozen=True)
class BalancedGrid(Factors, kind="balanced"):
    """MPI_Dims_create as MPICH has it."""

    seen = 60.5

    parts = ("last", "first", "power")
    rule = staticmethod(dims_balanced)
    named_as = "MPI_Dims_create (balanced), descending"


@dataclass(frozen=True)
class Greedy(Factors, kind="greedy"):
    """MPI_Dims_create as Open MPI has it."""

    rule = staticmethod(dims_greedy)
    named_as = "MPI_Dims_create (Open MPI), descending"


@dataclass(frozen=True)
class BalancedUp(BalancedGrid, kind="balanced_up"):
    """The same, ascending."""

    seen = 42.5

    turned = True
    named_as = "MPI_Dims_create (balanced), ascending"


@dataclass(frozen=True)
class GreedyUp(Greedy, kind="greedy_up"):
    """The same, ascending."""

    turned = True
    named_as = "MPI_Dims_create (Open MPI), ascending"


@dataclass(frozen=True)
class Power2(Several, kind="power2"):
    """Powers of two; order: the dimension doubled first, second, ..."""

    named_as = "powers of two, dimension {0.order[0]} doubled first"
    seen = 2.5
    parts: ClassVar[tuple[str, ...]] = ("last", "first", "power")

    @classmethod
    def proposed(cls, ndims: int) -> Iterator[GridRule]:
        if ndims > 1:
            forward = tuple(range(ndims))
            ends = (forward, forward[::-1])
            rest = [o for o in permutations(forward) if o not in ends] if ndims == 3 else []
            yield from (cls(ndims, order) for order in (*ends, *rest))

    def extents(self, n: int) -> tuple[int, ...] | None:
        if n & (n - 1):
            return None
        dims = [1] * len(self.order)
        for k in range(n.bit_length() - 1):
            dims[self.order[k % len(self.order)]] *= 2
        return tuple(dims)


@dataclass(frozen=True)
class NestedGrid(Factors, kind="nested"):
    """Of what is left, the largest divisor below its root."""

    rule = staticmethod(dims_nested)
    least = 3
    named_as = "largest divisor below the root, ascending"


@dataclass(frozen=True)
class NestedUp(NestedGrid, kind="nested_up"):
    """The other way round."""

    turned = True
    named_as = "largest divisor below the root, descending"


@dataclass(frozen=True)
class RoundedGrid(Several, kind="rounded"):
    """Of what is left, the largest divisor up to the rounded root.

    order: the dimensions as they are chosen.
    """

    least = 3
    named_as = "largest divisor up to the rounded root, dimension {0.order[0]} first"

    @classmethod
    def proposed(cls, ndims: int) -> Iterator[GridRule]:
        if ndims == cls.least:
            yield cls(ndims, (1, 2, 0))

    def extents(self, n: int) -> tuple[int, ...] | None:
        return dims_rounded(n, (1.0,) * self.ndims, self.order)


@dataclass(frozen=True)
class Bits(Power2, kind="bits"):
    """The bits of the rank are dealt to the dimensions of ``order`` in turn.

    From the highest down (extent 0), or from the lowest up (1).
    """

    seen = 3.5
    parts = ()

    @classmethod
    def proposed(cls, ndims: int) -> Iterator[GridRule]:
        if 1 < ndims < _MOST:
            forward = tuple(range(ndims))
            for up in (0, 1):
                yield from (cls(ndims, order, up) for order in (forward, forward[::-1]))

    def arrangement(self) -> str:
        return self.part or f"bits{self.order}{self.extent}"

    def coordinates(self, n: int, dims: tuple[int, ...]) -> np.ndarray:
        ranks = np.arange(n, dtype=np.int64)
        bits = n.bit_length() - 1
        coords = np.zeros((len(self.order), n), dtype=np.int64)
        for k in range(bits):
            d = self.order[k % len(self.order)]
            if self.extent:
                coords[d] |= (ranks >> k & 1) << (k // len(self.order))
            else:
                coords[d] = 2 * coords[d] + (ranks >> (bits - 1 - k) & 1)
        return coords

    def how(self) -> str:
        if self.extent:
            return f"bits of the rank dealt from the lowest up, dimension {self.order[0]} first"
        return f"recursive bisection, dimension {self.order[0]} first"


@dataclass(frozen=True)
class FixedExtent(Several, kind="fixed"):
    """One ``extent`` is always the same, that of dimension order[0]; the others are ``rest``'s."""

    named_as = "extent {0.extent} fixed in dimension {0.order[0]}"
    seen = 4.5

    price = 0.4

    @classmethod
    def of_divisors(cls, divisors: Sequence[int]) -> Iterator[GridRule]:
        """Yield the rules that are tried for common divisors of the counts."""
        yield from (cls(2, (pos,), e) for e in divisors for pos in (0, 1))
        for e in divisors:
            for pos in (0, 1, 2):
                for rest in ("cube", "balanced", "balanced_up", "greedy", "greedy_up"):
                    yield cls(3, (pos,), e, rest)
                yield from (cls(3, (pos, *o), e, "power2") for o in ((0, 1), (1, 0)))

    def extents(self, n: int) -> tuple[int, ...] | None:
        if n % self.extent:
            return None
        at, *order = self.order
        rest = (
            Line(1) if self.ndims == 2 else GridRule.named(self.rest, self.ndims - 1, tuple(order))
        )
        others = rest.dims(n // self.extent)
        return None if others is None else (*others[:at], self.extent, *others[at:])

    @property
    def named_too(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("rest",) if self.ndims > 2 else ()


@dataclass(frozen=True)
class ListedGrid(Several, kind="listed"):
    """Extents at some counts are ``listed``, those at others by the rule ``rest`` (empty: none)."""

    named_as = "of stated extents"
    named_too = ("rest", "listed")

    def extents(self, n: int) -> tuple[int, ...] | None:
        found = dict(self.listed).get(n)
        if found is None and self.rest:
            return GridRule.named(self.rest, self.ndims).dims(n)
        return found


def all_rules(counts: Sequence[int]) -> list[GridRule]:
    """Return all rules of extents, simplest first."""
    kinds = list(GridRule.kinds.values())
    gcd = math.gcd(*counts)
    divisors = [e for e in range(2, min(gcd, 64) + 1) if gcd % e == 0]
    out = [rule for nd in range(1, _MOST + 1) for kind in kinds for rule in kind.proposed(nd)]
    return [*out, *FixedExtent.of_divisors(divisors)]


def rules_in_part(counts: Sequence[int]) -> list[GridRule]:
    """Return rules of grids that leave ranks out: servers, ranks beyond a square."""
    out = [
        replace(rule, part=part)
        for part in filter(None, PARTS)
        for nd in range(1, _MOST)
        for kind in GridRule.kinds.values()
        if part in kind.parts
        for rule in kind.proposed(nd)
        if rule.order in ((), tuple(range(nd)), tuple(range(nd))[::-1])
    ]
    return [
        f
        for f in out
        if all(f.dims(n) is not None for n in counts)
        and any(f.members(n)[1] < n for n in counts)
        and (f.ndims == 1 or any(sum(x > 1 for x in f.dims(n) or ()) > 1 for n in counts))
    ]


def candidate_rules(
    counts: list[int],
    cart: dict[int, tuple[int, ...]] | None = None,
    order: dict[int, tuple[int, ...]] | None = None,
) -> list[GridRule]:
    """Return the rules that admit every count, simplest first.

    Where the program made a Cartesian communicator over all ranks (``cart``: count ->
    extents; ``order``: count -> its members), only rules that reproduce its extents and the
    order of its ranks are kept.
    """
    out = all_rules(counts)
    if cart and order and any(m != tuple(range(n)) for n, m in order.items()):
        dealt = [f for f in out if isinstance(f, Bits)]
        others = [f for f in out if not isinstance(f, Bits)]
        out = [*(replace(f, layout=way) for f in others for way in LAYOUTS[1:]), *dealt]
    kept = []
    for fam in out:
        dims = [fam.dims(n) for n in counts]
        if any(d is None for d in dims):
            continue
        if cart:
            if any(fam.dims(n) != d for n, d in cart.items()):
                continue
            if order and any(not _orders(fam, n, m) for n, m in order.items()):
                continue
        elif fam.ndims > 1 and all(d is not None and sum(x > 1 for x in d) < 2 for d in dims):
            continue  # never more than one extent above 1: nothing that the line does not say
        # Rules equal on every traced count stay apart: they differ at other counts, and
        # the first in the list (the simplest) wins ties.
        kept.append(fam)
    return kept


def _orders(fam: GridRule, n: int, members: tuple[int, ...]) -> bool:
    grid = fam.at(n)
    return (
        grid is not None
        and (tuple(range(n)) if grid.order is None else tuple(grid.order.tolist())) == members
    )


#: The most ranks of a node.
_MOST_RANKS = 64
#: Rules of the grid of nodes.
_RULES = ("balanced", "balanced_up", "greedy", "greedy_up", "power2")


@dataclass(frozen=True)
class OfNodes(Several, kind="of_nodes"):
    """A grid of nodes by the rule ``rest``, each with ``order`` ranks, numbered node by node.

    layout: in which order the nodes are numbered; extent: the ranks of a node row by row (0) or
    column by column (1).
    """

    named_too = ("rest",)
    seen = 1.5

    price = 0.4

    def extents(self, n: int) -> tuple[int, ...] | None:
        nodes, left = divmod(n, prod(self.order))
        if left:
            return None
        found = GridRule.named(self.rest, self.ndims, tuple(range(self.ndims))).dims(nodes)
        return found and tuple(p * q for p, q in zip(found, self.order, strict=True))

    def arrangement(self) -> str:
        return f"nodes{self.order}{self.extent}{self.layout}"

    def coordinates(self, n: int, dims: tuple[int, ...]) -> np.ndarray:
        each = prod(self.order)
        nodes = tuple(p // q for p, q in zip(dims, self.order, strict=True))
        place = np.array(self.order)[:, None] * _places(nodes, n // each, self.layout == "column")
        within = _places(self.order, each, bool(self.extent))
        ranks = np.arange(n)
        found: np.ndarray = place[:, ranks // each] + within[:, ranks % each]
        return found

    def how(self) -> str:
        node = "x".join(map(str, self.order))
        return f"nodes of {node} ranks numbered together, the nodes as {self.rest}"


def _places(dims: Sequence[int], n: int, column: bool) -> np.ndarray:
    """Return the coordinates of ranks counted row by row or column by column, (ndims, n)."""
    return coords_of(tuple(dims[::-1]), n)[::-1] if column else coords_of(tuple(dims), n)


def rules_of_nodes(counts: Sequence[int]) -> list[GridRule]:
    """Return the rules of grids of nodes with so many ranks that all counts are whole nodes."""
    common = gcd(*counts)
    return [
        OfNodes(len(node), node, inner, rest, layout)
        for ranks in range(2, min(common, _MOST_RANKS) + 1)
        if common % ranks == 0
        for ndims in DIMENSIONS
        for node in factorisations(ranks, ndims)
        for rest, layout, inner in product(_RULES, LAYOUTS[:2], (0, 1))
        if OfNodes(ndims, node, inner, rest, layout).at(max(counts)) is not None
    ]
