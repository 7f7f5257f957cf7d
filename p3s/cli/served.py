"""One page for this machine alone, at an address that nobody can guess."""

from __future__ import annotations

import getpass
import secrets
import socket
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from threading import BoundedSemaphore
from typing import Any

from p3s.base.errors import P3SError
from p3s.base.text import visible
from p3s.cli.common import out
from p3s.report.html import policy

#: Connections that are served at once (browsers open up to six), and seconds that one may idle.
CONNECTIONS, _IDLE_S = 16, 30


def serve(page: bytes, port: int) -> None:
    """Serve one page until it is interrupted, and say how to see it."""
    server, path = server_of(page, port)
    with server:
        port = server.server_port
        address = f"{visible(getpass.getuser())}@{visible(socket.gethostname())}"
        out(f"open http://localhost:{port}{path}")
        tunnel = f"ssh -L {port}:localhost:{port} {address}"
        out(f"from elsewhere: {tunnel}, then the same address\nCtrl-C ends it")
        server.serve_forever()


def server_of(page: bytes, port: int) -> tuple[HTTPServer, str]:
    """Return a server of one page for this machine alone, and the page's path there.

    The path has 128 random bits: other users of the machine can reach the port. Errors: P3SError
    where the port cannot be had.
    """
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
