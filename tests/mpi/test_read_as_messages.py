"""Neighbourhood collectives, persistent and partitioned messages, one-sided communication: read as
messages, they are those that the program counts itself (tally.h beside it)."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from conformance import COMPILE_TIMEOUT_S, TIMEOUT_S, Installed, mpis
from tracer_helpers import PROGRAMS

from p3s.base import ops
from p3s.capture import RunTrace
from p3s.capture.rewrite import Messages
from p3s.signature_runner.launch import run_traced

RANKS = 4
NEIGHBOURS = (
    "neighbours/cart2.c p",
    "neighbours/cart2.c o",
    "neighbours/ring.c",
    "neighbours/persistent_halo.c",
    "neighbours/persistent_allreduce.c",
    "neighbours/box.c",
    "neighbours/nine.c",
    "neighbours/graph.c",
    "neighbours/gossip.c",
    "neighbours/started.c",
    "neighbours/partitioned.c",
    "neighbours/around.f90",
    "neighbours/ring.py",
)
ONE_SIDED = (
    "onesided/fence_halo.c",
    "onesided/pscw_halo.c",
    "onesided/lock_ring.c",
    "onesided/get_transpose.c",
    "onesided/add_left.c",
    "onesided/rput_torus.c",
    "onesided/get_groups.c",
    "onesided/counter.c",
    "onesided/halo.f90",
    "onesided/ring.py",
)
#: What a library must have for a program; others can be built with any.
NEEDS = {
    "neighbours/persistent_allreduce.c": "MPI_Allreduce_init",
    "neighbours/started.c": "MPI_Neighbor_alltoallv_init",
    "neighbours/partitioned.c": "MPI_Psend_init",
}
#: Rank, messages and bytes sent, messages and bytes received; lines of ranks may share a line.
TALLY = re.compile(r"tally (\d+) (\d+) (\d+) (\d+) (\d+)")
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
        return [tested.python, str(PROGRAMS / name)]
    wrapper = tested.mpifort if name.endswith(".f90") else tested.mpicc
    if wrapper is None or tested.library:
        pytest.skip(f"{tested.name}: no compiler of its own")
    call = NEEDS.get(name)
    if call and not compiles(f"#include <mpi.h>\nvoid *p = (void *){call};\n", wrapper, folder):
        pytest.skip(f"{tested.name}: no {call}")
    target = folder / Path(name).stem
    build = [wrapper, "-g", "-O1", "-w", str(PROGRAMS / name), "-o", str(target)]
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


def traced(source: str, tested: Installed, folder: Path) -> tuple[list[RunTrace], str]:
    """Return the ranks of a run, with messages in place of calls, and what it printed.

    What is left of Open MPI 4's ways of one-sided communication is not for programs with
    threads, as those of mpi4py.
    """
    words = command(source, tested, folder)
    run_dir = folder / "run"
    assert tested.mpiexec is not None
    with pytest.MonkeyPatch.context() as patch:
        if tested.osc and source in ONE_SIDED and not source.endswith(".py"):
            patch.setenv("OMPI_MCA_osc", tested.osc)
        for name, value in tested.env.items():
            patch.setenv(name, value)
        run_traced(
            [tested.mpiexec, "-n", "{np}", *words], RANKS, run_dir, timeout_s=TIMEOUT_S, trace=True
        )
    files = sorted(run_dir.glob("rank-*.p3t"))
    messages = Messages(files)
    return [messages.read(path) for path in files], (run_dir / "stdout.txt").read_text()


def counted(run: RunTrace, rank: int, kind: str) -> list[tuple[int, int, int]]:
    """Return (partner, tag, bytes) of the messages of a rank, those to MPI_PROC_NULL left out."""
    calls = [run.calls[number] for number in run.ranks[rank].call.tolist()]
    return [(c.peer, c.tag, c.bytes) for c in calls if ops.kind_of(c.op) == kind and c.peer >= 0]


@pytest.mark.parametrize("source", NEIGHBOURS + ONE_SIDED)
def test_messages_are_those_that_the_program_counts(
    source: str, tested: Installed, tmp_path: Path
) -> None:
    runs, text = traced(source, tested, tmp_path)
    told = {int(rank): rest for rank, *rest in TALLY.findall(text)}
    assert sorted(told) == list(range(RANKS))
    sent: Counter[tuple[int, ...]] = Counter()
    received: Counter[tuple[int, ...]] = Counter()
    for rank, run in enumerate(runs):
        assert not run.unmodelled and not run.problem
        out, into = counted(run, rank, ops.SEND), counted(run, rank, ops.RECV)
        found = []
        for them in (out, into):
            sizes = [size for _, _, size in them if size or source in NEIGHBOURS]
            found += [len(sizes), sum(sizes)]  # what synchronises windows alone is no data
        assert found == [int(word) for word in told[rank]], rank
        sent.update((rank, peer, tag, size) for peer, tag, size in out)
        received.update((peer, rank, tag, size) for peer, tag, size in into)
    assert sent == received


@pytest.mark.parametrize("source", [s for s in NEIGHBOURS if "persistent" not in s])
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


@pytest.mark.parametrize(
    "source", ["onesided/pscw_halo.c", "onesided/rput_torus.c", "onesided/add_left.c"]
)
def test_completions_complete_what_their_calls_posted(
    source: str, tested: Installed, tmp_path: Path
) -> None:
    runs, _ = traced(source, tested, tmp_path)
    for rank, run in enumerate(runs):
        rt = run.ranks[rank]
        of = np.array([ops.queue_of(call.op) for call in run.calls])[rt.call]
        size = np.array([call.bytes for call in run.calls])[rt.call]
        waits = np.array([ops.kind_of(call.op) == ops.COMPLETION for call in run.calls])[rt.call]
        completes = np.bincount(rt.done[:, 0], minlength=len(rt.call))
        assert (completes == np.where(waits, size, 0)).all()
        assert (of[rt.done[:, 0]] == of[rt.done[:, 1]]).all()
        assert (rt.done[:, 0] > rt.done[:, 1]).all()
