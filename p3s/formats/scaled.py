"""Exports of a scaled trace as programs of its ranks: SimGrid's traces and GOAL."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from p3s.base.artefacts import write_json
from p3s.base.errors import P3SError, UsageError
from p3s.base.text import plural, processes, quoted
from p3s.formats.place import new_directory, new_file
from p3s.formats.simgrid.format import Written
from p3s.program.order.reasons import REASON_TEXT, Reason

if TYPE_CHECKING:
    from p3s.base.study import Study
    from p3s.program.calls import RankProgram
    from p3s.program.collectives.rules import Library
    from p3s.simulate.network import Network
    from p3s.simulate.steps import Ints, Section, Steps

EXPORT_SCHEMA, EXPORT_VERSION = "p3s.export", 1
#: Events of a whole run, at most; text of 20 to 50 bytes each.
MOST_EVENTS = 300_000_000

#: Formats of runs, traced or simulated; they have communicators.
OF_RUNS = ("otf2", "paraver", "cube", "speedscope")
#: Why calls are left out, where the replay's words do not fit.
_WHY = {
    REASON_TEXT[Reason.CONSTRUCTOR]: "communicators are told apart by tags",
    REASON_TEXT[Reason.NOT_REPLAYED]: "there is no model of what it sends",
    REASON_TEXT[Reason.NOT_SEEN]: "it occurs only in iterations of its loop that are not written",
}

Say = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """How a scaled trace is exported.

    ``turns``: iterations of each loop, None: the whole run. ``messages``: all collectives as
    messages, also where the format has calls. ``collectives``: algorithms instead of the library's.
    ``ranks_per_node``: on one host. ``machine``: costs of messages, default STUDY/machine.json.
    ``ranks``: of a timeline, None: all. ``simulated``: the simulated run, though there is a traced
    one."""

    turns: int | None = None
    messages: bool = False
    collectives: str = ""
    ranks_per_node: int | None = None
    machine: Path | None = None
    ranks: tuple[int, ...] | None = None
    simulated: bool = False


@dataclass
class Exported:
    """What an export holds and what it lacks; ``command``: words that read it, None: none known.

    ``left_out``: (MPI call, why) -> events of the run; ``changed``: what was changed -> events, 0:
    all of them; ``sections``: of an export of some turns.
    """

    to: str
    n: int
    path: Path
    events: float = 0.0
    records: int = 0
    left_out: dict[tuple[str, str], float] = field(default_factory=dict)
    changed: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    sections: list[dict[str, Any]] = field(default_factory=list)
    command: str = ""

    @property
    def partial(self) -> bool:
        """Whether communication of the run is not in it."""
        from p3s.capture.ops import COMM, COMPLETION, kind_of

        return any(kind_of(call) not in (COMM, COMPLETION) for call, _ in self.left_out)

    def to_json(self) -> dict[str, Any]:
        """Return the content of export.json."""
        return {
            "schema": EXPORT_SCHEMA,
            "schema_version": EXPORT_VERSION,
            "to": self.to,
            "n": self.n,
            "path": str(self.path),
            "events": self.events,
            "records": self.records,
            "left_out": [
                {"call": call, "why": why, "events": events}
                for (call, why), events in sorted(self.left_out.items())
            ],
            "changed": [
                {"what": what, "events": events or None}
                for what, events in sorted(self.changed.items())
            ],
            "notes": self.notes,
            "sections": self.sections,
            "command": self.command,
        }

    def lines(self) -> list[str]:
        """Return what is left out and changed, one line each, for people."""
        return [
            *(
                f"left out: {events:,.0f} {call}: {why}"
                for (call, why), events in sorted(self.left_out.items(), key=lambda pair: -pair[1])
            ),
            *(
                f"changed: {what}" + (f" ({events:,.0f})" if events else "")
                for what, events in sorted(self.changed.items())
            ),
            *self.notes,
        ]

    def lacks(self, call: str, why: str, events: float) -> None:
        """Take down calls that are not in it."""
        if self.to in OF_RUNS and why == REASON_TEXT[Reason.CONSTRUCTOR]:
            why = "the simulation leaves it out"
        key = (call, _WHY.get(why, why))
        self.left_out[key] = self.left_out.get(key, 0.0) + events

    def take(self, written: Written) -> Written:
        """Add what a writer has written, and return it."""
        self.records += written.actions
        for (call, why), events in written.left_out.items():
            self.lacks(call, why, events)
        for what, events in written.changed.items():
            self.changed[what] = self.changed.get(what, 0.0) + events
        return written


def library_of_study(study: Study, collectives: str) -> Library:
    """Return the MPI library of the runs, the usual one where it is not known."""
    from p3s.program.collectives.library import USUAL_LIBRARY, library_of

    for run in study.runs():
        family, _, version = str(run.info.get("mpi", "")).partition(" ")
        if family in ("openmpi", "mpich") and version[:1].isdigit():
            return library_of(family, version, collectives)
    return library_of(*USUAL_LIBRARY, collectives)


def network_of(study: Study, machine: Path | None) -> tuple[Network, list[str]]:
    """Return the costs of messages: those of a machine file, else usual ones and a note."""
    from p3s.machine.machinefile import NAME, Machine
    from p3s.predict.estimators.machine import networks
    from p3s.simulate.network import rough_network

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


def to_simgrid(study: Study, n: int, target: Path, options: Options, say: Say) -> Exported:
    """Write SimGrid's time-independent trace, a platform and its hosts into a new directory."""
    from p3s.formats.simgrid import format as simgrid
    from p3s.formats.simgrid.platform import HOSTS, PLATFORM, lacks, write_platform

    done = Exported("simgrid", n, target)
    network, notes = network_of(study, options.machine)
    keep = _keep(simgrid.keep, options)
    run = f"smpirun -np {n} -platform {PLATFORM} -hostfile {HOSTS} -replay "
    with new_directory(target) as directory:
        sizes: set[int] = set()
        if options.turns is None:
            with _whole(study, n, options, keep, done, say) as programs:
                sizes |= done.take(simgrid.write_trace(programs, n, directory)).sizes
            done.command = f"cd {shlex.quote(str(target))} && {run}{simgrid.INDEX}"
        else:
            for k, programs in _sections(study, n, options, keep, done):
                inner = directory / f"section-{k:03d}"
                inner.mkdir()
                sizes |= done.take(simgrid.write_trace(programs, n, inner)).sizes
            there = shlex.quote(str(target / "section-000"))
            done.command = f"cd {there} && {run}{simgrid.INDEX}".replace(
                f" {PLATFORM}", f" ../{PLATFORM}"
            ).replace(f" {HOSTS}", f" ../{HOSTS}")
        write_platform(directory, network, nodes_of(n, options.ranks_per_node), sizes)
        if not options.messages:
            done.notes.append(
                "collectives of all ranks are calls: SimGrid picks their algorithms "
                "(--cfg=smpi/coll-selector:ompi, mpich, ...)"
            )
        done.notes += [
            *notes,
            *(f"not in the platform: {text}" for text in lacks(network)),
            "one flop is one ns of computation: hosts have 1 Gf",
        ]
        write_json(directory / "export.json", done.to_json())
    return done


