"""``p3s model``: equations per phase from the small counts."""

from __future__ import annotations

from pathlib import Path

import typer

from p3s.cli.common import JSON_OPTION, emit_json, out, progress, quoted, say

EPILOG = """\b
Example:
  p3s model study
Next:
  p3s scale study -n 64      (the trace at 64 processes)
  p3s predict study -n 64    (its run time)"""


def model(
    study_dir: Path = typer.Argument(..., metavar="STUDY", help="Study directory."),
    holdout: bool = typer.Option(
        True,
        "--holdout/--no-holdout",
        help="Check the model on the largest count before fitting all.",
    ),
    everything: bool = typer.Option(False, "--all", help="All phases and all rules."),
    json_: bool = JSON_OPTION,
) -> int:
    """Fit equations per phase, say how sure each one is, and check them on the largest count.

    Exit code 3 when the model, fitted without the largest count, misses anything there.
    """
    from p3s.cli.pipeline import ensure_model
    from p3s.predict.prediction import missed
    from p3s.study import Study, read_json

    study = Study.open(study_dir)
    with progress(2) as bar:
        # Asked for by name: fit again even when the model is newer than its signatures.
        ensure_model(study, bar, holdout=holdout, again=True)
    fitted = read_json(study.model_path, "p3s.model")
    if json_:
        emit_json(fitted)
    else:
        from p3s.report.equations import render
        from p3s.report.places import resolve_sites

        places, unresolved = resolve_sites(study, fitted.get("sites", {}))
        out(render(fitted, places, everything))
    say(f"next: p3s predict {quoted(study.root)} -n COUNTS")
    held = fitted.get("holdout")
    if isinstance(held, dict) and held.get("possible", True):
        wrong = missed(held, limit=1.0)
        if wrong:
            say("low confidence: " + "; ".join(wrong))
            return 3
    return 0
