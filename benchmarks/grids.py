"""How far predictions by smaller process grids are from those that simulate every rank.

    python benchmarks/all.py --only grids,grids:campaign

Each count of each study is predicted twice by `p3s predict`, once with `--every-rank` and once with
smaller grids, which also counts get here that p3s would not shorten: run times and communications
apart, and whether the intervals of the smaller grids hold what every rank says.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figures import TIMEOUT_S, Figure, Found
from traced import TRACED, modelled

QUICK, COUNTS = (1024,), (4096, 16384)
NETWORK = ("--network", "slingshot")
#: p3s with smaller grids above a count that is given first.
_SHORTENED = """import sys
from p3s.predict.estimators import fewer
fewer.EVERY_RANK = int(sys.argv.pop(1))
from p3s.__main__ import main
sys.exit(main())"""


@dataclass(frozen=True)
class Answer:
    """One prediction: seconds and communication with intervals."""

    time_s: float
    low_s: float
    high_s: float
    comm_s: float
    comm_low_s: float
    comm_high_s: float


@dataclass(frozen=True)
class Pair:
    """A count of a program, by smaller grids and by every rank."""

    program: str
    n: int
    few: Answer
    every: Answer

    @property
    def apart(self) -> float:
        """Run time by smaller grids over that by every rank, less one."""
        return self.few.time_s / self.every.time_s - 1

    @property
    def comm_apart(self) -> float:
        """The same of communication."""
        return self.few.comm_s / max(self.every.comm_s, 1e-30) - 1

    @property
    def held(self) -> bool:
        """Whether the interval of the smaller grids holds the run time by every rank."""
        return self.few.low_s <= self.every.time_s <= self.few.high_s

    @property
    def comm_held(self) -> bool:
        """The same of communication."""
        return self.few.comm_low_s <= self.every.comm_s <= self.few.comm_high_s


def answer(study: Path, n: int, every: bool, words: Sequence[str]) -> Answer:
    """Predict a count on a fresh copy of a study; raises SystemExit where that fails."""
    with tempfile.TemporaryDirectory(prefix="p3s-grids-") as folder:
        fresh = Path(folder) / study.name
        shutil.copytree(study, fresh, ignore=shutil.ignore_patterns("scaled"))
        p3s = [sys.executable, "-c", _SHORTENED, str(n - 1)]
        command = [*p3s, "predict", fresh, "-n", str(n), "--json"]
        done = subprocess.run(
            [*map(str, command), *words, *(["--every-rank"] if every else [])],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    if done.returncode not in (0, 3):
        raise SystemExit(f"{study.name} at {n}: exit {done.returncode}: {done.stderr[-500:]}")
    told = json.loads(done.stdout)
    row = next((row for row in told["counts"] if row["n"] == n), None)
    if row is None or row["time_s"] is None:
        raise SystemExit(f"{study.name} at {n}: no run time: {done.stderr[-500:]}")
    return Answer(
        row["time_s"],
        row["low_s"] or 0.0,
        row["high_s"] or float("inf"),
        row["comm_s"],
        *_ends(row),
    )


def _ends(row: dict[str, Any]) -> tuple[float, float]:
    """Return the ends of communication: by how much they alone move the run time."""
    low, high = row["interval_parts"]["replay"] or (0.0, float("inf"))
    return (row["comm_s"] - (1 - low) * row["model_s"], row["comm_s"] + (high - 1) * row["model_s"])


def pairs(
    studies: Sequence[Path], counts: Sequence[int], words: Sequence[str] = NETWORK
) -> Iterator[Pair]:
    """Yield each count of each study, as it is predicted; those that fail are told on stderr."""
    for study in studies:
        for n in counts:
            try:
                few, every = (answer(study, n, each, words) for each in (False, True))
            except (SystemExit, subprocess.TimeoutExpired) as err:
                print(f"{study.name}: {err}", file=sys.stderr, flush=True)
                continue
            yield Pair(study.name, n, few, every)


def examples(folder: Path) -> list[Path]:
    """Trace and model the examples in a folder."""
    for name in TRACED:
        modelled(name, folder / name)
    return [folder / name for name in TRACED]


def figures(quick: bool) -> Found:
    """Return how far smaller grids are from every rank in the examples."""
    with tempfile.TemporaryDirectory(prefix="p3s-grids-") as folder:
        studies = examples(Path(folder))
        return Found(tuple(figures_of(pairs(studies, QUICK if quick else COUNTS))))


def figures_of(found: Iterable[Pair]) -> Iterator[Figure]:
    """Yield how far smaller grids are from every rank."""
    for pair in found:
        of = f"{pair.program} at {pair.n:,} ranks by smaller grids, against every rank"
        for what, share in (("run time", pair.apart), ("communication", pair.comm_apart)):
            yield Figure(f"{of}: {what} apart by", abs(100 * share), "%")
        held = float(pair.held and pair.comm_held)
        yield Figure(f"{of}: both inside their intervals (1: yes)", held, "")


def campaign(quick: bool) -> Found:
    """Return the same for the studies that are named in P3S_BENCH_STUDIES, at 512 processes.

    P3S_BENCH_WORDS: words for p3s predict beside the typical network.
    """
    studies = [Path(each) for each in os.environ["P3S_BENCH_STUDIES"].split(os.pathsep)]
    words = os.environ.get("P3S_BENCH_WORDS", "").split()
    return Found(tuple(figures_of(pairs(studies, (512,), words or NETWORK))))


PARTS = {"campaign": campaign}
