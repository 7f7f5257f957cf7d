"""Irregular neighbourhoods: partners by no rule, as a sample with their distributions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any
from zlib import crc32

import numpy as np

from p3s.base.errors import P3SError
from p3s.laws.statistics import nonnegative
from p3s.model.grid.at import GridAt
from p3s.model.memory import Memory
from p3s.model.partners.relation import Relation
from p3s.model.registry import left_out

#: One more term has to lower the error where a count is left out by this factor.
_WORTH = 0.8


@dataclass(frozen=True)
class Total:
    """A law of a total of all parts of a plane or space (dims) that is cut into n parts.

    terms: shapes with their coefficients; error: relative, where a count is left out.
    """

    dims: int
    terms: tuple[tuple[str, float], ...]
    error: float

    def at(self, n: int) -> float:
        """Return the total at ``n`` processes, never negative."""
        return float(max(sum(c * shape_value(name, n, self.dims) for name, c in self.terms), 0.0))

    def text(self) -> str:
        """Return the law for people; cutsD(n): the planes that bisect D dimensions."""
        d = self.dims
        names = {
            "rest": "(n-1)",
            "cuts": f"cuts{d}(n)",
            "power": f"(n**(1/{d})-1)",
            "outer": f"{d}*(n**({d - 1}/{d})-1)",
            "bricks": "(6*(n-1) - 4*cuts2(n))",
        }
        parts = [f"{c:.4g}" + f"*{names[name]}" for name, c in self.terms]
        return " + ".join(parts).replace("+ -", "- ") or "0"

    def to_json(self) -> dict[str, Any]:
        """Return the law as plain data."""
        return {"dims": self.dims, "terms": [list(t) for t in self.terms], "error": self.error}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Total:
        """Return the law of :meth:`to_json` data."""
        terms = tuple((str(name), float(c)) for name, c in data["terms"])
        return Total(int(data["dims"]), terms, float(data["error"]))


def shape_value(name: str, n: int, dims: int) -> float:
    """Return a shape's value at ``n`` parts of a space of so many dimensions; none at one part.

    rest: n - 1; cuts: the planes that bisect the unit cube into n parts; outer: how many more
    parts lie at its sides than there are sides; power: n^(1/dims) - 1; bricks: the pairs of n
    rectangles that bisect a plane and meet in no point by four.
    """
    if name == "rest":
        return float(n - 1)
    if name == "power":
        return float(n ** (1.0 / dims) - 1.0)
    if name == "cuts":
        return _planes(n, (1.0,) * dims)
    if name == "outer":
        return float(dims * (n ** (1.0 - 1.0 / dims) - 1.0))
    if name == "bricks":
        return 6.0 * (n - 1) - 4.0 * _planes(n, (1.0,) * dims)
    raise P3SError(f"model: unknown shape {name!r}; the file was made by another version")


@cache
def _planes(n: int, box: tuple[float, ...]) -> float:
    """Return the area of the planes that halve a box, its longest side first, into n parts."""
    if n < 2:
        return 0.0
    k = max(range(len(box)), key=lambda d: (box[d], -d))
    part = n // 2 / n
    area = float(np.prod([x for d, x in enumerate(box) if d != k]))
    here = tuple(round(x * part, 12) if d == k else x for d, x in enumerate(box))
    rest = tuple(round(x * (1.0 - part), 12) if d == k else x for d, x in enumerate(box))
    return area + _planes(n // 2, here) + _planes(n - n // 2, rest)


def fit_total(
    ns: Sequence[int], values: Sequence[float], tried: Sequence[tuple[tuple[str, int], ...]]
) -> Total:
    """Return a law of a total of all parts of a cut plane or space.

    Chosen by the relative error where a count is left out (weighted by the totals), a second
    term only where it pays.
    """
    y = np.asarray(values, dtype=float)
    if not y.any():
        return Total(2, (), 0.0)  # as the bytes of messages that only say that they came
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
    weight = 1.0 / np.sqrt(np.maximum(y, 1e-300))  # the more are counted, the surer their share
    return nonnegative(columns[keep], y[keep], weight[keep])


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


#: Mean number of partners at the largest count from which on they are a neighbourhood.
MIN_DEGREE = 2.0
#: Pairs of the largest count that stand for all.
REFERENCE = 64
_QUANTILES = 33
#: Rounds of drawing partners before ranks may get more of them than they should.
_ROUNDS, _MORE = 24, 8
#: Share of the smaller set of pairs that two calls have in common, where both are of one graph.
_IN_COMMON = 0.5

#: Terms tried for the number of pairs: (shape, sign)...
PAIRS = ((("bricks", 1),), (("rest", 1), ("cuts", -1)), (("rest", 1), ("outer", -1)))

#: Pairs of a call per count: (pairs, 2), sender and receiver, each once.
Edges = Mapping[int, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Sample(Relation, kind="sample"):
    """No rule: a sample of an irregular neighbourhood.

    sign: 1 to the receivers, -1 to the senders; pairs: how many directed pairs the graph has;
    degree: quantiles, relative to the mean; reach: quantiles of the logarithm of the distance in
    rank to the base n. own: how many of them the call has, None for all; has: 1 for each reference
    pair of the graph that it has.
    """

    sign: int
    seed: int
    symmetric: bool
    pairs: Total = field(metadata={"read": Total.from_json})
    degree: tuple[float, ...]
    reach: tuple[float, ...]
    own: Total | None = left_out(None, read=lambda data: data and Total.from_json(data))
    has: tuple[int, ...] = left_out(())

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
        number = (self.own or self.pairs).text()
        return f"irregular {side}, a sample (seed {self.seed}): {number} pairs"


def is_sample(relation: Relation | None) -> bool:
    """Tell whether a relation is a sample, which no traced partner is a case of."""
    return isinstance(relation, Sample)


def edges_seen(pairs: Mapping[int, tuple[np.ndarray, np.ndarray]], sends: bool) -> Edges:
    """Return the edges of (rank, partner) pairs per count; sends: partners are receivers."""
    return {
        n: np.unique(np.stack(each if sends else each[::-1], axis=1), axis=0)
        for n, each in sorted(pairs.items())
        if len(each[0])
    }


def sample_relations(calls: Sequence[Edges]) -> list[Sample | None]:
    """Return the sample that stands for the pairs of each call, to receivers; None for few pairs.

    Calls with many pairs in common have the same graph: what is a neighbour for one is for others.
    """
    found: list[Sample | None] = [None] * len(calls)
    for mine in _of_one_graph(calls):
        graph = {
            n: np.unique(np.concatenate([calls[i][n] for i in mine if n in calls[i]]), axis=0)
            for n in sorted({n for i in mine for n in calls[i]})
        }
        whole = _graph(graph)
        for i in mine:
            alike = graph.keys() == calls[i].keys() and all(
                np.array_equal(e, graph[n]) for n, e in calls[i].items()
            )
            found[i] = whole if alike else _part(whole, graph, calls[i])
    return found


def _of_one_graph(calls: Sequence[Edges]) -> list[list[int]]:
    """Return the calls that have neighbourhoods, those of one graph together.

    One that has too few pairs alone belongs to the graph of another that has them, too.
    """
    groups: list[tuple[set[tuple[int, int]], list[int]]] = []
    keys = [set(map(tuple, e[max(e)].tolist())) if e else set() for e in calls]
    for i in sorted(range(len(calls)), key=lambda i: -len(keys[i])):
        for known, mine in groups:
            if len(known & keys[i]) > _IN_COMMON * len(keys[i]):
                known |= keys[i]
                mine.append(i)
                break
        else:
            if _many(calls[i]):
                groups.append((set(keys[i]), [i]))
    return [sorted(mine) for _, mine in groups]


def _many(edges: Edges) -> bool:
    """Tell whether ranks have several partners, at two counts or more."""
    if len(edges) < 2:
        return False
    top = max(edges)
    ranks = len(np.unique(edges[top]))
    return len(edges[top]) >= MIN_DEGREE * ranks and 2 * ranks >= top


def _graph(edges: Edges) -> Sample:
    """Return the sample that has the number of pairs, degrees and distances of the edges."""
    top = max(edges)
    degree = np.bincount(edges[top][:, 0], minlength=top).astype(float)
    distance = np.abs(edges[top][:, 0] - edges[top][:, 1])
    return Sample(
        sign=1,
        seed=crc32(b"|".join(e.tobytes() for e in edges.values())),
        symmetric=all(
            {(a, b) for a, b in e.tolist()} == {(b, a) for a, b in e.tolist()}
            for e in edges.values()
        ),
        pairs=_number(edges),
        degree=_quantiles(degree / degree.mean()),
        reach=_quantiles(np.log(np.maximum(distance, 1)) / np.log(top)),
    )


def _number(edges: Edges) -> Total:
    """Return the law of the number of pairs."""
    number = [(n, float(len(e))) for n, e in edges.items()]
    telling = [(n, k) for n, k in number if k < n * (n - 1)]  # at few ranks all are next to all
    if len(telling) > 1:
        number = telling
    return fit_total([n for n, _ in number], [k for _, k in number], PAIRS)


def _part(whole: Sample, graph: Edges, edges: Edges) -> Sample:
    """Return the sample of a call that has some pairs of a graph."""
    top = max(edges)
    mine = set(map(tuple, edges[top].tolist()))
    pairs = graph[top]
    if whole.symmetric:
        pairs = pairs[pairs[:, 0] < pairs[:, 1]]
    pairs = pairs[reference(len(pairs))]
    has = tuple(int(tuple(pair) in mine) for pair in pairs.tolist())
    return replace(whole, own=_number(edges), has=has)


def reference(number: int) -> np.ndarray:
    """Return the places of those that stand for all, spread evenly over so many in order."""
    few = min(number, REFERENCE)
    return ((np.arange(few) + 0.5) * number / max(few, 1)).astype(np.int64)


def _quantiles(values: np.ndarray) -> tuple[float, ...]:
    return tuple(round(float(q), 6) for q in np.quantile(values, np.linspace(0, 1, _QUANTILES)))


def _draw_quantile(quantiles: Sequence[float], u: np.ndarray) -> np.ndarray:
    result: np.ndarray = np.interp(u, np.linspace(0, 1, len(quantiles)), np.asarray(quantiles))
    return result


_EDGES: Memory[np.ndarray] = Memory(64)


def edges_of(sample: Sample, n: int) -> np.ndarray:
    """Return the sample's pairs at ``n`` processes, (pairs, 2): sender and receiver."""

    def drawn() -> np.ndarray:
        own = sample.own
        return _drawn_pairs(sample, n) if own is None else _drawn_part(sample, n, own)

    return _EDGES.of((replace(sample, sign=1), n), drawn)  # both ends have the same pairs


