"""What every command prints with: streams, JSON, reasons not to trust a result."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from p3s.base.errors import P3SError, UsageError
from p3s.base.text import one_line
from p3s.base.text import quote_word as quote_word
from p3s.cli.helptext import WORDS

if TYPE_CHECKING:
    import typer

    from p3s.predict.types import Reason


class ReaderGone(Exception):
    """Nobody reads what is printed any more (p3s ... | head)."""


def launcher_words(ctx: typer.Context) -> list[str]:
    """Return the launcher command given after ``--``, or an empty list."""
    return list(ctx.meta.get(WORDS, []))


def say(text: str = "") -> None:
    """Print one line for the user on stderr."""
    try:
        print(one_line(text), file=sys.stderr, flush=True)
    except BrokenPipeError as error:
        raise ReaderGone from error


def say_reasons(
    reasons: Iterable[Reason], subject: str = "prediction", *, printed: bool = False
) -> int:
    """Say on stderr why a result is not to be trusted; return the exit code, 3 if it is not, or 0.

    ``printed``: the reasons are on stdout already, for people.
    """
    from p3s.predict.types import filter_untrusted, in_short

    untrusted = filter_untrusted(reasons)
    if not untrusted:
        return 0
    if printed:
        say(f"p3s: do not rely on this {subject}: {in_short(untrusted)}")
    for reason in () if printed else untrusted:
        say(f"p3s: do not rely on this {subject} ({reason.code}): {reason.sentence}")
    return 3


def allowed_codes(texts: list[str]) -> frozenset[str]:
    """Return the codes of --allow; raises UsageError that lists them for one that is none."""
    from p3s.predict.types import CODES

    codes = frozenset(word.strip() for text in texts for word in text.split(","))
    for word in sorted(codes - set(CODES)):
        raise UsageError(f"--allow {word}: is no reason; they are {', '.join(CODES)}")
    return codes


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


def header(noun: str) -> dict[str, Any]:
    """Return the first entries of a JSON result: schema and version."""
    from p3s.base.study import SCHEMA_VERSION

    return {"schema": f"p3s.{noun}", "schema_version": SCHEMA_VERSION}


def check_output(
    output: Path, example: str, kind: str = "", load: Callable[[Path], object] | None = None
) -> None:
    """Refuse a file that cannot be written, or is there and no ``kind`` that ``load`` reads.

    Before anything is computed; example: a name for a file in a directory. Errors: UsageError.
    """
    if output.is_dir():
        raise UsageError(f"-o {output}: is a directory; name a file in it, as {example}")
    if load is not None and output.exists():
        try:
            load(output)
        except P3SError as error:
            raise UsageError(
                f"-o {output}: is there and is no {kind}; name another file"
            ) from error
    folder = next(place for place in output.absolute().parents if place.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise P3SError(f"-o {output}: {folder} cannot be written; name another place")
