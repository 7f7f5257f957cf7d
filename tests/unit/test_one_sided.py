"""One-sided messages: in captures, and as steps of the simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from replay_patterns import Trace
from steps_builder import Builder

from p3s.base import ops
from p3s.base.ops import kind_of
from p3s.capture.rewrite import FamilySet, as_messages
from p3s.capture.types import Call, Comm, RankTrace, RunTrace, Site, Window
from p3s.program.order.sections import sections_of
from p3s.program.scaled import read_scaled
from p3s.simulate.network import Network, line
from p3s.simulate.network import Path as Way
from p3s.simulate.simulate import StepTimes, simulate
from p3s.simulate.steps import Steps

#: What a rank calls: name without MPI_, peer, bytes, and what else is said of it.
Said = tuple[str, int, int] | tuple[str, int, int, Mapping[str, object]]


def _run(*ranks: Sequence[Said]) -> RunTrace:
    """Return a run of ranks on one window of all; each name is one place in the program."""
    calls: list[Call] = []
    names: list[str] = []
    traces = []
    for rank, said in enumerate(ranks):
        own = []
        for name, peer, size, *more in said:
            names += [name] * (name not in names)
            on_window = name in ops.ONE_SIDED or (
                name.startswith("Win_") and name not in ("Win_create", "Win_free")
            )
            waits = name.startswith(("Wait", "Test"))
            call = Call("MPI_" + name, names.index(name), -1 if waits else 0, peer, size, 1, -1, -1)
            call = replace(call, window=0 if on_window else -1, count=size)
            own.append(len(calls))
            calls.append(replace(call, **(more[0] if more else {})))  # type: ignore[arg-type]
        number = np.array(own, dtype=np.int32)
        ns = np.arange(len(own), dtype=np.int64) * 100
        traces.append(RankTrace(rank, True, number, ns, ns * 0 + 10, ns * 0 + 90))
    members = tuple(range(len(ranks)))
    return RunTrace(
        len(ranks),
        Path("run"),
        tuple(calls),
        (Comm(members, "MPI_COMM_WORLD", -1, None, None, 0),),
        tuple(Site(f"{i:016x}", (name,)) for i, name in enumerate(names)),
        tuple(traces),
        windows=(Window(0, "window", "MPI_Win_create", 0),),
    )


def _read(run: RunTrace) -> RunTrace:
    known = FamilySet()
    known.accesses.learn(run)
    return as_messages(run, known)


def _said(run: RunTrace, rank: int) -> list[tuple[str, int, int]]:
    calls = [run.calls[number] for number in run.ranks[rank].call.tolist()]
    return [(call.op.removeprefix("MPI_"), call.peer, call.bytes) for call in calls]


MADE: Said = ("Win_create", -1, 0)
FENCE: Said = ("Win_fence", -1, 0)
FREED: Said = ("Win_free", -1, 0)
BARRIER: Said = ("Barrier", -1, 0)


def _matched(run: RunTrace) -> None:
    """Every message of a channel is sent and received equally often, with equal sizes."""
    sent: dict[tuple[int, int, int], list[int]] = {}
    received: dict[tuple[int, int, int], list[int]] = {}
    for rank in range(run.np):
        for number in run.ranks[rank].call.tolist():
            call = run.calls[number]
            if ops.kind_of(call.op) == ops.SEND and call.peer >= 0:
                sent.setdefault((rank, call.peer, call.tag), []).append(call.bytes)
            if ops.kind_of(call.op) == ops.RECV and call.peer >= 0:
                received.setdefault((call.peer, rank, call.tag), []).append(call.bytes)
    assert sent == received


def test_a_fence_waits_for_what_is_put_and_is_a_barrier() -> None:
    run = _read(
        _run(
            [MADE, FENCE, ("Put", 1, 80), FENCE, FREED], [MADE, FENCE, ("Get", 0, 24), FENCE, FREED]
        )
    )
    assert _said(run, 0) == [
        ("Win_create", -1, 0),
        ("Win_fence_barrier", -1, 0),
        ("Get_target_send", 1, 24),
        ("Put_send", 1, 80),
        ("Win_fence_wait", -1, 1),
        ("Win_fence_barrier", -1, 0),
        ("Win_free", -1, 0),
    ]
    assert _said(run, 1) == [
        ("Win_create", -1, 0),
        ("Win_fence_barrier", -1, 0),
        ("Put_target_recv", 0, 80),
        ("Get_recv", 0, 24),
        ("Win_fence_wait", -1, 1),
        ("Win_fence_target_wait", -1, 1),
        ("Win_fence_barrier", -1, 0),
        ("Win_free", -1, 0),
    ]
    assert not run.unmodelled
    _matched(run)


def test_groups_tell_each_other_when_they_are_ready() -> None:
    both = {"numbers": (0, 2)}
    one = {"numbers": (1,)}
    origin: list[Said] = [
        MADE,
        ("Win_start", -1, 0, one),
        ("Put", 1, 40),
        ("Win_complete", -1, 0),
        FREED,
    ]
    run = _read(
        _run(
            origin,
            [MADE, ("Win_post", -1, 0, both), ("Win_wait", -1, 0), FREED],
            [*origin[:2], ("Put", 1, 48), *origin[3:]],
        )
    )
    assert _said(run, 0)[1:4] == [
        ("Win_start_recv", 1, 0),
        ("Put_send", 1, 40),
        ("Win_complete_send", 1, 0),
    ]
    assert _said(run, 1)[1:8] == [
        ("Win_post_send", 0, 0),
        ("Win_post_send", 2, 0),
        ("Put_target_recv", 0, 40),
        ("Put_target_recv", 2, 48),
        ("Win_wait_recv", 0, 0),
        ("Win_wait_recv", 2, 0),
        ("Win_wait_target_wait", -1, 2),
    ]
    _matched(run)


def test_nothing_is_told_where_the_program_says_that_it_is_not_necessary() -> None:
    group = {"numbers": (1,), "tag": 1}
    run = _read(
        _run(
            [MADE, ("Win_start", -1, 0, group), ("Win_complete", -1, 0), FREED],
            [MADE, ("Win_post", -1, 0, {"numbers": (0,), "tag": 1}), ("Win_wait", -1, 0), FREED],
        )
    )
    assert _said(run, 0)[1] == ("Win_start_wait", -1, 0)
    assert _said(run, 1)[1] == ("Win_post_wait", -1, 0)
    _matched(run)


def test_where_the_origin_alone_synchronises_the_target_waits_for_nothing() -> None:
    run = _read(
        _run(
            [MADE, ("Win_lock", 1, 0), ("Put", 1, 8), ("Win_unlock", 1, 0), BARRIER, FREED],
            [MADE, BARRIER, FREED],
        )
    )
    assert _said(run, 0)[1:6] == [
        ("Win_lock_recv", 1, 0),
        ("Win_lock_wait", -1, 1),
        ("Put_send", 1, 8),
        ("Win_unlock_recv", 1, 0),
        ("Win_unlock_wait", -1, 2),
    ]
    came = _said(run, 1)[1:-2]
    assert sorted(came) == [
        ("Put_passive_recv", 0, 8),
        ("Win_lock_target_send", 0, 0),
        ("Win_unlock_target_send", 0, 0),
    ]
    assert not any(ops.queue_of("MPI_" + name) == ops.ORDINARY for name, _, _ in came)
    assert not len(run.ranks[1].done)
    _matched(run)


def test_a_flush_waits_for_its_target_alone_and_asks_it_once() -> None:
    all_: list[Said] = [("Put", 1, 8), ("Put", 2, 16), ("Win_flush", 2, 0), ("Win_flush", 2, 0)]
    run = _read(
        _run(
            [MADE, ("Win_lock_all", -1, 0), *all_, ("Win_unlock_all", -1, 0), FREED],
            [MADE, FREED],
            [MADE, FREED],
        )
    )
    said = _said(run, 0)
    assert said.count(("Win_flush_recv", 2, 0)) == 1
    assert said[4:9] == [
        ("Win_flush_recv", 2, 0),
        ("Win_flush_wait", -1, 2),
        ("Win_flush_wait", -1, 0),
        ("Win_unlock_all_recv", 1, 0),
        ("Win_unlock_all_wait", -1, 2),
    ]
    _matched(run)


def test_what_fetches_goes_both_ways_and_a_request_is_completed_by_its_wait() -> None:
    raw = _run(
        [
            MADE,
            ("Win_lock_all", -1, 0),
            ("Fetch_and_op", 1, 8),
            ("Rput", 1, 32),
            ("Wait", -1, 1),
            ("Win_unlock_all", -1, 0),
            FREED,
        ],
        [MADE, FREED],
    )
    done = np.array([[4, 3]], dtype=np.int64)
    first = replace(raw.ranks[0], done=done, cancelled=np.zeros(1, dtype=bool))
    run = _read(replace(raw, ranks=(first, raw.ranks[1])))
    said = _said(run, 0)
    assert said[2:6] == [
        ("Fetch_and_op_send", 1, 8),
        ("Fetch_and_op_recv", 1, 8),
        ("Rput_send", 1, 32),
        ("Wait", -1, 1),
    ]
    assert [5, 4] in run.ranks[0].done.tolist()
    assert ops.queue_of("MPI_Rput_send") == ops.ORDINARY
    _matched(run)


def test_messages_come_in_the_order_of_the_own_neighbours() -> None:
    """On a ring of five every rank puts to the left, then to the right, from one place."""

    def rank(me: int) -> list[Said]:
        puts: list[Said] = [("Put", (me - 1) % 5, 8), ("Put", (me + 1) % 5, 16)]
        return [MADE, FENCE, *puts, FENCE, FREED]

    run = _read(_run(*(rank(me) for me in range(5))))
    for me in range(5):
        came = [said for said in _said(run, me) if said[0] == "Put_target_recv"]
        assert came == [("Put_target_recv", (me - 1) % 5, 16), ("Put_target_recv", (me + 1) % 5, 8)]
    _matched(run)


def test_a_message_to_nobody_leaves_nothing_to_wait_for() -> None:
    run = _read(_run([MADE, FENCE, ("Put", -3, 8), FENCE, FREED]))
    assert _said(run, 0)[2:4] == [("Put_send", -3, 8), ("Win_fence_barrier", -1, 0)]


LATENCY, PER_BYTE = 1000.0, 0.5


def _steps(trace: Trace, folder: Path) -> Steps:
    for row in trace.rows:
        row["kind"] = kind_of(row["op"])
        row["tag"] = 7 if row["peer"] >= 0 else -1
    (section,) = sections_of(read_scaled(trace.write(folder)), None)
    return section.steps


def _completed(steps: Steps, rank: int) -> dict[str, list[str]]:
    """Return what each completion of a rank completes, by the names of the calls."""
    name = [steps.calls[call].removeprefix("MPI_") for call in steps.call.tolist()]
    mine = steps.of(rank)
    return {
        name[i]: [name[k] for k in steps.done[steps.done_start[i] : steps.done_start[i + 1]]]
        for i in range(mine.start, mine.stop)
        if steps.done_start[i + 1] > steps.done_start[i]
    }


def test_a_fence_completes_no_request_of_the_program(tmp_path: Path) -> None:
    trace = Trace(2)
    for rank in range(2):
        other = 1 - rank
        trace.add(rank, "MPI_Irecv", other, 8)
        trace.add(rank, "MPI_Put_target_recv", other, 80)
        trace.add(rank, "MPI_Put_send", other, 80)
        trace.add(rank, "MPI_Win_fence_wait", nbytes=1)
        trace.add(rank, "MPI_Win_fence_target_wait", nbytes=1)
        trace.add(rank, "MPI_Win_fence_barrier")
        trace.add(rank, "MPI_Send", other, 8)
        trace.add(rank, "MPI_Wait", nbytes=1)
    for row in trace.rows:
        row["comm"] = 0
    steps = _steps(trace, tmp_path)
    assert _completed(steps, 0) == {
        "Win_fence_wait": ["Put_send"],
        "Win_fence_target_wait": ["Put_target_recv"],
        "Wait": ["Irecv"],
    }


def test_nobody_waits_for_what_a_target_does_without_a_call(tmp_path: Path) -> None:
    trace = Trace(2)
    trace.add(1, "MPI_Put_passive_recv", 0, 80)
    trace.add(1, "MPI_Win_flush_target_send", 0)
    trace.add(1, "MPI_Barrier")
    trace.add(0, "MPI_Win_lock_all_wait")
    trace.add(0, "MPI_Put_send", 1, 80)
    trace.add(0, "MPI_Win_flush_recv", 1)
    trace.add(0, "MPI_Win_flush_wait", nbytes=2)
    trace.add(0, "MPI_Barrier")
    steps = _steps(trace, tmp_path)
    assert _completed(steps, 0) == {"Win_flush_wait": ["Put_send", "Win_flush_recv"]}
    assert _completed(steps, 1) == {}
    messages = (steps.peer >= 0) & (steps.tag >= 0)
    assert ((steps.to >= 0) | (steps.source >= 0))[messages].all()


def _simulated(origin: str, target: str, wait: str) -> tuple[Steps, StepTimes]:
    b = Builder(2)
    b.add(1, target, 0, 100)
    b.add(1, "MPI_Barrier", work_ns=1e6)
    b.add(0, origin, 1, 100, work_ns=5000.0)
    b.add(0, wait, nbytes=1)
    b.add(0, "MPI_Barrier")
    steps = b.build()
    way = Way(line(LATENCY, PER_BYTE), line(0.0), line(0.0), 10.0, True)
    return steps, simulate(steps, np.arange(2), Network({1: way}, post=0.0))


def test_a_get_begins_with_its_call_and_its_request_takes_a_latency() -> None:
    steps, found = _simulated("MPI_Get_recv", "MPI_Get_target_send", "MPI_Win_flush_wait")
    got = found.end_ns[steps.of(0)][1]
    assert got == pytest.approx(5000.0 + 2 * LATENCY + 100 * PER_BYTE)
    steps, plain = _simulated("MPI_Irecv", "MPI_Issend", "MPI_Waitall")
    assert got - plain.end_ns[steps.of(0)][1] == pytest.approx(LATENCY)
