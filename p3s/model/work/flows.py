"""Which segments ranks run through, and how often, the calls that they do not make included."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from p3s.laws.exact import evaluate_int
from p3s.laws.lawfinder import find_law
from p3s.model.grid.at import LAYOUTS, GridAt, Guard
from p3s.model.grid.atoms import First, Last
from p3s.model.grid.grids import ListedGrid
from p3s.model.work_types import Case, Occurs, WorkPlace
from p3s.signature.tables import PointTable

Env = Mapping[str, np.ndarray]
#: Of so many places before one, which of them a rank calls is counted as a number.
_FEW_PLACES = 12


@dataclass(frozen=True)
class Flows:
    """Segments of some ranks.

    counts: per place (segments, ranks), how often each segment occurs. calls: (places, ranks), how
    often a place is run through. into: (places, ranks), the place whose calls the computation comes
    before: the place itself where the rank makes the call, -1 of a rank without calls.
    """

    counts: Sequence[np.ndarray]
    calls: np.ndarray
    into: np.ndarray


@dataclass(frozen=True)
class Alike:
    """The ranks of a grid with traced extents that ranks are taken to be like.

    Guards are evaluated for ``ranks`` (one for each of all ranks) on ``grid``.
    """

    grid: GridAt
    ranks: np.ndarray

    def holds(self, guard: Guard, ranks: np.ndarray) -> np.ndarray:
        """Return whether the ranks that stand for ``ranks`` meet a guard."""
        return np.asarray(guard.holds(self.grid)[self.ranks[ranks]])


def alike(grid: GridAt, traced: Sequence[GridAt]) -> Alike:
    """Return the ranks that those of ``grid`` are like on a grid whose borders were traced.

    A rank that is first and last in a dimension which is longer at all traced counts meets guards
    of different traced ranks at once, and no rank ran through their segments together. It is taken
    to be the first in the dimension and not the last, in all guards.
    """
    if not traced:
        return Alike(grid, np.arange(grid.n))
    least = [min(extents) for extents in zip(*(g.dims for g in traced), strict=True)]
    dims = tuple(max(p, few) if p == 1 else p for p, few in zip(grid.dims, least, strict=True))
    same = Alike(grid, np.arange(grid.n))
    if dims == grid.dims:
        return same
    if grid.n == 1:
        return Alike(min(traced, key=lambda g: g.n), np.zeros(1, dtype=np.int64))
    if grid.layout not in LAYOUTS and not grid.layout.isdigit():
        return same
    n = math.prod(dims)
    longer = ListedGrid(len(dims), layout=grid.layout, listed=((n, dims),)).at(n)
    assert longer is not None
    whole = grid.whole or grid
    return Alike(longer, longer.rank_at(whole.coords))


def flows_of(
    places: Sequence[WorkPlace],
    before: Sequence[Sequence[int]],
    calls: np.ndarray,
    usual: np.ndarray,
    unruled: np.ndarray,
    like: Alike,
    env: Env,
) -> Flows:
    """Return the segments of the ranks in ``env``.

    before: per place the numbers of the places that its segments start at, -1 for the start of the
    run. calls: (places, ranks), calls with a rule. usual: (places, 2), calls that a rank makes at
    this count if it makes any, and the mean over all ranks. unruled: whether a place has calls
    that no rule tells of: ranks then make the mean, if not more. like: the ranks that guards of
    segments are evaluated for.
    """
    made = calls > 0
    own = np.where(unruled[:, None], np.maximum(calls, usual[:, 1:]), calls).astype(float)
    real = own.copy()
    counts = [np.zeros((len(b), own.shape[1])) for b in before]
    done = np.zeros(own.shape, dtype=bool)
    while (rows := np.flatnonzero(((own > 0) & ~done).any(axis=1))).size:
        for k in rows.tolist():
            ranks = np.flatnonzero((own[k] > 0) & ~done[k])
            done[k, ranks] = True
            found = _segments(
                places[k],
                before[k],
                np.stack([real[a, ranks] if a >= 0 else np.ones(len(ranks)) for a in before[k]]),
                own[k, ranks],
                usual,
                like,
                {name: v[ranks] for name, v in env.items()},
            )
            counts[k][:, ranks] = found
            for s, a in enumerate(before[k]):
                if a >= 0:  # run through, though not called
                    through = ranks[(found[s] > 0) & (own[a, ranks] == 0)]
                    own[a, through] = np.maximum(usual[a, 0], counts[k][s, through])
    end = next((k for k, p in enumerate(places) if p.place[1] == "MPI_Finalize"), -1)
    return Flows(counts, own, _into(before, counts, made, end))


def _segments(
    place: WorkPlace,
    before: Sequence[int],
    starts: np.ndarray,
    own: np.ndarray,
    usual: np.ndarray,
    alike: Alike,
    env: Env,
) -> np.ndarray:
    """Return how often each segment before a place occurs, (segments, ranks).

    starts: calls of the ranks in ``env`` at the places ``before``; own: at the place itself.
    """
    cases = place.cases
    case_of, known = _case_of(cases, starts.T > 0, alike, env["r"])
    if not known.all():  # calls that the nearest ranks made are run through
        like = np.array([case.present for case in cases], dtype=bool)[case_of].T
        through = np.array([usual[a, 0] if a >= 0 else 1.0 for a in before])[:, None]
        starts = np.where(like & (starts == 0) & ~known, through, starts)
    out = np.zeros(starts.shape)
    for c in np.unique(case_of):
        mine = np.flatnonzero(case_of == c)
        out[:, mine] = _of_case(
            cases[c].counts, starts[:, mine], own[mine], {name: v[mine] for name, v in env.items()}
        )
    return out


def _of_case(laws: Sequence[Occurs], starts: np.ndarray, own: np.ndarray, env: Env) -> np.ndarray:
    """Return how often segments occur by the laws of one case, never more than calls in all."""
    out = np.zeros(starts.shape)
    main = 0
    for k, law in enumerate(laws):
        if law.rest is not None:
            main = k
        elif law.const is not None:
            out[k] = law.const
        elif law.like is not None:
            out[k] = starts[law.like]
        elif law.expr is not None:
            out[k] = evaluate_int(law.expr, env)
        else:
            out[k] = (law.share or 0.0) * own
    others = out.sum(axis=0)
    out /= np.maximum(others / own, 1.0)
    out[main] = np.maximum(own - others, 0.0)
    return out


def _case_of(
    cases: Sequence[Case], there: np.ndarray, alike: Alike, ranks: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the case of every rank, and whether traced ranks made just its calls.

    there: (ranks, calls before the place), whether a rank makes them. Others are taken to be like
    the nearest; of cases with the same calls the first whose guard holds is taken.
    """
    known = np.array([case.present for case in cases], dtype=np.int64).reshape(len(cases), -1)
    kinds, where = _kinds(there)
    apart = np.abs(kinds[:, None, :] - known[None, :, :]).sum(axis=2)
    out = apart.argmin(axis=1)[where]
    for first in np.unique(out):
        left = out == first
        for c in np.flatnonzero(np.all(known == known[first], axis=1)).tolist():
            guard = cases[c].guard
            holds = left if guard is None else left & alike.holds(guard, ranks)
            out[holds] = c
            left &= ~holds
    return out, (apart.min(axis=1) == 0)[where]


