"""Files: calls, bytes and places agree with what the programs count themselves."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from commands import cli
from conformance import Installed, mpis
from tracer_helpers import PROGRAMS, TIMEOUT_S

from p3s.capture import RankTrace, RunTrace, read_run
from p3s.costs.files import places_of
from p3s.model.stage import load as load_model
from p3s.signature_runner.launch import run_traced

FOLDER = PROGRAMS / "io"
ALL = list(mpis().values())
FIRST = pytest.mark.parametrize("mpi", ALL[:1], indirect=True, ids=lambda mpi: mpi.name)
FOR_PYTHON = pytest.mark.parametrize(
    "mpi", [each for each in ALL if each.python][:1], indirect=True, ids=lambda mpi: mpi.name
)
pytestmark = [pytest.mark.mpi, pytest.mark.skipif(not ALL, reason="no usable MPI")]


@pytest.fixture(params=ALL, ids=lambda mpi: mpi.name)
def mpi(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Installed:
    """Each MPI in its environment, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    for name, value in request.param.env.items():
        monkeypatch.setenv(name, value)
    return request.param


def compiled(mpi: Installed, source: str, folder: Path) -> str:
    """Compile a program with one MPI; skip where it has no compiler for it."""
    compiler = mpi.mpifort if source.endswith(".f90") else mpi.mpicc
    if compiler is None:
        pytest.skip(f"{mpi.name} has no compiler for {source}")
    target = folder / source.split(".")[0]
    command = [compiler, "-O1", "-g", "-w", str(FOLDER / source), "-o", str(target)]
    done = subprocess.run(command, capture_output=True, timeout=120)
    if done.returncode:
        pytest.skip(f"{mpi.name} does not compile {source}")
    return str(target)


def traced(mpi: Installed, words: list[str], folder: Path, np_: int = 2) -> RunTrace:
    """Run a program traced in a folder, and read it."""
    assert mpi.mpiexec is not None
    run_traced([mpi.mpiexec, "-n", "{np}", *words], np_, folder / "run", timeout_s=TIMEOUT_S)
    return read_run(folder / "run")


def said(folder: Path, word: str, rank: int) -> list[tuple[str, ...]]:
    """Return what a rank printed after a word and its number."""
    lines = (line.split() for line in (folder / "run/stdout.txt").read_text().splitlines())
    return [tuple(line[2:]) for line in lines if line[:2] == [word, str(rank)]]


def posix(run: RunTrace, rank: RankTrace) -> dict[str, tuple[int, int]]:
    """Return calls and bytes of each call of the C library."""
    calls: Counter[str] = Counter()
    nbytes: Counter[str] = Counter()
    for number in rank.call.tolist():
        call = run.calls[number]
        if call.op.startswith("POSIX_"):
            calls[call.op] += call.count
            nbytes[call.op] += call.bytes
    return {op: (calls[op], nbytes[op]) for op in calls}


def places(run: RunTrace, rank: RankTrace) -> list[tuple[str, ...]]:
    """Return operation, offset, span and bytes of calls whose place in the file is known."""
    rows = {} if rank.accesses is None else {at: (a, b) for at, a, b in rank.accesses.tolist()}
    calls = [run.calls[number] for number in rank.call.tolist()]
    return [
        (call.op, *map(str, rows[at]), str(call.bytes))
        for at, call in enumerate(calls)
        if at in rows
    ]


def test_calls_of_the_c_library_are_those_the_program_counts(
    mpi: Installed, tmp_path: Path
) -> None:
    run = traced(mpi, [compiled(mpi, "posix.c", tmp_path)], tmp_path)
    for rank in run.ranks:
        counted = {op: (int(k), int(b)) for op, k, b in said(tmp_path, "count", rank.rank)}
        assert counted
        assert posix(run, rank) == counted
        assert {
            run.windows[run.calls[c].window].kind
            for c in rank.call.tolist()
            if run.calls[c].op == "POSIX_write"
        } == {"posix file"}


