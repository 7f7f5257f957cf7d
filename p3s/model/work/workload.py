"""Evaluate work laws for any ranks at any count: each row's computation before one call."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from p3s.laws.expr import Expr
from p3s.laws.statistics import FLOAT_ERROR, PER_DOUBLING, Z90
from p3s.model.grid.at import GridAt
from p3s.model.sizes.observed import env_of
from p3s.model.tree import phase_weight
from p3s.model.types import Model
from p3s.model.work.balance import largest_half_width, ratios
from p3s.model.work.features import BEFORE, HERE, NONE, ONCE, values_of
from p3s.model.work.flows import Flows, alike, flows_of, rows_of
from p3s.model.work.levels import means_at
from p3s.model.work_types import WorkPlace

Rows = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class RankWork:
    """Work over the run of some ranks before the calls of each place, and how sure it is.

    ranks: ascending; places: the model's, phases: theirs; work: (places, ranks); half_width:
    (phases, ranks) of the 90 % interval. into: (places, ranks), the place whose calls it is done
    before: the next one that a rank makes, where it makes none at the place itself; -1: a rank
    without calls. unruled: which places have calls that no rule tells of. means: per phase, of the
    work that segments' laws say, over the ranks that take part. once: per place (segments, ranks),
    the work of one occurrence by these laws, NaN where there is none.
    """

    ranks: np.ndarray
    places: Sequence[WorkPlace]
    phases: np.ndarray
    work: np.ndarray
    half_width: np.ndarray
    into: np.ndarray
    unruled: np.ndarray
    means: np.ndarray
    once: Sequence[np.ndarray]

    def carried(self, values: np.ndarray) -> np.ndarray:
        """Return values per (place, rank) at the places whose calls the work is done before."""
        moved = self.into != np.arange(len(self.places))[:, None]
        row, column = np.nonzero(moved & (values != 0) & (self.into >= 0))
        out = np.where(moved, 0.0, values)
        np.add.at(out, (self.into[row, column], column), values[row, column])
        return out

    def as_in_a_run(self) -> np.ndarray:
        """Return work per (place, rank) where a run has it: before calls without a rule, too."""
        open_ = self.unruled[:, None]
        others = self.carried(np.where(open_, 0.0, self.work))
        return np.asarray(np.where(open_, self.work, 0.0) + others)

    def per_phase(self) -> np.ndarray:
        """Return work per (phase, rank)."""
        return sum_by_phase(self.carried(self.work), self.phases, len(self.half_width))


def sum_by_phase(values: np.ndarray, phases: np.ndarray, number: int) -> np.ndarray:
    """Return values per (place, rank) summed to (phase, rank); phases: of each place."""
    out = np.zeros((number, values.shape[1]))
    np.add.at(out, phases, values)
    return out


def rank_work(
    model: Model, grid: GridAt, rows: Rows, widths: bool = True, means: np.ndarray | None = None
) -> RankWork:
    """Return the work of the ranks in ``rows``, all of whose rows must be there.

    rows: columns rank, item, nbytes, repeat of a scaled trace; widths: half widths are asked for;
    means: of :class:`RankWork`, where these are not all ranks.
    """
    return _level_work(model, grid, of_segments(model, grid, rows, widths), means)


def of_segments(model: Model, grid: GridAt, rows: Rows, widths: bool = True) -> RankWork:
    """Return what the laws of segments alone say of the ranks in ``rows``, as rank_work takes them;
    ``means`` of it are 0."""
    places = [place for p in model.phases for place in p.work.places]
    phases = np.array([p.phase for p in model.phases for _ in p.work.places], dtype=np.int64)
    number = {p.place: k for k, p in enumerate(places)}
    of_item = np.array([number.get((it.site, it.op), -1) for it in model.items], dtype=np.int64)
    ranks, where = np.unique(rows["rank"], return_inverse=True)
    shape = (len(places), len(ranks))
    place = of_item[rows["item"]] if len(where) else np.zeros(0, dtype=np.int64)
    cell = (place * shape[1] + where)[place >= 0]
    repeat, nbytes = rows["repeat"][place >= 0], rows["nbytes"][place >= 0]
    size = shape[0] * shape[1]
    calls = np.bincount(cell, weights=repeat, minlength=size).reshape(shape)
    sizes = np.bincount(cell, weights=repeat * nbytes, minlength=size).reshape(shape) / np.maximum(
        calls, 1
    )
    values = _Values(env_of(grid, ranks), grid)
    before = [[number.get(a, -1) if a is not None else -1 for a in p.before] for p in places]
    unruled = _find_unruled(model, places)
    traced = [g for n in model.counts if (g := model.grid.family.at(n)) is not None]
    like = alike(grid, traced)
    flows = flows_of(
        places, before, calls, _usual(model, places, phases, grid), unruled, like, values.env
    )
    for k, column in enumerate((flows.calls > 0) & (calls == 0)):
        law = places[k].size
        if column.any() and law is not None:  # run through: as large as such a call is
            sizes[k, column] = float(law.value(grid.n))
    segments = _Segments(places, before, sizes, values, flows)
    work, half = np.zeros(shape), np.zeros(shape)
    once = [np.full(count.shape, np.nan) for count in flows.counts]
    for k in range(len(places)):
        there = np.flatnonzero(flows.calls[k] > 0)
        if len(there):
            work[k, there], half[k, there], once[k][:, there] = segments.of_place(k, there, widths)
    return RankWork(
        ranks,
        places,
        phases,
        work,
        np.sqrt(sum_by_phase(half**2, phases, len(model.phases))),
        flows.into,
        unruled,
        np.zeros(len(model.phases)),
        once,
    )


def _level_work(model: Model, grid: GridAt, found: RankWork, means: np.ndarray | None) -> RankWork:
    """Return the work brought to the mean of each phase, ranks to its profile.

    What segments' laws say of a rank is left as the shares of its places.
    """
    if model.level is None or not len(found.ranks):
        return found
    said = found.per_phase()
    if means is None:
        means = said.sum(axis=1) / np.maximum((said > 0).sum(axis=1), 1)
    factor, half = np.ones_like(said), found.half_width.copy()
    work = found.work.copy()
    place = found.phases[np.maximum(found.into, 0)]
    asked = means_at(model, grid, means)
    for k, phase in enumerate(model.phases):
        profile, amount = phase.work.profile, asked.get(k)
        if profile is None or not means[k] > 0:
            continue
        mean = means[k] if amount is None else amount.value
        whole = ratios(profile, said[k] / means[k], grid, found.ranks) * mean
        factor[k] = np.divide(whole, said[k], out=np.ones_like(whole), where=said[k] > 0)
        work = np.where(place == k, found.work * factor[k], work)
        half[k] *= factor[k]
        if amount is not None:
            own = half[k] if profile.kind == "segments" else 0.0
            half[k] = np.hypot(own, whole * amount.half_width)
        half[k] = np.hypot(half[k], whole * largest_half_width(profile, grid.n))
    return replace(found, work=work, half_width=half, means=means)


def _usual(
    model: Model, places: Sequence[WorkPlace], phases: np.ndarray, grid: GridAt
) -> np.ndarray:
    """Return the calls of a rank that makes any, and the mean over all ranks: (places, 2).

    Both are those of the nearest traced count: of one that has such calls, and of any, so that
    there are none on the mean where none were traced.
    """
    weight = {p.phase: phase_weight(p, grid) for p in model.phases}
    out = np.ones((len(places), 2))
    for k, place in enumerate(places):
        points = sorted(
            ((int(n), each, share) for n, (each, share) in (place.calls_at or {}).items()),
            key=lambda p: (abs(math.log(p[0] / grid.n)), -p[0]),
        )
        if points:
            out[k] = next((p[1] for p in points if p[2] > 0), 1.0), points[0][1] * points[0][2]
    return np.asarray(out * np.array([weight[k] for k in phases.tolist()], dtype=float)[:, None])


def _find_unruled(model: Model, places: Sequence[WorkPlace]) -> np.ndarray:
    """Return which places have calls that no rule says the ranks of."""
    open_ = {(it.site, it.op) for it in model.items if any(slot.guard is None for slot in it.slots)}
    return np.array([p.place in open_ for p in places], dtype=bool)


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
            self._known[key] = values_of(expr, self.env)
        return self._known[key][there]


class _Segments:
    """The laws of all segments and how often each occurs, (segments, ranks) by place."""

    def __init__(
        self,
        places: Sequence[WorkPlace],
        before: Sequence[Sequence[int]],
        sizes: np.ndarray,
        values: _Values,
        flows: Flows,
    ) -> None:
        self.places, self.before, self.sizes, self.values = places, before, sizes, values
        self.counts = [count.copy() for count in flows.counts]
        self._once(flows.calls)

    def _once(self, calls: np.ndarray) -> None:
        """Let no more segments start at a call than there are calls: those of most work do.

        Ranks that make calls which no traced rank made together come from one of them to several.
        """
        after: dict[int, list[tuple[int, int]]] = {}
        for k, starts in enumerate(self.before):
            for s, a in enumerate(starts):
                if a >= 0:  # the start stands for all that is not known, too
                    after.setdefault(a, []).append((k, s))
        for a, pairs in after.items():
            counts = np.stack([self.counts[k][s] for k, s in pairs])
            over = np.flatnonzero(counts.sum(axis=0) > calls[a] * (1.0 + FLOAT_ERROR))
            if not len(over):
                continue
            one = np.stack([self.value(k, s, over) for k, s in pairs])
            order = np.argsort(-one, axis=0, kind="stable")
            sorted_ = np.take_along_axis(counts[:, over], order, axis=0)
            left = np.maximum(calls[a, over] - np.cumsum(sorted_, axis=0) + sorted_, 0.0)
            np.put_along_axis(one, order, np.minimum(sorted_, left), axis=0)
            for (k, s), kept in zip(pairs, one, strict=True):
                self.counts[k][s, over] = kept

    def value(
        self, k: int, s: int, there: np.ndarray, terms: Sequence[Any] | None = None
    ) -> np.ndarray:
        """Return the work of one occurrence by the segment's law, or by other ``terms``."""
        a = self.before[k][s]
        factors: Mapping[str, Any] = {
            NONE: 1.0,
            HERE: self.sizes[k, there],
            BEFORE: self.sizes[a, there] if a >= 0 else 0.0,
            ONCE: 1.0 / np.maximum(self.counts[k][s, there], 1.0),
        }
        used = self.places[k].segments[s].terms if terms is None else terms
        value = sum(
            (coef * self.values.of(expr, there) * factors[message] for coef, expr, message in used),
            np.zeros(len(there)),
        )
        return np.maximum(value, 0.0)

    def of_place(
        self, k: int, there: np.ndarray, widths: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return work and half width of the segments that end at one place, for some ranks; and the
        work of one occurrence of each segment."""
        work, squares = np.zeros((2, len(there)))
        once = np.full((len(self.places[k].segments), len(there)), np.nan)
        beyond = float(np.log2(max(self.values.grid.n, 1)))
        for s, segment in enumerate(self.places[k].segments):
            count = self.counts[k][s, there]
            if not count.any():
                continue
            value = self.value(k, s, there)
            work += count * value
            once[s] = np.where(count > 0, value, np.nan)
            if widths:
                # half as much again per doubling; and what laws that did as well would say
                least, most = np.log2(min(segment.counts)), np.log2(max(segment.counts))
                steps = max(beyond - most, least - beyond, 0.0)
                half = Z90 * segment.error * (1.0 + PER_DOUBLING * steps) * value
                for rival in segment.rivals:
                    half = np.maximum(half, np.abs(self.value(k, s, there, rival) - value))
                squares += (count * half) ** 2
        return work, np.sqrt(squares), once


def share_out(
    model: Model, grid: GridAt, rows: Rows, means: np.ndarray | None = None
) -> np.ndarray:
    """Return the work before one call of every row; means: of :func:`rank_work`.

    rows: columns rank, item, stage, nbytes, repeat and work, as of :func:`of_rows`.
    """
    if not len(rows["rank"]):
        return rows["work"]
    return of_rows(model, rank_work(model, grid, rows, widths=False, means=means), rows)


def of_rows(model: Model, found: RankWork, rows: Rows) -> np.ndarray:
    """Return the work before one call of every row, from that of their ranks.

    rows: columns rank, item, stage, repeat and work (used where a place has no laws). The work
    before a place is shared out between its rows as the segments that their calls come through say.
    """
    of_item = np.full(len(model.items), -1, dtype=np.int64)
    column = np.searchsorted(found.ranks, rows["rank"])
    weight, later = np.ones(len(column)), np.minimum(rows["stage"], 1)
    mine = rows_of(rows["item"], len(model.items))
    for k, p in enumerate(found.places):
        of_item[list(p.items)] = k
        for i, shares in zip(p.items, p.through, strict=bool(p.through)):
            once = found.once[k][:, column[mine[i]]]
            own = np.where(np.isfinite(once), np.array(shares)[later[mine[i]]].T, 0.0)
            through = np.maximum(own.sum(axis=0), 1e-300)
            weight[mine[i]] = (own * np.nan_to_num(once)).sum(axis=0) / through
        for i, known in zip(p.items, p.rows, strict=bool(p.rows)):
            weight[mine[i]] = np.array(known)[later[mine[i]]]
    weight += 1e-9
    place = of_item[rows["item"]]
    cell = place * len(found.ranks) + column
    total = np.bincount(
        cell[place >= 0], weights=(weight * rows["repeat"])[place >= 0], minlength=found.work.size
    )
    share = weight / np.maximum(total[np.maximum(cell, 0)], 1e-300)
    work = found.carried(found.work).ravel()[np.maximum(cell, 0)] * share
    return np.where(place >= 0, work, rows["work"])
