"""Points of another input's runs: work, time, place among the study's own counts; far.json."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from p3s.base.errors import P3SError
from p3s.base.serialise import FileFormat, Natural, NotNegative, ProcessCount
from p3s.costs.gather import points_of
from p3s.costs.points import Point
from p3s.costs.small_runs.cells import (
    Cells,
    InputRuns,
    PhaseCost,
    PredictedCells,
    Reference,
    check_program,
)
from p3s.costs.small_runs.lookup import Curve, Match, Role, kinds_of, look_up, rank_groups
from p3s.costs.small_runs.places import HOW, SITE
from p3s.model.work.scic import ranges

#: Counts by work and by bytes that differ by more, relative: blocks of another shape.
SHAPE = 0.10
#: Counts by the messages of single places may be so many times apart: where the dimensions of the
#: grid are doubled in turn, each message is that of two counts.
_SHAPE = 2.5
#: Where work is time: times at the same count that differ by more are of other computations.
_REFUTED = 1.5
#: What is said where that is so, and what shows it follows.
REFUTED = "cannot be compared: its computation does not go with its messages, as"
#: Messages that differ by no more than this, relative, have the same size.
_SAME_SIZE = 0.01


@dataclass(frozen=True)
class Found:
    """A group of ranks of a phase at one count, ``np``, of another input.

    ranks: (first, last) of each row of ranks; x: work per iteration, where it is known; nbytes: per
    process and iteration; turns: iterations; by_work, by_bytes: where the original input has as
    much; n: what holds (by work where work is counted, by bytes where it is time); points: one per
    place, none where no time is known."""

    np: ProcessCount
    phase: Natural
    ranks: tuple[tuple[int, int], ...]
    turns: NotNegative
    x: float | None
    nbytes: NotNegative
    n: NotNegative | None
    by_work: Match
    by_bytes: Match
    points: tuple[Point, ...] = field(default=(), repr=False)

    @property
    def number(self) -> int:
        """How many ranks they are."""
        return sum(last - first + 1 for first, last in self.ranks)

    @property
    def cost(self) -> float | None:
        """The least time per unit of work, where it is known."""
        time = sum(p.least_ns * p.ranks for p in self.points)
        return time / self.number / (self.x * self.turns) if self.points and self.x else None

    @property
    def other_shape(self) -> bool:
        """Whether the counts by work and by bytes differ: the blocks have another shape."""
        if not self.by_work.n or not self.by_bytes.n:
            return False
        return not 1 / (1 + SHAPE) <= self.by_bytes.n / self.by_work.n <= 1 + SHAPE


#: By count: the groups of all phases.
Groups = Mapping[int, Sequence[Found]]


def match_all(reference: Reference, inputs: Sequence[InputRuns]) -> dict[str, Groups | P3SError]:
    """Return name -> groups of ranks of every other input, or why it cannot be compared.

    A phase in which one of them is refuted by the study's own runs does not go with the messages
    in the others either, also where these have no count in common with it.
    """
    out: dict[str, Groups | P3SError] = {}
    refuted: dict[int, str] = {}
    for one in inputs:
        try:
            if one.problem:
                raise P3SError(one.problem)
            found = match_input(reference, one)
        except P3SError as err:
            out[one.name] = err
            continue
        out[one.name] = found
        for groups in found.values():
            for g in groups:
                if g.by_bytes.refuted:
                    refuted.setdefault(g.phase, one.name)
    return {
        name: one if isinstance(one, P3SError) else _refuted_by(one, name, refuted)
        for name, one in out.items()
    }


def _refuted_by(groups: Groups, name: str, refuted: Mapping[int, str]) -> Groups:
    with_points = {g.phase for several in groups.values() for g in several if g.points}
    whys = {
        phase: f"{REFUTED} {by} shows"
        for phase, by in refuted.items()
        if by != name and phase in with_points
    }
    return _without(groups, whys)


def match_input(reference: Reference, runs: InputRuns) -> Groups:
    """Return the groups of ranks of all counts of another input.

    Raises P3SError where they are of another program or measured in another unit.
    """
    for t in runs.tables:
        check_program(reference.own.tables, t, f"{runs.name} at np={t.np}")
    predicted = PredictedCells(reference.model)
    out: Groups = {
        n: _Matching(predicted, cells, runs.name, reference.counted).found()
        for n, cells in reference.measured(runs).items()
    }
    if reference.counted:
        return out
    return _without(out, _refutations(out, reference.model.counts))


def _refutations(found: Groups, counts: Sequence[int]) -> dict[int, str]:
    """Return the phases in which the study's own runs refute the matches, and why.

    Where work is time the count comes from the messages. Where it lies among the study's own
    counts, both times are known: if they differ, the computation does not go with the messages.
    """
    whys: dict[int, str] = {}
    for groups in found.values():
        for phase in {g.phase for g in groups}:
            known = [
                g
                for g in groups
                if g.phase == phase and g.points and min(counts) <= (g.n or 0) <= max(counts)
            ]
            there = sum(p.work * p.ranks for g in known for p in g.points)
            here = sum(p.least_ns * p.ranks for g in known for p in g.points)
            if known and not there / _REFUTED <= here <= there * _REFUTED:
                whys[phase] = (
                    f"{REFUTED} own runs show: where its messages are those of the original, at "
                    f"{round(known[0].n or 0)} processes, its computation takes {here / there:.2g} "
                    "times as long"
                )
    return whys


def _without(found: Groups, whys: Mapping[int, str]) -> Groups:
    """Return the groups without the points of the phases in ``whys``."""
    return {
        n: [
            replace(g, x=None, n=None, by_bytes=Match(why=whys[g.phase], refuted=True), points=())
            if g.phase in whys
            else g
            for g in groups
        ]
        for n, groups in found.items()
    }


@dataclass(frozen=True)
class _Matching:
    """The look-up of one count of another input; counted: work is, else it is time."""

    predicted: PredictedCells
    cells: Cells
    source: str
    counted: bool

    def found(self) -> list[Found]:
        """Return the groups of all phases that run in this run."""
        parts = [
            (Curve(self.predicted, k, roles, self.counted), mine)
            for k in range(len(self.cells.weight))
            for mine, roles in self._groups(k)
        ]
        by_bytes = [self._by_bytes(curve, mine) for curve, mine in parts]
        rest = None if self.counted else self._of_all(parts, by_bytes)
        return [
            self._one(curve, mine, match, rest)
            for (curve, mine), match in zip(parts, by_bytes, strict=True)
        ]

    def _groups(self, k: int) -> list[tuple[np.ndarray, list[Role]]]:
        """Return the ranks that take part in a phase, those alike together.

        Where work is time, which is never the same twice, those are alike that make the same
        calls and move as much.
        """
        here = self.predicted.phase == k
        there = np.flatnonzero((self.cells.calls[here] > 0).any(axis=0))
        if not len(there) or not self.cells.weight[k] > 0:
            return []
        calls = self.cells.calls[here][:, there] / self.cells.weight[k]
        amounts = self.cells.work if self.counted else self.cells.nbytes
        found = rank_groups(amounts[here].sum(axis=0)[there], calls)
        if self.counted:
            return [(there[mine], roles) for mine, roles in found]
        kinds, kind = kinds_of(calls)
        return [
            (there[mine[kind[mine] == i]], [replace(role, share=1.0)])
            for mine, roles in found
            for i in np.unique(kind[mine])
            for role in roles
            if role.calls == tuple(float(c) for c in kinds[i])
        ]

    def _per_turn(self, values: np.ndarray, k: int, mine: np.ndarray) -> float:
        each = values[self.predicted.phase == k].sum(axis=0)
        return float(each[mine].mean() / self.cells.weight[k])

    def _by_bytes(self, curve: Curve, mine: np.ndarray) -> Match:
        k = curve.phase
        nbytes = self._per_turn(self.cells.nbytes, k, mine)
        if nbytes <= 0:
            return Match(why="there are no messages")
        curve = replace(curve, of="nbytes")
        found = look_up(curve, nbytes, self.cells.n, refine=False)
        if self.counted or not found.n:
            return found
        # here all rests on the messages: a wrong count would put the cost at a wrong x
        if self._same_sizes(k, mine):
            return Match(
                why="cannot be compared: its messages are as large as those of the "
                "original at as many processes"
            )
        if not curve.has(found.n):
            return Match(
                why=f"cannot be compared: no process makes just these calls at "
                f"{round(found.n)} processes"
            )
        each = [
            m.n
            for p in np.flatnonzero(self.predicted.phase == k).tolist()
            if (one := float(self.cells.nbytes[p, mine].mean() / self.cells.weight[k])) > 0
            and (m := look_up(replace(curve, place=p), one, self.cells.n, refine=False)).n
        ]
        if each and max(each) > _SHAPE * min(each):
            return Match(
                why="cannot be compared: the blocks have another shape, some messages are "
                f"those of {round(min(each))} processes and some of "
                f"{round(max(each))}"
            )
        return found

    def _same_sizes(self, k: int, mine: np.ndarray) -> bool:
        """Tell whether every call of a group carries what it does in the original at that count.

        Then the messages do not depend on the input, or the input is the same.
        """
        own = self.predicted.at(self.cells.n)
        if own is None:
            return False
        there = np.flatnonzero(
            (self.predicted.phase == k)
            & self.cells.nbytes[:, mine].any(axis=1)
            & own.nbytes.any(axis=1)
        )
        here, theirs = (
            c.nbytes[there].sum(axis=1) / c.calls[there].sum(axis=1) for c in (self.cells, own)
        )
        return bool(np.all(np.abs(here - theirs) <= _SAME_SIZE * theirs))

    def _of_all(
        self, parts: Sequence[tuple[Curve, np.ndarray]], found: Sequence[Match]
    ) -> float | None:
        """Return the count that phases with messages are matched to, the mean by their time."""
        logs, shares = [], []
        for (curve, mine), match in zip(parts, found, strict=True):
            here = self.predicted.phase == curve.phase
            time = float(self.cells.least[here].sum(axis=0)[mine].sum())
            if match.n and time > 0:
                logs.append(math.log(match.n))
                shares.append(time)
        return math.exp(float(np.average(logs, weights=shares))) if logs else None

    def _one(self, curve: Curve, mine: np.ndarray, by_bytes: Match, rest: float | None) -> Found:
        k, turns = curve.phase, float(self.cells.weight[curve.phase])
        if self.counted:
            work = self.cells.work
            x = self._per_turn(work, k, mine)
            by_work = Match(why="there is no work")
            if x > 0:
                by_work = look_up(curve, x, self.cells.n)
            n = by_work.n
        else:
            by_work = Match(why="work is time, which says nothing about the count")
            n = by_bytes.n or rest
            work = np.zeros(self.cells.work.shape)
            for p in np.flatnonzero(self.predicted.phase == k).tolist() if n else ():
                work[p, mine] = turns * (replace(curve, place=p).at(n or 0.0) or 0.0)
            x = self._per_turn(work, k, mine)
        return Found(
            self.cells.n,
            k,
            tuple((first, last) for first, last in ranges(mine)),
            turns,
            x if x > 0 or self.counted else None,
            self._per_turn(self.cells.nbytes, k, mine),
            n,
            by_work,
            by_bytes,
            tuple(self._points(k, mine, n, x, work)) if x > 0 else (),
        )

    def _points(
        self, k: int, mine: np.ndarray, n: float | None, x: float, work: np.ndarray
    ) -> Iterable[Point]:
        """Return the points of a group; work: (places, ranks), what its ranks did."""
        timed = (self.cells.calls > 0) & (self.cells.least > 0)
        whole = replace(self.cells, work=np.where(timed, work, 0.0))
        rows = np.flatnonzero(self.predicted.phase == k).tolist()
        places = [(row, self.predicted.places[row]) for row in rows]
        return points_of(whole, places, k, mine, n, x, self.source, self.cells.n)


@dataclass(frozen=True)
class FarWorkload:
    """Runs of another input: what they stand for, or why they cannot be compared.

    places: how call sites were matched, in words.
    """

    name: str
    command: tuple[str, ...]
    counts: tuple[ProcessCount, ...]
    error: str | None
    places: str
    rows: tuple[Found, ...]
    minimum: tuple[PhaseCost, ...]


@dataclass(frozen=True)
class FarFile:
    """What far.json holds; phases: their names."""

    work_unit: str
    phases: tuple[str, ...]
    workloads: tuple[FarWorkload, ...]

    def valid(self) -> None:
        """Raise ValueError where a row is of no phase."""
        if any(row.phase >= len(self.phases) for one in self.workloads for row in one.rows):
            raise ValueError("a row is of no phase")


FAR = FileFormat("p3s.far", 2, FarFile, True, "run p3s characterize --far again")


def far_file(reference: Reference, inputs: Sequence[InputRuns]) -> FarFile:
    """Return what all other inputs of a study were matched to."""
    matches = match_all(reference, inputs)
    workloads = []
    for one in inputs:
        groups = matches[one.name]
        made = FarWorkload(one.name, one.command, one.counts, None, HOW[SITE], (), ())
        if isinstance(groups, P3SError):
            workloads.append(replace(made, error=str(groups)))
            continue
        rows = tuple(g for _, some in sorted(groups.items()) for g in some)
        least = tuple(reference.costs(one))
        workloads.append(replace(made, places=one.how, rows=rows, minimum=least))
    names = tuple(p.name for p in reference.model.phases)
    return FarFile(reference.model.work_unit, names, tuple(workloads))
