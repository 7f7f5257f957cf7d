"""Calls that are read as others: partitions, neighbours, cancelled receives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sketch import irecv, isend, send, sketched, wait

from p3s.base import ops
from p3s.capture import requests
from p3s.capture.layout import NAME
from p3s.capture.neighbours import FIRST_TAG, GRAPH_TAG, PLACE_TAG, Graphs, side_of
from p3s.capture.partitions import FIRST_TAG as PARTITION_TAG
from p3s.capture.parts import CallBook, replace_events
from p3s.capture.records import Neighbours
from p3s.capture.rewrite import FamilySet, Messages, as_messages
from p3s.capture.types import PROC_NULL, Call, Comm, RankTrace, RunTrace, Site
from p3s.methods.tasks.recognise import servers_of
from p3s.signature.part import part_of
from p3s.signature.phase_file import Call as PhaseCall
from p3s.signature.phase_file import Loop, Phase, Phases
from p3s.signature.plans import calls_of

WORLD = Comm((0, 1, 2, 3), "MPI_COMM_WORLD", -1, None, None, 0)
GRID = Comm((0, 1, 2, 3), "MPI_Cart_create", 0, (2, 2), (True, False), 1)


def call(op: str, nbytes: int = 0, numbers: tuple[int, ...] = (), **more: int) -> Call:
    """A call on the second communicator."""
    known = {"site": 0, "comm": 1, "peer": -1, "elem_bytes": 8, "tag": -1, "root": -1, **more}
    return Call("MPI_" + op, bytes=nbytes, count=nbytes // 8, numbers=numbers, **known)


def run_of(
    calls: list[Call],
    around: Neighbours | None = None,
    done: tuple[tuple[int, int], ...] = (),
    comm: Comm = GRID,
    rank: int = 0,
) -> RunTrace:
    """A run of rank 0 that makes the calls one after the other: 100 ns each, work 10, 11, ..."""
    number = len(calls)
    rt = RankTrace(
        rank,
        True,
        np.arange(number, dtype=np.int32),
        np.arange(number) * 1000,
        np.full(number, 100),
        np.arange(number) + 10,
        done=np.array(done, dtype=np.int64).reshape(-1, 2),
        cancelled=np.zeros(len(done), dtype=bool),
        neighbours={} if around is None else {1: around},
    )
    empty = replace(rt, call=rt.call[:0])
    ranks = [rt if each == rank else replace(empty, rank=each) for each in range(rank + 1)]
    return RunTrace(4, Path("run"), tuple(calls), (WORLD, comm), (Site("0" * 16, ("f",)),), ranks)


def events(run: RunTrace, rank: int = 0) -> list[tuple[str, int, int, int]]:
    """(name, partner, bytes, tag) of all events of a rank."""
    found = [run.calls[number] for number in run.ranks[rank].call.tolist()]
    return [(c.op.removeprefix("MPI_"), c.peer, c.bytes, c.tag) for c in found]


def test_a_blocking_call_posts_and_waits() -> None:
    around = Neighbours((2, 2, PROC_NULL, 1), (2, 2, PROC_NULL, 1))
    sizes = (8, 16, 0, 32, 16, 8, 0, 24)
    first, tag = call("Neighbor_alltoallv", 56, sizes), FIRST_TAG
    run = as_messages(run_of([first, call("Finalize")], around), FamilySet())
    name = "Neighbor_alltoallv"
    assert events(run) == [
        (f"{name}_recv", 2, 16, tag + 1),
        (f"{name}_recv", 2, 8, tag),
        (f"{name}_recv", PROC_NULL, 0, tag + 3),
        (f"{name}_recv", 1, 24, tag + 2),
        (f"{name}_send", 2, 8, tag),
        (f"{name}_send", 2, 16, tag + 1),
        (f"{name}_send", PROC_NULL, 0, tag + 2),
        (f"{name}_send", 1, 32, tag + 3),
        (f"{name}_wait", -1, 8, -1),
        ("Finalize", -1, 0, -1),
    ]
    rt = run.ranks[0]
    assert rt.work.tolist() == [10, *[0] * 8, 11]
    assert rt.elapsed_ns.tolist() == [*[0] * 8, 100, 100]
    assert rt.start_ns.tolist() == [*[0] * 9, 1000]
    assert rt.done.tolist() == [[8, post] for post in range(8)]
    assert not run.unmodelled


def test_messages_on_a_grid_tell_their_direction() -> None:
    name = "MPI_Neighbor_alltoall"
    assert [side_of(f"{name}_send", FIRST_TAG + slot) for slot in range(4)] == [-1, 1, -1, 1]
    # What a neighbour sent down comes from above.
    assert [side_of(f"{name}_recv", FIRST_TAG + slot) for slot in range(4)] == [1, -1, 1, -1]
    assert side_of(f"{name}_send", GRAPH_TAG) is None
    assert side_of("MPI_Isend", FIRST_TAG) is None


def test_neighbours_of_a_library_s_order_come_in_that_of_ranks() -> None:
    around = Neighbours((3, 1), (2, 0))
    graph = replace(GRID, op="MPI_Dist_graph_create", dims=None, periods=None)
    first = call("Neighbor_alltoallv", 24, (8, 16, 24, 32))
    run = as_messages(run_of([first], around, comm=graph), FamilySet())
    assert [(peer, size) for _, peer, size, tag in events(run) if tag == GRAPH_TAG] == [
        (0, 32),
        (2, 24),
        (1, 16),
        (3, 8),
    ]


GRAPH = replace(GRID, op="MPI_Dist_graph_create_adjacent", dims=None, periods=None)


def ring(steps: tuple[int, ...], back: tuple[int, ...] | None = None) -> FamilySet:
    """What is known of a graph of four ranks that send to, and receive from, some steps further."""
    around = {
        rank: Neighbours(
            tuple((rank + s) % 4 for s in steps),
            tuple((rank - s) % 4 for s in (back or steps[::-1])),
        )
        for rank in range(4)
    }
    return FamilySet(graphs=Graphs({(GRAPH.members, GRAPH.ordinal): around}))


def tags_of(known: FamilySet, graph: Comm = GRAPH) -> list[int]:
    """The tags of rank 0's receives and sends, their places in a graph as 0, 1, ..."""
    around = known.graphs.around[graph.members, graph.ordinal][0]
    first = call("Neighbor_alltoallv", 16, (8, 8, 8, 8))
    run = as_messages(run_of([first], around, comm=graph), known)
    return [tag - PLACE_TAG if tag > PLACE_TAG else 0 for *_, tag in events(run) if tag >= 0]


