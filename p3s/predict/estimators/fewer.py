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
interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from p3s.predict.estimated import Communication
from p3s.program.fewer import Fewer, Laws, fewer, longer, trace_of
from p3s.replay.costs.estimate import work_of
from p3s.simulate.folded import SETTLED
from p3s.simulate.steps import Floats
from p3s.text import figures, processes

if TYPE_CHECKING:
    from p3s.predict.estimators.messages import Messages
    from p3s.predict.estimators.prepared import Prepared, Program
    from p3s.predict.estimators.settings import Setting
    from p3s.program.collectives.rules import Library
    from p3s.study import Study

#: (what is prepared, its setting, whether with the ends of the interval) -> its communication.
Place = Callable[["Prepared", "Setting", bool], Communication]

#: Up to how many ranks all of them are simulated.
EVERY_RANK = 8192
#: How many times as long grids are in one dimension, the longest where that is not too many steps.
_TIMES, _LONGEST, _LONGEST_OF_MANY, _MANY_STEPS = 2, 4, 3, 2_500_000
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
#: What variation adds is not followed where it is less than this share.
_MATTERS_NOT = 1e-3
#: What smaller grids miss communication by in nine of ten programs of docs/simulation.md.
_MISSED = 0.2
#: Far more nearly met: so many times.
_FAR_MORE = 4.0
#: So much further off than the nearest is hardly so.
_HARDLY = 1.25
_NS_PER_S = 1e9
#: Iterations of a loop that are simulated at once.
_TURNS = 4
#: Columns of a grid's times.
_COMM, _WAITING, _TRANSFER, _SOFTWARE = range(4)


def smaller(study: Study, n: int, cores: int, setting: Setting) -> Fewer | None:
    """Return the smallest grid that stands for ``n`` processes; None: all ranks are simulated.

    ``cores``: ranks of a node. Where nodes or their network are listed one by one, none is.
    """
    if n <= EVERY_RANK or setting.every_rank or setting.topology or setting.listed_at(n):
        return None
    from p3s.model.stage import load
    from p3s.model.verdicts import judged_at

    return fewer(judged_at(load(study.root), n), n, cores)


@dataclass(frozen=True, eq=False)
class _Simulated:
    """A grid with its times in s: (columns, ranks, phases), without any variation.

    ``ends``: those of the mean communication of each phase, as multiples of it, (2, phases), and
    ``more``: what variation adds to that; None where they were not simulated. ``steps``: of the
    rank that has most; ``plain``: mean communication where each collective is one call. ``size``:
    how many steps there are in the iterations that are simulated first.
    """

    few: Fewer
    found: Communication
    times: Floats
    computed: Floats
    ends: Floats | None
    more: Floats | None
    steps: float
    plain: float
    size: int

    @property
    def mean(self) -> Floats:
        """Mean over the ranks of the large grid, (columns, phases)."""
        weight = np.bincount(self.few.stood_for_by, minlength=self.few.n)
        return np.asarray(
            np.einsum("r,crp->cp", weight / weight.sum(), self.times), dtype=np.float64
        )


def estimated(
    messages: Messages,
    study: Study,
    few: Fewer,
    setting: Setting,
    say: Callable[[str], None],
    place: Place,
) -> Communication:
    """Return the communication of the large grid from simulations of smaller ones.

    ``place`` simulates one of them.
    """
    laws = _laws(study, few)

    def simulated(one: Fewer, ends: bool, varied: bool) -> _Simulated:
        extents = " x ".join(map(str, one.dims))
        say(f"{processes(few.large.n)}: simulating a grid of {extents} places")
        return _simulated(messages, one, laws, setting, place, ends, varied and setting.vary)

    made = [simulated(few, True, True)]
    long = _LONGEST if _LONGEST * made[0].size <= _MANY_STEPS else _LONGEST_OF_MANY
    grids = list(_grids(few, (_TIMES, long)))
    last = max(grids, key=lambda one: one.n, default=None)
    varies = (
        made[0].more is not None and made[0].more.sum() > _MATTERS_NOT * made[0].mean[_COMM].sum()
    )
    made += [simulated(one, one is not last, one is last and varies) for one in grids]
    return _taken_to(few, made)


def _laws(study: Study, few: Fewer) -> Laws:
    from p3s.costs.stage import load as load_compute
    from p3s.files.stage import files_of_study

    return Laws(load_compute(study.root), files_of_study(study.root, few.model))


