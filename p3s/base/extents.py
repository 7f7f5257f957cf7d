"""Extents of process grids by rules of the process count; needs neither numpy nor MPI."""

from __future__ import annotations

import math
from functools import cache


def prime_factors(n: int) -> list[int]:
    """Return the prime factors of ``n`` in ascending order."""
    out, d = [], 2
    while d * d <= n:
        while n % d == 0:
            out.append(d)
            n //= d
        d += 1
    return out + ([n] if n > 1 else [])


def divisors(n: int) -> list[int]:
    """Return the divisors of ``n`` in ascending order."""
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return sorted({*small, *(n // d for d in small)})


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
        for d in divisors(rest):
            if d <= cap:
                walk(rest // d, left - 1, d, (*chosen, d))

    walk(n, ndims, n, ())
    assert best is not None
    return best


@cache
def dims_nested(n: int, ndims: int) -> tuple[int, ...]:
    """Return ascending extents, each the largest divisor of what is left below its root."""
    out: list[int] = []
    for left in range(ndims, 1, -1):
        d = max(d for d in range(1, int(n ** (1 / left) + 1e-9) + 1) if n % d == 0)
        out.append(d)
        n //= d
    return (*out, n)


@cache
def dims_rounded(n: int, lengths: tuple[float, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    """Return extents that cut a domain into blocks of about equal sides, each the largest divisor
    of what is left up to the nearest whole number.

    lengths: of the domain's dimensions; order: the dimensions as they are chosen. Of the last two
    the longer one has the larger extent. So does PETSc's DMDA (DMSetUp_DA_2D, DMSetUp_DA_3D).
    """
    dims, rest = [1] * len(lengths), n
    for k, d in enumerate(order[:-1]):
        left = [lengths[e] for e in order[k:]]
        share = (rest * math.prod(lengths[d] / e for e in left)) ** (1 / len(left))
        dims[d] = next(e for e in range(max(int(share + 0.5), 1), 0, -1) if rest % e == 0)
        rest //= dims[d]
    dims[order[-1]] = rest
    a, b = order[-2:]
    if lengths[a] > lengths[b] and dims[a] < dims[b]:
        dims[a], dims[b] = dims[b], dims[a]
    return tuple(dims)


@cache
def factorisations(n: int, ndims: int) -> tuple[tuple[int, ...], ...]:
    """Return all extents of ``n`` ranks in ``ndims`` dimensions, in ascending order."""
    if ndims == 1:
        return ((n,),)
    return tuple((d, *rest) for d in divisors(n) for rest in factorisations(n // d, ndims - 1))
