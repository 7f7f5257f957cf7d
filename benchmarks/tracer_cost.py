"""What tracing costs: time per call, bytes per event, memory per rank, speed of reading back.

    python benchmarks/all.py --only tracer_cost

Traced and untraced runs take turns; figures are medians.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from figures import P3S, ROOT, Figure, Found, whole

from p3s.base.host import mpi
from p3s.capture import RunTrace, read_run
from p3s.capture.dump import write_parquet
from p3s.signature.tables import point_table
from p3s.signature_runner import build
from p3s.signature_runner.launch import run_traced
from p3s.signature_runner.recording import Recording

HERE = Path(__file__).resolve().parent
TIMEOUT_S = 600.0
MODES = ("untraced", "wall", "cpu")

#: What is aimed at: see README.md beside this file.
TARGETS = {
    "added per call, wall clock [us]": "<= 0.30",
    "added per call, CPU clock [us]": "<= 1.00",
    "small run, wall clock [us per event]": "<= 0.30",
    "small run, CPU clock [us per event]": "<= 1.00",
    "small run, bytes per event on disk": "<= 45",
    "bytes per event on disk, jacobi2d": "<= 16",
    "memory added per rank [MiB]": "<= 32",
    "finalise to tables [million events/s]": ">= 2",
    "finalise to Parquet [million events/s]": ">= 2",
}


@dataclass(frozen=True)
class Sample:
    """One run of calls.c: nanoseconds per call, and memory in KiB."""

    null_ns: float
    self_ns: float
    peak_kib: int


@dataclass(frozen=True)
class Row:
    """One line of the result: what, its value, and what is aimed at."""

    what: str
    value: float
    target: str


def compiled(install: mpi.MpiInstall, folder: Path) -> Path:
    """Compile calls.c with an MPI."""
    target = folder / "calls"
    command = [install.mpicc, "-O2", "-std=gnu11", str(HERE / "calls.c"), "-o", str(target)]
    subprocess.run(command, check=True, timeout=TIMEOUT_S)
    return target


def sample(
    install: mpi.MpiInstall, program: Path, tracer: Path, mode: str, calls: int, folder: Path
) -> Sample:
    """Run calls.c on one rank, untraced or with one of the clocks."""
    folder.mkdir(parents=True)
    settings = []
    if mode == "mpiP":
        settings = [f"LD_PRELOAD={tracer}", f"MPIP=-f {folder}"]
    elif mode != "untraced":
        settings = [f"LD_PRELOAD={tracer}", f"P3S_TRACE_DIR={folder}", f"P3S_WORK={mode}"]
    assert install.mpiexec is not None
    outcome = run_traced(
        [install.mpiexec, "-n", "{np}", "env", *settings, str(program), str(calls)],
        1,
        folder,
        timeout_s=TIMEOUT_S,
        trace=False,
    )
    printed = (outcome.run_dir / "stdout.txt").read_text().splitlines()
    words = next(line for line in printed if line.startswith("null ")).split()
    found = dict(zip(words[::2], words[1::2], strict=True))
    for path in folder.glob("rank-*.p3t"):
        path.unlink()  # a hundred runs would fill the disk
    return Sample(float(found["null"]), float(found["self"]), int(found["peak"]))


def cost_per_call(
    install: mpi.MpiInstall, tracer: Path, repeats: int, calls: int, folder: Path
) -> list[Row]:
    """Return the rows about time and memory; the modes take turns, so that noise hits all."""
    program = compiled(install, folder)
    samples: dict[str, list[Sample]] = {mode: [] for mode in MODES}
    for repeat in range(repeats):
        for mode in MODES:
            place = folder / f"{mode}-{repeat}"
            samples[mode].append(sample(install, program, tracer, mode, calls, place))
    rows = []
    for name, value in (("null send", lambda s: s.null_ns), ("self message", lambda s: s.self_ns)):
        for mode, shown in (("wall", "wall clock"), ("cpu", "CPU clock")):
            # Of one turn each: what the machine does to both of them cancels.
            pairs = zip(samples[mode], samples["untraced"], strict=True)
            added = statistics.median(value(one) - value(other) for one, other in pairs)
            key = f"added per call, {shown} [us]"
            rows.append(Row(f"{name}, {key}", added / 1e3, TARGETS[key]))
    wall, plain = (statistics.median(s.peak_kib for s in samples[m]) for m in ("wall", "untraced"))
    name = "memory added per rank [MiB]"
    return [*rows, Row(name, (wall - plain) / 1024, TARGETS[name])]


def built(install: mpi.MpiInstall, folder: Path) -> Path:
    """Return jacobi2d, compiled with an MPI."""
    program = folder / "jacobi2d"
    make = ["make", "-s", "-C", str(ROOT / "examples"), f"MPICC={install.mpicc}", f"BIN={folder}"]
    subprocess.run([*make, str(program)], check=True, timeout=TIMEOUT_S)
    return program


def small_runs(install: mpi.MpiInstall, folder: Path, repeats: int) -> list[Row]:
    """Return the rows about jacobi2d at its default size on two ranks: a run of 405 calls a rank.

    Each rank says itself how long the tracer took, what it loses its core for included; new call
    sites, communicators and types are a large part of so short a run. Median over all ranks.
    """
    program = built(install, folder)
    rows, bytes_each = [], 0.0
    took: dict[str, list[float]] = {"wall": [], "cpu": []}
    for repeat in range(repeats):
        for mode, found in took.items():
            run_dir = folder / f"small-{mode}-{repeat}"
            words = [str(install.mpiexec), "-n", "{np}", str(program)]
            run_traced(words, 2, run_dir, timeout_s=TIMEOUT_S, recording=Recording(work=mode))
            ranks = read_run(run_dir).ranks
            found += [rank.tracer_ns / len(rank.call) for rank in ranks]
            sizes = [path.stat().st_size for path in run_dir.glob("rank-*.p3t")]
            bytes_each = sum(sizes) / sum(len(rank.call) for rank in ranks)
    for mode, shown in (("wall", "wall clock"), ("cpu", "CPU clock")):
        name = f"small run, {shown} [us per event]"
        rows.append(Row(name, statistics.median(took[mode]) / 1e3, TARGETS[name]))
    name = "small run, bytes per event on disk"
    return [*rows, Row(name, bytes_each, TARGETS[name])]


def rate(events: int, action: Callable[[], object]) -> float:
    """Return how many million events an action handles in a second: the best of three times."""
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        action()
        times.append(time.perf_counter() - begin)
    return events / min(times) / 1e6


def columns(run: RunTrace) -> int:
    """Decode every column of every rank; return the number of events."""
    total = 0
    for rank in run.ranks:
        total += len(rank.call)
        for values in (rank.start_ns, rank.elapsed_ns, rank.work):
            int(values.sum())
    return total


def disk_and_reading(install: mpi.MpiInstall, folder: Path, iterations: int) -> list[Row]:
    """Return the rows about the size of a regular program's capture, and reading it back."""
    program = built(install, folder)
    run_dir = folder / "jacobi2d-run"
    assert install.mpiexec is not None
    run_traced(
        [
            install.mpiexec,
            "-n",
            "{np}",
            str(program),
            "--nx",
            "32",
            "--ny",
            "32",
            "--iterations",
            str(iterations),
        ],
        4,
        run_dir,
        timeout_s=TIMEOUT_S,
    )
    files = list(run_dir.glob("rank-*.p3t"))
    events = columns(read_run(run_dir))
    name, disk = "bytes per event on disk, jacobi2d", sum(path.stat().st_size for path in files)
    rows = [Row(name, disk / events, TARGETS[name])]
    parquet = folder / "events.parquet"
    for name, action in (
        ("finalise to tables [million events/s]", lambda: point_table([read_run(run_dir)])),
        (
            "finalise to Parquet [million events/s]",
            lambda: write_parquet(read_run(run_dir), parquet),
        ),
    ):
        rows.append(Row(name, rate(events, action), TARGETS[name]))
    return rows


