"""Which counts show a grid, and which are traced where only a maximum is given."""

from __future__ import annotations

import math
from functools import partial

import pytest

from p3s.base.errors import UsageError
from p3s.base.extents import dims_balanced
from p3s.base.study import Study
from p3s.cli.progress import Progress
from p3s.cli.values import parse_asked
from p3s.model.grid import admissible
from p3s.model.grid.admissible import choose, hidden, left_open, telling
from p3s.model.stage import ProgramFacts
from p3s.pipeline.records import known_of
from p3s.pipeline.tracing.runs import (
    CountRequest,
    Failure,
    Grids,
    TraceResult,
    reasons,
    trace_asked,
    warn,
)

TAKES = {
    "any": lambda n: True,
    "powers": lambda n: n & (n - 1) == 0,
    "squares": lambda n: math.isqrt(n) ** 2 == n,
    "cubes": lambda n: round(n ** (1 / 3)) ** 3 == n,
    "even": lambda n: n % 2 == 0,
    "four or more": lambda n: n >= 4,
    "twelve or fewer": lambda n: n <= 12,
}


def test_counts_that_hide_dimensions_are_named_with_others_that_show_them():
    assert left_open([2, 4, 8, 16]) == (
        "-n 2,4,8,16 has at most two ranks in two dimensions of a 3-D grid; "
        "8,12,18,27 would show more"
    )
    assert left_open([2, 4, 8]).startswith(
        "-n 2,4,8 has at most two ranks in one dimension of a 2-D grid and all three "
        "dimensions of a 3-D grid;"
    )
    for shown in ([8, 12, 18, 27], [8, 16, 32, 64], [64]):
        assert left_open(shown) == ""


def test_only_dimensions_that_the_program_has_count():
    assert left_open([2, 4, 8, 16], dims=(2,)) == "" and left_open([2, 3], dims=(1,)) == ""
    assert "all four dimensions of a 4-D grid" in left_open([2, 4, 8, 16], dims=(4,))
    slabs = {2: (1, 1, 2), 4: (1, 1, 4), 64: (4, 4, 4)}
    given = lambda n, ndims: slabs[n]  # noqa: E731
    assert hidden([2, 4], 3, given) == 2 and hidden([2, 4, 64], 3, given) == 0


def test_the_advice_has_no_count_that_the_program_refuses():
    assert telling() == [8, 12, 18, 27]
    assert telling(failed=(12, 18, 27, 6)) == [8, 16, 32, 64]  # powers of two


def test_the_advice_keeps_to_the_kind_of_counts_that_are_asked_for():
    assert left_open([1, 4, 9]) == ""  # 9 are 3x3, and squares are of programs with two dimensions
    assert left_open([1, 4, 16]).endswith("8,12,18,27 would show more")  # powers of two say nothing
    assert all(math.isqrt(n) ** 2 == n for n in telling((3,), like=(1, 4, 9)))
    assert left_open([1, 8, 27]) == ""


def test_powers_of_two_are_the_users_choice_where_none_was_refused():
    for known in (admissible.learn([1, 2, 4]), admissible.learn([1, 2, 4], powers=True)):
        assert not known.sure and admissible.text(known) == ""
        assert admissible.doubt(known, 12) is None
    refused = admissible.learn([2, 4, 8], [6])
    assert "seems to take powers of two only" in admissible.text(refused)
    assert admissible.doubt(refused, 12)


def test_no_count_at_or_above_a_failure_that_the_kind_does_not_explain():
    squares = admissible.learn([1, 4, 9, 16], [25])
    assert squares.kind == "squares" and admissible.candidates(squares, 100) == [4, 9, 16]
    assert admissible.larger(squares) is None
    assert admissible.larger(admissible.learn([1, 4, 9])) == 25
    assert admissible.larger(admissible.learn([2, 4, 8])) == 16
    assert 16 in admissible.candidates(admissible.learn([2, 4, 8], [12]), 20)


def test_no_count_is_proposed_above_one_that_was_refused():
    """A program that takes any count up to the size of its input."""
    known = admissible.learn([1, 2, 4, 9], [49])
    assert known.kind == "any" and admissible.candidates(known, 200) == list(range(3, 49))
    assert admissible.larger(known) == 18
    refused = admissible.learn([1, 2, 4, 9], [10, 49, 72])
    assert admissible.candidates(refused, 200) == list(range(3, 10))
    assert admissible.larger(refused) is None
    ran_since = admissible.learn([1, 2, 4, 9, 64], [49])
    assert 65 in admissible.candidates(ran_since, 200), "it was shown to run above"


def test_a_refusal_that_the_kind_of_counts_may_explain_is_not_jumped_over():
    powers = admissible.learn([1, 2, 4], [49])
    assert powers.kind == "powers" and admissible.candidates(powers, 200) == [4, 8, 16, 32]
    tried = admissible.learn([1, 2, 4, 8, 16, 32], [49])
    assert admissible.candidates(tried, 200) == [4, 8, 16, 32, 64, 128], "49 is no power of two"
    assert admissible.candidates(admissible.learn([1, 2, 4, 8, 16, 32], [49, 64]), 200)[-1] == 48


