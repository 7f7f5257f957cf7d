"""Who computes: the processes of this machine's cores, or the ranks of an MPI job (``--mpi``).

A stage hands out tasks with :func:`run_tasks` or :func:`beside`: a function of a module and
arguments that can be pickled, paths and small records. The process that asks computes as well,
takes the results in the order of the tasks, and writes all files, so these are the same however
many there are. Tasks of tasks are computed where they come up.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from p3s.base.errors import P3SError, UsageError
from p3s.base.host.place import place
from p3s.base.version import __version__

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

R = TypeVar("R")
T = TypeVar("T")

#: Tasks handed out and not yet taken back, for each process.
AHEAD = 4
#: Bytes of a file by which a rank knows that it is the one that rank 0 sees.
_LOOKED_AT = 1 << 16


@dataclass
class _Job:
    """The ranks of an MPI job.

    ``pool``: their executor, None: there is one rank; ``left``: tasks whose results nobody wants.
    """

    pool: Any
    size: int
    left: list[Future[Any]] = field(default_factory=list)


_job: _Job | None = None
#: This process computes for another one.
_inside = False


def ranks() -> int:
    """Return how many ranks compute; 0: this is no job of ``--mpi``."""
    return _job.size if _job is not None else 0


def run_tasks(
    function: Callable[..., R], tasks: Sequence[Sequence[Any]], shared: Path, jobs: int = 0
) -> Iterator[R]:
    """Yield ``function(*task)`` for tasks, in their order.

    ``shared``: a file that the tasks need, or that lies beside what they need. ``jobs``: processes
    on this machine at most, 0: one per core; ranks are taken as there are. A task whose process
    dies is computed here. Raises what a task raises, when its turn has come, and P3SError for a
    rank that does not see the file as this process does.
    """
    with beside(shared, len(tasks), jobs) as begin:
        ahead = AHEAD * (ranks() or len(os.sched_getaffinity(0)))
        yield from _in_order(lambda task: begin(function, *task), tasks, ahead)


def _in_order(begin: Callable[[T], Callable[[], R]], tasks: Iterable[T], ahead: int) -> Iterator[R]:
    """Yield the results of tasks in their order; so many are begun before the first is wanted."""
    coming = iter(tasks)
    waiting = deque(map(begin, islice(coming, ahead)))
    while waiting:
        yield waiting.popleft()()
        waiting.extend(map(begin, islice(coming, 1)))


class Begin(Protocol):
    """Begins ``function(*task)``; returns what returns its result."""

    def __call__(self, function: Callable[..., R], *task: Any) -> Callable[[], R]: ...


@contextlib.contextmanager
def beside(shared: Path | None, tasks: int = 2, jobs: int = 0) -> Iterator[Begin]:
    """Give what begins tasks elsewhere, where there is somebody; how many at the same time, and one
    more for what is computed here.

    ``shared``, ``jobs``: as of :func:`run_tasks`; without the first there is nobody. A result that
    nobody has begun, or whose process has died, is computed here when it is asked for, and so are
    others while it is waited for. Leaving calls off what was not asked for.
    """
    with _pool(tasks if shared is not None else 1, jobs) as pool:
        if pool is None or shared is None:
            yield lambda function, *task: partial(function, *task)
            return
        handed = _PendingTasks(pool, _mark(shared))

        def begin(function: Callable[..., R], *task: Any) -> Callable[[], R]:
            return partial(handed.result, handed.hand(function, task))

        try:
            yield begin
        finally:
            handed.forget()


def in_threads(function: Callable[[int], R], numbers: Iterable[int]) -> Iterator[R]:
    """Yield ``function`` of numbers in their order, at the same time on this machine's cores.

    For what is mostly outside of Python, as the simulation is. No more results than cores are kept.
    """
    cores = len(os.sched_getaffinity(0))
    if cores < 2:
        yield from map(function, numbers)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(cores) as pool:
        yield from _in_order(lambda number: pool.submit(function, number).result, numbers, cores)


@dataclass(eq=False)
class _Task:
    """What was handed out; ``future``: begun elsewhere or computed here."""

    function: Callable[..., Any]
    task: Sequence[Any]
    future: Future[Any]


class _PendingTasks:
    """Tasks that were handed out and not yet asked for, in their order."""

    def __init__(self, pool: Executor, mark: _Mark) -> None:
        self._pool, self._mark = pool, mark
        self.waiting: list[_Task] = []

    def hand(self, function: Callable[..., Any], task: Sequence[Any]) -> _Task:
        """Hand out a task."""
        from concurrent.futures import BrokenExecutor, Future

        try:
            future = self._pool.submit(_run_checked, function, task, self._mark)
        except (BrokenExecutor, OSError):  # no process to be had: it is computed here
            future = Future()
        self.waiting.append(_Task(function, task, future))
        return self.waiting[-1]

    def result(self, pending: _Task) -> Any:
        """Return the result of a task, computing others in the meantime."""
        from concurrent.futures import BrokenExecutor

        while not pending.future.done() and self._compute_one():
            pass
        if pending in self.waiting:
            self.waiting.remove(pending)
        try:
            return pending.future.result()
        except BrokenExecutor:  # whatever went wrong there goes wrong here, where it can be told
            return pending.function(*pending.task)

    def _compute_one(self) -> bool:
        """Compute the last task here that nobody has begun; tells whether there was one."""
        for one in reversed(self.waiting):
            if not one.future.done() and one.future.cancel():
                one.future = _run_here(one.function, one.task)
                return True
        return False

    def forget(self) -> None:
        """Call off what was handed out."""
        for one in self.waiting:
            if not (one.future.cancel() or one.future.done()) and _job is not None:
                _job.left.append(one.future)


def _run_here(function: Callable[..., Any], task: Sequence[Any]) -> Future[Any]:
    """Return what a task came to, computed here; so are its own tasks."""
    from concurrent.futures import Future

    global _inside
    future: Future[Any] = Future()
    before, _inside = _inside, True
    try:
        future.set_result(function(*task))
    except Exception as err:
        future.set_exception(err)
    finally:
        _inside = before
    return future


@contextlib.contextmanager
def _pool(tasks: int, jobs: int) -> Iterator[Executor | None]:
    """Give those that compute beside this process; None: there is nobody, or nothing to do."""
    others = min(jobs or len(os.sched_getaffinity(0)), tasks) - 1
    mpi = sys.modules.get("mpi4py.MPI")  # where it was initialized, no process may be forked
    started = mpi is not None and mpi.Is_initialized()
    if _inside or tasks < 2 or (_job is None and (others < 1 or started)):
        yield None
        return
    if _job is not None:
        yield _job.pool
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    from p3s.base.host.processes import end_with_parent

    # Forked: nothing is imported again, also not the script of somebody who imports p3s.
    context = multiprocessing.get_context("fork")
    before = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(others, context, _begin, (end_with_parent(),))
    try:
        yield pool
    except BaseException:
        for child in set(multiprocessing.active_children()) - before:
            child.kill()
        pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown(cancel_futures=True)


def _begin(end_with_parent: Callable[[], None] | None) -> None:
    """Be a process that computes for another: ends with it, and leaves Ctrl-C to it."""
    _serve()
    if end_with_parent is not None:
        end_with_parent()


def _serve() -> None:
    global _inside
    _inside = True
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@dataclass(frozen=True)
class _Mark:
    """By what a rank knows that it sees what rank 0 sees, on ``host``; "": no need to look."""

    host: str = ""
    version: str = ""
    file: str = ""
    facts: tuple[int, int] = (0, 0)


_known: set[_Mark] = set()


def _mark(shared: Path) -> _Mark:
    if _job is None or _job.pool is None:
        return _Mark()
    file = str(shared.absolute())
    return _Mark(os.uname().nodename, __version__, file, _facts(file))


def _facts(file: str) -> tuple[int, int]:
    """Return size and checksum of the beginning of a file."""
    with open(file, "rb") as stream:
        return os.fstat(stream.fileno()).st_size, zlib.crc32(stream.read(_LOOKED_AT))


def _run_checked(function: Callable[..., R], task: Sequence[Any], mark: _Mark) -> R:
    """Return what a function returns, where this process sees what rank 0 sees."""
    if mark.host and mark not in _known:
        _check(mark)
        _known.add(mark)
    return function(*task)


def _check(mark: _Mark) -> None:
    """Raise P3SError at a rank with another P3S, or without the study."""
    host = os.uname().nodename
    if mark.version != __version__:
        raise P3SError(
            f"{host}: has p3s {__version__}, rank 0 on {mark.host} has {mark.version}; all ranks "
            "need the same installation"
        )
    try:
        same = _facts(mark.file) == mark.facts
    except OSError:
        same = False
    if not same:
        raise P3SError(
            f"{host}: {mark.file} is not there as rank 0 sees it on {mark.host}: put the study on "
            "a file system that all ranks share"
        )


def read_launcher_rank() -> tuple[int, int] | None:
    """Return (rank, ranks) as a launcher tells this process; None: it was started alone."""
    launched = place()
    if launched.rank is None or launched.size is None or launched.size < 2:
        return None
    return launched.rank, launched.size


def check_may_launch() -> None:
    """Raise UsageError where this process is a rank itself: it cannot start MPI programs."""
    if _job is not None:
        raise UsageError(
            "--mpi: a rank cannot start MPI programs; trace, replay and measure with p3s alone, "
            "then start mpiexec p3s --mpi for what is computed from that"
        )


def on_ranks(main: Callable[[], int]) -> int:
    """Run ``main`` at rank 0 of this MPI job while the others compute for it; return the exit code.

    That of the other ranks is 0. Interrupted, or with an error while others are still computing,
    rank 0 ends the job.
    """
    global _job
    from mpi4py import MPI
    from mpi4py.futures import MPICommExecutor

    comm = MPI.COMM_WORLD
    if comm.size == 1:
        _job = _Job(None, 1)
        return main()
    if comm.rank > 0:
        _serve()
    with MPICommExecutor(comm) as pool:
        if pool is None:
            return 0
        _job = _Job(pool, comm.size)
        code = main()
        if any(not future.done() for future in _job.left):
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()
            comm.Abort(code or 1)
    return code
