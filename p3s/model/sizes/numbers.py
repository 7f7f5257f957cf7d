"""How often slots are carried out, in which iterations, and from which root: laws of numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from p3s.laws.counts import Law
from p3s.laws.exact import evaluate_int
from p3s.laws.expr import Expr, add, evaluate, mul, num, sym
from p3s.laws.lawfinder import find_law
from p3s.model.law_types import CountLaw, IterationsLaw
from p3s.model.memory import Memory
from p3s.model.reasons import Code, Reason
from p3s.model.sizes.hypotheses import equation_bits
from p3s.model.sizes.joint import law_alone
from p3s.model.sizes.observations import Observations, joined_symbols
from p3s.model.sizes.observed import ObservedRows, env_of
from p3s.model.sizes.positions import by_class

#: Laws of numbers that differ by rank, by what was seen.
_BY_RANK: Memory[CountLaw | None] = Memory(1024)


def fit_count(
    item: ObservedRows, times: dict[int, np.ndarray], counts: list[int], varying: bool
) -> tuple[CountLaw, list[Reason]]:
    """Return how often each rank does it, and what keeps that from being surer.

    times: as traced, (stages, n) per count; varying: whether they differ from run to run.
    """
    parts: list[tuple[dict[str, np.ndarray], np.ndarray]] = []
    for n in counts:  # cells that are known to belong to this slot alone
        s, r = np.nonzero((times[n] > 0) & item.care[n])
        if len(s):
            peers = item.peers[n][s, r] if item.peers is not None else None
            parts.append((env_of(item.grids[n], r, peers, s), times[n][s, r]))
    if not parts:  # every cell is shared with another relation: each gets its part
        return _shared_count(item, times, counts), [Reason(Code.SHARED_PARTNER)]
    obs = Observations(
        joined_symbols([env for env, _ in parts]),
        np.concatenate([number for _, number in parts]),
        len(item.grids[counts[0]].dims),
    )
    law, why = None, Code.COUNT_BY_REPEAT
    if not varying and obs.even():
        found = find_law(obs.by_count(), "whole").law
        law, why = None if found is None else exact_count(found), Code.NO_COUNT
    elif not varying:
        law = _BY_RANK.of(obs.digest, lambda: _fit_by_rank(obs))
        why = Code.COUNT_BY_RANK
    if law is not None:
        return law, []
    at = [int(env["n"][0]) for env, _ in parts]
    totals = [int(number.sum()) for _, number in parts]
    total = find_law(zip(at, totals, strict=True), "whole").law
    if total is not None and total.free < total.points:
        return CountLaw(total=total.expr), [Reason(why)]
    means = [float(number.mean()) for _, number in parts]
    return CountLaw(stat=find_law(zip(at, means, strict=True), "work").fit), [Reason(why)]


def _fit_by_rank(obs: Observations) -> CountLaw | None:
    law = law_alone(obs, counted=True)
    if law is None or law.points < 2 or not (law.free < law.points or by_class(law.expr)):
        return None
    return exact_count(law)


def _shared_count(item: ObservedRows, times: dict[int, np.ndarray], counts: list[int]) -> CountLaw:
    """Return the law of a call that always has its partner in common with others: its part."""
    envs: list[dict[str, int]] = []
    values: list[float] = []
    for n in counts:
        s, r = np.nonzero(times[n])
        if len(s):
            ways = np.maximum(item.ways[n][s, r], 1) if n in item.ways else 1
            envs.append(item.grids[n].symbols)
            values.append(float(np.median(times[n][s, r] / ways)))
    whole = all(v == int(v) for v in values)
    law = find_law(zip(envs, map(int, values), strict=True), "whole").law if whole else None
    if law is not None:
        return CountLaw(expr=law.expr)
    return CountLaw(stat=find_law(zip(envs, values, strict=True), "work").fit)


def exact_count(law: Law) -> CountLaw:
    """Return an exact law with the rivals that meet its points too."""
    return CountLaw(expr=law.expr, points=law.points, free=law.free, rivals=law.others or None)


Env = dict[str, np.ndarray]


def turns_matter(cell: np.ndarray, turn: np.ndarray, what: Sequence[np.ndarray]) -> bool:
    """Tell whether some cell has several sizes or roots and each of its iterations has one.

    cell, iteration and the columns of ``what``: one entry per row of one count.
    """
    order = np.lexsort((turn, cell))
    same_cell = cell[order][1:] == cell[order][:-1]
    same_turn = same_cell & (turn[order][1:] == turn[order][:-1])
    changes = np.zeros(len(same_cell), dtype=bool)
    for column in what:
        changes |= column[order][1:] != column[order][:-1]
    return bool(np.any(changes & same_cell)) and not np.any(changes & same_turn)


def fit_turns(
    parts: Sequence[tuple[Env, np.ndarray, np.ndarray]], ndims: int
) -> IterationsLaw | None:
    """Return the laws of the iterations of every cell, or None.

    parts: per count the symbols of each row, the number of its cell and how often it was made. All
    iterations of a cell have to be made equally often.
    """
    firsts, numbers, envs = [], [], []
    steps: set[int] = set()
    for env, cell, count in parts:
        order = np.lexsort((env["t"], cell))
        key, turn = cell[order], env["t"][order]
        start = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
        lengths = np.diff(np.append(start, len(key)))
        inside = key[1:] == key[:-1]
        steps |= set(np.unique(np.diff(turn)[inside]).tolist())
        if np.any(count[order][1:][inside] != count[order][:-1][inside]):
            return None
        firsts.append(turn[start])
        numbers.append(lengths)
        envs.append({k: v[order][start] for k, v in env.items()})
    if len(steps) > 1 or 0 in steps:
        return None
    env = joined_symbols(envs)
    env["t"] = np.zeros(len(env["n"]), dtype=np.int64)
    laws = []
    for values in (firsts, numbers):
        law = law_alone(Observations(env, np.concatenate(values), ndims))
        if law is None or (law.free >= law.points and len(parts) > 1 and law.expr[0] != "num"):
            return None
        laws.append(law.expr)
    return IterationsLaw(steps.pop() if steps else 1, *laws)


def turns_at(
    law: IterationsLaw | None, env: Env, m: int
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield (iteration, which of m ranks have it, the how-manieth of how many) for every turn."""
    if law is None:
        yield 0, np.arange(m), np.stack([np.zeros(m, dtype=np.int64), np.ones(m, dtype=np.int64)])
        return
    first = np.broadcast_to(evaluate_int(law.first, env), (m,))
    number = np.broadcast_to(evaluate_int(law.number, env), (m,))
    step = law.step
    if not m or not number.any():
        return
    last = first + (number - 1) * step
    for t in range(int(first.min()), int(last.max()) + 1):
        has = np.flatnonzero((first <= t) & (t <= last) & ((t - first) % step == 0))
        if len(has):
            yield t, has, np.stack([(t - first[has]) // step, number[has]])


def share(total: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Return how many of ``total`` calls are made in one iteration (place: from
    :func:`turns_at`)."""
    out: np.ndarray = total // place[1] + (place[0] < total % place[1])
    return out


def fit_root(env: Env, root: np.ndarray, ndims: int) -> Expr | None:
    """Return the law of a root (its place in the communicator) in iterations, coordinates,
    counts: the one of the fewest bits."""
    extents = ["n", *(f"p{d}" for d in range(ndims if ndims > 1 else 0))]
    own, turn = [(sym(f"c{d}"), f"p{d}") for d in range(ndims)], sym("t")
    back = mul(num(-1), turn)
    around = [(add(turn, num(k)), p) for k in (0, 1, -1) for p in extents]
    around += [(add(sym(p), num(-k), back), p) for k in (1, 0, 2) for p in extents]
    around += [(add(c, step), p) for step in (turn, back, num(1), num(-1)) for c, p in own]
    tried = [*(c for c, _ in own), turn, *(["mod", e, sym(p)] for e, p in around)]
    law = law_alone(Observations(env, root, ndims))
    found = [e for e in tried if np.all(np.rint(evaluate(e, env)) == root)]
    found += [law.expr] if law is not None else []
    return min(found, key=equation_bits, default=None)
