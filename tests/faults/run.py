"""Faults in every command: python tests/faults/run.py [--trials N] [--seed S] [--commands A,B].

Traces a small program, disturbs commands on copies of its study at operations that are drawn, and
tells what was survived. Exit code 1 when something was not. Needs an MPI and a C compiler.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]

from fault_trials import Command, Matrix, compiled, drawn  # noqa: E402

#: Larger than what is traced; 8 is also replayed.
COUNTS = "8,16"


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


def traced(study: Path) -> object:
    """Return the calls of each run of a study, complete or not at all."""
    words = [sys.executable, "-m", "p3s", "check", str(study), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    runs = json.loads(done.stdout)["runs"]
    return [
        (Path(run["path"]).name, run["status"], sum(rank["events"] for rank in run["ranks"]))
        for run in runs
        if not run["path"].endswith(".failed")
    ]


def measured(study: Path) -> object:
    """Return what a machine file holds, without its figures."""
    path = study / "machine.json"
    return sorted(json.loads(path.read_text())) if path.exists() else None


def replayed(study: Path) -> object:
    """Return which messages a replay has costs of."""
    found = json.loads((study / "replay" / "np000008.json").read_text())
    return found["schema"], found["n"], len(found.get("messages", []))


def commands(program: Path) -> list[Command]:
    """Return what is disturbed; every study has three counts, a model and scaled traces."""
    launch = ("--", "mpiexec", "-n", "{np}", str(program), "--nx", "101", "--iterations", "5")
    runs = ("characterize", "-n", "2,3", "-o", "study", *launch)
    return [
        Command("characterize", runs, ("runs/", "signature/", "study.json", "model.json",
                "compute.json"), False, traced),
        Command("model", ("model", "study"), ("model.json", "compute.json", "signature/")),
        Command("scale", ("scale", "study", "-n", COUNTS), ("scaled/",)),
        Command("predict", ("predict", "study", "-n", COUNTS, "--no-replay"),
                ("scaled/", "prediction.json", "study.json")),
        Command("report", ("report", "study"), ("report", "scaled/", "prediction.json")),
        Command("replay", ("replay", "study", "-n", "8", "--budget", "1s"), ("replay/",),
                False, replayed),
        Command("machine measure", ("machine", "measure", "--quick", "--no-network", "-o",
                "study/machine.json"), ("machine.json",), False, measured),
    ]  # fmt: skip


def main() -> None:
    """Run the trials and print their table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--trials", type=int, default=500)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--commands", default="")
    options.add_argument("--program", type=Path, default=ROOT / "examples" / "bin" / "jacobi2d")
    given = options.parse_args()
    work = Path(tempfile.mkdtemp(prefix="p3s-faults-"))
    try:
        shim = compiled(work)
        if shim is None:
            sys.exit("no C compiler: no faults")
        known = commands(given.program.resolve())
        names = given.commands.split(",") if given.commands else [one.name for one in known]
        p3s(work, "characterize", "-n", "2,3,4", "-o", "study", *known[0].words[5:])
        p3s(work, "predict", "study", "-n", COUNTS, "--no-replay")
        shutil.rmtree(work / "study" / "scaled" / "np000016")  # something is to be made
        matrix = Matrix(work / "study", work, shim)
        survived: Counter[tuple[str, str]] = Counter()
        tried: Counter[tuple[str, str]] = Counter()
        chosen = [one for one in known if one.name in names]
        for number, (command, fault, draw) in enumerate(drawn(chosen, given.seed, given.trials)):
            outcome = matrix.trial(command, fault, draw)
            tried[command.name, fault] += 1
            survived[command.name, fault] += not outcome.wrong
            if outcome.wrong:
                print(f"{number}: {outcome}", flush=True)
        for name in names:
            row = {f: n for (command, f), n in tried.items() if command == name}
            good = sum(survived[name, f] for f in row)
            print(f"{name}: {good} of {sum(row.values())} survived")
        total, good = sum(tried.values()), sum(survived.values())
        print(f"all: {good} of {total} survived (seed {given.seed})")
        sys.exit(good != total)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
