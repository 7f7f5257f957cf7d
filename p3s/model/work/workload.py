"""Evaluate work laws for any ranks at any count: each row's computation before one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from p3s.laws.expr import Expr, evaluate_int
from p3s.model.grid.guards import GridAt, eval_guard
from p3s.model.sizes.slots import env_of
from p3s.model.work.features import BEFORE, HERE, NONE, ONCE, Feature, feature_values

#: A normal distribution's 90 % interval in standard deviations.
_Z90 = 1.645

Model = Mapping[str, Any]
Rows = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class RankWork:
    """Work over the run of some ranks before the calls of each place, and how sure it is.

    ranks: ascending; places: the model's, with "phase"; work, half_width: (places, ranks), the
    latter of the 90 % interval.
    """

    ranks: np.ndarray
    places: Sequence[Mapping[str, Any]]
    work: np.ndarray
    half_width: np.ndarray

    def per_phase(self, phases: int) -> tuple[np.ndarray, np.ndarray]:
        """Return work and half width per (phase, rank); errors of segments are independent."""
        work, squares = np.zeros((2, phases, len(self.ranks)))
        of = np.array([p["phase"] for p in self.places], dtype=np.int64)
        np.add.at(work, of, self.work)
        np.add.at(squares, of, self.half_width ** 2)
        return work, np.sqrt(squares)


def rank_work(model: Model, grid: GridAt, rows: Rows, widths: bool = True) -> RankWork:
    """Return the work of the ranks in ``rows``, all of whose rows must be there.

    rows: columns rank, item, nbytes, repeat of a scaled trace; widths: half widths are asked for.
    """
    places = [{**place, "phase": p["phase"]} for p in model["phases"]
              for place in p["work"]["places"]]
    number = {tuple(p["place"]): k for k, p in enumerate(places)}
    of_item = np.array([number.get((it["site"], it["op"]), -1) for it in model["items"]],
                       dtype=np.int64)
    ranks, where = np.unique(rows["rank"], return_inverse=True)
    shape = (len(places), len(ranks))
    place = of_item[rows["item"]] if len(where) else np.zeros(0, dtype=np.int64)
    cell = (place * shape[1] + where)[place >= 0]
    repeat, nbytes = rows["repeat"][place >= 0], rows["nbytes"][place >= 0]
    size = shape[0] * shape[1]
    calls = np.bincount(cell, weights=repeat, minlength=size).reshape(shape)
    sizes = np.bincount(cell, weights=repeat * nbytes, minlength=size).reshape(shape) \
        / np.maximum(calls, 1)
    values = _Values(env_of(grid, ranks), grid)
    work, half = np.zeros(shape), np.zeros(shape)
    for k, p in enumerate(places):
        there = np.flatnonzero(calls[k] > 0)
        if len(there):
            found = _of_place(p, k, number, calls, sizes, values, there, widths)
            work[k, there], half[k, there] = found
    return RankWork(ranks, places, work, half)


class _Values:
    """Expressions evaluated for all ranks asked for, each once."""

    def __init__(self, env: Mapping[str, np.ndarray], grid: GridAt) -> None:
        self.env, self.grid = env, grid
        self._known: dict[str, np.ndarray] = {}

    def of(self, expr: Expr, there: np.ndarray) -> Any:
        """Return the values of a feature's expression for the ranks at positions ``there``."""
        if expr[0] == "num":
            return expr[1] / expr[2]
        key = str(expr)
        if key not in self._known:
            self._known[key] = feature_values(Feature(expr, 0.0), self.env, {})
        return self._known[key][there]


