"""Reads all ranks of a traced run into one RunTrace."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from p3s.base.artefacts import digest_of, file_bytes, parse_json
from p3s.base.errors import P3SError
from p3s.base.foreign_formats import ReadBy, refuse_foreign
from p3s.capture import layout
from p3s.capture.chunks import Header, open_capture, read_header
from p3s.capture.layout import NAME
from p3s.capture.ranks import LazyRanks
from p3s.capture.types import RunTrace, unmodelled_events

#: Columns of small runs are kept; those of large ones are decoded anew at each access.
_KEEP_BYTES = 64 << 20
#: Files of a run that are looked at to know it again, at most.
_MARKED = 64


def no_capture(run_dir: Path) -> str:
    """Return why a run has no capture."""
    if os.path.exists(run_dir / "warned"):
        return "the tracer could not write one and said why (is the disk full?)"
    return "no MPI call was seen"


def capture_files(run_dir: Path) -> list[Path]:
    """Return the capture files of a run; raises P3SError when there is none."""
    if not run_dir.is_dir():
        raise P3SError(f"{run_dir} is not there; trace the program with `p3s characterize` first")
    files = sorted(run_dir.glob("rank-*.p3t"))
    if not files:
        refuse_foreign(run_dir, ReadBy.OWN)
        raise P3SError(
            f"{run_dir} holds no capture: {no_capture(run_dir)}; trace the program again and read"
            " what `p3s characterize` says"
        )
    return files


def mark_of(run_dir: Path) -> str:
    """Return what tells a run's captures from those of another run; empty where there is none.

    Of up to 64 files, the first and the last among them: size and header, in which each launch has
    a number of its own; and how many files there are.
    """
    files = sorted(run_dir.glob("rank-*.p3t"))
    step = max(-(-(len(files) - 1) // (_MARKED - 1)), 1)
    marks = [str(len(files)).encode()]
    for path in {*files[::step], *files[-1:]}:
        try:
            with open(open_capture(path), "rb") as file:
                size = os.fstat(file.fileno()).st_size
                marks.append(
                    f"{path.name} {size} ".encode() + file.read(layout.HEADER_DIGEST_BYTES)
                )
        except OSError:
            marks.append(f"{path.name} unreadable".encode())
    return digest_of(b"".join(sorted(marks))) if files else ""


def _headers(run_dir: Path) -> tuple[dict[int, tuple[Path, Header]], dict[str, str]]:
    """Return the files by rank, and what is wrong with those that cannot be read at all."""
    headers: dict[int, tuple[Path, Header]] = {}
    problems: dict[str, str] = {}
    for path in capture_files(run_dir):
        try:
            header = read_header(path)
        except P3SError as error:
            problems[path.name] = str(error)  # one bad file must not take the others with it
            continue
        if path.name != NAME.format(header.rank):
            raise P3SError(f"{path} is the file of rank {header.rank}; it was renamed")
        headers[header.rank] = (path, header)
    if not headers:
        raise P3SError(next(iter(problems.values())))
    if other := of_another_run({path.name: header for path, header in headers.values()}):
        raise P3SError(f"{run_dir} mixes runs: {other}; trace the program again")
    return headers, problems


def of_another_run(headers: Mapping[str, Header]) -> str:
    """Return which file (name -> header) is of another run than the first; empty if none is."""
    sizes: dict[int, str] = {}
    for name, header in headers.items():
        sizes.setdefault(header.size, name)
    if len(sizes) > 1:
        (a, one), (b, other) = list(sizes.items())[:2]
        return f"{one} is of {a} ranks, {other} of {b}"
    identified = {name: header for name, header in headers.items() if header.run}
    first = next(iter(identified), "")
    for name, header in identified.items():
        if header.run != identified[first].run:
            return f"{name} is of another run than {first}"
    return ""


def _one_unit(run_dir: Path, headers: dict[int, tuple[Path, Header]]) -> str:
    """Return the unit of work of all ranks.

    Wall and CPU time together (nodes that differ in their load) are taken as CPU time; raises
    P3SError for instructions beside times and for other counters.
    """
    units = {header.work_unit: path for path, header in headers.values()}
    meanings = {
        (header.work_unit == "instructions", header.counter_names): (path, header)
        for path, header in headers.values()
    }
    if len(meanings) > 1:
        (first, a), (second, b) = list(meanings.values())[:2]
        raise P3SError(
            f"{run_dir} mixes units of work: {first.name} has"
            f" {', '.join((a.work_unit, *a.counter_names))}, {second.name}"
            f" {', '.join((b.work_unit, *b.counter_names))}; trace again with one --work and the"
            " same counters for all ranks"
        )
    return "cpu_ns" if len(units) > 1 else next(iter(units))


def _wall_ns(run_dir: Path) -> int | None:
    try:
        wall = parse_json(file_bytes(run_dir / "run.json"))["wall_s"]
        return int(wall * 1e9)
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None


def read_run(run_dir: Path, whole: bool = False) -> RunTrace:
    """Read one traced run; the columns of a rank are decoded when it is asked for.

    A rank that was killed, or whose file is torn or missing, is there with what was recorded and
    ``complete`` False; ``RankTrace.problem`` says why. Raises P3SError when the directory
    holds no readable capture or mixes runs. ``whole``: see read_file.
    """
    run_dir = Path(run_dir)
    files, unreadable = _headers(run_dir)
    size = files[min(files)][1].size
    problems = _absent(run_dir, size, files, unreadable)
    missing = tuple(rank for rank in problems if NAME.format(rank) not in unreadable)
    return _read(run_dir, files, problems, missing, _KEEP_BYTES, whole=whole)


def read_file(path: Path, completions: bool = True, whole: bool = False) -> RunTrace:
    """Read the capture of one rank, once; the other ranks are empty and no problem.

    Without ``completions`` RankTrace.done has only cancelled requests: a third less memory.
    ``whole``: events that were only counted are there (p3s.capture.counted).
    """
    path = Path(path)
    header = read_header(path)
    files = {header.rank: (path, header)}
    return _read(path.parent, files, {}, (), float("inf"), completions, whole)


@dataclass(frozen=True)
class RunFiles:
    """The files of a run, their headers read: what there is without reading events.

    ``files``: rank -> file; ``problems``: rank -> why it has none; the rest as in RunTrace.
    """

    np: int
    path: Path
    files: dict[int, Path]
    problems: dict[int, str]
    work_unit: str
    wall_ns: int | None


def run_files(run_dir: Path) -> RunFiles:
    """Return the files of a run; raises P3SError as read_run does."""
    run_dir = Path(run_dir)
    files, unreadable = _headers(run_dir)
    size = files[min(files)][1].size
    return RunFiles(
        size,
        run_dir,
        {rank: files[rank][0] for rank in sorted(files)},
        _absent(run_dir, size, files, unreadable),
        _one_unit(run_dir, files),
        _wall_ns(run_dir),
    )


def _absent(
    run_dir: Path, size: int, files: dict[int, tuple[Path, Header]], unreadable: dict[str, str]
) -> dict[int, str]:
    """Return rank -> what is wrong with it, of the ranks that have no readable file."""
    names = {rank: NAME.format(rank) for rank in range(size) if rank not in files}
    return {
        rank: unreadable.get(name, f"{run_dir / name} is missing") for rank, name in names.items()
    }


def _read(
    run_dir: Path,
    files: dict[int, tuple[Path, Header]],
    problems: dict[int, str],
    missing: tuple[int, ...],
    keep_bytes: float,
    completions: bool = True,
    whole: bool = False,
) -> RunTrace:
    header = files[min(files)][1]
    work_unit = _one_unit(run_dir, files)
    ranks = LazyRanks(header.size, keep_bytes, completions, whole)
    for rank in sorted(files):
        ranks.take(rank, files[rank][0])
    counts, tables = ranks.finish(problems), ranks.tables
    calls = tables.calls(ranks.used > 0)
    return RunTrace(
        np=header.size,
        path=run_dir,
        calls=calls,
        comms=tuple(tables.comm_list),
        sites=tuple(tables.site_list),
        ranks=ranks,
        work_unit=work_unit,
        wall_ns=_wall_ns(run_dir),
        unmodelled=unmodelled_events(calls, tables.comm_list, counts.tolist()),
        missing=missing,
        problems=dict(sorted(ranks.problems.items())),
        windows=tuple(tables.windows),
        counter_names=header.counter_names,
        work_origin=header.work_origin,
        counted_events=ranks.counted_events,
        blamed=ranks.blamed,
    )
