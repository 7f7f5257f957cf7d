"""Neighbourhood collectives, persistent and partitioned messages: read as messages, they are those
that the program counts itself (programs/neighbours/tally.h)."""

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

FOLDER = PROGRAMS / "neighbours"
RANKS = 4
SOURCES = (
    "cart2.c p",
    "cart2.c o",
    "ring.c",
    "persistent_halo.c",
    "persistent_allreduce.c",
    "box.c",
    "nine.c",
    "graph.c",
    "gossip.c",
    "started.c",
    "partitioned.c",
    "around.f90",
    "ring.py",
)
#: What a library must have for a program; others can be built with any.
NEEDS = {
    "persistent_allreduce.c": "MPI_Allreduce_init",
    "started.c": "MPI_Neighbor_alltoallv_init",
    "partitioned.c": "MPI_Psend_init",
}
pytestmark = pytest.mark.skipif(not mpis(), reason="no MPI")


@pytest.fixture(params=sorted(mpis()))
def tested(request: pytest.FixtureRequest) -> Installed:
    """Each MPI of this machine."""
    return mpis()[request.param]


def command(source: str, tested: Installed, folder: Path) -> list[str]:
    """Return the command of a program, compiled into a folder; skips where it cannot be built."""
    name, *args = source.split()
    if name.endswith(".py"):
        if tested.python is None:
            pytest.skip(f"{tested.name}: no mpi4py for it")
        return [tested.python, str(FOLDER / name)]
    wrapper = tested.mpifort if name.endswith(".f90") else tested.mpicc
    if wrapper is None or tested.library:
        pytest.skip(f"{tested.name}: no compiler of its own")
    call = NEEDS.get(name)
    if call and not compiles(f"#include <mpi.h>\nvoid *p = (void *){call};\n", wrapper, folder):
        pytest.skip(f"{tested.name}: no {call}")
    target = folder / Path(name).stem
    build = [wrapper, "-g", "-O1", "-w", str(FOLDER / name), "-o", str(target)]
    done = subprocess.run(
        build, capture_output=True, text=True, cwd=folder, timeout=COMPILE_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return [str(target), *args]


def compiles(text: str, wrapper: str, folder: Path) -> bool:
    """Tell whether a compiler takes a text."""
    source = folder / "asked.c"
    source.write_text(text)
    asked = [wrapper, "-c", "-Werror", str(source), "-o", str(folder / "asked.o")]
    done = subprocess.run(
        asked, capture_output=True, cwd=folder, timeout=COMPILE_TIMEOUT_S, check=False
    )
    return done.returncode == 0


def traced(source: str, tested: Installed, folder: Path) -> tuple[list[RunTrace], list[str]]:
    """Return the ranks of a run, with messages in place of calls, and what it printed."""
    words = command(source, tested, folder)
    run_dir = folder / "run"
    assert tested.mpiexec is not None
    with pytest.MonkeyPatch.context() as patch:
        for name, value in tested.env.items():
            patch.setenv(name, value)
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


@pytest.mark.parametrize("source", SOURCES)
def test_messages_are_those_that_the_program_counts(
    source: str, tested: Installed, tmp_path: Path
) -> None:
    runs, lines = traced(source, tested, tmp_path)
    told = {int(line.split()[1]): line.split()[2:] for line in lines if line.startswith("tally ")}
    assert sorted(told) == list(range(RANKS))
    sent: Counter[tuple[int, ...]] = Counter()
    received: Counter[tuple[int, ...]] = Counter()
    for rank, run in enumerate(runs):
        assert not run.unmodelled and not run.problem
        out, into = counted(run, rank, ops.SEND), counted(run, rank, ops.RECV)
        found = [len(out), sum(m[2] for m in out), len(into), sum(m[2] for m in into)]
        assert found == [int(word) for word in told[rank]], rank
        sent.update((rank, peer, tag, size) for peer, tag, size in out)
        received.update((peer, rank, tag, size) for peer, tag, size in into)
    assert sent == received


@pytest.mark.parametrize("source", [s for s in SOURCES if not s.startswith("persistent")])
def test_every_request_is_completed_once(source: str, tested: Installed, tmp_path: Path) -> None:
    runs, _ = traced(source, tested, tmp_path)
    for rank, run in enumerate(runs):
        rt = run.ranks[rank]
        posts = np.array([ops.like(c.op) in ("MPI_Irecv", "MPI_Isend") for c in run.calls])
        waits = np.array([ops.kind_of(c.op) == ops.COMPLETION for c in run.calls])
        size = np.array([c.bytes for c in run.calls])
        completes = np.bincount(rt.done[:, 0], minlength=len(rt.call))
        posted = np.bincount(rt.done[:, 1], minlength=len(rt.call))
        assert (posted[posts[rt.call]] == 1).all() and posted.max(initial=0) <= 1
        assert (completes == np.where(waits, size, 0)[rt.call]).all()
        assert (rt.done[:, 0] > rt.done[:, 1]).all()
        assert int(np.sum(rt.elapsed_ns)) > 0
