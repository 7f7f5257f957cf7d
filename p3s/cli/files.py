"""The option --io: which file system is predicted for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from p3s.cli.helptext import option

if TYPE_CHECKING:
    from p3s.base.study import Study
    from p3s.machine.filesystem import FileSystem

#: In place of a file: what the traced runs took.
RUNS = "runs"
IO = option(
    "",
    "--io FILE|NAME",
    "File system to predict for: a file of p3s machine measure --io, or one of p3s machine"
    " list; runs: what the traced runs took [default: that of the machine file, else of the runs].",
)


def file_system(text: str) -> FileSystem | None:
    """Return the file system that --io names; None for none, and for the runs' own times."""
    from p3s.machine.filesystem import names, typical
    from p3s.machine.machinefile import files_of

    if text in ("", RUNS):
        return None
    return typical(text) if text in names() else files_of(Path(text))


def keep_file_system(study: Study, text: str, found: FileSystem | None) -> None:
    """Keep in the study what --io says; without the option what is there stays."""
    from p3s.machine.filesystem import NAME, FileSystem

    path = study.root / NAME
    if text == RUNS:
        found = FileSystem("", "", ())
    if found is not None and not (path.exists() and FileSystem.load(path) == found):
        found.save(path)
