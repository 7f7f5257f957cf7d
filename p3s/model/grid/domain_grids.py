"""Process grids that follow the shape of the domain, and those that explain all traced partners."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from p3s.base.extents import dims_rounded, divisors, factorisations, prime_factors
from p3s.base.ops import SEND
from p3s.model.grid.at import SAID, GridAt, GridRule, coords_of
from p3s.model.grid.grids import DIMENSIONS, Bits, ListedGrid, Several, all_rules

if TYPE_CHECKING:
    from p3s.model.grid.nodes import Node

#: Numbers of arguments that are taken for extents of a domain, and at most how many.
_LEAST, _MOST = 4, 6
#: Domains that are tried where nothing says which it is: lengths of the dimensions to one another.
_LENGTHS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)
#: Extents in files are whole numbers: what messages tell of a domain is so exact.
_SCALE = 1000
#: Messages tell the shape of a domain only if they do so alike at all counts.
_SPREAD = 1.12
#: This part of the calls and counts have to agree.
_MOST_AGREE = 0.6


@dataclass(frozen=True)
class OfDomain(Several):
    """Extents that a rule makes of n and the domain's extents; extent: which of its variants."""

    price = 0.3
    named_too = ("domain",)
    #: How each variant reads, the domain left out.
    ways: ClassVar[tuple[str, ...]]
    domain: tuple[int, ...] = ()

    @classmethod
    def for_domain(cls, domain: Sequence[int]) -> Iterator[OfDomain]:
        """Yield the rules that are tried for a domain of such extents."""
        for variant in range(len(cls.ways)):
            yield cls(len(domain), extent=variant, domain=tuple(domain))

    def how(self) -> str:
        return f"{self.ways[self.extent]}, of a domain of {' x '.join(map(str, self.domain))}"


@dataclass(frozen=True)
class LeastSurface(OfDomain, kind="least_surface"):
    """The extents whose blocks have the least surface; of equal ones the first, or the last (1)."""

    seen = 2.5
    ways = ("blocks of least surface", "blocks of least surface")

    def extents(self, n: int) -> tuple[int, ...] | None:
        best: tuple[float, tuple[int, ...]] | None = None
        for dims in factorisations(n, self.ndims):
            surface = self.surface(dims)
            slack = 1e-9 * surface
            if best is None or surface < best[0] + (slack if self.extent else -slack):
                best = surface, dims
        return None if best is None else best[1]

    def surface(self, dims: Sequence[int]) -> float:
        """Return half the surface of a block of the domain."""
        sides = [size / p for size, p in zip(self.domain, dims, strict=True)]
        volume = math.prod(sides)
        return sum(volume / side for side in sides)


@dataclass(frozen=True)
class LongestFirst(OfDomain, kind="longest_first"):
    """The factors of n, the largest first (extent 0) or the smallest first (1), each to the
    dimension in which the blocks are longest.
    """

    ways = ("the longest side is cut", "the longest side is cut, small factors first")

    def extents(self, n: int) -> tuple[int, ...] | None:
        dims = [1] * self.ndims
        for factor, d in self.cuts(n):
            dims[d] *= factor
        return tuple(dims)

    def cuts(self, n: int) -> list[tuple[int, int]]:
        """Return the factors and the dimensions that they cut, one after the other."""
        dims, out = [1] * self.ndims, []
        for factor in prime_factors(n) if self.extent else prime_factors(n)[::-1]:
            sides = [size / p for size, p in zip(self.domain, dims, strict=True)]
            d = sides.index(max(sides))
            dims[d] *= factor
            out.append((factor, d))
        return out


