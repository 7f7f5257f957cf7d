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
from typing import TYPE_CHECKING, Any

import numpy as np

from p3s.base.arrays import Bools, Floats, Ints
from p3s.base.records import Traces
from p3s.base.text import figures, processes
from p3s.model.grid.at import GridAt
from p3s.model.stage import load
from p3s.model.verdicts import judged_at
from p3s.predict.estimated import COMM, WAITING, Communication
from p3s.predict.estimators.grids import GridTimes
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
class GridCheck:
    """A count at which every rank was simulated, and what smaller grids say there.

    ``missed``: by which share of the mean communication of all ranks they say more (less than 0:
    less); ``each``: the same of every phase, where a sum does not hide it; ``slowest``: how much
    longer the run takes by them, as a share of the communication of the slowest rank.
    """

    n: int
    missed: float
    each: Floats
    slowest: float


def _possible(few: Fewer, made: Sequence[GridTimes], phase: int) -> list[tuple[str, ...]]:
    """Return the ways in which times of a phase may change with the grid.

    With its sides or its ranks only where steps or waiting do, far more nearly than with the
    logarithm.
    """
    seen = {"log"}
    steps, plain = [one.steps[phase] for one in made], [one.plain[phase] for one in made]
    for values, more in ((steps, _MORE), (plain, _FAR_MORE)):
        means = np.array(values).reshape(-1, 1)
        if np.ptp(means) <= _MATTERS * means.min():
            continue
        off = {way.used: way.off for way in _ways(few, made, means, few.large)}
        seen |= {
            one
            for one in ("sides", "ranks")
            if off["log",] > max(_MET, more * off.get((one,), math.inf))
        }
    return [used for used in _WAYS if seen.issuperset(used)]


def _features(few: Fewer, grid: GridAt, used: Sequence[str]) -> list[float]:
    """Return what times may change with: 1, the logarithm of the ranks, the ranks, the sides."""
    out = [1.0]
    if "log" in used:
        out.append(math.log2(grid.n))
    if "ranks" in used:
        out.append(float(grid.n))
    if "sides" in used:
        shorter = zip(few.dims, few.large.dims, grid.dims, strict=True)
        out += [float(side) for base, large, side in shorter if base < large]
    return out


def _extrapolate_grid(
    few: Fewer, made: Sequence[GridTimes], used: Sequence[str], values: Floats, grid: GridAt
) -> tuple[Floats, Floats]:
    """Return values of each grid taken to another one in a way, and by what they miss it.

    Nothing takes less time on a longer grid.
    """
    table = np.array([_features(few, one.few.grid, used) for one in made])
    there = _least_squares(table, values.reshape(len(made), -1))
    at = np.maximum(np.array(_features(few, grid, used)) @ there, 0.0)
    return at.reshape(values.shape[1:]), (table @ there).reshape(values.shape) - values


@dataclass(frozen=True)
class Way:
    """A way in which times of a phase change with the grid: (columns,) at the large one.

    ``off``: the largest share of a grid's communication by which it misses one. ``possible``: the
    ways that were looked at, ``low``, ``high``: the ends of communication by those that meet the
    grids; ``missed``: by which share the smaller grids miss the largest one.
    """

    used: tuple[str, ...]
    at: Floats
    off: float
    possible: tuple[tuple[str, ...], ...] = ()
    low: float = 0.0
    high: float = 0.0
    missed: float = 0.0


#: Those of all phases.
Ways = tuple[Way, ...]


def _list_features(ways: Ways) -> tuple[str, ...]:
    """Return all that times of some phase change with."""
    names = dict.fromkeys(name for used in _WAYS for name in used)
    return tuple(name for name in names if any(name in way.used for way in ways))


