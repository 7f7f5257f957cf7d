"""Every event is recorded once, in order, with the right partner, bytes, tag and root."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import pytest
from tracer_helpers import PROGRAMS, compile_c, expected, recorded, the_mpi, trace, usable_mpi

pytestmark = [pytest.mark.skipif(the_mpi() is None, reason="no usable MPI")]

NAMES = ("p2p", "collectives", "requests", "windows", "comms")


@pytest.fixture(scope="module")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("bin")
    return {name: compile_c(PROGRAMS / f"{name}.c", folder / name) for name in (*NAMES, "spawn")}


@pytest.fixture(autouse=True)
def one_sided_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open MPI has ways to do one-sided communication that fail on some machines; not these."""
    install = usable_mpi()
    monkeypatch.setenv("OMPI_MCA_osc", "^ucx,rdma" if install.version.startswith("4") else "^ucx")


@pytest.mark.parametrize("np", [1, 2, 3, 4])
@pytest.mark.parametrize("name", NAMES)
def test_events_are_those_the_program_counted(
    binaries: dict[str, Path], name: str, np: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = trace([str(binaries[name])], np, tmp_path / "run")
    assert run.np == np
    for rank in run.ranks:
        events, polls = expected(tmp_path, rank.rank)
        own = [line for line in recorded(run, rank.rank) if not line.startswith("POSIX_")]
        assert own == events
        assert rank.failed_polls == polls
        assert rank.complete


def test_a_communicator_of_idup_knows_how_it_was_made(
    binaries: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = trace([str(binaries["comms"])], 3, tmp_path / "run")
    made = [comm for comm in run.comms if comm.op == "MPI_Comm_idup"]
    assert sorted(comm.members for comm in made) == [(0, 1, 2), (1,), (2, 0)]
    for comm in made:
        assert run.comms[comm.parent].members == comm.members
    assert "unknown" not in {comm.op for comm in run.comms}


def works_untraced(program: str, np: int) -> bool:
    """Tell whether a program runs through by itself."""
    install = usable_mpi()
    process = subprocess.Popen(
        [install.mpiexec, "-n", str(np), program],
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={
            **os.environ,
            **{
                f"{mpi}_ALLOW_RUN_AS_ROOT{more}": "1"
                for mpi in ("OMPI", "PRTE")
                for more in ("", "_CONFIRM")
            },
        },
    )
    try:
        return process.wait(timeout=120) == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize("np", [1, 2])
def test_processes_that_were_spawned_disturb_nothing(
    binaries: dict[str, Path], np: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMPI_MCA_rmaps_base_oversubscribe", "1")
    monkeypatch.setenv("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe")
    if not works_untraced(str(binaries["spawn"]), np):
        pytest.skip("this MPI cannot start processes here")
    run = trace([str(binaries["spawn"])], np, tmp_path / "run")
    assert (run.np, run.problem) == (np, "")
    for rank in run.ranks:
        assert recorded(run, rank.rank) == expected(tmp_path, rank.rank)[0]
    assert {comm.members for comm in run.comms if comm.inter} == {(-1, -1, *range(np))}
    outside = {"MPI_Bcast_outside": np, "MPI_Comm_disconnect_outside": np, "MPI_Recv_outside": 2}
    assert run.unmodelled == {"MPI_Comm_spawn": np, **outside}
