"""Errors that end a command with one clear line and the right exit code.

    P3SError            exit 1   a handled failure
      UsageError        exit 2   the command line or a setting is wrong
      PartialResult     exit 3   done, but partial or of low confidence
      GateFailed        exit 4   a gate did not hold
"""

from __future__ import annotations


class P3SError(Exception):
    """A failure that is reported in one line: what, where, why, what to do."""

    exit_code = 1


class Damaged(P3SError):
    """A file is cut short or holds what it cannot hold."""


class UsageError(P3SError):
    """The command line or a setting cannot be used as given."""

    exit_code = 2


class PartialResult(P3SError):
    """The work was done, but its result is partial or of low confidence."""

    exit_code = 3


class GateFailed(P3SError):
    """A condition the user asked to be held did not hold."""

    exit_code = 4
