"""From captures of small runs to the run time at larger counts, by what P3S has for it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accuracy.cluster import BROADCAST
from accuracy.programs import ROOT, Program

_TIMEOUT_S = 600.0


class PredictionError(Exception):
    """P3S refused or failed: one line."""


@dataclass(frozen=True)
class Predicted:
    """Run time at one count in s, its interval (None: none), and what it is made of."""

    n: int
    time_s: float
    low_s: float | None
    high_s: float | None
    compute_s: float
    comm_s: float


def study_of(program: Program, captures: Sequence[Path], directory: Path) -> Path:
    """Make a study of captures; return its directory."""
    shutil.rmtree(directory, ignore_errors=True)
    for capture in captures:
        # Every simulated rank has a core for itself, and nothing else runs there.
        (capture / "run.json").write_text(
            json.dumps(
                {
                    "schema": "p3s.run",
                    "schema_version": 1,
                    "argv": [program.name, *program.arguments],
                    "traced": True,
                    "oversubscribed": False,
                }
            )
        )
    p3s(
        "add", directory, *captures, "--", "mpiexec", "-n", "{np}", program.name, *program.arguments
    )
    return directory


def p3s(*words: object, allowed: Sequence[int] = (0, 3)) -> str:
    """Run a command of P3S; return its standard output. Errors: PredictionError."""
    done = subprocess.run(
        [sys.executable, "-m", "p3s", *map(str, words)],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        cwd=ROOT,
        timeout=_TIMEOUT_S,
    )
    if done.returncode not in allowed:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
        raise PredictionError(f"p3s {words[0]}: exit code {done.returncode}: {lines[-1][:300]}")
    return done.stdout


def predicted(study: Path, counts: Sequence[int], machine: Path) -> dict[int, Predicted]:
    """Return the predictions at ``counts`` with messages that cost what ``machine`` says.

    At counts that were traced it is the model's time, not the measured one.
    """
    p3s("model", study)
    shutil.copyfile(machine, study / "machine.json")
    p3s(
        "predict",
        study,
        "-n",
        ",".join(map(str, counts)),
        "--estimator",
        "machine",
        "--no-replay",
        "--cores-per-node",
        1,
        "--collectives",
        f"bcast={BROADCAST[1]}",
    )
    rows = json.loads((study / "prediction.json").read_text())["counts"]
    return {
        row["n"]: Predicted(
            row["n"],
            row["model_s"],
            row["model_low_s"],
            row["model_high_s"],
            row["compute_s"],
            row["comm_s"],
        )
        for row in rows
    }


def as_row(one: Predicted, truth_s: float) -> Mapping[str, Any]:
    """Return a prediction beside its truth, for the raw file."""
    return {
        **vars(one),
        "truth_s": truth_s,
        "error": one.time_s / truth_s - 1.0,
        "covered": None
        if one.low_s is None or one.high_s is None
        else one.low_s <= truth_s <= one.high_s,
    }
