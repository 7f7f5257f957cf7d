"""Sends with their receives, collectives with each other; what has no partner is counted."""

from __future__ import annotations

import random
from pathlib import Path

import corpus
import numpy as np
import pytest
from capture_writer import EVENTS, small
from order import traced
from sketch import irecv, isend, rank_file, recv, send, sketched, wait

from p3s.capture import read_run
from p3s.methods.pas2p import match as reasons
from p3s.methods.pas2p.match import match
from p3s.signature.calltable import completions


def partners(run, rank):
    """Return event -> (rank, index) of its partner for events that have one."""
    found = match(run).of(rank)
    return {
        i: (int(found.rank[i]), int(found.index[i]))
        for i in np.flatnonzero(found.rank >= 0).tolist()
    }


def test_messages_of_one_channel_are_matched_in_order(tmp_path: Path) -> None:
    run = sketched(
        tmp_path,
        [send(1), send(1), send(1, tag=5), send(1)],
        [recv(0, tag=5), recv(0), recv(0), recv(0)],
    )
    assert partners(run, 0) == {0: (1, 1), 1: (1, 2), 2: (1, 0), 3: (1, 3)}
    assert partners(run, 1) == {1: (0, 0), 2: (0, 1), 0: (0, 2), 3: (0, 3)}
    found = match(run)
    assert found.messages == 4 and not found.unmatched


def test_nonblocking_receives_count_in_the_order_of_posting_not_of_completion(
    tmp_path: Path,
) -> None:
    run = sketched(tmp_path, [send(1), send(1)], [irecv(0), irecv(0), wait(1), wait(0)])
    assert partners(run, 0) == {0: (1, 0), 1: (1, 1)}
    assert completions(run.ranks[1]).tolist() == [3, 2, -1, -1, -1]


def test_wildcards_are_what_they_turned_out_to_be(tmp_path: Path) -> None:
    run = sketched(
        tmp_path,
        [send(2, tag=4)],
        [send(2, tag=7)],
        [recv(-2, tag=-1, found=(1, 7)), recv(-2, tag=-1, found=(0, 4))],
    )
    assert partners(run, 2) == {0: (1, 0), 1: (0, 0)}


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
    assert match(run).unmatched == {reasons.CANCELLED: 1}


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
    a, b, c = (found.of(rank).instance.tolist() for rank in range(3))
    assert a[0] == b[1] == c[0] >= 0
    assert a[1] == b[0] >= 0 and a[1] not in (a[0], c[2])
    assert c[1] == -1, "called by a part of the communicator only"
    assert found.instances == 3 and set(found.instance_comm.tolist()) == {0, 1}
    # The second on the world: two call MPI_Allreduce, one MPI_Ibarrier.
    assert a[2] == b[2] == c[2] == -1
    assert found.unmatched == {reasons.COLLECTIVE_MIXED: 3}


def test_a_collective_that_a_member_lacks_is_counted(tmp_path: Path) -> None:
    barrier = ("Barrier", {})
    run = sketched(tmp_path, [barrier, barrier], [barrier])
    found = match(run)
    assert found.of(0).instance.tolist()[:2] == [0, 1]
    assert found.unmatched == {reasons.COLLECTIVE_PART: 1}


def test_unmatched_ones_are_told_by_reason(tmp_path: Path) -> None:
    run = sketched(
        tmp_path,
        [send(1), send(1), send(2), recv(2, tag=9), recv(-2)],
        [recv(0), recv(0, tag=3), recv(0, tag=3)],
        None,
    )
    found = match(run)
    assert found.unmatched == {
        reasons.NOT_RECEIVED: 1,
        reasons.NOT_SENT: 2,
        reasons.RECEIVER_CUT: 1,
        reasons.SENDER_CUT: 1,
        reasons.NOBODY: 1,
    }


def test_a_capture_that_ends_early_keeps_its_first_messages(tmp_path: Path) -> None:
    rank_file(0, 2, [send(1)] * 5 + [("Finalize",)]).save(tmp_path)
    rank_file(1, 2, [recv(0)] * 3).save(tmp_path)
    found = match(read_run(tmp_path))
    assert found.messages == 3
    assert found.of(1).index.tolist() == [0, 1, 2]
    assert found.unmatched == {reasons.RECEIVER_CUT: 2}


