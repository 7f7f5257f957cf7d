"""Something computed in a second process while this one goes on.

Fitting all counts and fitting without the largest need nothing of each other: with a second core
both take the time of one. What comes back is plain data in JSON, never objects.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any


class Aside:
    """A function without arguments whose result, JSON data, is wanted later.

    It runs in a forked process where there are two cores and a fork; else, and where that
    process ends without a result, in this one when the result is asked for.
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._process: multiprocessing.process.BaseProcess | None = None
        if (
            len(os.sched_getaffinity(0)) < 2
            or "fork" not in multiprocessing.get_all_start_methods()
        ):
            return
        context = multiprocessing.get_context("fork")
        self._reader, writer = context.Pipe(duplex=False)
        try:
            self._process = context.Process(target=_run, args=(function, writer), daemon=True)
            self._process.start()
        except OSError:  # no process to be had: later, here
            self._process = None
        writer.close()

    def result(self) -> Any:
        """Return what the function returns; raises what it raises."""
        if self._process is None:
            return self._function()
        text = b""
        with contextlib.suppress(EOFError, OSError):
            text = self._reader.recv_bytes()
        self._reader.close()
        self._process.join()
        self._process = None
        # Whatever went wrong there goes wrong here again, where it can be told.
        return json.loads(text) if text else self._function()


def _run(function: Callable[[], Any], writer: Connection) -> None:
    """Send the result; say nothing of errors, the parent finds them again."""
    try:
        from p3s.study import as_json

        text = as_json(function()).encode("utf-8")
    except BaseException:
        os._exit(1)
    writer.send_bytes(text)
    writer.close()
    os._exit(0)
