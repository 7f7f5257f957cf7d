"""One process of a replay: ``python -m p3s.replay.engine.worker DIRECTORY SIZE DIGEST``.

Process 0 reads the job from DIRECTORY (replay/engine/job.py), hands every process its part of each
program, decides after each batch of passes whether enough is known, and writes the result of a
program as soon as it is complete. The timing itself is done by the inner loop (inner.c). A process
that fails takes the whole job down.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

from p3s.base.artefacts import write_bytes
from p3s.base.errors import P3SError
from p3s.replay.engine import watchdog
from p3s.replay.engine.collect import Collector, Offsets, compare, part_of, record_columns
from p3s.replay.engine.inner import InnerLoop, Part, Timings
from p3s.replay.engine.job import DONE, Job, JobSettings, read_job
from p3s.replay.engine.results import Place, save_result
from p3s.replay.engine.watchdog import ERROR_MARK, Page, Watchdog, say
from p3s.replay.plan.program import Process

#: Passes of one batch, and the fewest of a program.
BATCH = 8
MIN_PASSES = 8
#: Half width of the 95 % interval, relative to the median, that is narrow enough.
NARROW = 0.05
#: Numbers that process 0 holds of one program at most.
_MOST_VALUES = 1 << 25
#: Every program gets MIN_PASSES, unless this share of the budget has been overdrawn.
_OVERTIME = 0.5
_PR_SET_PDEATHSIG = 1
_ABORT_S = 5.0
#: What the processes may need to find each other, beyond the time that nothing may move.
_START_S = 30.0


def die_with_parent() -> None:
    """Let the kernel kill this process when the launcher's daemon that started it is gone."""
    parent = os.getppid()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


class Worker:
    """State of one process of the replay."""

    def __init__(self, comm: Any, directory: Path, digest: str, page: Page) -> None:
        from mpi4py import MPI

        self.comm = comm
        self.rank: int = comm.rank
        self.directory = directory
        self.page = page
        self.job: Job | None = read_job(directory, digest) if self.rank == 0 else None
        setup = (self.job.world.processes, self.job.settings) if self.job else None
        processes, settings = self.comm.bcast(setup)
        if len(processes) != comm.size:
            raise P3SError(
                f"the job is for {len(processes)} processes, but {comm.size} were started"
            )
        me: Process = processes[self.rank]
        self.role = f"{me.role} {me.slot} of side {me.side}, node {me.node}"
        self.settings: JobSettings = settings
        self._tell("starting")
        library = self.job.library() if self.job else b""
        self.loop = self._load(self.comm.bcast(library))
        self.watchdog = Watchdog(page, self.settings.stall_s, self.loop.outstanding)
        self.watchdog.allow(_START_S)
        self.watchdog.start()
        # Messages, control messages, and the loop's own collectives never meet.
        self.world = [comm.Dup() for _ in range(3)]
        for one in self.world:
            one.Set_errhandler(MPI.ERRORS_RETURN)
        self.comms: dict[tuple[int, ...], Any] = {}
        self.places = self._places()
        self.kernels = [place.kernel for place in self.places]
        self.shared_cores = self._shares_cores()

    def _tell(self, where: str) -> None:
        self.page.tell(f"process {self.rank} ({self.role}), {where}")

    # ---- where the processes are -------------------------------------------------------
    def _load(self, library: bytes) -> InnerLoop:
        """Load the inner loop from a private copy: nodes need not share a file system."""
        with tempfile.TemporaryDirectory(prefix="p3s-replay-") as place:
            path = Path(place, "inner.so")
            path.write_bytes(library)
            return InnerLoop(path, self.page.words)

    def _places(self) -> tuple[Place, ...]:
        """Return where every process is."""
        from mpi4py import MPI

        mine = Place(
            MPI.Get_processor_name()[:255],
            watchdog.kernel(),
            tuple(sorted(os.sched_getaffinity(0))),
            os.environ.get("SLURMD_NODENAME", "")[:255],
        )
        return tuple(self.comm.allgather(mine))

    def _shares_cores(self) -> bool:
        """Return whether this machine has fewer cores for the processes than there are of them."""
        neighbours = [place for place in self.places if place.kernel == self.kernels[self.rank]]
        return len(neighbours) > len({core for place in neighbours for core in place.cores})

    # ---- what happens ------------------------------------------------------------------
    def replay(self) -> dict[str, Any]:
        """Run all programs that have no result yet; return what process 0 knows."""
        self._tell("measuring how sleeps overshoot")
        self.loop.calibrate()
        deadline = time.monotonic() + self.settings.budget_s
        to_do = self.comm.bcast(self._to_do() if self.job else None)
        numbers, needs_s, kinds = [[entry[i] for entry in to_do] for i in range(3)]
        passes = skipped = 0
        for index, number in enumerate(numbers):
            left_s = deadline - time.monotonic()
            # Something of every kind is measured, whatever the budget.
            if self.comm.bcast(
                kinds[index] in kinds[:index] and left_s < -_OVERTIME * self.settings.budget_s
            ):
                skipped += 1
                continue
            share_s = max(left_s, 0.0) * needs_s[index] / sum(needs_s[index:])
            passes += self.program(number, share_s, len(numbers) - index - 1)
        self._tell("finishing")
        self.loop.close()
        self.comm.Barrier()
        self.page.done()
        self.watchdog.stop()
        return {"passes": passes, "programs": len(numbers), "skipped": skipped}

    def _to_do(self) -> list[tuple[int, float, str]]:
        """Return the programs without a result, how long a pass takes roughly, and their kind."""
        assert self.job is not None
        return [
            (number, self.job.pass_s(number), head["what"])
            for number, head in enumerate(self.job.heads)
            if not self.job.result_path(number).exists()
        ]

    def program(self, number: int, share_s: float, remaining: int) -> int:
        """Run one program until enough is known; return the number of passes."""
        collector, parts, head = None, None, None
        if self.job:
            program = self.job.program(number)
            record = record_columns(program)
            collector = Collector(program, record)
            parts = [part_of(program, process, record) for process in range(self.comm.size)]
            scheduled = program.timed or program.noise
            head = (program.name, scheduled, program.comms, 2.0 * self.job.pass_s(number))
        name, timed, comms, allowed_s = self.comm.bcast(head)
        self._tell(f"program {number} {name}")
        self.watchdog.allow(allowed_s)
        part: Part = self.comm.scatter(parts)
        self.page.lay_down(part.events)
        self.loop.open(
            part,
            [one.py2f() for one in self.world],
            [self._comm(members) for members in comms],
            self.settings.pages,
            self.shared_cores,
        )
        passes = self._measure(collector, timed, share_s)
        self.loop.close()
        if collector and self.job:
            result = replace(collector.result(), places=self.places)
            save_result(self.job.result_path(number), result)
            print(f"measured {name}: {passes} passes, {remaining} programs left", flush=True)
        return passes

    def _comm(self, key: tuple[int, ...]) -> int:
        """Return the Fortran handle of a communicator of some processes, made when it is new."""
        from mpi4py import MPI

        if key not in self.comms:
            group = self.comm.Get_group().Incl(list(key))
            self.comms[key] = self.comm.Create(group)
            if self.comms[key] != MPI.COMM_NULL:
                self.comms[key].Set_errhandler(MPI.ERRORS_RETURN)
        return int(self.comms[key].py2f())

    def _measure(self, collector: Collector | None, timed: bool, share_s: float) -> int:
        """Make passes until enough is known; return how many."""
        begin = time.monotonic()
        before = compare(self.comm, self.loop, self.kernels)
        # Connections and buffers get built; then all as it will be, thrown away.
        self._go(1, before, 0.0, False)
        tried = time.monotonic()
        self._go(1, before, self.settings.work_scale, timed)
        pass_s = max(time.monotonic() - tried, 1e-6)
        before = compare(self.comm, self.loop, self.kernels)
        passes = 0
        while self.comm.bcast(
            int(collector is not None and self._needs_batch(collector, begin, share_s, pass_s))
        ):
            timings = self._go(BATCH, before, self.settings.work_scale, timed)
            after = compare(self.comm, self.loop, self.kernels)
            everybody = self.comm.gather(timings)
            if collector is not None:
                collector.add(everybody, before, after)
                passes = collector.passes
            before = after
        return int(self.comm.bcast(passes))

    def _go(self, passes: int, offsets: Offsets, work_scale: float, timed: bool) -> Timings:
        try:
            return self.loop.run(passes, int(offsets.offset_ns[self.rank]), work_scale, timed)
        except P3SError as err:
            raise P3SError(f"{err} at {self.watchdog.pending()}") from err

    def _needs_batch(
        self, collector: Collector, begin: float, share_s: float, pass_s: float
    ) -> bool:
        """Return whether another batch is needed and there is time for it."""
        spent_s = time.monotonic() - begin
        if collector.passes < MIN_PASSES:
            # Where every pass is spoilt by somebody's late start it must end all the same.
            return collector.dropped < 4 * BATCH or spent_s < share_s
        if (
            collector.passes >= self.settings.most_passes
            or collector.values > _MOST_VALUES
            or spent_s + BATCH * pass_s > share_s
        ):
            return False
        return not collector.is_known(NARROW)


