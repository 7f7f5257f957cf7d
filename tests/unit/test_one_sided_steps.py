"""One-sided communication in the order of calls and in the simulation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from replay_patterns import Trace
from steps_builder import Builder

from p3s.base.ops import kind_of
from p3s.program.order.sections import sections_of
from p3s.program.scaled import read_scaled
from p3s.simulate.network import Network, line
from p3s.simulate.network import Path as Way
from p3s.simulate.simulate import Simulated, simulate
from p3s.simulate.steps import Steps

LATENCY, PER_BYTE = 1000.0, 0.5


def _steps(trace: Trace, folder: Path) -> Steps:
    for row in trace.rows:
        row["kind"] = kind_of(row["op"])
        row["tag"] = 7 if row["peer"] >= 0 else -1
    (section,) = sections_of(read_scaled(trace.write(folder)), None)
    return section.steps


def _completed(steps: Steps, rank: int) -> dict[str, list[str]]:
    """Return what each completion of a rank completes, by the names of the calls."""
    name = [steps.calls[call].removeprefix("MPI_") for call in steps.call.tolist()]
    mine = steps.of(rank)
    return {
        name[i]: [name[k] for k in steps.done[steps.done_start[i] : steps.done_start[i + 1]]]
        for i in range(mine.start, mine.stop)
        if steps.done_start[i + 1] > steps.done_start[i]
    }


def test_a_fence_completes_no_request_of_the_program(tmp_path: Path) -> None:
    trace = Trace(2)
    for rank in range(2):
        other = 1 - rank
        trace.add(rank, "MPI_Irecv", other, 8)
        trace.add(rank, "MPI_Put_target_recv", other, 80)
        trace.add(rank, "MPI_Put_send", other, 80)
        trace.add(rank, "MPI_Win_fence_wait", nbytes=1)
        trace.add(rank, "MPI_Win_fence_target_wait", nbytes=1)
        trace.add(rank, "MPI_Win_fence_barrier")
        trace.add(rank, "MPI_Send", other, 8)
        trace.add(rank, "MPI_Wait", nbytes=1)
    for row in trace.rows:
        row["comm"] = 0
    steps = _steps(trace, tmp_path)
    assert _completed(steps, 0) == {
        "Win_fence_wait": ["Put_send"],
        "Win_fence_target_wait": ["Put_target_recv"],
        "Wait": ["Irecv"],
    }


def test_nobody_waits_for_what_a_target_does_without_a_call(tmp_path: Path) -> None:
    trace = Trace(2)
    trace.add(1, "MPI_Put_passive_recv", 0, 80)
    trace.add(1, "MPI_Win_flush_target_send", 0)
    trace.add(1, "MPI_Barrier")
    trace.add(0, "MPI_Win_lock_all_wait")
    trace.add(0, "MPI_Put_send", 1, 80)
    trace.add(0, "MPI_Win_flush_recv", 1)
    trace.add(0, "MPI_Win_flush_wait", nbytes=2)
    trace.add(0, "MPI_Barrier")
    steps = _steps(trace, tmp_path)
    assert _completed(steps, 0) == {"Win_flush_wait": ["Put_send", "Win_flush_recv"]}
    assert _completed(steps, 1) == {}
    messages = (steps.peer >= 0) & (steps.tag >= 0)
    assert ((steps.to >= 0) | (steps.source >= 0))[messages].all()


def _simulated(origin: str, target: str, wait: str) -> tuple[Steps, Simulated]:
    b = Builder(2)
    b.add(1, target, 0, 100)
    b.add(1, "MPI_Barrier", work_ns=1e6)
    b.add(0, origin, 1, 100, work_ns=5000.0)
    b.add(0, wait, nbytes=1)
    b.add(0, "MPI_Barrier")
    steps = b.build()
    way = Way(line(LATENCY, PER_BYTE), line(0.0), line(0.0), 10.0, True)
    return steps, simulate(steps, np.arange(2), Network({1: way}, post=0.0))


def test_a_get_begins_with_its_call_and_its_request_takes_a_latency() -> None:
    steps, found = _simulated("MPI_Get_recv", "MPI_Get_target_send", "MPI_Win_flush_wait")
    got = found.end_ns[steps.of(0)][1]
    assert got == pytest.approx(5000.0 + 2 * LATENCY + 100 * PER_BYTE)
    steps, plain = _simulated("MPI_Irecv", "MPI_Issend", "MPI_Waitall")
    assert got - plain.end_ns[steps.of(0)][1] == pytest.approx(LATENCY)
