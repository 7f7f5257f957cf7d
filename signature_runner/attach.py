"""Starts a program traced inside a running launcher: what each rank of `p3s exec` does."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from p3s.base.artefacts import SCHEMA_VERSION, parse_json, write_bytes, write_json
from p3s.base.errors import P3SError, UsageError
from p3s.base.host import compiling, mpi
from p3s.base.host.command import LAUNCHERS, PROXY, origin_of, program_path
from p3s.base.host.cores import cores
from p3s.base.host.place import Place, launcher_above, parents, place, process_facts
from p3s.base.records import RUN_SCHEMA
from p3s.base.trust import sign
from p3s.signature_runner import build
from p3s.signature_runner.archive import has_tracer, relink
from p3s.signature_runner.programs import number_of, write_program
from p3s.signature_runner.recording import AUTO, CPU, INSTRUCTIONS, SHARING, Recording, preload

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
    above = [(pid, os.path.basename(path)) for pid, path in parents(_GENERATIONS)]
    proxy = next((pid for pid, name in above if name == PROXY), None)
    if proxy is not None and "OMPI_COMM_WORLD_RANK" not in env:
        # Where mpiexec listens, and which of several groups of ranks.
        words = _words(proxy)
        options_given = dict(zip(words, words[1:], strict=False))
        port, group = options_given.get("--control-port"), options_given.get("--pgid", "")
        if port:
            return Launch(f"hydra {port} {group}", True)
    for rank, names in _VARIABLES:
        values = [env.get(name, "") for name in names]
        if env.get(rank) and all(values):
            return Launch(" ".join((rank, *values)), True)
    for pid, name in above:
        if name in LAUNCHERS:
            return Launch(f"{socket.gethostname()} {pid} {born(pid)}", False)
    return None


def _words(pid: int) -> list[str]:
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return [word.decode("utf-8", "surrogateescape") for word in raw.split(b"\0")]


def born(pid: int) -> str:
    """Return when a process was started (its number may be used again), empty if it is gone."""
    try:
        facts = process_facts(pid)
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
    if _claimed_by_other(path, text, launch):
        with compiling.lock_cache("claim"):  # of those that find an old one, one takes its place
            if _claimed_by_other(path, text, launch, alive=True):
                raise P3SError(
                    f"{folder}: another launch is about to write its captures there; choose"
                    " another directory with -o"
                )


def _claimed_by_other(path: Path, text: str, launch: Launch, alive: bool = False) -> bool:
    """Put a claim in place; tell whether another launch's is there.

    ``alive``: only where it still runs.
    """
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
        if not alive or _runs(path, rest.split("\n")):
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


_RANK_FILE = re.compile(r"rank-(\d{6,})\.p3t")
_FORGET_S = 60.0


def default_dir(placement: Place) -> Path:
    """Return where the captures of this launch go when the user names no place."""
    return Path(f"p3s-np{placement.size or 1}")


def execute(program: Sequence[str], run_dir: Path | None, recording: Recording) -> None:
    """Become ``program``, traced, as one rank of a launch.

    ``run_dir`` [default: p3s-npSIZE] must hold no capture yet. The first rank writes run.json.
    Errors: UsageError without a program; P3SError when the directory is taken or cannot be
    written, or there is no such program or no tracer for it. Does not return otherwise.
    """
    if not program:
        raise UsageError("no program given; write mpiexec -n 8 p3s exec -- PROGRAM ARGS")
    if recording.work == AUTO:
        # The study is not known, so neither whether another count shares cores: what is right for
        # all of them, as a study holds one unit.
        recording = replace(recording, work=CPU)
    placement = place()
    if run_dir is None and (started := _started_by_p3s()):
        _become(program, program_path(program[0]), placement, started, os.environ)
    folder = Path(os.path.abspath(run_dir or default_dir(placement)))
    path = program_path(program[0])
    _refuse_taken(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise P3SError(f"{folder}: cannot be made: {error.strerror}; use -o") from error
    tracer = tracer_for(path, placement)
    launched = this_launch()
    claim(folder, launched)
    _refuse_taken(folder)  # another launch may have had it in the meantime
    env = {
        "P3S_RUN_ID": launched.run_id if launched else "",
        **os.environ,
        **recording.environment(folder),
        "P3S_LAUNCHED": str(placement.size or 0),
        "P3S_PROGRAM": str(number_of(program)),
    }
    shared = bool(placement.local_size and placement.local_size > cores())
    if shared:
        env = {**SHARING, **env}
    static = mpi.library_of(path) is None and mpi.is_static(path) and not has_tracer(path)
    if not placement.rank and static:
        # Not refused: it may be a tool that holds the name and starts the program.
        print(
            f"p3s: warning: {path} has MPI linked statically and will not be traced; {relink()}",
            file=sys.stderr,
        )
    write_program(folder, program, os.getcwd())
    if not placement.rank:
        _write_info(folder, program, placement, tracer, recording, shared)
    _become(program, path, placement, folder, env)


def _started_by_p3s() -> Path | None:
    """Return where a launch of P3S captures whose tracer something on the way has dropped."""
    folder = Path(os.environ.get("P3S_TRACE_DIR", ""))
    untouched = folder.is_absolute() and folder.is_dir() and not any(folder.glob("rank-*.p3t"))
    return folder if untouched else None


def _become(
    program: Sequence[str], path: str, placement: Place, folder: Path, variables: Mapping[str, str]
) -> None:
    """Become a program with the tracer in front of other preloads; does not return."""
    tracer, env = tracer_for(path, placement), dict(variables)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, its successor must not
        signal.signal(number, signal.SIG_DFL)
    loaded = preload(tracer.path, env.pop("LD_PRELOAD", ""))
    if env.get("P3S_WORK") == INSTRUCTIONS:
        from p3s.signature_runner import emulate

        emulate.execute(loaded, folder, program, env)
    try:
        os.execve(path, list(program), {**env, "LD_PRELOAD": loaded})
    except OSError as error:
        raise P3SError(f"{path}: cannot be started: {error.strerror}") from error


def _refuse_taken(folder: Path) -> None:
    """Refuse a directory with captures; no rank of this launch can have written one yet.

    A capture is opened when MPI_Init returns, which it does only when all ranks have called it.
    """
    try:
        names = [name for name in os.listdir(folder) if _RANK_FILE.fullmatch(name)]
    except FileNotFoundError:
        return
    except OSError as error:
        raise P3SError(f"{folder}: cannot be read: {error.strerror}; use -o") from error
    if names:
        raise P3SError(
            f"{folder}: already holds a capture ({min(names)}); choose another directory with -o"
            " or remove it"
        )


def _write_info(
    folder: Path,
    program: Sequence[str],
    placement: Place,
    tracer: build.TracerBuild,
    recording: Recording,
    shared: bool,
) -> None:
    """Write run.json; how the run ends is not known here."""
    origin = origin_of(program[0])
    info: dict[str, Any] = {
        "schema": RUN_SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "np": placement.size or 1,
        "argv": list(program),
        **origin,
        "signed": sign(program, str(origin["directory"]), tracer.mpicc),
        "oversubscribed": shared,
        "cores": cores(),
        "mpi": f"{tracer.mpi_family} {tracer.version}",
        "mpicc": tracer.mpicc,
        "launcher": "srun" if "SLURM_STEP_ID" in os.environ else "mpiexec",
        "traced": True,
        "status": "unknown",
        **recording.as_info(),
    }
    write_json(folder / "run.json", info)


def _stamp(path: str) -> str:
    try:
        facts = os.stat(path)
    except OSError:
        return f"{path} absent"
    return f"{os.path.realpath(path)} {facts.st_size} {facts.st_mtime_ns}"


def _known_path(program: str, library: tuple[str, str] | None, above: str | None) -> Path:
    """Return where the tracer for a program is remembered, by everything that decides on it."""
    facts = [_stamp(str(path)) for path in build.source_paths()]
    facts += [_stamp(str(Path(build.__file__).parent / "tracer" / "table.py"))]
    facts += [str(library), _stamp(library[1] if library else program), str(above)]
    facts += [program]  # the Pythons of several environments are one file
    facts += [f"{n}={os.environ.get(n)}" for n in ("PATH", "LD_LIBRARY_PATH", "MPI4PY_MPIABI")]
    facts += [sys.executable, str(place().family)]
    digest = hashlib.sha256("\0".join(facts).encode("utf-8", "surrogateescape")).hexdigest()
    return compiling.cache_dir() / f"known-{digest[:20]}.json"


def tracer_for(program: str, placement: Place) -> build.TracerBuild:
    """Return the tracer for a program, found once and remembered: ranks start together.

    Finding it asks every compiler on PATH and may compile; the ranks that come later read a
    file. Errors: P3SError as build.ensure_tracer.
    """
    library, above = mpi.library_of(program), launcher_above()
    lookup = _known_path(program, library, above)
    tracer, python = _recall(lookup)
    if tracer is None:
        with compiling.lock_cache("lookup"):
            tracer, python = _recall(lookup)
            if tracer is None:
                tracer = build.ensure_tracer(None, program, above, placement.family)
                python = mpi.library_of_python(program) if library is None else None
                row = {"path": str(tracer.path), "version": tracer.version, "mpicc": tracer.mpicc}
                text = json.dumps({**row, "family": tracer.mpi_family, "python": python})
                write_bytes(lookup, text.encode("utf-8", "surrogateescape"))
    if library and library[0] != tracer.mpi_family:
        raise P3SError(f"{program}: uses {library[1]}, for which there is no tracer; p3s doctor")
    if library and placement.family and library[0] != placement.family:
        raise P3SError(
            f"{program}: is linked to {library[1] or library[0]}, but was started by the launcher"
            f" of another MPI ({placement.family}); start it with the mpiexec of its own MPI"
        )
    if python and placement.family and python[0] != placement.family:
        raise P3SError(
            f"{program}: mpi4py loads {python[1]}, but was started by the launcher of another MPI"
            f" ({placement.family}); {mpi.remedy_for(python[1], placement.family)}"
        )
    return tracer


def _recall(lookup: Path) -> tuple[build.TracerBuild | None, tuple[str, str] | None]:
    """Return the remembered tracer and, of a Python, (family, library) that its mpi4py loads."""
    try:
        row = parse_json(lookup.read_bytes())
        tracer = build.TracerBuild(Path(row["path"]), row["family"], row["version"], row["mpicc"])
        python = (str(row["python"][0]), str(row["python"][1])) if row["python"] else None
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None, None
    if tracer.path.parent != lookup.parent or not compiling.is_sound(tracer.path):
        return None, None
    return tracer, python


def first_to_say(text: str) -> bool:
    """Tell whether no other rank of this launch has said ``text`` yet (of one node, at least)."""
    try:
        folder = compiling.cache_dir()
        parent, launched = os.getppid(), this_launch()
        name = launched.name if launched else f"{parent} {born(parent)}"
        mark = hashlib.sha256(f"{name} {text}".encode("utf-8", "replace")).hexdigest()
        for path in folder.glob("said-*"):
            if path.stat().st_mtime < time.time() - _FORGET_S:
                path.unlink(missing_ok=True)
        os.close(os.open(folder / f"said-{mark[:20]}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    except (OSError, P3SError):
        return True
    return True
