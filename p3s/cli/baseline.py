"""``p3s baseline``: regressions of run times, without a trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from p3s.cli.common import (
    JSON_OPTION,
    WithLauncher,
    check_template,
    emit_json,
    launcher_words,
    out,
    progress,
    quoted,
    say,
)
from p3s.cli.grid import DIMS, parse_dims
from p3s.errors import P3SError, UsageError
from p3s.text import one_line, table

if TYPE_CHECKING:
    from p3s.baseline.model import Baseline, Said
    from p3s.baseline.times import Times

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
    "forest, svm, rbf [default: best at the largest counts, fitted without them].",
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


@app.command(epilog=_FIT, short_help="Fit run times over the count.")
def fit(
    times: Path = typer.Argument(..., metavar="TIMES", help="Run times, or a study."),
    output: Path = typer.Option(
        Path("baseline.json"), "-o", "--output", metavar="FILE", help="File to write."
    ),
    family: str = _FAMILY,
    weights: str = _WEIGHTS,
    least: int = _LEAST,
    most: int = _MOST,
    reduce: str = _REDUCE,
    where: list[str] = _WHERE,
    hold: int = _HOLD,
    json_: bool = JSON_OPTION,
) -> int:
    """Fit a form to run times over the process count, and to inputs where they vary."""
    from p3s.baseline.read import read

    _check_output(output)
    made = _fitted(read(times), family, weights, least, most, reduce, where, hold)
    made.save(output)
    if json_:
        emit_json(made.to_json())
    else:
        out(_show(made))
    say(f"next: p3s baseline predict {quoted(output)} -n {8 * max(made.counts)}")
    return 0


@app.command(epilog=_PREDICT, short_help="Run times at other counts.")
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
    family: str = _FAMILY,
    weights: str = _WEIGHTS,
    least: int = _LEAST,
    most: int = _MOST,
    reduce: str = _REDUCE,
    where: list[str] = _WHERE,
    hold: int = _HOLD,
    json_: bool = JSON_OPTION,
) -> int:
    """Say what the regression gives at other counts, with 90 % intervals.

    Exit code 3 beyond eight times the largest fitted count: no such regression was tried further.
    """
    from p3s.baseline.counts import by_rule
    from p3s.baseline.model import TESTED_RATIO
    from p3s.baseline.read import read

    wanted = by_rule(counts)
    made = _saved(file)
    if made is None:
        made = _fitted(read(file), family, weights, least, most, reduce, where, hold)
    inputs = _values(given or [])
    said = made.say(wanted, inputs, method=method)
    compared = None
    if against is not None:
        runs = _pairs(where or []) | {name: f"{value:g}" for name, value in inputs.items()}
        compared = _compared(said, read(against), runs)
    if json_:
        emit_json(_as_json(made, said, compared))
    else:
        out(_predicted(made, said, compared))
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
    from p3s.baseline.collect import collect
    from p3s.baseline.counts import by_rule, cut

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
            inputs=_values(given or []),
            extents=extents,
            start=bar.start,
            done=bar.done,
        )
    failed = [each for each in times.runs if not each.valid]
    if json_:
        from p3s.baseline.read import as_json

        emit_json(as_json(times))
    else:
        out(_runs_table(times))
    say(f"next: p3s baseline fit {quoted(output)}")
    if not failed:
        return 0
    say(f"{len(failed)} of {len(times.runs)} runs set aside; np={failed[0].n}: {failed[0].why}")
    return 3


# ---- reading options -----------------------------------------------------------------------


def _check_output(output: Path) -> None:
    """Refuse a place that cannot be written, or holds something else."""
    from p3s.baseline.model import Baseline

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
    import json

    from p3s.baseline.model import BASELINE_SCHEMA, Baseline

    if file.suffix.lower() != ".json" or not file.is_file():
        return None
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
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
    from p3s.baseline.families import family_of
    from p3s.baseline.model import fit_series
    from p3s.baseline.times import series_of

    if family != "auto":
        family_of(family)
    series = series_of(
        times.runs,
        where=_pairs(where or []),
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


def _pairs(words: list[str]) -> dict[str, str]:
    found = {}
    for word in words:
        name, equal, value = word.partition("=")
        if not equal or not name:
            raise UsageError(f"{word}: write NAME=VALUE")
        found[name] = value
    return found


def _values(words: list[str]) -> dict[str, float]:
    from math import isfinite

    found = {}
    for name, text in _pairs(words).items():
        try:
            found[name] = float(text)
        except ValueError as error:
            raise UsageError(f"--input {name}={text}: is no number") from error
        if not isfinite(found[name]):
            raise UsageError(f"--input {name}={text}: is no number")
    return found


# ---- text ----------------------------------------------------------------------------------


def _show(made: Baseline) -> str:
    from p3s.baseline.bands import percent
    from p3s.baseline.families import Data, text_of
    from p3s.scores import relative_error, spread

    lines = [f"{made.fitted.family}: {text_of(made.fitted)} s ({made.choice.why})"]
    lines += _about(made)
    rows = []
    for trial in sorted(made.choice.trials, key=lambda t: t.error):
        each = ", ".join(f"{100 * error:+.1f} %" for error in trial.signed) or one_line(
            trial.why_not
        )
        error = percent(trial.error) if trial.signed else "-"
        rows.append([trial.family, error, str(trial.n_params or "-"), each])
    if rows:
        held = ", ".join(map(str, made.choice.held))
        lines += ["", table(rows, ["form", f"error at {held}", "numbers", "single errors"])]
    rows = []
    data = Data.of(made.points, made.inputs)
    told = made.fitted.predict(data.n, data.inputs)
    for point, value in zip(made.points, told.tolist(), strict=True):
        rows.append(
            [
                f"{point.n:,}",
                *(f"{x:g}" for x in point.inputs),
                f"{point.seconds:.4g}",
                str(len(point.repeats)),
                percent(spread(point.repeats)),
                f"{value:.4g}",
                f"{100 * relative_error(value, point.seconds):+.1f} %",
            ]
        )
    head = ["n", *made.inputs, f"{made.reduction}, s", "runs", "spread", "fitted, s", "error"]
    return "\n".join([*lines, "", table(rows, head, left=0)])


def _about(made: Baseline) -> list[str]:
    lines = []
    if made.fitted.family in ("three-term", "barnes-2") and not made.inputs:
        turn = made.turnover
        lines.append(
            "no turnover: the time never rises"
            if turn is None
            else f"turnover: shortest at {turn:,.4g} processes, {made.ratio(1) * turn:.3g} "
            "times the largest run"
        )
    return [*lines, *(f"note: {note}" for note in made.notes)]


def _predicted(made: Baseline, said: list[Said], compared: dict[str, Any] | None) -> str:
    from p3s.baseline.bands import join

    errors = {row["n"]: row for row in (compared or {}).get("targets", ())}
    rows = []
    for each in said:
        ends = "-" if each.low is None else f"{each.low:.4g} to {each.high:.4g}"
        row = [f"{each.n:,}", f"{each.seconds:.4g}", ends, f"{each.ratio:.3g}"]
        if compared is not None:
            target = errors[each.n]
            row += (
                ["-", target["why"]]
                if target["error"] is None
                else [f"{target['observed_s']:.4g}", f"{100 * target['error']:+.2f} %"]
            )
        rows.append(row)
    head = ["n", "seconds", "interval", "times the largest run"]
    head += ["least run, s", "error"] if compared is not None else []
    others = f"; interval: 90 %, and {', '.join(made.choice.alike)}" if made.choice.alike else ""
    lines = [
        f"{made.fitted.family}, fitted at {join(made.counts)} processes{others}",
        *_about(made),
        "",
        table(rows, head, left=0),
    ]
    if compared is not None and compared["median"] is not None:
        lines.append(
            f"median error {100 * compared['median']:.2f} %, mean "
            f"{100 * compared['mean']:.2f} %, largest {100 * compared['largest']:.2f} %"
        )
    return "\n".join(lines)


def _compared(said: list[Said], times: Times, where: dict[str, str]) -> dict[str, Any]:
    """Return the errors at all asked counts; counts without a run say why."""
    from p3s.scores import by_target, scores

    named = {name for run in times.runs for name, _ in (*run.inputs, *run.labels)}
    mine = [
        run
        for run in times.runs
        if run.component == "total"
        and all(
            _same(dict((*run.labels, *run.inputs)).get(name), value)
            for name, value in where.items()
            if name in named
        )
    ]
    if len({(run.labels, run.inputs) for run in mine}) > 1:
        raise P3SError("--against: run times of several kinds; choose one with --where NAME=VALUE")
    runs: dict[int, list[float]] = {}
    why: dict[int, str] = {}
    for run in mine:
        if run.valid and run.seconds is not None:
            runs.setdefault(run.n, []).append(run.seconds)
        else:
            why[run.n] = run.why
    errors = by_target({each.n: each.seconds for each in said}, runs)
    found = scores(errors[each.n] for each in said)
    return {
        "targets": [
            {
                "n": each.n,
                "observed_s": min(runs[each.n]) if each.n in runs else None,
                "error": errors[each.n],
                "why": "" if each.n in runs else why.get(each.n, "not run"),
            }
            for each in said
        ],
        "median": found.median if found.count else None,
        "mean": found.mean if found.count else None,
        "largest": found.largest if found.count else None,
    }


def _same(there: object, wanted: str) -> bool:
    if isinstance(there, float):
        try:
            return there == float(wanted)
        except ValueError:
            return False
    return there == wanted


def _as_json(made: Baseline, said: list[Said], compared: dict[str, Any] | None) -> dict[str, Any]:
    from p3s.baseline.model import TESTED_RATIO

    return {
        "schema": "p3s.baseline_prediction",
        "schema_version": 1,
        "family": made.fitted.family,
        "parameters": made.fitted.parameters,
        "fitted_counts": made.counts,
        "turnover": made.turnover,
        "counts": [
            {
                "n": each.n,
                "time_s": each.seconds,
                "low_s": each.low,
                "high_s": each.high,
                "ratio": each.ratio,
            }
            for each in said
        ],
        "low_confidence": max(each.ratio for each in said) > TESTED_RATIO,
        "notes": list(made.notes),
        "compared": compared,
    }


def _runs_table(times: Times) -> str:
    from p3s.baseline.bands import percent
    from p3s.scores import spread

    rows = []
    for key in sorted({(run.n, run.inputs) for run in times.runs}):
        mine = [run for run in times.runs if (run.n, run.inputs) == key]
        good = [run.seconds for run in mine if run.valid and run.seconds is not None]
        rows.append(
            [
                f"{key[0]:,}",
                *(f"{value:g}" for _, value in key[1]),
                str(len(mine)),
                str(len(mine) - len(good)),
                f"{min(good):.4g}" if good else "-",
                f"{max(good):.4g}" if good else "-",
                percent(spread(good)) if good else "-",
            ]
        )
    inputs = [name for name, _ in times.runs[0].inputs]
    return table(
        rows, ["n", *inputs, "runs", "set aside", "least, s", "largest, s", "spread"], left=0
    )
