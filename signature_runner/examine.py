"""Says of one launcher command whether its program can be traced, and what to do if not."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from p3s.base.errors import P3SError
from p3s.base.host import command, mpi
from p3s.signature_runner import launch
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
    program = command.executable(parsed.program[0]) or parsed.program[0]
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
            began = launch.status_of(run_dir) == "partial" and "not finished after" in str(error)
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
