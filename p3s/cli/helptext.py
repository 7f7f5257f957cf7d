"""What ``--help`` says of arguments and options: the same words with every version of typer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

#: What typer says of the numbers that an option takes, and of values with nothing else to say.
_RANGE = re.compile(r"(?P<low>-?[\d.]+)<=x<=(?P<high>-?[\d.]+)|x>=(?P<least>-?[\d.]+)")
#: What is behind the text of an option: its default, its range, whether it must be there.
_MORE = re.compile(r" *\\?\[(?P<more>[^\[\]]*)\]$")


class Command(typer.core.TyperCommand):
    """A command whose help names values in capitals and ranges in words."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return what stands behind the command's name: arguments as they are typed."""
        pieces = [self.options_metavar] if self.options_metavar else []
        for each in self.get_params(ctx):
            if each.param_type_name == "argument":
                pieces.append(_name(each) if each.required else f"[{_name(each)}]")
        return pieces

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options."""
        for title, kind in (("Arguments", "argument"), ("Options", "option")):
            if rows := list(_rows(self, ctx, kind)):
                with formatter.section(title):
                    formatter.write_dl(rows)


def row(parameter: Any, ctx: Any) -> tuple[str, str] | None:
    """Return how an argument or option is written, and what it does; None for a hidden one."""
    record = parameter.get_help_record(ctx)
    if record is None:
        return None
    name, told = record
    if parameter.param_type_name == "argument":
        name = _name(parameter)
    return name, _MORE.sub(lambda found: f"  [{_in_words(found['more'])}]", told)


def _rows(command: typer.core.TyperCommand, ctx: Any, kind: str) -> Iterator[tuple[str, str]]:
    for each in command.get_params(ctx):
        if each.param_type_name == kind and (made := row(each, ctx)) is not None:
            yield made


def _name(argument: Any) -> str:
    """Return how an argument is named: in capitals, with dots where several may be given."""
    name = str(argument.metavar or argument.name).upper()
    return name if argument.nargs == 1 or name.endswith("...") else f"{name}..."


def _in_words(more: str) -> str:
    """Return what typer says behind an option's text, ranges in words."""

    def told(found: re.Match[str]) -> str:
        low, high, least = (word and f"{float(word):g}" for word in found.groups())
        return f"at least {least}" if least else f"{low} to {high}"

    return _RANGE.sub(told, more)
