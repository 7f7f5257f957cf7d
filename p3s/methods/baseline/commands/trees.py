"""``p3s baseline`` with ``--family tree``: trees of regressions, their checks, their advice."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from p3s.base.errors import UsageError
from p3s.base.text import ends, figures, join_words, percent, plural, seconds, table
from p3s.cli.common import check_output, emit_json, header, out, quote_word, say
from p3s.cli.declared import argument, option
from p3s.cli.helptext import Command
from p3s.cli.options import JSON_OPTION
from p3s.methods.baseline.commands import options
from p3s.methods.baseline.commands.options import by_rule, numbers, pairs

if TYPE_CHECKING:
    from p3s.methods.baseline.treeruns import Plan, Reading
    from p3s.methods.baseline.trees.choose import Choice, Limits
    from p3s.methods.baseline.trees.diagnostics import Best, Group, Region, Report, Verdict
    from p3s.methods.baseline.trees.store import StoredTree
    from p3s.methods.baseline.trees.types import Tree

_CHECK = """\b
Example:
  p3s baseline check tree.json times.csv
Next:
  p3s baseline advise tree.json --input workload=2000 --max-cores 128"""
_ADVISE = """\b
Example:
  p3s baseline advise tree.json --input workload=2000 --max-cores 128
  p3s baseline advise tree.json --input workload=2000 -n 3-29 --threads 1,2,4 --top 5
Next:
  p3s baseline check tree.json times.csv"""


def add_to(app: typer.Typer) -> None:
    """Add the commands that only trees have."""
    app.command("check", cls=Command, epilog=_CHECK, short_help="Is a tree good enough.")(check)
    app.command(
        "advise", cls=Command, epilog=_ADVISE, short_help="Configurations that a tree advises."
    )(advise)


# ---- fit -------------------------------------------------------------------------------------


def fit_tree(times: Path, processes: str, output: Path, plan: Plan, json_: bool) -> int:
    """Grow a tree from run times, write and show it; ``processes``: their column of counts."""
    from p3s.methods.baseline.read import read
    from p3s.methods.baseline.treeruns import grown
    from p3s.methods.baseline.trees.store import TREE, save

    check_output(output, "tree.json", "tree", TREE.read)
    stored = grown(read(times, processes), plan)
    save(output, stored)
    if json_:
        emit_json(TREE.data(stored))
    else:
        out(_render_tree(stored))
    say(f"next: p3s baseline check {quote_word(output)} {quote_word(times)}")
    return 0


def plan_of(
    *,
    expression: str,
    split: str,
    thesis: bool,
    minsplit: float | None,
    validate: int,
    prune: bool,
    node: Path | None,
    reading: Reading,
) -> Plan:
    """Return what options say of a tree."""
    from dataclasses import replace

    from p3s.methods.baseline.treeruns import EXPRESSION, Plan
    from p3s.methods.baseline.trees.features import read_caches
    from p3s.methods.baseline.trees.store import rows_of_cores
    from p3s.methods.baseline.trees.types import Growing

    growing = Growing.thesis() if thesis else Growing()
    if minsplit is not None:
        growing = replace(growing, minsplit=minsplit)
    if node is not None:
        reading = replace(reading, cores=rows_of_cores(read_caches(node)))
    words = tuple(word.strip() for word in split.split(",") if word.strip())
    return Plan(expression or EXPRESSION, words, growing, reading, validate, prune)


def _render_tree(stored: StoredTree) -> str:
    from p3s.methods.baseline.trees.diagnostics import shares

    tree = stored.tree
    root = tree.nodes[0]
    dropped = sorted({name for i in tree.leaves for name in tree.nodes[i].dropped})
    leaves = plural(len(tree.leaves), "leaf", "leaves")
    lines = [
        f"tree of {tree.expression} for the {tree.target}: {leaves} from "
        f"{plural(stored.runs, 'run')} at {plural(len(tree.workloads), 'workload')}",
        f"{tree.growing.regression} regressions miss their runs by {percent(_own_error(tree))}, "
        f"one of all runs by {percent(root.error)} (root mean square)",
    ]
    if dropped:
        lines.append(f"note: not told apart in some leaves, so 0 there: {', '.join(dropped)}")
    lines += [f"note: {note}" for note in stored.notes]
    split_shares = sorted(shares(tree).items(), key=lambda each: -each[1])
    rows = [[name, percent(share)] for name, share in split_shares if share]
    return "\n".join([*lines, *(["", table(rows, ["splits on", "of splits"])] if rows else [])])


def _own_error(tree: Tree) -> float:
    """Return the root mean square of the relative errors of all leaves' own runs."""
    leaves = [tree.nodes[i] for i in tree.leaves]
    return float((sum(n.rows * n.error**2 for n in leaves) / sum(n.rows for n in leaves)) ** 0.5)


