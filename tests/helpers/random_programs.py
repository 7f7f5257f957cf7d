"""Small programs made up at random, as event lists: what a model calls exact must be right on them.

Some of a program's parts have rules (halos, exchanges, trees, collectives on parts of the grid,
block sizes), some have none (partners, sizes or turns from a hash of the process count).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from zlib import crc32

import corpus
import numpy as np
from corpus import Program, Recorder

from p3s.base.extents import dims_balanced, dims_greedy

#: Counts to learn from and to check at, of programs that run at any count, powers of two, squares.
COUNTS = {
    "any": (
        ((4, 8, 12, 16), (24, 36, 64)),
        ((4, 6, 9, 16), (36, 48, 64)),
        ((2, 4, 8, 16), (32, 48, 64)),
        ((3, 4, 6, 8, 12), (20, 37, 60)),
    ),
    "powers": (((4, 8, 16), (32, 64)), ((2, 4, 8, 16), (32, 64, 128))),
    "squares": (((4, 9, 16), (25, 36, 64)), ((4, 9, 16, 25), (36, 49, 100))),
}
Size = Callable[[Recorder, tuple[int, ...], tuple[int, ...]], int]
Part = Callable[[Recorder, tuple[int, ...], tuple[int, ...]], None]


def chance(*words: object) -> int:
    """Return a number that nothing but all the words together tells."""
    return crc32(repr(words).encode())


def make(seed: int) -> tuple[Program, tuple[int, ...], tuple[int, ...], str]:
    """Return a program, the counts to learn from, those to check at, and what it is made of."""
    rng = random.Random(seed)
    runs_at = rng.choice(("any", "any", "powers", "squares"))
    counts, targets = rng.choice(COUNTS[runs_at])
    ndims = rng.choice((1, 2, 2, 3)) if runs_at != "squares" else 2
    shape = rng.choice(("balanced", "greedy", "up")) if ndims > 1 else "line"
    cart = ndims > 1 and rng.random() < 0.5
    extents = [rng.randrange(150, 1500) for _ in range(3)]
    cut = rng.choice(("first", "first", "floor", "ceil"))
    parts: list[tuple[str, Part]] = []
    for k in range(rng.randrange(1, 4)):
        parts.append(_loop(rng, k, ndims, extents, cut, runs_at == "powers"))

    def program(rec: Recorder) -> None:
        dims = (rec.n,)
        if ndims > 1:
            dims = dims_greedy(rec.n, ndims) if shape == "greedy" else dims_balanced(rec.n, ndims)
            dims = dims[::-1] if shape == "up" else dims
        here = tuple(int(x) for x in np.unravel_index(rec.rank, dims))
        if cart:
            rec.comm(tuple(range(rec.n)), 1, dims, (False,) * ndims)
            rec("Cart_create")
        for _, part in parts:
            part(rec, dims, here)

    words = "; ".join(w for w, _ in parts)
    return program, counts, targets, f"{runs_at} {shape}{ndims}{' cart' if cart else ''}: {words}"


def _block(kind: str, extent: int, p: int, c: int) -> int:
    if kind == "floor":
        return (c + 1) * extent // p - c * extent // p
    if kind == "ceil":
        width = -(-extent // p)
        return min(extent, (c + 1) * width) - min(extent, c * width)
    return corpus.block(extent, p, c)


def _size(rng: random.Random, ndims: int, extents: list[int], cut: str) -> tuple[str, Size]:
    factor = rng.choice((1, 1, 1, 2, 3, 5))
    d, e = rng.randrange(ndims), rng.choice(extents)
    kind = rng.choice(("constant", "block", "product", "share", "ghost", "hash"))
    if kind == "product" and ndims > 1:
        d2, e2 = (d + 1) % ndims, extents[1]
        return (
            f"{factor}*{e}/p{d}*{e2}/p{d2}",
            lambda rec, dims, c: (
                factor * _block(cut, e, dims[d], c[d]) * _block(cut, e2, dims[d2], c[d2])
            ),
        )
    if kind == "share":
        return f"{factor}*{e}//n", lambda rec, dims, c: factor * (e // rec.n)
    if kind == "ghost":
        return (
            f"{factor}*({e}/p{d}+2)",
            lambda rec, dims, c: factor * (_block(cut, e, dims[d], c[d]) + 2),
        )
    if kind == "hash" and rng.random() < 0.5:
        salt = rng.random()
        return "hash", lambda rec, dims, c: 100 + chance(salt, rec.n, rec.rank) % 50
    if kind == "constant":
        return str(e), lambda rec, dims, c: e
    return f"{factor}*{e}/p{d}", lambda rec, dims, c: factor * _block(cut, e, dims[d], c[d])


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


def _guard(rng: random.Random, ndims: int) -> tuple[str, Callable[..., bool]]:
    d = rng.randrange(ndims)
    return rng.choice(
        [
            ("", lambda rec, dims, c: True),
            ("", lambda rec, dims, c: True),
            (f" if c{d} > 0", lambda rec, dims, c: c[d] > 0),
            (f" if c{d} is last", lambda rec, dims, c: c[d] == dims[d] - 1),
            (" if r is even", lambda rec, dims, c: rec.rank % 2 == 0),
            (" if r > 0", lambda rec, dims, c: rec.rank > 0),
        ]
    )


def _loop(
    rng: random.Random, k: int, ndims: int, extents: list[int], cut: str, powers: bool
) -> tuple[str, Part]:
    name, turns = _turns(rng, powers)
    inside = [
        _call(rng, f"{k}.{j}", ndims, extents, cut, powers) for j in range(rng.randrange(1, 4))
    ]

    def part(rec: Recorder, dims: tuple[int, ...], c: tuple[int, ...]) -> None:
        for _ in range(turns(rec.n)):
            for _, call in inside:
                call(rec, dims, c)
            rec("Allreduce", site=f"{k}.end", nbytes=8)

    return f"{name} x [{', '.join(w for w, _ in inside)}]", part


def _call(
    rng: random.Random, site: str, ndims: int, extents: list[int], cut: str, powers: bool
) -> tuple[str, Part]:
    text, size = _size(rng, ndims, extents, cut)
    where, takes = _guard(rng, ndims)
    kinds = [
        "shift",
        "shift",
        "ring",
        "root",
        "collective",
        "collective",
        "row",
        "hash",
        "neighbours",
    ]
    kind = rng.choice([*kinds, *(("xor", "xor") if powers else ())])
    if kind in ("shift", "neighbours"):
        return _shift(rng, site, ndims, text, size, kind == "neighbours")

    def part(rec: Recorder, dims: tuple[int, ...], c: tuple[int, ...]) -> None:
        n, r, nbytes = rec.n, rec.rank, 8 * size(rec, dims, c)
        if kind == "ring":
            rec.exchange(site, (r + 1) % n, (r - 1) % n, nbytes, received=0)
        elif kind == "xor":
            for s in range(n.bit_length() - 1):
                rec("Send", site=site, peer=r ^ (1 << s), nbytes=nbytes)
                rec("Recv", site=site + "r", peer=r ^ (1 << s), nbytes=0)
        elif kind == "root":
            if r and takes(rec, dims, c):
                rec("Send", site=site, peer=0, nbytes=nbytes)
            if not r:
                for q in range(1, n):
                    there = tuple(int(x) for x in np.unravel_index(q, dims))
                    if takes(Recorder(q, n, {}, {}, {}), dims, there):
                        rec("Recv", site=site + "r", peer=q, nbytes=0)
        elif kind == "hash":
            q = chance(site, n, r) % n
            if q != r:
                rec("Isend", site=site, peer=q, nbytes=nbytes)
                rec("Wait", site=site + "w", nbytes=1)
        elif kind == "row" and ndims > 1:
            members = tuple(
                q
                for q in range(n)
                if all(a == b for a, b in list(zip(np.unravel_index(q, dims), c, strict=True))[1:])
            )
            rec("Allreduce", site=site, nbytes=nbytes, comm=rec.comm(members))
        else:
            rec("Bcast", site=site, nbytes=nbytes, root=0)

    return f"{kind}({text}){where if kind == 'root' else ''}", part


def _shift(
    rng: random.Random, site: str, ndims: int, text: str, size: Size, both: bool
) -> tuple[str, Part]:
    d, periodic = rng.randrange(ndims), rng.random() < 0.4
    step = rng.choice((1, 1, 1, -1, 2))
    where, takes = _guard(rng, ndims)

    def part(rec: Recorder, dims: tuple[int, ...], c: tuple[int, ...]) -> None:
        for sign in (1, -1) if both else (1,):
            to = list(c)
            to[d] += sign * step
            if periodic:
                to[d] %= dims[d]
            if 0 <= to[d] < dims[d] and takes(rec, dims, c):
                rec(
                    "Isend",
                    site=site,
                    peer=int(np.ravel_multi_index(to, dims)),
                    nbytes=8 * size(rec, dims, c),
                )
                rec("Wait", site=site + "w", nbytes=1)

    kind = f"{'+-' if both else ''}{step} in {d}{' periodic' if periodic else ''}"
    return f"{kind}({text}){where}", part
