"""Makes the plan of a replay. Pure: no MPI here.

The ranks of one node of the full run are a range. An iteration loads two ranges; partners outside
of them are played by black holes. Only as many pairs are loaded as it takes to see every class of
calls (replay/plan/types.py); what messages cost is measured by programs of their own. Every
program is executed on paper first: each send has its receive and each process comes to its end.
Source: thesis ch. 7.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from p3s.base.arrays import Floats, Ints
from p3s.base.errors import P3SError
from p3s.machine.topology.switches import Topology
from p3s.program.collectives.choose import Library
from p3s.program.collectives.expand import Used, expand
from p3s.program.mapping import RankMap
from p3s.replay.plan.build_holes import Noise
from p3s.replay.plan.build_traffic import needs_hole
from p3s.replay.plan.classes import Classified, classify, worth_measuring
from p3s.replay.plan.estimate import estimate
from p3s.replay.plan.loaded import Loaded, load
from p3s.replay.plan.logical import Transit
from p3s.replay.plan.micro import class_programs
from p3s.replay.plan.noise import noise_of
from p3s.replay.plan.program import Program
from p3s.replay.plan.settle import settled
from p3s.replay.plan.types import (
    AUTO,
    MOST_CLASSES,
    MOST_PAIRS,
    MOST_TIMED,
    OFF,
    Choice,
    Iteration,
    Needs,
    Pair,
    Placement,
    ReplayPlan,
    alike_nodes,
    choose,
    cover_all,
    direct_needs,
    needs_of,
    place,
    placement_of,
    traffic,
)
from p3s.replay.plan.world import World, lay_out
from p3s.replay.settings import NOISES, ReplaySettings
from p3s.simulate.network import Network
from p3s.simulate.simulate import simulate
from p3s.simulate.steps import WAITS, LeftOut, Op, Section, Steps


def make_plan(
    sections: Sequence[Section],
    mapping: RankMap,
    topology: Topology,
    settings: ReplaySettings,
    network: Network,
    library: Library,
) -> ReplayPlan:
    """Plan the replay of these sections.

    ``network``: rough costs, for the estimate. ``library``: whose messages collectives consist of.
    Errors: P3SError.
    """
    return _Planner(tuple(sections), mapping, topology, settings, network, library).plan()


class _Planner:
    """Holds what the steps of planning share."""

    def __init__(
        self,
        sections: tuple[Section, ...],
        mapping: RankMap,
        topology: Topology,
        settings: ReplaySettings,
        network: Network,
        library: Library,
    ) -> None:
        if settings.noise not in NOISES:
            raise P3SError(f"noise {settings.noise!r} is not known; it is {', '.join(NOISES)}")
        for section in sections:
            if section.steps.n != mapping.n:
                raise P3SError(
                    f"section {section.name}: {section.steps.n} ranks, but the mapping "
                    f"has {mapping.n}"
                )
        self.sections, self.mapping, self.topology = sections, mapping, topology
        self.settings, self.network = settings, network
        self.distance = topology.distances(mapping.names)
        self.notes = [*topology.notes, *(note for section in sections for note in section.notes)]
        self.left_out = [entry for section in sections for entry in section.left_out]
        self.used: list[Used] = []
        self.full, origins = self._expanded(library)
        self.classified: Classified = classify(
            [section.steps for section in sections], self.full, origins, mapping, self.distance
        )
        self.notes += self.classified.notes
        self.wholes = self.classified.wholes
        # Messages of a collective that is executed as such are not seen where it fits.
        self.needs = [
            (
                s,
                needs_of(
                    one.full, np.where(one.direct_of[one.origin] >= 0, -1, one.call_of), mapping
                ),
            )
            for s, one in enumerate(self.wholes)
        ]
        self.direct = [
            (s, direct_needs(one.given, one.direct_of, mapping))
            for s, one in enumerate(self.wholes)
        ]

    # ---- collectives -------------------------------------------------------------------
    def _expanded(self, library: Library) -> tuple[list[Steps], list[Ints]]:
        """Return the steps of each section with collectives expanded, and where they come from."""
        fulls, origins = [], []
        for section in self.sections:
            steps = section.steps
            if not steps.is_op(Op.COLLECTIVE, Op.ICOLLECTIVE).any():
                fulls.append(steps)
                origins.append(np.arange(len(steps)))
                continue
            found = expand(steps, library, node_of=self.mapping.node_of)
            fulls.append(found.steps)
            origins.append(found.origin)
            self.used += found.used
            self.notes += found.notes
        return fulls, origins

    # ---- the plan ----------------------------------------------------------------------
    def plan(self) -> ReplayPlan:
        """Return the plan."""
        section_ns = [self._simulated_ns(full) for full in self.full]
        choice = self._choice()
        timed = self._timed_pairs() if self.settings.timed else ()
        todo = [
            (pair, s, tuple(added.tolist()))
            for pair, adds in zip(choice.pairs, choice.adds, strict=True)
            for s, added in sorted(adds.items())
        ]
        placements = self._placements([pair for pair, _, _ in todo] + [p for p, _ in timed])
        noises = {
            (pair, s): _noise_beside(
                self.mapping,
                self.topology,
                self.wholes[s].transit,
                pair,
                section_ns[s],
                self.settings,
            )
            for pair, s in {*((pair, s) for pair, s, _ in todo), *timed}
        }
        loaded = [load(self.wholes[s], self.mapping, pair) for pair, s, _ in todo]
        world = self._world(
            list(noises),
            loaded,
            any(noises.values()),
            any(len(placement.flows) > 1 for placement in placements),
        )
        trace = [settled(two, world, noise=noises[two.pair, two.section]) for two in loaded]

        def iteration(
            pair: Pair, s: int, programs: tuple[int, ...] = (), adds: tuple[int, ...] = ()
        ) -> Iteration:
            noise = noises[pair, s]
            where = placement_of(placements, int(self.distance[pair]))
            return Iteration(pair, s, programs, adds, where, noise.wanted if noise else 0.0)

        iterations = tuple(
            iteration(pair, s, (number,), adds) for number, (pair, s, adds) in enumerate(todo)
        )
        programs = [one.program for one in trace]
        missed = self._missed(choice, programs)
        where = [each.placement for each in iterations]
        for one in trace:
            self.left_out += one.left_out
            self.notes += one.notes
        for number, program in class_programs(
            self.classified.messages, world, placements, self._measured()
        ):
            programs.append(program)
            where.append(number)
        nodes = self.mapping.nodes
        estimated = estimate(
            self.sections,
            section_ns,
            programs,
            self.network,
            timed=[s for _, s in timed],
            processes=world.size,
            ranks=self.mapping.n,
            all_pairs=max(nodes * (nodes - 1) // 2, 1),
            placements=len(placements),
            budget_s=self.settings.budget_s,
        )
        self._limits(choice, missed)
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
            composed=tuple(np.flatnonzero(choice.partial).tolist()),
            uncovered=tuple(missed.tolist()),
            left_out=_together(self.left_out),
            collectives=tuple(self.used),
            notes=tuple(dict.fromkeys(self.notes)),
            settings=self.settings,
        )

    def _measured(self) -> Ints:
        """Return the message classes that have programs of their own."""
        messages = self.classified.messages
        found = worth_measuring(messages, MOST_CLASSES)
        if len(found) < len(messages):
            self.notes.append(
                f"{len(found)} of {len(messages)} classes of messages are measured, "
                "the cost of the others is that of their neighbours in bytes"
            )
        return found

    def _simulated_ns(self, full: Steps) -> float:
        """Return how long a pass of a section takes, in ns."""
        if len(full) == 0:
            return 0.0
        node_of = self.mapping.node_of
        found = simulate(full, node_of, self.network, distance=self.distance, anyway=True)
        return float(np.max(found.end_ns))

    def _choice(self) -> Choice:
        """Return the pairs to load."""
        nodes = self.mapping.nodes
        pairs = _all_pairs(nodes) if self.settings.exhaustive else None
        events = np.array([cls.events for cls in self.classified.calls], dtype=np.float64)
        choice = choose([*self.needs, *self.direct], events, nodes, MOST_PAIRS, pairs)
        if not choice.pairs and self.classified.messages:
            # Every call needs three nodes: the busiest pair, to see messages in their context.
            first, second, amount = traffic(self.full, self.mapping)
            best = int(np.argmax(amount)) if len(amount) else 0
            pair = (int(first[best]), int(second[best])) if len(amount) else (0, min(1, nodes - 1))
            adds = {s: np.zeros(0, dtype=np.int64) for s, full in enumerate(self.full) if len(full)}
            return Choice((pair,), (adds,), choice.partial, choice.uncovered)
        return choice

    def _timed_pairs(self) -> tuple[tuple[Pair, int], ...]:
        """Return pairs and sections of whole iterations: every range at least once."""
        found: list[tuple[Pair, int]] = []
        alike = alike_nodes(
            [*self.needs, *self.direct], len(self.classified.calls), self.mapping.nodes
        )
        busy = [s for s, full in enumerate(self.full) if (full.to >= 0).any()]
        most = max(MOST_TIMED // max(len(busy), 1), 1)
        for s in busy:
            if self.settings.exhaustive:
                pairs = _all_pairs(self.mapping.nodes)
            else:
                first, second, amount = traffic([self.full[s]], self.mapping)
                pairs, missed = cover_all(first, second, amount, alike, most)
                groups = set(alike[missed].tolist()) - {
                    int(alike[node]) for pair in pairs for node in pair
                }
                if groups:
                    self.notes.append(
                        f"whole iterations of {self.sections[s].name} leave out {len(missed)} of "
                        f"{self.mapping.nodes} nodes, {len(groups)} of them unlike any that is "
                        f"measured (at most {most} pairs)"
                    )
                elif len(missed):
                    self.notes.append(
                        f"whole iterations of {self.sections[s].name} leave out {len(missed)} of "
                        f"{self.mapping.nodes} nodes; their calls are those of a measured one"
                    )
            found += [(pair, s) for pair in pairs]
        return tuple(found)

    # ---- nodes and processes -----------------------------------------------------------
    def _placements(self, pairs: Iterable[Pair]) -> tuple[Placement, ...]:
        wanted = {int(self.distance[pair]) for pair in pairs}
        wanted |= {cls.distance for cls in self.classified.messages}
        found, notes = place(self.settings.hosts, self.topology, wanted)
        self.notes += notes
        return found

    def _world(
        self, used: Sequence[tuple[Pair, int]], loaded: Sequence[Loaded], noise: bool, trunk: bool
    ) -> World:
        """Return the processes: measured ranks, and one black hole for each that needs one.

        ``trunk``: nodes 2 and 3 help to flood links between switches, and need somebody for it.
        """
        sizes = self.mapping.sizes
        slots = [0, 0]
        holes: set[tuple[int, int]] = set()
        needs = dict(self.needs)
        for pair, section in used:
            for side, node in enumerate(pair if pair[0] != pair[1] else pair[:1]):
                slots[side] = max(slots[side], int(sizes[node]))
            holes |= holes_of(needs[section], self.full[section], self.mapping, pair)
        for one in loaded:
            holes |= needs_hole(one)
        if not used and self.classified.messages:
            slots = [int(sizes[0]), int(sizes[1]) if len(sizes) > 1 else 0]
        return lay_out((slots[0], slots[1]), holes, trunk or (noise and bool(holes)))

    def _missed(self, choice: Choice, programs: Sequence[Program]) -> Ints:
        """Return the classes of calls that no program has a sample of after all.

        The messages of a collective that is executed as such need none, nor do completions of
        nothing (of a collective whose messages are all over).
        """
        sampled = np.zeros(len(self.classified.calls), dtype=bool)
        for program in programs:
            sampled[program.events["sample"][program.events["sample"] >= 0]] = True
        wanted = np.zeros(len(sampled), dtype=bool)
        for one in self.wholes:
            direct, full = one.direct_of[one.origin], one.full
            own = np.where(direct >= 0, direct, one.call_of)
            own[full.is_op(*WAITS) & (np.diff(full.done_start) == 0)] = -1
            wanted[own[own >= 0]] = True
        return np.flatnonzero(wanted & ~sampled & ~choice.partial)

    def _limits(self, choice: Choice, missed: Ints) -> None:
        for classes, why in (
            (choice.uncovered, f"in none of the {MOST_PAIRS} pairs that are loaded at most"),
            (np.setdiff1d(missed, choice.uncovered), "not replayed completely"),
        ):
            if len(classes):
                events = sum(self.classified.calls[c].events for c in classes.tolist())
                self.notes.append(
                    f"{len(classes)} classes with {events:,.0f} calls are {why}; "
                    "their cost is that of their neighbours in bytes"
                )


def _all_pairs(nodes: int) -> tuple[Pair, ...]:
    return tuple((a, b) for a in range(nodes) for b in range(a + 1, nodes)) or ((0, 0),)


def holes_of(needs: Needs, full: Steps, mapping: RankMap, pair: Pair) -> set[tuple[int, int]]:
    """Return (side, slot) of the ranks of a pair that have partners elsewhere."""
    node = needs.own[needs.step]
    away = np.isin(node, pair) & ~np.isin(needs.node, pair)
    rank = np.unique(full.rank[needs.step[away]])
    side = np.where(mapping.node_of[rank] == pair[0], 0, 1)
    return set(zip(side.tolist(), mapping.slot_of[rank].tolist(), strict=True))


def timed_programs(plan: ReplayPlan, begin_ns: Sequence[Floats]) -> tuple[Program, ...]:
    """Return one program per entry of ``plan.timed``: black holes act by this schedule.

    ``begin_ns``: per section, when each full step begins in the full run.
    """
    found = []
    for entry in plan.timed:
        length = float(np.max(begin_ns[entry.section], initial=0.0))
        s = entry.section
        loaded: Loaded = load(plan.wholes[s], plan.mapping, entry.pair, begin_ns[s])
        noise = _noise_beside(
            plan.mapping,
            plan.topology,
            plan.wholes[entry.section].transit,
            entry.pair,
            length,
            plan.settings,
        )
        found.append(settled(loaded, plan.world, what="timed", noise=noise).program)
    return tuple(found)


def _noise_beside(
    mapping: RankMap,
    topology: Topology,
    transit: Transit,
    pair: Pair,
    length_ns: float,
    settings: ReplaySettings,
) -> Noise | None:
    """Return the noise beside a pair: of messages that share a link between switches, if known."""
    shares = None
    if settings.noise == OFF or (settings.noise == AUTO and topology.flat):
        return None
    if not topology.flat:
        switch = topology.switches_of(mapping.names)
        shares = topology.trunk(int(switch[pair[0]]), int(switch[pair[1]]), switch)
    return noise_of(transit, pair, shares, length_ns)


def _together(entries: Sequence[LeftOut]) -> tuple[LeftOut, ...]:
    """Add up entries of the same call and reason, most events first."""
    found: dict[tuple[str, str], list[LeftOut]] = {}
    for entry in entries:
        found.setdefault((entry.call, entry.why), []).append(entry)
    merged = [
        LeftOut(
            call,
            why,
            sum(e.events for e in them),
            np.unique(np.concatenate([e.rows for e in them])),
        )
        for (call, why), them in found.items()
    ]
    return tuple(sorted(merged, key=lambda entry: -entry.events))
