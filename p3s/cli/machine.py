"""``p3s machine``: measure a machine, show what was found, compare two."""

from __future__ import annotations

from pathlib import Path

import typer

from p3s.cli.common import emit, emit_json, out

app = typer.Typer(
    help="Measure what computation and messages cost here, to predict for other machines.",
    rich_markup_mode=None,
    no_args_is_help=False,
)


def list_(json_: bool) -> int:
    """List the typical networks that p3s predict --network takes."""
    from p3s.pipeline.machines import published

    data, text = published()
    emit("clusters", **data) if json_ else out(text)
    return 0


def show(file: str, json_: bool) -> int:
    """Show a machine file, a communication model, or a typical network with its sources."""
    from p3s.pipeline.machines import shown

    data, text = shown(file)
    emit_json(data) if json_ else out(text)
    return 0


def compare(first: Path, second: Path, json_: bool) -> int:
    """Show how many times as long everything takes on B as on A."""
    from p3s.machine.compare import compare as ratios
    from p3s.machine.compare import render
    from p3s.machine.machinefile import Machine

    result = ratios(Machine.load(first), Machine.load(second))
    emit_json(result) if json_ else out(render(result))
    return 0
