"""Tags that name a rank never tell the calls of a site apart; tags of directions do."""

from __future__ import annotations

from collections.abc import Callable

import corpus
import pytest

from p3s.model.grid.nodes import tag_splits

#: The tag of a message from its sender, receiver, direction and iteration.
Tag = Callable[[int, int, int, int], int]

NAMES: dict[str, Tag] = {
    "sender": lambda s, d, k, t: s,
    "receiver": lambda s, d, k, t: d + 7,
    "sender and direction": lambda s, d, k, t: 4 * s + k,
    "pair": lambda s, d, k, t: 100 * s + d,
    "receiver and iteration": lambda s, d, k, t: 20 * t + d,
}


@corpus.program
def halo(rec: corpus.Recorder, tag: Tag) -> None:
    """Messages to the neighbours of an open grid of two columns."""
    rows, (i, j) = rec.n // 2, divmod(rec.rank, 2)
    for t in range(2):
        for k, (a, b) in enumerate(((1, 0), (-1, 0), (0, 1), (0, -1))):
            if 0 <= i + a < rows and 0 <= j + b < 2:
                to = (i + a) * 2 + j + b
                rec("Isend", peer=to, nbytes=80, tag=tag(rec.rank, to, k, t))
            if 0 <= i - a < rows and 0 <= j - b < 2:
                back = (i - a) * 2 + j - b
                rec("Irecv", peer=back, nbytes=80, tag=tag(back, rec.rank, k, t))


def splits(tag: Tag) -> set[bool | None]:
    return set(tag_splits([corpus.table(halo(tag), n) for n in (2, 4, 8)]).values())


@pytest.mark.parametrize("name", NAMES)
def test_a_tag_that_names_a_rank_splits_no_site(name: str) -> None:
    assert splits(NAMES[name]) == {False}


def test_tags_of_directions_do() -> None:
    assert False not in splits(lambda s, d, k, t: k)
