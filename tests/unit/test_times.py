"""Computation time per segment: of a study's own runs, and of native runs beside counted ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from capture_writer import INSTRUCTIONS, WALL, Writer, put_run_json
from captured_runs import check_runs

from p3s.base.errors import DamagedFile, P3SError
from p3s.base.settings import traces_of
from p3s.base.study import RUN_SCHEMA, Study, read_json, write_json
from p3s.capture import read_file, read_run
from p3s.pipeline.gather import put_runs
from p3s.signature.clock import QUANTILES, SegmentTimes
from p3s.signature.disturbed import floor_ns
from p3s.signature.part import join, part_of
from p3s.signature.segments import Pairs
from p3s.signature.signature import characterize
from p3s.signature.times import (
    Times,
    lacks_quiet_runs,
    load_times,
    make_times,
    needs_repeat,
    notes,
    stale,
)

CPU = 2
TURNS = 4


def capture(
    folder: Path,
    rank: int,
    works: list[int],
    source: int = CPU,
    counters: tuple[str, ...] = (),
    more: int = 0,
    gap: int = 7000,
    memory: tuple[int, int, int] = (0, 0, 0),
    pid: int = 4321,
) -> None:
    """Write a rank that sends to nobody and receives in each of its turns.

    works: before each receive; before each send, which moves nothing, lies a tenth of it. Counters
    read half of the work. more: receives at the end, of 11 each, from a place of their own.
    """
    w = Writer(rank, 2, work_source=source, counters=counters, minor=2, memory=memory, pid=pid)
    for number, name in enumerate(("MPI_Init", "MPI_Recv", "MPI_Send", "MPI_Finalize")):
        w.opname(number, name)
    w.comm(0, [0, 1], "MPI_COMM_WORLD")
    for number in range(4):
        w.site(0xA0 + number, f"app+{number:#x}")

    def event(call: int, work: int) -> None:
        w.event(call, w.last_end + gap, 10, work, (work // 2,) * len(counters))

    w.event(w.call(0, 0), -100, 100, 5)
    receive = w.call(1, 1, 0, peer=1 - rank, tag=3, nbytes=8, elem=8, count=1)
    nowhere = w.call(2, 2, 0, peer=-3, tag=3, nbytes=8, elem=8, count=1)
    last = w.call(1, 3, 0, peer=1 - rank, tag=4, nbytes=8, elem=8, count=1)
    for work in works:
        event(nowhere, work // 10)
        event(receive, work)
    for _ in range(more):
        event(last, 11)
    event(w.call(3, 0), 100)
    w.end()
    folder.mkdir(parents=True, exist_ok=True)
    w.save(folder)


def put_run(
    study: Study, target: Path, works: dict[int, list[int]], unit: str = "cpu_ns", **more: object
) -> None:
    for rank, each in works.items():
        capture(target, rank, each, **more)  # type: ignore[arg-type]
    put_run_json(target, len(works), work_unit=unit)


def new_study(root: Path) -> Study:
    return Study.create(root / "study", ["mpiexec", "-n", "{np}", "app"])


def row_of(times: Times, rank: int, first: str, then: str) -> int:
    ops = [op for _, op in times.nodes]
    found = [
        i
        for i in range(len(times.rank))
        if times.rank[i] == rank
        and ops[times.to_node[i]] == then
        and (ops[times.from_node[i]] if times.from_node[i] >= 0 else "") == first
    ]
    assert len(found) == 1
    return found[0]


FAST = {0: [1000, 2000, 3000, 4000], 1: [500, 500, 500, 500]}
SLOW = {0: [1500, 2000, 2500, 4100], 1: [450, 500, 500, 500]}
SLOWEST = {0: [9000, 9000, 9000, 9000], 1: [900, 500, 500, 500]}


def test_a_study_of_cpu_time_has_the_times_of_its_own_runs(tmp_path: Path) -> None:
    study = new_study(tmp_path)
    for rep, works in enumerate((SLOW, FAST, SLOWEST)):
        put_run(study, study.runs_dir(2, rep), works)
    characterize(traces_of(study), 2)
    times = load_times(study.root, 2)
    assert times is not None
    assert (times.np, times.unit, times.work_unit, times.unmatched) == (2, "cpu_ns", "cpu_ns", 0)
    first = row_of(times, 0, "MPI_Init", "MPI_Recv")
    rest = row_of(times, 0, "MPI_Recv", "MPI_Recv")
    # The work before a send to nobody counts with the next call.
    assert (times.count[first], times.least_ns[first], times.most_ns[first]) == (1, 1100, 9900)
    assert (times.count[rest], times.least_ns[rest], times.median_ns[rest]) == (3, 9460, 9900)
    assert times.most_ns[rest] == 29700
    assert (times.work == times.least_ns).all()
    # The run that took least in all gives the quantiles: there, 2200, 3300 and 4400.
    expected = np.quantile([2200, 3300, 4400], QUANTILES)
    assert np.allclose(times.quantile_ns[rest], expected)
    assert [run.dir for run in times.runs] == ["runs/np0002.r0", "runs/np0002.r1", "runs/np0002.r2"]
    assert times.runs[1].time_ns == 11 * (10_000 + 2_000) // 10 + 200
    assert times.resident_bytes.tolist() == [0, 0]
    start = row_of(times, 0, "", "MPI_Init")
    assert times.least_ns[start] == 0, "what is before the end of MPI_Init is the launcher's"


def test_native_runs_give_the_time_of_counted_instructions(tmp_path: Path) -> None:
    study = new_study(tmp_path)
    counted = {0: [10] * TURNS, 1: [20] * TURNS}
    put_run(study, study.runs_dir(2), counted, "instructions", source=INSTRUCTIONS)
    emulated(study.runs_dir(2))
    characterize(traces_of(study), 2)
    assert load_times(study.root, 2) is None and not stale(traces_of(study), 2)
    assert make_times(traces_of(study), 2) is None

    put_run(study, study.timed_dir(2), FAST)
    put_run(study, study.timed_dir(2, 1), SLOW)
    assert stale(traces_of(study), 2)
    times = make_times(traces_of(study), 2)
    assert times is not None and not stale(traces_of(study), 2)
    rest = row_of(times, 0, "MPI_Recv", "MPI_Recv")
    assert (times.work[rest], times.least_ns[rest]) == (33, 9460)
    assert (times.work_unit, times.unit) == ("instructions", "cpu_ns")
    assert [run.dir for run in times.runs] == ["timed/np0002.r0", "timed/np0002.r1"]
    same(times, load_times(study.root, 2))

    write_json(study.timed_dir(2, 1) / "run.json", {"schema": RUN_SCHEMA, "schema_version": 1})
    assert stale(traces_of(study), 2)
    again = make_times(traces_of(study), 2)
    assert again is not None and len(again.runs) == 1, "a run that is not complete does not count"
    characterize(traces_of(study), 2)
    assert load_times(study.root, 2) is not None and not stale(traces_of(study), 2)


def emulated(run_dir: Path) -> None:
    """Make a capture one that was counted in an emulator."""
    import zlib

    for path in run_dir.glob("*.p3t"):
        data = bytearray(path.read_bytes())
        data[360:424] = b"qemu-user plugin".ljust(64, b"\0")
        data[508:512] = zlib.crc32(data[:508]).to_bytes(4, "little")
        path.write_bytes(data)


def same(one: Times, two: Times | None) -> None:
    assert two is not None
    without = [replace(t, runs=tuple(replace(r, captures="") for r in t.runs)) for t in (one, two)]
    for name, value in vars(without[0]).items():  # the captures are others, what they say is not
        other = getattr(without[1], name)
        assert (np.asarray(value) == np.asarray(other)).all(), name


@pytest.mark.parametrize(
    ("counters", "unit", "least"),
    [
        (("cycles", "task-clock"), "cpu_ns", (1000 + 2000 + 3000 + 4000) * 11 // 20),
        (("cycles",), "wall_ns", 8 * 7000),
        ((), "wall_ns", 8 * 7000),
    ],
)
def test_instructions_counted_natively_have_their_own_clock(
    counters: tuple[str, ...], unit: str, least: int, tmp_path: Path
) -> None:
    study = new_study(tmp_path)
    put_run(study, study.runs_dir(2), FAST, "instructions", source=INSTRUCTIONS, counters=counters)
    characterize(traces_of(study), 2)
    times = load_times(study.root, 2)
    assert times is not None and (times.unit, times.work_unit) == (unit, "instructions")
    rows = [row_of(times, 0, before, "MPI_Recv") for before in ("MPI_Init", "MPI_Recv")]
    assert sum(times.least_ns[row] for row in rows) == least
    assert sum(times.work[row] for row in rows) == 11_000


def test_segments_that_occur_otherwise_are_not_matched(tmp_path: Path) -> None:
    study = new_study(tmp_path)
    put_run(
        study,
        study.runs_dir(2),
        {0: [10] * TURNS, 1: [10] * TURNS},
        "instructions",
        source=INSTRUCTIONS,
    )
    put_run(study, study.timed_dir(2), {0: [100] * TURNS, 1: [1000] * 3}, more=2)
    characterize(traces_of(study), 2)
    times = load_times(study.root, 2)
    assert times is not None
    # Rank 1: two turns of 1100 between receives, not three; both ranks: what leads to or from
    # the receives at the end, which the signature does not have.
    lost = 2 * 1100 + 2 * (2 * 11 + 100)
    total = 4 * 110 + 3 * 1100 + 2 * (2 * 11 + 100)
    assert times.unmatched == pytest.approx(lost / total)
    assert row_of(times, 1, "MPI_Init", "MPI_Recv") >= 0
    with pytest.raises(AssertionError):
        row_of(times, 1, "MPI_Recv", "MPI_Recv")


def test_wall_time_is_a_clock(tmp_path: Path) -> None:
    study = new_study(tmp_path)
    put_run(study, study.runs_dir(2), FAST, "wall_ns", source=WALL)
    characterize(traces_of(study), 2)
    times = load_times(study.root, 2)
    assert times is not None and times.unit == "wall_ns"


def test_times_are_the_same_rank_by_rank_and_as_bytes(tmp_path: Path) -> None:
    for rank, works in FAST.items():
        capture(tmp_path, rank, works)
    whole = part_of(read_run(tmp_path))
    files = sorted(tmp_path.glob("*.p3t"))
    parts = [part_of(read_file(path)) for path in files]
    joined = join(parts)
    assert (joined.times == whole.times).all() and (joined.loads == whole.loads).all()
    assert joined.time_unit == whole.time_unit == "cpu_ns"
    wall = (7000 + 10) * 8 + 7000
    lost = 9 * 7000 - 700 - 10 * 2000  # the gaps without failed polls and the tracer
    assert joined.loads.tolist() == [
        [0, wall, 11_100, lost - 11_100, 0, 0],
        [1, wall, 2300, lost - 2300, 0, 0],
    ]


@pytest.mark.parametrize("size", [3000, 700, 1])
@pytest.mark.parametrize("scale", [1, 1 << 50])
def test_times_of_segments_against_the_plain_way(scale: int, size: int) -> None:
    rng = np.random.default_rng(5)
    nodes = rng.integers(0, 6, 3000)
    ns = rng.integers(-3, 400, 3000) * scale
    pairs, times = Pairs(6), SegmentTimes()
    for at in range(0, len(nodes), size):
        times.take(pairs.take(nodes[at : at + size]), ns[at : at + size])
    got = times.table(pairs.code, pairs.count)
    before = np.concatenate([[-1], nodes[:-1]])
    for row, (a, b) in enumerate(sorted(set(zip(before.tolist(), nodes.tolist(), strict=True)))):
        mine = ns[(before == a) & (nodes == b)]
        assert got[row, 0] == mine.sum()
        assert np.allclose(got[row, 1:], np.quantile(mine.astype(float), QUANTILES))


# ---- damage --------------------------------------------------------------------------------
def made(tmp_path: Path) -> Study:
    study = new_study(tmp_path)
    put_run(study, study.runs_dir(2), FAST)
    characterize(traces_of(study), 2)
    return study


def test_a_table_that_is_gone_is_damage(tmp_path: Path) -> None:
    study = made(tmp_path)
    study.times_path(2).with_suffix(".parquet").unlink()
    with pytest.raises(DamagedFile):
        load_times(study.root, 2)
    characterize(traces_of(study), 2)
    assert load_times(study.root, 2) is not None


def test_times_outlive_the_captures(tmp_path: Path) -> None:
    import os
    import shutil

    study = made(tmp_path)
    shutil.rmtree(study.root / "runs")
    os.utime(study.signature_path(2))
    assert not stale(traces_of(study), 2) and make_times(traces_of(study), 2) is None
    assert load_times(study.root, 2) is not None


# ---- doubts --------------------------------------------------------------------------------
def doubts(root: Path, works: list[dict[int, list[int]]], shared: bool, **more: object) -> Times:
    study = new_study(root)
    for rep, each in enumerate(works):
        put_run(study, study.runs_dir(2, rep), each, **more)  # type: ignore[arg-type]
        path = study.runs_dir(2, rep) / "run.json"
        write_json(path, {**read_json(path, RUN_SCHEMA), "oversubscribed": shared})
    characterize(traces_of(study), 2)
    times = load_times(study.root, 2)
    assert times is not None
    return times


EMPTY = {0: [200] * TURNS, 1: [200] * TURNS}
IDLE = {0: [200] * TURNS, 1: [300] * TURNS}
BUSY = {0: [100_000] * TURNS, 1: [100_000] * TURNS}
MORE = {0: [100_000] * TURNS, 1: [125_000] * TURNS}


def test_a_repeat_that_took_longer_is_told(tmp_path: Path) -> None:
    times = doubts(tmp_path, [MORE, BUSY, BUSY], True, gap=50_000)
    assert [list(run.disturbed) for run in times.runs] == [
        ["took 12 % more computation time than the least of the 3 repeats"],
        [],
        [],
    ]
    assert notes(times) == [
        "run 1 of 3 was disturbed: took 12 % more computation time than the least of the 3 repeats"
    ]


def test_repeats_that_are_all_disturbed_are_told_once(tmp_path: Path) -> None:
    times = doubts(tmp_path, [BUSY, MORE], False, gap=200_000)
    (said,) = notes(times)
    assert said.startswith("all 2 runs were disturbed: a rank lost its core")
    assert lacks_quiet_runs(times) and needs_repeat(times, 1) and not needs_repeat(None, 1)
    three = replace(times, runs=(*times.runs, times.runs[0]))
    quiet = replace(times, runs=(*times.runs[:1], replace(times.runs[1], disturbed=())))
    assert not needs_repeat(three, 1) and lacks_quiet_runs(three)
    assert not needs_repeat(quiet, 1) and needs_repeat(quiet, 2)


def test_a_repeat_of_a_program_that_computes_nothing_is_not_told(tmp_path: Path) -> None:
    assert not notes(doubts(tmp_path, [IDLE, EMPTY], True))


@pytest.mark.parametrize(
    ("shared", "gap", "said"),
    [(False, 200_000, True), (True, 200_000, False), (False, 52_000, False)],
)
def test_time_off_the_core_is_told_where_each_rank_has_one(
    shared: bool, gap: int, said: bool, tmp_path: Path
) -> None:
    times = doubts(tmp_path, [BUSY], shared, gap=gap)
    (run,) = times.runs
    assert bool(run.disturbed) == said == bool(notes(times))
    if said:  # nine gaps less what was computed in them, the tracer and the failed polls
        lost = 9 * gap - 440_100 - 10 * 2000 - 700
        assert run.disturbed[0].startswith(
            f"a rank lost its core for {100 * lost / (8 * 10 + 9 * gap):.0f} % of the run"
        )
    assert needs_repeat(times, 1) == lacks_quiet_runs(times) == said


QUIET_GAP, BUSY_GAP = 52_000, 200_000


@pytest.mark.parametrize(
    ("gaps", "repeat", "runs", "proposed"),
    [
        ((BUSY_GAP, QUIET_GAP), True, [0, 1], False),
        ((BUSY_GAP, BUSY_GAP, BUSY_GAP), True, [0, 1, 2], True),
        ((BUSY_GAP,), False, [0], True),
        ((QUIET_GAP,), True, [0], False),
    ],
)
def test_a_disturbed_run_is_made_again(
    gaps: tuple[int, ...],
    repeat: bool,
    runs: list[int],
    proposed: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from p3s.cli.progress import Progress
    from p3s.pipeline.tracing import runs as tracing
    from p3s.pipeline.tracing.runs import CountRequest
    from p3s.signature_runner.recording import Recording
    from p3s.signature_runner.traced_run import TracedRun

    left = list(gaps)

    def once(study: Study, command: object, np: int, target: Path, *_: object) -> object:
        put_run(study, target, BUSY, gap=left.pop(0))
        return TracedRun(0, 1.0, 0, False)

    monkeypatch.setattr(tracing, "trace_once", once)
    study = new_study(tmp_path)
    request = tracing.TraceRequest(
        study.root,
        tuple(study.command()),
        CountRequest((2,)),
        recording=Recording("cpu"),
        repeat_disturbed=repeat,
    )
    (row,) = tracing.trace_counts(study, request, [2], Progress()).counts
    assert row.times is not None
    assert [run.rep for run in row.runs] == runs and len(row.times["runs"]) == len(runs)
    said = capsys.readouterr().err
    assert ("--no-repeat" in said) == (len(runs) > 1)
    assert ("p3s characterize -n 2" in said and "-r 3" in said) == proposed


@pytest.mark.parametrize(("lost", "said"), [(9, False), (500, True)])
def test_lost_cores_are_told_where_work_is_wall_time(lost: int, said: bool, tmp_path: Path) -> None:
    times = doubts(
        tmp_path,
        [BUSY],
        False,
        unit="wall_ns",
        source=WALL,
        gap=100_000,
        memory=(1 << 20, 3 << 20, lost),
    )
    assert bool(times.runs[0].disturbed) == said
    assert times.resident_bytes.tolist() == [2 << 20] * 2


def test_time_without_a_partner_is_told(tmp_path: Path) -> None:
    study = new_study(tmp_path)
    put_run(
        study,
        study.runs_dir(2),
        {0: [10] * TURNS, 1: [10] * TURNS},
        "instructions",
        source=INSTRUCTIONS,
    )
    put_run(study, study.timed_dir(2), {0: [100] * TURNS, 1: [100] * 3}, gap=200)
    characterize(traces_of(study), 2)
    (said,) = notes(load_times(study.root, 2))
    assert said.startswith("23 % of the computation time is in steps")


@pytest.mark.parametrize(
    ("instructions", "expected"),
    [(None, 40.0), ([0, 100 * 50, 200 * 50, 20 * 10**6, 90], (2000 + 9000) / 100)],
)
def test_what_an_empty_segment_takes(instructions: list[int] | None, expected: float) -> None:
    count = np.array([30, 50, 50, 20, 2.0])
    took = np.array([0, 50 * 40, 50 * 180, 20 * 10**6, 30])  # halves of calls have no time
    work = None if instructions is None else np.array(instructions, dtype=float)
    assert floor_ns(count, took, work) == expected
    assert floor_ns(count[3:], took[3:], None if work is None else work[3:]) == 0


def test_captures_in_cpu_time_are_added_beside_counted_ones(tmp_path: Path) -> None:
    outside = Study(tmp_path)
    counted = {0: [10] * TURNS, 1: [20] * TURNS}
    put_run(outside, tmp_path / "a", counted, "instructions", source=INSTRUCTIONS)
    emulated(tmp_path / "a")
    put_run(outside, tmp_path / "b", FAST, pid=7)
    put_run(outside, tmp_path / "c", SLOW, pid=8)
    words = ["mpiexec", "-n", "{np}", "app"]
    root = tmp_path / "study"
    put_runs(root, check_runs(root, [tmp_path / "b", tmp_path / "a"], words))
    put_runs(root, check_runs(root, [tmp_path / "c"], words))
    study = Study.open(root)
    assert [run.path.name for run in study.runs()] == ["np0002.r0"]
    assert [run.path.name for run in study.timed_runs()] == ["np0002.r0", "np0002.r1"]
    characterize(traces_of(Study(root)), 2)
    times = load_times(root, 2)
    assert times is not None and len(times.runs) == 2 and times.unmatched == 0
    with pytest.raises(P3SError, match="is the same run as .*timed/np0002.r1"):
        check_runs(root, [tmp_path / "c"], words)


def test_places_told_apart_at_one_site_are_matched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one site stands for several places, native runs are told apart in the same way."""
    from p3s.signature import signature

    def put(target: Path, source: int, work: int, unit: str) -> None:
        put_run(study, target, {0: [], 1: []}, unit)
        for rank in (0, 1):
            w = Writer(rank, 2, work_source=source, minor=2)
            for number, name in enumerate(("MPI_Init", "MPI_Recv", "MPI_Finalize")):
                w.opname(number, name)
                w.site(0xA0 + number, f"app+{number:#x}")
            w.comm(0, [0, 1], "MPI_COMM_WORLD")
            w.event(w.call(0, 0), -100, 100, 5)
            calls = [
                w.call(1, 1, 0, peer=1 - rank, tag=tag, nbytes=8 * tag, elem=8, count=tag)
                for tag in (1, 2)
            ]
            for turn in range(6):
                w.event(calls[turn // 3], w.last_end + 7000, 10, work * (1 + turn // 3))
            w.event(w.call(2, 2), w.last_end + 100, 10, 7)
            w.end()
            w.save(target)

    study = new_study(tmp_path)
    put(study.runs_dir(2), INSTRUCTIONS, 10, "instructions")
    put(study.timed_dir(2), CPU, 1000, "cpu_ns")
    turns = iter([1, 2])
    monkeypatch.setattr(signature, "find_ambiguous", lambda _: frozenset({f"{0xA1:016x}"}))
    monkeypatch.setattr(signature, "total_turns", lambda _: next(turns))
    characterize(traces_of(study), 2)
    times = load_times(study.root, 2)
    assert times is not None and times.unmatched == 0
    apart = [site for site, _ in times.nodes if "#" in site]
    assert len(apart) == 2
    for order, expected in ((0, 1000), (1, 2000)):
        (node,) = [k for k, (site, _) in enumerate(times.nodes) if site == apart[order]]
        mine = times.to_node == node
        assert times.least_ns[mine].sum() == 2 * 3 * expected
        assert times.work[mine].sum() == 2 * 3 * expected / 100
