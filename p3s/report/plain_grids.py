"""Rules of grids and communicators for one rank, in plain Python.

``p3s model --python`` copies what it needs from here into the module it writes, so nothing but
the standard library may be used. The same rules for all ranks at once, and what their parameters
mean, are in p3s/model: grids.py and communicator_laws.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple


class Row(NamedTuple):
    """A call of one rank: how often in the run, and what one of them is.

    call, slot: number of the rule; stage: of a family of partners; turn: of the loop, where it
    matters; partner and root: ranks in MPI_COMM_WORLD, -1 if there is none; times: in the whole
    run; work: before one call.
    """

    call: int
    slot: int
    op: str
    kind: str
    stage: int
    turn: int
    partner: int
    bytes: int
    times: int
    root: int
    tag: int
    work: float


class Phase(NamedTuple):
    """A phase: functions of the process count n, and of a rank."""

    number: int
    name: str
    parent: int | None
    weight_verdict: str
    weight: Callable[[int], int]
    work: Callable[[int], float]
    calls: tuple[Callable[[int, int], list[Row]], ...]
    order: dict[int, tuple[int, bool, int]]

    def rows(self, rank: int, n: int) -> list[Row]:
        """Return all calls of the phase in program order; stages of a loop one by one."""
        found = [row for call in self.calls for row in call(rank, n)]

        def place(row: Row) -> tuple[int, ...]:
            start, in_loop, position = self.order[row.call]
            return (start, row.stage if in_loop else 0, position, row.stage, row.slot, row.turn)

        return sorted(found, key=place)

    def destinations(self, rank: int, n: int) -> list[int]:
        """Return whom the rank sends to, a partner per row that sends."""
        return [row.partner for row in self.rows(rank, n) if row.kind == "send"]

    def sources(self, rank: int, n: int) -> list[int]:
        """Return from whom the rank receives, a partner per row that receives."""
        return [row.partner for row in self.rows(rank, n) if row.kind == "recv"]

    def bytes(self, rank: int, n: int) -> list[int]:
        """Return the bytes of each message in ``destinations``."""
        return [row.bytes for row in self.rows(rank, n) if row.kind == "send"]


# ---- process grid ------------------------------------------------------------------------------
def prime_factors(n: int) -> list[int]:
    """Return the prime factors of n, ascending."""
    out, d = [], 2
    while d * d <= n:
        while n % d == 0:
            out.append(d)
            n //= d
        d += 1
    return out + ([n] if n > 1 else [])


def dims_greedy(n: int, ndims: int) -> tuple[int, ...]:
    """Return extents: the largest prime goes to the smallest extent."""
    dims = [1] * ndims
    for factor in reversed(prime_factors(n)):
        dims[dims.index(min(dims))] *= factor
    return tuple(sorted(dims, reverse=True))


def divisors(n: int) -> list[int]:
    """Return the divisors of n, ascending."""
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return sorted({*small, *(n // d for d in small)})


def dims_balanced(n: int, ndims: int) -> tuple[int, ...]:
    """Return the non-increasing extents with the smallest spread."""

    def walk(rest: int, left: int, most: int) -> Iterator[tuple[int, ...]]:
        if left == 1:
            if rest <= most:
                yield (rest,)
            return
        for d in divisors(rest):
            if d <= most:
                for others in walk(rest // d, left - 1, d):
                    yield (d, *others)

    return min(walk(n, ndims, n), key=lambda dims: (dims[0] - dims[-1], dims))


def dims_nested(n: int, ndims: int) -> tuple[int, ...]:
    """Return ascending extents, each the largest divisor of what is left below its root."""
    out = []
    for left in range(ndims, 1, -1):
        d = max(d for d in divisors(n) if d <= int(n ** (1 / left) + 1e-9))
        out.append(d)
        n //= d
    return (*out, n)


def dims_doubled(n: int, order: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return powers of two: dimensions are doubled in turn."""
    if n & (n - 1):
        return None
    dims = [1] * len(order)
    for k in range(n.bit_length() - 1):
        dims[order[k % len(order)]] *= 2
    return tuple(dims)


