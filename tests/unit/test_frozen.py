"""What the commands say of some studies is what it was; `make frozen-check` compares all."""

from __future__ import annotations

import frozen
import pytest


@pytest.mark.parametrize("part", frozen.PARTS)
def test_nothing_has_changed(part: str) -> None:
    """Each twelfth study of a part; a change that is meant is written by `make frozen`."""
    before = frozen.kept()
    for rows in frozen.computed(frozen.entries([part], frozen.EVERY), processes=1):
        assert list(frozen.differences(before, rows)) == []


def test_the_table_has_what_is_compared_and_no_study_that_is_gone() -> None:
    kept = set(frozen.kept())
    for every, compare in ((1, kept.issubset), (frozen.EVERY, kept.issuperset)):
        entries = frozen.entries(every=every)
        assert compare((e.name, n) for e in entries for n in (0, *e.counts, *e.targets))


def test_a_difference_is_told_by_study_count_and_column() -> None:
    old = {"study": "ring", "n": 8, "messages": "a1", "model_s": 1.0, "grid": [4, 2]}
    new = {**old, "messages": "b2", "model_s": 1.0 + 1e-9, "right": "8 of 8"}
    assert list(frozen.differences({("ring", 8): old}, [new])) == [
        "ring n=8 messages: a1 -> b2",
        "ring n=8 right: None -> 8 of 8",
    ]
