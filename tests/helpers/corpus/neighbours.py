"""Event-list programs whose neighbours all come from one call: boxes, stars, faces and edges."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np

from corpus.language import Grid, Recorder, block, program
from p3s.base.extents import dims_balanced

Dims = Callable[[int], tuple[int, ...]]
Vector = tuple[int, ...]


def balanced(ndims: int) -> Dims:
    """Return MPI_Dims_create's extents as a function of n."""
    return lambda n: dims_balanced(n, ndims)


def doubled(order: Vector) -> Dims:
    """Return extents of powers of two, doubled in turn in the order given."""

    def dims(n: int) -> Vector:
        out = [1] * len(order)
        for k in range(n.bit_length() - 1):
            out[order[k % len(order)]] *= 2
        return tuple(out)

    return dims


def vectors(ndims: int, crossed: Callable[[int], bool]) -> Iterator[Vector]:
    """Yield the unit vectors that cross a number of dimensions that ``crossed`` holds for."""
    for v in product((-1, 0, 1), repeat=ndims):
        if crossed(sum(map(abs, v))):
            yield v


def star(k: int) -> bool:
    """Faces."""
    return k == 1


def box(k: int) -> bool:
    """Faces, edges, corners."""
    return k > 0


def faces_and_edges(k: int) -> bool:
    """No corners."""
    return k in (1, 2)


@program
def stencil(
    rec: Recorder,
    dims_of: Dims,
    crossed: Callable[[int], bool] = box,
    periodic: Vector = (0, 0, 0),
    first_fastest: bool = True,
    last_first: bool = False,
    oneself: bool = False,
    once: bool = False,
    sizes: Vector | None = None,
    iters: int = 4,
) -> None:
    """All neighbours from one Isend, who is there; ranks from the other end if ``last_first``.

    oneself: messages to oneself where a periodic dimension has one rank; once: one message to a
    neighbour on both sides; sizes: cells of each
    dimension, else all messages have one size.
    """
    dims = dims_of(rec.n)
    mine = rec.n - 1 - rec.rank if last_first else rec.rank
    grid = Grid(dims, mine, tuple(map(bool, periodic[: len(dims)])), first_fastest)
    to: list[tuple[int, int]] = []
    for v in vectors(len(dims), crossed):
        for place in grid.beside(v):
            peer = rec.n - 1 - place if last_first else place
            words = 10
            if sizes is not None:
                local = [block(*e) for e in zip(sizes, dims, grid.at, strict=True)]
                words = int(np.prod([m for m, x in zip(local, v, strict=True) if not x]))
            if (peer != rec.rank or oneself) and not (once and peer in dict(to)):
                to.append((peer, 8 * words))
    for _ in range(iters):
        for op in ("Irecv", "Isend"):
            for peer, nbytes in to:
                rec(op, peer=peer, nbytes=nbytes)
        rec("Waitall", nbytes=2 * len(to))


@program
def intervals(
    rec: Recorder, form: str, sign: int = 1, ceil: bool = False, sites: bool = False, iters: int = 3
) -> None:
    """Intervals of ranks cut in two until one rank is left, with messages between the halves.

    form: first ranks of the halves ("first"), ranks of equal place ("like"), from the ends inwards
    ("mirror"), or the middle rank and those of both sides ("tree"); sign: up, down, or both (0).
    """

    def pairs(lo: int, size: int) -> Iterator[tuple[int, int]]:
        if size < 2:
            return
        half = (size + ceil) // 2
        mid = lo + half
        if form == "first":
            yield lo, mid
        elif form == "like":
            yield from ((lo + i, mid + i) for i in range(min(half, size - half)))
        elif form == "mirror":
            yield from ((lo + i, lo + size - 1 - i) for i in range(size // 2))
        yield from pairs(lo, half)
        yield from pairs(mid, size - half)

    def tree(lo: int, size: int) -> Iterator[tuple[int, int]]:
        if size < 1:
            return
        mid = lo + (size - 1 + ceil) // 2
        for first, length in ((lo, mid - lo), (mid + 1, lo + size - 1 - mid)):
            if length:
                yield mid, first + (length - 1 + ceil) // 2
            yield from tree(first, length)

    both = list((tree if form == "tree" else pairs)(0, rec.n))
    ways = [(a, b) for a, b in both if sign >= 0] + [(b, a) for a, b in both if sign <= 0]
    for _ in range(iters):
        for a, b in ways:
            if rec.rank == b:
                rec("Recv", peer=a, nbytes=80)
            if rec.rank == a:
                rec("Send", peer=b, nbytes=80)
        rec("Allreduce", nbytes=8)


@program
def sides(
    rec: Recorder,
    site_of: Callable[[int, int, str], object],
    dims_of: Dims,
    periodic: bool = True,
    sends: Vector = (-1, 1),
    tag_of: Callable[[int, int], int] = lambda axis, side: 0,
) -> None:
    """Both sides of each axis in turn, received from below first; site_of (axis, side, operation).

    tag_of: of the axis and the direction in which a message goes.
    """
    grid = rec.grid(dims_of(rec.n), periodic, first_fastest=True)
    for _ in range(4):
        for axis in range(len(grid.dims)):
            posted = 0
            for op, each in (("Irecv", (-1, 1)), ("Isend", sends)):
                for side in each:
                    peer = grid.step(axis, side)
                    if peer is not None:
                        tag = tag_of(axis, side if op == "Isend" else -side)
                        rec(op, str(site_of(axis, side, op)), peer, 64, tag=tag)
                        posted += 1
            if posted:
                rec("Waitall", f"wait{axis}", nbytes=posted)


@program
def axes_in_a_loop(rec: Recorder, dims_of: Dims, first: int = -1, tags: bool = False) -> None:
    """A periodic exchange along each axis in turn, a combined call for each side."""
    grid = rec.grid(dims_of(rec.n), wrap=True, first_fastest=True)
    for _ in range(5):
        for axis in range(len(grid.dims)):
            for side in (first, -first):
                ends = grid.step(axis, side), grid.step(axis, -side)
                rec.exchange(f"side{side}", *ends, 64, tag=axis if tags else 0)


@program
def halved_communicators(rec: Recorder, ceil: bool = False, least: int = 2) -> None:
    """All ranks cut in two again and again, with a reduction in the parts of each depth."""
    lo, size, parts = 0, rec.n, []
    while size >= least:
        parts.append(rec.comm(tuple(range(lo, lo + size)), int(size == rec.n)))
        if size == 1:
            break
        half = (size + ceil) // 2
        upper = rec.rank >= lo + half
        lo, size = (lo + half, size - half) if upper else (lo, half)
    for _ in range(6):
        for comm in parts:
            rec("Allreduce", comm=comm, nbytes=8)
