"""Times of a master and workers over workers, threads and workload, measured on one machine.

    python benchmarks/master_worker.py run [--app nbody] [--sweeps 3] [-o DIR]
    python benchmarks/master_worker.py compare DIR/nbody.csv
    p3s baseline iterations DIR/nbody.csv -o times.csv

run: every configuration of K in 1 to 3 and T in 1 to 4 at training and validation workloads, 10
iterations a run; whole sweeps one after the other, in an order of its own each, so that what
disturbs the machine for a while disturbs all. In the middle of each sweep some runs are made
twice: the noise probe. An interrupted campaign goes on where it was. compare: one regression
and a tree on the least of the sweeps (of the iterations of a run: --statistic), on workloads that
neither has seen, beside the noise. The third line makes run times of the table.
Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from p3s.methods.baseline import iterations as table
from p3s.methods.baseline.trees.diagnostics import shares
from p3s.methods.baseline.trees.evaluate import Evaluator
from p3s.methods.baseline.trees.features import derive_features
from p3s.methods.baseline.trees.grow import grow
from p3s.methods.baseline.trees.types import Growing, Table, Tree

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT_S = 60.0
WORKERS, THREADS, ITERATIONS = (1, 2, 3), (1, 2, 3, 4), 10
#: Training and validation workloads: of the thesis's lists (tables 5.2, 5.3) those up to 3,300.
WORKLOADS = {
    "nbody": (
        (25, 70, 130, 200, 300, 400, 550, 650, 750, 850, 950, 1100, 1300, 1500, 1750, 2000, 2200,
         2600, 3000, 3400),
        (50, 150, 350, 600, 900, 1250, 1600, 1950, 2500, 3300),
    ),
    "heat": (
        (50, 100, 180, 300, 500, 700, 900, 1100, 1250, 1500, 1800, 2100, 2300, 2500, 2700, 2900,
         3100, 3300, 3500, 3700),
        (80, 250, 400, 750, 1000, 1400, 2000, 2400, 3000, 3400),
    ),
}  # fmt: skip
#: Noise from which errors say little.
NOISY = 0.25
#: Each of so many configurations of a sweep is run twice at once.
PROBED = 12
ENVIRONMENT = {
    "OMP_WAIT_POLICY": "passive",
    "OMP_PROC_BIND": "false",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


@dataclass(frozen=True)
class Case:
    """A configuration of a sweep: workload, workers, threads; again: the second of a pair."""

    workload: int
    workers: int
    threads: int
    again: bool = False


def sweep(app: str, number: int) -> Iterator[Case]:
    """Yield all cases in an order of this sweep, some of them twice."""
    cases = [
        Case(w, k, t) for part in WORKLOADS[app] for w in part for k in WORKERS for t in THREADS
    ]
    random.Random(f"{app} {number}").shuffle(cases)
    for i, case in enumerate(cases):
        yield case
        if i % PROBED == 0:
            yield Case(case.workload, case.workers, case.threads, again=True)


def run_case(program: Path, case: Case, run: int, mpiexec: str) -> list[str]:
    """Run a program once and return its rows of times, the head first."""
    env = os.environ | ENVIRONMENT | {"OMP_NUM_THREADS": str(case.threads)}
    command = [mpiexec, "-n", str(case.workers + 1), str(program), "--workload", str(case.workload)]
    command += ["--iterations", str(ITERATIONS), "--run", str(run), "--times", "-"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=env, start_new_session=True
    )
    try:
        out, _ = process.communicate(timeout=TIMEOUT_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}")
    return out.splitlines()


def campaign(app: str, sweeps: int, out: Path, mpiexec: str, built: Path) -> None:
    """Add what is missing of so many sweeps to a table of iterations."""
    path = out / f"{app}.csv"
    done = {row.run for row in table.read_iterations([path])} if path.exists() else set()
    begin = time.monotonic()
    for number in range(sweeps):
        for i, case in enumerate(sweep(app, number)):
            run = 10_000 * number + 2 * i + case.again
            if run in done:
                continue
            lines = run_case(built / app, case, run, mpiexec)
            with path.open("a", encoding="utf-8") as file:
                first = 1 if file.tell() else 0
                file.write("".join(f"{line}\n" for line in lines[first:]))
        print(f"{app}: sweep {number + 1}, {time.monotonic() - begin:.0f} s", flush=True)


# ---- what was measured -----------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """The least over the sweeps of a configuration's iteration, in s."""

    workload: float
    workers: int
    threads: int
    seconds: float


def points(runs: Sequence[table.Run]) -> list[Point]:
    """Return one point per configuration."""
    found: dict[tuple[float, int, int], list[float]] = {}
    for run in runs:
        if not run.run % 2:
            found.setdefault((run.W, run.K, run.T), []).append(run.seconds)
    return [Point(w, k, t, min(seconds)) for (w, k, t), seconds in sorted(found.items())]


