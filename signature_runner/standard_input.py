"""Standard input of a program that runs several times: every run gets the same bytes."""

from __future__ import annotations

import hashlib
import os
import select
import stat
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from p3s.base.artefacts import cannot_be_written
from p3s.base.errors import P3SError, UsageError
from p3s.base.records import RunRecord, Traces, tell

#: Beside the captures of a run: what the program got. The entry of run.json that tells of it.
NAME, KEY = "stdin.txt", "stdin"
_PIECE = 1 << 20
#: A pipe that is open and empty for so many seconds may be one that nobody writes to.
_SILENT_S = 2.0


@dataclass(frozen=True)
class StandardInput:
    """Bytes of a regular file from ``begin`` on; those of an empty one are no input.

    ``path``: opened again for each run; ``size``: in bytes; ``digest``: their SHA-256.
    """

    path: str
    begin: int
    size: int
    digest: str

    def as_info(self) -> dict[str, object]:
        """Return the record of the input that run.json keeps."""
        return {"bytes": self.size, **({"sha256": self.digest} if self.size else {})}

    def put(self, run_dir: Path) -> None:
        """Copy the input into the directory of a run, where there is any."""
        if not self.size:
            return
        target = run_dir / NAME
        try:
            run_dir.mkdir(parents=True, exist_ok=True)
            with open(self.path, "rb") as source, open(target, "wb") as into:
                source.seek(self.begin)
                while piece := source.read(_PIECE):
                    into.write(piece)
        except OSError as error:
            raise cannot_be_written(target, error) from error


NONE = StandardInput(os.devnull, 0, 0, "")


def open_input(run_dir: Path) -> BinaryIO:
    """Open the copy of a run's input at its begin; nothing to read where the run has none."""
    path = run_dir / NAME
    return open(path if path.exists() else os.devnull, "rb")


def of_file(path: str, begin: int = 0) -> StandardInput:
    """Return the bytes of a regular file from ``begin`` on; raises P3SError if it is unreadable."""
    digest, size = hashlib.sha256(), 0
    try:
        with open(path, "rb") as file:
            file.seek(begin)
            while piece := file.read(_PIECE):
                digest.update(piece)
                size += len(piece)
    except OSError as error:
        raise P3SError(f"standard input cannot be read: {error.strerror}") from error
    return StandardInput(path, begin, size, digest.hexdigest()) if size else NONE


@cache
def take_input() -> StandardInput:
    """Return the standard input of this process for the programs that it starts.

    A file is opened again for each; a pipe is read to its end, once. A terminal or another device
    gives none.
    """
    try:
        kind = os.fstat(0).st_mode
        if stat.S_ISREG(kind):
            return of_file(f"/proc/self/fd/{os.dup(0)}", os.lseek(0, 0, os.SEEK_CUR))
        if stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind):
            return of_file(f"/proc/self/fd/{_spool_pipe()}")
    except OSError:
        pass  # it is closed
    return NONE


def _spool_pipe() -> int:
    """Return a descriptor of a file with all that comes through the pipe on standard input."""
    if not select.select([0], [], [], _SILENT_S)[0]:
        tell(
            "p3s: waiting for the end of standard input; where the program reads none, add"
            " < /dev/null"
        )
    with tempfile.TemporaryFile(prefix="p3s-stdin-") as file:
        try:
            while piece := os.read(0, _PIECE):
                file.write(piece)
            file.flush()
        except OSError as error:
            raise cannot_be_written(Path(tempfile.gettempdir()), error) from error
        return os.dup(file.fileno())


def digest_in(info: Mapping[str, Any]) -> str | None:
    """Return the digest that a record keeps: "" of no input, None where it does not tell."""
    record = info.get(KEY)
    return str(record.get("sha256", "")) if isinstance(record, dict) else None


def input_for(
    study: Traces,
    stdin: Callable[[], StandardInput] = take_input,
    say: Callable[[str], None] = tell,
    *,
    force: bool = False,
) -> StandardInput:
    """Return the standard input of a new run of a study: all its runs have the same.

    Without any in ``stdin`` it is that of the earlier runs. Errors: UsageError where they had
    another one, unless ``force``; P3SError where theirs is lost.
    """
    current = stdin()
    earlier = _latest(study)
    digest = digest_in(earlier.info) if earlier is not None else None
    if earlier is None or digest is None or current.digest == digest:
        return current
    if current.size and not force:
        theirs = "another" if digest else "no"
        way = "leave < FILE out, or use another study" if digest else "add < /dev/null"
        raise UsageError(f"{study.root}: its runs had {theirs} standard input; {way}")
    if current.size:
        return current
    recorded = of_file(str(earlier.path / NAME)) if (earlier.path / NAME).is_file() else NONE
    if recorded.digest != digest:
        raise P3SError(
            f"{earlier.path / NAME}: the study's standard input is lost; give it again: < FILE"
        )
    if recorded.size:
        say(f"standard input: that of {earlier.path} ({recorded.size:,} bytes)")
    return recorded


def _latest(study: Traces) -> RunRecord | None:
    """Return a complete run that tells its input: of the study, else of another value in it."""
    for each in (study, *study.around):
        for run in reversed([*each.runs, *each.timed]):
            if run.status == "complete" and digest_in(run.info) is not None:
                return run
    return None
