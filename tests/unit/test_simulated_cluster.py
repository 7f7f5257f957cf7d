"""The benchmark of run times: what it says of its rows, and P3S's tracer inside the simulator."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from paths import ROOT

sys.path.append(str(ROOT / "benchmarks"))

from accuracy import cluster
from accuracy.build import Builder
from accuracy.predicting import Predicted, as_row
from accuracy.run import summary, table


def test_what_is_said_of_rows() -> None:
    """Traced counts are no predictions; a truth outside the interval is missed."""
    rows = [
        {
            "program": "a",
            "traced": [4],
            "why_not": "",
            "counts": [
                as_row(Predicted(4, 9.0, 1.0, 2.0, 1.0, 1.0), 1.0),
                as_row(Predicted(64, 1.02, 0.9, 1.1, 0.6, 0.42), 1.0),
                as_row(Predicted(128, 0.94, 0.9, 0.95, 0.5, 0.44), 1.0),
            ],
        },
        {"program": "b", "traced": [4], "why_not": "p3s add: exit code 1: no", "counts": []},
    ]
    total = summary(rows)
    assert total["compared"] == 2 and total["refused"] == ["b"]
    assert (total["mean"], total["largest"]) == (pytest.approx(0.04), pytest.approx(0.06))
    assert (total["covered"], total["intervals"]) == (1, 2)
    text = table(rows, total)
    assert "| a | 128 | 1000.00 | 940.00 | -6.0 % | 47 % | 900.00 to 950.00, missed |" in text
    assert "| a | 4 |" not in text and "exit code 1: no" in text


@pytest.mark.slow
@pytest.mark.skipif(bool(cluster.missing()), reason=cluster.missing() or "simulator is there")
def test_a_capture_of_a_simulated_run(tmp_path: Path) -> None:
    """Tracing takes no simulated time, runs are equal, work follows the data, peers are right."""
    from p3s.trace import read_run

    builder = Builder(tmp_path / "build")
    where = cluster.Cluster(tmp_path / "build", 4)
    where.write()
    build = builder.program(ROOT / "examples" / "jacobi2d.c", "jacobi2d")
    times, work = [], []
    for nx, program in (("40", build.plain), ("40", build.traced), ("80", build.traced)):
        into = tmp_path / f"np4-{len(times)}"
        into.mkdir()
        arguments = ["--nx", nx, "--ny", "30", "--iterations", "5"]
        taken, _ = cluster.simulate(
            where,
            builder.clock,
            program,
            arguments,
            4,
            {"P3S_TRACE_DIR": str(into), "P3S_WORK": "wall"},
        )
        times.append(taken)
        if program == build.traced:
            run = read_run(into)
            assert run.np == 4 and not run.problem and run.work_unit == "wall_ns"
            work.append(sum(int(rank.work.sum()) for rank in run.ranks))
            peers = {
                (rank.rank, run.calls[c].peer)
                for rank in run.ranks
                for c in set(rank.call.tolist())
                if run.calls[c].op == "MPI_Isend"
            }
            assert peers == {(0, 1), (0, 2), (1, 0), (1, 3), (2, 0), (2, 3), (3, 1), (3, 2)}
    assert times[0] == times[1]
    assert work[1] / work[0] == pytest.approx(2, rel=0.1)
