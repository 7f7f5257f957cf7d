"""Starts the processes of a replay with an MPI launcher and brings back what they measured."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from p3s.errors import P3SError
from replay.thesis.inner import compile_inner
from replay.thesis.plan import ReplayPlan
from replay.thesis.program import EVENT
from replay.thesis.watchdog import ERROR_MARK, STALL_MARK
from replay.thesis.world import World

#: What the launcher starts on every process, after the interpreter.
WORKER = ("-m", "replay.thesis.worker")
_START_S = 60.0
_START_PER_PROCESS_S = 0.5
_FEWEST_STALL_S = 20.0


@dataclass(frozen=True)
class Mpi:
    """The MPI that a replay uses: launcher words with {np}, its family, and its compiler."""

    launcher: tuple[str, ...]
    family: str
    mpicc: str


def find_launcher(launcher: Sequence[str] | None, hosts: Sequence[str] | None,
                  world: World) -> Mpi:
    """Return the launcher to use, with the options that put each node's processes on its host.

    Without ``launcher``: the mpiexec that ``p3s characterize`` would take (PATH, then beside
    this Python), unless its MPI cannot share cores or has no compiler here. With one: {np} is
    replaced; without a {np} in it, -n {np} is added, and the hosts if there are any.
    Errors: P3SError when there is none, or no compiler of the same MPI.
    """
    from signature_runner import command, mpi

    words = list(launcher or _default_launcher())
    place = next((i for i, word in enumerate(words)
                  if os.path.basename(word) in command.LAUNCHERS), 0)
    path = command.find_launcher(words[place])
    family = mpi.launcher_family(path)
    install = mpi.mpi_for(None, path)
    if install is None or (family in (mpi.OPENMPI, mpi.MPICH) and install.family != family):
        raise P3SError(f"{path}: no mpicc of this launcher's MPI ({family or 'unknown'}) found; "
                       "put its bin directory on PATH or run `p3s doctor`")
    words[place] = path
    if not any("{np}" in word for word in words):
        words += ["-n", "{np}"]
        if hosts:
            words += _host_words(install.family, hosts, world)
    return Mpi(tuple(words), install.family, install.mpicc)


def _default_launcher() -> list[str]:
    """Return the launcher to use when none is named."""
    from signature_runner import command, mpi

    try:
        path = command.find_launcher("mpiexec")
        install = mpi.mpi_for(None, path)
        if install is not None and install.usable_oversubscribed and (
                install.family == mpi.launcher_family(path)):
            return [path]
    except P3SError:
        pass
    found = [str(m.mpiexec) for m in mpi.find_mpi() if m.mpiexec is not None]
    if not found:
        raise P3SError("no MPI found to replay with; install one (for example "
                       "`pip install mpich`) or run `p3s doctor`")
    return found[:1]


def _host_words(family: str, hosts: Sequence[str], world: World) -> list[str]:
    """Return the launcher's options for one block of processes per node, in order of the nodes."""
    from signature_runner import mpi

    blocks = [(host, world.on_node(node)) for node, host in enumerate(hosts)]
    text = ",".join(f"{host}:{count}" for host, count in blocks if count)
    if family == mpi.OPENMPI:
        return ["--host", text, "--map-by", "slot"]
    return ["-hosts", text]


@dataclass(frozen=True)
class Place:
    """Where a process ran: processor name, identity of the kernel, numbers of its cores."""

    name: str
    kernel: str
    cores: frozenset[int]


@dataclass(frozen=True)
class Outcome:
    """What a replay brought back: samples by number, place of each process, passes, seconds.

    ``skipped`` programs were not run because the budget was spent.
    """

    samples: Mapping[int, tuple[list[float], int]]
    places: tuple[Place, ...]
    passes: int
    skipped: int
    wall_s: float


def write_plan(plan: ReplayPlan, directory: Path, *, library: Path, budget_s: float,
               work_scale: float, shared_cores: bool, stall_s: float) -> None:
    """Write what the processes need: plan.json and events.npy."""
    programs, parts, first = [], [], 0
    for number, iteration in enumerate(plan.iterations):
        for program in iteration.programs:
            programs.append({
                "iteration": number,
                "ranges": list(iteration.ranges),
                "phase": program.phase,
                "first": first,
                "start": program.start.tolist(),
                "out_bytes": program.out_bytes,
                "in_bytes": program.in_bytes.tolist(),
                "samples": program.samples(),
            })
            parts.append(program.events)
            first += len(program.events)
    head = {
        "library": str(library),
        "budget_s": budget_s,
        "stall_s": stall_s,
        "work_scale": work_scale,
        "shared_cores": shared_cores,
        "roles": [f"{p.role} {p.slot} of side {p.side}, node {p.node}"
                  for p in plan.world.processes],
        "programs": programs,
    }
    (directory / "plan.json").write_text(json.dumps(head))
    np.save(directory / "events.npy",
            np.concatenate(parts) if parts else np.zeros(0, dtype=EVENT), allow_pickle=False)


