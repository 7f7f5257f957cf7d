"""Work of segments: what one process computes between two calls, as a law of its block and n.

The thesis (section 5.3) keeps the total of a phase and every segment's share of it. Here every
segment, the code between two places in the program, has a law of its own: control code is a
constant, loops over the own block follow the block's size, packing follows the message. The work
of a process in a phase is the sum over its segments. Which segments a process runs through
follows from the calls it makes: those before a call depend on which of the calls that ever come
before it the process makes at all.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from p3s.laws.counts import WorkLaw
from p3s.laws.lawfinder import find_law
from p3s.laws.statistics import SAME_WITHIN
from p3s.laws.sums import GROWING, Sum, near, search_sums
from p3s.model.grid.at import GridAt
from p3s.model.partners.stencil import partners
from p3s.model.sizes.observed import env_of
from p3s.model.tree import item_of_rows
from p3s.model.types import Item, Phase
from p3s.model.work.balance import Spent, apart, fit_profile, same_order
from p3s.model.work.features import BEFORE, HERE, NONE, ONCE, Feature, features, values_of
from p3s.model.work.flows import Run, Seen, cases_of, rows_of, run_of
from p3s.model.work.levels import EXACT, PhasePoints, fit_level, phase_law, scalars
from p3s.model.work.scic import instruction_groups, ranges
from p3s.model.work_types import Group, PhaseWork, Profile, Segment, WorkLevel, WorkPlace
from p3s.signature.tables import PointTable

#: Largest coefficient of variation over ranks at which all ranks are taken to be equal.
EQUAL_RANKS_CV = 0.35
#: Ranks per count that a law is fitted to.
_RANKS = 128
#: Power of the count from which on bytes of a message grow with it.
_SLOPE = 0.25
#: Largest tilt of shares (a logarithm): where no shares give rows their work; floats hold e^-200.
STEEPEST = 100.0

Place = tuple[str, str]
Rows = Mapping[str, np.ndarray]


def with_phase_work(
    phases: Sequence[Phase],
    items: Sequence[Item],
    tables: Sequence[PointTable],
    grids: Mapping[int, GridAt],
    split: Mapping[tuple[str, str], bool],
    stated: bool = False,
) -> tuple[list[Phase], WorkLevel]:
    """Return the phases with their work, and which of its laws say its mean.

    stated: the iterations of some loops will be other ones than those that were traced.
    """
    places = places_of(items)
    of_item = np.array([places[(it.site, it.op)] for it in items] + [-1], dtype=np.int64)
    phase_of = np.array([it.phase for it in items] + [-1], dtype=np.int64)
    runs = []
    spent: list[list[Spent]] = [[] for _ in phases]
    for t in tables:
        grid = grids[t.np]
        item = item_of_rows(items, t, grid, split)
        runs.append(run_of(t, grid, of_item[item], places))
        runs[-1].item, runs[-1].work = item, t.work
        for k in range(len(phases)):
            mine = phase_of[item] == k
            there = np.bincount(t.rank[mine], minlength=t.np) > 0
            work = np.bincount(t.rank[mine], weights=t.work[mine], minlength=t.np)
            spent[k].append(Spent(grid, work, np.zeros(t.np), np.zeros(t.np), there))
    sizes = [s.elements.expr for it in items for s in it.slots if s.elements.expr is not None]
    whole = _whole(runs, phase_of)
    basis = features(sizes, len(next(iter(grids.values())).dims))
    basis += [Feature(shape, math.inf) for shape in whole.shapes]
    for run in runs:
        env = env_of(run.grid, np.arange(run.grid.n))
        run.features = np.stack([values_of(f.expr, env) for f in basis], axis=1)
    rows = rows_of(runs[-1].item, len(items))
    found: list[list[WorkPlace]] = [[] for _ in phases]
    items_at: dict[Place, list[int]] = {}
    for i, it in enumerate(items):
        items_at.setdefault((it.site, it.op), []).append(i)
    names = list(places)
    for place, number in places.items():
        mine_ = items_at[place]
        phase = phases[items[mine_[0]].phase]
        made, said, held, segments = _place(number, names, runs, basis, whole)
        spent[phase.phase][-1].held[:] += held
        for one, values in zip(spent[phase.phase], said, strict=True):
            one.said[:] += values
        found[phase.phase].append(
            replace(
                made,
                items=tuple(mine_),
                through=_through(
                    [(items[i], rows[i]) for i in mine_], tables[-1], segments, runs[-1].grid
                ),
                calls_at=_calls(runs, number, dict(phase.weight_points)),
                size=_size(runs, number),
            )
        )
    points = [
        _points(some, [dict(p.weight_points).get(r.grid.n) or 1 for r in runs], stated)
        for p, some in zip(phases, spent, strict=True)
    ]
    at = [scalars(run.grid) for run in runs]
    profiles = same_order([fit_profile(some) for some in spent], [some[-1] for some in spent])
    return [
        replace(p, work=_total(some, point, at, places_, profile))
        for p, some, point, places_, profile in zip(
            phases, spent, points, found, profiles, strict=True
        )
    ], fit_level(at, points)


def _points(spent: Sequence[Spent], weights: Sequence[float], each: bool) -> PhasePoints:
    """Return a phase at the traced counts, ranks together; weights: its iterations."""
    last = spent[-1]
    held = float(last.held[last.there].mean()) if last.there.any() else 0.0
    return PhasePoints(
        [float(s.work[s.there].mean()) if s.there.any() else 0.0 for s in spent],
        weights,
        [float(s.there.mean()) for s in spent],
        [float(s.said[s.there].mean()) if s.there.any() else 0.0 for s in spent],
        held if np.isfinite(held) else None,
        apart(last),
        each,
    )


def _calls(
    runs: Sequence[Run], place: int, turns: Mapping[int, float]
) -> dict[str, tuple[float, float]]:
    """Return traced count -> calls at a place per iteration of its phase, mean over the ranks that
    make any, and the share of ranks that do; zeros where none does."""
    out = {}
    for run in runs:
        mine = run.calls[place][run.calls[place] > 0]
        iterations = max(float(turns.get(run.grid.n) or 1), 1.0)
        calls = float(mine.mean()) / iterations if len(mine) else 0.0
        out[str(run.grid.n)] = (calls, len(mine) / run.grid.n)
    return out


def _size(runs: Sequence[Run], place: int) -> WorkLaw:
    """Return the law of the bytes of a call at a place, mean over the ranks that make any."""
    points = [
        (run.grid.n, float(run.sizes[place][run.calls[place] > 0].mean()))
        for run in runs
        if run.calls[place].any()
    ]
    return find_law(points, "work").fit


def places_of(items: Sequence[Item]) -> dict[Place, int]:
    return {p: k for k, p in enumerate(dict.fromkeys((it.site, it.op) for it in items))}


def _total(
    spent: Sequence[Spent],
    points: PhasePoints,
    grids: Sequence[Mapping[str, int]],
    places: Sequence[WorkPlace],
    profile: Profile,
) -> PhaseWork:
    """Return a phase's work per rank as it was measured, with laws of its mean and its ranks."""
    some = [(s, s.work[s.there], np.flatnonzero(s.there)) for s in spent if s.there.any()]
    means = [(s.grid.n, float(w.mean())) for s, w, _ in some]
    spread = [float(w.std() / w.mean()) for _, w, _ in some if len(w) > 1 and w.mean() > 0]
    return PhaseWork(
        law=find_law(means, "work").fit,
        points=tuple(means),
        equal_ranks=bool(spread) and float(np.median(spread)) <= EQUAL_RANKS_CV,
        measured={
            str(s.grid.n): tuple(
                Group(tuple((a, b) for a, b in ranges(ranks[mine])), float(w[mine].mean()))
                for mine in instruction_groups(w)
            )
            for s, w, ranks in some
        },
        places=tuple(places),
        mean=phase_law(grids, points),
        profile=profile,
        share=points.shares[-1],
    )


