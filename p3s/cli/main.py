"""The command line: registers the commands and turns every ending into an exit code.

Exit codes: 0 done, 1 failed, 2 usage, 3 partial or not to be trusted, 4 gate failed,
70 a bug in P3S, 130 and 143 interrupted.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, wraps
from inspect import Signature, signature
from types import FrameType
from typing import Any

import typer
from typer.core import TyperGroup

from p3s.base.errors import P3SError, UsageError
from p3s.base.extensions import Command, extensions, load
from p3s.base.text import joined, one_line
from p3s.base.version import __version__
from p3s.cli import helptext
from p3s.cli.common import ReaderGone, WithLauncher, emit, forget_output, out, say
from p3s.cli.helptext import SHOW_ALL

BUG = 70
#: Bytes that are to be had where memory is not what was missing.
_ROOM = 64 << 20
#: Address space that Python and the libraries take before anything is computed.
_LEAST = 512 << 20
#: Given before the command: p3s is started by mpiexec, and all ranks compute.
_MPI = "--mpi"
#: An option that more commands have is no hint.
_MOST_NAMED = 3
INTERRUPTED = 130


class _OnDemand(Mapping[str, Any]):
    """The commands by name; the module of one is imported when it is asked for.

    All of them together take longer to import than a small study to read.
    """

    def __getitem__(self, name: str) -> Any:
        return _loaded(name)

    def __iter__(self) -> Iterator[str]:
        return (command.name for command in _commands() if not command.parent)

    def __len__(self) -> int:
        return len(list(iter(self)))


class Grouped(TyperGroup):
    """The commands, in their groups."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**settings, "commands": _OnDemand()})

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each group."""
        every = ctx.meta.get(SHOW_ALL)
        groups: dict[str, list[tuple[str, str]]] = {}
        for each in _commands():
            if not each.parent and (every or each.name in _USUAL):
                groups.setdefault(each.group, []).append((each.name, each.summary))
        for title, rows in groups.items():
            with formatter.section(title):
                formatter.write_dl(rows)
        if not every:
            formatter.write_paragraph()
            formatter.write_text("More commands: p3s help --all")


app = typer.Typer(
    name="p3s",
    cls=Grouped,
    help="Trace an MPI program at a few small process counts, predict its run time at large ones.",
    epilog=(
        "\b\nExample:\n"
        "  p3s predict study -n 32,64 -- mpiexec -n {np} ./program input\n"
        "  p3s report study\n"
        "First: p3s doctor"
    ),
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

#: Commands that ``p3s --help`` shows; ``p3s help --all`` shows the others too.
_USUAL = frozenset(
    "help doctor characterize predict report next phases model validate compare machine place "
    "advise".split()
)
#: Another name of p3s characterize.
_ALIAS = "trace"

#: The core's own commands in their groups, in the order of the help: name, module and function of
#: p3s.cli, its line.
_ROWS = {
    "Start": [
        ("doctor", "doctor:doctor", "Check what this machine has for tracing, and what it lacks."),
        (
            "characterize",
            "characterize:characterize",
            "Trace your program at a few small process counts.",
        ),
        (_ALIAS, "characterize:characterize", "The same as characterize."),
        ("predict", "predict:predict", "Predict run time and speedup at larger process counts."),
        ("report", "report:report", "Write report.html and a picture of the speedup curve."),
        ("help", "help:help_", "Show the usual commands, all of them, or the help of one."),
        ("view", "view:view", "Open that page in a browser, here or through ssh."),
        ("next", "next:next_", "Name the process count whose trace would tell most."),
    ],
    "Inspect": [
        ("phases", "phases:phases", "Show loops, calls and where the time goes."),
        ("model", "model:model", "Show the equations of every call, and how well they hold."),
        ("explain", "explain:explain", "Show the values behind the equations of a phase."),
        ("matrix", "matrix:matrix", "Show who sends how much to whom."),
        ("check", "check:check", "Tell whether captured runs are whole."),
        ("dump", "dump:dump", "Print a captured run, or write it as Parquet."),
    ],
    "Compare and gate": [
        ("compare", "compare:compare", "Show two predictions side by side."),
        ("gate", "gate:gate", "Fail when a prediction misses the limit you set."),
        ("validate", "validate:validate", "Run the program at a count and compare every message."),
    ],
    "Machines and placement": [
        ("machine", "machine:app", "Measure this machine; list and compare machines.")
    ],
    "Expert": [
        ("exec", "exec:exec_", "Trace the program inside a launcher that you start."),
        ("add", "add:add", "Put runs captured elsewhere into a study."),
        ("scale", "scale:scale", "Write the predicted trace of a larger process count."),
        ("replay", "replay:replay", "Measure the communication of that trace on your nodes."),
        ("submit", "submit:submit", "Write batch scripts that trace or measure on a cluster."),
        ("recover", "recover:recover", "Save what is intact of a damaged capture."),
    ],
}
_OWN = tuple(
    Command(
        name,
        f"p3s.cli.{function}",
        summary,
        group,
        takes_launcher=name in ("doctor", "predict", "validate", "add", "submit"),
        program_options=name in (_ALIAS, "characterize", "exec"),
    )
    for group, rows in _ROWS.items()
    for name, function, summary in rows
)


def _commands() -> Iterator[Command]:
    """Yield the core's commands, then those of extensions, which are imported only then."""
    yield from _OWN
    for each in extensions():
        yield from each.commands


