"""Makes the plan of a replay. Pure: no MPI here.

The ranks of one node of the full run are a range. An iteration loads two ranges; partners outside
of them are played by black holes. Only as many pairs are loaded as it takes to see every class of
calls (replay/plan/pairs.py); what messages cost is measured by programs of their own. Every
program is executed on paper first: each send has its receive and each process comes to its end.
Source: thesis ch. 7.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from p3s.base.arrays import Floats, Ints
from p3s.base.errors import P3SError
from p3s.machine.topology.fabric import Fabric
from p3s.machine.topology.switches import apart
from p3s.program.collectives.choose import Library
from p3s.program.collectives.expand import AlgorithmUse, expand
from p3s.program.mapping import RankMap
from p3s.replay.plan.build_holes import noise_beside
from p3s.replay.plan.build_traffic import needs_hole
from p3s.replay.plan.check import prove_program
from p3s.replay.plan.classes import SectionClasses, Whole, classify, worth_measuring
from p3s.replay.plan.loaded import Loaded, load
from p3s.replay.plan.micro import class_programs
from p3s.replay.plan.pairs import Choice, Needs, Pair, busiest, choose, direct_needs, needs_of
from p3s.replay.plan.program import Program, World, lay_out
from p3s.replay.plan.types import (
    MOST_CLASSES,
    MOST_PAIRS,
    MOST_TIMED,
    Iteration,
    Placement,
    ReplayPlan,
    estimate,
    place,
    placement_of,
)
from p3s.replay.settings import NOISES, ReplaySettings
from p3s.simulate.network import Network
from p3s.simulate.simulate import simulate
from p3s.simulate.steps import LeftOut, Op, Section, Steps


def make_plan(
    sections: Sequence[Section],
    mapping: RankMap,
    topology: Fabric | None,
    settings: ReplaySettings,
    network: Network,
    library: Library,
) -> ReplayPlan:
    """Plan the replay of these sections.

    ``network``: rough costs, for the estimate. ``library``: whose messages collectives consist of.
    Errors: P3SError.
    """
    return _Planner(tuple(sections), mapping, topology, settings, network, library).plan()


@dataclass
class _Planner:
    """Holds what the steps of planning share."""

    sections: tuple[Section, ...]
    mapping: RankMap
    topology: Fabric | None
    settings: ReplaySettings
    network: Network
    library: Library

    def __post_init__(self) -> None:
        sections, mapping, topology = self.sections, self.mapping, self.topology
        noise = self.settings.noise
        if noise not in NOISES:
            raise P3SError(f"noise {noise!r} is not known; it is {', '.join(NOISES)}")
        for section in sections:
            if section.steps.n != mapping.n:
                raise P3SError(
                    f"section {section.name}: {section.steps.n} ranks, but the mapping "
                    f"has {mapping.n}"
                )
        self.distance = apart(topology, mapping.names)
        topology_notes = topology.about.notes if topology is not None else ()
        self.notes = [*topology_notes, *(note for section in sections for note in section.notes)]
        self.left_out = [entry for section in sections for entry in section.left_out]
        self.used: list[AlgorithmUse] = []
        self.full, origins = self._expand_sections()
        self.classified: SectionClasses = classify(
            [section.steps for section in sections], self.full, origins, mapping, self.distance
        )
        self.notes += self.classified.notes
        self.wholes = self.classified.wholes
        self.needs = [need for s, one in enumerate(self.wholes) for need in self._needs(s, one)]

    def _needs(self, s: int, one: Whole) -> Iterator[tuple[int, Needs]]:
        """Yield what the messages of a section need, and its collectives that run as such."""
        # Messages of a collective that is executed as such are not seen where it fits.
        call_of = np.where(one.direct_of[one.origin] >= 0, -1, one.call_of)
        yield s, needs_of(one.full, call_of, self.mapping)
        yield s, direct_needs(one.given, one.direct_of, self.mapping)

    # ---- collectives -------------------------------------------------------------------
    def _expand_sections(self) -> tuple[list[Steps], list[Ints]]:
        """Return the steps of each section with collectives expanded, and where they come from."""
        fulls, origins = [], []
        for section in self.sections:
            steps = section.steps
            if not steps.is_op(Op.COLLECTIVE, Op.ICOLLECTIVE).any():
                fulls.append(steps)
                origins.append(np.arange(len(steps)))
                continue
            expansion = expand(steps, self.library, node_of=self.mapping.node_of)
            fulls.append(expansion.steps)
            origins.append(expansion.origin)
            self.used += expansion.used
            self.notes += expansion.notes
        return fulls, origins

    # ---- the plan ----------------------------------------------------------------------
    def plan(self) -> ReplayPlan:
        """Return the plan."""
        section_ns = [self._simulated_ns(full) for full in self.full]
        choice = self._choice()
        todo = [
            (pair, s)
            for pair, adds in zip(choice.pairs, choice.adds, strict=True)
            for s in sorted(adds)
        ]
        timed = self._timed_pairs(choice) if self.settings.timed else []
        placements = self._placements([pair for pair, _ in (*todo, *timed)])
        loaded = {
            (pair, s): load(self.wholes[s], self.mapping, pair)
            for pair, s in dict.fromkeys((*todo, *timed))
        }
        noises = {
            (pair, s): noise_beside(
                self.mapping,
                self.topology,
                self.wholes[s].transit,
                pair,
                section_ns[s],
                self.settings.noise,
            )
            for pair, s in loaded
        }
        world = self._world(list(loaded.values()), any(noises.values()))

        def iteration(pair: Pair, s: int) -> Iteration:
            noise = noises[pair, s]
            where = placement_of(placements, int(self.distance[pair]))
            return Iteration(pair, s, where, noise.wanted if noise else 0.0)

        iterations = tuple(iteration(pair, s) for pair, s in todo)
        programs, where = [], [each.placement for each in iterations]
        for key in todo:
            one = prove_program(loaded[key], world, noise=noises[key])
            programs.append(one.program)
            self.left_out += one.left_out
            self.notes += one.notes
        for number, program in class_programs(
            self.classified.messages, world, placements, self._measured_classes()
        ):
            programs.append(program)
            where.append(number)
        estimated = estimate(
            self.sections,
            section_ns,
            programs,
            self.network,
            timed=[s for _, s in timed],
            processes=world.size,
            placements=len(placements),
            budget_s=self.settings.budget_s,
        )
        composed = np.union1d(np.flatnonzero(choice.partial), choice.uncovered)
        return ReplayPlan(
            sections=self.sections,
            mapping=self.mapping,
            topology=self.topology,
            distance=self.distance,
            wholes=self.wholes,
            messages=self.classified.messages,
            calls=self.classified.calls,
            iterations=iterations,
            programs=tuple(programs),
            placement_of=tuple(where),
            placements=placements,
            timed=tuple(iteration(pair, s) for pair, s in timed),
            world=world,
            estimate=estimated,
            composed=tuple(composed.tolist()),
            left_out=_together(self.left_out),
            collectives=tuple(self.used),
            notes=tuple(dict.fromkeys(self.notes)),
            settings=self.settings,
        )

    def _measured_classes(self) -> Ints:
        """Return the message classes that have programs of their own."""
        messages = self.classified.messages
        measured_classes = worth_measuring(messages, MOST_CLASSES)
        if len(measured_classes) < len(messages):
            self.notes.append(
                f"{len(measured_classes)} of {len(messages)} classes of messages are measured, "
                "the cost of the others is that of their neighbours in bytes"
            )
        return measured_classes

    def _simulated_ns(self, full: Steps) -> float:
        """Return how long a pass of a section takes, in ns."""
        if len(full) == 0:
            return 0.0
        node_of = self.mapping.node_of
        timeline = simulate(full, node_of, self.network, distance=self.distance, anyway=True)
        return float(np.max(timeline.end_ns))

    def _choice(self) -> Choice:
        """Return the pairs to load."""
        nodes = self.mapping.nodes
        pairs = _all_pairs(nodes) if self.settings.exhaustive else None
        events = np.array([cls.events for cls in self.classified.calls], dtype=np.float64)
        choice = choose(self.needs, events, nodes, MOST_PAIRS, pairs)
        if len(choice.uncovered):
            self.notes.append(
                f"{len(choice.uncovered)} classes with {events[choice.uncovered].sum():,.0f} calls "
                f"are in none of the {MOST_PAIRS} pairs that are loaded at most; their cost is "
                "that of their messages"
            )
        if not choice.pairs and self.classified.messages:
            # Every call needs three nodes: the busiest pair, to see messages in their context.
            adds = {s: np.zeros(0, dtype=np.int64) for s, full in enumerate(self.full) if len(full)}
            return replace(choice, pairs=(busiest(self.full, self.mapping),), adds=(adds,))
        return choice

    def _timed_pairs(self, choice: Choice) -> list[tuple[Pair, int]]:
        """Return pairs and sections of whole iterations: the loaded pairs, in all sections."""
        busy = [s for s, full in enumerate(self.full) if (full.to >= 0).any()]
        pairs = choice.pairs
        if not self.settings.exhaustive:
            pairs = pairs[: max(MOST_TIMED // max(len(busy), 1), 1)]
        return [(pair, s) for s in busy for pair in pairs]

    # ---- nodes and processes -----------------------------------------------------------
    def _placements(self, pairs: Iterable[Pair]) -> tuple[Placement, ...]:
        distances = {int(self.distance[pair]) for pair in pairs}
        distances |= {cls.distance for cls in self.classified.messages}
        placements, notes = place(self.settings.hosts, self.topology, distances)
        self.notes += notes
        return placements

    def _world(self, loaded: Sequence[Loaded], noise: bool) -> World:
        """Return the processes: measured ranks, and one black hole for each that needs one."""
        sizes = self.mapping.sizes
        slots = [0, 0]
        holes: set[tuple[int, int]] = set()
        for one in loaded:
            for side, node in enumerate(dict.fromkeys(one.pair)):
                slots[side] = max(slots[side], int(sizes[node]))
            holes |= needs_hole(one)
        if not loaded and self.classified.messages:
            slots = [int(sizes[0]), int(sizes[1]) if len(sizes) > 1 else 0]
        return lay_out((slots[0], slots[1]), holes, noise and bool(holes))


def _all_pairs(nodes: int) -> tuple[Pair, ...]:
    return tuple((a, b) for a in range(nodes) for b in range(a + 1, nodes)) or ((0, 0),)


def timed_programs(plan: ReplayPlan, begin_ns: Sequence[Floats]) -> tuple[Program, ...]:
    """Return one program per entry of ``plan.timed``: black holes act by this schedule.

    ``begin_ns``: per section, when each full step begins in the full run.
    """
    programs = []
    for entry in plan.timed:
        length = float(np.max(begin_ns[entry.section], initial=0.0))
        s = entry.section
        loaded: Loaded = load(plan.wholes[s], plan.mapping, entry.pair, begin_ns[s])
        noise = noise_beside(
            plan.mapping,
            plan.topology,
            plan.wholes[entry.section].transit,
            entry.pair,
            length,
            plan.settings.noise,
        )
        programs.append(prove_program(loaded, plan.world, kind="timed", noise=noise).program)
    return tuple(programs)


def _together(entries: Sequence[LeftOut]) -> tuple[LeftOut, ...]:
    """Add up entries of the same call and reason, most events first."""
    entries_of: dict[tuple[str, str], list[LeftOut]] = {}
    for entry in entries:
        entries_of.setdefault((entry.call, entry.why), []).append(entry)
    merged = [
        LeftOut(
            call,
            why,
            sum(e.events for e in them),
            np.unique(np.concatenate([e.rows for e in them])),
        )
        for (call, why), them in entries_of.items()
    ]
    return tuple(sorted(merged, key=lambda entry: -entry.events))
