"""``p3s next``: which process count to trace next, and why."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import typer

from p3s.cli.common import JSON_OPTION, emit_json, header, out, progress, quoted, say
from p3s.errors import P3SError
from p3s.study import Study

EPILOG = """\b
Example:
  p3s next study
Next:
  p3s characterize -n COUNT -o study -- ...   (the command it prints)
  p3s model study"""


def next_(
    study_dir: Path = typer.Argument(..., metavar="STUDY", help="Study directory."),
    json_: bool = JSON_OPTION,
) -> int:
    """Name the process counts whose traces would decide most about the model, and the command."""
    from p3s.cli.pipeline import ensure_model
    from p3s.model.stage import load

    study = Study.open(study_dir)
    with progress(2) as bar:
        ensure_model(study, bar)
    model = load(study.root)
    wanted = model.get("next", [])
    words = command(study, model, [each["n"] for each in wanted]) if wanted else []
    if json_:
        emit_json({**header("next"), "study": str(study.root), "counts": wanted,
                   "command": words})  # fmt: skip
        return 0
    from p3s.report.next import render

    shown = shlex.join(words).replace("'{np}'", "{np}")
    out(render(model, shown))
    if wanted:
        say(f"then: p3s model {quoted(study.root)}")
    return 0


def command(study: Study, model: dict[str, Any], counts: list[int]) -> list[str]:
    """Return the command that traces ``counts`` in addition, as words."""
    try:
        launcher = study.command()
    except P3SError:  # put together from runs that do not say it
        launcher = ["mpiexec", "-n", "{np}", "PROGRAM"]
    unit = ["--work", "instructions"] if model.get("work_unit") == "instructions" else []
    return ["p3s", "characterize", "-n", ",".join(map(str, sorted(set(counts)))), *unit,
            "-o", str(study.root), "--", *launcher]  # fmt: skip
