"""What every command shares: streams, counts on the command line, tables, progress."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any, TextIO

import typer

from p3s.base import progress as progress_
from p3s.base.errors import P3SError, UsageError
from p3s.base.text import one_line
from p3s.base.text import quoted as quoted
from p3s.cli.helptext import WORDS, Command, argument, option

if TYPE_CHECKING:
    from p3s.pipeline.tracing.counts import Asked
    from p3s.predict.types import Reason

#: No study goes above this; larger numbers are typing errors.
MAX_COUNT = 1 << 24
#: Ranks that can be asked for by number.
MAX_RANKS = 1 << 20

STUDY = argument("STUDY", "Study directory.")
JSON_OPTION = option(False, "--json", "Print only JSON on stdout.")
MODULES = option([], "--modules DIR", "Where the program and its libraries are, if moved.")


class WithLauncher(Command):
    """A command whose words after ``--`` are a launcher command, passed on untouched."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take everything after the first ``--`` away before the options are parsed."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[WORDS] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


def launcher_words(ctx: typer.Context) -> list[str]:
    """Return the launcher command given after ``--``, or an empty list."""
    return list(ctx.meta.get(WORDS, []))


def say(text: str = "") -> None:
    """Print one line for the user on stderr."""
    try:
        print(one_line(text), file=sys.stderr, flush=True)
    except BrokenPipeError as error:
        raise ReaderGone from error


def say_reasons(reasons: Iterable[Reason], what: str = "prediction", *, told: bool = False) -> int:
    """Say on stderr why a result is not to be trusted; return the exit code, 3 if it is not, or 0.

    ``told``: the reasons are on stdout already, for people.
    """
    from p3s.predict.types import in_short, untrusted

    found = untrusted(reasons)
    if not found:
        return 0
    if told:
        say(f"p3s: do not rely on this {what}: {in_short(found)}")
    for reason in () if told else found:
        say(f"p3s: do not rely on this {what} ({reason.code}): {reason.sentence}")
    return 3


def allowed_codes(given: list[str]) -> frozenset[str]:
    """Return the codes of --allow; raises UsageError that lists them for one that is none."""
    from p3s.predict.types import CODES

    found = frozenset(word.strip() for text in given for word in text.split(","))
    for word in sorted(found - set(CODES)):
        raise UsageError(f"--allow {word}: is no reason; they are {', '.join(CODES)}")
    return found


def parse_share(text: str, option: str) -> float:
    """Return a share of an option such as 10% or 0.1; raises UsageError."""
    try:
        number = float(text.strip().rstrip("%")) / (100.0 if text.strip().endswith("%") else 1.0)
    except ValueError:
        number = math.nan
    if not 0.0 < number < math.inf:
        raise UsageError(f"{option} {text}: is no share; give one as in {option} 10%")
    return number


class ReaderGone(Exception):
    """Nobody reads what is printed any more (p3s ... | head)."""


def out(text: str) -> None:
    """Print a result on stdout; what the terminal's encoding lacks is replaced."""
    encoding = sys.stdout.encoding or "utf-8"
    write_out(text.encode(encoding, "replace").decode(encoding) + "\n")


def write_out(text: str) -> None:
    """Write text to stdout as it is; raises P3SError when that has no room."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError as error:
        raise ReaderGone from error
    except OSError as error:
        forget_output(sys.stdout)
        raise P3SError(f"the output cannot be written: {error.strerror}") from error


def forget_output(stream: TextIO) -> None:
    """Throw away what a stream still holds and will get: nobody reads it."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def emit_json(obj: dict[str, Any]) -> None:
    """Print one JSON object, and nothing else, on stdout."""
    from p3s.base.study import as_json

    out(as_json(obj).rstrip("\n"))


def emit(noun: str, **content: Any) -> None:
    """Print one JSON object that says what it is, and nothing else, on stdout."""
    emit_json({**header(noun), **content})


