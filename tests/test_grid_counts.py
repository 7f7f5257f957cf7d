"""Which counts show a grid, and which are traced where only a maximum is given."""

from __future__ import annotations

import math

import pytest

from p3s.cli.counts import Asked, parse_asked
from p3s.errors import UsageError
from p3s.model.grid import admissible
from p3s.model.grid.counts import choose, hidden, left_open, telling

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
        "-n 2,4,8,16 leaves at most two ranks in two dimensions of a 3-D grid; "
        "8,12,18,27 would tell")
    assert left_open([2, 4, 8]).startswith(
        "-n 2,4,8 leaves at most two ranks in one dimension of a 2-D grid and all three "
        "dimensions of a 3-D grid;")
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


@pytest.mark.parametrize(("top", "counts"), [
    (4, [1, 2, 3, 4]), (8, [2, 4, 6, 8]), (16, [4, 8, 9, 16]), (27, [8, 12, 18, 27]),
    (32, [8, 12, 18, 27]), (64, [12, 18, 32, 54]), (128, [16, 27, 54, 108])])
def test_good_counts_up_to_a_maximum(top, counts):
    assert choose(top) == counts
    shown = [n for n in (2, 3) if hidden(counts, n) == 0]
    assert shown == ([2, 3] if top >= 27 else [2] if top >= 9 else [])


@pytest.mark.parametrize("top", [4, 8, 16, 27, 32, 64, 128, 1000])
def test_good_counts_are_four_at_least_and_not_powers_of_two_alone(top):
    counts = choose(top)
    assert len(counts) == 4 and counts[-1] <= top and math.gcd(*counts) <= 2
    assert any(n & (n - 1) for n in counts) and counts[-1] >= 0.8 * top


@pytest.mark.parametrize(("name", "top", "ran"), [
    ("powers", 16, [2, 4, 8, 16]), ("powers", 32, [4, 8, 16, 32]), ("squares", 16, [1, 4, 9, 16]),
    ("squares", 32, [4, 9, 16, 25]), ("cubes", 27, [1, 8, 27]), ("cubes", 64, [1, 8, 27, 64]),
    ("even", 32, [8, 12, 18, 32]), ("four or more", 8, [4, 5, 6, 8]),
    ("twelve or fewer", 32, [6, 8, 9, 12]), ("any", 32, [8, 12, 18, 27])])
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
    assert admissible.learn([8], [12, 18])["kind"] == "powers"
    assert admissible.learn([], [8, 12])["kind"] == "squares"
    assert admissible.learn([4, 8], [6, 9])["kind"] == "multiples"


def test_a_maximum_on_the_command_line():
    assert parse_asked("..32") == Asked(top=32) and parse_asked("8,4") == Asked((4, 8))
    for wrong in ("..", "..x", "..0", "..-3", "4..32", "..4,8", "..99999999999"):
        with pytest.raises(UsageError):
            parse_asked(wrong)