def _ways(
    few: Fewer,
    made: Sequence[GridTimes],
    means: Floats,
    grid: GridAt,
    ways: Sequence[tuple[str, ...]] = _WAYS,
    least: Floats | float = 1e-300,
) -> list[Way]:
    """Return the ways that have no more unknowns than there are grids, the simplest first.

    ``means``: of each grid, (grids, columns). Shares are of no less communication than ``least``.
    """
    found = []
    for used in ways:
        if len(_features(few, grid, used)) <= len(made):
            at, apart = _extrapolate_grid(few, made, used, means, grid)
            off = np.abs(apart[:, COMM]) / np.maximum(means[:, COMM], least)
            found.append(Way(used, at, float(off.max())))
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


def _choose_way(few: Fewer, made: Sequence[GridTimes], phase: int, like: Way | None) -> Way:
    """Return how times of a phase change with the grid: each has a way of its own.

    That is the simplest that meets all grids, or is hardly further off than any. ``like``: the way,
    where it is known.
    """
    means = np.stack([one.mean[:, phase] for one in made])
    least = np.maximum(_SMALL * np.array([one.mean[COMM].sum() for one in made]), 1e-300)
    possible = _possible(few, made, phase) if like is None else [like.used]
    ways = _ways(few, made, means, few.large, possible, least)
    enough = max(_MET, _HARDLY * min(way.off for way in ways))
    way = next(way for way in ways if way.off <= enough)
    others = [float(each.at[COMM]) for each in ways if each.off <= max(_NEARLY_MET, way.off)]
    last, rest = _last_and_rest(made)
    held = _ways(few, rest, np.delete(means, made.index(last), 0), last.few.grid, [way.used])
    true, missed = float(last.mean[COMM, phase]), 0.0
    if held and true > 0:
        missed = abs(float(held[0].at[COMM]) / true - 1.0)
    looked_at = tuple(possible) if like is None else like.possible
    return replace(way, possible=looked_at, low=min(others), high=max(others), missed=missed)


def _last_and_rest(made: Sequence[GridTimes]) -> tuple[GridTimes, list[GridTimes]]:
    """Return the longest grid, and the others."""
    last = max(made, key=lambda one: one.few.n)
    return last, [one for one in made if one is not last]


def taken_to(
    few: Fewer,
    ranks: Ints | None,
    made: Sequence[GridTimes],
    like: Ways | None = None,
    checked: GridCheck | None = None,
) -> tuple[Communication, Ways]:
    """Return the communication of the large grid from that of smaller ones, and the ways there.

    ``ranks``: those of the large grid that are wanted, None: all. ``like``: the ways in which times
    change with the grid, where they are known: of the same program with other costs.
    """
    base, n = made[0], few.large.n
    last, _ = _last_and_rest(made)
    phases = range(base.mean.shape[1])
    ways = tuple(_choose_way(few, made, k, None if like is None else like[k]) for k in phases)
    at = np.stack([way.at for way in ways], axis=1)
    extent_low, extent_high, each = np.array([(w.low, w.high, w.missed) for w in ways]).T
    share = at[COMM] / max(float(at[COMM].sum()), 1e-300)
    missed, late = float(each @ share), _slowest_missed(few, made, ways)
    # as much again with each doubling, and no less than such grids miss elsewhere
    doublings = max(math.log2(n / last.few.n), 1.0)
    beyond = np.maximum(np.maximum(each, late) * doublings, _MISSED)
    off = max(missed, late)
    if checked is not None:
        once = max(abs(checked.missed), abs(checked.slowest))
        beyond = np.maximum(beyond, np.maximum(np.abs(checked.each), once))
        off = max(off, float(np.abs(checked.each) @ share), once)
    more, more_off = _fit_variation(made, n)
    ends = np.stack([one.ends for one in made])
    least, most = ends[:, 0].min(axis=0), ends[:, 1].max(axis=0)
    stood = few.standing_for(ranks)
    at_rank = _at_places(few, made, ways, at)[:, stood]
    much = np.maximum(at_rank[COMM], at[COMM])
    below = np.maximum(at[COMM] - extent_low, beyond * much)
    above = np.maximum(extent_high - at[COMM], beyond * much)
    comm = at_rank[COMM] + more
    low = np.minimum(at_rank[COMM] * least + more - (below + more_off), comm)
    high = np.maximum(at_rank[COMM] * most + more + (above + more_off), comm)
    at_rank[[COMM, WAITING]] += more
    where = (checked.n, checked.missed, checked.slowest) if checked is not None else ()
    found = replace(
        base.found,
        n=n,
        seconds=np.concatenate([at_rank, [np.maximum(low, 0.0), high]]),
        notes=(*base.found.notes, _describe_grids(made, ways, missed), _told_check(checked)),
        stand_ins=StandIns(len(made), last.few.n, _list_features(ways), missed, off, *where),
        beside=base.computed[stood],
    )
    return found, ways


