"""Makes the plan of a replay. Pure: no MPI here.

The ranks of one node of the full run are a range. An iteration loads two ranges; partners outside
of them are played by black holes. Only as many pairs are loaded as it takes to see every class of
calls (replay/plan/choose.py); what messages cost is measured by programs of their own. Every
program is executed on paper first: each send has its receive and each process comes to its end.
Source: thesis ch. 7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from p3s.base.errors import P3SError
from p3s.machine.topology.switches import Topology
from p3s.program.collectives.expand import Expanded, Used
from p3s.program.mapping import RankMap
from p3s.replay.plan.build_holes import Noise
from p3s.replay.plan.build_traffic import needs_hole
from p3s.replay.plan.choose import (
    Choice,
    Needs,
    Pair,
    alike_nodes,
    choose,
    cover_all,
    direct_needs,
    needs_of,
    traffic,
)
from p3s.replay.plan.classes import Classified, classify, worth_measuring
from p3s.replay.plan.estimate import Estimate, estimate, steps_ns
from p3s.replay.plan.loaded import Loaded, Whole, load
from p3s.replay.plan.logical import Transit
from p3s.replay.plan.micro import class_programs
from p3s.replay.plan.noise import noise_of
from p3s.replay.plan.places import Placement, place, placement_of
from p3s.replay.plan.program import Program
from p3s.replay.plan.settle import settled
from p3s.replay.plan.types import AUTO, OFF, USUAL, Iteration, PlanSettings, ReplayPlan
from p3s.replay.plan.world import World, lay_out
from p3s.replay.settings import NOISES
from p3s.simulate.network import Network
from p3s.simulate.simulate import Simulated
from p3s.simulate.steps import WAITS, Bools, Floats, Ints, LeftOut, Op, Section, Steps

Expand = Callable[[Steps, "Bools | None"], Expanded]
Simulate = Callable[[Steps], Simulated]


def make_plan(
    sections: Sequence[Section],
    mapping: RankMap,
    topology: Topology,
    settings: PlanSettings = USUAL,
    network: Network | None = None,
    *,
    expand: Expand | None = None,
    simulate: Simulate | None = None,
) -> ReplayPlan:
    """Plan the replay of these sections.

    ``expand(steps, which)`` makes messages of collectives; without it they stay as they are.
    ``simulate`` tells how long sections take; without it their computation does. ``network``:
    rough costs, for the estimate. Errors: P3SError.
    """
    return _Planner(tuple(sections), mapping, topology, settings, network, expand, simulate).plan()


class _Planner:
    """Holds what the steps of planning share."""

    def __init__(
        self,
        sections: tuple[Section, ...],
        mapping: RankMap,
        topology: Topology,
        settings: PlanSettings,
        network: Network | None,
        expand: Expand | None,
        simulate: Simulate | None,
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
        self.settings, self.network, self.simulate = settings, network, simulate
        self.distance = topology.distances(mapping.names)
        self.notes = [*topology.notes, *(note for section in sections for note in section.notes)]
        self.left_out = [entry for section in sections for entry in section.left_out]
        self.used: list[Used] = []
        self.full, self.origin = self._expanded(expand)
        self.classified: Classified = classify(
            [section.steps for section in sections], self.full, mapping, self.distance
        )
        self.notes += self.classified.notes
        c = self.classified
        self.wholes = tuple(
            Whole(number, section.steps, *columns)
            for number, (section, *columns) in enumerate(
                zip(
                    sections,
                    self.full,
                    self.origin,
                    c.message_of,
                    c.message2_of,
                    c.call_of,
                    c.direct_of,
                    strict=True,
                )
            )
        )
        # Messages of a collective that is executed as such are not seen where it fits.
        self.needs = [
            (
                s,
                needs_of(
                    full,
                    np.where(
                        self.classified.direct_of[s][self.origin[s]] >= 0,
                        -1,
                        self.classified.call_of[s],
                    ),
                    mapping,
                ),
            )
            for s, full in enumerate(self.full)
        ]
        self.direct = [
            (s, direct_needs(section.steps, self.classified.direct_of[s], mapping))
            for s, section in enumerate(sections)
        ]

    # ---- collectives -------------------------------------------------------------------
    def _expanded(self, expand: Expand | None) -> tuple[list[Steps], list[Ints]]:
        """Return the steps of each section with collectives expanded, and where they come from."""
        fulls, origins = [], []
        for section in self.sections:
            steps = section.steps
            if expand is None or not steps.is_op(Op.COLLECTIVE, Op.ICOLLECTIVE).any():
                fulls.append(steps)
                origins.append(np.arange(len(steps)))
                continue
            found = expand(steps, None)
            fulls.append(found.steps)
            origins.append(found.origin)
            self.used += found.used
            self.notes += found.notes
        return fulls, origins

    # ---- the plan ----------------------------------------------------------------------
    def plan(self) -> ReplayPlan:
        """Return the plan."""
        section_ns = self._lengths()
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
                self.classified.transits[s],
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
        estimated = self._estimate(programs, section_ns, choice, timed, world, placements)
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
            transits=self.classified.transits,
        )

    def _measured(self) -> Ints:
        """Return the message classes that have programs of their own."""
        messages = self.classified.messages
        found = worth_measuring(messages, self.settings.most_classes)
        if len(found) < len(messages):
            self.notes.append(
                f"{len(found)} of {len(messages)} classes of messages are measured, "
                "the cost of the others is that of their neighbours in bytes"
            )
        return found

    def _lengths(self) -> list[float]:
        """Return how long a pass of each section takes, in ns."""
        lengths = []
        for full in self.full:
            if self.simulate is None or len(full) == 0:
                lengths.append(steps_ns(full))
            else:
                lengths.append(self._simulated(full))
        return lengths

    def _simulated(self, full: Steps) -> float:
        assert self.simulate is not None
        try:
            return float(np.max(self.simulate(full).end_ns))
        except P3SError as err:
            self.notes.append(f"no simulation of all ranks, times are those of computation: {err}")
            return steps_ns(full)

    def _choice(self) -> Choice:
        """Return the pairs to load."""
        nodes = self.mapping.nodes
        pairs = None
        if self.settings.exhaustive:
            pairs = [(a, b) for a in range(nodes) for b in range(a + 1, nodes)] or [(0, 0)]
        events = np.array([cls.events for cls in self.classified.calls], dtype=np.float64)
        choice = choose([*self.needs, *self.direct], events, nodes, self.settings.most_pairs, pairs)
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
        most = max(self.settings.most_timed // max(len(busy), 1), 1)
        for s in busy:
            if self.settings.exhaustive:
                nodes = self.mapping.nodes
                pairs = tuple((a, b) for a in range(nodes) for b in range(a + 1, nodes)) or (
                    (0, 0),
                )
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

    def _estimate(
        self,
        programs: Sequence[Program],
        section_ns: Sequence[float],
        choice: Choice,
        timed: Sequence[tuple[Pair, int]],
        world: World,
        placements: Sequence[Placement],
    ) -> Estimate:
        nodes = self.mapping.nodes
        return estimate(
            self.sections,
            section_ns,
            programs,
            timed=[s for _, s in timed],
            processes=world.size,
            ranks=self.mapping.n,
            pairs=len(choice.pairs),
            all_pairs=max(nodes * (nodes - 1) // 2, 1),
            placements=len(placements),
            budget_s=self.settings.budget_s,
            network=self.network,
            known=self.simulate is not None,
        )

    def _missed(self, choice: Choice, programs: Sequence[Program]) -> Ints:
        """Return the classes of calls that no program has a sample of after all.

        The messages of a collective that is executed as such need none, nor do completions of
        nothing (of a collective whose messages are all over).
        """
        sampled = np.zeros(len(self.classified.calls), dtype=bool)
        for program in programs:
            sampled[program.events["sample"][program.events["sample"] >= 0]] = True
        wanted = np.zeros(len(sampled), dtype=bool)
        for s, origin in enumerate(self.origin):
            direct = self.classified.direct_of[s][origin]
            own = np.where(direct >= 0, direct, self.classified.call_of[s])
            full = self.full[s]
            own[full.is_op(*WAITS) & (np.diff(full.done_start) == 0)] = -1
            wanted[own[own >= 0]] = True
        return np.flatnonzero(wanted & ~sampled & ~choice.partial)

    def _limits(self, choice: Choice, missed: Ints) -> None:
        for classes, why in (
            (
                choice.uncovered,
                f"in none of the {self.settings.most_pairs} pairs that are loaded at most",
            ),
            (np.setdiff1d(missed, choice.uncovered), "not replayed completely"),
        ):
            if len(classes):
                events = sum(self.classified.calls[c].events for c in classes.tolist())
                self.notes.append(
                    f"{len(classes)} classes with {events:,.0f} calls are {why}; "
                    "their cost is that of their neighbours in bytes"
                )


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
        loaded: Loaded = load(
            plan.wholes[entry.section], plan.mapping, entry.pair, begin_ns[entry.section]
        )
        noise = _noise_beside(
            plan.mapping,
            plan.topology,
            plan.transits[entry.section],
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
    settings: PlanSettings,
) -> Noise | None:
    """Return the noise beside a pair: of messages that share a link between switches, if known."""
    shares = None
    if settings.noise == OFF or (settings.noise == AUTO and topology.flat):
        return None
    if not topology.flat:
        switch = topology.switches_of(topology.hosts_of(mapping.names))
        shares = topology.trunk(int(switch[pair[0]]), int(switch[pair[1]]), switch)
    return noise_of(transit, pair, shares, length_ns, settings.noise_limit)


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
