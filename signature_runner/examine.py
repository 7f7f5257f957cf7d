"""Whether a launcher command and a machine can be traced, and what to do if not."""

from __future__ import annotations

import ctypes
import errno
import importlib
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from p3s.base.errors import P3SError
from p3s.base.host import command, compiling, mpi
from p3s.base.host.cores import cores
from p3s.signature_runner import build, emulate, launch, trials
from p3s.signature_runner.archive import has_tracer, relink
from p3s.signature_runner.trials import FAIL, INFO, OK, TIMEOUT_S, WARN, Check

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
    found = list(_program(program, parsed))
    yield from found
    if not any(check.status == FAIL for check in found):
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
    shown = parsed.program[0]
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
            return Check("start", OK, f"{shown}: {_RANKS} ranks traced, stopped after {_TRY_S:g} s")
    return Check("start", OK, f"{shown}: {_RANKS} ranks traced to their end")


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
    said = []
    for name in ("numpy", "scipy", "pyarrow"):
        try:
            said.append(f"{name} {importlib.import_module(name).__version__}")
        except ImportError as error:
            why = str(error).strip().splitlines()[0]
            advice = f"{os.path.basename(sys.executable)} -m pip install --upgrade numpy {name}"
            return Check("libraries", FAIL, f"{name} cannot be loaded: {why}", advice)
    return Check("libraries", OK, ", ".join(said))


def _compiler() -> Check:
    found = shutil.which("cc") or shutil.which("gcc")
    if found:
        return Check("compiler", OK, found)
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
    here = os.getcwd()
    try:
        with tempfile.TemporaryFile(dir=here):
            return Check("directory", OK, here)
    except OSError as error:
        detail = f"{here}: nothing can be written here: {error.strerror}"
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
        yield trials.trace_c(install)
        yield trials.trace_threads(install)
        wrapper = trials.fortran_of(install)
        if wrapper is not None:
            yield trials.trace_fortran(install, wrapper)


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
    yield trials.trace_python(install.mpiexec)


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
        return Check(name, OK, "perf events count instructions: --counters can be used")
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
