"""Faults in every command: python tests/faults/run.py [--trials N] [--seed S] [--commands A,B].

Traces a small program, disturbs commands on copies of its study at operations that are drawn, and
tells what was survived. Exit code 1 when something was not. Needs an MPI and a C compiler; a user
who may mount file systems also tries small and read-only ones.

--log FILE keeps what each trial gave, and those that it has are not tried again: many trials can
be made in parts (--seconds S: none is begun after that).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, replace
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]

import fault_trials as ft  # noqa: E402
from fault_trials import Command, Matrix, Outcome  # noqa: E402

#: Larger than what is traced; 8 is also replayed.
COUNTS = "8,16"
#: p3s, whose ``machine measure --quick`` takes a second: its figures are not looked at.
START = """import sys
from p3s.machine import measure
measure.QUICK_S = 1.0
from p3s.__main__ import main
sys.exit(main())"""


def p3s(folder: Path, *words: str) -> None:
    """Run a command that has to succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "p3s", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 3):
        sys.exit(f"p3s {' '.join(words)}: {done.stderr}")


def measured(study: Path) -> object:
    """Return what a machine file holds, without its figures."""
    path = study / "machine.json"
    return sorted(json.loads(path.read_text())) if path.exists() else None


def replayed(study: Path) -> object:
    """Return which messages a replay has costs of."""
    found = json.loads((study / "replay" / "np000008.json").read_text())
    return found["schema"], found["n"], len(found.get("messages", []))


def commands(program: Path, mounts: bool) -> list[Command]:
    """Return what is disturbed; every study has three counts, a model and scaled traces."""
    launch = ("--", "mpiexec", "-n", "{np}", str(program), "--nx", "101", "--iterations", "5")
    runs = ("characterize", "-n", "2,3", "-o", "study", "--no-repeat", "--timeout", "15", *launch)
    own = (*ft.FAULTS, *(ft.MOUNTS if mounts else ()))
    jobs = (*own, *ft.RANKS)
    measure = ("machine", "measure", "--quick", "-o", "study/machine.json")
    return [
        Command("characterize", runs, ("runs/", "signature/", "study.json", "model.json",
                "compute.json"), False, ft.traced, jobs),
        Command("model", ("model", "study"), ("model.json", "compute.json", "signature/"),
                faults=own),
        Command("scale", ("scale", "study", "-n", COUNTS), ("scaled/",), faults=own),
        Command("predict", ("predict", "study", "-n", COUNTS, "--no-replay"),
                ("scaled/", "prediction.json", "study.json"), faults=own),
        Command("report", ("report", "study"), ("report", "scaled/", "prediction.json"),
                faults=own),
        Command("replay", ("replay", "study", "-n", "8", "--budget", "1s"), ("replay/",),
                False, replayed, jobs, 33.0),
        Command("machine measure", (*measure, "--no-network"), ("machine.json",), False, measured,
                own),
        Command("machine measure with messages", measure, ("machine.json",), False, measured,
                tuple(ft.RANKS)),
    ]  # fmt: skip


def prepared(work: Path, program: Path) -> tuple[list[Command], Matrix]:
    """Return commands, and a place to try them in, with a copy of a traced study."""
    known = commands(program, ft.can_mount(work))
    launch = known[0].words[known[0].words.index("--") :]
    p3s(work, "characterize", "-n", "2,3,4", "-o", "study", *launch)
    p3s(work, "predict", "study", "-n", COUNTS, "--no-replay")
    shutil.rmtree(work / "study" / "scaled" / "np000016")  # something is to be made
    first = work / "first"
    first.mkdir()
    shim = ft.compiled(work)
    if shim is None:
        sys.exit("no C compiler: no faults")
    return known, Matrix(work / "study", first, shim, (sys.executable, "-c", START))


Trial = tuple[Command, str, int]


class Worker:
    """Makes trials in a directory of its own, one after the other; knows until when."""

    def __init__(self, first: Matrix, inexact: Collection[str], until: float) -> None:
        place = Path(tempfile.mkdtemp(dir=first.work.parent))
        self.matrix, self.until = first.at(place, inexact), until

    def trial(self, trial: Trial) -> Outcome | None:
        """Return the outcome of a trial, None when there is no time for it."""
        if time.monotonic() > self.until:
            return None
        try:
            return self.matrix.trial(*trial)
        finally:
            self.matrix.close()