# ---- predict ---------------------------------------------------------------------------------


def predict_tree(
    stored: StoredTree, counts: list[int], inputs: dict[str, float], affinity: str, json_: bool
) -> int:
    """Say what a tree tells of process counts; exit code 3 outside the runs it was grown from."""
    import numpy as np

    from p3s.methods.baseline.trees.choose import choose
    from p3s.methods.baseline.trees.evaluate import Evaluator

    threads = inputs.pop("threads", 1.0 if stored.threads == (1.0,) else None)
    if threads is None:
        raise UsageError("the tree depends on threads; give their number: --input threads=4")
    workload = _workload(inputs, stored)
    pairs_ = np.array([(float(_workers(stored, n)), threads) for n in counts])
    columns = stored.columns(workload, pairs_, inputs, affinity)
    estimates = choose(Evaluator.of(stored.tree), columns, top=None)
    if json_:
        rows = [
            {
                "n": n,
                "threads": each.threads,
                "workload": workload,
                "value": each.value,
                "leaf": each.leaf,
                **each.doubts,
            }
            for n, each in zip(counts, estimates, strict=True)
        ]
        emit_json(
            {**header("tree_prediction"), "target": stored.tree.target, "configurations": rows}
        )
    else:
        cells = [
            [str(n), str(each.threads), seconds(each.value), _flags(each)]
            for n, each in zip(counts, estimates, strict=True)
        ]
        out(table(cells, ["n", "threads", stored.tree.target, "note"], words_last=True))
    return _outside(any(each.extrapolated for each in estimates))


def _outside(extrapolated: bool) -> int:
    if not extrapolated:
        return 0
    say("low confidence: outside the runs of the tree, which only tells what lies between them")
    return 3


def _workers(stored: StoredTree, n: int) -> int:
    if n <= stored.others:
        raise UsageError(f"-n {n}: {plural(stored.others, 'process', 'processes')} of it works not")
    return n - stored.others


def _workload(inputs: dict[str, float], stored: StoredTree) -> float:
    for name in ("workload", "W"):
        if name in inputs:
            return inputs.pop(name)
    if len(stored.tree.workloads) == 1:
        return float(stored.tree.workloads[0])
    raise UsageError("the tree depends on the workload; give it: --input workload=2000")


_FLAGS = {
    "extrapolated": "outside the runs",
    "outside_leaf": "outside its leaf's runs",
    "clipped": "held to its leaf's range",
}


def _flags(choice: Choice) -> str:
    return ", ".join(_FLAGS[name] for name, is_so in choice.doubts.items() if is_so)


# ---- check -----------------------------------------------------------------------------------


