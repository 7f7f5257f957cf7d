"""Counts too large to simulate every rank: smaller grids of the same form stand for them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import timed_study as ts
from corpus import Recorder, block
from scipy.optimize import nnls
from test_estimators import machine_file

from p3s.base.errors import P3SError, UsageError
from p3s.base.settings import traces_of
from p3s.base.study import Study
from p3s.costs import apply as of_table
from p3s.costs.apply import Costs
from p3s.costs.types import load as load_compute
from p3s.model import evaluate as of_evaluate
from p3s.model.evaluate import Amounts, generate
from p3s.model.stage import load as load_model
from p3s.pipeline.costing import build_compute
from p3s.pipeline.prediction import Request, check_request
from p3s.predict.estimators import Setting, check, estimate
from p3s.predict.estimators import fewer as of_fewer
from p3s.predict.estimators.machine import grids_of
from p3s.predict.estimators.messages import measured_messages
from p3s.predict.rows import row_of
from p3s.predict.times import computation, with_communication
from p3s.predict.what_if import simulated
from p3s.predict.what_if.changes import read_changes
from p3s.predict.what_if.simulated import Simulation, check_answerable, costs_of
from p3s.program import generate as of_generate
from p3s.program import types as of_types
from p3s.program.fewer import Fewer, fewer, inner_places, means_of, outer_places, trace_of
from p3s.program.generate import write_scaled
from p3s.program.parts import Builder, Laws
from p3s.program.phase_cells import work_of
from p3s.replay.settings import ReplaySettings
from p3s.signature.times import save_times

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


def rooted(rec: Recorder) -> None:
    """A root that reads and deals out before the loop, and writes behind it; others wait for it."""
    root = rec.rank == 0
    rec("Init", work=100)
    rec("Bcast", root=0, nbytes=80_000, work=200_000_000 + 4000 * rec.n if root else 2000)
    for _ in range(8):
        rec("Allgather", nbytes=8 * (200_000 // rec.n), work=90_000_000 // rec.n)
    rec("Reduce", root=0, nbytes=8, work=500)
    rec("Finalize", work=9_000_000 if root else 300)


def served(rec: Recorder) -> None:
    """Neighbours on a square grid, and a root that receives from every other rank, one by one."""
    p, q = _sides(rec.n)
    i, j = divmod(rec.rank, q)
    for _ in range(6):
        for name, di, dj in (("n", -1, 0), ("s", 1, 0), ("w", 0, -1), ("e", 0, 1)):
            if 0 <= i + di < p and 0 <= j + dj < q:
                peer = (i + di) * q + j + dj
                rec("Irecv", site=f"r{name}", peer=peer, nbytes=800)
                rec("Isend", site=f"s{name}", peer=peer, nbytes=800)
        rec("Waitall", work=20_000)
        if rec.rank:
            rec("Send", site="to", peer=0, nbytes=64)
        for peer in range(1, rec.n) if rec.rank == 0 else ():
            rec("Recv", site="from", peer=peer, nbytes=64)


def study_of(root: Path, program: Callable[[Recorder], None]) -> Study:
    study, tables = ts.put_study(root, program, (4, 9, 16, 25), "cpu_ns")
    for table in tables:
        took = table.segments[:, 4].astype(float)
        save_times(ts.times_of(table, took, noise=0.0), study.times_path(table.np))
    machine_file(study.root / "machine.json")
    build_compute(study.root)
    write_scaled(study.root, LARGE)
    return study


@pytest.fixture(scope="module", params=[halo, front], ids=lambda program: program.__name__)
def study(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Study:
    return study_of(tmp_path_factory.mktemp("fewer") / "s", request.param)


def test_smaller_grids_say_what_all_ranks_do(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = Setting(ranks_per_node=4)
    every = estimate("machine", traces_of(study), LARGE, setting=setting)
    monkeypatch.setattr(of_fewer, "EVERY_RANK", 64)
    few = estimate("machine", traces_of(study), LARGE, setting=setting)
    assert any("grids of up to" in note for note in few.notes)
    assert not any("grids of up to" in note for note in every.notes)
    times = computation(study.scaled_dir(LARGE))
    true, told = (with_communication(times, one) for one in (every, few))
    whole = [float((one.own + one.mpi.comm).sum(axis=1).mean()) for one in (true, told)]
    assert whole[1] == pytest.approx(whole[0], rel=0.1)
    mean = float(true.mpi.comm.sum(axis=1).mean())
    low, high = (float(ends.sum(axis=1).mean()) for ends in (told.mpi.low, told.mpi.high))
    assert low <= mean <= high
    assert np.isfinite(told.mpi.comm).all() and (told.mpi.comm >= 0).all()


def test_a_root_is_told_by_its_own_way(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It receives from all ranks, and the others only send: a mean over all hides how it grows."""
    study = study_of(tmp_path / "s", served)
    setting = Setting(ranks_per_node=4)
    every = estimate("machine", traces_of(study), LARGE, setting=setting)
    monkeypatch.setattr(of_fewer, "EVERY_RANK", 64)
    few = estimate("machine", traces_of(study), LARGE, setting=setting)
    times = computation(study.scaled_dir(LARGE))
    true, told = (with_communication(times, one) for one in (every, few))
    assert (true.own + true.mpi.comm).sum(axis=1).argmax() == 0
    assert told.mpi.comm[0].sum() == pytest.approx(true.mpi.comm[0].sum(), rel=0.15)
    rows = [row_of(one, None, {}) for one in (true, told)]
    assert rows[1].time_s == pytest.approx(rows[0].time_s, rel=0.15)
    low, high = rows[1].comm_low_s, rows[1].comm_high_s
    assert low is not None and high is not None and low <= rows[0].comm_s <= high