def to_goal(study: Study, n: int, target: Path, options: Options, say: Say) -> Exported:
    """Write a GOAL schedule into a new file, or one for each section into a new directory."""
    from p3s.formats import goal

    done = Exported("goal", n, target)
    if options.turns is None:
        with new_file(target) as file, _whole(study, n, options, goal.keep, done, say) as programs:
            done.take(goal.write_goal(programs, n, file))
        done.command = _goal_command(target)
    else:
        with new_directory(target) as directory:
            for k, programs in _sections(study, n, options, goal.keep, done):
                with new_file(directory / f"section-{k:03d}.goal") as file:
                    done.take(goal.write_goal(programs, n, file))
            done.command = _goal_command(target / "section-000.goal")
            write_json(directory / "export.json", done.to_json())
    done.notes.append("one unit of computation is one ns")
    return done


def _goal_command(path: Path) -> str:
    text, binary = (shlex.quote(str(p)) for p in (path, path.with_suffix(".bin")))
    return f"txt2bin -i {text} -o {binary} && LogGOPSim -f {binary}"


def _keep(keep: Callable[[str, bool], bool], options: Options) -> Callable[[str, bool], bool]:
    return (lambda call, world: False) if options.messages else keep


@contextmanager
def _whole(
    study: Study,
    n: int,
    options: Options,
    keep: Callable[[str, bool], bool],
    done: Exported,
    say: Say,
) -> Iterator[Iterator[RankProgram] | Sequence[RankProgram]]:
    """Give the programs of a whole run; afterwards say what they lack."""
    from p3s.program.whole import WholeRun
    from p3s.program.whole_check import MOST_EVENTS as CHECKED
    from p3s.program.whole_check import executable

    library = library_of_study(study, options.collectives)
    run = WholeRun(study.scaled_dir(n), library, keep, node_of=nodes_of(n, options.ranks_per_node))
    if run.events > MOST_EVENTS:
        raise UsageError(
            f"{study.scaled_dir(n)}: the whole run has {run.events:,} events, more "
            f"than {MOST_EVENTS:,}; write some iterations of each loop: --turns 3"
        )
    say(f"{processes(n)}: {plural(run.events, 'event')}")
    done.events = float(run.events)
    for (call, why), events in run.left_out.items():
        done.lacks(call, why, events)
    programs: Iterator[RankProgram] | Sequence[RankProgram] = run.programs()
    if run.events <= CHECKED:
        programs, notes = executable(list(programs), n)
        done.notes += notes
    yield programs
    done.notes += [
        f"{call} stays one call where the format has it: {why}"
        for call, why in sorted(run.collectives.stayed.items())
    ]
    if run.collectives.expanded:
        done.notes.append(f"algorithms of collectives that are messages: {library}")