def _abort(comm: Any, page: Page, line: str) -> None:
    """Say why and end the job; without this the other processes would wait for ever."""
    say(f"{ERROR_MARK}{line}")
    page.done(watchdog.FAILED)
    killer = threading.Timer(_ABORT_S, os._exit, [1])
    killer.daemon = True
    killer.start()
    comm.Abort(1)


def _one_line(error: BaseException) -> str:
    if isinstance(error, P3SError):
        return str(error)
    if isinstance(error, SystemExit):
        return f"left with sys.exit({error.code!r})"
    return " ".join(traceback.format_exception_only(type(error), error)).strip().replace("\n", " ")


def start(directory: Path, size: int, digest: str) -> None:
    """Join the job and replay; ``digest``: of its plan.json."""
    import mpi4py

    mpi4py.rc.threads = False  # only the main thread calls MPI; with more every call costs more
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    page = Page(watchdog.pages_dir(directory, watchdog.kernel()) / str(comm.rank))
    watchdog.hold(directory, comm.rank)
    page.tell(f"process {comm.rank}, starting")
    family = {"Open MPI": "openmpi"}.get(MPI.get_vendor()[0], "mpich")
    expected_family = os.environ.get("P3S_REPLAY_MPI", family)
    if comm.size != size or family != expected_family:
        say(
            f"{ERROR_MARK}mpi4py uses {MPI.get_vendor()[0]} and sees {comm.size} processes, but "
            f"the launcher started {size} with {expected_family}; install mpi4py for that MPI,"
            " or give the launcher of the other one with --launcher"
        )
        comm.Abort(2)
    try:
        worker = Worker(comm, directory, digest, page)
        outcome = worker.replay()
        if comm.rank == 0:
            write_bytes(directory / DONE, json.dumps(outcome).encode())
    except BaseException as error:
        doing = watchdog.read_page(page.fd)[1]
        message = _one_line(error)
        _abort(comm, page, message if doing in message else f"{message} at {doing}")


def main(arguments: list[str]) -> None:
    """Run one process of a replay."""
    die_with_parent()
    start(Path(arguments[0]), int(arguments[1]), arguments[2])


if __name__ == "__main__":
    main(sys.argv[1:])