def _drawn_part(sample: Sample, n: int, own: Total) -> np.ndarray:
    """Return the pairs of a graph that a call has: of the reference pairs that have it first."""
    edges = edges_of(replace(sample, sign=1, own=None, has=()), n)
    once = edges[edges[:, 0] < edges[:, 1]] if sample.symmetric else edges
    has = np.asarray(sample.has)[stands_for(sample, n, len(once), len(sample.has), 2)]
    rng = np.random.Generator(np.random.PCG64([sample.seed, n, 3]))
    wanted = min(round(own.at(n) / (2 if sample.symmetric else 1)), len(once))
    kept = once[np.lexsort((rng.random(len(once)), -has))[:wanted]]
    if sample.symmetric:
        kept = np.concatenate([kept, kept[:, ::-1]])
    return kept[np.lexsort((kept[:, 1], kept[:, 0]))]


def stands_for(sample: Sample, n: int, pairs: int, references: int, purpose: int) -> np.ndarray:
    """Return which reference pair stands for each pair at ``n``; purpose: draws that differ."""
    rng = np.random.Generator(np.random.PCG64([sample.seed, n, purpose]))
    place = (np.argsort(np.argsort(rng.random(pairs))) + 0.5) / max(pairs, 1)
    return np.asarray((place * references).astype(np.int64))


def _drawn_pairs(sample: Sample, n: int) -> np.ndarray:
    """Draw pairs: every rank a number of partners, each at a drawn distance, none twice.

    Only uniform numbers are drawn, which numpy keeps the same from version to version.
    """
    half = 2 if sample.symmetric else 1
    most = n * (n - 1) // half
    wanted = min(int(round(sample.pairs.at(n) / half)), most)
    rng = np.random.Generator(np.random.PCG64([sample.seed, n]))
    place = (np.argsort(np.argsort(rng.random(n))) + 0.5) / n
    share = np.maximum(_draw_quantile(sample.degree, place), 0.0)
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
        far = np.maximum(np.rint(n ** _draw_quantile(sample.reach, rng.random(len(source)))), 1)
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
