"""Runs of another input: work, time, calls and bytes per place and rank, and what they must be.

Cells of runs and of the model at any count have the same shape, so that ranks of a run with another
input can be compared with ranks of the model's own. A run that gives a far point is of the same
program and phases with less to do. The runs are folded together with those of the study, and
compared phase by phase, per iteration, so that another number of time steps is no larger or smaller
input.

Source of the walk: thesis section 6.2, step 3: from the smallest count upwards, along the counts
the program admits, until cycles per instruction stop falling, or resources end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from p3s.base.errors import P3SError
from p3s.base.ops import COMPLETION, kind_of
from p3s.costs.gather import (
    Spent,
    by_place_and_rank,
    in_the_run,
    numbers_of,
    places_of,
    spent_in,
    weights_at,
    work_of,
)
from p3s.costs.points import Place
from p3s.costs.small_runs.sites import BY_SITE, list_nodes, share
from p3s.costs.types import REACHED, least_cost
from p3s.model.evaluate import generate, model_grid
from p3s.model.grid import admissible
from p3s.model.tree import phase_stages
from p3s.model.types import Admissible, Model, Phase
from p3s.signature.phases import RELEVANT_SHARE
from p3s.signature.rank import INSTRUCTIONS
from p3s.signature.similarity import FOREIGN
from p3s.signature.structure import Node, Structure, structure
from p3s.signature.tables import PointTable
from p3s.signature.times import Times

#: Up to so many ranks are evaluated one by one; above, some of them stand for all.
_ALL_RANKS, _SOME_RANKS = 256, 96


@dataclass(frozen=True)
class InputRuns:
    """Runs of one input of the program, places named as those of the study.

    name: of their study inside the study; tables: of all counts, times: by count. how: call sites
    were matched, in words. problem: why they cannot be read, then there are no tables.
    """

    name: str
    command: tuple[str, ...]
    counts: tuple[int, ...]
    tables: Sequence[PointTable] = ()
    times: Mapping[int, Times] | None = None
    how: str = BY_SITE
    problem: str = ""

    def spent(self, t: PointTable, places: Sequence[Place]) -> Spent | None:
        """Return the time that the runs of one count took, None where none was measured."""
        times = (self.times or {}).get(t.np)
        return None if times is None else spent_in(places, times)


@dataclass(frozen=True)
class Cells(Spent):
    """What the ranks of one count do before and in the calls of each place.

    work, calls, nbytes: (places, ranks), sums over a run; ``work`` before the calls (0 before
    MPI_Init), ``nbytes`` of messages (completions move nothing). weight: iterations per phase, NaN
    where unknown. Times are 0 where none are known.
    """

    n: int
    calls: np.ndarray
    nbytes: np.ndarray
    weight: np.ndarray


def measure_cells(
    t: PointTable,
    places: Sequence[Place],
    weight: np.ndarray,
    spent: Spent | None = None,
    counted: bool = True,
) -> Cells:
    """Return what the ranks of a run did; weight: iterations of each phase in it.

    counted: work is, so that the time of segments that a timed run did not have equally often is
    that of the work in the table.
    """
    moves = np.array([g.kind != COMPLETION for g in t.groups] or [False])
    place = numbers_of(places, ((g.site, g.op) for g in t.groups))[t.group]
    work, calls, nbytes = (
        by_place_and_rank(place, t.rank, values, (len(places), t.np))
        for values in (t.work, t.count, t.count * t.nbytes * moves[t.group])
    )
    work = work * in_the_run(places)
    none = np.zeros(work.shape)
    spent = spent or Spent(none, none, none, 0)
    scale = np.ones(work.shape)
    if counted:
        np.divide(work, spent.work, out=scale, where=spent.work > 0)
    return Cells(
        spent.least * scale, spent.typical * scale, work, spent.repeats, t.np, calls, nbytes, weight
    )


class PredictedCells:
    """The model of an input at any count, evaluated once for each."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.places, self.phase = places_of(model)
        self._known: dict[int, Cells | None] = {}

    def at(self, n: int) -> Cells | None:
        """Return the cells at ``n``, None where the program's process grid has no form there."""
        if n not in self._known:
            try:
                self._known[n] = self._cells(n)
            except P3SError:
                self._known[n] = None
        return self._known[n]

    def _cells(self, n: int) -> Cells:
        ranks = None if n <= _ALL_RANKS else some_ranks(model_grid(self.model, n).dims, n)
        rows = generate(self.model, n, ranks)
        found = work_of(self.model, rows, widths=False)
        moves = np.array([kind_of(it.op) != COMPLETION for it in self.model.items] or [False])
        place = numbers_of(self.places, ((it.site, it.op) for it in self.model.items))[rows.item]
        rank = np.searchsorted(found.ranks, rows.rank)

        calls, nbytes = (
            by_place_and_rank(place, rank, values, found.work.shape)
            for values in (rows.repeat, rows.repeat * rows.nbytes * moves[rows.item])
        )
        work = found.as_in_a_run() * in_the_run(self.places)
        weight = weights_at(self.model, rows.grid, traced=False)
        none = np.zeros(work.shape)
        return Cells(none, none, work, 0, n, calls, nbytes, weight)


