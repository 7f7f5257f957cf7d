"""Grids with a dimension that no traced count cuts: sizes show that it is there.

A face of a grid of two dimensions holds all points of the third. A rule that follows the shape of
the domain cuts it as soon as the blocks are short enough in the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, permutations
from math import prod

from p3s.base.ops import SEND
from p3s.laws.expr import Expr
from p3s.model.grid.at import GridAt, GridRule
from p3s.model.grid.domain_grids import rules_for
from p3s.model.grid.grids import Several
from p3s.model.partners.relation import Shift
from p3s.model.types import Item

#: Fields that one message may hold, and bytes of a number where sizes are in bytes.
_FIELDS, _BYTES = range(1, 9), (1, 4, 8)
#: Dimensions of domains.
_MOST = 3
#: Multiples of the largest count at which rules are told apart.
_BEYOND = range(2, 17)


@dataclass(frozen=True)
class Uncut(Several, kind="uncut"):
    """Grids of a ``rule`` of more dimensions, of which those of ``order`` are cut first."""

    named_too = ("rule",)
    rule: GridRule | None = field(default=None, metadata={"read": GridRule.load})

    def _inner(self) -> GridRule:
        assert self.rule is not None
        return self.rule

    def extents(self, n: int) -> tuple[int, ...] | None:
        dims = self._inner().dims(n)
        return dims if dims is None or self._more(dims) else tuple(dims[d] for d in self.order)

    def _more(self, dims: Sequence[int]) -> bool:
        """Tell whether a dimension beside those of ``order`` is cut."""
        return prod(dims) != prod(dims[d] for d in self.order)

    def at(self, n: int) -> GridAt | None:
        grid = self._inner().at(n)
        if grid is None or self._more(grid.dims):
            return grid
        kept = list(self.order)
        dims = tuple(grid.dims[d] for d in kept)
        return replace(grid, dims=dims, coords=grid.coords[kept])

    def words(self) -> str:
        inner = self._inner()
        apart = [str(d) for d in range(inner.ndims) if d not in self.order]
        return f"{inner.words()}, dimension {' and '.join(apart)} not cut so far"


@dataclass(frozen=True)
class Face:
    """The size of messages to a neighbour: a number times a block per dimension across.

    lengths: (dimension, points of the domain along it); more: what a block has beside its points.
    """

    factor: int
    lengths: tuple[tuple[int, int], ...]
    more: int


def faces_of(items: Iterable[Item]) -> set[Face]:
    """Return what the sizes of messages along one dimension say of faces."""
    found = [
        _face(slot.elements.expr)
        for item in items
        if item.kind == SEND and isinstance(item.relation, Shift)
        if sum(map(bool, item.relation.vec)) == 1
        for slot in item.slots
        if slot.elements.expr is not None
    ]
    return {face for face in found if face is not None}


def _face(expr: Expr) -> Face | None:
    """Return what an equation says of a face, None where it is no such product."""
    factor, lengths, more = 1, [], 0
    for part in expr[1:] if expr[0] == "mul" else [expr]:
        if part[0] == "num" and part[2] == 1:
            factor *= part[1]
            continue
        if part[0] == "add" and part[1][0] == "block":  # a ghost layer, or a point at the border
            part, more = part[1], part[2][1] if part[2][0] == "num" else 1
        if part[0] != "block" or part[2][0] != "num" or part[3][0] != "sym" or part[3][1] == "n":
            return None
        lengths.append((int(part[3][1][1:]), part[2][1]))
    return Face(factor, tuple(lengths), more) if factor > 1 else None


def uncut_rivals(
    family: GridRule, grids: Mapping[int, GridAt], items: Iterable[Item], typed: Collection[int]
) -> list[GridRule]:
    """Return the rules with a dimension more that have the same grids at all traced counts.

    typed: numbers among the program's arguments; if one of them may be the length of the dimension,
    it is.
    """
    faces = faces_of(items)
    if family.layout not in ("row", "column") or family.part or not faces:
        return []
    ndims, counts = family.ndims, sorted(grids)
    out: dict[object, GridRule] = {}
    for lengths, hidden in _domains(ndims, faces, set(typed)):
        for order in combinations(range(ndims + len(hidden)), ndims):
            for rule in rules_for(_merge_extents(lengths, hidden, order)):
                uncut = Uncut(ndims, order, rule=replace(rule, layout=family.layout))
                if all((g := uncut.at(n)) is not None and g.key == grids[n].key for n in counts):
                    beyond = tuple(uncut.dims(k * counts[-1]) for k in _BEYOND)
                    if any(dims is not None and len(dims) > ndims for dims in beyond):
                        out.setdefault(beyond, uncut)
    return list(out.values())


def _merge_extents(
    lengths: Sequence[int], hidden: Sequence[int], order: Sequence[int]
) -> list[int]:
    rest = iter(hidden)
    cut = dict(zip(order, lengths, strict=True))
    return [cut[d] if d in cut else next(rest) for d in range(len(lengths) + len(hidden))]


def _domains(
    ndims: int, faces: Collection[Face], typed: set[int]
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield lengths of the dimensions that are cut, and of those that are not."""
    if ndims == 1:  # faces tell nothing of the length along the only dimension
        known = [t for t in typed if t > 1]
        for count in range(1, _MOST):
            for hidden in permutations(known, count):
                if any(f.factor in {k * prod(hidden) for k in _FIELDS} for f in faces):
                    yield from (((length,), hidden) for length in known)
        return
    shown: dict[int, Counter[int]] = {}
    for f in faces:
        for d, length in f.lengths:
            shown.setdefault(d, Counter())[length] += 1
    if len(shown) < ndims or ndims >= _MOST:
        return
    lengths = tuple(shown[d].most_common(1)[0][0] for d in range(ndims))
    yield from ((lengths, (size,)) for size in sorted(_sizes(faces, typed)))


def _sizes(faces: Collection[Face], typed: set[int]) -> set[int]:
    """Return how long the dimension may be that is in the factors of all faces."""
    found = [
        {
            size
            for k in _FIELDS
            for width in _BYTES
            for size in (f.factor // (k * width), f.factor // (k * width) - f.more)
            if f.factor % (k * width) == 0 and size > 1
        }
        for f in {(f.factor, f.more): f for f in faces}.values()
    ]
    every = set[int]().union(*found)
    common = every.intersection(*found) or every
    return (common & typed) or common
