"""Learned times of phases: planted laws, outliers, values outside the training, saved models."""

from __future__ import annotations

import json

import numpy as np
import pytest

from p3s.base.artefacts import write_json
from p3s.base.errors import OtherVersion, P3SError
from p3s.methods.placement.learned import (
    LearnedModel,
    Settings,
    Way,
    columns,
    cross_validated,
    learn,
    load,
    save,
)
from p3s.methods.placement.ranking import agreement
from p3s.methods.placement.trees import of_boosting

ensemble = pytest.importorskip("sklearn.ensemble")
SMALL = Settings(trees=60, rate=0.1, depth=4)
NAMES = ("ND", "NM", "n")

Rows = list[dict[str, float]]


def phases(number: int = 240, seed: int = 0) -> tuple[Rows, np.ndarray, np.ndarray]:
    """Return phases of which data and messages decide, over six decades, in eight groups."""
    rng = np.random.default_rng(seed)
    nd, nm = 2.0 ** rng.uniform(8, 26, number), rng.integers(1, 100, number)
    rows = [
        {"ND": float(a), "NM": float(b), "n": float(c)}
        for a, b, c in zip(nd, nm, rng.integers(2, 64, number), strict=True)
    ]
    seconds = (1e-5 + 2e-7 * nm + 3e-10 * nd) * np.exp(rng.normal(0, 0.05, number))
    return rows, seconds, np.arange(number) % 8


@pytest.fixture(scope="module")
def boosted() -> LearnedModel:
    return learn(*phases(), Way(NAMES, settings=SMALL), machine="a", network="b")


def test_a_law_is_learned_and_the_card_says_how_well(boosted) -> None:
    rows, seconds, _ = phases(seed=1)
    found = boosted.predict(rows)
    assert agreement(seconds, found.seconds).mmre < 0.2
    held = (found.low <= seconds) & (seconds <= found.high)
    assert 0.8 < held.mean() <= 1 and (found.low <= found.seconds).all()
    card = boosted.card
    assert (card.rows, card.groups, card.caveats) == (240, 8, ())
    assert card.scores is not None and card.scores.mmre < 0.2 and card.scores.rcc > 0.95


def test_values_outside_the_training_are_named() -> None:
    x = np.linspace(0.01, 1, 60)
    rows = [{"x": float(v)} for v in x]
    model = learn(rows, x, np.arange(60) % 5, Way(("x",), settings=SMALL))
    found = model.predict([{"x": 2.0}, {"x": 0.5}, {"x": 0.0}])
    assert found.seconds[0] <= 1.0  # a line would say 2
    assert found.outside == (("x",), (), ("x",))


def test_a_line_that_goes_first_is_followed_beyond_the_training() -> None:
    nd = 2.0 ** np.linspace(4, 20, 80)
    rows, t = [{"ND": float(x)} for x in nd], 1e-5 + 3e-10 * nd
    first = ((), ("ND",))
    plain = learn(rows, t, np.arange(80) % 5, Way(("ND",), settings=SMALL))
    model = learn(
        rows, t, np.arange(80) % 5, Way(("ND",), first, settings=SMALL), beyond=("ND",),
        apart=[np.arange(80) // 16],
    )  # fmt: skip
    assert model.first is not None and model.first.coefficients == pytest.approx((1e-5, 3e-10))
    far = [{"ND": 2.0**24}]
    truth = 1e-5 + 3e-10 * 2.0**24
    assert model.predict(far).seconds[0] == pytest.approx(truth, rel=0.02)
    assert plain.predict(far).seconds[0] < truth / 8
    assert plain.wider.doubling == 0
    # Where only trees go beyond, what they miss there widens their intervals there.
    wide = learn(rows, t, np.arange(80) % 5, Way(("ND",), settings=SMALL), beyond=("ND",))
    assert wide.wider.doubling > 0.2 and wide.predict(far).high[0] > 3 * plain.predict(far).high[0]


def test_trees_say_what_scikit_learn_says() -> None:
    rows, seconds, _ = phases()
    x, y = columns(rows, NAMES), np.log(seconds)
    for loss in ("absolute_error", "quantile"):
        model = ensemble.GradientBoostingRegressor(loss=loss, n_estimators=20).fit(x, y)
        assert of_boosting(model).predict(x) == pytest.approx(model.predict(x), rel=1e-12)
        assert len(of_boosting(model).predict(np.zeros((0, 3)))) == 0


def test_scores_are_of_groups_that_were_left_out() -> None:
    # Every row is there eight times; where copies are in other groups they give it away.
    rng = np.random.default_rng(3)
    rows = [{"a": float(v)} for v in rng.uniform(0, 1, 30)] * 8
    seconds = np.tile(np.exp(rng.normal(0, 1, 30)), 8)
    together, apart = np.tile(np.arange(30), 8), np.repeat(np.arange(8), 30)
    honest = cross_validated(rows, seconds, together, Way(("a",), settings=SMALL))
    leaking = cross_validated(rows, seconds, apart, Way(("a",), settings=SMALL))
    assert 2 * leaking.mmre < honest.mmre


def test_caveats_and_what_cannot_be_learned() -> None:
    rows, seconds, groups = phases(40)
    few = Settings(trees=20, rate=0.003, depth=3)
    assert round(few.left, 2) == 0.94 and round(Settings(trees=500, rate=0.003).left, 2) == 0.22
    model = learn(rows, seconds, groups * 0, Way(NAMES, settings=few))
    assert model.card.caveats == ("not-converged", "one-group")
    bad = seconds.copy()
    bad[3] = 0
    for make, why in (
        (lambda: learn(rows[:5], seconds[:5], groups[:5], Way(NAMES)), "too few"),
        (lambda: learn(rows, bad, groups, Way(NAMES)), "no time"),
        (lambda: learn(rows, seconds, groups, Way(("x",))), "feature x is missing"),
        (lambda: model.predict([{"ND": 1.0}]), "feature NM is missing"),
        (lambda: learn(rows, seconds, groups, Way(NAMES, settings=few)).check("c", ""), "machine"),
    ):
        with pytest.raises(P3SError, match=why) as err:
            make()
        assert "\n" not in str(err.value)


def test_a_saved_model_predicts_the_same(tmp_path) -> None:
    rows, seconds, groups = phases(60)
    model = learn(rows, seconds, groups, Way(NAMES, settings=SMALL), machine="a")
    path = tmp_path / "model.json"
    save(path, model)
    again = load(path)
    assert again.card == model.card and again.names == model.names
    one, other = model.predict(rows), again.predict(rows)
    for name in ("seconds", "low", "high"):
        assert (getattr(one, name) == getattr(other, name)).all()
    same = learn(rows, seconds, groups, Way(NAMES, settings=SMALL), machine="a")
    assert (same.predict(rows).seconds == one.seconds).all()


@pytest.mark.parametrize("version", [1, 3, "2"])
def test_models_of_another_version_are_one_line(tmp_path, boosted, version) -> None:
    path = tmp_path / "model.json"
    save(path, boosted)
    write_json(path, {**json.loads(path.read_text()), "schema_version": version})
    with pytest.raises(OtherVersion, match="another version of p3s; learn it again") as caught:
        load(path)
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)
