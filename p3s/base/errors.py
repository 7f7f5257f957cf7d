"""Errors that end a command with one clear line and the right exit code.

P3SError            exit 1   a handled failure
  RunFailed           exit 1   a run of the program failed
  UsageError        exit 2   the command line or a setting is wrong
  PartialResult     exit 3   done, but partial or not to be trusted
  GateFailed        exit 4   a gate did not hold
  Defect            exit 70  a bug in P3S
"""

from __future__ import annotations

from pathlib import Path

#: What a failed run has left, beside the names of files with its output.
CAPTURES = "captures"


class P3SError(Exception):
    """A failure that is reported in one line: what, where, why, what to do."""

    exit_code = 1


class DamagedFile(P3SError):
    """A file is cut short or holds what it cannot hold."""


class Defect(DamagedFile):
    """A file has the digest that P3S gave it, and P3S cannot use it: making it again does not help.

    Who changed it may have made the digest anew, so it ends a command as other failures do.
    """


class OtherVersion(P3SError):
    """A file was written by another version of P3S."""


class RunFailure(P3SError):
    """A run of the program failed.

    ``reason``: why; ``code``: exit code of the launcher, None when it was not even started;
    ``status``: "partial" when something was captured, else "failed"; ``left``: what there is to
    look at, CAPTURES, the name of a file with output, or "", and ``where``, if it is known yet.
    """

    def __init__(
        self, reason: str, code: int | None, status: str, left: str = "", where: Path | None = None
    ) -> None:
        self.reason, self.code, self.status, self.left = reason, code, status, left
        text = reason
        if left == CAPTURES:
            text += "; what was captured is kept" + (f" in {where}" if where else "")
        elif left and where:
            text += f"; all of the output is in {where / left}"
        super().__init__(text)


class UsageError(P3SError):
    """The command line or a setting cannot be used as given."""

    exit_code = 2


class PartialResult(P3SError):
    """The work was done, but its result is partial or not to be trusted."""

    exit_code = 3


class GateFailure(P3SError):
    """A condition the user asked to be held did not hold."""

    exit_code = 4
