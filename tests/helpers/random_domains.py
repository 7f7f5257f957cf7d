"""Programs made up at random around a domain: how it is cut decides the grid, sizes and neighbours.

Domains of two or three dimensions are decomposed by their shape or not at all, cut in many ways,
with borders and ghost layers, and exchanged along faces or with all neighbours; some programs halve
ranges of ranks, or end their loops by a tolerance.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from corpus import Program, Recorder
from random_programs import chance

from p3s.base.extents import dims_balanced, dims_greedy, divisors, factorisations, prime_factors

Extents = tuple[int, ...]
COUNTS = {
    "any": (
        ((4, 8, 12), (16, 24, 40)),
        ((4, 6, 8, 12), (10, 18, 36)),
        ((2, 4, 8, 16), (32, 48, 64)),
        ((6, 8, 12, 18), (24, 27, 64)),
        ((8, 12), (10, 20, 32)),
    ),
    "powers": (((4, 8, 16), (32, 64, 128)), ((8, 16, 32), (64, 128))),
}


@dataclass(frozen=True)
class Domain:
    """A domain: its points per dimension, how ranks are arranged on it, how it is cut."""

    sizes: Extents
    arranged: str
    cut: str
    periodic: tuple[bool, ...]
    order: str

    def dims(self, n: int) -> Extents:
        """Return the process grid at ``n`` processes."""
        return _ARRANGED[self.arranged](n, self.sizes)

    def place(self, rank: int, dims: Extents) -> Extents:
        """Return the coordinates of a rank."""
        if self.order == "column":
            return tuple(int(x) for x in np.unravel_index(rank, dims[::-1]))[::-1]
        return tuple(int(x) for x in np.unravel_index(rank, dims))

    def rank(self, place: Sequence[int], dims: Extents) -> int | None:
        """Return the rank at a place, None beyond an open end."""
        at = [c % p if w else c for c, p, w in zip(place, dims, self.periodic, strict=True)]
        if any(not 0 <= c < p for c, p in zip(at, dims, strict=True)):
            return None
        if self.order == "column":
            return int(np.ravel_multi_index(at[::-1], dims[::-1]))
        return int(np.ravel_multi_index(at, dims))

    def block(self, d: int, p: int, c: int) -> int:
        """Return the points of a block in dimension d."""
        return block(self.cut, self.sizes[d], p, c)


def block(cut: str, size: int, p: int, c: int) -> int:
    """Return how many of ``size`` points part c of p has."""
    base, rest = divmod(size, p)
    if cut == "first":
        return base + (c < rest)
    if cut == "last":
        return base + (c >= p - rest)
    if cut == "floor":
        return (c + 1) * size // p - c * size // p
    if cut == "ceil bounds":
        return -(-(c + 1) * size // p) - -(-c * size // p)
    if cut == "rest to the last":
        return base + rest * (c == p - 1)
    if cut == "ceil for all":
        return -(-size // p)
    if cut == "one more point":  # cells are cut, the last block has the point at the border
        return (c + 1) * size // p - c * size // p + (c == p - 1)
    raise ValueError(cut)


def _least_surface(n: int, sizes: Extents) -> Extents:
    def surface(dims: Extents) -> float:
        sides = [s / p for s, p in zip(sizes, dims, strict=True)]
        return sum(math.prod(sides) / side for side in sides)

    return min(factorisations(n, len(sizes)), key=surface)


def _longest_first(n: int, sizes: Extents) -> Extents:
    dims = [1] * len(sizes)
    for factor in prime_factors(n)[::-1]:
        sides = [s / p for s, p in zip(sizes, dims, strict=True)]
        dims[sides.index(max(sides))] *= factor
    return tuple(dims)


def _past_ratio(n: int, sizes: Extents) -> Extents:
    if len(sizes) != 2:
        return _least_surface(n, sizes)
    for c in divisors(n):
        if n // c * sizes[1] <= c * sizes[0]:
            return n // c, c
    return 1, n


_ARRANGED: dict[str, Callable[[int, Extents], Extents]] = {
    "balanced": lambda n, sizes: dims_balanced(n, len(sizes)),
    "greedy": lambda n, sizes: dims_greedy(n, len(sizes)),
    "balanced up": lambda n, sizes: dims_balanced(n, len(sizes))[::-1],
    "least surface": _least_surface,
    "longest first": _longest_first,
    "past the ratio": _past_ratio,
}
CUTS = ("first", "last", "floor", "ceil bounds", "rest to the last", "ceil for all")


def make(seed: int, hidden: bool = False) -> tuple[Program, Extents, Extents, tuple[int, ...], str]:
    """Return a program, counts to learn from and to check at, its arguments, what it is made of."""
    rng = random.Random(("hidden", seed).__repr__() if hidden else seed)
    admits = rng.choice(("any", "any", "powers"))
    counts, targets = rng.choice(COUNTS[admits])
    ndims = rng.choice((2, 2, 3))
    sizes = tuple(rng.choice((60, 96, 117, 133, 200, 256, 360, 500)) for _ in range(ndims))
    domain = Domain(
        sizes,
        rng.choice(tuple(_ARRANGED)),
        rng.choice((*CUTS, "one more point")),
        tuple(rng.random() < 0.3 for _ in range(ndims)),
        rng.choice(("row", "row", "column")),
    )
    typed = sizes if rng.random() < 0.5 else ()
    parts = [_part(rng, str(k), domain, admits) for k in range(rng.randrange(1, 4))]

    def program(rec: Recorder) -> None:
        for _, part in parts:
            part(rec)

    words = "; ".join(word for word, _ in parts)
    about = f"{domain.arranged} {sizes}{' typed' if typed else ''} {domain.cut} {domain.order}"
    return program, counts, targets, typed, f"{admits} {about} {domain.periodic}: {words}"


Part = tuple[str, Callable[[Recorder], None]]


def _part(rng: random.Random, site: str, domain: Domain, admits: str) -> Part:
    kind = rng.choice(("faces", "faces", "faces", "all", "halving", "converges", "ring"))
    if kind == "faces":
        return _faces(rng, site, domain)
    if kind == "all":
        return _all_neighbours(rng, site, domain)
    if kind == "halving":
        return _halving(site)
    if kind == "converges":
        return _converging(rng, site)
    return _ring(site)


def _faces(rng: random.Random, site: str, domain: Domain) -> Part:
    """Return an exchange of faces, a call site for all or for each direction; ghost layers."""
    ghost, fields, one = rng.randrange(3), rng.choice((1, 1, 2, 5)), rng.random() < 0.5
    turns = rng.randrange(2, 6)
    k = len(domain.sizes)

    def part(rec: Recorder) -> None:
        dims = domain.dims(rec.n)
        here = domain.place(rec.rank, dims)
        for _ in range(turns):
            for d, sign in product(range(k), (-1, 1)):
                there = list(here)
                there[d] += sign
                peer = domain.rank(there, dims)
                if peer is None or peer == rec.rank:
                    continue
                face = math.prod(
                    domain.block(e, dims[e], here[e]) + 2 * ghost for e in range(k) if e != d
                )
                name = f"{site}.send" if one else f"{site}.send{d}{sign}"
                rec("Send", site=name, peer=peer, nbytes=8 * fields * face)
            rec("Allreduce", site=f"{site}.end", nbytes=64)

    return f"faces x{turns} ghost {ghost} fields {fields}{' one site' if one else ''}", part


def _all_neighbours(rng: random.Random, site: str, domain: Domain) -> Part:
    """Return an exchange with all neighbours, across edges and corners too."""
    k, turns = len(domain.sizes), rng.randrange(2, 5)

    def part(rec: Recorder) -> None:
        dims = domain.dims(rec.n)
        here = domain.place(rec.rank, dims)
        for _ in range(turns):
            for step in product((-1, 0, 1), repeat=k):
                peer = domain.rank([c + s for c, s in zip(here, step, strict=True)], dims)
                if peer is None or peer == rec.rank:
                    continue
                shared = math.prod(
                    domain.block(e, dims[e], here[e]) for e in range(k) if not step[e]
                )
                rec("Isend", site=f"{site}.send", peer=peer, nbytes=8 * shared)
            rec("Barrier", site=f"{site}.end")

    return f"all neighbours x{turns}", part


def _halving(site: str) -> Part:
    """Return a broadcast by halving ranges: the first rank of a range sends to its middle."""

    def part(rec: Recorder) -> None:
        low, high = 0, rec.n
        while high - low > 1:
            middle = (low + high) // 2
            if rec.rank == low:
                rec("Send", site=f"{site}.half", peer=middle, nbytes=4096)
            if rec.rank < middle:
                high = middle
            else:
                low = middle

    return "halving", part


def _converging(rng: random.Random, site: str) -> Part:
    """Return a loop that ends by a tolerance: nearly always after as many iterations."""
    usual, salt = rng.randrange(20, 100), rng.random()

    def part(rec: Recorder) -> None:
        for _ in range(usual - (chance(salt, rec.n) % 4 == 0)):
            rec("Allreduce", site=f"{site}.norm", nbytes=8)

    return f"converges in about {usual}", part


def _ring(site: str) -> Part:
    def part(rec: Recorder) -> None:
        rec("Send", site=f"{site}.next", peer=(rec.rank + 1) % rec.n, nbytes=800)

    return "ring", part
