"""Irregular neighbourhoods: partners by no rule, as a sample with the distributions that were seen.

Where a graph or an unstructured mesh is cut into parts, who is next to whom depends on the data.
What has laws are the number of neighbours and what goes to all of them: the parts of a cut plane
or space. A sample has so many pairs, with the degrees, distances in rank and sizes in the
proportions of the largest count; a send and the receive of the same pairs make the same sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from zlib import crc32

import numpy as np

from p3s.model.grid.at import GridAt
from p3s.model.law_types import SampleSizes, SizeLaw
from p3s.model.partners.relation import Relation
from p3s.model.partners.totals import Total, shape_value

#: Mean number of partners at the largest count from which on they are a neighbourhood.
MIN_DEGREE = 2.0
_QUANTILES = 33
#: Rounds of drawing partners before ranks may get more of them than they should.
_ROUNDS, _MORE = 24, 8
#: One more term has to lower the error where a count is left out by this factor.
_WORTH = 0.8

#: Terms tried for the number of pairs and for the amount of all messages: (shape, sign)...
_PAIRS = ((("bricks", 1),), (("rest", 1), ("cuts", -1)), (("rest", 1), ("outer", -1)))
_AMOUNTS = ((("cuts", 1),), (("power", 1),))


@dataclass(frozen=True, kw_only=True)
class Sample(Relation, kind="sample"):
    """No rule: a sample of an irregular neighbourhood.

    sign: 1 to the receivers, -1 to the senders; pairs: how many directed pairs; degree: quantiles,
    relative to the mean; reach: quantiles of the logarithm of the distance in rank to the base n.
    """

    sign: int
    seed: int
    symmetric: bool
    pairs: Total = field(metadata={"read": Total.from_json})
    degree: tuple[float, ...]
    reach: tuple[float, ...]

    def table(self, g: GridAt) -> np.ndarray:
        """Return partners, (largest degree, n): -1 where a rank has no more."""
        n, edges = g.n, edges_of(self, g.n)
        here, there = edges.T if self.sign > 0 else edges.T[::-1]
        order = np.lexsort((there, here))
        here, there = here[order], there[order]
        degree = np.bincount(here, minlength=n)
        table = np.full((int(degree.max(initial=0)), n), -1, dtype=np.int64)
        table[np.arange(len(here)) - np.repeat(np.cumsum(degree) - degree, degree), here] = there
        return table if g.ranks is None else table[:, g.ranks]

    def text(self) -> str:
        side = "partners" if self.sign > 0 else "senders"
        return f"irregular {side}, a sample (seed {self.seed}): {self.pairs.text()} pairs"


def sampled(relation: Relation | None) -> bool:
    """Tell whether a relation is a sample, which no traced partner is a case of."""
    return isinstance(relation, Sample)


def sample_relation(
    pairs: Mapping[int, tuple[np.ndarray, np.ndarray]], sends: bool
) -> Sample | None:
    """Return the sample that stands for the (rank, partner) pairs per count, None for few of them.

    sends: whether partners are receivers.
    """
    counts = sorted(n for n, (r, _) in pairs.items() if len(r))
    if len(counts) < 2:
        return None
    edges = {
        n: np.unique(np.stack(pairs[n] if sends else pairs[n][::-1], axis=1), axis=0)
        for n in counts
    }
    top = counts[-1]
    ranks = np.unique(edges[top])
    if len(edges[top]) < MIN_DEGREE * len(ranks) or 2 * len(ranks) < top:
        return None
    symmetric = all(
        {(a, b) for a, b in e.tolist()} == {(b, a) for a, b in e.tolist()} for e in edges.values()
    )
    degree = np.bincount(edges[top][:, 0], minlength=top).astype(float)
    distance = np.abs(edges[top][:, 0] - edges[top][:, 1])
    number = [(n, float(len(e))) for n, e in edges.items()]
    telling = [(n, k) for n, k in number if k < n * (n - 1)]  # at few ranks all are next to all
    if len(telling) > 1:
        number = telling
    seed = crc32(b"|".join(e.tobytes() for e in edges.values()))
    return Sample(
        sign=1 if sends else -1,
        seed=seed,
        symmetric=symmetric,
        pairs=fit_total([n for n, _ in number], [k for _, k in number], _PAIRS),
        degree=_quantiles(degree / degree.mean()),
        reach=_quantiles(np.log(np.maximum(distance, 1)) / np.log(top)),
    )


def fit_total(
    ns: Sequence[int], values: Sequence[float], tried: Sequence[tuple[tuple[str, int], ...]]
) -> Total:
    """Return a law of a total of all parts of a cut plane or space.

    Chosen by the relative error where a count is left out (weighted by the totals), a second
    term only where it pays.
    """
    y = np.asarray(values, dtype=float)
    every = np.ones(len(ns), dtype=bool)
    best: tuple[float, int, tuple[tuple[str, float], ...], int] | None = None
    for size in (1, 2):
        if len(ns) < size + 1:
            break
        for dims in (2, 3):  # along a line, neighbours have a rule
            for terms in (t for t in tried if len(t) == size):
                if dims != 2 and terms[0][0] == "bricks" and len(ns) > 2:
                    continue  # how boxes meet in space, no such simple count tells
                columns = np.array(
                    [[sign * shape_value(name, n, dims) for name, sign in terms] for n in ns]
                )
                errors = []
                for i in range(len(ns)):
                    coef = _solve(columns, y, every & (np.arange(len(ns)) != i))
                    errors.append(float(columns[i] @ coef) / max(y[i], 1e-300) - 1.0)
                error = float(np.sqrt(np.average(np.square(errors), weights=y)))
                coef = _solve(columns, y, every)
                if _falls(terms, coef, dims, max(ns)):
                    continue
                if best is None or error < best[0] * (_WORTH if size > best[1] else 1.0) - 1e-12:
                    rows = tuple(
                        (name, float(sign * c))
                        for (name, sign), c in zip(terms, coef, strict=True)
                        if c
                    )
                    best = (error, size, rows, dims)
    if best is None:
        best = (1.0, 1, (("rest", float(y[-1]) / (max(ns) - 1)),), 2)
    return Total(best[3], best[2], best[0])


def _solve(columns: np.ndarray, y: np.ndarray, keep: np.ndarray) -> np.ndarray:
    from scipy.optimize import nnls

    scale = np.sqrt(np.maximum(y, 1e-300))  # the more are counted, the surer their share
    scaled = columns / scale[:, None]
    norm = np.maximum(np.linalg.norm(scaled, axis=0), 1e-300)
    return np.asarray(nnls((scaled / norm)[keep], (y / scale)[keep])[0] / norm)


def _falls(terms: Sequence[tuple[str, int]], coef: np.ndarray, dims: int, top: int) -> bool:
    """Return whether a law falls further on: no part of a cut ever gets fewer neighbours."""
    far = [
        sum(
            sign * c * shape_value(name, n, dims)
            for (name, sign), c in zip(terms, coef, strict=True)
        )
        for n in (top, 4 * top, 16 * top, 64 * top)
    ]
    return any(b < a * (1.0 - 1e-9) for a, b in zip(far, far[1:], strict=False))


def _quantiles(values: np.ndarray) -> tuple[float, ...]:
    return tuple(round(float(q), 6) for q in np.quantile(values, np.linspace(0, 1, _QUANTILES)))


def _drawn(quantiles: Sequence[float], u: np.ndarray) -> np.ndarray:
    result: np.ndarray = np.interp(u, np.linspace(0, 1, len(quantiles)), np.asarray(quantiles))
    return result


_EDGES: dict[tuple[Sample, int], np.ndarray] = {}


def edges_of(sample: Sample, n: int) -> np.ndarray:
    """Return the sample's pairs at ``n`` processes, (pairs, 2): sender and receiver."""
    key = (replace(sample, sign=1), n)  # both ends have the same pairs
    if key not in _EDGES:
        if len(_EDGES) > 64:
            _EDGES.clear()
        _EDGES[key] = _drawn_pairs(sample, n)
    return _EDGES[key]


