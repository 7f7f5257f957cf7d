"""The directory of a replay job: what its processes are told; and the results that are kept.

A job is loaded and executed, so nothing of it is used that was changed after it was written:
plan.json holds the digests of the programs and of the library, its own is on the command line of
the processes. Results of programs are kept one by one: what an interrupted replay has measured is
not lost. A store is a directory (replay/npNNNNNN.parts) with a file KEY.npz for what a program has
measured; the processes of a job write them there, each as soon as it is complete.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from p3s.base.artefacts import file_bytes, parse_json, write_bytes, writing
from p3s.base.errors import P3SError
from p3s.base.serialise import to_data
from p3s.base.staging import discard, new_directory
from p3s.base.tables import read_arrays
from p3s.replay.engine.results import ProgramResult, array_bytes, read_result
from p3s.replay.engine.watchdog import kernel, pages_dir
from p3s.replay.plan.program import EVENT, PAIRING, Pairing, Process, Program, World
from p3s.replay.plan.types import pass_ns
from p3s.replay.settings import PAGES, STALL_S
from p3s.simulate.network import rough_network

PLAN = "plan.json"
PROGRAMS = "programs"
RESULTS = "results"
DONE = "done.json"
MOST_PASSES = 256
#: What a pass takes beside its events, to share the budget by: a guess is enough.
_PASS_S = 0.005

_ARRAYS = ("start", "lists", "list_start", "slots")
#: What the head of a program says of it as it is.
_PLAIN = ("what", "name", "section", "timed", "noise")


@dataclass(frozen=True)
class JobSettings:
    """How a job is run.

    ``library``: the compiled inner loop (replay/engine/inner.py). ``budget_s``: time to measure
    in. ``stall_s``: the job is ended when nothing moves for so long, beyond what emulated
    computation takes. ``pages``: one of PAGES. ``work_scale``: factor on emulated computation.
    ``most_passes``: of one program, however little is known then.
    """

    library: Path
    budget_s: float
    stall_s: float = STALL_S
    pages: str = "small"
    work_scale: float = 1.0
    most_passes: int = MOST_PASSES


@dataclass(frozen=True)
class Job:
    """A job as its first process reads it: settings, processes, and a head per program.

    ``digest``: of the library.
    """

    directory: Path
    settings: JobSettings
    world: World
    heads: tuple[Mapping[str, Any], ...]
    digest: str = ""

    def library(self) -> bytes:
        """Return the compiled inner loop. Errors: P3SError unless it is the one of the job."""
        return _read_unchanged(self.settings.library, self.digest)

    def result_path(self, number: int) -> Path:
        """Return the file with what a program has measured; there once it has been."""
        return Path(self.heads[number]["result"])

    def pass_s(self, number: int) -> float:
        """Return how long a pass of a program takes, roughly; budgets are shared by this."""
        return float(self.heads[number]["pass_s"])

    def program(self, number: int) -> Program:
        """Read a program; ``step`` is not part of a job and comes back empty."""
        head = self.heads[number]
        path = program_path(self.directory, number)
        data = _read_unchanged(path, head["digest"])
        try:
            paired = PAIRING if head["pairing"] else ()
            names = ("events", *_ARRAYS)
            arrays = read_arrays(data, (*names, *(f"pairing_{name}" for name in paired)))
            events = np.ascontiguousarray(arrays["events"]).view(EVENT).reshape(-1)
            columns: dict[str, Any] = {name: arrays[name] for name in _ARRAYS}
            pairing = Pairing(**{n: arrays[f"pairing_{n}"] for n in paired}) if paired else None
        except (OSError, KeyError, ValueError) as err:
            raise P3SError(f"{path}: missing or damaged ({err}); replay with --again") from err
        return Program(
            events=events,
            step=np.zeros(0, dtype=np.int64),
            comms=tuple(tuple(members) for members in head["comms"]),
            pairing=pairing,
            **{name: head[name] for name in _PLAIN},
            **columns,
        )


def program_path(directory: Path, number: int) -> Path:
    """Return the file of a program."""
    return directory / PROGRAMS / f"program-{number:03d}.npz"


def result_path(directory: Path, number: int) -> Path:
    """Return the file with what a program has measured, where a job is told no other."""
    return directory / RESULTS / f"program-{number:03d}.npz"


def _read_unchanged(path: Path, digest: str) -> bytes:
    """Return a file. Errors: P3SError where it is not the one that was written for the job."""
    try:
        data = file_bytes(path)
    except OSError as err:
        raise P3SError(f"{path}: cannot be read: {err.strerror}; replay with --again") from err
    if hashlib.sha256(data).hexdigest() != digest:
        raise P3SError(f"{path}: was changed since the job was written; replay with --again")
    return data


def write_job(
    directory: Path,
    programs: Sequence[Program],
    world: World,
    settings: JobSettings,
    results: Sequence[Path] = (),
) -> str:
    """Write a job: plan.json and a file per program. Results that are there are kept.

    ``results``: where the result of each program is written; none: in the job's directory. Returns
    the SHA-256 of plan.json, which the processes are to be told.

    Errors: P3SError for settings that cannot be, or when the directory cannot be written.
    """
    if settings.pages not in PAGES:
        raise P3SError(f"pages {settings.pages}: not one of {', '.join(PAGES)}")
    if settings.budget_s <= 0 or settings.stall_s <= 0:
        raise P3SError("budget and stall time must be more than 0 seconds")
    try:
        for name in (PROGRAMS, RESULTS):
            (directory / name).mkdir(parents=True, exist_ok=True)
        pages_dir(directory, kernel()).mkdir(exist_ok=True)
        digests = [
            _write_program(program_path(directory, number), program, world.size)
            for number, program in enumerate(programs)
        ]
        paths = results or [result_path(directory, number) for number in range(len(programs))]
        plan = {
            "settings": {**asdict(settings), "library": str(settings.library)},
            "library_sha256": hashlib.sha256(settings.library.read_bytes()).hexdigest(),
            "processes": [asdict(process) for process in world.processes],
            "programs": [
                {**_head(program, settings.work_scale), "digest": digest, "result": str(path)}
                for program, digest, path in zip(programs, digests, paths, strict=True)
            ],
        }
        data = json.dumps(plan).encode()
        write_bytes(directory / PLAN, data)
        return hashlib.sha256(data).hexdigest()
    except OSError as err:
        raise P3SError(f"{directory}: cannot be written: {err.strerror}") from err


def _head(program: Program, work_scale: float) -> dict[str, Any]:
    wait_ns = float(program.events["at_ns"].max(initial=0))
    busy_ns = pass_ns(program, rough_network(), work_scale)
    return {
        "pass_s": _PASS_S + 1e-9 * max(busy_ns, wait_ns),
        **{name: getattr(program, name) for name in _PLAIN},
        "comms": program.comms,
        "pairing": program.pairing is not None,
    }


def _write_program(path: Path, program: Program, size: int) -> str:
    """Write a program's file; return its SHA-256."""
    if len(program.start) != size + 1:
        raise P3SError(
            f"program {program.name}: made for {len(program.start) - 1} processes, "
            f"but there are {size}"
        )
    data = program_bytes(program)
    path.write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def program_bytes(program: Program) -> bytes:
    """Return the file of a program: what its processes execute and messages that are measured."""
    columns = {name: np.asarray(getattr(program, name), dtype=np.int64) for name in _ARRAYS}
    if program.pairing is not None:
        columns |= {f"pairing_{n}": np.asarray(getattr(program.pairing, n)) for n in PAIRING}
    # As numbers, so that a file holds no types of ours.
    events = np.ascontiguousarray(program.events).view(np.int64).reshape(-1)
    return array_bytes({"events": events, **columns})


