"""Running a signature: counts stay exact, gaps are marked, kills lose nothing, --stop ends all."""

from __future__ import annotations

import json
import os
import struct
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from capture_writer import CPU, EVENTS, Writer, leb, zigzag
from test_kill import Killer, ledger
from tracer_helpers import PROGRAMS, TIMEOUT_S, compile_c, the_mpi, trace, usable_mpi

from p3s.base.errors import P3SError
from p3s.capture import RunTrace, read_run
from p3s.capture.capture import read_capture
from p3s.capture.check import check
from p3s.capture.dump import text
from p3s.capture.recording_plan import Enough, KnownCall, Plan, Row
from p3s.capture.recover import Place, recover
from p3s.signature_runner.launch import RunOutcome, Saturation, run_traced
from p3s.signature_runner.recording import Recording

with_mpi = [pytest.mark.mpi, pytest.mark.skipif(the_mpi() is None, reason="no usable MPI")]

OUTER, INNER, NP = 40, 12, 3
PHASES = 7  # kind of chunk, see docs/capture-format.md
#: After two early turns and ten more, a phase is left whatever its times are.
QUICK = Enough(early=2, smallest=10, largest=10)
LEFT_AFTER = 12


@pytest.fixture(scope="module")
def turns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(PROGRAMS / "turns.c", tmp_path_factory.mktemp("bin") / "turns")


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(PROGRAMS / "endless.c", tmp_path_factory.mktemp("bin") / "endless")


@pytest.fixture(scope="module")
def full(turns: Path, tmp_path_factory: pytest.TempPathFactory) -> RunTrace:
    """The program recorded in full."""
    return trace([str(turns), str(OUTER), str(INNER)], NP, tmp_path_factory.mktemp("full"))


def keys_of(run: RunTrace, op: str) -> list[str]:
    """The keys of the sites that call an operation, in the order of their first event."""
    first = dict.fromkeys(run.ranks[0].call.tolist())
    keys = [run.sites[run.calls[n].site].key for n in first if run.calls[n].op == op]
    return list(dict.fromkeys(keys))


def nest_of(run: RunTrace, enough: Enough = QUICK) -> Plan:
    """The nest of turns.c: the steps are phase 1, the shifts phase 2; the gather is not known."""
    shift, reduce, barrier, bcast = (
        keys_of(run, op)[0] for op in ("MPI_Sendrecv", "MPI_Allreduce", "MPI_Barrier", "MPI_Bcast")
    )
    init = keys_of(run, "MPI_Init")[0]
    calls = [
        KnownCall(init, "MPI_Init", 0, 0, 0),
        KnownCall(shift, "MPI_Sendrecv", 2, 0, 2),
        KnownCall(shift, "MPI_Sendrecv_recv", 2, 1, 2),
        KnownCall(barrier, "MPI_Barrier", 1, 1, 1),
        KnownCall(reduce, "MPI_Allreduce", 1, 2, 1),
        KnownCall(bcast, "MPI_Bcast", 0, 2, 0),
    ]
    loops = [Row(-1, 0, 0), Row(0, 1, 1), Row(1, 0, 2)]
    return Plan(loops, calls, [False, True, True], enough, {1: NP, 2: NP})


def sample(
    program: list[str], np_: int, run_dir: Path, plan: Plan, stop: bool = False
) -> RunOutcome:
    install = usable_mpi()
    return run_traced(
        [install.mpiexec, "-n", "{np}", *program],
        np_,
        run_dir,
        timeout_s=TIMEOUT_S,
        recording=Recording(plan=plan, stop=stop),
    )


@pytest.fixture(scope="module")
def sampled(turns: Path, full: RunTrace, tmp_path_factory: pytest.TempPathFactory) -> RunTrace:
    """The program with its phases left after twelve turns."""
    folder = tmp_path_factory.mktemp("sampled")
    outcome = sample([str(turns), str(OUTER), str(INNER)], NP, folder, nest_of(full))
    assert not outcome.problems and not outcome.stopped
    return read_run(folder)


