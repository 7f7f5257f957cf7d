"""Points of runs of other inputs: work, time, and the count of the study's own input."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from p3s.base.errors import P3SError
from p3s.costs.gather import points_of
from p3s.costs.points import Point
from p3s.costs.small_runs.cells import Cells, InputRuns, PhaseCost, Reference, check_program
from p3s.costs.small_runs.lookup import Curve, Match, Role, look_up, rank_groups
from p3s.model.work.scic import ranges

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

    ranks: (first, last) of each row of ranks; turns: iterations; x: work per iteration, where it is
    known; nbytes: per process and iteration; n: the count at which the study's input has as much,
    by work where it is counted, by bytes where it is time; why: there is none; points: one per
    place, none where no time is known."""

    np: int
    phase: int
    name: str
    ranks: tuple[tuple[int, int], ...]
    turns: float
    x: float | None
    nbytes: float
    n: float | None
    why: str
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


@dataclass(frozen=True)
class OtherInput:
    """Runs of another input: what they stand for, or why they cannot be compared (``error``).

    places: how call sites were matched, in words; minimum: costs of the relevant phases.
    """

    name: str
    command: tuple[str, ...]
    counts: tuple[int, ...]
    error: str | None
    places: str
    rows: tuple[Found, ...] = ()
    minimum: tuple[PhaseCost, ...] = ()


def match_all(reference: Reference, inputs: Sequence[InputRuns]) -> list[OtherInput]:
    """Return what all other inputs of a study stand for.

    A phase in which one of them is refuted by the study's own runs does not go with the messages
    in the others either, also where these have no count in common with it.
    """
    made = [_match_input(reference, one) for one in inputs]
    refuted = [{} if reference.counted else _refutations(reference, one.rows) for one in made]
    by = {
        phase: f"{REFUTED} {one.name} shows"
        for one, whys in reversed(list(zip(made, refuted, strict=True)))
        for phase in whys
    }
    out = []
    for one, whys in zip(made, refuted, strict=True):
        timed = {g.phase for g in one.rows if g.points}
        whys = {**{phase: why for phase, why in by.items() if phase in timed}, **whys}
        rows = (
            replace(g, x=None, n=None, why=whys[g.phase], points=()) if g.phase in whys else g
            for g in one.rows
        )
        out.append(replace(one, rows=tuple(rows)))
    return out


def _match_input(reference: Reference, runs: InputRuns) -> OtherInput:
    found = OtherInput(runs.name, runs.command, runs.counts, runs.problem or None, runs.how)
    if runs.problem:
        return found
    try:
        for t in runs.tables:
            check_program(reference.own.tables, t, f"{runs.name} at np={t.np}")
        rows = [
            group
            for _, cells in sorted(reference.measured(runs).items())
            for group in _Matching(reference, cells, runs.name).found()
        ]
    except P3SError as err:
        return replace(found, error=str(err))
    return replace(found, rows=tuple(rows), minimum=tuple(reference.costs(runs)))


def _refutations(reference: Reference, rows: Sequence[Found]) -> dict[int, str]:
    """Return the phases in which the study's own runs refute the matches, and why.

    Where work is time the count comes from the messages. Where it lies among the study's own
    counts, both times are known: if they differ, the computation does not go with the messages.
    """
    first, last = min(reference.model.counts), max(reference.model.counts)
    runs: dict[tuple[int, int], list[Found]] = {}
    for g in rows:
        if g.points and first <= (g.n or 0) <= last:
            runs.setdefault((g.np, g.phase), []).append(g)
    whys: dict[int, str] = {}
    for (_, phase), known in runs.items():
        there = sum(p.work * p.ranks for g in known for p in g.points)
        here = sum(p.least_ns * p.ranks for g in known for p in g.points)
        if not there / _REFUTED <= here <= there * _REFUTED:
            whys[phase] = (
                f"{REFUTED} own runs show: where its messages are those of the original, at "
                f"{round(known[0].n or 0)} processes, its computation takes {here / there:.2g} "
                "times as long"
            )
    return whys


@dataclass(frozen=True)
class _Matching:
    """The look-up of one count of another input."""

    predicted: Reference
    cells: Cells
    source: str

    @property
    def counted(self) -> bool:
        """Whether work is counted, else it is time."""
        return self.predicted.counted

    def found(self) -> Iterator[Found]:
        """Yield the groups of all phases that run in this run."""
        parts = [
            (Curve(self.predicted, k, roles, self.counted), mine)
            for k in range(len(self.cells.weight))
            for mine, roles in self._groups(k)
        ]
        if self.counted:
            for curve, mine in parts:
                yield self._by_work(curve, mine)
            return
        matches = [self._by_bytes(curve, mine) for curve, mine in parts]
        rest = self._of_all(parts, matches)
        for (curve, mine), match in zip(parts, matches, strict=True):
            yield self._of_time(curve, mine, match, rest)

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
        level = amounts[here].sum(axis=0)[there]
        found = rank_groups(level, calls, apart=not self.counted)
        return [(there[mine], roles) for mine, roles in found]

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
        if not found.n:
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

    def _by_work(self, curve: Curve, mine: np.ndarray) -> Found:
        x = self._per_turn(self.cells.work, curve.phase, mine)
        match = look_up(curve, x, self.cells.n) if x > 0 else Match(why="there is no work")
        return self._one(curve.phase, mine, match, x, self.cells.work)

    def _of_time(self, curve: Curve, mine: np.ndarray, match: Match, rest: float | None) -> Found:
        """Return a group with the work that the model says of the count its messages are of."""
        k, n = curve.phase, match.n or rest
        work = np.zeros(self.cells.work.shape)
        for p in np.flatnonzero(self.predicted.phase == k).tolist() if n else ():
            said = replace(curve, place=p).at(n or 0.0) or 0.0
            work[p, mine] = self.cells.weight[k] * said
        x = self._per_turn(work, k, mine)
        return self._one(k, mine, Match(n, match.why), x if x > 0 else None, work)

    def _one(
        self, k: int, mine: np.ndarray, match: Match, x: float | None, work: np.ndarray
    ) -> Found:
        return Found(
            self.cells.n,
            k,
            self.predicted.model.phases[k].name,
            tuple((first, last) for first, last in ranges(mine)),
            float(self.cells.weight[k]),
            x,
            self._per_turn(self.cells.nbytes, k, mine),
            match.n,
            "" if match.n else match.why,
            tuple(self._points(k, mine, match.n, x, work)) if x else (),
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
