"""Which process counts show a grid: what some leave open, and which to trace up to a maximum."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations

from p3s.base.extents import dims_balanced, prime_factors
from p3s.model.grid import admissible

#: Extents of a grid of some dimensions at a count.
ExtentsAt = Callable[[int, int], Sequence[int]]
#: Dimensions of the grids that counts are to show, where nothing is known of the program's.
USUAL = (2, 3)
#: Counts traced where only a maximum is given: two to fit, one held out, one to spare.
ENOUGH = 4
#: A dimension of so many ranks shows no direction: both neighbours are one.
_HIDDEN = 2
#: The largest count is at least this part of the maximum, and so many times the smallest.
_NEAR, _SPREAD = 0.8, 3.0
#: Counts that are combined; of more, some all over them.
_POOL = 28
#: Dimensions of the grids of programs that take counts of a kind only.
_NDIMS = {"squares": 2, "cubes": 3}
_WORDS = ("no", "one", "two", "three", "four")


def hidden(counts: Iterable[int], ndims: int, extents: ExtentsAt = dims_balanced) -> int:
    """Return in how many dimensions of a grid there are never more than two ranks."""
    most = [max(each) for each in zip(*(extents(n, ndims) for n in counts), strict=True)]
    return sum(p <= _HIDDEN for p in most)


def left_open(
    counts: Sequence[int],
    dims: Sequence[int] = USUAL,
    extents: ExtentsAt = dims_balanced,
    failed: Sequence[int] = (),
) -> str:
    """Return what counts cannot show of a grid, and which can; "" where they show all of it."""
    known = admissible.learn(counts, failed)
    own = _NDIMS.get(known.kind)  # a program of squares has no grid of three dimensions
    dims = [ndims for ndims in dims if own in (None, ndims)]
    found = [(ndims, hidden(counts, ndims, extents)) for ndims in dims]
    if not any(many for _, many in found):
        return ""
    where = " and ".join(
        f"{_dimensions(many, ndims)} of a {ndims}-D grid" for ndims, many in found if many
    )
    tell = ",".join(map(str, telling(dims, extents, failed, counts)))
    return f"-n {','.join(map(str, counts))} has at most two ranks in {where}" + (
        f"; {tell} would show more" if tell else ""
    )


def telling(
    dims: Sequence[int] = USUAL,
    extents: ExtentsAt = dims_balanced,
    failed: Sequence[int] = (),
    like: Sequence[int] = (),
) -> list[int]:
    """Return small good counts that show grids whole, [] where there are none.

    like: counts that the program takes, of whose kind, squares say, others are to be.
    """
    least = (_HIDDEN + 1) ** max(dims)
    for top in (least, 2 * least, 4 * least):  # of a program that takes some counts only
        found = choose(top, (), failed, dims, extents, like)
        if found and not any(hidden(found, ndims, extents) for ndims in dims):
            return found
    return []


def _dimensions(many: int, ndims: int) -> str:
    if many == ndims == 2:
        return "both dimensions"
    every = "all " if many == ndims > 1 else ""
    return f"{every}{_WORDS[many]} dimension{'s' * (many > 1)}"


def choose(
    top: int,
    ran: Sequence[int] = (),
    failed: Sequence[int] = (),
    dims: Sequence[int] = USUAL,
    extents: ExtentsAt = dims_balanced,
    like: Sequence[int] = (),
) -> list[int]:
    """Return the counts up to ``top`` to trace beside those that ran, ascending; the fewest.

    Together they show grids of ``dims`` dimensions as far as any do, are four at least and not
    all powers of two, lie evenly, and are none that the program refuses, as far as those that it
    failed at, those that ran, and others ``like`` them tell.
    """
    pool = [n for n in _pool(top, ran, failed, like) if n not in ran]
    best = _shown([*pool, *ran], dims, extents)
    for more in range(max(ENOUGH - len(set(ran)), 0), len(pool) + 1):
        sets = ([*ran, *each] for each in combinations(pool, more))
        found = max(sets, key=lambda s: _score(s, top, dims, extents), default=list(ran))
        near = not pool or max(found, default=0) >= _NEAR * max(pool)
        if more == ENOUGH or (near and _shown(found, dims, extents) >= best):
            return sorted(set(found) - set(ran))
    return pool


def _pool(top: int, ran: Sequence[int], failed: Sequence[int], like: Sequence[int]) -> list[int]:
    """Return the counts among which is chosen: those with many grids, else all that are taken."""
    known = admissible.learn(sorted({*ran, *like}), sorted(set(failed)))
    likely = [n for n in range(1, top + 1) if n not in known.failed]
    if known.kind != "any":
        likely = [n for n in likely if admissible.admits(known, n)]
    elif ran and failed:  # no kind of counts: too small, or too large
        least, most = 0, top + 1
        if max(failed) < min(ran):
            least = max(failed)
        elif min(failed) > max(ran):
            most = min(failed)
        likely = [n for n in likely if least < n < most]
    several = [n for n in likely if n > 1 and 2 * _spread(top) * n >= top]
    smooth = [n for n in several if max(prime_factors(n)) <= 3 or n in known.counts]
    for found in (smooth, several):
        if len(found) >= ENOUGH:
            step = max(1.0, (len(found) - 1) / (_POOL - 1))
            return [found[-1 - round(k * step)] for k in range(min(len(found), _POOL))][::-1]
    return likely


def _spread(top: int) -> float:
    """Return how many times the smallest count the largest is at least."""
    return _SPREAD * max(1.0, math.sqrt(top / 32))


def _score(
    counts: Sequence[int], top: int, dims: Sequence[int], extents: ExtentsAt
) -> tuple[float, ...]:
    """Return how good counts are, the most important first."""
    ordered = sorted(counts)
    if not ordered:
        return ()
    largest = ordered[-1]
    below = sum(min(extents(n, ndims)) > 1 for n in ordered[:-1] for ndims in dims)
    varied = math.gcd(*ordered) <= 2 and any(n & (n - 1) for n in ordered)
    steps = max((b / a for a, b in zip(ordered, ordered[1:], strict=False)), default=1.0)
    return (
        _shown(ordered, dims, extents),
        varied,
        largest >= _NEAR * top,
        largest >= _spread(top) * ordered[0],
        below,
        -steps,
        -sum(ordered),
    )


def _shown(counts: Sequence[int], dims: Sequence[int], extents: ExtentsAt) -> int:
    """Return how many dimensions of all grids have more than two ranks somewhere."""
    return sum(dims) - sum(hidden(counts, ndims, extents) for ndims in dims) if counts else 0
