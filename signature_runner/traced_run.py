"""One traced run of a program into a study; nothing that was there is lost."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p3s.base import workers
from p3s.base.artefacts import write_json
from p3s.base.errors import P3SError, RunFailure, UsageError
from p3s.base.extents import extents_at, names_count, shape, with_extents
from p3s.base.progress import Progress
from p3s.base.records import Traces, commit_run, keep_failed_run, stage_run
from p3s.base.text import one_line
from p3s.base.trust import sign
from p3s.signature_runner.recording import Recording
from p3s.signature_runner.standard_input import StandardInput, input_for, take_input

if TYPE_CHECKING:
    from p3s.capture.chunks import Header

#: MPI calls of one rank up to which a run that failed has shown nothing: it set up and gave up.
_FEW_EVENTS = 50


@dataclass(frozen=True)
class Launch:
    """How a program is started: ``command`` with {np}, ``timeout_s`` for each run.

    ``extents``: of the process grid, by count, where they are others than MPI_Dims_create's.
    ``stdin``: returns what it reads; ``force``: also where the study's runs had another.
    """

    command: tuple[str, ...]
    timeout_s: float
    extents: Mapping[int, tuple[int, ...]]
    stdin: Callable[[], StandardInput] = take_input
    force: bool = False


@dataclass(frozen=True)
class TracedRun:
    """A run that was traced; ``dims``: extents that the program was given, ``problems``: lines."""

    rep: int
    wall_s: float
    exit_code: int
    oversubscribed: bool
    dims: tuple[int, ...] = ()
    problems: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the run as plain data."""
        rows = {**vars(self), "dims": list(self.dims)}
        return {key: each for key, each in rows.items() if key != "problems" and each != []}


def trace_once(
    study: Traces, launch: Launch, np: int, target: Path, recording: Recording, bar: Progress
) -> TracedRun:
    """Run the program once, traced, and put the capture in ``target``.

    Raises P3SError when the run failed; an earlier run in ``target`` is then still there, and
    what the failed one left is beside it.
    """
    from p3s.signature_runner.launch import info_of, run_traced

    command, listed = list(launch.command), launch.extents
    stdin = input_for(study, launch.stdin, bar.say, force=launch.force)
    extents = extents_at(command, np, listed)
    if extents and listed and np not in listed and target.suffix in ("", ".r0"):
        bar.say(f"np={np}: not in --dims; the program gets {shape(extents)}, as of MPI_Dims_create")
    staged = stage_run(target)
    try:
        outcome = run_traced(
            with_extents(command, np, listed),
            np,
            staged,
            timeout_s=launch.timeout_s,
            recording=recording,
            stdin=stdin,
        )
        problems = tuple(outcome.problems)
        earlier = info_of(target).get("status") == "complete"
        if problems and earlier:
            raise P3SError(f"{problems[0]}; the earlier, complete run stays")
        heads = _headers(staged)
        cut = any(head.limited for head in heads)  # events were only counted
        if cut and earlier and not any(head.limited for head in _headers(target)):
            raise P3SError(
                "the limit of the capture was reached, and phases need every event; the earlier"
                " run stays; give a larger --limit"
            )
        for name in recording.counters if heads else ():
            if not any(name in head.counter_names for head in heads):
                bar.say(f"np={np}: this machine has no counter {name}")
        info = info_of(staged)
        if info:  # a study whose study.json is lost can be put together from its runs
            grid = {"dims": list(extents)} if extents else {}
            signed = {"signed": sign(command, str(info.get("directory") or os.getcwd()))}
            write_json(staged / "run.json", {**info, "command": command, **signed, **grid})
        commit_run(staged, target)
    except BaseException as err:
        info = info_of(staged)
        stopped = not isinstance(err, Exception)  # Ctrl-C or a signal, which are no errors
        kept_dir = keep_failed_run(staged, target, stopped=stopped)
        if isinstance(err, UsageError) or not isinstance(err, P3SError):
            raise
        code, status = info.get("exit_code"), str(info.get("status", "failed"))
        reason, left_files = (
            (err.reason, err.left) if isinstance(err, RunFailure) else (str(err), "")
        )
        raise RunFailure(reason, code, status, left_files, kept_dir) from err
    return TracedRun(
        0, outcome.wall_s, outcome.exit_code, outcome.oversubscribed, extents, problems
    )


def did_no_work(code: int | None, target: Path) -> bool:
    """Tell whether the program ended with an error before it did any work in a run that failed.

    ``code``: exit code of the launcher; ``target``: where the run was to go.
    """
    from p3s.capture.capture import read_capture

    events = []
    for path in target.with_name(f"{target.name}.failed").glob("rank-*.p3t"):
        with suppress(P3SError):
            events.append(read_capture(path, completions=False, each=len).event_count)
    return bool(code) and max(events, default=0) <= _FEW_EVENTS


def _headers(run_dir: Path) -> list[Header]:
    """Return the heads of a run's captures, none where one cannot be read."""
    from p3s.capture.chunks import read_header

    with suppress(P3SError):
        return [read_header(path) for path in run_dir.glob("rank-*.p3t")]
    return []


def program_of(command: Sequence[str], np: int) -> str:
    """Return the program in a launcher command; raises P3SError when it cannot be started."""
    from p3s.base.host.command import parse

    words = parse(list(command), np).program
    name = Path(words[0]).name
    if name.startswith("python"):  # the script is the program
        scripts = [word for word in words[1:] if word.endswith(".py")]
        name = Path(scripts[0]).stem if scripts else name
    return name


def check_template(words: Sequence[str]) -> None:
    """Refuse a launcher command that cannot be run at several counts."""
    workers.check_may_launch()
    if not words:
        raise UsageError(
            "no command given; put it after --, for example: -- mpiexec -n {np} ./program"
        )
    if not names_count(words):
        raise UsageError(
            f"the command ({one_line(' '.join(words))[:80]}) has no {{np}}, so the process count "
            "cannot be set; write for example: -- mpiexec -n {np} ./program"
        )