_own: list[Worker] = []


def _begin(first: Matrix, inexact: Collection[str], until: float) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _own.append(Worker(first, inexact, until))


def _tried(trial: Trial) -> Outcome | None:
    return _own[0].trial(trial)


@contextmanager
def workers(
    first: Matrix, inexact: Collection[str], number: int, until: float
) -> Iterator[ProcessPoolExecutor]:
    """Give processes that make trials."""
    begin = (first, inexact, until)
    with ProcessPoolExecutor(number, get_context("fork"), _begin, begin) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def read_log(path: Path | None) -> dict[int, Outcome]:
    """Return the outcomes that a log has, by the number of the trial."""
    if path is None or not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {row.pop("number"): Outcome(**row) for row in rows}


def told(outcomes: Sequence[Outcome]) -> None:
    """Print what was survived, by command and by fault."""
    for what in ("command", "fault"):
        print(f"\n| {what} | trials | survived |\n|---|---|---|")
        for name in dict.fromkeys(getattr(one, what) for one in outcomes):
            mine = [one for one in outcomes if getattr(one, what) == name]
            print(f"| {name} | {len(mine)} | {sum(not one.wrong for one in mine)} |")


def main() -> None:
    """Run the trials and print their tables."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--trials", type=int, default=500)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--commands", default="")
    options.add_argument("--faults", default="")
    options.add_argument("--program", type=Path, default=ROOT / "examples" / "bin" / "jacobi2d")
    options.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    options.add_argument("--seconds", type=float, default=float("inf"))
    options.add_argument("--log", type=Path)
    given = options.parse_args()
    work = Path(tempfile.mkdtemp(prefix="p3s-faults-"))
    try:
        _make(given, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _make(given: argparse.Namespace, work: Path) -> None:
    until = time.monotonic() + given.seconds
    outcomes = read_log(given.log)
    known, first = prepared(work, given.program.resolve())
    trials = list(enumerate(ft.drawn(_chosen(known, given), given.seed, given.trials)))
    left = {k: trial for k, trial in trials if k not in outcomes}
    for command, fault, draw in left.values():
        first.undisturbed(command, ft.kind_of(fault, draw))
    first.close()
    inexact = [one.name for one in known if not one.exact]
    with workers(first, inexact, given.jobs, until) as pool:
        asked = {pool.submit(_tried, trial): k for k, trial in left.items()}
        for done in as_completed(asked):
            outcome, number = done.result(), asked[done]
            if outcome is not None:
                outcomes[number] = outcome
                _keep(given.log, number, outcome)
    _end([outcomes[k] for k in sorted(outcomes) if k < given.trials], given.trials, given.seed)


def _chosen(known: Sequence[Command], given: argparse.Namespace) -> list[Command]:
    names, faults = (text.split(",") if text else [] for text in (given.commands, given.faults))
    chosen = [one for one in known if not names or one.name in names]
    if faults:
        chosen = [
            replace(one, faults=tuple(each for each in one.faults if each in faults))
            for one in chosen
        ]
    return chosen


def _keep(log: Path | None, number: int, outcome: Outcome) -> None:
    if outcome.wrong or not outcome.happened:
        print(f"{number}: {outcome}", flush=True)
    if log is not None:
        with open(log, "a") as file:
            file.write(json.dumps({"number": number, **asdict(outcome)}) + "\n")


def _end(outcomes: Sequence[Outcome], asked: int, seed: int) -> None:
    told(outcomes)
    good = sum(not one.wrong for one in outcomes)
    idle = sum(not one.happened for one in outcomes)
    print(f"\nall: {good} of {len(outcomes)} survived (seed {seed}, {idle} did not happen)")
    if len(outcomes) < asked:
        print(f"{asked - len(outcomes)} of {asked} not tried yet")
    sys.exit(good != len(outcomes))


if __name__ == "__main__":
    main()
