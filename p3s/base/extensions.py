"""Methods and formats beside the core: what each registers, imported when it is needed.

An extension is a module with a constant ``EXTENSION``. Those that come with P3S are named in
:data:`BUILT_IN`; a distribution from outside names its module as an entry point of the group
:data:`GROUP`. The core imports no extension: it asks this table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, Literal, Protocol

from p3s.base.errors import P3SError

#: Entry points of distributions from outside.
GROUP = "p3s.extensions"
#: Extensions that come with P3S, in the order in which reports and help show them.
BUILT_IN: tuple[str, ...] = (
    "p3s.methods.baseline",
    "p3s.methods.threads",
    "p3s.methods.placement",
    "p3s.methods.pas2p",
    "p3s.methods.tasks",
    "p3s.formats",
)


@dataclass(frozen=True)
class Command:
    """A command that an extension adds.

    ``function``: ``module:name`` of a function with typer's options, or of a typer.Typer.
    ``summary``: its line in the help. ``group``: title of its group there. ``parent``: the command
    that it belongs to (``machine`` of ``p3s machine learn``), empty for one of its own.
    ``takes_launcher``: words after ``--`` are a launcher command. ``program_options``: options end
    at the first word that is none, those behind it are the traced program's.
    """

    name: str
    function: str
    summary: str
    group: str = "Expert"
    parent: str = ""
    takes_launcher: bool = False
    program_options: bool = False


#: What a format is made of: a scaled trace, a traced or simulated run, points of all counts.
Content = Literal["scaled", "run", "simulated", "points"]


@dataclass(frozen=True)
class Writer:
    """A format that ``p3s export --to`` writes.

    ``function``: ``module:name`` of (content, p3s.formats.exported.ExportResult): writes content
    (p3s.formats: run.Run, scaled.Scaled, study.Points) and adds to what is said. ``summary``: its
    line in the help. ``suffix``: of a new file or directory. ``of_ranks``: it can be of some ranks.
    ``splits``: of a part of the run it is a directory, a file for each section, without the suffix.
    """

    name: str
    function: str
    summary: str
    suffix: str
    content: Content
    of_ranks: bool = False
    splits: bool = False


@dataclass(frozen=True)
class ImportNotes:
    """What a capture lacks: (MPI call, events) that are not in it; what to mind, a line each."""

    left_out: tuple[tuple[str, int], ...] = ()
    notes: tuple[str, ...] = ()


class Reader(Protocol):
    """A format of traces that ``p3s add`` takes beside captures."""

    def recognise(self, path: Path) -> Path | None:
        """Return what is to be read of a file or directory; None where it is another format."""

    def read(self, source: Path, directory: Path) -> ImportNotes:
        """Write it as a capture into an empty directory; P3SError where it cannot be read."""


@dataclass(frozen=True)
class Estimator:
    """What says how long communication takes (``--estimator``), on the costs of a machine file.

    ``summary``: what it is; ``reason``: why a prediction rests on it. ``communication``:
    ``module:name`` of (traces, n, machine, p3s.predict.estimators.Setting, say) ->
    p3s.predict.estimated.Communication; ``why_not``: of (traces, machine) -> "" or why it cannot be
    used, none where it always can.
    """

    name: str
    summary: str
    reason: str
    communication: str
    why_not: str = ""


@dataclass(frozen=True)
class Extension:
    """What one method or format adds; words are ``module:name`` of an object of that protocol.

    ``sections``: p3s.report.sections.Section. ``schemas``: p3s.base.serialise.FileFormat.
    ``studies``: functions of a study's directory (a path), its progress and more, which the Python
    API offers as methods of a study, under their names. ``alternatives``: a command of the core,
    and a function that is asked first: of parameters of the command, by their names, and typer
    options of its own. It returns an exit code; None where the command is to go on.
    ``teams``: p3s.pipeline.parameters.OverThreads.
    ``structures``: functions of p3s.base.records.Traces that return a
    p3s.predict.estimates.Structure, or None.
    """

    name: str
    commands: tuple[Command, ...] = ()
    readers: tuple[str, ...] = ()
    writers: tuple[Writer, ...] = ()
    sections: tuple[str, ...] = ()
    estimators: tuple[Estimator, ...] = ()
    settings: tuple[str, ...] = ()
    schemas: tuple[str, ...] = ()
    studies: tuple[str, ...] = ()
    alternatives: tuple[tuple[str, str], ...] = ()
    structures: tuple[str, ...] = ()
    teams: tuple[str, ...] = ()


@cache
def extensions() -> tuple[Extension, ...]:
    """Return all extensions; raises P3SError for one from outside that cannot be imported."""
    modules = [*BUILT_IN, *sorted(point.value for point in metadata.entry_points(group=GROUP))]
    return tuple(_extension(name) for name in modules)


def load_provided(kind: str) -> Iterator[Any]:
    """Yield the objects of one kind (``readers``, ``writers``, ...) of all extensions."""
    for each in extensions():
        yield from (load(where) for where in getattr(each, kind))


def load(where: str) -> Any:
    """Return the object that ``module:name`` names."""
    module, _, name = where.partition(":")
    return getattr(import_module(module), name)


def _extension(module: str) -> Extension:
    try:
        extension = import_module(module).EXTENSION
    except (ImportError, AttributeError) as error:
        raise P3SError(
            f"extension {module} cannot be loaded: {error}; uninstall it or mend it"
        ) from error
    if not isinstance(extension, Extension):
        raise P3SError(f"extension {module}: EXTENSION is no p3s.base.extensions.Extension")
    return extension
