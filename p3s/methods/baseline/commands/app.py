"""``p3s baseline``: regressions of run times, without a trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from p3s.base.artefacts import schema_of
from p3s.base.errors import UsageError
from p3s.base.text import one_line
from p3s.cli.common import check_output, emit_json, launcher_words, out, quote_word, say
from p3s.cli.declared import argument, option
from p3s.cli.helptext import Command, WithLauncher
from p3s.cli.options import DIMS, JSON_OPTION
from p3s.cli.progress import progress
from p3s.methods.baseline.commands import analytic, iterations, options, text, trees
from p3s.methods.baseline.commands.options import numbers, pairs
from p3s.pipeline.records import parse_dims

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
    help="Form: three-term, amdahl, power-law, barnes-1, barnes-2, spline, explicit, "
    "tree [default: best at the largest counts, fitted without them].",
    show_default=False,
)
_WEIGHTS = option("relative", "--weights KIND", "Make relative errors small, or absolute ones.")
_LEAST = option(1, "--from N", "Leave out counts below N.", min=1)
_MOST = option(None, "--to N", "Leave out counts above N.", min=1)
_HOLD = option(
    None, "--hold K", "Hold out the K largest counts [default: a quarter, 1 to 3].", min=1
)


@app.command(cls=Command, epilog=_FIT, short_help="Fit run times over the count.")
def fit(
    times: Path = argument("TIMES", "Run times, or a study."),
    output: Path = option(
        None, "-o --output FILE", "File to write [default: baseline.json, tree.json of a tree]."
    ),
    family: str = _FAMILY,
    weights: str = _WEIGHTS,
    least: int = _LEAST,
    most: int = _MOST,
    reduce: str = options.REDUCE,
    where: list[str] = options.WHERE,
    processes: str = options.PROCESSES,
    hold: int = _HOLD,
    expression: str = options.EXPRESSION,
    split: str = options.SPLIT,
    thesis: bool = options.THESIS,
    minsplit: float = options.MINSPLIT,
    workers: str = options.WORKERS,
    workload: str = options.WORKLOAD,
    target: str = options.TARGET,
    node: Path = options.NODE,
    per_node: int = options.PER_NODE,
    validate: int = options.VALIDATE,
    prune: bool = options.PRUNE,
    json_: bool = JSON_OPTION,
) -> int:
    """Fit a form to run times over the process count, and to inputs where they vary.

    The options from --expression on are for --family tree.
    """
    from p3s.methods.baseline.model import BASELINE
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
    check_output(output, "baseline.json", "fitted baseline", BASELINE.read)
    baseline = _fit_times(read(times, processes), family, weights, least, most, reduce, where, hold)
    baseline.save(output)
    if json_:
        emit_json(baseline.as_file())
    else:
        out(text.show(baseline))
    say(f"next: p3s baseline predict {quote_word(output)} -n {8 * max(baseline.counts)}")
    return 0


trees.add_to(app)
iterations.add_to(app)
app.command(
    cls=Command, epilog=analytic.EXAMPLE, short_help="Terms of an iteration, from counters."
)(analytic.analytic)


@app.command(cls=Command, epilog=_PREDICT, short_help="Run times at other counts.")
def predict(
    file: Path = argument("FILE", "A fitted file, run times, or a study."),
    counts: str = option(..., "-n --counts LIST", "Process counts."),
    given: list[str] = option(
        None, "--input NAME=VALUE", "Value of an input the fit depends on; may be repeated."
    ),
    against: Path = option(
        None, "--against TIMES", "Compare with these run times (least of each count)."
    ),
    affinity: str = option(
        "", "--affinity WORD", "Placement of threads, close or far, where a tree depends on it."
    ),
    family: str = _FAMILY,
    weights: str = _WEIGHTS,
    least: int = _LEAST,
    most: int = _MOST,
    reduce: str = options.REDUCE,
    where: list[str] = options.WHERE,
    processes: str = options.PROCESSES,
    hold: int = _HOLD,
    json_: bool = JSON_OPTION,
) -> int:
    """Say what the regression gives at other counts, with 90 % intervals.

    Exit code 3 beyond eight times the largest fitted count: no such regression was tried further.
    """
    from p3s.methods.baseline.commands.options import by_rule
    from p3s.methods.baseline.model import BASELINE, TESTED_RATIO
    from p3s.methods.baseline.read import read
    from p3s.methods.baseline.trees.store import TREE

    wanted_counts = by_rule(counts)
    schema = schema_of(file)
    if schema == TREE.schema:
        return trees.predict_tree(
            TREE.read(file), wanted_counts, numbers(given or []), affinity, json_
        )
    if family == "tree":
        raise UsageError(
            f"--family tree: {one_line(str(file))} holds no tree; fit one first: p3s baseline fit "
            f"{quote_word(file)} --family tree"
        )
    baseline = (
        BASELINE.read(file)
        if schema == BASELINE.schema
        else _fit_times(read(file, processes), family, weights, least, most, reduce, where, hold)
    )
    inputs = numbers(given or [])
    estimates = baseline.say(wanted_counts, inputs)
    compared = None
    if against is not None:
        runs = pairs(where or []) | {name: f"{value:g}" for name, value in inputs.items()}
        compared = text.compare_counts(estimates, read(against, processes), runs)
    if json_:
        emit_json(text.as_json(baseline, estimates, compared))
    else:
        out(text.render_baseline(baseline, estimates, compared))
    ratio = max(each.ratio for each in estimates)
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
    counts: str = option(
        ..., "-n --counts LIST", "Process counts, as 4,8,16, 4n:1-32, n^2:2-11 or 2^n:2-7."
    ),
    repeats: int = option(3, "-r --repeats R", "Runs of every count.", min=1, max=10_000),
    output: Path = option(
        Path("times.json"), "-o --output FILE", "File to write, or to add to; .csv or JSON."
    ),
    least: int = _LEAST,
    timeout: float = option(3600.0, "--timeout SECONDS", "Limit of every run.", min=1.0),
    time_from: str = option(
        "",
        "--time-from REGEX",
        "The run prints its seconds: expression with one group [default: launcher's time].",
    ),
    given: list[str] = option(
        None,
        "--input NAME=VALUE",
        "Value of an input of these runs, to write down; may be repeated.",
    ),
    dims: str = DIMS,
    json_: bool = JSON_OPTION,
) -> int:
    """Run an unmodified program at several counts, in turns, and write its run times.

    Exit code 3 when some runs failed.
    """
    from p3s.methods.baseline.collect import collect
    from p3s.methods.baseline.commands.options import by_rule
    from p3s.signature_runner.traced_run import check_template

    words = launcher_words(ctx)
    check_template(words)
    counts_asked = [n for n in by_rule(counts) if n >= least]
    extents = parse_dims(dims, words)
    if not counts_asked:
        raise UsageError(f"-n {counts}: no count of at least {least}")
    check_output(output, "times.json")
    with progress(len(counts_asked) * repeats) as bar:
        times = collect(
            words,
            counts_asked,
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
        out(text.runs_table(times))
    say(f"next: p3s baseline fit {quote_word(output)}")
    if not failed:
        return 0
    say(f"{len(failed)} of {len(times.runs)} runs set aside; np={failed[0].n}: {failed[0].why}")
    return 3


# ---- reading options -----------------------------------------------------------------------


def _fit_times(
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
