"""p3s baseline iterations: run times from tables of iterations, and what speaks against them."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from commands import cli

from p3s.methods.baseline.iterations import iterated
from p3s.methods.baseline.read import read

HEAD = (
    "app,machine,run,iteration,W,processes,K,T,affinity,T_iter,mu_m,T_c,send_m,recv_m,mu,region,"
    "recv,send\n"
)


def put(path: Path, runs: list[tuple[int, int, int, float, float]]) -> Path:
    """Write runs of six iterations: (W, K, T, seconds of a worker, factor of the first)."""
    lines = [HEAD]
    for number, (w, k, t, mu, slow) in enumerate(runs):
        each = [mu * (slow if i == 0 else 1.0) for i in range(k)]
        for i in range(6):
            told = ";".join(str(m) for m in each)
            total = max(each) + (0.5 if i == 0 else 0.02) + 0.001 * i
            lines.append(
                f"heat,n0,{number},{i},{w},{k + 1},{k},{t},close,{total},0.001,{sum(each)},0.01,"
                f"0.01,{told},{told},{told},{told}\n"
            )
    path.write_text("".join(lines))
    return path


def test_even_runs_become_run_times(tmp_path: Path) -> None:
    made = [(w, k, t, w / (k * t), 1.0) for w in (10, 20) for k in (1, 2) for t in (1, 2)]
    path = put(tmp_path / "i.csv", [*made, (10, 2, 1, 6.0, 1.0)])
    times = tmp_path / "times.csv"
    cli(f"baseline iterations {path} -o {times}", out="9 runs, 9 balanced and stable")
    runs = read(times).runs
    assert len(runs) == 9 and {run.n for run in runs} == {2, 3}
    assert dict(runs[0].inputs) == {"workload": 10.0, "threads": 1.0}
    assert runs[0].seconds == pytest.approx(10.023), "the median of all but the first"
    assert [r.repeat for r in runs if r.n == 3 and dict(r.inputs)["workload"] == 10][-1] == 1
    tree = ["--family", "tree", "--workers", "n-1", "--expression", "b1*W/(K*T) + b0"]
    cli(f"baseline fit {times}", *tree, "-o", tmp_path / "t.json")


def test_statistics_and_computation(tmp_path: Path) -> None:
    path = put(tmp_path / "i.csv", [(10, 2, 1, 6.0, 1.0), (10, 2, 1, 5.0, 1.0)])
    args = ["baseline", "iterations", str(path), "-o", str(tmp_path / "t.json"), "--json"]
    (row,) = cli(*args, "--statistic", "min", "--computed").data["runs"]
    assert row["seconds"] == pytest.approx(5.021) and row["t_c"] == pytest.approx(10.0)
    cli(*args, "--statistic", "mode", code=2, err="one of min, median, mean")
    assert iterated([path], skip=0).times.runs[0].seconds == pytest.approx(6.0235)


def test_uneven_runs_are_said(tmp_path: Path) -> None:
    path = put(tmp_path / "i.csv", [(10, 4, 1, 1.0, 1.0), (10, 4, 2, 1.0, 1.3)])
    said = cli(f"baseline iterations {path} -o {tmp_path / 't.csv'}", code=3)
    assert "1 of 2 runs doubtful: unbalanced 1" in said.err
    assert "2 runs, 1 balanced and stable" in said.out and "20.9 %" in said.out
    with (tmp_path / "t.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 2, "they are written all the same"


def test_wrong_tables_are_one_line(tmp_path: Path) -> None:
    empty = tmp_path / "i.csv"
    empty.write_text(HEAD)
    for args in ([str(empty)], [str(tmp_path / "none.csv")]):
        assert (
            cli("baseline iterations", *args, "-o", tmp_path / "t.csv", code=1).err.count("\n") == 1
        )
    cli(f"baseline iterations {empty} -o {tmp_path}", code=2)
