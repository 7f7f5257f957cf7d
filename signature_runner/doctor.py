"""What this machine has for tracing, proved by tracing a two-rank program on each MPI."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from p3s.errors import P3SError
from signature_runner import build, launch, mpi

OK, WARN, FAIL = "ok", "warn", "fail"
_TIMEOUT_S = 60.0

_HELLO = """#include <mpi.h>
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
"""
_HELLO_EVENTS = {
    "MPI_Init": 1,
    "MPI_Sendrecv_replace": 10,
    "MPI_Sendrecv_recv": 10,
    "MPI_Barrier": 1,
    "MPI_Finalize": 1,
}


@dataclass(frozen=True)
class Check:
    """One finding: ``status`` ok, warn or fail; ``fix`` says what to do, empty if nothing."""

    name: str
    status: str
    detail: str
    fix: str = ""


def checks() -> list[Check]:
    """Return what was found, in the order in which a user would fix it.

    Starts a two-rank MPI program, traced, on every MPI that has a launcher.
    """
    installs = mpi.find_mpi()
    return [
        _python(),
        _compiler(),
        _cores(),
        _cache(),
        *_installs(installs),
        *(_hello(install) for install in installs if install.mpiexec),
        _mpi4py(installs),
    ]


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return Check("python", OK, f"{version} at {sys.executable}")


def _compiler() -> Check:
    found = shutil.which("cc") or shutil.which("gcc")
    if found:
        return Check("compiler", OK, found)
    return Check(
        "compiler", FAIL, "neither cc nor gcc on PATH", "install gcc (Debian: apt install gcc)"
    )


def _cores() -> Check:
    count = launch.cores()
    detail = f"{count} usable"
    if count < 4:
        detail += ": runs with more ranks than that share cores; work is still measured per rank"
    return Check("cores", OK, detail)


def _cache() -> Check:
    try:
        return Check("cache", OK, str(build.cache_dir()))
    except P3SError as error:
        return Check("cache", FAIL, str(error), "set XDG_CACHE_HOME to a writable directory")


def _installs(installs: list[mpi.MpiInstall]) -> Iterator[Check]:
    if not any(install.mpiexec for install in installs):
        yield Check(
            "mpi",
            FAIL,
            "no MPI with a compiler wrapper and a launcher" if installs else "no mpicc on PATH",
            "pip install mpich, or install openmpi-bin and libopenmpi-dev",
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


def _hello(install: mpi.MpiInstall) -> Check:
    name = f"trace {install.family}"
    assert install.mpiexec is not None
    try:
        with tempfile.TemporaryDirectory(prefix="p3s-doctor-") as folder:
            return _trace_hello(name, install, install.mpiexec, Path(folder))
    except (P3SError, OSError) as error:
        return Check(
            name,
            FAIL if install.usable_oversubscribed else WARN,
            str(error),
            f"try `{install.mpiexec} -n 2 hostname`; if that fails, repair this MPI first",
        )


def _trace_hello(name: str, install: mpi.MpiInstall, mpiexec: str, folder: Path) -> Check:
    from p3s.trace import read_run

    program, source = folder / "hello", folder / "hello.c"
    source.write_text(_HELLO)
    build.run_tool([install.mpicc, "-O1", str(source), "-o", str(program)], "compile a test")
    run_dir = folder / "run"
    launch.run_traced([mpiexec, "-n", "{np}", str(program)], 2, run_dir, timeout_s=_TIMEOUT_S)
    run = read_run(run_dir)
    for rank in run.ranks:
        counted = Counter(run.calls[number].op for number in rank.call.tolist())
        if counted != _HELLO_EVENTS:
            missing = {op: n - counted[op] for op, n in _HELLO_EVENTS.items() if n != counted[op]}
            return Check(
                name, FAIL, f"rank {rank.rank}: events missing: {missing}", "please report this"
            )
    total = sum(len(rank.call) for rank in run.ranks)
    return Check(name, OK, f"2 ranks, {total} of {2 * sum(_HELLO_EVENTS.values())} events")


def _mpi4py(installs: list[mpi.MpiInstall]) -> Check:
    asked = "from mpi4py import MPI; print(MPI.Get_library_version().split(chr(10))[0])"
    text = mpi.ask([sys.executable, "-c", asked], timeout_s=_TIMEOUT_S)
    if text is None:
        return Check(
            "mpi4py",
            WARN,
            "does not load: Python programs and the replay cannot run",
            f"{os.path.basename(sys.executable)} -m pip install mpi4py mpich",
        )
    version = text.strip().split("\n")[0]
    family = mpi.OPENMPI if "Open MPI" in version else mpi.MPICH if "MPICH" in version else None
    launchers = [m.mpiexec for m in installs if m.family == family and m.mpiexec]
    if family and not launchers:
        return Check(
            "mpi4py", WARN, f"loads {version}, which has no mpiexec here", "pip install mpich"
        )
    hint = f"; start Python programs with {launchers[0]}" if launchers else ""
    return Check("mpi4py", OK, f"loads {version}{hint}")
