"""Changes files at random and says what P3S makes of them.

    python benchmarks/fuzz_files.py --seconds 600          all levels, as many as there is time for
    python benchmarks/fuzz_files.py --level readers --inputs 2000      so many of every format
    python benchmarks/fuzz_files.py --level commands --format comms --first 17 --inputs 1

Levels: ``readers`` reads a changed file with what reads its format, in milliseconds; ``commands``
runs the whole commands that read it. Prints a line per input that crashed, hung or changed
a result without a word, and a table of each level. Exit code 1 where one did.
"""

from __future__ import annotations

import argparse
import collections
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from fuzzing import FORMATS, Bench, trials
from outcomes import Outcome, Trial
from reading import MEMORY, READERS, Files

BAD = (Outcome.SILENT, Outcome.CRASHED, Outcome.HUNG)
#: Address space that a command may ask for beside what is there already.
ROOM = 6 << 30
#: Shares of the time that the levels get.
LEVELS = {"readers": 0.6, "commands": 0.4}
#: Inputs of a format in one turn.
TURN = {"readers": 40, "commands": 2}
Counts = dict[str, collections.Counter[str]]
Source = Callable[[str, range], Iterator[Trial]]


def main() -> int:
    """Run the inputs; return the exit code."""
    given = options()
    bad = 0
    for level, share in LEVELS.items():
        if given.level and level not in given.level:
            continue
        whole = sum(LEVELS[each] for each in given.level or LEVELS)
        seconds = given.seconds and given.seconds * share / whole
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
            bad += _LEVELS[level](given, Path(folder), seconds)
    return int(bad > 0)


def readers(given: argparse.Namespace, folder: Path, seconds: float | None) -> int:
    """Read changed files with the readers of their formats; return how many of them did badly."""
    files = Files.made(folder)
    named = {reader.name: reader for reader in READERS}
    found = tried("readers", given, list(named), seconds, lambda n, r: files.trials(named[n], r))
    print(f"most memory that reading a file took: {files.memory >> 20} MiB\n")
    return found


def commands(given: argparse.Namespace, folder: Path, seconds: float | None) -> int:
    """Run the commands that read changed files; return how many of them did badly."""
    resource.setrlimit(resource.RLIMIT_AS, (ROOM, resource.RLIM_INFINITY))
    bench = Bench.made(folder)
    named = {form.name: form for form in FORMATS}
    found = tried("commands", given, list(named), seconds, lambda n, r: trials(bench, named[n], r))
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return found


def tried(
    level: str,
    given: argparse.Namespace,
    names: Sequence[str],
    seconds: float | None,
    source: Source,
) -> int:
    """Try inputs of all formats in turn, print what came of them; return how many did badly."""
    count: Counts = {n: collections.Counter() for n in names if n in (given.format or names)}
    end = time.monotonic() + (seconds or 1e9)
    first, last = given.first, given.first + given.inputs
    try:
        while time.monotonic() < end and first < last:
            for name, outcomes in count.items():
                if time.monotonic() < end:
                    for trial in source(name, range(first, min(first + TURN[level], last))):
                        outcomes[trial.outcome] += 1
                        tell(trial, given.all)
            first += TURN[level]
    finally:  # also when it is interrupted
        bad = table(level, count)
    return bad


def tell(trial: Trial, every: bool) -> None:
    """Print a line for an input that did badly, or for every one."""
    if trial.outcome in BAD or every:
        name = f"{trial.format} {trial.seed} {trial.outcome}"
        print(f"{name}: {trial.what} | {trial.said[:300]}", flush=True)


def table(level: str, count: Mapping[str, collections.Counter[str]]) -> int:
    """Print how often formats had which outcome; return how many were bad."""
    print(f"\n| {level:<16} | tried | " + " | ".join(Outcome) + " |")
    total: collections.Counter[str] = collections.Counter()
    for name, found in [*count.items(), ("all", total)]:
        if name != "all":
            total.update(found)
        cells = " | ".join(f"{found[outcome]:>{len(outcome)}}" for outcome in Outcome)
        print(f"| {name:<16} | {found.total():>5} | {cells} |")
    return sum(total[outcome] for outcome in BAD)


_LEVELS = {"readers": readers, "commands": commands}


def options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--level", action="append", choices=list(LEVELS), help="only this one")
    parser.add_argument("--inputs", type=int, default=None, help="of each format")
    parser.add_argument("--seconds", type=float, default=None)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--format", action="append", help="only this one; may be repeated")
    parser.add_argument("--all", action="store_true", help="a line for every input")
    given = parser.parse_args()
    if given.inputs is None:
        given.inputs = 100 if given.seconds is None else 1 << 40
    return given


if __name__ == "__main__":
    sys.exit(main())