def some_ranks(dims: Sequence[int], n: int) -> np.ndarray:
    """Return ranks that stand for all ``n`` of them: borders, middle and some in between."""
    ends = [sorted({c for c in (0, 1, p // 2, p - 2, p - 1) if 0 <= c < p}) for p in dims]
    mesh = np.meshgrid(*ends, indexing="ij")
    at = np.ravel_multi_index([m.ravel() for m in mesh], tuple(dims)) if dims else np.zeros(0)
    return np.unique(
        np.concatenate(
            [np.array([0, 1, n - 2, n - 1]), at[at < n], np.linspace(0, n - 1, _SOME_RANKS)]
        ).astype(np.int64)
    )


def interpolate_value(points: Mapping[int, float], n: float) -> float:
    """Return a value at ``n`` from those at the two counts next to it: by a power law, by a
    straight line where one of them is 0; 0 without points."""
    if n in points:
        return points[int(n)]
    counts = sorted(points)
    if len(counts) < 2:
        return points[counts[0]] if counts else 0.0
    above = int(np.clip(np.searchsorted(counts, n), 1, len(counts) - 1))
    low, high = counts[above - 1], counts[above]
    a, b = points[low], points[high]
    if a <= 0 or b <= 0:
        return max(a + (b - a) * (n - low) / (high - low), 0.0)
    return float(a * (n / low) ** (math.log(b / a) / math.log(high / low)))


Turns = dict[tuple[int, int], float]


def phase_turns(own: Sequence[PointTable], other: Sequence[PointTable], model: Model) -> Turns:
    """Return (phase of the model, count) -> iterations in the other workload's runs, on the rank
    with most of them; what cannot be told is left out.

    The loop of a phase is the innermost one around its calls that turns, at every count of the
    study, as often as the model says.
    """
    # the largest count decides what is a walk from partner to partner, and is the study's own
    s = structure([*own, *(replace(t, np=-t.np) for t in other)])
    number = {node: k for k, node in enumerate(s.nodes)}
    out: Turns = {}
    for phase in model.phases:
        nodes = sorted(
            {
                number[key]
                for i in phase.items
                for it in [model.items[i]]
                if (key := (it.site, it.op)) in number
            }
        )
        loop = _loop_of(s, nodes, phase, model)
        for t in other:
            found = 1.0
            if phase.parent is not None:
                stages = _stages(model, phase, t.np)
                found = 0.0 if loop is None else _turns(s, loop, -t.np, stages)
            if found:
                out[(phase.phase, t.np)] = found
    return out


def _loop_of(s: Structure, nodes: Sequence[int], phase: Phase, model: Model) -> int | None:
    """Return the number of the loop that a phase is in the tree of both workloads."""
    around = {int(k) for v in nodes for k in s.nest.around[v] if k > 0}
    wanted = {n: v for n, v in phase.weight_points if n in s.counts}
    for k in sorted(around, reverse=True):  # inner loops have higher numbers
        if wanted and all(
            _turns(s, k, n, _stages(model, phase, n)) == v for n, v in wanted.items()
        ):
            return k
    return None


def _turns(s: Structure, loop: int, n: int, stages: int) -> float:
    return max((t for (m, _), t in s.nest.loops[loop].turns.items() if m == n), default=0) // max(
        stages, 1
    )


def _stages(model: Model, phase: Phase, n: int) -> int:
    if not phase.fused_stages:
        return 1
    try:
        return phase_stages(phase, model.items, model_grid(model, n))
    except P3SError:  # the rule for the grid does not admit a count that ran
        return 1


# ---- what makes a run a smaller input ----------------------------------------------------------
#: By how much an input may exceed the study's, or stay below it, and still be as large.
_MORE, _LESS = 1.02, 0.98
_SHOWN = 3


def check_program(own: Sequence[PointTable], table: PointTable, where: str) -> None:
    """Raise P3SError where a run is of another program: the study mostly lacks its places.

    own: tables of the study; where: what the sentence begins with.
    """
    units = {t.work_unit for t in own}
    if (table.work_unit == INSTRUCTIONS) != (INSTRUCTIONS in units):
        raise P3SError(
            f"{where}: work was measured in {table.work_unit} and in "
            f"{' and '.join(sorted(units))} in the study; record it again with the study's --work"
        )
    here, unknown = list_nodes(table), _unknown(own, table)
    if len(unknown) > FOREIGN * len(here):
        raise P3SError(
            f"{where}: a different program: {len(unknown)} of its {len(here)} places "
            f"are not in the study ({_list_calls(unknown, table)}); run the study's own "
            f"program ({_module(own)}) with a smaller input"
        )


def _unknown(own: Sequence[PointTable], table: PointTable) -> list[Node]:
    known = {node for t in own for node in list_nodes(t)}
    return [node for node in list_nodes(table) if node not in known]


def _list_calls(nodes: Sequence[Node], t: PointTable) -> str:
    shown = [
        f"{op} in {t.sites[site][0] if t.sites.get(site) else site or '?'}"
        for site, op in nodes[:_SHOWN]
    ]
    return ", ".join(shown) + (", ..." if len(nodes) > _SHOWN else "")


def _module(own: Sequence[PointTable]) -> str:
    """Return the name of the file that most of the study's calls are made from."""
    names = [frames[0].partition("+")[0] for t in own for frames in t.sites.values() if frames]
    return max(sorted(set(names)), key=names.count) if names else "the same file"


@dataclass(frozen=True)
class PhaseCost:
    """Cost per unit of work of one phase at ascending counts, and whether its least was reached.

    cost: ns per instruction; where work is time, its time per iteration over all ranks, which falls
    as its cost does as long as the work of all ranks together stays the same. at: the count of the
    least cost; status: one of REACHED, FALLING, STEADY (it has not fallen at all), UNKNOWN."""

    phase: int
    name: str
    counts: tuple[int, ...]
    cost: tuple[float, ...]
    status: str
    at: int | None


class Reference(PredictedCells):
    """A study's model and its own runs, which runs of a smaller input are compared with."""

    def __init__(self, model: Model, own: InputRuns) -> None:
        super().__init__(model)
        self.own = own
        self.counted = model.work_unit == INSTRUCTIONS
        traced = {
            (p.phase, t.np): 1.0 if p.parent is None else float(dict(p.weight_points).get(t.np, 0))
            for t in own.tables
            for p in model.phases
        }
        self.cells = self._measure(own, traced)

    def measured(self, runs: InputRuns) -> dict[int, Cells]:
        """Return what the ranks did in runs of another input, by count."""
        return self._measure(runs, phase_turns(self.own.tables, runs.tables, self.model))

    def _measure(self, runs: InputRuns, turns: Turns) -> dict[int, Cells]:
        return {
            t.np: measure_cells(
                t,
                self.places,
                np.array([turns.get((p.phase, t.np), math.nan) for p in self.model.phases]),
                runs.spent(t, self.places),
                self.counted,
            )
            for t in runs.tables
        }

    def total(self, values: np.ndarray, k: int) -> float:
        """Return values per (place, rank) summed over a phase."""
        return float(values[self.phase == k].sum())

    def relevant(self, n: int) -> list[int]:
        """Return the loops with more than 1 % of the time at the own count nearest to ``n``."""
        loops = [p.phase for p in self.model.phases if p.parent is not None]
        return [k for k in loops if self._share([k], n) > RELEVANT_SHARE]

    def _share(self, phases: Sequence[int], n: int) -> float:
        """Return the share of phases in the time at the own count nearest to ``n``."""
        nearest = min(self.own.tables, key=lambda t: (abs(math.log(t.np / n)), t.np))
        return share(
            nearest, (self.places[row] for row in np.flatnonzero(np.isin(self.phase, phases)))
        )

    # ---- what is refused
    def refuse(self, far: PointTable) -> None:
        """Raise P3SError where a run gives no far point, in one line that says why."""
        where, own = f"np={far.np}", self.own.tables
        if far.np < 2:
            raise P3SError(
                f"{where}: one process has nobody to communicate with, so there are no "
                "phases to compare; run it at two or more"
            )
        unknown = _unknown(own, far)
        plain = {(site.partition("#")[0], op) for t in own for site, op in list_nodes(t)}
        apart = [node for node in unknown if (node[0].partition("#")[0], node[1]) in plain]
        if apart and share(far, apart) > RELEVANT_SHARE:
            raise P3SError(
                f"{where}: calls that are made through one line of the program cannot be "
                f"told apart as they are in the study ({_list_calls(apart, far)}); choose an "
                "input with more iterations"
            )
        check_program(own, far, where)
        part = share(far, unknown)
        if part > RELEVANT_SHARE:
            raise P3SError(
                f"{where}: other phases: {100 * part:.0f} % of the computation is at "
                f"places that the study does not reach ({_list_calls(unknown, far)}); choose an "
                "input that takes the same way through the program"
            )
        here = self.measured(InputRuns("", (), (far.np,), [far]))[far.np]
        missing = [k for k in self.relevant(far.np) if not self.total(here.calls, k)]
        if missing:
            names = ", ".join(self.model.phases[k].name for k in missing[:_SHOWN])
            raise P3SError(
                f"{where}: other phases: what takes {100 * self._share(missing, far.np):.0f} % "
                f"of the study's time ({names}) does not occur; "
                "choose an input that takes the same way through the program"
            )
        self._refuse_size(here, where)

    def _refuse_size(self, here: Cells, where: str) -> None:
        """Refuse an input that is not smaller, per process and iteration of the phases.

        Where work is time, which wanders from run to run, bytes alone tell a larger one. What
        carries as many is no larger for having taken longer: it is compared with nothing."""
        work, nbytes = self._ratio(here, "work"), self._ratio(here, "nbytes")
        told = f"{work:.3g} times its {'work' if self.counted else 'time'}"
        if not math.isnan(nbytes):
            told += f" and {nbytes:.3g} times its bytes"
        if nbytes > _MORE or (self.counted and work > _MORE):
            raise P3SError(
                f"{where}: a larger workload: {told} per process and iteration of the phases, "
                "compared with the study's own; give a smaller input"
            )
        if self.counted and work > _LESS:
            raise P3SError(
                f"{where}: no smaller workload than the study's own ({told} per process "
                "and iteration of the phases); give a smaller input"
            )

    def _ratio(self, here: Cells, what: str) -> float:
        """Return the work or bytes of a run as a part of the study's at as many processes.

        Compared are the relevant phases, each with as many iterations as the study makes; what the
        study has at a count between its own is interpolated. NaN where the study has none."""
        mine = theirs = 0.0
        for k in self.relevant(here.n) or range(len(self.model.phases)):
            own = {n: c for n, c in self.cells.items() if c.weight[k] > 0}
            turns = interpolate_value({n: float(c.weight[k]) for n, c in own.items()}, here.n)
            theirs += interpolate_value(
                {n: self.total(getattr(c, what), k) for n, c in own.items()}, here.n
            )
            if here.weight[k] > 0:
                mine += self.total(getattr(here, what), k) * turns / here.weight[k]
        return mine / theirs if theirs > 0 else math.nan

    # ---- what it costs
    def costs(self, far: InputRuns) -> list[PhaseCost]:
        """Return the cost of every relevant phase over the counts of a smaller input."""
        cells = self.measured(far)
        out = []
        for k in self.relevant(min(self.cells)):
            found = self._costs(k, cells)
            # times per iteration of another input are no costs that can be compared with it
            before = self._costs(k, self.cells) if self.counted else {}
            counts, cost = tuple(found), tuple(found.values())
            status, at = least_cost(counts, cost, max(before.values(), default=0.0))
            name = self.model.phases[k].name
            out.append(PhaseCost(k, name, counts, cost, status, at if status == REACHED else None))
        return out

    def _costs(self, k: int, cells: Mapping[int, Cells]) -> dict[int, float]:
        out = {}
        for n, here in sorted(cells.items()):
            time = self.total(here.least, k)
            amount = self.total(here.work, k) if self.counted else float(here.weight[k])
            if time > 0 and here.weight[k] > 0 and amount > 0:
                out[n] = time / amount
        return out


# ---- the walk upwards ---------------------------------------------------------------------------
#: The next count is at least so many times the one before.
_STEP = 1.3


def counts_upward(known: Admissible, traced: Sequence[int], up_to: int) -> list[int]:
    """Return the counts of the walk: from the smallest traced one (two at least) to ``up_to``.

    known: of p3s.model.grid.admissible.learn. Traced counts are preferred, else about doubled.
    """
    first = min((n for n in traced if n > 1), default=2)
    out = [first] if first <= up_to else []
    while out:
        low, high = out[-1] * _STEP, out[-1] * 2
        mine = [
            n for n in range(out[-1] + 1, up_to + 1) if n >= low and admissible.admits(known, n)
        ]
        if not mine:
            break
        near = [n for n in mine if n <= high] or mine[:1]
        liked = [n for n in near if n in traced]
        out.append(max(liked or near))
    return out


def stop(found: Sequence[PhaseCost]) -> bool:
    """Tell whether no phase gets cheaper at larger counts, as far as is known."""
    return bool(found) and all(each.status == REACHED for each in found)
