"""``p3s machine``: measure a machine, show what was found, compare two."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from p3s.base.artefacts import schema_of
from p3s.base.extensions import load, load_provided
from p3s.base.serialise import FileFormat
from p3s.cli.common import emit, emit_json, out
from p3s.machine import cluster, filesystem
from p3s.machine.machinefile import MACHINE, MACHINE_SCHEMA, Machine
from p3s.machine.show import clusters, render, render_cluster, render_files

app = typer.Typer(
    help="Measure what computation and messages cost here, to predict for other machines.",
    rich_markup_mode=None,
    no_args_is_help=False,
)


def list_(json_: bool) -> int:
    """List the typical networks that p3s predict --network takes."""
    data, text = list_published()
    emit("clusters", **data) if json_ else out(text)
    return 0


def show(file: str, json_: bool) -> int:
    """Show a machine file, a communication model, or a typical network with its sources."""
    data, text = show_machine_file(file)
    emit_json(data) if json_ else out(text)
    return 0


def compare(first: Path, second: Path, json_: bool) -> int:
    """Show how many times as long everything takes on B as on A."""
    from p3s.machine.show import compare_machines as ratios
    from p3s.machine.show import render_ratios as compared

    result = ratios(Machine.load(first), Machine.load(second))
    emit_json(result) if json_ else out(compared(result))
    return 0


#: What is shown: plain data and text.
Shown = tuple[dict[str, Any], str]


def list_published() -> Shown:
    """Return the typical networks and file systems that p3s predict takes by name."""
    networks = [cluster.typical(name) for name in cluster.names()]
    systems = [filesystem.typical(name) for name in filesystem.names()]
    data = {
        "default": cluster.DEFAULT,
        "file_systems": [
            {"name": each.name, "kind": each.kind, "source": list(each.source)} for each in systems
        ],
        "clusters": [
            {"name": each.name, "label": each.label, "text": each.text} for each in networks
        ],
    }
    lines = [f"file system {each.name}: {each.source[0]}" for each in systems]
    return data, "\n".join([clusters(networks, cluster.DEFAULT), "", *lines])


def show_machine_file(file: str) -> Shown:
    """Return what a file of p3s machine or of an extension holds, or a published network."""
    path = Path(file)
    published = (*filesystem.names(), *cluster.names())
    named = not path.exists() and file in published
    schema = "" if named else schema_of(path)
    if schema == filesystem.SCHEMA or (named and file in filesystem.names()):
        files = filesystem.typical(file) if named else filesystem.FileSystem.load(path)
        return filesystem.FILE_SYSTEM.data(files), "\n".join(render_files(files))
    if schema == cluster.CLUSTER_SCHEMA or named:
        one = cluster.typical(file) if named else cluster.Cluster.load(path)
        return dict(one.data), render_cluster(one)
    if schema != MACHINE_SCHEMA:
        formats: Iterator[FileFormat[Any]] = load_provided("schemas")
        if show := next((each.show for each in formats if each.schema == schema), ""):
            shown: Shown = load(show)(path)
            return shown
    machine = Machine.load(path)
    return MACHINE.data(machine), render(machine)
