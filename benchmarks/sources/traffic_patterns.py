"""Traffic of well-known communication patterns on process grids.

Ranks are numbered with the last dimension of the grid fastest, as MPI_Cart_create does.
Sources: Papadopoulou, "Communication performance prediction on large-scale systems", 2017 (halos,
LULESH, HPCG, QCD); Jain et al., "Predicting application performance using supervised
learning on communication features", SC13 (halos of 4 and 14 neighbours, all-to-all in rows). What
they leave open is from the public programs; docs/placement.md lists it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from p3s.base.arrays import Ints
from p3s.base.errors import P3SError
from p3s.methods.placement.phases import Traffic, together, traffic

#: A neighbour, as how far it is in each dimension: -1, 0 or 1.
Offset = tuple[int, ...]

#: Bytes of a double.
WORD = 8
#: Bytes that a site of the lattice sends: half a Wilson spinor, six complex doubles.
HALF_SPINOR = 96


def around(dims: int) -> list[Offset]:
    """Return all 3^dims - 1 neighbours of a box."""
    return [offset for offset in itertools.product((-1, 0, 1), repeat=dims) if any(offset)]


def at_faces(dims: int) -> list[Offset]:
    """Return the 2 dims neighbours that share a face."""
    return [offset for offset in around(dims) if _steps(offset) == 1]


def at_faces_and_corners(dims: int) -> list[Offset]:
    """Return the neighbours at faces and corners: 14 in three dimensions."""
    return [offset for offset in around(dims) if _steps(offset) in (1, dims)]


def behind(dims: int) -> list[Offset]:
    """Return those neighbours that are before a box in the order of ranks: 13 of 26."""
    return [offset for offset in around(dims) if offset < (0,) * dims]


def _steps(offset: Offset) -> int:
    return sum(map(abs, offset))


def fixed_halo(
    grid: Sequence[int], offsets: Iterable[Offset], nbytes: int, periodic: bool = True
) -> Traffic:
    """Return one message of ``nbytes`` from every rank to each of its neighbours."""
    return _exchanged(grid, offsets, lambda _, at: np.full(at.shape[1], nbytes), periodic)


def halo(
    grid: Sequence[int],
    domain: Sequence[int],
    offsets: Iterable[Offset] | None = None,
    word: int = WORD,
    periodic: bool = False,
) -> Traffic:
    """Return the exchange of a domain's cut faces, edges and corners, one layer deep.

    ``domain``: points in each dimension, cut as evenly as possible (the first ranks have one more).
    ``offsets``: by default faces only. ``word``: bytes of a point. Errors: P3SError where a rank
    would have no point.
    """
    _check_grid(grid)
    if len(grid) != len(domain):
        raise P3SError(f"a domain of {len(domain)} dimensions on a grid of {len(grid)}")
    if any(points < ranks for points, ranks in zip(domain, grid, strict=True)):
        raise P3SError(
            f"a domain of {_times(domain)} points has less than one for a rank of {_times(grid)}"
        )
    cut = [
        points // ranks + (np.arange(ranks) < points % ranks)
        for points, ranks in zip(domain, grid, strict=True)
    ]

    def size(offset: Offset, at: Ints) -> Ints:
        sides = [cut[d][at[d]] for d, step in enumerate(offset) if step == 0]
        return np.asarray(word * math.prod(sides, start=np.ones(at.shape[1], dtype=np.int64)))

    return _exchanged(grid, offsets or at_faces(len(grid)), size, periodic)


def lulesh(ranks: int, side: int) -> tuple[Traffic, Traffic, Traffic]:
    """Return the three phases of an iteration of LULESH on ``ranks`` cubes of ``side``^3 elements.

    Forces to all 26 neighbours (3 fields at nodes), viscosity to those at faces (3 fields of
    elements), positions and velocities to the 13 before a rank (6 fields at nodes). Errors:
    P3SError where ``ranks`` is no cube.
    """
    grid = _cube("LULESH", ranks)

    def nodes(fields: int) -> Callable[[Offset, Ints], Ints]:
        return lambda offset, at: np.full(
            at.shape[1], fields * WORD * (side + 1) ** (3 - _steps(offset))
        )

    return (
        _exchanged(grid, around(3), nodes(3), False),
        fixed_halo(grid, at_faces(3), 3 * WORD * side**2, False),
        _exchanged(grid, behind(3), nodes(6), False),
    )


def hpcg(ranks: int, domain: int) -> Traffic:
    """Return the exchange before a sparse product in HPCG: ``domain``^3 points, 27-point stencil.

    Errors: P3SError where ``ranks`` is no cube.
    """
    return halo(_cube("HPCG", ranks), (domain,) * 3, around(3))


def qcd(grid: Sequence[int], lattice: Sequence[int], site: int = HALF_SPINOR) -> Traffic:
    """Return the exchange of a lattice's three-dimensional slices with all 8 neighbours.

    ``grid``, ``lattice``: extents in x, y, z, t; periodic. ``site``: bytes that each site sends.
    Errors: P3SError where the lattice does not divide, the local z is odd, or the product of the
    local t, x and y is.
    """
    if len(grid) != 4 or len(lattice) != 4:
        raise P3SError("QCD: grid and lattice have four dimensions, x, y, z and t")
    _check_grid(grid)
    if any(sites % ranks for sites, ranks in zip(lattice, grid, strict=True)):
        raise P3SError(f"QCD: a lattice of {_times(lattice)} cannot be cut into {_times(grid)}")
    x, y, z, t = (sites // ranks for sites, ranks in zip(lattice, grid, strict=True))
    if z % 2 or x * y * t % 2:
        raise P3SError(
            f"QCD: {_times((x, y, z, t))} sites of a rank; z and the product of the others "
            "have to be even"
        )
    return halo(grid, lattice, at_faces(4), site, True)


def all_to_all_in_rows(grid: Sequence[int], dimension: int, nbytes: int) -> Traffic:
    """Return a message of ``nbytes`` between any two ranks of each row in a dimension."""
    _check_grid(grid)
    at = np.indices(tuple(grid)).reshape(len(grid), -1)
    extent = grid[dimension]
    parts = []
    for step in range(1, extent):
        to = at.copy()
        to[dimension] = (to[dimension] + step) % extent
        parts.append(_rows(grid, at, to, np.full(at.shape[1], nbytes)))
    return together(parts) if parts else _none(math.prod(grid))


def _exchanged(
    grid: Sequence[int],
    offsets: Iterable[Offset],
    size: Callable[[Offset, Ints], Ints],
    periodic: bool,
) -> Traffic:
    """Return one message to each neighbour; ``size``: bytes, of a neighbour and where ranks are.

    Where the grid is so small that a rank is its own neighbour, nothing is sent.
    """
    _check_grid(grid)
    at = np.indices(tuple(grid)).reshape(len(grid), -1)
    extent = np.array(grid)[:, None]
    parts = []
    for offset in offsets:
        to = at + np.array(offset)[:, None]
        there = ((to >= 0) & (to < extent)).all(axis=0)
        if periodic:
            to %= extent
            there = (to != at).any(axis=0)
        begin, end = at[:, there], to[:, there]
        parts.append(_rows(grid, begin, end, size(offset, begin)))
    return together(parts) if parts else _none(math.prod(grid))


def _rows(grid: Sequence[int], at: Ints, to: Ints, nbytes: Ints) -> Traffic:
    shape = tuple(grid)
    source, dest = (np.ravel_multi_index(tuple(x), shape) for x in (at, to))
    return traffic(math.prod(grid), source, dest, nbytes)


def _none(ranks: int) -> Traffic:
    return traffic(ranks, [], [], [])


def _cube(what: str, ranks: int) -> tuple[int, int, int]:
    edge = round(ranks ** (1 / 3))
    if edge < 1 or edge**3 != ranks:
        raise P3SError(f"{what}: {ranks} ranks are no cube; take 1, 8, 27, 64 and so on")
    return edge, edge, edge


def _check_grid(grid: Sequence[int]) -> None:
    if not grid or any(extent < 1 for extent in grid):
        raise P3SError(f"a process grid of {_times(grid) or 'no dimensions'} has no ranks")


def _times(numbers: Sequence[int]) -> str:
    return " x ".join(map(str, numbers))
