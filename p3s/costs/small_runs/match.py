"""Points of another workload's runs: the work, time and place among the study's own counts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from p3s.base.errors import P3SError
from p3s.base.ops import INIT_OPS
from p3s.base.study import Study
from p3s.costs.gather import places_of
from p3s.costs.small_runs.cells import Cells, Predicted, Spent, measured, spent
from p3s.costs.small_runs.lookup import Curve, Match, Role, kinds_of, look_up, rank_groups
from p3s.costs.small_runs.places import as_words
from p3s.costs.small_runs.record import same_places
from p3s.costs.small_runs.walk import phase_turns
from p3s.costs.thesis import Point
from p3s.model.types import Model
from p3s.signature.rank import INSTRUCTIONS
from p3s.signature.store import load_table
from p3s.signature.tables import PointTable

NAN = float("nan")
#: Counts by the messages of single places may be so many times apart: where the dimensions of the
#: grid are doubled in turn, each message is that of two counts.
_SHAPE = 2.5
#: Where work is time: times at the same count that differ by more are of other computations.
_REFUTED = 1.5
#: What is said where that is so, and what shows it follows.
REFUTED = "cannot be compared: its computation does not go with its messages, as"
#: Messages that differ by no more than this, relative, have the same size.
_SAME_SIZE = 0.01
#: From this share of the other workload's calls on at unknown places it is another program.
_FOREIGN = 0.5


@dataclass(frozen=True)
class Found:
    """A group of ranks of a phase at one count of another workload.

    x: work per iteration (NaN: unknown); turns: of the phase; nbytes: per process and
    iteration; by_work, by_bytes: where the original workload has as much; n: what holds (by work
    where work is counted, by bytes where it is time); points: one per place, empty where no time is
    known; work, least_ns: of one rank in the run."""

    phase: int
    ranks: np.ndarray
    turns: float
    x: float
    nbytes: float
    n: float
    by_work: Match
    by_bytes: Match
    work: float = NAN
    least_ns: float = NAN
    points: tuple[Point, ...] = field(default=(), repr=False)


def matched(study: Study, other: Study, model: Model) -> tuple[dict[int, list[Found]], str]:
    """Return count -> groups of ranks of every phase of another workload's runs, and how the places
    of these runs were matched, as words.

    Raises P3SError where the other study is of another program or measured in another unit.
    """
    own = [load_table(study.root, n) for n in study.signature_counts()]
    tables = [load_table(other.root, n) for n in other.signature_counts()]
    name = (
        str(other.root.relative_to(study.root))
        if other.root.is_relative_to(study.root)
        else str(other.root)
    )
    places, _ = places_of(model)
    same = {t.np: same_places(study, other, own, t) for t in tables}
    tables = [same[t.np].renamed(t, own) for t in tables]
    found = match_tables(
        own, tables, model, {t.np: spent(other, t, places, same[t.np]) for t in tables}, name
    )
    return found, as_words(same.values())


def matched_all(
    study: Study, model: Model
) -> dict[str, tuple[dict[int, list[Found]], str] | P3SError]:
    """Return name -> :func:`matched` of every other workload, or why it cannot be compared.

    A phase in which one of them is refuted by the study's own runs does not go with the messages
    in the others either, also where these have no count in common with the study.
    """
    out: dict[str, tuple[dict[int, list[Found]], str] | P3SError] = {}
    refuted: dict[int, str] = {}
    for other in study.others():
        name = str(other.root.relative_to(study.root))
        try:
            found = matched(study, other, model)
        except P3SError as err:
            out[name] = err
            continue
        out[name] = found
        for groups in found[0].values():
            for g in groups:
                if g.by_bytes.refuted:
                    refuted.setdefault(g.phase, name)
    for name, one in out.items():
        if not isinstance(one, P3SError):
            whys = {
                phase: f"{REFUTED} {by} shows"
                for phase, by in refuted.items()
                if by != name
                and any(g.phase == phase and g.points for gs in one[0].values() for g in gs)
            }
            out[name] = _without(one[0], whys), one[1]
    return out


def match_tables(
    own: Sequence[PointTable],
    tables: Sequence[PointTable],
    model: Model,
    times: Mapping[int, Spent | None],
    name: str,
) -> dict[int, list[Found]]:
    """Return groups of ranks, as :func:`matched`, from tables: of the study, of the other workload.

    times: count -> time of the other workload's runs, called ``name``.
    """
    check_program(model, tables, name)
    turns = phase_turns(own, tables, model)
    predicted = Predicted(model)
    out = {}
    for t in tables:
        weight = np.array([turns.get((p.phase, t.np), NAN) for p in model.phases])
        out[t.np] = _Matching(
            predicted,
            measured(t, predicted.places, weight),
            times.get(t.np),
            name,
            model.work_unit == INSTRUCTIONS,
        ).found()
    return (
        out if model.work_unit == INSTRUCTIONS else _without(out, _refutations(out, model.counts))
    )


def _refutations(found: Mapping[int, Sequence[Found]], counts: Sequence[int]) -> dict[int, str]:
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
                if g.phase == phase and g.points and min(counts) <= g.n <= max(counts)
            ]
            there = sum(p.work * p.ranks for g in known for p in g.points)
            here = sum(p.least_ns * p.ranks for g in known for p in g.points)
            if known and not there / _REFUTED <= here <= there * _REFUTED:
                whys[phase] = (
                    f"{REFUTED} own runs show: where its messages are those of the original, at "
                    f"{round(known[0].n)} processes, its computation takes {here / there:.2g} "
                    "times as long"
                )
    return whys


def _without(
    found: Mapping[int, Sequence[Found]], whys: Mapping[int, str]
) -> dict[int, list[Found]]:
    """Return the groups without the points of the phases in ``whys``."""
    return {
        n: [
            replace(
                g,
                x=NAN,
                n=NAN,
                by_bytes=Match(why=whys[g.phase], refuted=True),
                work=NAN,
                least_ns=NAN,
                points=(),
            )
            if g.phase in whys
            else g
            for g in groups
        ]
        for n, groups in found.items()
    }


def check_program(model: Model, tables: Sequence[PointTable], name: str) -> None:
    """Raise P3SError where runs are of another program than the model's, or in another unit."""
    known = set(places_of(model)[0])
    for t in tables:
        if (t.work_unit == INSTRUCTIONS) != (model.work_unit == INSTRUCTIONS):
            raise P3SError(
                f"{name}: work is in {t.work_unit} there and in {model.work_unit} in "
                "the model; record it again with the --work of the study"
            )
        strange = np.array([(g.site, g.op) not in known for g in t.groups], dtype=bool)
        calls = int(t.count.sum())
        unknown = int(t.count[strange[t.group]].sum())
        if unknown > _FOREIGN * calls:
            raise P3SError(
                f"{name}: another program: {unknown} of its {calls} calls at {t.np} "
                "processes are at places that the model does not know; remove it, and "
                "record runs of the program itself"
            )


