"""The dependency simulation for counts too large to simulate every rank.

Most ranks of a large process grid are alike. Grids of the same form with shorter sides are
simulated, their ranks with the amounts of the large one (p3s.program.fewer): the smallest that has
all kinds of ranks, and some that are two and four times as long in one dimension. What a rank takes
changes with a grid's size in few ways: not at all, with the logarithm of its ranks (collectives),
with its sides (a front that runs through it) or with its ranks (a root that hears from all). It
changes with sides or ranks only where the messages of a rank do, or what it waits while each
collective is one call; both show it far more clearly than times, which go up and down with where
nodes lie. The simplest way that meets all grids is taken to the large one. How far the smaller
grids miss the longest, and how far others that meet them all are from it there, widens the
interval. Each phase has a way of its own: what a root makes all others wait for once says nothing
of the loop behind it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from p3s.base.arrays import Bools, Floats, Ints
from p3s.base.records import Traces
from p3s.base.text import figures, processes
from p3s.model.stage import load
from p3s.model.verdicts import judged_at
from p3s.predict.estimated import COMM, WAITING, Communication
from p3s.predict.estimators.grids import Simulated
from p3s.predict.estimators.settings import Setting
from p3s.program.mapping import BLOCK
from p3s.simulate.totals import StandIns

if TYPE_CHECKING:
    from p3s.program.fewer import Fewer

#: Up to how many ranks all of them are simulated for a prediction, and for the share of it that
#: changes leave, which smaller grids tell better than the time itself.
EVERY_RANK, EVERY_RANK_CHANGED = 8192, 2048
#: Times of the simulated grids are met where none is further off than this share of all.
_MET, _NEARLY_MET = 0.005, 0.03
#: Ways in which times change with the grid, the simplest first, and from which share on they do.
_WAYS: tuple[tuple[str, ...], ...] = (
    (),
    ("log",),
    ("sides",),
    ("ranks",),
    ("log", "sides"),
    ("log", "ranks"),
)
_MATTERS = 0.02
#: A phase is met as nearly as if it had at least this share of all communication.
_SMALL = 0.05
#: What smaller grids miss communication by in nine of ten programs of docs/simulation.md.
_MISSED = 0.2
#: Far more nearly met, so many times: by steps, which are counted, and by times, which go up and
#: down with where nodes lie.
_MORE, _FAR_MORE = 2.0, 4.0
#: Where more ranks than this share have the phase's way, that tells the mean of all.
_MOST_USUAL = 0.5
#: So much further off than the nearest is hardly so.
_HARDLY = 1.25


def smaller(
    traces: Traces, n: int, cores: int, setting: Setting, *, changed: bool = False
) -> Fewer | None:
    """Return the smallest grid that stands for ``n`` processes; None: all ranks are simulated.

    ``cores``: of a node, where nobody says how many ranks it has. Where nodes or their network are
    listed one by one, none is. ``changed``: for what changes save; but where ranks are dealt out in
    another way than in blocks, other ranks of a smaller grid share nodes.
    """
    fewest = changed and setting.mapping == BLOCK
    most = min(EVERY_RANK, EVERY_RANK_CHANGED) if fewest else EVERY_RANK
    if n <= most or setting.every_rank or setting.topology or setting.listed_at(n):
        return None

    from p3s.program.fewer import fewer

    return fewer(judged_at(load(traces.root), n), n, setting.ranks_per_node or cores)


@dataclass(frozen=True, eq=False)
class Checked:
    """A count at which every rank was simulated, and what smaller grids say there.

    ``missed``: by which share of the mean communication of all ranks they say more (less than 0:
    less); ``each``: the same of every phase, where a sum does not hide it; ``slowest``: how much
    longer the run takes by them, as a share of the communication of the slowest rank.
    """

    n: int
    missed: float
    each: Floats
    slowest: float


def _possible(few: Fewer, made: Sequence[Simulated], phase: int) -> list[tuple[str, ...]]:
    """Return the ways in which times of a phase may change with the grid.

    With its sides or its ranks only where steps or waiting do, far more nearly than with the
    logarithm.
    """
    seen = {"log"}
    steps, plain = [one.steps[phase] for one in made], [one.plain[phase] for one in made]
    for values, more in ((steps, _MORE), (plain, _FAR_MORE)):
        means = np.array(values).reshape(-1, 1, 1)
        if np.ptp(means) <= _MATTERS * means.min():
            continue
        ways = _ways(few, made, means, few.large.dims, few.large.n)
        off = {way.used: way.off for way in ways}
        seen |= {
            one
            for one in ("sides", "ranks")
            if off["log",] > max(_MET, more * off.get((one,), math.inf))
        }
    return [used for used in _WAYS if seen.issuperset(used)]


def _features(few: Fewer, dims: Sequence[int], n: int, used: Sequence[str]) -> list[float]:
    """Return what times may change with: 1, the logarithm of the ranks, the ranks, the sides."""
    out = [1.0]
    if "log" in used:
        out.append(math.log2(n))
    if "ranks" in used:
        out.append(float(n))
    if "sides" in used:
        shorter = zip(few.dims, few.large.dims, dims, strict=True)
        out += [float(side) for base, large, side in shorter if base < large]
    return out


@dataclass(frozen=True)
class Way:
    """A way in which times of a phase change with the grid: (columns, 1) at the large one.

    ``off``: the largest share of a grid's communication by which it misses one. ``possible``: the
    ways that were looked at.
    """

    used: tuple[str, ...]
    at: Floats
    off: float
    possible: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, eq=False)
class Ways:
    """Those of all phases."""

    each: tuple[Way, ...]

    @property
    def at(self) -> Floats:
        """Means at the large grid, (columns, phases)."""
        return np.concatenate([way.at for way in self.each], axis=1)

    @property
    def used(self) -> tuple[str, ...]:
        """All that times of some phase change with."""
        names = dict.fromkeys(name for used in _WAYS for name in used)
        return tuple(name for name in names if any(name in way.used for way in self.each))


def _ways(
    few: Fewer,
    made: Sequence[Simulated],
    means: Floats,
    dims: Sequence[int],
    n: int,
    ways: Sequence[tuple[str, ...]] = _WAYS,
    least: Floats | float = 1e-300,
) -> list[Way]:
    """Return the ways that have no more unknowns than there are grids, the simplest first.

    ``means``: of each grid, (grids, columns, phases). Shares are of no less communication than
    ``least``. Nothing takes less time on a longer grid.
    """
    flat = means.reshape(len(made), -1)
    whole = np.maximum(means[:, COMM].sum(axis=1), least)
    found = []
    for used in ways:
        table = np.array([_features(few, one.few.dims, one.few.n, used) for one in made])
        if used and table.shape[1] > len(made):
            continue
        there = _least_squares(table, flat)
        apart = (table @ there - flat).reshape(means.shape)[:, COMM]
        at = np.array(_features(few, dims, n, used)) @ there
        off = float((np.abs(apart).sum(axis=1) / whole).max())
        found.append(Way(used, np.maximum(at, 0.0).reshape(means.shape[1:]), off))
    return found


def _least_squares(table: Floats, values: Floats) -> Floats:
    """Return the coefficients of columns that come nearest to each column of values.

    All but the first are not below 0: where they would be, they are 0, and of all ways to leave
    some out the nearest counts. Columns are few.
    """
    best = np.full(values.shape[1], np.inf)
    found = np.zeros((table.shape[1], values.shape[1]))
    for used in product((True, False), repeat=table.shape[1] - 1):
        columns = np.flatnonzero((True, *used))
        some = np.linalg.lstsq(table[:, columns], values, rcond=None)[0]
        off = ((table[:, columns] @ some - values) ** 2).sum(axis=0)
        nearer = (some[1:] >= 0).all(axis=0) & (off < best)
        best[nearer] = off[nearer]
        found[:, nearer] = 0.0
        found[np.ix_(columns, np.flatnonzero(nearer))] = some[:, nearer]
    return found


def _chosen(ways: Sequence[Way]) -> Way:
    """Return the simplest way that meets all grids, or is hardly further off than any."""
    enough = max(_MET, _HARDLY * min(way.off for way in ways))
    return next(way for way in ways if way.off <= enough)


@dataclass(frozen=True, eq=False)
class _Extent:
    """The ways to the large grid, and the ends of each phase's mean communication there.

    ``missed``: by which share of a phase the smaller grids miss the largest one.
    """

    ways: Ways
    low: Floats
    high: Floats
    missed: Floats


def _extent(few: Fewer, made: Sequence[Simulated], like: Ways | None) -> _Extent:
    """Return how times of each phase change with the grid: each has a way of its own."""
    last = max(made, key=lambda one: one.few.n)
    means = np.stack([one.mean for one in made])
    least = np.maximum(_SMALL * means[:, COMM].sum(axis=1), 1e-300)
    chosen, ends, missed = [], [], []
    for phase in range(means.shape[2]):
        possible = _possible(few, made, phase) if like is None else [like.each[phase].used]
        mine = means[:, :, [phase]]
        ways = _ways(few, made, mine, few.large.dims, few.large.n, possible, least)
        way = _chosen(ways)
        others = [float(each.at[COMM, 0]) for each in ways if each.off <= max(_NEARLY_MET, way.off)]
        each = tuple(possible) if like is None else like.each[phase].possible
        chosen.append(replace(way, possible=each))
        ends.append((min(others), max(others)))
        missed.append(_held_out(few, made, last, way, phase))
    low, high = np.array(ends).reshape(-1, 2).T
    return _Extent(Ways(tuple(chosen)), low, high, np.array(missed))


def taken_to(
    few: Fewer,
    ranks: Ints | None,
    made: Sequence[Simulated],
    like: Ways | None = None,
    checked: Checked | None = None,
) -> tuple[Communication, Ways]:
    """Return the communication of the large grid from that of smaller ones, and the ways there.

    ``ranks``: those of the large grid that are wanted, None: all. ``like``: the ways in which times
    change with the grid, where they are known: of the same program with other costs.
    """
    base, last = made[0], max(made, key=lambda one: one.few.n)
    n = few.large.n
    extent = _extent(few, made, like)
    at = extent.ways.at
    share = at[COMM] / max(float(at[COMM].sum()), 1e-300)
    missed, late = float(extent.missed @ share), _slowest_missed(few, made, extent.ways)
    # as much again with each doubling, and no less than such grids miss elsewhere
    doublings = max(math.log2(n / last.few.n), 1.0)
    beyond = np.maximum(np.maximum(extent.missed, late) * doublings, _MISSED)
    off = max(missed, late)
    if checked is not None:
        once = max(abs(checked.missed), abs(checked.slowest))
        beyond = np.maximum(beyond, np.maximum(np.abs(checked.each), once))
        off = max(off, float(np.abs(checked.each) @ share), once)
    more, more_off = _more(made, n)
    ends = np.stack([one.ends for one in made if one.ends is not None])
    least, most = ends[:, 0].min(axis=0), ends[:, 1].max(axis=0)
    stood = few.standing_for(ranks)
    at_rank = _at_places(few, made, extent.ways)[:, stood]
    much = np.maximum(at_rank[COMM], at[COMM])
    below = np.maximum(at[COMM] - extent.low, beyond * much)
    above = np.maximum(extent.high - at[COMM], beyond * much)
    comm = at_rank[COMM] + more
    low = np.minimum(at_rank[COMM] * least + more - (below + more_off), comm)
    high = np.maximum(at_rank[COMM] * most + more + (above + more_off), comm)
    at_rank[[COMM, WAITING]] += more
    found = replace(
        base.found,
        n=n,
        seconds=np.concatenate([at_rank, [np.maximum(low, 0.0), high]]),
        notes=(*base.found.notes, _told(made, extent.ways, missed), _told_check(checked)),
        stand_ins=StandIns(
            len(made),
            last.few.n,
            extent.ways.used,
            missed,
            off,
            *((checked.n, checked.missed, checked.slowest) if checked is not None else ()),
        ),
        beside=base.computed[stood],
    )
    return found, extent.ways


def _at_places(few: Fewer, made: Sequence[Simulated], ways: Ways) -> Floats:
    """Return what the ranks take that each of the smallest grid stands for, (columns, ranks,
    phases).

    A root, a border and what lies between take each what they take on longer grids. Those that have
    the phase's way take in the mean what that says; what others take more is on top of it.
    """
    found, usual, own = _by_places(few, made, ways, few.large.dims, few.large.n)
    weight = (few.weight / few.large.n)[:, None]
    left = ways.at - (weight * usual).sum(axis=1)
    share = (weight * ~own).sum(axis=0)
    moved = np.where(share > _MOST_USUAL, left / np.maximum(share, _MOST_USUAL), 0.0)
    return np.asarray(np.maximum(found + ~own * moved[:, None, :], 0.0), dtype=np.float64)


def _by_places(
    few: Fewer, made: Sequence[Simulated], ways: Ways, dims: Sequence[int], n: int
) -> tuple[Floats, Floats, Bools]:
    """Return the times of each place by what they are on some grids, those by the phase's way, and
    which have their own way.

    (columns, ranks, phases) twice and (ranks, phases). A place has the phase's way, but for one
    that misses it by far where another does not.
    """
    times = np.stack([one.on(few) for one in made])
    alike = np.empty(times.shape[1:])
    found, own = np.empty(times.shape[1:]), np.zeros(times.shape[2:], dtype=bool)
    mean = np.stack([one.mean[COMM] for one in made])
    for phase, way in enumerate(ways.each):
        here = times[..., phase]
        least = np.maximum(np.maximum(here[:, COMM], mean[:, phase, None]), 1e-300)
        usual = np.zeros(0)
        for used in (way.used, *(one for one in way.possible if one != way.used)):
            table = np.array([_features(few, one.few.dims, one.few.n, used) for one in made])
            if len(usual) and table.shape[1] >= len(made):
                continue
            there = _least_squares(table, here.reshape(len(made), -1))
            apart = (table @ there).reshape(here.shape)[:, COMM] - here[:, COMM]
            off = (np.abs(apart) / least).max(axis=0)
            at = np.array(_features(few, dims, n, used)) @ there
            at = np.maximum(at.reshape(here.shape[1:]), 0.0)
            if not len(usual):
                usual, better = off, np.full(len(off), True)
                alike[..., phase] = at
            else:
                better = (usual > _NEARLY_MET) & (off * _FAR_MORE < usual)
                usual, own[better, phase] = np.where(better, off, usual), True
            found[:, better, phase] = at[:, better]
    return found, alike, own


def slower(said: Floats, true: Floats, computed: Floats) -> float:
    """Return how much longer a run takes, as a share of the communication of its slowest rank.

    Communication as said, as it is, and computation, (ranks, phases) each.
    """
    alone = computed.sum(axis=1)
    whole = alone + true.sum(axis=1)
    comm = max(float(true.sum(axis=1)[whole.argmax()]), float(true.sum(axis=1).mean()), 1e-300)
    return (float((alone + said.sum(axis=1)).max()) - float(whole.max())) / comm


def _slowest_missed(few: Fewer, made: Sequence[Simulated], ways: Ways) -> float:
    """Return by how much the smaller grids miss how long the largest one takes, as a share."""
    last = max(made, key=lambda one: one.few.n)
    rest = [one for one in made if one is not last]
    most = max(len(_features(few, few.dims, few.n, way.used)) for way in ways.each)
    if len(rest) < most:
        return 0.0
    found, _, _ = _by_places(few, rest, ways, last.few.dims, last.few.n)
    said = found[COMM][few.standing_for_those_of(last.few)]
    return abs(slower(said, last.times[COMM], last.computed))


def _held_out(
    few: Fewer, made: Sequence[Simulated], last: Simulated, way: Way, phase: int
) -> float:
    """Return by how much a phase's way found without the longest grid misses it, as a share of the
    communication there."""
    rest = [one for one in made if one is not last]
    means = np.stack([one.mean[:, [phase]] for one in rest])
    found = _ways(few, rest, means, last.few.dims, last.few.n, [way.used])
    true = float(last.mean[COMM, phase])
    if not (found and true > 0):
        return 0.0
    return abs(float(found[0].at[COMM].sum()) / true - 1.0)


def _more(made: Sequence[Simulated], n: int) -> tuple[Floats, Floats]:
    """Return what variation adds to each phase at ``n``, and how unsure that is.

    The longest of so many ranks grows with the logarithm of their number, as far as grids show.
    """
    there = [(math.log2(one.few.n), one.more) for one in made if one.more is not None]
    if not there:
        nothing = np.zeros(made[0].mean.shape[1])
        return nothing, nothing
    x = np.array([at for at, _ in there])
    y = np.stack([more for _, more in there])
    mean = y.mean(axis=0)
    slope = np.zeros_like(mean)
    if np.ptp(x) > 0:
        slope = np.maximum(((x - x.mean()) @ (y - mean)) / ((x - x.mean()) ** 2).sum(), 0.0)
    rise = slope * (math.log2(n) - x.mean())
    return mean + rise, np.maximum(rise, np.ptp(y, axis=0)) / 2


def _told(made: Sequence[Simulated], ways: Ways, missed: float) -> str:
    words = {
        "log": "the logarithm of the ranks",
        "sides": "the sides of the grid",
        "ranks": "the number of ranks",
    }
    rests = " and ".join(words[each] for each in ways.used)
    largest = max(one.few.n for one in made)
    return (
        f"{len(made)} grids of up to {largest:,} ranks were simulated "
        "with the sizes and the work of the large one; their time "
        + (f"changes with {rests}" if rests else "does not change with the grid")
        + f", and the smaller ones meet the largest to {figures(100 * missed)} %"
    )


def _told_check(checked: Checked | None) -> str:
    if checked is None:
        return (
            "smaller grids were compared with a simulation of every rank at no count: none below "
            "has both, in few enough steps"
        )
    return (
        f"checked at {processes(checked.n)} with a simulation of every rank: there smaller grids "
        f"say {_more_or_less(checked.missed)} communication, {_more_or_less(checked.slowest)} on "
        "the slowest rank"
    )


def _more_or_less(share: float) -> str:
    return f"{figures(100 * abs(share))} % {'more' if share > 0 else 'less'}"
