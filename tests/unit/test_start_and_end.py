"""Start and end of runs: what the launch takes beyond them, and what is said of it."""

from types import SimpleNamespace

import pytest

from p3s.predict.start import at, sentences


def test_traced_counts_are_as_measured() -> None:
    found = at({2: (0.4, 0.5), 4: (0.6,)}, 2)
    assert found.measured and (found.low_s, found.high_s) == (0.4, 0.5)


@pytest.mark.parametrize("n", [64, 1024])
def test_the_interval_holds_launchers_that_grow_as_a_line_and_as_a_tree(n: int) -> None:
    import math

    line = {k: (0.3 + 0.01 * k,) for k in (2, 4, 8)}
    tree = {k: (0.3 + 0.05 * math.log2(k),) for k in (2, 4, 8)}
    for traced, truth in ((line, 0.3 + 0.01 * n), (tree, 0.3 + 0.05 * math.log2(n))):
        found = at(traced, n)
        assert found.low_s <= truth <= found.high_s and not found.measured


def test_one_count_says_the_same_for_all_with_a_wide_interval() -> None:
    found = at({4: (0.5,)}, 64)
    assert found.low_s < 0.5 < found.high_s


def test_it_is_said_where_it_becomes_the_limit() -> None:
    traced = {2: (0.4,), 4: (0.5,), 8: (0.7,)}
    rows = [SimpleNamespace(n=n, time_s=8.0 / n) for n in (2, 8, 64)]
    said = sentences([at(traced, n) for n in (2, 8, 64)], rows)  # type: ignore[arg-type]
    assert len(said) == 3 and "from 64 processes on" in said[1]
    quick = sentences([at(traced, n) for n in (2, 8)], rows[:2])  # type: ignore[arg-type]
    assert len(quick) == 2
    assert sentences([], rows) == []  # type: ignore[arg-type]
