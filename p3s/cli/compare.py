"""``p3s compare``: predictions of two studies side by side, or of several versions."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from p3s.base.errors import UsageError
from p3s.cli.common import emit, out, say_reasons, write_out


def compare(
    a: Path,
    b: Path,
    more: list[Path] | None,
    history: bool,
    count: int | None,
    picture: list[Path],
    html: Path | None,
    csv: bool,
    json_: bool,
) -> int:
    """Compare the predictions of two studies: times with intervals, and the phases that differ.

    Exit code 3 when one of them is not to be trusted.
    """
    if history or more:
        return _history([a, b, *(more or ())], history, count, csv, json_)
    from p3s.pipeline.records import command_of
    from p3s.pipeline.saved import read_prediction
    from p3s.report.compare import as_columns, as_json, as_text, page_of
    from p3s.report.compare import compare as compared
    from p3s.report.counts import columns_csv
    from p3s.report.pictures import comparison_picture, format_of

    for path in picture:
        format_of(path)
    first, second = read_prediction(a), read_prediction(b)
    names = (str(a), str(b))
    comparison = compared(
        first, second, names=names, commands=(command_of(a), command_of(b)), n=count
    )
    for path in picture:
        comparison_picture(comparison).save(path)
    if html is not None:
        from p3s.base.artefacts import write_bytes
        from p3s.report.charts.curves import comparison as comparison_chart
        from p3s.report.charts.figures import on_page
        from p3s.report.html import as_bytes, render_page

        chart = partial(on_page, partial(comparison_chart, found=comparison), 640.0)
        write_bytes(html, as_bytes(render_page(page_of(comparison, chart))))
    if json_:
        emit(
            "compare",
            **as_json(comparison),
            pictures=[str(path) for path in picture],
            page=None if html is None else str(html),
        )
    elif csv:
        write_out(columns_csv(as_columns(comparison)))
    else:
        out(as_text(comparison))
        for path in picture:
            out(f"picture: {path}")
        if html is not None:
            out(f"page: {html}")
    return say_reasons(comparison.reasons, "comparison", printed=not (json_ or csv))


def _history(paths: list[Path], several: bool, n: int | None, csv: bool, json_: bool) -> int:
    """Print the run time at a count of several versions, each against the one before."""
    if not several:
        raise UsageError("give two studies, or more of them with --history")
    from p3s.pipeline.saved import read_prediction
    from p3s.report.counts import columns_csv
    from p3s.report.history import as_columns, as_json, as_text, history_of

    history = history_of(
        [read_prediction(path) for path in paths], [str(path) for path in paths], n
    )
    if json_:
        emit("history", **as_json(history))
    elif csv:
        write_out(columns_csv(as_columns(history)))
    else:
        out(as_text(history))
    return say_reasons(history.reasons, "comparison", printed=not (json_ or csv))
