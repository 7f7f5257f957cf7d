"""What predictions of many ranks cost: CPU time and peak memory of the whole `p3s predict`.

    python benchmarks/predict.py [--quick] [--only jacobi2d,halo3d,wavefront] [--counts 4096,16384]

The programs are the examples themselves, traced at 4 to 27 processes and modelled before. Each
prediction is a process of its own on a fresh copy of the study, the scaled trace and what changes
save included. Nothing here passes or fails: a prediction that cannot be used (exit code 3) is a
line that says so.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
# This directory has a replay.py, which must not be taken for the package.
sys.path = [
    *(path for path in sys.path if Path(path).resolve() != HERE),
    str(HERE.parent),
    str(HERE),
]

from figures import P3S, Figure, Found, Point, Used, whole  # noqa: E402
from traced import TRACED, modelled  # noqa: E402

QUICK, COUNTS = (1024, 4096), (1024, 4096, 16384, 1 << 16, 1 << 20)
#: Count -> CPU seconds and MiB that are aimed at, on two cores.
GOALS = {4096: (1.5, 150), 16384: (3.0, None), 1 << 20: (60.0, 2048)}
NETWORK = "slingshot"


@dataclass(frozen=True)
class Line:
    """One prediction: program, count, what the command used."""

    program: str
    n: int
    used: Used


def lines(programs: Sequence[str], counts: Sequence[int]) -> Iterator[Line]:
    """Yield the predictions, as they are made."""
    with tempfile.TemporaryDirectory(prefix="p3s-predict-") as folder:
        for program in programs:
            study = Path(folder) / program
            modelled(program, study)
            for n in counts:
                fresh = Path(folder) / f"{program}-{n}"
                shutil.copytree(study, fresh)
                words = [*P3S, "predict", fresh, "-n", str(n), "--network", NETWORK]
                yield Line(program, n, whole(words, ok=(0, 3)))
                shutil.rmtree(fresh)


def figures(quick: bool) -> Found:
    """Return CPU time and peak memory of each prediction, and how they grow with the ranks."""
    found, points = [], []
    for line in lines(list(TRACED), QUICK if quick else COUNTS):
        seconds, mib = GOALS.get(line.n, (None, None))
        of = f"p3s predict of {line.program} at {line.n:,} ranks"
        found.append(Figure(f"{of}: CPU time", line.used.cpu_s, "s", seconds))
        found.append(Figure(f"{of}: peak memory", line.used.peak_mib, "MiB", mib))
        name = f"p3s predict, {line.program}"
        points.append(Point("ranks", name, line.n, line.used.cpu_s, line.used.peak_mib))
    return Found(tuple(found), tuple(points))


def main() -> None:
    """Print a line for each prediction."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="small counts")
    parser.add_argument("--only", default=",".join(TRACED), help="programs")
    parser.add_argument("--counts", default="", help="process counts")
    told = parser.parse_args()
    counts = [int(n) for n in told.counts.split(",") if n] or (QUICK if told.quick else COUNTS)
    for line in lines(told.only.split(","), counts):
        used, said = line.used, "  cannot be used" if line.used.code else ""
        took = f"{used.cpu_s:8.2f} s CPU {used.peak_mib:8.0f} MiB"
        print(f"{line.program:12} {line.n:>9,} {took}{said}", flush=True)


if __name__ == "__main__":
    main()