def _place(
    number: int,
    places: Sequence[Place],
    runs: Sequence[Run],
    basis: Sequence[Feature],
    whole: WorkLaw,
) -> tuple[WorkPlace, list[np.ndarray], np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Return the segments that end at one place, and their work: at every count, and held out; and
    how often each occurs at the largest count and its work there, as ``counts_and_work``.

    whole: work of the program, mean over its ranks. A case stands for the ranks that make just
    these of the calls before it. Work is of every rank, by the laws times how often the segments
    occur; held out: at the largest count by laws that were fitted without it, NaN where none were.
    """
    here = [run.segments_to(number) for run in runs]
    before = sorted({int(a) for s in here for a in np.unique(s[:, 1])})
    tables = [counts_and_work(s, before, run.grid.n) for s, run in zip(here, runs, strict=True)]
    laws: dict[int, Segment] = {}
    like: list[Sum] = []
    like_held: list[Sum] = []
    said = [np.zeros(run.grid.n) for run in runs]
    held = np.full(runs[-1].grid.n, 0.0 if len(runs) > 2 else np.nan)
    # the code before one call is often the same: who was seen at most counts is fitted first
    order = sorted(
        range(len(before)),
        key=lambda k: (
            -sum(bool(count[k].any()) for count, _ in tables),
            -sum(float(work[k].sum()) for _, work in tables),
        ),
    )
    for k in order:
        pair = before[k], number
        seen = [
            samples
            for run, (count, work) in zip(runs, tables, strict=True)
            if (samples := samples_at(run, count[k], work[k], pair, basis)) is not None
        ]
        found = fitted(seen, basis, like, whole)
        like.append(found[0])
        laws[k] = segment_of(found, seen, basis)
        for s in seen:
            i = next(i for i, run in enumerate(runs) if run.grid.n == s.n)
            said[i][s.ranks] += tables[i][0][k][s.ranks] * found[0].at(s.features)
        last = seen[-1]
        if len(runs) < 3 or last.n != runs[-1].grid.n:
            continue
        if found[0].error > EXACT:  # else samples to spare are evidence enough
            if len(seen) < 2:
                continue
            found = fitted(seen[:-1], basis, like_held, whole)
            like_held.append(found[0])
        held[last.ranks] += tables[-1][0][k][last.ranks] * found[0].at(last.features)
    cases: dict[tuple[bool, ...], list[Seen]] = {}
    for run, (count, _) in zip(runs, tables, strict=True):
        there = _present(run.calls, before)
        ranks = np.flatnonzero(run.calls[number] > 0)
        for key in sorted({tuple(col) for col in there[:, ranks].T.tolist()}):
            mine = ranks[np.all(np.array(key) == there[:, ranks].T, axis=1)]
            cases.setdefault(key, []).append((run, mine, count[:, mine]))
    return (
        WorkPlace(
            place=places[number],
            before=tuple(places[a] if a >= 0 else None for a in before),
            segments=tuple(laws[k] for k in range(len(before))),
            cases=tuple(
                case
                for key, seen in cases.items()
                for case in cases_of(seen, before, number, tuple(int(x) for x in key))
            ),
            items=(),
        ),
        said,
        held,
        tables[-1],
    )


def _present(calls: np.ndarray, before: Sequence[int]) -> np.ndarray:
    """Return (places before, ranks): whether a rank makes a call at all; the start always."""
    return np.stack(
        [calls[a] > 0 if a >= 0 else np.ones(calls.shape[1], dtype=bool) for a in before]
    )


def counts_and_work(
    segments: np.ndarray, before: Sequence[int], ranks: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return how often each segment occurs and its work, both (places before, ranks)."""
    row = np.searchsorted(np.array(before), segments[:, 1])
    out = np.zeros((2, len(before), ranks))
    np.add.at(out[0], (row, segments[:, 0]), segments[:, 3])
    np.add.at(out[1], (row, segments[:, 0]), segments[:, 4])
    return out[0], out[1]


@dataclass(frozen=True)
class Samples:
    """A segment at one count: features (ranks, features) and work of one occurrence by rank."""

    n: int
    ranks: np.ndarray
    features: np.ndarray
    work: np.ndarray


def samples_at(
    run: Run, count: np.ndarray, work: np.ndarray, pair: tuple[int, int], basis: Sequence[Feature]
) -> Samples | None:
    """Return a segment from one place to another at a count; None where no rank has it."""
    a, b = pair
    ranks = np.flatnonzero(count > 0)
    if not len(ranks):
        return None
    factor = {
        NONE: np.ones(len(ranks)),
        HERE: run.sizes[b][ranks],
        BEFORE: run.sizes[a][ranks] if a >= 0 else np.zeros(len(ranks)),
        ONCE: 1.0 / count[ranks],
    }
    features = run.features[ranks] * np.stack([factor[f.message] for f in basis], axis=1)
    return Samples(run.grid.n, ranks, features, work[ranks] / count[ranks])


def thin_samples(s: Samples, most: int = _RANKS) -> Samples:
    """Return the samples of some ranks evenly over all."""
    if len(s.ranks) <= most:
        return s
    some = np.unique(np.linspace(0, len(s.ranks) - 1, most).astype(np.int64))
    return Samples(s.n, s.ranks[some], s.features[some], s.work[some])


def fitted(
    seen: Sequence[Samples], basis: Sequence[Feature], like: Sequence[Sum], whole: WorkLaw
) -> list[Sum]:
    """Return the laws of one occurrence of a segment that have a say, the best first.

    like: those of similar code; whole: of the program, which what was seen at one count goes with.
    """
    some = [thin_samples(s) for s in seen]
    x = np.concatenate([s.features for s in some])
    y = np.concatenate([s.work for s in some])
    n = np.concatenate([np.full(len(s.ranks), s.n) for s in some])
    if len(seen) == 1 and y.any():
        return [_alike(x, y, like) or _as_whole(float(y.mean()), seen[0].n, basis, whole)]
    nest = [i for i, f in enumerate(basis) if f.nest]
    found = near(search_sums(x, y, n, _bits(basis, x, n), nest, [law.which for law in like]))
    return [law for _, law in found]


def _alike(x: np.ndarray, y: np.ndarray, like: Sequence[Sum]) -> Sum | None:
    """Return the law of similar code that samples of one count are nearest to, brought to them.

    One count cannot tell how the work scales. None where all laws differ by more than a factor of
    1.5; the error is how far the nearest one was off.
    """
    near_ = [(y.mean() / there, law) for law in like if law.which and (there := law.at(x).mean())]
    ratio, law = min(near_, key=lambda f: abs(np.log(f[0])), default=(math.inf, None))
    if law is None or abs(np.log(ratio)) > np.log(SAME_WITHIN):
        return None
    error = float(np.hypot(law.error, np.log(ratio)))
    return replace(law, error=error, coef=tuple(float(c * ratio) for c in law.coef))


def _as_whole(work: float, n: int, basis: Sequence[Feature], whole: WorkLaw) -> Sum:
    """Return a law for what was seen at one count: it goes with the work of the program."""
    which = tuple(i for i, f in enumerate(basis) if f.bits == math.inf)
    there = float(whole.value(n))
    if not there > 0:
        return Sum(0.0, 1.0, (0,), (work,))
    return Sum(0.0, 1.0, which, tuple(coef * work / there for coef, _, _ in whole.terms))


def segment_of(found: Sequence[Sum], seen: Sequence[Samples], basis: Sequence[Feature]) -> Segment:
    """Return the law of a segment as a record, and the others that have a say as its rivals."""
    shapes = [(f.expr, f.message) for f in basis]
    laws = [
        tuple((c, *shapes[i]) for i, c in zip(law.which, law.coef, strict=True)) for law in found
    ]
    return Segment(laws[0], found[0].error, tuple(laws[1:]), tuple(sorted({s.n for s in seen})))


def _bits(basis: Sequence[Feature], x: np.ndarray, n: np.ndarray) -> list[float]:
    """Return the bits of each feature: bytes that grow with the count cost what all that grows
    with it does, since work that goes with them is as wrong where it fits by chance.

    x: (samples, features); n: the count of each sample.
    """
    counts = np.unique(n)
    means = np.array([x[n == count].mean(axis=0) for count in counts])
    grows = np.all(np.diff(means, axis=0) > 0, axis=0) & (
        means[-1] > means[0] * (counts[-1] / counts[0]) ** _SLOPE
    )
    return [
        max(f.bits, GROWING) if f.message in (HERE, BEFORE) and up else f.bits
        for f, up in zip(basis, grows, strict=True)
    ]


def _whole(runs: Sequence[Run], phase_of: np.ndarray) -> WorkLaw:
    """Return the law of the work of the program, mean over its ranks, in phases seen at two counts
    or more: one that is met at a single count is a jump in it."""
    seen = Counter(k for run in runs for k in np.unique(phase_of[run.item]).tolist() if k >= 0)
    means = []
    for run in runs:
        kept = np.array([seen[k] > 1 for k in phase_of[run.item].tolist()], dtype=bool)
        means.append(float(run.work[kept].sum()) / run.grid.n)
    return find_law(zip((run.grid.n for run in runs), means, strict=True), "work").fit


def _through(
    items: Sequence[tuple[Item, np.ndarray]],
    t: PointTable,
    segments: tuple[np.ndarray, np.ndarray],
    grid: GridAt,
) -> tuple[tuple[tuple[float, ...], tuple[float, ...]], ...]:
    """Return which shares of the calls of each item come through each segment before their place:
    of the first stage of its family, and of later ones. None where the calls are all alike.

    items: with their rows; segments: how often each occurs and its work, (segments, ranks). Of the
    shares that give rows their work those are taken that are nearest to those of all calls there.
    """
    out = []
    peer = np.array([g.peer for g in t.groups], dtype=np.int64)[t.group] if len(t.group) else t.rank
    for item, mine in items:
        table = partners(item.relation, grid) if item.relation is not None else None
        later = np.zeros(len(mine), dtype=bool)
        if table is not None and len(table) > 1:
            later = table[0][t.rank[mine]] != peer[mine]
        if len(items) == 1 and (later.all() or not later.any()):
            return ()
        found = [_shares(t, rows, *segments) for rows in (mine[~later], mine[later]) if len(rows)]
        found = found or [(1.0,) * len(segments[0])]
        out.append((found[0], found[-1]))
    return tuple(out)


def _shares(
    t: PointTable, rows: np.ndarray, count: np.ndarray, work: np.ndarray
) -> tuple[float, ...]:
    """Return the shares of the calls of rows that come through each segment."""
    ranks = np.unique(t.rank[rows])
    usual = count[:, ranks].sum(axis=1)
    there = usual > 0
    wanted = float(t.work[rows].sum()) / max(int(t.count[rows].sum()), 1)
    more = np.where(there, work[:, ranks].sum(axis=1) / np.maximum(usual, 1) - wanted, 0.0)
    more /= max(float(np.abs(more).max()), 1e-300)
    low, high = -STEEPEST, STEEPEST
    for _ in range(64):
        tilt = (low + high) / 2
        shares = np.maximum(usual, 1e-300) * np.exp(tilt * more - np.max(tilt * more))
        low, high = (low, tilt) if shares @ more > 0 else (tilt, high)
    return tuple((shares / shares.sum()).tolist())
