"""Which process counts a program accepts, learned from those it ran at and those it failed at."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations

from p3s.base.extents import dims_balanced, prime_factors
from p3s.base.text import processes
from p3s.model.types import Admissible

#: Kinds of counts, the widest first; "multiples" are those of the counts' common divisor.
_KINDS: dict[str, tuple[str, Callable[[int, int], bool]]] = {
    "any": ("any count", lambda n, k: True),
    "multiples": ("multiples of {k}", lambda n, k: n % k == 0),
    "powers": ("powers of two", lambda n, k: n & (n - 1) == 0),
    "squares": ("squares", lambda n, k: math.isqrt(n) ** 2 == n),
    "cubes": ("cubes", lambda n, k: round(n ** (1 / 3)) ** 3 == n),
}
#: A kind is suspected without a failure only where this many counts are all of it.
_ENOUGH = 3


def learn(
    counts: Sequence[int], failed: Sequence[int] = (), cart: bool = False, powers: bool = False
) -> Admissible:
    """Return what is known of the counts a program accepts.

    counts, failed: process counts that ran, and that did not (a refusal or another failure);
    cart: MPI gave the program its grid, which it does at any count; powers: its partners are
    there at powers of two only.
    sure: failures show the kind, else it is only that of the partners, or of squares or cubes
    which nobody would choose unasked; powers of two are chosen for any program.
    """
    failed = sorted(set(failed) - set(counts))
    k = math.gcd(*counts)
    holds = [
        name
        for name, (_, test) in _KINDS.items()
        if not (name == "multiples" and (k < 2 or len(counts) < 2))
        and all(test(n, k) for n in counts)
    ]
    telling = [name for name in holds if not any(_KINDS[name][1](n, k) for n in failed)]
    kind, sure = "any", False
    if failed and telling:
        kind, sure = telling[0], True
    elif powers and "powers" in holds:
        kind = "powers"
    elif len(counts) >= _ENOUGH and not cart and "powers" not in holds:
        kind = next((name for name in ("cubes", "squares") if name in holds), "any")
    return Admissible(kind, k, sure, tuple(sorted(counts)), tuple(failed))


def relearn(known: Admissible, ran: Sequence[int], failed: Sequence[int], cart: bool) -> Admissible:
    """Return what is known with the counts that the program ran and failed at since."""
    counts = sorted({*known.counts, *ran})
    refused = sorted({*known.failed, *failed} - set(counts))
    if tuple(counts) == known.counts and tuple(refused) == known.failed:
        return known
    return learn(counts, refused, cart, known.kind == "powers")


def admits(known: Admissible, n: int) -> bool:
    """Tell whether a count is of the kind the program was seen to run at."""
    return n not in known.failed and (n in known.counts or _KINDS[known.kind][1](n, known.k))


def text(known: Admissible) -> str:
    """Return in words which counts the program accepts; "" where it failed at none."""
    if not known.failed:
        return ""
    name = _KINDS[known.kind][0].format(k=known.k)
    ran = f"ran at {_list(known.counts)}, failed at {_list(known.failed)}"
    if known.kind == "any":
        return f"the program {ran}"
    return f"the program {ran}: " + (
        f"it seems to take {name} only"
        if known.sure
        else f"all are {name}, whether it takes others is not known"
    )


def doubt(known: Admissible | None, n: int) -> str | None:
    """Return why the program may not run at ``n`` processes, None where nothing says so."""
    if known is None or admits(known, n) or not known.failed:
        return None
    if n in known.failed:
        return f"the program failed at {processes(n)} when it was traced"
    name = _KINDS[known.kind][0].format(k=known.k)
    return f"not among the {name}; {text(known)}"


def candidates(known: Admissible, top: int) -> list[int]:
    """Return counts from 3 to below ``top`` that the program is likely to take.

    They end below the first failure above all counts that ran: larger ones are likely to fail,
    too. Where that count is not of the kind, one of it that is next is still to be tried.
    """
    taken = [n for n in range(3, top) if admits(known, n)]
    limit = _first_too_many(known)
    if limit is None:
        return taken
    largest, test = max(known.counts), _KINDS[known.kind][1]
    below = [n for n in taken if n < limit]
    if test(limit, known.k) or any(n > largest for n in below):
        return below
    of_kind = [n for n in known.failed if n > limit and test(n, known.k)]
    return [n for n in taken if n < min(of_kind, default=top)]


def _first_too_many(known: Admissible) -> int | None:
    """Return the smallest count above all that ran at which the program failed."""
    largest = max(known.counts, default=0)
    return min((n for n in known.failed if n > largest), default=None)


def larger(known: Admissible) -> int | None:
    """Return a count that the program is likely to take, about twice the largest that ran."""
    largest = max(known.counts)
    above = [n for n in candidates(known, 8 * largest + 28) if n > largest]
    return min((n for n in above if n >= 2 * largest), default=max(above, default=None))


def probes(counts: Sequence[int]) -> list[int]:
    """Return the two counts of which a program that takes some counts only most likely takes one.

    The counts themselves where they are no more.
    """

    def either(pair: Iterable[int]) -> tuple[int, int]:
        kinds = {name for n in pair for name, (_, test) in _KINDS.items() if test(n, 3)}
        return len(kinds), -sum(pair)

    return list(max(combinations(counts, 2), key=either, default=counts))


def _list(counts: Sequence[int]) -> str:
    return ", ".join(map(str, counts))


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
    known = learn(counts, failed)
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
    best = _count_dimensions([*pool, *ran], dims, extents)
    for more in range(max(ENOUGH - len(set(ran)), 0), len(pool) + 1):
        sets = ([*ran, *each] for each in combinations(pool, more))
        found = max(sets, key=lambda s: _score(s, top, dims, extents), default=list(ran))
        near = not pool or max(found, default=0) >= _NEAR * max(pool)
        if more == ENOUGH or (near and _count_dimensions(found, dims, extents) >= best):
            return sorted(set(found) - set(ran))
    return pool


def _pool(top: int, ran: Sequence[int], failed: Sequence[int], like: Sequence[int]) -> list[int]:
    """Return the counts among which is chosen: those with many grids, else all that are taken."""
    known = learn(sorted({*ran, *like}), sorted(set(failed)))
    likely = [n for n in range(1, top + 1) if n not in known.failed]
    if known.kind != "any":
        likely = [n for n in likely if admits(known, n)]
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
        _count_dimensions(ordered, dims, extents),
        varied,
        largest >= _NEAR * top,
        largest >= _spread(top) * ordered[0],
        below,
        -steps,
        -sum(ordered),
    )


def _count_dimensions(counts: Sequence[int], dims: Sequence[int], extents: ExtentsAt) -> int:
    """Return how many dimensions of all grids have more than two ranks somewhere."""
    return sum(dims) - sum(hidden(counts, ndims, extents) for ndims in dims) if counts else 0
