"""Amounts that depend on the data: laws of the geometry, never negative, as sure as shown."""

from __future__ import annotations

from dataclasses import replace

import models
import numpy as np
import pytest

from p3s.laws.expr import num, symbols_of
from p3s.model.law_types import Amount, SizeLaw
from p3s.model.partners.relation import Shift
from p3s.model.sizes.amounts import alike, fit_amount, fit_amounts

DIMS = {4: (1, 2, 2), 8: (2, 2, 2), 12: (2, 2, 3), 16: (2, 2, 4), 18: (2, 3, 3), 27: (3, 3, 3)}
LARGE = {64: (4, 4, 4), 128: (4, 4, 8), 1000: (10, 10, 10)}


def env(n: int, dims: tuple[int, ...]) -> dict[str, int]:
    return {"n": n, **{f"p{d}": p for d, p in enumerate(dims)}}


def fitted(true, noise=0.0, rims=(), seed=0):
    rng = np.random.default_rng(seed)
    envs = [env(n, d) for n, d in DIMS.items()]
    values = [true(e) * (1 + noise * rng.standard_normal()) for e in envs]
    return fit_amount(envs, values, [n * 10.0 for n in DIMS], 3, rims)


SHAPES = {
    "face": lambda e: 3000 / (e["p0"] * e["p1"]),
    "wider face": lambda e: 800 * (1 / e["p0"] + 0.3) / e["p2"],
    "corner": lambda e: 500 * (1 / e["p0"] + 0.21) * (1 / e["p1"] + 0.21),
    "volume": lambda e: 9000 / e["n"],
    "constant and volume": lambda e: 9000 / e["n"] + 70,
    "stages": lambda e: 12 * np.log2(e["n"]),
}


@pytest.mark.parametrize("name", SHAPES)
def test_geometry_is_found_without_noise(name):
    amount = fitted(SHAPES[name])
    for n, dims in LARGE.items():
        assert float(amount.value(env(n, dims))) == pytest.approx(
            SHAPES[name](env(n, dims)), rel=1e-4
        )


@pytest.mark.parametrize("name", SHAPES)
def test_noise_shows_in_the_interval(name):
    inside = total = 0
    errors = []
    for seed in range(15):
        amount = fitted(SHAPES[name], 0.03, seed=seed)
        at = env(64, LARGE[64])
        error = abs(float(amount.value(at)) / SHAPES[name](at) - 1)
        assert float(amount.value(env(100_000, (50, 40, 50)))) >= 0
        errors.append(error)
        inside += error <= amount.half_width(64)
        total += 1
    assert np.median(errors) < 4 * 0.03  # two numbers, 2.4 times beyond the largest count
    assert inside / total >= 0.6


def test_a_rim_of_the_program_steadies_the_others():
    true = SHAPES["corner"]
    at = env(64, LARGE[64])
    free = [abs(float(fitted(true, 0.04, seed=s).value(at)) / true(at) - 1) for s in range(12)]
    known = [abs(float(fitted(true, 0.04, (0.21,), s).value(at)) / true(at) - 1) for s in range(12)]
    assert np.median(known) < np.median(free)


def test_a_rim_that_does_not_fit_is_not_taken():
    amount = fitted(SHAPES["corner"], rims=(0.9,))
    assert float(amount.value(env(64, LARGE[64]))) == pytest.approx(
        SHAPES["corner"](env(64, LARGE[64])), rel=1e-4
    )


def test_nothing_one_count_and_zeros():
    assert float(fit_amount([], [], [], 3).value(env(64, LARGE[64]))) == 0
    one = fit_amount([env(8, DIMS[8])], [5.5], [8], 3)
    assert float(one.value(env(64, LARGE[64]))) == 5.5
    assert one.rel_half_width > 1
    zeros = fit_amount([env(n, d) for n, d in DIMS.items()], [0.0] * 6, [1.0] * 6, 3)
    assert float(zeros.value(env(64, LARGE[64]))) == 0


def test_plain_data_and_back():
    amount = fitted(SHAPES["corner"])
    again = Amount.from_json(amount.to_json())
    assert float(again.value(env(64, LARGE[64]))) == float(amount.value(env(64, LARGE[64])))
    assert symbols_of(amount.expr) <= {"n", "p0", "p1", "p2"}


def test_rims_are_shared_by_the_sizes_of_a_program():
    def points(true, noise):
        rng = np.random.default_rng(7)
        return tuple(
            (n, true(env(n, d)) * (1 + noise * rng.standard_normal()), 10 * n)
            for n, d in DIMS.items()
        )

    laws = {
        "sure": (SizeLaw(means=points(SHAPES["corner"], 0.0)), 0),
        "loose": (SizeLaw(means=points(SHAPES["corner"], 0.04)), 1),
        "known": (SizeLaw(expr=num(1)), 2),
    }
    found = fit_amounts(laws, DIMS)
    assert found.get("known", laws["known"][0]) == SizeLaw(expr=num(1))
    sure, loose = found["sure"].stat, found["loose"].stat
    assert sure.rel_half_width < 1e-6 < loose.rel_half_width
    assert sure.points == loose.points == len(DIMS)
    at = env(64, LARGE[64])
    assert float(loose.value(at)) == pytest.approx(SHAPES["corner"](at), rel=0.05)


def test_both_ways_along_a_line_have_one_law():
    """Planes of atoms fall to one side or the other; what goes both ways follows the geometry."""

    def shifted(sign):
        means = tuple(
            (n, SHAPES["face"](env(n, d)) * (1 + sign * 0.1 * (d[0] > 2)), 10 * n)
            for n, d in DIMS.items()
        )
        known = models.built("ring").items[0]
        relation = Shift(vec=(0, 0, sign), wrap=(False,) * 3)
        item = replace(known, node=3, relation=relation, slots=known.slots[:1])
        return SizeLaw(means=means), alike(item, sign, 0)

    found = fit_amounts({sign: shifted(sign) for sign in (1, -1)}, DIMS)
    there, back = found[1].stat, found[-1].stat
    assert there == back
    at = env(64, LARGE[64])
    assert float(there.value(at)) == pytest.approx(SHAPES["face"](at), rel=1e-4)


def test_one_process_has_no_logarithm():
    """log2 n is zero there: no feature is divided by it, none is left out for it."""
    for counts in ((1, 2, 4), (1, 2, 4, 8), (1, 2)):
        envs = [{"n": n, "p0": n} for n in counts]
        found = fit_amount(envs, [100.0 / n for n in counts], [1.0] * len(counts), 1)
        assert np.isfinite(found.rel_half_width)
        assert float(found.value({"n": 16, "p0": 16})) == pytest.approx(100 / 16, rel=0.01)