@cache
def _loaded(name: str) -> Any:
    """Return a command as typer makes it; KeyError where there is none."""
    for command in _commands():
        if command.name == name and not command.parent:
            return _made(command)
    raise KeyError(name)


def _made(command: Command) -> Any:
    """Return a command, with those that belong to it, as typer makes it."""
    made, name = load(command.function), command.name
    epilog = load(command.function.partition(":")[0] + ":EPILOG")
    alone = typer.Typer(callback=lambda: None, rich_markup_mode=None, add_completion=False)
    if isinstance(made, typer.Typer):
        alone.add_typer(made, name=name, epilog=epilog, short_help=command.summary)
    else:
        alone.command(
            name,
            cls=WithLauncher if command.takes_launcher else helptext.Command,
            context_settings={"allow_interspersed_args": not command.program_options},
            epilog=epilog,
            short_help=command.summary,
        )(_with_alternatives(name, made))
    whole = typer.main.get_command(alone).commands[name]  # type: ignore[attr-defined]
    if isinstance(made, typer.Typer):
        whole.commands |= {each.name: _made(each) for each in _commands() if each.parent == name}
    return whole


def _with_alternatives(name: str, made: Callable[..., int]) -> Callable[..., int]:
    """Return a command that asks extensions first, with their options before its last one."""
    others = [
        load(where) for each in extensions() for own, where in each.alternatives if own == name
    ]
    if not others:
        return made
    of = [signature(function, eval_str=True).parameters for function in (made, *others)]
    *usual, last = of[0].values()
    own = {each.name: each for one in of[1:] for each in one.values() if each.name not in of[0]}

    @wraps(made)
    def first(**given: Any) -> int:
        for other, takes in zip(others, of[1:], strict=True):
            code: int | None = other(**{each: given[each] for each in takes})
            if code is not None:
                return code
        return made(**{each: given[each] for each in of[0]})

    every = [*usual, *own.values(), last]
    first.__signature__ = Signature(every)  # type: ignore[attr-defined]
    first.__annotations__ = {each.name: each.annotation for each in every}
    return first


def _show_version(value: bool) -> None:
    if value:
        out(f"p3s {__version__}")
        raise typer.Exit()


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Print the version."
    ),
    mpi: bool = typer.Option(
        False,
        _MPI,
        help="Compute with all ranks: mpiexec -n 64 p3s --mpi predict STUDY -n 512,1024.",
    ),
) -> None:
    """Trace an MPI program at a few small process counts, predict its run time at large ones."""


# typer brings its own copy of click from 0.20 on; its public BadParameter leads to the class
# that all usage errors share in either case.
_CLICK_ERROR: type[Exception] = typer.BadParameter.__mro__[2]


