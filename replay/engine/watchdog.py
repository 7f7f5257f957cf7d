"""Ends a replay that does not move, or whose processes die, and says what they were doing.

Every process keeps a page: its numbers of progress, and as text its name and the program it
executes. The next process on the same machine holds the page open, so that it can still read it
when the process is gone, however it went. On the machine that the job was written on pages are
files of the job's directory, for the launcher to read; elsewhere they are anonymous memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from p3s.base.arrays import Ints
from p3s.replay.plan.program import EVENT, Code

#: Exit codes of a process that was stopped because nothing moved, or because another one died.
EXIT_STALLED = 86
EXIT_OTHER_DIED = 87
#: Marks the lines of the table of pending operations, and errors, in the output of the job.
STALL_MARK = "p3s replay: stalled: "
ERROR_MARK = "p3s replay: error: "

#: How often a process looks whether it has moved, at most: where cores are shared every look
#: disturbs somebody.
_POLL_S = 1.0
_FEWEST_POLLS = 10
#: A look that comes later than so many of its intervals was kept from coming.
_LATE = 2.0
#: Time for a line to be read before the process ends.
_LAST_WORD_S = 0.2
#: Time for the other processes to print their line before the first one takes the job down.
_GRACE_S = 2.0
_SHOWN = 4
#: Asks a process to say what it waits for.
_SAY = signal.SIGUSR1

#: Fields of struct progress in inner.c, then our own: process has done all it should, length of
#: the text, number of events behind it.
PASS, INDEX, STATE, BEATS, DONE, TEXT, EVENTS = range(7)
_OUTSIDE, _AT_START, _IN_PASS = range(3)
#: Values of DONE: the end is no news, or the process has said itself why it failed.
ENDED, FAILED = 1, 2
_WORDS = 16
_TEXT_BYTES = 512
_HEAD_BYTES = 8 * _WORDS + _TEXT_BYTES


def say(line: str) -> None:
    """Write one line to stderr at once, so that lines of processes do not mix."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


class Page:
    """The page of this process."""

    def __init__(self, path: Path | None = None) -> None:
        self.fd = -1
        if path is not None:
            with contextlib.suppress(OSError):
                self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        if self.fd < 0:
            self.fd = os.memfd_create("p3s-replay", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, _HEAD_BYTES)
        self._head = mmap.mmap(self.fd, _HEAD_BYTES)
        self.words: Ints = np.frombuffer(self._head, dtype=np.int64, count=_WORDS)

    def tell(self, text: str) -> None:
        """Say what the process is about."""
        raw = text.encode()[:_TEXT_BYTES]
        self.words[TEXT] = 0
        self._head[8 * _WORDS : 8 * _WORDS + len(raw)] = raw
        self.words[TEXT] = len(raw)
        self.words[BEATS] += 1

    def lay_down(self, events: npt.NDArray[np.void]) -> None:
        """Put the events that the numbers of progress are about beside them."""
        self.words[EVENTS] = 0
        self.words[INDEX] = self.words[STATE] = self.words[PASS] = 0
        os.ftruncate(self.fd, _HEAD_BYTES + events.nbytes)
        os.pwrite(self.fd, events.tobytes(), _HEAD_BYTES)
        self.words[EVENTS] = len(events)

    def done(self, how: int = ENDED) -> None:
        """Say that the process may end from now on, and whether it is the one that failed."""
        self.words[DONE] = how


def pages_dir(directory: Path, kernel: str) -> Path:
    """Return where processes on a machine keep their pages if the job was written there."""
    return directory / f"pages-{hashlib.sha256(kernel.encode()).hexdigest()[:16]}"


def pending(directory: Path) -> dict[int, str]:
    """Return what each process of a job was doing that has not done all it should.

    Only of processes on the machine that the job was written on; they may be gone by now.
    """
    found = {}
    for path in directory.glob("pages-*/*[0-9]"):
        with contextlib.suppress(OSError, ValueError):
            fd = os.open(path, os.O_RDONLY)
            try:
                words, doing = read_page(fd)
            finally:
                os.close(fd)
            if not words[DONE]:
                found[int(path.name)] = doing
    return dict(sorted(found.items()))


def read_page(fd: int) -> tuple[Ints, str]:
    """Return the numbers of a page and what its process was doing, as text."""
    head = os.pread(fd, _HEAD_BYTES, 0)
    words = np.frombuffer(head, dtype=np.int64, count=_WORDS)
    text = head[8 * _WORDS : 8 * _WORDS + int(words[TEXT])].decode("utf-8", "replace")
    return words, f"{text}, {_doing(fd, words)}"


def _doing(fd: int, words: Ints) -> str:
    if words[STATE] == _OUTSIDE:
        return "between passes"
    if words[STATE] == _AT_START:
        return f"start of pass {words[PASS]}"
    if not 0 <= words[INDEX] < words[EVENTS]:
        return f"event {words[INDEX]}, pass {words[PASS]}"
    return f"event {words[INDEX]} {describe(fd, int(words[INDEX]))}, pass {words[PASS]}"


