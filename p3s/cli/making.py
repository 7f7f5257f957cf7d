"""The commands of the table as typer makes them, each when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, wraps
from inspect import Parameter, Signature, signature
from typing import Any

import typer
from typer.core import TyperGroup

from p3s.base.extensions import Command, extensions, load
from p3s.cli import helptext
from p3s.cli.helptext import SHOW_ALL
from p3s.cli.table import commands, entries, parameter, usual


@cache
def load_command(name: str) -> Any:
    """Return a command as typer makes it; KeyError where there is none."""
    for command in commands():
        if command.name == name and not command.parent:
            return _make_command(command)
    raise KeyError(name)


def _make_command(command: Command) -> Any:
    """Return a command, with those that belong to it, as typer makes it."""
    function, name = load(command.function), command.name
    words = f"{command.parent} {name}".strip()
    epilog = entries(words).get("epilog") or load(command.function.partition(":")[0] + ":EPILOG")
    alone = typer.Typer(callback=lambda: None, rich_markup_mode=None, add_completion=False)
    if isinstance(function, typer.Typer):
        alone.add_typer(function, name=name, epilog=epilog, short_help=command.summary)
    else:
        alone.command(
            name,
            cls=helptext.WithLauncher if command.takes_launcher else helptext.Command,
            context_settings={"allow_interspersed_args": not command.program_options},
            epilog=epilog,
            short_help=command.summary,
        )(_with_alternatives(words, _fill_defaults(words, function)))
    whole = typer.main.get_command(alone).commands[name]  # type: ignore[attr-defined]
    if isinstance(function, typer.Typer):
        whole.commands |= {
            each.name: _make_command(each) for each in commands() if each.parent == name
        }
    return whole


def _fill_defaults(words: str, function: Callable[..., int]) -> Callable[..., int]:
    """Return a command whose parameters without a default are those of the table."""
    every = [
        each
        if each.default is not Parameter.empty or each.annotation is typer.Context
        else each.replace(default=parameter(words, each.name, each.annotation))
        for each in signature(function, eval_str=True).parameters.values()
    ]
    return _set_signature(function, every)


def _set_signature(function: Callable[..., int], every: Sequence[Parameter]) -> Callable[..., int]:
    """Return a function as one with these parameters, as typer looks at it."""
    function.__signature__ = Signature(every)  # type: ignore[attr-defined]
    function.__annotations__ = {each.name: each.annotation for each in every}
    return function


def _with_alternatives(name: str, command: Callable[..., int]) -> Callable[..., int]:
    """Return a command that asks extensions first, with their options before its last one."""
    others = [
        load(where) for each in extensions() for owner, where in each.alternatives if owner == name
    ]
    if not others:
        return command
    of = [signature(function, eval_str=True).parameters for function in (command, *others)]
    *usual_, last = of[0].values()
    added = {each.name: each for one in of[1:] for each in one.values() if each.name not in of[0]}

    @wraps(command)
    def first(**values: Any) -> int:
        for other, takes in zip(others, of[1:], strict=True):
            code: int | None = other(**{each: values[each] for each in takes})
            if code is not None:
                return code
        return command(**{each: values[each] for each in of[0]})

    return _set_signature(first, [*usual_, *added.values(), last])


class OnDemand(Mapping[str, Any]):
    """The commands by name; the module of one is imported when it is asked for.

    All of them together take longer to import than a small study to read.
    """

    def __getitem__(self, name: str) -> Any:
        return load_command(name)

    def __iter__(self) -> Iterator[str]:
        return (command.name for command in commands() if not command.parent)

    def __len__(self) -> int:
        return len(list(iter(self)))


class CommandGroups(TyperGroup):
    """The commands, in their groups."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**settings, "commands": OnDemand()})

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each group."""
        every = ctx.meta.get(SHOW_ALL)
        groups: dict[str, list[tuple[str, str]]] = {}
        for each in commands():
            if not each.parent and (every or each.name in usual()):
                groups.setdefault(each.group, []).append((each.name, each.summary))
        for title, rows in groups.items():
            with formatter.section(title):
                formatter.write_dl(rows)
        if not every:
            formatter.write_paragraph()
            formatter.write_text("More commands: p3s help --all")
