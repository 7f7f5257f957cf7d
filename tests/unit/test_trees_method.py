"""Trees of run times: the method on made-up runs and published ones, the prototype."""

from __future__ import annotations

import hybrid_machine as machine
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from published_choices import TABLE_5_6, TABLE_5_10, TABLE_5_16, choices

from p3s.base.errors import P3SError, UsageError
from p3s.methods.baseline.treeruns import efficiency, index
from p3s.methods.baseline.trees.choose import Limits, admissible, choose
from p3s.methods.baseline.trees.diagnostics import (
    by_workload,
    errors_of,
    gate,
    groups,
    kinds,
    list_variables,
    prune,
    report,
    shares,
    unseen,
    worst_regions,
)
from p3s.methods.baseline.trees.evaluate import Evaluator
from p3s.methods.baseline.trees.grow import grow
from p3s.methods.baseline.trees.prototype import parse
from p3s.methods.baseline.trees.store import StoredTree
from p3s.methods.baseline.trees.types import Growing, Table, Tree

NB = machine.EXPRESSION["nb"]
TRAINING = machine.workloads(machine.TRAINING["nb"])
VALIDATION = machine.workloads(machine.VALIDATION["nb"])


@pytest.fixture(scope="module")
def tree() -> Tree:
    return grow(machine.runs("nb", TRAINING, 0.02, 0), NB, machine.VARIABLES)


@pytest.fixture(scope="module")
def fresh() -> Table:
    return machine.runs("nb", VALIDATION, 0.02, 1000)


def true_times(table: Table) -> np.ndarray:
    c = table.columns
    return machine.times("nb", c["workload"], c["workers"], c["threads"].astype(int))[0]


# ---- the machine, accuracy -------------------------------------------------------------------


def test_accuracy_and_advice(tree: Tree, fresh: Table) -> None:
    """C20, C21 on one seed; benchmarks/trees.py takes five."""
    errors = errors_of(tree, fresh)
    assert np.median(errors) <= 0.025 and np.percentile(errors, 90) <= 0.11
    one = grow(machine.runs("nb", TRAINING, 0.02, 0), NB, ["w1"], Growing(minsplit=3360))
    assert len(one.nodes) == 1 and np.median(errors_of(one, fresh)) >= 5 * np.median(errors)
    told, true = (
        x.reshape(60, -1)
        for x in (Evaluator.of(tree).predict(fresh.columns).value, true_times(fresh))
    )
    order = np.argsort(told, axis=1)
    regret = true[np.arange(60), order[:, 0]] / true.min(axis=1) - 1
    top = np.take_along_axis(true, order[:, :3], axis=1).min(axis=1) / true.min(axis=1) - 1
    assert regret.mean() <= 0.01 and np.mean(regret <= 0.1) >= 0.95 and np.mean(top <= 0.05) >= 0.95


# ---- boxes, similarity, the gate -------------------------------------------------------------


def test_the_group_that_stands_out_is_named() -> None:
    """C18: 40 % more noise for three threads only."""
    rng = np.random.default_rng(7)
    table = machine.runs("nb", TRAINING[::3], 0.02, 1)
    more = np.where(table.columns["threads"] == 3, 0.4, 0.0) * rng.standard_normal(len(table))
    table = Table(table.columns, table.y * np.exp(more))
    noisy = grow(table, NB, machine.VARIABLES)
    found = groups(table, errors_of(noisy, table), ["threads", "workers"])
    worst = max(found, key=lambda g: g.times)
    assert (worst.variable, worst.low, worst.alike) == ("threads", 3.0, False)
    assert all(g.alike for g in found if g.variable == "threads" and g is not worst)
    calm = machine.runs("nb", TRAINING[::3], 0.02, 1)
    quiet = grow(calm, NB, machine.VARIABLES)
    assert all(g.alike for g in groups(calm, errors_of(quiet, calm), ["threads"]))
    assert set(list_variables(noisy)) <= set(machine.VARIABLES) and sum(
        shares(noisy).values()
    ) == pytest.approx(1)


def test_three_ways_not_to_pass() -> None:
    """C19."""
    rng, workload = np.random.default_rng(3), np.repeat(np.arange(10.0), 100)
    good = 0.03 * rng.random(1000)
    assert gate(good, workload).passed
    assert gate(good + 0.05, workload).broken == ("median",)
    wide = np.interp(rng.random(1000), [0, 0.25, 0.5, 0.75, 1], [0, 0.01, 0.045, 0.12, 0.28])
    assert gate(wide, workload).broken == ("dispersion",)
    far = np.where(np.arange(1000) % 12 == 0, 0.1, good)
    assert gate(far, workload).broken == ("outliers",)


