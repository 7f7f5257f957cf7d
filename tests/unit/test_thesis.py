"""Phases as in the thesis: messages matched, logical time, damage, phases."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import corpus
import numpy as np
import pytest
from capture_writer import small
from order import instances, traced
from order import partners as partners_of
from sketch import irecv, isend, rank_file, recv, send, sketched, wait

from p3s.base.errors import P3SError
from p3s.capture import RankTrace, read_run
from p3s.methods.pas2p.logical import logical_time
from p3s.methods.pas2p.match import match
from p3s.methods.pas2p.phases import Similarity, loop_of, thesis_phases
from p3s.signature.calltable import completions
from p3s.signature.matrix import communication_matrix
from p3s.signature.part import Sites, part_of

LONG = 1_000_000  # ns: far above what the clock cannot tell apart


def run_of(program, n: int):
    return traced(corpus.run(program, n))


def weights(phases) -> list[tuple[int, int]]:
    """Return (ticks, weight) of each phase."""
    return [(phase.ticks, phase.weight) for phase in phases]


def test_the_defaults_are_those_of_the_thesis() -> None:
    limits = Similarity()
    assert (limits.volume, limits.compute, limits.events, limits.relevance) == (
        0.05,
        0.90,
        0.80,
        0.01,
    )


def test_an_iteration_is_one_phase_and_its_weight_the_iterations() -> None:
    def program(rec) -> None:
        rec("Bcast", root=0)
        for _ in range(20):
            rec("Sendrecv", peer=(rec.rank + 1) % rec.n, nbytes=800, tag=1)
            rec("Sendrecv_recv", peer=(rec.rank - 1) % rec.n, nbytes=800, tag=1, work=0)
            rec("Allreduce", nbytes=8, work=LONG)

    run = run_of(program, 4)
    phases = thesis_phases(run)
    (body,) = [phase for phase in phases if phase.weight > 1]
    assert body.weight == 20 and body.ticks == 2 and body.events == 12
    assert body.operations == {"MPI_Allreduce": 4, "MPI_Sendrecv": 4, "MPI_Sendrecv_recv": 4}
    assert body.sites == {"Sendrecv", "Sendrecv_recv", "Allreduce"}
    assert body.relevant and body.similar
    assert len(body.occurrences) == body.weight
    assert np.diff(body.occurrences).tolist() == [2] * 19
    # Everything after the first computation is in some phase, once.
    events = sum(len(rank.call) for rank in run.ranks) - 2 * run.np
    assert sum(phase.events * phase.weight for phase in phases) == events
    time = sum(int(rank.work[2:].sum() + rank.elapsed_ns[1:].sum()) for rank in run.ranks)
    assert sum(phase.time for phase in phases) == time - sum(
        int(rank.elapsed_ns[-1]) for rank in run.ranks
    )


@pytest.mark.parametrize(
    ("share", "phases"), [(0.96, 1), (0.94, 2)], ids=["within 5 %", "beyond 5 %"]
)
def test_volume_may_differ_by_five_per_cent(share: float, phases: int) -> None:
    def program(rec) -> None:
        for turn in range(10):
            rec("Allreduce", nbytes=1000 if turn < 5 else int(1000 * share))

    assert len(thesis_phases(run_of(program, 2))) == phases
    assert len(thesis_phases(run_of(program, 2), Similarity(volume=0.1))) == 1


@pytest.mark.parametrize(("share", "phases"), [(0.91, 1), (0.89, 2)], ids=["90 % similar", "less"])
def test_computation_must_be_similar(share: float, phases: int) -> None:
    def program(rec) -> None:
        rec("Barrier")
        for turn in range(12):
            rec("Allreduce", nbytes=8, work=LONG if turn % 2 else share * LONG)
        rec("Barrier", site="last", work=LONG)

    found = thesis_phases(run_of(program, 2))
    body = [phase for phase in found if phase.operations == {"MPI_Allreduce": 2}]
    assert len(body) == phases and sum(phase.weight for phase in body) == 12
    blind = thesis_phases(run_of(program, 2), Similarity(compute_floor=2 * LONG))
    assert [phase.weight for phase in blind] == [2, 12]


def test_eighty_per_cent_of_the_events_are_enough() -> None:
    def program(rec, odd: int) -> None:
        for turn in range(6):
            for k in range(10):
                rec("Allreduce", site=f"s{k}", root=k, nbytes=8 + 800 * (turn % 2 and k < odd))

    for odd, phases in ((2, 1), (3, 2)):
        found = thesis_phases(run_of(lambda rec, odd=odd: program(rec, odd), 2))
        assert weights(found) == ([(10, 6)] if phases == 1 else [(10, 3), (10, 3)])


def test_different_numbers_of_ticks_are_different_phases() -> None:
    def program(rec) -> None:
        for turn in range(8):
            rec("Allreduce", root=1)
            rec("Reduce", root=0)
            if turn >= 4:
                rec("Bcast", root=0)

    assert weights(thesis_phases(run_of(program, 3))) == [(2, 4), (3, 4)]


def test_the_correction_takes_a_merged_phase_apart() -> None:
    """The example of figure A.20: A A A B B B, where B begins with computation."""

    def program(rec) -> None:
        for _ in range(3):
            rec("Allreduce", nbytes=8, work=LONG)
        rec("Bcast", nbytes=64, root=0, work=5 * LONG)  # the first computation of B
        for _ in range(2):
            rec("Bcast", nbytes=64, root=0, work=3 * LONG)
        rec("Barrier", work=3 * LONG)

    found = thesis_phases(run_of(program, 2))
    a, union, b, last = found
    assert (a.found_weight, union.found_weight, b.found_weight) == (2, 1, 3)
    assert union.joins == a.number and a.joins == b.joins == -1
    assert a.weight == 3, "the weight of the union is added to that of the phase before"
    assert union.work == 2 * (5 - 1) * LONG and union.found_work == 2 * 5 * LONG
    assert b.weight == 3 and last.operations == {"MPI_Barrier": 2}


def test_relevant_phases_take_one_per_cent_of_the_time() -> None:
    def program(rec) -> None:
        rec("Barrier")
        rec("Barrier", site="again", tag=1)
        for _ in range(50):
            rec("Allreduce", nbytes=8, work=LONG)

    found = thesis_phases(run_of(program, 2))
    assert [phase.relevant for phase in found] == [phase.share >= 0.01 for phase in found]
    assert {phase.relevant for phase in found} == {True, False}
    none = thesis_phases(run_of(program, 2), Similarity(relevance=1.0))
    assert not any(phase.relevant for phase in none)


def test_wavefronts_and_halos_have_the_iterations_of_their_source() -> None:
    found = thesis_phases(run_of(corpus.wavefront(sweeps=3), 16))
    assert [phase.weight for phase in found if phase.relevant] == [3]
    found = thesis_phases(run_of(corpus.jacobi2d(iters=20), 16))
    assert [phase.weight for phase in found] == [1, 20]


def test_what_is_unlike_everything_is_put_together() -> None:
    def program(rec) -> None:
        for turn in range(30):
            rec("Allreduce", nbytes=8 * 2**turn)

    found = thesis_phases(run_of(program, 2), Similarity(most_phases=10))
    assert len(found) == 11 and [phase.similar for phase in found] == [True] * 10 + [False]
    assert sum(phase.weight for phase in found) == 30


def test_runs_that_are_too_large_or_empty(tmp_path: Path) -> None:
    run = run_of(corpus.ring(), 4)
    with pytest.raises(P3SError, match="more than 50 events") as caught:
        thesis_phases(run, Similarity(most_events=50))
    assert "\n" not in str(caught.value)
    (tmp_path / "one").mkdir()
    assert thesis_phases(sketched(tmp_path / "one", [])) == []
    (tmp_path / "two").mkdir()
    (only,) = thesis_phases(sketched(tmp_path / "two", [("Barrier",)]))
    assert (only.ticks, only.events, only.weight) == (1, 1, 1)


def test_the_same_run_gives_the_same_phases() -> None:
    one, other = (thesis_phases(run_of(corpus.cg(), 8)) for _ in range(2))
    assert repr(one) == repr(other)


def test_the_loop_of_a_phase_is_the_smallest_with_its_sites() -> None:
    phase = SimpleNamespace(sites=frozenset({"a", "b"}))
    loops = {0: {"a", "b", "c", "d"}, 1: {"a", "b", "c"}, 2: {"a", "b", "c"}, 3: {"a"}}
    assert loop_of(phase, loops) == 2
    assert loop_of(phase, {3: {"a"}}) is None


class OneRank(list[RankTrace]):
    """The ranks of a run of which one has a file."""

    def __init__(self, ranks: Iterable[RankTrace], rank: int) -> None:
        super().__init__(ranks)
        self.present = [rank]


def test_labels_in_order_are_common_to_ranks_and_counts() -> None:
    """Sizes and partners differ by rank and count, what is done does not."""

    def program(rec) -> None:
        for _ in range(3):
            for step in (1, 2):
                rec(
                    "Send",
                    site="w",
                    peer=(rec.rank + step * rec.n // 4) % rec.n,
                    nbytes=1000 * step // rec.n + rec.rank,
                )
            rec("Allreduce", site="w", nbytes=8)
            rec("Allreduce", site="w", nbytes=8 * rec.n * rec.n)

    found = []
    for n in (4, 8):
        run = run_of(program, n)
        for rank in range(n):
            one: Any = SimpleNamespace(**{**vars(run), "ranks": OneRank(run.ranks, rank)})
            part = part_of(one, Sites(frozenset({"w"})))
            found.append([part.nodes[node] for node in part.samples[rank]])
    assert all(names == found[0] for names in found)
    assert found[0][1:5] == [
        ("w#0", "MPI_Send"),
        ("w#1", "MPI_Send"),
        ("w#0", "MPI_Allreduce"),
        ("w#1", "MPI_Allreduce"),
    ]


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


SIZE = 3


def turn(rank: int, at: int) -> list:
    """One turn of a ring with nonblocking calls; ``at``: events before it."""
    there, here = (rank + 1) % SIZE, (rank - 1) % SIZE
    return [
        irecv(-2, -1, found=(here, 3)),
        isend(there, 3),
        wait(at, at + 1),
        ("Allreduce",),
        send(there),
        recv(here),
        ("Ibarrier",),
        wait(at + 6),
        ("cut",),
    ]


def intact(rank: int) -> bytes:
    events = [event for k in range(12) for event in turn(rank, 8 * k)]
    w = rank_file(rank, SIZE, [*events, ("Finalize",)])
    w.end()
    return w.data()


@pytest.mark.parametrize("seed", range(40))
def test_random_damage(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    for rank in range(SIZE):
        data = bytearray(intact(rank))
        for _ in range(rng.randrange(4)):
            what, at = rng.randrange(3), rng.randrange(len(data))
            if what == 0:
                data[at] ^= 1 << rng.randrange(8)
            elif what == 1:
                data[at : at + 4096] = bytes(4096)
            else:
                del data[max(at, 4096) :]
        (tmp_path / f"rank-{rank:06d}.p3t").write_bytes(data)
    try:
        run = read_run(tmp_path)
        phases = thesis_phases(run)
        assert communication_matrix(run).messages.sum() <= 2 * 12 * SIZE
    except P3SError as error:
        assert "\n" not in str(error)
        return
    held = sum(len(rank.call) for rank in run.ranks)
    assert sum(phase.events for phase in phases) <= held


def test_the_intact_run_is_matched_completely(tmp_path: Path) -> None:
    for rank in range(SIZE):
        (tmp_path / f"rank-{rank:06d}.p3t").write_bytes(intact(rank))
    run = read_run(tmp_path)
    matching = match(run)
    assert matching.messages == 2 * 12 * SIZE == len(matching.sends.event)
    assert all((np.diff(each) >= 0).all() for each in logical_time(run, matching))
