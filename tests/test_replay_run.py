"""Replays with real MPI processes: results, failures, and nothing left behind."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from replay_patterns import Trace, butterfly, collectives, halo, ring, wave

import replay
from p3s.errors import P3SError
from p3s.study import read_json
from replay.thesis.launch import find_launcher, launch
from replay.thesis.plan import make_plan

pytestmark = pytest.mark.mpi
BUDGET_S = 0.5
#: More than any machine needs: what the test waits for comes before the budget ends.
ENOUGH_S = 600.0


@pytest.fixture(scope="module", autouse=True)
def needs_mpi() -> None:
    """Skip where there is no MPI at all."""
    from signature_runner import mpi

    if not any(install.mpiexec for install in mpi.find_mpi()):
        pytest.skip("no MPI with mpicc and mpiexec here")


def run(trace: Trace, directory: Path, **options: object) -> dict:
    """Write a trace, replay it, and check what every result must have."""
    where = trace.write(directory / "scaled")
    out = directory / "replay" / f"np{trace.n:06d}.json"
    settings: dict = {"cores_per_node": 2, "budget_s": BUDGET_S, **options}
    result = replay.run(where, out, **settings)
    assert read_json(out, "p3s.replay") == result
    table = pq.read_table(out.with_suffix(".parquet")).to_pydict()
    assert set(table) == {"rank", "phase", "comm_ns", "comm_low_ns", "comm_high_ns"}
    assert list(zip(table["rank"], table["phase"], strict=True)) == [
        (rank, phase) for rank in range(trace.n) for phase in range(trace.phases)]
    for low, value, high in zip(
        table["comm_low_ns"], table["comm_ns"], table["comm_high_ns"], strict=True
    ):
        assert 0 <= low <= value <= high
    for phase in result["phases"]:
        mine = [v for v, p in zip(table["comm_ns"], table["phase"], strict=True)
                if p == phase["phase"]]
        assert phase["comm_ns_max"] == pytest.approx(max(mine))
        assert phase["comm_ns_mean"] == pytest.approx(sum(mine) / len(mine))
    assert result["representative"] is False
    assert "all nodes are one machine" in result["why_not_representative"]
    return result


def test_halo_with_computation_on_ten_processes(tmp_path: Path) -> None:
    lines: list[str] = []
    result = run(halo(12, work=20_000.0), tmp_path, progress=lines.append)
    assert result["n"] == 12 and result["cores_per_node"] == 2
    assert result["processes"]["measured"] == 4 and result["processes"]["black hole"] > 0
    assert result["iterations"] < result["iterations_all_pairs"] == 15
    assert result["unmeasured"] == []
    assert result["shares"]["composed"] > 0
    assert result["measured_share"] + result["shares"]["composed"] == pytest.approx(1.0)
    for entry in result["classes"]:
        assert entry["ci_low_ns"] <= entry["cost_ns"] <= entry["ci_high_ns"]
        assert entry["cost_ns"] > 0
        assert entry["n_samples"] > 0 or entry["how"] == "composed"
    assert any("instead of 15" in line for line in lines)
    assert any(line.startswith("measured iteration") for line in lines)


@pytest.mark.parametrize("trace", [
    ring(8, nbytes=3000), ring(6, nbytes=300_000, op="MPI_Send"), wave(12, nbytes=90_000),
    butterfly(8), collectives(6),
], ids=["ring", "blocking sends beyond any buffer", "wave", "butterfly", "collectives"])
def test_patterns(tmp_path: Path, trace: Trace) -> None:
    result = run(trace, tmp_path)
    assert result["unmeasured"] == []
    assert all(entry["cost_ns"] > 0 for entry in result["classes"])


def test_one_core_per_node_and_a_rank_that_talks_to_itself(tmp_path: Path) -> None:
    trace = Trace(5)
    for rank in range(5):
        for peer, tag in ((rank, 1), ((rank + 1) % 5, 2)):
            trace.add(rank, "MPI_Isend", peer, 64, tag=tag)
        for peer, tag in ((rank, 1), ((rank - 1) % 5, 2)):
            trace.add(rank, "MPI_Irecv", peer, 64, tag=tag)
        trace.add(rank, "MPI_Waitall", nbytes=4)
    result = run(trace, tmp_path, cores_per_node=1)
    how = {(c["op"], c["distance"]): c["how"] for c in result["classes"]}
    # Two neighbours on two other nodes are never loaded together with a rank.
    assert how["MPI_Waitall", "inter"] == "measured with black holes"
    assert how["MPI_Isend", "intra"] == how["MPI_Irecv", "inter"] == "measured"


def test_without_anything_to_measure_nothing_is_started(tmp_path: Path) -> None:
    trace = Trace(1)
    trace.add(0, "MPI_Init", repeat=1)
    trace.add(0, "MPI_Send", 0, 8, verdict="unknown")
    where = trace.write(tmp_path)
    result = replay.run(where, tmp_path / "out.json", cores_per_node=2, budget_s=1.0,
                        launcher=["no-such-launcher"])
    assert result["iterations"] == 0 and result["passes"] == 0
    (left,) = result["unmeasured"]
    assert left["op"] == "MPI_Send" and "no law" in left["reason"]
    assert result["left_out"] == [{"op": "MPI_Init", "events": 1}]


def test_wrong_launcher_is_one_line(tmp_path: Path) -> None:
    where = ring(4).write(tmp_path)
    with pytest.raises(P3SError) as caught:
        replay.run(where, tmp_path / "out.json", cores_per_node=2, budget_s=1.0,
                   launcher=["no-such-mpiexec"])
    assert "no-such-mpiexec" in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "out.json").exists()


WORKER = """
import os, sys, time
from replay import worker

