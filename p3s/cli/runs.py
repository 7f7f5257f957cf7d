"""Trace a program at several counts into a study; nothing that was there is lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from p3s.cli.common import Progress, say
from p3s.cli.failures import last_words
from p3s.errors import P3SError, UsageError
from p3s.study import Study

#: Fewer distinct counts cannot be modelled: two to fit, one held out.
MIN_COUNTS = 3


@dataclass
class Traced:
    """What tracing did: rows of finished counts, and why others are missing."""

    counts: list[dict[str, Any]] = field(default_factory=list)
    failed: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def trace_once(
    study: Study,
    command: Sequence[str],
    np: int,
    target: Path,
    timeout_s: float,
) -> tuple[dict[str, Any], list[str]]:
    """Run the program once, traced, and put the capture in ``target``.

    Returns the row of the run and what was odd about it. Raises P3SError when the run failed;
    an earlier run in ``target`` is then still there.
    """
    from signature_runner.launch import run_traced

    staged = study.stage_run(target)
    try:
        outcome = run_traced(list(command), np, staged, timeout_s=timeout_s)
        if outcome.exit_code != 0:
            words = last_words(staged)
            said = f": {words}" if words else ", and printed nothing on stderr"
            raise RunFailed(
                f"np={np}: the program ended with exit code {outcome.exit_code}{said}",
                outcome.exit_code,
            )
    except BaseException as err:
        kept = study.keep_failed_run(staged, target)
        if isinstance(err, P3SError) and kept is not None:
            say(f"what the failed run left is in {kept}")
        raise
    study.commit_run(staged, target)
    row = {
        "wall_s": outcome.wall_s,
        "exit_code": outcome.exit_code,
        "oversubscribed": outcome.oversubscribed,
    }
    return row, list(outcome.problems)


class RunFailed(P3SError):
    """The program itself ended with an exit code other than 0."""

    def __init__(self, text: str, exit_code_of_program: int) -> None:
        super().__init__(text)
        self.exit_code_of_program = exit_code_of_program


def check_counts(study: Study | None, counts: Sequence[int]) -> None:
    """Refuse a study that would hold too few distinct counts, before anything is run."""
    there = set(study.counts()) if study is not None else set()
    total = sorted(there | set(counts))
    if len(total) < MIN_COUNTS:
        raise UsageError(
            f"-n {','.join(map(str, counts))}: the study would hold "
            f"{len(total)} process count{'s' if len(total) > 1 else ''}, the model needs "
            f"{MIN_COUNTS} (two to fit and one held out); add a count, for example "
            f"-n {','.join(map(str, [*total, *_more(total)]))}"
        )


def _more(counts: list[int]) -> list[int]:
    more: list[int] = []
    while len(counts) + len(more) < MIN_COUNTS:
        more.append(2 * (more or counts)[-1])
    return more


def trace_counts(
    study: Study,
    command: Sequence[str],
    counts: Sequence[int],
    repeats: int,
    timeout_s: float,
    bar: Progress,
) -> Traced:
    """Trace and characterize each count; a count that fails does not stop the others."""
    from p3s.characterize import characterize

    done = Traced()
    for np in counts:
        runs: list[dict[str, Any]] = []
        for rep in range(repeats):
            label = f"np={np}" + (f" run {rep + 1}/{repeats}" if repeats > 1 else "")
            bar.start(f"{label}: running")
            try:
                row, problems = trace_once(study, command, np, study.runs_dir(np, rep), timeout_s)
            except UsageError:
                raise
            except P3SError as err:
                text = _about(np, str(err))
                done.failed.append(
                    {
                        "np": np,
                        "rep": rep,
                        "exit_code": getattr(err, "exit_code_of_program", None),
                        "reason": text,
                    }
                )
                bar.done(text)
                if _hopeless(done.failed, np):
                    raise
                break
            study.update()
            done.problems += [_about(np, problem) for problem in problems]
            for problem in problems:
                say(_about(np, problem))
            runs.append({"rep": rep, **row})
            bar.done(f"{label}: {row['wall_s']:.1f} s")
        if not runs:
            continue
        bar.start(f"np={np}: characterizing")
        try:
            signature = characterize(study.root, np)
        except P3SError as err:
            text = _about(np, str(err))
            done.failed.append({"np": np, "rep": None, "exit_code": None, "reason": text})
            bar.done(text)
            continue
        done.counts.append({"np": np, "runs": runs, "signature": _summary(signature)})
    study.update()
    return done


def _about(np: int, text: str) -> str:
    return text if f"np={np}" in text else f"np={np}: {text}"


def _hopeless(failed: list[dict[str, Any]], np: int) -> bool:
    """Tell whether two counts failed before the program began, for the same reason."""
    reasons = {
        row["reason"].replace(str(row["np"]), "N") for row in failed if row["exit_code"] is None
    }
    return len(failed) > 1 and len(reasons) == 1 and all(r["exit_code"] is None for r in failed)


def _summary(signature: Any) -> dict[str, Any]:
    """Return the plain numbers of a signature (its tables stay in their own file)."""
    if not isinstance(signature, dict):
        return {}
    return {
        key: value
        for key, value in signature.items()
        if isinstance(value, (int, float, str)) and not key.startswith("schema")
    }
