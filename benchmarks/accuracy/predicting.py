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

from accuracy import cluster
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
    """Make a study of captures, with its model; return its directory."""
    shutil.rmtree(directory, ignore_errors=True)
    for capture in captures:
        # Every simulated rank has a core for itself, and nothing else runs there.
        (capture / "run.json").write_text(json.dumps({
            "schema": "p3s.run", "schema_version": 1, "argv": [program.name, *program.arguments],
            "traced": True, "oversubscribed": False}))
    p3s("add", directory, *captures, "--", "mpiexec", "-n", "{np}", program.name,
        *program.arguments)
    p3s("model", directory)
    return directory


def p3s(*words: object, allowed: Sequence[int] = (0, 3)) -> str:
    """Run a command of P3S; return its standard output. Errors: PredictionError."""
    done = subprocess.run([sys.executable, "-m", "p3s", *map(str, words)], capture_output=True,
                          text=True, errors="replace", check=False, cwd=ROOT, timeout=_TIMEOUT_S)
    if done.returncode not in allowed:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
        raise PredictionError(f"p3s {words[0]}: exit code {done.returncode}: {lines[-1][:300]}")
    return done.stdout


def predicted(study: Path, counts: Sequence[int], machine: Path) -> dict[int, Predicted]:
    """Return the predictions at ``counts`` with messages that cost what ``machine`` says."""
    from p3s.predict.estimators import Setting, estimate_many
    from p3s.study import Study

    p3s("scale", study, "-n", ",".join(map(str, counts)))
    opened = Study.open(study)
    found = estimate_many("machine", opened, counts, machine=machine, jobs=1,
                          setting=Setting(ranks_per_node=1,
                                          collectives=f"bcast={cluster.BROADCAST[1]}"))
    return {n: _run_time(opened, found[n]) for n in counts}


def _run_time(study: Any, of: Any) -> Predicted:
    """Return the run time: of the rank whose computation and communication take longest."""
    from p3s.predict.times import compute_seconds

    slot_of = {number: i for i, number in enumerate(of.phases)}
    compute = compute_seconds(study.scaled_dir(of.n), of.n, slot_of).sum(axis=1)
    comm = of.comm.sum(axis=1)
    slowest = int((compute + comm).argmax())
    return Predicted(of.n, float(compute[slowest] + comm[slowest]), None, None,
                     float(compute[slowest]), float(comm[slowest]))


def as_row(one: Predicted, truth_s: float) -> Mapping[str, Any]:
    """Return a prediction beside its truth, for the raw file."""
    return {**vars(one), "truth_s": truth_s, "error": one.time_s / truth_s - 1.0,
            "covered": None if one.low_s is None or one.high_s is None
            else one.low_s <= truth_s <= one.high_s}
