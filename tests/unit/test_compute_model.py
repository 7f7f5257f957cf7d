"""Costs of computation from a study's runs, shared and not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import timed_study as ts
from compute_by_hand import compute_model

from p3s.base.errors import P3SError
from p3s.base.serialise import to_data
from p3s.base.study import Study, read_json, write_json
from p3s.costs.fit import fit
from p3s.costs.gather import (
    by_count,
    factors_at,
    measured_at,
    own_points,
    shared_work,
    small_places,
    x_scale,
)
from p3s.costs.points import Point, iterations, pool_points, thin_points
from p3s.costs.types import COMPUTE, ComputeModel, load
from p3s.model.stage import load as load_model
from p3s.pipeline.costing import build_compute as build
from p3s.predict.times import computation, read_head
from p3s.program.generate import write_scaled
from p3s.program.scaled import read_scaled
from p3s.program.types import ScaledHead
from p3s.report.compute import remarks
from p3s.signature.store import load_table

CELLS = 1 << 22
ITERS = 10


_MADE: dict[tuple[str, int], ComputeModel] = {}


def put_compute(study: Study, found: list[Any], far: list[Point] | None = None) -> ComputeModel:
    """Write compute.json from measured times that no file holds."""
    key = str(study.root), len(far or [])
    if key not in _MADE:
        _MADE[key] = fit(load_model(study.root), found, far or [])
    write_json(study.compute_path, COMPUTE.data(_MADE[key]))
    return _MADE[key]


def spent(table: Any, cells: int = CELLS, grows: float = 0.0) -> np.ndarray:
    """Return the ns of every segment: its instructions at the cost of the rank's working set."""
    x = ts.x_of(cells, table.np, grows)
    return table.segments[:, 4] * ts.cache_step(x)


def truth(n: int, cells: int = CELLS, grows: float = 0.0) -> float:
    """Return the ns of the sweeps of all ranks at ``n``."""
    x = ts.x_of(cells, n, grows)
    return float(n * ITERS * x * ts.cache_step(x))


def main_phase(head: ScaledHead) -> dict[str, Any]:
    """Return the phase of a scaled trace that computes most, as scaled.json has it."""
    phase: dict[str, Any] = max(to_data(head)["phases"], key=lambda p: p["compute_ns"])
    return phase


def make(root: Path, grows: float) -> tuple[Study, list[Any], float]:
    """Return a study in instructions, its measured times, and how its total grows."""
    study, tables = ts.put_study(root, ts.sweeps(CELLS, ITERS, grows), (4, 8, 16, 32, 64))
    model = load_model(study.root)
    found = [measured_at(model, ts.times_of(t, spent(t, grows=grows), noise=0.01)) for t in tables]
    return study, found, grows


@pytest.fixture(scope="module")
def timed(tmp_path_factory: Any) -> tuple[Study, list[Any], float]:
    return make(tmp_path_factory.mktemp("s") / "study", 0.0)


@pytest.fixture(scope="module")
def growing(tmp_path_factory: Any) -> tuple[Study, list[Any], float]:
    return make(tmp_path_factory.mktemp("s") / "study", 0.002)


def test_runs_with_cores_of_their_own_tell_how_computation_varies(
    timed: tuple[Study, list[Any], float],
) -> None:
    """Ranks that shared cores vary more than they do on a cluster."""
    study, quiet, _ = timed
    model = load_model(study.root)
    tables = [load_table(study.root, m.n) for m in quiet[1:]]
    rng = np.random.default_rng(1)
    shared = [
        measured_at(model, ts.times_of(t, spent(t) * rng.uniform(0.6, 1.4, len(t.segments))))
        for t in tables
    ]
    k = int(np.argmax(quiet[0].per_phase(quiet[0].least).sum(axis=1)))

    def width(own_cores: bool) -> float:
        found = [replace(quiet[0], own_cores=own_cores), *shared]
        made = fit(model, found, []).phases[k].spread.ranks
        low, high = made.quantile(np.array([0.05, 0.95]))
        return float(high - low)

    assert width(own_cores=True) < 0.5 * width(own_cores=False)


