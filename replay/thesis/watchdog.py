"""Ends a replay that does not move: says what every process waits for, then stops it."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable

from replay.scaled import Ints
from replay.thesis.calls import Code

#: Exit code of a process that was stopped because nothing moved.
EXIT_STALLED = 86
#: Marks the lines of the table of pending operations, and errors, in the output of the job.
STALL_MARK = "p3s replay: stalled: "
ERROR_MARK = "p3s replay: error: "

_POLL_S = 0.2
#: Time for the other processes to print their line before the first one takes the job down.
_GRACE_S = 2.0

#: Fields of struct progress in inner.c.
STEPS, EVENT, CODE, PEER, BYTES, TAG, OUTSTANDING, PASS = range(8)
WORDS = 8


def pending(progress: Ints) -> str:
    """Return what the inner loop was doing, as text."""
    code = int(progress[CODE])
    name = Code(code).name if code in Code._value2member_map_ else "nothing"
    return (f"event {progress[EVENT]} {name} peer {progress[PEER]} bytes {progress[BYTES]} "
            f"tag {progress[TAG]}, {progress[OUTSTANDING]} requests outstanding, "
            f"pass {progress[PASS]}")


class Watchdog(threading.Thread):
    """Watches ``progress[STEPS]``; without a change for ``stall_s`` seconds it ends the process.

    ``where`` says what the process is about. The process ends with EXIT_STALLED, without MPI,
    which makes the launcher end the others.
    """

    def __init__(self, progress: Ints, stall_s: float, where: Callable[[], str]) -> None:
        super().__init__(name="watchdog", daemon=True)
        self._progress = progress
        self._stall_s = stall_s
        self._where = where
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Stop watching."""
        self._stopped.set()

    def run(self) -> None:
        """Watch until stopped."""
        seen, since = int(self._progress[STEPS]), time.monotonic()
        while not self._stopped.wait(_POLL_S):
            steps = int(self._progress[STEPS])
            if steps != seen:
                seen, since = steps, time.monotonic()
            elif time.monotonic() - since > self._stall_s:
                self._give_up()

    def _give_up(self) -> None:
        line = f"{STALL_MARK}{self._where()}: {pending(self._progress)}\n"
        sys.stderr.write(line)
        sys.stderr.flush()
        time.sleep(_GRACE_S)
        os._exit(EXIT_STALLED)
