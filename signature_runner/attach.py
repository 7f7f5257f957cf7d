"""Starts a program traced inside a running launcher: what each rank of `p3s exec` does."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from p3s.base.artefacts import parse_json
from p3s.base.errors import P3SError, UsageError
from p3s.base.host import compiling, mpi
from p3s.base.host.command import origin_of
from p3s.base.host.cores import cores
from p3s.base.study import RUN_SCHEMA, SCHEMA_VERSION, write_bytes, write_json
from p3s.base.trust import sign
from p3s.signature_runner import build
from p3s.signature_runner.archive import has_tracer, relink
from p3s.signature_runner.claim import born, claim, this_launch
from p3s.signature_runner.place import Place, launcher_above, place
from p3s.signature_runner.programs import number_of, write_program
from p3s.signature_runner.recording import AUTO, CPU, INSTRUCTIONS, SHARING, Recording, preload

_KNOWN_SCHEMA = "p3s.known-tracer"
_RANK_FILE = re.compile(r"rank-(\d{6,})\.p3t")
_FORGET_S = 60.0


def default_dir(here: Place) -> Path:
    """Return where the captures of this launch go when the user names no place."""
    return Path(f"p3s-np{here.size or 1}")


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
    here = place()
    if run_dir is None and (started := _started_by_p3s()):
        _become(program, _find(program[0]), here, started, os.environ)
    folder = Path(os.path.abspath(run_dir or default_dir(here)))
    path = _find(program[0])
    _refuse_taken(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise P3SError(f"{folder}: cannot be made: {error.strerror}; use -o") from error
    tracer = tracer_for(path, here)
    launched = this_launch()
    claim(folder, launched)
    _refuse_taken(folder)  # another launch may have had it in the meantime
    env = {
        "P3S_RUN_ID": launched.run_id if launched else "",
        **os.environ,
        **recording.environment(folder),
        "P3S_LAUNCHED": str(here.size or 0),
        "P3S_PROGRAM": str(number_of(program)),
    }
    shared = bool(here.local_size and here.local_size > cores())
    if shared:
        env = {**SHARING, **env}
    if not here.rank and _untraceable(path):
        # Not refused: it may be a tool that holds the name and starts the program.
        print(
            f"p3s: warning: {path} has MPI linked statically and will not be traced; {relink()}",
            file=sys.stderr,
        )
    write_program(folder, program, os.getcwd())
    if not here.rank:
        _write_info(folder, program, here, tracer, recording, shared)
    _become(program, path, here, folder, env)


def _started_by_p3s() -> Path | None:
    """Return where a launch of P3S captures whose tracer something on the way has dropped."""
    folder = Path(os.environ.get("P3S_TRACE_DIR", ""))
    there = folder.is_absolute() and folder.is_dir() and not any(folder.glob("rank-*.p3t"))
    return folder if there else None


def _become(
    program: Sequence[str], path: str, here: Place, folder: Path, variables: Mapping[str, str]
) -> None:
    """Become a program with the tracer in front of other preloads; does not return."""
    tracer, env = tracer_for(path, here), dict(variables)
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


def _untraceable(path: str) -> bool:
    return mpi.library_of(path) is None and mpi.is_static(path) and not has_tracer(path)


def _find(word: str) -> str:
    path = shutil.which(word)
    if path is not None:
        return path
    if os.path.isdir(word):
        raise P3SError(f"{word}: is a directory, not a program")
    if os.path.exists(word) and os.sep in word:
        raise P3SError(f"{word}: not executable; `chmod +x {word}` or name its interpreter")
    raise P3SError(f"{word}: program not found in {os.getcwd()} or on PATH; check the path")


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
    here: Place,
    tracer: build.TracerBuild,
    recording: Recording,
    shared: bool,
) -> None:
    """Write run.json; how the run ends is not known here."""
    origin = origin_of(program[0])
    info: dict[str, Any] = {
        "schema": RUN_SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "np": here.size or 1,
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


def tracer_for(program: str, here: Place) -> build.TracerBuild:
    """Return the tracer for a program, found once and remembered: ranks start together.

    Finding it asks every compiler on PATH and may compile; the ranks that come later read a
    file. Errors: P3SError as build.ensure_tracer.
    """
    library, above = mpi.library_of(program), launcher_above()
    known = _known_path(program, library, above)
    found, python = _recall(known)
    if found is None:
        with compiling.locked("lookup"):
            found, python = _recall(known)
            if found is None:
                found = build.ensure_tracer(None, program, above, here.family)
                python = mpi.library_of_python(program) if library is None else None
                row = {"path": str(found.path), "version": found.version, "mpicc": found.mpicc}
                text = json.dumps({**row, "family": found.mpi_family, "python": python})
                write_bytes(known, text.encode("utf-8", "surrogateescape"))
    if library and library[0] != found.mpi_family:
        raise P3SError(f"{program}: uses {library[1]}, for which there is no tracer; p3s doctor")
    if library and here.family and library[0] != here.family:
        raise P3SError(
            f"{program}: is linked to {library[1] or library[0]}, but was started by the launcher"
            f" of another MPI ({here.family}); start it with the mpiexec of its own MPI"
        )
    if python and here.family and python[0] != here.family:
        raise P3SError(
            f"{program}: mpi4py loads {python[1]}, but was started by the launcher of another MPI"
            f" ({here.family}); {mpi.remedy_for(python[1], here.family)}"
        )
    return found


def _recall(known: Path) -> tuple[build.TracerBuild | None, tuple[str, str] | None]:
    """Return the remembered tracer and, of a Python, (family, library) that its mpi4py loads."""
    try:
        row = parse_json(known.read_bytes())
        found = build.TracerBuild(Path(row["path"]), row["family"], row["version"], row["mpicc"])
        python = (str(row["python"][0]), str(row["python"][1])) if row["python"] else None
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None, None
    if found.path.parent != known.parent or not compiling.is_sound(found.path):
        return None, None
    return found, python


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
