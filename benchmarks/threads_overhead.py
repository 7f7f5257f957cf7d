"""What tracing adds to a parallel region: libgomp and LLVM's runtime, 1, 2, 4 threads.

    python benchmarks/threads_overhead.py [--repeats 9] [--threads 1,2,4] [--json]

Traced and untraced runs of regions.c take turns. A run tells its quickest batch of regions; medians
over the runs are printed. Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from p3s.base.host import mpi
from p3s.signature_runner import build
from p3s.signature_runner.launch import run_traced

sys.path.append(str(Path(__file__).resolve().parent))
from figures import Figure, Found

HERE = Path(__file__).resolve().parent
TIMEOUT_S = 300.0
KINDS = ("empty", "barrier", "work")
#: What is aimed at, for each kind of region.
AIM_NS = 1000.0


@dataclass(frozen=True)
class Row:
    """One kind of region: its time untraced and what tracing adds, in nanoseconds."""

    compiler: str
    threads: int
    kind: str
    untraced_ns: float
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
    install: mpi.MpiInstall, program: Path, threads: int, asked: argparse.Namespace, folder: Path
) -> list[Row]:
    """Return the rows of one program and number of threads."""
    tracer = build.ensure_tracer(mpicc=install.mpicc).path
    words = [str(program), str(asked.batches), str(asked.length)]
    plain, traced = [], []
    for turn in range(asked.repeats):
        place = folder / f"{program.name}-{threads}-{turn}"
        plain.append(sample(install, words, threads, None, place / "plain"))
        traced.append(sample(install, words, threads, tracer, place / "traced"))
    rows = []
    for kind in KINDS:
        untraced = statistics.median(one[kind] for one in plain)
        pairs = zip(traced, plain, strict=True)
        added = statistics.median(one[kind] - other[kind] for one, other in pairs)
        rows.append(Row(program.name, threads, kind, untraced, added))
    return rows


def rows_of(found: mpi.MpiInstall, asked: argparse.Namespace) -> list[Row]:
    """Return the rows of both compilers, of those that are there."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="p3s-regions-") as name:
        folder = Path(name)
        for compiler in ("gcc", "clang"):
            program = compiled(found, compiler, folder)
            if program is None:
                print(f"{compiler}: does not compile OpenMP here", file=sys.stderr)
                continue
            for threads in map(int, asked.threads.split(",")):
                rows += measured(found, program, threads, asked, folder / "runs")
    return rows


def figures(quick: bool) -> Found:
    """Return what tracing adds to a region with one and two threads."""
    found = next(iter(mpi.find_mpi()), None)
    if found is None or found.mpiexec is None:
        return Found()
    asked = arguments(["--repeats", "3" if quick else "7", "--threads", "1,2"])
    return Found(
        tuple(
            Figure(
                f"{row.kind} region: {row.compiler}, {row.threads} threads",
                row.added_ns,
                "ns",
                AIM_NS,
            )
            for row in rows_of(found, asked)
        )
    )


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """Return what the command line, or these words, ask for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repeats", type=int, default=9, help="turns of each kind of run")
    parser.add_argument("--batches", type=int, default=1000, help="of 20 regions each")
    parser.add_argument("--length", type=int, default=20_000, help="divisions of a region's work")
    parser.add_argument("--threads", default="1,2,4", help="numbers of threads")
    parser.add_argument("--mpicc", help="the MPI to use [default: the first that is found]")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    return parser.parse_args(words)


def main() -> None:
    """Measure and print."""
    asked = arguments()
    found = mpi.describe(asked.mpicc) if asked.mpicc else next(iter(mpi.find_mpi()), None)
    if found is None or found.mpiexec is None:
        sys.exit("no MPI found; install one (for example `pip install mpich`)")
    rows = rows_of(found, asked)
    title = f"{found.family} {found.version}, {os.cpu_count()} CPUs, {asked.repeats} repeats"
    if asked.json:
        print(json.dumps({"mpi": title, "rows": [asdict(row) for row in rows]}, indent=1))
        return
    print(f"{title}; aim: below {AIM_NS:.0f} ns added a region")
    for row in rows:
        added = f"{row.untraced_ns:10.0f} ns {row.added_ns:+10.0f} ns"
        print(f"  {row.compiler:<6} {row.threads} threads  {row.kind:<8} {added}")


if __name__ == "__main__":
    main()
