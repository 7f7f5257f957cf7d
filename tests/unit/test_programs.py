"""The launcher command of several programs in one launch, from the counts of its runs."""

from __future__ import annotations

import pytest

from p3s.base.errors import UsageError
from p3s.base.extents import with_count
from p3s.signature_runner.programs import Block, launched


def run(*counts: int) -> list[Block]:
    return [Block((f"./{'abc'[k]}", str(k)), count, own=True) for k, count in enumerate(counts)]


@pytest.mark.parametrize(
    ("runs", "counts"),
    [
        ([(1, 2)], ["1", "{np-1}"]),
        ([(2, 1)], ["{np-1}", "1"]),
        ([(1, 2), (1, 4)], ["1", "{np-1}"]),
        ([(2, 2), (4, 4)], ["{np/2}", "{np/2}"]),
        ([(1, 3, 2), (1, 7, 2)], ["1", "{np-3}", "2"]),
    ],
)
def test_counts_follow_from_the_whole(runs: list[tuple[int, ...]], counts: list[str]) -> None:
    words = launched([run(*each) for each in runs])
    assert [words[at + 1] for at, word in enumerate(words) if word == "-n"] == counts
    for each in runs:
        whole = with_count(words, sum(each))
        assert [int(whole[at + 1]) for at, word in enumerate(whole) if word == "-n"] == list(each)
    assert "./b 1" in " ".join(words) and words.count(":") == len(runs[0]) - 1


def test_counts_without_a_rule_need_the_command() -> None:
    with pytest.raises(UsageError, match="after --"):
        launched([run(1, 3), run(2, 6), run(3, 7)])
