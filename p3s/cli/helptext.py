"""What ``--help`` says of arguments and options: the same words with every version of typer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from p3s.cli import rules
from p3s.cli.table import rare

#: Entry of a context's meta: all options or commands are shown, or the launcher's words.
SHOW_ALL, WORDS = "p3s.show-all", "p3s.launcher"
_HELP_ALL = "--help-all"

#: What typer says of the numbers that an option takes, and of values with nothing else to say.
_RANGE = re.compile(r"(?P<low>-?[\d.]+)<=x<=(?P<high>-?[\d.]+)|x>=(?P<least>-?[\d.]+)")
#: What is behind the text of an option: its default, its range, whether it must be there.
_MORE = re.compile(r" *\\?\[(?P<more>[^\[\]]*)\]$")


class Command(typer.core.TyperCommand):
    """A command whose help names values in capitals and ranges in words.

    Its options are held to the rules between them. Where it has many, --help shows the usual ones
    and --help-all the others too.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options, and refuse those that exclude each other."""
        name = _path(ctx)
        own_words = args[: args.index("--")] if "--" in args else args
        if not ctx.allow_interspersed_args:
            own_words = own_words[:1]  # others may be the program's
        if rare(name) and _HELP_ALL in own_words:
            ctx.meta[SHOW_ALL] = True
            args = ["--help"]
        rest = super().parse_args(ctx, args)
        rules.check(name, _find_given(self, ctx))
        return rest

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
        if rare(_path(ctx)) and not ctx.meta.get(SHOW_ALL):
            formatter.write_paragraph()
            formatter.write_text(f"More options: {ctx.command_path} {_HELP_ALL}")


class WithLauncher(Command):
    """A command whose words after ``--`` are a launcher command, passed on untouched."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take everything after the first ``--`` away before the options are parsed."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[WORDS] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


def row(parameter: Any, ctx: Any) -> tuple[str, str] | None:
    """Return how an argument or option is written, and what it does; None for a hidden one."""
    record = parameter.get_help_record(ctx)
    if record is None:
        return None
    name, description = record
    if parameter.param_type_name == "argument":
        name = _name(parameter)
    description = _MORE.sub(lambda match: f"  [{_in_words(match['more'])}]", description)
    more = rules.remarks(_path(ctx), _names(parameter))
    return name, f"{description} ({more})" if more else description


def _path(ctx: Any) -> str:
    """Return the words of a command behind the program's name."""
    return str(ctx.command_path).partition(" ")[2]


def _names(parameter: Any) -> set[str]:
    """Return all names of an option, as --times and --no-times."""
    return {*parameter.opts, *parameter.secondary_opts}


def _find_given(command: typer.core.TyperCommand, ctx: Any) -> set[str]:
    """Return the names of the options on the command line, and that of a launcher command."""
    words = ctx.meta.get(WORDS)  # of p3s submit they may be options
    names = {rules.LAUNCHER} if words and not words[0].startswith("-") else set()
    for each in command.params:
        source = ctx.get_parameter_source(each.name)
        if source is None or source.name != "COMMANDLINE":
            continue
        off = each.secondary_opts and ctx.params.get(each.name) is False
        names.update(each.secondary_opts if off else each.opts)
    return names


def _rows(command: typer.core.TyperCommand, ctx: Any, kind: str) -> Iterator[tuple[str, str]]:
    for each in command.get_params(ctx):
        hidden = not ctx.meta.get(SHOW_ALL) and _names(each) & rare(_path(ctx))
        if each.param_type_name == kind and not hidden and (entry := row(each, ctx)) is not None:
            yield entry


def _name(argument: Any) -> str:
    """Return how an argument is named: in capitals, with dots where several may be given."""
    name = str(argument.metavar or argument.name).upper()
    return name if argument.nargs == 1 or name.endswith("...") else f"{name}..."


def _in_words(more: str) -> str:
    """Return what typer says behind an option's text, ranges in words."""

    def in_words(match: re.Match[str]) -> str:
        low, high, least = (word and f"{float(word):g}" for word in match.groups())
        return f"at least {least}" if least else f"{low} to {high}"

    return _RANGE.sub(in_words, more)