CHANGES = ("latency / 2", "software / 2", "compute / 2", "balanced", "network=ideal")


def test_smaller_grids_say_what_changes_save(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the same share as a simulation of every rank does."""
    costs = costs_of(traces_of(study), "machine", None, Setting(ranks_per_node=4))
    shares = []
    for most in (LARGE, 64):
        monkeypatch.setattr(of_fewer, "EVERY_RANK", most)
        there = Simulation(traces_of(study), LARGE, costs)
        assert there.all_ranks == (most == LARGE)
        base = there.base.times.run_s
        shares.append([there.changed(read_changes(c)).times.run_s / base for c in CHANGES])
        assert there.share(read_changes("network=ideal")) == pytest.approx(shares[-1][-1])
    assert shares[1] == pytest.approx(shares[0], abs=0.08)
    assert min(shares[0]) < 0.9


def test_where_ranks_are_is_not_asked_of_smaller_grids(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = costs_of(traces_of(study), "machine", None, Setting(ranks_per_node=4))
    moved = [read_changes("placement=cyclic")]
    check_answerable(traces_of(study), moved, [LARGE], costs)
    monkeypatch.setattr(of_fewer, "EVERY_RANK", 64)
    check_answerable(traces_of(study), [read_changes("latency/2")], [LARGE], costs)
    with pytest.raises(UsageError, match="placement=cyclic"):
        check_answerable(traces_of(study), moved, [LARGE], costs)


@pytest.mark.parametrize("text", ["balanced", "compute / 2", "latency/2, phase 1 / 2"])
def test_computation_is_changed_where_all_ranks_have_rows(
    study: Study, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = costs_of(traces_of(study), "machine", None, Setting(ranks_per_node=4))
    check_answerable(traces_of(study), [read_changes(text)], [LARGE], costs)
    monkeypatch.setattr(simulated, "MOST_RANKS", 256)
    check_answerable(traces_of(study), [read_changes("latency/2")], [LARGE], costs)
    with pytest.raises(UsageError, match="computation is changed on all ranks"):
        check_answerable(traces_of(study), [read_changes(text)], [LARGE], costs)


def test_counts_beyond_all_rows_take_no_simulation_of_every_rank(tmp_path: Path) -> None:
    request = Request("auto", "infiniband-hdr", True, ReplaySettings())
    check_request(tmp_path, [of_types.MOST_PREDICTED], request, None, None)
    with pytest.raises(UsageError, match="cannot be predicted"):
        check_request(tmp_path, [of_types.MOST_PREDICTED + 1], request, None, None)
    every = replace(request, cluster=Setting(every_rank=True))
    check_request(tmp_path, [of_types.MOST_RANKS], every, None, None)
    with pytest.raises(UsageError, match="--every-rank"):
        check_request(tmp_path, [of_types.MOST_RANKS + 1], every, None, None)


def test_what_smaller_grids_say_is_checked(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a count at which every rank is simulated as well; what they miss there counts."""
    monkeypatch.setattr(of_fewer, "EVERY_RANK", 64)
    setting = Setting(ranks_per_node=4)
    write_scaled(study.root, 4 * LARGE)
    tried = (found := estimate("machine", traces_of(study), 4 * LARGE, setting=setting)).stand_ins
    assert tried is not None and tried.checked_n == LARGE
    assert tried.checked_missed is not None and abs(tried.checked_missed) < 0.1
    assert any(f"checked at {tried.checked_n:,} processes" in note for note in found.notes)

    messages = measured_messages(traces_of(study), None, setting)
    few = of_fewer.smaller(traces_of(study), 4 * LARGE, messages.cores, setting)
    assert few is not None
    grids = grids_of(messages, traces_of(study), few, setting, lambda _: None)
    grid = grids.grid(0, few)
    assert "program" not in vars(grid)  # it is large, and made anew for who asks
    assert grid.on(messages, setting).size == grid.size and "program" in vars(grid)
    checked = of_fewer.GridCheck(LARGE, -0.5, np.full(len(found.phases), -0.5), 0.0)
    made = grids.simulated(grids.as_predicted, setting)
    wide, _ = of_fewer.taken_to(few, grids.ranks, made, checked=checked)
    assert wide.comm == pytest.approx(found.comm)
    assert wide.low.mean() <= 0.55 * wide.comm.mean() and wide.low.mean() <= found.low.mean()
    assert wide.high.mean() >= 1.45 * wide.comm.mean() and wide.high.mean() >= found.high.mean()
    assert wide.high.mean() - wide.low.mean() > found.high.mean() - found.low.mean()
    assert found.stand_ins is not None and found.stand_ins.most_missed < 0.1
    assert wide.stand_ins is not None and wide.stand_ins.most_missed >= 0.5

    monkeypatch.setattr(check, "STEPS", 0)
    unchecked = estimate("machine", traces_of(study), 4 * LARGE, setting=setting)
    assert unchecked.stand_ins is not None and unchecked.stand_ins.checked_n is None
    assert any("at no count" in note for note in unchecked.notes)


def test_some_ranks_stand_for_more_than_are_written(
    study: Study, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(of_fewer, "EVERY_RANK", 64)
    setting = Setting(ranks_per_node=4)
    every = estimate("machine", traces_of(study), LARGE, setting=setting)
    whole = with_communication(computation(study.scaled_dir(LARGE)), every)
    copy = Study(Path(shutil.copytree(study.root, tmp_path / "some")))
    monkeypatch.setattr(of_generate, "MOST_RANKS", 256)
    for name, value in (("SPREAD", 40), ("SPREAD_RUN", 4)):
        monkeypatch.setattr(of_evaluate, name, value)
    with pytest.raises(P3SError, match="too many rows"):
        write_scaled(copy.root, LARGE)
    head = write_scaled(copy.root, LARGE, spread=True)
    times = computation(copy.scaled_dir(LARGE))
    assert head.ranks is not None and times.ranks is not None
    assert 0 in times.ranks and LARGE - 1 in times.ranks and len(times.ranks) < LARGE / 2
    found = estimate("machine", traces_of(copy), LARGE, setting=setting)
    some = with_communication(times, found)
    assert some.mpi.comm == pytest.approx(whole.mpi.comm[times.ranks])
    assert some.compute == pytest.approx(whole.compute[times.ranks])
    with pytest.raises(P3SError, match="too many to simulate every rank"):
        estimate(
            "machine", traces_of(copy), LARGE, setting=Setting(ranks_per_node=4, every_rank=True)
        )


@pytest.mark.parametrize("program", [halo, rooted], ids=lambda program: program.__name__)
def test_some_ranks_tell_the_mean_work_of_all(
    program: Callable[[Recorder], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A root counts as one among all, not as one among those that are evaluated."""
    study = study_of(tmp_path, program)
    compute = load_compute(study.root)
    assert compute is not None
    costs = Costs(compute, load_model(study.root))
    every, _ = of_table.predicted_sums(costs, 1024)
    for where, name, value in (
        (of_table, "EVERY_RANK", 256),
        (of_evaluate, "SPREAD", 24),
        (of_evaluate, "SPREAD_RUN", 4),
        (of_table, "SPREAD_RUN", 4),
    ):
        monkeypatch.setattr(where, name, value)
    some, _ = of_table.predicted_sums(costs, 1024)
    assert len(of_evaluate.spread_ranks(1024)) < 200
    assert some.ns == pytest.approx(every.ns, rel=0.02)
    assert some.x == pytest.approx(every.x, rel=0.02)
    assert some.ranks == pytest.approx(every.ranks, rel=0.02, abs=1)


def test_coefficients_are_those_of_least_squares_that_are_not_negative() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        table = np.column_stack([np.ones(6), rng.random((6, 3))])
        values = rng.random((6, 2))
        found = of_fewer._least_squares(table, values)
        signed = np.column_stack([-table[:, 0], table])
        for k in range(2):
            best = nnls(signed, values[:, k])[0]
            assert found[:, k] == pytest.approx([best[1] - best[0], *best[2:]], abs=1e-9)


def test_every_rank_can_be_asked_for(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_fewer, "EVERY_RANK", 64)
    every = estimate(
        "machine", traces_of(study), LARGE, setting=Setting(ranks_per_node=4, every_rank=True)
    )
    assert not any("grids of up to" in note for note in every.notes)


def test_a_smaller_grid_has_the_ranks_of_the_large_one(study: Study) -> None:
    """Each has what the rank that it stands for sends and computes."""
    model = load_model(study.root)
    few = fewer(model, LARGE, 4)
    assert isinstance(few, Fewer) and few.n < LARGE / 4
    amounts = Amounts(few.large, few.stands_for, means_of(few))
    rows = Builder(Laws(model), few.n, few.grid, amounts).rows().rows
    there = generate(model, LARGE, few.stands_for)
    assert len(there.rank) == len(rows.rank)
    assert (few.stands_for[rows.rank] == there.rank).all()
    for name in ("item", "slot", "nbytes", "repeat"):
        assert (getattr(rows, name) == getattr(there, name)).all()
    assert rows.work == pytest.approx(there.work)


@pytest.fixture(scope="module")
def of_a_root(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return study_of(tmp_path_factory.mktemp("rooted") / "s", rooted)


def test_each_phase_has_a_way_of_its_own(of_a_root: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    """What all wait once for a root does not hide that a ring in the loop grows with the ranks."""
    setting = Setting(ranks_per_node=4, vary=False)
    every = estimate("machine", traces_of(of_a_root), LARGE, setting=setting)
    monkeypatch.setattr(of_fewer, "EVERY_RANK", 64)
    few = estimate("machine", traces_of(of_a_root), LARGE, setting=setting)
    assert few.stand_ins is not None and "sides" in few.stand_ins.changes_with
    true, told = (one.comm.mean(axis=0) for one in (every, few))
    least, most = np.sort(true[true > 0])
    assert most > 10 * least
    assert told == pytest.approx(true, rel=0.15)


def test_a_root_computes_on_smaller_grids_what_it_does_among_all(of_a_root: Study) -> None:
    """Before a loop and behind it: what others wait for, and what no other rank does."""
    study = of_a_root
    times = computation(study.scaled_dir(LARGE)).compute.sum(axis=1)
    model = load_model(study.root)
    few = fewer(model, LARGE, 4)
    assert isinstance(few, Fewer) and few.weight[0] == 1 and few.stands_for[0] == 0
    trace, _ = trace_of(few, Laws(model, load_compute(study.root)), means_of(few))
    found = work_of(trace, sorted(trace.weights)).sum(axis=1) / 1e9
    assert times[0] > 2 * times[1:].max() > 0
    assert found == pytest.approx(times[few.stands_for], rel=1e-6)
    assert few.weight @ found == pytest.approx(times.sum(), rel=1e-3)


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
