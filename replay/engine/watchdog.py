"""Ends a replay that does not move, and sees which process ends first and what it was doing.

Every process keeps a page: its numbers of progress, and as text its name and the program it
executes. On the machine that the job was written on pages are files of the job's directory, for
who has started the job to read, also when a process is gone, however it went; elsewhere they are
anonymous memory.

Launchers end all other processes when one is gone, some before any of them can say a word, and may
then name the wrong one. So every process on the launching machine holds a pipe open under a high
number: Linux closes the files of a process that ends beginning with the highest, so this one before
the connection to the launcher. It queues the ends of pipes in their order: the first process that
had not done all it should is the cause.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import mmap
import os
import resource
import select
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from p3s.base.arrays import Ints
from p3s.replay.plan.program import EVENT, Code

#: Exit code of a process that was stopped because nothing moved.
EXIT_STALLED = 86
#: Marks the lines of the table of pending operations, and errors, in the output of the job.
STALL_MARK = "p3s replay: stalled: "
ERROR_MARK = "p3s replay: error: "
#: What a page says of a process that is not out of the begin of the job.
STARTING = ", starting, between passes"

#: How often a process looks whether it has moved, at most: where cores are shared every look
#: disturbs somebody.
_POLL_S = 1.0
_FEWEST_POLLS = 10
#: A look that comes later than so many of its intervals was kept from coming.
_LATE = 2.0
#: Time for the other processes to print their line before the first one takes the job down.
_GRACE_S = 2.0
_SHOWN = 4
STOPPED = " is stopped (by SIGSTOP or a debugger)"

#: Fields of struct progress in inner.c, then our own: process has done all it should, length of
#: the text, number of events behind it, process id.
PASS, INDEX, STATE, BEATS, DONE, TEXT, EVENTS, PID = range(8)
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
        self.words[PID] = os.getpid()

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


def kernel() -> str:
    """Return what processes with the same monotonic clock have in common."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = os.uname().nodename
    try:
        # A time namespace has a monotonic clock of its own.
        return f"{boot} {os.readlink('/proc/self/ns/time')}"
    except OSError:
        return boot


def pages_dir(directory: Path, kernel: str) -> Path:
    """Return where processes on a machine keep their pages if the job was written there."""
    return directory / f"pages-{hashlib.sha256(kernel.encode()).hexdigest()[:16]}"


def pending(directory: Path) -> dict[int, str]:
    """Return what each process of a job was doing that has not done all it should.

    Only of processes on the machine that the job was written on; they may be gone by now.
    """
    doing_of = {}
    for path in directory.glob("pages-*/*[0-9]"):
        with contextlib.suppress(OSError, ValueError):
            with open(path, "rb") as page:
                words, doing = read_page(page.fileno())
            if not words[DONE]:
                doing_of[int(path.name)] = doing + STOPPED * _is_stopped(int(words[PID]))
    return dict(sorted(doing_of.items()))


def _is_stopped(pid: int) -> bool:
    """Tell whether a process of this machine is stopped; not of one that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    except OSError:
        return False


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


class Watchdog(threading.Thread):
    """Watches the page of this process; ends the process when nothing moves any more.

    Without a change for ``stall_s`` seconds, and what ``allow`` adds, the process says what it
    waits for and ends with EXIT_STALLED, without MPI, which makes the launcher end the others.
    Time in which it could not look, as the job was suspended or had no core, does not count.
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
        self._stopped = threading.Event()

    def allow(self, seconds: float) -> None:
        """Let nothing move for so much longer: computation is emulated somewhere."""
        self._allowed_s = seconds

    def stop(self) -> None:
        """Stop watching."""
        self._stopped.set()

    def run(self) -> None:
        """Watch until stopped."""
        words = self._page.words
        last_words, still_s, looked = words[:4].tolist(), 0.0, time.monotonic()
        while not self._stopped.wait(self._poll_s):
            now, before, looked = words[:4].tolist(), looked, time.monotonic()
            still_s += min(looked - before, _LATE * self._poll_s)
            if now != last_words:
                last_words, still_s = now, 0.0
            elif still_s > self._stall_s + self._allowed_s:
                say(f"{STALL_MARK}{self.pending()}")
                time.sleep(_GRACE_S)
                self._page.done()  # this end is not news to anybody
                os._exit(EXIT_STALLED)

    def pending(self) -> str:
        """Return what this process is doing, with its outstanding requests."""
        _words, doing = read_page(self._page.fd)
        with contextlib.suppress(OSError):
            number, events = self._outstanding(_SHOWN)
            if number:
                described = "; ".join(f"event {i} {describe(self._page.fd, i)}" for i in events)
                more = "; ..." if number > len(events) else ""
                return f"{doing}, {number} requests outstanding ({described}{more})"
        return doing


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
            state, doing = self._read(self._ranks[pipe])
            if not state:
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