def _kinds(there: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct rows, as numbers 0 and 1, and which one each row is."""
    columns = there.shape[1]
    if columns > _FEW_PLACES:
        kinds, where = np.unique(there.astype(np.int64), axis=0, return_inverse=True)
        return kinds, where.ravel()
    code = np.zeros(len(there), dtype=np.int64)
    for column in there.T:
        code += code + column
    used = np.flatnonzero(np.bincount(code, minlength=1 << columns))
    number = np.zeros(1 << columns, dtype=np.int64)
    number[used] = np.arange(len(used))
    return used[:, None] >> np.arange(columns)[::-1] & 1, number[code]


def _into(
    before: Sequence[Sequence[int]], counts: Sequence[np.ndarray], made: np.ndarray, end: int
) -> np.ndarray:
    """Return the place before whose calls the computation of each place is done.

    Of a place that is only run through it is the next one that the rank calls, that which it comes
    to most often; where none is known, the end of the run.
    """
    places, ranks = made.shape
    if not places:
        return np.zeros(made.shape, dtype=np.int64)
    into = np.where(made, np.arange(places)[:, None], -1)
    after: dict[int, list[tuple[int, np.ndarray]]] = {}
    for k, starts in enumerate(before):
        for s, a in enumerate(starts):
            if a >= 0 and a != k and (counts[k][s][~made[a]] > 0).any():
                after.setdefault(a, []).append((k, counts[k][s]))
    for _ in range(places):
        found = into.copy()
        for a, following in after.items():
            most = np.zeros(ranks)
            for k, count in following:
                better = (into[a] < 0) & (into[k] >= 0) & (count > most)
                found[a, better], most[better] = into[k, better], count[better]
        if np.array_equal(found, into):
            break
        into = found
    called = np.where(made[end], end % places, made.argmax(axis=0))
    return np.where((into < 0) & made.any(axis=0), called, into)


@dataclass
class Run:
    """One traced count: calls and bytes per place and rank, segments as numbers of places.

    calls: (places, ranks); sizes: mean bytes, same shape; segments: rows (rank, from, to, count,
    work), from -1 at the start; item, work: of each row of the table; features: (ranks, features).
    """

    grid: GridAt
    calls: np.ndarray
    sizes: np.ndarray
    segments: np.ndarray
    item: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    work: np.ndarray = field(default_factory=lambda: np.zeros(0))
    features: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))

    def segments_to(self, place: int) -> np.ndarray:
        """Return the segments that end at a place."""
        order, ends = self._by_end
        found: np.ndarray = self.segments[order[slice(*np.searchsorted(ends, (place, place + 1)))]]
        return found

    @cached_property
    def _by_end(self) -> tuple[np.ndarray, np.ndarray]:
        order = np.argsort(self.segments[:, 2], kind="stable")
        return order, self.segments[order, 2]


def run_of(
    t: PointTable, grid: GridAt, place: np.ndarray, places: Mapping[tuple[str, str], int]
) -> Run:
    """Return what one traced count did, by place; place: of each row of the table, -1: of none."""
    shape = (len(places), t.np)
    known = place >= 0
    cell = place[known] * t.np + t.rank[known]
    size = shape[0] * shape[1]
    calls = np.bincount(cell, weights=t.count[known], minlength=size).reshape(shape)
    moved = np.bincount(cell, weights=(t.count * t.nbytes)[known], minlength=size).reshape(shape)
    if len(t.segments):
        number = np.array([*(places.get(node, -2) for node in t.nodes), -1], dtype=np.int64)
        segments = t.segments.copy()
        segments[:, 1], segments[:, 2] = number[segments[:, 1]], number[segments[:, 2]]
        segments = segments[segments[:, 2] >= 0]
    else:  # a signature without segments: all work before a call is one
        work = np.bincount(cell, weights=t.work[known], minlength=size)
        there = np.flatnonzero(calls.ravel())
        segments = np.stack(
            [
                there % t.np,
                np.full(len(there), -1),
                there // t.np,
                calls.ravel()[there],
                work[there],
            ],
            axis=1,
        ).astype(np.int64)
    return Run(grid, calls, moved / np.maximum(calls, 1), segments)


def rows_of(item: np.ndarray, items: int) -> list[np.ndarray]:
    """Return the rows of each item, ascending; item: of each row, other numbers for none."""
    order = np.argsort(item, kind="stable")
    return np.split(order, np.searchsorted(item[order], np.arange(items + 1)))[1:-1]


#: A count, some of its ranks, and how often they run through each segment (segments, ranks).
Seen = tuple[Run, np.ndarray, np.ndarray]


def cases_of(
    seen: Sequence[Seen], before: Sequence[int], number: int, present: tuple[int, ...]
) -> list[Case]:
    """Return how often the segments before a place occur on ranks that make the same calls.

    Where this has no law for all of them, ranks are told apart by the borders they are at, if that
    leaves fewer without a law. The last case whose guard is None is all others.
    """

    def unlawful(cases: Sequence[Case]) -> int:
        return sum(law.share is not None for case in cases for law in case.counts)

    whole = [Case(present, None, _counts(seen, before, number))]
    if not unlawful(whole):
        return whole
    cases = [Case(present, who, _counts(part, before, number)) for who, part in _by_borders(seen)]
    return min(whole, cases, key=unlawful)


def _by_borders(seen: Sequence[Seen]) -> list[tuple[Guard | None, list[Seen]]]:
    """Return (guard, ranks) by the borders of the grid that ranks are at, most ranks last."""
    parts: dict[tuple[tuple[bool, bool], ...], list[Seen]] = {}
    for run, ranks, count in seen:
        g = run.grid
        low = (g.coords[:, ranks] == 0).T
        high = (g.coords[:, ranks] == np.array(g.dims)[:, None] - 1).T
        sides = [tuple(zip(*x, strict=True)) for x in zip(low.tolist(), high.tolist(), strict=True)]
        for side in sorted(set(sides)):
            mine = np.array([s == side for s in sides])
            parts.setdefault(side, []).append((run, ranks[mine], count[:, mine]))
    order = sorted(parts, key=lambda side: (sum(len(r) for _, r, _ in parts[side]), side))
    return [
        (
            None
            if side == order[-1]
            else Guard(
                (
                    *(First(d, negated=not low) for d, (low, _) in enumerate(side)),
                    *(Last(d, negated=not high) for d, (_, high) in enumerate(side)),
                )
            ),
            parts[side],
        )
        for side in order
    ]


def _counts(seen: Sequence[Seen], before: Sequence[int], number: int) -> tuple[Occurs, ...]:
    """Return how often each segment before a place occurs on ranks of one case.

    Each is a constant, as often as the call it starts at, a law of n, or a share of the place's
    calls; the one of least certain law takes what the others leave of these.
    """
    each = [np.concatenate([count[k] for _, _, count in seen]) for k in range(len(before))]
    calls = np.concatenate([run.calls[number][ranks] for run, ranks, _ in seen])
    out: list[Occurs] = []
    for k, a in enumerate(before):
        c = each[k]
        starts = (
            np.concatenate([run.calls[a][ranks] for run, ranks, _ in seen])
            if a >= 0
            else np.ones(len(c))
        )
        if np.all(c == c[0]):
            out.append(Occurs(const=float(c[0])))
        elif np.array_equal(c, starts):
            out.append(Occurs(like=k))
        else:
            same = all(np.all(count[k] == count[k][0]) for _, _, count in seen)
            law = (
                find_law(
                    [(run.grid.symbols, int(count[k][0])) for run, _, count in seen], "whole"
                ).law
                if same and len(seen) > 2
                else None
            )
            out.append(
                Occurs(expr=law.expr)
                if law is not None
                else Occurs(share=float(c.sum() / max(float(calls.sum()), 1.0)))
            )
    order = ("const", "like", "expr", "share")
    kind = [next(x for x, name in enumerate(order) if getattr(o, name) is not None) for o in out]
    out[max(range(len(before)), key=lambda k: (kind[k], float(each[k].sum())))] = Occurs(rest=1)
    return tuple(out)
