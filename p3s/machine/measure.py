"""Measures a machine: kernels on one core, on all cores at once, messages between two ranks."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from p3s.base.errors import P3SError
from p3s.base.text import join_words
from p3s.base.version import __version__
from p3s.machine.machinefile import (
    CORE_KERNELS,
    CURVE_KERNELS,
    LOADED_KERNELS,
    SMALLEST,
    Cost,
    Curve,
    Loaded,
    Machine,
    working_sets,
)

#: Seconds for all: whole, and --quick.
BUDGET_S = 20.0
QUICK_S = 5.0
#: Shares of it: one core, all cores, network (the rest starts programs).
_SHARES = (0.4, 0.2, 0.3)
#: Of the network's share, at least so much, also where three rounds of the others took longer.
_LEAST_SHARE = 0.5
#: What starting P3S and two ranks, packing and writing take on an idle machine, in seconds.
_STARTS_S = 1.2
#: A point is settled when the three least of its repeats lie this close together.
_SETTLED = 0.01
_FEWEST, _MOST = 3, 60
#: Time of one repeat, in ns of CPU time (loaded: of wall time).
_SHOT_NS, _QUICK_SHOT_NS, _LOADED_NS = 3_000_000, 1_500_000, 8_000_000
#: Wall time over CPU time, and spread, from which a measurement is called disturbed.
_SHARED_CORE, _WIDE = 1.1, 0.10

#: What a measurement consists of, in this order; the last where it is asked for.
PARTS = ("one core", "all cores", "network", "threads")


@dataclass
class Timings:
    """Repeats of kernels by (kernel, working set), in ns, and what disturbed them.

    ``wall_over_cpu``: of each repeat; ``late``: starts that were missed.
    """

    ns: dict[tuple[str, int], list[float]]
    wall_over_cpu: list[float] = field(default_factory=list)
    late: int = 0
    pinned: bool = True

    def repeat(
        self,
        program: Path,
        cores: Sequence[int],
        for_ns: int,
        until: float,
        step: Callable[[str], None],
    ) -> None:
        """Measure all points in rounds, each in new processes (other pages of memory).

        Ends when all are settled, or at ``until`` (time.monotonic) once each has three repeats.
        """
        from p3s.machine.programs import Runners

        largest, timed = max([size for _, size in self.ns] + [SMALLEST]), 0
        for round_ in range(_MOST):
            unsettled = [point for point, ns in self.ns.items() if not _is_settled(ns)]
            if not unsettled or (round_ >= _FEWEST and time.monotonic() > until):
                return
            with Runners(program, cores, largest) as runners:
                self.pinned &= runners.pinned
                for point in unsettled:
                    if round_ >= _FEWEST and time.monotonic() > until:
                        return
                    shot = runners.run(*point, for_ns)
                    self.wall_over_cpu.append(shot.wall_over_cpu)
                    if shot.late and round_ < _FEWEST:  # once more: it was not under load
                        shot = runners.run(*point, for_ns)
                    self.late += shot.late
                    if not shot.late or round_ < _FEWEST:
                        self.ns[point].append(shot.ns)
                    timed += 1
                    step(f"repeat {1 + timed // len(self.ns)} of {len(self.ns)} points")

    def summary(self, begin: float) -> str:
        """Return what the time since ``begin`` (time.monotonic) has brought."""
        settled = sum(map(_is_settled, self.ns.values()))
        return (
            f"{len(self.ns)} points in {time.monotonic() - begin:.1f} s, "
            f"{settled} of them repeat within {100 * _SETTLED:.0f} %"
        )

    def costs(self, kernel: str) -> dict[int, Cost]:
        """Return what a kernel costs by working set, ascending."""
        return {size: _cost(ns) for (name, size), ns in sorted(self.ns.items()) if name == kernel}

    def curves(self, kernels: Iterable[str]) -> dict[str, Curve]:
        """Return what kernels cost over the working set; absent where none was timed."""
        return {
            kernel: Curve(
                tuple(costs),
                tuple(cost.ns for cost in costs.values()),
                tuple(cost.spread for cost in costs.values()),
                tuple(cost.repeats for cost in costs.values()),
            )
            for kernel in kernels
            if (costs := self.costs(kernel))
        }

    def disturbed(self) -> int:
        """Return how many repeats others disturbed, 0 where these are few."""
        shared = sum(ratio > _SHARED_CORE for ratio in self.wall_over_cpu)
        return shared if 10 * shared > len(self.wall_over_cpu) else 0


def _is_settled(ns: Sequence[float]) -> bool:
    least = sorted(ns)[:_FEWEST]
    if len(least) < _FEWEST:
        return False
    return least[-1] <= least[0] * (1 + _SETTLED) or len(ns) >= _MOST


def _cost(ns: Sequence[float]) -> Cost:
    return Cost(min(ns), statistics.median(ns) / min(ns) - 1, len(ns))


def measure(
    *,
    quick: bool = False,
    launcher: Sequence[str] | None = None,
    network: bool = True,
    budget_s: float | None = None,
    openmp: bool = False,
    oversubscribe: bool = False,
    on_step: Callable[[str], None] | None = None,
    on_done: Callable[[str], None] | None = None,
) -> Machine:
    """Measure this machine within about ``budget_s`` [default: BUDGET_S, or QUICK_S if ``quick``].

    ``launcher``: words with {np} that start two ranks [default: the mpiexec found here]; without
    one that works the network is missing and says why. ``openmp``: teams of threads, too, in as
    much time again; ``oversubscribe``: more of them than the node has. ``on_step`` is told what is
    being done, ``on_done`` what each of PARTS has brought. Errors: P3SError when the kernels did
    not come compiled and there is no C compiler, none with OpenMP, or a kernel cannot run.
    """
    from p3s.base.host.compiling import c_compiler
    from p3s.base.host.cores import physical_cores
    from p3s.machine import machinefile, programs
    from p3s.machine.threads import measure_openmp, openmp_program

    ended = on_done or _silent

    def report(part: str, text: str = "") -> None:
        (on_step or _silent)(f"{part}: {text}" if text else part)

    budget = budget_s or (QUICK_S if quick else BUDGET_S)
    begin = time.monotonic()
    report("compiling")
    if openmp:
        compiler = c_compiler("threads (--openmp)")
        openmp_program(compiler)  # fails before anything is measured
    program = programs.kernels()
    facts = machinefile.facts()
    cores = physical_cores()[: max(facts.granted_cores or 1, 1)]
    sizes = working_sets(facts.caches, machinefile.granted_bytes(), quick)
    # By kernel: going from links to ones and back fills the whole memory again.
    points = [(kernel, 0) for kernel in CORE_KERNELS]
    points += [(kernel, size) for kernel in CURVE_KERNELS for size in sizes]
    shared = [size for size in sizes if size * len(cores) <= machinefile.granted_bytes() // 2]
    shared = shared[:: 1 if quick else 2] if len(cores) > 1 else []
    alone = Timings({point: [] for point in points})
    loaded = Timings({(kernel, size): [] for size in shared for kernel in LOADED_KERNELS})
    start, until, shot_ns = time.monotonic(), 0.0, _QUICK_SHOT_NS if quick else _SHOT_NS
    # The last core: the first often serves the system's interrupts.
    for part, share, timed, on, for_ns in (
        (PARTS[0], _SHARES[0], alone, cores[-1:], shot_ns),
        (PARTS[1], _SHARES[1], loaded, cores, _LOADED_NS // (2 if quick else 1)),
    ):
        then, until = time.monotonic(), until + share * budget
        if timed.ns:
            timed.repeat(program.path, on, for_ns, start + until, partial(report, part))
            ended(f"{part}: {timed.summary(then)}")
    network_costs: dict[str, Any] | None = None
    missing = "not asked for (--no-network)"
    if network:
        report(PARTS[2])
        then = time.monotonic()
        try:
            share_s = _network_s(budget, time.monotonic() - start)
            network_costs, missing = programs.measured_both(launcher, share_s), ""
            ended(
                f"{PARTS[2]}: {len(network_costs['sizes']['bytes'])} sizes of messages in "
                f"{time.monotonic() - then:.1f} s"
            )
        except P3SError as error:
            missing = str(error)
    teams = None
    if openmp:
        teams = measure_openmp(
            compiler, quick=quick, oversubscribe=oversubscribe, budget_s=budget_s, on_step=report
        )
        ended(f"{PARTS[3]}: teams of {join_words(teams.threads)} in {teams.seconds:.1f} s")
    return Machine(
        name=str(facts.host),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        p3s_version=__version__,
        facts=facts,
        settings={
            "quick": quick,
            "seconds": time.monotonic() - begin,
            "compiler": program.compiler,
            "compiler_version": program.version,
            "flags": program.flags,
            "core": cores[-1],
            "pinned": alone.pinned,
            "cores": cores,
            "clock": "CLOCK_THREAD_CPUTIME_ID",
        },
        core={kernel: alone.costs(kernel)[0] for kernel in CORE_KERNELS},
        curves=alone.curves(CURVE_KERNELS),
        loaded=Loaded(len(cores) if shared else 1, loaded.curves(LOADED_KERNELS)),
        network=network_costs,
        network_missing=missing,
        disturbed=(*_list_disturbances(alone, loaded), *(teams.disturbed if teams else ())),
        openmp=teams,
    )


def _network_s(budget_s: float, gone_s: float) -> float:
    """Return the seconds that messages get when the rest has taken ``gone_s`` of a budget."""
    share_s = _SHARES[-1] * budget_s
    return min(share_s, max(budget_s - _STARTS_S - gone_s, _LEAST_SHARE * share_s))


def _silent(_text: str) -> None:
    """Tell nobody."""


def _list_disturbances(alone: Timings, loaded: Timings) -> list[str]:
    """Return what speaks against the measurement, as sentences."""
    notes = []
    if shared := alone.disturbed():
        notes.append(
            f"others ran on the measured core during {shared} of {len(alone.wall_over_cpu)} "
            "timings (wall time above CPU time); measure on an idle machine"
        )
    if busy := loaded.disturbed():
        notes.append(
            f"others ran on the cores during {busy} of {len(loaded.wall_over_cpu)}"
            " timings of all cores: their load is part of these curves"
        )
    if loaded.late:
        notes.append(f"{loaded.late} timings of all cores did not begin together on every core")
    spread: dict[str, float] = {}
    for timed, where in ((alone, ""), (loaded, " on all cores")):
        for (kernel, _), ns in timed.ns.items():
            name = f"{kernel}{where}"
            spread[name] = max(spread.get(name, 0.0), _cost(ns).spread)
    if wide := {name: each for name, each in spread.items() if each > _WIDE}:
        worst = max(wide, key=lambda name: wide[name])
        notes.append(
            f"repeats of {', '.join(wide)} differ (median over least: up to "
            f"{100 * wide[worst]:.0f} % for {worst})"
        )
    if not alone.pinned:
        notes.append("the process could not be kept on one core")
    return notes
