"""Which files of an archive are missing or damaged, and whose they are.

An archive NAME.otf2 has the definitions of all in NAME.def, and for each location (a thread of a
rank) its events in NAME/LOCATION.evt and what of them only it defines in NAME/LOCATION.def.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from p3s.base.errors import P3SError
from p3s.base.text import plural
from p3s.formats.otf2.definitions import Archive, read_definitions
from p3s.formats.otf2.library import errors

_AGAIN = "copy the whole archive, or trace the program again"


def check_parts(anchor: Path, archive: Archive) -> None:
    """Raise P3SError where some locations have definitions of their own and others lack theirs.

    The library reads on without them, and takes their numbers for those of all.
    """
    files = {ref: anchor.with_suffix("") / f"{ref}.def" for ref in archive.rank_of}
    gaps = [ref for ref, file in files.items() if not _size(file)]
    if gaps and len(gaps) < len(files):
        parts = [_part_text(files[ref], "definitions", archive.rank_of, ref) for ref in gaps]
        raise P3SError(_joined(parts))


def damage_of(otf2: Any, anchor: Path) -> str:
    """Return which parts of an archive keep it from being read, "" where that is not known.

    Reads the events of each location by itself.
    """
    whole = anchor.with_suffix(".def")
    if not _size(whole):
        return f"{whole.name} is {_lack(whole)}, the definitions of all ranks; {_AGAIN}"
    unreadable: tuple[type[Exception], ...] = (*errors(otf2), P3SError)
    try:
        with otf2.reader.open(str(anchor)) as reader:
            archive = read_definitions(otf2, reader.definitions)
    except unreadable:
        return f"{whole.name} is cut or damaged, the definitions of all ranks; {_AGAIN}"
    parts = list(_damaged(otf2, anchor, archive))
    return _joined(parts) if parts else ""


def _damaged(otf2: Any, anchor: Path, archive: Archive) -> Iterator[str]:
    for ref in archive.rank_of:
        events, own = (anchor.with_suffix("") / f"{ref}.{end}" for end in ("evt", "def"))
        if not _size(events):
            yield _part_text(events, "events", archive.rank_of, ref)
        elif own.exists() and not _definitions_read(otf2, anchor, ref):
            yield _part_text(own, "definitions", archive.rank_of, ref)
        elif not _events_read(otf2, anchor, ref):
            yield _part_text(events, "events", archive.rank_of, ref)


def _definitions_read(otf2: Any, anchor: Path, ref: int) -> bool:
    """Tell whether the definitions of a location can be read."""
    low = importlib.import_module("_otf2")
    with otf2.reader.open(str(anchor)) as reader:
        try:
            low.Reader_SelectLocation(reader.handle, ref)
            low.Reader_OpenDefFiles(reader.handle)
            own = low.Reader_GetDefReader(reader.handle, ref)
            if own:
                low.Reader_ReadAllLocalDefinitions(reader.handle, own)
        except errors(otf2):
            return False
    return True


def _events_read(otf2: Any, anchor: Path, ref: int) -> bool:
    """Tell whether the events of a location can be read."""
    with otf2.reader.open(str(anchor), batch_events=1 << 12) as reader:
        try:
            for _ in reader.events([each for each in reader._locations if each._ref == ref]):
                pass
        except errors(otf2):
            return False
    return True


def _part_text(file: Path, what: str, rank_of: Mapping[int, tuple[int, int]], ref: int) -> str:
    rank, thread = rank_of[ref]
    whose = f"rank {rank}, thread {thread}" if thread else f"rank {rank}"
    return f"{file.parent.name}/{file.name} is {_lack(file)}, the {what} of {whose}"


def _lack(file: Path) -> str:
    return "missing" if not file.exists() else "cut or damaged" if _size(file) else "empty"


def _joined(parts: list[str]) -> str:
    more = f", and {plural(len(parts) - 1, 'more part')}" if len(parts) > 1 else ""
    return f"{parts[0]}{more}; {_AGAIN}"


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
