"""Hardware counters of captures: per phase and iteration, per instruction, and the cache left."""

from __future__ import annotations

from pathlib import Path

import pytest
from capture_writer import INSTRUCTIONS, Writer, put_run_json
from commands import cli

from p3s.base.study import Study
from p3s.costs.counted import caches_left, counted_at
from p3s.model.stage import read
from p3s.signature.times import load_times

COUNTERS = ("instructions", "cycles", "llc-misses")
COUNTS, TURNS, DATA, CACHE = (2, 4, 8, 16, 32), 12, 64_000_000, 6_000_000.0
#: Instructions of a byte in an iteration.
EACH = 20


def per_instruction(block: float) -> tuple[float, float]:
    """Return cycles and misses of an instruction: a step where the block leaves the cache."""
    out = 1.0 / (1.0 + (CACHE / block) ** 6)
    return 0.5 + 1.5 * out, 1e-4 + 0.01 * out


def capture(folder: Path, rank: int, size: int, work_source: int) -> None:
    block = DATA / size
    done = int(EACH * block)
    cycles, misses = (int(done * each) for each in per_instruction(block))
    w = Writer(rank, size, work_source, COUNTERS, minor=2, memory=(1000, 1000 + int(block), 0))
    w.opname(0, "MPI_Init")
    w.comm(0, list(range(size)), "MPI_COMM_WORLD")
    w.site(1, "app+0x10")
    w.event(w.call(0), start=-100, elapsed=100, work=50, counters=(999, 999, 999))
    w.opname(1, "MPI_Allreduce")
    w.opname(2, "MPI_Finalize")
    again, last = w.site(2, "app+0x20"), w.site(3, "app+0x30")
    reduce = w.call(1, again, 0, nbytes=8, elem=8, count=1)
    for _ in range(TURNS):
        work = done if work_source == INSTRUCTIONS else cycles // 3
        w.event(
            reduce,
            start=w.last_end + cycles // 3,
            elapsed=1000,
            work=work,
            counters=(done, cycles, misses),
        )
    w.event(w.call(2, last), work=5, counters=(10, 10, 0))
    w.end()
    w.save(folder)


def traced(root: Path, work_source: int, unit: str) -> Study:
    made = Study.create(root / "study", ["mpiexec", "-n", "{np}", "./app"])
    for n in COUNTS:
        folder = made.runs_dir(n)
        folder.mkdir(parents=True)
        for rank in range(n):
            capture(folder, rank, n, work_source)
        put_run_json(folder, n, work_unit=unit, cores=64, counters=list(COUNTERS))
    made.update()
    return made


@pytest.mark.parametrize(("source", "unit"), [(2, "cpu_ns"), (INSTRUCTIONS, "instructions")])
def test_counters_are_laws_of_the_block(tmp_path: Path, source: int, unit: str) -> None:
    study = traced(tmp_path, source, unit)
    cli(f"model {study.root}", code=(0, 3))
    fitted = read(study.model_path)
    rows = []
    for n in COUNTS:
        times = load_times(study.root, n)
        assert times is not None and times.counters == COUNTERS
        (row,) = [r for r in counted_at(fitted, times) if r.each["instructions"] > 100]
        cycles, misses = per_instruction(DATA / n)
        assert row.ranks == n and row.block == pytest.approx(DATA / n)
        assert row.each["instructions"] == pytest.approx(EACH * DATA / n)
        assert row.per_instruction("cycles") == pytest.approx(cycles, rel=1e-3)
        assert row.per_instruction("llc-misses") == pytest.approx(misses, rel=1e-3)
        rows.append(row)
    left = {each.counter: each for each in caches_left(rows)}
    assert left["cycles"].block == pytest.approx(CACHE, rel=0.3)
    assert left["cycles"].before < 0.7 and left["cycles"].after > 1.8
    shown = cli(
        f"model {study.root}", code=(0, 3), out="instructions of a process in the run ("
    ).out
    shown = shown.partition("of a process in the run (")[2]
    line = next(each for each in shown.splitlines() if f"{TURNS * EACH * DATA:.4g}/n" in each)
    at, once, weight, total, off = line.split()[-6:-1]
    assert (int(at), float(once.replace(",", ""))) == (32, EACH * DATA / 32)
    assert float(total.replace(",", "")) == pytest.approx(TURNS * EACH * DATA)
    assert int(weight) == TURNS and abs(float(off)) < 0.1
    shown = cli(f"phases {study.root}", out=("CPI", "misses/instr")).out
    assert any("15.4 G" in line and "  0.502  " in line for line in shown.splitlines())
    rows = cli(f"phases {study.root} --json").data["counters"]
    assert {row["n"] for row in rows} == set(COUNTS) and set(rows[-1]["each"]) == set(COUNTERS)
    shown = cli(f"model {study.root} --scic", code=(0, 3), out="cycles per instruction").out
    assert "leaves a cache at about" in shown
    if unit == "instructions":  # the same as the work: its equation holds
        assert "total instructions" in shown


def test_a_program_that_fits_its_cache_leaves_none(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("test_counters.CACHE", 1e12)
    study = traced(tmp_path, 2, "cpu_ns")
    cli(f"model {study.root}", code=(0, 3))
    shown = cli(f"model {study.root} --scic", code=(0, 3)).out
    assert "llc-misses" in shown and "leaves a cache" not in shown
