"""Rules of partners for one rank, in plain Python, and how a total is shared out.

``p3s model --python`` copies what it needs from here into the module it writes, so nothing but
the standard library may be used. The same rules for all ranks at once, and what their parameters
mean, are in p3s/model/partners (shift.py, single.py, lines.py) and axes.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from p3s.report.plain_grids import Grid, communicators, members


# ---- partners ----------------------------------------------------------------------------------
class Line(NamedTuple):
    """The line of ranks along which a relation leads: own place c, length p, longest in use."""

    c: int
    p: int
    longest: int
    at: Callable[[int], int]

    def rank(self, place: int, there: bool = True) -> int:
        """Return the rank at a place, -1 outside the line or where not ``there``."""
        return self.at(place) if there and 0 <= place < self.p else -1


def line(axis: Any, rank: int, n: int, grid: Grid) -> Line:
    """Return the line of a rank: all ranks, a dimension of the grid, a communicator."""
    if axis is None:
        return Line(rank, n, n, lambda place: place)
    if isinstance(axis, int):
        coords, p = grid.coordinates(rank, n), grid.dims(n)[axis]
        if coords[axis] < 0:
            return Line(-1, 0, p, lambda place: -1)
        return Line(
            coords[axis],
            p,
            p,
            lambda place: grid.rank((*coords[:axis], place, *coords[axis + 1 :]), n),
        )
    group = members(axis, rank, n, grid)
    longest = max(map(len, communicators(axis, n, grid).values()), default=0)
    return Line(group.index(rank) if group else -1, len(group), longest, lambda place: group[place])


def low_power(n: int) -> int:
    """Return the largest power of two that is at most n (1 for 0)."""
    return 1 << (max(n, 1).bit_length() - 1)


def digits(p: int, base: int = 2) -> int:
    """Return how many powers of a base are below p."""
    k = 0
    while base**k < p:
        k += 1
    return k


def index(rank: Any, p: int, coords: tuple[int, ...] = ()) -> int:
    """Return a place given as 0, 1, ..., -1 (the last), "half" or own coordinate "c0"."""
    if isinstance(rank, str):
        return p // 2 if rank == "half" else coords[int(rank[1:])]
    return int(rank) if rank >= 0 else p + int(rank)


def partners(relation: dict[str, Any], rank: int, n: int, grid: Grid) -> list[int]:
    """Return the partner of a rank at every stage, -1 where there is none."""
    kind = relation["kind"]
    if kind == "self":
        found = [rank]
    elif kind == "root":
        root = index(relation["rank"], n)
        found = [root if 0 <= root < n else -1]
    elif kind == "shift":
        found = [shifted(relation, rank, n, grid)]
    elif kind == "transpose":
        found = [transposed(relation.get("axes", (0, 1)), rank, n, grid)]
    elif kind == "opposite":
        found = [(rank + n // 2) % n]
    elif kind == "modulo":
        found = [rank % int(relation["k"])]
    else:
        found = along(relation, rank, n, grid)
    return found[::-1] if relation.get("descending") else found


def shifted(relation: dict[str, Any], rank: int, n: int, grid: Grid) -> int:
    """Return the rank at a distance on the grid, -1 beyond a border."""
    if grid.coordinates(rank, n)[0] < 0:
        return -1
    to = []
    for c, p, by, wrap in zip(
        grid.coordinates(rank, n), grid.dims(n), relation["vec"], relation["wrap"], strict=True
    ):
        c = (c + by) % p if wrap else c + by
        if not 0 <= c < p:
            return -1
        to.append(c)
    return grid.rank(tuple(to), n)


def transposed(axes: tuple[int, int], rank: int, n: int, grid: Grid) -> int:
    """Return the rank with two coordinates exchanged; on 2:1 grids pairs of ranks are."""
    a, b = axes
    dims, to = grid.dims(n), list(grid.coordinates(rank, n))
    if to[0] < 0:
        return -1
    i, j = to[a], to[b]
    if dims[a] == dims[b]:
        to[a], to[b] = j, i
    elif dims[b] == 2 * dims[a]:
        to[a], to[b] = j // 2, 2 * i + j % 2
    elif dims[a] == 2 * dims[b]:
        to[a], to[b] = 2 * j + i % 2, i // 2
    else:
        return -1
    return grid.rank(tuple(to), n)


def along(relation: dict[str, Any], rank: int, n: int, grid: Grid) -> list[int]:
    """Return the partners of relations that lead along a line."""
    kind, own = relation["kind"], line(relation.get("axis"), rank, n, grid)
    c, p = own.c, own.p
    wrap, sign = bool(relation.get("wrap")), int(relation.get("sign", 1))
    if not p:  # a rank that is in no communicator of the law
        return [-1] * len(stages_of(relation, own))
    if kind == "mirror":
        return [own.rank(p - 1 - c)]
    if kind == "place":
        return [own.rank(index(relation["rank"], p, grid.coordinates(rank, n)))]
    if kind == "skew":
        return [own.rank((c + sign * grid.coordinates(rank, n)[relation["of"]]) % p)]
    if kind == "along":
        return [own.rank((c + relation["by"]) % p if wrap else c + relation["by"])]
    if kind == "far":
        to = c + sign * (p // relation["k"])
        parts = relation["k"] * (p // relation["k"])
        return [own.rank(to % p) if wrap else own.rank(to, c < parts and to < parts)]
    if kind == "fold":
        low = low_power(p)
        return [own.rank(c + low, c < low) if sign > 0 else own.rank(c - low, c >= low)]
    if kind == "tree":
        root = index(relation.get("root", 0), p, grid.coordinates(rank, n))
        return [branch(relation, own, root, s, k) for s, k in stages_of(relation, own)]
    if kind == "level":
        return [level(relation, own, s, rank, n, grid) for s, _ in stages_of(relation, own)]
    return [family(relation, own, s) for s, _ in stages_of(relation, own)]


def stages_of(relation: dict[str, Any], own: Line) -> list[tuple[int, int]]:
    """Return the stages of a family of partners (and children of a tree) in ascending order."""
    kind, most, base = relation["kind"], own.longest, int(relation.get("base", 2))
    if kind == "xor" and relation.get("fold"):
        return [(s, 0) for s in range(low_power(most).bit_length() - 1)]
    if kind in ("xor", "level"):
        return [(s, 0) for s in range(digits(most))]
    if kind == "stride":
        return [(s, 0) for s in range(digits(most, base))]
    if kind == "tree":
        return [(s, k) for s in range(digits(most, base)) for k in range(1, base)]
    if kind == "heap":
        return [(k, 0) for k in (range(1, relation["k"] + 1) if relation["sign"] > 0 else (0,))]
    if kind == "steps":
        return [(s, 0) for s in range(1, (most - 1) // relation["by"] + 1)]
    if kind == "others":
        walk = relation.get("walk", "plus")
        if walk == "xor":
            return [(s, 0) for s in range(1, 1 << digits(most))]
        if walk in ("plus", "minus"):
            return [(s, 0) for s in range(1, most)]
        return [(s, 0) for s in (range(most) if walk != "down" else range(most - 1, -1, -1))]
    return [(0, 0)]


def family(relation: dict[str, Any], own: Line, s: int) -> int:
    """Return the partner at stage s of xor, stride, others, heap and steps."""
    kind, c, p = relation["kind"], own.c, own.p
    if kind == "xor":
        return folded(relation["fold"], own, s) if relation.get("fold") else own.rank(c ^ (1 << s))
    if kind == "stride":
        to = c + relation["sign"] * int(relation.get("base", 2)) ** s
        return own.rank(to % p if relation["wrap"] else to)
    if kind == "heap":
        if relation["sign"] < 0:
            return own.rank((c - 1) // relation["k"], c > 0)
        return own.rank(relation["k"] * c + s)
    if kind == "steps":
        return own.rank(c + relation["by"] * s)
    if kind == "others":
        walk = relation.get("walk", "plus")
        if walk == "xor":
            return own.rank(c ^ s)
        if walk in ("plus", "minus"):
            return own.rank((c + s) % p if walk == "plus" else (c - s) % p, s < p)
        if walk == "meet":
            return own.rank((s - c) % p, (s - c) % p != c and s < p)
        return own.rank(s, c != s)
    raise ValueError(f"unknown relation {kind}")


def folded(fold: str, own: Line, s: int) -> int:
    """Return the partner of an exchange in which ranks beyond a power of two do not take part."""
    c, low = own.c, low_power(own.p)
    if fold == "power":
        return own.rank(c ^ (1 << s), c < low and (c ^ (1 << s)) < low)
    rest = own.p - low
    to = (c // 2 if c < 2 * rest else c - rest) ^ (1 << s)
    there = (c >= 2 * rest or c % 2 == 1) and to < low
    return own.rank(2 * to + 1 if to < rest else to + rest, there)


def level(relation: dict[str, Any], own: Line, s: int, rank: int, n: int, grid: Grid) -> int:
    """Return the neighbour at level s, among the multiples of 2**s (from the end on demand)."""
    last = relation.get("anchor") == "last"
    c, sign = (own.p - 1 - own.c, -relation["sign"]) if last else (own.c, relation["sign"])
    many, works = (own.p + (1 << s) - 1) >> s, c % (1 << s) == 0
    if relation.get("all"):
        for p, other in zip(grid.dims(n), grid.coordinates(rank, n), strict=True):
            step = max((p << s) // max(own.longest, 1), 1)
            works = works and (p - 1 - other if last else other) % step == 0
    to = (c >> s) + sign
    if relation["wrap"]:
        to %= max(many, 1)
    to = to << s if to >= 0 else -1
    return own.rank(own.p - 1 - to if to >= 0 and last else to, works and many > 1)


def branch(relation: dict[str, Any], own: Line, root: int, s: int, k: int) -> int:
    """Return the k-th partner at stage s of a tree."""
    base, sign, p = int(relation.get("base", 2)), int(relation["sign"]), own.p
    step = base**s
    v = (own.c - root) % p
    if relation.get("form") == "low":
        there = v < step if sign > 0 else k * step <= v < (k + 1) * step
    else:
        there = v % (base * step) == (0 if sign > 0 else k * step)
    to = v + sign * k * step
    return own.rank((to + root) % p, there and 0 <= to < p)


# ---- shares ------------------------------------------------------------------------------------
Takes = Callable[[int, int], list[int]]
_CELLS: dict[tuple[int, int], tuple[Takes, dict[tuple[int, int], int]]] = {}


def part_of(total: int, taking_part: Takes, rank: int, stage: int, n: int) -> int:
    """Return the part of a total that a rank has at a stage, all shared out evenly.

    taking_part(rank, n): the stages at which a rank takes part.
    """
    known = _CELLS.get((id(taking_part), n))
    if known is None:
        cells = sorted((s, r) for r in range(n) for s in taking_part(r, n))
        known = _CELLS[(id(taking_part), n)] = (
            taking_part,
            {cell: k for k, cell in enumerate(cells)},
        )
    places = known[1]
    return total // len(places) + (places[(stage, rank)] < total % len(places))


def turns_of(first: int, number: int, step: int, calls: int) -> list[tuple[int, int]]:
    """Return the turns of a loop in which a call is made, each with how often."""
    return [(first + k * step, calls // number + (k < calls % number)) for k in range(number)]
