"""Running an unmodified program at several counts, several times, for its run times alone."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p3s.base.errors import DamagedFile, P3SError, UsageError
from p3s.base.extents import shape, with_extents
from p3s.methods.baseline.read import read, write
from p3s.methods.baseline.times import RunTime, Times

if TYPE_CHECKING:
    from p3s.signature_runner.standard_input import StandardInput

Say = Callable[[str], None]


def collect(
    command: Sequence[str],
    counts: Sequence[int],
    repeats: int,
    path: Path,
    *,
    timeout_s: float | None = None,
    time_from: str = "",
    inputs: Mapping[str, float] | None = None,
    extents: Mapping[int, tuple[int, ...]] | None = None,
    start: Say = lambda text: None,
    done: Say = lambda text: None,
) -> Times:
    """Run ``command`` (with ``{np}``) untraced at every count, ``repeats`` times, all in turns.

    ``path`` gets every run as soon as it has ended; runs that are there already stay, and must be
    of the same command and standard input. ``time_from``: regular expression with one group;
    its last match in the program's output is the run time in seconds, instead of the launcher's
    wall time. ``extents``: of the process grid, by count, where the program gets them as
    arguments. A run that fails is set aside with its reason. Errors: UsageError for an unusable
    expression or a file of another command; P3SError when no run gave a time.
    """
    from p3s.signature_runner import standard_input

    pattern = _pattern(time_from)
    stdin = standard_input.take_input()
    stored = _read_existing(path, command)
    inputs = inputs or {}
    given_stdin = _standard_inputs(path, stored, inputs, stdin)
    runs = list(stored.runs)
    listed = _merge_extents(path, stored, extents or {})
    facts: dict[str, Any] = {**stored.facts, "command": list(command), "machine": _machine()}
    facts[standard_input.KEY] = given_stdin
    if listed:
        facts["dims"] = {str(n): list(dims) for n, dims in sorted(listed.items())}
    values = tuple(sorted(inputs.items()))
    before = {n: sum(run.n == n and run.inputs == values for run in runs) for n in counts}
    new: list[RunTime] = []
    # Iteration by iteration: what disturbs the machine for a while disturbs all counts, not one.
    for turn in range(repeats):
        for n in counts:
            name = f"np={n} run {turn + 1}/{repeats}"
            start(f"{name}: running")
            words = with_extents(command, n, listed)
            run = replace(
                _once(words, n, timeout_s, pattern, stdin), inputs=values, repeat=before[n] + turn
            )
            new.append(run)
            write(path, Times((*runs, *new), facts=facts))
            done(f"{name}: {run.why}" if run.why else f"{name}: {run.seconds:.3f} s")
    if not any(run.valid for run in new):
        raise P3SError(f"no run gave a time; the first: np={new[0].n}: {new[0].why}")
    return Times((*runs, *new), facts=facts)


def _merge_extents(
    path: Path, stored: Times, extents: Mapping[int, tuple[int, ...]]
) -> dict[int, tuple[int, ...]]:
    """Return the extents of the process grid by count, those of earlier runs included."""
    try:
        known_extents = {
            int(n): tuple(map(int, dims)) for n, dims in stored.facts.get("dims", {}).items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise DamagedFile(f"{path}: its dims are no extents by count") from error
    for n, dims in extents.items():
        if known_extents.get(n, dims) != dims:
            raise UsageError(
                f"--dims {n}={shape(dims)}: {path} holds runs at {n} processes as "
                f"{shape(known_extents[n])}; name another file with -o"
            )
    return {**known_extents, **extents}


def _pattern(text: str) -> re.Pattern[str] | None:
    if not text:
        return None
    try:
        pattern = re.compile(text, re.MULTILINE)
    except re.error as error:
        raise UsageError(f"--time-from {text}: no regular expression: {error}") from error
    if pattern.groups != 1:
        raise UsageError(
            f"--time-from {text}: needs one group around the seconds, for example "
            r"--time-from 'time: ([0-9.]+) s'"
        )
    return pattern


def _read_existing(path: Path, command: Sequence[str]) -> Times:
    if not path.exists():
        return Times(())
    existing = read(path)
    stored_command = existing.facts.get("command")
    if stored_command is not None and list(stored_command) != list(command):
        raise UsageError(f"{path}: holds run times of another command; name another file with -o")
    return existing


def _standard_inputs(
    path: Path, existing: Times, inputs: Mapping[str, float], stdin: StandardInput
) -> dict[str, object]:
    """Return the records of what runs had on standard input, by the inputs they were labelled with.

    Raises UsageError where runs with the same inputs had something else on it.
    """
    records = existing.facts.get("stdin", {})
    name = ",".join(f"{key}={value:g}" for key, value in sorted(inputs.items()))
    if not isinstance(records, dict):
        raise DamagedFile(f"{path}: its stdin is no table")
    if records.get(name, stdin.as_info()) != stdin.as_info():
        raise UsageError(
            f"{path}: holds run times with another standard input; give the same with < FILE, or"
            " name another file with -o"
        )
    return {**records, name: stdin.as_info()}


def _machine() -> str:
    import platform

    return platform.node()


def _once(
    command: Sequence[str],
    n: int,
    timeout_s: float | None,
    pattern: re.Pattern[str] | None,
    stdin: StandardInput,
) -> RunTime:
    from p3s.signature_runner.launch import run_traced

    begin = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    with tempfile.TemporaryDirectory(prefix="p3s-baseline-") as directory:
        try:
            outcome = run_traced(
                command, n, Path(directory), timeout_s=timeout_s, trace=False, stdin=stdin
            )
        except UsageError:
            raise
        except P3SError as error:
            why = " ".join(str(error).replace(directory, "").split())
            return RunTime(
                n,
                None,
                why=why.removeprefix(f"np={n}: "),
                started=begin,
                exit_code=_code(Path(directory)),
            )
        seconds: float | None = outcome.wall_s
        why = ""
        if pattern is not None:
            seconds, why = _find_printed_time(pattern, Path(directory))
        return RunTime(n, seconds, why=why, exit_code=outcome.exit_code, started=begin)


def _code(directory: Path) -> int | None:
    from p3s.base.study import RUN_SCHEMA, read_json

    try:
        code = read_json(directory / "run.json", RUN_SCHEMA).get("exit_code")
    except P3SError:
        return None
    return code if isinstance(code, int) else None


def _find_printed_time(pattern: re.Pattern[str], directory: Path) -> tuple[float | None, str]:
    """Return the last time that a program printed, or why there is none."""
    for name in ("stdout.txt", "stderr.txt"):
        times_printed = pattern.findall((directory / name).read_text(errors="replace"))
        if times_printed:
            try:
                seconds = float(times_printed[-1])
            except ValueError:
                return None, f"printed {times_printed[-1]!r:.40} as its time"
            if not 0 < seconds < float("inf"):
                return None, f"printed {seconds:g} s as its time"
            return seconds, ""
    return None, f"did not print its time ({pattern.pattern!r:.60} is not in its output)"
