"""Small programs made up at random: what a model calls exact must be right on them.

Of ``make`` some parts have rules (halos, exchanges, trees, collectives on parts of the grid, block
sizes), some have none (partners, sizes or turns from a hash of the process count). ``make_domain``
cuts a domain of two or three dimensions by its shape or not at all, in many ways, with borders and
ghost layers, exchanged along faces or with all neighbours.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from zlib import crc32

from corpus.language import Grid, Program, Recorder
from p3s.base.extents import dims_balanced, dims_greedy, divisors, factorisations, prime_factors

Counts = tuple[int, ...]
#: Counts to learn from and to check at, of programs that run at any count, powers of two, squares.
COUNTS: dict[str, tuple[tuple[Counts, Counts], ...]] = {
    "any": (
        ((4, 8, 12, 16), (24, 36, 64)),
        ((4, 6, 9, 16), (36, 48, 64)),
        ((2, 4, 8, 16), (32, 48, 64)),
        ((3, 4, 6, 8, 12), (20, 37, 60)),
    ),
    "powers": (((4, 8, 16), (32, 64)), ((2, 4, 8, 16), (32, 64, 128))),
    "squares": (((4, 9, 16), (25, 36, 64)), ((4, 9, 16, 25), (36, 49, 100))),
}
DOMAIN_COUNTS: dict[str, tuple[tuple[Counts, Counts], ...]] = {
    "any": (
        ((4, 8, 12), (16, 24, 40)),
        ((4, 6, 8, 12), (10, 18, 36)),
        ((2, 4, 8, 16), (32, 48, 64)),
        ((6, 8, 12, 18), (24, 27, 64)),
        ((8, 12), (10, 20, 32)),
    ),
    "powers": (((4, 8, 16), (32, 64, 128)), ((8, 16, 32), (64, 128))),
}
#: What a rank does on its grid; a size in words; whether a rank takes part.
Does = Callable[[Recorder, Grid], None]
Size = Callable[[Recorder, Grid], int]
Takes = Callable[[Grid], bool]
#: A part of a program, with what it is.
Part = tuple[str, Does]


def chance(*words: object) -> int:
    """Return a number that nothing but all the words together tells."""
    return crc32(repr(words).encode())


def cut_block(cut: str, size: int, p: int, c: int) -> int:
    """Return how many of ``size`` points part c of p has."""
    base, rest = divmod(size, p)
    width = -(-size // p)
    return {
        "first": base + (c < rest),
        "last": base + (c >= p - rest),
        "floor": (c + 1) * size // p - c * size // p,
        "ceil": min(size, (c + 1) * width) - min(size, c * width),
        "ceil bounds": -(-(c + 1) * size // p) - -(-c * size // p),
        "rest to the last": base + rest * (c == p - 1),
        "ceil for all": width,
        # cells are cut, the last block has the point at the border
        "one more point": (c + 1) * size // p - c * size // p + (c == p - 1),
    }[cut]


# -- rules and chance


#: A program, counts to learn from and to check at, its arguments, what it is made of.
Drawn = tuple[Program, Counts, Counts, tuple[int, ...], str]


def make(seed: int) -> Drawn:
    """Return a program of rules and chance."""
    rng = random.Random(seed)
    runs_at = rng.choice(("any", "any", "powers", "squares"))
    counts, targets = rng.choice(COUNTS[runs_at])
    ndims = rng.choice((1, 2, 2, 3)) if runs_at != "squares" else 2
    shape = rng.choice(("balanced", "greedy", "up")) if ndims > 1 else "line"
    cart = ndims > 1 and rng.random() < 0.5
    extents = [rng.randrange(150, 1500) for _ in range(3)]
    cut = rng.choice(("first", "first", "floor", "ceil"))
    parts: list[Part] = []
    for k in range(rng.randrange(1, 4)):
        parts.append(_loop(rng, k, ndims, extents, cut, runs_at == "powers"))

    def program(rec: Recorder) -> None:
        dims = (rec.n,)
        if ndims > 1:
            dims = dims_greedy(rec.n, ndims) if shape == "greedy" else dims_balanced(rec.n, ndims)
            dims = dims[::-1] if shape == "up" else dims
        if cart:
            rec.comm(tuple(range(rec.n)), 1, dims, (False,) * ndims)
            rec("Cart_create")
        for _, part in parts:
            part(rec, rec.grid(dims))

    words = "; ".join(w for w, _ in parts)
    about = f"{runs_at} {shape}{ndims}{' cart' if cart else ''}: {words}"
    return program, counts, targets, (), about


def _size(rng: random.Random, ndims: int, extents: list[int], cut: str) -> tuple[str, Size]:
    factor = rng.choice((1, 1, 1, 2, 3, 5))
    d, e = rng.randrange(ndims), rng.choice(extents)
    kind = rng.choice(("constant", "block", "product", "share", "ghost", "hash"))

    def part(grid: Grid, d: int = d, e: int = e) -> int:
        return cut_block(cut, e, grid.dims[d], grid.at[d])

    if kind == "product" and ndims > 1:
        d2, e2 = (d + 1) % ndims, extents[1]
        text = f"{factor}*{e}/p{d}*{e2}/p{d2}"
        return text, lambda rec, grid: factor * part(grid) * part(grid, d2, e2)
    if kind == "share":
        return f"{factor}*{e}//n", lambda rec, grid: factor * (e // rec.n)
    if kind == "ghost":
        return f"{factor}*({e}/p{d}+2)", lambda rec, grid: factor * (part(grid) + 2)
    if kind == "hash" and rng.random() < 0.5:
        salt = rng.random()
        return "hash", lambda rec, grid: 100 + chance(salt, rec.n, rec.rank) % 50
    if kind == "constant":
        return str(e), lambda rec, grid: e
    return f"{factor}*{e}/p{d}", lambda rec, grid: factor * part(grid)


def _turns(rng: random.Random, powers: bool) -> tuple[str, Callable[[int], int]]:
    k = rng.randrange(2, 9)
    options: list[tuple[str, Callable[[int], int]]] = [
        (str(k), lambda n: k),
        (str(k), lambda n: k),
        (f"{k}n", lambda n: k * n),
        ("n-1", lambda n: n - 1),
        (f"{600 + k}//n", lambda n: (600 + k) // n),
    ]
    if powers:
        options.append((f"{k}+log2 n", lambda n: k + n.bit_length() - 1))
    if rng.random() < 0.2:
        salt = rng.random()
        return "until it converges", lambda n: 20 + chance(salt, n) % 12
    return rng.choice(options)


def _guard(rng: random.Random, ndims: int) -> tuple[str, Takes]:
    d = rng.randrange(ndims)
    guards: list[tuple[str, Takes]] = [
        ("", lambda grid: True),
        ("", lambda grid: True),
        (f" if c{d} > 0", lambda grid: grid.at[d] > 0),
        (f" if c{d} is last", lambda grid: grid.at[d] == grid.dims[d] - 1),
        (" if r is even", lambda grid: grid.mine % 2 == 0),
        (" if r > 0", lambda grid: grid.mine > 0),
    ]
    return rng.choice(guards)


def _loop(
    rng: random.Random, k: int, ndims: int, extents: list[int], cut: str, powers: bool
) -> Part:
    name, turns = _turns(rng, powers)
    inside = [
        _call(rng, f"{k}.{j}", ndims, extents, cut, powers) for j in range(rng.randrange(1, 4))
    ]

    def part(rec: Recorder, grid: Grid) -> None:
        for _ in range(turns(rec.n)):
            for _, call in inside:
                call(rec, grid)
            rec("Allreduce", site=f"{k}.end", nbytes=8)

    return f"{name} x [{', '.join(w for w, _ in inside)}]", part


def _call(
    rng: random.Random, site: str, ndims: int, extents: list[int], cut: str, powers: bool
) -> Part:
    text, size = _size(rng, ndims, extents, cut)
    where, takes = _guard(rng, ndims)
    kinds = "shift shift ring root collective collective row hash neighbours".split()
    kind = rng.choice([*kinds, *(("xor", "xor") if powers else ())])
    if kind in ("shift", "neighbours"):
        return _shift(rng, site, ndims, text, size, kind == "neighbours")

    def part(rec: Recorder, grid: Grid) -> None:
        n, r, nbytes = rec.n, rec.rank, 8 * size(rec, grid)
        if kind == "ring":
            rec.exchange(site, (r + 1) % n, (r - 1) % n, nbytes, received=0)
        elif kind == "xor":
            for s in range(n.bit_length() - 1):
                rec("Send", site=site, peer=r ^ (1 << s), nbytes=nbytes)
                rec("Recv", site=site + "r", peer=r ^ (1 << s), nbytes=0)
        elif kind == "root":
            if r and takes(grid):
                rec("Send", site=site, peer=0, nbytes=nbytes)
            for q in range(1, 1 if r else n):
                if takes(replace(grid, mine=q)):
                    rec("Recv", site=site + "r", peer=q, nbytes=0)
        elif kind == "hash":
            q = chance(site, n, r) % n
            if q != r:
                rec("Isend", site=site, peer=q, nbytes=nbytes)
                rec("Wait", site=site + "w", nbytes=1)
        elif kind == "row" and ndims > 1:
            rec("Allreduce", site=site, nbytes=nbytes, comm=rec.comm(grid.along(0)))
        else:
            rec("Bcast", site=site, nbytes=nbytes, root=0)

    return f"{kind}({text}){where if kind == 'root' else ''}", part


def _shift(rng: random.Random, site: str, ndims: int, text: str, size: Size, both: bool) -> Part:
    d, periodic = rng.randrange(ndims), rng.random() < 0.4
    step = rng.choice((1, 1, 1, -1, 2))
    where, takes = _guard(rng, ndims)

    def part(rec: Recorder, grid: Grid) -> None:
        for sign in (1, -1) if both else (1,):
            peer = replace(grid, wrap=periodic).step(d, sign * step)
            if peer is not None and takes(grid):
                rec("Isend", site=site, peer=peer, nbytes=8 * size(rec, grid))
                rec("Wait", site=site + "w", nbytes=1)

    kind = f"{'+-' if both else ''}{step} in {d}{' periodic' if periodic else ''}"
    return f"{kind}({text}){where}", part


# -- a domain


def _least_surface(n: int, sizes: Counts) -> Counts:
    def surface(dims: Counts) -> float:
        sides = [s / p for s, p in zip(sizes, dims, strict=True)]
        return sum(math.prod(sides) / side for side in sides)

    return min(factorisations(n, len(sizes)), key=surface)


def _longest_first(n: int, sizes: Counts) -> Counts:
    dims = [1] * len(sizes)
    for factor in prime_factors(n)[::-1]:
        sides = [s / p for s, p in zip(sizes, dims, strict=True)]
        dims[sides.index(max(sides))] *= factor
    return tuple(dims)


def _past_ratio(n: int, sizes: Counts) -> Counts:
    if len(sizes) != 2:
        return _least_surface(n, sizes)
    for c in divisors(n):
        if n // c * sizes[1] <= c * sizes[0]:
            return n // c, c
    return 1, n


_ARRANGED: dict[str, Callable[[int, Counts], Counts]] = {
    "balanced": lambda n, sizes: dims_balanced(n, len(sizes)),
    "greedy": lambda n, sizes: dims_greedy(n, len(sizes)),
    "balanced up": lambda n, sizes: dims_balanced(n, len(sizes))[::-1],
    "least surface": _least_surface,
    "longest first": _longest_first,
    "past the ratio": _past_ratio,
}
CUTS = ("first", "last", "floor", "ceil bounds", "rest to the last", "ceil for all")


def make_domain(seed: int, hidden: bool = False) -> Drawn:
    """Return a program on a domain."""
    rng = random.Random(("hidden", seed).__repr__() if hidden else seed)
    admits = rng.choice(("any", "any", "powers"))
    counts, targets = rng.choice(DOMAIN_COUNTS[admits])
    ndims = rng.choice((2, 2, 3))
    sizes = tuple(rng.choice((60, 96, 117, 133, 200, 256, 360, 500)) for _ in range(ndims))
    arranged = rng.choice(tuple(_ARRANGED))
    cut = rng.choice((*CUTS, "one more point"))
    periodic = tuple(rng.random() < 0.3 for _ in range(ndims))
    order = rng.choice(("row", "row", "column"))
    typed = sizes if rng.random() < 0.5 else ()
    parts = [_domain_part(rng, str(k), sizes, cut) for k in range(rng.randrange(1, 4))]

    def program(rec: Recorder) -> None:
        grid = rec.grid(_ARRANGED[arranged](rec.n, sizes), periodic, order == "column")
        for _, part in parts:
            part(rec, grid)

    words = "; ".join(word for word, _ in parts)
    about = f"{arranged} {sizes}{' typed' if typed else ''} {cut} {order}"
    return program, counts, targets, typed, f"{admits} {about} {periodic}: {words}"


def _domain_part(rng: random.Random, site: str, sizes: Counts, cut: str) -> Part:
    kind = rng.choice(("faces", "faces", "faces", "all", "halving", "converges", "ring"))

    def local(grid: Grid) -> list[int]:
        return [cut_block(cut, *each) for each in zip(sizes, grid.dims, grid.at, strict=True)]

    if kind == "faces":
        return _faces(rng, site, len(sizes), local)
    if kind == "all":
        return _all_neighbours(rng, site, len(sizes), local)
    if kind == "halving":
        return "halving", lambda rec, grid: _halving(rec, f"{site}.half")
    if kind == "converges":
        return _converging(rng, site)
    return "ring", lambda rec, grid: rec("Send", f"{site}.next", (rec.rank + 1) % rec.n, 800)


def _faces(rng: random.Random, site: str, k: int, local: Callable[[Grid], Sequence[int]]) -> Part:
    """Return an exchange of faces, a call site for all or for each direction; ghost layers."""
    ghost, fields, one = rng.randrange(3), rng.choice((1, 1, 2, 5)), rng.random() < 0.5
    turns = rng.randrange(2, 6)

    def part(rec: Recorder, grid: Grid) -> None:
        mine = local(grid)
        for _ in range(turns):
            for d, sign in product(range(k), (-1, 1)):
                peer = grid.step(d, sign)
                if peer not in (None, rec.rank):
                    face = math.prod(mine[e] + 2 * ghost for e in range(k) if e != d)
                    name = f"{site}.send" if one else f"{site}.send{d}{sign}"
                    rec("Send", site=name, peer=peer, nbytes=8 * fields * face)
            rec("Allreduce", site=f"{site}.end", nbytes=64)

    return f"faces x{turns} ghost {ghost} fields {fields}{' one site' if one else ''}", part


def _all_neighbours(
    rng: random.Random, site: str, k: int, local: Callable[[Grid], Sequence[int]]
) -> Part:
    """Return an exchange with all neighbours, across edges and corners too."""
    turns = rng.randrange(2, 5)

    def part(rec: Recorder, grid: Grid) -> None:
        mine = local(grid)
        for _ in range(turns):
            for step in product((-1, 0, 1), repeat=k):
                for peer in grid.beside(step):
                    if peer != rec.rank:
                        shared = math.prod(mine[e] for e in range(k) if not step[e])
                        rec("Isend", site=f"{site}.send", peer=peer, nbytes=8 * shared)
            rec("Barrier", site=f"{site}.end")

    return f"all neighbours x{turns}", part


def _halving(rec: Recorder, site: str) -> None:
    """Broadcast by halving ranges: the first rank of a range sends to its middle."""
    low, high = 0, rec.n
    while high - low > 1:
        middle = (low + high) // 2
        if rec.rank == low:
            rec("Send", site=site, peer=middle, nbytes=4096)
        if rec.rank < middle:
            high = middle
        else:
            low = middle


def _converging(rng: random.Random, site: str) -> Part:
    """Return a loop that ends by a tolerance: nearly always after as many iterations."""
    usual, salt = rng.randrange(20, 100), rng.random()

    def part(rec: Recorder, grid: Grid) -> None:
        for _ in range(usual - (chance(salt, rec.n) % 4 == 0)):
            rec("Allreduce", site=f"{site}.norm", nbytes=8)

    return f"converges in about {usual}", part
