"""``p3s baseline``: regressions of run times, without a trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from p3s.base.artefacts import file_bytes, parse_json
from p3s.base.errors import P3SError, UsageError
from p3s.base.text import one_line
from p3s.cli import baseline_text, iterations, tree_options, trees
from p3s.cli.common import (
    JSON_OPTION,
    WithLauncher,
    emit_json,
    launcher_words,
    out,
    progress,
    quoted,
    say,
)
from p3s.cli.grid import DIMS, parse_dims
from p3s.cli.helptext import Command
from p3s.cli.values import numbers, pairs

if TYPE_CHECKING:
    from p3s.methods.baseline.model import Baseline
    from p3s.methods.baseline.times import Times

EPILOG = """\b
Example:
  p3s baseline fit times.csv -o baseline.json
  p3s baseline predict baseline.json -n 256,1024
Next:
  p3s predict study -n 256,1024"""
_FIT = """TIMES: CSV (columns n, seconds; repeat, inputs), JSON, Parquet, or a study.

\b
Example:
  p3s baseline fit times.csv --from 16 -o baseline.json
  p3s baseline fit times.csv --where machine=old --family three-term
  p3s baseline fit times.csv --family tree --workers n-1 --validate 4
Next:
  p3s baseline predict baseline.json -n 256,1024"""
_PREDICT = """\b
Example:
  p3s baseline predict baseline.json -n 256,1024
  p3s baseline predict study -n 256 --against large.csv
Next:
  p3s predict study -n 256,1024"""
_RUN = """Words after -- are the launcher command; runs that fail are set aside.

\b
Example:
  p3s baseline run -n 4,8,16 -r 4 -o times.json -- mpiexec -n {np} ./program input
