"""Errors of predictions: the published tables of the regression method, recomputed."""

from __future__ import annotations

import math

import pytest

from p3s.laws.statistics import relative_error, scores
from p3s.methods.baseline.times import against_least, by_target, spread

#: Relative errors in percent as printed: HPL (Table 1) and BT (Table 2); None: blank or x.
HPL = {
    "Lomonosov, N=16384": (5.14, 6.20, 55.30, 21.92, None, None),
    "Lomonosov, N=25600": (1.10, 38.94, 7.65, 22.04, None, 15.24),
    "Lomonosov-2, N=25600": (10.83, 10.40, 11.46, 18.05, 10.82, 9.67),
    "Lomonosov-2, N=50000": (9.95, 4.17, 0.75, 5.76, 7.72, None),
}
BT = {
    "Lomonosov-2, class A": (10.47, 18.64, 31.50, None, None, None),
    "Lomonosov-2, class C": (1.39, 6.01, 22.69, 5.70, 19.20, 22.31),
}


@pytest.mark.parametrize(
    ("name", "median"),
    [
        ("Lomonosov, N=16384", 14.06),
        ("Lomonosov, N=25600", 15.24),
        ("Lomonosov-2, N=25600", 10.825),
        ("Lomonosov-2, N=50000", 5.76),
        ("Lomonosov-2, class A", 18.64),
        ("Lomonosov-2, class C", 12.605),
    ],
)
def test_medians_of_the_series(name: str, median: float) -> None:
    assert scores({**HPL, **BT}[name]).median == pytest.approx(median, abs=1e-9)


def test_all_points_of_table_1_pooled() -> None:
    found = scores(e for row in HPL.values() for e in row)
    assert found.count == 20 and found.least == 0.75 and found.largest == 55.30
    assert found.median == pytest.approx(10.2, abs=0.05)
    assert found.mean == pytest.approx(13.7, abs=0.05)


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
