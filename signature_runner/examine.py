"""Whether a launcher command and a machine can be traced, and what to do if not.

Small MPI programs whose every event is known are traced to see that nothing is missing.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import os
import platform
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from p3s.base.errors import P3SError
from p3s.base.host import command, compiling, mpi
from p3s.base.host.cores import cores
from p3s.signature_runner import build, emulate, launch
from p3s.signature_runner.archive import has_tracer, relink

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
            differences = ", ".join(f"{op} {n:+d}" for op, n in sorted(wrong.items()) if n)
            return f"rank {rank.rank}: not the events of the program: {differences}"
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


def _check_traced(
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
    return _check_traced(f"trace {install.family}", C, install.mpiexec, [install.mpicc], fix, grave)


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
    regions_seen = totals["regions"] if totals is not None else 0
    runtime = under.openmp if under is not None and under.openmp else "the OpenMP runtime"
    detail = f"2 ranks, {regions_seen} of {regions} parallel regions of {runtime}"
    if regions_seen == regions:
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
    command_words = (mpi.ask([wrapper, "-show"]) or "").split()
    return wrapper if command_words and shutil.which(command_words[0]) else None


# ---- checks
_RANKS = 2
#: From the start of MPI on, to which launchers and large programs come after any time.
_TRY_S = 8.0


def examine(template: Sequence[str]) -> Iterator[Check]:
    """Check a launcher command with {np}: the launcher, the program, and a short start of both.

    The program is started with 2 processes and stopped after some seconds: what it does at its
    start it does.
    """
    try:
        parsed = command.parse(template, _RANKS)
    except P3SError as error:
        yield Check("command", FAIL, str(error), "write it as mpiexec -n {np} ./program input")
        return
    yield Check("launcher", OK, f"{parsed.launcher} ({parsed.family})")
    program = shutil.which(parsed.program[0]) or parsed.program[0]
    checks = list(_program(program, parsed))
    yield from checks
    if not any(check.status == FAIL for check in checks):
        yield _start(template, parsed)


def _program(path: str, parsed: command.Command) -> Iterator[Check]:
    if not os.path.isfile(path):
        yield Check("program", INFO, f"{path}: not on this machine")
        return
    with open(path, "rb") as file:
        head = file.read(4)
    if head[:2] == b"#!":
        yield Check("program", INFO, f"{path}: a script; what it starts is traced")
        return
    if head != b"\x7fELF":
        fix = "put its interpreter in front, as in `sh ./program`, or add a #! line"
        yield Check("program", FAIL, f"{path}: neither a program nor a script", fix)
        return
    library = mpi.library_of(path)
    if library is None:
        yield from _without_library(path, parsed)
        return
    family, where = library
    if parsed.family in (mpi.OPENMPI, mpi.MPICH) and parsed.family != family:
        yield Check(
            "program",
            FAIL,
            f"{path}: is linked to {where or family}, but {parsed.launcher} is the launcher of"
            f" another MPI ({parsed.family})",
            f"start it with {mpi.own_launcher(where)}",
        )
        return
    yield Check("program", OK, f"{path}: linked to {where or family}")


def _without_library(path: str, parsed: command.Command) -> Iterator[Check]:
    if mpi.is_static(path):
        if has_tracer(path):
            yield Check("program", OK, f"{path}: has MPI and the tracer linked statically")
            return
        yield Check("program", FAIL, f"{path}: has MPI linked statically, not traced", relink())
        return
    python = mpi.library_of_python(path)
    if python is None:
        yield Check("program", INFO, f"{path}: not linked to MPI; what it loads is traced")
        return
    family, where = python
    yield Check("program", OK, f"{path}: mpi4py loads {where}")
    if parsed.family in (mpi.OPENMPI, mpi.MPICH) and parsed.family != family:
        yield Check(
            "mpi4py",
            WARN,
            f"{path}: mpi4py loads {where} ({family}), {parsed.launcher} starts {parsed.family}",
            mpi.remedy_for(where, parsed.family),
        )


def _start(template: Sequence[str], parsed: command.Command) -> Check:
    program = parsed.program[0]
    with tempfile.TemporaryDirectory(prefix="p3s-doctor-") as folder:
        run_dir = Path(folder, "run")
        try:
            launch.run_traced(list(template), _RANKS, run_dir, timeout_s=_TRY_S, start_s=TIMEOUT_S)
        except P3SError as error:
            began = launch.info_of(run_dir).get(
                "status"
            ) == "partial" and "not finished after" in str(error)
            if not began:
                return Check("start", FAIL, str(error), _fix(str(error), run_dir))
            return Check(
                "start", OK, f"{program}: {_RANKS} ranks traced, stopped after {_TRY_S:g} s"
            )
    return Check("start", OK, f"{program}: {_RANKS} ranks traced to their end")


def _fix(text: str, run_dir: Path) -> str:
    if "separate programs" in text or (run_dir / "other-mpi").exists():
        return "start it with the mpiexec of the MPI it uses; p3s doctor lists them"
    if "before MPI_Init" in text:
        return "run the same command without p3s and repair that first"
    return "p3s doctor without a command checks the machine itself"


def checks(command: Sequence[str] = ()) -> list[Check]:
    """Return what was found, in the order in which a user would fix it.

    Starts a two-rank MPI program, traced, on every MPI that has a launcher; with ``command``, a
    launcher command with {np}, only that command's program is checked and started.
    """
    if command:
        return [_compiler(), _cache(), _directory(), *examine(command)]
    installs = mpi.find_mpi()
    runtimes = compiling.runtimes(installs)
    return [
        Check("python", OK, f"{platform.python_version()} at {sys.executable}"),
        _libraries(),
        _compiler(),
        _cores(),
        _cache(),
        _directory(),
        *_installs(installs, runtimes),
        *_programs(installs),
        *_mpi4py(runtimes),
        _qemu(),
        _counters(),
        _slurm(),
    ]


def _libraries() -> Check:
    """A library may be there and not load: pyarrow 26 needs numpy 2 and does not say so to pip."""
    versions = []
    for name in ("numpy", "scipy", "pyarrow"):
        try:
            versions.append(f"{name} {importlib.import_module(name).__version__}")
        except ImportError as error:
            why = str(error).strip().splitlines()[0]
            advice = f"{os.path.basename(sys.executable)} -m pip install --upgrade numpy {name}"
            return Check("libraries", FAIL, f"{name} cannot be loaded: {why}", advice)
    return Check("libraries", OK, ", ".join(versions))


def _compiler() -> Check:
    path = shutil.which("cc") or shutil.which("gcc")
    if path:
        return Check("compiler", OK, path)
    detail, fix = "neither cc nor gcc on PATH", "install gcc (Debian: apt install gcc libc6-dev)"
    came = compiling.libraries()
    if came:
        named = ", ".join(f"{each.family} {each.version.partition('.')[0]}" for each in came)
        detail += (
            f"; what P3S compiles came with it, for {named}; p3s machine learn and p3s machine"
            " measure --openmp need one"
        )
        return Check("compiler", WARN, detail, fix)
    return Check("compiler", FAIL, detail, fix)


def _cores() -> Check:
    count = cores()
    detail = f"{count} usable"
    bound = len(os.sched_getaffinity(0))
    if count < bound:
        detail += f" (of {bound}: the control group has a CPU quota)"
    if count < 4:
        detail += ": runs with more ranks than that share cores; work is still measured per rank"
    return Check("cores", OK, detail)


def _cache() -> Check:
    try:
        return Check("cache", OK, str(compiling.cache_dir()))
    except P3SError as error:
        return Check("cache", FAIL, str(error), "set XDG_CACHE_HOME to a writable directory")


def _directory() -> Check:
    directory = os.getcwd()
    try:
        with tempfile.TemporaryFile(dir=directory):
            return Check("directory", OK, directory)
    except OSError as error:
        detail = f"{directory}: nothing can be written here: {error.strerror}"
        return Check("directory", WARN, detail, "go to another directory or use -o DIRECTORY")


def _installs(
    installs: Sequence[mpi.MpiInstall], runtimes: Sequence[mpi.MpiInstall]
) -> Iterator[Check]:
    """Check MPIs with a compiler, and ``runtimes``, those that have only a launcher."""
    for each in runtimes:
        detail = f"{each.version}, {each.mpiexec}, no mpicc that works"
        yield Check(f"mpi {each.family}", OK, f"{detail}; the tracer came with P3S")
    if not runtimes and not any(install.mpiexec for install in installs):
        yield Check(
            "mpi",
            FAIL,
            "no MPI with a compiler wrapper and a launcher" if installs else "no mpicc on PATH",
            "pip install mpich (Debian: or apt install openmpi-bin libopenmpi-dev)",
        )
    for install in installs:
        name = f"mpi {install.family}"
        detail = f"{install.version}, {install.mpicc}, {install.mpiexec or 'no mpiexec'}"
        if not install.mpiexec:
            yield Check(name, WARN, detail, "install its mpiexec")
        elif not install.usable_oversubscribed:
            yield Check(name, WARN, f"{detail}: {install.why_not}", "pip install mpich")
        else:
            yield Check(name, OK, detail)


def _programs(installs: list[mpi.MpiInstall]) -> Iterator[Check]:
    for install in installs:
        if install.mpiexec is None:
            continue
        yield trace_c(install)
        yield trace_threads(install)
        wrapper = fortran_of(install)
        if wrapper is not None:
            name, grave = f"trace {install.family} fortran", install.usable_oversubscribed
            fix = (
                f"try `{wrapper} -show`; Fortran programs on this MPI cannot be traced until it"
                " works"
            )
            yield _check_traced(name, FORTRAN, install.mpiexec, [wrapper], fix, grave)


def _mpi4py(runtimes: Sequence[mpi.MpiInstall]) -> Iterator[Check]:
    library = mpi.library_of_python(sys.executable)
    if library is None:
        yield Check(
            "mpi4py",
            WARN,
            "does not load: Python programs and the replay cannot run",
            f"{os.path.basename(sys.executable)} -m pip install mpi4py mpich",
        )
        return
    family, path = library
    install = mpi.owner_of(path) or next((m for m in runtimes if m.family == family), None)
    if install is None or install.mpiexec is None:
        detail = f"loads {path}, which has no mpiexec here"
        yield Check("mpi4py", WARN, detail, "pip install mpich")
        return
    yield Check("mpi4py", OK, f"loads {path}; start Python programs with {install.mpiexec}")
    default = shutil.which("mpiexec")
    if default and mpi.launcher_family(default) not in (family, None):
        other = mpi.launcher_family(default)
        yield Check(
            "mpiexec",
            WARN,
            f"{default} is of {other}, mpi4py loads {family}: Python programs started with it"
            " would be separate programs of 1 rank",
            f"start them with {install.mpiexec}, or set MPI4PY_MPIABI={other}",
        )
    fix = f"try `{install.mpiexec} -n 2 {sys.executable} -m mpi4py.bench helloworld`"
    yield _check_traced("trace mpi4py", PYTHON, install.mpiexec, [], fix)


def _qemu() -> Check:
    try:
        where = emulate.emulator()
        build.ensure_counter()
        return Check("instructions", INFO, f"--work instructions runs in {where}")
    except P3SError as error:
        return Check("instructions", INFO, f"not available: {error}")


# perf_event_open(2) by processor; the structure's size and fields as of its first version.
_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241, "ppc64le": 319, "riscv64": 241}
_ATTRIBUTE_BYTES = 64
_EXCLUDE_KERNEL = 1 << 5


def _counters() -> Check:
    name, number = "counters", _PERF_EVENT_OPEN.get(platform.machine())
    if number is None:
        return Check(name, INFO, f"not looked for on {platform.machine()}")
    instructions = (0, 1)  # PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS
    attribute = (ctypes.c_uint64 * (_ATTRIBUTE_BYTES // 8))(
        instructions[0] | _ATTRIBUTE_BYTES << 32, instructions[1], 0, 0, 0, _EXCLUDE_KERNEL
    )
    libc = ctypes.CDLL(None, use_errno=True)
    none, this, any_cpu = ctypes.c_long(-1), ctypes.c_long(0), ctypes.c_long(-1)
    arguments = (ctypes.byref(attribute), this, any_cpu, none, ctypes.c_ulong(0))
    opened = libc.syscall(ctypes.c_long(number), *arguments)
    if opened >= 0:
        os.close(opened)
        return Check(name, OK, "perf events can be opened: --counters can be used")
    if ctypes.get_errno() in (errno.EACCES, errno.EPERM):
        return Check(name, INFO, "perf events may not be opened here (kernel.perf_event_paranoid)")
    return Check(name, INFO, "no hardware counters on this machine (perf_event_open)")


def _slurm() -> Check:
    srun = shutil.which("srun")
    if srun is None:
        return Check("slurm", INFO, "no srun on PATH")
    version = mpi.ask([srun, "--version"], timeout_s=5.0)
    if version is None:
        return Check("slurm", INFO, f"{srun} finds no Slurm that answers")
    kinds = mpi.ask([srun, "--mpi=list"], timeout_s=5.0) or ""
    ways = [word for word in ("pmix", "pmi2") if word in kinds]
    return Check("slurm", OK, f"{version.strip()}, {srun} --mpi={' or '.join(ways) or 'none'}")
