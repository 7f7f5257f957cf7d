"""How well computation time is predicted: programs whose data falls from memory into cache.

    python benchmarks/compute.py [--programs heat,sparse] [--repeats 5] [--dir DIR] [--json FILE]

Trained at 2 to 16 processes and with smaller inputs, compared at 64 processes that share the cores
of this machine, in thread CPU time. All runs whose time counts are made in turns (every run once,
then every run again), so that a slow quarter of an hour is shared by all. What is there in DIR is
not made again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from p3s.model.types import Model

REPOSITORY = Path(__file__).resolve().parent.parent
SOURCES = REPOSITORY / "tests" / "programs" / "compute"
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests" / "helpers")]

#: Counts of the study, of each smaller input, and the one that is predicted.
COUNTS = (2, 4, 8, 16)
FAR = {"quarter": (4, 8, 16), "eighth": (16,)}
TARGET = 64
#: Phases below this share of the measured computation are not judged (thesis: relevant phases).
RELEVANT = 0.01
TIMEOUT_S = 300.0
#: The arguments of a program: of the input that is predicted, and of smaller ones.
PROGRAMS: dict[str, dict[str, str]] = {
    "heat": {
        "own": "--nx 1200 --ny 1120",
        "quarter": "--nx 600 --ny 560",
        "eighth": "--nx 300 --ny 560",
    },
    "sparse": {"own": "--rows 288000", "quarter": "--rows 72000", "eighth": "--rows 36000"},
    "table": {
        "own": "--entries 4194304 --keys 2097152",
        "quarter": "--entries 1048576 --keys 524288",
        "eighth": "--entries 524288 --keys 262144",
    },
    "pencils": {
        "own": "--ny 112 --nz 120",
        "quarter": "--ny 56 --nz 60",
        "eighth": "--ny 56 --nz 30",
    },
    "particles": {
        "own": "--bodies 2560 --height 1280 --dust 786432",
        "quarter": "--bodies 1280 --height 320 --dust 196608",
        "eighth": "--bodies 640 --height 160 --dust 98304",
    },
}


class Bench:
    """The directories and commands of one program."""

    def __init__(self, root: Path, name: str, launcher: Sequence[str]) -> None:
        self.root, self.name, self.launcher = root / name, name, list(launcher)
        self.program = root / "bin" / name

    def command(self, which: str) -> list[str]:
        """Return the launcher command with one input; the truth has the input of the study."""
        words = PROGRAMS[self.name]["own" if which == "truth" else which].split()
        return [*self.launcher, str(self.program), *words]

    def study(self, unit: str, which: str = "own") -> Path:
        """Return the study of one input: work in "instructions" or "cpu"."""
        own = self.root / unit
        return own if which == "own" else own / "far" / which

    def native(self, which: str, n: int, rep: int) -> Path:
        """Return the capture of one native run in CPU time."""
        return self.root / "native" / which / f"np{n:04d}.r{rep}"

    def runs(self) -> list[tuple[str, int]]:
        """Return the runs whose time counts: input and process count."""
        return [
            *(("own", n) for n in COUNTS),
            *((far, n) for far, ns in FAR.items() for n in ns),
            ("truth", TARGET),
        ]


def p3s(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run one p3s command; anything but 0 and 3 ends the benchmark."""
    done = subprocess.run(
        [sys.executable, "-m", "p3s", *map(str, words)],
        text=True,
        capture_output=True,
        timeout=3600,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    if done.returncode not in (0, 3):
        raise SystemExit(
            f"p3s {' '.join(map(str, words))}: exit code {done.returncode}\n{done.stderr.strip()}"
        )
    return done


def build(benches: Sequence[Bench], mpicc: str) -> None:
    """Compile the programs."""
    for b in benches:
        b.program.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [
                mpicc,
                "-std=c11",
                "-D_XOPEN_SOURCE=700",
                "-O2",
                "-g",
                str(SOURCES / f"{b.name}.c"),
                "-o",
                str(b.program),
                "-lm",
            ],
            check=True,
            timeout=120,
        )


