"""Files: what the model says at four times the processes beside real runs.

    python benchmarks/io.py DIR [--mpiexec "mpirun -n {np}"] [--traced 1,2,4]
                            [--measured 1,2,4,8,16] [--mib 16] [--repeats 7]
                            [--modes own,shared,collective] [--sync 0,1]

tests/programs/io/checkpoint.c writes checkpoints into DIR. It is traced at small counts and run
untraced at four times the largest, runs of all modes taking turns; medians are printed. The model
is asked twice: with the file system measured (p3s machine measure --io) and as the runs tell.
Rates of the disk are printed, too. Nothing here passes or fails. Needs the machine alone.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import figures  # noqa: F401  (the MPI that `make setup` chose comes first)

from p3s.base.host import mpi

HERE = Path(__file__).resolve().parent
PROGRAM = HERE.parent / "tests/programs/io/checkpoint.c"
TIMEOUT_S = 300
TIMES = 5


@dataclass(frozen=True)
class Row:
    """One mode at one count: seconds of a checkpoint in a real run, and as two models say."""

    mode: str
    sync: bool
    n: int
    real_s: float
    real_low_s: float
    real_high_s: float
    measured_s: float
    runs_s: float


def main() -> int:
    """Run, predict, compare, print."""
    asked = arguments()
    folder = Path(tempfile.mkdtemp(prefix="p3s-io-"))
    where = Path(asked.directory).resolve()
    words = shlex.split(asked.mpiexec)
    counts = [int(n) for n in asked.traced.split(",")]
    try:
        binary = compiled(words[0], folder)
        system = file_system(asked, words, where, folder)
        syncs = asked.sync.split(",")
        cases = [(mode, sync) for mode in asked.modes.split(",") for sync in syncs]
        studies = {
            case: study_of(case, asked, words, binary, where, folder, counts) for case in cases
        }
        real: dict[tuple[str, str], list[float]] = {case: [] for case in cases}
        for _ in range(asked.repeats):
            for case in cases:
                program = command(case, asked, binary, where)
                real[case].append(run(words, 4 * counts[-1], program))
        rows = [row(case, 4 * counts[-1], real[case], studies[case], system) for case in cases]
        show(rows)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def arguments() -> argparse.Namespace:
    """Return what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory")
    parser.add_argument("--mpiexec", default="mpiexec -n {np}")
    parser.add_argument("--traced", default="1,2,4")
    parser.add_argument("--measured", help="processes for the file system [as --traced]")
    parser.add_argument("--mib", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--modes", default="own,shared,collective")
    parser.add_argument("--sync", default="0,1")
    return parser.parse_args()


def compiled(launcher: str, folder: Path) -> Path:
    """Compile the program with the launcher's MPI."""
    found = mpi.mpi_for(None, shutil.which(launcher) or launcher)
    assert found is not None, f"no mpicc belongs to {launcher}"
    target = folder / PROGRAM.stem
    subprocess.run([found.mpicc, "-O2", "-g", str(PROGRAM), "-o", str(target)], check=True)
    return target


def command(
    case: tuple[str, str], asked: argparse.Namespace, binary: Path, where: Path
) -> list[str]:
    """Return the program with its arguments."""
    mode, sync = case
    return [str(binary), str(where), mode, str(asked.mib), str(TIMES), sync]


def run(words: list[str], n: int, program: list[str]) -> float:
    """Return the seconds of a checkpoint in one untraced run."""
    argv = [word.replace("{np}", str(n)) for word in words] + program
    env = {"OMPI_MCA_mpi_yield_when_idle": "1"}
    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
        env={**env, **os.environ},
    )
    found = re.search(r"checkpoint ([\d.]+) s", done.stdout)
    assert found, done.stdout + done.stderr
    return float(found[1])


def p3s(*words: str) -> str:
    """Run p3s; the exit code may say that a prediction is not to be trusted."""
    done = subprocess.run(
        [sys.executable, "-m", "p3s", *words], capture_output=True, text=True, timeout=600
    )
    assert done.returncode in (0, 3), done.stderr
    return done.stdout


def file_system(asked: argparse.Namespace, words: list[str], where: Path, folder: Path) -> Path:
    """Measure the file system, and print its rates."""
    from p3s.machine.filesystem import measure_files

    counts = [int(n) for n in (asked.measured or asked.traced).split(",")]
    found = measure_files(where, words, counts, asked.mib << 20, asked.repeats)
    path = folder / "files.json"
    found.save(path)
    for what in ("write", "sync", "read", "cold"):
        for sharing in ("own", "shared"):
            rates = found.of("posix", sharing, what, "dense")
            told = ", ".join(
                f"{r.processes}: {r.call_s * 1e6:.1f} us + {1e-6 / max(r.byte_s, 1e-15):.0f} MB/s"
                for r in rates
            )
            print(f"{found.kind} {what} {sharing}: {told}")
    return path


def study_of(
    case: tuple[str, str],
    asked: argparse.Namespace,
    words: list[str],
    binary: Path,
    where: Path,
    folder: Path,
    counts: list[int],
) -> Path:
    """Trace a mode."""
    study = folder / f"{case[0]}-{case[1]}"
    program = command(case, asked, binary, where)
    told = ["-n", ",".join(map(str, counts)), "-r", "3", "-o", str(study), "--", *words, *program]
    p3s("characterize", *told)
    p3s("model", str(study))
    return study


def row(case: tuple[str, str], n: int, real: list[float], study: Path, system: Path) -> Row:
    """Return a mode's row."""
    measured = predicted(study, n, str(system))
    runs = predicted(study, n, "runs")
    middle = statistics.median(real)
    return Row(case[0], case[1] == "1", n, middle, min(real), max(real), measured, runs)


def predicted(study: Path, n: int, system: str) -> float:
    """Return the seconds of a checkpoint as the model says, its barriers with it."""
    told = ["-n", str(n), "--io", system, "--no-replay", "--only", "--json"]
    found = json.loads(p3s("predict", str(study), *told))
    last = next(count for count in found["counts"] if count["n"] == n)
    return float(last["io_s"]) / TIMES


def show(rows: list[Row]) -> None:
    """Print the rows."""
    print("mode        sync   n   real (least, most)           measured system   runs' own times")
    for one in rows:
        told = [
            f"{1e3 * s:8.1f} ms {100 * (s / one.real_s - 1):+6.1f} %"
            for s in (one.measured_s, one.runs_s)
        ]
        print(
            f"{one.mode:11} {'yes' if one.sync else 'no':4} {one.n:4} "
            f"{1e3 * one.real_s:8.1f} ms ({1e3 * one.real_low_s:.1f}, {1e3 * one.real_high_s:.1f})"
            f"   {told[0]}   {told[1]}"
        )


if __name__ == "__main__":
    sys.exit(main())
