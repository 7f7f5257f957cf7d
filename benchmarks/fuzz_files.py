"""Changes files of a study at random and says what the commands make of them.

    python benchmarks/fuzz_files.py --inputs 200            so many inputs of every format
    python benchmarks/fuzz_files.py --seconds 600           as many as there is time for
    python benchmarks/fuzz_files.py --format comms --first 17 --inputs 1

Prints a line per input that crashed, hung or changed a result without a word, and a table. Exit
code 1 where one did.
"""

from __future__ import annotations

import argparse
import collections
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from fuzzing import FORMATS, Bench, Outcome, trials

BAD = (Outcome.SILENT, Outcome.CRASHED, Outcome.HUNG)
#: Address space that a command may ask for beside what is there already.
ROOM = 6 << 30


def main() -> int:
    """Run the inputs; return the exit code."""
    given = options()
    wanted = [form for form in FORMATS if not given.format or form.name in given.format]
    resource.setrlimit(resource.RLIMIT_AS, (ROOM, ROOM))
    count: dict[str, collections.Counter[str]] = {f.name: collections.Counter() for f in wanted}
    end = time.monotonic() + (given.seconds or 1e9)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench.made(Path(folder))
        step = 2 if given.seconds else given.inputs
        first = given.first
        while time.monotonic() < end and first < given.first + given.inputs:
            for form in wanted:
                for trial in trials(bench, form, range(first, first + step)):
                    count[form.name][trial.outcome] += 1
                    if trial.outcome in BAD or given.all:
                        name = f"{form.name} {trial.seed} {trial.outcome}"
                        print(f"{name}: {trial.what} | {trial.said[:300]}", flush=True)
                if time.monotonic() > end:
                    break
            first += step
    print(f"\n| {'format':<14} | tried | " + " | ".join(Outcome) + " |")
    total: collections.Counter[str] = collections.Counter()
    for name, found in [*count.items(), ("all", total)]:
        if name != "all":
            total.update(found)
        cells = " | ".join(f"{found[outcome]:>{len(outcome)}}" for outcome in Outcome)
        print(f"| {name:<14} | {found.total():>5} | {cells} |")
    return int(any(total[outcome] for outcome in BAD))


def options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
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
