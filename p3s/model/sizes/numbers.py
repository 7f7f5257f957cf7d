"""Numbers of communications: how often each rank carries out a slot, as equations."""

from __future__ import annotations

import numpy as np

from p3s.laws.counts import Law
from p3s.laws.lawfinder import find_law
from p3s.model.law_types import CountLaw, Rival
from p3s.model.reasons import Code, Reason
from p3s.model.sizes.blocks import ExtentPool, Observations
from p3s.model.sizes.elements import fit_elements
from p3s.model.sizes.observed import Observed, env_of
from p3s.model.sizes.rankcounts import by_class, fit_rank_count

#: Laws of numbers that differ by rank, by what was seen; so many are kept.
_BY_RANK: dict[bytes, CountLaw | None] = {}
_MOST_KNOWN = 1024


def fit_count(
    item: Observed, times: dict[int, np.ndarray], counts: list[int], varying: bool
) -> tuple[CountLaw, list[Reason]]:
    """Return how often each rank does it, and what keeps that from being surer.

    times: as traced, (stages, n) per count; varying: whether they differ from run to run.
    """
    ndims = len(item.grids[counts[0]].dims)
    envs: list[dict[str, int]] = []
    values: list[int] = []
    parts: list[tuple[dict[str, np.ndarray], np.ndarray]] = []
    exact = True
    for n in counts:
        s, r = _cells(item, times, n)
        if not len(s):
            continue
        got = times[n][s, r]
        g = item.grids[n]
        env = env_of(g, r, item.peers[n][s, r] if item.peers is not None else None, s)
        parts.append((env, got))
        if np.any(got != got[0]):
            exact = False
        envs.append(g.symbols)
        values.append(int(got[0]))
    if not parts:  # every cell is shared with another relation: each gets its part
        return _shared_count(item, times, counts), [Reason(Code.SHARED_PARTNER)]
    if exact and not varying:
        found = find_law(zip(envs, values, strict=True), "whole").law
        if found is not None:
            return exact_count(found), []
        why = Code.NO_COUNT
    elif not varying:
        names = set(parts[0][0])
        law = _by_rank(
            Observations(
                {k: np.concatenate([e[k] for e, _ in parts]) for k in names},
                np.concatenate([v for _, v in parts]),
                ndims,
            )
        )
        if law is not None:
            return law, []
        why = Code.COUNT_BY_RANK
    else:
        why = Code.COUNT_BY_REPEAT
    total = find_law(
        ((e["n"], int(v.sum())) for e, (_, v) in zip(envs, parts, strict=True)), "whole"
    ).law
    if total is not None and total.free < total.points:
        return CountLaw(total=total.expr), [Reason(why)]
    means = [float(v.mean()) for _, v in parts]
    return CountLaw(stat=find_law(zip(envs, means, strict=True), "work").fit), [Reason(why)]


def _by_rank(obs: Observations) -> CountLaw | None:
    """Return the law of numbers that differ by rank, found once for call sites with the same."""
    key = obs.digest()
    if key not in _BY_RANK:
        if len(_BY_RANK) >= _MOST_KNOWN:
            _BY_RANK.clear()
        _BY_RANK[key] = _fit_by_rank(obs)
    return _BY_RANK[key]


def _fit_by_rank(obs: Observations) -> CountLaw | None:
    by_rank = fit_rank_count(obs.env, obs.value, obs.ndims)
    if by_rank is not None and (by_rank.free < by_rank.points or by_class(by_rank.expr)):
        return exact_count(by_rank)
    law = fit_elements(obs, ExtentPool())
    if law is not None and law.points >= 2 and law.free < law.points:
        return CountLaw(expr=law.expr, points=law.points, free=law.free)
    return None


def _shared_count(item: Observed, times: dict[int, np.ndarray], counts: list[int]) -> CountLaw:
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
    rivals = tuple(Rival(expr=e) for e in law.others) or None
    return CountLaw(expr=law.expr, points=law.points, free=law.free, rivals=rivals)


def _cells(item: Observed, times: dict[int, np.ndarray], n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (stage, rank) of the cells that are known to belong to this slot alone."""
    stage, rank = np.nonzero((times[n] > 0) & item.care[n])
    return stage, rank
