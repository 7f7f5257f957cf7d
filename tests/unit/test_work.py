"""Laws of the work of segments: exact where instructions are, near where there is noise."""

from __future__ import annotations

from itertools import combinations
from types import SimpleNamespace

import corpus
import numpy as np
import pytest

from p3s.base.extents import dims_balanced
from p3s.laws.sums import _sets, search_sums
from p3s.model.evaluate import generate
from p3s.model.fit import fit_model
from p3s.model.work.workload import rank_work

WORK_ROWS = ("rank", "item", "nbytes", "repeat")


@corpus.program
def stencil(rec, nx=97, ny=61, iters=6, noise=0.0):
    """A 2-D halo whose work is that of code: set-up, packing, control, a nest of loops, root."""
    px, py = dims_balanced(rec.n, 2)
    cx, cy = divmod(rec.rank, py)
    lx, ly = corpus.block(nx, px, cx), corpus.block(ny, py, cy)
    grid = rec.comm(tuple(range(rec.n)), 1, (px, py), (False, False))
    rng = np.random.default_rng(rec.n * 1000 + rec.rank)

    def cost(value):
        return value * (1 + noise * rng.standard_normal())

    rec("Cart_create", work=cost(8000))
    before = 31 * lx * ly + 17 * lx + 900
    for _ in range(iters):
        for x, y, size in ((cx - 1, cy, ly), (cx + 1, cy, ly), (cx, cy - 1, lx), (cx, cy + 1, lx)):
            if 0 <= x < px and 0 <= y < py:
                rec.exchange(
                    f"{x - cx}{y - cy}",
                    x * py + y,
                    nbytes=8 * size,
                    comm=grid,
                    work=cost(before + 3 * size),
                    rest=0,
                )
                before = 110
        rec("Allreduce", nbytes=8, comm=grid, work=cost(22 * lx * ly + 9 * lx + 128))
        before = 200
    rec("Reduce", nbytes=8, root=0, work=cost(714 + (2600 if rec.rank == 0 else 0)))


def errors(program, counts, n):
    """Return the relative errors of the work per (phase, rank) with any, and of the total."""
    model = fit_model([corpus.table(program, k) for k in counts])
    t = corpus.table(program, n)
    rows = generate(model, n)
    found = rank_work(model, rows.grid, {c: getattr(rows, c) for c in WORK_ROWS})
    total = found.work.sum(axis=0)
    truth = np.bincount(t.rank, weights=t.work, minlength=n)
    half = np.sqrt((found.half_width**2).sum(axis=0))
    assert np.bincount(rows.rank, weights=rows.work * rows.repeat, minlength=n) == pytest.approx(
        total
    )
    return SimpleNamespace(
        rank=total / truth - 1, total=total.sum() / truth.sum() - 1, half=half / truth, model=model
    )


@pytest.mark.parametrize("n", [36, 48, 64])
def test_instructions_of_every_rank_are_exact(n):
    got = errors(stencil(), (4, 6, 9, 12, 16), n)
    assert np.abs(got.rank).max() < 2e-3
    assert abs(got.total) < 1e-3


def test_noise_of_three_per_cent_leaves_totals_near():
    got = errors(stencil(nx=970, ny=610, noise=0.03), (4, 8, 16, 32), 64)
    assert abs(got.total) < 0.05
    assert 0.0 < np.median(got.half) < 0.3


def test_work_is_never_negative_at_any_count():
    model = errors(stencil(nx=970, ny=610, noise=0.1), (4, 8, 16), 64).model
    for n in (1, 2, 256, 1024):
        rows = generate(model, n)
        assert (rows.work >= 0).all() and np.isfinite(rows.work).all()


def test_a_part_of_the_ranks_has_the_work_it_has_among_all():
    model = errors(stencil(), (4, 6, 9, 16), 64).model
    rows = generate(model, 64)
    columns = {c: getattr(rows, c) for c in WORK_ROWS}
    everyone = rank_work(model, rows.grid, columns)
    mine = np.isin(rows.rank, [3, 40, 41])
    some = rank_work(model, rows.grid, {c: v[mine] for c, v in columns.items()})
    assert some.ranks.tolist() == [3, 40, 41]
    assert some.work == pytest.approx(everyone.work[:, some.ranks])


def test_steps_that_are_not_seen_apart_count_their_first_turns():
    def ring(rec):  # three steps of n - 1 shifts without a call between the steps
        size, own = -(-960 // rec.n), corpus.block(960, rec.n, rec.rank)
        pairs = 32 * own * size + 28 * own
        for step in range(3):
            for shift in range(rec.n - 1):
                rec(
                    "Sendrecv",
                    peer=(rec.rank + 1) % rec.n,
                    nbytes=32 * size,
                    elem=8,
                    work=pairs * (2 if step and not shift else 1),
                )
                rec(
                    "Sendrecv_recv",
                    site="Sendrecv",
                    peer=(rec.rank - 1) % rec.n,
                    nbytes=32 * size,
                    work=0,
                )

    assert abs(errors(ring, (4, 7, 11, 16), 64).total) < 0.01


def test_the_same_runs_give_the_same_laws():
    one, two = (errors(stencil(noise=0.02), (4, 6, 9), 16).model.phases for _ in range(2))
    assert one == two


def test_a_signature_without_segments_still_has_laws():
    from dataclasses import replace

    from p3s.signature.segments import none

    tables = [replace(corpus.table(corpus.wavefront(), n), segments=none()) for n in (4, 8, 16)]
    model = fit_model(tables)
    rows = generate(model, 36)
    truth = corpus.table(corpus.wavefront(), 36).work.sum()
    assert (rows.work * rows.repeat).sum() == pytest.approx(truth, rel=0.01)


def test_sparse_fits_find_the_terms_and_only_these():
    rng = np.random.default_rng(1)
    n = np.repeat([4, 8, 16, 32], 8)
    x = np.stack([np.ones(32), 1000 / n, rng.random(32), np.log2(n)], axis=1)
    fit = search_sums(x, 7 + 30 * x[:, 1], n, [0, 1, 1, 1])[0]
    assert fit.which == (0, 1) and fit.coef == pytest.approx((7, 30)) and fit.error < 1e-6
    noise = 1 + 0.02 * rng.standard_normal(32)
    noisy = search_sums(x, (7 + 30 * x[:, 1]) * noise, n, [0, 1, 1, 1])[0]
    assert 1 in noisy.which and 2 not in noisy.which and 0 < noisy.error < 0.1
    assert all(c > 0 for c in noisy.coef)
    assert search_sums(x, np.zeros(32), n, [0, 1, 1, 1])[0].which == ()
    (one,) = search_sums(x[:8], np.full(8, 5.0), n[:8], [0, 1, 1, 1])
    assert one.which == (0,) and one.coef == (5.0,) and one.error == 1.0


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_sets_of_terms_are_the_best_ones_and_one_more(size):
    columns = [7, 0, 3, 12, 5]
    beam = [tuple(sorted(some)) for some in combinations(columns, max(size - 1, 1))][:4]
    if size <= 2:
        wanted = list(combinations(columns, size))
    else:
        wanted = sorted({tuple(sorted((*s, c))) for s in beam for c in columns if c not in s})
    assert [tuple(row) for row in _sets(columns, beam, size).tolist()] == wanted
