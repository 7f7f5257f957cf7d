"""Threads: what teams and threads made by hand do is counted, and calls are their thread's."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tracer_helpers import PROGRAMS, compile_c, the_mpi, trace, usable_mpi

from p3s.base.host import mpi
from p3s.capture import RankTrace, RunTrace, Threads, read_run
from p3s.signature_runner import examine
from p3s.signature_runner.launch import run_traced
from p3s.signature_runner.recording import Recording

pytestmark = [pytest.mark.skipif(the_mpi() is None, reason="no usable MPI")]

THREADS, TURNS = 4, 200
TEAMS = PROGRAMS / "teams"
TIMEOUT_S = 120.0
#: Where clang's runtime is when it is not linked by clang itself.
LIBOMP = sorted(Path("/usr/lib").glob("llvm-*/lib/libomp.so"))
GCC, CLANG, MIXED = "gcc", "clang", "gcc with LLVM's runtime"
RUNTIMES = (GCC, CLANG, MIXED)
#: Threads that wait do not take the cores from those that work.
SETTINGS = {"OMP_SCHEDULE": "dynamic", "OMP_NUM_THREADS": "3", "OMP_WAIT_POLICY": "passive"}


def test_every_thread_is_recorded(tmp_path: Path) -> None:
    program = compile_c(PROGRAMS / "threads.c", tmp_path / "threads", "-pthread")
    run = trace([str(program)], 2, tmp_path / "run")
    if "no threads" in (tmp_path / "run" / "stdout.txt").read_text():
        pytest.skip("this MPI has no MPI_THREAD_MULTIPLE")
    for rank in run.ranks:
        calls = [run.calls[number] for number in rank.call.tolist()]
        other = 1 - rank.rank
        counted = Counter((c.op, c.peer, c.tag) for c in calls)
        want = {("MPI_Init", -1, -1): 1, ("MPI_Finalize", -1, -1): 1}
        want[("MPI_Wait", -1, -1)] = THREADS * TURNS
        for thread in range(THREADS):
            want[("MPI_Send", other, thread)] = TURNS
            want[("MPI_Irecv", other, thread)] = TURNS
        assert counted == want
        assert int(rank.work.min()) >= 0


# ---- helpers


def flags() -> list[str]:
    """What the MPI compiler wrapper adds, without its compiler's name."""
    install = usable_mpi()
    shown = (mpi.ask([install.mpicc, "-show"]) or "").split()[1:]
    return [word for word in shown if word.startswith(("-I", "-L", "-l", "-Wl", "-pthread"))]


@functools.cache
def built(name: str, runtime: str, folder: Path) -> Path:
    """Compile a program of programs/teams for a runtime; skip where the compiler lacks it."""
    compiler = "clang" if runtime == CLANG else "gcc"
    if shutil.which(compiler) is None or (runtime != GCC and not LIBOMP):
        pytest.skip(f"no {runtime} here")
    target = folder / f"{name}-{RUNTIMES.index(runtime)}"
    source, middle = str(TEAMS / f"{name}.c"), str(target) + ".o"
    _make([compiler, "-O1", "-g", "-fopenmp", *flags(), "-c", source, "-o", middle])
    last = [f"-L{LIBOMP[0].parent}", "-lomp"] if runtime == MIXED else ["-fopenmp"]
    _make([compiler, middle, "-o", str(target), *last, *flags()])
    return target


def _make(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("teams")


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)


def traced(program: list[str], np: int, run_dir: Path, work: str = "cpu") -> RunTrace:
    """Run a program traced; ranks are not bound, else their threads would share a core."""
    install = usable_mpi()
    unbound = ["--bind-to", "none"] if install.family == "openmpi" else []
    command = [install.mpiexec, *unbound, "-n", "{np}", *program]
    run_traced(command, np, run_dir, timeout_s=TIMEOUT_S, recording=Recording(work=work))
    return read_run(run_dir)


def by_segment(run: RunTrace, rank: RankTrace, op: str = "MPI_Barrier") -> list[dict[str, int]]:
    """What threads did before each call of an operation, by column."""
    number = {int(event): row for row, event in enumerate(columns(rank).event)}
    ends = [at for at, call in enumerate(rank.call.tolist()) if run.calls[call].op == op]
    names = [name for name in Threads.__dataclass_fields__ if name != "event"]
    table = columns(rank)
    return [
        {name: int(table[name][number[at]]) if at in number else 0 for name in names} for at in ends
    ]


