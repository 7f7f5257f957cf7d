"""The programs of the ranks of a scaled trace, and what an export of it needs from a study."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from p3s.base.arrays import Bools, Ints
from p3s.base.errors import P3SError, UsageError
from p3s.base.study import Study
from p3s.base.text import plural, processes, quoted
from p3s.formats.calls import RankProgram, members_are_world, programs_of_steps
from p3s.formats.exported import Exported, Options, Say
from p3s.machine.machinefile import NAME, Machine
from p3s.predict.estimators.messages import library_for, networks
from p3s.predict.estimators.settings import Setting
from p3s.program.collectives.choose import Library
from p3s.program.collectives.expand import MOST_STEPS, expand
from p3s.program.order.sections import read_sections, read_whole
from p3s.program.order.unstick import endless
from p3s.program.scaled import ScaledTrace, read_scaled
from p3s.simulate.network import Network, rough_network
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
    sections = (_whole(study, n),) if whole else sections_of(study, n, options.turns or TURNS)
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


def sections_of(
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
