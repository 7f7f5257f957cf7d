"""Small MPI programs whose every event is known, traced to see that nothing is missing."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from p3s.base.errors import P3SError
from p3s.base.host import compiling, mpi
from p3s.signature_runner import launch

OK, INFO, WARN, FAIL = "ok", "info", "warn", "fail"
TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Check:
    """One finding: ``status`` ok, info, warn or fail; ``fix`` says what to do, empty if nothing."""

    name: str
    status: str
    detail: str
    fix: str = ""


@dataclass(frozen=True)
class Trial:
    """A program, the name of its file, and the events of each of its ranks."""

    name: str
    text: str
    events: Mapping[str, int]


C = Trial(
    "hello.c",
    """#include <mpi.h>
int main(int argc, char **argv)
{
    int rank, size, x = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < 10; i++)
        MPI_Sendrecv_replace(&x, 1, MPI_INT, (rank + 1) % size, 0, (rank + size - 1) % size, 0,
                             MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
""",
    {
        "MPI_Init": 1,
        "MPI_Sendrecv_replace": 10,
        "MPI_Sendrecv_recv": 10,
        "MPI_Barrier": 1,
        "MPI_Finalize": 1,
    },
)
FORTRAN = Trial(
    "hello.f90",
    """program hello
  use mpi
  implicit none
  integer :: i, x, y, ierr
  call MPI_Init(ierr)
  x = 1
  do i = 1, 10
    call MPI_Allreduce(x, y, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
  end do
  call MPI_Barrier(MPI_COMM_WORLD, ierr)
  call MPI_Finalize(ierr)
end program hello
""",
    {"MPI_Init": 1, "MPI_Allreduce": 10, "MPI_Barrier": 1, "MPI_Finalize": 1},
)
THREADS = Trial(
    "threads.c",
    """#include <mpi.h>
int main(int argc, char **argv)
{
    static volatile int shared;
    MPI_Init(&argc, &argv);
    for (int i = 0; i < 10; i++) {
        #pragma omp parallel num_threads(2)
        {
            #pragma omp atomic
            shared++;
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
""",
    {"MPI_Init": 1, "MPI_Barrier": 10, "MPI_Finalize": 1},
)
PYTHON = Trial(
    "hello.py",
    """from mpi4py import MPI
for i in range(10):
    MPI.COMM_WORLD.Barrier()
""",
    {"MPI_Init": 1, "MPI_Barrier": 10, "MPI_Finalize": 1},
)


def _missing(run_dir: Path, trial: Trial) -> str:
    """Return how a rank's events differ from the trial's, empty if all are there."""
    from p3s.capture import read_run

    run = read_run(run_dir)
    for rank in run.ranks:
        counted = Counter(run.calls[number].op for number in rank.call.tolist())
        if counted != Counter(trial.events):
            wrong = {op: counted[op] - trial.events.get(op, 0) for op in {*counted, *trial.events}}
            shown = ", ".join(f"{op} {n:+d}" for op, n in sorted(wrong.items()) if n)
            return f"rank {rank.rank}: not the events of the program: {shown}"
    return ""


def _trace(
    trial: Trial, mpiexec: str, compiler: Sequence[str], judge: Callable[[Path], Check]
) -> Check:
    """Compile a program, trace it at 2 ranks and judge its run; without a compiler it is Python's.

    Errors: P3SError or OSError where one of these fails.
    """
    with tempfile.TemporaryDirectory(prefix="p3s-doctor-") as folder:
        source = Path(folder, trial.name)
        source.write_text(trial.text)
        program = [sys.executable, str(source)]
        if compiler:
            program = [str(source.with_suffix(""))]
            # Beside the source: a module file would be written to the current directory.
            beside = ["-J", folder] if source.suffix == ".f90" else []
            words = [*compiler, *beside, "-O1", str(source), "-o", *program]
            compiling.run_tool(words, "compile a test")
        run_dir = Path(folder, "run")
        launch.run_traced([mpiexec, "-n", "{np}", *program], 2, run_dir, timeout_s=TIMEOUT_S)
        return judge(run_dir)


def _whole(
    name: str, trial: Trial, mpiexec: str, compiler: Sequence[str], fix: str, grave: bool = True
) -> Check:
    """Trace a program and see whether all of its events are there."""

    def judge(run_dir: Path) -> Check:
        if wrong := _missing(run_dir, trial):
            fix = "please report this with the output of p3s doctor --report"
            return Check(name, FAIL, wrong, fix)
        total = 2 * sum(trial.events.values())
        return Check(name, OK, f"2 ranks, {total} of {total} events")

    try:
        return _trace(trial, mpiexec, compiler, judge)
    except (P3SError, OSError) as error:
        return Check(name, FAIL if grave else WARN, str(error), fix)


def trace_c(install: mpi.MpiInstall) -> Check:
    """Trace a C program at 2 ranks on an MPI that has a launcher."""
    assert install.mpiexec is not None
    fix = f"try `{install.mpiexec} -n 2 hostname`; if that fails, repair this MPI first"
    grave = install.usable_oversubscribed
    return _whole(f"trace {install.family}", C, install.mpiexec, [install.mpicc], fix, grave)


def trace_threads(install: mpi.MpiInstall) -> Check:
    """Trace a C program with parallel regions at 2 ranks; say which runtime's threads are seen."""
    assert install.mpiexec is not None
    name, regions = f"threads {install.family}", 2 * THREADS.events["MPI_Barrier"]
    compiler = [install.mpicc, "-fopenmp"]
    try:
        return _trace(
            THREADS, install.mpiexec, compiler, lambda run: _seen_threads(name, run, regions)
        )
    except (P3SError, OSError) as error:
        if "cannot compile a test" in str(error):
            return Check(name, INFO, f"{' '.join(compiler)} does not compile: not looked at")
        return Check(name, WARN, str(error), "programs with threads may not be traced in full")


def _seen_threads(name: str, run_dir: Path, regions: int) -> Check:
    from p3s.capture import read_run, thread_totals

    run = read_run(run_dir)
    totals, under = thread_totals(run), run.ranks[0].runtime
    seen = totals["regions"] if totals is not None else 0
    runtime = under.openmp if under is not None and under.openmp else "the OpenMP runtime"
    detail = f"2 ranks, {seen} of {regions} parallel regions of {runtime}"
    if seen == regions:
        return Check(name, OK, detail)
    fix = "link the OpenMP runtime as a shared library, and leave OMP_TOOL alone"
    return Check(name, WARN, detail, fix)


def fortran_of(install: mpi.MpiInstall) -> str | None:
    """Return the Fortran compiler wrapper of an MPI that works, None if there is none."""
    folder, name = os.path.split(install.mpicc)
    suffix = name.removeprefix("mpicc")
    wrapper = os.path.join(folder, f"mpifort{suffix}")
    if not os.access(wrapper, os.X_OK):
        return None
    shown = (mpi.ask([wrapper, "-show"]) or "").split()
    return wrapper if shown and shutil.which(shown[0]) else None


def trace_fortran(install: mpi.MpiInstall, wrapper: str) -> Check:
    """Trace a Fortran program at 2 ranks."""
    assert install.mpiexec is not None
    fix = f"try `{wrapper} -show`; Fortran programs on this MPI cannot be traced until it works"
    name, grave = f"trace {install.family} fortran", install.usable_oversubscribed
    return _whole(name, FORTRAN, install.mpiexec, [wrapper], fix, grave)


def trace_python(mpiexec: str) -> Check:
    """Trace an mpi4py program of this Python at 2 ranks with a launcher of its MPI."""
    fix = f"try `{mpiexec} -n 2 {sys.executable} -m mpi4py.bench helloworld`"
    return _whole("trace mpi4py", PYTHON, mpiexec, [], fix)
