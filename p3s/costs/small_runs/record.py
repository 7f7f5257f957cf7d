"""Put the runs of a smaller workload into a study, as a study of its own inside it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from p3s.base.artefacts import reason, sync_directory, writing
from p3s.base.errors import P3SError, UsageError
from p3s.base.staging import discard, new_directory, release
from p3s.base.study import Study


def check_command(study: Study, command: Sequence[str]) -> None:
    """Raise UsageError where a command is that of the study's own workload.

    A program that was built again since may have another input compiled in.
    """
    from p3s.base.host.command import parse
    from p3s.costs.small_runs.builds import first_run_ns, rebuilt

    def program(words: Sequence[str]) -> tuple[str, ...] | None:
        try:
            return parse(list(words), 2, trusted=False).program
        except P3SError:  # the study's own may be gone by now
            return None

    words = list(command)
    if rebuilt(words, first_run_ns(study)):
        return
    for own in study.manifest()["commands"]:
        if own == words or program(own) == program(words) is not None:
            shown = " ".join(program(words) or words)
            raise UsageError(
                f"{shown}: this is the study's own workload; give a "
                "smaller input of the same program"
            )


def name_for(study: Study, command: Sequence[str]) -> str:
    """Return the name of the study for a command: that of its earlier runs, else the next free.

    A program that was built again since these runs may have another input: it gets its own.
    """
    from p3s.costs.small_runs.builds import first_run_ns, rebuilt

    words = list(command)
    taken = {path.name for path in study.far_dir("x").parent.glob("*")}
    for name in sorted(taken):
        path = study.far_dir(name)
        if (
            not name.startswith(".")
            and (path / "study.json").is_file()
            and words in Study(path).manifest()["commands"]
            and not rebuilt(words, first_run_ns(Study(path)))
        ):
            return name
    return next(f"w{k}" for k in range(1, len(taken) + 2) if f"w{k}" not in taken)


@contextmanager
def staged(study: Study, name: str, command: Sequence[str]) -> Iterator[Study]:
    """Give a study beside the one wanted; it is gone when this ends, unless :func:`commit` moved
    it: a run that is refused leaves nothing."""
    folder = study.far_dir(name).parent
    made = not folder.exists()
    with writing(study.far_dir(name)):
        folder.mkdir(parents=True, exist_ok=True)
        path = new_directory(study.far_dir(name))
    try:
        yield Study.create(path, command)
    finally:
        discard(path)
        if made:
            with suppress(OSError):
                folder.rmdir()


def commit(study: Study, name: str, new: Study, counts: Sequence[int]) -> Study:
    """Move the runs of ``counts`` to their place, far/NAME; earlier runs there stay."""
    from p3s.signature.phases import load_phases
    from p3s.signature.signature import characterize

    target = study.far_dir(name)
    if not target.exists():
        try:
            os.rename(new.root, target)
            release(new.root)
            sync_directory(target.parent)
        except OSError as err:
            raise P3SError(f"{target}: cannot be put in place: {reason(err)}") from err
        return Study(target)
    old = Study.open(target)
    for np in counts:
        for run in new.runs(np):
            old.commit_run(run.path, old.runs_dir(np, run.rep))
        for run in new.timed_runs(np):
            into = old.timed_dir(np, run.rep)
            into.parent.mkdir(exist_ok=True)
            old.commit_run(run.path, into)
        characterize(old.root, np)  # with the repeats that were there before
    old.update()
    load_phases(old.root)
    return old
