"""Counts that differ by rank: laws of position, found from few counts and refused by chance."""

from __future__ import annotations

import numpy as np
import pytest

from p3s.laws.exact import evaluate_int
from p3s.model.sizes.joint import law_alone
from p3s.model.sizes.observations import Observations

LAWS = {
    "own rank": lambda n, r: 3 * r,
    "ranks behind": lambda n, r: 3 * (n - 1 - r),
    "remainder": lambda n, r: 8 * (r % 4),
    "one to three": lambda n, r: 1 + r % 3,
    "nearer border": lambda n, r: 2 * np.minimum(r, n - 1 - r) + 5,
    "pairs": lambda n, r: r // 2,
    "own rank and all": lambda n, r: 2 * n + 5 * r - 1,
    "product": lambda n, r: n * (r + 1),
}


def fit_rank_count(env, values, ndims):
    return law_alone(Observations(env, values, ndims), counted=True)


def observations(law, counts, seen=lambda n, r: r >= 0):
    n = np.concatenate([np.full(k, k) for k in counts])
    r = np.concatenate([np.arange(k) for k in counts])
    keep = seen(n, r)
    env = {"n": n[keep], "r": r[keep], "p0": n[keep], "c0": r[keep]}
    return env, law(env["n"], env["r"])


@pytest.mark.parametrize("name", LAWS)
def test_laws_of_position(name):
    env, values = observations(LAWS[name], (4, 8, 16))
    law = fit_rank_count(env, values, 1)
    assert law is not None
    far, true = observations(LAWS[name], (64, 100))
    assert np.array_equal(evaluate_int(law.expr, far), true)
    assert law.free <= 3 and law.points == 3


def test_ranks_that_take_no_part_are_no_evidence():
    env, values = observations(LAWS["remainder"], (4, 9, 16), lambda n, r: r % 4 > 0)
    law = fit_rank_count(env, values, 1)
    assert law is not None
    far, true = observations(LAWS["remainder"], (64,), lambda n, r: r % 4 > 0)
    assert np.array_equal(evaluate_int(law.expr, far), true)


def test_noise_gets_no_law():
    rng = np.random.default_rng(3)
    found = 0
    for _ in range(40):
        env, _ = observations(LAWS["own rank"], (4, 8, 16))
        found += fit_rank_count(env, rng.integers(1, 9, len(env["n"])), 1) is not None
    assert found == 0


def test_too_little_gets_no_law():
    env, values = observations(LAWS["own rank"], (16,))
    assert fit_rank_count(env, values, 1) is None
    env, values = observations(LAWS["own rank and all"], (2, 3), lambda n, r: r < 2)
    assert fit_rank_count(env, values, 1) is None


def test_two_dimensions():
    counts = {4: (2, 2), 9: (3, 3), 16: (4, 4)}
    rows = [(n, p[0], p[1], *divmod(r, p[1]), r) for n, p in counts.items() for r in range(n)]
    n, p0, p1, c0, c1, r = np.array(rows).T
    env = {"n": n, "r": r, "p0": p0, "p1": p1, "c0": c0, "c1": c1}
    law = fit_rank_count(env, 4 * (p1 - 1 - c1), 2)
    assert law is not None
    assert evaluate_int(law.expr, {"n": 64, "r": 11, "p0": 8, "p1": 8, "c0": 1, "c1": 3}) == 16
