"""Writes clean captures from damaged ones: every intact chunk, a good header, nothing else."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from p3s.base.artefacts import add_digest, file_bytes, parse_json, write_bytes
from p3s.base.errors import P3SError, UsageError
from p3s.capture import layout
from p3s.capture.capture import READERS, intact_chunks, rank_of, read_capture
from p3s.capture.chunks import Chunk, Header, chunk_bytes, header_fields, header_page, read_header
from p3s.capture.events import read_counts, read_done, read_end, read_events, read_phases
from p3s.capture.layout import NAME
from p3s.capture.reader import capture_files
from p3s.capture.records import Definitions
from p3s.capture.types import RunTrace


@dataclass(frozen=True)
class Place:
    """A run directory, or one capture file (``file``)."""

    path: Path
    file: bool = False

    def read(self) -> RunTrace:
        """Read what is there; raises P3SError when there is no readable capture."""
        from p3s.capture.reader import read_file, read_run

        return read_file(self.path) if self.file else read_run(self.path)


def places_at(path: Path, others: bool = False) -> list[Place]:
    """Return the runs at ``path``: a .p3t file, a run directory, or a study.

    others: also those of the studies inside it, of other workloads (far/NAME, at/SETTING).

    Raises P3SError when nothing is there, or neither captures nor a study.
    """
    if path.is_file():
        return [Place(path, file=True)]
    if path.exists() and not path.is_dir():
        raise P3SError(
            f"{path} is neither a file nor a directory; give a study, a run directory or a .p3t"
            " file"
        )
    if not path.is_dir():
        raise P3SError(f"{path} is not there; give a study, a run directory or a .p3t file")
    if any(path.glob("rank-*.p3t")) or os.path.exists(path / "run.json"):
        return [Place(path)]
    runs = _runs_of(path)
    for inside in ("far", "at") if others else ():
        runs += [each for other in _run_dirs(path / inside) for each in _runs_of(other)]
    if not runs:
        raise P3SError(
            f"{path} holds no capture and is no study with runs; give a study, a run directory or"
            " a .p3t file"
        )
    return [Place(each) for each in runs]


def _runs_of(study: Path) -> list[Path]:
    return [each for part in ("runs", "timed", "validate") for each in _run_dirs(study / part)]


def _run_dirs(parent: Path) -> list[Path]:
    if not parent.is_dir():
        return []
    return sorted(
        each for each in parent.iterdir() if each.is_dir() and not each.name.startswith(".")
    )


def one_place(path: Path) -> Place:
    """Return the one run at ``path``; raises UsageError when a study holds several."""
    runs = places_at(path)
    if len(runs) > 1:
        raise UsageError(f"{path} holds {len(runs)} runs; give one of them, e.g. {runs[0].path}")
    return runs[0]


#: Beside the captures; what the program printed is kept with them.
_COPIED = ("stdin.txt", "stdout.txt", "stderr.txt")


@dataclass(frozen=True)
class RecoveredFile:
    """What was saved of one file: intact chunks and their events; ``problem`` says what not."""

    rank: int
    path: Path
    chunks: int
    events: int
    problem: str
    header_rebuilt: bool = False


def recover(run_dir: Path, target: Path, force: bool = False) -> list[RecoveredFile]:
    """Write what is intact of all captures in ``run_dir`` to ``target``; the original stays.

    Chunks keep their numbers, so that what is lost stays visible. Raises UsageError for a target
    that exists (unless ``force``, which replaces the captures in it) or is the original, P3SError
    when nothing can be saved.
    """
    files = capture_files(_a_run(run_dir))
    if target.exists() and (not target.is_dir() or target.resolve() == run_dir.resolve()):
        raise UsageError(
            f"{target} is {'the original' if target.is_dir() else 'a file'}; give a"
            " new directory with -o"
        )
    if target.exists() and not force:
        raise UsageError(f"{target} exists; give a new directory with -o, or add --force")
    model = _any_header(files)
    saved = [_recover_file(path, target, model, write=False) for path in files]
    if not any(one.chunks for one in saved):
        raise P3SError(
            f"{run_dir} holds no intact chunk in {len(files)} files: nothing can be saved; trace"
            " the run again"
        )
    if target.exists():
        for old in target.glob("rank-*.p3t"):
            old.unlink()
    saved = [_recover_file(path, target, model, write=True) for path in files]
    saved += _missing(target, {one.rank for one in saved})
    incomplete = any(not one.chunks for one in saved) or any(
        not read_capture(new).complete for new in target.glob("rank-*.p3t")
    )
    _copy_rest(run_dir, target, incomplete)
    return sorted(saved, key=lambda one: one.rank)


def _a_run(path: Path) -> Path:
    """Return a run directory; raises UsageError for a file or a study, which hold one or more."""
    if path.is_file():
        raise UsageError(f"{path} is a file; give its run directory, {path.parent}")
    if path.is_dir() and not any(path.glob("rank-*.p3t")):
        try:
            runs = places_at(path)
        except P3SError:
            return path
        if runs[0].path != path:
            raise UsageError(f"{path} is a study; give one of its runs, e.g. {runs[0].path}")
    return path


def _missing(target: Path, present: set[int]) -> list[RecoveredFile]:
    """Return what is to be said of ranks that have no file."""
    sizes = [read_header(path).size for path in target.glob("rank-*.p3t")]
    return [
        RecoveredFile(rank, target / NAME.format(rank), 0, 0, "is missing")
        for rank in range(max(sizes, default=0))
        if rank not in present
    ]


def _any_header(files: list[Path]) -> Header | None:
    for path in files:
        with suppress(P3SError):
            return read_header(path)
    return None


def _recover_file(path: Path, target: Path, model: Header | None, write: bool) -> RecoveredFile:
    """Save one file; only look what it would give unless ``write``."""
    number = rank_of(path)
    rank, problem = -1 if number is None else number, ""
    header: Header | None = None
    damaged: frozenset[int] = frozenset()
    try:
        capture = read_capture(path)
        header = capture.header
        damaged = frozenset(damage.offset for damage in capture.damages if damage.whole)
        problem = capture.problem
    except P3SError as error:
        problem = str(error).removeprefix(f"{path} ").partition("; ")[0]
    if header is not None and header.rank != rank:
        why = f"is the file of rank {header.rank}; it was renamed and is left out"
        return RecoveredFile(rank, path, 0, 0, why)
    try:
        chunks = _usable_chunks(path, header, damaged)
    except OSError as error:
        return RecoveredFile(rank, path, 0, 0, f"{error.strerror}: nothing can be saved")
    page, first = _header_page(path, header, model, chunks)
    if page is None:
        why = problem or "holds no intact chunk"
        return RecoveredFile(rank, path, 0, 0, f"{why}: nothing can be saved")
    if header is None:
        rank = first.rank
    events = chunk_count = 0
    parts = [page]
    for chunk, payload in chunks:
        chunk_count += 1
        events += chunk.count if chunk.kind == layout.EVENTS else 0
        if write:
            parts.append(chunk_bytes(chunk, payload))
    if write:
        write_bytes(target / NAME.format(rank), b"".join(parts))
        events = len(read_capture(target / NAME.format(rank)).events)
    return RecoveredFile(rank, path, chunk_count, events, problem, header is None)


def _usable_chunks(
    path: Path, header: Header | None, damaged: frozenset[int]
) -> list[tuple[Chunk, bytes]]:
    intact = [
        (chunk, payload)
        for chunk, payload in intact_chunks(path, header)
        if chunk.offset not in damaged
    ]
    return intact if header is not None else list(_decodable(intact))


def _decodable(chunks: list[tuple[Chunk, bytes]]) -> Iterator[tuple[Chunk, bytes]]:
    """Yield the chunks that are what they say; the header, which would tell more, is lost."""
    read: dict[int, Callable[[Chunk, bytes], object]] = {
        layout.DEFS: Definitions(layout.MAX_RANKS, 1 << 40).add,
        layout.EVENTS: lambda chunk, data: read_events(chunk, data, layout.WALL, _counters(chunk)),
        layout.DONE: read_done,
        layout.COUNTS: read_counts,
        layout.PHASES: lambda _, data: read_phases(data),
        layout.END: lambda _, data: read_end(data),
        **READERS,
    }
    for chunk, payload in chunks:
        try:
            if chunk.kind in read:
                read[chunk.kind](chunk, payload)
        except ValueError:
            continue
        yield chunk, payload


def _header_page(
    path: Path, header: Header | None, model: Header | None, chunks: list[tuple[Chunk, bytes]]
) -> tuple[bytes | None, Chunk]:
    """Return (the first page of the new file, its first chunk); no page if nothing is intact."""
    no_chunk = Chunk(0, 0, 0, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, False)
    with open(path, "rb") as file:
        raw = file.read(layout.PAGE_BYTES).ljust(layout.PAGE_BYTES, b"\0")
    if header is not None:
        # The text and numbers stay; only the place of the first chunk may be another one.
        fields = {**header_fields(raw), "header_bytes": layout.PAGE_BYTES}
        return _page(fields, raw), chunks[0][0] if chunks else no_chunk
    if not chunks:
        return None, no_chunk
    first = chunks[0][0]
    size = _world_size(chunks) or (model.size if model is not None else 0)
    if not first.rank < size <= layout.MAX_RANKS:
        return None, first
    return _page(_rebuilt(raw, first, size, model, chunks), raw), first


def _page(fields: Mapping[str, Any], raw: bytes) -> bytes:
    """Return a first page with the live totals of another; chunks of phases are elsewhere now."""
    totals, memory = (
        raw[at : at + kind.size]
        for at, kind in (
            (layout.TOTALS_OFFSET, layout.TOTALS),
            (layout.MEMORY_OFFSET, layout.MEMORY),
        )
    )
    return header_page(fields, totals, memory)


def _rebuilt(
    raw: bytes, first: Chunk, size: int, model: Header | None, chunks: list[tuple[Chunk, bytes]]
) -> dict[str, Any]:
    """Return the fields of a header whose checksum does not fit.

    What chunks or another rank's header tell is taken from them; the rest as it stands.
    """
    fields = header_fields(raw)
    fields |= {"magic": layout.MAGIC, "major": layout.MAJOR, "minor": layout.MINOR}
    fields |= {"header_bytes": layout.PAGE_BYTES, "rank": first.rank, "size": size}
    fields |= {"run": 0, "launched": 0}  # not known is better than another one
    monotonic = fields["init_monotonic_ns"]
    if (fields["pid"] ^ monotonic) & 0xFFFFFFFF != first.file_key:
        fields["pid"] = first.file_key ^ (monotonic & 0xFFFFFFFF)
    if model is not None:
        fields["work_source"] = model.work_source
        width = layout.COUNTER_NAME_BYTES
        names = (name.encode().ljust(width, b"\0") for name in model.counter_names)
        fields["counter_names"] = b"".join(names)
    elif fields["work_source"] not in layout.WORK_UNITS:
        fields["work_source"] = layout.CPU
    events = (_counters(chunk) for chunk, _ in chunks if chunk.kind == layout.EVENTS)
    return {**fields, "counters": next(events, 0)}


def _counters(chunk: Chunk) -> int:
    """Return how many counters the events of a chunk have."""
    gap = chunk.version == layout.GAP_VERSION
    return min(max(chunk.columns - layout.EVENT_COLUMNS - gap, 0), layout.MAX_COUNTERS)


def _world_size(chunks: list[tuple[Chunk, bytes]]) -> int:
    """Return the number of ranks in MPI_COMM_WORLD as its COMM record says, 0 if it is lost."""
    defs = Definitions(layout.MAX_RANKS, 1 << 40)
    for chunk, payload in chunks:
        if chunk.kind == layout.DEFS:
            try:
                defs.add(chunk, payload)
            except ValueError:
                continue
    sizes = [len(comm.members) for comm in defs.comms if comm.op == "MPI_COMM_WORLD"]
    return sizes[0] if sizes else 0


def _copy_rest(run_dir: Path, target: Path, incomplete: bool) -> None:
    for name in _COPIED:
        try:
            write_bytes(target / name, (run_dir / name).read_bytes())
        except OSError:
            continue
    try:
        info = parse_json(file_bytes(run_dir / "run.json"))
        info.pop("digest", None)
        info.update(recovered=True, **({"status": "partial"} if incomplete else {}))
        write_bytes(target / "run.json", add_digest((json.dumps(info, indent=1) + "\n").encode()))
    except (OSError, ValueError, AttributeError):
        return