def _at_places(few: Fewer, made: Sequence[GridTimes], ways: Ways, at: Floats) -> Floats:
    """Return what the ranks take that each of the smallest grid stands for, (columns, ranks,
    phases); ``at``: the means by the ways, (columns, phases).

    A root, a border and what lies between take each what they take on longer grids. Those that have
    the phase's way take in the mean what that says; what others take more is on top of it.
    """
    found, usual, own = _by_places(few, made, ways, few.large)
    weight = (few.weight / few.large.n)[:, None]
    left = at - (weight * usual).sum(axis=1)
    share = (weight * ~own).sum(axis=0)
    moved = np.where(share > _MOST_USUAL, left / np.maximum(share, _MOST_USUAL), 0.0)
    return np.asarray(np.maximum(found + ~own * moved[:, None, :], 0.0), dtype=np.float64)


def _by_places(
    few: Fewer, made: Sequence[GridTimes], ways: Ways, grid: GridAt
) -> tuple[Floats, Floats, Bools]:
    """Return the times of each place by what they are on some grids, those by the phase's way, and
    which have their own way.

    (columns, ranks, phases) twice and (ranks, phases). A place has the phase's way, but for one
    that misses it by far where another does not.
    """
    times = np.stack([one.on(few) for one in made])
    found, own = np.empty(times.shape[1:]), np.zeros(times.shape[2:], dtype=bool)
    alike = np.empty(times.shape[1:])
    mean = np.stack([one.mean[COMM] for one in made])
    for phase, way in enumerate(ways):
        here = times[..., phase]
        least = np.maximum(np.maximum(here[:, COMM], mean[:, phase, None]), 1e-300)

        def by(used: tuple[str, ...], here: Floats = here, least: Floats = least) -> Any:
            at, apart = _extrapolate_grid(few, made, used, here, grid)
            return at, (np.abs(apart[:, COMM]) / least).max(axis=0)

        alike[..., phase], usual = by(way.used)
        found[..., phase] = alike[..., phase]
        for used in (one for one in way.possible if one != way.used):
            if len(_features(few, grid, used)) < len(made):
                at, off = by(used)
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


def _slowest_missed(few: Fewer, made: Sequence[GridTimes], ways: Ways) -> float:
    """Return by how much the smaller grids miss how long the largest one takes, as a share."""
    last, rest = _last_and_rest(made)
    if len(rest) < max(len(_features(few, few.grid, way.used)) for way in ways):
        return 0.0
    found, _, _ = _by_places(few, rest, ways, last.few.grid)
    said = found[COMM][few.standing_for_those_of(last.few)]
    return abs(slower(said, last.times[COMM], last.computed))


def _fit_variation(made: Sequence[GridTimes], n: int) -> tuple[Floats, Floats]:
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


def _describe_grids(made: Sequence[GridTimes], ways: Ways, missed: float) -> str:
    words = {
        "log": "the logarithm of the ranks",
        "sides": "the sides of the grid",
        "ranks": "the number of ranks",
    }
    rests = " and ".join(words[each] for each in _list_features(ways))
    largest = max(one.few.n for one in made)
    return (
        f"{len(made)} grids of up to {largest:,} ranks were simulated "
        "with the sizes and the work of the large one; their time "
        + (f"changes with {rests}" if rests else "does not change with the grid")
        + f", and the smaller ones meet the largest to {figures(100 * missed)} %"
    )


def _told_check(checked: GridCheck | None) -> str:
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
