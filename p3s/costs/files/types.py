"""What predictions and scaled traces say of files; a record, read without what fits it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FileUseAt:
    """What a call site does to files at one count, for people and for reports.

    ``nbytes``, ``calls``: of all processes in the run; ``seconds``: of the process that takes
    longest, with its ends.
    """

    op: str
    site: str
    what: str
    way: str
    files: str
    pattern: str
    follows: float
    processes: int
    nbytes: float
    calls: float
    seconds: float
    low_s: float
    high_s: float
