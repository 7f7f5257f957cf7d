"""``p3s report``: the prediction as HTML, picture and table."""

from __future__ import annotations

from pathlib import Path

import typer

from p3s.cli.common import JSON_OPTION, emit_json, header, out, quoted, say

EPILOG = """\b
Example:
  p3s report study
Next:
  p3s validate study -n 64    (run at 64 and compare)"""


def report(
    study_dir: Path = typer.Argument(..., metavar="STUDY", help="Study directory."),
    json_: bool = JSON_OPTION,
) -> int:
    """Write report.html (one offline file) and speedup.png, and print the table and the curve."""
    from p3s.report.html import write_html
    from p3s.report.png import write_png
    from p3s.report.terminal import render
    from p3s.report.view import build_view
    from p3s.study import Study, read_json

    study = Study.open(study_dir)
    view = build_view(study)
    write_html(view, study.report_path)
    write_png(view.points, study.speedup_png_path)
    prediction = read_json(study.prediction_path, "p3s.prediction")
    if json_:
        emit_json(
            {
                **header("report"),
                "verdict": view.verdict,
                "report": str(study.report_path),
                "picture": str(study.speedup_png_path),
                "prediction": prediction,
            }
        )
    else:
        out(render(prediction))
        out("")
        out(f"report: {study.report_path}")
        out(f"picture: {study.speedup_png_path}")
    if view.doubts:
        say("low confidence: " + "; ".join(view.doubts))
        return 3
    say(f"next: p3s validate {quoted(study.root)} -n COUNT")
    return 0
