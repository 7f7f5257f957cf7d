"""From a scaled trace to the times of its communication: sections, plan, launches, costs, files."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p3s.base.errors import P3SError
from p3s.replay.settings import END_S, ReplaySettings

if TYPE_CHECKING:
    from p3s.program.collectives.choose import Library
    from p3s.program.scaled import ScaledTrace
    from p3s.replay.engine.job import ResultStore
    from p3s.replay.engine.results import ProgramResult
    from p3s.replay.launching import Mpi
    from p3s.replay.plan.program import Program
    from p3s.replay.plan.types import ReplayPlan
    from p3s.simulate.network import Network

#: Share of the budget that whole iterations get when they are asked for.
TIMED_SHARE = 0.4
#: What is measured first: without it the rest says little.
FIRST = {"link": 0, "pair": 1}
#: Iterations of a loop that are executed as one.
TURNS = 3
#: On one machine all four nodes share its cores: at most this many ranks play one node.
MOST_LOCAL_RANKS = 16

Say = Callable[[str], None]


@dataclass(frozen=True)
class ReplaySetup:
    """What is known before anything is launched; ``mpi`` is None where none is installed.

    ``rough``: costs of messages that are used until they are measured.
    """

    trace: ScaledTrace
    plan: ReplayPlan
    mpi: Mpi | None
    library: Library
    rough: Network


def prepare(
    scaled_dir: Path,
    settings: ReplaySettings,
    *,
    machine: Path | None = None,
    say: Say | None = None,
) -> ReplaySetup:
    """Plan the replay of a scaled trace; launches nothing. ``machine``: file for the estimates."""
    from p3s.base.host.hosts import allocated_hosts
    from p3s.machine.topology.switches import read_topology
    from p3s.program.collectives.choose import USUAL_LIBRARY, library_of
    from p3s.program.mapping import mapping_of
    from p3s.program.order.sections import read_sections
    from p3s.program.scaled import read_scaled
    from p3s.replay.launching import find_mpi
    from p3s.replay.plan.plan import make_plan

    if say is not None:
        say("planning")
    mpi: Mpi | None
    try:
        mpi = find_mpi(settings.launcher)
    except P3SError:
        if settings.launcher:
            raise
        mpi = None
    family, version = (mpi.family, mpi.version) if mpi is not None else USUAL_LIBRARY
    library = library_of(family, version, settings.collectives)
    trace = read_scaled(scaled_dir)
    sections = read_sections(scaled_dir, turns=TURNS, trace=trace)
    hosts = settings.hosts or tuple(allocated_hosts())
    mapping = mapping_of(
        settings.mapping, trace.n, _ranks_per_node(settings, hosts, trace.n), settings.rank_file
    )
    topology = read_topology(settings.topology)
    network = rough(machine)
    planned = replace(settings, hosts=hosts)
    plan = make_plan(sections, mapping, topology, planned, network, library)
    return ReplaySetup(trace, plan, mpi, library, network)


def rough(machine: Path | None) -> Network:
    """Return costs of messages before anything is measured: the machine file's, or usual ones."""
    from p3s.simulate.network import network_from_machine, rough_network

    if machine is not None and machine.exists():
        from p3s.machine.machinefile import Machine

        loaded_machine = Machine.load(machine)
        if loaded_machine.network:
            return network_from_machine(loaded_machine)
    return rough_network()