def _of_place(place: Mapping[str, Any], k: int, number: Mapping[tuple[str, ...], int],
              calls: np.ndarray, sizes: np.ndarray, values: _Values, there: np.ndarray,
              widths: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return work and half width of the segments that end at one place, for ranks ``there``."""
    work, squares = np.zeros((2, len(there)))
    before = [number.get(tuple(a), -1) if a is not None else -1 for a in place["from"]]
    beyond = np.log2(max(values.grid.n, 1))
    for segment, a, count in zip(place["segments"], before,
                                 _counts(place, before, calls[:, there], calls[k, there],
                                         values, there), strict=True):
        if not count.any():
            continue
        factors = {NONE: 1.0, HERE: sizes[k, there], BEFORE: sizes[a, there] if a >= 0 else 0.0,
                   ONCE: 1.0 / np.maximum(count, 1.0)}

        def law(terms: Sequence[Any], factors: Mapping[str, Any] = factors) -> Any:
            value = sum(coef * values.of(expr, there) * factors[message]
                        for coef, expr, message in terms)
            return np.maximum(value, 0.0)

        value = law(segment["terms"])
        work += count * value
        if widths:
            # half as much again per doubling; and what laws that did as well would say
            steps = max(beyond - np.log2(max(segment["counts"])), 0.0)
            half = _Z90 * segment["error"] * (1.0 + 0.5 * steps) * value
            for rival in segment["rivals"]:
                half = np.maximum(half, np.abs(law(rival) - value))
            squares += (count * half) ** 2
    return work, np.sqrt(squares)


def _case_of(cases: Sequence[Mapping[str, Any]], there: np.ndarray, grid: GridAt,
             ranks: np.ndarray) -> np.ndarray:
    """Return the case of every rank; there: (ranks, calls before the place), 0 or 1.

    Ranks that make other calls than any that were traced are taken to be like the nearest; of
    cases with the same calls the first whose guard holds is taken.
    """
    known = np.array([case["present"] for case in cases], dtype=np.int64).reshape(len(cases), -1)
    bits = np.zeros(len(there), dtype=object if there.shape[1] > 62 else np.int64)
    for k in range(there.shape[1]):
        bits = bits * 2 + there[:, k]
    _, one, where = np.unique(bits, return_index=True, return_inverse=True)
    kinds = there[one]
    nearest = np.abs(kinds[:, None, :] - known[None, :, :]).sum(axis=2).argmin(axis=1)
    out = nearest[where.ravel()]
    for first in np.unique(out):
        left = out == first
        for c in np.flatnonzero(np.all(known == known[first], axis=1)).tolist():
            guard = cases[c]["guard"]
            holds = left if guard is None else left & eval_guard(guard, grid)[ranks]
            out[holds] = c
            left &= ~holds
    return out


def _counts(place: Mapping[str, Any], before: Sequence[int], calls: np.ndarray, own: np.ndarray,
            values: _Values, at: np.ndarray) -> np.ndarray:
    """Return how often each segment occurs, (segments, ranks)."""
    cases = place["cases"]
    there = np.stack([calls[a] > 0 if a >= 0 else np.ones(len(own), dtype=bool) for a in before],
                     axis=1).astype(np.int64)
    case_of = _case_of(cases, there, values.grid, values.env["r"][at])
    out = np.zeros((len(before), len(own)))
    for c in np.unique(case_of):
        mine = np.flatnonzero(case_of == c)
        main = 0
        for k, law in enumerate(cases[c]["counts"]):
            if "rest" in law:
                main = k
            elif "const" in law:
                out[k, mine] = law["const"]
            elif "as" in law:
                a = before[law["as"]]
                out[k, mine] = calls[a, mine] if a >= 0 else 1.0
            elif "expr" in law:
                out[k, mine] = evaluate_int(law["expr"], {
                    name: v[at[mine]] for name, v in values.env.items()})
            else:
                out[k, mine] = law["share"] * own[mine]
        others = out[:, mine].sum(axis=0)
        over = np.maximum(others / own[mine], 1.0)  # never more segments than calls
        out[:, mine] /= over
        out[main, mine] = np.maximum(own[mine] - others, 0.0)
    return out


def share_out(model: Model, grid: GridAt, rows: Rows) -> np.ndarray:
    """Return the work before one call of every row.

    rows: columns rank, item, stage, nbytes, repeat and work (used where a place has no laws). The
    work before a place is shared out between its rows as it was between relations, and between
    the first and the later stages of a family, at the largest traced count.
    """
    if not len(rows["rank"]):
        return rows["work"]
    found = rank_work(model, grid, rows, widths=False)
    of_item = np.full(len(model["items"]), -1, dtype=np.int64)
    first, later = np.ones((2, len(model["items"])))
    for k, p in enumerate(found.places):
        for i, (one, more) in zip(p["items"], p["rows"], strict=True):
            of_item[i], first[i], later[i] = k, one, more
    place = of_item[rows["item"]]
    column = np.searchsorted(found.ranks, rows["rank"])
    weight = np.where(rows["stage"] == 0, first[rows["item"]], later[rows["item"]]) + 1e-9
    cell = place * len(found.ranks) + column
    total = np.bincount(cell[place >= 0], weights=(weight * rows["repeat"])[place >= 0],
                        minlength=found.work.size)
    share = weight / np.maximum(total[np.maximum(cell, 0)], 1e-300)
    return np.where(place >= 0, found.work.ravel()[np.maximum(cell, 0)] * share, rows["work"])