def mpip_per_call(
    install: mpi.MpiInstall, library: Path, repeats: int, calls: int, folder: Path
) -> dict[str, float]:
    """Return what mpiP, which keeps sums and no events, adds to the two kinds of calls in us."""
    program, added = compiled(install, folder), dict[str, list[float]]()
    for repeat in range(repeats):
        plain, traced = (
            sample(install, program, library, mode, calls, folder / f"peer-{mode}-{repeat}")
            for mode in ("untraced", "mpiP")
        )
        added.setdefault("null send", []).append((traced.null_ns - plain.null_ns) / 1e3)
        added.setdefault("self message", []).append((traced.self_ns - plain.self_ns) / 1e3)
    return {name: statistics.median(values) for name, values in added.items()}


def figures(quick: bool) -> Found:
    """Return the rows of this benchmark as figures, beside mpiP's and the size of OTF2's."""
    found = next(iter(mpi.find_mpi()), None)
    if found is None or found.mpiexec is None:
        return Found()
    tracer = build.ensure_tracer(mpicc=found.mpicc)
    repeats, calls, iterations = (3, 200_000, 5_000) if quick else (9, 1_000_000, 40_000)
    with tempfile.TemporaryDirectory(prefix="p3s-cost-") as name:
        folder = Path(name)
        rows = cost_per_call(found, tracer.path, repeats, calls, folder)
        rows += small_runs(found, folder, repeats)
        rows += disk_and_reading(found, folder, iterations)
        otf2 = otf2_bytes(found, folder, iterations)
        place = os.environ.get("P3S_BENCH_MPIP")
        mpip = mpip_per_call(found, Path(place), repeats, calls, folder) if place else {}
    out = []
    for row in rows:
        what, _, unit = row.what.partition(" [")
        sign, _, number = row.target.partition(" ")
        disk = what == "bytes per event on disk, jacobi2d"
        peer = {"peer": "OTF2", "peer_value": otf2} if disk else {}
        if "added per call" in what:
            missing = "" if place else "missing: P3S_BENCH_MPIP is no libmpiP.so"
            other = mpip.get(what.partition(",")[0])
            peer = {"peer": "mpiP", "peer_value": other, "missing": missing}
        figure = Figure(what, row.value, unit.rstrip("]"), float(number), sign == ">=", **peer)
        out.append(figure)
    return Found(tuple(out))


def otf2_bytes(install: mpi.MpiInstall, folder: Path, iterations: int) -> float:
    """Return how many bytes an event of jacobi2d takes as an OTF2 archive, as P3S exports it."""
    study, target = folder / "study", folder / "otf2"
    program = [str(folder / "jacobi2d"), "--nx", "32", "--ny", "32"]
    launcher = [str(install.mpiexec), "-n", "{np}", *program, "--iterations", str(iterations)]
    whole([*P3S, "trace", "--part", "-n", "4", "-o", study, "--", *launcher])
    whole([*P3S, "export", study, "--to", "otf2", "-n", "4", "-o", target])
    (run,) = (study / "runs").iterdir()
    events = sum(len(rank.call) for rank in read_run(run).ranks)
    return sum(p.stat().st_size for p in target.rglob("*") if p.is_file()) / events
