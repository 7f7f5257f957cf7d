"""Which segments a rank runs through, and how often: cases of ranks before every place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from p3s.laws.lawfinder import find_law
from p3s.model.grid.guardfit import fit_guard
from p3s.model.grid.guards import GridAt, Guard
from p3s.model.grid.rank_atoms import First, Last
from p3s.model.work_types import Case, Occurs
from p3s.signature.tables import PointTable

#: Kinds of ranks that are told apart before one place.
_KINDS = 9


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

    Where this has no law for all of them, ranks are told apart by which of the segments they run
    through at all, if their places in the grid say who does, or by the borders they are at,
    whichever leaves fewer without a law. The last case whose guard is None is all others.
    """

    def unlawful(cases: Sequence[Case]) -> int:
        return sum(law.share is not None for case in cases for law in case.counts)

    best = [Case(present, None, _counts(seen, before, number))]
    for way in (_by_segments, _by_borders):
        if unlawful(best):
            parts = way(seen)
            cases = [Case(present, guard, _counts(part, before, number)) for guard, part in parts]
            if cases and unlawful(cases) < unlawful(best):
                best = cases
    return best


def _by_segments(seen: Sequence[Seen]) -> list[tuple[Guard | None, list[Seen]]]:
    """Return (guard, ranks) of each set of segments that ranks run through; none without rules."""
    kinds = Counter(tuple(col) for _, _, count in seen for col in (count > 0).T.tolist())
    order = sorted(kinds, key=lambda k: (kinds[k], k))
    out: list[tuple[Guard | None, list[Seen]]] = []
    for kind in order if 1 < len(order) <= _KINDS else ():
        part = [
            (run, ranks[mine], count[:, mine])
            for run, ranks, count in seen
            if len(mine := np.flatnonzero(np.all(np.array(kind) == (count > 0).T, axis=1)))
        ]
        guard = None if kind == order[-1] else _guard(seen, part)
        if guard is None and kind != order[-1]:
            return []
        out.append((guard, part))
    return out


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


def _guard(seen: Sequence[Seen], part: Sequence[Seen]) -> Guard | None:
    """Return who, of the ranks in ``seen``, is in ``part``; None without a rule."""
    grids, sets, care = [], [], []
    for run, ranks, _ in seen:
        grids.append(run.grid)
        care.append(np.isin(np.arange(run.grid.n), ranks))
        sets.append(np.zeros(run.grid.n, dtype=bool))
        for other, mine, _ in part:
            if other is run:
                sets[-1][mine] = True
    return fit_guard(grids, sets, None, care)


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
