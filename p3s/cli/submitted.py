"""``p3s submit``: options that go on to the jobs, and what becomes of their scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from p3s.base.errors import UsageError
from p3s.cli.common import emit, out, say
from p3s.cli.making import load_command
from p3s.cli.values import words_of

if TYPE_CHECKING:
    from p3s.pipeline.jobs import Batch, JobScripts, Script

#: Options that a script sets itself, or that are of no use there, by the command that it starts.
_OWN = {
    "characterize": frozenset(
        "-n --counts -r --repeats -o --study --part --json --far --up-to".split()
    ),
    "replay": frozenset("-n --counts --budget --json --plan --help -h".split()),
}
#: What takes the options of a command.
_OPTION = {"characterize": "--trace", "replay": "--"}


def more_options(command: str, texts: Sequence[str]) -> list[str]:
    """Return the words of options of a command that a job starts.

    Raises UsageError for one that p3s submit writes itself, or that the command does not have.
    """
    parameters = load_command(command).params
    options_known = {name for each in parameters for name in (*each.opts, *each.secondary_opts)}
    words_given: list[str] = []
    for text in texts:
        words = list(words_of(text, _OPTION[command]))
        first = words[:1] or [""] if command == "characterize" else words
        for name in (word.partition("=")[0] for word in first):
            if name in _OWN[command]:
                raise UsageError(
                    f"{_OPTION[command]} {text}: p3s submit writes {name} itself, or it is of no "
                    "use in a job; leave it out, or give it before --"
                )
            if command == "characterize" and name not in options_known:
                raise UsageError(f"--trace {text}: {name or 'it'} is no option of p3s {command}")
        words_given += words
    return words_given


def hand_in(batch: Batch, jobs: JobScripts, *, dry_run: bool, submit: bool, json_: bool) -> int:
    """Print, write or hand over scripts; return the exit code."""
    from p3s.pipeline.jobs import hand_over, write_scripts

    scripts = [*jobs.scripts, *([jobs.last] if jobs.last else [])]
    start = "" if dry_run else write_scripts(batch, jobs, scripts)
    numbers = hand_over(batch, jobs, scripts) if submit else []
    if json_:
        _emit(scripts, numbers or [None] * len(scripts), written=not dry_run)
    elif dry_run and len(scripts) == 1:
        out(scripts[0].text.rstrip("\n"))
    elif dry_run:
        out("\n\n".join(f"==> {each.path} <==\n{each.text}".rstrip("\n") for each in scripts))
    elif numbers:
        for each, number in zip(scripts, numbers, strict=True):
            out(f"job {number}: {batch.scheduler.log_of(each.job, number)}")
    else:
        out("\n".join(str(each.path) for each in scripts))
    if numbers:
        subject = "they have" if len(numbers) > 1 else "it has"
        say(f"next, when {subject} ended: {jobs.then}")
    elif start:
        say(f"next: {start}")
    return 0


def _emit(scripts: Sequence[Script], numbers: Sequence[str | None], *, written: bool) -> None:
    jobs = [
        {
            "script": str(each.path) if written else None,
            "job": int(number) if number and number.isdigit() else number,
            "text": each.text,
        }
        for each, number in zip(scripts, numbers, strict=True)
    ]
    emit("submission", **jobs[0], jobs=jobs)