original = worker.Worker._program
def program(self, inner, index, *rest):
    if self.rank == 1 and index == {index}:
        {action}
    return original(self, inner, index, *rest)
worker.Worker._program = program
worker.main(sys.argv[1:])
"""


def processes_with(mark: str) -> list[int]:
    """Return the processes whose command line holds a mark."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                command = Path("/proc", name, "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in command:
                found.append(int(name))
    return found


@pytest.mark.parametrize(("action", "says"), [
    ("raise ValueError('broken on purpose')", "ValueError: broken on purpose"),
    ("sys.exit(3)", "failed"),
    ("os._exit(4)", "failed"),
    ("os.kill(os.getpid(), 9)", "failed"),
    ("\n        while True: pass", "process 1"),
    ("time.sleep(1000)", "pending"),
], ids=["raises", "exits", "leaves", "is killed", "loops", "sleeps"])
def test_a_broken_process_ends_the_job_without_orphans(
    tmp_path: Path, action: str, says: str
) -> None:
    script = tmp_path / "broken_worker.py"
    script.write_text(WORKER.format(action=action, index=1))
    plan = make_plan(halo(8).write(tmp_path / "scaled"), 2)
    mpi = find_launcher(None, None, plan.world)
    with pytest.raises(P3SError) as caught:
        launch(plan, mpi, budget_s=ENOUGH_S, work_scale=1.0, shared_cores=True,
               worker=[str(script)], stall_s=2.0)
    assert says in str(caught.value) and "\n" not in str(caught.value)
    deadline = time.monotonic() + 10.0
    while processes_with(str(script)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert processes_with(str(script)) == []


def test_a_black_hole_that_never_answers_is_named(tmp_path: Path) -> None:
    from replay.thesis.calls import Code
    from replay.thesis.world import BLACK_HOLE

    # The plan is proven to end, so break it afterwards: a black hole that forgets its answers.
    plan = make_plan(wave(16).write(tmp_path / "scaled"), 2, noise_limit=0)
    holes = plan.world.rank_of(BLACK_HOLE).values()
    broken = 0
    for iteration in plan.iterations:
        for program in iteration.programs:
            for hole in holes:
                events = program.of(hole)
                answers = events["code"] == Code.ANSWER
                events["code"][answers] = Code.REST
                broken += int(answers.sum())
    assert broken > 0
    mpi = find_launcher(None, None, plan.world)
    with pytest.raises(P3SError, match="did not move and was stopped; pending: .*RECV") as caught:
        launch(plan, mpi, budget_s=BUDGET_S, work_scale=1.0, shared_cores=True, stall_s=2.0)
    assert "measured 0 of side" in str(caught.value) or "black hole" in str(caught.value)


def test_every_process_is_this_pythons(tmp_path: Path) -> None:
    """mpi4py must use the launcher's MPI: otherwise every process would be alone."""
    plan = make_plan(ring(4).write(tmp_path), 1)
    mpi = find_launcher(None, None, plan.world)
    outcome = launch(plan, mpi, budget_s=0.2, work_scale=1.0, shared_cores=True)
    assert len(outcome.places) == plan.world.size
    assert all(place.cores <= os.sched_getaffinity(0) for place in outcome.places)
    assert outcome.passes >= 8 * sum(len(i.programs) for i in plan.iterations)
    assert Path(sys.executable).exists()
