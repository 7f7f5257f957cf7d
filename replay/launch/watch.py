"""Looks at the processes of a job whose time is over, before they are ended: which one is why.

The processes watch each other (replay/engine/watchdog.py), but only those that run, and only when
MPI has started. This is the launching process's own look, through the system.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from p3s.replay.engine.clocks import kernel
from p3s.replay.engine.watchdog import pages_dir, pending

_SHOWN = 3
#: Where launchers tell a process its number.
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
_STOPPED = "Tt"


@dataclass(frozen=True)
class _Seen:
    """A process of a job on this machine; ``rank``: -1 of the launcher and its daemons."""

    pid: int
    rank: int
    name: str
    stopped: bool

    def __str__(self) -> str:
        return f"process {self.rank}" if self.rank >= 0 else f"{self.name} (pid {self.pid})"


def what_is_seen(directory: Path) -> str:
    """Return which processes of a job are stopped, else not out of MPI_Init, else what they do."""
    there = processes_of(directory)
    doing = pending(directory)
    stopped = [one for one in there if one.stopped]
    if stopped:
        return _some([_stopped(one, doing.get(one.rank, "")) for one in stopped])
    pages = pages_dir(directory, kernel())
    early = [one for one in there if one.rank >= 0 and not (pages / str(one.rank)).exists()]
    if early:
        return f"{_some([str(one) for one in early], ', ')} in MPI_Init, or before it"
    return _some(list(doing.values()))


def _stopped(one: _Seen, doing: str) -> str:
    return f"{doing or one} is stopped (by SIGSTOP or a debugger)"


def _some(parts: list[str], between: str = "; ") -> str:
    more = f" (and {len(parts) - _SHOWN} more)" if len(parts) > _SHOWN else ""
    return between.join(parts[:_SHOWN]) + more


def processes_of(directory: Path) -> list[_Seen]:
    """Return the processes on this machine that have a job's directory on their command line."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError, ValueError, IndexError):
                place = Path("/proc", name)
                words = (place / "cmdline").read_bytes().split(b"\0")
                if os.fsencode(directory) in words:
                    found.append(_seen(int(name), place, words))
    return sorted(found, key=lambda one: (one.rank, one.pid))


def _seen(pid: int, place: Path, words: list[bytes]) -> _Seen:
    state = (place / "stat").read_text().rpartition(")")[2].split()[0]
    return _Seen(pid, _rank(place), os.fsdecode(os.path.basename(words[0])), state in _STOPPED)


def _rank(place: Path) -> int:
    told = dict(
        entry.partition(b"=")[::2] for entry in (place / "environ").read_bytes().split(b"\0")
    )
    for name in _RANKS:
        if name.encode() in told:
            return int(told[name.encode()])
    return -1
