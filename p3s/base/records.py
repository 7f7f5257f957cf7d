"""Run directories, by their names: npNNNN.rR, with .failed or .stopped of what has no end."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeGuard

from p3s.base.artefacts import (
    LastRead,
    changed_ns,
    file_bytes,
    parse_json,
    read_json,
    reason,
    sync_directory,
    writing,
)
from p3s.base.errors import DamagedFile, P3SError
from p3s.base.serialise import Natural, NotNegative, ProcessCount, ShapeError, Share, from_data
from p3s.base.staging import discard, new_directory, put_in_place
from p3s.base.tables import TableFacts
from p3s.base.text import quote_word

RUN_SCHEMA, STUDY_SCHEMA, REPLAY_SCHEMA = "p3s.run", "p3s.study", "p3s.replay"
#: Version 2: simulated from measured costs of messages; version 1 were sums over calls.
REPLAY_VERSION = 2

SIGNATURE_SCHEMA = "p3s.signature"
#: Version 3 has transitions between places in the program, and the tree; 4 the order of events.
SIGNATURE_VERSION = 4

_UNITS = {"wall_ns": "wall", "cpu_ns": "cpu", "instructions": "instructions"}
#: Records of runs, and of studies, that are remembered: a study has others inside it.
_RUNS, _STUDIES = 256, 64
FAILED, STOPPED = ".failed", ".stopped"
_SIGNATURE_NAME = re.compile(r"^np(\d{4,})\.json$")
_RUN_NAME = re.compile(r"^np(\d{4,})\.r(\d+)(\.failed|\.stopped)?$")


@dataclass(frozen=True)
class RunRecord:
    """One traced run that is part of a study.

    ``status`` is "complete" or "partial" (the capture ends early on at least one rank).
    """

    np: int
    rep: int
    path: Path
    status: str
    info: dict[str, Any]

    @property
    def ended(self) -> bool:
        """Whether the program was ended once its phases were known; the run is complete then."""
        return was_ended(self.info)


@dataclass(frozen=True)
class Traces:
    """What a study has traced, as values.

    ``root``: its directory. ``command``: the launcher command with ``{np}`` of the latest runs,
    empty where no run says it. ``timed``: native runs beside emulated ones. ``unused``: process
    counts that a model does not rest on: left out, or their runs were deleted. ``sources``: of a
    study that was derived for another value, those that it is from; ``around``: of all values of
    the parameters that it is one of. ``threads``: of a process, 0 where none were asked for.
    """

    root: Path
    command: tuple[str, ...] = ()
    runs: tuple[RunRecord, ...] = ()
    timed: tuple[RunRecord, ...] = ()
    unused: frozenset[int] = frozenset()
    sources: tuple[Traces, ...] = ()
    around: tuple[Traces, ...] = ()
    threads: int = 0

    def of(self, np: int) -> list[RunRecord]:
        """Return the runs of a process count whose times count: native ones where there are."""
        return [run for run in self.timed if run.np == np] or [r for r in self.runs if r.np == np]

    def complete(self, np: int) -> list[RunRecord]:
        """Return the runs of a process count that went to their end, by repeat."""
        runs = [run for run in self.runs if run.np == np and run.status == "complete"]
        return [run for run in runs if not run.ended]

    @property
    def ran(self) -> list[int]:
        """The process counts with a complete run that a model rests on."""
        return sorted({run.np for run in self.runs if run.status == "complete"} - self.unused)

    @property
    def launcher(self) -> list[str]:
        """The launcher command; what it looks like where no run says it."""
        return list(self.command) or ["mpiexec", "-n", "{np}", "PROGRAM"]

    @property
    def counts(self) -> list[int]:
        """The process counts that have a signature and that a model rests on."""
        return sorted(list_signatures(self.root) - self.unused)


def signature_path(root: Path, np: int) -> Path:
    """Return the signature at ``np`` processes: signature/np0008.json (tables: .parquet there)."""
    return root / "signature" / f"np{np:04d}.json"


def times_path(root: Path, np: int) -> Path:
    """Return the times at ``np`` processes: signature/np0008.times.json (table: .parquet)."""
    return signature_path(root, np).with_suffix(".times.json")


def phases_path(root: Path) -> Path:
    """Return phases and loop nest over all counts: signature/phases.json."""
    return root / "signature" / "phases.json"


def scaled_dir(root: Path, n: int) -> Path:
    """Return the scaled trace at ``n`` processes: scaled/np000512/."""
    return root / "scaled" / f"np{n:06d}"


def replay_path(root: Path, n: int) -> Path:
    """Return what was measured at ``n``: replay/np000512.json (table: .parquet beside it)."""
    return root / "replay" / f"np{n:06d}.json"


def list_signatures(root: Path) -> set[int]:
    """Return the process counts that have a signature."""
    directory = root / "signature"
    names = os.listdir(directory) if directory.is_dir() else []
    return {int(match[1]) for name in names if (match := _SIGNATURE_NAME.match(name))}


@dataclass(frozen=True)
class InputRead:
    """What a run had on standard input: its size, and its SHA-256 unless that is 0."""

    bytes: Natural = 0
    sha256: str = ""


@dataclass(frozen=True)
class RunRead:
    """What of run.json is used, as it is read."""

    status: str = "partial"
    np: ProcessCount | None = None
    command: Any = None
    argv: tuple[str, ...] | None = None
    program: str | None = None
    directory: str | None = None
    exit_code: int | None = None
    wall_s: NotNegative | None = None
    timeout_s: NotNegative | None = None
    oversubscribed: bool | None = None
    cores: Natural | None = None
    mpi: str | None = None
    work_unit: str = "cpu_ns"
    traced: bool = True
    stdin: InputRead | None = None


@dataclass(frozen=True)
class RunListed:
    """A run as study.json lists it."""

    np: ProcessCount
    rep: Natural = 0
    dir: str = ""
    status: str = ""


@dataclass(frozen=True)
class StudyRead:
    """What of study.json is used, as it is read."""

    commands: tuple[tuple[str, ...], ...]
    created: str = ""
    p3s_version: str = ""
    runs: tuple[RunListed, ...] = ()
    without: tuple[ProcessCount, ...] = ()
    trips: Mapping[str, Natural] = field(default_factory=dict)
    derived: bool = False

    def valid(self) -> None:
        """Raise ValueError where a command has no word."""
        if not all(self.commands):
            raise ValueError("commands is not a list of commands")


@dataclass(frozen=True)
class Unmatched:
    """Messages that no call of the partner meets: how many, of how many, of which calls."""

    events: NotNegative = 0.0
    of: NotNegative = 0.0
    calls: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReplayRead:
    """What of a replay's JSON file predictions and reports rest on."""

    n: ProcessCount
    representative: bool = False
    why_not_representative: str | None = None
    notes: tuple[str, ...] = ()
    unmatched: Unmatched | None = None
    unmeasured: tuple[Mapping[str, Any], ...] = ()
    left_out: tuple[Mapping[str, Any], ...] = ()
    shares: Mapping[str, Share] = field(default_factory=dict)
    measured_share: Share | None = None
    phases: tuple[Mapping[str, Any], ...] = ()
    messages: tuple[Mapping[str, Any], ...] = ()
    classes: tuple[Mapping[str, Any], ...] = ()
    network: Mapping[str, Any] | None = None
    nodes: tuple[str | None, ...] = ()
    tables: Mapping[str, TableFacts] | None = None


