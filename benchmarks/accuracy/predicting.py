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

from accuracy.programs import ROOT, Program

_TIMEOUT_S = 600.0


class PredictionError(Exception):
    """P3S refused or failed: one line."""


@dataclass(frozen=True)
class Predicted:
    """Run time at one count in s, its interval (None: none), and what it is made of.

    thesis_s: the thesis's sum (Eq. 8.1) of the same messages: every phase by itself, computation
    by the power law where it has one, calls without waiting. exit_code, reasons: of the command
    that was asked for this count, and the codes of what it says against it.
    """

    n: int
    time_s: float
    low_s: float | None
    high_s: float | None
    compute_s: float
    comm_s: float
    thesis_s: float | None = None
    exit_code: int | None = None
    reasons: tuple[str, ...] = ()


def study_of(program: Program, executable: str, captures: Sequence[Path], directory: Path) -> Path:
    """Make a study of captures; return its directory. ``executable``: what was traced."""
    shutil.rmtree(directory, ignore_errors=True)
    for capture in captures:
        # Every simulated rank has a core for itself, and nothing else runs there.
        (capture / "run.json").write_text(
            json.dumps(
                {
                    "schema": "p3s.run",
                    "schema_version": 1,
                    "argv": [executable, *program.arguments],
                    "traced": True,
                    "oversubscribed": False,
                }
            )
        )
    words = (*captures, "--", "mpiexec", "-n", "{np}", executable, *program.arguments)
    p3s("add", directory, *words, allowed=(0,))
    return directory


def p3s(*words: object, allowed: Sequence[int] = (0, 3)) -> int:
    """Run a command of P3S; return its exit code. Errors: PredictionError."""
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
    return done.returncode


def predicted(
    study: Path,
    traced: Sequence[int],
    asked: Sequence[int],
    machine: Path,
    further: Sequence[str] = (),
) -> dict[int, Predicted]:
    """Return the predictions at all counts with messages that cost what ``machine`` says.

    At the traced counts it is the model's time, not the measured one. Every other one is asked
    for by itself, so that it has an exit code of its own. ``further``: words for p3s predict.
    """
    p3s("model", study)
    shutil.copyfile(machine, study / "machine.json")
    found: dict[int, Predicted] = {}
    for n in asked:
        code = p3s(
            "predict",
            study,
            "-n",
            ",".join(map(str, (*traced, n))),
            "--estimator",
            "machine",
            "--no-replay",
            "--cores-per-node",
            1,
            *further,
        )
        said = json.loads((study / "prediction.json").read_text())
        against = [each["code"] for each in said["reasons"] if each["untrustworthy"]]
        for row in said["counts"]:
            if row["n"] == n or row["n"] not in found:
                found[row["n"]] = _of_row(row, code, tuple(dict.fromkeys(against)))
    return found


def _of_row(row: Mapping[str, Any], code: int, against: tuple[str, ...]) -> Predicted:
    return Predicted(
        row["n"],
        row["model_s"],
        row["model_low_s"],
        row["model_high_s"],
        row["compute_s"],
        row["comm_s"],
        sum(map(_thesis, row["phases"])),
        code,
        against,
    )


def _thesis(phase: Mapping[str, Any]) -> float:
    compute = phase["compute_s"] if phase["crm_i_s"] is None else phase["crm_i_s"]
    return float(compute + phase["comm_s"] - (phase["waiting_s"] or 0.0))


def as_row(one: Predicted, truth_s: float) -> Mapping[str, Any]:
    """Return a prediction beside its truth, for the raw file."""
    return {
        **vars(one),
        "truth_s": truth_s,
        "error": one.time_s / truth_s - 1.0,
        "thesis": None if one.thesis_s is None else one.thesis_s / truth_s - 1.0,
        "covered": None
        if one.low_s is None or one.high_s is None
        else one.low_s <= truth_s <= one.high_s,
    }
