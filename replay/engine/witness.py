"""Sees which process of a job on this machine ends first, and what it was doing.

Launchers end all other processes when one is gone, some before any of them can say a word, and may
then name the wrong one. So every process on the launching machine holds a pipe open under a high
number: Linux closes the files of a process that ends beginning with the highest, so this one before
the connection to the launcher. It queues the ends of pipes in their order: the first process that
had not done all it should is the cause.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import select
import threading
from pathlib import Path

from p3s.replay.engine.clocks import kernel
from p3s.replay.engine.watchdog import DONE, FAILED, pages_dir, read_page

_LOOK_S = 0.05
_SUFFIX = ".alive"
_HIGH = 4000


def hold(directory: Path, rank: int) -> None:
    """Let a witness on this machine, if there is one, see the end of this process."""
    path = pages_dir(directory, kernel()) / f"{rank}{_SUFFIX}"
    with contextlib.suppress(OSError):
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        fcntl.fcntl(pipe, fcntl.F_DUPFD_CLOEXEC, max(pipe, min(_HIGH, limit - 1)))
        os.close(pipe)


class Witness(threading.Thread):
    """Watches the processes of a job directory while in use (``with``); begin before the launch.

    ``first``: what the first process was doing that was gone before it was done; None: no such,
    or some process failed and said so itself.
    """

    def __init__(self, directory: Path, size: int) -> None:
        super().__init__(name="witness", daemon=True)
        self.first: str | None = None
        self._pages = pages_dir(Path(directory), kernel())
        self._size = size
        self._stopped = threading.Event()
        self._told = False
        self._ranks: dict[int, int] = {}
        self._ends = select.epoll()

    def __enter__(self) -> Witness:
        with contextlib.suppress(OSError):
            for rank in range(self._size):
                path = self._pages / f"{rank}{_SUFFIX}"
                with contextlib.suppress(FileExistsError):
                    os.mkfifo(path, 0o600)
                pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                self._ranks[pipe] = rank
                self._ends.register(pipe, select.EPOLLHUP)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self.join()
        self._ends.close()
        for pipe in self._ranks:
            os.close(pipe)

    def run(self) -> None:
        """Watch until told to stop; what has ended by then is still looked at."""
        while not self._stopped.is_set():
            self._look(_LOOK_S)
        self._look(0.0)

    def _look(self, limit_s: float) -> None:
        for pipe, _event in self._ends.poll(limit_s):  # in the order in which they came
            self._ends.unregister(pipe)
            if self.first is not None or self._told:
                continue
            done, doing = self._read(self._ranks[pipe])
            if not done:
                # Of one that failed and takes the job down the others may end first.
                self._told = any(self._read(rank)[0] == FAILED for rank in range(self._size))
                if not self._told:
                    self.first = f"{doing}: the process is gone (killed, or it left by itself)"

    def _read(self, rank: int) -> tuple[int, str]:
        """Return a process's word about its end, and what it was doing."""
        with contextlib.suppress(OSError, ValueError):
            page = os.open(self._pages / str(rank), os.O_RDONLY)
            try:
                words, doing = read_page(page)
                return int(words[DONE]), doing
            finally:
                os.close(page)
        return 0, f"process {rank}, starting"
