"""Advice as a table on a terminal, and the run to make next in a line."""

from __future__ import annotations

from p3s.advise.types import Advice, Choice, NextRun, Objective
from p3s.text import figures, percent, plural, seconds, span, table

HEAD = (
    "processes",
    "threads",
    "nodes",
    "a node",
    "place",
    "time",
    "interval",
    "efficiency",
    "core-hours",
    "regret",
    "best",
)
_NAMES = {
    Objective.TIME: "time",
    Objective.INDEX: "efficiency index",
    Objective.CORE_INDEX: "efficiency index of cores",
    Objective.CORE_HOURS: "core-hours",
}


def render(advice: Advice) -> str:
    """Return advice as text: a table of the choices, then what is doubtful of the best one."""
    what = f"least {_NAMES[advice.objective]} of {plural(advice.considered, 'configuration')}"
    rows = [_row(each) for each in advice.choices]
    doubts = [f"mind: {each.sentence}" for each in advice.best.reasons if not each.untrustworthy]
    against = [
        f"not to be trusted: {each.sentence}" for each in advice.best.reasons if each.untrustworthy
    ]
    return "\n".join([f"{what}:", table(rows, HEAD, 0), *against, *doubts])


def _row(choice: Choice) -> tuple[str, ...]:
    at, time = choice.configuration, choice.seconds
    return (
        f"{at.processes}",
        f"{at.threads}",
        f"{at.nodes}",
        f"{at.per_node}",
        "far" if at.far else "close",
        seconds(time.value),
        span(time.low, time.high),
        percent(choice.efficiency),
        figures(choice.core_hours),
        percent(choice.regret),
        percent(choice.chance),
    )


def render_next(run: NextRun) -> str:
    """Return the run that narrows the decision most, and what it is expected to bring."""
    of = "" if run.workload is None else f", workload {run.workload:g}"
    return (
        f"next: {run.configuration.text}{of} ({figures(run.core_hours)} core-hours): regret "
        f"{percent(run.regret)} to {percent(run.regret_after)}, spread of the best ones "
        f"{percent(run.spread)} to {percent(run.spread_after)}"
    )
