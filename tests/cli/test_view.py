"""The page of a study in a browser: opened, or served to this machine alone."""

from __future__ import annotations

import socket
import struct
import threading
import time
import urllib.error
import urllib.request
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from commands import cli
from made_predictions import made_prediction
from report_studies import put_study

from p3s.base.errors import P3SError
from p3s.cli import served
from p3s.cli.served import CONNECTIONS, server_of
from p3s.pipeline import content


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A study with a prediction and no page."""
    return put_study(tmp_path / "study", made_prediction()).root


def test_the_page_is_written_and_opened(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or True)
    page = study / "report.html"
    page.unlink(missing_ok=True)
    cli(f"view {study}")
    assert opened == [page.as_uri()] and page.exists()


def test_a_page_of_somebody_else_is_not_shown(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages: list[bytes] = []
    mine = tmp_path / "mine.html"
    mine.write_text("private")
    page = study / "report.html"
    page.unlink(missing_ok=True)
    page.symlink_to(mine)
    monkeypatch.setattr(served, "serve", lambda page, *_: pages.append(page))
    cli(f"view {study} --serve")
    page.unlink()
    page.write_text("<script>alert(1)</script>")
    cli(f"view {study} --serve")
    assert all(b"P3S" in each and b"alert(1)" not in each for each in pages) and len(pages) == 2
    page.unlink()
    page.symlink_to(mine)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "open", lambda url: True)
    cli(f"view {study}")
    assert not page.is_symlink() and page.read_bytes() == pages[0]
    assert mine.read_text() == "private"


def test_a_page_for_others_quotes_no_source(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "open", lambda url: True)
    real = content.content_of

    def content_of(*all: Any, source: bool = True) -> content.StudyContent:
        asked.append(source)
        return real(*all, source=source)

    monkeypatch.setattr(content, "content_of", content_of)
    cli(f"view {study}")
    cli(f"view {study} --no-source")
    cli(f"view {study}")
    assert asked == [True, False, True]


@contextmanager
def serving(page: bytes) -> Iterator[tuple[str, str, int]]:
    """Serve a page; give the address of the server, the page's path there, and the port."""
    server, path = server_of(page, 0)
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", path, server.server_port
        finally:
            server.shutdown()


def test_only_who_knows_the_address_gets_the_page() -> None:
    with serving(b"<p>curve</p>") as (base, path, port):
        with urllib.request.urlopen(base + path, timeout=120) as answer:
            assert answer.read() == b"<p>curve</p>"
            policy = answer.headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'") and "frame-ancestors 'none'" in policy
        for other in ("/", "/report.html", path + "x", "/../report.html"):
            with pytest.raises(urllib.error.HTTPError):
                urllib.request.urlopen(base + other, timeout=120)
        with pytest.raises(P3SError, match="take another"):
            server_of(b"", port)


def test_connections_are_bounded(capfd: pytest.CaptureFixture[str]) -> None:
    page = b"x" * (8 << 20)  # more than buffers of sockets hold
    with serving(page) as (base, path, port):
        held = [socket.create_connection(("127.0.0.1", port), 60) for _ in range(CONNECTIONS)]
        for each in held:  # its thread is there once it has answered
            each.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert each.recv(12).startswith(b"HTTP/1.0 200")
        with socket.create_connection(("127.0.0.1", port), 60) as one_more:
            with suppress(ConnectionError):
                one_more.sendall(f"GET {path} HTTP/1.1\r\n\r\n".encode())
                assert one_more.recv(12) == b""
        for each in held:  # the browser goes away in the middle of the page
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            each.close()
        for _ in range(600):  # until the threads of the closed ones have ended
            with suppress(OSError), urllib.request.urlopen(base + path, timeout=60) as answer:
                assert len(answer.read()) == len(page)
                break
            time.sleep(0.1)
        else:
            raise AssertionError("no connection is free again")
    assert capfd.readouterr().err == ""