def _ranks_per_node(settings: ReplaySettings, hosts: Sequence[str], n: int) -> int:
    """Return how many ranks of the full run are on one node."""
    if settings.cores_per_node is not None:
        return min(settings.cores_per_node, n)
    cores = len(os.sched_getaffinity(0))
    if hosts:
        return min(cores, n)
    # On one machine: as many ranks as leave a core for every process, but pairs in a node.
    return min(max((cores - 2) // 4, 2), MOST_LOCAL_RANKS, n)


def run(
    scaled_dir: Path,
    out_json: Path,
    settings: ReplaySettings,
    *,
    machine: Path | None = None,
    progress: Say | None = None,
) -> dict[str, Any]:
    """Replay a scaled trace and write ``out_json`` and a table beside it; see docs/replay.md.

    ``machine``: file of p3s machine measure, for the estimate of how long it takes. What has been
    measured is kept beside ``out_json`` (.parts) and not measured again. Returns the content of
    ``out_json``; raises P3SError.
    """
    from p3s.program.own_costs import usual_creation
    from p3s.replay.costs.evaluate import evaluate, simulate_replay
    from p3s.replay.costs.result import write_result
    from p3s.replay.engine.job import ResultStore
    from p3s.replay.plan.plan import timed_programs

    say = progress or (lambda _: None)
    ready = prepare(scaled_dir, settings, machine=machine, say=say)
    plan, trace = ready.plan, ready.trace
    scale = plan.estimate.work_scale
    notes = (
        [f"emulated computation is scaled by {scale:.3g} to fit the budget"] if scale < 1.0 else []
    )
    launches = Launches(ready, settings, ResultStore(out_json.with_suffix(".parts")), say)
    if settings.again:
        launches.store.clear()
    share = TIMED_SHARE if settings.timed and plan.timed else 0.0
    say(plan.saved())
    results = launches.measure(
        plan.programs, plan.placement_of, settings.budget_s * (1.0 - share), scale
    )
    say("simulating")
    simulation = simulate_replay(
        trace,
        plan,
        results,
        work_scale=scale,
        rough=ready.rough,
        creation=usual_creation(ready.library.family),
    )
    timed: tuple[Program, ...] = ()
    timed_results: dict[int, ProgramResult] = {}
    if share:
        timed = timed_programs(plan, simulation.begin)
        where = [entry.placement for entry in plan.timed]
        timed_results = launches.measure(timed, where, settings.budget_s * share, 1.0)
    content, table = evaluate(
        trace, plan, results, simulation, timed=timed, timed_results=timed_results
    )
    content["wall_s"] = launches.wall_s
    content["work_scale"] = scale
    content["notes"] = [*content["notes"], *notes]
    content["collectives"] = str(ready.library)
    write_result(out_json, content, table)
    return content


class Launches:
    """The launches of a replay, which share a store and the time that the settings give them.

    ``wall_s``: seconds that they took; what lies between them does not count.
    """

    def __init__(
        self, ready: ReplaySetup, settings: ReplaySettings, store: ResultStore, say: Say
    ) -> None:
        self.ready, self.settings, self.store, self.say = ready, settings, store, say
        self.wall_s = 0.0
        self._left_s = settings.limit_s

    @contextlib.contextmanager
    def limited(self) -> Iterator[float]:
        """Give the seconds after which a launch is to be ended: some are left to do that."""
        begin = time.monotonic()
        try:
            yield max(self._left_s - END_S, self._left_s / 2, 1.0)
        finally:
            self._left_s -= time.monotonic() - begin

    def measure(
        self,
        programs: Sequence[Program],
        placement_of: Sequence[int],
        budget_s: float,
        scale: float,
    ) -> dict[int, ProgramResult]:
        """Return the results of programs by number: stored ones, others by a launch per placement.

        ``scale``: factor on emulated computation.
        """
        results: dict[int, ProgramResult] = {}
        for number, placement in enumerate(self.ready.plan.placements):
            mine = sorted(
                (i for i, where in enumerate(placement_of) if where == number),
                key=lambda i: (FIRST.get(programs[i].what, len(FIRST)), i),
            )
            if mine:
                part_s = budget_s * len(mine) / len(programs)
                results_of = self._launch(
                    [programs[i] for i in mine], placement.hosts or None, part_s, scale
                )
                results |= {mine[i]: result for i, result in results_of.items()}
        return results

    def _launch(
        self,
        programs: Sequence[Program],
        hosts: tuple[str, ...] | None,
        budget_s: float,
        scale: float,
    ) -> dict[int, ProgramResult]:
        """Run programs on four hosts; what is stored is not run again."""
        from p3s.replay.engine.inner import compile_inner
        from p3s.replay.engine.job import JobSettings, write_job
        from p3s.replay.launching import find_mpi, landing_problem, on_hosts, run_job

        world = self.ready.plan.world
        mpi_install = self.ready.mpi or find_mpi(self.settings.launcher)  # says what is missing
        facts = {
            "hosts": hosts,
            "mpi": [mpi_install.family, mpi_install.version],
            "scale": scale,
            "launcher": list(mpi_install.words),
            "pages": self.settings.pages,
        }
        keys = [self.store.key(program, world, facts) for program in programs]
        stored = {
            i: result
            for i, key in enumerate(keys)
            if (result := self.store.get(key)) is not None
            and landing_problem(world, result.places, hosts) is None
        }
        missing = [i for i in range(len(programs)) if i not in stored]
        if not missing:
            self.say("everything is measured already (--again measures anew)")
            return stored
        mpi = on_hosts(mpi_install, hosts, world)
        with self.store.job() as directory:
            digest = write_job(
                directory,
                [programs[i] for i in missing],
                world,
                JobSettings(
                    library=compile_inner(mpi.mpicc),
                    budget_s=budget_s,
                    stall_s=self.settings.stall_s,
                    pages=self.settings.pages,
                    work_scale=scale,
                ),
                [self.store.path(keys[i]) for i in missing],
            )
            with self.limited() as limit_s:
                self.wall_s += run_job(
                    directory,
                    mpi,
                    world,
                    timeout_s=limit_s,
                    hosts=hosts,
                    progress=self.say,
                    digest=digest,
                )
        fresh = {i: result for i in missing if (result := self.store.get(keys[i])) is not None}
        return stored | fresh
