"""Mean laws by level, and profiles of ranks: what one class of ranks does is as its laws say."""

from __future__ import annotations

from types import SimpleNamespace

import corpus
import numpy as np
import pytest

from p3s.base.extents import dims_balanced
from p3s.model.evaluate import generate
from p3s.model.fit import fit_model
from p3s.model.grid.at import standing_for_all
from p3s.model.grid.grids import ListedGrid
from p3s.model.work.balance import (
    Spent,
    fit_profile,
    largest_at,
    largest_half_width,
    ratios,
    same_order,
)
from p3s.model.work.levels import PhasePoints, fit_level
from p3s.model.work.means import fit_mean, mean_at, spread_at
from p3s.model.work.workload import of_segments, rank_work
from p3s.model.work_types import Profile

TRACED = (4, 8, 16, 32)


def swept(rec):
    """A backward sweep over 64 x 64 cells; ranks at the border have no cells on it.

    Ranks inside the border of an extent of two exist at no count, those inside the border of the
    other one at 16 and 32, where one extent is 4 both times.
    """
    p0, p1 = dims_balanced(rec.n, 2)
    c0, c1 = divmod(rec.rank, p1)
    bx, by = 64 // p0, 64 // p1
    inner = (bx - (c0 == 0) - (c0 == p0 - 1)) * (by - (c1 == 0) - (c1 == p1 - 1))
    rng = np.random.default_rng(1000 * rec.n + rec.rank)
    work = int(140000 * inner * (1 + 0.01 * rng.standard_normal()))
    before = 900
    for _ in range(4):
        for there, peer, size in (
            (c1 < p1 - 1, rec.rank + 1, bx),
            (c0 < p0 - 1, rec.rank + p1, by),
        ):
            if there:
                rec(
                    "Recv", site=f"r{peer - rec.rank == 1}", peer=peer, nbytes=8 * size, work=before
                )
                before = 60
        before = work + before
        for there, peer, size in ((c1 > 0, rec.rank - 1, bx), (c0 > 0, rec.rank - p1, by)):
            if there:
                rec(
                    "Send", site=f"s{rec.rank - peer == 1}", peer=peer, nbytes=8 * size, work=before
                )
                before = 60
    rec("Finalize", work=before)


def totals(model, n):
    """Return the work of every rank by the model."""
    rows = generate(model, n)
    columns = {c: getattr(rows, c) for c in ("rank", "item", "nbytes", "repeat")}
    return rank_work(model, rows.grid, columns).per_phase().sum(axis=0)


def truth(n):
    """Return the work of every rank of the sweep."""
    table = corpus.table(swept, n)
    return np.bincount(table.rank, weights=table.work, minlength=n)


@pytest.fixture(scope="module")
def sweep():
    return fit_model([corpus.table(swept, n) for n in TRACED])


@pytest.mark.parametrize("n", (64, 128, 256))
def test_no_class_of_ranks_at_the_border_keeps_all_others_waiting(sweep, n) -> None:
    said, true = totals(sweep, n), truth(n)
    assert said.mean() == pytest.approx(true.mean(), rel=0.06)
    assert said.max() == pytest.approx(true.max(), rel=0.08)


def test_parts_of_the_ranks_have_the_work_that_they_have_among_all(sweep) -> None:
    from p3s.model.evaluate import Evaluator

    every = totals(sweep, 64)
    rows = Evaluator(sweep, 64).rows(np.arange(16, 32))
    columns = {c: getattr(rows, c) for c in ("rank", "item", "nbytes", "repeat")}
    some = rank_work(sweep, rows.grid, columns, means=rows.means)
    assert some.per_phase().sum(axis=0) == pytest.approx(every[16:32], rel=1e-9)


