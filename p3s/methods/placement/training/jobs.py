"""Jobs of the runner of traffic (exchange.c), and starting it: on hosts, or in SimGrid."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from p3s.base.arrays import Ints
from p3s.base.errors import P3SError
from p3s.base.host.compiling import compile_cached
from p3s.base.host.cores import cores
from p3s.base.host.simgrid import run_simgrid, simgrid_program
from p3s.methods.placement.phases import Traffic
from p3s.program.mapping import RankMap
from p3s.replay.launching import Mpi, find_mpi, put_on_hosts, write_hosts

_MAGIC = 0x3153454741524654
_SOURCE = Path(__file__).with_name("exchange.c")
_JOB, _RESULTS = "job.bin", "results.txt"
#: Counts of MPI are 32-bit.
_MOST_BYTES = (1 << 31) - 1


@dataclass(frozen=True)
class Repeats:
    """How often a phase is run before its times count, and how often they do."""

    warm: int
    timed: int

    @property
    def all(self) -> int:
        """How often it is run."""
        return self.warm + self.timed


@dataclass(frozen=True)
class Job:
    """Phases that are run one after the other by the same processes.

    ``hosts``: of each process; those of one host follow each other. ``phases``: traffic between
    processes, by the number of its phase.
    """

    hosts: tuple[str, ...]
    phases: Mapping[int, Traffic]
    repeats: Repeats


class Machine(Protocol):
    """What runs jobs."""

    @property
    def repeats(self) -> Repeats:
        """How often a phase has to be repeated here."""

    def run(self, job: Job, directory: Path) -> None:
        """Run a job that is written in a directory. Errors: P3SError, in one line."""


def on_processes(traffic: Traffic, placed: RankMap) -> Traffic:
    """Return traffic between the processes of a job whose processes fill one node after the other.

    A node's processes have its ranks in the order of their slots, so that any placement runs
    under any launcher.
    """
    process = np.empty(placed.n, dtype=np.int64)
    process[np.lexsort((placed.slot_of, placed.node_of))] = np.arange(placed.n)
    return replace(traffic, source=process[traffic.source], dest=process[traffic.dest])


def hosts_of(placed: RankMap, hosts: Sequence[str]) -> tuple[str, ...]:
    """Return the host of each process of a job, from those of the placement's nodes."""
    return tuple(np.repeat(np.array(hosts, dtype=object), placed.sizes).tolist())


def measure(job: Job, machine: Machine, directory: Path) -> dict[int, float]:
    """Run a job and return the seconds of each phase by its number.

    What an interrupted run of the same job has measured is in the directory, and not measured
    again. Errors: P3SError; what was measured until then stays there.
    """
    directory = directory.absolute()  # runs have directories of their own
    directory.mkdir(parents=True, exist_ok=True)
    measured_s = {n: s for n, s in read_results(directory).items() if n in job.phases}
    remaining = {n: traffic for n, traffic in job.phases.items() if n not in measured_s}
    if remaining:
        rest = replace(job, phases=remaining)
        write_job(rest, directory)
        machine.run(rest, directory)
        measured_s = read_results(directory)
    missing = [number for number in job.phases if number not in measured_s]
    if missing:
        raise P3SError(
            f"{len(missing)} of {len(job.phases)} phases were not measured, the first is "
            f"{missing[0]}; run it again, what is there is kept"
        )
    return {number: measured_s[number] for number in job.phases}


def read_results(directory: Path) -> dict[int, float]:
    """Return what a job's results say; a line that was cut off says nothing."""
    try:
        text = (directory / _RESULTS).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return {}
    seconds_of: dict[int, float] = {}
    for line in text.splitlines(keepends=True):
        words = line.split()
        if line.endswith("\n") and len(words) >= 2:
            with contextlib.suppress(ValueError):
                seconds_of.setdefault(int(words[0]), float(words[1]))
    return seconds_of


