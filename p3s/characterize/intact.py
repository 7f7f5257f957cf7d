"""Which runs of a process count can be used, each as one Part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.characterize.part import Part, Sites, join, part_of
from p3s.errors import P3SError
from p3s.text import processes

if TYPE_CHECKING:
    from p3s.study import RunRecord


JoinRun = Callable[[Sequence[Path], Sites], Part]


def join_files(files: Sequence[Path], sites: Sites) -> Part:
    """Return the ranks of a run, read one after the other, as one Part."""
    from p3s.trace.rewrite import Messages

    messages = Messages(files)
    return join(part_of(messages.read(path), sites) for path in files)


def intact_runs(
    records: Sequence[RunRecord], np_: int, join_run: JoinRun, sites: Sites
) -> tuple[list[Part], list[int | None], list[str], list[RunRecord]]:
    """Return the runs of one count all of whose ranks are complete, and why others are not.

    Their parts, their wall times, what is wrong with those left out, and their records.
    """
    from p3s.trace import run_files

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
            part = join_run(list(run.files.values()), sites) if not problem else None
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