def test_a_program_that_fails_alike_at_two_counts_is_not_tried_at_others(tmp_path, capsys):
    """Of the first four, 8 and 9 have least in common; another failure at each is no reason."""
    study = Study.create(tmp_path / "s", ["mpiexec", "-n", "{np}", "./app"])
    asked, grids = parse_asked("..16"), Grids((2, 3), dims_balanced)
    traced = []

    def trace(reason):
        def fails(counts):
            traced.extend(counts)
            return TraceResult(
                failed=[Failure(n, 0, 1, f"np={n}: ./app: {reason(n)}", True) for n in counts]
            )

        return fails

    died = trace(lambda n: f"rank 0 of {n} died: no input")
    done = trace_asked(asked, [4, 8, 9, 16], partial(known_of, study), grids, died, Progress())
    assert traced == [8, 9] and "refuses" not in capsys.readouterr().err
    assert reasons(done.failed) == "np=8, 9: ./app: rank 0 died: no input"
    traced.clear()
    parity = trace(lambda n: "odd" if n % 2 else "even")
    trace_asked(asked, [4, 8, 9, 16], partial(known_of, study), grids, parity, Progress())
    assert traced[:4] == [8, 9, 4, 16] and len(traced) > 4


def test_counts_that_p3s_has_chosen_are_not_warned_of(tmp_path, capsys):
    grids = Grids((2, 3), dims_balanced)
    warn(parse_asked("..16"), [4, 8, 9, 16], ProgramFacts(), grids, Progress())
    assert not capsys.readouterr().err
    warn(parse_asked("4,8,9,16"), [4, 8, 9, 16], ProgramFacts(), grids, Progress())
    assert "has at most two ranks" in capsys.readouterr().err


def test_a_reason_of_several_counts_is_said_once():
    rows = [
        Failure(
            n,
            None,
            213,
            f"np={n}: mpiexec: no hostfile; app was not started at {n} rank{'s' * (n > 1)}",
        )
        for n in (1, 2, 4)
    ]
    assert reasons(rows) == "np=1, 2, 4: mpiexec: no hostfile; app was not started"


@pytest.mark.parametrize(
    ("top", "counts"),
    [
        (4, [1, 2, 3, 4]),
        (8, [2, 4, 6, 8]),
        (16, [4, 8, 9, 16]),
        (27, [8, 12, 18, 27]),
        (32, [8, 12, 18, 27]),
        (64, [12, 18, 32, 54]),
        (128, [16, 27, 54, 108]),
    ],
)
def test_good_counts_up_to_a_maximum(top, counts):
    assert choose(top) == counts
    shown = [n for n in (2, 3) if hidden(counts, n) == 0]
    assert shown == ([2, 3] if top >= 27 else [2] if top >= 9 else [])


@pytest.mark.parametrize("top", [4, 8, 16, 27, 32, 64, 128, 1000])
def test_good_counts_are_four_at_least_and_not_powers_of_two_alone(top):
    counts = choose(top)
    assert len(counts) == 4 and counts[-1] <= top and math.gcd(*counts) <= 2
    assert any(n & (n - 1) for n in counts) and counts[-1] >= 0.8 * top


@pytest.mark.parametrize(
    ("name", "top", "ran"),
    [
        ("powers", 16, [2, 4, 8, 16]),
        ("powers", 32, [4, 8, 16, 32]),
        ("squares", 16, [1, 4, 9, 16]),
        ("squares", 32, [4, 9, 16, 25]),
        ("cubes", 27, [1, 8, 27]),
        ("cubes", 64, [1, 8, 27, 64]),
        ("even", 32, [8, 12, 18, 32]),
        ("four or more", 8, [4, 5, 6, 8]),
        ("twelve or fewer", 32, [6, 8, 9, 12]),
        ("any", 32, [8, 12, 18, 27]),
    ],
)
def test_others_stand_in_for_counts_that_are_refused(name, top, ran):
    there: list[int] = []
    failed: list[int] = []
    for _ in range(4):
        more = choose(top, there, failed)
        assert not {*more} & {*there, *failed}
        there += [n for n in more if TAKES[name](n)]
        failed += [n for n in more if not TAKES[name](n)]
    assert sorted(there) == ran and len(failed) <= 7


def test_what_is_there_is_not_traced_again():
    assert choose(32, [2, 4, 8, 16]) == [27]
    assert choose(32, [8, 12, 18, 27]) == []
    assert choose(64, [8, 12, 18, 27]) == [54]
    assert choose(3) == [1, 2, 3] and choose(1) == [1]


def test_one_count_says_nothing_of_multiples():
    assert admissible.learn([8], [12, 18]).kind == "powers"
    assert admissible.learn([], [8, 12]).kind == "squares"
    assert admissible.learn([4, 8], [6, 9]).kind == "multiples"


def test_a_maximum_on_the_command_line():
    assert parse_asked("..32") == CountRequest(top=32) and parse_asked("8,4") == CountRequest(
        (4, 8)
    )
    for wrong in ("..", "..x", "..0", "..-3", "4..32", "..4,8", "..99999999999"):
        with pytest.raises(UsageError):
            parse_asked(wrong)
