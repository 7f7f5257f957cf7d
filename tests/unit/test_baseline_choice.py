"""Baselines: choice of a family by the largest counts, intervals, saved models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_baseline import ABC, Q, data, noisy

from p3s.base.errors import UsageError
from p3s.methods.baseline import threeterm
from p3s.methods.baseline.families import FAMILIES, Data, fit, interval, weights_of
from p3s.methods.baseline.model import BASELINE, choose, fit_series, held_out
from p3s.methods.baseline.times import Point, RunTime, from_mapping, series_of

# ---- choice, intervals ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "exact"),
    [
        ("three-term", threeterm.value(np.array([5e-2, 900.0, 12.0]), Q)),
        ("barnes-2", 2.0 ** (12 - 2.2 * np.log2(Q) + 0.16 * np.log2(Q) ** 2)),
    ],
)
def test_the_largest_counts_choose_the_family_the_times_come_from(
    family: str, exact: np.ndarray
) -> None:
    chosen = [choose(data(noisy(exact, 0.01, seed)), hold=3).fitted.family for seed in range(20)]
    assert chosen.count(family) >= 18


def test_what_is_held_out() -> None:
    assert held_out([4, 8, 16]) == [16]
    assert held_out(list(range(16, 129, 4))) == [120, 124, 128]
    assert held_out([1, 2, 4, 8, 16, 32, 64, 128]) == [64, 128]
    for hold in (0, 2):
        with pytest.raises(UsageError):
            held_out([4, 8, 16], hold)


def test_few_counts_choose_among_what_they_can_test() -> None:
    two = fit_series(from_mapping({4: 1.0, 8: 0.6}))
    assert two.fitted.family == "amdahl" and two.choice.held_error is None
    three = choose(Data.of_series(from_mapping({4: 1.0, 8: 0.6, 16: 0.4})))
    assert three.fitted.family == "amdahl" and three.held == (16,)
    assert "three-term" in three.alike  # cannot be tested with one count less


def points_of(seconds: np.ndarray, q: np.ndarray = Q) -> list[Point]:
    return [Point(int(n), float(t), (float(t),)) for n, t in zip(q, seconds, strict=True)]


def test_intervals_hold_the_truth() -> None:
    truth = np.array([5e-3, 900.0, 12.0])
    true = threeterm.value(truth, np.array([576.0]))[0]
    held = 0
    for seed in range(100):
        points = points_of(noisy(threeterm.value(truth, Q), 0.02, seed))
        found = fit("three-term", Data.of(points), weights_of("relative", Data.of(points).seconds))
        ends = interval(points, found, [576], draws=200, seed=seed)
        assert ends is not None
        held += ends[0][0] <= true <= ends[1][0]
    assert held >= 75


@pytest.mark.parametrize("number", [5, len(Q)])
def test_both_ways_to_an_interval_hold_the_truth_and_repeat_themselves(number: int) -> None:
    truth = np.array([5e-3, 900.0, 12.0])
    true = threeterm.value(truth, np.array([576.0]))[0]
    held = 0
    for seed in range(20):
        points = points_of(noisy(threeterm.value(truth, Q), 0.02, seed))[-number:]
        found = fit("three-term", Data.of(points), 1 / Data.of(points).seconds)
        first = interval(points, found, [576, 64], draws=60)
        again = interval(points, found, [576, 64], draws=60)
        assert first is not None and again is not None
        np.testing.assert_array_equal(first, again)
        held += first[0][0] <= true <= first[1][0]
    assert held >= 14


def test_no_interval_where_nothing_is_left_to_tell() -> None:
    points = points_of(np.array([2.0, 1.1]), np.array([4.0, 8.0]))
    assert interval(points, fit("amdahl", Data.of(points), np.ones(2)), [64]) is None


def test_repeats_are_drawn_too() -> None:
    rng = np.random.default_rng(0)
    times = {
        int(n): (t * (1 + 0.3 * rng.random(4))).tolist()
        for n, t in zip(Q, threeterm.value(ABC, Q), strict=True)
    }
    series = from_mapping(times)
    found = fit("three-term", Data.of_series(series), np.ones_like(Q))
    with_repeats = interval(series.points, found, [16])
    alone = [Point(p.n, p.seconds, (p.seconds,)) for p in series.points]
    without = interval(alone, found, [16])
    assert with_repeats is not None and without is not None
    assert with_repeats[1][0] > without[1][0]


# ---- saved ---------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [name for name, f in FAMILIES.items() if name != "explicit"])
def test_a_saved_baseline_predicts_the_same_to_the_last_bit(family: str, tmp_path: Path) -> None:
    times = {
        int(n): [float(t)] for n, t in zip(Q, noisy(threeterm.value(ABC, Q), 0.02, 5), strict=True)
    }
    made = fit_series(from_mapping(times), [family])
    made.save(tmp_path / "b.json")
    again = BASELINE.read(tmp_path / "b.json")
    n = [64, 256, 1000]
    np.testing.assert_array_equal(again.fitted.predict(n), made.fitted.predict(n))
    assert again.as_file() == made.as_file()
    assert again.say(n) == made.say(n)
    assert again.say([1024])[0].ratio == 8.0


def test_inputs_are_asked_for() -> None:
    runs = [
        RunTime(int(n), x * 100 / n, 0, (("size", x),))
        for n in (4, 8, 16, 32)
        for x in (1.0, 2.0, 3.0)
    ]
    made = fit_series(series_of(runs))
    assert made.inputs == ("size",) and made.fitted.family == "barnes-2"
    assert made.say([64], {"size": 5.0})[0].seconds == pytest.approx(500 / 64)
    for wrong in ({}, {"size": 1.0, "more": 2.0}):
        with pytest.raises(UsageError, match="--input"):
            made.say([64], wrong)
    one = fit_series(series_of(runs, where={"size": "2"}), ["amdahl"])
    assert one.inputs == () and one.say([64])[0].seconds == pytest.approx(200 / 64)


def test_the_interval_covers_forms_that_the_counts_do_not_tell_apart() -> None:
    truth = np.array([5e-3, 900.0, 12.0])
    times = {
        int(n): float(t) for n, t in zip(Q, noisy(threeterm.value(truth, Q), 0.02, 1), strict=True)
    }
    made = fit_series(from_mapping(times))
    said = made.say([1024])[0]
    assert said.low is not None and said.high is not None
    for name in made.choice.alike:
        other = fit(name, Data.of(made.points), 1 / Data.of(made.points).seconds)
        assert said.low <= other.predict([1024])[0] <= said.high