@pytest.mark.usefixtures("sampled")
class TestCounts:
    pytestmark = with_mpi

    def test_turns_are_exact_and_detail_ends(self, sampled: RunTrace) -> None:
        for rank in sampled.ranks:
            assert rank.phases is not None
            assert rank.phases["turns"].tolist() == [1, OUTER, OUTER * INNER]
            assert rank.phases["state"].tolist()[0] == 0
            assert rank.phases["state"][1:].all()
            assert rank.phases["early"].tolist() == [0, 2, 2]
            assert rank.phases["detailed"].tolist() == [0, 10, 10]
            assert (rank.phases["measured"][1:] > 10).all()
            assert int(rank.phases["left_out"].sum()) == rank.counted_events
            assert (rank.phases["mean"][1:] > 0).all()

    def test_what_is_recorded(self, full: RunTrace, sampled: RunTrace) -> None:
        """Turns 0 to 11 of each phase, everything that is in none, and what is not expected."""
        for rank in sampled.ranks:
            ops = [sampled.calls[n].op for n in rank.call.tolist()]
            inner, outer = 2 * LEFT_AFTER, LEFT_AFTER
            assert inner <= ops.count("MPI_Sendrecv") + ops.count("MPI_Sendrecv_recv") < 2 * inner
            assert outer <= ops.count("MPI_Allreduce") <= outer + 2
            assert 2 <= ops.count("MPI_Barrier") <= 3  # in steps 5 and 15; then it is known
            assert ops[0] == "MPI_Init" and ops[-3:] == ["MPI_Bcast", "MPI_Gather", "MPI_Finalize"]

    def test_gaps_say_where_events_are_left_out(self, sampled: RunTrace) -> None:
        for rank in sampled.ranks:
            assert rank.gap is not None and rank.ordinal is None
            ops = [sampled.calls[n].op for n in rank.call.tolist()]
            before_bcast = ops.index("MPI_Bcast")
            assert int(rank.gap.sum()) == rank.counted_events
            gaps = rank.gap.tolist()
            assert 0 < gaps[before_bcast] < INNER * 2 * OUTER and gaps[-2:] == [0, 0]

    def test_times_are_where_they_were(self, sampled: RunTrace) -> None:
        for rank in sampled.ranks:
            assert (np.diff(rank.start_ns) >= 0).all()
            assert (rank.work >= 0).all()
            counted = sum(row[1] for row in rank.counted.values())
            assert counted > 0

    def test_the_tools_know_it(self, sampled: RunTrace, tmp_path: Path) -> None:
        assert check(Place(sampled.path, False)).status == "complete"
        dumped = "\n".join(text(sampled))
        assert f"phase 2: {OUTER * INNER} iterations, 10 in detail" in dumped
        recover(sampled.path, tmp_path / "again")
        again = read_run(tmp_path / "again")
        for rank in range(NP):
            one, other = sampled.ranks[rank], again.ranks[rank]
            assert other.gap is not None and one.gap is not None
            assert other.gap.tolist() == one.gap.tolist()
            assert other.phases is not None and one.phases is not None
            assert other.phases.tobytes() == one.phases.tobytes()
            assert other.counted == one.counted


@pytest.mark.skipif(the_mpi() is None, reason="no usable MPI")
def test_a_plan_that_cannot_be_read_records_everything(
    turns: Path, full: RunTrace, tmp_path: Path
) -> None:
    plan = nest_of(full)
    broken = Plan(plan.loops, [KnownCall("zz", "MPI_Init", 0, 0, 0)], plan.relevant)
    sample([str(turns), "3", "4"], 2, tmp_path / "run", broken)
    run = read_run(tmp_path / "run")
    for rank in run.ranks:
        assert rank.complete and rank.phases is None and rank.counted_events == 0


def endless_plan(run: RunTrace, np_: int, enough: Enough = QUICK) -> Plan:
    """The nest of endless.c: a loop, with an inner one of sends to nobody."""
    ops = ["MPI_Irecv", "MPI_Isend", "MPI_Waitall", "MPI_Send", "MPI_Allreduce"]
    keys = [keys_of(run, op)[0] for op in ops]
    calls = [
        KnownCall(
            key,
            op,
            2 if op == "MPI_Send" else 1,
            0 if op == "MPI_Send" else at,
            2 if op == "MPI_Send" else 1,
        )
        for at, (key, op) in enumerate(zip(keys, ops, strict=True))
    ]
    loops = [Row(-1, 0, 0), Row(0, 0, 1), Row(1, 3, 2)]
    return Plan(loops, calls, [False, True, True], enough, {1: np_, 2: np_})


