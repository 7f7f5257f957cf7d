"""One process of a replay: ``python -m replay.thesis.worker DIRECTORY SIZE``.

Rank 0 reads the plan from DIRECTORY, hands every process its events, decides after each batch of
passes whether the classes are known well enough, and writes the result back. The timing itself
is done by the inner loop (inner.c). A process that fails takes the whole job down.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from p3s.errors import P3SError
from replay.thesis.inner import InnerLoop
from replay.thesis.program import EVENT, UNTIMED
from replay.thesis.stats import median_interval
from replay.thesis.watchdog import ERROR_MARK, STEPS, Watchdog

#: Passes of one batch, and batches until the interval of each class must be narrow.
MIN_PASSES = 8
MAX_PASSES = 256
#: Half width of the 95 % interval, relative to the cost, that is narrow enough.
NARROW = 0.05
#: Every program gets MIN_PASSES, unless this share of the budget has been overdrawn.
_OVERTIME = 0.5
_PR_SET_PDEATHSIG = 1
_NAP_S = 0.0005
_PLACE_BYTES = 2048


def _die_with_parent() -> None:
    """Let the kernel kill this process when the launcher's daemon that started it is gone."""
    parent = os.getppid()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


class Worker:
    """State of one process of the replay."""

    def __init__(self, comm: Any, directory: Path) -> None:
        self.comm = comm
        self.rank: int = comm.rank
        self.where = "starting"
        head: dict[str, Any] = {}
        library = b""
        if self.rank == 0:
            head = json.loads((directory / "plan.json").read_text())
            library = Path(head["library"]).read_bytes()
        self.head: dict[str, Any] = json.loads(self._share(json.dumps(head).encode()))
        self.directory = directory
        self.loop = self._load(self._share(library))
        self.watchdog = Watchdog(self.loop.progress, self.head["stall_s"], self._describe)
        self.events = (np.load(directory / "events.npy", allow_pickle=False)
                       if self.rank == 0 else np.zeros(0, dtype=EVENT))
        self.deadline = time.monotonic() + float(self.head["budget_s"])

    def _share(self, data: bytes) -> bytes:
        """Send bytes from rank 0 to everybody."""
        length = np.array([len(data)], dtype=np.int64)
        self.comm.Bcast(length)
        buffer = np.frombuffer(data, dtype=np.uint8).copy() if self.rank == 0 else np.empty(
            int(length[0]), dtype=np.uint8)
        self.comm.Bcast(buffer)
        return buffer.tobytes()

    def _load(self, library: bytes) -> InnerLoop:
        """Load the inner loop from a private copy: nodes need not share a file system."""
        with tempfile.TemporaryDirectory(prefix="p3s-replay-") as place:
            path = Path(place, "inner.so")
            path.write_bytes(library)
            return InnerLoop(path, bool(self.head["shared_cores"]))

    def _describe(self) -> str:
        return f"process {self.rank} ({self.head['roles'][self.rank]}), {self.where}"

    def beat(self, where: str) -> None:
        """Tell the watchdog that something moved."""
        self.where = where
        self.loop.progress[STEPS] += 1

    # ---- what happens ------------------------------------------------------------------
    def replay(self) -> dict[str, Any]:
        """Run all programs; return what rank 0 knows (other ranks: nothing of use)."""
        self.watchdog.start()
        places = self._places()
        samples: dict[str, list[float]] = {}
        numbers: dict[str, int] = {}
        passes = 0
        inner = self.comm.Dup()
        from mpi4py import MPI

        inner.Set_errhandler(MPI.ERRORS_RETURN)
        programs = self.head["programs"]
        skipped = 0
        for index, program in enumerate(programs):
            left_s = self.deadline - time.monotonic()
            if self._agree(left_s < -_OVERTIME * float(self.head["budget_s"])):
                skipped += 1
                continue
            share_s = max(left_s, 0.0) / (len(programs) - index)
            passes += self._program(inner, index, program, share_s, samples, numbers)
        self.beat("finishing")
        inner.Free()
        self.comm.Barrier()
        self.watchdog.stop()
        return {"samples": samples, "numbers": numbers, "places": places, "passes": passes,
                "skipped": skipped}

    def _places(self) -> list[dict[str, Any]]:
        """Return where every process is: name of the processor, its kernel, mask of its cores."""
        from mpi4py import MPI

        try:
            kernel = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            kernel = MPI.Get_processor_name()
        place = {"name": MPI.Get_processor_name()[:255], "kernel": kernel,
                 "cores": f"{sum(1 << core for core in os.sched_getaffinity(0)):x}"}
        mine = json.dumps(place).encode()[:_PLACE_BYTES].ljust(_PLACE_BYTES)
        everybody = np.empty(_PLACE_BYTES * self.comm.size, dtype=np.uint8)
        self.comm.Allgather(np.frombuffer(mine, dtype=np.uint8).copy(), everybody)
        text = everybody.tobytes()
        return [json.loads(text[i:i + _PLACE_BYTES])
                for i in range(0, len(text), _PLACE_BYTES)]

    def _own(self, program: dict[str, Any]) -> npt.NDArray[np.void]:
        """Return the events of this process in a program."""
        start = np.asarray(program["start"], dtype=np.int64)
        counts = np.diff(start) * EVENT.itemsize
        mine = np.empty(int(start[self.rank + 1] - start[self.rank]), dtype=EVENT)
        from mpi4py import MPI

        send = None
        if self.rank == 0:
            first = int(program["first"])
            part = np.ascontiguousarray(self.events[first:first + int(start[-1])])
            send = [part.view(np.uint8), counts.tolist(),
                    (start[:-1] * EVENT.itemsize).tolist(), MPI.BYTE]
        self.comm.Scatterv(send, [mine.view(np.uint8), MPI.BYTE], root=0)
        return mine

    def _program(
        self, inner: Any, index: int, program: dict[str, Any], share_s: float,
        samples: dict[str, list[float]], numbers: dict[str, int],
    ) -> int:
        """Run one program until its classes are known; return the number of timed passes."""
        name = (f"iteration {program['iteration']} ranges {program['ranges']} "
                f"phase {program['phase']}")
        self.beat(name)
        events = self._own(program)
        handle = inner.py2f()
        out_bytes, in_bytes = program["out_bytes"], program["in_bytes"][self.rank]
        scale = float(self.head["work_scale"])

        def go(passes: int, work_scale: float) -> npt.NDArray[np.int64]:
            self.comm.Barrier()
            self.beat(name)
            elapsed_ns = self.loop.run(handle, events, passes, out_bytes, in_bytes, work_scale)
            self._leave_the_core(len(events) <= 1)
            return elapsed_ns

        go(1, 0.0)  # connections and buffers get built
        begin = time.monotonic()
        go(1, scale)
        pass_s = max(time.monotonic() - begin, 1e-6)
        done = 0
        means: dict[int, list[float]] = {sample: [] for sample in program["samples"]}
        order = np.zeros(1, dtype=np.int64)
        while True:
            if self.rank == 0:
                order[0] = self._next(done, means, begin, share_s, pass_s)
            self.comm.Bcast(order)
            passes = int(order[0])
            if passes == 0:
                break
            self._collect(go(passes, scale), events, means, numbers)
            done += passes
        for sample, values in means.items():
            samples.setdefault(str(sample), []).extend(values)
        if self.rank == 0:
            left = len(self.head["programs"]) - index - 1
            print(f"measured {name}: {done} passes, {left} programs left", flush=True)
        return done

    def _agree(self, decision: bool) -> bool:
        """Return rank 0's decision."""
        order = np.array([decision], dtype=np.int64)
        self.comm.Bcast(order)
        return bool(order[0])

    def _leave_the_core(self, idle: bool) -> None:
        """Wait until everybody is here; who has nothing to do does not poll meanwhile."""
        request = self.comm.Ibarrier()
        if idle:
            while not request.Test():
                time.sleep(_NAP_S)
        else:
            request.Wait()

    def _next(self, done: int, means: dict[int, list[float]], begin: float, share_s: float,
              pass_s: float) -> int:
        """Return the passes of the next batch, 0 when it is enough."""
        if done == 0:
            return MIN_PASSES
        spent = time.monotonic() - begin
        if done >= MAX_PASSES or spent + MIN_PASSES * pass_s > share_s:
            return 0
        for values in means.values():
            if values:
                estimate = median_interval(values)
                if estimate.high_ns - estimate.low_ns > 2.0 * NARROW * estimate.cost_ns:
                    return MIN_PASSES
        return 0

    def _collect(
        self, elapsed_ns: npt.NDArray[np.int64], events: npt.NDArray[np.void],
        means: dict[int, list[float]], numbers: dict[str, int],
    ) -> None:
        """Add the mean of each class in each pass, over all processes, to the samples."""
        columns = {sample: column for column, sample in enumerate(means)}
        passes = len(elapsed_ns)
        sums = np.zeros((passes, len(columns)), dtype=np.float64)
        counts = np.zeros(len(columns), dtype=np.float64)
        for place in np.flatnonzero(events["sample"] != UNTIMED).tolist():
            column = columns[int(events["sample"][place])]
            sums[:, column] += elapsed_ns[:, place]
            counts[column] += 1.0
        all_sums, all_counts = np.zeros_like(sums), np.zeros_like(counts)
        self.comm.Reduce(sums, all_sums)
        self.comm.Reduce(counts, all_counts)
        if self.rank == 0:
            for sample, column in columns.items():
                if all_counts[column] > 0:
                    means[sample] += (all_sums[:, column] / all_counts[column]).tolist()
                    number = int(all_counts[column]) * passes
                    numbers[str(sample)] = numbers.get(str(sample), 0) + number