def extents(
    n: int, kind: str, ndims: int, order: tuple[int, ...], extent: int, rest: str
) -> tuple[int, ...] | None:
    """Return the extents of the grid at n processes, None where its rule does not admit n."""
    if kind == "line":
        return (n,)
    name = kind.removesuffix("_up")
    if name in ("greedy", "balanced", "nested"):
        if name == "greedy":
            dims = dims_greedy(n, ndims)
        else:
            dims = dims_balanced(n, ndims) if name == "balanced" else dims_nested(n, ndims)
        return dims[::-1] if name != kind else dims
    if kind in ("power2", "bits"):
        return dims_doubled(n, order)
    if kind == "cube":
        root = round(n ** (1 / ndims))
        return (root,) * ndims if root**ndims == n else None
    if n % extent:
        return None
    if ndims == 2:
        others: tuple[int, ...] | None = (n // extent,)
    else:
        others = extents(n // extent, rest, ndims - 1, order[1:], 0, "")
    return None if others is None else (*others[: order[0]], extent, *others[order[0] :])


class Grid(NamedTuple):
    """A rule of the process grid: extents and the order of the ranks on it."""

    kind: str
    ndims: int
    order: tuple[int, ...] = ()
    extent: int = 0
    rest: str = "balanced"
    layout: str = "row"
    part: str = ""
    listed: tuple[tuple[int, tuple[int, ...]], ...] = ()

    def members(self, n: int) -> tuple[int, int]:
        """Return the first rank that is on the grid, and how many ranks are."""
        if self.part == "root":
            return 0, int(n ** (1 / self.ndims) + 1e-9) ** self.ndims
        if self.part == "power":
            return 0, 1 << (max(n, 1).bit_length() - 1)
        return (int(self.part == "first"), n - 1) if self.part else (0, n)

    def dims(self, n: int) -> tuple[int, ...]:
        """Return the extents at n processes; ValueError where there is no such grid."""
        return _dims(self, n)

    def coordinates(self, rank: int, n: int) -> tuple[int, ...]:
        """Return the coordinates of a rank; -1 for one that is not on the grid."""
        dims = self.dims(n)
        first, count = self.members(n)
        rank -= first
        if not 0 <= rank < count:
            return (-1,) * len(dims)
        if self.kind == "bits":
            return self._dealt(rank, n)
        if self.layout == "reverse":
            rank = n - 1 - rank
        out = [0] * len(dims)
        for d in reversed(self.slow_first()):
            out[d] = rank % dims[d]
            rank //= dims[d]
        return tuple(out)

    def rank(self, coords: tuple[int, ...], n: int) -> int:
        """Return the rank at coordinates inside the grid."""
        dims, rank = self.dims(n), 0
        if self.kind == "bits":
            return self._gathered(coords, n)
        for d in self.slow_first():
            rank = rank * dims[d] + coords[d]
        return n - 1 - rank if self.layout == "reverse" else rank + self.members(n)[0]

    def slow_first(self) -> list[int]:
        """Return the dimensions from the slowest to the fastest."""
        if self.layout in ("row", "column", "reverse"):
            forward = list(range(self.ndims))
            return forward[::-1] if self.layout == "column" else forward
        return [int(d) for d in self.layout]

    def _dealt(self, rank: int, n: int) -> tuple[int, ...]:
        bits, coords = n.bit_length() - 1, [0] * self.ndims
        for k in range(bits):
            d = self.order[k % len(self.order)]
            if self.extent:
                coords[d] |= (rank >> k & 1) << (k // len(self.order))
            else:
                coords[d] = 2 * coords[d] + (rank >> (bits - 1 - k) & 1)
        return tuple(coords)

    def _gathered(self, coords: tuple[int, ...], n: int) -> int:
        bits, rank, left = n.bit_length() - 1, 0, list(coords)
        for k in range(bits) if self.extent else reversed(range(bits)):
            d = self.order[k % len(self.order)]
            rank |= (left[d] & 1) << (k if self.extent else bits - 1 - k)
            left[d] >>= 1
        return rank


@lru_cache(maxsize=1024)
def _dims(grid: Grid, n: int) -> tuple[int, ...]:
    count = grid.members(n)[1] if n > 0 else 0
    dims, kind = dict(grid.listed).get(n), grid.kind if grid.kind != "listed" else grid.rest
    if dims is None and count > 0 and kind:
        dims = extents(count, kind, grid.ndims, grid.order, grid.extent, grid.rest)
    if dims is None:
        raise ValueError(f"the program's process grid has no form at {n} processes")
    return dims


# ---- communicators -----------------------------------------------------------------------------
def colour(law: dict[str, Any], rank: int, n: int, grid: Grid) -> int:
    """Return the colour of a rank, -1 where it is in no communicator of the law."""
    kind = law["kind"]
    if kind == "world":
        return 0
    if kind == "self":
        return rank
    if kind == "without":
        return -1 if rank == law["rank"] % n else 0
    if kind == "modulo":
        return rank % int(law["k"])
    if kind == "nodes":
        return rank // int(law["size"])
    if kind == "parts":
        return part(law, rank, n)
    if kind == "spread":
        return rank % max(n // int(law["k"]), 1)
    if kind == "where":
        return 1 if law["holds"](rank, n) else 0 if law.get("both") else -1
    if kind == "axes":
        own, label = law.get("on", grid), 0
        if own.coordinates(rank, n)[0] < 0:
            return -1
        for d, (c, p) in enumerate(zip(own.coordinates(rank, n), own.dims(n), strict=True)):
            if d not in law["axes"]:
                label = label * p + c
        return label
    raise ValueError(f"unknown communicator law {kind}")


def part(law: dict[str, Any], rank: int, n: int) -> int:
    """Return in which of k parts of all ranks a rank is."""
    k, cut = int(law["k"]), law.get("cut")
    if cut == "floor":
        return rank * k // n
    if cut == "tail":
        return min(rank // max(n // k, 1), k - 1)
    if cut == "ceil":
        return rank // -(-n // k)
    if cut == "first":
        more, size = n % k, n // k
        if rank < more * (size + 1):
            return rank // (size + 1)
        return more + (rank - more * (size + 1)) // max(size, 1)
    return rank // max(n // k, 1)


_COMMUNICATORS: dict[tuple[int, int], tuple[dict[str, Any], dict[int, list[int]]]] = {}


def communicators(law: dict[str, Any], n: int, grid: Grid) -> dict[int, list[int]]:
    """Return colour -> members in the order of the communicator."""
    known = _COMMUNICATORS.get((id(law), n))
    if known is None:
        ranks = list(range(n))
        if law.get("order") == "reverse":
            ranks.reverse()
        elif law.get("order") == "grid":
            ranks = sorted(
                (r for r in ranks if grid.coordinates(r, n)[0] >= 0),
                key=lambda r: place_in_rows(grid.coordinates(r, n), grid.dims(n)),
            )
        found: dict[int, list[int]] = {}
        for rank in ranks:
            label = colour(law, rank, n, grid)
            if label >= 0:
                found.setdefault(label, []).append(rank)
        known = _COMMUNICATORS[(id(law), n)] = (law, found)
    return known[1]


def place_in_rows(coords: tuple[int, ...], dims: tuple[int, ...]) -> int:
    """Return the place of coordinates in row-major order."""
    place = 0
    for c, p in zip(coords, dims, strict=True):
        place = place * p + c
    return place


def members(law: dict[str, Any], rank: int, n: int, grid: Grid) -> list[int]:
    """Return the members of a rank's communicator, in its order; empty for a rank in none."""
    if law["kind"] == "world" and "order" not in law:
        return list(range(n))
    label = colour(law, rank, n, grid)
    return communicators(law, n, grid)[label] if label >= 0 else []
