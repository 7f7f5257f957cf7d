"""Axes: the ways in which blocks may be numbered, by grid coordinates, partners, stages, turns.

An axis says how many blocks there are and which one a row has. Plain axes take a coordinate as
it is; affine ones a sum of coordinates and the iteration, mod the extent, as the cells of a
multi-partition and blocks that travel around a ring are numbered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np

from p3s.laws.expr import Expr, add, evaluate, mul, num, sym
from p3s.model.sizes.blocks import Axis, Observations, cells_of

#: Offsets of an affine coordinate.
OFFSETS = (0, -1, 1, -2, 2)


def axis_of(obs: Observations, p: Expr, c: Expr) -> Axis:
    """Return the axis with its values at every row of ``obs``."""
    m = len(obs.value)

    def column(e: Expr) -> np.ndarray:
        return np.broadcast_to(np.rint(evaluate(e, obs.env)).astype(np.int64), (m,))

    return Axis(p, c, column(p), column(c))


def plain_axes(obs: Observations) -> list[Axis]:
    """Return the axes along which blocks are cut as a rule: own and partner's coordinates, ranks.

    The dimensions a shift does not move along (``obs.across``) come first.
    """
    names: list[tuple[str, str]] = []
    if obs.ndims > 1:
        order = [*obs.across, *(d for d in range(obs.ndims) if d not in obs.across)]
        names += [(f"p{d}", f"c{d}") for d in order]
        names += [(f"p{d}", f"q{d}") for d in order if f"q{d}" in obs.env]
    names.append(("n", "r"))
    out = [axis_of(obs, sym(p), sym(c)) for p, c in names]
    if "q0" in obs.env:  # the partner's rank
        rank: Expr = sym("q0")
        for d in range(1, obs.ndims):
            rank = add(mul(rank, sym(f"p{d}")), sym(f"q{d}"))
        out.append(axis_of(obs, sym("n"), rank))
    # shares of workers, where the first rank has none
    out += [
        axis_of(obs, add(a.p, num(-1)), add(a.c, num(-1)))
        for a in out
        if a.p == sym("n") and len(a.at) and a.at.min() > 0 and a.count.min() > 2
    ]
    return out


def composite_axes(obs: Observations) -> list[Axis]:
    """Return axes of blocks cut over two dimensions of the grid at once, either one first."""
    out = []
    for a, b in combinations(range(obs.ndims), 2):
        p = mul(sym(f"p{a}"), sym(f"p{b}"))
        out.append(axis_of(obs, p, add(mul(sym(f"c{b}"), sym(f"p{a}")), sym(f"c{a}"))))
        if obs.ndims > 2:
            out.append(axis_of(obs, p, add(mul(sym(f"c{a}"), sym(f"p{b}")), sym(f"c{b}"))))
    return out


def moving(obs: Observations) -> list[str]:
    """Return the symbols of iteration and stage that change within the observations."""
    return [u for u in ("t", "s") if u in obs.env and np.any(obs.env[u] != obs.env[u][0])]


@dataclass(frozen=True)
class Direction:
    """A sum of coordinates and iteration with coefficients -1, 0 and 1, counted mod symbol
    ``p``."""

    p: str
    terms: tuple[tuple[str, int], ...]

    def axis(self, obs: Observations, sign: int = 1, offset: int = 0) -> Axis:
        """Return the axis (sign * sum + offset) mod p; a single coordinate needs no mod."""
        if (
            len(self.terms) == 1
            and sign * self.terms[0][1] == 1
            and not offset
            and self.terms[0][0][0] in "cqr"
        ):
            return axis_of(obs, sym(self.p), sym(self.terms[0][0]))
        parts = [mul(num(sign * k), sym(name)) for name, k in self.terms]
        return axis_of(obs, sym(self.p), ["mod", add(*parts, num(offset)), sym(self.p)])

    def coordinate(self, sign: int, offset: int, ndims: int) -> tuple[int, tuple[int, ...], int]:
        """Return (coefficient of the iteration, coefficients of the coordinates, offset)."""
        k = dict(self.terms)
        return (sign * k.get("t", 0), tuple(sign * k.get(f"c{d}", 0) for d in range(ndims)), offset)


def _same_extents(obs: Observations) -> bool:
    return all(np.array_equal(obs.env["p0"], obs.env[f"p{d}"]) for d in range(1, obs.ndims))


def directions(obs: Observations, turns: bool = True) -> list[Direction]:
    """Return the directions of affine coordinates, fewest terms first, each up to its sign.

    Coordinates of different dimensions are added where all extents are equal at every count.
    """
    with_turn = [u for u in moving(obs) if turns]
    groups: list[tuple[str, list[str]]] = []
    if obs.ndims == 1:
        groups.append(("n", ["r"]))
    elif _same_extents(obs):
        groups.append(("p0", [f"c{d}" for d in range(obs.ndims)]))
        if with_turn:
            groups.append(("n", ["r"]))
    else:
        groups += [(f"p{d}", [f"c{d}"]) for d in range(obs.ndims)]
        groups.append(("n", ["r"]))
    out: list[Direction] = []
    for p, names in groups:
        for coefs in product((0, 1, -1), repeat=len(names) + len(with_turn)):
            used = [k for k in coefs if k]
            if not used or used[0] < 0:
                continue
            terms = tuple(
                (name, k) for name, k in zip([*names, *with_turn], coefs, strict=True) if k
            )
            if sum(name in with_turn for name, _ in terms) < 2:
                out.append(Direction(p, terms))
    return sorted(out, key=lambda d: len(d.terms))


def variants(obs: Observations, d: Direction) -> Iterator[tuple[float, int, int, Axis]]:
    """Yield (cost, sign, offset, axis) of all ways to count along a direction, simplest first.

    One coordinate by itself counts as it is.
    """
    alone = len(d.terms) == 1 and d.terms[0][0][0] in "cr" and not moving(obs)
    for offset, sign in product(OFFSETS, (1, -1)) if not alone else ((0, 1),):
        yield 2 * abs(offset) + (sign < 0) / 2, sign, offset, d.axis(obs, sign, offset)


def decides(obs: Observations, axes: Sequence[Axis], extra: Sequence[np.ndarray] = ()) -> bool:
    """Tell whether the value is a function of the count and the position along the axes."""
    _, first, which = cells_of([obs.env["n"], *(a.at for a in axes), *extra])
    return bool(np.array_equal(obs.value[first][which], obs.value))
