"""The capture reader, on files written here from docs/capture-format.md, whole and damaged."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

import pytest

from p3s.errors import P3SError
from p3s.trace import read_run, summary
from p3s.trace.capture import read_capture

OPNAME, SITE, COMM, CALL, EVENT, RESOLVED, END = range(1, 8)
HEADER_BYTES = 4096


class Writer:
    """Writes a capture file independently of the tracer."""

    def __init__(self, rank: int, size: int, version: int = 1) -> None:
        self.rank = rank
        head = struct.pack(
            "<8sIIiiqqqqQqII16s64sq",
            b"P3STRACE", version, HEADER_BYTES, rank, size, 1, 2, 1, 4321, 7, 700, 0, 0,
            b"mpich", b"node", 500,
        )  # fmt: skip
        self.data = head.ljust(HEADER_BYTES, b"\0")
        self.events = 0

    def record(self, kind: int, payload: bytes) -> None:
        padded = payload.ljust((len(payload) + 7) // 8 * 8, b"\0")
        self.data += struct.pack("<II", kind, len(payload)) + padded

    def opname(self, number: int, name: str) -> None:
        self.record(OPNAME, struct.pack("<I", number) + name.encode())

    def site(self, number: int, key: int, *frames: str) -> None:
        text = b"".join(frame.encode() + b"\0" for frame in frames)
        self.record(SITE, struct.pack("<IIQ", number, len(frames), key) + text)

    def comm(
        self,
        number: int,
        members: list[int],
        op: str,
        parent: int = -1,
        cart: tuple[list[int], list[int], list[int]] = ([], [], []),
    ) -> None:
        dims, periods, coords = cart
        head = (number, parent, 0, len(members), len(dims), len(op))
        values = [*head, *members, *dims, *periods, *coords]
        self.record(COMM, struct.pack(f"<{len(values)}i", *values) + op.encode())

    def call(
        self, op: int, site: int, comm: int, peer: int, tag: int, root: int, size: int, elem: int
    ) -> None:
        self.record(CALL, struct.pack("<HHIiiiiq", op, elem, site, comm, peer, tag, root, size))

    def event(self, call: int, start: int = 0, elapsed: int = 10, work: int = 5) -> None:
        self.record(EVENT, struct.pack("<IIqqq", call, 0, start, elapsed, work))
        self.events += 1

    def resolved(self, ordinal: int, source: int, tag: int, size: int) -> None:
        self.record(RESOLVED, struct.pack("<Qiiqq", ordinal, source, tag, size, 0))

    def end(self) -> None:
        self.record(END, struct.pack("<Q", self.events))

    def save(self, folder: Path) -> Path:
        path = folder / f"rank-{self.rank:06d}.p3t"
        path.write_bytes(self.data + b"\0" * 64)
        return path


def small(rank: int, size: int = 2) -> Writer:
    w = Writer(rank, size)
    w.opname(0, "MPI_Init")
    w.comm(0, list(range(size)), "MPI_COMM_WORLD")
    w.site(0, 0xABC, "app+0x10", "app+0x20")
    w.call(0, 0, 0, -1, -1, -1, 0, 1)
    w.event(0, start=-100, elapsed=100, work=50)
    w.opname(3, "MPI_Recv")
    w.site(1, 0xDEF, "app+0x30")
    w.call(3, 1, 0, -2, -1, -1, 80, 8)
    for turn in range(5):
        w.event(1, start=20 * turn)
        w.resolved(1 + turn, 1 - rank, 40 + turn % 2, 16)
    w.opname(5, "MPI_Cart_create")
    w.comm(1, list(range(size)), "MPI_Cart_create", 0, ([1, size], [0, 1], [0, rank]))
    w.opname(6, "MPI_Put")
    w.call(6, 1, 1, -1, -1, -1, 0, 1)
    w.event(2, start=200)
    w.end()
    return w


def test_what_is_written_is_read(tmp_path: Path) -> None:
    for rank in (0, 1):
        small(rank).save(tmp_path)
    (tmp_path / "run.json").write_text(json.dumps({"wall_s": 1.5}))
    run = read_run(tmp_path)
    assert (run.np, run.wall_ns, run.work_unit) == (2, 1_500_000_000, "cpu_ns")
    assert [site.key for site in run.sites] == ["0000000000000abc", "0000000000000def"]
    assert run.sites[0].frames == ("app+0x10", "app+0x20")
    assert [comm.op for comm in run.comms] == ["MPI_COMM_WORLD", "MPI_Cart_create"]
    cart = run.comms[1]
    assert (cart.members, cart.ordinal, cart.parent) == ((0, 1), 1, 0)
    assert (cart.dims, cart.periods) == ((1, 2), (False, True))
    for rank in run.ranks:
        assert rank.complete and (rank.failed_polls, rank.failed_poll_ns) == (7, 700)
        calls = [run.calls[number] for number in rank.call.tolist()]
        assert [call.op for call in calls] == ["MPI_Init"] + 5 * ["MPI_Recv"] + ["MPI_Put"]
        received = [(call.peer, call.tag, call.bytes) for call in calls[1:6]]
        other = 1 - rank.rank
        assert received == [(other, 40 + turn % 2, 80) for turn in range(5)]
        assert rank.start_ns.tolist() == [-100, 0, 20, 40, 60, 80, 200]
        assert rank.work_ns.tolist() == [50, 5, 5, 5, 5, 5, 5]
    assert run.unmodelled == {"MPI_Put": 2}
    assert not any(call.peer == -2 for call in run.calls), "no event, no call"
    table = summary(run)
    assert table["MPI_Recv"] == {
        "kind": "recv", "events": 10, "bytes": 800, "elapsed_ns": 100, "work_ns": 50, "sites": 1,
    }  # fmt: skip


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
        w.site(0, 1, "a+0x1")
        w.call(0, 0, 40, -1, -1, -1, 0, 1)
        w.event(0)
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
    whole = small(1, 3)
    whole.data = whole.data[:-16]  # without END
    whole.save(tmp_path)
    run = read_run(tmp_path)
    assert [rank.complete for rank in run.ranks] == [True, False, False]
    assert [len(rank.call) for rank in run.ranks] == [7, 7, 0]


def test_unknown_kinds_are_passed_over(tmp_path: Path) -> None:
    w = small(0, 1)
    body = w.data[HEADER_BYTES:]
    w.data = w.data[:HEADER_BYTES]
    w.record(99, b"of a later version")
    w.data += body
    assert read_capture(w.save(tmp_path)).complete


def test_truncation_at_every_byte(tmp_path: Path) -> None:
    data = small(0, 1).data
    path = tmp_path / "rank-000000.p3t"
    events = []
    for size in range(len(data)):
        path.write_bytes(data[:size])
        if size < HEADER_BYTES - 8:
            continue
        capture = read_capture(path)
        assert not capture.complete
        events.append(len(capture.events))
    assert events == sorted(events) and events[-1] == 7


def test_short_files_are_one_line(tmp_path: Path) -> None:
    data = small(0, 1).data
    path = tmp_path / "rank-000000.p3t"
    for size in [0, 1, 7, 8, 40, 100, 167]:
        path.write_bytes(data[:size])
        with pytest.raises(P3SError) as caught:
            read_run(tmp_path)
        assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("seed", range(4))
def test_damage_never_escapes(seed: int, tmp_path: Path) -> None:
    data = small(0, 1).data
    path = tmp_path / "rank-000000.p3t"
    chance = random.Random(seed)
    meaningful = [*range(168), *range(HEADER_BYTES, len(data))]
    for _ in range(400):
        damaged = bytearray(data)
        for _ in range(chance.choice([1, 1, 2, 8])):
            at = chance.choice(meaningful)
            damaged[at] = chance.choice([0, 255, chance.randrange(256), damaged[at] ^ 1])
        path.write_bytes(damaged)
        try:
            run = read_run(tmp_path)
        except P3SError as error:
            assert "\n" not in str(error)
            continue
        for rank in run.ranks:
            for number in set(rank.call.tolist()):
                call = run.calls[number]
                assert -1 <= call.comm < len(run.comms) and 0 <= call.site < len(run.sites)
                assert -3 <= call.peer < run.np and -3 <= call.root < run.np
                assert call.bytes >= 0
        summary(run)


def test_other_versions_and_other_files_are_refused(tmp_path: Path) -> None:
    Writer(0, 1, version=2).save(tmp_path)
    with pytest.raises(P3SError, match="capture version 2"):
        read_run(tmp_path)
    (tmp_path / "rank-000000.p3t").write_bytes(b"not this at all, but long enough" * 20)
    with pytest.raises(P3SError, match="not a P3S capture"):
        read_run(tmp_path)


def test_mixed_runs_and_empty_places_are_refused(tmp_path: Path) -> None:
    with pytest.raises(P3SError, match="not there"):
        read_run(tmp_path / "nowhere")
    with pytest.raises(P3SError, match="no MPI call was seen"):
        read_run(tmp_path)
    small(0, 2).save(tmp_path)
    small(1, 3).save(tmp_path)
    with pytest.raises(P3SError, match="mixes runs"):
        read_run(tmp_path)
