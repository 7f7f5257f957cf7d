"""Products of blocks at affine positions: cells of a multi-partition, blocks that travel.

A position is a sum of coordinates and the iteration, mod the extent. The cells that a rank of a
multi-partition has, have three coordinates, each the sum of the rank's coordinates and of plus or
minus the number of the cell along its diagonal: one slot seldom tells the arrangement, so that it
is a constant that the sizes of the program share.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, groupby, product

import numpy as np

from p3s.laws.expr import add, mul, num, sym
from p3s.model.sizes.hypotheses import Price, Product, prior
from p3s.model.sizes.observations import Axis, Observations, axis_of, decides, moving
from p3s.model.sizes.products import Line, Products, TermsKnown

#: Offsets of an affine coordinate.
OFFSETS = (0, -1, 1, -2, 2)
#: (slope, coefficients of the rank's coordinates, offset) of one coordinate of a cell.
Coordinate = tuple[int, tuple[int, ...], int]


@dataclass(frozen=True)
class Direction:
    """A sum of coordinates and iteration with coefficients -1, 0 and 1, counted mod symbol
    ``p``."""

    p: str
    terms: tuple[tuple[str, int], ...]

    def axis(self, obs: Observations, sign: int = 1, offset: int = 0) -> Axis:
        """Return the axis (sign * sum + offset) mod p; a single coordinate needs no mod."""
        name, k = self.terms[0]
        if self.alone() and sign * k == 1 and not offset:
            return axis_of(obs, sym(self.p), sym(name))
        parts = [mul(num(sign * k), sym(name)) for name, k in self.terms]
        return axis_of(obs, sym(self.p), ["mod", add(*parts, num(offset)), sym(self.p)])

    def alone(self) -> bool:
        """Tell whether this is a single coordinate."""
        return len(self.terms) == 1 and self.terms[0][0][0] in "cr"

    def line(self, obs: Observations) -> Line:
        """Return all ways to count along the direction; one coordinate counts as it is."""
        only = self.alone() and not moving(obs)
        ways = product(OFFSETS, (1, -1)) if not only else ((0, 1),)
        # in turns the arrangement of cells says it
        own = 0.0 if moving(obs) else prior("symbol") * len(self.terms)
        return Line(
            tuple(
                (self.axis(obs, sign, offset), own + 2.0 * abs(offset) + (sign < 0) / 2)
                for offset, sign in ways
            )
        )

    def coordinates(self, ndims: int) -> Iterator[Coordinate]:
        """Yield the coordinates of the ways of :meth:`line` of sizes that change in turns."""
        k = dict(self.terms)
        for offset, sign in product(OFFSETS, (1, -1)):
            yield (
                sign * k.get("t", 0),
                tuple(sign * k.get(f"c{d}", 0) for d in range(ndims)),
                offset,
            )


def _directions(obs: Observations) -> list[Direction]:
    """Return the directions of affine coordinates, fewest terms first, each up to its sign.

    Coordinates of different dimensions are added where all extents are equal at every count.
    """
    turn = moving(obs)
    groups: list[tuple[str, list[str]]] = [("n", ["r"])] if obs.ndims == 1 or turn else []
    if obs.ndims > 1:
        if all(np.array_equal(obs.env["p0"], obs.env[f"p{d}"]) for d in range(obs.ndims)):
            groups.append(("p0", [f"c{d}" for d in range(obs.ndims)]))
        else:
            groups = [*((f"p{d}", [f"c{d}"]) for d in range(obs.ndims)), ("n", ["r"])]
    out: list[Direction] = []
    for p, names in groups:
        for coefs in product((0, 1, -1), repeat=len(names) + len(turn)):
            terms = tuple((x, k) for x, k in zip([*names, *turn], coefs, strict=True) if k)
            if terms and terms[0][1] > 0 and sum(name in turn for name, _ in terms) < 2:
                out.append(Direction(p, terms))
    return sorted(out, key=lambda d: len(d.terms))


def travelling(
    obs: Observations, known: tuple[int, ...], price: Price, terms: TermsKnown
) -> Iterator[Product]:
    """Yield products of one or two blocks at affine positions, of those with the fewest terms."""
    still = obs.even() and not moving(obs)
    if np.any(obs.value <= 0) or still:
        return
    every = _directions(obs)
    sets = sorted(_sets(obs, every), key=lambda some: _terms(every, some))
    for _, alike in groupby(sets, key=lambda some: _terms(every, some)):
        some = list(alike)
        used = sorted({i for mine in some for i in mine})
        where = {i: k for k, i in enumerate(used)}
        search = Products(
            obs,
            [every[i].line(obs) for i in used],
            [[tuple(where[i] for i in mine) for mine in some]],
            terms,
            uneven=True,
        )
        found = search.hypotheses(known, price)
        ways = [c for i in used for c in every[i].coordinates(obs.ndims)] if moving(obs) else []
        for _, h in found:
            yield from _arrange_cells(h, ways, obs.ndims)
        if found:
            return


def _terms(every: Sequence[Direction], some: Sequence[int]) -> int:
    return sum(len(every[i].terms) for i in some)


def _sets(obs: Observations, every: Sequence[Direction]) -> Iterator[tuple[int, ...]]:
    """Yield the directions, by number, of which sizes may be a function."""
    axes = [d.axis(obs) for d in every]
    yield from ((i,) for i, a in enumerate(axes) if a.varies() and decides(obs, [a]))
    for i, j in combinations(range(len(every)), 2):
        a, b = every[i].p, every[j].p
        if (a == b or "n" not in (a, b)) and decides(obs, [axes[i], axes[j]]):
            yield i, j


def _arrange_cells(h: Product, ways: Sequence[Coordinate], ndims: int) -> Iterator[Product]:
    """Yield a product with the arrangements of cells that it may belong to, if there are any."""
    at = [ways[t.axis] for t in h.terms] if ways else []
    if len(at) != 2 or not all(slope for slope, _, _ in at):
        yield h
        return
    sweep = [(s, (0,) * ndims, o - (s < 0)) for s, o in product((1, -1), (0, 1, -1))]
    for cells in dict.fromkeys(arrangement([*at, third]) for third in sweep):
        yield replace(h, cells=cells)


def arrangement(coords: Sequence[Coordinate]) -> Hashable:
    """Return what is common to all ways of numbering the cells of one arrangement."""
    forms = []
    for flip in (1, -1):
        hats = [(flip * s, tuple(flip * s * k for k in a), flip * s * o) for s, a, o in coords]
        for _, base, offset in hats:
            forms.append(
                tuple(
                    sorted(
                        (s, tuple(x - y for x, y in zip(a, base, strict=True)), o - offset)
                        for s, a, o in hats
                    )
                )
            )
    return min(forms)
