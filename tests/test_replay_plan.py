"""Plans of a replay: pure, no MPI."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_patterns import PATTERNS, Trace, butterfly, counts_of, halo, ring, wave

from p3s.errors import P3SError
from replay.scaled import read_scaled
from replay.thesis.calls import Code
from replay.thesis.check import check
from replay.thesis.match import Reason, match
from replay.thesis.noise import logical_clock, noise_of, transits
from replay.thesis.plan import ReplayPlan, make_plan
from replay.thesis.program import TAG_NOISE, Event, Program, Script, pack
from replay.thesis.world import BLACK_HOLE, MEASURED, NOISE

SENDING = {Code.SEND, Code.SSEND, Code.ISEND, Code.ISSEND, Code.BUFFERED, Code.SENDRECV,
           Code.ANSWER}
RECEIVING = {Code.RECV, Code.IRECV, Code.SECOND}


def messages(program: Program) -> tuple[Counter, Counter]:
    """Count (source, target, tag, bytes) of sends and of receives, control messages too."""
    sends: Counter = Counter()
    receives: Counter = Counter()
    for me in range(len(program.start) - 1):
        for event in program.of(me):
            code, peer, tag, size = (int(event[f]) for f in ("code", "peer", "tag", "bytes"))
            if code in SENDING:
                sends[me, peer, tag, size] += 1
            if code in RECEIVING:
                receives[peer, me, tag, size] += 1
            if code == Code.ASK:
                sends[me, peer, "control", size] += 1
            if code == Code.ANSWER:
                receives[peer, me, "control", size] += 1
    return sends, receives


def assert_sound(plan: ReplayPlan) -> None:
    """Check a plan against the rules, without the code that made it."""
    sampled = set()
    for iteration in plan.iterations:
        for program in iteration.programs:
            sends, receives = messages(program)
            assert sends == receives
            sampled |= set(program.samples())
    executed = (plan.reason == Reason.EXECUTED) & (plan.classified.of_row >= 0)
    wanted = set(plan.classified.of_row[executed].tolist())
    assert wanted - sampled == set(plan.uncovered)
    assert {plan.trace.kinds[k] for k in plan.trace.kind[plan.reason == Reason.NOT_REPLAYED]} <= {
        "other", "completion"}


@pytest.mark.parametrize("cores", [1, 2, 3, 8])
@pytest.mark.parametrize("name", [*PATTERNS, "butterfly"])
def test_every_send_has_its_receive_and_every_class_is_measured(
    tmp_path: Path, name: str, cores: int
) -> None:
    counts = (2, 8, 32) if name == "butterfly" else counts_of(name)
    for n in counts:
        trace = (butterfly if name == "butterfly" else PATTERNS[name])(n)
        plan = make_plan(trace.write(tmp_path / str(n)), cores)
        assert_sound(plan)
        assert plan.uncovered == ()
        assert len(plan.iterations) <= plan.all_pairs
        kinds = {cls.op for cls in plan.classes}
        composed = {plan.classes[c].op for c in plan.compositions}
        assert {op for op in kinds if op in ("MPI_Allreduce", "MPI_Barrier")} <= composed


def test_classes_save_most_of_the_pairs_of_a_large_run(tmp_path: Path) -> None:
    plan = make_plan(wave(1024).write(tmp_path), 4)
    assert plan.all_pairs == 256 * 255 // 2
    assert len(plan.iterations) <= 4
    assert plan.saved().startswith(f"{len(plan.iterations)} iteration")
    assert "instead of 32640" in plan.saved()


def test_roles_and_nodes(tmp_path: Path) -> None:
    plan = make_plan(ring(16, nbytes=100).write(tmp_path), 2)
    for process in plan.world.processes:
        if process.role == MEASURED:
            assert process.node == process.side
        elif process.role == BLACK_HOLE:
            assert process.node == (3, 2)[process.side]
        else:
            assert process.role == NOISE and process.node in (2, 3)
    nodes = [process.node for process in plan.world.processes]
    assert nodes == sorted(nodes)
    holes = plan.world.rank_of(BLACK_HOLE)
    measured = plan.world.rank_of(MEASURED)
    for iteration in plan.iterations:
        for program in iteration.programs:
            for (side, slot), hole in holes.items():
                peers = {int(e["peer"]) for e in program.of(hole)
                         if e["code"] in (Code.IRECV, Code.ANSWER)}
                assert peers <= {measured[side, slot]}
            for rank in measured.values():
                timed = [e for e in program.of(rank) if e["sample"] >= 0]
                assert all(int(e["peer"]) in measured.values() for e in timed)


def test_external_events_go_through_the_black_hole_untimed(tmp_path: Path) -> None:
    # Ranks 1 -> 2 with only ranks 0 and 1, then 2 and 3, on a node: 1 and 2 are loaded together.
    trace = Trace(6)
    for rank in range(5):
        trace.add(rank, "MPI_Send", rank + 1, 100)
        trace.add(rank + 1, "MPI_Recv", rank, 100)
    plan = make_plan(trace.write(tmp_path), 2)
    (iteration,) = plan.iterations
    first = iteration.ranges[0] * 2
    program = iteration.programs[-1]
    measured, holes = plan.world.rank_of(MEASURED), plan.world.rank_of(BLACK_HOLE)
    # The rank before the loaded ones sends to the first, the last one sends to the rank after.
    if first > 0:
        codes = [Code(int(e["code"])) for e in program.of(measured[0, 0])]
        assert codes == [Code.RECV, Code.SEND, Code.END] or codes[:2] == [Code.SEND, Code.ASK]
    last = measured[1, 1]
    away = [e for e in program.of(last) if int(e["peer"]) in holes.values()]
    assert [Code(int(e["code"])) for e in away] == [Code.SEND]
    assert all(e["sample"] == -1 for e in away)
    (receive,) = [e for e in program.of(holes[1, 1]) if e["code"] == Code.IRECV]
    assert int(receive["peer"]) == last and int(receive["tag"]) == int(away[0]["tag"])


def test_a_wait_is_timed_only_with_all_its_partners(tmp_path: Path) -> None:
    plan = make_plan(halo(64).write(tmp_path), 4)
    names = {plan.classes[c].op for c in np.flatnonzero(plan.partial)}
    # Inner ranks have partners in three ranges or more: no pair of ranges holds them all.
    assert names == {"MPI_Waitall"}
    whole = [c for c in plan.classes if c.op == "MPI_Waitall"]
    assert {c.requests for c in whole} == {4, 6, 8}
    assert all(c.bytes > 0 for c in whole)


def test_sendrecv_rows_run_as_one_call(tmp_path: Path) -> None:
    trace = Trace(3)
    trace.add(0, "MPI_Sendrecv", 1, 10)  # its receive half has no partner: a plain send
    trace.add(1, "MPI_Sendrecv", 2, 10)
    trace.add(1, "MPI_Sendrecv_recv", 0, 10)
    trace.add(2, "MPI_Sendrecv_recv", 1, 10)  # a plain receive
    plan = make_plan(trace.write(tmp_path), 4)
    program = plan.iterations[0].programs[-1]
    codes = [[Code(int(e["code"])) for e in program.of(p)] for p in range(3)]
    assert codes == [[Code.SEND, Code.END], [Code.SENDRECV, Code.SECOND, Code.END],
                     [Code.RECV, Code.END]]
    assert {c.op for c in plan.classes} == {"MPI_Sendrecv", "MPI_Sendrecv_recv"}
    assert plan.classified.of_row[2] == -1  # the half of rank 1 costs nothing of its own


def test_what_is_left_out_is_named(tmp_path: Path) -> None:
    trace = Trace(4)
    trace.add(0, "MPI_Isend", 1, 10)
    trace.add(0, "MPI_Isend", 1, 10)  # no second receive
    trace.add(0, "MPI_Wait", nbytes=1)
    trace.add(0, "MPI_Wait", nbytes=1)  # waits for the one that was left out
    trace.add(1, "MPI_Recv", 0, 10)
    trace.add(1, "MPI_Recv", 3, 10, tag=-1)
    trace.add(1, "MPI_Recv", -1, 10)
    trace.add(2, "MPI_Send", 1, 10, verdict="unknown")
    trace.add(2, "MPI_Comm_split")
    trace.add(2, "MPI_Barrier", verdict="unknown")
    trace.add(2, "MPI_Ibarrier_of_sorts")
    trace.add(3, "MPI_Send", 1, 10, repeat=0)
    plan = make_plan(trace.write(tmp_path), 2)
    assert [Reason(r) for r in plan.reason.tolist()] == [
        Reason.EXECUTED, Reason.NO_PARTNER, Reason.EXECUTED, Reason.NO_REQUEST,
        Reason.EXECUTED, Reason.NO_TAG, Reason.NO_PEER,
        Reason.UNKNOWN_VERDICT, Reason.CONSTRUCTOR, Reason.UNKNOWN_VERDICT, Reason.COMPOSED,
        Reason.NEVER,
    ]
    assert_sound(plan)


def test_rows_match_in_order_within_their_phase(tmp_path: Path) -> None:
    trace = Trace(2, phases=2)
    trace.add(0, "MPI_Send", 1, 1, tag=7)
    trace.add(0, "MPI_Send", 1, 2, tag=8)
    trace.add(0, "MPI_Send", 1, 3, tag=7)
    trace.add(0, "MPI_Send", 1, 4, tag=7, phase=1)
    trace.add(1, "MPI_Recv", 0, 2, tag=8)
    trace.add(1, "MPI_Recv", 0, 1, tag=7)
    trace.add(1, "MPI_Recv", 0, 3, tag=7)
    trace.add(1, "MPI_Recv", 0, 9, tag=7)  # its send is in another phase
    scaled = read_scaled(trace.write(tmp_path))
    found = match(scaled)
    pairs = {(int(scaled.bytes[r]), int(scaled.bytes[p]))
             for r, p in enumerate(found.partner) if p >= 0}
    assert pairs == {(1, 1), (2, 2), (3, 3)}
    assert (found.reason == Reason.NO_PARTNER).sum() == 2


def test_sends_that_need_buffers_are_noted(tmp_path: Path) -> None:
    plan = make_plan(ring(4, op="MPI_Send").write(tmp_path), 2)
    assert plan.notes == ("phases 0 rely on the library to buffer their blocking sends",)
    assert make_plan(ring(4, op="MPI_Sendrecv").write(tmp_path / "b"), 2).notes == ()


def circle(n: int) -> Trace:
    """Everybody receives before it sends: no buffering helps."""
    trace = Trace(n)
    for rank in range(n):
        trace.add(rank, "MPI_Recv", (rank - 1) % n, 50, tag=3)
        trace.add(rank, "MPI_Send", (rank + 1) % n, 50, tag=3)
        trace.add(rank, "MPI_Sendrecv", rank ^ 1, 60, tag=4)
        trace.add(rank, "MPI_Sendrecv_recv", rank ^ 1, 60, tag=4)
    return trace


def test_a_deadlock_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(P3SError) as caught:
        make_plan(circle(4).write(tmp_path), 2)
    text = str(caught.value)
    assert "phase 0" in text and "would wait for ever" in text
    assert "MPI_Recv peer" in text and "\n" not in text


def test_a_deadlock_can_be_left_out_by_name(tmp_path: Path) -> None:
    plan = make_plan(circle(4).write(tmp_path), 2, strict=False)
    assert_sound(plan)
    assert 2 <= (plan.reason == Reason.DEADLOCK).sum() <= 4
    # Cut open at one place, the circle runs.
    measured = {plan.classes[c].op for i in plan.iterations for p in i.programs
                for c in p.samples() if c < len(plan.classes)}
    assert {"MPI_Recv", "MPI_Send", "MPI_Sendrecv"} <= measured


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_trace_gives_a_plan_that_ends(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    n = data.draw(st.integers(1, 7))
    trace = Trace(n, phases=2)
    ops = st.sampled_from(["MPI_Send", "MPI_Ssend", "MPI_Isend", "MPI_Recv", "MPI_Irecv",
                           "MPI_Wait", "MPI_Waitall", "MPI_Sendrecv", "MPI_Sendrecv_recv",
                           "MPI_Barrier"])
    for _ in range(data.draw(st.integers(0, 30))):
        rank, peer = data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, n - 1))
        op, phase = data.draw(ops), data.draw(st.integers(0, 1))
        tag, size = data.draw(st.integers(-1, 1)), data.draw(st.integers(0, 3))
        if op in ("MPI_Wait", "MPI_Waitall", "MPI_Barrier"):
            trace.add(rank, op, nbytes=size, phase=phase)
            continue
        trace.add(rank, op, peer, size, tag=tag, phase=phase)
        if data.draw(st.booleans()):  # often, but not always, the other end is there
            other = "MPI_Irecv" if "end" in op and op != "MPI_Sendrecv_recv" else "MPI_Isend"
            trace.add(peer, other, rank, size, tag=tag, phase=phase)
    where = trace.write(tmp_path_factory.mktemp("trace"))
    plan = make_plan(where, data.draw(st.integers(1, 4)), strict=False)
    assert_sound(plan)
    for iteration in plan.iterations:
        for program in iteration.programs:
            assert check(program).ends


def script(*events: Event) -> Script:
    return Script(events=[*events, Event(Code.END)])


def test_check_sees_what_waits_for_ever() -> None:
    crossing = [script(Event(Code.SEND, 1, 5, row=10), Event(Code.RECV, 1, 5)),
                script(Event(Code.SEND, 0, 5, row=11), Event(Code.RECV, 0, 5))]
    verdict = check(pack(0, crossing))
    assert [(s.process, s.code, s.rows) for s in verdict.stuck] == [
        (0, Code.SEND, (10,)), (1, Code.SEND, (11,))]
    buffered = [script(Event(Code.BUFFERED, 1, 5), Event(Code.RECV, 1, 5)),
                script(Event(Code.SEND, 0, 5), Event(Code.RECV, 0, 5))]
    assert check(pack(0, buffered)).ends
    waiting = [script(Event(Code.IRECV, 1, 5), Event(Code.WAIT, arg=1), Event(Code.SEND, 1, 6)),
               script(Event(Code.RECV, 0, 6), Event(Code.SEND, 0, 5))]
    assert {s.code for s in check(pack(0, waiting)).stuck} == {Code.WAIT, Code.RECV}
    assert check(pack(0, [script(Event(Code.NOTHING), Event(Code.WAIT, arg=1))])).ends


def test_check_sees_sends_without_receive() -> None:
    verdict = check(pack(0, [script(Event(Code.BUFFERED, 1, 5)), script()]))
    assert not verdict.ends
    assert verdict.uneven == (((0, 1, 5), 1, 0),)


def test_logical_time_and_noise(tmp_path: Path) -> None:
    # A chain 0 -> 1 -> 2 -> 3 and, at once, a message 4 -> 5; two ranks on a node.
    trace = Trace(8)
    for rank in range(3):
        trace.add(rank, "MPI_Send", rank + 1, 100)
        trace.add(rank + 1, "MPI_Recv", rank, 100)
    for source in (4, 5):
        trace.add(source, "MPI_Send", source + 2, 300)
        trace.add(source + 2, "MPI_Recv", source, 300)
    # Rows of rank 1 and 2 were added receive first because the loop adds them so.
    scaled = read_scaled(trace.write(tmp_path))
    matches = match(scaled)
    time = logical_clock(scaled, matches)
    at = {(int(scaled.rank[r]), scaled.ops[scaled.op[r]]): int(time[r]) for r in range(len(time))}
    assert at[0, "MPI_Send"] == 0
    for rank in range(3):
        assert at[rank + 1, "MPI_Recv"] == at[rank, "MPI_Send"] + 1
        assert at[rank, "MPI_Send"] == rank * 2
    transit = transits(scaled, matches, 2)[0]
    assert sorted(transit.bytes.tolist()) == [100, 300, 300]  # 1 -> 2 crosses, 0 -> 1 does not
    ticks, size, wanted = noise_of(transit, (0, 1), limit=16)
    assert (ticks[0], max(ticks), size) == (2, 2, 300)  # 4 -> 6 and 5 -> 7 together
    assert 0.0 < wanted < 2.0
    assert noise_of(transit, (0, 1), limit=1)[0][0] == 1
    assert max(noise_of(transit, (2, 3), limit=16)[0]) == 1  # then only 1 -> 2 is not their own


def test_noise_starts_with_the_first_message_that_reaches_a_black_hole(tmp_path: Path) -> None:
    plan = make_plan(ring(16, nbytes=100).write(tmp_path), 2)
    program = plan.iterations[0].programs[-1]
    first, second = (plan.world.rank_of(NOISE)[side, 0] for side in (0, 1))
    sent = Counter(int(e["tag"]) for p in (first, second) for e in program.of(p)
                   if e["code"] == Code.ISEND)
    assert sent[TAG_NOISE] > 0
    assert Code(int(program.of(first)[0]["code"])) == Code.RECV
    starter = int(program.of(first)[0]["peer"])
    assert starter in plan.world.rank_of(BLACK_HOLE).values()
    quiet = make_plan(ring(16, nbytes=100).write(tmp_path / "q"), 2, noise_limit=0)
    assert quiet.world.rank_of(NOISE) == {}


def test_many_irregular_sizes_are_bounded_and_named(tmp_path: Path) -> None:
    trace = Trace(64)
    for rank in range(64):
        trace.add(rank, "MPI_Isend", (rank + 1) % 64, 1000 + 7 * rank)
        trace.add(rank, "MPI_Recv", (rank - 1) % 64, 1000 + 7 * ((rank - 1) % 64))
        trace.add(rank, "MPI_Wait", nbytes=1)
    plan = make_plan(trace.write(tmp_path), 2, max_iterations=5)
    assert len(plan.iterations) == 5
    assert_sound(plan)
    assert len(plan.uncovered) > 0


def test_wrong_settings_are_one_line(tmp_path: Path) -> None:
    where = ring(4).write(tmp_path)
    for cores, nodes in ((0, 4), (2, 3)):
        with pytest.raises(P3SError) as caught:
            make_plan(where, cores, nodes)
        assert "\n" not in str(caught.value)


def test_damaged_traces_are_one_line(tmp_path: Path) -> None:
    where = ring(4).write(tmp_path)
    (where / "part-0001.parquet").write_bytes(b"not parquet")
    with pytest.raises(P3SError, match="damaged") as caught:
        read_scaled(where)
    assert "\n" not in str(caught.value)
    for part in where.glob("part-*"):
        part.unlink()
    with pytest.raises(P3SError, match=r"holds no part-\*\.parquet"):
        read_scaled(where)
    bad = Trace(2)
    bad.add(0, "MPI_Send", 5, 10)
    with pytest.raises(P3SError, match=r"a peer is not in 0\.\.1"):
        read_scaled(bad.write(tmp_path / "bad"))


def test_work_is_kept_in_order(tmp_path: Path) -> None:
    trace = Trace(2)
    trace.add(0, "MPI_Barrier", work=5.0)  # not executed: its work goes to the next event
    trace.add(0, "MPI_Send", 1, 10, work=7.0)
    trace.add(0, "MPI_Barrier", work=11.0)
    trace.add(1, "MPI_Recv", 0, 10, work=3.0)
    plan = make_plan(trace.write(tmp_path), 2)
    program = plan.iterations[0].programs[-1]
    assert [(Code(int(e["code"])).name, int(e["work_ns"])) for e in program.of(0)] == [
        ("SEND", 12), ("REST", 11), ("END", 0)]
    assert program.of(1)["work_ns"].tolist() == [3, 0]


def test_a_wait_at_the_head_of_a_loop_takes_what_is_left_at_its_end(tmp_path: Path) -> None:
    trace = Trace(2)
    for rank in range(2):
        trace.add(rank, "MPI_Wait", nbytes=1)
        trace.add(rank, "MPI_Irecv", 1 - rank, 100)
        trace.add(rank, "MPI_Send", 1 - rank, 100)
    plan = make_plan(trace.write(tmp_path), 1)
    assert (plan.reason == Reason.EXECUTED).all()
    program = plan.iterations[0].programs[-1]
    assert [Code(int(e["code"])) for e in program.of(0)] == [
        Code.IRECV, Code.SEND, Code.WAIT, Code.END]
    wait = program.of(0)[2]
    assert plan.classes[int(wait["sample"])].bytes == 100


def requests_of_all_kinds(n: int) -> Trace:
    """A ring and nonblocking and persistent collectives, waited for together and apart."""
    trace = Trace(n)
    for rank in range(n):
        trace.add(rank, "MPI_Irecv", (rank - 1) % n, 4096)
        trace.add(rank, "MPI_Iallreduce", nbytes=1 << 20)
        trace.add(rank, "MPI_Isend", (rank + 1) % n, 4096)
        trace.add(rank, "MPI_Waitall", nbytes=3)
        trace.add(rank, "MPI_Bcast_init", nbytes=64, root=0)
        trace.add(rank, "MPI_Ibarrier")
        trace.add(rank, "MPI_Waitall", nbytes=2)
        trace.add(rank, "MPI_Isendrecv", (rank + 1) % n, 512, tag=3)
        trace.add(rank, "MPI_Isendrecv_recv", (rank - 1) % n, 512, tag=3)
        trace.add(rank, "MPI_Wait", nbytes=1)
    return trace


@pytest.mark.parametrize("cores", [1, 2, 8])
def test_nonblocking_collectives_take_part_in_waits(tmp_path: Path, cores: int) -> None:
    plan = make_plan(requests_of_all_kinds(8).write(tmp_path), cores)
    assert_sound(plan)
    trace, reason = plan.trace, plan.reason
    of = {op: set(reason[trace.is_op(op)].tolist()) for op in trace.ops}
    for op in ("MPI_Iallreduce", "MPI_Bcast_init", "MPI_Ibarrier"):
        assert of[op] == {Reason.COMPOSED}
    for op in ("MPI_Irecv", "MPI_Isend", "MPI_Isendrecv", "MPI_Isendrecv_recv", "MPI_Wait"):
        assert of[op] == {Reason.EXECUTED}
    # One completes messages too, the other collectives only: its cost is theirs.
    assert of["MPI_Waitall"] == {Reason.EXECUTED, Reason.COMPOSED}
    waits = [cls for cls in plan.classes if cls.op.startswith("MPI_Wait")]
    assert {(cls.op, cls.requests, cls.bytes) for cls in waits} == {
        ("MPI_Waitall", 3, 8192), ("MPI_Wait", 1, 512)}
    composed = {plan.classes[c].op for c in plan.compositions}
    assert composed == {"MPI_Iallreduce", "MPI_Bcast_init", "MPI_Ibarrier"}
