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
from accuracy.options import asked, parser
from accuracy.predicting import Predicted, as_row
from accuracy.report import picture, summary, table


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


def test_a_picture_of_intervals_and_of_open_ones(tmp_path: Path) -> None:
    picture(rows_of_two(), tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text()
    assert "<svg" in text and "true run time, s" in text
    picture([], tmp_path / "none.png")
    assert (tmp_path / "none.png").read_bytes().startswith(b"\x89PNG")


def test_platforms_hold_all_ranks(tmp_path: Path) -> None:
    for name, shape, nodes in (
        ("flat", "", 40),
        ("fat-tree", 'topo_parameters="2;16,3;1,4;1,1"', 48),
        ("torus", 'topo_parameters="4,4,4"', 64),
    ):
        where = cluster.Cluster(tmp_path, 40, name)
        where.write()
        text = where.platform.read_text()
        assert f'radical="0-{nodes - 1}"' in text and shape in text
        assert len(where.hosts.read_text().splitlines()) == 40
    two = cluster.Cluster(tmp_path, 2, "torus")
    two.write()
    assert 'topo_parameters="2,2,2"' in two.platform.read_text()


def test_programs_from_elsewhere(tmp_path: Path) -> None:
    words = ["--program", "x", "--source", str(tmp_path), "--executable", "bin/x", "--arguments"]
    args = parser().parse_args([*words, "-n {np}", "--arguments-at", "8=-x 2", "--traced", "4,8"])
    (program,) = asked(args)
    assert (program.arguments_at(4), program.arguments_at(8)) == (("-n", "4"), ("-x", "2"))
    assert (program.traced, program.predicted) == ((4, 8), (64, 128, 256))
    with pytest.raises(ValueError, match="--executable"):
        asked(parser().parse_args(["--program", "x", "--source", str(tmp_path)]))
    with pytest.raises(ValueError, match="give --source"):
        asked(parser().parse_args(["--program", "x"]))


def test_algorithms_are_set_on_both_sides(capsys: pytest.CaptureFixture[str]) -> None:
    """The simulator and the prediction are told of the same collectives."""
    both = parser().parse_args([]).algorithms
    assert "--cfg=smpi/bcast:binomial_tree" in cluster.settings(both)
    assert "--cfg=smpi/allreduce:rdb" in cluster.settings(both)
    assert "--cfg=smpi/test:4e-07" in cluster.settings(both)
    made = ",".join(f"{call}=mask" for call in cluster.CREATIONS)
    assert cluster.collectives(both) == [
        "--collectives",
        f"bcast=binomial,allreduce=recursive_doubling,{made}",
    ]
    one = parser().parse_args(["--algorithms", "bcast"]).algorithms
    assert not [word for word in cluster.settings(one) if "allreduce" in word]
    assert cluster.collectives(one) == ["--collectives", f"bcast=binomial,{made}"]
    none = parser().parse_args(["--algorithms", ""]).algorithms
    assert cluster.collectives(none) == ["--collectives", made]
    with pytest.raises(SystemExit):
        parser().parse_args(["--algorithms", "scan"])
    assert "--algorithms" in capsys.readouterr().err


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


FORTRAN = """      program neighbours
      include 'mpif.h'
      integer rank, n, ierr, status(MPI_STATUS_SIZE), i
      double precision a(1000), total
      character line*20
      call MPI_Init(ierr)
      call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
      call MPI_Comm_size(MPI_COMM_WORLD, n, ierr)
      do i = 1, 1000
         a(i) = rank * i
      end do
      call MPI_Sendrecv_replace(a, 1000, MPI_DOUBLE_PRECISION,
     &   mod(rank + 1, n), 7, mod(rank + n - 1, n), 7,
     &   MPI_COMM_WORLD, status, ierr)
      call MPI_Allreduce(a(1), total, 1, MPI_DOUBLE_PRECISION, MPI_SUM,
     &   MPI_COMM_WORLD, ierr)
      open(10, file='f.f', status='old')
      do i = 1, 3
         read(10, *)
         call MPI_Barrier(MPI_COMM_WORLD, ierr)
      end do
      read(10, '(a)') line
      if (line(7:12) .ne. 'double') call MPI_Abort(MPI_COMM_WORLD, 1,
     &   ierr)
      close(10)
      call get_command_argument(1, line)
      if (command_argument_count() .ne. 1 .or. line .ne. 'one line')
     &   call MPI_Abort(MPI_COMM_WORLD, 1, ierr)
      call MPI_Finalize(ierr)
      stop
      end
"""
CXX = """#include <mpi.h>
#include <atomic>
#include <iostream>
#include <memory>
#include <sstream>
#include <vector>
struct Base { virtual ~Base() {} virtual int value() { return 1; } };
struct Derived : Base { int value() override { return 2; } };
int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, n;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    std::vector<double> a(1000, rank);
    std::shared_ptr<Base> base(new Derived);
    std::atomic<int> seen{base->value()};
    std::ostringstream text;
    text << seen.fetch_add(3) << " " << seen;
    if (text.str() != "2 5")
        MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Sendrecv_replace(a.data(), 1000, MPI_DOUBLE, (rank + 1) % n, 7, (rank + n - 1) % n, 7,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    double total;
    MPI_Allreduce(a.data(), &total, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
}
"""


@pytest.mark.slow
@pytest.mark.skipif(bool(cluster.missing()), reason=cluster.missing() or "simulator is there")
def test_programs_in_other_languages_are_traced(tmp_path: Path) -> None:
    """Their own builds compile and link them, in one step or in two; tracing takes no time."""
    from p3s.capture import read_run

    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "f.f").write_text(FORTRAN)
    (tmp_path / "source" / "c.cc").write_text(CXX)
    builder = Builder(tmp_path / "build")
    where = cluster.Cluster(tmp_path / "build", 4)
    where.write()
    for name, command in (
        ("f", "mpif90 -O2 -c f.f && mpif90 f.o -o f.x"),
        ("c", "mpicxx -O2 c.cc -o c.x"),
    ):
        build = builder.outside(name, tmp_path / "source", command, f"{name}.x")
        into = tmp_path / name
        into.mkdir()
        environment = {"P3S_TRACE_DIR": str(into), "P3S_WORK": "wall"}
        places = build.directories or (None, None)
        plain, _ = cluster.simulate(
            where, builder.clock, build.plain, ["one line"], 4, directory=places[0]
        )
        traced, _ = cluster.simulate(
            where,
            builder.clock,
            build.traced,
            ["one line"],
            4,
            environment,
            places[1],
            build.preloaded,
        )
        assert plain == traced > 0
        run = read_run(into)
        assert run.np == 4 and not run.problem
        for rank in run.ranks:
            called = [run.calls[c] for c in rank.call.tolist()]
            assert [c.op for c in called if c.op == "MPI_Allreduce"] == ["MPI_Allreduce"]
            (sent,) = [c for c in called if c.op == "MPI_Sendrecv_replace"]
            assert (sent.peer, sent.tag) == ((rank.rank + 1) % 4, 7)
            assert int(rank.work.sum()) > 1000
    with pytest.raises(cluster.SimulationError, match="has made no y"):
        builder.outside("f", tmp_path / "source", "true", "y")


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