def _start(directory: Path, size: int) -> None:
    """Join the job and replay."""
    import mpi4py

    mpi4py.rc.thread_level = "funneled"
    from mpi4py import MPI

    comm = MPI.COMM_WORLD

    def abort(kind: type[BaseException], error: BaseException,
              trace: TracebackType | None) -> None:
        if isinstance(error, P3SError):
            sys.stderr.write(f"{ERROR_MARK}process {comm.rank}: {error}\n")
        else:
            traceback.print_exception(kind, error, trace)
        sys.stderr.flush()
        # Without this the other processes would wait for this one for ever.
        comm.Abort(1)

    sys.excepthook = abort
    family = {"Open MPI": "openmpi"}.get(MPI.get_vendor()[0], "mpich")
    wanted = os.environ.get("P3S_REPLAY_MPI", family)
    if comm.size != size or family != wanted:
        sys.stderr.write(
            f"{ERROR_MARK}mpi4py uses {MPI.get_vendor()[0]} and sees {comm.size} processes, but "
            f"the launcher started {size} with {wanted}; install mpi4py for that MPI, or give the "
            "launcher of the other one with --launcher\n")
        sys.stderr.flush()
        comm.Abort(2)
    try:
        worker = Worker(comm, directory)
        result = worker.replay()
        if comm.rank == 0:
            (directory / "result.json").write_text(json.dumps(result))
    except SystemExit as leaving:
        if leaving.code not in (None, 0):
            comm.Abort(1)
        raise
    except BaseException as error:
        abort(type(error), error, error.__traceback__)


def main(arguments: list[str]) -> None:
    """Run one process of a replay."""
    _die_with_parent()
    _start(Path(arguments[0]), int(arguments[1]))


if __name__ == "__main__":
    main(sys.argv[1:])
