"""``p3s machine``: measure a machine, show what was found, compare two."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from p3s.base.artefacts import schema_of
from p3s.base.errors import UsageError
from p3s.base.extensions import load, provided
from p3s.cli.common import (
    JSON_OPTION,
    check_output,
    emit,
    emit_json,
    out,
    parse_counts,
    progress,
    quoted,
    say,
)
from p3s.cli.helptext import Command, argument, option

if TYPE_CHECKING:
    from p3s.base.serialise import Published
    from p3s.machine.filesystem import FileSystem

EPILOG = """\b
Example:
  p3s machine measure -o study/machine.json
  p3s machine show study/machine.json
  p3s machine list
Next:
  p3s predict study -n 64 --machine other.json"""
_MEASURE = """\b
Example:
  p3s machine measure -o study/machine.json
  p3s machine measure --launcher "mpiexec --host n0,n1 -n {np}" -o n0.json
Next:
  p3s machine show study/machine.json"""
_LIST = """\b
Example:
  p3s machine list
  p3s machine show slingshot
Next:
  p3s predict study -n 1024 --network slingshot"""
_SHOW = """\b
Example:
  p3s machine show study/machine.json
  p3s machine show infiniband-hdr
Next:
  p3s predict study -n 64 --machine other.json"""
_COMPARE = """\b
Example:
  p3s machine compare study/machine.json other.json