def check(
    file: Path = argument("TREE", "A tree that fit has written."),
    times: Path = argument("TIMES", "Run times; workloads that the tree has not seen validate it."),
    reduce: str = options.REDUCE,
    where: list[str] = options.WHERE,
    workload: str = option("", "--workload NAME", "Column of the workload."),
    processes: str = options.PROCESSES,
    json_: bool = JSON_OPTION,
) -> int:
    """Show the errors of a tree by variable, whether it passes, and how good its advice is.

    Exit code 3 unless the median error is at most 5 %, the dispersion at most 20 % and fewer than
    5 % are outliers, at workloads that the tree was not grown from.
    """
    from p3s.methods.baseline.read import read
    from p3s.methods.baseline.treeruns import Reading, check_tree
    from p3s.methods.baseline.trees.store import TREE

    reading = Reading(workload=workload, where=pairs(where or []), reduction=reduce)
    result = check_tree(TREE.read(file), read(times, processes), reading)
    if json_:
        emit_json(_report_json(result))
    else:
        parts = [_groups(result.groups), _verdict(result.verdict), _best(result.best)]
        out("\n\n".join(part for part in [*parts, *map(_region, result.regions)] if part))
    if result.verdict is None:
        say("nothing validates the tree: all workloads are those it was grown from")
        return 3
    return 0 if result.verdict.passed else 3


def _report_json(tree_report: Report) -> dict[str, Any]:
    from p3s.base.serialise import to_data
    from p3s.methods.baseline.trees.diagnostics import kinds

    verdict = tree_report.verdict
    return {
        **header("tree_check"),
        "groups": to_data(tree_report.groups),
        "verdict": None if verdict is None else to_data(verdict) | {"passed": verdict.passed},
        "best": [to_data(b) | {"regret": b.regret, "kind": b.kind} for b in tree_report.best],
        "kinds": kinds(tree_report.best),
        "shares": to_data(tree_report.shares),
        "regions": to_data(tree_report.regions),
    }


def _region(region: Region) -> str:
    if not region.workloads:
        return ""
    return (
        f"measure next: workload {join_words([f'{w:g}' for w in region.workloads])} in all "
        f"configurations; at {ends(region.low, region.high, 'g')} a quarter of the errors is above "
        f"{percent(region.box.third)}"
    )


def _groups(group_list: Sequence[Group]) -> str:
    rows = [
        [
            g.variable,
            g.level or ends(g.low, g.high, "g"),
            str(g.box.count),
            *(percent(v) for v in (g.box.first, g.box.median, g.box.third, g.box.high)),
            str(g.box.outliers),
            "" if g.alike else f"{figures(g.times)} times the others: more runs here",
        ]
        for g in group_list
    ]
    head = ["variable", "values", "runs", "quarter", "median", "three quarters", "whisker"]
    return (
        "errors of the tree's own runs\n"
        + table(rows, [*head, "outliers", "stands out"], left=2, words_last=True)
        if rows
        else ""
    )


def _verdict(gate: Verdict | None) -> str:
    if gate is None:
        return ""
    words = "passes" if gate.passed else f"does not pass ({join_words(gate.broken)})"
    wide = (
        f"; beyond that at workload {', '.join(f'{w:g}' for w in gate.wide)}" if gate.wide else ""
    )
    return (
        f"at other workloads the tree {words}: median error {percent(gate.median)} (at most"
        f" 5 %), dispersion {percent(gate.dispersion)} (at most 20 %{wide}), outliers "
        f"{percent(gate.outliers)} (below 5 %)"
    )


def _best(advices: Sequence[Best]) -> str:
    from p3s.methods.baseline.trees.diagnostics import kinds

    if not advices:
        return ""
    rows = [
        [
            f"{b.workload:g}",
            " x ".join(f"{v:g}" for v in b.best[:2]),
            seconds(b.value),
            " x ".join(f"{v:g}" for v in b.advised[:2]),
            seconds(b.real),
            percent(b.regret) if b.regret >= 0 else f"{100 * b.regret:.1f} %",
            b.kind,
        ]
        for b in advices
    ]
    head = ["workload", "best", "real", "advised", "real", "regret", ""]
    share = ", ".join(f"{kind} {percent(part)}" for kind, part in kinds(advices).items())
    return f"advice, as workers x threads: {share}\n" + table(rows, head, words_last=True)


# ---- advise ----------------------------------------------------------------------------------


