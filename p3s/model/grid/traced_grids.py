"""Process grids read off the traces: the extents that explain all partners, by whatever rule.

Any ordered factorisation of a count may be its grid. Where the traces show one at every count,
the rule is sought afterwards: one that fails at the smallest count alone, or none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from p3s.base.extents import factorisations
from p3s.model.grid.domain_grids import SHAPES, rules_of_domains
from p3s.model.grid.grid_rule import GridRule, coords_of
from p3s.model.grid.grids import Bits, Listed, Several, all_rules

#: Ranks and partners of a node at one count.
Partners = tuple[int, np.ndarray, np.ndarray]
#: Dimensions of grids that are read off.
_DIMENSIONS = (2, 3)
#: Lists of extents that are followed at once, and those that are tried in full at the end.
_FOLLOWED, _TRIED = 12, 4
#: Nodes with more kinds of steps than this are as bad as any.
_MOST_STEPS = 12
#: Counts that a rule with an exception has to explain.
_AGREEING = 3
#: What every extent that no rule gives costs.
_EXCEPTION = 0.5


@dataclass(frozen=True)
class Traced(Listed, kind="traced"):
    """Extents as the traces show them; no rule gives them, so there are none at other counts."""

    rest: str = ""

    def cost(self) -> float:
        return _EXCEPTION * len(self.listed)

    def how(self) -> str:
        return "of extents read off the traces, which no rule gives"


@dataclass(frozen=True)
class Otherwise(Several, kind="otherwise"):
    """Extents of a ``rule`` but at the counts ``listed``."""

    rule: GridRule | None = field(default=None, metadata={"read": GridRule.load})

    @classmethod
    def proposed(cls, ndims: int) -> Iterator[GridRule]:
        yield from ()

    def extents(self, n: int) -> tuple[int, ...] | None:
        found = dict(self.listed).get(n)
        return found if found or self.rule is None else self.rule.dims(n)

    def cost(self) -> float:
        return _EXCEPTION * len(self.listed) + (self.rule.cost() if self.rule else 0.0)

    def own(self) -> dict[str, Any]:
        return {"listed": [[n, list(d)] for n, d in self.listed], "rule": self.rule}

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
    for ndims in _DIMENSIONS:
        for listed in _best_lists(nodes, counts, ndims):
            rules += [*_but_smallest(listed), Traced(ndims, listed=listed)]
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
