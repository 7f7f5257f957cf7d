"""``p3s machine``: measure a machine, show what was found, compare two."""

from __future__ import annotations

from pathlib import Path

import typer

from p3s.cli.common import emit, emit_json, out
from p3s.cli.helptext import Command, argument
from p3s.cli.options import JSON_OPTION

_PREDICT = "p3s predict study -n 64 --machine other.json"


def _epilog(next_command: str, *examples: str) -> str:
    """Return the end of a command's help: examples, and what comes next."""
    lines = "".join(f"\n  p3s machine {each}" for each in examples)
    return f"\b\nExample:{lines}\nNext:\n  {next_command}"


EPILOG = _epilog(_PREDICT, "measure -o study/machine.json", "show study/machine.json", "list")
_LIST = _epilog("p3s predict study -n 1024 --network slingshot", "list", "show slingshot")
_SHOW = _epilog(_PREDICT, "show study/machine.json", "show infiniband-hdr")
_COMPARE = _epilog(_PREDICT, "compare study/machine.json other.json")

app = typer.Typer(
    help="Measure what computation and messages cost here, to predict for other machines.",
    rich_markup_mode=None,
    no_args_is_help=False,
)


@app.command(cls=Command, name="list", epilog=_LIST, short_help="Typical networks to predict for.")
def list_(json_: bool = JSON_OPTION) -> int:
    """List the typical networks that p3s predict --network takes."""
    from p3s.pipeline.machines import published

    data, text = published()
    emit("clusters", **data) if json_ else out(text)
    return 0


@app.command(
    cls=Command, epilog=_SHOW, short_help="Show a machine file, a model or a typical network."
)
def show(
    file: str = argument("FILE|NAME", "File of p3s machine, or one of the list."),
    json_: bool = JSON_OPTION,
) -> int:
    """Show a machine file, a communication model, or a typical network with its sources."""
    from p3s.pipeline.machines import shown

    data, text = shown(file)
    emit_json(data) if json_ else out(text)
    return 0


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
    emit_json(result) if json_ else out(render(result))
    return 0