def advise(
    file: Path = argument("TREE", "A tree that fit has written."),
    given: list[str] = option(
        None, "--input NAME=VALUE", "Value of an input, the workload among them; may be repeated."
    ),
    objective: str = option("time", "--objective WHAT", "Least of: time, index or core-hours."),
    top: int = option(3, "--top N", "How many to show.", min=1, max=1000),
    counts: str = option(
        "", "-n --counts LIST", "Process counts, as 3,5,9-29 [default: those of the runs]."
    ),
    threads: str = option(
        "", "--threads LIST", "Threads of a process, as 1,2,4-8 [default: those of the runs]."
    ),
    max_cores: int = option(None, "--max-cores N", "Cores of all workers.", min=1),
    max_processes: int = option(None, "--max-processes N", "Processes.", min=1),
    node_cores: int = option(
        None, "--node-cores N", "Cores of a node, which its processes' threads must find.", min=1
    ),
    per_node: int = option(1, "--per-node N", "Processes of a node, for --node-cores.", min=1),
    json_: bool = JSON_OPTION,
) -> int:
    """Say which processes and threads are best for a workload.

    Exit code 3 when the best is outside the runs that the tree was grown from.
    """
    from p3s.methods.baseline.trees.choose import Limits
    from p3s.methods.baseline.trees.store import TREE

    stored = TREE.read(file)
    values = numbers(given or [])
    workload = _workload(values, stored)
    k = [float(_workers(stored, n)) for n in by_rule(counts, "-n")] if counts else []
    t = [float(n) for n in by_rule(threads, "--threads")] if threads else []
    limits = Limits(max_cores, max_processes, None, stored.others, per_node, node_cores)
    choices = _choose_best(
        stored,
        workload,
        values,
        (k or [*stored.workers], t or [*stored.threads]),
        limits,
        objective,
        top,
    )
    rows = [
        {
            "n": choice.workers + stored.others,
            "workers": choice.workers,
            "threads": choice.threads,
            **({"affinity": affinity} if affinity else {}),
            stored.tree.target.replace("-", "_"): choice.value,
            "objective": choice.objective,
            "leaf_error": choice.error,
            **choice.doubts,
        }
        for choice, affinity in choices
    ]
    if json_:
        emit_json(
            {**header("tree_advice"), "workload": workload, "objective": objective, "best": rows}
        )
    else:
        out(_advice(choices, stored, objective))
    return _outside(choices[0][0].extrapolated)


def _choose_best(
    stored: StoredTree,
    workload: float,
    inputs: dict[str, float],
    grid: tuple[list[float], list[float]],
    limits: Limits,
    objective: str,
    top: int,
) -> list[tuple[Choice, str]]:
    """Return the best configurations with their placements."""
    from p3s.methods.baseline.trees.choose import admissible, choose
    from p3s.methods.baseline.trees.evaluate import Evaluator

    pairs_ = stored.fitting(admissible(*grid, limits))
    evaluator = Evaluator.of(stored.tree)
    choices = []
    for affinity in stored.affinities or ("",):
        columns = stored.columns(workload, pairs_, inputs, affinity)
        choices += [(c, affinity) for c in choose(evaluator, columns, objective, top)]
    return sorted(choices, key=lambda each: each[0].objective)[:top]


def _advice(choices: list[tuple[Choice, str]], stored: StoredTree, objective: str) -> str:
    rows = []
    for choice, affinity in choices:
        value = seconds(choice.value)
        hours = [f"{choice.objective:.3g}"] if objective == "core-hours" else []
        row = [str(choice.workers + stored.others), str(choice.workers), str(choice.threads)]
        rows.append([*row, value, *hours, percent(choice.error), affinity, _flags(choice)])
    hours = ["core hours"] if objective == "core-hours" else []
    head = ["n", "workers", "threads", stored.tree.target, *hours, "error of its leaf"]
    return table(rows, [*head, "affinity" if stored.affinities else "", "note"], words_last=True)
