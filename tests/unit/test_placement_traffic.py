"""Traffic as columns, and generators: counts and sizes worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traffic_patterns import around, at_faces, at_faces_and_corners, halo, lulesh

from p3s.base.errors import P3SError
from p3s.methods.placement.phases import Traffic, together, traffic
from p3s.methods.placement.training.campaign import random_pairs


def messages_of(found: Traffic) -> list[tuple[int, int, int]]:
    return sorted(
        (s, d, b)
        for s, d, m, b in zip(found.source, found.dest, found.messages, found.nbytes, strict=True)
        for _ in range(m)
    )


def sent_by(found: Traffic, rank: int) -> list[int]:
    return sorted(b for s, _, b in messages_of(found) if s == rank)


def test_columns_are_checked() -> None:
    found = traffic(3, [0, 1, 0], [1, 2, 1], 8, [2, 1, 0])
    assert messages_of(found) == [(0, 1, 8), (0, 1, 8), (1, 2, 8)] and found.number == 3
    assert found.volume.tolist() == [16, 8]
    twice = together([found, found]).merged()
    assert messages_of(twice) == sorted(messages_of(found) * 2) and len(twice) == 2
    for bad, why in (
        (lambda: traffic(2, [0], [2], 1), "destination 2 is no rank of 2"),
        (lambda: traffic(2, [-1], [1], 1), "source -1"),
        (lambda: traffic(2, [0], [1], -1), "bytes are less than 0"),
        (lambda: traffic(2, [0], [1], 1, [-1]), "messages are less than 0"),
        (lambda: traffic(2, [0, 1], [1], 1), "columns have"),
        (lambda: together([found, traffic(2, [], [], [])]), "cannot be put together"),
    ):
        with pytest.raises(P3SError, match=why) as err:
            bad()
        assert "\n" not in str(err.value)


def test_halo_sends_faces_of_the_domain() -> None:
    # 10 points over 3 ranks: 4, 3, 3; 5 over 2: 3, 2.
    found = halo((3, 2), (10, 5))
    assert messages_of(found) == [
        (0, 1, 32), (0, 2, 24), (1, 0, 32), (1, 3, 16),
        (2, 0, 24), (2, 3, 24), (2, 4, 24), (3, 1, 16), (3, 2, 24), (3, 5, 16),
        (4, 2, 24), (4, 5, 24), (5, 3, 16), (5, 4, 24),
    ]  # fmt: skip
    with pytest.raises(P3SError, match="less than one"):
        halo((3, 2), (2, 5))
    with pytest.raises(P3SError, match="dimensions"):
        halo((3, 2), (10,))


def test_lulesh_sizes() -> None:
    one, two, three = lulesh(27, 10)
    assert sent_by(one, 13) == [24] * 8 + [24 * 11] * 12 + [24 * 121] * 6
    assert sent_by(two, 13) == [24 * 100] * 6
    assert sent_by(three, 13) == [48] * 4 + [48 * 11] * 6 + [48 * 121] * 3
    # Half the messages, twice as long: as much in all.
    assert three.volume.sum() == one.volume.sum() and 2 * three.number == one.number
    # To those before a rank: x is the fastest dimension, z the slowest.
    assert {d for s, d, _ in messages_of(three) if s == 13} == set(range(13))
    with pytest.raises(P3SError, match="no cube"):
        lulesh(28, 10)


shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(shapes, st.booleans(), st.sampled_from([at_faces, around, at_faces_and_corners]))
def test_what_is_sent_is_what_comes_back(grid, periodic, neighbours) -> None:
    found = halo(grid, [4 * x + k for k, x in enumerate(grid)], neighbours(len(grid)), 8, periodic)
    back = sorted((d, s, b) for s, d, b in messages_of(found))
    assert back == messages_of(found)
    assert (found.source != found.dest).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 20), st.integers(0, 5), st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 9))
def test_rounds_of_random_pairs_are_matchings(ranks, messages, inside, seed) -> None:
    node_of = np.arange(ranks) // 4
    found, rounds = random_pairs(node_of, messages, 7, inside, seed)
    assert len(rounds) == messages
    for pair in rounds:
        assert (pair[pair] == np.arange(ranks)).all()
        if inside == 1.0:
            assert (node_of[pair] == node_of).all()
        else:
            assert inside or (pair == np.arange(ranks)).sum() == ranks % 2
    data = np.bincount(found.source, weights=found.volume, minlength=ranks)
    number = np.bincount(found.source, weights=found.messages, minlength=ranks)
    assert (data == 7 * number).all() and number.max(initial=0) <= messages
    assert messages_of(random_pairs(node_of, messages, 7, inside, seed)[0]) == messages_of(found)