def test_places_in_a_graph_are_told_apart_where_they_mean_the_same_on_all_ranks() -> None:
    assert tags_of(ring((1, 2))) == [1, 0, 0, 1]
    assert tags_of(ring((1, 2), (1, 2))) == [0, 1, 0, 1]
    assert tags_of(ring((1, 1))) == [0, 1, 0, 1]  # the first edge meets the first


def test_places_in_a_graph_that_differ_between_ranks_mean_nothing() -> None:
    known = ring((1, 2))
    mine = known.graphs.around[GRAPH.members, GRAPH.ordinal]
    mine[1] = Neighbours(mine[1].destinations[::-1], mine[1].sources)
    assert tags_of(known) == [0, 0, 0, 0]
    del mine[1]
    assert tags_of(FamilySet(graphs=Graphs(known.graphs.around))) == [0, 0, 0, 0]


def test_the_order_of_a_duplicate_is_that_of_its_graph() -> None:
    whole = replace(GRAPH, op="MPI_Dist_graph_create")
    twin = replace(GRAPH, op="MPI_Comm_dup", parent=1, ordinal=2)
    run = run_of([call("Neighbor_alltoallv", 24, (8, 16, 24, 32), comm=2)])
    rank = replace(run.ranks[0], neighbours={2: Neighbours((3, 1), (2, 0))})
    run = replace(run, comms=(WORLD, whole, twin), ranks=[rank])
    assert [peer for _, peer, *_ in events(as_messages(run, FamilySet()))] == [0, 2, 1, 3, -1]


def test_a_wait_completes_all_messages_of_a_call() -> None:
    around = Neighbours((1, 3), (3,))
    calls = [call("Ineighbor_allgather", 16, (8, 8)), call("Irecv", 8, peer=3, tag=1)]
    calls += [call("Waitall", 2, comm=-1), call("Wait", 1, comm=-1)]
    graph = replace(GRID, op="MPI_Dist_graph_create", dims=None, periods=None)
    run = as_messages(run_of(calls, around, ((2, 0), (2, 1)), graph), FamilySet())
    names = [name for name, *_ in events(run)]
    assert names == [*["Ineighbor_allgather_recv"], *["Ineighbor_allgather_send"] * 2, "Irecv",
                     "Waitall", "Wait"]  # fmt: skip
    assert events(run)[4][2] == 4 and events(run)[5][2] == 1
    assert sorted(run.ranks[0].done.tolist()) == [[4, 0], [4, 1], [4, 2], [4, 3]]
    assert run.ranks[0].elapsed_ns.tolist() == [0, 0, 100, 100, 100, 100]


@pytest.mark.parametrize(
    ("before", "after"),
    [("Wait", "Waitall"), ("Test", "Testall"), ("Waitany", "Waitsome"), ("Testany", "Testsome")],
)
def test_a_completion_of_one_request_becomes_one_of_many(before: str, after: str) -> None:
    around = Neighbours((1,), (1,))
    calls = [call("Neighbor_alltoall_init", 8, (8, 8)), call(before, 1, comm=-1)]
    run = as_messages(run_of(calls, around, ((1, 0),)), FamilySet())
    assert events(run)[-1][::2] == (after, 2)
    assert [ops.like("MPI_" + name) for name, *_ in events(run)[:2]] == [
        "MPI_Recv_init",
        "MPI_Send_init",
    ]


