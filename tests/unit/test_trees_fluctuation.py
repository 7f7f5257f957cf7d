"""p-values of the tests of instability, and how often they split what does not change."""

from __future__ import annotations

import math

import numpy as np
import pytest
from andrews import critical_values
from scipy.stats import chi2

from p3s.trees.bessel import log_p, p_value, tail
from p3s.trees.fluctuation import between_levels, corrected, increments, log_chi2, supremum
from p3s.trees.grow import grow
from p3s.trees.regress import Rows, fit
from p3s.trees.types import Growing, Table


@pytest.mark.parametrize(
    ("k", "x", "p"), [(1, 8.68, 0.0506), (2, 11.72, 0.0509), (3, 14.13, 0.0520)]
)
def test_the_closed_form_of_the_tail(k: int, x: float, p: float) -> None:
    assert math.exp(tail(x, k, 0.15)) == pytest.approx(p, abs=5e-4)


def test_one_point_is_chi_squared() -> None:
    for k in (1, 3, 20):
        for p in (0.5, 0.05, 1e-6):
            assert p_value(float(chi2.isf(p, k)), k, 0.5) == pytest.approx(p, rel=1e-9)
            near = p_value(float(chi2.isf(p, k)), k, 0.5 - 1e-12)
            assert near == pytest.approx(p, rel=0.02), "continuous where nothing is left to trim"


def _walked(x: float, pi: float, steps: int, cells: int = 801) -> float:
    """P(the largest of a walk of steps is above x), k = 1, its density carried on step by step."""
    edge = math.sqrt(x)
    y = np.linspace(-edge, edge, cells)
    weight = np.full(cells, y[1] - y[0])
    weight[[0, -1]] /= 2
    density = np.exp(-(y**2) / 2) / math.sqrt(2 * math.pi)
    at = np.arange(round(pi * steps), round((1 - pi) * steps) + 1) / steps
    for gap in np.diff(np.log(at / (1 - at))):
        keep = math.exp(-gap / 2)
        width = math.sqrt(1 - keep**2)
        kernel = np.exp(-(((y[:, None] - keep * y) / width) ** 2) / 2)
        density = kernel @ (weight * density) / (width * math.sqrt(2 * math.pi))
    return 1 - float(weight @ density)


@pytest.mark.parametrize(
    ("x", "pi", "steps"), [(8.68, 0.15, 200), (5.0, 0.3, 200), (12.0, 0.2, 100)]
)
def test_p_of_a_walk_is_that_of_its_density(x: float, pi: float, steps: int) -> None:
    assert p_value(x, 1, pi, steps) == pytest.approx(_walked(x, pi, steps), abs=6e-4)
    assert p_value(x, 1, pi, steps) < p_value(x, 1, pi)


def test_published_critical_values() -> None:
    """Walks of 3,600 steps explain Andrews' table but for the error of its simulation.

    At pi = 0.5 the truth is chi-squared: there the table's 5 % are 5.08 %, in the mean.
    """
    off: dict[tuple[float, float], list[float]] = {}
    for pi, k, level, x in critical_values():
        off.setdefault((pi, level), []).append(p_value(x, k, pi, 3600) - level)
    known = {level: np.mean(off[0.5, level]) for level in (0.1, 0.05, 0.01)}
    for (pi, level), found in off.items():
        assert np.mean(found) == pytest.approx(known[level], abs=1e-3), (pi, level)
    assert max(abs(x) for found in off.values() for x in found) < 4e-3


def test_logarithms_of_p_fall_and_have_no_jump() -> None:
    for k, pi in ((1, 0.02), (5, 0.1), (8, 0.4)):
        x = np.linspace(0.01, 400, 500)
        found = np.array([log_p(float(v), k, pi) for v in x])
        assert (np.diff(found) <= 1e-9).all() and found[0] == 0 and found[-1] < -150
        assert np.min(np.diff(found)) > -0.6, "0.8 further out p is e^-0.4 times as large"


def test_bonferroni() -> None:
    assert math.exp(corrected(math.log(0.002), 5)) == pytest.approx(0.01)
    assert math.exp(corrected(math.log(0.2), 3)) == pytest.approx(1 - 0.8**3)
    assert corrected(0.0, 4) == 0.0 and corrected(-800.0, 4) == pytest.approx(-800 + math.log(4))


def test_scores_sum_to_zero_and_their_squares_to_the_coefficients() -> None:
    rng = np.random.default_rng(1)
    x = np.stack([np.ones(50), rng.random(50), 1e6 * rng.random(50)], axis=1)
    rows = Rows(x, rng.random(50), rng.integers(1, 9, 50).astype(float), np.ones(50))
    d = increments(fit(rows), rows.t, rows.w)
    assert d is not None and d.sum(axis=0) == pytest.approx(np.zeros(3), abs=1e-10)
    assert (d / rows.w[:, None]).T @ d == pytest.approx(np.eye(3), abs=1e-9)
    # Ties are seen at their ends only, and the order of rows is nothing.
    z, order = rng.integers(0, 4, 50).astype(float), rng.permutation(50)
    assert supremum(d, z, rows.w, 0.1) == pytest.approx(
        supremum(d[order], z[order], rows.w[order], 0.1)
    )
    assert supremum(d, np.zeros(50), rows.w, 0.1) is None


def test_levels_are_chi_squared() -> None:
    rng = np.random.default_rng(2)
    x, z = np.stack([np.ones(240), rng.random(240)], axis=1), np.arange(240) % 3.0
    p = []
    for _ in range(400):
        rows = Rows(x, rng.standard_normal(240), np.ones(240), np.ones(240))
        d = increments(fit(rows), rows.t, rows.w)
        assert d is not None
        found = between_levels(d, z, rows.w)
        assert found is not None and found[1] == 4
        p.append(math.exp(log_chi2(*found)))
    assert np.mean(np.array(p) < 0.05) == pytest.approx(0.05, abs=0.04)
    assert np.mean(p) == pytest.approx(0.5, abs=0.06)


def test_an_exact_fit_is_stable() -> None:
    x = np.arange(60.0)
    table = Table({"x": x}, 3 + 2 * x)
    assert len(grow(table, "b1*x + b0", ["x"], Growing("plain")).nodes) == 1


def test_false_splits_are_as_rare_as_asked() -> None:
    """C15: constant parameters, four variables of noise, 300 tables."""
    split = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        columns = {name: rng.random(150) for name in ("x", "z1", "z2", "z3", "z4")}
        y = 2 + columns["x"] + 0.1 * rng.standard_normal(150)
        table = Table(columns, y)
        tree = grow(table, "b1*x + b0", ["z1", "z2", "z3", "z4"], Growing("plain"))
        split += len(tree.nodes) > 1
    assert split / 300 <= 0.07