def emulate(benches: Sequence[Bench]) -> None:
    """Count instructions at the small counts and with the smaller inputs, each once."""
    from p3s.base.study import Study
    from p3s.cli.progress import progress
    from p3s.pipeline.tracing.runs import CountRequest, TraceRequest, trace_counts
    from p3s.signature_runner.recording import Recording

    for b in benches:
        for which, counts in (("own", COUNTS), *FAR.items()):
            study = Study.create(b.study("instructions", which), b.command(which))
            missing = [n for n in counts if n not in study.counts()]
            begin = time.monotonic()
            with progress(len(missing)) as bar:
                request = TraceRequest(
                    study.root,
                    tuple(b.command(which)),
                    CountRequest(tuple(missing)),
                    timeout_s=10 * TIMEOUT_S,
                    recording=Recording(work="instructions"),
                    times=False,
                )
                done = trace_counts(study, request, missing, bar)
            if done.failed:
                raise SystemExit(f"{b.name} {which}: {done.failed[0].reason}")
            say(f"{b.name} {which}: emulated in {time.monotonic() - begin:.0f} s")


def measure(benches: Sequence[Bench], repeats: int) -> None:
    """Make all native runs in CPU time, in turns, and give them to the studies."""
    from p3s.base.progress import Progress
    from p3s.base.study import Study
    from p3s.signature_runner.recording import Recording
    from p3s.signature_runner.traced_run import Launch, trace_once

    begin, made = time.monotonic(), 0
    for rep in range(repeats):
        for b in benches:
            for which, n in b.runs():
                target = b.native(which, n, rep)
                if target.exists():
                    continue
                study = Study.create(b.root / "native", b.command("own"))
                launch = Launch(tuple(b.command(which)), TIMEOUT_S, {})
                trace_once(study, launch, n, target, Recording(work="cpu"), Progress())
                made += 1
        say(f"repeat {rep + 1} of {repeats}: {made} runs, {time.monotonic() - begin:.0f} s")
    for b in benches:
        for which, n in b.runs():
            if which == "truth":
                continue
            for unit in ("instructions", "cpu"):
                Study.create(b.study(unit, which), b.command(which))
            for rep in range(repeats):
                run = b.native(which, n, rep)
                _give(run, b.study("instructions", which) / "timed" / run.name)
                _give(run, b.study("cpu", which) / "runs" / run.name)


def _give(run: Path, target: Path) -> None:
    """Link the files of a run into a study, which may replace but never change them."""
    if not target.exists():
        shutil.copytree(run, target, copy_function=os.link)


# ---- the truth ------------------------------------------------------------------------------
def measured(model: Model, run: Path) -> np.ndarray:
    """Return the CPU time (ns) of a run by phase of the model and rank, (phases + 1, ranks).

    Calls belong to phases as in `p3s validate`; the last row is what no phase explains. What is
    computed before MPI_Init is no part of the run.
    """
    from p3s.capture import run_files
    from p3s.model.evaluate import generate
    from p3s.model.tree import assign
    from p3s.signature.part import Sites, join_files
    from p3s.signature.tables import table_of

    files = run_files(run)
    apart = frozenset(site.partition("#")[0] for site in model.sites if "#" in site)
    part = join_files(list(files.files.values()), Sites(apart))
    table = table_of([part], [files.wall_ns], str(run))
    grid = generate(model, files.np).grid
    items, phases = model.items, len(model.phases)
    item = np.minimum(assign(items, table, grid, model.splits).of_row, len(items))
    phase = np.array([it.phase for it in items] + [phases], dtype=np.int64)[item]
    first = np.array([g.op in ("MPI_Init", "MPI_Init_thread") for g in table.groups])[table.group]
    out = np.zeros((phases + 1, files.np))
    np.add.at(out, (phase[~first], table.rank[~first]), table.work[~first])
    return out


