"""``p3s view``: the report of a study in a browser, here or through an ssh tunnel."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p3s.base.errors import P3SError
from p3s.base.text import visible
from p3s.cli.common import STUDY, out
from p3s.cli.helptext import option

if TYPE_CHECKING:
    from collections.abc import Callable
    from http.server import HTTPServer

    from p3s.base.study import Study

#: Connections that are served at once (browsers open up to six), and seconds that one may idle.
CONNECTIONS, _IDLE_S = 16, 30

EPILOG = """Without a display, as on a login node, the page is served to this machine alone, at an
address that nobody can guess, until Ctrl-C.

\b
Example:
  p3s view study
  p3s view study --serve --port 8000"""


def view(
    study_dir: Path = STUDY,
    serve: bool = option(False, "--serve", "Serve the page, also where a display is."),
    port: int = option(0, "--port PORT", "Port to serve it at [default: any].", min=0, max=65535),
    no_source: bool = option(
        False, "--no-source", "Quote no lines of the program's source on the page."
    ),
) -> int:
    """Open the report of a study in the browser, or serve it on localhost for a remote login.

    The page is made from the study as it is now; opening it writes report.html.
    """
    from p3s.base.study import Study

    study = Study.open(study_dir)
    return show(study, _page(study, source=not no_source), serve, port)


def show(study: Study, page: bytes, serve: bool, port: int) -> int:
    """Open a page in the browser or serve it."""
    from p3s.base.study import write_bytes

    if not serve and not port and _display():
        write_bytes(study.report_path, page)
        if _opened(study.report_path):
            out(f"opened {study.report_path}")
            return 0
    _serve(page, port, lambda url: out("\n".join(_how(url))))
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


def _serve(page: bytes, port: int, ready: Callable[[str], None]) -> None:
    """Serve one page on this machine until it is interrupted; ready is told where."""
    server, path = server_of(page, port)
    with server:
        ready(f"http://localhost:{server.server_port}{path}")
        server.serve_forever()


def server_of(page: bytes, port: int) -> tuple[HTTPServer, str]:
    """Return a server of one page for this machine alone, and the page's path there.

    The path has 128 random bits: other users of the machine can reach the port. Errors: P3SError
    where the port cannot be had.
    """
    import secrets
    import sys
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
    from threading import BoundedSemaphore

    from p3s.report.html import policy

    path = f"/{secrets.token_urlsafe(16)}/report.html"
    headers = {
        "Content-Type": "text/html; charset=utf-8",
        "Content-Length": str(len(page)),
        "Cache-Control": "no-store",
        "Content-Security-Policy": f"{policy()}; frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
    }
    free = BoundedSemaphore(CONNECTIONS)

    class One(BaseHTTPRequestHandler):
        timeout = _IDLE_S

        def do_GET(self) -> None:
            if not secrets.compare_digest(self.path.encode(), path.encode()):
                self.send_error(404)
                return
            self.send_response(200)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing of each request."""

    class Bounded(ThreadingHTTPServer):
        def process_request(self, request: Any, client_address: Any) -> None:
            if free.acquire(blocking=False):
                super().process_request(request, client_address)
            else:
                self.shutdown_request(request)

        def process_request_thread(self, request: Any, client_address: Any) -> None:
            try:
                super().process_request_thread(request, client_address)
            finally:
                free.release()

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Say nothing of a browser that went away."""
            if not isinstance(sys.exception(), OSError):
                super().handle_error(request, client_address)

    try:
        return Bounded(("127.0.0.1", port), One), path
    except OSError as error:
        raise P3SError(f"--port {port}: {error.strerror}; take another, or leave it out") from error
