"""Commands in children of a process that has imported what they need, in less of the time.

A child is what a new process would be: a session, a directory, variables and descriptors of its
own, and what acts in it by LD_PRELOAD reads its variables anew. What differs is that its modules
are there: what happens while they are imported takes a process that is new.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib
import os
import runpy
import signal
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import TimeoutExpired
from typing import NoReturn

#: The variable that tells the processes of a trial.
MARK = "P3S_FAULT_TRIAL"
#: What it has to be in a process that starts commands so: room for what it is in them.
ROOM = "." * 200


class Forked:
    """A command in a child of this process, with what Popen has of it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Return the exit code. Errors: TimeoutExpired."""
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise TimeoutExpired("p3s", timeout)
            time.sleep(0.02)
        assert self.returncode is not None
        return self.returncode

    def kill(self) -> None:
        """End it at once."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def imported(names: Sequence[str]) -> None:
    """Import what commands have imported; what cannot be is left to them."""
    for name in names:
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def start(
    words: Sequence[str], place: Path, variables: Mapping[str, str], said: Path, modules: Path
) -> Forked:
    """Start ``p3s WORDS`` in a child; ``modules``: gets the names of those that it imported."""
    pid = os.fork()
    if pid:
        return Forked(pid)
    try:
        _become(place, variables, said)
        _run(words, modules)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(70)


def _become(place: Path, variables: Mapping[str, str], said: Path) -> None:
    """Take what a new process would get from its parent."""
    os.setsid()
    os.chdir(place)
    nothing = os.open(os.devnull, os.O_RDWR)
    errors = os.open(said, os.O_WRONLY | os.O_APPEND)
    for number, source in ((0, nothing), (1, nothing), (2, errors)):
        os.dup2(source, number)
    os.closerange(3, 1024)
    _mark(variables[MARK])
    os.environ.clear()
    os.environ.update(variables)
    atexit._clear()  # those of the parent
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if "P3S_FAULT" in variables:
        ctypes.CDLL(None).p3s_fault_begin()


def _mark(text: str) -> None:
    """Let /proc say in the place of this variable what it would of a new process."""
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_void_p
    place = getenv(MARK.encode())
    if place is None or len(text) >= len(ctypes.string_at(place)):
        raise RuntimeError(f"{MARK} of this process has no room for {text}")
    ctypes.memmove(place, text.encode() + bytes(1), len(text) + 1)


def _run(words: Sequence[str], modules: Path) -> NoReturn:
    sys.argv = ["p3s", *words]
    code: object = 0
    try:
        runpy.run_module("p3s", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
    if os.environ.get("P3S_FAULT", "").startswith("count"):
        modules.write_text("\n".join(name for name in sys.modules if name != "__main__"))
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    ctypes.CDLL(None).exit(code if isinstance(code, int) else bool(code))
    raise AssertionError("exit returned")
