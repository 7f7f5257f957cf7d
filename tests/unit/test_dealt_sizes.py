"""Sizes of data that is dealt: down a tree, from rank to rank, to workers."""

from __future__ import annotations

import pickle

import corpus
import numpy as np
import pytest

from p3s.model.compare import compare
from p3s.model.grid.at import GridAt
from p3s.model.holdout import build_model
from p3s.model.partners.halving import Halves
from p3s.model.partners.lines import Stride, Tree
from p3s.model.partners.relation import Shift
from p3s.model.partners.stencil import branches
from p3s.model.reasons import Verdict
from p3s.model.verdicts import judged_at


@corpus.program
def halved(rec, words=6, rounds=3):
    """The first rank of an interval sends its upper half what belongs there."""
    for _ in range(rounds):
        low, high = 0, rec.n
        while high - low > 1:
            middle = low + (high - low) // 2
            nbytes = 8 * words * (high - middle)
            if rec.rank == low:
                rec("Send", peer=middle, nbytes=nbytes)
            if rec.rank == middle:
                rec("Recv", peer=low, nbytes=nbytes)
            low, high = (low, middle) if rec.rank < middle else (middle, high)


@corpus.program
def scattered(rec, words=5, rounds=3):
    """A binomial scatter as MPI libraries write it."""
    for _ in range(rounds):
        mask = 1
        while mask < rec.n and not rec.rank & mask:
            mask <<= 1
        if rec.rank:
            nbytes = 8 * words * min(mask, rec.n - rec.rank)
            rec("Recv", peer=rec.rank - mask, nbytes=nbytes)
        while mask := mask >> 1:
            if rec.rank + mask < rec.n:
                nbytes = 8 * words * min(mask, rec.n - rec.rank - mask)
                rec("Send", peer=rec.rank + mask, nbytes=nbytes)


@corpus.program
def shorter(rec, length=90, batches=3):
    """Each rank passes on one element less than it got."""
    for _ in range(batches):
        if rec.rank:
            rec("Recv", peer=rec.rank - 1, nbytes=4 * (length - rec.rank + 1), elem=4)
        if rec.rank < rec.n - 1:
            rec("Send", peer=rec.rank + 1, nbytes=4 * (length - rec.rank), elem=4)
    rec("Barrier")


@corpus.program
def pickled(rec, items=121, rounds=3):
    """A master deals pickled lists to all others."""

    def nbytes(worker):
        mine = items // (rec.n - 1) + (worker <= items % (rec.n - 1))
        return len(pickle.dumps([1.5 * k for k in range(mine)], protocol=5))

    for _ in range(rounds):
        if rec.rank:
            rec("Recv", peer=0, nbytes=nbytes(rec.rank), elem=1)
        for worker in range(1, rec.n if rec.rank == 0 else 0):
            rec("Send", peer=worker, nbytes=nbytes(worker), elem=1)


@pytest.mark.parametrize(
    ("program", "counts", "targets"),
    [
        (halved(), (3, 5, 6, 8), (16, 23)),
        (scattered(), (3, 5, 8), (16, 21)),
        (shorter(), (2, 3, 5, 8), (16, 21)),
        (pickled(), (3, 4, 6, 8), (12, 40)),
    ],
    ids=["halved", "scattered", "shorter", "pickled"],
)
def test_all_messages_are_right_at_larger_counts(program, counts, targets):
    model = build_model([corpus.table(program, n) for n in counts], holdout=False)
    for n in targets:
        assert compare(model, corpus.table(program, n)).p2p_triples.all_equal, n


@pytest.mark.parametrize("program", [halved(), scattered()], ids=["halved", "scattered"])
def test_traces_of_powers_of_two_leave_other_counts_open(program):
    model = build_model([corpus.table(program, n) for n in (4, 8, 16)])
    for n in (21, 24, 32):
        there = judged_at(model, n)
        for i in compare(model, corpus.table(program, n)).items_wrong:
            assert there.items[i].verdict != Verdict.EXACT, n


def grid(n):
    ranks = np.arange(n)
    return GridAt(n, (n,), ranks[None, :])


def test_branches_of_trees():
    down = branches(Tree(sign=1), grid(6))  # 0 to 1, 2, 4; 2 to 3; 4 to 5
    assert down.tolist() == [[1, 0, 1, 0, 1, 0], [2, 0, 0, 0, 0, 0], [2, 0, 0, 0, 0, 0]]
    up = branches(Tree(sign=-1), grid(6))
    assert up.sum(axis=0).tolist() == [0, 1, 2, 1, 2, 1]
    halves = branches(Halves(form="first", sign=1), grid(5))  # 0 to 2 (2, 3, 4) and 1, 2 to 3
    assert halves[0].tolist() == [3, 0, 0, 0, 0]
    assert branches(Stride(sign=1, wrap=False), grid(6)) is None
    assert branches(Shift(vec=(1,), wrap=(True,)), grid(6)) is None
    assert branches(None, grid(6)) is None
