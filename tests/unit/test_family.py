"""Programs at several sizes: the laws between them give the truth at sizes that were not traced."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import corpus
import pytest
from corpus import sizes as s

from p3s.base.errors import P3SError
from p3s.base.serialise import to_data
from p3s.costs.parameters.alike import alike, laws_of
from p3s.costs.parameters.derive import Fitted, leave_out, model_at
from p3s.costs.parameters.work import fit_family_work
from p3s.laws.expr import num
from p3s.model.compare import compare
from p3s.model.comparison import Weights
from p3s.model.holdout import build_model

ANY, POWERS = (4, 6, 9), (4, 8, 16)


def at(*values, names=("size", "other")):
    return dict(zip(names, map(Fraction, values), strict=False))


def traced(make, values, counts):
    """Return (setting, model, tables) of a program at each of the values."""
    out = []
    for value in values:
        each = value if isinstance(value, tuple) else (value,)
        tables = [corpus.table(make(*each), n) for n in counts]
        out.append((at(*each), build_model(tables, holdout=False, typed=set(each)), tables))
    return out


def fitted(runs, use=None):
    parts, why = alike([(setting, model) for setting, model, _ in runs])
    part = parts[0]
    tables = {
        m: next(t for setting, _, t in runs if setting == member.setting)
        for m, member in enumerate(part.members)
    }
    use = tuple(range(len(part.members))) if use is None else use
    return Fitted(part, use, laws_of(part, use), fit_family_work(part, use, tables)), why


CASES = [
    ("halo", lambda v: corpus.jacobi2d(v, v, 3), (101, 203, 301), ANY, 407, 36),
    (
        "halo, own law each",
        lambda v: corpus.jacobi2d(2 * v + 1, v - 1, 3),
        (101, 203, 301),
        ANY,
        407,
        36,
    ),
    ("turns", lambda v: corpus.jacobi2d(101, 97, v), (5, 10, 15), ANY, 40, 36),
    ("one extent", lambda v: corpus.jacobi2d(v, 97, 2), (101, 203, 301), ANY, 407, 36),
    ("ring", lambda v: corpus.ring(v, 2), (100, 201, 302), (4, 6, 8, 9), 407, 36),
    ("pipeline", lambda v: corpus.wavefront(101, 103, v), (2, 4, 6), ANY, 9, 36),
    ("transpose", lambda v: corpus.fft2d(v), (256, 512, 1024), POWERS, 2048, 32),
    ("gather", lambda v: corpus.gather_to_root(v), (101, 203, 301), ANY, 407, 36),
    ("blocks that travel", lambda v: s.allgather_ring(v), (101, 203, 301), ANY, 407, 25),
]


@pytest.mark.parametrize(
    ("make", "values", "counts", "wanted", "n"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_sizes_never_traced_are_exact(make, values, counts, wanted, n):
    laws, why = fitted(traced(make, values, counts))
    assert not why and len(laws.part.members) == 3
    model = model_at(laws, at(wanted))
    result = compare(model, corpus.table(make(wanted), n))
    assert result.all_equal, result
    assert result.order.equal == n
    assert result.work.max_abs_error < 1e-6
    json.dumps(to_data(model))


def test_an_order_that_holds_at_one_size_only_is_left_out():
    """Turns of an inner loop are listed one by one: there are more of them at larger sizes."""
    laws, why = fitted(traced(lambda v: corpus.every_tenth(v), (40, 60, 80), ANY))
    assert not why
    model = model_at(laws, at(120))
    result = compare(model, corpus.table(corpus.every_tenth(120), 16))
    assert replace(result, weights=Weights(0, 0)).all_equal
    assert model.order is None and result.order is None


def test_two_parameters_vary_on_their_own():
    def make(nx, ny):
        return corpus.jacobi2d(nx, ny, 3)

    values = [(101, 103), (101, 205), (203, 103), (203, 205)]
    laws, _ = fitted(traced(make, values, (4, 6, 9)))
    result = compare(model_at(laws, at(407, 311)), corpus.table(make(407, 311), 36))
    assert result.all_equal and result.work.max_abs_error < 1e-6


def test_what_one_size_leaves_open_another_decides():
    """Blocks of even size tell nothing of a remainder: 402 does, and its rule meets the others."""
    runs = traced(lambda v: corpus.jacobi2d(v, v, 3), (360, 402, 720), (4, 6, 9))
    laws, _ = fitted(runs)
    assert len(laws.part.members) == 3
    model = model_at(laws, at(1001))
    assert compare(model, corpus.table(corpus.jacobi2d(1001, 1001, 3), 25)).all_equal


def test_left_out_and_missed():
    """A number of turns that leaves its law at the largest size is found where that is left out."""

    def make(v):
        return corpus.jacobi2d(101, 97, v if v < 40 else 77)

    runs = traced(make, (10, 20, 30, 40), ANY)
    laws, _ = fitted(runs, use=(0, 1, 2))
    report, missed = leave_out(laws, 3, runs[3][2])
    held = report.comparison
    assert held.weights.exact < held.weights.phases
    whole, _ = fitted(runs)
    model = model_at(replace(whole, holdout=report, missed=missed), at(50))
    loop = model.phases[1]
    assert loop.weight_verdict == "statistical"
    assert "exact" not in {i.verdict for i in model.items if i.phase == 1}
    right = leave_out(fitted(runs[:3], use=(0, 1))[0], 2, runs[2][2])
    assert all(row.all_equal for row in right[0].each)


def test_another_grid_is_left_out():
    def make(v):
        return corpus.ring(v, 2) if v < 200 else corpus.jacobi2d(v, v, 2)

    runs = traced(make, (101, 151, 301), ANY)
    parts, why = alike([(setting, model) for setting, model, _ in runs])
    assert [len(p.members) for p in parts] == [2, 1]
    assert "size=301" in why and "size=101" not in why


def test_numbers_without_a_law_are_statistical_and_said_to_be():
    turns = {10: 37, 20: 52, 30: 64}
    laws, _ = fitted(traced(lambda v: corpus.jacobi2d(101, 97, turns[v]), (10, 20, 30), ANY))
    model = model_at(laws, at(40))
    weight = model.phases[1].weight.expr
    assert 64 < weight[1] / weight[2] < 90
    assert model.phases[1].weight_verdict == "statistical"
    assert any("no exact law of the parameters" in w.sentence for i in model.items for w in i.why)


def test_whole_numbers_stay_whole_and_are_not_called_exact():
    laws, _ = fitted(traced(lambda v: corpus.jacobi2d(101, 97, v // 10), (100, 200, 300), ANY))
    model = model_at(laws, at(405))
    weight = model.phases[1]
    assert weight.weight.expr == num(40) and weight.weight_verdict == "fitted"
    assert model_at(laws, at(400)).phases[1].weight_verdict == "exact"


def test_no_value_where_a_law_has_none():
    with pytest.raises(P3SError):
        fitted_ = fitted(traced(lambda v: corpus.ring(v, 2), (100, 201, 302), (4, 6, 8, 9)))[0]
        model_at(fitted_, {"size": Fraction(0)})
