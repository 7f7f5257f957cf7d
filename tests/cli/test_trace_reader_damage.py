"""A capture that is not what the tracer wrote is found out, and what is intact of it is kept.

Truncation at every byte of a 1 MiB file and every flipped bit of a 64 KiB file: found, or without
any effect on what is read. The whole sweeps are slow; a dense sample always runs.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from capture_writer import (
    COUNTS,
    DEFS,
    DONE,
    EVENTS,
    PAGE,
    RESOLVED,
    Writer,
    put_run_json,
    small,
    spoil,
)

from p3s.base.errors import P3SError
from p3s.base.settings import traces_of
from p3s.base.study import Study
from p3s.capture import read_run
from p3s.capture.capture import Capture, _Collector, read_capture
from p3s.capture.chunks import Header, Scan, read_header
from p3s.capture.summary import summary
from p3s.signature.signature import characterize

# ---- the files that are damaged ------------------------------------------------------------


def dense(room: int, total: int) -> Writer:
    """A capture of exactly ``total`` bytes whose chunks of ``room`` bytes are full of events."""
    w = Writer(0, 4, room=room)
    chance = random.Random(1)
    w.opname(0, "MPI_Send")
    w.opname(1, "MPI_Recv")
    w.opname(2, "MPI_Allreduce")
    w.comm(0, [0, 1, 2, 3], "MPI_COMM_WORLD")
    calls = [
        w.call(turn % 3, w.site(turn, f"app+{turn:#x}", "app+0x1"), 0, peer=turn % 4, nbytes=turn)
        for turn in range(20)
    ]
    # Header, definitions, events, completions, receives, counts, end.
    fulls, rest = divmod(total - PAGE - 4 * room - PAGE, room)
    for kind in (DONE, RESOLVED):
        w.part(kind, 0, 2 if kind == DONE else 4)
    while len([p for p in w.parts if p.kind == EVENTS]) <= fulls:
        ordinal = w.event(
            chance.choice(calls),
            w.last_end + chance.randrange(9000),
            chance.randrange(4000),
            chance.randrange(9000),
        )
        if ordinal % 97 == 0 and len(w.open[DONE].payload) < room - 200:
            w.done(ordinal, ordinal - ordinal % 5)
            w.resolved(ordinal, 3, 9, 8)
    last = w.parts.pop()  # the event that opened one chunk too many is taken back
    assert last.kind == EVENTS and last.count == 1
    w.totals["events"] -= 1
    w.parts[-1].capacity += rest
    w.counts([(1, 2, 3)] * 20)
    w.room = PAGE
    w.end()
    assert len(w.data()) == total, (len(w.data()), total)
    return w


def content(capture: Capture) -> tuple[object, ...]:
    """All that is decoded, for comparison."""
    events = capture.events
    return (
        capture.header,
        capture.defs.opnames,
        capture.defs.sites,
        capture.defs.comms,
        capture.defs.windows,
        capture.calls.tobytes(),
        events.call.tobytes(),
        events.start_ns.tobytes(),
        events.elapsed_ns.tobytes(),
        events.work.tobytes(),
        events.ordinal is None,
        capture.resolved.tobytes(),
        capture.done.tobytes(),
        capture.cancelled.tobytes(),
        capture.counted,
        capture.end,
    )


class Bench:
    """One file that is damaged in place and read again and again."""

    def __init__(self, path: Path, writer: Writer) -> None:
        self.path, self.data, self.writer = path, writer.data(), writer
        path.write_bytes(self.data)
        whole = read_capture(path)
        assert whole.complete, whole.problem
        self.content = content(whole)
        self.events = len(whole.events)
        self.header = read_header(path)
        self.handle = os.open(path, os.O_RDWR)
        self.seen: dict[object, Capture] = {}
        self.offsets = writer.offsets()

    def read(self, fast: bool) -> Capture | None:
        """Return the capture; None if its header is refused.

        With ``fast`` chunks are scanned each time, but decoded only if the scan's result was not
        seen before: decoding sees nothing but that result.
        """
        if not fast:
            try:
                return read_capture(self.path)
            except P3SError as error:
                assert "\n" not in str(error) and str(self.path) in str(error)
                return None
        scanned = Scanned(self.handle, self.header)
        if scanned.key not in self.seen:
            size = len(self.data)
            collector = _Collector(self.path, self.header, size, True, None)
            self.seen[scanned.key] = collector.collect(scanned)
        return self.seen[scanned.key]

    def intact_events(self, begin: int, end: int) -> int:
        """How many events lie in chunks that have nothing between ``begin`` and ``end``."""
        parts = zip(self.writer.parts, self.offsets, strict=True)
        return sum(
            part.count
            for part, at in parts
            if part.kind == EVENTS and not (at < end and begin < at + 64 + len(part.payload))
        )

    def check_cut(self, size: int, fast: bool = False) -> None:
        """The file is cut to ``size``: what is before it is read, the rest is missed."""
        capture = self.read(fast)
        if capture is None:
            assert size < PAGE
            return
        if content(capture) == self.content and not capture.problem:
            return  # nothing but space that was not used is gone
        assert capture.problem and "\n" not in capture.problem
        if size >= self.offsets[1]:
            assert len(capture.events) == self.intact_events(size, len(self.data))

    def check_flip(self, at: int, bit: int, fast: bool = False) -> None:
        """One bit is wrong: that is found, or changes nothing; other chunks are read."""
        flipped = bytes([self.data[at] ^ 1 << bit])
        os.pwrite(self.handle, flipped, at)
        try:
            capture = self.read(fast and at >= PAGE)
        finally:
            os.pwrite(self.handle, self.data[at : at + 1], at)
        if capture is None:
            assert at < 512
        elif not capture.problem:
            assert content(capture) == self.content, at
        elif at >= self.offsets[1]:
            assert len(capture.events) == self.intact_events(at, at + 1), at
            assert f"byte {max(o for o in self.offsets if o <= at)}" in capture.problem


class Scanned(Scan):
    """A scan that is over, with a key for its result."""

    def __init__(self, handle: int, header: Header) -> None:
        size = os.fstat(handle).st_size
        super().__init__(handle, size, header.header_bytes, header.rank, header.file_key)
        self.found = list(super().__iter__())
        # The payloads fit their checksums, which are in the chunks.
        self.key = (tuple(chunk for chunk, _ in self.found), tuple(self.damages))

    def __iter__(self) -> Iterator[tuple[object, bytes]]:  # type: ignore[override]
        return iter(self.found)


@pytest.fixture()
def mebibyte(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "rank-000000.p3t", dense(room=16 * PAGE, total=1 << 20))
    yield bench
    os.close(bench.handle)


@pytest.fixture()
def small_bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "rank-000000.p3t", dense(room=2 * PAGE, total=1 << 16))
    yield bench
    os.close(bench.handle)


# ---- the sweeps ----------------------------------------------------------------------------


def test_truncation(mebibyte: Bench) -> None:
    near = {o + d for o in [0, 512, PAGE, *mebibyte.offsets] for d in (-1, 0, 1, 63, 64, 65)}
    chance = random.Random(2)
    sizes = {s for s in near if 0 <= s < 1 << 20} | {chance.randrange(1 << 20) for _ in range(300)}
    for size in sorted(sizes, reverse=True):
        os.ftruncate(mebibyte.handle, size)
        mebibyte.check_cut(size, fast=size >= PAGE and size not in near)


def test_flipped_bits(small_bench: Bench) -> None:
    chance = random.Random(3)
    places = [*range(560), *(o + d for o in small_bench.offsets for d in range(80))]
    places += [chance.randrange(1 << 16) for _ in range(1500)]
    for number, at in enumerate(places):  # every tenth from the file to the content
        small_bench.check_flip(at, chance.randrange(8), fast=number % 10 > 0)


@pytest.mark.slow
def test_truncation_at_every_byte_of_a_mebibyte(mebibyte: Bench) -> None:
    for size in range((1 << 20) - 1, -1, -1):
        os.ftruncate(mebibyte.handle, size)
        mebibyte.check_cut(size, fast=size >= PAGE)


@pytest.mark.slow
def test_every_flipped_bit_of_64_kib(small_bench: Bench) -> None:
    for at in range(1 << 16):
        for bit in range(8):
            small_bench.check_flip(at, bit, fast=True)


@pytest.mark.parametrize("seed", range(3))
def test_heavier_damage_never_escapes(seed: int, small_bench: Bench) -> None:
    """Bytes, blocks and pages overwritten, blocks doubled: no traceback, all numbers possible."""
    chance = random.Random(seed)
    for _ in range(60):
        damaged = bytearray(small_bench.data)
        for _ in range(chance.choice([1, 2, 8])):
            at = chance.randrange(len(damaged))
            length = chance.choice([1, 1, 16, 600, PAGE])
            block = chance.choice(
                [
                    bytes(length),
                    b"\xff" * length,
                    chance.randbytes(length),
                    bytes(damaged[at // PAGE * PAGE :][:length]),
                ]
            )
            damaged[at : at + length] = block
        small_bench.path.write_bytes(damaged)
        try:
            run = read_run(small_bench.path.parent)
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


def test_a_lost_chunk_of_definitions_costs_only_its_events(tmp_path: Path) -> None:
    w = Writer(0, 1)
    w.opname(0, "MPI_Send")
    w.comm(0, [0], "MPI_COMM_WORLD")
    for part in range(3):
        call = w.call(0, w.site(part, f"a+{part}"), nbytes=part)
        for _ in range(4):
            w.event(call)
        w.cut(DEFS)
    w.end()
    path = w.save(tmp_path)
    at = w.begin(DEFS, 1)
    spoil(path, at + 70)
    run = read_run(tmp_path)
    found = [(run.calls[c].bytes, run.sites[run.calls[c].site].key) for c in run.ranks[0].call]
    assert found == 4 * [(0, f"{0:016x}")] + 4 * [(2, f"{2:016x}")]
    assert f"is damaged at byte {at}" in run.problem and "4 events are lost" in run.problem


def test_chunks_of_another_file_are_not_taken(tmp_path: Path) -> None:
    """A page of an earlier capture stands where a chunk of this one was."""
    w, other = small(0, 1), small(0, 1, pid=99)
    path, at = w.save(tmp_path), w.begin(EVENTS)
    spoil(path, at, other.data()[at : at + PAGE])
    capture = read_capture(path)
    assert not len(capture.events) and f"damaged at byte {at}" in capture.problem


def test_a_chunk_that_is_there_twice_counts_once(tmp_path: Path) -> None:
    w = small(0, 1)
    path = w.save(tmp_path)
    data = path.read_bytes()
    at = w.begin(EVENTS)
    path.write_bytes(data[: at + PAGE] + data[at:])
    capture = read_capture(path)
    assert len(capture.events) == 7 and "is there again" in capture.problem


# ---- what is done with them ----------------------------------------------------------------


def a_study(root: Path, repeats: int = 1) -> Study:
    study = Study.create(root, ["mpiexec", "-n", "{np}", "./app"])
    for rep in range(repeats):
        run = study.runs_dir(2, rep)
        run.mkdir(parents=True)
        for rank in (0, 1):
            small(rank).save(run)
        put_run_json(run, 2)
    study.update()
    return study


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - PAGE)


def noise(path: Path) -> None:
    spoil(path, small(0).begin(EVENTS), random.Random(7).randbytes(60))


def one_time(path: Path) -> None:
    """A duration that is not the one measured, and possible."""
    spoil(path, small(0).begin(EVENTS) + 64 + 8)


def in_the_header(path: Path) -> None:
    spoil(path, 25, 4)


#: One of each kind; the sweeps above have what else there is, test_bad_captures.py whole runs.
DAMAGES = [
    (cut, "ends before MPI_Finalize"),
    (one_time, "the checksum of a chunk of events"),
    (Path.unlink, "is missing"),
]


def test_an_intact_capture_is_characterized(tmp_path: Path) -> None:
    study = a_study(tmp_path)
    run = read_run(study.runs_dir(2))
    assert run.problem == "" and run.missing == ()
    assert characterize(traces_of(study), 2).left_out == ()


@pytest.mark.parametrize(("damage", "why"), DAMAGES)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_damaged_capture_is_not_characterized(
    damage: Callable[[Path], None], why: str, rank: int, tmp_path: Path
) -> None:
    study = a_study(tmp_path)
    path = study.runs_dir(2) / f"rank-{rank:06d}.p3t"
    damage(path)
    run = read_run(study.runs_dir(2))
    assert [r.complete for r in run.ranks] == [r != rank for r in (0, 1)]
    assert run.missing == (() if path.exists() else (rank,))
    with pytest.raises(P3SError, match=why) as caught:
        characterize(traces_of(study), 2)
    said = str(caught.value)
    assert "\n" not in said and str(path) in said and said.count("; ") == 1
    assert f"; trace it again: p3s characterize -n 2 -o {study.root} -- " in said
    assert not study.signature_path(2).exists()


@pytest.mark.parametrize(("damage", "why"), DAMAGES)
def test_an_intact_repeat_stands_in(
    damage: Callable[[Path], None], why: str, tmp_path: Path
) -> None:
    study = a_study(tmp_path, repeats=2)
    path = study.runs_dir(2, 0) / "rank-000001.p3t"
    damage(path)
    signature = characterize(traces_of(study), 2)
    assert signature.repeats == 1
    assert len(signature.left_out) == 1 and str(path) in signature.left_out[0]


def test_a_capture_that_reached_its_limit_is_not_characterized(tmp_path: Path) -> None:
    study = a_study(tmp_path)
    w = small(1)
    w.parts.pop()
    w.counts([(0, 0, 0), (9, 90, 9)])
    w.end()
    w.save(study.runs_dir(2))
    assert w.parts[-2].kind == COUNTS
    with pytest.raises(P3SError, match="reached the limit of its capture: 9 events"):
        characterize(traces_of(study), 2)


def test_a_run_without_any_file_is_named(tmp_path: Path) -> None:
    study = a_study(tmp_path)
    for path in study.runs_dir(2).glob("*.p3t"):
        path.unlink()
    with pytest.raises(P3SError, match=r"np0002.r0 holds no capture.*again: p3s characterize -n 2"):
        characterize(traces_of(study), 2)


def test_a_run_of_another_count_is_not_used(tmp_path: Path) -> None:
    study = a_study(tmp_path)
    for rank in (0, 1, 2):
        small(rank, 3).save(study.runs_dir(2))
    with pytest.raises(P3SError, match="a run of 3 processes, not 2"):
        characterize(traces_of(study), 2)