def _drawn_pairs(sample: Sample, n: int) -> np.ndarray:
    """Draw pairs: every rank a number of partners, each at a drawn distance, none twice.

    Only uniform numbers are drawn, which numpy keeps the same from version to version.
    """
    half = 2 if sample.symmetric else 1
    most = n * (n - 1) // half
    wanted = min(int(round(sample.pairs.at(n) / half)), most)
    rng = np.random.Generator(np.random.PCG64([sample.seed, n]))
    place = (np.argsort(np.argsort(rng.random(n))) + 0.5) / n
    share = np.maximum(_drawn(sample.degree, place), 0.0)
    # as many as add up to the number wanted, each rank rounded up or down
    ends = np.floor(np.cumsum(share) / max(share.sum(), 1e-300) * 2 * wanted + 0.5)
    left = np.diff(np.concatenate([[0.0], ends])).astype(np.int64)
    into = left.copy()
    if half == 1:  # half of a rank's pairs lead from it
        left = (left + np.arange(n) % 2) // 2
        into = into - left
    else:
        into = left
    found: dict[tuple[int, int], None] = {}
    for turn in range(_ROUNDS + _MORE):
        if len(found) >= wanted:
            break
        strict = turn < _ROUNDS
        source = np.repeat(np.arange(n), left if strict else 1)
        if not len(source):
            source = np.arange(n)
        source = source[np.argsort(rng.random(len(source)), kind="stable")]
        far = np.maximum(np.rint(n ** _drawn(sample.reach, rng.random(len(source)))), 1)
        if turn >= _ROUNDS // 2:  # what is left over finds partners at any distance
            far = 1 + np.floor(rng.random(len(source)) * (n - 1))
        side = np.where(rng.random(len(source)) < 0.5, -1, 1)
        target = source + side * far.astype(np.int64)
        target = np.where(
            (target < 0) | (target >= n), source - side * far.astype(np.int64), target
        )
        for a, b in zip(source.tolist(), target.tolist(), strict=True):
            if len(found) >= wanted:
                break
            pair = (min(a, b), max(a, b)) if half == 2 else (a, b)
            if not 0 <= b < n or a == b or pair in found:
                continue
            if strict and (left[a] < 1 or into[b] < 1):
                continue
            found[pair] = None
            left[a] -= 1
            into[b] -= 1
    out = np.array(sorted(found), dtype=np.int64).reshape(-1, 2)
    if half == 2:
        out = np.concatenate([out, out[:, ::-1]])
    return out[np.lexsort((out[:, 1], out[:, 0]))]