@pytest.fixture(scope="module")
def short(endless: Path, tmp_path_factory: pytest.TempPathFactory) -> RunTrace:
    """endless.c where it ends."""
    folder = tmp_path_factory.mktemp("short")
    here = os.getcwd()
    os.chdir(folder)
    try:
        return trace([str(endless), "9", "-1", "never", "0"], 2, folder / "run")
    finally:
        os.chdir(here)


@pytest.mark.skipif(the_mpi() is None, reason="no usable MPI")
@pytest.mark.parametrize("victim", [0, 2])
def test_a_rank_killed_in_the_middle_loses_no_count(
    victim: int, endless: Path, short: RunTrace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # An iteration of the outer phase is at most 24 calls: all phases have been left by then.
    killer = Killer(tmp_path, NP, victim, 0.02, calls=24 * (LEFT_AFTER + 2))
    killer.start()
    with pytest.raises(P3SError):
        sample(
            [str(endless), str(NP), "-1", "never", "0"],
            NP,
            tmp_path / "run",
            endless_plan(short, NP),
        )
    killer.join(TIMEOUT_S)
    assert killer.killed
    run = read_run(tmp_path / "run")
    for rank in run.ranks:
        _, returned = ledger(tmp_path, rank.rank)
        assert not rank.complete and "damaged" not in rank.problem
        files = Counter(run.calls[n].op.startswith("POSIX_") for n in rank.call.tolist())[True]
        files += sum(
            row[0] for n, row in rank.counted.items() if run.calls[n].op.startswith("POSIX_")
        )
        events = len(rank.call) + rank.counted_events - files  # not the opening of the ledger
        assert returned <= events <= returned + 1
        assert rank.phases is not None and rank.phases["state"][1:].all()
        assert rank.phases["left_out"].sum() <= rank.counted_events + 1
        ops = Counter(run.calls[n].op for n in rank.call.tolist())
        for op in ("MPI_Waitall", "MPI_Send"):  # sizes of receives are new for 700 iterations
            assert LEFT_AFTER <= ops[op] <= 2 * LEFT_AFTER < ops["MPI_Irecv"]


@pytest.mark.skipif(the_mpi() is None, reason="no usable MPI")
def test_stop_ends_every_rank(
    endless: Path, short: RunTrace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = sample(
        [str(endless), str(NP), "-1", "never", "0"],
        NP,
        tmp_path / "run",
        endless_plan(short, NP),
        stop=True,
    )
    assert outcome.stopped
    info = json.loads((tmp_path / "run" / "run.json").read_text())
    assert info["status"] == "stopped" and info["stop"] is True
    for rank in range(NP):
        pid, _ = ledger(tmp_path, rank)
        assert pid > 0 and not alive(pid)
    run = read_run(tmp_path / "run")
    for each in run.ranks:
        assert each.phases is not None and each.phases["state"][1:].all()
        assert not each.complete


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie that nobody has waited for does not)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


@pytest.mark.skipif(the_mpi() is None, reason="no usable MPI")
def test_a_program_that_ends_before_it_was_seen_is_complete(
    turns: Path, full: RunTrace, tmp_path: Path
) -> None:
    enough = Enough(early=2, smallest=1000, largest=1000)
    outcome = sample([str(turns), "5", "5"], NP, tmp_path / "run", nest_of(full, enough), True)
    assert not outcome.stopped
    run = read_run(tmp_path / "run")
    assert all(rank.complete and not rank.counted_events for rank in run.ranks)
    assert all(rank.gap is None or not rank.gap.any() for rank in run.ranks)


# ---- what a reader takes and refuses


def with_gaps(rank: int, minor: int = 1) -> Writer:
    """Five events, 7 left out before the third and 2 before the last."""
    w = Writer(rank, 2, CPU, minor=minor)
    w.opname(0, "MPI_Init")
    w.comm(0, [0, 1], "MPI_COMM_WORLD")
    w.site(0xABC, "app+0x10")
    call = w.call(0)
    for gap in (0, 0, 7, 0, 2):
        start = w.last_end + 5
        row = b"".join(map(leb, (call, zigzag(5), 10, zigzag(0), gap)))
        part = w.add(EVENTS, row, 5)
        part.version = 2
        assert part.columns == 5
        w.last_end = start + 10
        w.totals["events"] += 1
    w.counts([(9, 90, 45)])
    payload = b"".join(
        struct.pack("<IIQQQddqqQQqqQd", p, p, 10 * p, 5, 5, 2.5, 0.5, 10, 5, 9 * p, 1, 3, 2, 4, 2.0)
        for p in range(2)
    )
    w.add(PHASES, payload).count = 2
    w.flags = 16
    w.end()
    return w


def test_gaps_and_phases_are_read(tmp_path: Path) -> None:
    for rank in range(2):
        with_gaps(rank).save(tmp_path)
    rank = read_run(tmp_path).ranks[0]
    assert rank.complete and rank.gap is not None and rank.phases is not None
    assert rank.gap.tolist() == [0, 0, 7, 0, 2]
    assert rank.start_ns.tolist() == [5, 20, 35, 50, 65] and rank.work.tolist() == [5] * 5
    assert rank.phases["turns"].tolist() == [0, 10] and rank.phases["mean"].tolist() == [2.5, 2.5]
    assert rank.counted == {0: (9, 90, 45)} and rank.counted_events == 9


def test_the_chunk_of_phases_may_be_open_damaged_or_cut(tmp_path: Path) -> None:
    w = with_gaps(0)
    part = next(p for p in w.parts if p.kind == PHASES)
    at = w.offsets()[w.parts.index(part)]
    data = bytearray(w.data())
    data[at + 60 : at + 64] = bytes(4)  # not sealed: the rank was killed
    data[at + 52 : at + 56] = bytes(4)  # no checksum yet
    path = tmp_path / "rank-000000.p3t"
    path.write_bytes(data)
    capture = read_capture(path)
    assert capture.phases is not None and not capture.damages
    data = bytearray(w.data())
    data[at + 70] ^= 1
    path.write_bytes(data)
    capture = read_capture(path)
    assert capture.phases is None and "phases" in capture.problem
    part.payload = part.payload[:-8]
    path.write_bytes(w.data())
    assert "cut off" in read_capture(path).problem


def test_recover_without_a_header_keeps_the_gaps(tmp_path: Path) -> None:
    data = bytearray(with_gaps(0).data())
    data[508] ^= 1
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "rank-000000.p3t").write_bytes(data)
    recover(tmp_path / "run", tmp_path / "new")
    capture = read_capture(tmp_path / "new" / "rank-000000.p3t")
    assert capture.header.counter_names == ()
    assert capture.events.gap is not None and capture.events.gap.tolist() == [0, 0, 7, 0, 2]


def test_saturation_is_seen_in_the_files(tmp_path: Path) -> None:
    plan = Plan([Row(-1, 0, 0), Row(0, 0, 1)], [], [False, True], Enough(), {1: 2})
    seen = Saturation(tmp_path, 2, plan)
    assert not seen.reached()  # no file yet
    for rank in range(2):
        w = with_gaps(rank)
        at = w.offsets()[[p.kind for p in w.parts].index(PHASES)]
        data = bytearray(w.data())
        if rank:  # its second phase is open
            data[at + 64 + 112 + 4] = 0
        path = tmp_path / f"rank-{rank:06d}.p3t"
        path.write_bytes(data)
        assert not seen.reached()  # the header does not say where the chunk is
        data[560:568] = struct.pack("<Q", at)
        path.write_bytes(data)
        assert not seen.reached()
    data[at + 64 + 112 + 4] = 1
    path.write_bytes(data)
    assert seen.reached()
    assert not Saturation(tmp_path, 3, plan).reached()
    assert not Saturation(tmp_path, 2, Plan(plan.loops, [], [False, True])).reached()