@pytest.mark.parametrize("name", ["timed", "growing"])
def test_a_cost_that_falls_with_the_working_set_gives_the_time_at_n(
    name: str, request: Any
) -> None:
    """The step lies between the traced counts; beyond them the cost is that of the cache."""
    study, found, grows = request.getfixturevalue(name)
    put_compute(study, found)
    for n in (32, 128, 512):
        head = write_scaled(study.root, n)
        phase = main_phase(head)
        expected = truth(n, grows=grows)
        assert phase["compute_ns"] == pytest.approx(expected, rel=0.05)
        assert (
            phase["compute_low"] * phase["compute_ns"]
            <= expected
            <= phase["compute_high"] * phase["compute_ns"]
        )
        assert (phase["outside"] < 1.001) == (n == 32)
        table = pq.read_table(sorted(study.scaled_dir(n).glob("part-*.parquet")))
        once, repeat = table["compute_ns"].to_numpy(), table["repeat"].to_numpy()
        mine = table["phase"].to_numpy() == phase["phase"]
        assert (once * repeat)[mine].sum() == pytest.approx(phase["compute_ns"])
        times = computation(study.scaled_dir(n))
        slots = {p["phase"]: k for k, p in enumerate(times.phases)}
        assert times.compute.sum(axis=0)[slots[phase["phase"]]] == pytest.approx(
            phase["compute_ns"] / 1e9
        )
    # the power law of the thesis does not know of the step
    one = phase["crm_i_ns"] * 512
    assert abs(one - truth(512, grows=grows)) > 0.2 * truth(512, grows=grows)


def test_what_is_outside_of_the_measured_work_is_said_and_less_sure(timed: Any) -> None:
    study, found, grows = timed
    put_compute(study, found)
    inside, beyond = (main_phase(write_scaled(study.root, n)) for n in (32, 512))
    assert beyond["outside"] == pytest.approx(
        ts.x_of(CELLS, 64, grows) / ts.x_of(CELLS, 512, grows), rel=0.02
    )
    assert beyond["below"] and beyond["x"][1] < beyond["covered"][0]
    assert (
        beyond["compute_high"] - beyond["compute_low"]
        > inside["compute_high"] - inside["compute_low"]
    )


def test_runs_of_a_smaller_workload_tell_the_cost_beyond_the_counts(tmp_path: Path) -> None:
    """Own runs at 4 to 16 never fit the cache; far runs at the work of 64 and 256 do."""
    study, tables = ts.put_study(tmp_path / "study", ts.sweeps(CELLS, ITERS), (4, 8, 16))
    model = load_model(study.root)
    found = [
        measured_at(
            model, ts.times_of(t, t.segments[:, 4] * ts.cache_step(ts.x_of(CELLS, t.np), where=8e6))
        )
        for t in tables
    ]
    far = []
    for n, traced in ((64.0, 4), (256.0, 8)):
        x = ts.x_of(CELLS, int(n))
        for p in own_points(found[0]):
            work = p.work * x / p.x
            ns = float(work * ts.cache_step(x, where=8e6))
            far.append(Point(p.place, p.phase, n, work, x, ns, ns, traced, 1, "far/small", traced))
    expected = 64 * ITERS * ts.x_of(CELLS, 64) * ts.cache_step(ts.x_of(CELLS, 64), where=8e6)
    put_compute(study, found)
    without = main_phase(write_scaled(study.root, 64))
    made = put_compute(study, found, far)
    with_far = main_phase(write_scaled(study.root, 64))
    assert without["outside"] > 3 and with_far["outside"] == pytest.approx(1.0, abs=0.01)
    assert with_far["compute_ns"] == pytest.approx(expected, rel=0.03)
    assert abs(with_far["compute_ns"] - expected) < abs(without["compute_ns"] - expected)
    phase = next(p for p in made.phases if p.phase == with_far["phase"])
    assert phase.far is not None and phase.far.source == "far/small" and phase.crm_c is not None
    assert phase.n == (4.0, 256.0)
    assert with_far["crm_c_ns"] != with_far["crm_i_ns"] and without["crm_c_ns"] is None


