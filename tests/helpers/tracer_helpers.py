"""What the tracer tests share: one MPI, small C programs, expected events."""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path

import pytest
from paths import EXAMPLES, PROGRAMS

from p3s.base.host import mpi
from p3s.capture import RunTrace, read_run
from p3s.signature_runner.launch import run_traced
from p3s.signature_runner.recording import Recording

TIMEOUT_S = 300.0


@functools.cache
def the_mpi() -> mpi.MpiInstall | None:
    """The MPI of the tests: P3S_TEST_MPIEXEC's, else the one beside this Python, else any."""
    wanted = os.environ.get("P3S_TEST_MPIEXEC")
    found = [install for install in mpi.find_mpi() if install.mpiexec]
    if wanted:
        real = os.path.realpath(wanted)
        for install in found:
            assert install.mpiexec is not None
            same_place = os.path.dirname(install.mpiexec) == os.path.dirname(wanted)
            if os.path.realpath(install.mpiexec) == real or (
                same_place and install.family == mpi.launcher_family(wanted)
            ):
                return install
        raise RuntimeError(f"P3S_TEST_MPIEXEC={wanted}: no mpicc belongs to it")
    usable = [install for install in found if install.usable_oversubscribed]
    return usable[0] if usable else None


def usable_mpi() -> mpi.MpiInstall:
    """Return the MPI of the tests; skip the test where there is none."""
    install = the_mpi()
    if install is None or install.mpiexec is None:
        pytest.skip("no MPI that works with ranks sharing cores")
    return install


def make_examples(folder: Path, *more: str) -> Path:
    """Compile the examples into a folder; more: settings of make."""
    subprocess.run(
        ["make", "-s", "-C", str(EXAMPLES), f"MPICC={usable_mpi().mpicc}", f"BIN={folder}", *more],
        check=True,
        timeout=120,
        capture_output=True,
    )
    return folder


def compile_c(source: str | Path, target: Path, *flags: str) -> Path:
    """Compile a C file (or text) with the tests' mpicc."""
    install = usable_mpi()
    path = Path(source) if isinstance(source, Path) else target.with_suffix(".c")
    if not isinstance(source, Path):
        path.write_text(source)
    subprocess.run(
        [install.mpicc, "-O1", "-g", f"-I{PROGRAMS}", str(path), "-o", str(target), *flags],
        check=True,
        timeout=120,
        capture_output=True,
    )
    return target


def trace(program: list[str], np: int, run_dir: Path, *, posix_io: bool = False) -> RunTrace:
    """Run a program traced and read its trace.

    Without ``posix_io`` what it writes down for the test, with the C library, is no event.
    """
    run_traced(
        [usable_mpi().mpiexec, "-n", "{np}", *program],
        np,
        run_dir,
        timeout_s=TIMEOUT_S,
        recording=Recording(posix_io=posix_io),
    )
    return read_run(run_dir)


def recorded(run: RunTrace, rank: int) -> list[str]:
    """The events of a rank in the notation of programs/expect.h."""
    lines = []
    for number in run.ranks[rank].call.tolist():
        c = run.calls[number]
        members = len(run.comms[c.comm].members) if c.comm >= 0 else -1
        lines.append(f"{c.op} {c.peer} {c.bytes} {c.elem_bytes} {c.tag} {c.root} {members}")
    return lines


def expected(directory: Path, rank: int) -> tuple[list[str], int]:
    """What the program wrote down: (events, failed polls)."""
    lines = (directory / f"expect-{rank:06d}.txt").read_text().splitlines()
    assert lines[-1].startswith("polls ")
    return lines[:-1], int(lines[-1].split()[1])
