"""What is known of the files of a run, but for their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from p3s.capture import layout


@dataclass(frozen=True)
class FileName:
    """A file: a hash of its name, and of the name without the number of the rank in it.

    ``mode``: as MPI_File_open was given it, 0 of files of the C library; ``hints``: those of MPI
    that decide how a collective call reaches the file system.
    """

    key: int
    family: int
    mode: int = 0
    hints: Mapping[str, str] = field(default_factory=dict)


def read_file_name(payload: bytes) -> tuple[int, FileName]:
    """Return the window's number in a FILE record, and the file."""
    window, mode, key, family = layout.FILE_RECORD.unpack_from(payload)
    text = payload[layout.FILE_RECORD.size :].decode("utf-8", "replace")
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return window, FileName(key, family, mode, {name: value for name, _, value in pairs})