@dataclass(frozen=True)
class PastRatio(OfDomain, kind="past_ratio"):
    """Two extents with p0/p1 near L0/L1: p1 the first divisor that brings p0/p1 to at most that
    (extent 0), the last that does not bring it below (1), or the one with the nearest ratio (2).
    """

    seen = 2.5
    ways = (
        "first divisor past the ratio",
        "last divisor before the ratio",
        "divisor nearest to the ratio",
    )

    @classmethod
    def for_domain(cls, domain: Sequence[int]) -> Iterator[OfDomain]:
        if len(domain) == 2:
            yield from super().for_domain(domain)

    def extents(self, n: int) -> tuple[int, ...] | None:
        ways = [(n // c, c) for c in divisors(n)]
        if self.extent == 2:
            return min(ways, key=lambda d: abs(d[0] / d[1] - self.domain[0] / self.domain[1]))
        first, second = self.domain
        past = [d for d in ways if d[0] * second <= d[1] * first]
        short = [d for d in ways if d[0] * second >= d[1] * first]
        if self.extent:
            return short[-1] if short else ways[0]
        return past[0] if past else ways[-1]


@dataclass(frozen=True)
class RoundedShares(OfDomain, kind="rounded_shares"):
    """The largest divisors up to the rounded extents that would make blocks with equal sides."""

    ways = ("divisors up to the rounded shares of equal sides",)

    @classmethod
    def for_domain(cls, domain: Sequence[int]) -> Iterator[OfDomain]:
        if len(domain) in DIMENSIONS:
            yield from super().for_domain(domain)

    def extents(self, n: int) -> tuple[int, ...] | None:
        order = (*range(1, self.ndims), 0)
        return dims_rounded(n, tuple(map(float, self.domain)), order)


def domains(typed: Collection[int]) -> list[tuple[int, ...]]:
    """Return the domains that numbers among the arguments may be, no two of the same shape."""
    sizes = sorted(v for v in set(typed) if v >= _LEAST)[-_MOST:]
    seen: set[tuple[int, ...]] = set()
    out = []
    for ndims in DIMENSIONS:
        for domain in product(sizes, repeat=ndims):
            shape = shape_of(domain)
            if shape not in seen:
                seen.add(shape)
                out.append(domain)
    return out


def _shapes() -> list[tuple[int, ...]]:
    found = [d for k in DIMENSIONS for d in product(_LENGTHS[:: 2 * k - 3], repeat=k)]
    return list(dict.fromkeys(map(shape_of, found)))


def shape_of(domain: Sequence[int]) -> tuple[int, ...]:
    """Return the smallest whole numbers that are to one another as the extents."""
    common = math.gcd(*domain)
    return tuple(size // common for size in domain)


SHAPES = _shapes()


def shape_of_messages(nodes: Sequence[Node], grids: Mapping[int, GridAt]) -> tuple[int, ...] | None:
    """Return the shape of the domain that sizes of messages along each dimension tell.

    A face across dimension d has the points of a block but those along d: L_d is as p_d over the
    bytes. Calls that reach neighbours in all dimensions tell it each, else all calls together.
    None where a dimension has no messages, or they contradict one another.
    """
    sends = [node for node in nodes if node.kind == SEND]
    for some in ([[node] for node in sends], [sends]):
        found = [
            np.log(np.array(grid.dims) / means)
            for group in some
            for n, grid in grids.items()
            if min(grid.dims) > 1 and (means := _bytes_along(group, n, grid)) is not None
        ]
        relative = np.array([each - each[0] for each in found])
        if len(relative):
            middle = np.median(relative, axis=0)
            near = np.abs(relative - middle).max(axis=1) < math.log(_SPREAD)
            if near.mean() > _MOST_AGREE:
                lengths = np.exp(middle)
                return shape_of([max(1, round(_SCALE * v)) for v in lengths / lengths.max()])
    return None


def _bytes_along(nodes: Sequence[Node], n: int, grid: GridAt) -> np.ndarray | None:
    """Return the mean bytes of messages to the next in each dimension; None where it has none."""
    total, calls = np.zeros(len(grid.dims)), np.zeros(len(grid.dims))
    sizes = np.array(grid.dims)[:, None]
    for node in nodes:
        if n not in node.rows:
            continue
        rows = node.rows[n]
        known = rows.peer >= 0
        step = np.abs(grid.coords[:, rows.peer[known]] - grid.coords[:, rows.rank[known]])
        step = np.minimum(step, sizes - step)
        for d in range(len(grid.dims)):
            mine = (step[d] == 1) & (step.sum(axis=0) == 1)
            total[d] += (rows.nbytes[known] * rows.count[known])[mine].sum()
            calls[d] += rows.count[known][mine].sum()
    return total / calls if calls.all() and total.all() else None


def nearest_shape(
    chosen: GridRule, alike: Sequence[GridRule], shape: Sequence[int] | None
) -> GridRule:
    """Return the rule for a domain whose shape is most like that of the messages.

    chosen itself, where it asks for no domain, or where messages tell none.
    """
    if shape is None or not isinstance(chosen, OfDomain):
        return chosen
    same = [r for r in (chosen, *alike) if isinstance(r, OfDomain) and r.ndims == len(shape)]
    return min(same, key=lambda r: _unlike(r.domain, shape), default=chosen)


def of_shape(rules: Sequence[GridRule], shape: Sequence[int] | None) -> list[GridRule]:
    """Leave out the rules for domains of another shape than messages tell."""
    if shape is None:
        return list(rules)
    limit = math.log(_SPREAD)
    return [
        r
        for r in rules
        if not isinstance(r, OfDomain) or r.ndims != len(shape) or _unlike(r.domain, shape) < limit
    ]


def _unlike(domain: Sequence[int], shape: Sequence[int]) -> float:
    ratio = np.log(np.array(domain) / np.array(shape))
    return float(np.ptp(ratio))


def rules_of_domains(shapes: Sequence[Sequence[int]], counts: Sequence[int]) -> list[OfDomain]:
    """Return the rules for domains of such extents that have a grid of more than one dimension."""
    return [
        rule
        for domain in shapes
        for rule in rules_for(domain)
        if any(sum(x > 1 for x in rule.dims(n) or ()) > 1 for n in counts)
    ]


def rules_for(domain: Sequence[int]) -> list[OfDomain]:
    """Return the rules for a domain of such extents."""
    kinds = [kind for kind in Several.kinds.values() if issubclass(kind, OfDomain)]
    return [rule for kind in kinds for rule in kind.for_domain(domain)]


#: Ranks and partners of a node at one count.
Partners = tuple[int, np.ndarray, np.ndarray]
#: Lists of extents that are followed at once, and those that are tried in full at the end.
_FOLLOWED, _TRIED = 12, 4
#: Nodes with more kinds of steps than this are as bad as any.
_MOST_STEPS = 12
#: Counts that a rule with an exception has to explain.
_AGREEING = 3


@dataclass(frozen=True)
class TracedGrid(ListedGrid, kind="traced"):
    """Extents as the traces show them; no rule gives them, so there are none at other counts."""

    named_as = "of extents read off the traces, which no rule gives"
    rest: str = ""

    def cost(self) -> float:
        return SAID * len(self.listed)


@dataclass(frozen=True)
class Otherwise(Several, kind="otherwise"):
    """Extents of a ``rule`` but at the counts ``listed``."""

    named_too = ("listed", "rule")
    rule: GridRule | None = field(default=None, metadata={"read": GridRule.load})

    def extents(self, n: int) -> tuple[int, ...] | None:
        found = dict(self.listed).get(n)
        return found if found or self.rule is None else self.rule.dims(n)

    def cost(self) -> float:
        return SAID * len(self.listed) + (self.rule.cost() if self.rule else 0.0)

    def how(self) -> str:
        but = ", ".join(f"{'x'.join(map(str, dims))} at {n}" for n, dims in self.listed)
        return f"{self.rule.how() if isinstance(self.rule, Several) else ''} but {but}"


def rules_of_traces(
    nodes: Sequence[tuple[int, Sequence[Partners]]], counts: Sequence[int]
) -> list[GridRule]:
    """Return grids whose extents explain the partners with the fewest kinds of steps.

    nodes: how often each set of partners occurs, and the partners at every count.
    """
    rules: list[GridRule] = []
    for ndims in DIMENSIONS:
        for listed in _best_lists(nodes, counts, ndims):
            rules += [*_but_smallest(listed), TracedGrid(ndims, listed=listed)]
    return rules


Listing = tuple[tuple[int, tuple[int, ...]], ...]


def _best_lists(
    nodes: Sequence[tuple[int, Sequence[Partners]]], counts: Sequence[int], ndims: int
) -> list[Listing]:
    """Return lists of (count, extents), found from the largest count down."""
    empty = tuple(frozenset[int]() for _ in nodes)
    ways: list[tuple[int, Listing, tuple[frozenset[int], ...]]] = [(0, (), empty)]
    for n in sorted(counts, reverse=True):
        here = {dims: _steps(nodes, n, dims, max(counts)) for dims in factorisations(n, ndims)}
        longer = []
        for _, listed, seen in ways:
            for dims, steps in here.items():
                both = tuple(a | b for a, b in zip(seen, steps, strict=True))
                price = sum(
                    times * min(len(kinds), _MOST_STEPS)
                    for (times, _), kinds in zip(nodes, both, strict=True)
                )
                longer.append((price, ((n, dims), *listed), both))
        longer.sort(key=lambda way: (way[0], way[1]))
        ways = longer[:_FOLLOWED]
    several = [w for w in ways if any(sum(x > 1 for x in dims) > 1 for _, dims in w[1])]
    return [listed for price, listed, _ in several if price == several[0][0]][:_TRIED]


def _steps(
    nodes: Sequence[tuple[int, Sequence[Partners]]], n: int, dims: tuple[int, ...], top: int
) -> tuple[frozenset[int], ...]:
    """Return for each node the kinds of steps to its partners on a grid: lengths, no directions."""
    coords, sizes = coords_of(dims, n), np.array(dims)[:, None]
    out = []
    for _, partners in nodes:
        kinds: set[int] = set()
        for m, rank, peer in partners:
            if m == n:
                step = np.abs(coords[:, peer] - coords[:, rank])
                step = np.minimum(step, sizes - step)
                code = step[0]
                for row in step[1:]:
                    code = code * (top + 1) + row
                kinds.update(np.unique(code).tolist())
        out.append(frozenset(kinds))
    return tuple(out)


def _but_smallest(listed: Listing) -> list[GridRule]:
    """Return the rules that give all these extents but those of the smallest count."""
    (first, dims), rest = listed[0], listed[1:]
    if len(rest) < _AGREEING:
        return []
    ndims, counts = len(dims), [n for n, _ in rest]
    found = [rule for rule in all_rules(counts) if rule.ndims == ndims]
    found = [rule for rule in found if not isinstance(rule, Bits)]
    found += rules_of_domains([s for s in SHAPES if len(s) == ndims], counts)
    return [
        Otherwise(ndims, listed=((first, dims),), rule=rule)
        for rule in found
        if all(rule.dims(n) == there for n, there in rest)
    ]