Next:
  p3s predict study -n 64 --machine other.json"""

#: Options of p3s predict.
MACHINE = option(
    None,
    "--machine FILE",
    "Machine to predict for, a file of p3s machine measure [default: that of the runs].",
)
BASE = option(None, "--base FILE", "Machine file of the runs [default: machine.json in the study].")

app = typer.Typer(
    help="Measure what computation and messages cost here, to predict for other machines.",
    rich_markup_mode=None,
    no_args_is_help=False,
)


@app.command(cls=Command, epilog=_MEASURE, short_help="Measure this machine.")
def measure(
    output: Path = option(Path("machine.json"), "-o --output FILE", "File to write."),
    quick: bool = option(False, "--quick", "In a quarter of the time, with more spread."),
    launcher: str = option(
        "",
        "--launcher COMMAND",
        "Launcher of the two ranks, with {np} [default: mpiexec as found].",
    ),
    network: bool = option(True, "--network/--no-network", "Measure messages between two ranks."),
    openmp: bool = option(
        False, "--openmp", "Measure teams of OpenMP threads, too (12 s more; quick: 5 s)."
    ),
    oversubscribe: bool = option(
        False, "--oversubscribe", "Teams of up to twice the hardware threads."
    ),
    io: Path | None = option(None, "--io DIR", "Measure files in this directory, too."),
    io_ranks: str = option(
        "",
        "--io-ranks COUNTS",
        "Processes that write at once [default: 1, 2, 4, ... up to the cores].",
    ),
    io_mib: int = option(
        8,
        "--io-mib MIB",
        "What a process writes to a file, as much as the program does.",
        min=1,
        max=65536,
    ),
    json_: bool = JSON_OPTION,
) -> int:
    """Measure kernels on one core and on all, and messages between two ranks.

    With --openmp: what parallel regions, loops, barriers, tasks cost by threads, the bandwidth of
    teams, latencies of memory.

    With --io: opening, writing, syncing and reading files, one of each process and one of all, with
    the C library and MPI, alone and together. The files of one process take what --io-mib says.

    Exit code 3 when the network was asked for and could not be measured.
    """
    from p3s.machine.machinefile import MACHINE, Machine
    from p3s.machine.measure import PARTS
    from p3s.machine.measure import measure as run
    from p3s.machine.show import render

    words = _launcher(launcher)
    check_output(output, "machine.json", "machine file", Machine.load)
    writers = _writers(io, io_ranks)
    with progress(len(PARTS) - (not openmp)) as bar:
        machine = run(
            quick=quick,
            launcher=words or None,
            network=network,
            openmp=openmp,
            oversubscribe=oversubscribe,
            on_step=bar.start,
            on_done=bar.done,
        )
    if io is not None:
        machine = replace(machine, files=_files(io, words, writers, io_mib << 20, quick))
    machine.save(output)
    if json_:
        emit_json(MACHINE.data(machine))
        for text in machine.disturbed:
            say(f"disturbed: {text}")
    else:
        out(render(machine))
    say(f"next: p3s machine show {quoted(output)}")
    if network and machine.network is None:
        say(f"p3s: computation was measured, the network was not: {machine.network_missing}")
        return 3
    return 0


def _writers(io: Path | None, text: str) -> list[int]:
    from p3s.base.host.cores import cores

    if io is None:
        return []
    if not io.is_dir() or not os.access(io, os.W_OK):
        raise UsageError(f"--io {io}: no directory that can be written; name one")
    if text:
        return parse_counts(text)
    return sorted({1, 2, *(1 << k for k in range(1, 8) if 1 << k <= cores())})


def _files(io: Path, words: list[str], writers: list[int], nbytes: int, quick: bool) -> FileSystem:
    from p3s.machine.filesystem import measure_files

    say(f"measuring files in {io} with {', '.join(map(str, writers))} processes")
    return measure_files(io, words or None, writers, nbytes, 3 if quick else 9)


def _launcher(text: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--launcher {text}: {error}") from error
    if words and not any("{np}" in word for word in words):
        raise UsageError(
            f'--launcher "{text}" has no {{np}} for the number of ranks; write for example '
            '--launcher "mpiexec -n {np}"'
        )
    return words


@app.command(cls=Command, name="list", epilog=_LIST, short_help="Typical networks to predict for.")
def list_(json_: bool = JSON_OPTION) -> int:
    """List the typical networks that p3s predict --network takes."""
    from p3s.machine.cluster import DEFAULT, names, typical
    from p3s.machine.filesystem import names as files
    from p3s.machine.filesystem import typical as typical_files
    from p3s.machine.show import clusters

    found = [typical(name) for name in names()]
    if json_:
        emit(
            "clusters",
            default=DEFAULT,
            file_systems=[
                {"name": each.name, "kind": each.kind, "source": list(each.source)}
                for each in map(typical_files, files())
            ],
            clusters=[
                {"name": each.name, "label": each.label, "text": each.text} for each in found
            ],
        )
    else:
        out(clusters(found, DEFAULT))
        out("")
        for each in map(typical_files, files()):
            out(f"file system {each.name}: {each.source[0]}")
    return 0


@app.command(
    cls=Command, epilog=_SHOW, short_help="Show a machine file, a model or a typical network."
)
def show(
    file: str = argument("FILE|NAME", "File of p3s machine, or one of the list."),
    json_: bool = JSON_OPTION,
) -> int:
    """Show a machine file, a communication model, or a typical network with its sources."""
    from p3s.machine.cluster import CLUSTER_SCHEMA, Cluster, names, typical
    from p3s.machine.filesystem import FILE_SYSTEM, FileSystem
    from p3s.machine.filesystem import SCHEMA as FILES
    from p3s.machine.filesystem import names as file_systems
    from p3s.machine.filesystem import typical as typical_files
    from p3s.machine.machinefile import MACHINE, MACHINE_SCHEMA, Machine
    from p3s.machine.show import render, render_cluster, render_files

    typical_one = not Path(file).exists()
    schema = "" if typical_one and file in (*file_systems(), *names()) else schema_of(Path(file))
    content: dict[str, Any]
    if schema == FILES or (typical_one and file in file_systems()):
        files = FileSystem.load(Path(file)) if schema else typical_files(file)
        content, text = FILE_SYSTEM.data(files), "\n".join(render_files(files))
    elif schema == CLUSTER_SCHEMA or (typical_one and file in names()):
        cluster = Cluster.load(Path(file)) if schema else typical(file)
        content, text = dict(cluster.data), render_cluster(cluster)
    elif schema != MACHINE_SCHEMA and (shown := _shown(schema, Path(file))) is not None:
        content, text = shown
    else:
        machine = Machine.load(Path(file))
        content, text = MACHINE.data(machine), render(machine)
    if json_:
        emit_json(content)
    else:
        out(text)
    return 0


def _shown(schema: str, path: Path) -> tuple[dict[str, Any], str] | None:
    """Return a file that an extension shows, as JSON and as text; None for any other."""
    formats: Iterator[Published[Any]] = provided("schemas")
    show = next((each.show for each in formats if each.schema == schema), "")
    content: tuple[dict[str, Any], str] | None = load(show)(path) if show else None
    return content


@app.command(cls=Command, epilog=_COMPARE, short_help="Compare two machine files.")
def compare(
    first: Path = argument("A", "Machine file."),
    second: Path = argument("B", "Another machine file."),
    json_: bool = JSON_OPTION,
) -> int:
    """Show how many times as long everything takes on B as on A."""
    from p3s.machine.compare import compare as ratios
    from p3s.machine.compare import render
    from p3s.machine.machinefile import Machine

    result = ratios(Machine.load(first), Machine.load(second))
    if json_:
        emit_json(result)
    else:
        out(render(result))
    return 0