def test_a_study_in_cpu_time_has_costs_around_one(tmp_path: Path) -> None:
    """Work is time there: the cost corrects the law of the work, it does not count it twice."""

    def program(rec: Any) -> None:
        x = ts.x_of(CELLS, rec.n)
        cost = float(ts.cache_step(x))
        rng = np.random.default_rng(rec.n * 100 + rec.rank)
        rec("Bcast", nbytes=16, root=0, work=5000)
        for _ in range(ITERS):
            rec.exchange(
                "Sendrecv",
                (rec.rank + 1) % rec.n,
                (rec.rank - 1) % rec.n,
                4096,
                work=x * cost * (1 + 0.01 * rng.random()),
                rest=0,
            )
        rec("Reduce", nbytes=8, root=0, work=700)

    study, tables = ts.put_study(tmp_path / "study", program, (4, 8, 16, 32, 64), "cpu_ns")
    model = load_model(study.root)
    found = [
        measured_at(model, ts.times_of(t, t.segments[:, 4].astype(float), noise=0.01))
        for t in tables
    ]
    made = put_compute(study, found)
    law = next(e.law for e in made.laws if e.kind == "phase" and e.share > 0.5)
    x = ts.x_of(CELLS, 16) * float(ts.cache_step(ts.x_of(CELLS, 16)))
    assert 0.5 < float(law.typical(x)) < 2.0
    for n in (16, 64):
        phase = main_phase(write_scaled(study.root, n))
        assert phase["compute_ns"] == pytest.approx(truth(n), rel=0.05)
        # the law of the work is off by a quarter, which its cost knows
        assert phase["work_rel_half_width"] > 0.2 > phase["compute_high"] - 1
        assert phase["compute_low"] <= truth(n) / phase["compute_ns"] <= phase["compute_high"]
    far_out = main_phase(write_scaled(study.root, 1024))
    assert far_out["compute_low"] <= truth(1024) / far_out["compute_ns"] <= far_out["compute_high"]
    assert far_out["compute_high"] - far_out["compute_low"] > 3 * (
        phase["compute_high"] - phase["compute_low"]
    )


def test_small_places_are_pooled_and_nothing_is_lost(timed: Any) -> None:
    study, found, _ = timed
    small = small_places(found)
    ops = {op for _, op in small}
    assert {"MPI_Bcast", "MPI_Reduce"} <= ops and not ops & {"MPI_Sendrecv", "MPI_Allreduce"}
    points = own_points(found[0])
    together = pool_points(points, dict.fromkeys(small, ("", "small")))
    for name in ("work", "least_ns", "typical_ns"):
        assert sum(getattr(p, name) * p.ranks for p in together) == pytest.approx(
            sum(getattr(p, name) * p.ranks for p in points)
        )
    assert len([p for p in together if p.place == ("", "small")]) == 1
    # what was measured is all there but MPI_Init
    run = found[0]
    assert sum(p.typical_ns * p.ranks for p in points) == pytest.approx(float(run.typical.sum()))
    kept = put_compute(study, found).laws
    assert [e.kind for e in kept].count("phase") == 2
    assert sum(e.share for e in kept if e.kind == "phase") == pytest.approx(1.0)


