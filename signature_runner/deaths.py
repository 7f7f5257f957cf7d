"""Sees in which order the ranks of a run on this machine end.

Launchers end the other ranks when one has died, and MPICH's may then name one of those. But the
kernel marks a word in the capture of a rank when that begins to end, before any launcher can
know: of the first mark that is seen alone, nothing else can be the cause.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import socket
import struct
import threading
import time
from pathlib import Path

from p3s.base.errors import P3SError
from p3s.capture.chunks import read_header
from p3s.capture.layout import ALIVE_OFFSET, OWNER_DIED, PAGE_BYTES

_LOOK_S = 0.02
_SYS_FUTEX_WAITV = 449  # on all architectures but alpha; Linux 5.16
_MOST_WORDS = 128
_U32_SHARED = 2  # FUTEX2_SIZE_U32, without FUTEX2_PRIVATE


class Deaths(threading.Thread):
    """Watches the captures of a run directory until told to stop.

    ``order``: process ids in the order in which they were seen to end; those that had ended
    between two looks are together. Ranks on other machines are not seen.
    """

    def __init__(self, run_dir: Path, np: int) -> None:
        super().__init__(daemon=True)
        self.order: list[frozenset[int]] = []
        self._run_dir = run_dir
        self._np = np
        self._page_of: dict[int, mmap.mmap] = {}
        self._known: set[str] = set()
        self._done = threading.Event()

    def run(self) -> None:
        """Look for ranks and for ends of ranks."""
        while not self._done.is_set():
            self._find()
            if not _wait_for_mark(list(self._page_of.values()), _LOOK_S):
                self._done.wait(_LOOK_S)
            self._look()

    def _look(self) -> None:
        self._find()  # one that was not known yet may have ended before those that were
        ended = frozenset(pid for pid, page in self._page_of.items() if _is_marked(page))
        if ended:
            self.order.append(ended)
        for pid in ended:
            self._page_of.pop(pid).close()

    def _find(self) -> None:
        if len(self._known) >= self._np:
            return
        host = socket.gethostname()
        for path in self._run_dir.glob("rank-*.p3t"):
            if path.name in self._known:
                continue
            try:
                header = read_header(path)
                with open(path, "r+b") as file:
                    page = mmap.mmap(file.fileno(), PAGE_BYTES)
            except (P3SError, OSError, ValueError):
                continue  # not written yet
            self._known.add(path.name)
            if header.host == host:
                self._page_of[header.pid] = page

    def end(self) -> list[frozenset[int]]:
        """Stop watching and return the order."""
        self._done.set()
        self.join()
        self._look()
        for page in self._page_of.values():
            page.close()
        return self.order


def _word(page: mmap.mmap) -> int:
    return int(struct.unpack_from("<I", page, ALIVE_OFFSET)[0])


def _is_marked(page: mmap.mmap) -> bool:
    return bool(_word(page) & OWNER_DIED)


class _Wait(ctypes.Structure):
    """struct futex_waitv of linux/futex.h."""

    _fields_ = [
        ("value", ctypes.c_uint64),
        ("address", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


class _Time(ctypes.Structure):
    """struct __kernel_timespec."""

    _fields_ = [("seconds", ctypes.c_int64), ("nanoseconds", ctypes.c_int64)]


def _wait_for_mark(pages: list[mmap.mmap], limit_s: float) -> bool:
    """Sleep until the kernel marks one of the words; False at once where it cannot tell."""
    if not pages or len(pages) > _MOST_WORDS:
        return False
    waits = (_Wait * len(pages))()
    for wait, page in zip(waits, pages, strict=True):
        word = ctypes.c_uint32.from_buffer(page, ALIVE_OFFSET)
        wait.value, wait.address = word.value, ctypes.addressof(word)
        wait.flags = _U32_SHARED
        if word.value & OWNER_DIED or not word.value:
            return word.value != 0
        del word  # it would keep the page from being closed
    until = time.monotonic_ns() + int(limit_s * 1e9)
    when = _Time(until // 10**9, until % 10**9)
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(
        _SYS_FUTEX_WAITV, waits, len(pages), 0, ctypes.byref(when), time.CLOCK_MONOTONIC
    )
    return result >= 0 or ctypes.get_errno() in (errno.ETIMEDOUT, errno.EAGAIN, errno.EINTR)
