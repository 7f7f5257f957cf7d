"""Objects that were put into bytes: a head and the elements."""

from __future__ import annotations

import corpus
import pytest

from p3s.model.compare import compare
from p3s.model.holdout import build_model

DIMS = {4: (2, 2), 6: (3, 2), 9: (3, 3), 12: (4, 3), 20: (5, 4), 24: (6, 4)}


@corpus.program
def ring(rec: corpus.Recorder, extent: int, head: int, width: int) -> None:
    """Blocks of a vector as pickled arrays, from neighbour to neighbour."""

    def size(rank: int) -> int:
        return head + width * corpus.block(extent, rec.n, rank)

    for _ in range(3):
        back = (rec.rank - 1) % rec.n
        rec("Isend", peer=(rec.rank + 1) % rec.n, nbytes=size(rec.rank), elem=1)
        rec("Mrecv", peer=back, nbytes=size(back), elem=1)
        rec("Wait", nbytes=1)


@corpus.program
def rows(rec: corpus.Recorder, extent: int, head: int) -> None:
    """Rows of a block of a grid as pickled arrays, down a torus."""
    p0, p1 = DIMS[rec.n]
    i, j = divmod(rec.rank, p1)
    for _ in range(3):
        size = head + 8 * corpus.block(extent, p1, j)
        rec("Isend", peer=(i + 1) % p0 * p1 + j, nbytes=size, elem=1)
        rec("Mrecv", peer=(i - 1) % p0 * p1 + j, nbytes=size, elem=1)
        rec("Wait", nbytes=1)


@pytest.mark.parametrize(("extent", "head", "width"), [(100003, 163, 8), (997, 128, 4)])
def test_a_head_and_the_elements(extent: int, head: int, width: int) -> None:
    program = ring(extent, head, width)
    model = build_model([corpus.table(program, n) for n in (3, 4, 6)], holdout=False)
    for n in (13, 24):
        assert compare(model, corpus.table(program, n)).all_equal


def test_the_extent_may_be_that_of_one_dimension() -> None:
    program = rows(1000, 155)
    model = build_model([corpus.table(program, n) for n in (4, 6, 9, 12)], holdout=False)
    assert compare(model, corpus.table(program, 20)).all_equal