def columns(rank: RankTrace) -> Threads:
    assert rank.threads is not None
    return rank.threads


# ---- teams


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_constructs_are_those_the_program_counted(
    runtime: str, folder: Path, tmp_path: Path
) -> None:
    program = built("constructs", runtime, folder)
    run = traced([str(program)], 2, tmp_path / "run")
    # gcc puts static loops into the program: nothing is called.
    unseen = {"static_loops"} if runtime != CLANG else set()
    lines = [line.split() for line in (tmp_path / "run" / "stdout.txt").read_text().splitlines()]
    for rank in run.ranks:
        said = [words[1:] for words in lines if words[0] == str(rank.rank)]
        # LLVM's entries for gcc lose data of undeferred tasks, untraced too.
        assert said[-1] == ["wrong=0"] or runtime == MIXED
        rows = by_segment(run, rank)
        assert len(said) > 15
        for (name, *counts), row in zip(said[:-1], rows, strict=False):
            want = {key: int(number) for key, number in (word.split("=") for word in counts)}
            assert {key: row[key] for key in want if key not in unseen} == {
                key: number for key, number in want.items() if key not in unseen
            }, name
            assert row["longest_ns"] <= row["busy_ns"]
    under = run.ranks[0].runtime
    assert under is not None and under.mpi_thread_level == "funneled"
    assert ("libgomp" in under.openmp) == (runtime == GCC) and under.max_threads == 3


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("level", ["funneled", "serialized", "multiple"])
def test_calls_in_a_region_are_their_threads(
    runtime: str, level: str, folder: Path, tmp_path: Path
) -> None:
    program, calls, team = built("callers", runtime, folder), 4, int(SETTINGS["OMP_NUM_THREADS"])
    run = traced([str(program), level, str(calls)], 2, tmp_path / "run")
    if "not provided" in (tmp_path / "run" / "stdout.txt").read_text():
        pytest.skip(f"this MPI has no MPI_THREAD_{level.upper()}")
    callers = 1 if level == "funneled" else team
    for rank in run.ranks:
        threads = [0] * len(rank.call) if rank.thread is None else rank.thread.tolist()
        found = Counter(
            (thread, run.calls[call].team)
            for thread, call in zip(threads, rank.call.tolist(), strict=True)
            if run.calls[call].op == "MPI_Sendrecv"
        )
        assert found == {(0, 0): 1, **{(thread, team): calls for thread in range(callers)}}
        assert columns(rank).total("regions") == 1
        assert sorted(t.calls_as for t in rank.team_threads if t.calls_as >= 0) == list(
            range(callers)
        )
        assert sum(t.kind == "team" for t in rank.team_threads) == team - 1


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_first_call_of_a_thread_knows_its_team_before_the_first_thread_does(
    runtime: str, folder: Path, tmp_path: Path
) -> None:
    program, regions, team = built("callers", runtime, folder), 40, int(SETTINGS["OMP_NUM_THREADS"])
    run = traced([str(program), "multiple", "1", str(regions)], 2, tmp_path / "run")
    if "not provided" in (tmp_path / "run" / "stdout.txt").read_text():
        pytest.skip("this MPI has no MPI_THREAD_MULTIPLE")
    for rank in run.ranks:
        calls = [run.calls[call] for call in rank.call.tolist()]
        teams = Counter(call.team for call in calls if call.op == "MPI_Sendrecv")
        assert teams == {0: 1, team: team * regions}


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_work_is_that_of_the_longest_thread(runtime: str, folder: Path, tmp_path: Path) -> None:
    run = traced([str(built("shares", runtime, folder))], 1, tmp_path / "run")
    rank = run.ranks[0]
    ends = [at for at, call in enumerate(rank.call) if run.calls[call].op == "MPI_Barrier"]
    share = int(rank.work[ends[1]])  # the first thread alone, one share
    shares = [round(float(rank.work[at]) / share, 3) for at in ends[1:]]
    want = [1, 1, 3, 4, 4, 3]
    assert all(0.7 < got / right < 1.5 for got, right in zip(shares, want, strict=True)), shares
    busy = [row["busy_ns"] / share for row in by_segment(run, rank)[1:]]
    assert busy == pytest.approx([0, 3, 6, 6, 6, 9], rel=0.3, abs=0.1)


