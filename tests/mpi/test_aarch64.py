"""The tracer on another processor: cross-compiled, run under qemu, its captures read here."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from paths import PROGRAMS

from p3s.capture import read_run
from p3s.signature_runner import build

COMPILER, QEMU = shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64")
#: A directory with include/mpi.h and lib/libmpi.so of MPICH for aarch64 (its wheel, unpacked), and
#: a launcher of the same MPICH for this machine.
LIBRARY, LAUNCHER = os.environ.get("P3S_TEST_AARCH64"), os.environ.get("P3S_TEST_MPICH5")
SYSTEM = Path("/usr/aarch64-linux-gnu")
NP, TIMEOUT_S = 2, 300.0

pytestmark = [
    pytest.mark.skipif(
        not (COMPILER and QEMU and LIBRARY and LAUNCHER and SYSTEM.is_dir()),
        reason="needs aarch64-linux-gnu-gcc, qemu-aarch64, P3S_TEST_AARCH64 and P3S_TEST_MPICH5",
    )
]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The tracer and a program, both for aarch64."""
    folder = tmp_path_factory.mktemp("aarch64")
    mpicc = folder / "mpicc"
    mpicc.write_text(
        f'#!/bin/sh\nexec {COMPILER} -I{LIBRARY}/include "$@" -L{LIBRARY}/lib -lmpi'
        " -Wl,--allow-shlib-undefined\n"
    )
    mpicc.chmod(0o755)
    texts, _ = build.tracer_sources(str(mpicc))
    objects = build.compile_objects(str(mpicc), texts, str(folder), build.FLAGS)
    tracer, program = folder / "tracer.so", folder / "program"
    _run([str(COMPILER), "-shared", "-o", str(tracer), *objects, "-ldl", "-lpthread"])
    source = PROGRAMS / "conformance" / "blocking.c"
    _run([str(mpicc), "-O1", "-g", "-w", f"-I{PROGRAMS}", str(source), "-o", str(program)])
    return tracer, program


def _run(command: list[str], cwd: Path | None = None, **more: str) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=TIMEOUT_S,
        env={**os.environ, **more},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_the_tracer_is_built_for_the_other_processor(built: tuple[Path, Path]) -> None:
    machine = built[0].read_bytes()[18:20]
    assert int.from_bytes(machine, "little") == 183  # EM_AARCH64


def test_two_ranks_under_qemu_leave_captures_that_are_read_here(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    tracer, program = built
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    said = {
        "LD_PRELOAD": str(tracer),
        "LD_LIBRARY_PATH": f"{LIBRARY}/lib",
        "P3S_TRACE_DIR": str(run_dir),
    }
    words = [word for name, value in said.items() for word in ("-E", f"{name}={value}")]
    launcher = str(Path(str(LAUNCHER), "bin", "mpiexec"))
    emulated = [str(QEMU), "-L", str(SYSTEM), *words, str(program)]
    # qemu cannot read the memory of another process.
    _run([launcher, "-n", str(NP), *emulated], tmp_path, MPIR_CVAR_CH4_CMA_ENABLE="0")
    run = read_run(run_dir)
    assert run.np == NP
    assert all(rank.complete for rank in run.ranks), [rank.problem for rank in run.ranks]
    calls = {run.calls[number].op for rank in run.ranks for number in set(rank.call.tolist())}
    assert {"MPI_Init", "MPI_Finalize"} <= calls
    assert {"MPI_Send", "MPI_Recv"} <= calls
