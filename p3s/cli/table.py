"""The table of commands: files beside this one say what each is called, takes, excludes, shows.

``commands/index.toml`` lists them; the file of a command has its parameters, the rules between them
and the end of its help. Help, completion, man pages and checks are made from these.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any

from p3s.base.extensions import Command, extensions
from p3s.cli.declared import argument, option

#: Another name of p3s characterize.
ALIAS = "trace"
#: Stands in a help text for the names of all estimators.
_ESTIMATORS = "$ESTIMATORS"


@cache
def entries(command: str) -> Mapping[str, Any]:
    """Return what the table has of a command, by the words that are typed; {} where nothing."""
    name = "characterize" if command == ALIAS else command.replace(" ", "-")
    file = resources.files("p3s.cli") / "commands" / f"{name}.toml"
    return tomllib.loads(file.read_text("utf-8")) if file.is_file() else {}


def own_commands() -> Iterator[Command]:
    """Yield the core's own commands in the order of the help."""
    for group in entries("index")["groups"]:
        for each in group["commands"]:
            yield Command(group=group["title"], **each)


def commands() -> Iterator[Command]:
    """Yield the core's commands, then those of extensions, which are imported only then."""
    yield from own_commands()
    for each in extensions():
        yield from each.commands


def usual() -> frozenset[str]:
    """Return the commands that ``p3s --help`` shows; ``p3s help --all`` shows the others too."""
    return frozenset(entries("index")["usual"])


def rare(command: str) -> frozenset[str]:
    """Return the options of a command that --help leaves to --help-all."""
    return frozenset(entries(command).get("rare", ()))


def parameter(command: str, name: str, kind: Any) -> Any:
    """Return an option or argument of a command as typer has it, by the parameter that takes it.

    kind: its type; without a default a text, a list or a flag is empty, anything else None. What
    the command's file does not have is one that several commands share.
    """
    entries_of_command = entries(command).get("parameters", {})
    row = dict(entries_of_command[name] if name in entries_of_command else entries("shared")[name])
    if (text := row.pop("help")).find(_ESTIMATORS) >= 0:
        from p3s.predict.estimated import ESTIMATORS

        text = text.replace(_ESTIMATORS, ", ".join(("auto", *ESTIMATORS)))
    if "argument" in row:
        return argument(row["argument"], text, None if row.get("optional") else ...)
    empty = {str: "", bool: False}.get(kind, [] if str(kind).startswith("list") else None)
    default = ... if row.pop("required", False) else row.pop("default", empty)
    return option(default, row.pop("option"), text, **row)


def make_shared(name: str, kind: Any = str) -> Any:
    """Return an option or argument that several commands share, for one of an extension."""
    return parameter("shared", name, kind)
