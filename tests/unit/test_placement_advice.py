"""Fronts of cost and time: planted layers, ties, and predictions with one wrong configuration."""

from __future__ import annotations

from p3s.methods.placement.ranked.types import layers, matters

#: Three layers of three configurations each.
CORES = [1, 2, 4, 1, 2, 4, 1, 2, 4]
SECONDS = [9.0, 5.0, 3.0, 10.0, 6.0, 4.0, 11.0, 7.0, 5.0]


def test_layers() -> None:
    assert layers(CORES, SECONDS).tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert layers([1, 1, 2], [5.0, 5.0, 5.0]).tolist() == [0, 0, 1]  # equal ones are both in front
    assert layers([1, 1], [5.0, 4.0]).tolist() == [1, 0]  # equal costs do dominate
    assert layers([], []).tolist() == []


def test_placements_that_are_all_as_good() -> None:
    assert not matters([1.0, 1.04]) and matters([1.0, 1.05]) and not matters([1.0])
    assert not matters([1.0, 1.05], 1.1)
