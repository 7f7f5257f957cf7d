"""Where work is time: what all ranks share out goes with 1/n, the rest as its law says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timed_study as ts
from test_compute_model import main_phase, put_compute

from p3s.costs.gather import factors_at, measured_at, shared_work
from p3s.model.stage import load as load_model
from p3s.program.generate import write_scaled

COUNTS = (4, 8, 16, 32)
BLOCK, CONTROL = 4e8, 3e5


def program(rec: Any) -> None:
    """A block that is shared out, control code that is not, and a root that does more."""
    block = BLOCK / rec.n * float(ts.cache_step(BLOCK / rec.n, where=3e7, high=1.0, low=0.5))
    for _ in range(5):
        rec.exchange(
            "Sendrecv", (rec.rank + 1) % rec.n, (rec.rank - 1) % rec.n, 4096, work=block, rest=0
        )
        rec("Barrier", work=CONTROL)
        rec("Allreduce", nbytes=8, work=(9.0 if rec.rank == 0 else 1.0) * 1e7 / rec.n)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, list[Any]]:
    root: Path = tmp_path_factory.mktemp("s") / "study"
    study, tables = ts.put_study(root, program, COUNTS, "cpu_ns")
    model = load_model(study.root)
    return (
        study,
        model,
        [measured_at(model, ts.times_of(t, t.segments[:, 4].astype(float))) for t in tables],
    )


def test_what_is_shared_out_is_told_from_what_is_not(made: Any) -> None:
    _, model, found = made
    shared = shared_work(model, found)
    assert {op for _, op in shared} == {"MPI_Sendrecv"}
    ((place, work),) = shared.items()
    row = found[0].places.index(place)
    assert work == pytest.approx(4 * found[0].work[row].mean() / 5)
    factor = factors_at(model, shared, 256)
    assert (np.delete(factor, row) == 1.0).all() and factor[row] > 0


def test_a_place_that_is_reached_more_often_at_larger_counts_is_not_shared_out(made: Any) -> None:
    """Stages of a reduction: log2(n) calls per turn; the same number everywhere is as before."""
    _, model, found = made
    shared = shared_work(model, found)
    assert shared == shared_work(model, [])
    staged = [replace(m, calls=m.calls * np.log2(m.n)) for m in found]
    assert shared and shared_work(model, staged) == {}


def test_the_time_at_n_is_that_of_the_block_and_of_the_rest(made: Any) -> None:
    """Beyond the step the block takes 1/n of what the cache makes of it, control code the same."""
    study, _, found = made
    compute = put_compute(study, found)
    assert [op for _, op, _ in compute.shared] == ["MPI_Sendrecv"]
    for n in (32, 128):
        x = BLOCK / n
        expected = 5 * (
            n * x * float(ts.cache_step(x, where=3e7, high=1.0, low=0.5))
            + n * CONTROL
            + (n + 8) * 1e7 / n
        )
        phase = main_phase(write_scaled(study.root, n))
        assert phase["compute_ns"] == pytest.approx(expected, rel=0.03)
        assert phase["compute_low"] <= expected / phase["compute_ns"] <= phase["compute_high"]
    held = compute.holdout
    assert held is not None and held.max_abs_error < 0.1