def noise(runs: Sequence[table.Run]) -> list[float]:
    """Return |ratio - 1| of runs that were made twice at once."""
    by_number = {run.run: run for run in runs}
    pairs = [
        (by_number[n - 3], run) for n, run in by_number.items() if n % 2 and n - 3 in by_number
    ]
    return [abs(again.seconds / once.seconds - 1) for once, again in pairs]


def between_sweeps(runs: Sequence[table.Run]) -> list[float]:
    """Return how far the least of some sweeps is from that of the others, by configuration.

    Each sweep alone against the least of the other ones: the noise that an error is seen through.
    """
    found: dict[tuple[float, int, int], dict[int, float]] = {}
    for run in runs:
        if not run.run % 2:
            found.setdefault((run.W, run.K, run.T), {})[run.run // 10_000] = run.seconds
    apart = []
    for seconds in found.values():
        for number in seconds:
            others = [s for other, s in seconds.items() if other != number]
            if others:
                apart.append(abs(seconds[number] / min(others) - 1))
    return apart


#: Of table 5.4: w2 and w1, the workers, and what the messages grow with.
EXPRESSIONS = {
    "nbody": "b4*w2 + b3*w1 + b2*workers + b1*local_workld + b0",
    "heat": "b4*w2 + b3*w1 + b2*workers + b1*workload + b0",
}


def as_table(found: Sequence[Point], cores: int) -> Table:
    """Return points with their variables, and how many threads are more than the cores."""
    w, k, t = (
        np.array([getattr(p, name) for p in found], float)
        for name in ("workload", "workers", "threads")
    )
    more = {"oversubscribed": np.maximum(k * t - cores, 0.0)}
    return Table({**derive_features(w, k, t), **more}, np.array([p.seconds for p in found]))


def grown(train: Table, app: str, *, split: bool) -> Tree:
    """Return a tree; without ``split`` one regression of relative errors over all rows."""
    variables = [name for name in train.columns if split or name == "threads"]
    growing = Growing(minsplit=25.0 if split else 1e9)
    return grow(train, EXPRESSIONS[app], variables, growing)


def missed(tree: Tree, valid: Table) -> list[float]:
    """Return the relative errors of a tree."""
    return [float(e) for e in np.abs(Evaluator.of(tree).predict(valid.columns).value / valid.y - 1)]


def tool(name: str) -> str:
    """Return mpicc or mpiexec of the environment of this Python, else the one in PATH."""
    beside = Path(sys.executable).parent.parent / "mpi" / name
    return str(beside) if beside.exists() else name


def build(folder: Path) -> Path:
    """Return the folder of the compiled programs."""
    command = [
        "make",
        "-s",
        "-C",
        str(ROOT / "examples"),
        f"MPICC={tool('mpicc')}",
        f"BIN={folder}",
    ]
    subprocess.run(command, check=True, timeout=300)
    return folder / "master_worker"


def main() -> int:
    """Run a campaign, or say what it tells."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = parser.add_subparsers(dest="what", required=True)
    made = parts.add_parser("run")
    made.add_argument("--app", action="append", choices=WORKLOADS)
    made.add_argument("--sweeps", type=int, default=3)
    made.add_argument("-o", "--out", type=Path, default=Path("master-worker"))
    compared = parts.add_parser("compare")
    compared.add_argument("file", type=Path, nargs="+")
    compared.add_argument("--statistic", choices=table.REDUCTIONS, default="median")
    compared.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    if options.what == "run":
        options.out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            built = build(Path(folder))
            for app in options.app or WORKLOADS:
                campaign(app, options.sweeps, options.out, tool("mpiexec"), built)
    else:
        for path in options.file:
            compare(table.runs(table.read_iterations([path]), options.statistic), options.cores)
    return 0


def compare(runs: Sequence[table.Run], cores: int) -> None:
    """Print errors of both regressions on the validation workloads, and the noise."""
    app = runs[0].app
    known = points(runs)
    parts = [[p for p in known if p.workload in part] for part in WORKLOADS[app]]
    train, valid = (as_table(part, cores) for part in parts)
    print(f"{app}: {len(train)} training and {len(valid)} validation points, {len(runs)} runs")
    twice = noise(runs)
    _line("same configuration twice", twice)
    if twice and statistics.median(twice) > NOISY:
        print(f"  that is over {NOISY:.0%}: others use this machine, what follows says little")
    _line("a sweep against the others", between_sweeps(runs))
    one, tree = (grown(train, app, split=split) for split in (False, True))
    _line("one regression", missed(one, valid))
    _line(f"tree of {len(tree.leaves)} leaves", missed(tree, valid))
    print("  splits:", ", ".join(f"{name} {share:.0%}" for name, share in shares(tree).items()))
    for t in THREADS:
        here = valid.only(valid.columns["threads"] == t)
        _line(f"  tree, {t} threads", missed(tree, here))


def _line(what: str, errors: Sequence[float]) -> None:
    if len(errors):
        high = np.quantile(errors, 0.9)
        print(f"  {what}: median {statistics.median(errors):.1%}, 90 % below {high:.1%}")


if __name__ == "__main__":
    sys.exit(main())
