"""Which process counts a program accepts, learned from those it ran at and those it failed at."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations

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