def test_around_lost_events_only_what_is_certain_is_matched(tmp_path: Path) -> None:
    """Of ten receives the chunk with numbers 3 to 5 is damaged."""
    sender = rank_file(0, 2, [send(1)] * 10 + [("Barrier",), ("Finalize",)])
    sender.end()
    sender.save(tmp_path)
    parts = [recv(0)] * 3, [recv(0)] * 3, [recv(0)] * 4
    receiver = rank_file(
        1, 2, [*parts[0], ("cut",), *parts[1], ("cut",), *parts[2], ("Barrier",), ("Finalize",)]
    )
    receiver.end()
    path = receiver.save(tmp_path)
    chunks = [k for k, part in enumerate(receiver.parts) if part.kind == EVENTS]
    assert len(chunks) == 3
    data = bytearray(path.read_bytes())
    data[receiver.offsets()[chunks[1]] + 66] ^= 1
    path.write_bytes(data)
    run = read_run(tmp_path)
    assert run.ranks[1].ordinal.tolist() == [0, 1, 2, 6, 7, 8, 9, 10, 11]
    found = match(run)
    assert found.of(1).index.tolist() == [0, 1, 2, 6, 7, 8, 9, -1, -1]
    assert found.unmatched == {reasons.LOST: 3}
    assert found.of(0).instance[10] == found.of(1).instance[7] >= 0


def test_collectives_after_lost_events_count_from_the_end(tmp_path: Path) -> None:
    barrier = ("Barrier",)
    whole = rank_file(0, 2, [barrier] * 9 + [("Finalize",)])
    whole.end()
    whole.save(tmp_path)
    torn = rank_file(
        1, 2, [*[barrier] * 2, ("cut",), *[barrier] * 4, ("cut",), *[barrier] * 3, ("Finalize",)]
    )
    torn.end()
    path = torn.save(tmp_path)
    middle = [k for k, part in enumerate(torn.parts) if part.kind == EVENTS][1]
    data = bytearray(path.read_bytes())
    data[torn.offsets()[middle] + 66] ^= 1
    path.write_bytes(data)
    found = match(read_run(tmp_path))
    assert found.of(1).instance.tolist() == [0, 1, 6, 7, 8, -1]
    assert found.unmatched == {reasons.COLLECTIVE_PART: 4}


def test_calls_during_a_pause_leave_only_equal_numbers(tmp_path: Path) -> None:
    first = rank_file(0, 2, [send(1, tag=1), send(1, tag=1), send(1, tag=2), ("Finalize",)])
    first.end()
    first.save(tmp_path)
    second = rank_file(1, 2, [recv(0, tag=1), recv(0, tag=2), ("Finalize",)], paused_calls=1)
    second.end()
    second.save(tmp_path)
    found = match(read_run(tmp_path))
    assert found.of(1).index.tolist() == [-1, 2, -1]
    assert found.unmatched == {reasons.LOST: 3}


def test_a_pause_at_the_same_place_everywhere_hurts_nothing(tmp_path: Path) -> None:
    events = [("Allreduce",), send(1), send(0), recv(0), recv(1), ("Allreduce",), ("Finalize",)]
    for rank in range(2):
        w = rank_file(rank, 2, events, paused_calls=4)
        w.end()
        w.save(tmp_path)
    found = match(read_run(tmp_path))
    assert not found.unmatched and found.messages == 4
    assert (
        found.of(0).instance.tolist() == found.of(1).instance.tolist() == [0, -1, -1, -1, -1, 1, -1]
    )


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
    assert (found.messages, found.instances, found.unmatched) == (0, 0, {})
    assert found.of(0).rank.tolist() == []
    with pytest.raises(IndexError):
        found.of(ranks)


def test_one_event(tmp_path: Path) -> None:
    found = match(sketched(tmp_path, [("Allreduce",)]))
    assert found.of(0).instance.tolist() == [0, -1] and not found.unmatched


def test_large_rank_numbers(tmp_path: Path) -> None:
    """One file of a run of fifty thousand ranks, with partners far and farther."""
    last = 49_999
    w = rank_file(last, 50_000, [send(12_345), send(last), recv(last), recv(-2)])
    w.save(tmp_path)
    found = match(read_run(tmp_path))
    assert found.of(last).index.tolist() == [-1, 2, 1, -1]
    assert found.unmatched == {reasons.RECEIVER_CUT: 1, reasons.NOBODY: 1}


def test_partners_that_are_no_ranks_are_counted() -> None:
    """A reader drops such calls as damaged; other sources of a run may not."""

    def program(rec) -> None:
        for peer in (5_000_000, -77, 2):
            rec("Send", peer=peer)
        rec("Recv", peer=2_147_483_647)
        rec("Allreduce", comm=9)

    found = match(traced(corpus.run(program, 2)))
    assert (found.messages, found.instances) == (0, 1)
    assert found.unmatched == {reasons.NOBODY: 8}


def test_every_kind_of_record_is_taken(tmp_path: Path) -> None:
    for rank in range(2):
        small(rank).save(tmp_path)
    found = match(read_run(tmp_path))
    assert found.unmatched == {reasons.NOT_SENT: 10}


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
    assert sum(found.unmatched.values()) == messages - len(truth)
