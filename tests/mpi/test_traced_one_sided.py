"""One-sided communication read as messages: those with data are what the program itself counts."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from conformance import COMPILE_TIMEOUT_S, TIMEOUT_S, Installed, mpis
from tracer_helpers import PROGRAMS

from p3s.signature_runner.launch import run_traced
from p3s.trace import RunTrace, ops
from p3s.trace.rewrite import Messages

FOLDER = PROGRAMS / "onesided"
RANKS = 4
SOURCES = (
    "fence_halo.c",
    "pscw_halo.c",
    "lock_ring.c",
    "get_transpose.c",
    "add_left.c",
    "rput_torus.c",
    "get_groups.c",
    "counter.c",
    "halo.f90",
    "ring.py",
)
pytestmark = pytest.mark.skipif(not mpis(), reason="no MPI")


@pytest.fixture(params=sorted(mpis()))
def tested(request: pytest.FixtureRequest) -> Installed:
    """Each MPI of this machine."""
    return mpis()[request.param]


def command(name: str, tested: Installed, folder: Path) -> list[str]:
    """Return the command of a program, compiled into a folder; skips where it cannot be built."""
    if name.endswith(".py"):
        if tested.python is None:
            pytest.skip(f"{tested.name}: no mpi4py for it")
        return [tested.python, str(FOLDER / name)]
    wrapper = tested.mpifort if name.endswith(".f90") else tested.mpicc
    if wrapper is None or tested.library:
        pytest.skip(f"{tested.name}: no compiler of its own")
    target = folder / Path(name).stem
    build = [wrapper, "-g", "-O1", "-w", str(FOLDER / name), "-o", str(target)]
    done = subprocess.run(
        build, capture_output=True, text=True, cwd=folder, timeout=COMPILE_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return [str(target)]


def traced(name: str, tested: Installed, folder: Path) -> tuple[list[RunTrace], list[str]]:
    """Return the ranks of a run, with messages in place of calls, and what it printed.

    Open MPI 4 has ways to do one-sided communication that fail on some machines; not this one,
    which is not for programs with threads, as those of mpi4py.
    """
    words = command(name, tested, folder)
    run_dir = folder / "run"
    assert tested.mpiexec is not None
    with pytest.MonkeyPatch.context() as patch:
        if not name.endswith(".py"):
            patch.setenv("OMPI_MCA_osc", "^ucx,rdma")
        for variable, value in tested.env.items():
            patch.setenv(variable, value)
        run_traced(
            [tested.mpiexec, "-n", "{np}", *words], RANKS, run_dir, timeout_s=TIMEOUT_S, trace=True
        )
    files = sorted(run_dir.glob("rank-*.p3t"))
    messages = Messages(files)
    lines = (run_dir / "stdout.txt").read_text().splitlines()
    return [messages.read(path) for path in files], lines


def counted(run: RunTrace, rank: int, kind: str) -> list[tuple[int, int, int]]:
    """Return (partner, tag, bytes) of the messages of a rank, those to MPI_PROC_NULL left out."""
    calls = [run.calls[number] for number in run.ranks[rank].call.tolist()]
    return [(c.peer, c.tag, c.bytes) for c in calls if ops.kind_of(c.op) == kind and c.peer >= 0]


@pytest.mark.parametrize("name", SOURCES)
def test_messages_are_those_that_the_program_counts(
    name: str, tested: Installed, tmp_path: Path
) -> None:
    runs, lines = traced(name, tested, tmp_path)
    told = {int(line.split()[1]): line.split()[2:] for line in lines if line.startswith("tally ")}
    assert sorted(told) == list(range(RANKS))
    sent: Counter[tuple[int, ...]] = Counter()
    received: Counter[tuple[int, ...]] = Counter()
    for rank, run in enumerate(runs):
        assert not run.unmodelled and not run.problem
        out, into = counted(run, rank, ops.SEND), counted(run, rank, ops.RECV)
        found = []
        for them in (out, into):
            data = [size for _, _, size in them if size]
            found += [len(data), sum(data)]
        assert found == [int(word) for word in told[rank]], rank
        sent.update((rank, peer, tag, size) for peer, tag, size in out)
        received.update((peer, rank, tag, size) for peer, tag, size in into)
    assert sent == received


@pytest.mark.parametrize("name", ["pscw_halo.c", "rput_torus.c", "add_left.c"])
def test_completions_complete_what_their_calls_posted(
    name: str, tested: Installed, tmp_path: Path
) -> None:
    runs, _ = traced(name, tested, tmp_path)
    for rank, run in enumerate(runs):
        rt = run.ranks[rank]
        of = np.array([ops.queue_of(call.op) for call in run.calls])[rt.call]
        size = np.array([call.bytes for call in run.calls])[rt.call]
        waits = np.array([ops.kind_of(call.op) == ops.COMPLETION for call in run.calls])[rt.call]
        completes = np.bincount(rt.done[:, 0], minlength=len(rt.call))
        assert (completes == np.where(waits, size, 0)).all()
        assert (of[rt.done[:, 0]] == of[rt.done[:, 1]]).all()
        assert (rt.done[:, 0] > rt.done[:, 1]).all()