def runs_in(folder: Path, np: int | None = None) -> list[RunRecord]:
    """Return the runs in a directory, by count and repeat (of one count only if it is given)."""
    records = []
    for path, match in _list_run_dirs(folder):
        count = int(match[1])
        if match[3] or (np is not None and count != np) or not path.is_dir():
            continue
        try:
            info = read_run(path)
            status = str(info.get("status", "partial"))
            status = "complete" if status == "stopped" else status
        except P3SError as err:
            info, status = {}, "partial"
            if (path / "run.json").exists():
                tell(f"p3s: note: {err}; the run is not used")
        records.append(RunRecord(count, int(match[2]), path, status, info))
    return sorted(records, key=lambda run: (run.np, run.rep))


def read_run(path: Path) -> dict[str, Any]:
    """Return run.json of a run's directory, checked; raises P3SError in one line.

    What is returned is not to be changed.
    """
    return _last_run(path / "run.json")


def was_ended(info: Mapping[str, Any]) -> bool:
    """Tell by run.json whether the program was ended once its phases were known."""
    return info.get("status") == "stopped"


def read_manifest(path: Path) -> dict[str, Any]:
    """Return a study.json, checked; raises P3SError in one line.

    What is returned is not to be changed.
    """
    return _last_manifest(path)


def is_old_replay(path: Path) -> bool:
    """Tell whether a replay was written by an older P3S."""
    try:
        head = parse_json(file_bytes(path))
        version = head["schema_version"] if head["schema"] == REPLAY_SCHEMA else REPLAY_VERSION
        return isinstance(version, int) and version < REPLAY_VERSION
    except (OSError, ValueError, KeyError, TypeError):
        return False  # damaged: reading it says so


