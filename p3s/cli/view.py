"""``p3s view``: the report of a study in a browser, here or through an ssh tunnel."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.cli.common import out

if TYPE_CHECKING:
    from p3s.base.study import Study


def view(study_dir: Path, serve: bool, port: int, no_source: bool) -> int:
    """Open the report of a study in the browser, or serve it on localhost for a remote login.

    The page is made from the study as it is now; opening it writes report.html.
    """
    from p3s.base.study import Study

    study = Study.open(study_dir)
    return show(study, _page(study, source=not no_source), serve, port)


def show(study: Study, page: bytes, serve: bool, port: int) -> int:
    """Open a page in the browser or serve it."""
    import webbrowser

    from p3s.base.study import write_bytes

    somebody = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if not serve and not port and somebody:
        write_bytes(study.report_path, page)
        if webbrowser.open(study.report_path.absolute().as_uri()):
            out(f"opened {study.report_path}")
            return 0
    from p3s.cli.served import serve as served

    served(page, port)
    return 0


def _page(study: Study, *, source: bool) -> bytes:
    """Return the page of a study; ``source``: it may quote the program's.

    A report.html that is there is not shown: whoever made the study may have written anything.
    """
    from p3s.pipeline.content import content_of
    from p3s.predict.saved import PredictionFile, as_of_now
    from p3s.report.html import as_bytes, render
    from p3s.report.sections import parts_of

    prediction = as_of_now(PredictionFile.load(study.root)).content
    content = content_of(study, prediction, source=source)
    return as_bytes(render(content, parts_of(study, prediction)))
