"""``p3s baseline iterations``: run times from tables of iterations of a master and workers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from p3s.base.text import percent, plural, seconds, table
from p3s.cli.common import check_output, emit_json, out, quote_word, say
from p3s.cli.declared import argument, option
from p3s.cli.helptext import Command
from p3s.cli.options import JSON_OPTION

if TYPE_CHECKING:
    from p3s.methods.baseline.iterations import IterationTimes

_ITERATIONS = """TABLE: CSV or Parquet, a row per iteration (see master-worker.md).

\b
Example:
  p3s baseline iterations nbody.csv -o times.csv
Next:
  p3s baseline fit times.csv --family tree --workers n-1 --validate 3"""
#: Runs that are shown; all are counted.
_SHOWN = 10


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    short = "Run times of a master and workers."
    app.command(cls=Command, epilog=_ITERATIONS, short_help=short)(iterations)


def iterations(
    tables: list[Path] = argument("TABLE...", "Tables of iterations."),
    output: Path = option(Path("times.csv"), "-o --output FILE", "File to write; .csv or JSON."),
    statistic: str = option(
        "median", "--statistic HOW", "Of a run's iterations: median, mean or min."
    ),
    skip: int = option(1, "--skip K", "Iterations at the beginning that do not count.", min=0),
    computed: bool = option(
        False, "--computed", "The shortest run of each only, with t_c: for --target index."
    ),
    json_: bool = JSON_OPTION,
) -> int:
    """Reduce each run of a master and workers to the time of an iteration, and check it.

    Exit code 3 when workers are not balanced, or iterations or messages not stable, in some runs.
    """
    from p3s.methods.baseline.iterations import time_iterations
    from p3s.methods.baseline.read import as_json, write

    check_output(output, "times.csv")
    timed = time_iterations(tables, statistic, skip=skip, computed=computed)
    write(output, timed.times)
    if json_:
        emit_json(as_json(timed.times))
    else:
        out(_render_imbalance(timed))
    say(f"next: p3s baseline fit {quote_word(output)} --family tree --workers n-1 --validate 3")
    if not timed.doubtful:
        return 0
    counted = Counter(code for _, checked in timed.doubtful for code in checked.codes)
    codes = ", ".join(f"{code} {count}" for code, count in counted.most_common())
    say(f"p3s: {len(timed.doubtful)} of {plural(len(timed.runs), 'run')} doubtful: {codes}")
    return 3


def _render_imbalance(timed: IterationTimes) -> str:
    """Return how many runs there are, and those that are least balanced as a table."""
    even = len(timed.runs) - len(timed.doubtful)
    text = f"{plural(len(timed.runs), 'run')}, {even} balanced and stable"
    if not timed.doubtful:
        return text
    rows = [
        [
            f"{run.W:g}",
            str(run.K),
            str(run.T),
            seconds(run.seconds),
            percent(checked.imbalance),
            percent(checked.communication_variation),
            percent(checked.iteration_variation),
            ", ".join(checked.codes),
        ]
        for run, checked in timed.doubtful[:_SHOWN]
    ]
    head = ["workload", "workers", "threads", "iteration", "slowest over mean"]
    head += ["messages vary", "iterations vary", "doubts"]
    more = len(timed.doubtful) - len(rows)
    return "\n".join([text, "", table(rows, head), *([f"and {more} more"] if more else [])])
