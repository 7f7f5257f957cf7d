"""The command line: registers the commands and turns every ending into an exit code.

Exit codes: 0 done, 1 failed, 2 usage, 3 partial or not to be trusted, 4 gate failed,
70 a bug in P3S, 130 and 143 interrupted.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

import typer

from p3s.base.errors import UsageError
from p3s.base.version import __version__
from p3s.cli.common import ReaderGone, forget_output, out
from p3s.cli.failures import BUG, check_room, fail, failure
from p3s.cli.making import CommandGroups

#: Given before the command: p3s is started by mpiexec, and all ranks compute.
_MPI = "--mpi"
INTERRUPTED = 130


def _show_version(value: bool) -> None:
    if value:
        out(f"p3s {__version__}")
        raise typer.Exit()


app = typer.Typer(
    name="p3s",
    cls=CommandGroups,
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


class _Termination(BaseException):
    """SIGTERM or SIGHUP arrived; unwinding ends the programs that were started."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _on_signal(number: int, _frame: FrameType | None) -> None:
    raise _Termination(number)


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
        check_room(args)
        # One standalone_mode=False call: errors come here, results are exit codes.
        code = int(app(list(args), prog_name="p3s", standalone_mode=False) or 0)
        if code == INTERRUPTED:  # typer has already turned Ctrl-C into this code
            raise KeyboardInterrupt
        return code
    except (KeyboardInterrupt, typer.Abort):
        return fail(args, "interrupted; what was finished before is kept", INTERRUPTED)
    except _Termination as err:
        return fail(args, "ended by a signal; what was finished is kept", 128 + err.number)
    except (ReaderGone, BrokenPipeError):
        raise
    except Exception as err:
        return fail(args, *failure(err))


def main() -> int:
    """Run the command line of this process and return its exit code."""
    if sys.argv[1:2] != ["exec"]:  # becomes another program: its signals stay as they are
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _on_signal)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller: p3s check study >&-
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    return _with_ranks(sys.argv[1:])


def _run_command(args: Sequence[str]) -> int:
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
            return workers.on_ranks(lambda: _run_command(args))
        except (ImportError, RuntimeError) as err:  # no libmpi, or that of another MPI
            return fail(args, f"{_MPI}: MPI cannot be started: {err}; p3s doctor tells more", 1)
    launched = workers.read_launcher_rank()
    if launched is None or args[:1] == ["exec"] or not args or args[0].startswith("-"):
        return _run_command(args)
    rank, size = launched
    if rank:
        return UsageError.exit_code
    words = f"{_MPI} {args[0]} ..."
    return fail(
        args,
        f"a launcher has started p3s {size} times, each would do all of the work; "
        f"write p3s {words} to share it, or start p3s once",
        UsageError.exit_code,
    )
