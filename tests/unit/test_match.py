"""Sends with their receives, collectives with each other; what has no partner is counted."""

from __future__ import annotations

import random
from pathlib import Path

import corpus
import pytest
from capture_writer import small
from order import instances, traced
from order import partners as partners_of
from sketch import irecv, isend, rank_file, recv, send, sketched, wait

from p3s.capture import read_run
from p3s.methods.pas2p.match import match
from p3s.signature.calltable import completions


def partners(run, rank):
    """Return event -> (rank, index) of its partner for events that have one."""
    return partners_of(match(run), rank)


def test_nonblocking_receives_count_in_the_order_of_posting_not_of_completion(
    tmp_path: Path,
) -> None:
    run = sketched(tmp_path, [send(1), send(1)], [irecv(0), irecv(0), wait(1), wait(0)])
    assert partners(run, 0) == {0: (1, 0), 1: (1, 1)}
    assert completions(run.ranks[1]).tolist() == [3, 2, -1, -1, -1]


def test_halves_of_sendrecv_are_two_messages_also_to_oneself(tmp_path: Path) -> None:
    def ring(rank: int) -> list[tuple]:
        there, here = (rank + 1) % 3, (rank - 1) % 3
        return [
            ("Sendrecv", {"peer": there, "tag": 1}),
            ("Sendrecv_recv", {"peer": here, "tag": 1}),
            ("Sendrecv", {"peer": rank, "tag": 2}),
            ("Sendrecv_recv", {"peer": rank, "tag": 2}),
        ]

    run = sketched(tmp_path, *map(ring, range(3)))
    for rank in range(3):
        assert partners(run, rank) == {
            0: ((rank + 1) % 3, 1),
            1: ((rank - 1) % 3, 0),
            2: (rank, 3),
            3: (rank, 2),
        }


def test_what_a_matched_probe_took_counts_from_the_probe(tmp_path: Path) -> None:
    run = sketched(
        tmp_path,
        [send(1), send(1), send(1)],
        [
            ("Mprobe", {"peer": -2, "tag": -1, "nbytes": 1, "found": (0, 0)}),
            recv(0),
            ("Mrecv", {"peer": 0, "tag": 0}),
            recv(0),
        ],
    )
    assert partners(run, 0) == {0: (1, 2), 1: (1, 1), 2: (1, 3)}


def test_persistent_starts_are_messages_of_their_own(tmp_path: Path) -> None:
    run = sketched(
        tmp_path,
        [
            ("Send_init", {"peer": 1, "tag": 0}),
            wait(0),
            ("Send_init", {"peer": 1, "tag": 0}),
            wait(2),
        ],
        [
            ("Recv_init", {"peer": 0, "tag": 0}),
            wait(0),
            ("Recv_init", {"peer": 0, "tag": 0}),
            wait(2),
        ],
    )
    assert partners(run, 1) == {0: (0, 0), 2: (0, 2)}


def test_cancelled_and_null_ones_have_no_partner(tmp_path: Path) -> None:
    run = sketched(
        tmp_path,
        [send(-3), send(1)],
        [irecv(0), wait(cancels=[0]), irecv(0), wait(2), recv(-3, tag=-1)],
    )
    assert partners(run, 1) == {2: (0, 1)}
    assert len(match(run).partner) == 1


def test_same_tag_on_another_communicator_is_another_channel(tmp_path: Path) -> None:
    run = sketched(
        tmp_path, [send(1, comm=3), send(1)], [recv(0), recv(0, comm=3)], comms={3: [0, 1]}
    )
    assert partners(run, 0) == {0: (1, 1), 1: (1, 0)}


def test_collectives_are_numbered_by_communicator(tmp_path: Path) -> None:
    reduce = ("Allreduce", {"nbytes": 8})
    run = sketched(
        tmp_path,
        [reduce, ("Barrier", {"comm": 3}), reduce],
        [("Barrier", {"comm": 3}), reduce, reduce],
        [reduce, ("Comm_create_group", {}), ("Ibarrier", {}), wait(2)],
        comms={3: [0, 1]},
    )
    found = match(run)
    a, b, c = (instances(found, rank) for rank in range(3))
    assert a[0] == b[1] == c[0] >= 0
    assert a[1] == b[0] and a[1] not in (a[0], c[2])
    assert 1 not in c, "called by a part of the communicator only"
    assert a[2] == b[2] == c[2]
    assert sorted(found.arrivals.tolist()) == [2, 3, 3]


