"""Which runs of a process count can be used, each as one Part."""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.base import workers
from p3s.base.errors import P3SError
from p3s.base.text import processes
from p3s.signature.part import Part, Sites, join, part_of

if TYPE_CHECKING:
    from p3s.base.study import RunRecord
    from p3s.capture.rewrite import Messages


#: Capture files of a run, in bytes, for which another process is worth its start.
_WORTH = 4 << 20
#: Files that are read in one task, at most.
_FILES = 64


def join_files(files: Sequence[Path], sites: Sites) -> Part:
    """Return the ranks of a run as one Part: their files are read by all who compute.

    They are joined in the order of the ranks, so the result is the same for any number of those.
    """
    facts = [path.stat() for path in files]
    if not files:
        return join(())
    of_all = tuple(map(str, files)), zlib.crc32(repr([f.st_mtime_ns for f in facts]).encode())
    many = sum(f.st_size for f in facts) >= _WORTH
    each = -(-len(files) // (workers.AHEAD * max(workers.ranks(), len(os.sched_getaffinity(0)))))
    each = min(each, _FILES)
    tasks = [(*of_all, at, at + each, sites) for at in range(0, len(files), each)]
    read = workers.each(_parts, tasks, files[0], jobs=0 if many else 1)
    return join(part for parts in read for part in parts)


def _parts(files: tuple[str, ...], made: int, begin: int, end: int, sites: Sites) -> list[Part]:
    """Return the parts of some ranks of a run; ``made``: tells when its files were written."""
    messages = _messages(files, made)
    return [part_of(messages.read(Path(name)), sites) for name in files[begin:end]]


@lru_cache(maxsize=1)
def _messages(files: tuple[str, ...], _made: int) -> Messages:
    """Return what reads a run: what all ranks tell together is read by each process once."""
    from p3s.capture.rewrite import Messages

    return Messages(map(Path, files))


def intact_runs(
    records: Sequence[RunRecord], np_: int, sites: Sites
) -> tuple[list[Part], list[int | None], list[str], list[RunRecord]]:
    """Return the runs of one count all of whose ranks are complete, and why others are not.

    Their parts, their wall times, what is wrong with those left out, and their records.
    """
    from p3s.capture import run_files

    parts: list[Part] = []
    walls: list[int | None] = []
    left_out, used = [], []
    for record in records:
        if record.np != np_ or record.status != "complete":
            continue
        try:
            run = run_files(record.path)
            problem = run.problems[min(run.problems)] if run.problems else ""
            if run.np != np_:
                problem = f"{record.path} holds a run of {processes(run.np)}, not {np_}"
            part = join_files(list(run.files.values()), sites) if not problem else None
        except P3SError as err:
            left_out.append(_without_advice(str(err)))
            continue
        if part is not None:
            problem = part.problem
        if part is not None and part.counted_events and not problem:
            problem = (
                f"{record.path} reached the limit of its capture: {part.counted_events} "
                "events were only counted"
            )
        if problem or part is None:
            left_out.append(_without_advice(problem))
        else:
            parts.append(part)
            walls.append(run.wall_ns)
            used.append(record)
    return parts, walls, left_out, used


def _without_advice(problem: str) -> str:
    return problem.partition("; ")[0]
