"""What the commands say of themselves in ``--help``, for pages that are made from it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import click
import typer

from p3s.cli.helptext import SHOW_ALL, row
from p3s.cli.main import app


@dataclass(frozen=True)
class Command:
    """A command with its names; ``same_as`` is the command that it is another name of, or empty."""

    path: str
    command: click.Command
    context: click.Context
    same_as: str

    @property
    def depth(self) -> int:
        """Return 0 for p3s, 1 for its commands, 2 for theirs."""
        return self.path.count(" ")

    @property
    def short(self) -> str:
        """Return the sentence that the list of commands has."""
        return self.command.get_short_help_str(limit=200)

    @property
    def usage(self) -> str:
        """Return how it is called, in one line."""
        return " ".join(self.command.get_usage(self.context).removeprefix("Usage: ").split())

    @property
    def paragraphs(self) -> list[tuple[bool, str]]:
        r"""Return the paragraphs of the help; true are those that keep their lines (behind \b)."""
        texts = inspect.cleandoc(self.command.help or "").split("\n\n")
        return [_paragraph(text) for text in texts if text.strip()]

    @property
    def options(self) -> list[tuple[str, str]]:
        """Return arguments and options with what they do."""
        shown = [each for each in self.command.get_params(self.context) if _shown(each)]
        return [_row(each, self.context) for each in shown]

    @property
    def epilog(self) -> list[str]:
        """Return the lines below the options: words and examples."""
        return inspect.cleandoc((self.command.epilog or "").replace("\b\n", "")).splitlines()

    @property
    def groups(self) -> dict[str, list[tuple[str, str]]]:
        """Return its own commands by their group, with their sentences; empty where it has none."""
        told = _Told()
        if hasattr(self.command, "format_commands"):
            self.command.format_commands(self.context, told)
        return told.rows


@dataclass
class _Told:
    """Takes what would be printed, in place of click's formatter."""

    rows: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    title: str = ""
    width: int = 400

    @contextmanager
    def section(self, title: str) -> Iterator[None]:
        self.title = title
        yield

    def write_dl(self, rows: list[tuple[str, str]]) -> None:
        self.rows[self.title] = list(rows)


def program() -> Command:
    """Return p3s itself."""
    root = typer.main.get_command(app)
    context = click.Context(root, info_name="p3s")
    context.meta[SHOW_ALL] = True
    return Command("p3s", root, context, "")


def commands() -> Iterator[Command]:
    """Yield the commands in the order of the help, those of a group after it."""
    first = program()
    seen: dict[object, str] = {}
    for command, context in _inside(first.command, first.context):
        path = context.command_path
        # A group has no function of its own; typer wraps that of a command for each of its names.
        what = inspect.unwrap(command.callback) if command.callback else command
        known = seen.setdefault(what, path)
        yield Command(path, command, context, "" if known == path else known)


def _inside(
    group: click.Command, context: click.Context
) -> Iterator[tuple[click.Command, click.Context]]:
    for name in group.list_commands(context):  # type: ignore[attr-defined]
        command = group.get_command(context, name)  # type: ignore[attr-defined]
        if command is None or command.hidden:
            continue
        inside = click.Context(command, info_name=name, parent=context)
        yield command, inside
        if hasattr(command, "list_commands"):
            yield from _inside(command, inside)


def _paragraph(text: str) -> tuple[bool, str]:
    if text.startswith("\b\n"):
        return True, text.removeprefix("\b\n")
    return False, " ".join(text.split())


def _shown(parameter: click.Parameter) -> bool:
    return not getattr(parameter, "hidden", False) and parameter.name != "help"


def _row(parameter: click.Parameter, context: click.Context) -> tuple[str, str]:
    record = row(parameter, context)
    assert record is not None, parameter.name
    return record[0], " ".join(record[1].split())
