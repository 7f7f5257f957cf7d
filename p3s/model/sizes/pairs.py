"""Calls and sizes of the pairs of an irregular neighbourhood: samples, and laws of their totals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from p3s.laws.lawfinder import find_law
from p3s.model.law_types import CountLaw, Sampled, SizeLaw
from p3s.model.partners.irregular import PAIRS, Sample, edges_of, fit_total, reference, stands_for
from p3s.model.partners.relation import Relation
from p3s.model.sizes.observed import Rows

#: More times than this in an iteration are not told apart.
MAX_TIMES = 8
#: Terms tried for the amount of all messages: (shape, sign)...
_AMOUNTS = ((("cuts", 1),), (("cuts", 1), ("rest", 1)))


@dataclass(frozen=True)
class Calls:
    """Calls of the pairs of a neighbourhood at one count, and bytes of one: (pairs, times)."""

    calls: np.ndarray
    nbytes: np.ndarray


def calls_of(rows: Mapping[int, Rows]) -> dict[int, Calls]:
    """Return the calls of each pair and time per count; one time where there are too many."""
    flat = {n: _without_iterations(r, n) for n, r in rows.items()}
    times = {n: _times(pair // n, pair, first) for n, (pair, _, _, first) in flat.items()}
    number = 1 + max(int(t.max(initial=0)) for t in times.values())
    if number > MAX_TIMES:
        number, times = 1, {n: np.zeros_like(t) for n, t in times.items()}
    found = {}
    for n, (pair, nbytes, count, _) in flat.items():
        every, which = np.unique(pair, return_inverse=True)
        calls, amount = np.zeros((2, len(every), number))
        np.add.at(calls, (which, times[n]), count)
        np.add.at(amount, (which, times[n]), count * nbytes)
        found[n] = Calls(calls.astype(np.int64), amount / np.maximum(calls, 1))
    return found


def _without_iterations(rows: Rows, n: int) -> tuple[np.ndarray, ...]:
    """Return pair, bytes, calls and first event of what a rank sends a partner with one size."""
    keys = np.stack([rows.rank * n + rows.peer, rows.nbytes])
    (pair, nbytes), which = np.unique(keys, axis=1, return_inverse=True)
    first = np.full(len(pair), np.iinfo(np.int64).max, dtype=np.int64)
    np.minimum.at(first, which.ravel(), rows.first)
    return pair, nbytes, np.bincount(which.ravel(), weights=rows.count), first


def _times(rank: np.ndarray, pair: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Return how often a rank has come back to a partner of before when it makes each call."""
    out = np.zeros(len(pair), dtype=np.int64)
    here, time = -1, 0
    met: set[int] = set()
    for i in np.lexsort((first, rank)).tolist():
        if rank[i] != here:
            here, time, met = int(rank[i]), 0, set()
        elif pair[i] in met:
            time, met = time + 1, set()
        met.add(int(pair[i]))
        out[i] = time
    return out


def laws(seen: Mapping[int, Calls], elem: int) -> list[tuple[CountLaw, SizeLaw]]:
    """Return the laws of the calls and sizes (in elements of ``elem`` bytes) of each time.

    What all numbers of calls of a count are multiples of, the iterations, has a law of its own.
    """
    unit = {n: int(np.gcd.reduce(each.calls, axis=None)) for n, each in seen.items()}
    iterations = _iterations(unit)
    out = []
    for k in range(seen[max(seen)].calls.shape[1]):
        there = [n for n, each in seen.items() if each.calls[:, k].any()]
        top = seen[max(there)]
        amount = (top.calls * top.nbytes).sum(axis=1)
        chosen = np.lexsort((amount, *(top.calls > 0).T))[reference(len(amount))]
        calls = {n: seen[n].calls[:, k] // unit[n] for n in there}
        sizes = {n: seen[n].nbytes[:, k] / elem for n in there}
        once = all(np.all(v == 1) for v in calls.values())
        number = None if once else _fit_sample(calls, chosen, PAIRS)
        means = tuple((n, *_mean(sizes[n], seen[n].calls[:, k])) for n in there)
        law = SizeLaw(means=means, sample=_fit_sample(sizes, chosen, _AMOUNTS))
        out.append((replace(iterations, sample=number), law))
    return out


def _iterations(unit: Mapping[int, int]) -> CountLaw:
    found = find_law([({"n": n}, k) for n, k in unit.items()], "whole").law
    if found is not None:
        return CountLaw(expr=found.expr, points=found.points, free=found.free)
    return CountLaw(stat=find_law([(n, float(k)) for n, k in unit.items()], "work").fit)


def _mean(size: np.ndarray, calls: np.ndarray) -> tuple[float, int]:
    return float(size @ calls / calls.sum()), int(calls.sum())


def _fit_sample(
    values: Mapping[int, np.ndarray],
    chosen: np.ndarray,
    terms: Sequence[tuple[tuple[str, int], ...]],
) -> Sampled:
    """Return the law of numbers of pairs; chosen: the reference pairs, of the largest count."""
    total = fit_total(list(values), [float(v.sum()) for v in values.values()], terms)
    top = values[max(values)]
    shares = top[chosen] / (top.mean() or 1.0)
    return Sampled(tuple(round(float(x), 6) for x in shares), total)


def of_pairs(
    relation: Relation | None, law: Sampled, n: int, ranks: np.ndarray, peers: np.ndarray
) -> np.ndarray:
    """Return the whole numbers of the pairs of ranks and partners, int64.

    They belong to pairs, so that both ends agree; over all pairs they add up to the total.
    """
    if not isinstance(relation, Sample):
        raise ValueError("numbers of a neighbourhood have no sample of it")
    edges = edges_of(relation, n)
    share = np.asarray(law.values)[stands_for(relation, n, len(edges), len(law.values), 1)]
    ends = np.floor(np.cumsum(share) / max(share.sum(), 1e-300) * law.total.at(n) + 0.5)
    amount = np.diff(np.concatenate([[0.0], ends])).astype(np.int64)
    a, b = (ranks, peers) if relation.sign > 0 else (peers, ranks)
    at = np.searchsorted(edges[:, 0] * n + edges[:, 1], a * n + b)
    return np.asarray(amount[np.minimum(at, len(edges) - 1)])
