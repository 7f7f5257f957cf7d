"""Results of programs, kept one by one: what an interrupted replay has measured is not lost.

A store is a directory (replay/npNNNNNN.parts): KEY.npz with what a program has measured,
KEY.json with where its processes ran. A job works in a directory of its own inside, locked while
it runs; what one that was interrupted has left there is taken over by the next.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from p3s.base.artefacts import file_bytes, parse_json, write_bytes, writing
from p3s.base.errors import P3SError
from p3s.base.staging import discard, new_directory, put_in_place
from p3s.replay.launch.landing import Place
from p3s.replay.plan.program import PAIRING

if TYPE_CHECKING:
    from p3s.replay.engine.results import ProgramResult
    from p3s.replay.plan.program import Program
    from p3s.replay.plan.world import World

#: Changes when results of the same program would not be comparable any more.
VERSION = 2
_KEYS = "keys.json"
_LOCK = "lock"
_JOB = "job-"
#: A key names files; a keys.json that was tampered with must not name those elsewhere.
_KEY = re.compile(r"[0-9a-z]{1,64}", re.ASCII)
_ARRAYS = ("events", "start", "lists", "list_start", "slots")


class ResultStore:
    """Results of programs in one directory, by key."""

    def __init__(self, directory: Path) -> None:
        self.directory = Path(directory).absolute()
        if self.directory.is_symlink():  # files would be moved and removed elsewhere
            raise P3SError(f"{self.directory}: is a link, not a directory; remove it")
        self.harvest()

    def key(self, program: Program, world: World, facts: Mapping[str, Any]) -> str:
        """Return the key of a program: it and everything that its results depend on.

        ``facts``: hosts, MPI and settings, as JSON can hold them. Without hosts the name of this
        machine counts.
        """
        digest = hashlib.sha256()
        for name in _ARRAYS:
            column = np.ascontiguousarray(getattr(program, name))
            digest.update(f"{name} {column.dtype.str} {column.shape}".encode())
            digest.update(column.view(np.uint8).data if column.size else b"")
        pairing = program.pairing
        if pairing is not None:
            for name in PAIRING:
                digest.update(np.ascontiguousarray(getattr(pairing, name)).tobytes())
        digest.update(
            json.dumps(
                {
                    "version": VERSION,
                    "what": program.what,
                    "comms": [[int(rank) for rank in members] for members in program.comms],
                    "timed": bool(program.timed),
                    "noise": bool(program.noise),
                    "world": [[p.role, p.node, p.side, p.slot] for p in world.processes],
                    "machine": None if facts.get("hosts") else socket.gethostname(),
                    "facts": dict(facts),
                },
                sort_keys=True,
                default=str,
            ).encode()
        )
        return digest.hexdigest()[:32]

    def path(self, key: str) -> Path:
        """Return the file of a result."""
        return self.directory / f"{key}.npz"

    def get(self, key: str) -> ProgramResult | None:
        """Return a result, None where there is none (or what is there cannot be read)."""
        from p3s.replay.engine.results import read_result

        path = self.path(key)
        if not path.is_file():
            return None
        try:
            return read_result(path)
        except P3SError:
            return None

    def places(self, key: str) -> tuple[Place, ...]:
        """Return where the processes of a stored result ran, none if that is not known."""
        try:
            return read_places(self.path(key).with_suffix(".json"))
        except P3SError:
            return ()

    def put(self, key: str, result: Path, places: Path | None = None) -> None:
        """Take over a result file, and where its processes ran; the file is moved."""
        if places is not None and places.is_file():
            write_bytes(self.path(key).with_suffix(".json"), places.read_bytes())
        os.replace(result, self.path(key))

    def clear(self) -> None:
        """Remove all results that no running job is about to add."""
        for pattern in ("*.npz", "*.json"):
            for path in self.directory.glob(pattern):
                path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def job(self, keys: Sequence[str]) -> Iterator[Path]:
        """Give an empty directory to run a job in; its results are taken over at the end.

        ``keys``: of its programs, by number. Results are kept also when the job fails.
        Errors: P3SError when nothing can be written.
        """
        directory = self.directory / f"{_JOB}{os.getpid()}-{secrets.token_hex(4)}"
        with writing(self.directory):
            lock = self._new_job(directory, keys)
        with lock:
            try:
                yield directory
            except BaseException:
                with contextlib.suppress(OSError, P3SError):
                    self._take_over(directory)
                raise
            with writing(self.directory):
                self._take_over(directory)

    def _new_job(self, directory: Path, keys: Sequence[str]) -> IO[str]:
        """Make a job's directory, which is locked when it has its name; return the lock."""
        self.directory.mkdir(parents=True, exist_ok=True)
        staged = new_directory(directory)
        try:
            staged.chmod(0o700)  # what is in it is executed
            (staged / _KEYS).write_text(json.dumps(list(keys)))
            lock = open(staged / _LOCK, "w")  # noqa: SIM115
            _lock(lock.fileno())
            put_in_place(staged, directory)
        except BaseException:
            discard(staged)
            raise
        return lock

    def harvest(self) -> None:
        """Take over what jobs have left that were interrupted."""
        for directory in sorted(self.directory.glob(f"{_JOB}*")):
            if directory.is_symlink():  # results elsewhere are not ours to move
                continue
            with contextlib.suppress(OSError, P3SError), open(directory / _LOCK, "a") as lock:
                if _lock(lock.fileno()):
                    self._take_over(directory)

    def _take_over(self, directory: Path) -> None:
        """Move a job's results into the store and remove its directory.

        Errors: OSError, P3SError when not all can be moved; the directory stays for a harvest.
        """
        with contextlib.suppress(FileNotFoundError, ValueError):
            keys = parse_json(file_bytes(directory / _KEYS))
            for path in (directory / "results").glob("program-*.npz"):
                number = int(path.stem.rpartition("-")[2])
                if number < len(keys) and _KEY.fullmatch(str(keys[number])):
                    self.put(str(keys[number]), path, directory / "places.json")
        shutil.rmtree(directory, ignore_errors=True)


def _lock(number: int) -> bool:
    """Lock an open file; False where another process holds it."""
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def read_places(path: Path) -> tuple[Place, ...]:
    """Read places.json of a job. Errors: P3SError."""
    try:
        return tuple(
            Place(
                str(one["name"]),
                str(one["kernel"]),
                _cores(int(one["cores"], 16)),
                int(one.get("pid", 0)),
                str(one.get("node", "")),
            )
            for one in parse_json(file_bytes(path))
        )
    except (OSError, ValueError, KeyError, TypeError) as err:
        raise P3SError(f"{path}: missing or damaged; replay with --again") from err


def _cores(mask: int) -> frozenset[int]:
    """Return the numbers of the bits that are set."""
    return frozenset(bit for bit in range(mask.bit_length()) if mask >> bit & 1)