def read_replay(root: Path, n: int) -> dict[str, Any]:
    """Read the measured communication at ``n``; raises P3SError, also for an older version."""
    path = replay_path(root, n)
    again = f"p3s replay {quote_word(root)} -n {n}"
    if is_old_replay(path):
        raise P3SError(f"{path}: made by an older P3S; make it again: {again}")
    data = read_json(path, REPLAY_SCHEMA, REPLAY_VERSION)
    try:
        record = from_data(ReplayRead, data, more=True)
        if record.n != n:
            raise ShapeError(f"it is of n={record.n}")
    except ShapeError as err:
        raise DamagedFile(f"{path}: damaged ({err}); make it again: {again}") from err
    return data


def _make_reader(schema: str, kind: type[RunRead | StudyRead]) -> Callable[[Path], dict[str, Any]]:
    """Return what reads JSON files of a schema, and checks what of them is used."""

    def read(path: Path) -> dict[str, Any]:
        data = read_json(path, schema)
        try:
            from_data(kind, data, more=True)
        except ShapeError as err:
            raise DamagedFile(f"{path}: damaged ({err})") from err
        return data

    return read


_last_run = LastRead(_make_reader(RUN_SCHEMA, RunRead), files=_RUNS)
_last_manifest = LastRead(_make_reader(STUDY_SCHEMA, StudyRead), files=_STUDIES)


@cache
def tell(text: str) -> None:
    """Say what is wrong with a run on stderr, once."""
    print(" ".join(text.split()), file=sys.stderr)


def work_of(runs: Iterable[RunRecord]) -> dict[str, list[int]]:
    """Return, for each way work was measured, the counts of the runs that did it so."""
    counts_of: dict[str, list[int]] = {}
    for run in runs:
        # Runs of before this was recorded measured CPU time.
        unit = _UNITS.get(str(run.info.get("work_unit", "cpu_ns")), "cpu")
        counts = counts_of.setdefault(unit, [])
        if run.np not in counts:
            counts.append(run.np)
    return counts_of


def count_of(run: Path) -> int | None:
    """Return the process count that a run's directory is named after, None if it is of no study."""
    match = _RUN_NAME.match(run.name)
    return int(match[1]) if match else None


def ended_early(folder: Path, how: str) -> set[int]:
    """Return the counts of the runs there that ended so: FAILED, or STOPPED by the user."""
    return {int(match[1]) for _, match in _list_run_dirs(folder) if match[3] == how}


def _list_run_dirs(folder: Path) -> list[tuple[Path, re.Match[str]]]:
    entries: list[Path] = []
    with contextlib.suppress(OSError):  # there is none
        entries = list(folder.iterdir())
    return [(path, match) for path in entries if (match := _RUN_NAME.match(path.name))]


def commands_of(runs: Iterable[RunRecord]) -> list[list[str]]:
    """Return the launcher commands that runs say they were made with, each once, oldest first."""
    commands: list[list[str]] = []
    for run in sorted(runs, key=lambda run: changed_ns(run.path / "run.json")):
        words = run.info.get("command")
        if _is_command(words) and words not in commands:
            commands.append(words)
    return commands


def _is_command(words: Any) -> TypeGuard[list[str]]:
    return isinstance(words, list) and bool(words) and all(isinstance(w, str) for w in words)


# ---- making a run ------------------------------------------------------------------------------
def stage_run(target: Path) -> Path:
    """Make an empty directory beside ``target`` in which a run is made."""
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        return new_directory(target)


def commit_run(staged: Path, target: Path) -> None:
    """Put a finished run in its place; an earlier one there is replaced only now."""
    try:
        put_in_place(staged, target)
        sync_directory(target.parent)
    except OSError as err:
        raise P3SError(f"{target}: cannot be put in place: {reason(err)}") from err


def keep_failed_run(staged: Path, target: Path, stopped: bool = False) -> Path | None:
    """Keep what a failed run left, beside the study's runs, as ``<name>.failed``.

    ``stopped``: it did not fail but was stopped by the user; then as ``<name>.stopped``.
    Returns its path, or None when the run left nothing.
    """
    if not staged.is_dir() or not any(staged.iterdir()):
        discard(staged)
        return None
    kept_dir = target.parent / f"{target.name}{STOPPED if stopped else FAILED}"
    try:
        put_in_place(staged, kept_dir)
    except OSError:
        return staged
    return kept_dir