def write_job(job: Job, directory: Path) -> None:
    """Write what the runner reads, and take off what was cut off of its results."""
    ranks = len(job.hosts)
    parts = [np.array([_MAGIC, ranks, job.repeats.warm, job.repeats.timed, len(job.phases)])]
    for number, traffic in job.phases.items():
        if len(traffic) and int(traffic.nbytes.max()) > _MOST_BYTES:
            raise P3SError(
                f"a message of {int(traffic.nbytes.max()):,} bytes; MPI sends {_MOST_BYTES:,} at "
                "most"
            )
        parts += [np.array([number, len(traffic)]), _rows(traffic).ravel()]
    (directory / _JOB).write_bytes(np.concatenate(parts).astype("<i8").tobytes())
    results = directory / _RESULTS
    if results.exists():  # a line that was cut off may look like a whole one
        text = results.read_bytes()
        os.truncate(results, text.rfind(b"\n") + 1)


def _rows(traffic: Traffic) -> Ints:
    return np.stack([traffic.source, traffic.dest, traffic.messages, traffic.nbytes], axis=1)


@dataclass(frozen=True)
class RealMachine:
    """Hosts, started by an MPI's launcher. ``timeout_s``: ends a job the hard way."""

    mpi: Mpi
    repeats: Repeats
    timeout_s: float | None = None

    def run(self, job: Job, directory: Path) -> None:
        """Run a job on its hosts."""
        from p3s.replay.launching import remove_shared_memory
        from p3s.signature_runner.launch import run_traced

        program = compile_cached(
            "exchange", [_SOURCE], ("-O2", "-w"), compiler=self.mpi.mpicc, what="the runner"
        )
        local = set(job.hosts) <= {"localhost", socket.gethostname()}
        mpi = put_on_hosts(self.mpi, () if local else job.hosts)
        words = [*write_hosts(mpi, directory), str(program)]
        since = os.stat(directory / _JOB).st_mtime
        try:
            run_traced(
                [*words, str(directory / _JOB), str(directory / _RESULTS)],
                len(job.hosts),
                directory / "run",
                timeout_s=self.timeout_s,
                trace=False,
                sharing=True if local and len(job.hosts) > cores() else None,
            )
        finally:
            remove_shared_memory(since)


def real_machine(launcher: Sequence[str] = (), repeats: Repeats = Repeats(3, 20)) -> RealMachine:
    """Return the machine that a launcher starts processes on. Errors: P3SError without an MPI."""
    return RealMachine(find_mpi(launcher), repeats)


@dataclass(frozen=True)
class SimulatedMachine:
    """A platform that SimGrid simulates. ``options``: further words for smpirun."""

    platform: Path
    repeats: Repeats = Repeats(0, 2)
    options: tuple[str, ...] = ()
    timeout_s: float = 1800.0

    def run(self, job: Job, directory: Path) -> None:
        """Run a job in SimGrid; the computation of the runner itself takes no time."""
        program = compile_cached(
            "exchange-simulated",
            [_SOURCE],
            ("-O2", "-w", "-DP3S_SIMULATED"),
            compiler=simgrid_program("smpicc"),
            what="the runner",
        )
        hosts = directory / "hosts"
        hosts.write_text("".join(f"{host}\n" for host in job.hosts))
        words = [simgrid_program("smpirun"), "-np", str(len(job.hosts)), "-hostfile", str(hosts)]
        words += ["-platform", str(self.platform.absolute()), "--cfg=smpi/privatization:no"]
        words += ["--cfg=smpi/simulate-computation:no", "--cfg=smpi/host-speed:1Gf"]
        words += ["--cfg=smpi/wtime:0", "--log=root.thresh:warning", *self.options, str(program)]
        words += [str(directory / _JOB), str(directory / _RESULTS)]
        with tempfile.TemporaryDirectory(prefix="p3s-simgrid-") as work:
            run_simgrid(words, Path(work), self.timeout_s, "SimGrid")
