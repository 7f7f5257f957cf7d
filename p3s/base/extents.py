"""Extents of process grids: rules of the count, and {px}, {py}, {pz} in launcher commands."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import cache

from p3s.base.errors import UsageError


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

    def walk(rest: int, dimensions: int, cap: int, chosen: tuple[int, ...]) -> None:
        nonlocal best
        if dimensions == 1:
            if rest <= cap:
                cand = (*chosen, rest)
                if best is None or (cand[0] - cand[-1], cand) < (best[0] - best[-1], best):
                    best = cand
            return
        for d in divisors(rest):
            if d <= cap:
                walk(rest // d, dimensions - 1, d, (*chosen, d))

    walk(n, ndims, n, ())
    assert best is not None
    return best


@cache
def dims_nested(n: int, ndims: int) -> tuple[int, ...]:
    """Return ascending extents, each the largest divisor of what is left below its root."""
    out: list[int] = []
    for dimensions in range(ndims, 1, -1):
        d = max(d for d in range(1, int(n ** (1 / dimensions) + 1e-9) + 1) if n % d == 0)
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
        lengths_left = [lengths[e] for e in order[k:]]
        share = (rest * math.prod(lengths[d] / e for e in lengths_left)) ** (1 / len(lengths_left))
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


#: Placeholders for the extents of the process grid, the first dimension first.
EXTENTS = ("px", "py", "pz", "pt")


#: The process count, or what is left of it for one of several programs: {np-1}, {np/2}.
_COUNT = re.compile(r"\{np(?:([-+*/])(\d{1,7}))?\}")


def names_count(words: Sequence[str]) -> bool:
    """Tell whether a launcher command has a place for the process count."""
    return any(_COUNT.search(word) for word in words)


def with_count(words: Sequence[str], np: int) -> list[str]:
    """Return a launcher command with the process count in place.

    Raises UsageError where one of its programs would get no whole number of processes above 0.
    """

    def number(match: re.Match[str]) -> str:
        sign, by = match[1], int(match[2] or 0)
        of = {None: np, "-": np - by, "+": np + by, "*": np * by, "/": np // by if by else 0}[sign]
        if of < 1 or (sign == "/" and of * by != np):
            raise UsageError(f"{match[0]}: is no number of processes at {np}")
        return str(of)

    return [_COUNT.sub(number, word) for word in words]


def shape(extents: Sequence[int]) -> str:
    """Return the extents of a grid for people: ``4x2x2``."""
    return "x".join(map(str, extents))


def extents_in(template: Sequence[str]) -> tuple[str, ...]:
    """Return the extents of the process grid that a launcher command asks for, in their order."""
    return tuple(name for name in EXTENTS if any(f"{{{name}}}" in word for word in template))


def extents_at(
    template: Sequence[str], np: int, listed: Mapping[int, tuple[int, ...]]
) -> tuple[int, ...]:
    """Return the extents of the process grid that the program gets at ``np`` ranks.

    ``listed``: extents by count; at others they are as MPI_Dims_create deals them, the largest
    first. Empty for a command that asks for none.
    """
    ndims = len(extents_in(template))
    if not ndims:
        return ()

    return listed.get(np) or dims_balanced(np, ndims)


def with_extents(
    template: Sequence[str], np: int, listed: Mapping[int, tuple[int, ...]] | None = None
) -> list[str]:
    """Return a launcher command with the extents of the process grid in place; {np} stays."""
    extents = extents_at(template, np, listed or {})
    words = list(template)
    for name, extent in zip(extents_in(template), extents, strict=True):
        words = [word.replace(f"{{{name}}}", str(extent)) for word in words]
    return words


def extents_of(template: Sequence[str], argv: Sequence[str]) -> tuple[int, ...]:
    """Return the extents of the process grid in the arguments of a run of a launcher command.

    Empty for a command that asks for none. Raises UsageError where these are other arguments.
    """
    values: dict[str, int] = {}
    for word, argument in zip(reversed(template), reversed(argv), strict=False):
        parts = re.split(rf"\{{({'|'.join(EXTENTS)})\}}", word)  # every second one is a name
        pattern = "".join(r"(\d+)" if k % 2 else re.escape(part) for k, part in enumerate(parts))
        match = re.fullmatch(pattern, argument) if len(parts) > 1 else None
        values.update(zip(parts[1::2], map(int, match.groups() if match else ()), strict=False))
    names = extents_in(template)
    if any(name not in values for name in names):
        raise UsageError(f"{' '.join(argv)[:80]}: are no arguments of {' '.join(template)[:80]}")
    return tuple(values[name] for name in names)
