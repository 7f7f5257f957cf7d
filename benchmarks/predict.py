"""What predictions of many ranks cost: CPU time and peak memory of the whole `p3s predict`.

    python benchmarks/all.py --only predict

The programs are the examples themselves, traced at 4 to 27 processes and modelled before. Each
prediction is a process of its own on a fresh copy of the study, the scaled trace and what changes
save included.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from figures import P3S, Figure, Found, Point, Used, whole
from traced import TRACED, modelled

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
