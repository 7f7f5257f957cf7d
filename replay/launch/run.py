"""Runs the job of a replay: starts its processes, listens to them, leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from p3s.base.errors import P3SError
from p3s.replay.engine.clocks import kernel
from p3s.replay.engine.watchdog import ERROR_MARK, STALL_MARK, pages_dir, pending
from p3s.replay.launch.landing import Place, check_landing
from p3s.replay.launch.launcher import Mpi, shares_cores, write_hosts
from p3s.replay.launch.store import read_places
from p3s.replay.plan.world import World

#: Where launchers tell a process its number.
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
_STOPPED = "Tt"


@dataclass(frozen=True)
class _Seen:
    """A process of a job on this machine; ``rank``: -1 of the launcher and its daemons."""

    pid: int
    rank: int
    name: str
    stopped: bool

    def __str__(self) -> str:
        return f"process {self.rank}" if self.rank >= 0 else f"{self.name} (pid {self.pid})"


def what_is_seen(directory: Path) -> str:
    """Return which processes of a job are stopped, else not out of MPI_Init, else what they do."""
    there = processes_of(directory)
    doing = pending(directory)
    stopped = [one for one in there if one.stopped]
    if stopped:
        return _some([_stopped(one, doing.get(one.rank, "")) for one in stopped])
    pages = pages_dir(directory, kernel())
    early = [one for one in there if one.rank >= 0 and not (pages / str(one.rank)).exists()]
    if early:
        return f"{_some([str(one) for one in early], ', ')} in MPI_Init, or before it"
    return _some(list(doing.values()))


def _stopped(one: _Seen, doing: str) -> str:
    return f"{doing or one} is stopped (by SIGSTOP or a debugger)"


def _some(parts: list[str], between: str = "; ") -> str:
    more = f" (and {len(parts) - _SHOWN} more)" if len(parts) > _SHOWN else ""
    return between.join(parts[:_SHOWN]) + more


def processes_of(directory: Path) -> list[_Seen]:
    """Return the processes on this machine that have a job's directory on their command line."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError, ValueError, IndexError):
                place = Path("/proc", name)
                words = (place / "cmdline").read_bytes().split(b"\0")
                if os.fsencode(directory) in words:
                    found.append(_seen(int(name), place, words))
    return sorted(found, key=lambda one: (one.rank, one.pid))


def _seen(pid: int, place: Path, words: list[bytes]) -> _Seen:
    state = (place / "stat").read_text().rpartition(")")[2].split()[0]
    return _Seen(pid, _rank(place), os.fsdecode(os.path.basename(words[0])), state in _STOPPED)


def _rank(place: Path) -> int:
    told = dict(
        entry.partition(b"=")[::2] for entry in (place / "environ").read_bytes().split(b"\0")
    )
    for name in _RANKS:
        if name.encode() in told:
            return int(told[name.encode()])
    return -1


#: What the launcher starts on every process, after the interpreter.
WORKER = ("-m", "p3s.replay.engine.worker")
_EARLY = "it ended before it was done"
_SHOWN = 3
_SHM = Path("/dev/shm")
#: Files that Open MPI and MPICH make there: for messages inside a node.
_SHM_NAMES = re.compile(r"(vader_segment|sm_segment|openmpi|ompi|mpich|mpi_|psm2?_shm|ucx_shm).*")


@dataclass(frozen=True)
class Outcome:
    """A job that has ended well: where its processes ran, and seconds that it took."""

    places: tuple[Place, ...]
    wall_s: float