class _Terminated(BaseException):
    """SIGTERM or SIGHUP arrived; unwinding ends the programs that were started."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _on_signal(number: int, _frame: FrameType | None) -> None:
    raise _Terminated(number)


def _wants_json(args: Sequence[str]) -> bool:
    head = args[: args.index("--")] if "--" in args else args
    return "--json" in head


def _fail(args: Sequence[str], text: str, code: int) -> int:
    text = one_line(text)
    try:
        say(f"p3s: {text}")
    except (ReaderGone, OSError):  # closed or full: the exit code remains
        forget_output(sys.stderr)
    if _wants_json(args):
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
            message += f", which belongs to p3s {joined(others)}"
        elif err.possibilities:
            message += f" (Possible options: {', '.join(sorted(err.possibilities))})"
    return f"{message}; see {path} --help"


def _with_option(option: str, command: str) -> list[str]:
    """Return the other commands that have an option, none where many do: then it is no hint."""
    found = [
        name
        for name in _OnDemand()
        if any(option in (*each.opts, *each.secondary_opts) for each in _loaded(name).params)
    ]
    names = [name for name in found if name not in (command, _ALIAS)]
    return names if len(names) <= _MOST_NAMED else []


def run(args: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        return _run(args)
    except (ReaderGone, BrokenPipeError):  # not worth a message
        for stream in (sys.stdout, sys.stderr):
            forget_output(stream)
        return 128 + signal.SIGPIPE


def _run(args: Sequence[str]) -> int:
    if not args:
        app(["--help"], prog_name="p3s", standalone_mode=False)
        return 2
    try:
        _check_room(args)
        # One standalone_mode=False call: errors come here, results are exit codes.
        code = int(app(list(args), prog_name="p3s", standalone_mode=False) or 0)
        if code == INTERRUPTED:  # typer has already turned Ctrl-C into this code
            raise KeyboardInterrupt
        return code
    except P3SError as err:
        return _fail(args, str(err), err.exit_code)
    except _CLICK_ERROR as err:
        return _fail(args, _usage_text(err), 2)
    except (KeyboardInterrupt, typer.Abort):
        return _fail(args, "interrupted; what was finished before is kept", INTERRUPTED)
    except _Terminated as err:
        return _fail(args, "ended by a signal; what was finished is kept", 128 + err.number)
    except (ReaderGone, BrokenPipeError):
        raise
    except (OSError, MemoryError) as err:
        if os.environ.get("P3S_DEBUG") == "1":
            raise
        name = getattr(err, "filename", None)
        if isinstance(err, FileNotFoundError) and not name and _is_nowhere():
            return _fail(args, "the directory that you are in was deleted; change to another", 1)
        where = f"{name}: " if name else ""
        why = getattr(err, "strerror", None) or str(err) or "out of memory"
        return _fail(args, f"{where}{why}; P3S_DEBUG=1 shows where", 1)
    except ImportError as err:  # also where there is no memory left for a library
        if os.environ.get("P3S_DEBUG") == "1":
            raise
        name = err.name or err.path or "a library"
        said = " ".join(str(err).split())
        why = f"{name} cannot be loaded: {said}; is there memory left? p3s doctor tries libraries"
        return _fail(args, why, 1)
    except Exception as err:
        if os.environ.get("P3S_DEBUG") == "1":
            raise
        if isinstance(err, (SystemError, RuntimeError)) and _starved():
            return _fail(args, "out of memory; P3S_DEBUG=1 shows where", 1)
        return _fail(
            args,
            f"internal error: {type(err).__name__}: {str(err)[:200]}; this is a bug in p3s "
            f"{__version__}: please report it with the output of the same command under "
            "P3S_DEBUG=1 and of p3s doctor --report",
            BUG,
        )


def _check_room(args: Sequence[str]) -> None:
    """Raise P3SError where libraries are not given the memory to load: some then wait for ever."""
    import resource

    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if 0 <= most < _LEAST and args[0] != "exec" and not {"--help", "-h", "--version"} & {*args}:
        raise P3SError(
            f"ulimit -v allows {most >> 20} MiB, the libraries that P3S loads take {_LEAST >> 20};"
            " raise it: ulimit -v unlimited"
        )


def _is_nowhere() -> bool:
    """Tell whether the current directory is gone."""
    try:
        return not os.getcwd()
    except OSError:
        return True


def _starved() -> bool:
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


def main() -> int:
    """Run the command line of this process and return its exit code."""
    if sys.argv[1:2] != ["exec"]:  # becomes another program: its signals stay as they are
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _on_signal)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller: p3s check study >&-
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    return _with_ranks(sys.argv[1:])


def _whole(args: Sequence[str]) -> int:
    try:
        return run(args)
    except Exception:  # only with P3S_DEBUG=1
        import traceback

        traceback.print_exc()
        return BUG


def _with_ranks(args: Sequence[str]) -> int:
    """Run one command line, at rank 0 alone where a launcher has started several."""
    from p3s.base import workers

    if args[:1] == [_MPI]:
        try:
            return workers.on_ranks(lambda: _whole(args))
        except (ImportError, RuntimeError) as err:  # no libmpi, or that of another MPI
            return _fail(args, f"{_MPI}: MPI cannot be started: {err}; p3s doctor tells more", 1)
    there = workers.launched()
    if there is None or args[:1] == ["exec"] or not args or args[0].startswith("-"):
        return _whole(args)
    rank, size = there
    if rank:
        return UsageError.exit_code
    words = f"{_MPI} {args[0]} ..."
    return _fail(
        args,
        f"a launcher has started p3s {size} times, each would do all of the work; "
        f"write p3s {words} to share it, or start p3s once",
        UsageError.exit_code,
    )
