"""How well predictions agree: vectors with known answers, and numbers of the sources."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau

from p3s.methods.placement.ranking import agreement, r_squared, rcc


def test_constant_error_keeps_the_order() -> None:
    t = np.array([1.0, 2.0, 4.0, 8.0])
    found = agreement(t, 1.2 * t)
    assert found.mmre == pytest.approx(0.2) and found.within == 1 and found.rcc == 1
    assert found.r2 < 1 and found.log_median == pytest.approx(math.log(1.2))
    assert found.score == found.r2 * found.rcc
    assert agreement(t, -t).log_median == math.inf
    assert math.isnan(agreement([], []).mmre)


def test_order_and_ties() -> None:
    up, down = [1.0, 2.0, 3.0], [3.0, 2.0, 1.0]
    assert rcc(up, up) == 1 and rcc(up, down) == 0
    assert rcc(up, [1.0, 1.0, 1.0]) == 0  # ties are wrong
    assert r_squared(up, [2.0, 2.0, 2.0]) == 0
    assert math.isnan(r_squared([1.0, 1.0], [1.0, 1.0])) and math.isnan(rcc([1.0], [1.0]))
    with pytest.raises(ValueError):
        rcc([1.0], [1.0, 2.0])


@settings(max_examples=80, deadline=None)
@given(st.permutations(range(12)))
def test_without_ties_it_is_kendalls_tau(order) -> None:
    t = np.arange(12.0)
    p = np.array(order, dtype=float)
    tau = kendalltau(t, p).statistic
    assert rcc(t, p) == pytest.approx((1 + tau) / 2, abs=1e-12)
