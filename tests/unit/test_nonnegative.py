"""Small pieces of numerics beside those of scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.interpolate import PchipInterpolator

from p3s.model.sizes import cover
from p3s.model.work.balance import _shares


def test_shares_between_borders_are_those_of_a_monotone_cubic() -> None:
    random = np.random.default_rng(7)
    for _ in range(300):
        values = random.random(int(random.integers(2, 9))) * (random.random() < 0.9)
        values[random.random(len(values)) < 0.2] = 0.0
        if not values.sum() > 0:
            continue
        known = np.concatenate([[0.0], np.cumsum(values) / values.sum()])
        borders = np.linspace(0.0, 1.0, int(random.integers(1, 40)) + 1)
        share = PchipInterpolator(np.linspace(0.0, 1.0, len(known)), known)(borders)
        wanted = np.diff(share) * (len(borders) - 1)
        np.testing.assert_allclose(_shares(values, len(wanted)), wanted, rtol=1e-9, atol=1e-9)


def test_small_covers_cost_what_the_solver_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own search finds a cover that costs no more than that of the solver."""
    random = np.random.default_rng(11)
    for _ in range(60):
        m = int(random.integers(2, 15))
        groups = [
            [
                (float(random.random() * 20), [k for k in range(m) if random.random() < 0.4])
                for _ in range(int(random.integers(1, 7)))
            ]
            for _ in range(int(random.integers(2, 6)))
        ]
        one = cover.Cover(groups, list(range(m)), (random.random(m) * 20).tolist())
        with monkeypatch.context() as patch:
            patch.setattr(cover, "_solve_program", None)  # which is not asked
            searched = one.solve()
        with monkeypatch.context() as patch:
            patch.setattr(cover, "MOST_BRANCHES", 0)
            solved = one.solve()
        assert searched is not None and solved is not None
        assert solved[0] / (1 + 2 * cover.GAP) <= searched[0] <= solved[0] * (1 + 1e-9)
