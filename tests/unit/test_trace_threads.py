"""What captures say of threads: read, dumped, recovered; damage costs no more than it must."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from capture_writer import THREADS, Writer, small, spoil

from p3s.capture import dump, read_file, read_run, thread_totals, threads_of
from p3s.capture.capture import read_capture
from p3s.capture.check import check
from p3s.capture.recover import Place, recover
from p3s.capture.threads import COLUMNS, ENDED

FIRST = (2, 1, 4, 3, 9000, 800, 8000, 20000, 7000, 4000, 100, 0, 0, 1, 2, 3, 4, 5, 6, 7)
SECOND = (0, 0, 0, 0, 500, 400, 0, 0, 0, 0, 0, 300, 200, *(0,) * 7)


def threaded(rank: int = 0, size: int = 1, **settings: object) -> Writer:
    """A capture with two rows of threads, before the events 2 and 4."""
    w = Writer(rank, size, minor=3, **settings)  # type: ignore[arg-type]
    w.opname(0, "MPI_Init")
    w.comm(0, list(range(size)), "MPI_COMM_WORLD")
    w.site(0xABC, "app+0x10")
    w.event(w.call(0), start=-100, elapsed=100)
    w.opname(1, "MPI_Barrier")
    outside, within = w.call(1), w.call(1, team=4)
    for number in (outside, outside, within, outside):
        w.event(number)
    w.runtime(mpi_thread_level="funneled", openmp="libgomp", max_threads=4, OMP_PLACES="cores")
    w.threads(2, *FIRST)
    w.threads(4, *SECOND)
    w.thread(0, 2, 0, 5000, "0-1,4")
    w.thread(1, 1, -1, 4000, "")
    w.thread(ENDED, 0, -1, 700, "", threads=9)
    w.end()
    return w


def test_threads_are_read(tmp_path: Path) -> None:
    threaded().save(tmp_path)
    run = read_run(tmp_path)
    rank = run.ranks[0]
    assert rank.complete
    table = threads_of(run)[0]
    assert table.event.tolist() == [2, 4] and len(table) == 2
    assert [int(table[name][0]) for name in COLUMNS] == list(FIRST)
    assert [int(table[name][1]) for name in COLUMNS] == list(SECOND)
    assert [run.calls[call].team for call in rank.call.tolist()] == [0, 0, 0, 4, 0]
    assert rank.runtime is not None
    assert (rank.runtime.mpi_thread_level, rank.runtime.openmp) == ("funneled", "libgomp")
    assert (rank.runtime.max_threads, rank.runtime.places) == (4, None)
    assert rank.runtime.variables == {"OMP_PLACES": "cores"}
    assert [(t.number, t.kind, t.threads, t.cpu_ns) for t in rank.team_threads] == [
        (0, "caller", 1, 5000),
        (1, "team", 1, 4000),
        (-1, "other", 9, 700),
    ]
    assert rank.team_threads[0].cores == (0, 1, 4) and rank.team_threads[0].calls_as == 0


def test_totals(tmp_path: Path) -> None:
    threaded().save(tmp_path)
    totals = thread_totals(read_run(tmp_path))
    assert totals is not None
    names = ("regions", "team", "worked", "others_ns")
    assert tuple(totals[name] for name in names) == (2, 4, 3, 300)
    assert totals["imbalance"] == pytest.approx(7000 * 4 / 20000 - 1)
    small(0, 1).save(tmp_path)
    assert thread_totals(read_run(tmp_path)) is None


def test_a_run_without_threads_has_none(tmp_path: Path) -> None:
    small(0, 1, minor=2).save(tmp_path)
    rank = read_run(tmp_path).ranks[0]
    assert (rank.threads, rank.runtime, rank.team_threads) == (None, None, ())


def test_columns_of_other_versions(tmp_path: Path) -> None:
    w = small(0, 1, minor=3)
    w.parts.pop()
    w.threads(1, *range(1, 24))
    w.end()
    w.save(tmp_path)
    later = read_file(tmp_path / "rank-000000.p3t").ranks[0]
    assert later.complete and later.threads is not None
    assert [int(later.threads[name][0]) for name in COLUMNS] == list(range(1, 21))


@pytest.mark.parametrize(
    ("numbers", "ordinal"), [((1 << 62, *FIRST[1:]), 2), (FIRST, 99)], ids=["number", "event"]
)
def test_impossible_rows_are_damage(numbers: tuple[int, ...], ordinal: int, tmp_path: Path) -> None:
    w = small(0, 1, minor=3)
    w.parts.pop()
    w.threads(ordinal, *numbers)
    w.end()
    capture = read_capture(w.save(tmp_path))
    assert "damaged" in capture.problem and capture.event_count == 7


@pytest.mark.parametrize("cores", ["1-x", "3-1", "0-99999999", "\xff"])
def test_impossible_threads_are_damage(cores: str, tmp_path: Path) -> None:
    w = threaded()
    w.parts.pop()
    w.thread(3, 1, -1, 1, cores)
    w.end()
    assert "damaged" in read_capture(w.save(tmp_path)).problem


def test_a_lost_chunk_of_threads_costs_only_its_rows(tmp_path: Path) -> None:
    w = threaded()
    path = w.save(tmp_path)
    spoil(path, w.begin(THREADS) + 64)
    capture = read_capture(path)
    assert "a chunk of threads" in capture.problem
    assert capture.threads is None and len(capture.events) == 5 and capture.defs.runtime is not None


def test_recovered_with_and_without_a_header(tmp_path: Path) -> None:
    for name in ("whole", "headless"):
        path = tmp_path / name
        path.mkdir()
        file = threaded().save(path)
        if name == "headless":
            spoil(file, 20, 0xFF)
        recover(path, tmp_path / f"{name}-saved")
        rank = read_run(tmp_path / f"{name}-saved").ranks[0]
        assert rank.threads is not None and rank.threads.regions.tolist() == [2, 0]
        assert len(rank.team_threads) == 3


def test_checked_and_dumped(tmp_path: Path) -> None:
    threaded().save(tmp_path)
    assert check(Place(tmp_path, False)).status == "complete"
    run = read_run(tmp_path)
    text = "\n".join(dump.text(run))
    assert "MPI level funneled, libgomp, at most 4 threads" in text
    assert "thread 0: caller, thread 0 of MPI calls, CPU time 5000 ns, cores 0,1,4" in text
    assert "9 threads: other, CPU time 700 ns" in text
    assert "threads before event 2: regions=2 nested=1 team=4 worked=3" in text
    assert " team=4" in next(line for line in text.splitlines() if line.startswith("3 0 "))
    found = json.loads("".join(dump.json_pieces(run)))["ranks"][0]
    assert found["threads"]["event"] == [2, 4] and found["threads"]["busy_ns"] == [20000, 0]
    assert found["runtime"]["openmp"] == "libgomp" and len(found["each_thread"]) == 3