def test_workloads_are_kept_out_with_all_their_rows(tree: Tree) -> None:
    """C17."""
    workload = np.repeat(VALIDATION, 56)
    for every in (2, 3, 4, 10):
        train, validate = by_workload(workload, every)
        mine, other = set(workload[train]), set(workload[validate])
        assert not mine & other and len(train) + len(validate) == len(workload)
        assert {min(VALIDATION), max(VALIDATION)} <= mine and len(other) >= 60 // every - 1
    assert len(by_workload(workload, 0)[1]) == 0
    assert not unseen(tree, machine.runs("nb", TRAINING[:3], 0.0, 0)).any()


# ---- efficiency ------------------------------------------------------------------------------


def test_the_efficiency_index() -> None:
    """C22, eq. 4.9."""
    k, t, computed = np.array([8.0]), np.array([2.0]), np.array([12.0])
    assert efficiency(k, t, computed).tolist() == [0.75]
    assert index(k, t, computed) == pytest.approx([2.6667], abs=5e-5)
    threads, busy = np.array([4.0]), np.array([32.0])
    assert efficiency(k * threads, t, busy).tolist() == [0.5]
    assert index(k * threads, t, busy).tolist() == [4.0]
    with pytest.raises(P3SError, match="row 1: an efficiency of 1.25"):
        index(k, t, np.array([20.0]))
    with pytest.raises(P3SError, match="busy for longer"):
        index(k * threads, t, np.array([65.0]))


@pytest.mark.parametrize(("program", "differ", "of"), [("nb", 55, 60), ("ht", 54, 58)])
def test_the_best_time_is_not_the_best_index(program: str, differ: int, of: int) -> None:
    columns = machine.grid(machine.workloads(machine.VALIDATION[program]))
    k = columns["workers"]
    time, computed = machine.times(program, columns["workload"], k, columns["threads"].astype(int))
    assert (index(k, time, computed) >= time).all()
    best = time.reshape(of, -1).argmin(1), index(k, time, computed).reshape(of, -1).argmin(1)
    assert int(np.sum(best[0] != best[1])) == differ


# ---- choosing --------------------------------------------------------------------------------


def test_limits_are_kept(tree: Tree) -> None:
    pairs = admissible(range(2, 29), range(1, 9), Limits(cores=32, processes=20, others=1))
    k, t = pairs.T
    assert (k * t <= 32).all() and (k + 1 <= 20).all() and len(pairs) > 50
    node = admissible(range(2, 29), range(1, 9), Limits(per_node=2, node_cores=8, threads=3))
    assert node[:, 1].max() == 3
    with pytest.raises(P3SError, match="no configuration"):
        admissible([4], [2], Limits(cores=7))
    columns = _columns(tree, 5000.0, pairs)
    best = choose(Evaluator.of(tree), columns, top=len(pairs))
    assert len(best) == len(pairs) and [b.value for b in best] == sorted(b.value for b in best)
    assert all(b.workers * b.threads <= 32 for b in best)
    hours = choose(Evaluator.of(tree), columns, "core-hours")
    assert hours[0].objective == pytest.approx(
        hours[0].value * hours[0].workers * hours[0].threads / 3600
    )
    with pytest.raises(UsageError, match="fit one with --target index"):
        choose(Evaluator.of(tree), columns, "index")


def _columns(tree: Tree, workload: float, pairs: np.ndarray) -> dict[str, np.ndarray]:
    shared = {"l2_0": np.minimum(2.0, pairs[:, 1]), "l2_1": np.maximum(0.0, pairs[:, 1] - 2)}
    return StoredTree(tree).columns(workload, pairs, {}) | shared


# ---- the table of choices --------------------------------------------------------------------


def test_published_choices_are_counted_as_they_are() -> None:
    """C30, and what the thesis's own tables say: exact choices and the largest regrets."""
    for text, rows, exact, worst in (
        (TABLE_5_6, 60, 41, {2300: 65.4, 1600: 56.2, 2100: 41.3, 2500: 33.6, 1250: 29.4}),
        (TABLE_5_10, 58, 46, {17000: 548.8, 20000: 217.3, 43500: 29.4}),
        (TABLE_5_16, 47, 30, {3200: 25.0, 500: 20.0, 3000000: 11.8}),
    ):
        found = choices(text)
        assert len(found) == rows and sum(b.kind == "exact" for b in found) == exact
        regret = {b.workload: 100 * b.regret for b in found}
        for workload, known in worst.items():
            assert regret[workload] == pytest.approx(known, abs=0.05)
        assert sum(kinds(found).values()) == pytest.approx(1)


# ---- making it better ------------------------------------------------------------------------


def merged(one: Table, other: Table) -> Table:
    """Return the rows of two tables of equal variables."""
    columns = {name: np.append(one.columns[name], other.columns[name]) for name in one.columns}
    return Table(columns, np.append(one.y, other.y))


