"""An OTF2 archive as a capture: a directory that ``p3s add`` takes.

For programs that were traced elsewhere, as Score-P does it, or that cannot be traced by P3S.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.base.artefacts import write_json
from p3s.base.errors import P3SError, PartialResult, UsageError
from p3s.base.extensions import ImportNotes, Reader
from p3s.base.foreign_formats import OTF2, format_of
from p3s.base.ops import kind_of
from p3s.base.records import RUN_SCHEMA
from p3s.base.text import plural
from p3s.capture.records import RawComm
from p3s.capture.write import Written, write_rank
from p3s.formats.otf2.definitions import WORLD, Archive, read_definitions
from p3s.formats.otf2.events import NOT_READ, Rank, Reading
from p3s.formats.otf2.library import errors, library, quiet

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: OTF2_BUFFER_END_OF_FILE, the last byte of every file of definitions or events.
_END_OF_FILE = b"\x01"
_AGAIN = "copy the whole archive, or trace the program again"


def lacking_parts(anchor: Path, archive: Archive | None) -> str:
    """Return which parts of an archive are missing or empty, "" where none is.

    ``archive``: its definitions, None where they cannot be read. Locations may all be without
    definitions of their own; where some lack theirs the library takes their numbers for those of
    all.
    """
    whole = anchor.with_suffix(".def")
    lack = _lack(whole)
    if lack or archive is None:
        return f"{whole.name} is {lack or 'damaged'}, the definitions of all ranks; {_AGAIN}"
    files = {
        ref: {end: anchor.with_suffix("") / f"{ref}.{end}" for end in ("evt", "def")}
        for ref in archive.rank_of
    }
    has_definitions = any(_lack(each["def"]) not in ("missing", "empty") for each in files.values())
    parts = [
        _part_text(file, "events" if end == "evt" else "definitions", archive.rank_of, ref)
        for ref, each in files.items()
        for end, file in each.items()
        if _lack(file) and (end == "evt" or has_definitions)
    ]
    more = f", and {plural(len(parts) - 1, 'more part')}" if len(parts) > 1 else ""
    return f"{parts[0]}{more}; {_AGAIN}" if parts else ""


def _part_text(file: Path, content: str, rank_of: Mapping[int, tuple[int, int]], ref: int) -> str:
    rank, thread = rank_of[ref]
    whose = f"rank {rank}, thread {thread}" if thread else f"rank {rank}"
    return f"{file.parent.name}/{file.name} is {_lack(file)}, the {content} of {whose}"


def _lack(file: Path) -> str:
    """Return what is wrong with a file at first sight, "" where nothing is.

    Every file of OTF2 but the anchor ends with OTF2_BUFFER_END_OF_FILE. The library takes what
    memory holds behind a cut file for its end, where that looks like one.
    """
    if not file.exists():
        return "missing"
    if not file.stat().st_size:
        return "empty"
    with file.open("rb") as opened:
        opened.seek(-1, os.SEEK_END)
        return "" if opened.read(1) == _END_OF_FILE else "cut"


_NS_PER_S = 10**9
#: What no archive says.
SAYS_NOT = (
    "times are wall time, also those of computation: ranks that waited for a core look slow",
    "datatypes, whether receives were from MPI_ANY_SOURCE, and how the ranks were bound are not"
    " known; bytes of a receive are those that arrived",
    "bytes of collectives are what Score-P's sizes lead to; MPI_IN_PLACE is told from them",
    "the MPI library is not known: collectives are taken to be those of Open MPI (--collectives)",
)


def archive_at(path: Path) -> Path | None:
    """Return the anchor of an archive, given it or its directory; None where there is none.

    Errors: P3SError where an archive is named that is not there, UsageError for several.
    """
    if path.suffix == ".otf2" and not path.exists():
        raise P3SError(f"{path}: not there; name traces.otf2 of a tracer, or its directory")
    if path.is_file():
        return path if path.suffix == ".otf2" else None
    anchors = sorted(path.glob("*.otf2")) if path.is_dir() else []
    if len(anchors) > 1:
        raise UsageError(f"{path}: holds several archives; name one, as {anchors[0]}")
    return anchors[0] if anchors else None


def import_archive(anchor: Path, directory: Path) -> ImportNotes:
    """Read an archive and write it as a capture into an empty directory.

    Errors: P3SError where it is damaged, of no MPI program, or has calls that P3S cannot read from
    it; PartialResult where a rank does not come to MPI_Finalize.
    """
    otf2, archive = library(), None
    try:
        with quiet(), otf2.reader.open(str(anchor), batch_events=1 << 12) as reader:
            archive = read_definitions(otf2, reader.definitions)
            if lacks := lacking_parts(anchor, archive):
                raise P3SError(lacks)
            reading = Reading(archive)
            reading.take(reader.events)
    except errors(otf2) as err:
        why = f"cannot be read as an OTF2 archive: {' '.join(str(err).split())[:160]}"
        lacks = lacking_parts(anchor, archive) if format_of(_facts(anchor)) is OTF2 else ""
        raise P3SError(f"{anchor}: {lacks or why}") from err
    except P3SError as err:
        raise P3SError(f"{anchor}: {err}") from err
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as err:
        raise P3SError(f"{anchor}: its events do not fit its definitions ({err!r:.80})") from err
    _check(anchor, reading)
    run = int.from_bytes(hashlib.blake2b(_facts(anchor), digest_size=7).digest(), "little")
    for rank in reading.ranks:
        write_rank(directory, _captured_events(archive, rank, run))
    write_json(directory / "run.json", _info(anchor, reading))
    return ImportNotes(
        tuple(sorted(reading.left_out.items())),
        (*(f"{note} ({times:,})" for note, times in sorted(reading.notes.items())), *SAYS_NOT),
    )


def _check(anchor: Path, reading: Reading) -> None:
    for op, number in sorted(reading.left_out.items()):
        if kind_of(op) in NOT_READ:
            raise P3SError(
                f"{anchor}: {plural(number, f'call of {op} is', f'calls of {op} are')} in it, of"
                " which an archive says too little; trace the program with p3s characterize"
            )
    for rank in reading.ranks:
        if not rank.finalized or rank.table[rank.call[-1]][0].op != "MPI_Finalize":
            raise PartialResult(
                f"{anchor}: rank {rank.number} does not come to MPI_Finalize in it, so it cannot be"
                " added; trace the program again"
            )


def _facts(anchor: Path) -> bytes:
    """Return what no other archive has."""
    try:
        parts = [anchor, *sorted(anchor.parent.glob(f"{anchor.stem}.def"))]
        return b"".join(part.read_bytes() for part in parts)
    except OSError as err:
        raise P3SError(f"{anchor}: {err.strerror}") from err


def _info(anchor: Path, reading: Reading) -> dict[str, object]:
    return {
        "schema": RUN_SCHEMA,
        "schema_version": 1,
        "argv": reading.program,
        "traced": True,
        "otf2": str(anchor.resolve()),
        "left_out": dict(sorted(reading.left_out.items())),
    }


def _captured_events(archive: Archive, rank: Rank, run: int) -> Written:
    """Return the events of a rank as its capture has them."""
    import numpy as np

    columns = (np.array(c, dtype=np.int64) for c in (rank.call, rank.start, rank.end, rank.work))
    call, start, end, work = columns
    calls, threads = zip(*rank.table, strict=True)
    first = calls[call[0]].op == "MPI_Init"
    zero = int(end[0] if first else start[0])

    def ns(ticks: NDArray[np.int64]) -> NDArray[np.int64]:
        rounded: NDArray[np.int64] = np.rint(ticks * (_NS_PER_S / archive.ticks)).astype(np.int64)
        return rounded

    began = ns(start - zero)
    world = RawComm(0, -1, False, tuple(range(archive.size)), None, None, WORLD)
    pairs = np.array([row[:2] for row in rank.done], dtype=np.int64).reshape(-1, 2)
    since = (zero - archive.offset) * _NS_PER_S // archive.ticks
    return Written(
        rank.number,
        archive.size,
        list(rank.sites),
        [world, *_in_order(rank.comms)],
        calls,
        threads,
        call,
        began,
        ns(end - zero) - began,
        ns(work),
        pairs,
        np.array([row[2] for row in rank.done], dtype=bool),
        rank.failed_polls,
        rank.failed_poll_ticks * _NS_PER_S // archive.ticks,
        archive.hosts[rank.number],
        "OTF2",
        archive.began_ns + since if archive.began_ns else 0,
        run,
    )


def _in_order(comms: dict[int, RawComm]) -> Sequence[RawComm]:
    """Return communicators by their numbers, which follow the order of their making."""
    return [comms[number] for number in sorted(comms)]


class _Archives:
    """OTF2 archives as ``p3s add`` takes them."""

    recognise = staticmethod(archive_at)
    read = staticmethod(import_archive)


READER: Reader = _Archives()