def describe(fd: int, index: int) -> str:
    """Return an event of a page as text."""
    raw = os.pread(fd, EVENT.itemsize, _HEAD_BYTES + index * EVENT.itemsize)
    if len(raw) < EVENT.itemsize:
        return ""
    event = np.frombuffer(raw, dtype=EVENT)[0]
    code = int(event["code"])
    name = Code(code).name if code in Code._value2member_map_ else f"code {code}"
    if code in (Code.WAIT, Code.WAITANY, Code.WAITSOME):
        return f"{name} for {event['number']} requests"
    if code in (Code.NOTHING, Code.END):
        return name
    return f"{name} peer {event['peer']} tag {event['tag']} bytes {event['bytes']}"


@dataclass(frozen=True)
class Neighbour:
    """Another process on this machine: its process id, what watches it, and its page."""

    pid: int
    pidfd: int
    page: int


def neighbour(pid: int, fd: int) -> Neighbour | None:
    """Return a process to watch, None where the system does not allow it."""
    try:
        return Neighbour(pid, os.pidfd_open(pid), os.open(f"/proc/{pid}/fd/{fd}", os.O_RDONLY))
    except (OSError, AttributeError):
        return None


class Watchdog(threading.Thread):
    """Watches the page of this process, and a neighbour; ends the process when it must.

    Without a change for ``stall_s`` seconds, and what ``allow`` adds, the process says what it
    waits for and ends with EXIT_STALLED, without MPI, which makes the launcher end the others.
    Time in which it could not look, as the job was suspended or had no core, does not count.
    When the neighbour is gone before it was done, or the launcher ends this process for such a
    reason, it says what the neighbour was doing (EXIT_OTHER_DIED).
    """

    def __init__(
        self, page: Page, stall_s: float, outstanding: Callable[[int], tuple[int, list[int]]]
    ) -> None:
        super().__init__(name="watchdog", daemon=True)
        self._page = page
        self._stall_s = stall_s
        self._poll_s = min(_POLL_S, stall_s / _FEWEST_POLLS)
        self._allowed_s = 0.0
        self._outstanding = outstanding
        self._neighbour: Neighbour | None = None
        self._others: Sequence[int] = ()
        self._said = False
        self._stopped = False
        self._woken, self._wake = os.pipe()
        for fd in (self._woken, self._wake):
            os.set_blocking(fd, False)

    def start(self) -> None:
        """Start watching; signals are handled here, as the main thread is in an MPI call."""
        for number in (signal.SIGTERM, _SAY):
            signal.signal(number, lambda _number, _frame: None)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        super().start()

    def watch(self, other: Neighbour | None, everybody: Sequence[int]) -> None:
        """Watch another process, too; ``everybody``: process ids of the job on this machine."""
        self._neighbour, self._others = other, everybody

    def allow(self, seconds: float) -> None:
        """Let nothing move for so much longer: computation is emulated somewhere."""
        self._allowed_s = seconds

    def stop(self) -> None:
        """Stop watching."""
        self._stopped = True

    def run(self) -> None:
        """Watch until stopped."""
        words = self._page.words
        seen, still_s, looked = words[:4].tolist(), 0.0, time.monotonic()
        while not self._stopped:
            fds = [self._woken] + ([self._neighbour.pidfd] if self._neighbour else [])
            ready = select.select(fds, [], [], self._poll_s)[0]
            if self._stopped:
                return
            got = os.read(self._woken, 64) if self._woken in ready else b""
            if signal.SIGTERM in got:
                self._check_neighbour()
                self._end(128 + signal.SIGTERM)
            if _SAY in got:
                self._say_pending()
            if ready:
                self._check_neighbour()
            now, before, looked = words[:4].tolist(), looked, time.monotonic()
            still_s += min(looked - before, _LATE * self._poll_s)
            if now != seen:
                seen, still_s = now, 0.0
            elif still_s > self._stall_s + self._allowed_s:
                self._give_up()

    def _check_neighbour(self) -> None:
        """Say what a neighbour that died was doing, and end."""
        other = self._neighbour
        if other is None or not select.select([other.pidfd], [], [], 0)[0]:
            return
        words, doing = read_page(other.page)
        if words[DONE]:
            self._neighbour = None
            return
        say(f"{ERROR_MARK}{doing}: the process is gone (killed, or it left by itself)")
        time.sleep(_LAST_WORD_S)
        self._end(EXIT_OTHER_DIED)

    def _end(self, code: int) -> None:
        self._page.done()  # this end is not news to anybody
        os._exit(code)

    def _give_up(self) -> None:
        self._say_pending()
        for pid in self._others:  # some may be allowed to stand still for longer
            with contextlib.suppress(OSError):
                os.kill(pid, _SAY)
        time.sleep(_GRACE_S)
        self._end(EXIT_STALLED)

    def _say_pending(self) -> None:
        if not self._said:
            say(f"{STALL_MARK}{self.pending()}")
        self._said = True

    def pending(self) -> str:
        """Return what this process is doing, with its outstanding requests."""
        _words, doing = read_page(self._page.fd)
        with contextlib.suppress(OSError):
            number, events = self._outstanding(_SHOWN)
            if number:
                shown = "; ".join(f"event {i} {describe(self._page.fd, i)}" for i in events)
                more = "; ..." if number > len(events) else ""
                return f"{doing}, {number} requests outstanding ({shown}{more})"
        return doing
