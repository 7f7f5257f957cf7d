"""Process grids: which extents a program gives its grid at each process count."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np


def prime_factors(n: int) -> list[int]:
    """Return the prime factors of ``n`` in ascending order."""
    out, d = [], 2
    while d * d <= n:
        while n % d == 0:
            out.append(d)
            n //= d
        d += 1
    return out + ([n] if n > 1 else [])


@cache
def dims_greedy(n: int, ndims: int) -> tuple[int, ...]:
    """Return extents as Open MPI's MPI_Dims_create: largest prime to the smallest extent."""
    dims = [1] * ndims
    for f in reversed(prime_factors(n)):
        dims[dims.index(min(dims))] *= f
    return tuple(sorted(dims, reverse=True))


@cache
def dims_balanced(n: int, ndims: int) -> tuple[int, ...]:
    """Return the non-increasing extents with the smallest spread (as MPICH's MPI_Dims_create)."""
    best: tuple[int, ...] | None = None

    def walk(rest: int, left: int, cap: int, chosen: tuple[int, ...]) -> None:
        nonlocal best
        if left == 1:
            if rest <= cap:
                cand = (*chosen, rest)
                if best is None or (cand[0] - cand[-1], cand) < (best[0] - best[-1], best):
                    best = cand
            return
        for d in range(1, rest + 1):
            if rest % d == 0 and d <= cap:
                walk(rest // d, left - 1, d, (*chosen, d))

    walk(n, ndims, n, ())
    assert best is not None
    return best


def _power_of_two_dims(n: int, order: tuple[int, ...]) -> tuple[int, ...] | None:
    if n & (n - 1):
        return None
    dims = [1] * len(order)
    for k in range(n.bit_length() - 1):
        dims[order[k % len(order)]] *= 2
    return tuple(dims)


def _root(n: int, k: int) -> int | None:
    r = round(n ** (1 / k))
    return r if r**k == n else None


@dataclass(frozen=True)
class GridFamily:
    """A rule from process count to grid extents (row-major rank order).

    kind: line | greedy | balanced | greedy_up | balanced_up | power2 | cube | fixed;
    order: for power2, the dimension doubled first, second, ...; for fixed, the position of
    the fixed extent is order[0] and its value ``extent``.
    """

    kind: str
    ndims: int
    order: tuple[int, ...] = ()
    extent: int = 0

    def dims(self, n: int) -> tuple[int, ...] | None:
        """Return the extents at ``n`` processes, or None where the rule does not admit ``n``."""
        if self.kind == "line":
            return (n,)
        if self.kind == "greedy":
            return dims_greedy(n, self.ndims)
        if self.kind == "balanced":
            return dims_balanced(n, self.ndims)
        if self.kind == "greedy_up":
            return dims_greedy(n, self.ndims)[::-1]
        if self.kind == "balanced_up":
            return dims_balanced(n, self.ndims)[::-1]
        if self.kind == "power2":
            return _power_of_two_dims(n, self.order)
        if self.kind == "cube":
            root = _root(n, self.ndims)
            return None if root is None else (root,) * self.ndims
        if self.kind == "fixed":
            if n % self.extent:
                return None
            other = n // self.extent
            return (self.extent, other) if self.order[0] == 0 else (other, self.extent)
        return None

    def to_json(self) -> dict[str, Any]:
        """Return the rule as plain data."""
        return {"kind": self.kind, "ndims": self.ndims, "order": list(self.order),
                "extent": self.extent}

    @staticmethod
    def from_json(data: dict[str, Any]) -> GridFamily:
        """Return the rule from :meth:`to_json` data."""
        return GridFamily(str(data["kind"]), int(data["ndims"]), tuple(data["order"]),
                          int(data["extent"]))

    def text(self) -> str:
        """Return a short description for people."""
        what = {
            "line": "1-D, n", "greedy": "MPI_Dims_create (Open MPI), descending",
            "balanced": "MPI_Dims_create (balanced), descending",
            "greedy_up": "MPI_Dims_create (Open MPI), ascending",
            "balanced_up": "MPI_Dims_create (balanced), ascending",
            "power2": "powers of two, dimension "
            + (str(self.order[0]) if self.order else "") + " doubled first",
            "cube": "equal extents",
            "fixed": f"extent {self.extent} fixed in dimension "
            + (str(self.order[0]) if self.order else ""),
        }[self.kind]
        return f"{self.ndims}-D {what}" if self.kind != "line" else "1-D"


def candidate_families(
    counts: list[int], cart: dict[int, tuple[int, ...]] | None = None
) -> list[GridFamily]:
    """Return the families that admit every count, simplest first.

    Where the program made a Cartesian communicator over all ranks (``cart``: count ->
    extents), only families that reproduce its extents are kept.
    """
    out = [GridFamily("line", 1)]
    for nd in (2, 3, 4):
        out.append(GridFamily("cube", nd))
        out += [GridFamily(k, nd) for k in ("balanced", "greedy", "balanced_up", "greedy_up")]
        forward = tuple(range(nd))
        out += [GridFamily("power2", nd, o) for o in (forward, forward[::-1])]
    gcd = math.gcd(*counts)
    out += [GridFamily("fixed", 2, (pos,), e)
            for e in range(2, gcd + 1) if gcd % e == 0 for pos in (0, 1)]
    kept, seen = [], set()
    for fam in out:
        dims = [fam.dims(n) for n in counts]
        if any(d is None for d in dims):
            continue
        if cart and any(fam.dims(n) != d for n, d in cart.items()):
            continue
        if not cart and fam.ndims > 1 and all(d is not None and sum(x > 1 for x in d) < 2
                                              for d in dims):
            continue  # never more than one extent above 1: nothing that the line does not say
        # Families equal on every traced count stay apart: they differ at other counts, and
        # the first in the list (the simplest) wins ties.
        key = (fam.kind, fam.ndims, fam.order, fam.extent)
        if key not in seen:
            seen.add(key)
            kept.append(fam)
    return kept


def coords_of(dims: tuple[int, ...], n: int) -> np.ndarray:
    """Return the row-major coordinates of ranks 0..n-1, shape (ndims, n)."""
    return np.array(np.unravel_index(np.arange(n), dims), dtype=np.int64).reshape(len(dims), n)


def rank_of(dims: tuple[int, ...], coords: np.ndarray) -> np.ndarray:
    """Return row-major ranks of ``coords``, shape (ndims, m), all inside the grid."""
    return np.ravel_multi_index(tuple(coords), dims).astype(np.int64)
