"""How far predictions by smaller process grids are from those that simulate every rank.

    python benchmarks/grids.py [STUDY...] [--counts 4096,16384] [--json] [-- WORDS OF p3s predict]

Each count of each study is predicted twice by `p3s predict`, once with `--every-rank` and once with
smaller grids, which also counts get here that p3s would not shorten. Without studies: the examples,
traced at 4 to 27 processes. Prints both run times and communications, by how much they are apart,
whether the interval of the smaller grids holds what every rank says, exit codes with the reasons
behind them, and CPU times of the commands. A study whose numbers follow no law has no smaller
grids; that is said, too. Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# This directory has a replay.py, which must not be taken for the package.
sys.path = [
    *(path for path in sys.path if Path(path).resolve() != HERE),
    str(HERE.parent),
    str(HERE),
]

from figures import TIMEOUT_S, Figure, Found  # noqa: E402
from traced import TRACED, modelled  # noqa: E402

QUICK, COUNTS = (1024,), (4096, 16384)
NETWORK = ("--network", "slingshot")
#: p3s with smaller grids above a count that is given first.
_SHORTENED = """import sys
from p3s.predict.estimators import fewer
fewer.EVERY_RANK = int(sys.argv.pop(1))
from p3s.__main__ import main
sys.exit(main())"""
#: What the note of a prediction by smaller grids says of them.
_SAID = "were simulated with the sizes and the work of the large one"


@dataclass(frozen=True)
class Answer:
    """One prediction: seconds and communication with intervals, exit code, reasons, CPU seconds.

    ``grids``: what is said of the smaller grids, nothing where every rank was simulated.
    """

    time_s: float
    low_s: float
    high_s: float
    comm_s: float
    comm_low_s: float
    comm_high_s: float
    code: int
    reasons: tuple[str, ...]
    cpu_s: float
    grids: str


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
        before = sum(os.times()[2:4])
        done = subprocess.run(
            [*map(str, command), *words, *(["--every-rank"] if every else [])],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        took = sum(os.times()[2:4]) - before
    if done.returncode not in (0, 3):
        raise SystemExit(f"{study.name} at {n}: exit {done.returncode}: {done.stderr[-500:]}")
    told = json.loads(done.stdout)
    row = next((row for row in told["counts"] if row["n"] == n), None)
    if row is None or row["time_s"] is None:
        raise SystemExit(f"{study.name} at {n}: no run time: {done.stderr[-500:]}")
    reasons = [r["code"] for r in told["reasons"] if r["untrustworthy"]]
    grids = "; ".join(note for note in told["notes"] if _SAID in note)
    return Answer(
        row["time_s"],
        row["low_s"] or 0.0,
        row["high_s"] or float("inf"),
        row["comm_s"],
        *_ends(row),
        done.returncode,
        tuple(dict.fromkeys(reasons)),
        took,
        grids,
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
    found = []
    with tempfile.TemporaryDirectory(prefix="p3s-grids-") as folder:
        for pair in pairs(examples(Path(folder)), QUICK if quick else COUNTS):
            of = f"{pair.program} at {pair.n:,} ranks by smaller grids, against every rank"
            for what, share in (("run time", pair.apart), ("communication", pair.comm_apart)):
                found.append(Figure(f"{of}: {what} apart by", abs(100 * share), "%"))
            held = float(pair.held and pair.comm_held)
            found.append(Figure(f"{of}: both inside their intervals (1: yes)", held, ""))
    return Found(tuple(found))


def shown(found: Sequence[Pair]) -> str:
    """Return the table as Markdown."""
    lines = [
        "| program | processes | smaller grids, ms (interval) | every rank, ms | apart |"
        " communication apart | both held | exit code of both | CPU time of both, s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for p in found:
        few = f"{1e3 * p.few.time_s:.4g} ({1e3 * p.few.low_s:.4g} to {1e3 * p.few.high_s:.4g})"
        codes = " / ".join(
            f"{each.code} {', '.join(each.reasons)}".strip() for each in (p.few, p.every)
        )
        words = ("yes" if each else "no" for each in (p.held, p.comm_held))
        held = " / ".join(words) if p.few.grids else "has no smaller grids"
        lines.append(
            f"| {p.program} | {p.n:,} | {few} | {1e3 * p.every.time_s:.4g} |"
            f" {100 * p.apart:+.1f} % | {100 * p.comm_apart:+.1f} % | {held} | {codes} |"
            f" {p.few.cpu_s:.1f} / {p.every.cpu_s:.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("studies", nargs="*", type=Path, help="studies [default: the examples]")
    parser.add_argument("--counts", default=",".join(map(str, COUNTS)), help="process counts")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    own, _, words = " ".join(sys.argv[1:]).partition(" -- ")
    told = parser.parse_args(own.split())
    counts = [int(n) for n in told.counts.split(",")]
    with tempfile.TemporaryDirectory(prefix="p3s-grids-") as folder:
        studies = told.studies or examples(Path(folder))
        found = list(pairs(studies, counts, words.split() or NETWORK))
    print(json.dumps([asdict(p) for p in found], indent=1) if told.json else shown(found))


if __name__ == "__main__":
    main()
