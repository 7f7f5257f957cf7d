"""Advice on processes and threads as text, and what its file holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from p3s.base.artefacts import write_json
from p3s.base.serialise import FileFormat
from p3s.base.text import (
    NOT_KNOWN,
    ends,
    interval,
    likely,
    paragraph,
    percent,
    plural,
    processes,
    seconds,
    table,
)
from p3s.machine.topology.inside import Node
from p3s.methods.threads.advise.types import (
    Advice,
    Cell,
    Configuration,
    Interval,
    NextRun,
    Objective,
)
from p3s.predict.gate import Answer
from p3s.predict.types import Reason, filter_untrusted, in_short
from p3s.report.counts import thin_values
from p3s.report.show import reason_lines

NAME = "advice.json"
MOST_LINES, MOST_ROWS = 12, 16
#: A run that lowers the expected regret by less does not help.
_GAIN = 1e-3
#: A smaller regret is not worth a sentence.
_SURE = 0.005
#: Columns that tell nothing of configurations without threads.
_OF_THREADS = ("threads", "where", "index", "trusted")
#: What is answered of process counts.
_ANSWERED = ("largest efficient count", "turnover")
#: How objectives are called.
NAMES = {
    Objective.TIME: "run time",
    Objective.INDEX: "efficiency index",
    Objective.CORE_INDEX: "efficiency index over cores",
    Objective.CORE_HOURS: "core hours",
}


@dataclass(frozen=True)
class AdviceFile:
    """What advice.json holds.

    setting: values of the input; nodes, cores: the limits (0: none of cores); cells: the best
    configuration for each number of processes and threads; next: the run that would narrow the
    decision most, next_setting: values of its input; reasons: what speaks against the prediction
    of the advised one, others: against those of others alone. answers: of process counts without
    threads, which is efficient and where the time turns; empty with threads.
    """

    setting: str
    node: Node
    nodes: int
    cores: int
    advice: Advice
    cells: tuple[Cell, ...]
    next: NextRun | None
    next_setting: str
    reasons: tuple[Reason, ...]
    answers: tuple[Answer, ...] = ()
    others: tuple[Reason, ...] = ()


#: The format of advice.json.
ADVICE = FileFormat("p3s.advice", 1, AdviceFile, again="run p3s advise again")


def reasons_of(file: AdviceFile) -> list[Reason]:
    """Return everything that speaks against the best choice, each code once."""
    reasons_by_code = {reason.code: reason for reason in file.reasons}
    return list({**reasons_by_code, **{r.code: r for r in file.advice.best.reasons}}.values())


def render(file: AdviceFile, command: str) -> str:
    """Return advice as text; command: that makes the run which would narrow the decision most."""
    against = filter_untrusted(reasons_of(file))
    parts = []
    if against:
        parts += [f"Do not rely on this advice: {in_short(against)}.", ""]
        parts += [*reason_lines(against[:MOST_LINES]), ""]
    parts += [sentence(file), *_answers(file.answers), "", choices(file), "", grid(file)]
    parts += reason_lines([r for r in reasons_of(file) if not r.untrustworthy][:MOST_LINES])
    if file.others:
        parts += paragraph(f"Other predictions are not to be relied on: {in_short(file.others)}.")
    if file.next is not None and file.next.gain > _GAIN:
        parts.append(next_run(file, command))
    return "\n".join(parts)


def sentence(file: AdviceFile) -> str:
    """Return what is advised, in two or three sentences."""
    best, objective = file.advice.best, file.advice.objective
    if file.answers:
        return (
            f"Take {processes(best.configuration.processes)}: {NAMES[objective]} "
            f"{_objective(objective, best.objective)}, the least of "
            f"{plural(file.advice.considered, 'process count')} ({likely(best.chance)} likely)."
        )
    limit = f" and {plural(file.cores, 'core')}" if file.cores else ""
    text = (
        f"Take {describe_config(best.configuration)}: {NAMES[objective]} "
        f"{_objective(objective, best.objective)}, the least of the "
        f"{plural(file.advice.considered, 'configuration')} that {plural(file.nodes, 'node')} "
        f"({file.node.text}){limit} admit."
    )
    if best.regret > _SURE:
        text += (
            f" It is expected to miss the best one by {percent(best.regret)}, whichever that is."
        )
    return text


def _answers(answers: Sequence[Answer]) -> list[str]:
    """Return a line for each answer on process counts: the largest efficient one, the turn."""
    return [f"{name}: {each.text}" for name, each in zip(_ANSWERED, answers, strict=False)]


def describe_config(at: Configuration) -> str:
    """Return a configuration in words."""
    far = ", far from each other" if at.far else ""
    return (
        f"{plural(at.processes, 'process', 'processes')} with {plural(at.threads, 'thread')} each"
        f"{far} on {plural(at.nodes, 'node')}"
    )


def _objective(objective: Objective, value: Interval) -> str:
    if objective == Objective.CORE_HOURS:
        return f"{value.value:.3g} ({ends(value.low, value.high, '.3g')})"
    return f"{seconds(value.value)} ({interval(value.low, value.high)})"


def choices(file: AdviceFile) -> str:
    """Return the best configurations as a table."""
    head, cells = table_of(file.advice)
    places = [k for k, name in enumerate(head) if not (file.answers and name in _OF_THREADS)]
    return table([[row[k] for k in places] for row in cells], [head[k] for k in places], left=0)


def table_of(advice: Advice) -> tuple[list[str], list[list[str]]]:
    """Return a head and a row for each of the best configurations."""
    cells = [
        [
            str(choice.configuration.processes),
            str(choice.configuration.threads),
            str(choice.configuration.per_node),
            str(choice.configuration.nodes),
            "far" if choice.configuration.far else "close",
            seconds(choice.seconds.value),
            interval(choice.seconds.low, choice.seconds.high),
            percent(choice.regret),
            likely(choice.chance),
            percent(choice.efficiency),
            seconds(choice.index),
            f"{choice.core_hours:.3g}",
            "yes" if choice.trusted else "no",
        ]
        for choice in advice.choices
    ]
    head = ["processes", "threads", "per node", "nodes", "where", "time", "90 % interval"]
    head += ["regret", "chance", "efficiency", "index", "core hours", "trusted"]
    return head, cells


def shown_cells(file: AdviceFile) -> list[Cell]:
    """Return the fields of a picture: those of some process counts, the advised ones among them."""
    counts = sorted({cell.processes for cell in file.cells})
    chosen = {choice.configuration.processes for choice in file.advice.choices}
    rows_shown = {*thin_values(counts, MOST_ROWS), *chosen}
    return [cell for cell in file.cells if cell.processes in rows_shown]


def load(root: Path) -> AdviceFile | None:
    """Return a study's advice, None where there is none; P3SError where it is damaged."""
    path = root / NAME
    return ADVICE.read(path) if path.exists() else None


