"""``p3s replay``: measure the communication of a scaled trace on a few nodes."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import typer

from p3s.cli.common import (
    JSON_OPTION,
    emit_json,
    header,
    out,
    parse_counts,
    progress,
    quoted,
    say,
    table,
)
from p3s.errors import UsageError

EPILOG = """\b
Example:
  p3s replay study -n 256,512 --hosts n0,n1,n2,n3
Next:
  p3s predict study -n 256,512"""

HOSTS = typer.Option(
    "",
    "--hosts",
    show_default=False,
    metavar="HOSTS",
    help="Nodes: two measured, two black holes [default: this one].",
)
CORES = typer.Option(
    0,
    "--cores-per-node",
    show_default=False,
    min=0,
    metavar="K",
    help="Cores of a node [default: as found].",
)
BUDGET = typer.Option(
    30.0, "--budget", min=1.0, metavar="SECONDS", help="Time to measure in, per count."
)
LAUNCHER = typer.Option(
    "",
    "--launcher",
    show_default=False,
    metavar="COMMAND",
    help="Launcher of the replay [default: as found].",
)


def settings_of(hosts: str, cores: int, budget: float, launcher: str) -> Any:
    """Return ReplaySettings from the options of a command."""
    from p3s.cli.pipeline import ReplaySettings

    names = tuple(name.strip() for name in hosts.split(",") if name.strip())
    bad = [name for name in names if name.startswith("-") or not name.isprintable()]
    if bad:
        raise UsageError(f"--hosts {hosts}: {bad[0]!r} is not a host name")
    try:
        words = tuple(shlex.split(launcher))
    except ValueError as err:
        raise UsageError(f"--launcher {launcher}: {err}") from err
    return ReplaySettings(names or None, cores or None, budget, words or None)


def replay(
    study_dir: Path = typer.Argument(..., metavar="STUDY", help="Study directory."),
    counts: str = typer.Option(
        ..., "-n", "--counts", metavar="COUNTS", help="Process counts, for example 256,512."
    ),
    hosts: str = HOSTS,
    cores_per_node: int = CORES,
    budget: float = BUDGET,
    launcher: str = LAUNCHER,
    json_: bool = JSON_OPTION,
) -> int:
    """Measure the communication of the scaled traces with measured and black-hole processes."""
    from p3s.cli.pipeline import ensure_compute, ensure_model, ensure_scaled, run_replay
    from p3s.study import Study

    wanted = parse_counts(counts)
    settings = settings_of(hosts, cores_per_node, budget, launcher)
    study = Study.open(study_dir)
    done: list[tuple[int, dict[str, Any]]] = []
    with progress(len(wanted) * 2) as bar:
        ensure_model(study, bar)
        ensure_compute(study, bar)
        for n in wanted:
            ensure_scaled(study, n, bar)
            done.append((n, run_replay(study, n, settings, bar)))
    if json_:
        emit_json({**header("replays"), "counts": [result for _, result in done]})
    else:
        head = ["processes", "iterations", "classes", "measured", "representative"]
        out(table([_row(n, result) for n, result in done], head, left=0))
    for n, result in done:
        if not result.get("representative", False):
            say(f"n={n}: not representative: {result.get('why_not_representative') or 'unknown'}")
        missing = result.get("unmeasured") or []
        if missing:
            say(f"n={n}: {len(missing)} classes of events could not be measured")
    say(f"next: p3s predict {quoted(study.root)} -n {','.join(map(str, wanted))}")
    return 3 if any(result.get("unmeasured") for _, result in done) else 0


def _row(n: int, result: dict[str, Any]) -> list[str]:
    share = result.get("measured_share")
    return [
        str(n),
        str(result.get("iterations", "-")),
        str(len(result.get("classes", []))),
        f"{100 * share:.1f} %" if isinstance(share, (int, float)) else "-",
        "yes" if result.get("representative") else "no",
    ]
