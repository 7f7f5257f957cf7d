"""Laws over values of parameters."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from fractions import Fraction as F

import corpus
import pytest
from corpus import sizes as s

from p3s.base.errors import P3SError, UsageError
from p3s.base.serialise import from_data, to_data
from p3s.base.settings import (
    check_command,
    fill_parameters,
    one_setting,
    parse_params,
    parse_setting,
    setting_name,
    settings_of,
    value_text,
)
from p3s.costs.parameters.alike import Member, alike
from p3s.costs.parameters.fit import fit_laws, leave_out, model_at
from p3s.costs.parameters.laws import (
    EXACT,
    FITTED,
    OPEN,
    Equation,
    Family,
    Means,
    Number,
    Part,
    SettingInfo,
    find_number,
    parse_laws,
    settings_along,
)
from p3s.laws.exact import value_at
from p3s.laws.expr import num
from p3s.laws.symbolic import to_text
from p3s.model.compare import compare
from p3s.model.comparison import HoldOut, Overlap, Summary, Weights
from p3s.model.holdout import build_model
from p3s.model.work_types import Segment

ANY, POWERS = (4, 6, 9), (4, 8, 16)


def at(*values, names=("size", "other")):
    return dict(zip(names, map(Fraction, values), strict=False))


def traced(make, values, counts):
    """Return a program at each of the values with its models."""
    out = []
    for value in values:
        each = value if isinstance(value, tuple) else (value,)
        tables = [corpus.table(make(*each), n) for n in counts]
        model = build_model(tables, holdout=False, typed=set(each))
        out.append(Member(at(*each), tables, model))
    return out


def fitted(runs, use=None):
    parts, why = alike(runs)
    use = range(len(parts[0].members)) if use is None else use
    return fit_laws(parts[0], use), why


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
    report, missed = leave_out(laws, runs[3])
    held = report.comparison
    assert held.weights.exact < held.weights.phases
    whole, _ = fitted(runs)
    model = model_at(replace(whole, holdout=report, missed=missed), at(50))
    loop = model.phases[1]
    assert loop.weight_verdict == "statistical"
    assert "exact" not in {i.verdict for i in model.items if i.phase == 1}
    right = leave_out(fitted(runs[:3], use=(0, 1))[0], runs[2])
    assert all(row.all_equal for row in right[0].each)


def test_another_grid_is_left_out():
    def make(v):
        return corpus.ring(v, 2) if v < 200 else corpus.jacobi2d(v, v, 2)

    runs = traced(make, (101, 151, 301), ANY)
    parts, why = alike(runs)
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


def law(points):
    return find_number([{"s": F(k)} for k in points], [F(v) for v in points.values()])


@pytest.mark.parametrize(
    ("points", "text", "at", "value"),
    [
        ({400: 7, 800: 7}, "7", 1600, 7),
        ({400: 400, 800: 800}, "s", 1600, 1600),
        ({400: 398, 800: 798, 1200: 1198}, "s - 2", 1600, 1598),
        ({400: 20, 800: 40, 1200: 60}, "s/20", 1600, 80),
        ({40: 1600, 80: 6400, 120: 14400}, "s**2", 160, 25600),
        ({8: 64, 16: 512, 24: 1728}, "s**3/8", 32, 4096),
        ({400: 200, 801: 400, 1200: 600}, "floor(s/2)", 1601, 800),
        ({400: 134, 800: 267, 1200: 400}, "ceil(s/3)", 1600, 534),
        ({8: 3, 16: 4, 32: 5}, "log2(s)", 64, 6),
        ({10: 110, 20: 420, 30: 930, 40: 1640}, "s**2 + s", 50, 2550),
        ({F(1, 2): 2, F(1, 4): 4, F(1, 8): 8}, "1/s", F(1, 16), 16),
    ],
)
def test_exact_laws(points, text, at, value):
    found = law(points)
    assert (found.state, to_text(found.expr)) == (EXACT, text)
    assert found.value({"s": F(at)}) == value and found.settled({"s": F(at)})
    assert from_data(Number, to_data(found)) == found


def test_as_many_numbers_as_values_is_open():
    assert law({40: 39, 80: 79}).state == OPEN
    assert law({100: 10, 200: 40}).state != EXACT  # s**2/1000, but as well others


@pytest.mark.parametrize(
    "points",
    [{100: 37, 200: 52, 300: 64}, {100: 100, 200: 100, 300: 200}, {400: 10, 800: 11, 1600: 12}],
)
def test_no_law_by_chance(points):
    found = law(points)
    assert found.state == FITTED and found.error > 1e-3
    values = [found.value({"s": F(k)}) for k in points]
    assert all(0.5 < v / w < 2 for v, w in zip(values, points.values(), strict=True))


@pytest.mark.parametrize(
    "made",
    [
        lambda a, b: a * b,
        lambda a, b: a + b,
        lambda a, b: 3 * a,
        lambda a, b: 2 * a * b + 4 * a + 7,
        lambda a, b: a * a * b + 2,
        lambda a, b: F(a, b),
    ],
)
def test_two_parameters(made):
    settings = [{"a": F(a), "b": F(b)} for a in (4, 8, 20) for b in (2, 6, 14)]
    found = find_number(settings, [F(made(int(s["a"]), int(s["b"]))) for s in settings])
    assert found.state == EXACT
    assert value_at(found.expr, {"a": F(36), "b": F(9)}) == made(36, 9)


def test_values_as_text():
    assert [value_text(F(v)) for v in ("4000", "0.25", "1.50", "0.000000001")] == [
        "4000",
        "0.25",
        "1.5",
        "0.000000001",
    ]
    values = parse_params(["nx=400,0200,400", "ny=0.50"])
    assert values == {"nx": [F(200), F(400)], "ny": [F(1, 2)]}
    names = [setting_name(s) for s in settings_of(values)]
    assert names == ["nx=200,ny=0.5", "nx=400,ny=0.5"]
    assert parse_setting(names[0]) == {"nx": F(200), "ny": F(1, 2)}
    words = ["mpiexec", "-n", "{np}", "./app", "--size={nx}x{ny}"]
    check_command(words, ["nx", "ny"])
    assert fill_parameters(words, parse_setting(names[0]))[-1] == "--size=200x0.5"
    assert fill_parameters(words, parse_setting(names[0]))[2] == "{np}"


def test_one_value_for_each_parameter():
    assert one_setting(["b=2", "a=4"], ["a", "b"]) == {"a": F(4), "b": F(2)}
    for words in (["a=4"], ["a=4", "b=2,3"], ["a=4", "b=2", "c=1"]):
        with pytest.raises(UsageError):
            one_setting(words, ["a", "b"])
    with pytest.raises(UsageError, match="no {size}"):
        check_command(["mpiexec", "-n", "{np}", "./app"], ["size"])


@pytest.mark.parametrize(
    ("text", "n", "value"),
    [
        ("size~n", 16, 1600),
        ("size~n^0.5", 16, 800),
        ("size~n^(1/3)", 32, 800),
        ("size~100*n", 16, 1600),
        ("size~2.5*n^2", 8, 160),
        ("size ~ n", 8, 800),
    ],
)
def test_weak_laws(text, n, value):
    (found,) = parse_laws(text)
    assert found.value(n, 4, F(400), True) == (F(value), False)
    assert parse_laws(found.text()) == [found]


def test_weak_laws_are_rounded_and_it_is_said():
    laws = parse_laws("nx~n^0.5,ny~n^(1/3)")
    along, notes = settings_along(
        laws,
        {"nx": F(100), "ny": F(10), "z": F(3)},
        ["nx", "ny", "z"],
        [4, 8, 16],
        4,
        {"nx": True, "ny": False, "z": True},
    )
    assert along[8] == {"nx": F(141), "ny": F("12.5992"), "z": F(3)}
    assert along[4] == {"nx": F(100), "ny": F(10), "z": F(3)}
    assert sum("nx is rounded to 141" in note for note in notes) == 1


def test_a_parameter_or_a_number_of_zero_has_a_law():
    """Powers below one have no value at zero: they are not tried; errors are not relative to it."""
    found = find_number([{"size": F(0)}, {"size": F(2)}, {"size": F(5)}], [1.0, 2.5, 4.1])
    assert all(e >= 0 for _, powers in found.terms for e in powers)
    assert found.value({"size": F(0)}) >= 0
    assert 0 <= find_number([{"size": F(k)} for k in (1, 2, 4)], [0.0, 2.5, 4.1]).error < 1e3
    falls = find_number([{"size": F(k)} for k in (1, 2, 4)], [1.01, 0.5, 0.25])
    with pytest.raises(P3SError, match="no value"):
        falls.value({"size": F(0)})


def test_what_is_written_of_a_part_is_read_as_the_same() -> None:
    exact = Number("exact", ["sym", "size"], rivals=(["num", 3, 1],))
    real = Number("fitted", None, ((2.5, (1.0,)),), 0.1, False)
    means = Means("fitted", True, ((4, exact), (8, real)))
    segment = Segment(((1.5, ["sym", "items.0"], ""),), 0.1, (), (4, 8))
    part = Part(
        settings=("size=1", "size=2"),
        ordered=True,
        equations=(Equation("weight", ["sym", "size"], "exact", ("Send",)),),
        laws={"items.0": exact, "a": real, "b": means},
        work={" > a:MPI_Send": segment},
        holdout=HoldOut(8, False, "why"),
        missed=(("a", "MPI_Send", None),),
    )
    same = Overlap(1, 1, 1)
    summary = Summary(4, same, same, Weights(1, 1), None, {"mean_abs_error": 0.0})
    family = Family(
        ("size",),
        (SettingInfo("size=1", (4, 8), True),),
        {"size=3": "other calls"},
        (part,),
        (
            HoldOut(4, False, "no model", setting="size=4"),
            HoldOut(4, True, setting="size=5", each=(summary,)),
        ),
    )
    text = json.loads(json.dumps(to_data(family)))
    assert from_data(Family, text) == family
    text["parts"][0]["laws"]["b"]["counts"] = [[4]]
    with pytest.raises(P3SError, match="laws"):
        from_data(Family, text)