def check_output(
    output: Path, example: str, what: str = "", load: Callable[[Path], object] | None = None
) -> None:
    """Refuse a file that cannot be written, or is there and no ``what`` that ``load`` reads.

    Before anything is computed; example: a name for a file in a directory. Errors: UsageError.
    """
    if output.is_dir():
        raise UsageError(f"-o {output}: is a directory; name a file in it, as {example}")
    if load is not None and output.exists():
        try:
            load(output)
        except P3SError as error:
            raise UsageError(
                f"-o {output}: is there and is no {what}; name another file"
            ) from error
    folder = next(place for place in output.absolute().parents if place.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise P3SError(f"-o {output}: {folder} cannot be written; name another place")


def header(noun: str) -> dict[str, Any]:
    """Return the first entries of a JSON result: schema and version."""
    from p3s.base.study import SCHEMA_VERSION

    return {"schema": f"p3s.{noun}", "schema_version": SCHEMA_VERSION}


def parse_counts(text: str, option: str = "-n") -> list[int]:
    """Return the distinct process counts of ``2,4,8`` in ascending order.

    Raises UsageError for anything that is not a list of whole numbers of at least 1.
    """
    counts: set[int] = set()
    for word in text.split(","):
        word = word.strip()
        if not (word.isascii() and word.isdigit()) or int(word[:12]) < 1:
            raise UsageError(
                f"{option} {text}: {word!r} is not a process count; "
                f"give whole numbers separated by commas, for example {option} 2,4,8,16"
            )
        if int(word[:12]) > MAX_COUNT:
            raise UsageError(f"{option} {text}: {word} is more than {MAX_COUNT:,}, the maximum")
        counts.add(int(word))
    return sorted(counts)


def parse_asked(text: str, option: str = "-n") -> Asked:
    """Return the counts of ``2,4,8`` or of ``..32``; raises UsageError for anything else."""
    from p3s.pipeline.tracing.counts import Asked

    if not text.startswith(".."):
        return Asked(tuple(parse_counts(text, option)))
    word = text.removeprefix("..")
    if not (word.isascii() and word.isdigit()) or not 1 <= int(word[:9]) <= MAX_COUNT:
        raise UsageError(
            f"{option} {text}: write the largest count after the dots, as {option} ..32"
        )
    return Asked(top=int(word))


def parse_ranks(text: str, option: str = "--ranks") -> list[int]:
    """Return the distinct ranks of ``0,4096-4099`` in ascending order; UsageError otherwise."""
    ranks: set[int] = set()
    for word in text.split(","):
        ends = [end.strip() for end in word.split("-")]
        good = len(ends) <= 2 and all(
            end.isascii() and end.isdigit() and len(end) <= 12 for end in ends
        )
        if not good or int(ends[-1]) < int(ends[0]):
            raise UsageError(
                f"{option} {text}: {word.strip()!r} is neither a rank nor a range of ranks; "
                f"give them separated by commas, for example {option} 0,4096-4099"
            )
        if int(ends[-1]) - int(ends[0]) >= MAX_RANKS:
            raise UsageError(f"{option} {text}: more than {MAX_RANKS:,} ranks, the maximum")
        ranks.update(range(int(ends[0]), int(ends[-1]) + 1))
    return sorted(ranks)


#: What is left of a job is told from so many seconds, and ended steps, on.
_SOON_S, _STEPS_TO_TELL = 5.0, 2
#: A job without a bar says what it is doing once it has taken so long.
_SLOW_S = 2.0


class Progress(progress_.Progress):
    """Steps of a longer job: a bar when stderr is a terminal, one plain line per step if not."""

    def __init__(self, bar: Any = None, task: Any = None) -> None:
        self._bar = bar
        self._task = task

    def expect(self, steps: int) -> None:
        """Say how many steps there are, where that was not known before."""
        if self._bar is not None:
            self._bar.reset(self._task, total=steps)

    def start(self, text: str) -> None:
        """Say which step is being done."""
        if self._bar is not None:
            self._bar.update(self._task, description=one_line(text))

    @contextmanager
    def slow(self, text: str) -> Iterator[None]:
        """Say what is being done where it takes more than two seconds and no bar says so."""
        if self._bar is not None:
            yield
            return
        timer = Timer(_SLOW_S, lambda: say(f"{text} ..."))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def step(self) -> None:
        """Count a step that has ended, one of many."""
        if self._bar is not None:
            self._bar.advance(self._task)

    def done(self, text: str) -> None:
        """Say that a step has ended."""
        if self._bar is not None:
            self._bar.advance(self._task)
            self._bar.console.print(one_line(text), markup=False, highlight=False)
        else:
            say(text)

    def say(self, text: str) -> None:
        """Say something that the user should know, in one line."""
        say(text)


@contextmanager
def progress(steps: int) -> Iterator[Progress]:
    """Show a job of ``steps`` steps on stderr."""
    if not sys.stderr.isatty():
        yield Progress()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TextColumn
    from rich.progress import Progress as RichProgress
    from rich.table import Column
    from rich.text import Text

    class Times(ProgressColumn):
        """How long it has taken, and what is left."""

        def render(self, task: Task) -> Text:
            """Return both."""
            return Text(time_and_left(task.elapsed or 0.0, task.completed, task.total or 0))

    with RichProgress(
        TextColumn(
            "{task.description}",
            markup=False,
            table_column=Column(ratio=3, no_wrap=True, overflow="ellipsis"),
        ),
        BarColumn(None, table_column=Column(ratio=1, min_width=4)),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        Times(table_column=Column(no_wrap=True)),
        console=Console(stderr=True),
        transient=True,
        expand=True,
    ) as bar:
        yield Progress(bar, bar.add_task("", total=steps))


def time_and_left(elapsed: float, done: float, steps: float) -> str:
    """Return how long a job has taken, and about how long it will: "1:02, about 2:04 left".

    elapsed: in s; ``done`` of so many steps have ended. What is left is not said in the first
    seconds, nor before two of the steps have ended, of which each may take another time.
    """
    took = _clock(elapsed)
    if elapsed < _SOON_S or done < _STEPS_TO_TELL or done >= steps:
        return took
    return f"{took}, about {_clock(elapsed / done * (steps - done))} left"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
