"""The command line: registers the commands and turns every ending into an exit code.

Exit codes: 0 done, 1 failed, 2 usage, 3 partial or not to be trusted, 4 gate failed,
70 a bug in P3S, 130 and 143 interrupted.
"""

from __future__ import annotations

import inspect
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

import typer

from p3s.cli import (
    add,
    advise,
    baseline,
    characterize,
    check,
    compare,
    doctor,
    dump,
    exec,
    explain,
    export,
    gate,
    machine,
    matrix,
    model,
    next,
    phases,
    place,
    predict,
    recover,
    replay,
    report,
    scale,
    submit,
    validate,
)
from p3s.cli.common import ReaderGone, WithLauncher, emit_json, forget_output, header, out, say
from p3s.errors import P3SError
from p3s.text import joined, one_line
from p3s.version import __version__

BUG = 70
#: An option that more commands have is no hint.
_MOST_NAMED = 3
INTERRUPTED = 130

app = typer.Typer(
    name="p3s",
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

#: The program's own options must reach it: parsing stops at the first word that is no option.
_PASS_THROUGH = {"allow_interspersed_args": False}

_COMMANDS: list[tuple[Any, Any, str, dict[str, Any]]] = [
    (
        characterize,
        characterize.characterize,
        "Trace the program at small counts.",
        {"context_settings": _PASS_THROUGH},
    ),
    (
        exec,
        exec.exec_,
        "Trace it inside a running launcher.",
        {"name": "exec", "context_settings": _PASS_THROUGH},
    ),
    (add, add.add, "Put such captures into a study.", {"cls": WithLauncher}),
    (phases, phases.phases, "Show phases, loops and call sites.", {}),
    (model, model.model, "Fit equations and check them.", {}),
    (explain, explain.explain, "What one phase's equations rest on.", {}),
    (next, next.next_, "Which count to trace next.", {"name": "next"}),
    (scale, scale.scale, "Write the trace at larger counts.", {}),
    (replay, replay.replay, "Measure its communication.", {}),
    (submit, submit.submit, "Write a batch script that does so.", {}),
    (predict, predict.predict, "All that is missing, then times.", {"cls": WithLauncher}),
    (advise, advise.advise, "Processes, threads and nodes.", {}),
    (place, place.place, "Which rank on which node.", {}),
    (report, report.report, "Write report.html and a picture.", {}),
    (compare, compare.compare, "Two predictions side by side.", {}),
    (gate, gate.gate, "Fail when a prediction is not good enough.", {}),
    (validate, validate.validate, "Run at a count and compare.", {"cls": WithLauncher}),
    (export, export.export, "For SimGrid, OTF2 and other tools.", {}),
    (matrix, matrix.matrix, "Who sends how much to whom.", {}),
    (check, check.check, "What captures hold and lack.", {}),
    (recover, recover.recover, "Save what is intact of a capture.", {}),
    (dump, dump.dump, "A capture as text, totals or Parquet.", {}),
    (doctor, doctor.doctor, "What this machine has and lacks.", {"cls": WithLauncher}),
]
for _module, _function, _short, _settings in _COMMANDS:
    _named = {"name": _function.__name__, **_settings}
    app.command(epilog=_module.EPILOG, short_help=_short, **_named)(_function)
app.add_typer(
    machine.app, name="machine", epilog=machine.EPILOG, short_help="Measure machines, compare them."
)
app.add_typer(
    baseline.app, name="baseline", epilog=baseline.EPILOG, short_help="Regressions of run times."
)


def _show_version(value: bool) -> None:
    if value:
        out(f"p3s {__version__}")
        raise typer.Exit()


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Print the version."
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
        emit_json({**header("error"), "error": text, "exit_code": code})
    return code


def _usage_text(err: Any) -> str:
    ctx = getattr(err, "ctx", None)
    path = ctx.command_path if ctx is not None else "p3s"
    message = err.format_message().rstrip(". ")
    option, name = getattr(err, "option_name", None), path.rpartition(" ")[2]
    others = [] if option is None or ctx is None else _with_option(option, name)
    if others:
        message = f"No such option: {option}, which belongs to p3s {joined(others)}"
    return f"{message}; see {path} --help"


def _with_option(option: str, command: str) -> list[str]:
    """Return the other commands that have an option, none where many do: then it is no hint."""
    found = [
        info.name
        for info in app.registered_commands
        if info.callback
        and any(
            option in (getattr(each.default, "param_decls", None) or ())
            for each in inspect.signature(info.callback).parameters.values()
        )
    ]
    names = [name for name in found if name is not None and name != command]
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
        where = f"{name}: " if name else ""
        why = getattr(err, "strerror", None) or str(err) or "out of memory"
        return _fail(args, f"{where}{why}; P3S_DEBUG=1 shows where", 1)
    except Exception as err:
        if os.environ.get("P3S_DEBUG") == "1":
            raise
        return _fail(
            args,
            f"internal error: {type(err).__name__}: {str(err)[:200]}; this is a bug in p3s "
            f"{__version__}: please report it with the output of the same command under "
            "P3S_DEBUG=1 and of p3s doctor --json",
            BUG,
        )


def main() -> int:
    """Run the command line of this process and return its exit code."""
    if sys.argv[1:2] != ["exec"]:  # becomes another program: its signals stay as they are
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _on_signal)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller: p3s check study >&-
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    try:
        code = run(sys.argv[1:])
    except Exception:  # only with P3S_DEBUG=1
        import traceback

        traceback.print_exc()
        code = BUG
    return code
