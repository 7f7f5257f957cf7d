"""Programs written by hand, and jobs with real processes that execute them, for tests."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from paths import ROOT

from p3s.replay.engine.inner import compile_inner
from p3s.replay.engine.job import PLAN, JobSettings, result_path, write_job
from p3s.replay.engine.results import ProgramResult, read_result
from p3s.replay.engine.watchdog import Witness
from p3s.replay.plan.program import EVENT, FIELDS, MEASURED, Code, Pairing, Process, Program, World

DEFAULTS = {"peer": -1, "tag": 0, "at_ns": -1, "sample": -1, "slot": -1, "comm": -1}


@dataclass
class Script:
    """What one process does, event by event."""

    rows: list[tuple[int, ...]] = field(default_factory=list)
    lists: list[int] = field(default_factory=list)
    slots: int = 0
    room: int = 0

    def add(self, code: Code, **values: int) -> int:
        """Add an event; return its position."""
        self.rows.append(self._row(code, values))
        self.slots = max(self.slots, values.get("slot", -1) + 1)
        return len(self.rows) - 1

    def _row(self, code: Code, values: dict[str, int]) -> tuple[int, ...]:
        known = {**DEFAULTS, **values, "code": int(code)}
        return tuple(known.get(name, 0) for name in FIELDS)

    def wait(self, *slots: int, code: Code = Code.WAIT, **values: int) -> int:
        """Add a completion of requests."""
        first = len(self.lists)
        self.lists += slots
        return self.add(code, first=first, number=len(slots), **values)


def program_of(
    scripts: Sequence[Script],
    *,
    name: str = "by hand",
    what: str = "trace",
    comms: Sequence[Sequence[int]] = (),
    pairing: Pairing | None = None,
    timed: bool = False,
) -> Program:
    """Return the program of some scripts, one per process."""

    def ends(sizes: Sequence[int]) -> np.ndarray:
        return np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)

    lists = [np.asarray(script.lists, dtype=np.int64) for script in scripts]
    count = len([row for script in scripts for row in script.rows])
    return Program(
        what=what,
        name=name,
        section=0,
        events=np.array([row for script in scripts for row in script.rows], dtype=EVENT),
        start=ends([len(script.rows) for script in scripts]),
        step=np.full(count, -1, dtype=np.int64),
        lists=np.concatenate(lists),
        list_start=ends([len(one) for one in lists]),
        slots=np.array([script.slots for script in scripts], dtype=np.int64),
        comms=tuple(tuple(members) for members in comms),
        pairing=pairing,
        timed=timed,
        noise=False,
    )


def world_of(size: int) -> World:
    """Return a world of measured processes, half of them on either node."""
    return World(
        tuple(Process(MEASURED, 2 * rank // size, 2 * rank // size, rank) for rank in range(size))
    )


@dataclass(frozen=True)
class Mpi:
    """An MPI to start jobs with."""

    family: str
    mpiexec: str
    mpicc: str


def mpis() -> list[Mpi]:
    """Return one usable MPI of each family that is here, the one of the tests first."""
    from p3s.base.host import mpi

    found: dict[str, Mpi] = {}
    for install in mpi.find_mpi():
        if install.mpiexec and install.usable_oversubscribed:
            found.setdefault(
                install.family, Mpi(install.family, str(install.mpiexec), install.mpicc)
            )
    return list(found.values())


@dataclass(frozen=True)
class Ended:
    """How a job ended."""

    code: int
    stdout: str
    stderr: str
    timed_out: bool
    witness: str | None

    @property
    def marked(self) -> list[str]:
        """Return the lines that say what went wrong."""
        return [
            line[line.index("p3s replay: ") :]
            for line in self.stderr.splitlines()
            if "p3s replay: " in line
        ]


def settings_of(mpi: Mpi, **values: object) -> JobSettings:
    """Return settings with the inner loop compiled for an MPI."""
    return JobSettings(library=compile_inner(mpi.mpicc), **{"budget_s": 0.5, **values})


def run_job(
    directory: Path,
    mpi: Mpi,
    size: int,
    *,
    worker: Sequence[str] = (),
    timeout_s: float = 300.0,
    sharing: bool = True,
) -> Ended:
    """Start the processes of a job that is written, and wait for their end."""
    from p3s.base.host.mpi import library_of
    from p3s.signature_runner.launch import _environment

    library = library_of(str(compile_inner(mpi.mpicc)))
    env = {
        **_environment(sharing, "replay-jobs"),
        "PYTHONPATH": str(ROOT),
        "P3S_REPLAY_MPI": mpi.family,
    }
    if library and library[1]:
        env["MPI4PY_LIBMPI"] = library[1]
    words = [
        mpi.mpiexec,
        "-n",
        str(size),
        "/usr/bin/env",
        *(
            f"{name}={env[name]}"
            for name in ("PYTHONPATH", "P3S_REPLAY_MPI", "MPI4PY_LIBMPI")
            if name in env
        ),
        sys.executable,
        "-P",
        *(worker or ("-m", "p3s.replay.engine.worker")),
        str(directory),
        str(size),
        hashlib.sha256((directory / PLAN).read_bytes()).hexdigest(),
    ]
    with Witness(directory, size) as witness:
        process = subprocess.Popen(
            words,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        out, err, timed_out = _wait(process, timeout_s)
    return Ended(process.returncode, out, err, timed_out, witness.first)


def _wait(process: subprocess.Popen[str], timeout_s: float) -> tuple[str, str, bool]:
    """Return what a launcher printed, and whether it had to be ended."""
    timed_out = False
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        timed_out = True
        process.terminate()
        try:
            out, err = process.communicate(timeout=5.0)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate(timeout=10.0)
    return out, err, timed_out


def measure(
    directory: Path, mpi: Mpi, programs: Sequence[Program], size: int, **values: object
) -> list[ProgramResult]:
    """Run programs; return what they measured."""
    write_job(directory, programs, world_of(size), settings_of(mpi, **values))
    ended = run_job(directory, mpi, size)
    assert ended.code == 0 and not ended.timed_out, f"{ended.code} {ended.stderr}"
    return [read_result(result_path(directory, number)) for number in range(len(programs))]


def processes_with(mark: str) -> list[int]:
    """Return the processes whose command line holds a mark."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                if mark.encode() in Path("/proc", name, "cmdline").read_bytes():
                    found.append(int(name))
            except OSError:
                continue
    return found
