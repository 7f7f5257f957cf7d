"""``p3s view``: the report of a study in a browser, here or through an ssh tunnel."""

from __future__ import annotations

import os
from pathlib import Path

from p3s.cli.common import out


def view(study_dir: Path, serve: bool, port: int, no_source: bool) -> int:
    """Open the report of a study in the browser, or serve it on localhost for a remote login.

    The page is made from the study as it is now; opening it writes report.html.
    """
    from p3s.pipeline.content import content_of
    from p3s.pipeline.records import as_of_now, load_study, model_record
    from p3s.pipeline.saved import PredictionFile
    from p3s.report.html import as_bytes, render
    from p3s.report.sections import parts_of

    # A report.html that is there is not shown: whoever made the study may have written anything.
    prediction = as_of_now(PredictionFile.load(study_dir)).content
    record = model_record(load_study(study_dir), foreign=not no_source)
    content = content_of(record, prediction, source=not no_source)
    return show(study_dir, as_bytes(render(content, parts_of(content))), serve, port)


def show(root: Path, page: bytes, serve: bool, port: int) -> int:
    """Open the page of the study in a directory in the browser, or serve it."""
    import webbrowser

    from p3s.base.artefacts import write_bytes

    somebody = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if not serve and not port and somebody:
        path = root / "report.html"
        write_bytes(path, page)
        if webbrowser.open(path.absolute().as_uri()):
            out(f"opened {path}")
            return 0
    from p3s.cli.served import serve as served

    served(page, port)
    return 0