def test_ranks_with_different_work_are_points_of_their_own() -> None:
    """A place on few ranks of a group counts in the pool with their share of them."""
    points = [
        Point(("a", "MPI_Send"), 0, 4.0, 100.0, 10.0, 50.0, 60.0, 4, 3, "own", 4),
        Point(("b", "MPI_Recv"), 0, 4.0, 40.0, 10.0, 8.0, 8.0, 1, 3, "own", 4),
        Point(("a", "MPI_Send"), 0, 4.0, 70.0, 7.0, 35.0, 36.0, 2, 3, "own", 4),
    ]
    one, other = pool_points(points, {("a", "MPI_Send"): ("", "x"), ("b", "MPI_Recv"): ("", "x")})
    assert (one.work, one.least_ns, one.typical_ns, one.ranks) == (110.0, 52.0, 62.0, 4)
    assert (other.work, other.x, other.ranks) == (70.0, 7.0, 2)


def test_where_every_rank_has_work_of_its_own_groups_are_few() -> None:
    points = [
        Point((place, "MPI_Send"), 0, 4.0, 100.0 * r, 10.0 * r, 50.0 * r, 60.0 * r, 1, 3, source, 4)
        for r in range(1, 101)
        for place in "ab"
        for source in ("own", "x")
    ]
    few = thin_points(points)
    assert len({p.x for p in few}) == 6 and len(few) == 24
    for name in ("work", "least_ns", "typical_ns"):
        for place in "ab":
            assert sum(
                getattr(p, name) * p.ranks for p in few if p.place[0] == place
            ) == pytest.approx(sum(getattr(p, name) for p in points if p.place[0] == place))
    assert sum(p.x * p.ranks for p in few) == pytest.approx(sum(p.x for p in points))
    assert sorted(thin_points(points[:8]), key=repr) == sorted(points[:8], key=repr)


def test_where_work_is_time_x_goes_with_the_count(timed: Any) -> None:
    """Time has constants in it: x of a rank does not; turns are those of the run as before."""
    study, found, _ = timed
    points = own_points(found[0])
    k = max(points, key=lambda p: p.work).phase
    far = [
        Point(p.place, p.phase, n, p.work, p.x / 7, p.least_ns, p.least_ns, 4, 1, "far/a", traced)
        for p in points
        if p.phase == k
        for n, traced in ((100.0, 2), (None, 4))
    ]
    weight = iterations([*points, *far])
    assert weight[k, "own", 4] == pytest.approx(ITERS)
    assert weight[k, "far/a", 2] == pytest.approx(7 * ITERS)
    scale = x_scale(load_model(study.root), [8, 4])
    assert scale[k] == pytest.approx(4 * found[0].x[k].mean(), rel=1e-6)
    own, kept = by_count(found, far, scale)
    assert {p.traced for p in kept} == {2}
    assert kept[0].x == pytest.approx(scale[k] / 100.0)
    assert own[0].x[k] == pytest.approx(found[0].x[k], rel=1e-6)
    for m in own:
        assert m.x[k] * m.n == pytest.approx(scale[k])


def test_held_out_the_largest_count_is_predicted_from_the_others(timed: Any) -> None:
    study, found, _ = timed
    held = put_compute(study, found).holdout
    assert held is not None and held.n == 64 and held.mean_abs_error is not None
    assert 0 < held.mean_abs_error < 0.25 and held.each[0].share > 0.9
    fewer = fit(load_model(study.root), found[:2], [])
    assert fewer.holdout is None


def test_some_ranks_cost_the_same_as_in_the_whole_trace(timed: Any) -> None:
    study, found, _ = timed
    put_compute(study, found)
    write_scaled(study.root, 128)
    write_scaled(study.root, 128, [3, 77])
    whole = pq.read_table(sorted(study.scaled_dir(128).glob("part-*.parquet"))).to_pylist()
    some = pq.read_table(
        sorted(study.scaled_dir(128).with_name("np000128.ranks").glob("part-*.parquet"))
    ).to_pylist()
    assert some and [r["compute_ns"] for r in some] == pytest.approx(
        [r["compute_ns"] for r in whole if r["rank"] in (3, 77)]
    )


