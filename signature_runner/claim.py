"""Keeps two launches out of one directory: the ranks of a launch know each other by its name."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from p3s.base.errors import P3SError
from p3s.base.host import compiling

#: File in the directory that says whose it is.
NAME = ".launch"
# After so long without a capture a launch on another machine, which cannot be seen, is over.
_OVER_S = 600.0
_GENERATIONS = 8

# Where launchers say which launch this is, the innermost first. Sources: the environment of ranks
# under Open MPI 4 and 5, srun(1), flux-run(1), Cray's aprun and PALS.
_VARIABLES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("OMPI_COMM_WORLD_RANK", ("PMIX_NAMESPACE",)),
    ("PMIX_RANK", ("PMIX_NAMESPACE",)),
    ("SLURM_PROCID", ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_SRUN_COMM_PORT")),
    ("FLUX_TASK_RANK", ("FLUX_JOB_ID",)),
    ("PALS_RANKID", ("PALS_APID",)),
)
_PROXY = "hydra_pmi_proxy"
_STARTERS = ("mpiexec", "mpirun", "orterun", "prterun", "mpiexec.gforker", "mpiexec.hydra")


@dataclass(frozen=True)
class Launch:
    """One start of a program by a launcher.

    ``name`` is the same for all its ranks and for no other launch; ``everywhere``: also for its
    ranks on other machines.
    """

    name: str
    everywhere: bool

    @property
    def run_id(self) -> str:
        """What the captures of the launch have in common; empty if it is not known."""
        digest = hashlib.sha256(self.name.encode("utf-8", "surrogateescape")).hexdigest()
        return digest[:32] if self.everywhere else ""


def this_launch(env: Mapping[str, str] = os.environ) -> Launch | None:
    """Return the launch this process is a rank of, None if that cannot be told."""
    above = list(_parents())
    proxy = next((pid for pid, name in above if name == _PROXY), None)
    if proxy is not None and "OMPI_COMM_WORLD_RANK" not in env:
        # Where mpiexec listens, and which of several groups of ranks.
        words = _words(proxy)
        given = dict(zip(words, words[1:], strict=False))
        port, group = given.get("--control-port"), given.get("--pgid", "")
        if port:
            return Launch(f"hydra {port} {group}", True)
    for rank, names in _VARIABLES:
        values = [env.get(name, "") for name in names]
        if env.get(rank) and all(values):
            return Launch(" ".join((rank, *values)), True)
    for pid, name in above:
        if name in _STARTERS:
            return Launch(f"{socket.gethostname()} {pid} {born(pid)}", False)
    return None


def _parents() -> Iterator[tuple[int, str]]:
    """Yield (process id, name of its program) of the processes above this one."""
    pid = os.getppid()
    for _ in range(_GENERATIONS):
        if pid <= 1:
            return
        try:
            yield pid, os.path.basename(os.readlink(f"/proc/{pid}/exe"))
            pid = int(_facts(pid)[1])
        except (OSError, ValueError, IndexError):
            return


def _words(pid: int) -> list[str]:
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return [word.decode("utf-8", "surrogateescape") for word in raw.split(b"\0")]


def _facts(pid: int) -> list[str]:
    # The name of the program, in brackets, may hold anything.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def born(pid: int) -> str:
    """Return when a process was started (its number may be used again), empty if it is gone."""
    try:
        facts = _facts(pid)
        return "" if facts[0] in "ZX" else facts[19]
    except (OSError, IndexError):
        return ""


def claim(folder: Path, launch: Launch | None) -> None:
    """Take a directory for the captures of a launch; its other ranks then find it taken by it.

    Errors: P3SError when another launch has it, whose ranks have not begun to write yet.
    """
    if launch is None:
        return
    host, pid = socket.gethostname(), os.getpid()
    path = folder / (NAME if launch.everywhere else f"{NAME}-{host}")
    text = "\n".join((launch.name, host, str(pid), born(pid), ""))
    if _taken(path, text, launch):
        with compiling.locked("claim"):  # of those that find an old one, one takes its place
            if _taken(path, text, launch, gone=True):
                raise P3SError(
                    f"{folder}: another launch is about to write its captures there; choose"
                    " another directory with -o"
                )


def _taken(path: Path, text: str, launch: Launch, gone: bool = False) -> bool:
    """Put a claim in place; tell whether another launch's is there (``gone``: and still runs)."""
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(6)}")
    try:
        fresh.write_text(text, "utf-8", "surrogateescape")
        try:
            os.link(fresh, path)  # whole or not at all
            return False
        except FileExistsError:
            pass
        name, _, rest = path.read_text("utf-8", "surrogateescape").partition("\n")
        if name == launch.name:
            return False
        if not gone or _runs(path, rest.split("\n")):
            return True
        os.replace(fresh, path)
        return False
    except OSError:
        return False  # a file system without links, or it vanished: as without claims
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)


def _runs(path: Path, facts: list[str]) -> bool:
    """Tell whether the rank that made a claim (host, process id, its start) still runs."""
    if len(facts) < 3 or not facts[1].isdigit():
        return False
    if facts[0] == socket.gethostname():
        return bool(facts[2]) and born(int(facts[1])) == facts[2]
    return path.stat().st_mtime > time.time() - _OVER_S