def sizes(
    rel: Relation, law: SampleSizes, n: int, ranks: np.ndarray, peers: np.ndarray
) -> np.ndarray:
    """Return elements per message of the pairs of ranks and partners, int64.

    Sizes belong to pairs, so that both ends agree; over all pairs they add up to the total.
    """
    sample = rel
    assert isinstance(sample, Sample)
    edges = edges_of(sample, n)
    a, b = (ranks, peers) if sample.sign > 0 else (peers, ranks)
    rng = np.random.Generator(np.random.PCG64([sample.seed, n, 1]))
    place = (np.argsort(np.argsort(rng.random(len(edges)))) + 0.5) / max(len(edges), 1)
    share = np.maximum(_drawn(law.quantiles, place), 0.0)
    ends = np.floor(np.cumsum(share) / max(share.sum(), 1e-300) * law.total.at(n) + 0.5)
    amount = np.diff(np.concatenate([[0.0], ends])).astype(np.int64)
    at = np.searchsorted(edges[:, 0] * n + edges[:, 1], a * n + b)
    return np.asarray(amount[np.minimum(at, len(edges) - 1)])


def sample_law(
    rows: Mapping[int, tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]], elem: int
) -> SizeLaw:
    """Return the law of sizes, in elements of ``elem`` bytes.

    rows: per count the ranks, partners, bytes of one message and how often.
    """
    points, means = [], []
    quantiles: tuple[float, ...] = (1.0,)
    for n in sorted(rows):
        rank, peer, nbytes, count = rows[n]
        if not len(rank):
            continue
        pair, which = np.unique(rank * n + peer, return_inverse=True)
        number = np.bincount(which, weights=count)
        size = np.bincount(which, weights=count * (nbytes / elem)) / number
        points.append((n, float(size.sum())))
        means.append((n, float(size.mean()), int(number.sum())))
        if size.mean() > 0:
            quantiles = _quantiles(size / size.mean())
    total = fit_total([n for n, _ in points], [v for _, v in points], _AMOUNTS)
    return SizeLaw(means=tuple(means), sample=SampleSizes(tuple(quantiles), total))
