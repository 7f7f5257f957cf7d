"""Cancelled requests are read as if they had never been made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sketch import irecv, isend, send, sketched, wait

from p3s.capture import RunTrace, requests
from p3s.capture.layout import NAME
from p3s.capture.parts import CallBook, replaced
from p3s.capture.rewrite import Messages
from p3s.capture.types import RankTrace
from p3s.methods.tasks.recognise import servers_of
from p3s.signature.part import part_of

Events = list[tuple[Any, ...]]


def _wait(*ends: int, cancels: tuple[int, ...] = ()) -> tuple[Any, ...]:
    """A completion as captures have it: a cancelled request is one that it completed."""
    return wait(*ends, cancels=cancels, nbytes=len(ends) + len(cancels))


def _read(folder: Path, *ranks: Events) -> list[RunTrace]:
    """Each rank as it is read for characterizing."""
    folder.mkdir(exist_ok=True)
    sketched(folder, *ranks)
    files = [folder / NAME.format(rank) for rank in range(len(ranks))]
    messages = Messages(files)
    return [messages.read(path) for path in files]


def _events(run: RunTrace, rank: int) -> list[tuple[str, int, int]]:
    """(name, partner, bytes) of the events of a rank, without MPI_Finalize."""
    found = [run.calls[number] for number in run.ranks[rank].call.tolist()]
    return [(c.op.removeprefix("MPI_"), c.peer, c.bytes) for c in found[:-1]]


RECEIVED = ("Irecv", 0, 8)


@pytest.mark.parametrize(
    ("events", "left"),
    [
        # alone, of one rank and of any
        ([irecv(0), _wait(cancels=(0,))], []),
        ([irecv(-2, -1), _wait(cancels=(0,))], []),
        # among others: these are what the call completes
        (
            [irecv(0), irecv(0), irecv(0), _wait(1, cancels=(0, 2))],
            [RECEIVED, ("Waitall", -1, 1)],
        ),
        # too late: as any other
        ([irecv(0), _wait(0)], [RECEIVED, ("Waitall", -1, 1)]),
        # freed: it stands as completed by itself
        ([("Irecv", {"peer": 0, "cancels": (0,)})], []),
        ([("Irecv", {"peer": 0, "cancels": (0,)}), irecv(0), _wait(1)],
         [RECEIVED, ("Waitall", -1, 1)]),
        # a persistent one, which is received later
        (
            [("Recv_init", {"peer": 0, "nbytes": 8}), _wait(cancels=(0,)),
             ("Recv_init", {"peer": 0, "nbytes": 8}), _wait(2)],
            [("Recv_init", 0, 8), ("Waitall", -1, 1)],
        ),
        ([isend(0), _wait(cancels=(0,))], []),
    ],
)  # fmt: skip
def test_what_was_cancelled_is_not_read(tmp_path: Path, events: Events, left: Events) -> None:
    run = _read(tmp_path, [], events)[1]
    assert _events(run, 1) == left
    assert not run.ranks[1].cancelled.any() and not run.unmodelled


def test_the_rest_is_as_if_they_had_not_been_made(tmp_path: Path) -> None:
    def program(*, with_cancelled: bool) -> Events:
        once: Events = [irecv(0, 1), irecv(0, 2)]
        if not with_cancelled:
            return [*once, _wait(0, 1), send(0, 3), *once, _wait(4, 5), send(0, 3)]
        first = [once[0], irecv(-2, 9), once[1], _wait(0, 2, cancels=(1,)), send(0, 3)]
        more = [irecv(0, 9), once[0], _wait(cancels=(5,)), once[1], _wait(6, 8), send(0, 3)]
        return [*first, *more]

    told = []
    for name, with_cancelled in (("with", True), ("without", False)):
        mine: Events = []
        for _ in range(2):
            at = len(mine)
            mine += [send(1, 1), send(1, 2), irecv(1, 3), _wait(at + 2)]
        run = _read(tmp_path / name, mine, program(with_cancelled=with_cancelled))[1]
        table = part_of(run).table
        columns = [table[column].tolist() for column in ("nbytes", "count", "first")]
        told.append((_events(run, 1), sorted(zip(*columns, strict=True))))
    assert told[0] == told[1]


def test_work_lies_before_the_next_event_and_time_adds_to_the_one_before(tmp_path: Path) -> None:
    posted = irecv(0, start=2000, work=70)
    events = [send(0, start=1000, work=30), posted, _wait(cancels=(1,)), send(0, work=9)]
    raw = sketched(tmp_path, [], events)
    before = raw.ranks[1]
    book = CallBook(list(raw.calls))
    after = replaced(before, requests.without_cancelled(raw, before, book), book)
    assert after.work.sum() == before.work.sum()
    assert after.work.tolist()[:2] == [30, before.work[1:4].sum()]
    assert after.elapsed_ns.sum() == before.elapsed_ns.sum()
    assert after.elapsed_ns[0] == before.elapsed_ns[:3].sum()
    assert after.start_ns.tolist() == before.start_ns[[0, 3, 4]].tolist()


def test_columns_by_event_keep_to_theirs(tmp_path: Path) -> None:
    events = [irecv(0), irecv(0), _wait(1, cancels=(0,)), send(0), irecv(-2, -1, found=(0, 5)),
              _wait(4)]  # fmt: skip
    raw = sketched(tmp_path, [], events)
    many = len(raw.ranks[1].call)
    for ordinal in (None, np.arange(many) + 10):
        first = 0 if ordinal is None else 10
        before = replace(
            raw.ranks[1],
            ordinal=ordinal,
            gap=np.arange(many),
            counters=np.ones((many, 2), dtype=np.int64),
            accesses=np.array([[first + 3, 0, 8], [first + 5, 8, 8]]),
        )
        assert before.anybody.tolist() == [4]
        after = _without(raw, before)
        assert after.done.tolist() == [[1, 0], [4, 3]] and after.anybody.tolist() == [3]
        assert after.gap is not None and after.gap.tolist() == [1, 2, 3, 4, 5, 6]
        assert after.counters.tolist() == [[2, 2], *[[1, 1]] * 5]
        assert after.accesses is not None
        assert after.accesses[:, 0].tolist() == [first + 2, first + 4]
        assert ordinal is None or (
            after.ordinal is not None and after.ordinal.tolist() == list(range(10, 16))
        )


def _without(raw: RunTrace, rank: RankTrace) -> RankTrace:
    book = CallBook(list(raw.calls))
    return replaced(rank, requests.without_cancelled(raw, rank, book), book)


def test_a_rank_that_heard_of_nobody_serves_nobody(tmp_path: Path) -> None:
    raw = sketched(tmp_path, [irecv(-2, -1), _wait(cancels=(0,)), send(1)], [irecv(0), _wait(0)])
    assert servers_of(raw) == ()
