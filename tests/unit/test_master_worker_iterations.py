"""Iterations of a master and workers: the gate, tables of times."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from p3s.base.errors import P3SError, UsageError
from p3s.methods.baseline import iterations as iteration_table
from p3s.methods.baseline.iterations import check

# ---- the gate (C16) --------------------------------------------------------------------------


def made(slow: float = 1.0, noise: float = 0.0, messages: float = 0.0) -> tuple[np.ndarray, ...]:
    """Return 12 iterations of four workers of 10 ms and 4 ms of messages, the third one slower."""
    rng = np.random.default_rng(3)
    compute = 0.01 * (1 + noise * rng.standard_normal((12, 4)))
    compute[:, 2] *= slow
    extra = 0.004 * np.exp(messages * rng.standard_normal(12))
    return compute.max(axis=1) + extra + 0.001, compute


def test_balanced_and_stable_passes() -> None:
    seconds, compute = made(noise=0.01, messages=0.05)
    found = check(seconds, compute, 0.001)
    assert found.passes and found.codes == ()
    assert found.imbalance < 0.05 and found.iterations == 11
    assert found.share == pytest.approx(0.004 / 0.015, rel=0.1)


def test_a_slow_worker_is_unbalanced() -> None:
    found = check(*made(slow=1.3, noise=0.01), 0.001)
    assert found.codes == ("unbalanced",) and found.slowest == 3
    # 30 % longer than the others is 1.3 over the mean of 1.075.
    assert found.imbalance == pytest.approx(1.3 / 1.075 - 1, rel=0.1)


def test_messages_and_iterations_that_vary() -> None:
    found = check(*made(messages=0.5), 0.001)
    assert "unstable-communication" in found.codes and "unbalanced" not in found.codes
    seconds, compute = made()
    factor = np.linspace(1, 3, 12)
    found = check(seconds * factor, compute * factor[:, None])
    assert "unstable-iterations" in found.codes


def test_a_slow_first_iteration_does_not_count_and_few_tell_nothing() -> None:
    seconds, compute = made()
    seconds[0], compute[0, 1] = 1.0, 0.9
    assert check(seconds, compute).passes
    assert check(seconds[1:3], compute[1:3]).codes == ("too-few-iterations",)
    assert check([1.0] * 4, [[0.5]] * 4).imbalance == 0.0


# ---- tables (C2, C3) -------------------------------------------------------------------------

HEAD = (
    "app,machine,run,iteration,W,processes,K,T,affinity,T_iter,mu_m,T_c,send_m,recv_m,mu,region,"
    "recv,send\n"
)


def line(iteration: int, seconds: float, mu: str = "0.1;0.2", total: float = 0.3) -> str:
    """Return a row of two workers."""
    return (
        f"nbody,n0,0,{iteration},100,3,2,4,close,{seconds},0.01,{total},0.02,0.03,{mu},"
        "0.1;0.1,0.0;0.0,0.0;0.0\n"
    )


def put(path: Path, *lines: str) -> Path:
    path.write_text(HEAD + "".join(lines))
    return path


def test_tables_are_read_written_and_reduced(tmp_path: Path) -> None:
    path = put(tmp_path / "t.csv", *(line(i, s) for i, s in enumerate((9.0, 1.0, 2.0, 6.0))))
    rows = iteration_table.read_iterations([path])
    assert rows[0].mu == (0.1, 0.2)
    columns = {f.name: [getattr(row, f.name) for row in rows] for f in fields(rows[0])}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    assert iteration_table.read_iterations([tmp_path / "t.parquet"]) == rows
    for statistic, wanted in (("median", 2.0), ("mean", 3.0), ("min", 1.0)):
        (run,) = iteration_table.runs(rows, statistic)
        assert (run.K, run.T, run.W, run.iterations) == (2, 4, 100.0, 3)
        assert run.seconds == pytest.approx(wanted)
        assert run.compute == pytest.approx((0.1, 0.2))
    assert iteration_table.runs(rows, skip=0)[0].iterations == 4
    assert iteration_table.runs(rows[:1])[0].seconds == 9.0, "the only one counts"
    with pytest.raises(UsageError, match="one of min, median, mean"):
        iteration_table.runs(rows, "mode")


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (line(0, 1.0, total=0.5), "T_c is 0.5, the sum of mu 0.3"),
        (line(0, 0.15), "longer than the iteration"),
        (line(0, 1.0, mu="0.3"), "mu has not one time for each of 2 workers"),
        (line(0, 1.0).replace("100,3,2", "100,4,2"), "4 processes, 2 workers"),
        (line(0, 1.0).replace("nbody,n0,0", "nbody,n0,x"), "run is 'x'"),
        (line(0, float("nan")), "T_iter is 'nan'"),
    ],
)
def test_rows_that_cannot_be(row: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(P3SError, match=f"t.csv: row 3: .*{why}"):
        iteration_table.read_iterations([put(tmp_path / "t.csv", line(0, 1.0), row)])


def test_a_column_less_and_no_file(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("app,K\nnbody,2\n")
    with pytest.raises(P3SError, match="row 2: no machine"):
        iteration_table.read_iterations([path])
    with pytest.raises(P3SError, match="cannot be read"):
        iteration_table.read_iterations([tmp_path / "none.csv"])
