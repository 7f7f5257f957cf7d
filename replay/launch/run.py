"""Runs the job of a replay: starts its processes, listens to them, leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from p3s.base.errors import P3SError
from p3s.replay.engine.watchdog import ERROR_MARK, STALL_MARK, STARTING, STOPPED, pending
from p3s.replay.launch.launcher import Mpi, landing_problem, shares_cores, write_hosts
from p3s.replay.plan.world import World

#: What the launcher starts on every process, after the interpreter.
WORKER = ("-m", "p3s.replay.engine.worker")
_EARLY = "it ended before it was done"
_SHOWN = 3
_SHM = Path("/dev/shm")
#: Files that Open MPI and MPICH make there: for messages inside a node.
_SHM_NAMES = re.compile(r"(vader_segment|sm_segment|openmpi|ompi|mpich|mpi_|psm2?_shm|ucx_shm).*")


def what_is_seen(directory: Path, size: int) -> str:
    """Return which processes of a job are stopped, else not out of MPI_Init, else what they do."""
    doing = pending(directory)
    there = {int(path.name) for path in directory.glob("pages-*/*[0-9]")}
    early = [f"process {rank}" for rank in range(size) if rank not in there]
    stopped = [text for text in doing.values() if text.endswith(STOPPED)]
    if early and not stopped and all(text.endswith(STARTING) for text in doing.values()):
        return f"{_some(early, ', ')} in MPI_Init, or before it"
    return _some(stopped or list(doing.values()))


def _some(parts: Sequence[str], between: str = "; ") -> str:
    more = f" (and {len(parts) - _SHOWN} more)" if len(parts) > _SHOWN else ""
    return between.join(parts[:_SHOWN]) + more


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
) -> float:
    """Run the job that is written in ``directory``; no process of it is left when this returns.

    Returns the seconds that it took.

    ``mpi``: with the words of ``on_hosts``. ``timeout_s``: ends it the hard way, whatever its
    processes are doing.
    ``progress`` gets what it says while it measures, and the table of pending operations when it
    did not move. ``hosts``: of the four nodes; what was measured elsewhere is removed.
    ``digest``: of plan.json, as write_job returned it; None: of the one that is there now.
    Errors: P3SError in one line: the process that failed and its event, what was pending when
    nothing moved, processes that are not on their hosts, or another MPI than the launcher's.
    Results that are there when a process fails are kept.
    """
    from p3s.replay.engine.job import DONE, digest_of_plan, read_job
    from p3s.replay.engine.results import read_result
    from p3s.replay.engine.witness import Witness
    from p3s.signature_runner.launch import run_traced

    directory = Path(directory).absolute()
    digest = digest_of_plan(directory) if digest is None else digest
    job = read_job(directory, digest)
    program = _program(mpi, job.settings.library, worker)
    told = [str(directory), str(world.size), digest]
    words = [*write_hosts(mpi, directory), *program, *told]
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
                on_timeout=lambda: seen.append(what_is_seen(directory, world.size)),
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
            what = f": {seen[0]}" if seen[0] else ""
            why = f"not done after {timeout_s:g} s (--timeout gives it more time){what}"
        raise P3SError(f"the replay failed: {why}")
    results = [path for path in map(job.result_path, range(len(job.heads))) if path.exists()]
    if results and (elsewhere := landing_problem(world, read_result(results[0]).places, hosts)):
        for path in results:
            path.unlink()
        raise P3SError(elsewhere)
    return wall_s


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
            return f"nothing moved any more; pending: {_some(stalled)}"
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
