"""Says why nothing was captured of a program that ran to its end."""

from __future__ import annotations

import re
from pathlib import Path

from p3s.base.artefacts import no_room
from p3s.base.host.command import Command, executable
from p3s.base.host.mpi import is_static, library_of
from p3s.signature_runner.archive import has_tracer, relink
from p3s.signature_runner.output import tail

#: Beside the captures: programs that were started without the tracer in LD_PRELOAD, one a line.
LOST = "preload-lost"


def warning(run_dir: Path) -> str:
    """Return ": reason" if the tracer said why it could not write."""
    pattern = r"^p3s: warning: rank \d+: (.*); the program goes on"
    match = re.search(pattern, tail(run_dir / "stderr.txt"), re.MULTILINE)
    return f": {match[1]}" if match else ""


def lost_preload(run_dir: Path) -> str:
    """Return what started a program without the tracer, and the way; "" where nothing did."""
    started = tail(run_dir / LOST).split("\n")[:-1]
    programs = [name for name in started if library_of(executable(name) or "")] or started[-1:]
    if not programs:
        return ""
    name = programs[0]
    return (
        f"it starts {name} with another LD_PRELOAD, which drops the tracer; put `p3s exec --`"
        f" before {name} there"
    )


def no_call(run_dir: Path, command: Command) -> str:
    """Return why a program made no MPI call that was seen."""
    shown = command.program[0]
    if obstacle := warning(run_dir) or no_room(run_dir):
        return f"{shown}: nothing was captured{obstacle}"
    if why := lost_preload(run_dir):
        return f"{shown}: no MPI call seen: {why}"
    program = executable(command.program[0])
    if program and library_of(program) is None and _is_elf(program):
        if is_static(program) and not has_tracer(program):
            why = f"it has MPI linked statically; {relink()}"
        else:
            why = "it is not linked to an MPI library and opens none; is it the right program?"
    else:
        why = (
            "it is not an MPI program, ends before MPI_Init, or uses another MPI than"
            f" {command.launcher}"
        )
    return f"{shown}: no MPI call seen: {why}"


def _is_elf(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False
