"""What ``p3s baseline`` prints: fitted forms, predictions beside runs, runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from p3s.base.errors import P3SError
from p3s.base.text import ends, one_line, percent, table

if TYPE_CHECKING:
    from p3s.methods.baseline.model import Baseline, BaselineEstimate
    from p3s.methods.baseline.times import Times


def show(base: Baseline) -> str:
    from p3s.laws.statistics import relative_error
    from p3s.methods.baseline.families import Data, text_of
    from p3s.methods.baseline.times import spread

    lines = [f"{base.fitted.family}: {text_of(base.fitted)} s ({base.choice.why})"]
    lines += _about(base)
    rows = []
    for trial in sorted(base.trials, key=lambda t: t.missed):
        each = ", ".join(f"{100 * error:+.1f} %" for error in trial.signed) or one_line(
            trial.why_not
        )
        error = percent(trial.missed) if trial.signed else "-"
        rows.append([trial.family, error, str(trial.n_params or "-"), each])
    if rows:
        held_counts = ", ".join(map(str, base.choice.held))
        lines += ["", table(rows, ["form", f"error at {held_counts}", "numbers", "single errors"])]
    rows = []
    data = Data.of(base.points, base.inputs)
    fits = base.fitted.predict(data.n, data.inputs)
    for point, value in zip(base.points, fits.tolist(), strict=True):
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
    head = ["n", *base.inputs, f"{base.reduction}, s", "runs", "spread", "fitted, s", "error"]
    return "\n".join([*lines, "", table(rows, head, left=0)])


def _about(baseline: Baseline) -> list[str]:
    lines = []
    if baseline.fitted.family in ("three-term", "barnes-2") and not baseline.inputs:
        turn = baseline.turnover
        lines.append(
            "no turnover: the time never rises"
            if turn is None
            else f"turnover: shortest at {turn:,.4g} processes, {baseline.ratio(1) * turn:.3g} "
            "times the largest run"
        )
    return [*lines, *(f"note: {note}" for note in baseline.notes)]


def render_baseline(
    baseline: Baseline, estimates: list[BaselineEstimate], compared: dict[str, Any] | None
) -> str:
    from p3s.methods.baseline.agreement import join

    errors = {row["n"]: row for row in (compared or {}).get("targets", ())}
    rows = []
    for each in estimates:
        sure = "-" if each.low is None else ends(each.low, each.high, ".4g")
        row = [f"{each.n:,}", f"{each.seconds:.4g}", sure, f"{each.ratio:.3g}"]
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
    others = (
        f"; interval: 90 %, and {', '.join(baseline.choice.alike)}" if baseline.choice.alike else ""
    )
    lines = [
        f"{baseline.fitted.family}, fitted at {join(baseline.counts)} processes{others}",
        *_about(baseline),
        "",
        table(rows, head, left=0),
    ]
    if compared is not None and compared["median"] is not None:
        lines.append(
            f"median error {100 * compared['median']:.2f} %, mean "
            f"{100 * compared['mean']:.2f} %, largest {100 * compared['largest']:.2f} %"
        )
    return "\n".join(lines)


def compare_counts(
    estimates: list[BaselineEstimate], times: Times, where: dict[str, str]
) -> dict[str, Any]:
    """Return the errors at all asked counts; counts without a run say why."""
    from p3s.laws.statistics import scores
    from p3s.methods.baseline.times import TOTAL, by_target, select_runs

    named = {name for run in times.runs for name, _ in (*run.inputs, *run.labels)}
    filters = {name: value for name, value in where.items() if name in named}
    mine = [run for run in select_runs(times.runs, filters) if run.component == TOTAL]
    if len({(run.labels, run.inputs) for run in mine}) > 1:
        raise P3SError("--against: run times of several kinds; choose one with --where NAME=VALUE")
    runs: dict[int, list[float]] = {}
    why: dict[int, str] = {}
    for run in mine:
        if run.valid and run.seconds is not None:
            runs.setdefault(run.n, []).append(run.seconds)
        else:
            why[run.n] = run.why
    errors = by_target({each.n: each.seconds for each in estimates}, runs)
    errors_summary = scores(errors[each.n] for each in estimates)
    return {
        "targets": [
            {
                "n": each.n,
                "observed_s": min(runs[each.n]) if each.n in runs else None,
                "error": errors[each.n],
                "why": "" if each.n in runs else why.get(each.n, "not run"),
            }
            for each in estimates
        ],
        "median": errors_summary.median if errors_summary.count else None,
        "mean": errors_summary.mean if errors_summary.count else None,
        "largest": errors_summary.largest if errors_summary.count else None,
    }


def as_json(
    baseline: Baseline, estimates: list[BaselineEstimate], compared: dict[str, Any] | None
) -> dict[str, Any]:
    from p3s.methods.baseline.model import TESTED_RATIO

    return {
        "schema": "p3s.baseline_prediction",
        "schema_version": 1,
        "family": baseline.fitted.family,
        "parameters": baseline.fitted.parameters,
        "fitted_counts": baseline.counts,
        "turnover": baseline.turnover,
        "counts": [
            {
                "n": each.n,
                "time_s": each.seconds,
                "low_s": each.low,
                "high_s": each.high,
                "ratio": each.ratio,
            }
            for each in estimates
        ],
        "low_confidence": max(each.ratio for each in estimates) > TESTED_RATIO,
        "notes": list(baseline.notes),
        "compared": compared,
    }


def runs_table(times: Times) -> str:
    from p3s.methods.baseline.times import spread

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