Next:
  p3s baseline fit times.json"""

app = typer.Typer(
    help="Regressions of run times, without a trace: what a prediction must do better than.",
    rich_markup_mode=None,
    no_args_is_help=False,
)

_FAMILY = typer.Option(
    "auto",
    "--family",
    metavar="NAME",
    help="Form: three-term, amdahl, power-law, barnes-1, barnes-2, spline, explicit, mlp, "
    "forest, svm, rbf, tree [default: best at the largest counts, fitted without them].",
    show_default=False,
)
_WEIGHTS = typer.Option(
    "relative", "--weights", metavar="KIND", help="Make relative errors small, or absolute ones."
)
_LEAST = typer.Option(1, "--from", min=1, metavar="N", help="Leave out counts below N.")
_MOST = typer.Option(
    None, "--to", min=1, metavar="N", show_default=False, help="Leave out counts above N."
)
_REDUCE = typer.Option(
    "min", "--reduce", metavar="HOW", help="What counts of repeats: min, median or mean."
)
_WHERE = typer.Option(
    None,
    "--where",
    metavar="NAME=VALUE",
    show_default=False,
    help="Only runs with this input or label; may be repeated.",
)
_HOLD = typer.Option(
    None,
    "--hold",
    min=1,
    metavar="K",
    show_default=False,
    help="Hold out the K largest counts [default: a quarter, 1 to 3].",
)


@app.command(cls=Command, epilog=_FIT, short_help="Fit run times over the count.")
def fit(
    times: Path = typer.Argument(..., metavar="TIMES", help="Run times, or a study."),
    output: Path = typer.Option(
        None,
        "-o",
        "--output",
        metavar="FILE",
        help="File to write [default: baseline.json, tree.json of a tree].",
        show_default=False,
    ),
    family: str = _FAMILY,
    weights: str = _WEIGHTS,
    least: int = _LEAST,
    most: int = _MOST,
    reduce: str = _REDUCE,
    where: list[str] = _WHERE,
    processes: str = tree_options.PROCESSES,
    hold: int = _HOLD,
    expression: str = tree_options.EXPRESSION,
    split: str = tree_options.SPLIT,
    thesis: bool = tree_options.THESIS,
    minsplit: float = tree_options.MINSPLIT,
    workers: str = tree_options.WORKERS,
    workload: str = tree_options.WORKLOAD,
    target: str = tree_options.TARGET,
    node: Path = tree_options.NODE,
    per_node: int = tree_options.PER_NODE,
    validate: int = tree_options.VALIDATE,
    prune: bool = tree_options.PRUNE,
    json_: bool = JSON_OPTION,
) -> int:
    """Fit a form to run times over the process count, and to inputs where they vary.

    The options from --expression on are for --family tree.
    """
    from p3s.methods.baseline.read import read

    if family == "tree":
        from p3s.methods.baseline.treeruns import Reading

        chosen = Reading(
            workers, workload, pairs(where or []), reduce, target, (), per_node, least, most
        )
        plan = trees.plan_of(
            expression=expression,
            split=split,
            thesis=thesis,
            minsplit=minsplit,
            validate=validate,
            prune=prune,
            node=node,
            reading=chosen,
        )
        return trees.fit_tree(times, processes, output or Path("tree.json"), plan, json_)
    if expression or split or thesis or minsplit or workload or node or validate or prune:
        raise UsageError("--expression and the options after it are for --family tree")
    output = output or Path("baseline.json")
    _check_output(output)
    made = _fitted(read(times, processes), family, weights, least, most, reduce, where, hold)
    made.save(output)
    if json_:
        emit_json(made.to_json())
    else:
        out(baseline_text.show(made))
    say(f"next: p3s baseline predict {quoted(output)} -n {8 * max(made.counts)}")
    return 0


trees.add_to(app)
iterations.add_to(app)


@app.command(cls=Command, epilog=_PREDICT, short_help="Run times at other counts.")
def predict(
    file: Path = typer.Argument(..., metavar="FILE", help="A fitted file, run times, or a study."),
    counts: str = typer.Option(..., "-n", "--counts", metavar="LIST", help="Process counts."),
    given: list[str] = typer.Option(
        None,
        "--input",
        metavar="NAME=VALUE",
        show_default=False,
        help="Value of an input the fit depends on; may be repeated.",
    ),
    against: Path = typer.Option(
        None,
        "--against",
        metavar="TIMES",
        show_default=False,
        help="Compare with these run times (least of each count).",
    ),
    method: str = typer.Option(
        "auto",
        "--interval",
        metavar="HOW",
        help="How: auto, configurations, residuals or jackknife.",
    ),
    affinity: str = typer.Option(
        "",
        "--affinity",
        metavar="WORD",
        show_default=False,
        help="Placement of threads, close or far, where a tree depends on it.",
    ),
    family: str = _FAMILY,
    weights: str = _WEIGHTS,
    least: int = _LEAST,
    most: int = _MOST,
    reduce: str = _REDUCE,
    where: list[str] = _WHERE,
    processes: str = tree_options.PROCESSES,
    hold: int = _HOLD,
    json_: bool = JSON_OPTION,
) -> int:
    """Say what the regression gives at other counts, with 90 % intervals.

    Exit code 3 beyond eight times the largest fitted count: no such regression was tried further.
    """
    from p3s.methods.baseline.counts import by_rule
    from p3s.methods.baseline.model import TESTED_RATIO
    from p3s.methods.baseline.read import read

    wanted = by_rule(counts)
    tree = trees.saved_tree(file)
    if tree is not None:
        return trees.predict_tree(tree, wanted, numbers(given or []), affinity, json_)
    if family == "tree":
        raise UsageError(
            f"--family tree: {one_line(str(file))} holds no tree; fit one first: p3s baseline fit "
            f"{quoted(file)} --family tree"
        )
    made = _saved(file)
    if made is None:
        made = _fitted(read(file, processes), family, weights, least, most, reduce, where, hold)
    inputs = numbers(given or [])
    said = made.say(wanted, inputs, method=method)
    compared = None
    if against is not None:
        runs = pairs(where or []) | {name: f"{value:g}" for name, value in inputs.items()}
        compared = baseline_text.compared(said, read(against, processes), runs)
    if json_:
        emit_json(baseline_text.as_json(made, said, compared))
    else:
        out(baseline_text.predicted(made, said, compared))
    ratio = max(each.ratio for each in said)
    if ratio <= TESTED_RATIO:
        return 0
    say(
        f"low confidence: {ratio:.3g} times the largest run; such regressions were tried up to "
        f"{TESTED_RATIO:g}"
    )
    return 3


@app.command(epilog=_RUN, short_help="Run a program for its times.", cls=WithLauncher)
def run(
    ctx: typer.Context,
    counts: str = typer.Option(
        ...,
        "-n",
        "--counts",
        metavar="LIST",
        help="Process counts, as 4,8,16, 4n:1-32, n^2:2-11 or 2^n:2-7.",
    ),
    repeats: int = typer.Option(
        3, "-r", "--repeats", min=1, max=10_000, metavar="R", help="Runs of every count."
    ),
    output: Path = typer.Option(
        Path("times.json"),
        "-o",
        "--output",
        metavar="FILE",
        help="File to write, or to add to; .csv or JSON.",
    ),
    least: int = _LEAST,
    timeout: float = typer.Option(
        3600.0, "--timeout", min=1.0, metavar="SECONDS", help="Limit of every run."
    ),
    time_from: str = typer.Option(
        "",
        "--time-from",
        metavar="REGEX",
        show_default=False,
        help="The run prints its seconds: expression with one group [default: launcher's time].",
    ),
    given: list[str] = typer.Option(
        None,
        "--input",
        metavar="NAME=VALUE",
        show_default=False,
        help="Value of an input of these runs, to write down; may be repeated.",
    ),
    dims: str = DIMS,
    json_: bool = JSON_OPTION,
) -> int:
    """Run an unmodified program at several counts, in turns, and write its run times.

    Exit code 3 when some runs failed.
    """
    from p3s.methods.baseline.collect import collect
    from p3s.methods.baseline.counts import by_rule, cut
    from p3s.signature_runner.traced_run import check_template

    words = launcher_words(ctx)
    check_template(words)
    wanted = cut(by_rule(counts), least)
    extents = parse_dims(dims, words)
    if not wanted:
        raise UsageError(f"-n {counts}: no count of at least {least}")
    if output.is_dir():
        raise UsageError(f"-o {output}: is a directory; name a file in it, as times.json")
    with progress(len(wanted) * repeats) as bar:
        times = collect(
            words,
            wanted,
            repeats,
            output,
            timeout_s=timeout,
            time_from=time_from,
            inputs=numbers(given or []),
            extents=extents,
            start=bar.start,
            done=bar.done,
        )
    failed = [each for each in times.runs if not each.valid]
    if json_:
        from p3s.methods.baseline.read import as_json

        emit_json(as_json(times))
    else:
        out(baseline_text.runs_table(times))
    say(f"next: p3s baseline fit {quoted(output)}")
    if not failed:
        return 0
    say(f"{len(failed)} of {len(times.runs)} runs set aside; np={failed[0].n}: {failed[0].why}")
    return 3


# ---- reading options -----------------------------------------------------------------------


def _check_output(output: Path) -> None:
    """Refuse a place that cannot be written, or holds something else."""
    from p3s.methods.baseline.model import Baseline

    if output.is_dir():
        raise UsageError(f"-o {output}: is a directory; name a file in it, as baseline.json")
    if output.exists():
        try:
            Baseline.load(output)
        except P3SError as error:
            raise UsageError(
                f"-o {output}: is there and is no fitted baseline; name another file"
            ) from error


def _saved(file: Path) -> Baseline | None:
    """Return the baseline in a file, None for run times and studies."""
    from p3s.methods.baseline.model import BASELINE_SCHEMA, Baseline

    if file.suffix.lower() != ".json" or not file.is_file():
        return None
    try:
        found = parse_json(file_bytes(file))
    except (OSError, ValueError):
        return None  # reading it as run times says what is wrong
    schema = found.get("schema") if isinstance(found, dict) else None
    return Baseline.load(file) if schema == BASELINE_SCHEMA else None


def _fitted(
    times: Times,
    family: str,
    weights: str,
    least: int,
    most: int | None,
    reduce: str,
    where: list[str] | None,
    hold: int | None,
) -> Baseline:
    from p3s.methods.baseline.families import family_of
    from p3s.methods.baseline.model import fit_series
    from p3s.methods.baseline.times import series_of

    if family != "auto":
        family_of(family)
    series = series_of(
        times.runs,
        where=pairs(where or []),
        reduction=reduce,
        least=least,
        most=most,
        notes=times.notes,
    )
    if len(series.counts) > 1 and hold is not None and hold > len(series.counts) - 2:
        raise UsageError(f"--hold {hold}: {len(series.counts)} counts, two must be left to fit")
    return fit_series(
        series,
        [] if family == "auto" else [family],
        weights=weights,
        hold=hold,
        command=times.facts.get("command", ()),
    )
