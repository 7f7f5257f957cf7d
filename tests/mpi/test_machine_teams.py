"""Measuring teams of OpenMP threads on this machine."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from commands import cli

from p3s.base.errors import P3SError
from p3s.base.host.compiling import c_compiler
from p3s.machine.machinefile import CONSTRUCTS, ITERATIONS, LOOPS, Machine, OpenMP
from p3s.machine.threads import measure_openmp, openmp_program

KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture(scope="module")
def found() -> OpenMP:
    """This machine's teams, measured in the shortest way, oversubscribed too."""
    try:
        openmp_program(c_compiler("the test"))
    except P3SError as error:
        pytest.skip(str(error))
    return measure_openmp(c_compiler("the test"), quick=True, oversubscribe=True, budget_s=0.1)


def test_everything_was_measured_and_repeated(found: OpenMP) -> None:
    cores = len(os.sched_getaffinity(0))
    assert found.threads[0] == 1 and cores < found.threads[-1] <= 2 * cores
    for name in CONSTRUCTS:
        curves = found.overheads[name]
        assert [curve.threads for curve in curves] == list(found.threads)
        for curve in curves:
            assert curve.iterations == (ITERATIONS if name in LOOPS else (1,))
            assert min(curve.ns) >= 0 and min(curve.repeats) >= 3
    assert found.oversubscribed(found.threads[-1]) and not found.oversubscribed(1)
    assert min(found.close.bytes_per_s) > 0
    assert len(found.clock.additions) == len(found.threads)
    assert bool(found.clock.hz) != bool(found.clock.why)


def test_latencies_reach_from_cache_to_memory(found: OpenMP) -> None:
    assert found.line.bytes[0] == 8 * KIB and found.line.bytes[-1] >= MIB
    assert min(found.line.ns) > 0 and found.memory_s > 0 and found.tlb_s > 0


def test_the_command_writes_shows_and_compares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("p3s.machine.measure.QUICK_S", 0.1)
    monkeypatch.setattr("p3s.machine.threads.QUICK_S", 0.1)
    monkeypatch.setattr("p3s.machine.measure.working_sets", lambda *_: [8 * KIB, 8 * MIB])
    path = tmp_path / "machine.json"
    shown = cli(f"machine measure --quick --no-network --openmp -o {path} --json").data
    kept = json.loads(path.read_text())
    assert kept.pop("digest") and shown == kept
    assert Machine.load(path).openmp is not None
    cli(f"machine show {path}", out="OpenMP threads: lib")
    cli(f"machine compare {path} {path}", out="dynamic, 64 a thread")
