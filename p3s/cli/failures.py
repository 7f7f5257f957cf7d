"""What is said of an error, and with which exit code a command line ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import typer

from p3s.base.errors import P3SError
from p3s.base.text import join_words, one_line
from p3s.base.version import __version__
from p3s.cli.common import ReaderGone, emit, forget_output, say
from p3s.cli.making import OnDemand, load_command
from p3s.cli.table import ALIAS

BUG = 70
#: Bytes that are to be had where memory is not what was missing.
_ROOM = 64 << 20
#: Address space that Python and the libraries take before anything is computed.
_LEAST = 512 << 20
#: An option that more commands have is no hint.
_MOST_NAMED = 3
# typer brings its own copy of click from 0.20 on; its public BadParameter leads to the class
# that all usage errors share in either case.
_CLICK_ERROR: type[Exception] = typer.BadParameter.__mro__[2]


def check_room(args: Sequence[str]) -> None:
    """Raise P3SError where libraries are not given the memory to load: some then wait for ever."""
    import resource

    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if 0 <= most < _LEAST and args[0] != "exec" and not {"--help", "-h", "--version"} & {*args}:
        raise P3SError(
            f"ulimit -v allows {most >> 20} MiB, the libraries that P3S loads take {_LEAST >> 20};"
            " raise it: ulimit -v unlimited"
        )


def failure(err: Exception) -> tuple[str, int]:
    """Return what is wrong, and the exit code; raises what it is with P3S_DEBUG=1."""
    if isinstance(err, P3SError):
        return str(err), err.exit_code
    if isinstance(err, _CLICK_ERROR):
        return _usage_text(err), 2
    if os.environ.get("P3S_DEBUG") == "1":
        raise err
    if isinstance(err, (OSError, MemoryError)):
        name = getattr(err, "filename", None)
        if isinstance(err, FileNotFoundError) and not name and _is_nowhere():
            return "the directory that you are in was deleted; change to another", 1
        where = f"{name}: " if name else ""
        why = getattr(err, "strerror", None) or str(err) or "out of memory"
        return f"{where}{why}; P3S_DEBUG=1 shows where", 1
    if isinstance(err, ImportError):  # also where there is no memory left for a library
        name = err.name or err.path or "a library"
        message = " ".join(str(err).split())
        why = (
            f"{name} cannot be loaded: {message}; is there memory left? p3s doctor tries libraries"
        )
        return why, 1
    if isinstance(err, (SystemError, RuntimeError)) and _lacks_memory():
        return "out of memory; P3S_DEBUG=1 shows where", 1
    text = (
        f"internal error: {type(err).__name__}: {str(err)[:200]}; this is a bug in p3s "
        f"{__version__}: please report it with the output of the same command under "
        "P3S_DEBUG=1 and of p3s doctor --report"
    )
    return text, BUG


def fail(args: Sequence[str], text: str, code: int) -> int:
    """Say why a command line has failed, also as JSON where that was asked for; return the code."""
    text = one_line(text)
    try:
        say(f"p3s: {text}")
    except (ReaderGone, OSError):  # closed or full: the exit code remains
        forget_output(sys.stderr)
    if "--json" in (args[: args.index("--")] if "--" in args else args):
        emit("error", error=text, exit_code=code)
    return code


def _usage_text(err: Any) -> str:
    ctx = getattr(err, "ctx", None)
    path = ctx.command_path if ctx is not None else "p3s"
    message = err.format_message().rstrip(". ")
    if type(err).__name__ == "NoSuchOption":  # each version of typer says it in other words
        message = f"No such option: {err.option_name}"
        others = [] if ctx is None else _with_option(err.option_name, path.rpartition(" ")[2])
        if others:
            message += f", which belongs to p3s {join_words(others)}"
        elif err.possibilities:
            message += f" (Possible options: {', '.join(sorted(err.possibilities))})"
    return f"{message}; see {path} --help"


def _with_option(option: str, command: str) -> list[str]:
    """Return the other commands that have an option, none where many do: then it is no hint."""
    having = [
        name
        for name in OnDemand()
        if any(option in (*each.opts, *each.secondary_opts) for each in load_command(name).params)
    ]
    names = [name for name in having if name not in (command, ALIAS)]
    return names if len(names) <= _MOST_NAMED else []


def _is_nowhere() -> bool:
    """Tell whether the current directory is gone."""
    try:
        return not os.getcwd()
    except OSError:
        return True


def _lacks_memory() -> bool:
    """Tell whether this process gets no more memory.

    Python 3.11 calls some of that SystemError, and a thread that gets no stack RuntimeError. Asked
    of the system: what was freed before may hold what Python asks for, but no thread's stack.
    """
    try:
        import mmap

        mmap.mmap(-1, _ROOM).close()
    except (ImportError, MemoryError, OSError):
        return True
    return False