def _sections(
    study: Study, n: int, options: Options, keep: Callable[[str, bool], bool], done: Exported
) -> Iterator[tuple[int, Iterator[RankProgram]]]:
    """Yield the number and the programs of each section that has calls."""
    from p3s.program.calls import members_are_world, programs_of_steps
    from p3s.program.collectives.expand import expand
    from p3s.program.order.sections import read_sections
    from p3s.simulate.steps import Op

    library = library_of_study(study, options.collectives)
    sections = read_sections(study.scaled_dir(n), turns=options.turns or 1)
    node_of = nodes_of(n, options.ranks_per_node)
    for k, section in enumerate(sections):
        steps = section.steps
        stays = np.zeros(len(steps), dtype=bool)
        for c in np.unique(steps.comm[steps.op == int(Op.COLLECTIVE)]).tolist():
            world = members_are_world(steps.members, c, n)
            kept = [i for i, name in enumerate(steps.calls) if keep(name, world)]
            stays |= (
                (steps.op == int(Op.COLLECTIVE)) & (steps.comm == c) & np.isin(steps.call, kept)
            )
        made = expand(steps, library, ~stays, node_of=node_of)
        done.events += float(len(steps))
        tell(section, steps, k, done)
        done.notes += [f"{section.name}: {note}" for note in (*section.notes, *made.notes)]
        yield k, programs_of_steps(made.steps)
    if not sections:
        raise P3SError(f"{study.scaled_dir(n)}: has no calls to write")


def tell(section: Section, steps: Steps, k: int, done: Exported) -> None:
    """Take down what a section is and what it lacks."""
    done.sections.append(
        {
            "section": k,
            "name": section.name,
            "phases": list(section.phases),
            "turns": section.turns,
            "first_turn": section.first_turn,
            "run_turns": section.run_turns,
            "entries": section.entries,
            "events": len(steps),
        }
    )
    for left in section.left_out:
        if left.call not in ("MPI_Init", "MPI_Init_thread", "MPI_Finalize"):
            done.lacks(left.call, left.why, left.events)