def test_a_rank_without_neighbours_keeps_the_place_of_its_call() -> None:
    run = as_messages(
        run_of([call("Neighbor_alltoall", 0, (8, 8))], Neighbours((), ())), FamilySet()
    )
    assert [(name, peer) for name, peer, *_ in events(run)] == [
        ("Neighbor_alltoall_send", PROC_NULL),
        ("Neighbor_alltoall_wait", -1),
    ]


def test_calls_of_older_captures_stay_as_they_are() -> None:
    calls = [call("Neighbor_alltoall", 16), call("Pready"), call("Psend_init", 16, peer=1, tag=0)]
    run = as_messages(run_of(calls), FamilySet())
    assert [name for name, *_ in events(run)] == ["Neighbor_alltoall", "Pready", "Psend_init"]
    assert sum(run.unmodelled.values()) == 3


def partitioned(counts: tuple[int, ...]) -> RunTrace:
    """Rank 0 sends 64 bytes in so many partitions, with one request after the other."""
    calls, done = [], []
    for partitions in counts:
        started = len(calls)
        calls.append(call("Psend_init", 64, (partitions, 0), peer=1, tag=5))
        for k in range(partitions):
            calls.append(call("Pready", 64 // partitions, (0, k), peer=1, tag=5))
        done.append((len(calls), started))
        calls.append(call("Wait", 1, comm=-1))
    return run_of(calls, done=tuple(done))


def learned(run: RunTrace) -> FamilySet:
    """What all ranks of a run tell."""
    known = FamilySet()
    for family in known.families(run):
        family.learn(run)
    return known


def test_a_partition_leaves_when_it_is_ready() -> None:
    run = as_messages(partitioned((4,)), FamilySet())
    tag = PARTITION_TAG + 5
    assert events(run) == [
        ("Psend_init_send", PROC_NULL, 0, 5),
        *[("Pready_send", 1, 16, tag)] * 4,
        ("Waitall", -1, 4, -1),
    ]
    assert run.ranks[0].work.tolist() == [10, 11, 12, 13, 14, 15]
    assert sorted(run.ranks[0].done.tolist()) == [[5, 1], [5, 2], [5, 3], [5, 4]]


@pytest.mark.parametrize(("counts", "cuts"), [((4,), 4), ((8, 8), 8), ((2, 4), 1)])
def test_a_receiver_has_as_many_receives_as_the_sender_has_partitions(
    counts: tuple[int, ...], cuts: int
) -> None:
    known = learned(partitioned(counts))
    calls = [call("Precv_init", 64, (2, 0), peer=0, tag=5), call("Wait", 1, comm=-1)]
    run = as_messages(run_of(calls, done=((1, 0),), rank=1), known)
    each = ("Precv_init_recv", 0, 64 // cuts, PARTITION_TAG + 5)
    assert events(run, 1)[:-1] == [each] * cuts
    assert events(run, 1)[-1][::2] == ("Waitall", cuts)


def test_partitions_whose_receives_are_not_known_leave_together() -> None:
    run = as_messages(partitioned((2, 4)), FamilySet())
    sent = [(name, size) for name, peer, size, _ in events(run) if peer == 1]
    assert sent == [("Pready_send", 64), ("Pready_send", 64)]
    assert [e[2] for e in events(run) if e[0] == "Waitall"] == [1, 1]


def test_a_plan_has_the_calls_that_the_program_makes() -> None:
    def leaf(op: str, site: str = "a1") -> PhaseCall:
        return PhaseCall(0, site, "MPI_" + op, "always", {}, {}, {}, {})

    def loop(number: int, *body: Loop | PhaseCall) -> Loop:
        return Loop(number, "partners" if number > 1 else None, {}, body)

    name = "Neighbor_alltoall"
    tree = loop(
        0,
        loop(
            1,
            loop(2, leaf(f"{name}_recv")),
            loop(3, leaf(f"{name}_send")),
            leaf(f"{name}_wait"),
            leaf("Waitall", "b2"),
        ),
    )
    numbered = (Phase(k, k, None, 0, "", (), {}, None, None, False) for k in (0, 1))
    phases = Phases((4,), "cpu_ns", {}, tree, tuple(numbered), {})
    found = [(c.site, c.op, c.loop, c.phase) for c in calls_of(phases)]
    assert found == [
        ("a1", "MPI_Neighbor_alltoall", 1, 1),
        ("b2", "MPI_Waitall", 1, 1),
        ("b2", "MPI_Wait", 1, 1),
    ]


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
    after = replace_events(before, requests.without_cancelled(raw, before, book), book)
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
    return replace_events(rank, requests.without_cancelled(raw, rank, book), book)


def test_a_rank_that_heard_of_nobody_serves_nobody(tmp_path: Path) -> None:
    raw = sketched(tmp_path, [irecv(-2, -1), _wait(cancels=(0,)), send(1)], [irecv(0), _wait(0)])
    assert servers_of(raw) == ()