def test_without_times_everything_is_as_before(tmp_path: Path) -> None:
    study, _ = ts.put_study(tmp_path / "study", ts.sweeps(CELLS, 3), (4, 8, 16))
    assert build(study.root) is None and load(study.root) is None
    head = write_scaled(study.root, 32)
    assert head.phases[0].compute_ns is None
    table = pq.read_table(sorted(study.scaled_dir(32).glob("part-*.parquet")))
    assert "compute_ns" not in table.column_names
    assert read_scaled(study.scaled_dir(32)).work.sum() == pytest.approx(
        table["work"].to_numpy().sum()
    )
    with pytest.raises(P3SError, match="instructions.*-n [0-9,]+ --work cpu") as caught:
        read_head(study.scaled_dir(32), 32)
    assert "\n" not in str(caught.value)


def test_points_of_other_studies_are_enough(timed: Any, tmp_path: Path) -> None:
    """A study without runs of its own gets its laws from points; the work is its model's."""
    study, found, _ = timed
    other, _ = ts.put_study(tmp_path / "study", ts.sweeps(CELLS // 2, ITERS), (4, 8, 16))
    points = [p._replace(source="at/size") for m in found for p in own_points(m)]
    made = build(other.root, points)
    assert made is not None and made.counts == () and made.holdout is None
    again = load(other.root)
    assert again is not None and COMPUTE.data(again) == COMPUTE.data(made)
    phase = main_phase(write_scaled(other.root, 16))
    assert phase["compute_ns"] == pytest.approx(truth(16, CELLS // 2), rel=0.05)
    assert phase["outside"] == 1.0 and phase["crm_i_ns"] is None


def test_replay_computes_for_the_time_and_not_for_the_work(timed: Any) -> None:
    study, found, _ = timed
    put_compute(study, found)
    write_scaled(study.root, 32)
    table = pq.read_table(sorted(study.scaled_dir(32).glob("part-*.parquet")))
    trace = read_scaled(study.scaled_dir(32))
    assert trace.work.sum() == pytest.approx(table["compute_ns"].to_numpy().sum())
    assert trace.work.sum() < 0.6 * table["work"].to_numpy().sum()


def test_ends_of_intervals_are_of_work_and_cost_together(timed: Any) -> None:
    """Half widths of work and of cost add in quadrature; ranks share their laws and add up."""
    from p3s.costs.apply import Costs
    from p3s.model.evaluate import generate
    from p3s.model.work.workload import rank_work

    study, found, _ = timed
    made = put_compute(study, found)
    model = load_model(study.root)
    rows = generate(model, 128)
    work = rank_work(
        model, rows.grid, {c: getattr(rows, c) for c in ("rank", "item", "nbytes", "repeat")}
    )
    timed_ = Costs(made, model).of(rows.grid, work)
    phase = main_phase(write_scaled(study.root, 128))
    k = phase["phase"]
    mine = timed_.phase == k
    ns = timed_.ns[mine].sum()
    of_work = timed_.work_ns[k].sum() / ns
    assert of_work == pytest.approx(work.half_width[k].sum() / work.per_phase()[k].sum(), rel=0.1)
    assert phase["work_error"] == pytest.approx(of_work)
    most = np.sqrt(of_work**2 + (timed_.cost_high[mine].sum() / ns) ** 2)
    assert of_work <= phase["compute_high"] - 1 <= most * 1.01


def test_head_keeps_what_it_said(timed: Any) -> None:
    """A trace is read back with the same intervals."""
    study, found, _ = timed
    put_compute(study, found)
    head = write_scaled(study.root, 64)
    again = read_json(study.scaled_path(64), "p3s.scaled")
    assert again["phases"] == to_data(head.phases)
    assert read_head(study.scaled_dir(64), 64)["work_unit"] == "instructions"


def test_time_without_a_partner_in_the_signature_is_said() -> None:
    model = compute_model("cpu_ns", unmatched={"4": 0.0, "16": 0.02})
    assert remarks(model) == [
        "at 16 processes 2.0 % of the time is in calls that the signature does not have "
        "equally often"
    ]


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