def rooted(rec: corpus.Recorder) -> None:
    """A root that reads before the loop while all others wait."""
    rec("Bcast", root=0, nbytes=8, work=40_000 + 500 * rec.n if rec.rank == 0 else 30)
    for _ in range(5):
        rec("Allreduce", nbytes=8, work=900_000 // rec.n)


@pytest.mark.parametrize("n", (512, 4096))
def test_the_mean_of_all_ranks_holds_a_root_once(n) -> None:
    from p3s.model.evaluate import Evaluator

    model = fit_model([corpus.table(rooted, m) for m in TRACED])
    evaluator = Evaluator(model, n)
    columns = {c: getattr(evaluator.rows(), c) for c in ("rank", "item", "nbytes", "repeat")}
    said = of_segments(model, evaluator.grid, columns).per_phase()
    assert said[0, 0] > 50 * said[0, 1:].max()
    assert evaluator.means == pytest.approx(said.sum(axis=1) / (said > 0).sum(axis=1), rel=1e-9)


def merged(rec: corpus.Recorder) -> None:
    """Blocks are sorted; the root merges them, which takes the longer the more there are."""
    rng = np.random.default_rng(1000 * rec.n + rec.rank)
    varies = 1 + 0.01 * rng.standard_normal()
    rec("Gather", root=0, nbytes=8 * 4096 // rec.n, work=int(9e6 / rec.n * varies))
    rec("Scatter", root=0, nbytes=64, work=int(200_000 * rec.n * varies) if rec.rank == 0 else 30)


def test_a_root_whose_part_of_the_work_grows_with_the_count_keeps_all_others_waiting() -> None:
    model = fit_model([corpus.table(merged, n) for n in TRACED])
    for n in (64, 128, 256):
        table = corpus.table(merged, n)
        true = np.bincount(table.rank, weights=table.work, minlength=n)
        assert totals(model, n).max() == pytest.approx(true.max(), rel=0.1)


def collected(rec: corpus.Recorder) -> None:
    """The root receives a block of each rank, the first one after its own work."""
    each = 4096 // rec.n
    if rec.rank:
        rec("Send", peer=0, nbytes=8 * each, work=1000 * each)
    else:
        before = 700_000
        for peer in range(1, rec.n):
            rec("Recv", peer=peer, nbytes=8 * each, work=before)
            before = 60 * each
    rec("Barrier", work=60 * each if rec.rank == 0 else 30)


def test_stages_of_a_walk_have_the_work_of_the_segments_before_them() -> None:
    from p3s.model.evaluate import Evaluator

    model = fit_model([corpus.table(collected, n) for n in TRACED])
    rows = Evaluator(model, 256).rows()
    received = [k for k, item in enumerate(model.items) if item.op == "MPI_Recv"]
    mine = (rows.rank == 0) & np.isin(rows.item, received)
    before = rows.work[mine][np.argsort(rows.stage[mine])]
    assert before[0] == pytest.approx(700_000, rel=0.01)
    assert before[1:] == pytest.approx(60 * 16, rel=0.01)


@pytest.mark.parametrize("dims", [(5000,), (64, 90), (30, 12, 40), (3, 700)])
def test_some_ranks_stand_for_all_and_those_at_the_ends_for_themselves(dims) -> None:
    n = int(np.prod(dims))
    grid = grid_of(n, *dims)
    ranks, weight = standing_for_all(grid, 1024)
    assert len(ranks) <= 1024 and (np.diff(ranks) > 0).all()
    assert weight.sum() == pytest.approx(n)
    assert weight[0] == 1 and ranks[0] == 0 and ranks[-1] == n - 1
    places = grid.coords[:, ranks].sum(axis=0)
    assert weight @ places / n == pytest.approx(grid.coords.sum(axis=0).mean(), rel=0.1)
    every, ones = standing_for_all(grid, n)
    assert (every == np.arange(n)).all() and (ones == 1).all()


def grid_of(n: int, *dims: int):
    return ListedGrid(len(dims), listed=((n, dims),)).at(n)


def spent(n: int, ratio: np.ndarray, *dims: int) -> Spent:
    """Return what ranks spent at a count of whose segments nothing is known."""
    work = 1e9 / n * ratio
    return Spent(grid_of(n, *dims), work, np.zeros(n), np.full(n, np.nan), np.ones(n, dtype=bool))


def test_ranks_that_hardly_differ_are_alike() -> None:
    rng = np.random.default_rng(1)
    points = [spent(n, 1 + 0.004 * rng.standard_normal(n), n) for n in TRACED]
    assert fit_profile(points).kind == "even"


def test_ranks_that_differ_without_a_rule_are_drawn() -> None:
    def ratio(n: int) -> np.ndarray:  # the busiest does more and more
        out = 1.0 + 0.002 * np.random.default_rng(n).standard_normal(n)
        out[n // 3] = 1.0 + 0.005 * n
        return out / out.mean()

    points = [spent(n, ratio(n), n) for n in (4, 8, 16, 32)]
    profile = fit_profile(points)
    assert profile.kind == "drawn"
    for n in (32, 64, 128):
        told = ratios(profile, np.ones(n), grid_of(n, n), np.arange(n))
        assert told.mean() == pytest.approx(1.0)
        assert told.max() - 1.0 == pytest.approx(0.005 * n, rel=0.2)
    assert largest_half_width(profile, 32) == 0.0 < largest_half_width(profile, 64)


def test_what_smaller_counts_do_not_tell_is_not_drawn() -> None:
    points = [
        spent(n, np.where(np.arange(n) == 1, 1.0 + e, 1.0), n)
        for n, e in ((4, 0.5), (8, 0.02), (16, 0.6), (32, 0.03))
    ]
    assert fit_profile(points).kind == "even"


def test_phases_with_the_same_busy_ranks_have_one_order() -> None:
    rng = np.random.default_rng(4)
    own, other = (1.0 + 0.05 * rng.standard_normal(32) for _ in range(2))
    last = [spent(32, ratio, 32) for ratio in (own, other, own**2)]
    drawn = Profile("drawn", 0.1, (1.0,), ((8, 0.1), (32, 0.1)))
    orders = [p.order for p in same_order([drawn] * 3, last)]
    assert orders[0] == orders[2] != orders[1]


def test_work_that_is_denser_on_one_side_follows_the_position() -> None:
    def ratio(px: int, py: int) -> np.ndarray:
        edges = np.exp(-3.0 * np.arange(px + 1) / px)
        share = -np.diff(edges) / (1.0 - edges[-1]) * px
        return np.repeat(share, py)

    points = [spent(x * y, ratio(x, y), x, y) for x, y in ((2, 2), (4, 2), (4, 4), (8, 4))]
    profile = fit_profile(points)
    assert profile.kind == "position"
    told = ratios(profile, np.ones(256), grid_of(256, 16, 16), np.arange(256))
    assert told == pytest.approx(ratio(16, 16), rel=0.05)


def test_what_belongs_to_the_number_of_a_rank_stays_with_it() -> None:
    own = 1.0 + 0.3 * np.random.default_rng(2).gumbel(size=256)
    own = np.maximum(own, 0.1)
    points = [spent(n, own[:n] / own[:n].mean(), n) for n in (8, 16, 32, 64)]
    profile = fit_profile(points)
    assert profile.kind == "rank"
    told = ratios(profile, np.ones(256), grid_of(256, 256), np.arange(256))
    assert told[:64] / told[0] == pytest.approx(own[:64] / own[0], rel=0.02)
    assert told.mean() == pytest.approx(1.0)
    assert told.max() == pytest.approx(own.max() / own.mean(), rel=0.25)


def test_the_busiest_of_equal_ranks_is_the_largest_of_so_many_draws() -> None:
    """Noise seems to grow with the count, as more ranks are drawn: no power of n is made of it."""
    rng = np.random.default_rng(3)
    for counts in ((2, 4, 8), (2, 4, 8, 16), (4, 8, 16, 32)):
        noise = 0.1 * rng.standard_normal((400, counts[-1]))
        told = [largest_at([(n, float(e[:n].max())) for n in counts], 1024) for e in noise]
        assert np.median(told) == pytest.approx(0.1 * 3.24, rel=0.2)  # of 1,024 draws


def test_the_busiest_rank_grows_with_a_power_of_the_count_where_the_counts_show_it() -> None:
    grows = [(n, 0.005 * n) for n in (4, 8, 16, 32, 64)]
    assert largest_at(grows, 256) == pytest.approx(0.005 * 256, rel=0.15)
    assert largest_at([(n, 0.001 * n**2) for n in (4, 8, 16, 32)], 64) == pytest.approx(2.048)
    assert largest_at([(8, 0.3)], 8) == 0.3
    assert 0.3 < largest_at([(8, 0.3)], 64) < 0.6
    assert largest_at([], 64) == 0.0


def test_layers_at_the_border_are_in_proportion_to_the_extent() -> None:
    def ratio(p: int) -> np.ndarray:
        at = np.arange(p)
        length = 96 // p - (at == 0) - (at == p - 1)
        cells = np.outer(length, length).ravel()
        return cells / cells.mean()

    points = [spent(p * p, ratio(p), p, p) for p in (2, 3, 4, 6)]
    profile = fit_profile(points)
    assert profile.kind == "faces"


def scalars(n: int) -> dict[str, int]:
    p0, p1 = dims_balanced(n, 2)
    return {"n": n, "p0": p0, "p1": p1}


def test_a_mean_of_two_terms_is_met_further_on() -> None:
    grids = [scalars(n) for n in TRACED]
    law = fit_mean(grids, [8e6 / g["n"] + 3e5 / g["p0"] for g in grids])
    assert law is not None and law.error is not None
    at = scalars(256)
    assert mean_at(law, at) == pytest.approx(8e6 / 256 + 3e5 / 16, rel=0.02)


def test_noise_leaves_several_laws_and_they_are_averaged() -> None:
    rng = np.random.default_rng(4)
    grids = [scalars(n) for n in TRACED]
    laws = [
        fit_mean(grids, [(8e6 / g["n"] + 2e4) * (1 + 0.02 * rng.standard_normal()) for g in grids])
        for _ in range(40)
    ]
    assert np.median([len(law.laws) for law in laws if law]) > 1
    assert any(spread_at(law, scalars(256)) > 0.02 for law in laws if law)


def points_of(*phases: list[float]) -> list[PhasePoints]:
    return [PhasePoints(p, [1] * len(p), [1.0] * len(p), p, None, 0.0) for p in phases]


def test_where_work_moves_between_phases_the_program_has_the_law() -> None:
    moved = [1.3, 0.6, 1.7, 0.9]
    first = [1e6 / n * m for n, m in zip(TRACED, moved, strict=True)]
    second = [2e6 / n - f for n, f in zip(TRACED, first, strict=True)]
    level = fit_level([{"n": n} for n in TRACED], points_of(first, second))
    assert level.errors["total"] < level.errors["phases"]
    assert level.total is not None
    assert mean_at(level.total, {"n": 256}) == pytest.approx(2e6 / 256)


def test_laws_of_segments_that_miss_no_rank_are_left_alone() -> None:
    points = [
        PhasePoints(p.means, p.weights, p.shares, p.means, p.means[-1], 0.0)
        for p in points_of([1e6 / n + 1e4 * np.sqrt(n) for n in TRACED])
    ]
    level = fit_level([{"n": n} for n in TRACED], points)
    assert dict(level.weights) == {"segments": 1.0}
    assert SimpleNamespace(**level.errors).segments == pytest.approx(0.0, abs=1e-9)