# ---- threads made by hand


def test_threads_made_by_hand(tmp_path: Path) -> None:
    program = compile_c(TEAMS / "byhand.c", tmp_path / "byhand", "-pthread")
    run = traced([str(program)], 2, tmp_path / "run")
    for rank in run.ranks:
        rows = by_segment(run, rank)[1:]
        ends = [at for at, call in enumerate(rank.call) if run.calls[call].op == "MPI_Barrier"][1:]
        share = float(rank.work[ends[0]])
        want = [(1, 0, 0), (1, 1, 1), (3, 6, 3), (4, 3, 2), (5, 5, 5)]
        for at, row, (work, others, longest) in zip(ends, rows, want, strict=True):
            assert rank.work[at] / share == pytest.approx(work, rel=0.2)
            assert row["others_ns"] / share == pytest.approx(others, rel=0.2)
            assert row["longest_other_ns"] / share == pytest.approx(longest, rel=0.2)
            assert row["regions"] == 0
        kinds = Counter(thread.kind for thread in rank.team_threads)
        assert kinds == {"caller": 1, "other": 1 + 3 + 2 + 5}


def test_threads_of_cpp(tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler here")
    program = tmp_path / "crew"
    _make(["g++", "-O1", "-g", str(TEAMS / "crew.cpp"), "-o", str(program), "-pthread", *flags()])
    run = traced([str(program)], 1, tmp_path / "run")
    alone, crew = (float(run.ranks[0].work[at]) for at in (2, 3))
    assert 1.5 < crew / alone < 2.8  # two threads, of one and two shares
    assert sum(thread.kind == "other" for thread in run.ranks[0].team_threads) == 2


def test_threads_of_fortran(tmp_path: Path) -> None:
    install = usable_mpi()
    wrapper = examine.fortran_of(install) or shutil.which(f"mpifort.{install.family}")
    if wrapper is None or shutil.which("gfortran") is None:
        pytest.skip("no Fortran compiler of this MPI")
    program = tmp_path / "teams"
    source = str(TEAMS / "teams.f90")
    _make([wrapper, "-fopenmp", "-J", str(tmp_path), source, "-o", str(program)])
    run = traced([str(program)], 2, tmp_path / "run")
    for rank in run.ranks:
        rows = by_segment(run, rank)
        assert [row["regions"] for row in rows] == [0, 4, 1]
        assert [row["dynamic_loops"] for row in rows] == [0, 0, 1]
        assert [row["criticals"] for row in rows] == [0, 0, 3]
        assert [row["team"] for row in rows] == [0, 3, 3]


BLAS = """
from mpi4py import MPI
import numpy
a = numpy.ones((700, 700))
MPI.COMM_WORLD.Barrier()
b = a @ a
MPI.COMM_WORLD.Barrier()
assert b[0, 0] == 700
"""


def test_the_pool_of_a_blas_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install, library = the_mpi(), mpi.library_of_python(sys.executable)
    if install is None or library is None or mpi.owner_of(library[1]) != install:
        pytest.skip("mpi4py uses another MPI")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    script = tmp_path / "blas.py"
    script.write_text(BLAS)
    run = traced([sys.executable, str(script)], 1, tmp_path / "run")
    rank = run.ranks[0]
    if rank.threads is None:
        pytest.skip("this numpy has no threads of its own")
    row = by_segment(run, rank)[1]
    assert row["others_ns"] > 0 and row["regions"] == 0
    assert any(thread.kind == "other" for thread in rank.team_threads)


def test_a_program_without_threads_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the program writes down what it expects
    program = compile_c(PROGRAMS / "p2p.c", tmp_path / "p2p")
    run = trace([str(program)], 2, tmp_path / "run")
    for rank in run.ranks:
        assert rank.threads is None and rank.runtime is None and not rank.team_threads
    assert not any(call.team for call in run.calls)
