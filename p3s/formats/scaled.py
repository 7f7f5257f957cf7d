"""Exports of a scaled trace: the programs of its ranks, or their simulation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from p3s.base.arrays import Bools, Floats, Ints
from p3s.base.errors import P3SError, UsageError
from p3s.base.study import Study
from p3s.base.text import plural, processes, quoted
from p3s.formats.calls import RankProgram, members_are_world, programs_of_steps
from p3s.formats.exported import SIMULATED, Exported, Options, Say
from p3s.machine.machinefile import NAME, Machine
from p3s.predict.estimators.messages import library_for, networks
from p3s.predict.estimators.settings import Setting
from p3s.program.collectives.choose import Library
from p3s.program.collectives.expand import MOST_STEPS, Expanded, expand
from p3s.program.order.sections import read_sections, read_whole
from p3s.program.order.unstick import endless
from p3s.program.scaled import ScaledTrace, read_scaled
from p3s.simulate.network import Network, rough_network
from p3s.simulate.simulate import simulate
from p3s.simulate.steps import Op, Section, Steps

#: Events of a whole run, at most: each takes some 350 bytes of memory.
MOST_EVENTS = 20_000_000
#: Iterations of a loop that are simulated unless it is said otherwise.
TURNS = 3
#: Tells of a collective, and of whether all ranks are in it, whether it is written as a call.
Keep = Callable[[str, bool], bool]


def library_of_study(study: Study, collectives: str) -> Library:
    """Return the MPI library of the runs, the usual one where it is not known."""
    return library_for(study, None, Setting(collectives=collectives))


def network_of(study: Study, machine: Path | None) -> tuple[Network, list[str]]:
    """Return the costs of messages: those of a machine file, else usual ones and a note."""
    path = machine or study.root / NAME
    if machine is None and not path.exists():
        return rough_network(), [
            "costs of messages are usual ones (2 us, 12.5 GB/s), not "
            f"measured; measure them: p3s machine measure -o {quoted(path)}"
        ]
    found = Machine.load(path)
    if not found.network and machine is None:
        return rough_network(), [f"{path} has no costs of messages; usual ones are taken"]
    if not found.network:
        raise P3SError(
            f"{path} has no costs of messages; run p3s machine measure -o {quoted(path)}"
        )
    return networks(found)[0], []


def nodes_of(n: int, per_node: int | None) -> Ints:
    """Return the node of every rank: consecutive ranks on one, by default one rank on each."""
    return np.arange(n, dtype=np.int64) // max(per_node or 1, 1)


def programs_of(
    study: Study, n: int, options: Options, keep: Keep, done: Exported, say: Say
) -> Iterator[tuple[str, Iterable[RankProgram]]]:
    """Yield the programs of the whole run under no name, or those of each section under its own.

    Takes down what they lack.
    """
    library = library_of_study(study, options.collectives)
    node_of = nodes_of(n, options.ranks_per_node)
    whole = options.turns is None
    sections = (_whole(study, n),) if whole else _sections(study, n, options.turns or TURNS)
    for k, section in enumerate(sections):
        where = "" if whole else f"{section.name}: "
        if whole:
            say(f"{processes(n)}: {plural(len(section.steps), 'event')}")
        done.events += float(len(section.steps))
        done.takes(section, None if whole else k)
        stays = _staying(section.steps, n, keep)
        most = MOST_EVENTS if whole else MOST_STEPS
        made = expand(section.steps, library, ~stays, node_of=node_of, most_steps=most)
        notes = (*section.notes, *made.notes, *endless(made.steps))
        done.notes += [f"{where}{note}" for note in notes]
        if whole and made.used:
            done.notes.append(f"algorithms of collectives that are messages: {library}")
        yield "" if whole else f"section-{k:03d}", programs_of_steps(made.steps)


def _whole(study: Study, n: int) -> Section:
    """Return the whole run; UsageError where it is too long."""
    where = study.scaled_dir(n)
    trace = read_scaled(where)
    events = int(trace.repeat.sum(dtype=np.float64))  # which does not overflow
    if events > MOST_EVENTS:
        raise UsageError(
            f"{where}: the whole run has {events:,} events, more "
            f"than {MOST_EVENTS:,}; write some iterations of each loop: --turns 3"
        )
    return read_whole(where, trace)


def _sections(
    study: Study, n: int, turns: int, trace: ScaledTrace | None = None
) -> tuple[Section, ...]:
    """Return the sections of a scaled trace; P3SError where there are none."""
    sections = read_sections(study.scaled_dir(n), turns=turns, trace=trace)
    if not sections:
        raise P3SError(f"{study.scaled_dir(n)}: has no calls to write")
    return sections


def _staying(steps: Steps, n: int, keep: Keep) -> Bools:
    """Return which steps are collectives that are written as calls."""
    stays = np.zeros(len(steps), dtype=bool)
    for c in np.unique(steps.comm[steps.op == int(Op.COLLECTIVE)]).tolist():
        world = members_are_world(steps.members, c, n)
        kept = [i for i, name in enumerate(steps.calls) if keep(name, world)]
        stays |= (steps.op == int(Op.COLLECTIVE)) & (steps.comm == c) & np.isin(steps.call, kept)
    return stays


@dataclass(frozen=True)
class Simulated:
    """A section of a scaled trace as it was simulated.

    ``made``: its steps with collectives as messages; ``begin``, ``end``: of each of them in ns, the
    sections one after the other; ``waiting``: ns of it; ``clock``: when the last one ends.
    """

    section: Section
    made: Expanded
    begin: Floats
    end: Floats
    waiting: Floats
    clock: float


@dataclass(frozen=True)
class Simulation:
    """A scaled trace and what it is simulated with.

    ``node_of``: the node of every rank; ``notes``: of the network's costs; ``turns``: iterations of
    each loop.
    """

    trace: ScaledTrace
    sections: tuple[Section, ...]
    library: Library
    network: Network
    node_of: Ints
    notes: list[str]
    turns: int

    @classmethod
    def of(cls, study: Study, n: int, options: Options) -> Simulation:
        """Return that of a study at ``n`` processes."""
        library = library_of_study(study, options.collectives)
        network, notes = network_of(study, options.machine)
        turns = options.turns or TURNS
        trace = read_scaled(study.scaled_dir(n))
        sections = _sections(study, n, turns, trace)
        node_of = nodes_of(n, options.ranks_per_node)
        return cls(trace, sections, library, network, node_of, notes, turns)

    def run(self, done: Exported, say: Say) -> Iterator[Simulated]:
        """Simulate section after section; takes down what they are and what they lack."""
        clock = 0.0
        for k, section in enumerate(self.sections):
            say(f"{processes(done.n)}: {section.name}")
            made = expand(section.steps, self.library, node_of=self.node_of)
            times = simulate(made.steps, self.node_of, self.network, anyway=True)
            notes = (*section.notes, *made.notes, *times.notes)
            done.notes += [f"{section.name}: {note}" for note in notes]
            done.takes(section, k, SIMULATED)
            begin, end = times.begin_ns + clock, times.end_ns + clock
            clock = float(end.max(initial=clock))
            yield Simulated(section, made, begin, end, times.waiting_ns, clock)


@dataclass(frozen=True)
class Pieces:
    """Steps of one call that follow each other, of a section whose collectives are messages.

    ``first``, ``last``: step each begins and ends with; ``of``: the piece of every step;
    ``origin``: the step before collectives became messages; ``rank``; ``again``: it goes on with
    a call that an earlier piece has begun.
    """

    first: Ints
    last: Ints
    of: Ints
    origin: Ints
    rank: Ints
    again: Bools

    @classmethod
    def of_steps(cls, made: Expanded) -> Pieces:
        """Return the pieces in the order of the steps."""
        rank, origin = made.steps.rank, np.asarray(made.origin)
        new = np.ones(len(origin), dtype=bool)
        new[1:] = (origin[1:] != origin[:-1]) | (rank[1:] != rank[:-1])
        first = np.flatnonzero(new)
        again = np.ones(len(first), dtype=bool)
        again[np.unique(origin[first], return_index=True)[1]] = False
        last = np.append(first[1:], len(origin)) - 1
        return cls(first, last, np.cumsum(new) - 1, origin[first], rank[first], again)
