"""Where a report comes from: program, runs, replays, and the commands to make it again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from p3s.base.text import command_line, percent, seconds, visible
from p3s.base.version import __version__
from p3s.pipeline.content import Program, StudyContent
from p3s.predict.types import Prediction


def plain(value: Any) -> str:
    """Return a value of JSON as words."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {plain(entry)}" for key, entry in value.items())
    if isinstance(value, (list, tuple)):
        return "; ".join(plain(entry) for entry in value) or "none"
    return str(value)


def facts_of(content: StudyContent) -> list[tuple[str, str]]:
    """Return pairs of what and its value: program, version, runs, replays, estimator, machine."""
    program, prediction = content.program, content.prediction
    facts = [
        ("program", visible(command_line(program.command), 400)),
        ("p3s", __version__),
        ("study made", visible(program.created)),
    ]
    for run in program.runs:
        detail = [
            run.status,
            *["left out of the model"] * (run.np in program.left_out),
            f"launcher ran for {seconds(run.info.get('wall_s'))}",
        ]
        if run.info.get("oversubscribed"):
            detail.append(f"ranks shared {run.info.get('cores', '?')} cores")
        if run.info.get("mpi"):
            detail.append(plain(run.info["mpi"]))
        facts.append((f"traced at {run.np} (run {run.rep})", visible(", ".join(detail))))
    for n, replayed in content.replays.items():
        nodes = visible(", ".join(dict.fromkeys(str(k) for k in replayed.get("nodes") or () if k)))
        detail = [
            f"on {nodes or '?'}",
            f"{visible(str(replayed.get('iterations', '?')))} iterations",
        ]
        share = replayed.get("measured_share")
        if share is not None:
            detail.append(f"{percent(share)} of the events measured")
        facts.append((f"replayed at {n}", ", ".join(detail)))
    if estimator := visible(prediction.estimator, 400):
        why = visible(prediction.estimator_why, 400)
        facts.append(("communication", estimator + (f": {why}" if why else "")))
    for key, value in (prediction.machine or {}).items():
        if isinstance(value, (str, int, float)):
            facts.append((f"machine: {visible(str(key))}", visible(plain(value), 400)))
    return facts


def commands_of(program: Program, prediction: Prediction) -> list[str]:
    """Return the commands that make the report again, in the order to type them."""
    name = shlex.quote(visible(program.name) or "study")
    command = visible(command_line(program.command), 2000)
    traced = ",".join(map(str, program.complete))
    without = ",".join(map(str, program.left_out))
    modelled = {*program.complete} - {*program.left_out}
    every = [row.n for row in prediction.counts]
    asked = [n for n in every if n not in modelled]
    counts = ",".join(map(str, asked or every))
    most = max((run.rep for run in program.runs), default=0) + 1
    repeats = f" -r {most}" if most > 1 else ""
    knee = prediction.knee_efficiency
    knee_text = "" if knee == 0.5 else f" --knee {knee:g}"
    return [
        f"p3s characterize -n {traced}{repeats} -o {name} -- {command}",
        f"p3s model {name}" + f" --without {without}" * bool(without),
        f"p3s predict {name} -n {counts}{knee_text}",
        f"p3s report {name}",
    ]
