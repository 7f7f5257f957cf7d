"""The programs of a master and workers: right results, messages as said, times that add up."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import fields
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import cli
from paths import EXAMPLES
from test_examples import run, tool
from tracer_helpers import trace

from p3s.capture import read_run
from p3s.methods.baseline import iterations as iteration_table
from p3s.methods.baseline.iterations import Row, check

APPS = ("kmeans", "nbody", "heat", "matmul", "jacobi")
#: No multiple of 2 or 3: blocks of workers and threads differ.
SIZE = {"kmeans": 61, "nbody": 37, "heat": 31, "matmul": 29, "jacobi": 31}
ITERATIONS = 10


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of the compiled programs."""
    target = tmp_path_factory.mktemp("examples")
    code, out, err = run(["make", "-C", str(EXAMPLES), f"MPICC={tool('mpicc')}", f"BIN={target}"])
    assert code == 0, out + err
    if not (target / "master_worker").exists():
        pytest.skip("mpicc has no OpenMP")
    return target / "master_worker"


def started(program: Path, workers: int, threads: int, *more: str) -> tuple[int, str, str]:
    """Run a program; return its exit code, output, errors."""
    command = [tool("mpiexec"), "-n", str(workers + 1), str(program), *more]
    return run(command, OMP_NUM_THREADS=str(threads), OMP_WAIT_POLICY="passive")


# ---- references ------------------------------------------------------------------------------


def scatter(index: np.ndarray) -> np.ndarray:
    """Return numbers in [0, 1) that depend on the index only, as the programs make them."""
    h = index.astype(np.uint64) + np.uint64(1)
    for factor in (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93):
        h = h * np.uint64(factor)
        h = h ^ (h >> np.uint64(32))
    return (h >> np.uint64(11)) / 9007199254740992.0


def kmeans(w: int) -> np.ndarray:
    objects = scatter(np.arange(125 * w)).reshape(w, 125)
    centres = objects[:10].copy()
    for _ in range(ITERATIONS):
        at = ((objects[:, None, :] - centres) ** 2).sum(axis=2).argmin(axis=1)
        for c in range(10):
            if (at == c).any():
                centres[c] = objects[at == c].mean(axis=0)
    return centres


def nbody(w: int) -> np.ndarray:
    raw = scatter(np.arange(4 * w)).reshape(w, 4)
    x, v, m = raw[:, :3].copy(), np.zeros((w, 3)), (0.5 + raw[:, 3]) / w
    for _ in range(ITERATIONS):
        d = x[None, :, :] - x[:, None, :]
        square = (d**2).sum(axis=2) + 1e-3
        v = v + 1e-4 * ((m / square**1.5)[:, :, None] * d).sum(axis=1)
        x = x + 1e-4 * v
    return np.column_stack([x, v, m])


def around(u: np.ndarray) -> np.ndarray:
    """Return the sum of the four neighbours, 0 outside."""
    p = np.pad(u, 1)
    return p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]