def launch(
    plan: ReplayPlan, mpi: Mpi, *, budget_s: float, work_scale: float, shared_cores: bool,
    progress: Callable[[str], None] | None = None, worker: Sequence[str] = WORKER,
    stall_s: float | None = None,
) -> Outcome:
    """Run a plan under a hard timeout; nothing of the job is left when this returns.

    Errors: P3SError in one line, with what the processes said when one of them failed, was
    stuck for ``stall_s`` seconds (the events that were pending), or found another MPI than the
    launcher's.
    """
    from signature_runner.launch import run_traced

    library = compile_inner(mpi.mpicc)
    timeout_s = _START_S + _START_PER_PROCESS_S * plan.world.size + 3.0 * budget_s
    with tempfile.TemporaryDirectory(prefix="p3s-replay-") as name:
        directory = Path(name)
        write_plan(plan, directory, library=library, budget_s=budget_s, work_scale=work_scale,
                   shared_cores=shared_cores, stall_s=stall_s or max(_FEWEST_STALL_S, budget_s))
        words = [*mpi.launcher, *_program(mpi, library, worker, directory, plan.world.size)]
        said = _Output(progress)
        try:
            outcome = run_traced(words, plan.world.size, directory / "run", timeout_s=timeout_s,
                                 trace=False, on_output=said)
        except P3SError as err:
            raise P3SError(said.failure() or f"the replay failed: {err}") from err
        try:
            result: dict[str, Any] = json.loads((directory / "result.json").read_text())
        except (OSError, ValueError) as err:
            raise P3SError(said.failure() or "the replay ended without a result") from err
    samples = {int(key): (values, int(result["numbers"].get(key, 0)))
               for key, values in result["samples"].items()}
    places = tuple(Place(place["name"], place["kernel"], _cores(int(place["cores"], 16)))
                   for place in result["places"])
    return Outcome(samples, places, int(result["passes"]), int(result["skipped"]), outcome.wall_s)


def _cores(mask: int) -> frozenset[int]:
    """Return the numbers of the bits that are set."""
    return frozenset(bit for bit in range(mask.bit_length()) if mask >> bit & 1)


def _program(mpi: Mpi, library: Path, worker: Sequence[str], directory: Path,
             size: int) -> list[str]:
    """Return the words that start one process, with an mpi4py that fits the launcher."""
    from signature_runner.mpi import library_of

    root = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    settings = [f"PYTHONPATH={path}", f"P3S_REPLAY_MPI={mpi.family}"]
    found = library_of(str(library))
    if found and found[1]:
        # Left alone, mpi4py takes the first MPI it finds, not the one the launcher belongs to.
        settings.append(f"MPI4PY_LIBMPI={found[1]}")
    return ["/usr/bin/env", *settings, sys.executable, "-P", *worker, str(directory), str(size)]


class _Output:
    """Reads along with what the job prints."""

    def __init__(self, progress: Callable[[str], None] | None) -> None:
        self._progress = progress
        self._rest = {"stdout": "", "stderr": ""}
        self._lines: list[str] = []

    def __call__(self, name: str, text: str) -> None:
        lines = (self._rest[name] + text).split("\n")
        self._rest[name] = lines.pop()
        for line in lines:
            if name == "stderr":
                self._lines.append(line)
            elif self._progress is not None and line.startswith("measured "):
                self._progress(line)

    def failure(self) -> str | None:
        """Return the most telling thing the processes said, if any of them said why."""
        lines = [*self._lines, self._rest["stderr"]]
        errors = [part for line in lines for part in [line.partition(ERROR_MARK)[2]] if part]
        if errors:
            return f"the replay failed: {errors[0].strip()}"
        stalled = [part for line in lines for part in [line.partition(STALL_MARK)[2]] if part]
        if stalled:
            more = f" (and {len(stalled) - 1} more processes)" if len(stalled) > 1 else ""
            return (f"the replay did not move and was stopped; pending: "
                    f"{'; '.join(part.strip() for part in sorted(stalled)[:3])}{more}")
        # The last line of a traceback names the exception.
        for before, line in zip(lines[::-1][1:], lines[::-1], strict=False):
            if before.startswith("  ") and line[:1].isalpha() and ":" in line:
                return f"the replay failed: {line.strip()}"
        return None
