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
from typing import Any

from p3s.base.errors import P3SError

#: Entry points of distributions from outside.
GROUP = "p3s.extensions"
#: Extensions that come with P3S, in the order in which reports and help show them.
BUILT_IN: tuple[str, ...] = ("p3s.methods.baseline.extension", "p3s.methods.placement.extension")


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


@dataclass(frozen=True)
class Extension:
    """What one method or format adds, each as ``module:name`` of an object of that protocol.

    ``sections``: p3s.report.parts.Section. ``schemas``: p3s.base.schemas.published.Published.
    ``studies``: functions of a study's directory, its progress and more, which the Python API
    offers as methods of a study, under their names.
    """

    name: str
    commands: tuple[Command, ...] = ()
    readers: tuple[str, ...] = ()
    writers: tuple[str, ...] = ()
    sections: tuple[str, ...] = ()
    estimators: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    schemas: tuple[str, ...] = ()
    studies: tuple[str, ...] = ()


@cache
def extensions() -> tuple[Extension, ...]:
    """Return all extensions; raises P3SError for one from outside that cannot be imported."""
    modules = [*BUILT_IN, *sorted(point.value for point in metadata.entry_points(group=GROUP))]
    return tuple(_extension(name) for name in modules)


def provided(kind: str) -> Iterator[Any]:
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