def _grids(few: Fewer, longer_by: Sequence[int]) -> Iterator[Fewer]:
    """Yield the longer grids that are simulated, so many times as long in one dimension each."""
    for times, dimension in product(longer_by, range(len(few.dims))):
        room = (few.large.dims[dimension] - 1) // few.dims[dimension]
        if room > 1 and (times == min(longer_by) or room >= _LONGEST_OF_MANY):
            yield longer(few, dimension, min(times, room))


def _on_nodes(
    messages: Messages, few: Fewer, program: Program, library: Library | None, setting: Setting
) -> Prepared:
    from p3s.predict.estimators.prepared import on_nodes

    whole = setting.mapping_at(few.large.n, messages.cores)
    mapping = setting.mapping_at(few.n, messages.cores)
    ready = on_nodes(program, library, mapping, None)
    _, first = np.unique(mapping.node_of, return_index=True)
    among = whole.node_of[few.stands_for[first]]
    if len(np.unique(among)) < len(among):
        among = np.arange(mapping.nodes) * (whole.nodes // mapping.nodes)
    return replace(ready, of=few.large.n, of_nodes=whole.nodes, among=among)


def _simulated(
    messages: Messages,
    few: Fewer,
    laws: Laws,
    setting: Setting,
    place: Place,
    ends: bool,
    varied: bool,
) -> _Simulated:
    from p3s.predict.estimators.prepared import program_of

    still = replace(setting, vary=False)
    program = program_of(*trace_of(few, laws), queues=messages.queues, most=_TURNS)
    in_calls = _on_nodes(messages, few, program, None, setting)
    plain = place(in_calls, still, False)
    del in_calls  # its columns are as large as those to come
    library = replace(messages.library, chosen_as=few.communicators())
    ready = _on_nodes(messages, few, program, library, setting)
    del program
    calls = [np.bincount(one.full.rank, one.weight, few.n) for one in ready.loops]
    found = place(ready, still, ends)
    more = None
    if varied:
        drawn = place(ready, setting, False)
        more = np.maximum(drawn.comm.mean(axis=0) - found.comm.mean(axis=0), 0.0)
        found = replace(found, notes=drawn.notes)
    weight = np.bincount(few.stood_for_by, minlength=few.n) / few.large.n
    mean = np.maximum(found.comm.mean(axis=0), 1e-300)
    apart = np.stack([found.low.mean(axis=0), found.high.mean(axis=0)]) / mean
    times = np.stack([found.comm, found.waiting, found.transfer, found.software])
    computed = work_of(ready.trace, ready.phases) / _NS_PER_S
    column = np.searchsorted(np.asarray(ready.phases), np.asarray(found.phases))
    return _Simulated(
        few,
        found,
        times,
        computed[:, column],
        apart if ends else None,
        more,
        float(np.sum(calls, axis=0).max()),
        float(weight @ plain.comm.sum(axis=1)),
        sum(len(loop.full) for loop in ready.loops),
    )


def _possible(few: Fewer, made: Sequence[_Simulated]) -> list[tuple[str, ...]]:
    """Return the ways in which times may change with the grid.

    With its sides or its ranks only where steps or waiting do, far more nearly than with the
    logarithm.
    """
    seen = {"log"}
    for values in ([one.steps for one in made], [one.plain for one in made]):
        means = np.array(values).reshape(-1, 1, 1)
        if np.ptp(means) <= _MATTERS * means.min():
            continue
        ways = _ways(few, made, means, few.large.dims, few.large.n)
        off = {way.used: way.off for way in ways}
        seen |= {
            one
            for one in ("sides", "ranks")
            if off["log",] > max(_MET, _FAR_MORE * off.get((one,), math.inf))
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
class _Way:
    """A way in which times change with the grid: (columns, phases) at the large one.

    ``off``: the largest share of a grid's communication by which it misses one.
    """

    used: tuple[str, ...]
    at: Floats
    off: float


def _ways(
    few: Fewer,
    made: Sequence[_Simulated],
    means: Floats,
    dims: Sequence[int],
    n: int,
    ways: Sequence[tuple[str, ...]] = _WAYS,
) -> list[_Way]:
    """Return the ways that have no more unknowns than there are grids, the simplest first.

    ``means``: of each grid, (grids, columns, phases). Nothing takes less time on a longer grid.
    """
    from scipy.optimize import nnls

    flat = means.reshape(len(made), -1)
    whole = np.maximum(means[:, _COMM].sum(axis=1), 1e-300)
    found = []
    for used in ways:
        table = np.array([_features(few, one.few.dims, one.few.n, used) for one in made])
        if used and table.shape[1] > len(made):
            continue
        signed = np.column_stack([-table[:, 0], table])  # what is always there may be less than 0
        each = np.stack([nnls(signed, column)[0] for column in flat.T], axis=1)
        there = np.vstack([each[1] - each[0], each[2:]])
        apart = (table @ there - flat).reshape(means.shape)[:, _COMM]
        at = np.array(_features(few, dims, n, used)) @ there
        off = float((np.abs(apart).sum(axis=1) / whole).max())
        found.append(_Way(used, np.maximum(at, 0.0).reshape(means.shape[1:]), off))
    return found


def _chosen(ways: Sequence[_Way]) -> _Way:
    """Return the simplest way that meets all grids, or is hardly further off than any."""
    enough = max(_MET, _HARDLY * min(way.off for way in ways))
    return next(way for way in ways if way.off <= enough)


def _taken_to(few: Fewer, made: Sequence[_Simulated]) -> Communication:
    """Return the communication of the large grid from that of smaller ones."""
    base, last = made[0], max(made, key=lambda one: one.few.n)
    n = few.large.n
    possible = _possible(few, made)
    means = np.stack([one.mean for one in made])
    ways = _ways(few, made, means, few.large.dims, n, possible)
    way = _chosen(ways)
    at = way.at
    whole = max(float(at[_COMM].sum()), 1e-300)
    others = [each for each in ways if each.off <= max(_NEARLY_MET, way.off)]
    missed = _held_out(few, made, last, way)
    # as much again with each doubling, and no less than such grids miss elsewhere
    beyond = max(missed * max(math.log2(n / last.few.n), 1.0), _MISSED)
    below = max(whole - min(float(each.at[_COMM].sum()) for each in others), beyond * whole)
    above = max(max(float(each.at[_COMM].sum()) for each in others) - whole, beyond * whole)
    more, more_off = _more(made, n)
    ends = np.stack([one.ends for one in made if one.ends is not None])
    least, most = ends[:, 0].min(axis=0), ends[:, 1].max(axis=0)
    shift = at - base.mean
    stood = few.stood_for_by
    own = at[_COMM] / whole  # the part of each phase in what the ways differ by
    at_rank = np.maximum(base.times + shift[:, None, :], 0.0)[:, stood]
    comm = at_rank[_COMM] + more
    waiting = at_rank[_WAITING] + more
    low = np.minimum(at_rank[_COMM] * least + more - (below * own + more_off), comm)
    high = np.maximum(at_rank[_COMM] * most + more + (above * own + more_off), comm)
    followed = base.found.followed
    if missed > SETTLED:
        followed = replace(followed, unsettled=1.0, change=max(missed, followed.change))
    return replace(
        base.found,
        n=n,
        followed=followed,
        comm=comm,
        low=np.maximum(low, 0.0),
        high=high,
        waiting=waiting,
        transfer=at_rank[_TRANSFER],
        software=at_rank[_SOFTWARE],
        notes=(*base.found.notes, _told(made, way, missed)),
        beside=base.computed[stood],
    )


def _held_out(few: Fewer, made: Sequence[_Simulated], last: _Simulated, way: _Way) -> float:
    """Return by how much a way found without the longest grid misses it, as a share of its
    communication."""
    rest = [one for one in made if one is not last]
    means = np.stack([one.mean for one in rest])
    found = _ways(few, rest, means, last.few.dims, last.few.n, [way.used])
    true = float(last.mean[_COMM].sum())
    if not (found and true > 0):
        return 0.0
    return abs(float(found[0].at[_COMM].sum()) / true - 1.0)


def _more(made: Sequence[_Simulated], n: int) -> tuple[Floats, Floats]:
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


def _told(made: Sequence[_Simulated], way: _Way, missed: float) -> str:
    words = {
        "log": "the logarithm of the ranks",
        "sides": "the sides of the grid",
        "ranks": "the number of ranks",
    }
    rests = " and ".join(words[each] for each in way.used)
    largest = max(one.few.n for one in made)
    return (
        f"{len(made)} grids of up to {largest:,} ranks were simulated "
        "with the sizes and the work of the large one; their time "
        + (f"changes with {rests}" if rests else "does not change with the grid")
        + f", and the smaller ones meet the largest to {figures(100 * missed)} %"
    )
