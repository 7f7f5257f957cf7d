"""Growing trees, asking them, keeping them in files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import hybrid_machine as machine
import numpy as np
import pytest

from p3s.base.errors import P3SError, UsageError
from p3s.methods.baseline.trees.evaluate import Evaluator, Said
from p3s.methods.baseline.trees.grow import grow, least_rows
from p3s.methods.baseline.trees.splits import fit
from p3s.methods.baseline.trees.store import TREE, Stored, save
from p3s.methods.baseline.trees.types import Growing, Table, Tree

WORKLOADS = machine.workloads(machine.TRAINING["nb"])[::4]
NB = machine.EXPRESSION["nb"]


def predict(tree: Tree, columns: dict[str, np.ndarray]) -> Said:
    """Return what a tree says of rows."""
    return Evaluator.of(tree).predict(columns)


@pytest.fixture(scope="module")
def runs() -> Table:
    return machine.runs("nb", WORKLOADS, 0.02, 0)


@pytest.fixture(scope="module")
def tree(runs: Table) -> Tree:
    return grow(runs, NB, machine.VARIABLES)


def test_a_bent_curve_is_parted_where_it_bends() -> None:
    """C15, the thesis's figure 4.1: one period of a sine, parabolas; its split is near 3.2."""
    x = np.linspace(0, 2 * np.pi, 200)
    cuts, leaves = [], []
    for seed in range(40):
        y = np.sin(x) + 0.1 * np.random.default_rng(seed).standard_normal(200)
        table = Table({"x": x}, y + 10)  # above zero
        tree = grow(table, "b2*x**2 + b1*x + b0", ["x"], Growing("plain", minsplit=25))
        split = tree.nodes[0].split
        assert split is not None
        cuts.append(split.low)
        leaves.append(len(tree.leaves))
        error = predict(tree, table.columns).value - 10 - np.sin(x)
        assert np.sqrt(np.mean(error**2)) < 0.06
    assert min(cuts) >= 2.6 and max(cuts) <= 3.7
    assert np.median(cuts) == pytest.approx(3.1, abs=0.1)
    assert leaves.count(2) >= 35


@pytest.mark.parametrize("growing", [Growing(), Growing.thesis(), Growing(minsplit=60)])
def test_leaves_are_large_enough_and_hold_all_rows(runs: Table, growing: Growing) -> None:
    grown = grow(runs, NB, machine.VARIABLES, growing)
    leaves = [grown.nodes[i] for i in grown.leaves]
    assert len(leaves) > 3 and sum(node.rows for node in leaves) == len(runs)
    for node in leaves:
        assert node.rows >= least_rows(growing, 5)
        assert (node.weight if growing.in_weights else node.rows) >= growing.minsplit
    assert grow(runs, NB, machine.VARIABLES, growing) == grown, "equal runs, equal trees"


def test_the_thesis_s_leaves_can_have_fewer_rows_than_coefficients(runs: Table) -> None:
    literal = grow(runs, NB, machine.VARIABLES, Growing.thesis())
    assert min(literal.nodes[i].rows for i in literal.leaves) < 5
    assert len(literal.leaves) > 4 * len(grow(runs, NB, machine.VARIABLES).leaves)


def test_rows_in_another_order_give_the_same_predictions(runs: Table, tree: Tree) -> None:
    order = np.random.default_rng(0).permutation(len(runs))
    other = grow(runs.only(order), NB, machine.VARIABLES)
    assert len(other.nodes) == len(tree.nodes)
    value = predict(other, runs.columns).value
    assert value == pytest.approx(predict(tree, runs.columns).value, rel=1e-6)


@pytest.mark.parametrize("regression", ["relative", "weighted"])
def test_the_best_cut_is_that_of_all_refits(runs: Table, regression: str) -> None:
    some = runs.only(np.arange(0, len(runs), 3))
    growing = Growing(regression)
    split = grow(some, NB, ["workload"], growing).nodes[0].split
    assert split is not None
    assert split.low == _by_refitting(some, NB, growing)


def _by_refitting(table: Table, expression: str, growing: Growing) -> float:
    from p3s.methods.baseline.trees.prototype import parse
    from p3s.methods.baseline.trees.splits import rows_of

    design, z = parse(expression).design(table.columns), table.columns["workload"]
    rows = rows_of(design, table.y, growing)
    found = []
    for cut in np.unique(z)[:-1]:
        total = 0.0
        for side in (z <= cut, z > cut):
            at = np.flatnonzero(side)
            if len(at) < 20:
                total = np.inf
                break
            part = rows.only(at)
            total += float(np.sum(part.w * fit(part).residuals ** 2))
        found.append((total, cut))
    least = min(found)[0]
    return next(cut for total, cut in found if total <= least + 1e-9 * least)


def test_words() -> None:
    rng = np.random.default_rng(5)
    x, place = rng.random(300) + 1, rng.integers(0, 3, 300).astype(float)
    y = (1 + x * np.where(place == 1, 3, 1)) * np.exp(0.01 * rng.standard_normal(300))
    table = Table({"x": x, "place": place}, y, {"place": ("close", "far", "none")})
    grown = grow(table, "b1*x + b0", ["x", "place"])
    split = grown.nodes[0].split
    assert split is not None and split.variable == "place" and split.levels in ((1,), (0, 2))
    assert len(grown.leaves) == 2
    said = predict(grown, {"x": np.full(3, 1.5), "place": np.arange(3.0)})
    assert said.value == pytest.approx([2.5, 5.5, 2.5], rel=0.02)