@pytest.mark.parametrize("io", ["", "^ompio"])
def test_places_in_files_of_mpi_are_those_the_program_says(
    mpi: Installed, io: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if io:
        if "openmpi" not in (mpi.mpicc or ""):
            pytest.skip("the MPI has no other implementation of files")
        monkeypatch.setenv("OMPI_MCA_io", io)
    run = traced(mpi, [compiled(mpi, "places.c", tmp_path)], tmp_path, min(3, mpi.max_ranks))
    for rank in run.ranks:
        assert places(run, rank) == said(tmp_path, "place", rank.rank) != []
    keys = {name.key for rank in run.ranks for name in rank.files.values()}
    assert len(keys) == 1  # one file of all


def test_what_fortran_writes_is_seen(mpi: Installed, tmp_path: Path) -> None:
    run = traced(mpi, [compiled(mpi, "records.f90", tmp_path)], tmp_path)
    for rank in run.ranks:
        found = posix(run, rank)
        assert found["POSIX_write"][1] == 3 * 400000
        assert found["POSIX_read"][1] == 400000
        assert found["POSIX_open"][0] == found["POSIX_close"][0] == 4
    names = [name for rank in run.ranks for name in rank.files.values()]
    assert len({name.key for name in names}) == 2  # a file of each,
    assert len({name.family for name in names}) == 1  # named by its rank


@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="no mpi4py")
@FOR_PYTHON
def test_files_of_a_python_program(mpi: Installed, tmp_path: Path) -> None:
    run = traced(mpi, [mpi.python, str(FOLDER / "shared.py")], tmp_path)
    for rank in run.ranks:
        expected = said(tmp_path, "place", rank.rank)
        assert [
            row for row in places(run, rank) if row[0] == "MPI_File_write_at_all"
        ] == 4 * expected
        ops = {run.calls[c].op for c in rank.call.tolist()}
        assert "POSIX_fwrite" in ops or "POSIX_write" in ops
        sites = [
            run.calls[c].site for c in rank.call.tolist() if run.calls[c].op.startswith("POSIX_")
        ]
        assert all("shared.py" in " ".join(run.sites[site].frames) for site in sites)


def test_work_between_buffered_writes_is_not_lost(mpi: Installed, tmp_path: Path) -> None:
    """What is computed between calls is in the work of the event, or of the next."""
    run = traced(mpi, [compiled(mpi, "posix.c", tmp_path)], tmp_path, 1)
    (rank,) = run.ranks
    assert (np.asarray(rank.work) >= 0).all()
    assert (np.asarray(rank.elapsed_ns) >= 0).all()
    ends = np.asarray(rank.start_ns) + np.asarray(rank.elapsed_ns)
    assert (np.diff(ends) >= 0).all()


@FIRST
def test_without_posix_io_nothing_of_it_is_recorded(mpi: Installed, tmp_path: Path) -> None:
    from p3s.signature_runner.recording import Recording

    program = compiled(mpi, "posix.c", tmp_path)
    assert mpi.mpiexec is not None
    words = [mpi.mpiexec, "-n", "{np}", program]
    quiet = Recording(posix_io=False)
    run_traced(words, 1, tmp_path / "run", timeout_s=TIMEOUT_S, recording=quiet)
    assert not [c for c in read_run(tmp_path / "run").calls if c.op.startswith("POSIX_")]
    assert sys.platform.startswith("linux")


@pytest.mark.parametrize(
    ("mode", "sync", "renews"), [("own", "0", 0.75), ("own", "1", 0), ("shared", "0", 0)]
)
@FIRST
def test_files_that_are_truncated_again_and_again_are_told(
    mpi: Installed, mode: str, sync: str, renews: float, tmp_path: Path
) -> None:
    (tmp_path / "files").mkdir()
    program = [compiled(mpi, "checkpoint.c", tmp_path), "files", mode, "1", "4", sync]
    words = [str(mpi.mpiexec), "-n", "{np}", *program]
    asked("characterize", "-n", "1,2,3", "-o", "study", "--", *words)
    asked("model", "study")
    study = tmp_path / "study"
    found = places_of(study, load_model(study))
    (opened,) = [place for place in found.values() if place.what == "open"]
    assert opened.last.renews == renews


@pytest.mark.parametrize("source", ["gathered.c", "checkpoint.c"])
@FIRST
def test_files_are_predicted_as_they_are_used(mpi: Installed, source: str, tmp_path: Path) -> None:
    """Calls and bytes at a count that was not traced are those of a run; their time is apart."""
    program = [compiled(mpi, source, tmp_path)]
    program += [str(tmp_path), "own", "1", "4", "1"] if source == "checkpoint.c" else []
    words = [str(mpi.mpiexec), "-n", "{np}", *program]
    asked("characterize", "-n", "1,2,3", "-o", "study", "--", *words)
    asked("model", "study")
    compared = json.loads(asked("validate", "study", "-n", "4", "--json"))
    calls = compared["files"]
    assert calls["true"] == calls["predicted"] == calls["equal"] > 0
    found = json.loads(asked("predict", "study", "-n", "4", "--no-replay", "--json"))
    (last,) = [count for count in found["counts"] if count["n"] == 4]
    assert last["io_s"] > 0
    parts = last["compute_s"] + last["comm_s"] + last["io_s"]
    assert parts == pytest.approx(last["model_s"], rel=0.01)
    written = "POSIX_pwrite" if source == "checkpoint.c" else "POSIX_fwrite"
    assert written in {use["op"] for use in found["files"]}


def asked(*words: str) -> str:
    """Run p3s; a prediction that is not to be trusted is one."""
    return cli(*words, code=(0, 3)).out
