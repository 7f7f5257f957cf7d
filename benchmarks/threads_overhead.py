"""What tracing adds to a parallel region: libgomp and LLVM's runtime, 1, 2, 4 threads.

    python benchmarks/all.py --only threads_overhead

Traced and untraced runs of regions.c take turns. A run tells its quickest batch of regions; figures
are medians over the runs.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from figures import Figure, Found

from p3s.base.host import mpi
from p3s.signature_runner import build
from p3s.signature_runner.launch import run_traced

HERE = Path(__file__).resolve().parent
TIMEOUT_S = 300.0
#: Batches of 20 regions each, and divisions of a region's work.
BATCHES, LENGTH = 1000, 20_000
KINDS = ("empty", "barrier", "work")
#: What is aimed at, for each kind of region.
AIM_NS = 1000.0


@dataclass(frozen=True)
class Row:
    """One kind of region, and the nanoseconds that tracing adds to it."""

    compiler: str
    threads: int
    kind: str
    added_ns: float


def compiled(install: mpi.MpiInstall, compiler: str, folder: Path) -> Path | None:
    """Compile regions.c; None if the compiler or its OpenMP is not there."""
    shown = (mpi.ask([install.mpicc, "-show"]) or "").split()[1:]
    target = folder / compiler
    words = [compiler, "-O2", "-fopenmp", str(HERE / "regions.c"), "-o", str(target), *shown]
    if shutil.which(compiler) is None:
        return None
    done = subprocess.run(words, capture_output=True, timeout=TIMEOUT_S, check=False)
    return target if done.returncode == 0 else None


def sample(
    install: mpi.MpiInstall, words: list[str], threads: int, tracer: Path | None, folder: Path
) -> dict[str, float]:
    """Run regions.c on one rank; return nanoseconds a region by kind."""
    folder.mkdir(parents=True)
    settings = [f"OMP_NUM_THREADS={threads}"]
    if tracer is not None:
        settings += [f"LD_PRELOAD={tracer}", f"P3S_TRACE_DIR={folder}", "P3S_WORK=cpu"]
    assert install.mpiexec is not None
    unbound = ["--bind-to", "none"] if install.family == "openmpi" else []
    command = [install.mpiexec, *unbound, "-n", "{np}", "env", *settings, *words]
    outcome = run_traced(command, 1, folder, timeout_s=TIMEOUT_S, trace=False)
    found = (outcome.run_dir / "stdout.txt").read_text().split()
    return {name: float(value) for name, value in zip(found[::2], found[1::2], strict=True)}


def measured(
    install: mpi.MpiInstall, program: Path, threads: int, repeats: int, folder: Path
) -> list[Row]:
    """Return the rows of one program and number of threads."""
    tracer = build.ensure_tracer(mpicc=install.mpicc).path
    words = [str(program), str(BATCHES), str(LENGTH)]
    plain, traced = [], []
    for turn in range(repeats):
        place = folder / f"{program.name}-{threads}-{turn}"
        plain.append(sample(install, words, threads, None, place / "plain"))
        traced.append(sample(install, words, threads, tracer, place / "traced"))
    rows = []
    for kind in KINDS:
        pairs = zip(traced, plain, strict=True)
        added = statistics.median(one[kind] - other[kind] for one, other in pairs)
        rows.append(Row(program.name, threads, kind, added))
    return rows


def rows_of(found: mpi.MpiInstall, repeats: int) -> list[Row]:
    """Return the rows of both compilers, of those that are there."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="p3s-regions-") as name:
        folder = Path(name)
        for compiler in ("gcc", "clang"):
            program = compiled(found, compiler, folder)
            if program is None:
                print(f"{compiler}: does not compile OpenMP here", file=sys.stderr)
                continue
            for threads in (1, 2):
                rows += measured(found, program, threads, repeats, folder / "runs")
    return rows


def figures(quick: bool) -> Found:
    """Return what tracing adds to a region with one and two threads."""
    found = next(iter(mpi.find_mpi()), None)
    if found is None or found.mpiexec is None:
        return Found()
    return Found(
        tuple(
            Figure(
                f"{row.kind} region: {row.compiler}, {row.threads} threads",
                row.added_ns,
                "ns",
                AIM_NS,
            )
            for row in rows_of(found, 3 if quick else 7)
        )
    )
