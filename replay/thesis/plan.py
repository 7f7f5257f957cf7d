"""The plan of a replay: what is loaded, who plays whom, what is measured. Pure: no MPI here.

The ranks of the full run are cut into ranges of one node's cores. An iteration loads two ranges;
partners outside of them are played by black holes. Events fall into classes (replay/classes.py),
and only as many iterations are made as it takes to see every class (replay/choose.py). Every
program is executed on paper first (replay/check.py): each send has its receive and each process
comes to its end, or the plan is refused. Source: thesis ch. 7.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from p3s.errors import P3SError
from replay.scaled import COMPLETION, RECV, SEND, Bools, Ints, ScaledTrace, read_scaled
from replay.thesis.check import Stuck, check, describe
from replay.thesis.choose import Choice, choose, timed_rows
from replay.thesis.classes import INTER, INTRA, Classified, EventClass, classify
from replay.thesis.collectives import Composition
from replay.thesis.match import Matches, Reason, match
from replay.thesis.noise import Transit, noise_of, transits
from replay.thesis.primitives import PRIMITIVE_PHASE, Primitive, build, compositions, needed
from replay.thesis.program import PhaseBuilder, Program
from replay.thesis.world import World, lay_out

#: Nodes of a replay: two with measured ranks, two with black holes.
NODES = 4
#: Larger messages are not replayed; their cost is extrapolated.
MAX_MESSAGE_BYTES = 64 << 20
#: A bound on the work of one replay, reached by traces with many irregular sizes only.
MAX_ITERATIONS = 24
#: Messages at once that one pair of noise processes can stand for.
NOISE_LIMIT = 16
_MAX_REPAIRS = 200


@dataclass(frozen=True)
class Iteration:
    """Two loaded ranges (the same one twice if there is only one) and their programs."""

    ranges: tuple[int, int]
    adds: tuple[int, ...]
    programs: tuple[Program, ...]
    noise_wanted: float


@dataclass(frozen=True)
class ReplayPlan:
    """Everything a replay does, decided before it is launched.

    Samples are numbered by class first, then by primitive. ``partial`` classes are measured with
    some partners played by black holes. ``reason`` is the final Reason of each row of the trace.
    """

    trace: ScaledTrace
    cores_per_node: int
    ranges: int
    iterations: tuple[Iteration, ...]
    classified: Classified
    reason: Ints
    partial: Bools
    uncovered: tuple[int, ...]
    compositions: Mapping[int, Composition]
    primitives: tuple[Primitive, ...]
    world: World
    notes: tuple[str, ...]

    @property
    def classes(self) -> tuple[EventClass, ...]:
        """Classes of events, by number."""
        return self.classified.classes

    @property
    def all_pairs(self) -> int:
        """Iterations that it would take to load every pair of ranges."""
        return max(self.ranges * (self.ranges - 1) // 2, 1)

    def saved(self) -> str:
        """Say how many iterations the classes save."""
        made = len(self.iterations)
        return (f"{made} iteration{'s' if made != 1 else ''} instead of {self.all_pairs} "
                f"(all pairs of {self.ranges} ranges of {self.cores_per_node} ranks)")


def make_plan(
    scaled_dir: Path | ScaledTrace,
    cores_per_node: int,
    nodes: int = NODES,
    *,
    max_iterations: int = MAX_ITERATIONS,
    noise_limit: int = NOISE_LIMIT,
    strict: bool = True,
) -> ReplayPlan:
    """Plan the replay of a scaled trace on nodes with ``cores_per_node`` cores.

    When executing the trace in order would never end, ``strict`` raises P3SError with the events
    that wait; otherwise they are left out and named in the plan (Reason.DEADLOCK). Calls that
    only end because the library buffers messages are executed as buffered ones and noted.
    """
    if cores_per_node < 1:
        raise P3SError(f"cores per node: {cores_per_node} is smaller than 1")
    if nodes != NODES:
        raise P3SError(f"a replay needs {NODES} nodes (2 measured, 2 black holes), not {nodes}; "
                       "name a host more than once if there are fewer")
    trace = scaled_dir if isinstance(scaled_dir, ScaledTrace) else read_scaled(scaled_dir)
    matches = _without_giants(trace, match(trace))
    return _Planner(trace, matches, cores_per_node, max_iterations, noise_limit, strict).plan()


def _without_giants(trace: ScaledTrace, matches: Matches) -> Matches:
    """Leave out messages beyond MAX_MESSAGE_BYTES, with the row at their other end."""
    large = matches.executed() & (trace.is_kind(SEND) | trace.is_kind(RECV))
    large &= trace.bytes > MAX_MESSAGE_BYTES
    if not large.any():
        return matches
    rows = np.flatnonzero(large)
    reason = matches.reason.copy()
    reason[rows] = Reason.TOO_LARGE
    reason[matches.partner[rows]] = Reason.TOO_LARGE
    return replace(matches, reason=reason)


class _Planner:
    """Holds what the steps of planning share."""

    def __init__(self, trace: ScaledTrace, matches: Matches, cores_per_node: int,
                 max_iterations: int, noise_limit: int, strict: bool) -> None:
        self.trace, self.matches = trace, matches
        self.cores = cores_per_node
        self.ranges = -(-trace.n // cores_per_node)
        self.max_iterations = max_iterations
        self.noise_limit = noise_limit
        self.strict = strict
        self.classified = classify(trace, matches, cores_per_node)
        self.rank_start = np.searchsorted(trace.rank, np.arange(trace.n + 1))
        self.reason = matches.reason.copy()
        self.notes: list[str] = []
        self.buffered: set[int] = set()

    def plan(self) -> ReplayPlan:
        """Return the plan."""
        executed = self.matches.executed()
        choice = choose(self.classified, executed, self.ranges, self.max_iterations)
        composed = compositions(self.trace, self.matches, self.classified, self.cores)
        primitives = self._primitives(composed)
        pairs, adds = choice.pairs, choice.adds
        if primitives and not pairs:
            pairs, adds = ((0, min(1, self.ranges - 1)),), ((),)
        timed = [timed_rows(self.classified, executed, choice.partial, pair) for pair in pairs]
        phases = [self._phases(t, added) for t, added in zip(timed, adds, strict=True)]
        way = transits(self.trace, self.matches, self.cores) if self.noise_limit else {}
        world = self._world(pairs, phases, executed, way)
        iterations = []
        for pair, added, rows, run in zip(pairs, adds, timed, phases, strict=True):
            programs, wanted = [], []
            for phase in run:
                transit = way.get(phase)
                ticks, nbytes, mean = ([], 0, 0.0) if transit is None else noise_of(
                    transit, pair, self.noise_limit)
                wanted.append(mean)
                programs.append(self._settled(world, pair, phase, rows, ticks, nbytes))
            iterations.append(Iteration(pair, added, tuple(programs), max(wanted, default=0.0)))
        if primitives:
            program = build(primitives, len(self.classified.classes), world)
            self._prove(program, "primitives")
            first = iterations[0]
            iterations[0] = replace(first, programs=(program, *first.programs))
        if self.buffered:
            names = ", ".join(map(str, sorted(self.buffered)))
            self.notes.append(f"phases {names} rely on the library to buffer their blocking sends")
        return ReplayPlan(
            self.trace, self.cores, self.ranges, tuple(iterations), self.classified, self.reason,
            choice.partial, self._uncovered(choice, iterations), composed, primitives, world,
            tuple(self.notes))

    def _primitives(self, composed: Mapping[int, Composition]) -> tuple[Primitive, ...]:
        """Return the primitives to measure, of those distances that exist."""
        largest: dict[str, int] = {}
        for cls in self.classified.classes:
            if cls.kind in (SEND, RECV, COMPLETION):
                largest[cls.distance] = max(largest.get(cls.distance, 0), cls.bytes)
        wanted = needed(list(composed.values()), largest, MAX_MESSAGE_BYTES)
        exists = {INTER: self.ranges > 1, INTRA: self.cores > 1 and self.trace.n > 1}
        return tuple(p for p in wanted if exists[p.distance])

    def _phases(self, timed: Bools, adds: tuple[int, ...]) -> list[int]:
        """Return the phases in which one of the added classes occurs."""
        new = timed & np.isin(self.classified.of_row, adds)
        return [int(phase) for phase in np.unique(self.trace.phase[new])]

    def _world(self, pairs: tuple[tuple[int, int], ...], phases: list[list[int]],
               executed: Bools, way: Mapping[int, Transit]) -> World:
        """Return the processes: measured ranks, and one black hole for each that needs one."""
        slots = [0, 0]
        holes: set[tuple[int, int]] = set()
        messages = executed & (self.matches.partner >= 0)
        noise = False
        for pair, run in zip(pairs, phases, strict=True):
            for side, index in enumerate(pair if pair[0] != pair[1] else pair[:1]):
                slots[side] = max(slots[side], min(self.cores, self.trace.n - index * self.cores))
                mine = messages & (self.classified.range_of_row == index)
                mine &= np.isin(self.trace.phase, run)
                away = mine & ~np.isin(self.trace.peer // self.cores, pair)
                holes |= {(side, rank - index * self.cores)
                          for rank in np.unique(self.trace.rank[away]).tolist()}
            for phase in run:
                noise |= phase in way and any(noise_of(way[phase], pair, self.noise_limit)[0])
        return lay_out((slots[0], slots[1]), holes, noise and bool(holes))

    # ---- one program -------------------------------------------------------------------
    def _rows_of(self, pair: tuple[int, int], phase: int) -> dict[int, tuple[int, int]]:
        """Return (begin, end) of the rows of each loaded rank in a phase."""
        found = {}
        for index in sorted(set(pair)):
            first = index * self.cores
            for rank in range(first, min(first + self.cores, self.trace.n)):
                begin, end = self.rank_start[rank], self.rank_start[rank + 1]
                part = self.trace.phase[begin:end]
                found[rank] = (int(begin + np.searchsorted(part, phase, "left")),
                               int(begin + np.searchsorted(part, phase, "right")))
        return found

    def _build(self, world: World, pair: tuple[int, int], phase: int, timed: Bools,
               noise: list[int], noise_bytes: int) -> Program:
        excluded = frozenset(np.flatnonzero(self.reason == Reason.DEADLOCK).tolist())
        builder = PhaseBuilder(
            self.trace, self.matches, self.classified, world, pair, self.cores, timed=timed,
            buffered=phase in self.buffered, excluded=excluded)
        return builder.build(phase, self._rows_of(pair, phase), noise, noise_bytes)

    def _settled(self, world: World, pair: tuple[int, int], phase: int, timed: Bools,
                 noise: list[int], noise_bytes: int) -> Program:
        """Return a program that comes to its end."""
        for _ in range(_MAX_REPAIRS):
            program = self._build(world, pair, phase, timed, noise, noise_bytes)
            verdict = check(program)
            if verdict.ends:
                return program
            if phase not in self.buffered:
                # Blocking sends that only end because the library buffers them are common.
                self.buffered.add(phase)
                continue
            rows = self._culprits(verdict.stuck)
            if self.strict or not rows:
                events = "; ".join(self._name(row) for row in rows[:4]) or "no row of the trace"
                raise P3SError(
                    f"phase {phase} of the scaled trace cannot be replayed on ranges {pair[0]} "
                    f"and {pair[1]}: {events} would wait for ever ({describe(verdict.stuck)}); "
                    "the model has this phase's order wrong")
            self.reason[rows] = Reason.DEADLOCK
        raise P3SError(f"phase {phase} of the scaled trace: more than {_MAX_REPAIRS} events wait "
                       "for ever; the model has this phase's order wrong")

    def _culprits(self, stuck: tuple[Stuck, ...]) -> list[int]:
        """Return the rows of the first message that a measured rank waits for, both its ends."""
        for entry in stuck:
            for row in entry.rows:
                if row >= 0 and self.matches.partner[row] >= 0:
                    return sorted({row, int(self.matches.partner[row])})
        return []

    def _name(self, row: int) -> str:
        trace = self.trace
        return (f"rank {trace.rank[row]} {trace.ops[trace.op[row]]} peer {trace.peer[row]} "
                f"tag {trace.tag[row]} (index {trace.index[row]})")

    def _prove(self, program: Program, what: str) -> None:
        verdict = check(program)
        if not verdict.ends:
            raise P3SError(f"the program of {what} would never end: {describe(verdict.stuck)}")

    def _uncovered(self, choice: Choice, iterations: list[Iteration]) -> tuple[int, ...]:
        """Return the executed classes that no program has a sample of after all."""
        sampled: set[int] = set()
        for iteration in iterations:
            for program in iteration.programs:
                sampled.update(program.samples())
        wanted = np.unique(self.classified.of_row[
            (self.reason == Reason.EXECUTED) & (self.classified.of_row >= 0)])
        missing = set(wanted.tolist()) - sampled
        return tuple(sorted(missing | set(choice.uncovered)))


def summary(plan: ReplayPlan) -> dict[str, object]:
    """Return the plan's numbers for a result file."""
    roles: dict[str, int] = {}
    for process in plan.world.processes:
        roles[process.role] = roles.get(process.role, 0) + 1
    return {
        "ranges": plan.ranges,
        "iterations_all_pairs": plan.all_pairs,
        "processes": roles,
        "pairs": [list(iteration.ranges) for iteration in plan.iterations],
        "programs": sum(len(iteration.programs) for iteration in plan.iterations),
        "noise_wanted": max((i.noise_wanted for i in plan.iterations), default=0.0),
        "saved": plan.saved(),
    }


__all__ = ["NODES", "PRIMITIVE_PHASE", "Iteration", "ReplayPlan", "make_plan", "summary"]
