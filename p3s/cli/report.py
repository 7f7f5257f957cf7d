"""``p3s report``: the prediction as HTML, pictures, tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from p3s.base.errors import UsageError
from p3s.cli.common import emit, out, quote_word, say, say_reasons, write_out

if TYPE_CHECKING:
    from p3s.pipeline.saved import PredictionFile


def report(
    study_dir: Path,
    output: Path | None,
    picture: list[Path],
    plot: list[str],
    size: str,
    no_source: bool,
    csv: bool,
    phases: bool,
    json_: bool,
) -> int:
    """Write report.html (one offline file) and speedup.png, and print what it says first.

    Exit code 3 when the prediction is not to be trusted: the report says why.
    """
    from p3s.pipeline.commands import Commands, count_to_validate
    from p3s.pipeline.records import as_of_now, load_study, model_record
    from p3s.pipeline.saved import PredictionFile

    drawn = pictures_of(picture, plot, size)
    study = load_study(study_dir)
    prediction = as_of_now(PredictionFile.load(study_dir))
    if csv:
        return _print_csv(prediction, phases)
    from p3s.pipeline.content import content_of
    from p3s.report.html import write_html
    from p3s.report.pictures import SIZE, picture_of
    from p3s.report.places import phase_places
    from p3s.report.sections import parts_of
    from p3s.report.sure import verdict_of
    from p3s.report.terminal import render

    record = model_record(study, foreign=not no_source)
    content = content_of(record, prediction.content, source=not no_source)
    parts = parts_of(content)
    page = output or study.report_path
    write_html(content, page, parts)
    for path, name, inches in [(study.speedup_png_path, "speedup", SIZE), *drawn]:
        picture_of(prediction.content, name, inches).save(path)
    if json_:
        emit(
            "report",
            verdict=verdict_of(prediction.content),
            report=str(page),
            picture=str(study.speedup_png_path),
            pictures=[str(path) for path in picture],
            prediction=dict(prediction.data),
        )
    else:
        places = phase_places(content.model, content.places)
        explain = f"p3s explain {quote_word(study_dir)}"
        changes = any(each.asked for each in prediction.content.what_if)
        text = render(
            prediction.content, places, explain=explain, more="on the page", changes=changes
        )
        out(text)
        for part in parts:
            for line in part.lines:
                out(line)
        out("")
        out(f"report: {page}")
        for path in (study.speedup_png_path, *picture):
            out(f"picture: {path}")
    if code := say_reasons(prediction.reasons, printed=not json_):
        return code
    if n := count_to_validate(study, prediction.counts):
        say(f"next: {Commands(study).validate(n)}")
    return 0


def _print_csv(prediction: PredictionFile, phases: bool) -> int:
    from p3s.report.counts import counts_csv, phases_csv

    write_out((phases_csv if phases else counts_csv)(prediction))
    return say_reasons(prediction.reasons)


def pictures_of(
    paths: list[Path], plots: list[str], size: str
) -> list[tuple[Path, str, tuple[float, float]]]:
    """Return file, plot and size of every picture; raises UsageError before anything is drawn."""
    if not paths:
        return []
    from p3s.report.pictures import PLOTS, SIZE, format_of, size_of

    for name in plots:
        if name not in PLOTS:
            raise UsageError(f"--plot {name}: give one of {', '.join(PLOTS)}")
    if len(plots) > len(paths):
        raise UsageError(f"{len(plots)} times --plot, but {len(paths)} times --picture")
    for path in paths:
        format_of(path)
    plots_given = plots or ["speedup"]
    plots_given = plots_given + plots_given[-1:] * (len(paths) - len(plots_given))
    inches = size_of(size) if size else SIZE
    return [(path, name, inches) for path, name in zip(paths, plots_given, strict=True)]