def test_what_to_measure_next_helps() -> None:
    """C28: after the suggested runs the region is no worse, and the rest neither."""
    few = [w for w in TRAINING if not 1500 < w < 4000 or w in (2000, 3000)][::2]
    train, fresh = (machine.runs("nb", few, 0.02, 2), machine.runs("nb", VALIDATION[4:-6], 0.02, 3))
    before = grow(train, NB, machine.VARIABLES)
    errors = errors_of(before, fresh)
    region = worst_regions(before, fresh, errors)[0]
    assert region.workloads and all(w not in before.workloads for w in region.workloads)
    more = machine.runs("nb", list(region.workloads), 0.02, 4)
    after = grow(merged(train, more), NB, machine.VARIABLES)
    there = (fresh.columns["workload"] >= region.low) & (fresh.columns["workload"] <= region.high)
    now = errors_of(after, fresh)
    assert np.percentile(now[there], 90) <= np.percentile(errors[there], 90)
    assert np.median(now) <= np.median(errors) + 0.005
    regions = worst_regions(before, fresh, errors, 4)
    assert len(regions) == 4 and regions[0].box.third >= regions[1].box.third


def test_pruning(tree: Tree, fresh: Table) -> None:
    """C29."""
    held, other = (machine.runs("nb", VALIDATION[i::2], 0.02, 9) for i in (0, 1))
    pruned = prune(tree, held)
    assert len(pruned.leaves) <= len(tree.leaves)
    assert np.median(errors_of(pruned, other)) <= np.median(errors_of(tree, other)) + 0.005
    # A split that only follows noise goes: no row of other runs wants it.
    rng = np.random.default_rng(1)
    z = np.repeat([1.0, 2.0], 100)
    made = Table({"z": z}, np.where(z < 1.5, 1.0, 1.2) * np.exp(0.01 * rng.standard_normal(200)))
    grown = grow(made, "b0", ["z"])
    assert len(grown.leaves) == 2
    assert len(prune(grown, Table({"z": z}, np.full(200, 1.1))).leaves) == 1
    assert prune(grown, made) == grown


def test_a_report_has_the_steps_of_the_method(tree: Tree, fresh: Table) -> None:
    runs = merged(machine.runs("nb", TRAINING, 0.02, 0), fresh)
    found = report(tree, runs)
    assert {g.variable for g in found.groups} == set(list_variables(tree))
    assert found.verdict is not None and len(found.best) == 60 and len(found.regions) == 1
    assert report(tree, machine.runs("nb", TRAINING[:9], 0.02, 0)).verdict is None


W, K, T = np.array([100.0, 2000.0]), np.array([4.0, 8.0]), np.array([1.0, 3.0])
COLUMNS = {"workload": W, "workers": K, "threads": T}


def test_the_thesis_s_expression_is_read() -> None:
    found = parse("b3*W**2/(K*T)+b2*W/(K*T)+b1*K+b0")  # eq. 4.3
    assert found.coefficients == ("b0", "b1", "b2", "b3")
    assert found.variables == ("threads", "workers", "workload")
    one = np.ones(2)
    assert found.design(COLUMNS) == pytest.approx(
        np.stack([one, K, W / (K * T), W**2 / (K * T)], axis=1)
    )


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("b1*W^(1/2)", np.sqrt(W)),
        ("b1*sqrt(W)/2", np.sqrt(W) / 2),
        ("(b1*W)/K", W / K),
        ("W*K*b1", W * K),
        ("b1*(W + K)", W + K),
        ("b1*W + b1*K", W + K),
        ("-b1*W", -W),
        ("b1*max(W, K)*log2(W)", W * np.log2(W)),
        ("b1*1.5e2/T**(-1)", 150 * T),
    ],
)
def test_terms(text: str, column: np.ndarray) -> None:
    assert parse(text).design(COLUMNS)[:, 0] == pytest.approx(column)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty"),
        ("(" * 300 + "b1" + ")" * 300, "brackets deeper than 16"),
        ("b0*" + "(" * 60 + "W" + "**8)" * 60, "brackets deeper than 16"),
        ("b0*" + "log2(" * 16 + "W" + ")" * 16, "brackets deeper than 16"),
        ("b1*W+" * 400 + "b0", "longer than"),
    ],
)
def test_what_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


def test_variables_that_are_not_there_and_terms_without_a_value() -> None:
    with pytest.raises(UsageError, match="size is no variable here; there are threads, workers"):
        parse("b1*size").design(COLUMNS)
    with pytest.raises(UsageError, match="the term of b1 has no value in row 1"):
        parse("b1/(K-4)").design(COLUMNS)


@settings(max_examples=300, deadline=None)
@given(st.text("b01WKT+-*/^()., exp_log2'\"\\[]{}:;=é", max_size=40))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    try:
        parse(text)
    except UsageError as error:
        assert "\n" not in str(error)