def test_many_words_are_parted_along_their_scores() -> None:
    rng = np.random.default_rng(6)
    place = np.repeat(np.arange(14.0), 30)
    x = rng.random(len(place)) + 1
    y = x * np.where(place % 2, 2, 1) * np.exp(0.01 * rng.standard_normal(len(place)))
    grown = grow(Table({"x": x, "p": place}, y, {"p": tuple("abcdefghijklmn")}), "b1*x + b0", ["p"])
    split = grown.nodes[0].split
    assert split is not None and {level % 2 for level in split.levels} in ({0}, {1})


def test_coefficients_that_the_runs_do_not_tell() -> None:
    """C24: where the number of workers never changes its term is dropped, and said to be."""
    runs = machine.runs("nb", WORKLOADS, 0.02, 0)
    one = runs.only(np.flatnonzero(runs.columns["workers"] == 4))
    grown = grow(one, NB, machine.VARIABLES)
    assert all("b2" in node.dropped for node in grown.nodes), "b2*workers is constant, as b0"
    said = predict(grown, machine.grid([777.0, 5000.0]))
    assert np.isfinite(said.value).all() and (said.value > 0).all()
    with pytest.raises(P3SError, match="5 runs do not tell 5 coefficients"):
        grow(one.only(np.arange(5)), NB, machine.VARIABLES)


def test_beyond_its_runs_a_tree_says_so(tree: Tree) -> None:
    """C25."""
    inside = machine.grid([WORKLOADS[3]])
    assert not predict(tree, inside).extrapolated.any()
    for name, value in (("workload", 5.0), ("workers", 64.0), ("threads", 9.0)):
        outside = {**inside, name: np.full(56, value)}
        assert predict(tree, outside).extrapolated.all()
    low = predict(tree, machine.grid([1e-3]))
    assert (low.value > 0).all() and low.extrapolated.all() and low.outside.all()


def test_a_regression_below_zero_is_held() -> None:
    x = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    table = Table({"x": x}, np.array([1.0, 1.0, 1.0, 1.0, 1.0, 4.0]))
    for growing, least in ((Growing("plain"), 0.8), (Growing.thesis(), 0.8)):
        said = predict(grow(table, "b1*x + b0", ["x"], growing), {"x": np.array([-9.0])})
        assert said.value.tolist() == [least] and said.clipped.all() and said.extrapolated.all()


def test_between_two_leaves_both_are_asked() -> None:
    x = np.repeat([1.0, 2.0, 3.0, 10.0, 11.0, 12.0], 20)
    noise = np.exp(0.01 * np.random.default_rng(0).standard_normal(len(x)))
    table = Table({"x": x}, np.where(x < 5, 1.0, 4.0) * noise)
    grown = grow(table, "b0", ["x"])
    split = grown.nodes[0].split
    assert split is not None and (split.low, split.high) == (3.0, 10.0)
    at = np.array([3.0, np.sqrt(30.0), 10.0])
    assert predict(grown, {"x": at}).value == pytest.approx([1.0, 2.5, 4.0], rel=0.01)
    assert not predict(grown, {"x": at}).outside.any()
    literal = replace(grown, growing=replace(grown.growing, blend=False))
    assert predict(literal, {"x": at}).value == pytest.approx([1.0, 4.0, 4.0], rel=0.01)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"alpha": 2.0}, "alpha 2: is no level"),
        ({"regression": "ridge"}, "regression ridge: is none"),
        ({"minsplit": 0}, "minsplit and the least number"),
    ],
)
def test_settings_that_are_none(runs: Table, change: dict[str, float], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        grow(runs, NB, machine.VARIABLES, replace(Growing(), **change))


def test_runs_that_are_none(runs: Table, tree: Tree) -> None:
    with pytest.raises(UsageError, match="size: is no variable of these runs; there are l2_0"):
        grow(runs, NB, ["size"])
    with pytest.raises(UsageError, match="give each once"):
        grow(runs, NB, ["w1", "w1"])
    with pytest.raises(P3SError, match="above zero"):
        grow(replace(runs, y=-runs.y), NB, ["w1"])
    with pytest.raises(UsageError, match="w1: the tree splits on it"):
        predict(tree, {"w2": np.ones(1)})


# ---- files -----------------------------------------------------------------------------------


def test_a_tree_read_again_predicts_the_same_to_the_last_bit(
    tree: Tree, runs: Table, tmp_path: Path
) -> None:
    """C17; the versions before stay."""
    path = tmp_path / "tree.json"
    save(path, Stored(tree, 1, workers=(2.0,), threads=(1.0, 2.0)))
    again = TREE.read(path)
    assert again.tree == tree and again.others == 1
    columns = machine.grid([333.0, 5555.0])
    assert np.array_equal(predict(again.tree, columns).value, predict(tree, columns).value)
    save(path, Stored(grow(runs, NB, ["w1"])))
    save(path, again)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["tree.json", "tree.json.1", "tree.json.2"]
    assert TREE.read(tmp_path / "tree.json.1").tree == tree


def test_counters_of_one_configuration_are_those_among_many(tree: Tree) -> None:
    cores = tuple((0, 0, i // 2) for i in range(4))
    stored = Stored(tree, 1, cores=cores, per_node=1, affinities=("far",))
    pairs = np.array([(k, t) for k in (2.0, 4.0) for t in (1.0, 2.0, 3.0)])
    many = stored.columns(500.0, pairs, {})
    for i in range(len(pairs)):
        one = stored.columns(500.0, pairs[i : i + 1], {})
        assert {name: column[0] for name, column in one.items()} == {
            name: column[i] for name, column in many.items()
        }
    assert many["l2_1"].tolist() == [0, 1, 1] * 2, "all its runs were far"
    assert len(stored.fitting(np.array([(2.0, 4.0), (2.0, 5.0)]))) == 1
    with pytest.raises(P3SError, match="nodes of 4 cores"):
        stored.fitting(np.array([(2.0, 5.0)]))