class _Matching:
    """The look-up of one count of another workload."""

    def __init__(
        self,
        predicted: Predicted,
        cells: Cells,
        spent: Spent | None,
        source: str,
        instructions: bool,
    ) -> None:
        self.predicted, self.cells, self.spent = predicted, cells, spent
        self.source, self.instructions = source, instructions
        self.phase_of = predicted.phase

    def found(self) -> list[Found]:
        """Return the groups of all phases that run in this run."""
        parts = [
            (k, mine, roles)
            for k in range(len(self.cells.weight))
            for mine, roles in self._groups(k)
        ]
        by_bytes = [self._by_bytes(k, mine, roles) for k, mine, roles in parts]
        rest = NAN if self.instructions else self._of_all(parts, by_bytes)
        return [
            self._one(k, mine, roles, match, rest)
            for (k, mine, roles), match in zip(parts, by_bytes, strict=True)
        ]

    def _groups(self, k: int) -> list[tuple[np.ndarray, list[Role]]]:
        """Return the ranks that take part in a phase, those alike together.

        Where work is time, which is never the same twice, those are alike that make the same
        calls and move as much.
        """
        here = self.phase_of == k
        there = np.flatnonzero((self.cells.calls[here] > 0).any(axis=0))
        if not len(there) or not self.cells.weight[k] > 0:
            return []
        calls = self.cells.calls[here][:, there] / self.cells.weight[k]
        amounts = self.cells.work if self.instructions else self.cells.nbytes
        found = rank_groups(amounts[here].sum(axis=0)[there], calls)
        if self.instructions:
            return [(there[mine], roles) for mine, roles in found]
        kinds, kind = kinds_of(calls)
        return [
            (there[mine[kind[mine] == i]], [replace(role, share=1.0)])
            for mine, roles in found
            for i in np.unique(kind[mine])
            for role in roles
            if role.calls == tuple(float(c) for c in kinds[i])
        ]

    def _curve(self, k: int, roles: Sequence[Role]) -> Curve:
        return Curve(self.predicted, k, roles, self.instructions)

    def _per_turn(self, values: np.ndarray, k: int, mine: np.ndarray) -> float:
        return float(values[self.phase_of == k].sum(axis=0)[mine].mean() / self.cells.weight[k])

    def _by_bytes(self, k: int, mine: np.ndarray, roles: Sequence[Role]) -> Match:
        nbytes = self._per_turn(self.cells.nbytes, k, mine)
        if nbytes <= 0:
            return Match(why="there are no messages")
        curve = self._curve(k, roles)
        found = look_up(curve, nbytes, curve.of("nbytes"), self.cells.n, refine=False)
        if self.instructions or not found.n > 0:
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
            for p in np.flatnonzero(self.phase_of == k).tolist()
            if (one := float(self.cells.nbytes[p, mine].mean() / self.cells.weight[k])) > 0
            and (m := look_up(curve, one, curve.of("nbytes", p), self.cells.n, refine=False)).n > 0
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

        Then the messages do not depend on the workload, or the workload is the same.
        """
        own = self.predicted.at(self.cells.n)
        if own is None:
            return False
        there = np.flatnonzero(
            (self.phase_of == k) & self.cells.nbytes[:, mine].any(axis=1) & own.nbytes.any(axis=1)
        )
        here, theirs = (
            c.nbytes[there].sum(axis=1) / c.calls[there].sum(axis=1) for c in (self.cells, own)
        )
        return bool(np.all(np.abs(here - theirs) <= _SAME_SIZE * theirs))

    def _of_all(
        self, parts: Sequence[tuple[int, np.ndarray, Sequence[Role]]], found: Sequence[Match]
    ) -> float:
        """Return the count that phases with messages are matched to, the mean by their time."""
        if self.spent is None:
            return NAN
        logs, shares = [], []
        for (k, mine, _), match in zip(parts, found, strict=True):
            time = float(self.spent.least[self.phase_of == k].sum(axis=0)[mine].sum())
            if match.n > 0 and time > 0:
                logs.append(math.log(match.n))
                shares.append(time)
        return math.exp(float(np.average(logs, weights=shares))) if logs else NAN

    def _one(
        self, k: int, mine: np.ndarray, roles: Sequence[Role], by_bytes: Match, rest: float
    ) -> Found:
        curve = self._curve(k, roles)
        turns = float(self.cells.weight[k])
        nbytes = self._per_turn(self.cells.nbytes, k, mine)
        here = np.flatnonzero(self.phase_of == k)
        if self.instructions:
            x = self._per_turn(self.cells.work, k, mine)
            by_work = (
                look_up(curve, x, curve.of("work"), self.cells.n)
                if x > 0
                else Match(why="there is no work")
            )
            n = by_work.n
            work = {int(p): float(self.cells.work[p, mine].mean()) for p in here}
        else:
            n = by_bytes.n if by_bytes.n > 0 else rest
            by_work = Match(why="work is time, which says nothing about the count")
            work = {}
            for p in here.tolist():
                value = curve.at(n, curve.of("work", p)) if n > 0 else None
                if value is not None:
                    work[p] = value * turns
            x = sum(work.values()) / turns if work else NAN
        points = self._points(k, mine, n, x, work) if x > 0 else ()
        all_time = sum(p.least_ns for p in points) if points else NAN
        return Found(
            k,
            mine,
            turns,
            x,
            nbytes,
            n,
            by_work,
            by_bytes,
            sum(work.values()) if work else NAN,
            all_time,
            points,
        )

    def _points(
        self, k: int, mine: np.ndarray, n: float, x: float, work: Mapping[int, float]
    ) -> tuple[Point, ...]:
        spent = self.spent
        out = []
        for p in work if spent is not None else ():
            assert spent is not None
            place = self.predicted.places[p]
            if place[1] in INIT_OPS or not self.cells.calls[p, mine].any() or work[p] <= 0:
                continue
            least, typical, most, known = (
                float(v[p, mine].mean())
                for v in (spent.least, spent.typical, spent.most, spent.work)
            )
            # segments that a timed run did not have equally often have no time of their own
            scale = work[p] / known if self.instructions and known > 0 else 1.0
            if least <= 0:
                continue
            out.append(
                Point(
                    place,
                    k,
                    n,
                    work[p],
                    x,
                    least * scale,
                    typical * scale,
                    most / least - 1.0,
                    len(mine),
                    spent.repeats,
                    self.source,
                    self.cells.n,
                )
            )
        return tuple(out)
