"""mpi4py programs: exact events, and sites that are lines of the script."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from tracer_helpers import PROGRAMS, TIMEOUT_S, recorded, the_mpi, trace, usable_mpi

from p3s.capture import Call, RunTrace

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(the_mpi() is None, reason="no usable MPI"),
    pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="no mpi4py"),
]


@pytest.fixture(autouse=True)
def right_mpi4py(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let mpi4py load the MPI of the tests; skip if it cannot."""
    install = usable_mpi()
    asked = "from mpi4py import MPI; print(MPI.Get_library_version())"
    name = {"openmpi": "Open MPI", "mpich": "MPICH"}[install.family]
    for abi in (None, install.family):
        if abi:
            monkeypatch.setenv("MPI4PY_MPIABI", abi)
        done = subprocess.run(
            [sys.executable, "-c", asked], capture_output=True, text=True, timeout=TIMEOUT_S
        )
        if name in done.stdout:
            return
    pytest.skip(f"mpi4py cannot load this {name}")


def _walk(run: RunTrace, rank: int, lines: list[str]) -> dict[str, set[str]]:
    """Match the events of a rank with the lines the script noted; return line -> site keys."""
    calls = [run.calls[number] for number in run.ranks[rank].call.tolist()]
    assert calls[0].op == "MPI_Init"
    at = 1
    keys: dict[str, set[str]] = {}

    def made_at(call: Call, place: str) -> bool:
        frames = [frame for frame in run.sites[call.site].frames if frame.startswith("script.py:")]
        name, _, number = place.partition(":")
        file, qualname, line = frames[0].split(":")
        return qualname.split(".")[-1].strip("<>") == name.strip("<>") and line == number

    for number, noted in enumerate(lines):
        op, place = noted.split(" ", 1)
        if op == "*":
            first = at
            while made_at(calls[at], place):
                at += 1
            assert at > first or lines[number - 1] == noted, noted
            continue
        assert calls[at].op == "MPI_" + op, noted
        assert made_at(calls[at], place), (noted, run.sites[calls[at].site])
        keys.setdefault(noted, set()).add(run.sites[calls[at].site].key)
        at += 1
    rest = [call.op for call in calls[at:]]
    assert rest[0] == "MPI_Barrier", "the call from a destructor at interpreter exit"
    assert rest[-1] == "MPI_Finalize"
    assert set(rest[1:-1]) <= {"MPI_Comm_free"}  # of mpi4py's own communicators
    return keys


def test_events_and_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    seen = []
    for np in (1, 3):
        run = trace([sys.executable, str(PROGRAMS / "script.py")], np, tmp_path / f"run{np}")
        for rank in run.ranks:
            assert rank.complete
            left, right = (rank.rank - 1) % np, (rank.rank + 1) % np
            events = recorded(run, rank.rank)
            assert events[1] == f"MPI_Sendrecv {right} 32 8 0 -1 {np}"
            assert events[2] == f"MPI_Sendrecv_recv {left} 32 8 0 -1 {np}"
            assert f"MPI_Isend {right} 12 4 4 -1 {np}" in events
            assert f"MPI_Recv {left} 12 4 4 -1 {np}" in events
            lines = (tmp_path / f"lines-{rank.rank:06d}.txt").read_text().splitlines()
            seen.append(_walk(run, rank.rank, lines))
    assert all(keys == seen[0] for keys in seen), "the same on all ranks and at all counts"
    sites_per_line = {line: len(keys) for line, keys in seen[0].items()}
    two = [line for line, count in sites_per_line.items() if count == 2]
    # two calls in one line, and the recursive function called by main and by a thread
    assert [line.split(":")[0] for line in two] == ["Barrier total", "Barrier recurse"]
    assert all(count == 1 for line, count in sites_per_line.items() if line not in two)
