"""``p3s view``: the report of a study in a browser, here or through an ssh tunnel."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from p3s.base.errors import P3SError
from p3s.base.text import quoted, visible
from p3s.cli.common import out

if TYPE_CHECKING:
    from collections.abc import Callable
    from http.server import HTTPServer

EPILOG = """Without a display, as on a login node, the page is served to this machine alone, at an
address that nobody can guess, until Ctrl-C.

\b
Example:
  p3s view study
  p3s view study --serve --port 8000"""


def view(
    study_dir: Path = typer.Argument(..., metavar="STUDY", help="Study directory."),
    serve: bool = typer.Option(False, "--serve", help="Serve the page, also where a display is."),
    port: int = typer.Option(
        0,
        "--port",
        min=0,
        max=65535,
        metavar="PORT",
        show_default=False,
        help="Port to serve it at [default: any].",
    ),
    no_source: bool = typer.Option(
        False, "--no-source", help="Quote no lines of the program's source on the page."
    ),
) -> int:
    """Open the report of a study in the browser, or serve it on localhost for a remote login.

    Writes report.html first where there is none, or where it is older than the prediction; with
    --no-source in any case.
    """
    page = _page(study_dir, source=not no_source)
    if not serve and not port and _display() and _opened(page):
        out(f"opened {page}")
        return 0
    _serve(page, port, lambda url: out("\n".join(_how(url))))
    return 0


def _page(study_dir: Path, *, source: bool) -> Path:
    """Return the page, as the prediction is now; ``source``: it may quote the program's."""
    from p3s.base.study import Study
    from p3s.methods.threads.settings import has_threads
    from p3s.predict.outdated import as_of_now
    from p3s.predict.saved import PredictionFile
    from p3s.report.html import write_html
    from p3s.report.view import view_of

    study = Study.open(study_dir)
    page = study.report_path
    if has_threads(study):
        if not page.exists():
            raise P3SError(f"{page}: there is none; write it: p3s report {quoted(study_dir)}")
        return page
    saved = PredictionFile.load(study.root)
    old = not page.exists() or page.stat().st_mtime < study.prediction_path.stat().st_mtime
    if old or not source:
        write_html(view_of(study, as_of_now(saved).content, source=source), page)
    return page


def _display() -> bool:
    """Tell whether somebody sits before this machine."""
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _opened(page: Path) -> bool:
    import webbrowser

    return webbrowser.open(page.absolute().as_uri())


def _how(url: str) -> list[str]:
    """Return how to see what is served."""
    import getpass
    import socket

    port = url.split(":")[2].split("/")[0]
    here = f"{visible(getpass.getuser())}@{visible(socket.gethostname())}"
    return [
        f"open {url}",
        f"from elsewhere: ssh -L {port}:localhost:{port} {here}, then the same address",
        "Ctrl-C ends it",
    ]


def _serve(page: Path, port: int, ready: Callable[[str], None]) -> None:
    """Serve one page on this machine until it is interrupted; ready is told where."""
    server, path = server_of(page, port)
    with server:
        ready(f"http://localhost:{server.server_port}{path}")
        server.serve_forever()


def server_of(page: Path, port: int) -> tuple[HTTPServer, str]:
    """Return a server of one page for this machine alone, and the page's path there.

    The path has 128 random bits: other users of the machine can reach the port. Errors: P3SError
    where the port cannot be had.
    """
    import secrets
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    path = f"/{secrets.token_urlsafe(16)}/{page.name}"

    class One(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not secrets.compare_digest(self.path.encode(), path.encode()):
                self.send_error(404)
                return
            data = page.read_bytes()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing of each request."""

    try:
        return ThreadingHTTPServer(("127.0.0.1", port), One), path
    except OSError as error:
        raise P3SError(f"--port {port}: {error.strerror}; take another, or leave it out") from error
