"""Results of programs, kept one by one: what an interrupted replay has measured is not lost.

A store is a directory (replay/npNNNNNN.parts) with a file KEY.npz for what a program has measured;
the processes of a job write them there, each as soon as it is complete.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p3s.base.artefacts import writing
from p3s.base.errors import P3SError
from p3s.base.serialise import to_data
from p3s.base.staging import discard, new_directory

if TYPE_CHECKING:
    from p3s.replay.engine.results import ProgramResult
    from p3s.replay.plan.program import Program
    from p3s.replay.plan.world import World

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
        from p3s.replay.engine.job import program_bytes

        known = {
            "version": VERSION,
            "what": program.what,
            "comms": program.comms,
            "timed": program.timed,
            "noise": program.noise,
            "world": to_data(world.processes),
            "machine": None if facts.get("hosts") else socket.gethostname(),
            "facts": dict(facts),
        }
        text = json.dumps(known, sort_keys=True, default=str).encode()
        return hashlib.sha256(program_bytes(program) + text).hexdigest()[:32]

    def path(self, key: str) -> Path:
        """Return the file of a result."""
        return self.directory / f"{key}.npz"

    def get(self, key: str) -> ProgramResult | None:
        """Return a result, None where there is none (or what is there cannot be read)."""
        from p3s.replay.engine.results import read_result

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
