"""Trees of run times: features, tests of fluctuation, growing."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import hybrid_machine as machine
import numpy as np
import pytest
from andrews import critical_values
from scipy.stats import chi2

from p3s.base.errors import P3SError, UsageError
from p3s.methods.baseline.trees.evaluate import Evaluator, TreeEstimate
from p3s.methods.baseline.trees.features import Caches, counters, derive_features, read_caches
from p3s.methods.baseline.trees.grow import (
    between_levels,
    grow,
    increments,
    least_rows,
    log_chi2,
    log_p,
)
from p3s.methods.baseline.trees.splits import Rows, fit
from p3s.methods.baseline.trees.store import TREE, StoredTree, save
from p3s.methods.baseline.trees.types import Growing, Table, Tree

WORKLOADS = machine.workloads(machine.TRAINING["nb"])[::4]
NB = machine.EXPRESSION["nb"]


def predict(tree: Tree, columns: dict[str, np.ndarray]) -> TreeEstimate:
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
    save(path, StoredTree(tree, 1, workers=(2.0,), threads=(1.0, 2.0)))
    again = TREE.read(path)
    assert again.tree == tree and again.others == 1
    columns = machine.grid([333.0, 5555.0])
    assert np.array_equal(predict(again.tree, columns).value, predict(tree, columns).value)
    save(path, StoredTree(grow(runs, NB, ["w1"])))
    save(path, again)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["tree.json", "tree.json.1", "tree.json.2"]
    assert TREE.read(tmp_path / "tree.json.1").tree == tree


def test_counters_of_one_configuration_are_those_among_many(tree: Tree) -> None:
    cores = tuple((0, 0, i // 2) for i in range(4))
    stored = StoredTree(tree, 1, cores=cores, per_node=1, affinities=("far",))
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


def regular(sockets: int, l3: int, l2: int, cores: int) -> Caches:
    """Return a node of equal parts: ``l3`` a socket, ``l2`` of each of them, ``cores`` of each."""
    at = np.arange(sockets * l3 * l2 * cores)
    return Caches(at // (l3 * l2 * cores), at // (l2 * cores), at // cores)


CLUSTER, NUMA = regular(1, 1, 2, 2), regular(4, 2, 4, 2)


def test_of_the_workload() -> None:
    found = derive_features(np.array([600.0]), np.array([3.0]), np.array([2.0]))
    assert {name: float(column[0]) for name, column in found.items()} == {
        "w2": 60000.0,
        "w1": 100.0,
        "workers": 3.0,
        "workload": 600.0,
        "local_workld": 200.0,
        "threads": 2.0,
    }


@pytest.mark.parametrize(
    ("threads", "far", "shared"),
    [(3, False, (2, 1)), (3, True, (2, 1)), (2, False, (2, 0)), (2, True, (1, 1))],
)
def test_four_cores_with_two_l2(threads: int, far: bool, shared: tuple[int, int]) -> None:
    found = counters(CLUSTER, 1, threads, far)
    assert (found["l2_0"], found["l2_1"]) == shared


def test_sixty_four_cores() -> None:
    """The NUMA node of section 5.3: twelve processes of two threads, four per socket."""
    found = counters(NUMA, 12, 2)
    assert [found[f"s{i}"] for i in range(4)] == [4, 4, 4, 0]
    assert [found[f"pl3_{i}"] for i in range(8)] == [2, 2, 2, 2, 2, 2, 0, 0]
    assert [found[f"tl3_{i}"] for i in range(8)] == [4, 4, 4, 4, 4, 4, 0, 0]
    assert [found[f"l2_{i}"] for i in range(0, 24, 2)] == [2] * 12, "a pair shares every level"
    far = counters(NUMA, 12, 2, far=True)
    assert [far[f"s{i}"] for i in range(4)] == [3] * 4
    assert max(far[f"l2_{i}"] for i in range(32)) == 1
    one_a_socket = counters(NUMA, 3, 16)
    assert [one_a_socket[f"s{i}"] for i in range(4)] == [1, 1, 1, 0]
    assert [one_a_socket[f"pl3_{i}"] for i in range(8)] == [1, 1, 1, 1, 1, 1, 0, 0]


def test_threads_that_find_no_core() -> None:
    with pytest.raises(UsageError, match="5 processes of 1 thread need 5 cores, the node has 4"):
        counters(CLUSTER, 5, 1)


def test_hwloc(tmp_path: Path) -> None:
    core = '<object type="L2Cache"><object type="Core"/><object type="Core"/></object>'
    part = f'<object type="L3Cache">{core * 2}</object>'
    text = f'<object type="Package">{part * 2}</object>'
    path = tmp_path / "n.xml"
    path.write_text(
        f'<topology version="2.0"><object type="Machine">{text * 2}</object></topology>'
    )
    found, same = read_caches(path), regular(2, 2, 2, 2)
    assert isinstance(found, Caches) and len(found) == 16
    for level in ("socket", "l3", "l2"):
        assert getattr(found, level).tolist() == getattr(same, level).tolist()
    path.write_text("<topology><object type='Core'/><object type='Core'/></topology>")
    assert read_caches(path).l2.tolist() == [0, 1], "a cache of its own each"
    with pytest.raises(P3SError, match="tells of no cores"):
        path.write_text("<topology/>")
        read_caches(path)


def p_value(x: float, k: int, pi: float) -> float:
    return math.exp(log_p(x, k, pi))


#: What a walk's largest value falls short of the largest of its continuous path, in steps of one
#: standard deviation: -zeta(1/2) / sqrt(2 pi) (Siegmund; Chernoff 1965).
SHORT = 0.5825971579390107


def shift_boundary(x: float, pi: float, steps: int) -> float:
    """Return the boundary of the continuous process that is passed as often as ``x`` by steps."""
    at = np.arange(round(pi * steps), round((1 - pi) * steps) + 1) / steps
    gaps = np.diff(np.log(at / (1 - at)))
    radius, out = math.sqrt(x), SHORT * np.sqrt(gaps)
    share = np.sum(gaps * np.exp(-out * (radius + out / 2))) / gaps.sum()
    return radius**2 - 2 * math.log(share)


def test_one_point_is_chi_squared() -> None:
    for k in (1, 3, 20):
        for p in (0.5, 0.05, 1e-6):
            assert p_value(float(chi2.isf(p, k)), k, 0.5) == pytest.approx(p, rel=1e-9)
            near = p_value(float(chi2.isf(p, k)), k, 0.5 - 1e-12)
            assert near == pytest.approx(p, rel=0.02), "continuous where nothing is left to trim"


def test_few_values_are_tested_as_such() -> None:
    """Of four values a supremum is one of three chi-squared numbers, and false splits stay rare."""
    split = dict.fromkeys((True, False), 0)
    for seed in range(150):
        rng = np.random.default_rng(seed)
        columns = {name: rng.integers(0, 4, 100) * 1.0 for name in ("z1", "z2")}
        y = 2 + (columns["z1"] > 1) * 0.06 + 0.1 * rng.standard_normal(100)
        for few in split:
            growing = Growing("plain", few_values=few)
            split[few] += len(grow(Table(columns, y), "b0", ["z1", "z2"], growing).nodes) > 1
    assert split[True] > 1.1 * split[False]


def test_published_critical_values() -> None:
    """Walks of 3,600 steps explain Andrews' table but for the error of its simulation.

    At pi = 0.5 the truth is chi-squared: there the table's 5 % are 5.07 %, in the mean.
    """
    off: dict[tuple[float, float], list[float]] = {}
    for pi, k, level, x in critical_values():
        at = shift_boundary(x, pi, 3600) if pi < 0.5 else x
        off.setdefault((pi, level), []).append(p_value(at, k, pi) - level)
    known = {level: np.mean(off[0.5, level]) for level in (0.1, 0.05, 0.01)}
    for (pi, level), found in off.items():
        assert np.mean(found) == pytest.approx(known[level], abs=1e-3), (pi, level)
    assert max(abs(x) for found in off.values() for x in found) < 4e-3


def test_logarithms_of_p_fall_and_have_no_jump() -> None:
    for k, pi in ((1, 0.02), (5, 0.1), (8, 0.4)):
        x = np.linspace(0.01, 400, 500)
        found = np.array([log_p(float(v), k, pi) for v in x])
        assert (np.diff(found) <= 1e-9).all() and found[0] == 0 and found[-1] < -150
        assert np.min(np.diff(found)) > -0.6, "0.8 further out p is e^-0.4 times as large"


def test_levels_are_chi_squared() -> None:
    rng = np.random.default_rng(2)
    x, z = np.stack([np.ones(240), rng.random(240)], axis=1), np.arange(240) % 3.0
    p = []
    for _ in range(400):
        rows = Rows(x, rng.standard_normal(240), np.ones(240), np.ones(240))
        d = increments(fit(rows), rows.t, rows.w)
        assert d is not None
        found = between_levels(d, z, rows.w)
        assert found is not None and found[1] == 4
        p.append(math.exp(log_chi2(*found)))
    assert np.mean(np.array(p) < 0.05) == pytest.approx(0.05, abs=0.04)
    assert np.mean(p) == pytest.approx(0.5, abs=0.06)


def test_an_exact_fit_is_stable() -> None:
    x = np.arange(60.0)
    table = Table({"x": x}, 3 + 2 * x)
    assert len(grow(table, "b1*x + b0", ["x"], Growing("plain")).nodes) == 1


def test_false_splits_are_as_rare_as_asked() -> None:
    """C15: constant parameters, four variables of noise, 300 tables."""
    split = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        columns = {name: rng.random(150) for name in ("x", "z1", "z2", "z3", "z4")}
        y = 2 + columns["x"] + 0.1 * rng.standard_normal(150)
        table = Table(columns, y)
        tree = grow(table, "b1*x + b0", ["z1", "z2", "z3", "z4"], Growing("plain"))
        split += len(tree.nodes) > 1
    assert split / 300 <= 0.07


def test_false_splits_on_few_values() -> None:
    split = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        columns = {name: rng.integers(0, 4, 150) * 1.0 for name in ("z1", "z2", "z3", "z4")}
        table = Table(columns, 2 + 0.1 * rng.standard_normal(150))
        split += len(grow(table, "b0", list(columns), Growing("plain")).nodes) > 1
    assert 0.01 <= split / 300 <= 0.07
