"""Times of phases as lines over products of features."""

from __future__ import annotations

import numpy as np
import pytest

from p3s.methods.placement.lines import fit_nonnegative


def test_no_coefficient_is_below_nothing() -> None:
    x = np.linspace(1, 100, 50)
    columns = {"a": x, "b": 1 / x, "c": np.zeros(50)}
    found = fit_nonnegative(((), ("a",), ("b",), ("c",)), columns, 2 + 3 * x)
    assert found.coefficients == pytest.approx((2, 3, 0, 0), abs=1e-9)
    falling = fit_nonnegative(((), ("a",)), columns, 200 - x)
    assert falling.coefficients[1] == 0 < falling.coefficients[0]
