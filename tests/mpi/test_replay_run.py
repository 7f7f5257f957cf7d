"""Replays with real MPI processes: whole results, and what is kept."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from replay_patterns import Trace, butterfly, collectives, halo, ring, wave

from p3s import replay
from p3s.base.errors import P3SError
from p3s.base.study import REPLAY_VERSION, read_json
from p3s.replay import ReplaySettings

SETTINGS = ReplaySettings(cores_per_node=2, budget_s=0.5)


@pytest.fixture(scope="module", autouse=True)
def needs_mpi() -> None:
    """Skip where there is no MPI at all."""
    from p3s.base.host import mpi

    if not any(install.mpiexec for install in mpi.find_mpi()):
        pytest.skip("no MPI with mpicc and mpiexec here")


def run(trace: Trace, directory: Path, **options: object) -> dict:
    """Write a trace, replay it, and check what every result must have."""
    lines = options.pop("lines", [])
    where = trace.write(directory / "scaled")
    out = directory / "replay" / f"np{trace.n:06d}.json"
    settings = dataclasses.replace(SETTINGS, **options)
    result = replay.run(where, out, settings, progress=lines.append)
    kept = read_json(out, "p3s.replay", REPLAY_VERSION)
    assert list(kept.pop("tables")) == [f"{out.stem}.parquet"] and kept == result
    table = pq.read_table(out.with_suffix(".parquet")).to_pydict()
    assert {
        "rank",
        "phase",
        "comm_ns",
        "comm_low_ns",
        "comm_high_ns",
        "waiting_ns",
        "transfer_ns",
        "software_ns",
        "thesis_ns",
    } <= set(table)
    assert list(zip(table["rank"], table["phase"], strict=True)) == [
        (rank, phase) for rank in range(trace.n) for phase in range(trace.phases)
    ]
    parts = zip(
        *(
            table[name]
            for name in (
                "comm_low_ns",
                "comm_ns",
                "comm_high_ns",
                "waiting_ns",
                "transfer_ns",
                "software_ns",
            )
        ),
        strict=True,
    )
    for low, value, high, waiting, transfer, software in parts:
        assert 0 <= low <= value <= high
        assert waiting + transfer + software == pytest.approx(value, rel=1e-6, abs=1.0)
    assert result["representative"] is False
    assert "all nodes are one machine" in result["why_not_representative"]
    assert result["measured_share"] <= 1.0
    return result


def test_halo_is_measured_and_what_is_measured_is_kept(tmp_path: Path) -> None:
    lines: list[str] = []
    result = run(halo(12, work=20_000.0), tmp_path, lines=lines, budget_s=3.0)
    assert result["n"] == 12 and result["unmeasured"] == []
    assert result["passes"] > 0 and result["iterations"] > 0
    assert any("instead of 15" in line for line in lines)
    assert any(line.startswith("measured ") for line in lines)
    for entry in result["messages"]:
        assert 0 < entry["ci_low_ns"] <= entry["cost_ns"] <= entry["ci_high_ns"]
    if result["programs_skipped"] == 0:
        again: list[str] = []
        second = run(halo(12, work=20_000.0), tmp_path, lines=again, budget_s=3.0)
        assert any("measured already" in line for line in again)
        assert second["wall_s"] == 0.0 and second["messages"] == result["messages"]


@pytest.mark.parametrize(
    "trace",
    [ring(6, nbytes=300_000, op="MPI_Send"), wave(12, nbytes=90_000), butterfly(8), collectives(6)],
    ids=["blocking sends beyond any buffer", "wave", "butterfly", "collectives"],
)
def test_patterns(tmp_path: Path, trace: Trace) -> None:
    result = run(trace, tmp_path, budget_s=4.0)
    assert [entry for entry in result["unmeasured"] if entry["cost"] != "interpolated"] == []


def test_whole_iterations_with_timed_black_holes(tmp_path: Path) -> None:
    result = run(wave(8, nbytes=20_000), tmp_path, timed=True, budget_s=4.0)
    assert result["timed"] is True
    table = pq.read_table(tmp_path / "replay" / "np000008.parquet").to_pydict()
    assert "whole_ns" in table


def test_one_core_per_node_and_a_rank_that_talks_to_itself(tmp_path: Path) -> None:
    trace = Trace(5)
    for rank in range(5):
        for peer, tag in ((rank, 1), ((rank + 1) % 5, 2)):
            trace.add(rank, "MPI_Isend", peer, 64, tag=tag)
        for peer, tag in ((rank, 1), ((rank - 1) % 5, 2)):
            trace.add(rank, "MPI_Irecv", peer, 64, tag=tag)
        trace.add(rank, "MPI_Waitall", nbytes=4)
    result = run(trace, tmp_path, cores_per_node=1)
    assert {entry["distance"] for entry in result["messages"]} == {0, 1}


def test_without_anything_to_measure_nothing_is_started(tmp_path: Path) -> None:
    trace = Trace(1)
    trace.add(0, "MPI_Init", repeat=1)
    trace.add(0, "MPI_Send", 0, 8, verdict="unknown")
    result = replay.run(trace.write(tmp_path), tmp_path / "out.json", SETTINGS)
    assert result["iterations"] == 0 and result["passes"] == 0
    (left,) = result["unmeasured"]
    assert left["op"] == "MPI_Send" and "no law" in left["reason"]
    assert result["left_out"] == [{"op": "MPI_Init", "events": 1}]


def test_wrong_launcher_is_one_line(tmp_path: Path) -> None:
    where = ring(4).write(tmp_path)
    settings = dataclasses.replace(SETTINGS, launcher=("no-such-mpiexec",))
    with pytest.raises(P3SError) as caught:
        replay.run(where, tmp_path / "out.json", settings)
    assert "no-such-mpiexec" in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "out.json").exists()
