"""Segments: the computation between two calls, told apart by where it starts."""

from __future__ import annotations

import corpus
import numpy as np
import pytest

from p3s.model.work.flows import _kinds
from p3s.signature.part import join, part_of
from p3s.signature.segments import least


def first_turn(rec):
    """The first turn's call is preceded by the set-up, all others by a step."""
    rec("Bcast", root=0, work=7)
    for i in range(5):
        rec("Send", peer=(rec.rank + 1) % rec.n if rec.rank else -3, work=100 if i else 5000)
        rec("Recv", peer=(rec.rank - 1) % rec.n, work=10)


def by_name(table, rank):
    nodes = [op for _, op in table.nodes]
    return {
        (nodes[a] if a >= 0 else "", nodes[b]): (k, w)
        for r, a, b, k, w in table.segments.tolist()
        if r == rank
    }


def test_the_first_turn_is_a_segment_of_its_own():
    got = by_name(corpus.table(first_turn, 3), 1)
    assert got[("MPI_Bcast", "MPI_Send")] == (1, 5000)
    assert got[("MPI_Recv", "MPI_Send")] == (4, 400)
    assert got[("MPI_Send", "MPI_Recv")] == (5, 50)
    assert got[("", "MPI_Init")] == (1, 0)


def test_work_before_calls_that_move_nothing_counts_with_the_next():
    got = by_name(corpus.table(first_turn, 3), 0)
    assert got[("MPI_Bcast", "MPI_Recv")] == (1, 5010)
    assert got[("MPI_Recv", "MPI_Recv")] == (4, 440)
    assert not any("MPI_Send" in key for key in got)


def test_segments_have_all_work_of_the_rows():
    t = corpus.table(corpus.wavefront(), 6)
    assert t.segments[:, 4].sum() == t.work.sum()
    assert t.segments[:, 3].sum() == t.count.sum()


def test_segments_survive_joining():
    part = part_of(corpus.run(first_turn, 3))
    assert (join([part]).segments == part.segments).all()


def test_repeats_give_the_least_work_where_calls_are_the_same():
    nodes = [("a", "X"), ("b", "Y")]
    one = np.array([[0, -1, 0, 1, 50], [0, 0, 1, 2, 90], [0, 1, 1, 3, 30]])
    two = np.array([[0, -1, 1, 1, 40], [0, 1, 0, 2, 80], [0, 0, 0, 9, 10]])  # numbered otherwise
    got = least([(one, nodes), (two, nodes[::-1])])
    assert got[:, 4].tolist() == [40, 80, 30]


@pytest.mark.parametrize("columns", [1, 3, 12, 13, 40])
def test_calls_before_a_place_are_told_apart(columns: int) -> None:
    """Counted where they are few, sorted where they are many: the same kinds, in the same order."""
    there = np.random.default_rng(columns).random((500, columns)) < 0.3
    kinds, where = _kinds(there)
    assert np.array_equal(kinds[where], there)
    assert np.array_equal(kinds, np.unique(there.astype(int), axis=0))
