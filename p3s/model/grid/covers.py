"""The cheapest sets that cover everything: of atoms, of relations, of communicator laws."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

#: What each member of a set after the first costs beside itself, and members as a rule.
JOINED, MOST = 0.2, 6
#: Members among which three are looked for.
_OF_THREE = 48

#: What a set costs, and its members.
Set = tuple[float, tuple[int, ...]]


def covers_by_size(
    costs: Sequence[float] | np.ndarray,
    hits: np.ndarray,
    larger: Collection[int] | None = None,
    most: int = MOST,
) -> Iterator[list[Set]]:
    """Yield sets of members that together hit everything, cheapest first: of one, two, three.

    At last one of those that have more, each member the one that hits most for what it costs;
    larger: those that it may have; most: how many. hits: what each member hits, shape (members,
    things); members are in the order of their costs.
    """
    price = np.asarray(costs, dtype=float)
    led = hits.sum(axis=0)
    if not len(hits) or not led.all():
        return
    yield [(float(price[k]), (int(k),)) for k in np.flatnonzero(hits.all(axis=1))]
    if np.sort(hits.sum(axis=1))[-most:].sum() < hits.shape[1]:
        return
    miss = (~hits).astype(np.float32)
    yield _pairs(price, miss, np.flatnonzero(hits[:, int(led.argmin())]))
    yield sorted(_threes(price[:_OF_THREE], miss[:_OF_THREE]))
    yield _many(price, hits, larger, most)


def cheapest_covers(
    costs: Sequence[float] | np.ndarray,
    hits: np.ndarray,
    kept: int,
    *,
    enough: float = 0.0,
    larger: Collection[int] | None = None,
    most: int = MOST,
) -> list[Set]:
    """Return such sets of one and two members, so many of each at most; larger ones only where
    there are none. Two are no use where one costs less than enough.
    """
    found: list[Set] = []
    for size, some in enumerate(covers_by_size(costs, hits, larger, most), start=1):
        found += some[:kept] if size < 3 else some
        if found and (size > 1 or found[0][0] < enough):
            break
    return sorted(found)


def _pairs(price: np.ndarray, miss: np.ndarray, some: np.ndarray) -> list[Set]:
    """Return sets of two, of which one is among some."""
    first, second = np.nonzero(miss[some] @ miss.T == 0)
    both = np.unique(np.sort(np.stack([some[first], second]), axis=0), axis=1)
    both = both[:, both[0] != both[1]]
    total = price[both].sum(axis=0) + JOINED
    order = np.argsort(total, kind="stable")
    return [(float(total[k]), (int(both[0, k]), int(both[1, k]))) for k in order]


def _threes(price: np.ndarray, miss: np.ndarray) -> list[Set]:
    """Return sets of three, the cheapest of each first member."""
    found: list[Set] = []
    for k in range(len(miss)):
        left = miss[k + 1 :, miss[k] > 0]  # what the others have to hit
        rest = k + 1 + np.argwhere(np.triu(left @ left.T == 0, 1))
        if len(rest):
            total = price[k] + price[rest].sum(axis=1) + 2 * JOINED
            best = int(np.argmin(total))
            found.append((float(total[best]), (k, int(rest[best][0]), int(rest[best][1]))))
    return found


def _many(
    price: np.ndarray, hits: np.ndarray, larger: Collection[int] | None, most: int
) -> list[Set]:
    """Return a set of members, each of which hits most of what is left for what it costs."""
    chosen: list[int] = []
    left = np.ones(hits.shape[1], dtype=bool)
    some = np.arange(len(hits)) if larger is None else np.array(sorted(larger), dtype=np.int64)
    while left.any():
        gain = hits[some][:, left].sum(axis=1) / (price[some] + JOINED)
        if len(chosen) == most or not len(gain) or not gain.any():
            return []
        chosen.append(int(some[int(np.argmax(gain))]))
        left &= ~hits[chosen[-1]]
    for k in list(chosen):
        rest = [j for j in chosen if j != k]
        if rest and hits[rest].any(axis=0).all():
            chosen = rest
    return [(float(price[chosen].sum()) + JOINED * (len(chosen) - 1), tuple(chosen))]