def run_job(
    directory: Path,
    mpi: Mpi,
    world: World,
    *,
    timeout_s: float,
    progress: Callable[[str], None] | None = None,
    hosts: Sequence[str] | None = None,
    worker: Sequence[str] = WORKER,
    digest: str | None = None,
) -> Outcome:
    """Run the job that is written in ``directory``; no process of it is left when this returns.

    ``mpi``: with the words of ``on_hosts``. ``timeout_s``: ends it the hard way, whatever its
    processes are doing.
    ``progress`` gets what it says while it measures, and the table of pending operations when it
    did not move. ``hosts``: of the four nodes; what was measured elsewhere is removed.
    ``digest``: of plan.json, as write_job returned it; None: of the one that is there now.
    Errors: P3SError in one line: the process that failed and its event, what was pending when
    nothing moved, processes that are not on their hosts, or another MPI than the launcher's.
    Results that are there when a process fails are kept.
    """
    from p3s.replay.engine.job import DONE, PLACES, RESULTS, digest_of_plan, read_job
    from p3s.replay.engine.witness import Witness
    from p3s.signature_runner.launch import run_traced

    directory = Path(directory).absolute()
    digest = digest_of_plan(directory) if digest is None else digest
    library = read_job(directory, digest).settings.library
    program = [*_program(mpi, library, worker), str(directory), str(world.size), digest]
    words = [*write_hosts(mpi, directory), *program]
    said = _Output(progress)
    since = time.time()
    problem: str | None = None
    wall_s = 0.0
    seen: list[str] = []
    with Witness(directory, world.size) as witness:
        try:
            wall_s = run_traced(
                words,
                world.size,
                directory / "run",
                timeout_s=timeout_s,
                trace=False,
                on_output=said,
                sharing=shares_cores(mpi, world),
                on_timeout=lambda: seen.append(what_is_seen(directory)),
            ).wall_s
        except P3SError as err:
            problem = str(err)
        finally:
            remove_shared_memory(since)
    # Some launchers return 0 when a process has left early.
    if problem is not None or not (directory / DONE).exists():
        said.table()
        why = said.failure() or witness.first or problem or _EARLY
        if seen:
            told = f": {seen[0]}" if seen[0] else ""
            why = f"not done after {timeout_s:g} s (--timeout gives it more time){told}"
        raise P3SError(f"the replay failed: {why}")
    places = read_places(directory / PLACES)
    try:
        check_landing(world, places, hosts)
    except P3SError:
        shutil.rmtree(directory / RESULTS, ignore_errors=True)
        raise
    return Outcome(places, wall_s)


def _program(mpi: Mpi, library: Path, worker: Sequence[str]) -> list[str]:
    """Return the words that start one process, with an mpi4py that fits the launcher.

    ``library``: the compiled inner loop; it is linked to the MPI to use.
    """
    from p3s.base.host.mpi import library_of

    root = str(Path(__file__).resolve().parent.parent.parent)
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    settings = [f"PYTHONPATH={path}", f"P3S_REPLAY_MPI={mpi.family}"]
    found = library_of(str(library))
    if found and found[1]:
        # Left alone, mpi4py takes the first MPI it finds, not the one the launcher belongs to.
        settings.append(f"MPI4PY_LIBMPI={found[1]}")
    return ["/usr/bin/env", *settings, sys.executable, "-P", *worker]


def remove_shared_memory(since: float) -> list[str]:
    """Remove files of MPI libraries in shared memory that processes killed since then have left.

    Only files of this user that came up after ``since`` (seconds of the epoch) and that no living
    process has mapped or open. Returns their names.
    """
    left = {}
    with contextlib.suppress(OSError):
        for path in _SHM.iterdir():
            with contextlib.suppress(OSError):
                facts = path.lstat()
                if (
                    _SHM_NAMES.fullmatch(path.name)
                    and facts.st_uid == os.getuid()
                    and facts.st_ctime >= since - 1.0
                    and path.is_file()
                ):
                    left[str(path)] = path
    if left:
        for name in in_use():
            left.pop(name, None)
    for path in left.values():
        with contextlib.suppress(OSError):
            path.unlink()
    return sorted(left)


def in_use() -> Iterable[str]:
    """Return files below /dev/shm that living processes have mapped or open."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            for line in (entry / "maps").read_text(errors="replace").splitlines():
                at = line.find("/dev/shm/")
                if at >= 0:
                    yield line[at:]
        with contextlib.suppress(OSError):
            for number in (entry / "fd").iterdir():
                with contextlib.suppress(OSError):
                    target = os.readlink(number)
                    if target.startswith("/dev/shm/"):
                        yield target


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

    def _marked(self, mark: str) -> list[str]:
        found = [line.partition(mark)[2].strip() for line in [*self._lines, self._rest["stderr"]]]
        return [part for part in found if part]

    def table(self) -> None:
        """Hand on what every process waited for, if the job did not move."""
        if self._progress is not None:
            for line in sorted(self._marked(STALL_MARK), key=_process):
                self._progress(line)

    def failure(self) -> str | None:
        """Return the most telling thing the processes said, if any of them said why."""
        errors = self._marked(ERROR_MARK)
        if errors:
            return errors[0]
        stalled = sorted(self._marked(STALL_MARK), key=_process)
        if stalled:
            more = f" (and {len(stalled) - _SHOWN} more processes)" if len(stalled) > _SHOWN else ""
            return f"nothing moved any more; pending: {'; '.join(stalled[:_SHOWN])}{more}"
        # The last line of a traceback names the exception.
        lines = [*self._lines, self._rest["stderr"]]
        for before, line in zip(lines[::-1][1:], lines[::-1], strict=False):
            if before.startswith("  ") and line[:1].isalpha() and ":" in line:
                return line.strip()
        return None


def _process(line: str) -> tuple[int, str]:
    """Return the number of the process that a line is about, to sort by."""
    match = re.search(r"process (\d+)", line)
    return (int(match[1]) if match else -1, line)
