"""Sees which process of a job on this machine ends first, and what it was doing.

Launchers end all other processes when one is gone, some before any of them can say a word, and may
then name the wrong one. The kernel queues ends of processes in their order, before it tells the
parent: the first one that had not done all it should is the cause.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import threading
from pathlib import Path

from replay.engine.clocks import kernel
from replay.engine.job import PLACES
from replay.engine.watchdog import DONE, FAILED, pages_dir, read_page

_LOOK_S = 0.05


class Witness(threading.Thread):
    """Watches the processes of a job directory on the launching machine while in use (``with``).

    ``first``: what the first process was doing that was gone before it was done; None: no such,
    or some process failed and said so itself.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(name="witness", daemon=True)
        self.first: str | None = None
        self._directory = directory
        self._stopped = threading.Event()
        self._told = False
        self._pages: dict[int, int] = {}
        self._all: list[int] = []

    def __enter__(self) -> Witness:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self.join()

    def run(self) -> None:
        """Watch until told to stop; what has ended by then is still looked at."""
        pids: list[int] = []
        while not pids:
            with contextlib.suppress(OSError, ValueError, KeyError):
                pids = [place["pid"] if place["kernel"] == kernel() else 0
                        for place in json.loads((self._directory / PLACES).read_text())]
            if not pids and self._stopped.wait(_LOOK_S):
                return
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError, AttributeError):
            ends = stack.enter_context(select.epoll())
            for rank, pid in enumerate(pids):
                self._watch(ends, stack, rank, pid)
            while self._pages:
                last = self._stopped.is_set()
                self._look(ends, 0.0 if last else _LOOK_S)
                if last:
                    return

    def _watch(self, ends: select.epoll, stack: contextlib.ExitStack, rank: int,
               pid: int) -> None:
        path = pages_dir(self._directory, kernel()) / str(rank)
        with contextlib.suppress(OSError):
            if pid:
                page = os.open(path, os.O_RDONLY)
                stack.callback(os.close, page)
                end = os.pidfd_open(pid)
                stack.callback(os.close, end)
                self._pages[end] = page
                self._all.append(page)
                ends.register(end, select.EPOLLIN)

    def _look(self, ends: select.epoll, limit_s: float) -> None:
        for end, _event in ends.poll(limit_s):  # in the order in which they came
            page = self._pages.pop(end, None)
            if page is None:
                continue
            ends.unregister(end)
            if self.first is not None or self._told:
                continue
            words, doing = read_page(page)
            if not words[DONE]:
                # Of one that failed and takes the job down the others may end first.
                self._told = any(read_page(other)[0][DONE] == FAILED for other in self._all)
                if not self._told:
                    self.first = f"{doing}: the process is gone (killed, or it left by itself)"