# ---- prediction and comparison --------------------------------------------------------------
def predict(b: Bench, unit: str, repeats: int) -> dict[str, Any]:
    """Model one program's study, predict the target, compare each relevant phase."""
    from p3s.base.study import Study
    from p3s.model.stage import load

    root = b.study(unit)
    p3s("model", root)
    p3s("scale", root, "-n", str(TARGET))
    model = load(root)
    real = np.stack([measured(model, b.native("truth", TARGET, rep)) for rep in range(repeats)])
    means, largest = real.mean(axis=2) / 1e6, real.max(axis=2) / 1e6  # ms: repeats x phases
    head = json.loads(Study(root).scaled_path(TARGET).read_text())
    typical = np.median(means, axis=0)
    out = []
    for said in head["phases"]:
        k = said["phase"]
        share = float(typical[k] / typical.sum())
        if share < RELEVANT:
            continue
        told = said["compute_ns"] / TARGET / 1e6
        low, high = told * said["compute_low"], told * said["compute_high"]
        crm = {
            name: None if said.get(f"{name}_ns") is None else said[f"{name}_ns"] / 1e6
            for name in ("crm_i", "crm_c")
        }
        out.append(
            {
                "program": b.name,
                "phase": k,
                "share": share,
                "measured": float(typical[k]),
                "repeats": means[:, k].tolist(),
                "largest": largest[:, k].tolist(),
                "predicted": told,
                "work": said["work"] / TARGET,
                "low": low,
                "high": high,
                "inside": bool(low <= typical[k] <= high),
                "outside_ratio": said.get("outside"),
                **crm,
            }
        )
    return {
        "program": b.name,
        "unit": unit,
        "phases": out,
        "unexplained": float(typical[-1] / typical.sum()),
    }


def error(row: dict[str, Any], name: str) -> float | None:
    """Return the relative error of one prediction of a phase, None where there is none."""
    return None if row[name] is None else float(row[name] / row["measured"] - 1.0)


def table(results: Sequence[dict[str, Any]]) -> str:
    """Return all phases as a table in Markdown, with the totals of every way to predict."""
    rows = [row for result in results for row in result["phases"]]
    out = [
        "| program | phase | share | measured, ms (repeats) | predicted | 90 % interval | error "
        "| inside | CRM_i | CRM_c |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        errors = [_percent(error(r, name)) for name in ("predicted", "crm_i", "crm_c")]
        out.append(
            f"| {r['program']} | {r['phase']} | {r['share']:.1%} | {r['measured']:.2f} "
            f"({min(r['repeats']):.2f} to {max(r['repeats']):.2f}) | {r['predicted']:.2f} | "
            f"{r['low']:.2f} to {r['high']:.2f} | {errors[0]} | "
            f"{'yes' if r['inside'] else 'no'} | {errors[1]} | {errors[2]} |"
        )
    for title, name in (("P3S", "predicted"), ("CRM_i", "crm_i"), ("CRM_c", "crm_c")):
        found = [abs(e) for r in rows if (e := error(r, name)) is not None]
        if found:
            out.append(
                f"\n{title}: mean error {np.mean(found):.2%}, largest {max(found):.2%}, "
                f"{len(found)} phases"
            )
    inside = sum(r["inside"] for r in rows)
    out.append(f"\nThe interval holds {inside} of {len(rows)} ({inside / max(len(rows), 1):.0%}).")
    return "\n".join(out)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:+.1f} %"


def options() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--dir", type=Path, default=None, help="kept; default: a temporary one")
    parser.add_argument("--mpiexec", help="the MPI; default: as in the tests")
    parser.add_argument("--json", type=Path, help="file for the raw numbers")
    return parser.parse_args()


def main() -> None:
    """Do the steps asked for and print the table."""
    args = options()
    if args.mpiexec:
        os.environ["P3S_TEST_MPIEXEC"] = args.mpiexec
    from tracer_helpers import the_mpi

    install = the_mpi()
    if install is None or install.mpiexec is None:
        raise SystemExit("no MPI that works with ranks sharing cores; name one: --mpiexec PATH")
    with tempfile.TemporaryDirectory() as scratch:
        root = (args.dir or Path(scratch)).resolve()
        benches = [
            Bench(root, name, [install.mpiexec, "-n", "{np}"]) for name in args.programs.split(",")
        ]
        build(benches, install.mpicc)
        emulate(benches)
        measure(benches, args.repeats)
        units = ("instructions", "cpu")
        results = [predict(b, unit, args.repeats) for unit in units for b in benches]
    for unit in units:
        print(f"\nwork in {unit}\n")
        print(table([r for r in results if r["unit"] == unit]), flush=True)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))


def say(text: str) -> None:
    """Tell how far the benchmark is."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
