"""Processes of a launcher: found by a mark that they inherit, ended with it, none left behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

#: Variable of the mark.
MARK = "P3S_RUN_ID"
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_ASKED_S = 1.0


def new_mark() -> str:
    """Return a mark that no other run has."""
    return secrets.token_hex(16)


def find_marked(mark: str) -> list[int]:
    """Return the ids of the processes of a run on this machine, by the mark they inherited."""
    variable = f"{MARK}={mark}".encode()
    pids = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if variable in file.read().split(b"\0"):
                    pids.append(int(name))
        except OSError:
            continue
    return pids


def stop(process: subprocess.Popen[Any], mark: str, grace_s: float) -> None:
    """End a launcher that leads a session, then every process of the run that is left."""
    if process.poll() is None:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(grace_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    # Launchers put ranks into sessions of their own; an ended launcher can leave them behind.
    survivors = find_marked(mark)
    if survivors:
        _signal(survivors, signal.SIGTERM)
        deadline = time.monotonic() + _ASKED_S
        while find_marked(mark) and time.monotonic() < deadline:
            time.sleep(0.05)
        _signal(find_marked(mark), signal.SIGKILL)


def run_session(
    argv: Sequence[str],
    timeout_s: float,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    grace_s: float = 0.0,
) -> subprocess.CompletedProcess[str]:
    """Run a command in a session of its own until it ends; nothing that it starts is left.

    Also where it is stopped, or this process is ended meanwhile. ``grace_s``: what it has to end
    by itself when it is asked to. Raises OSError where it cannot be started,
    subprocess.TimeoutExpired.
    """
    mark = new_mark()
    with subprocess.Popen(
        list(argv),
        cwd=cwd,
        env={**(os.environ if env is None else env), MARK: mark},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
        preexec_fn=end_with_parent(),
    ) as process:
        try:
            output, errors = process.communicate(timeout=timeout_s)
        finally:
            stop(process, mark, grace_s)
    return subprocess.CompletedProcess(argv, process.returncode, output, errors)


def _signal(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def end_with_parent() -> Callable[[], None] | None:
    """Return what makes a child get SIGTERM when this process dies, even by SIGKILL.

    A launcher has a session of its own: nothing else would end it. None where there is no prctl.
    """
    try:
        prctl = ctypes.CDLL(None).prctl  # looked up now: the child must do as little as possible
    except (OSError, AttributeError):
        return None
    parent, number = os.getpid(), int(signal.SIGTERM)

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent:  # it died before it could be asked for
            os._exit(1)

    return ask


def give_back() -> None:
    """Return freed memory to the system; the C library keeps it where others lie above it.

    Columns of a million entries come and go by the dozen, and those that stay lie between those
    that go. Without malloc_trim (it is glibc's) nothing happens.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))
