"""The capture reader, on whole files written here from docs/capture-format.md."""

from __future__ import annotations

import json
import struct
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from capture_writer import (
    COUNTS,
    DEFS,
    DONE,
    END,
    EVENTS,
    INSTRUCTIONS,
    PAGE,
    RESOLVED,
    WALL,
    Part,
    Writer,
    begun,
    leb,
    small,
    spoil,
    zigzag,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from p3s.base.errors import P3SError
from p3s.capture import Window, read_file, read_run, reader
from p3s.capture.capture import read_capture
from p3s.capture.chunks import read_header
from p3s.capture.events import Events
from p3s.capture.summary import summary


def test_what_is_written_is_read(tmp_path: Path) -> None:
    for rank in (0, 1):
        small(rank).save(tmp_path)
    (tmp_path / "run.json").write_text(json.dumps({"wall_s": 1.5}))
    run = read_run(tmp_path)
    assert (run.np, run.wall_ns, run.work_unit) == (2, 1_500_000_000, "cpu_ns")
    assert run.work_origin == "CLOCK_THREAD_CPUTIME_ID"
    assert [site.key for site in run.sites] == ["0000000000000abc", "0000000000000def"]
    assert run.sites[0].frames == ("app+0x10", "app+0x20")
    assert [comm.op for comm in run.comms] == ["MPI_COMM_WORLD", "MPI_Cart_create"]
    cart = run.comms[1]
    assert (cart.members, cart.ordinal, cart.parent) == ((0, 1), 1, 0)
    assert (cart.dims, cart.periods) == ((1, 2), (False, True))
    assert run.windows == (Window(1, "window", "MPI_Win_create", 0),)
    for rank in run.ranks:
        assert rank.complete and (rank.failed_polls, rank.failed_poll_ns) == (7, 700)
        calls = [run.calls[number] for number in rank.call.tolist()]
        assert [call.op for call in calls] == ["MPI_Init"] + 5 * ["MPI_Recv"] + ["MPI_Put"]
        received = [(call.peer, call.tag, call.bytes, call.count) for call in calls[1:6]]
        other = 1 - rank.rank
        assert received == [(other, 40 + turn % 2, 80, 10) for turn in range(5)]
        assert (calls[6].window, calls[6].depth, calls[5].window) == (0, 3, -1)
        assert rank.start_ns.tolist() == [-100, 0, 20, 40, 60, 80, 200]
        assert rank.work.tolist() == [50, 5, 5, 5, 5, 5, 5]
        assert rank.done.tolist() == [[i, i] for i in range(1, 6)]
        assert not rank.cancelled.any() and rank.ordinal is None and rank.thread is None
    assert run.unmodelled == {"MPI_Put": 2}
    assert not any(call.peer == -2 for call in run.calls), "no event, no call"
    assert summary(run)["MPI_Recv"] == {
        "kind": "recv",
        "events": 10,
        "bytes": 800,
        "elements": 100,
        "elapsed_ns": 100,
        "work": 50,
        "sites": 1,
    }


@pytest.mark.parametrize(
    ("source", "unit"), [(WALL, "wall_ns"), (2, "cpu_ns"), (INSTRUCTIONS, "instructions")]
)
def test_work_sources(source: int, unit: str, tmp_path: Path) -> None:
    for rank in (0, 1):
        small(rank, work_source=source).save(tmp_path)
    run = read_run(tmp_path)
    assert run.work_unit == unit
    assert run.ranks[0].work.tolist() == [50, 5, 5, 5, 5, 5, 5]


def test_wall_and_cpu_time_are_both_times_but_instructions_are_not(tmp_path: Path) -> None:
    small(0, work_source=WALL).save(tmp_path)
    small(1, work_source=2).save(tmp_path)
    assert read_run(tmp_path).work_unit == "cpu_ns"
    small(1, work_source=INSTRUCTIONS).save(tmp_path)
    with pytest.raises(P3SError, match="mixes units of work.*rank-000001.p3t instructions"):
        read_run(tmp_path)


def test_counters_threads_and_what_was_only_counted(tmp_path: Path) -> None:
    w = begun("MPI_Send", 0, 1, counters=("cycles", "llc-misses"), paused_calls=4)
    first, second = w.call(0, peer=0, nbytes=8), w.call(0, peer=0, nbytes=16, thread=3)
    w.event(first, counters=(100, 7))
    w.event(second, counters=(1 << 40, 0))
    w.counts([(5, 50, 500), (0, 0, 0)])
    w.end()
    w.save(tmp_path)
    run = read_run(tmp_path)
    rank = run.ranks[0]
    assert rank.complete and run.counter_names == ("cycles", "llc-misses")
    assert rank.counters.tolist() == [[100, 7], [1 << 40, 0]]
    assert rank.thread is not None and rank.thread.tolist() == [0, 3]
    assert rank.counted == {int(rank.call[0]): (5, 50, 500)}
    assert (run.counted_events, rank.counted_events, rank.paused_calls) == (5, 5, 4)
    row = summary(run)["MPI_Send"]
    assert (row["events"], row["bytes"], row["elapsed_ns"]) == (7, 64, 70)


def test_a_call_that_was_only_counted_keeps_its_name(tmp_path: Path) -> None:
    w = small(0, 1)
    w.parts.pop()  # END
    w.opname(9, "MPI_Barrier")
    number = w.call(9)
    w.counts([(3, 30, 0)], first=number)
    w.end()
    w.save(tmp_path)
    assert summary(read_run(tmp_path))["MPI_Barrier"]["events"] == 3


def test_communicators_with_equal_members_are_told_apart_in_order(tmp_path: Path) -> None:
    for rank in (0, 1, 2):
        w = Writer(rank, 3)
        w.comm(10, [0, 1, 2], "MPI_COMM_WORLD")
        if rank == 0:  # its numbers differ from those of the others
            w.comm(11, [0], "MPI_COMM_SELF")
        w.comm(20, [0, 1, 2], "MPI_Comm_dup", 10)
        if rank < 2:
            w.comm(30, [1, 0], "MPI_Comm_split", 20)
        w.comm(40, [0, 1, 2], "MPI_Comm_dup", 20)
        w.opname(0, "MPI_Barrier")
        w.site(1, "a+0x1")
        w.event(w.call(0, 0, 40))
        w.end()
        w.save(tmp_path)
    run = read_run(tmp_path)
    found = {(comm.members, comm.ordinal): comm.op for comm in run.comms}
    assert found == {
        ((0, 1, 2), 0): "MPI_COMM_WORLD",
        ((0, 1, 2), 1): "MPI_Comm_dup",
        ((0, 1, 2), 2): "MPI_Comm_dup",
        ((1, 0), 0): "MPI_Comm_split",
        ((0,), 0): "MPI_COMM_SELF",
    }
    last = next(i for i, comm in enumerate(run.comms) if comm.ordinal == 2)
    assert run.comms[run.comms[last].parent].ordinal == 1
    assert {call.comm for call in run.calls} == {last}
    assert len(run.calls) == 1


def test_missing_and_unfinished_ranks_are_partial(tmp_path: Path) -> None:
    small(0, 3).save(tmp_path)
    open_end = small(1, 3)
    open_end.parts.pop()
    open_end.save(tmp_path)
    run = read_run(tmp_path)
    assert [rank.complete for rank in run.ranks] == [True, False, False]
    assert [len(rank.call) for rank in run.ranks] == [7, 7, 0]
    assert run.missing == (2,) and list(run.problems) == [1, 2]
    assert run.problem.endswith("rank-000001.p3t ends before MPI_Finalize, after MPI_Put")
    assert run.ranks[2].problem.endswith("rank-000002.p3t is missing")


def test_a_killed_rank_loses_nothing(tmp_path: Path) -> None:
    """No chunk is sealed and no count is up to date; space behind is not yet used."""
    w = small(0, 1)
    w.parts.pop()
    for part in w.parts:
        part.sealed = 0
        part.count -= part.kind in (EVENTS, DONE)
    path = w.save(tmp_path)
    path.write_bytes(path.read_bytes() + bytes(64 * PAGE))
    capture = read_capture(path)
    assert (len(capture.events), len(capture.done)) == (7, 5)
    assert capture.problem.startswith("ends before MPI_Finalize, after MPI_")
    with open(path, "r+b") as file:
        file.truncate(1 << 34)  # a hole: neither read nor walked through page by page
    assert len(read_capture(path).events) == 7


def test_events_span_chunks(tmp_path: Path) -> None:
    w = begun("MPI_Send", 0, 1)
    call = w.call(0)
    starts = []
    for turn in range(3000):
        starts.append(w.last_end + 17 * turn)
        w.event(call, start=starts[-1], elapsed=turn, work=turn // 2)
    w.end()
    capture = read_capture(w.save(tmp_path))
    assert capture.complete and capture.chunks > 4
    assert capture.events.start_ns.tolist() == starts
    assert capture.events.work.tolist() == [turn // 2 for turn in range(3000)]


def test_completions_of_several_threads_come_in_any_order(tmp_path: Path) -> None:
    w = small(0, 1)
    w.parts.pop()
    for completing, posting in [(6, 1), (3, 2), (5, 0)]:
        w.done(completing, posting)
    w.end()
    w.save(tmp_path)
    rank = read_run(tmp_path).ranks[0]
    assert rank.complete and rank.done[5:].tolist() == [[6, 1], [3, 2], [5, 0]]


def test_times_are_not_kept_where_somebody_takes_them_chunk_by_chunk(tmp_path: Path) -> None:
    path = small(0).save(tmp_path)
    taken: list[Events] = []
    whole, bare = read_capture(path), read_capture(path, each=taken.append)
    assert (bare.event_count, len(bare.events.work), bare.complete) == (7, 0, True)
    assert bare.events.call.tolist() == whole.events.call.tolist()
    assert [n for each in taken for n in each.work.tolist()] == whole.events.work.tolist()
    empty = read_capture(Writer(0, 1).save(tmp_path), each=taken.append)
    assert (empty.event_count, len(empty.events)) == (0, 0)


def test_one_file_can_be_read_alone(tmp_path: Path) -> None:
    run = read_file(small(1).save(tmp_path))
    assert run.np == 2 and run.problem == "" and len(run.ranks[1].call) == 7


def test_ranks_are_decoded_when_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is decoded again is what was decoded first; memory does not grow with the ranks."""

    def write(size: int) -> Path:
        folder = tmp_path / str(size)
        folder.mkdir()
        for rank in range(size):
            w = begun("MPI_Recv", rank, size, room=1 << 16)
            call = w.call(0, peer=-2)
            for turn in range(4000):
                w.event(call)
                if turn % 7 == 0:
                    w.resolved(turn, (rank + turn) % size, 5, 0)
            w.end()
            w.save(folder)
        return folder

    folders = [write(size) for size in (2, 10)]
    kept = [[rank.call.tolist() for rank in read_run(folder).ranks] for folder in folders]
    monkeypatch.setattr(reader, "_KEEP_BYTES", 0)
    peaks = []
    for folder, before in zip(folders, kept, strict=True):
        tracemalloc.start()
        run = read_run(folder)
        summary(run)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert [rank.call.tolist() for rank in run.ranks] == before
        assert run.ranks[-1].call.tolist() == before[-1]
    assert peaks[1] < 1.5 * peaks[0]


# ---- other versions ------------------------------------------------------------------------


def test_version_one_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "rank-000000.p3t"
    path.write_bytes(b"P3STRACE" + b"\x01\0\0\0" + bytes(9000))
    with pytest.raises(P3SError, match=r"capture version 1, .*; trace again with this P3S") as e:
        read_run(tmp_path)
    assert "\n" not in str(e.value)
    Writer(0, 1, major=3, minor=1).save(tmp_path)
    with pytest.raises(P3SError, match=r"capture version 3\.1"):
        read_run(tmp_path)


def test_a_newer_minor_version_is_read(tmp_path: Path) -> None:
    w = Writer(0, 1, minor=7)
    w.record(99, b"a record of a later version")
    w.opname(0, "MPI_Send")
    w.comm(0, [0], "MPI_COMM_WORLD")
    w.site(1, "a+0x1")
    w.event(w.call(0, more=bytes(8) + b"later fields"))
    w.parts.append(Part(77, payload=b"a chunk of a later version", count=1))
    w.end(more=b"more totals than 2.0 has")
    capture = read_capture(w.save(tmp_path))
    assert capture.complete, capture.problem
    assert len(capture.events) == 1 and capture.header.minor == 7


def test_later_columns_are_passed_over(tmp_path: Path) -> None:
    w = small(0, 1)
    part = next(part for part in w.parts if part.kind == EVENTS)
    rows, numbers = [], []
    for byte in part.payload:
        numbers.append(byte)
        if byte < 0x80:
            rows.append(bytes(numbers))
            numbers = []
    part.columns = 5
    part.payload = b"".join(
        number + (leb(1 << 63) if i % 4 == 3 else b"") for i, number in enumerate(rows)
    )
    capture = read_capture(w.save(tmp_path))
    assert capture.complete and capture.events.work.tolist() == [50, 5, 5, 5, 5, 5, 5]


# ---- round trip ----------------------------------------------------------------------------

_TIMES = st.integers(0, 1 << 40)
_EVENT = st.tuples(
    st.integers(0, 4), st.integers(-(1 << 40), 1 << 40), _TIMES, _TIMES, _TIMES, st.booleans()
)


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    events=st.lists(_EVENT, max_size=40),
    source=st.sampled_from([WALL, 2, INSTRUCTIONS]),
    cuts=st.sets(st.integers(0, 40), max_size=5),
)
def test_round_trip(
    tmp_path: Path, events: list[tuple[int, ...]], source: int, cuts: set[int]
) -> None:
    w = Writer(0, 4, work_source=source, counters=("cycles",))
    w.opname(5, "MPI_Recv")
    w.comm(0, [0, 1, 2, 3], "MPI_COMM_WORLD")
    w.site(1, "a+0x1")
    calls = [w.call(5, peer=-2, nbytes=1 << size, tag=size) for size in range(5)]
    expected, sources = [], {}
    for number, (call, start, elapsed, work, counter, wild) in enumerate(events):
        if number in cuts:
            w.cut()
        w.event(calls[call], start, elapsed, work, (counter,))
        expected.append((start, elapsed, work, counter))
        if wild:
            sources[number] = (number * 3) % 4
            w.resolved(number, sources[number], 100 + number, 3)
        w.done(number, number // 2, number % 2)
    w.end()
    w.save(tmp_path)
    run = read_run(tmp_path)
    rank = run.ranks[0]
    assert rank.complete, rank.problem
    columns = (rank.start_ns, rank.elapsed_ns, rank.work, rank.counters[:, 0])
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == expected
    assert rank.done.tolist() == [[i, i // 2] for i in range(len(events))]
    assert rank.cancelled.tolist() == [bool(i % 2) for i in range(len(events))]
    for number, index in enumerate(rank.call.tolist()):
        call = run.calls[index]
        size = events[number][0]
        assert call.bytes == 1 << size
        if number in sources:
            assert (call.peer, call.tag) == (sources[number], 100 + number)
        else:
            assert (call.peer, call.tag) == (-2, size)


@given(st.lists(st.integers(0, (1 << 64) - 1), min_size=1))
def test_varints(values: list[int]) -> None:
    from p3s.capture.events import decode, unzigzag

    table = decode(b"".join(map(leb, values)), 1)
    assert table[0].tolist() == values
    signed = [value - (1 << 63) for value in values]
    coded = decode(b"".join(leb(zigzag(value)) for value in signed), 1)
    assert unzigzag(coded[0]).tolist() == signed


# ---- what a good checksum does not excuse --------------------------------------------------


def _impossible() -> dict[str, tuple[int, dict[str, object]]]:
    """Name -> (kind of the chunk to change, what to change it to)."""
    row = leb(1) + leb(0) + leb(10) + leb(0)
    return {
        "a number is cut off": (EVENTS, {"payload": row + b"\x80", "count": 2}),
        "a row is cut off": (EVENTS, {"payload": row + leb(1), "count": 2}),
        "more than ten bytes": (EVENTS, {"payload": b"\x80" * 10 + b"\x01" + row[1:], "count": 1}),
        "more than 64 bits": (EVENTS, {"payload": b"\xff" * 9 + b"\x02" + row[1:], "count": 1}),
        "1 rows and says 9": (EVENTS, {"payload": row, "count": 9}),
        "impossible number": (EVENTS, {"payload": leb(1 << 33) + row[1:], "count": 1}),
        "a time is impossible": (
            EVENTS,
            {"payload": leb(1) + leb(0) + leb(1 << 63) + leb(0), "count": 1},
        ),
        "too few columns": (EVENTS, {"columns": 3}),
        "ordinals are impossible": (EVENTS, {"first": 1 << 60}),
        "events before it are not there": (EVENTS, {"first": 4}),
        "events of a call that is not there": (EVENTS, {"payload": leb(77) + row[1:], "count": 1}),
        "rows of events that are not there": (DONE, {"first": 1000}),
        "posted before the first event": (DONE, {"payload": leb(2) + leb(500 << 1), "count": 1}),
        "an ordinal is impossible": (
            RESOLVED,
            {"payload": leb((1 << 64) - 1) + leb(0) * 3, "count": 1},
        ),
        "its numbers are taken": (DEFS, {"first": 0}),
        "its numbers are impossible": (DEFS, {"first": 1 << 50}),
        "a record is cut off": (DEFS, {"payload": leb(4) * 4 + b"\xff\xff\xff\0" * 3}),
        "a name is not printable": (DEFS, {"payload": struct.pack("<III", 1, 8, 7) + b"\x1b[2J"}),
        "row of counts is cut off": (COUNTS, {"payload": b"1234567"}),
        "too short": (END, {"payload": b"\0" * 79}),
    }


@pytest.mark.parametrize("why", list(_impossible()))
def test_what_no_tracer_writes_is_found(why: str, tmp_path: Path) -> None:
    w = begun("MPI_Recv", 0, 2)
    call = w.call(0, peer=1)
    w.cut(DEFS)
    w.call(0, peer=0)
    for _ in range(6):
        w.event(call)
    w.done(3, 3)
    w.resolved(2, 1, 1, 1)
    w.counts([(2, 2, 2)])
    w.end()
    kind, change = _impossible()[why]
    at = max(i for i, part in enumerate(w.parts) if part.kind == kind)
    w.parts[at] = replace(w.parts[at], **change)  # type: ignore[arg-type]
    path = w.save(tmp_path)
    capture = read_capture(path)
    assert why in capture.problem, capture.problem
    assert "is damaged at byte" in capture.problem and "\n" not in capture.problem
    run = read_run(tmp_path)
    summary(run)
    assert all(0 <= run.calls[c].peer < 2 for c in run.ranks[0].call.tolist())


@pytest.mark.parametrize(
    "call",
    [
        {"peer": 2},
        {"peer": -4},
        {"root": 2},
        {"root": -9},
        {"nbytes": -1},
        {"count": -5},
        {"site": 8},
        {"comm": 8},
        {"op": 8},
        {"window": 3},
    ],
)
def test_impossible_calls_take_their_events_with_them(call: dict[str, int], tmp_path: Path) -> None:
    w = begun("MPI_Send", 0, 2)
    good, bad = w.call(0, peer=1), w.call(**{"op": 0, **call})
    for turn in range(8):
        w.event(bad if turn in (2, 5) else good)
    w.done(7, 6)
    w.end()
    capture = read_capture(w.save(tmp_path))
    assert "2 events are lost" in capture.problem
    assert capture.events.ordinal is not None
    assert capture.events.ordinal.tolist() == [0, 1, 3, 4, 6, 7]
    small(1, 2).save(tmp_path)
    run = read_run(tmp_path)
    assert len(run.ranks[0].call) == 6 and run.ranks[0].done.tolist() == [[5, 4]]


@pytest.mark.parametrize("lost", [None, 7])
def test_many_chunks_put_together_are_the_same_events(
    lost: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading packs chunks of events; a lost one among them leaves all others as they are."""
    from p3s.capture import capture

    writer = begun("MPI_Barrier", 0, 1)
    call = writer.call(0, 0)
    for number in range(40):
        writer.event(call, elapsed=number, work=number)
        writer.cut(EVENTS)
    writer.end()
    writer.save(tmp_path)
    path = tmp_path / "rank-000000.p3t"
    if lost is not None:
        spoil(path, writer.begin(EVENTS, lost) + 64, 0xFF)
    plain = read_capture(path)
    monkeypatch.setattr(capture, "_PACK", 3)
    packed = read_capture(path)
    assert len(plain.events) == 40 - (lost is not None)
    for name in ("call", "start_ns", "elapsed_ns", "work", "ordinal"):
        one, other = plain.events[name], packed.events[name]
        assert (one is None and other is None) or one.tolist() == other.tolist(), name
    assert plain.lost_events == packed.lost_events == (lost is not None)
    assert len(read_capture(path, completions=False).done) == 0


@pytest.mark.parametrize(
    ("minor", "memory", "filled"),
    [
        (1, (1 << 20, 3 << 20, 4), 0),
        (2, (1 << 20, 3 << 20, 4), 2 << 20),
        (2, (9, 5, 0), 0),
        (2, (0, 5, 0), 0),
        (3, (1, 8, 1), 7),
    ],
)
def test_memory_that_the_program_filled(
    minor: int, memory: tuple[int, int, int], filled: int, tmp_path: Path
) -> None:
    path = small(0, 1, minor=minor, memory=memory).save(tmp_path)
    assert read_header(path).resident_bytes == filled  # live totals
    spoil(path, 568, bytes(24))  # END says what counts
    (rank,) = read_file(path).ranks
    assert rank.resident_bytes == filled and rank.complete
    assert rank.preempted == (memory[2] if minor > 1 else 0)


def test_memory_no_machine_has_is_not_known(tmp_path: Path) -> None:
    w = small(0, 1, minor=2, memory=(1, 1 << 60, 1 << 60))
    w.parts.pop()  # END
    path = w.save(tmp_path)
    assert read_header(path).resident_bytes == 0 and read_capture(path).header.resident_bytes == 0