def heat(w: int) -> np.ndarray:
    u = np.zeros((w, w))
    u[w // 3 : w - w // 3, w // 3 : w - w // 3] = 1.0
    for _ in range(ITERATIONS):
        u = u + 0.1 * (around(u) - 4 * u)
    return u


def matmul(w: int) -> np.ndarray:
    a, b = scatter(np.arange(2 * w * w)).reshape(2, w, w)
    for _ in range(ITERATIONS):
        a = a @ (2.0 * b / w)
    return a


def jacobi(w: int) -> np.ndarray:
    u, source = np.zeros((w, w)), scatter(np.arange(w * w)).reshape(w, w) - 0.5
    for _ in range(ITERATIONS):
        u = 0.25 * (around(u) + source)
    return u


REFERENCES = {"kmeans": kmeans, "nbody": nbody, "heat": heat, "matmul": matmul, "jacobi": jacobi}


@functools.cache
def reference(app: str) -> np.ndarray:
    """Return the right result of a program."""
    return REFERENCES[app](SIZE[app])


# ---- programs --------------------------------------------------------------------------------


@pytest.mark.parametrize("app", APPS)
def test_results_are_those_of_numpy(app: str, programs: Path, tmp_path: Path) -> None:
    for workers in (1, 2, 3):
        for threads in (1, 2):
            path = tmp_path / "result"
            code, out, err = started(
                programs / app,
                *(workers, threads, "--workload", str(SIZE[app]), "--output", str(path)),
            )
            assert code == 0, out + err
            assert out.endswith(f"{workers} workers, {threads} threads each, 10 iterations\n")
            found = np.fromfile(path).reshape(reference(app).shape)
            np.testing.assert_allclose(found, reference(app), rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("app", APPS)
def test_an_iteration_is_one_message_to_each_worker_and_one_back(
    app: str, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    workers = 3
    found = trace(
        [str(programs / app), "--workload", str(SIZE[app])], workers + 1, tmp_path / "run"
    )
    for rank in range(workers + 1):
        calls = [found.calls[number] for number in found.ranks[rank].call.tolist()]
        sent = Counter((c.op, c.peer) for c in calls if c.op in ("MPI_Send", "MPI_Recv"))
        peers = range(1, workers + 1) if rank == 0 else (0,)
        assert sent == {(op, p): ITERATIONS for op in ("MPI_Send", "MPI_Recv") for p in peers}
        others = {c.op for c in calls if c.op not in ("MPI_Send", "MPI_Recv")}
        assert others == {"MPI_Init", "MPI_Finalize"}, "point-to-point only"


def times_of(program: Path, workers: int, path: Path, *more: str) -> list[Row]:
    """Run a program and return its iterations."""
    code, out, err = started(program, workers, 2, "--times", str(path), *more)
    assert code == 0, out + err
    return iteration_table.read_iterations([path])


@pytest.mark.parametrize("app", APPS)
def test_times_are_one_row_per_iteration(app: str, programs: Path, tmp_path: Path) -> None:
    rows = times_of(programs / app, 3, tmp_path / "t.csv", "--iterations", "4", "--run", "7")
    assert [(row.app, row.iteration, row.run) for row in rows] == [(app, i, 7) for i in range(4)]
    for row in rows:
        assert (row.K, row.T, row.processes, len(row.mu)) == (3, 2, 4, 3)
        assert max(row.mu) <= row.T_iter and sum(row.mu) == pytest.approx(row.T_c)
        assert all(region <= mu for region, mu in zip(row.region, row.mu, strict=True))
        assert row.mu_m + row.send_m + row.recv_m == pytest.approx(row.T_iter)
    columns = {f.name: [getattr(row, f.name) for row in rows] for f in fields(rows[0])}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    assert iteration_table.read_iterations([tmp_path / "t.parquet"]) == rows
    one = iteration_table.runs(rows)[0]
    checked = check([r.T_iter for r in one.rows], [r.mu for r in one.rows])
    assert checked.iterations == 3 and checked.imbalance >= 0
    code, out, _ = started(programs / app, 1, 1, "--times", "-", "--iterations", "2")
    assert code == 0 and out.count("\n") == 3


def test_wrong_use_is_one_line(programs: Path) -> None:
    for workers, arguments in ((0, []), (3, ["--workload", "2"]), (1, ["--bodies", "3"])):
        code, out, err = started(programs / "nbody", workers, 1, *arguments)
        assert code == 2 and out == ""
        assert sum(line.startswith("nbody: ") for line in err.splitlines()) == 1
    code, _, err = started(programs / "matmul", 1, 1, "--workload", "50000")
    assert code == 2 and "too large" in err


def test_characterize_counts_the_messages_of_small_runs(programs: Path, tmp_path: Path) -> None:
    study = tmp_path / "study"
    command = [tool("mpiexec"), "-n", "{np}", str(programs / "nbody"), "--workload", "60"]
    cli(f"characterize -n 2,3,4 -o {study} --", *command)
    for n in (2, 3, 4):
        found = read_run(next((study / "runs").glob(f"np{n:04d}*")))
        calls = [found.calls[i].op for rank in found.ranks for i in rank.call.tolist()]
        assert Counter(calls)["MPI_Send"] == 2 * (n - 1) * ITERATIONS, "K out and K back"
