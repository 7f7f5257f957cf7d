"""What of the spread between turns is each rank's own: nobody waits for what all have alike."""

from __future__ import annotations

import numpy as np
import pytest

from p3s.costs.spread import EVEN, Distribution, apart

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


def spread_of(width: float) -> Distribution:
    """Return a distribution around one; its deviation is about 0.6 times ``width``."""
    return Distribution.of(LEVELS, [1 + width * x for x in (-1.0, -0.5, 0.0, 0.5, 1.0, 1.2)])


def deviation(of: Distribution) -> float:
    return float(np.std(of.quantile((np.arange(20_000) + 0.5) / 20_000)))


def test_turns_that_vary_for_each_rank_by_itself_stay_as_they_are() -> None:
    """Sums of 100 such turns differ by a tenth of what single ones do."""
    turns = spread_of(0.3)
    assert apart(turns, spread_of(0.03), 100) == turns
    assert apart(turns, spread_of(0.3), 100) == turns  # lasting differences beside them


def test_what_all_ranks_have_alike_is_taken_off() -> None:
    turns, sums = spread_of(0.3), spread_of(0.003)
    own = apart(turns, sums, 100)
    assert deviation(own) == pytest.approx(2 * deviation(sums) * 10, rel=0.05)
    assert own.mean == pytest.approx(1.0, abs=0.01)
    assert own.levels == turns.levels
    assert deviation(apart(turns, spread_of(1e-9), 100)) < 1e-6


def test_without_other_ranks_nothing_is_known() -> None:
    assert apart(spread_of(0.3), EVEN, 100) == spread_of(0.3)
    assert apart(EVEN, spread_of(0.1), 100) == EVEN
