"""The benchmark of run times: what it says of its rows, and P3S's tracer inside the simulator."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT

sys.path.append(str(ROOT / "benchmarks"))

from accuracy import cluster
from accuracy.build import Builder
from accuracy.predicting import Predicted, as_row
from accuracy.report import summary, table


def rows_of_two() -> list[dict[str, Any]]:
    """One program with a traced and two predicted counts, and one that was refused."""
    trusted = Predicted(64, 1.02, 0.9, 1.1, 0.6, 0.42, 0.8, 0)
    doubted = Predicted(128, 0.94, 0.9, 0.95, 0.5, 0.44, None, 3, ("wide",))
    open_ = Predicted(256, 1.3, None, None, 0.5, 0.8, None, 3, ("emptied",))
    return [
        {
            "program": "a",
            "half": "developed",
            "traced": [4],
            "why_not": "",
            "counts": [
                as_row(Predicted(4, 9.0, 1.0, 2.0, 1.0, 1.0), 1.0),
                {**as_row(trusted, 1.0), "regression": 0.01},
                {**as_row(doubted, 1.0), "regression": -0.2},
            ],
        },
        {
            "program": "b",
            "half": "kept",
            "traced": [4],
            "why_not": "",
            "counts": [as_row(open_, 1.0)],
        },
        {
            "program": "c",
            "half": "kept",
            "traced": [4],
            "why_not": "p3s add: exit code 1: no",
            "counts": [],
        },
    ]


def test_what_is_said_of_rows() -> None:
    """Traced counts are no predictions; a truth outside the interval is missed."""
    rows = rows_of_two()
    total = summary(rows, "developed")
    assert total["compared"] == 2 and total["refused"] == []
    assert (total["mean"], total["largest"]) == (pytest.approx(0.04), pytest.approx(0.06))
    assert (total["covered"], total["intervals"]) == (1, 2)
    assert (total["trusted"], total["trusted_within"], total["trusted_covered"]) == (1, 1, 1)
    assert (total["closer_than_regression"], total["against_regression"]) == (1, 2)
    kept = summary(rows, "kept")
    assert (kept["compared"], kept["intervals"], kept["refused"]) == (1, 0, ["c"])
    assert summary(rows)["compared"] == 3 and summary([])["mean"] is None


def test_the_table_has_what_others_say_beside_it() -> None:
    text = table(rows_of_two())
    assert (
        "| a | 64 | 1000.00 | 1020.00 | +2.0 % | 41 % | 900.00 to 1100.00 | 0 | +1.0 % | -20.0 % |"
    ) in text
    assert "| -6.0 % | 47 % | 900.00 to 950.00, missed | 3, wide | -20.0 % | - |" in text
    assert "| b | 256 | 1000.00 | 1300.00 | +30.0 % | 62 % | open | 3, emptied | - | - |" in text
    assert "| a | 4 |" not in text and "exit code 1: no" in text
    assert "2 run times (developed): error mean 4.0 %" in text
    assert "1 of 2 are closer than the regression" in text


@pytest.mark.slow
@pytest.mark.skipif(bool(cluster.missing()), reason=cluster.missing() or "simulator is there")
def test_a_capture_of_a_simulated_run(tmp_path: Path) -> None:
    """Tracing takes no simulated time, runs are equal, work follows the data, peers are right."""
    from p3s.capture import read_run

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


def test_regret_and_gains_of_placements() -> None:
    import placement

    def run(name: str, predicted: float, truth: float, chosen: bool = False) -> dict:
        return {"name": name, "time_s": predicted, "truth_s": truth, "chosen": chosen}

    row = {
        "program": "halo", "n": 64, "ppn": 4, "candidates": 85,
        "runs": [run("tiles", 0.8, 0.84, True), run("block", 1.0, 1.05), run("random 1", 0.9, 0.8)],
    }  # fmt: skip
    found = placement.figures(row)
    assert found["regret"] == pytest.approx(0.05) and found["best"] == "random 1"
    assert found["block"]["predicted"] == pytest.approx(0.2)
    assert found["block"]["true"] == pytest.approx(0.2) and "cyclic" not in found
    assert "Regret at most 5 % in 0 of 1; gain within 5 points in 1 of 1." in placement.table(
        [{**row, "runs": [*row["runs"], run("random 2", 0.9, 0.7)]}]
    )
    ranked = [{"name": f"random {k}"} for k in range(20)] + [{"name": "block"}]
    chosen = placement.to_run(ranked, 8)
    assert chosen[:4] == [0, 1, 2, 3] and 20 in chosen and len(chosen) <= 9
