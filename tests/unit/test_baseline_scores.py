"""Errors of predictions, relative to the least run."""

from __future__ import annotations

import math

import pytest

from p3s.laws.statistics import relative_error, scores
from p3s.methods.baseline.times import against_least, by_target, spread


def test_errors_are_relative_to_the_least_run() -> None:
    assert relative_error(1.2, 1.0) == pytest.approx(0.2)
    assert relative_error(0.8, 1.0) == pytest.approx(-0.2)
    assert against_least(1.1, [1.3, 1.0, 42.0]) == pytest.approx(0.1)
    assert spread([1.0, 1.2, 42.88]) == pytest.approx(41.88)
    found = by_target({64: 1.1, 128: 0.5, 256: None}, {64: [1.0, 2.0], 512: [1.0], 256: [1.0]})
    assert found == {64: pytest.approx(0.1), 128: None, 256: None, 512: None}
    for wrong in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError):
            relative_error(1.0, wrong)
    with pytest.raises(ValueError):
        spread([0.0, 1.0])
    with pytest.raises(ValueError):
        against_least(1.0, [])


def test_of_no_errors_nothing_is_said() -> None:
    found = scores([None, math.nan])
    assert found.count == 0 and math.isnan(found.median)