def test_what_has_no_partner_is_left_alone(tmp_path: Path) -> None:
    run = sketched(
        tmp_path,
        [send(1), send(1), send(2), recv(2, tag=9), recv(-2)],
        [recv(0), recv(0, tag=3), recv(0, tag=3)],
        None,
    )
    found = match(run)
    assert found.messages == 1 and partners(run, 0) == {0: (1, 0)}


def test_a_capture_that_ends_early_keeps_its_first_messages(tmp_path: Path) -> None:
    rank_file(0, 2, [send(1)] * 5 + [("Finalize",)]).save(tmp_path)
    rank_file(1, 2, [recv(0)] * 3).save(tmp_path)
    run = read_run(tmp_path)
    assert match(run).messages == 3
    assert partners(run, 1) == {k: (0, k) for k in range(3)}


def test_threads_are_matched_by_the_beginning_of_their_calls(tmp_path: Path) -> None:
    """A blocking receive that began first returns last, and is recorded last."""
    run = sketched(
        tmp_path, [send(1), send(1)], [recv(0, thread=1, start=50), recv(0, thread=0, start=20)]
    )
    assert run.ranks[1].thread is not None
    assert partners(run, 0) == {0: (1, 1), 1: (1, 0)}


@pytest.mark.parametrize("ranks", [1, 2])
def test_small_and_empty_captures(ranks: int, tmp_path: Path) -> None:
    for rank in range(ranks):
        rank_file(rank, ranks, []).save(tmp_path)
    found = match(read_run(tmp_path))
    assert found.messages == len(found.instance) == len(found.arrivals) == 0


def test_large_rank_numbers(tmp_path: Path) -> None:
    """One file of a run of fifty thousand ranks, with partners far and farther."""
    last = 49_999
    w = rank_file(last, 50_000, [send(12_345), send(last), recv(last), recv(-2)])
    w.save(tmp_path)
    assert partners(read_run(tmp_path), last) == {1: (last, 2), 2: (last, 1)}


def test_partners_that_are_no_ranks_have_none() -> None:
    """A reader drops such calls as damaged; other sources of a run may not."""

    def program(rec) -> None:
        for peer in (5_000_000, -77, 2):
            rec("Send", peer=peer)
        rec("Recv", peer=2_147_483_647)
        rec("Allreduce", comm=9)

    found = match(traced(corpus.run(program, 2)))
    assert (found.messages, len(found.arrivals)) == (0, 1)


def test_every_kind_of_record_is_taken(tmp_path: Path) -> None:
    for rank in range(2):
        small(rank).save(tmp_path)
    assert match(read_run(tmp_path)).messages == 0


def test_random_traffic_is_matched_as_it_was_made(tmp_path: Path) -> None:
    """Messages delivered in a random order that MPI allows; the truth is known by its making."""
    rng = random.Random(5)
    size, messages = 4, 300
    events: list[list[tuple]] = [[] for _ in range(size)]
    truth = {}
    waiting: dict[tuple[int, int, int], list[int]] = {}
    for _ in range(messages):
        a, b, tag = rng.randrange(size), rng.randrange(size), rng.randrange(3)
        waiting.setdefault((a, b, tag), []).append(len(events[a]))
        events[a].append(isend(b, tag))
        while waiting and rng.random() < 0.6:
            src, dst, tag = key = rng.choice(list(waiting))
            truth[(dst, len(events[dst]))] = (src, waiting[key].pop(0))
            if not waiting[key]:
                del waiting[key]
            events[dst].append(
                recv(src, tag) if rng.random() < 0.5 else recv(-2, -1, found=(src, tag))
            )
    run = sketched(tmp_path, *events)
    found = match(run)
    for rank in range(size):
        mine = {(rank, i): whom for i, whom in partners(run, rank).items()}
        received = {event: whom for event, whom in mine.items() if event in truth}
        assert received == {event: whom for event, whom in truth.items() if event[0] == rank}
    assert found.messages == len(truth)
