"""How computation varies between ranks, turns and runs."""

from __future__ import annotations

import json

import numpy as np
import pytest

from p3s.base.serialise import from_data, to_data
from p3s.costs.spread import EVEN, Distribution, Spread, apart, between_ranks, between_turns
from p3s.signature.clock import QUANTILES


def made(draw, rows=8, count=4000, seed=3):
    rng = np.random.default_rng(seed)
    times = draw(rng, (rows, count)) * rng.uniform(1e3, 1e6, (rows, 1))
    return np.quantile(times, QUANTILES, axis=1).T, times.sum(axis=1), np.full(rows, count)


DRAWS = {
    "normal": lambda rng, size: np.maximum(rng.normal(1.0, 0.05, size), 0.01),
    "lognormal": lambda rng, size: rng.lognormal(0.0, 0.4, size),
    "exponential above a floor": lambda rng, size: 1.0 + rng.exponential(0.3, size),
    "rare interruptions": lambda rng, size: (
        rng.normal(1.0, 0.01, size) + 8.0 * (rng.random(size) < 0.004)
    ),
}


@pytest.mark.parametrize("name", DRAWS)
def test_mean_quantiles_and_the_largest_of_many(name):
    spread, rows = between_turns(*made(DRAWS[name]))
    assert rows == 8 and spread.mean == pytest.approx(1.0, abs=1e-9)
    rng = np.random.default_rng(5)
    draws = spread.quantile(rng.random(200_000))
    assert draws.mean() == pytest.approx(1.0, abs=0.01) and draws.min() >= 0
    truth = DRAWS[name](rng, 400_000)
    truth /= truth.mean()
    for p in (0.05, 0.25, 0.5, 0.75, 0.95):
        assert np.quantile(draws, p) == pytest.approx(np.quantile(truth, p), rel=0.03)
    for n in (4, 64, 1024):
        expected = truth[: 400_000 // n * n].reshape(-1, n).max(axis=1).mean()
        # never clearly less than the truth; no more than twice its excess and a bit
        assert spread.expected_largest(n) > 1 + 0.8 * (expected - 1)
        assert spread.expected_largest(n) < 1 + 2.2 * (expected - 1) + 0.03
        sampled = spread.quantile(rng.random((4000, n))).max(axis=1).mean()
        assert spread.expected_largest(n) == pytest.approx(sampled, rel=0.05)


def test_rows_with_few_occurrences_tell_nothing():
    quantile, total, _ = made(DRAWS["normal"], rows=3)
    assert between_turns(quantile, total, np.array([1, 2, 3])) == (EVEN, 0)
    assert between_turns(np.zeros((0, 6)), np.zeros(0), np.zeros(0)) == (EVEN, 0)
    zero = between_turns(np.zeros((2, 6)), np.zeros(2), np.full(2, 100))
    assert zero == (EVEN, 0) and EVEN.quantile([0.0, 0.5, 0.999]) == pytest.approx([1, 1, 1])
    assert EVEN.expected_largest(1000) == pytest.approx(1.0)


def test_turns_with_zero_quantiles_and_a_heavy_mean():
    # most occurrences too short for the clock: quantiles zero, the mean is not
    spread, _ = between_turns(
        np.array([[0, 0, 0, 0, 0, 10.0]]), np.array([1000.0]), np.array([1000])
    )
    assert spread.mean == pytest.approx(1.0)
    assert np.all(spread.quantile([0.1, 0.5]) == 0) and spread.quantile(0.999) > 5


def test_ranks_without_the_run_and_the_law():
    rng = np.random.default_rng(2)
    own = rng.lognormal(0.0, 0.1, 64)
    expected = rng.uniform(1e6, 2e6, 128)
    run = np.repeat([4, 8], 64)
    time = expected * np.tile(own, 2) * np.where(run == 4, 1.0, 1.3)
    spread = between_ranks(time, expected, run)
    assert spread.mean == pytest.approx(1.0, abs=1e-9)
    assert np.quantile(own, 0.75) / np.quantile(own, 0.25) == pytest.approx(
        float(spread.quantile(0.75) / spread.quantile(0.25)), rel=0.03
    )
    assert between_ranks([5.0], [4.0], [1]) == EVEN  # one rank differs from no other
    assert between_ranks([], [], []) == EVEN


def test_json():
    spread = Spread(
        between_ranks([1.0, 1.2, 0.9, 1.0], [1.0] * 4, [2] * 4),
        between_turns(*made(DRAWS["lognormal"]))[0],
        4,
        8,
    )
    again = from_data(Spread, json.loads(json.dumps(to_data(spread), allow_nan=False)))
    assert to_data(again) == to_data(spread)
    assert again.turns.quantile(0.999) == pytest.approx(
        float(spread.turns.quantile(0.999)), rel=1e-4
    )
    assert from_data(Spread, to_data(Spread())) == Spread()


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
