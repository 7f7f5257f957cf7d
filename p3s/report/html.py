"""The report as one HTML file that opens from disk and requests nothing."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources
from pathlib import Path

from p3s.report.svg import picture
from p3s.report.view import View
from p3s.study import write_bytes


def render(view: View) -> str:
    """Return the report as HTML: every text escaped, nothing loaded, nothing executed."""
    from jinja2 import Environment, StrictUndefined

    folder = resources.files("p3s.report") / "templates"
    style = (folder / "report.css").read_text(encoding="utf-8").strip()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string((folder / "report.html").read_text(encoding="utf-8"))
    return template.render(view=view, picture=picture(view.points), style=style, digest=digest)


def write_html(view: View, path: Path) -> None:
    """Write the report to ``path``."""
    write_bytes(path, render(view).encode("utf-8", "backslashreplace"))