def read_job(directory: Path, digest: str) -> Job:
    """Read plan.json of a job. Errors: P3SError in one line when it is missing or damaged.

    ``digest``: what write_job returned; a plan.json that is another one is refused.
    """
    path = directory / PLAN
    try:
        plan = parse_json(_read_unchanged(path, digest))
        settings = JobSettings(**{**plan["settings"], "library": Path(plan["settings"]["library"])})
        world = World(tuple(Process(**process) for process in plan["processes"]))
        heads = tuple(plan["programs"])
        return Job(directory, settings, world, heads, str(plan["library_sha256"]))
    except (OSError, KeyError, TypeError, ValueError) as err:
        why = " ".join(str(err).split())[:120]
        raise P3SError(f"{path}: missing or damaged ({why})") from err


#: Changes when results of the same program would not be comparable any more.
VERSION = 3


class ResultStore:
    """Results of programs in one directory, by key."""

    def __init__(self, directory: Path) -> None:
        self.directory = Path(directory).absolute()
        if self.directory.is_symlink():  # files would be written and removed elsewhere
            raise P3SError(f"{self.directory}: is a link, not a directory; remove it")

    def key(self, program: Program, world: World, facts: Mapping[str, Any]) -> str:
        """Return the key of a program: it and everything that its results depend on.

        ``facts``: hosts, MPI and settings, as JSON can hold them. Without hosts the name of this
        machine counts.
        """
        dependencies = {
            "version": VERSION,
            "what": program.what,
            "comms": program.comms,
            "timed": program.timed,
            "noise": program.noise,
            "world": to_data(world.processes),
            "machine": None if facts.get("hosts") else socket.gethostname(),
            "facts": dict(facts),
        }
        text = json.dumps(dependencies, sort_keys=True, default=str).encode()
        return hashlib.sha256(program_bytes(program) + text).hexdigest()[:32]

    def path(self, key: str) -> Path:
        """Return the file of a result."""
        return self.directory / f"{key}.npz"

    def get(self, key: str) -> ProgramResult | None:
        """Return a result, None where there is none (or what is there cannot be read)."""
        with contextlib.suppress(P3SError):
            return read_result(self.path(key))
        return None

    def clear(self) -> None:
        """Remove all results."""
        for path in self.directory.glob("*.npz"):
            path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def job(self) -> Iterator[Path]:
        """Give an empty directory to run a job in, which is removed at the end.

        Errors: P3SError when nothing can be written.
        """
        with writing(self.directory):
            self.directory.mkdir(parents=True, exist_ok=True)
            directory = new_directory(self.directory / "job")
            directory.chmod(0o700)  # what is in it is executed
        try:
            yield directory
        finally:
            discard(directory)