def write(root: Path, file: AdviceFile) -> Path:
    """Write advice.json; return its path."""
    path = root / NAME
    write_json(path, ADVICE.data(file))
    return path


def grid(file: AdviceFile) -> str:
    """Return the objective as a table of processes by threads."""
    threads = sorted({cell.threads for cell in file.cells})
    at = {(cell.processes, cell.threads): cell for cell in file.cells}
    rows = [
        [str(n), *(value_text(file.advice.objective, at.get((n, t))) for t in threads)]
        for n in sorted({cell.processes for cell in file.cells})
    ]
    rows_shown = thin_values(rows, MOST_ROWS)
    less = f"\n{len(rows_shown)} of {len(rows)} counts; the others are in advice.json"
    name = (
        [NAMES[file.advice.objective]] if file.answers else [plural(t, "thread") for t in threads]
    )
    text = table(rows_shown, ["processes", *name], left=0)
    return text + (less if len(rows_shown) < len(rows) else "")


def value_text(objective: Objective, cell: Cell | None) -> str:
    """Return what is to be least, of one field."""
    if cell is None:
        return NOT_KNOWN
    return f"{cell.value:.3g}" if objective == Objective.CORE_HOURS else seconds(cell.value)


def next_run(file: AdviceFile, command: str) -> str:
    """Return which run would narrow the decision most, and the command that makes it."""
    run = file.next
    if run is None or run.gain <= _GAIN:
        return "No run on one node would narrow the decision."
    at = run.configuration
    value = f" at {file.next_setting}" if file.next_setting else ""
    return (
        f"A run of {plural(at.processes, 'process', 'processes')} with "
        f"{plural(at.threads, 'thread')}{value} on one node would narrow the decision most: "
        f"expected regret {percent(run.regret)} now, {percent(run.regret_after)} after it\n"
        f"  {command}"
    )
