"""Counts too large to simulate every rank: smaller grids of the same form stand for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import timed_study as ts
from corpus import Recorder, block
from test_estimators import machine_file

from p3s.characterize.times import _save
from p3s.costs.stage import build as build_compute
from p3s.model.stage import load as load_model
from p3s.predict.estimators import Setting, estimate
from p3s.predict.estimators import fewer as of_fewer
from p3s.predict.times import computation, with_communication
from p3s.program import write_scaled
from p3s.program.fewer import Fewer, fewer, inner_places, outer_places, rows_of
from p3s.study import Study

LARGE = 576
CELLS = 960


def _sides(n: int) -> tuple[int, int]:
    side = round(n**0.5)
    assert side * side == n
    return side, side


def halo(rec: Recorder) -> None:
    """Exchanges with four neighbours on a square grid with borders, and a sum of all."""
    p, q = _sides(rec.n)
    i, j = divmod(rec.rank, q)
    rows, columns = block(CELLS, p, i), block(CELLS, q, j)
    for _ in range(12):
        for name, di, dj in (("n", -1, 0), ("s", 1, 0), ("w", 0, -1), ("e", 0, 1)):
            if 0 <= i + di < p and 0 <= j + dj < q:
                peer, size = (i + di) * q + j + dj, 8 * (columns if di else rows)
                rec("Irecv", site=f"r{name}", peer=peer, nbytes=size)
                rec("Isend", site=f"s{name}", peer=peer, nbytes=size)
        rec("Waitall")
        rec("Allreduce", nbytes=8, work=2 * rows * columns)


def front(rec: Recorder) -> None:
    """A front that runs through a square grid from its first corner, one block after another."""
    p, q = _sides(rec.n)
    i, j = divmod(rec.rank, q)
    rows, columns = block(CELLS, p, i), block(CELLS, q, j)
    for _ in range(6):
        if i > 0:
            rec("Recv", site="rn", peer=rec.rank - q, nbytes=8 * columns)
        if j > 0:
            rec("Recv", site="rw", peer=rec.rank - 1, nbytes=8 * rows)
        if i < p - 1:
            rec("Send", site="ss", peer=rec.rank + q, nbytes=8 * columns, work=rows * columns)
        if j < q - 1:
            rec("Send", site="se", peer=rec.rank + 1, nbytes=8 * rows)
        rec("Allreduce", nbytes=8)


def study_of(root: Path, program: Callable[[Recorder], None]) -> Study:
    study, tables = ts.put_study(root, program, (4, 9, 16, 25), "cpu_ns")
    for table in tables:
        took = table.segments[:, 4].astype(float)
        _save(ts.times_of(table, took, noise=0.0), study.times_path(table.np))
    machine_file(study.root / "machine.json")
    build_compute(study.root)
    write_scaled(study.root, LARGE)
    return study


@pytest.fixture(scope="module", params=[halo, front], ids=lambda program: program.__name__)
def study(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Study:
    return study_of(tmp_path_factory.mktemp("fewer") / "s", request.param)


def test_smaller_grids_say_what_all_ranks_do(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = Setting(ranks_per_node=4)
    every = estimate("machine", study, LARGE, setting=setting)
    monkeypatch.setattr(of_fewer, "EVERY_RANK", 64)
    few = estimate("machine", study, LARGE, setting=setting)
    assert any("grids of up to" in note for note in few.notes)
    assert not any("grids of up to" in note for note in every.notes)
    times = computation(study, LARGE)
    true, told = (with_communication(times, one) for one in (every, few))
    whole = [float((one.own + one.comm).sum(axis=1).mean()) for one in (true, told)]
    assert whole[1] == pytest.approx(whole[0], rel=0.1)
    mean = float(true.comm.sum(axis=1).mean())
    low, high = (float(ends.sum(axis=1).mean()) for ends in (told.comm_low, told.comm_high))
    assert low <= mean <= high
    assert np.isfinite(told.comm).all() and (told.comm >= 0).all()


def test_every_rank_can_be_asked_for(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_fewer, "EVERY_RANK", 64)
    every = estimate("machine", study, LARGE, setting=Setting(ranks_per_node=4, every_rank=True))
    assert not any("grids of up to" in note for note in every.notes)


def test_a_smaller_grid_has_the_ranks_of_the_large_one(study: Study) -> None:
    """Each has what the rank that it stands for sends and computes."""
    model = load_model(study.root)
    few = fewer(model, LARGE, 4)
    assert isinstance(few, Fewer) and few.n < LARGE / 4
    _, rows = rows_of(few)
    from p3s.model.evaluate import generate

    there = generate(model, LARGE, few.stands_for)
    assert len(there.rank) == len(rows.rank)
    assert (few.stands_for[rows.rank] == there.rank).all()
    for name in ("item", "slot", "nbytes", "repeat"):
        assert (getattr(rows, name) == getattr(there, name)).all()
    assert rows.work == pytest.approx(there.work)


@pytest.mark.parametrize(("few", "many"), [(6, 6), (6, 7), (8, 100), (9, 1024), (16, 17)])
def test_places_keep_their_distance_from_the_ends(few: int, many: int) -> None:
    outer, inner = outer_places(few, many), inner_places(few, many)
    assert outer[0] == 0 and outer[-1] == many - 1
    assert (np.diff(outer) > 0).all()
    assert inner[0] == 0 and inner[-1] == few - 1
    assert set(inner.tolist()) <= set(range(few))
    assert (
        np.minimum(inner, few - 1 - inner)
        <= np.minimum(np.arange(many), many - 1 - np.arange(many))
    ).all()
