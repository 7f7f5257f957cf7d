"""A format from outside of P3S: the captures of a run in one file of JSON."""

from __future__ import annotations

import json
from pathlib import Path

from p3s.base.extensions import Extension, ImportNotes, Writer
from p3s.formats.exported import ExportResult
from p3s.formats.run import Run

NAME, NOTE = "tiny", "nobody knows who has traced it"


def write(run: Run, done: ExportResult) -> None:
    """Write the captures of a run."""
    found = run.trace.path.glob("rank-*.p3t")
    files = {path.name: path.read_bytes().hex() for path in found}
    done.path.write_text(json.dumps(files))
    done.records = len(files)


class Tiny:
    """Reads it."""

    def recognise(self, path: Path) -> Path | None:
        """Return a file with its suffix."""
        return path if path.suffix == f".{NAME}" else None

    def read(self, source: Path, directory: Path) -> ImportNotes:
        """Write the captures."""
        for name, data in json.loads(source.read_text()).items():
            (directory / name).write_bytes(bytes.fromhex(data))
        return ImportNotes((("MPI_Tiny", 2),), (NOTE,))


READER = Tiny()
EXTENSION = Extension(
    NAME,
    readers=("tiny_format:READER",),
    writers=(Writer(NAME, "tiny_format:write", "captures in JSON", f".{NAME}", "run"),),
)
