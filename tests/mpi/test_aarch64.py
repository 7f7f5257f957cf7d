"""The tracer on another processor: cross-compiled, run under qemu, its captures read here."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from paths import PROGRAMS

from p3s.capture import RunTrace, read_run
from p3s.capture.chunks import read_header
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


#: Programs, by the name of their file.
SOURCES = (PROGRAMS / "conformance" / "blocking.c", PROGRAMS / "handlers.c")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The tracer and the programs, all for aarch64."""
    folder = tmp_path_factory.mktemp("aarch64")
    mpicc = folder / "mpicc"
    mpicc.write_text(
        f'#!/bin/sh\nexec {COMPILER} -I{LIBRARY}/include "$@" -L{LIBRARY}/lib -lmpi'
        " -Wl,--allow-shlib-undefined\n"
    )
    mpicc.chmod(0o755)
    texts, _ = build.tracer_sources(str(mpicc))
    objects = build.compile_objects(str(mpicc), texts, str(folder), build.FLAGS)
    tracer = folder / "tracer.so"
    _run([str(COMPILER), "-shared", "-o", str(tracer), *objects, "-ldl", "-lpthread"])
    for source in SOURCES:
        target = str(folder / source.stem)
        _run([str(mpicc), "-O1", "-g", "-w", f"-I{PROGRAMS}", str(source), "-o", target])
    return {"tracer": tracer, **{source.stem: folder / source.stem for source in SOURCES}}


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


def test_the_tracer_is_built_for_the_other_processor(built: dict[str, Path]) -> None:
    machine = built["tracer"].read_bytes()[18:20]
    assert int.from_bytes(machine, "little") == 183  # EM_AARCH64


def _traced(built: dict[str, Path], program: str, folder: Path) -> RunTrace:
    """Run a program traced on NP ranks under qemu, and read its captures."""
    run_dir = folder / "run"
    run_dir.mkdir()
    said = {
        "LD_PRELOAD": str(built["tracer"]),
        "LD_LIBRARY_PATH": f"{LIBRARY}/lib",
        "P3S_TRACE_DIR": str(run_dir),
    }
    words = [word for name, value in said.items() for word in ("-E", f"{name}={value}")]
    launcher = str(Path(str(LAUNCHER), "bin", "mpiexec"))
    emulated = [str(QEMU), "-L", str(SYSTEM), *words, str(built[program])]
    # qemu cannot read the memory of another process.
    _run([launcher, "-n", str(NP), *emulated], folder, MPIR_CVAR_CH4_CMA_ENABLE="0")
    return read_run(run_dir)


def test_calls_in_signal_handlers_are_known(built: dict[str, Path], tmp_path: Path) -> None:
    run = _traced(built, "handlers", tmp_path)
    assert all(rank.complete for rank in run.ranks), [rank.problem for rank in run.ranks]
    assert not [call.op for call in run.calls if call.op.startswith("POSIX_")]
    for rank in range(NP):  # seven calls on each of two stacks
        assert read_header(tmp_path / "run" / f"rank-{rank:06d}.p3t").in_handlers == 2 * 7


def test_two_ranks_under_qemu_leave_captures_that_are_read_here(
    built: dict[str, Path], tmp_path: Path
) -> None:
    run = _traced(built, "blocking", tmp_path)
    assert run.np == NP
    assert all(rank.complete for rank in run.ranks), [rank.problem for rank in run.ranks]
    calls = {run.calls[number].op for rank in run.ranks for number in set(rank.call.tolist())}
    assert {"MPI_Init", "MPI_Finalize"} <= calls
    assert {"MPI_Send", "MPI_Recv"} <= calls
