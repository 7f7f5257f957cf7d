"""Fits of run times, bands around them, and scores."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from made_predictions import count_at, made_prediction, phase_at, record
from scipy.optimize import lsq_linear

from benchmarks.regression import explicit
from p3s.base.errors import P3SError, UsageError
from p3s.laws.statistics import nonnegative, relative_error, scores
from p3s.methods.baseline import threeterm
from p3s.methods.baseline.agreement import curve_of
from p3s.methods.baseline.commands.options import by_rule
from p3s.methods.baseline.families import FAMILIES, Data, fit, text_of, weights_of
from p3s.methods.baseline.model import fit_series
from p3s.methods.baseline.times import (
    RunTime,
    against_least,
    by_target,
    from_mapping,
    series_of,
    spread,
)
from p3s.predict.types import Prediction

Q = np.arange(16.0, 129.0, 4.0)
TARGETS = np.array([144.0, 256.0, 400.0, 576.0, 784.0, 1024.0])
ABC = np.array([2e-3, 900.0, 12.0])


def data(seconds: np.ndarray, q: np.ndarray = Q) -> Data:
    return Data(q, seconds, np.zeros((len(q), 0)))


def noisy(seconds: np.ndarray, share: float, seed: int) -> np.ndarray:
    return seconds * (1 + share * np.random.default_rng(seed).standard_normal(len(seconds)))


# ---- counts, repeats -----------------------------------------------------------------------


def test_counts_by_rule() -> None:
    assert by_rule("n^2:2-11") == [4, 9, 16, 25, 36, 49, 64, 81, 100, 121]
    assert by_rule("4n:1-32") == list(range(4, 129, 4))
    assert by_rule("2^n:2-7") == [4, 8, 16, 32, 64, 128]
    assert by_rule("8,4,4n:2-3,5-6") == [4, 5, 6, 8, 12]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "4x",
        "0",
        "4n:9-2",
        "n:0-0",
        "5-4",
        "2^n:1-99",
        "n^4:1-2",
        "-3",
        "1.5",
        "99999999999999999999",
    ],
)
def test_no_counts(text: str) -> None:
    with pytest.raises(UsageError):
        by_rule(text)


def test_repeats_are_reduced_and_their_spread_is_told() -> None:
    runs = [RunTime(8, t, i) for i, t in enumerate((1.2, 1.0, 42.88))] + [RunTime(4, 2.0)]
    found = series_of(runs)
    assert [p.seconds for p in found.points] == [2.0, 1.0]
    assert [round(100 * spread(p.repeats)) for p in found.points] == [0, 4188]
    assert series_of(runs, reduction="median").points[1].seconds == 1.2
    assert series_of(runs, reduction="mean").points[1].seconds == pytest.approx(45.08 / 3)
    with pytest.raises(UsageError):
        series_of(runs, reduction="mode")


def test_invalid_runs_are_set_aside() -> None:
    runs = [
        RunTime(4, 2.0),
        RunTime(8, 1.0),
        RunTime(8, 0.1, 1, why="exit code 1"),
        RunTime(16, None, why="no time"),
    ]
    found = series_of(runs)
    assert [(p.n, p.seconds) for p in found.points] == [(4, 2.0), (8, 1.0)]
    assert len(found.aside) == 2
    assert any("2 runs set aside" in note for note in fit_series(found).notes)


@pytest.mark.parametrize(
    ("times", "word"),
    [
        ({}, "no run times"),
        ({4: [1.0]}, "one count only"),
        ({4: [1.0, 1.1, 1.2]}, "3 times"),
        ({4: 1.0, 8: -1.0}, "negative"),
        ({4: 1.0, 8: 0.0}, "zero"),
        ({4: 1.0, 8: float("nan")}, "no number"),
        ({4: 1.0, 8: 1e-300}, "shorter than any"),
        ({4: 1.0, 8: float("inf")}, "no finite"),
    ],
)
def test_times_that_cannot_be_fitted(times: dict, word: str) -> None:
    with pytest.raises(P3SError, match=word):
        from_mapping(times)


# ---- T(q) ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["relative", "absolute"])
def test_exact_times_give_the_coefficients(kind: str) -> None:
    seconds = threeterm.value(ABC, Q)
    w = weights_of(kind, seconds)
    one = nonnegative(threeterm.design(Q), seconds, w)
    np.testing.assert_allclose(one, ABC, rtol=1e-6)
    np.testing.assert_allclose(
        threeterm.value(one, TARGETS), threeterm.value(ABC, TARGETS), rtol=1e-9
    )


@pytest.mark.parametrize("seed", range(12))
def test_another_solver_agrees_on_noisy_times_with_and_without_terms_at_zero(seed: int) -> None:
    rng = np.random.default_rng(seed)
    abc = np.array(
        [10.0 ** rng.uniform(-5, 0), 10.0 ** rng.uniform(0, 5), 10.0 ** rng.uniform(-2, 3)]
    ) * rng.integers(0, 2, 3)
    abc[1] = abc[1] or 100.0
    seconds = noisy(threeterm.value(abc, Q), 0.05, seed)
    for kind in ("relative", "absolute"):
        w = weights_of(kind, seconds)
        columns = threeterm.design(Q) * w[:, None]
        scale = np.linalg.norm(columns, axis=0)
        other = lsq_linear(columns / scale, seconds * w, (0, np.inf), tol=1e-14).x / scale
        one = threeterm.value(nonnegative(threeterm.design(Q), seconds, w), Q)
        assert np.max(np.abs(one - threeterm.value(other, Q)) / seconds) < 1e-6


def test_no_coefficient_is_negative_and_the_fit_is_the_best_of_those() -> None:
    seconds = threeterm.value(np.array([-1e-3, 900.0, 12.0]), Q)
    ones = np.ones_like(Q)
    found = nonnegative(threeterm.design(Q), seconds, ones)
    assert found[0] == 0.0 and (found >= 0).all()
    least = np.sum((threeterm.value(found, Q) - seconds) ** 2)
    grid = np.array(
        np.meshgrid(np.linspace(0, 1e-2, 11), np.linspace(800, 1000, 81), np.linspace(0, 40, 81))
    ).reshape(3, -1)
    others = np.sum((threeterm.design(Q) @ grid - seconds[:, None]) ** 2, axis=0)
    assert least <= others.min()


def test_turnover() -> None:
    assert threeterm.turnover(ABC) == pytest.approx(728.685, abs=5e-4)
    assert threeterm.turnover(np.array([0.0, 900.0, 12.0])) is None
    assert threeterm.turnover(np.array([1.0, 0.0, 0.0])) is None
    assert threeterm.turnover(np.array([1e-2, 400.0, 0.0])) == pytest.approx(200.0)
    assert threeterm.turnover(np.array([1e-2, 0.0, 20.0])) == pytest.approx(100.0)
    for tiny in (1e-12, 1e-30, 1e-150):  # far out, but still found
        q = threeterm.turnover(np.array([tiny, 900.0, 12.0]))
        assert q is not None
        assert abs(2 * tiny * q * q - 12 * np.sqrt(q) - 1800) <= 1e-9 * 12 * np.sqrt(q)


def test_relative_weights_halve_the_error_at_large_counts() -> None:
    truth = np.array([5e-2, 9000.0, 0.0])
    far = np.array([1024.0])
    true = threeterm.value(truth, far)[0]
    median = {}
    for kind in ("relative", "absolute"):
        errors = []
        for seed in range(200):
            seconds = noisy(threeterm.value(truth, Q), 0.02, seed)
            found = nonnegative(threeterm.design(Q), seconds, weights_of(kind, seconds))
            errors.append(abs(threeterm.value(found, far)[0] / true - 1))
        median[kind] = np.median(errors)
    assert median["relative"] <= 0.7 * median["absolute"]


def test_small_counts_left_out_and_unknown_weights() -> None:
    seconds = threeterm.value(ABC, Q)
    with_outlier = seconds.copy()
    with_outlier[0] *= 3
    runs = [RunTime(int(n), float(t)) for n, t in zip(Q, with_outlier, strict=True)]
    kept = fit_series(series_of(runs, least=20), ["three-term"])
    assert kept.counts[0] == 20
    assert kept.fitted.parameters["b"] == pytest.approx(900.0)
    with pytest.raises(UsageError):
        weights_of("heavy", seconds)


def hpl(n: float, q: np.ndarray) -> np.ndarray:
    """Return the time of Linpack by its authors' cost model, on the squarest P x Q grid.

    2 N^3 / 3PQ operations at 10 Gflop/s, N^2 (3P+Q) / 2PQ words at 3.2 GB/s, and
    N ((NB+1) log2 P + P) / NB messages of 2 us, blocks of NB = 128: cores and network of the
    older of the two machines.
    """
    q = np.asarray(q, dtype=int)
    p = np.array([max(i for i in range(1, int(np.sqrt(k)) + 1) if k % i == 0) for k in q])
    work = 2 * n**3 / (3 * q) / 10e9
    words = n * n * (3 * p + q / p) / (2 * q) * 8 / 3.2e9
    return work + words + 2e-6 * n * (129 * np.log2(p) + p) / 128


@pytest.mark.parametrize(
    ("n", "weights"),
    [(16384.0, "relative"), (25600.0, "relative"), (50000.0, "relative"), (25600.0, "absolute")],
)  # the size both machines ran, as the paper fits it
def test_linpack_without_noise_is_predicted_as_well_as_the_form_can(n: float, weights: str) -> None:
    seconds = hpl(n, Q)
    found = fit("three-term", data(seconds), weights_of(weights, seconds))
    assert np.median(np.abs(found.predict(TARGETS) / hpl(n, TARGETS) - 1)) <= 0.10


# ---- families ------------------------------------------------------------------------------


def test_regression_on_logarithms_finds_its_own_law() -> None:
    n, size = np.meshgrid(Q, [16384.0, 25600.0, 50000.0])
    q, x = n.ravel(), size.ravel()
    log = np.log2(q)
    seconds = 2.0 ** (2.7 * np.log2(x) - 12 - 0.9 * log + 0.03 * log**2)
    table = Data(q, seconds, x[:, None], ("size",))
    found = fit("barnes-2", table, 1 / seconds)
    np.testing.assert_allclose(found.parameters["gamma"], [-12, -0.9, 0.03], rtol=1e-8)
    np.testing.assert_allclose(found.parameters["beta"], [2.7], rtol=1e-8)
    assert found.n_params == 4
    told = found.predict([1024.0], np.array([[40000.0]]))[0]
    assert told == pytest.approx(2.0 ** (2.7 * np.log2(4e4) - 12 - 9 + 3), rel=1e-8)
    straight = 2.0 ** (2.7 * np.log2(x) - 12 - 0.9 * log)
    one = fit("barnes-1", Data(q, straight, x[:, None], ("size",)), np.ones_like(q))
    np.testing.assert_allclose(one.parameters["gamma"], [-12, -0.9], rtol=1e-8)
    bent = fit("spline", table, 1 / seconds)
    np.testing.assert_allclose(bent.predict(q, x[:, None]), seconds, rtol=0.02)
    with pytest.raises(P3SError, match="has no term for size"):
        fit("three-term", table, 1 / seconds)
    with pytest.raises(UsageError, match="needs values of size"):
        found.predict([4.0])


def test_simple_laws_are_found() -> None:
    power = fit("power-law", data(3.0 * Q**-0.7), np.ones_like(Q))
    assert (power.parameters["factor"], power.parameters["exponent"]) == (
        pytest.approx(3.0),
        pytest.approx(-0.7),
    )
    amdahl = fit("amdahl", data(0.5 + 40.0 / Q), np.ones_like(Q))
    assert (amdahl.parameters["serial"], amdahl.parameters["parallel"]) == (
        pytest.approx(0.5),
        pytest.approx(40.0),
    )
    assert text_of(amdahl) == "0.5 + 40/n"


def test_spline_is_linear_beyond_its_knots() -> None:
    log = np.log2(Q)
    found = fit("spline", data(2.0 ** (10 - log + 0.1 * np.sin(log))), np.ones_like(Q))
    far = 2.0 ** np.array([8.0, 9.0, 10.0, 11.0])
    steps = np.diff(np.log2(found.predict(far)))
    np.testing.assert_allclose(steps, steps[0], rtol=1e-9)


@pytest.mark.parametrize("name", [n for n, f in FAMILIES.items() if f.needs > 2])
def test_too_few_counts_for_a_form(name: str) -> None:
    with pytest.raises(P3SError, match=r"needs \d distinct counts, there are 2"):
        fit(name, data(np.array([2.0, 1.0]), np.array([4.0, 8.0])), np.ones(2))


# ---- the explicit model --------------------------------------------------------------------


def linpack_series(noise: float, seed: int) -> explicit.Design:
    """Return the rows of four series: two machines, three sizes, the small runs as inputs."""
    rng = np.random.default_rng(seed)
    small, targets, sizes = [], [], []
    for speed, n in ((1.0, 16384.0), (1.0, 25600.0), (0.35, 25600.0), (0.35, 50000.0)):

        def times(q: np.ndarray, n: float = n, speed: float = speed) -> dict[int, float]:
            seconds = speed * hpl(n, q) * (1 + noise * np.abs(rng.standard_normal(len(q))))
            return dict(zip(q.astype(int).tolist(), seconds.tolist(), strict=True))

        small.append(times(np.arange(4.0, 129.0, 4.0)))
        targets.append(times(TARGETS))
        sizes.append({"size": n})
    return explicit.design(small, targets, sizes)


def test_the_explicit_model_is_refused_where_rows_do_not_determine_it() -> None:
    rows = linpack_series(0.02, 0)
    assert rows.inputs.shape == (24, 33) and rows.rank <= 5
    with pytest.raises(P3SError, match=r"34 coefficients .* 24 run times of rank 5"):
        explicit.fit(rows)
    regularised = explicit.fit(rows, ridge=1e-3)
    assert regularised.n_params == 34 and np.isfinite(regularised.predict(rows)).all()


def test_an_explicit_model_with_enough_rows_is_found() -> None:
    rng = np.random.default_rng(0)
    x, q = rng.uniform(1, 10, (40, 3)), rng.uniform(16, 1024, 40)
    seconds = x @ [0.5, 0.1, 0.2] + 0.01 * q
    found = fit("explicit", Data(q, seconds, x, ("t4", "t8", "t16")), np.ones(40))
    np.testing.assert_allclose(found.parameters["linear"], [0.5, 0.1, 0.2, 0.01], rtol=1e-9)
    assert explicit.fit(explicit.Design(q, seconds, x, ("a", "b", "c"), (0,) * 40)).rank == 4


def test_series_of_an_explicit_model_need_the_same_small_counts() -> None:
    with pytest.raises(P3SError, match="series 2 has other small counts"):
        explicit.design([{4: 1.0}, {8: 1.0}], [{64: 1.0}, {64: 1.0}])


COUNTS = (4, 8, 16, 32, 64, 128, 256, 512)


def falling(n: int) -> float:
    return 0.2 + 100.0 / n


def prediction_of(times: dict[int, float]) -> Prediction:
    """Return a prediction of these times, measured up to 16 processes."""
    rows = [
        count_at(
            n,
            phase_at(0, "halo", time_s=time),
            **dict.fromkeys(("time_s", "low_s", "high_s", "model_s"), time),
            measured=n <= 16,
            measured_s=falling(n) if n <= 16 else None,
            time_from="measured" if n <= 16 else "model",
        )
        for n, time in times.items()
    ]
    return replace(record(), counts=tuple(rows), traced_counts=(4, 8, 16))


def test_a_curve_holds_what_the_times_say() -> None:
    found = curve_of(prediction_of({n: falling(n) for n in COUNTS}))
    assert found.counts == COUNTS[2:]
    for n, low, mid, high in zip(*(found.counts, found.low, found.mid, found.high), strict=True):
        assert 0 < low <= mid <= high and mid == pytest.approx(falling(n))
    first, second = found.sentences
    assert "4, 8 and 16 processes" in first and "32 times the largest" in first
    assert "512 processes" in first and "differ by at most 25.0 %" in second


def test_where_the_two_differ_most_is_said() -> None:
    slower = {n: falling(n) * (1 if n <= 16 else 1.3 if n < 512 else 2.0) for n in COUNTS}
    (_, said) = curve_of(prediction_of(slower)).sentences
    assert said.startswith("At 512 processes the prediction is 100.0 % longer than the regression")
    assert "32 times beyond its largest run" in said and "tried up to 8" in said


@pytest.mark.parametrize("phases", [1, 3, 40])
@pytest.mark.parametrize("representative", [True, False])
def test_curves_of_made_predictions(phases: int, representative: bool) -> None:
    found = curve_of(record(made_prediction(COUNTS, phases, representative=representative)))
    assert found.counts and found.counts[-1] == 512
    assert ("run times" if representative else "predicted times") in found.sentences[0]
    assert all(text.endswith(".") for text in found.sentences)


@pytest.mark.parametrize(
    "prediction",
    [
        made_prediction((4,), measured=[4]),
        made_prediction((4, 64), measured=[4]),
        made_prediction((64, 128), measured=[]),
    ],
)
def test_no_curve_of_too_little(prediction: dict) -> None:
    found = curve_of(record(prediction))
    assert not found.counts and len(found.sentences) == 1
    assert "fewer than two counts" in found.sentences[0]


@pytest.mark.parametrize(
    "times", [{}, {4: 1.0}, {4: [1.0, 1.0]}, {4: 1.0, 8: -1.0}, {4: 1.0, 8: math.nan}]
)
def test_times_that_make_no_series(times: dict) -> None:
    with pytest.raises(P3SError):
        from_mapping(times)


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
