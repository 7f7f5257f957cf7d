"""Runs the job of a replay: which MPI, processes on their nodes, what they say; nothing is left."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from p3s.base import errors
from p3s.base.errors import P3SError
from p3s.replay.engine.results import Place
from p3s.replay.engine.watchdog import ERROR_MARK, STALL_MARK, STARTING, STOPPED, pending
from p3s.replay.plan.program import NODES, World

#: Hosts of a job, one per process, in its directory.
HOST_FILE = "hosts"


@dataclass(frozen=True)
class Mpi:
    """A launcher and the MPI that it belongs to.

    ``words``: what stands before the program; once ``on_hosts`` has been asked they hold {np}, and
    {hosts} where the path of a file with one host per process belongs. ``family``: openmpi or
    mpich; ``mpicc``: its compiler. ``kind``: family of the launcher itself (openmpi, mpich, slurm).
    ``per_process``: host of every process, empty where the launcher decides.
    """

    words: tuple[str, ...]
    family: str
    version: str
    mpicc: str
    kind: str = ""
    per_process: tuple[str, ...] = ()

    @property
    def busiest(self) -> int:
        """Most processes on one host; 0 where that is not known."""
        return max(map(self.per_process.count, set(self.per_process)), default=0)


def find_mpi(launcher: Sequence[str] = ()) -> Mpi:
    """Return the MPI to replay with: of the launcher that these words name, none: as found.

    Errors: P3SError as of :func:`p3s.machine.programs.launcher_of`.
    """
    from p3s.base import workers
    from p3s.machine.programs import launcher_of

    workers.check_may_launch()
    launcher_found = launcher_of(launcher, sys.executable)
    install = launcher_found.install
    return Mpi(
        launcher_found.words, install.family, install.version, install.mpicc, launcher_found.kind
    )


def on_hosts(
    mpi: Mpi, hosts: Sequence[str] | None, world: World, environ: Mapping[str, str] | None = None
) -> Mpi:
    """Return the MPI with the words that put every process of a world on its host.

    ``hosts``: of the four nodes, repeats allowed; None or empty: this machine. A launcher with {np}
    in its words is left as it is: its own options decide where processes go. Errors: P3SError.
    """
    if hosts and len(hosts) != NODES and not _takes_count(mpi):
        raise P3SError(f"hosts {','.join(hosts)}: {len(hosts)} names for {NODES} nodes")
    each = [hosts[process.node] for process in world.processes] if hosts else []
    return put_on_hosts(mpi, each, environ)


def _takes_count(mpi: Mpi) -> bool:
    return any("{np}" in word for word in mpi.words)


def put_on_hosts(
    mpi: Mpi, per_process: Sequence[str], environ: Mapping[str, str] | None = None
) -> Mpi:
    """Return the MPI with the words that put each process on its host; none: on this machine.

    A launcher with {np} in its words is left as it is.
    """
    from p3s.base.host import mpi as known

    if _takes_count(mpi):
        return mpi
    words = [*mpi.words, "-n", "{np}"]
    if mpi.kind == known.SLURM and not any(word.startswith("--mpi") for word in mpi.words):
        words += [f"--mpi={'pmix' if mpi.family == known.OPENMPI else 'pmi2'}"]
    if not per_process:
        return replace(mpi, words=tuple(words))
    # Open MPI knows this machine by its own name alone.
    own_name = socket.gethostname()
    per_process = tuple(own_name if host == "localhost" else host for host in per_process)
    if mpi.kind == known.OPENMPI:
        # One host per process, in the order of the ranks: right for hosts that come twice, too.
        words += ["--hostfile", "{hosts}", "--map-by", "seq"]
    elif mpi.kind == known.SLURM:
        words = [
            "/usr/bin/env",
            "SLURM_HOSTFILE={hosts}",
            *words,
            "--distribution=arbitrary",
            f"--nodes={len(set(per_process))}",
        ]
        if _slurm_cores(environ) < max(map(per_process.count, set(per_process))):
            words += ["--overcommit"]
    else:
        blocks = [f"{host}:{len([*same])}" for host, same in groupby(per_process)]
        words += ["-hosts", ",".join(blocks)]
    return replace(mpi, words=tuple(words), per_process=per_process)


def _slurm_cores(environ: Mapping[str, str] | None = None) -> int:
    """Return the cores of a node of the allocation; of this machine outside of one."""
    text = (os.environ if environ is None else environ).get("SLURM_CPUS_ON_NODE", "")
    return int(text) if text.isdigit() else len(os.sched_getaffinity(0))


def shares_cores(mpi: Mpi, world: World) -> bool:
    """Tell whether there will be more processes than cores on a host, as far as that is known."""
    return (mpi.busiest or world.size) > _slurm_cores()


def write_hosts(mpi: Mpi, directory: Path) -> tuple[str, ...]:
    """Write the host file into a job's directory and return the launcher's words with its path."""
    path = directory / HOST_FILE
    if mpi.per_process:
        path.write_text("".join(f"{host}\n" for host in mpi.per_process))
    return tuple(word.replace("{hosts}", str(path)) for word in mpi.words)


_REMEDY = (
    "the launcher must put one block of ranks on each host, in their order: leave {np} out "
    "of --launcher, then P3S adds the hosts"
)


def landing_problem(
    world: World, places: Sequence[Place], hosts: Sequence[str] | None
) -> str | None:
    """Return why processes are not on the hosts asked for, one node on each; None: they are.

    ``hosts``: of the four nodes, repeats allowed; None or empty: anywhere. Nodes may call
    themselves by other names than those asked for, unless it is the name of another one; Slurm's
    name of a node need not be the one that the node has itself.
    """
    if len(places) != world.size:
        return f"{world.size} processes were to be started, but {len(places)} were"
    if not hosts:
        return None
    problem = _find_misplaced(world, [place.name for place in places], hosts)
    if problem and all(place.node for place in places):
        return _find_misplaced(world, [place.node for place in places], hosts) and problem
    return problem


def _find_misplaced(world: World, names: Sequence[str], hosts: Sequence[str]) -> str | None:
    where: dict[int, set[str]] = {}
    for process, name in zip(world.processes, names, strict=True):
        where.setdefault(process.node, set()).add(_short(name))
    started = {node: " and ".join(sorted(names_seen)) for node, names_seen in where.items()}
    for node, host_found in started.items():
        others = [other for other in started if other < node]
        for other in others:
            if len(where[node]) == 1 and (hosts[node] == hosts[other]) != (
                host_found == started[other]
            ):
                return (
                    f"the processes for {hosts[other]} and {hosts[node]} were started on "
                    f"{started[other]} and {host_found}; {_REMEDY}"
                )
        host_expected = _short(hosts[node])
        if len(where[node]) > 1 or (
            host_expected != host_found and host_expected in started.values()
        ):
            return f"the processes for {hosts[node]} were started on {host_found}; {_REMEDY}"
    return None


def _short(name: str) -> str:
    """Return a host name without its domain; addresses stay whole."""
    return name if name.replace(".", "").isdigit() or ":" in name else name.partition(".")[0]


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
    registered = {int(path.name) for path in directory.glob("pages-*/*[0-9]")}
    early = [f"process {rank}" for rank in range(size) if rank not in registered]
    stopped = [text for text in doing.values() if text.endswith(STOPPED)]
    if early and not stopped and all(text.endswith(STARTING) for text in doing.values()):
        return f"{_join_some(early, ', ')} in MPI_Init, or before it"
    return _join_some(stopped or list(doing.values()))


def _join_some(parts: Sequence[str], between: str = "; ") -> str:
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
    digest: str,
) -> float:
    """Run the job that is written in ``directory``; no process of it is left when this returns.

    Returns the seconds that it took.

    ``mpi``: with the words of ``on_hosts``. ``timeout_s``: ends it the hard way, whatever its
    processes are doing.
    ``progress`` gets what it says while it measures, and the table of pending operations when it
    did not move. ``hosts``: of the four nodes; what was measured elsewhere is removed.
    ``digest``: of plan.json, as write_job returned it.
    Errors: P3SError in one line: the process that failed and its event, what was pending when
    nothing moved, processes that are not on their hosts, or another MPI than the launcher's.
    Results that are there when a process fails are kept.
    """
    from p3s.replay.engine.job import DONE, read_job
    from p3s.replay.engine.results import read_result
    from p3s.replay.engine.watchdog import Witness
    from p3s.signature_runner.launch import run_traced

    directory = Path(directory).absolute()
    job = read_job(directory, digest)
    program = _program(mpi, job.settings.library, worker)
    arguments = [str(directory), str(world.size), digest]
    words = [*write_hosts(mpi, directory), *program, *arguments]
    output = _Output(progress)
    since = time.time()
    problem: str | None = None
    wall_s = 0.0
    activity: list[str] = []
    with Witness(directory, world.size) as witness:
        try:
            wall_s = run_traced(
                words,
                world.size,
                directory / "run",
                timeout_s=timeout_s,
                trace=False,
                on_output=output,
                sharing=shares_cores(mpi, world),
                on_timeout=lambda: activity.append(what_is_seen(directory, world.size)),
            ).wall_s
        except P3SError as err:
            problem = str(err)
        finally:
            remove_shared_memory(since)
    # Some launchers return 0 when a process has left early.
    if problem is not None or not (directory / DONE).exists():
        output.table()
        why = output.failure() or witness.first or problem or _EARLY
        if activity:
            detail = f": {activity[0]}" if activity[0] else ""
            why = f"not done after {timeout_s:g} s (--timeout gives it more time){detail}"
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

    root = str(Path(errors.__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    settings = [f"PYTHONPATH={path}", f"P3S_REPLAY_MPI={mpi.family}"]
    mpi_library = library_of(str(library))
    if mpi_library and mpi_library[1]:
        # Left alone, mpi4py takes the first MPI it finds, not the one the launcher belongs to.
        settings.append(f"MPI4PY_LIBMPI={mpi_library[1]}")
    return ["/usr/bin/env", *settings, sys.executable, "-P", *worker]


def remove_shared_memory(since: float) -> list[str]:
    """Remove files of MPI libraries in shared memory that processes killed since then have left.

    Only files of this user that came up after ``since`` (seconds of the epoch) and that no living
    process has mapped or open. Returns their names.
    """
    leftover = {}
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
                    leftover[str(path)] = path
    if leftover:
        for name in in_use():
            leftover.pop(name, None)
    for path in leftover.values():
        with contextlib.suppress(OSError):
            path.unlink()
    return sorted(leftover)


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

    def _marked_texts(self, mark: str) -> list[str]:
        texts = [line.partition(mark)[2].strip() for line in [*self._lines, self._rest["stderr"]]]
        return [part for part in texts if part]

    def table(self) -> None:
        """Hand on what every process waited for, if the job did not move."""
        if self._progress is not None:
            for line in sorted(self._marked_texts(STALL_MARK), key=_process):
                self._progress(line)

    def failure(self) -> str | None:
        """Return the most telling thing the processes said, if any of them said why."""
        errors = self._marked_texts(ERROR_MARK)
        if errors:
            return errors[0]
        stalled = sorted(self._marked_texts(STALL_MARK), key=_process)
        if stalled:
            return f"nothing moved any more; pending: {_join_some(stalled)}"
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
