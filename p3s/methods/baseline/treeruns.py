"""Run times as the table that a tree of regressions is grown from, and growing it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np

from p3s.base.arrays import Floats, Ints
from p3s.base.errors import P3SError, UsageError
from p3s.base.text import join_words, plural
from p3s.methods.baseline.times import TOTAL, RunTime, Times, inputs_of, reduction_of, select_runs
from p3s.methods.baseline.trees.diagnostics import Report, by_workload, prune, report
from p3s.methods.baseline.trees.features import COUNTER, derive_features
from p3s.methods.baseline.trees.grow import grow
from p3s.methods.baseline.trees.store import AFFINITIES, AFFINITY, StoredTree, count_sharers
from p3s.methods.baseline.trees.types import Growing, Table, Tree

#: By how much computation may exceed what workers had time for: clocks of two processes.
_CLOCKS = 1e-6


def efficiency(resources: Floats, time: Floats, used: Floats) -> Floats:
    """Return E = T_c / (K T_iter), at most 1.

    ``resources`` K: workers, or cores of all workers; ``time`` T_iter of an iteration and ``used``
    T_c, the seconds that they computed for, added up (eq. 4.10). Errors: P3SError where E is above
    1.
    """
    efficiencies = np.asarray(used / (resources * time))
    wrong = np.flatnonzero(~((efficiencies > 0) & (efficiencies <= 1 + _CLOCKS)))
    if len(wrong):
        at = int(wrong[0])
        raise P3SError(
            f"row {at + 1}: an efficiency of {float(efficiencies[at]):.4g}: workers or threads were"
            " busy for longer than they had time for, or never; are both times in one unit, and of"
            " one iteration?"
        )
    return efficiencies


def index(resources: Floats, time: Floats, used: Floats) -> Floats:
    """Return E_index = T_iter / E = K T_iter^2 / T_c in seconds (eq. 4.9), never below T_iter.

    The less the better.
    """
    return np.asarray(time / efficiency(resources, time, used))


#: Columns that are the workload, the threads of a process, seconds of computation of all workers,
#: seconds that all threads were busy; in small letters.
_WORKLOAD = ("workload", "w", "workld")
_THREADS = ("threads", "thrs", "thr", "nthreads", "omp_num_threads")
_COMPUTED, _BUSY = ("t_c", "computed"), ("t_busy", "busy")
TARGETS = ("time", "index", "core-index")
_WORKERS = re.compile(r"n(?:-(\d{1,6}))?", re.ASCII)


@dataclass(frozen=True)
class Reading:
    """How run times become a table.

    ``workers``: "n", or "n-1" where a process is the master; ``workload``: its column, where the
    name does not say it; ``where``: rows with these values; ``target``: what is measured (seconds,
    the efficiency index of eq. 4.9, or that of cores); ``cores`` and ``per_node``: as in
    :class:`p3s.methods.baseline.trees.store.StoredTree`; ``least`` and ``most`` bound the process
    counts.
    """

    workers: str = "n"
    workload: str = ""
    where: Mapping[str, str] | None = None
    reduction: str = "min"
    target: str = "time"
    cores: tuple[tuple[int, int, int], ...] = ()
    per_node: int = 0
    least: int = 1
    most: int | None = None

    @property
    def others(self) -> int:
        """Number of processes that are no workers; UsageError for a rule that is none."""
        match = _WORKERS.fullmatch(self.workers.replace(" ", ""))
        if match is None:
            raise UsageError(f"--workers {self.workers}: write n, or n-1 where one is the master")
        return int(match[1] or 0)


@dataclass(frozen=True)
class TreeRuns:
    """A table with the labels that all its runs have, and sentences about them."""

    table: Table
    labels: Mapping[str, str]
    notes: tuple[str, ...] = ()


def table_of(times: Times, reading: Reading, words: Sequence[str] = ()) -> TreeRuns:
    """Return the runs as a table, repeats reduced to one row.

    ``words``: labels that are variables; others must be the same in all runs. Errors: P3SError for
    runs without a workload, of different kinds, or that contradict the target.
    """
    if reading.target not in TARGETS:
        raise UsageError(f"--target {reading.target}: is none; one of {', '.join(TARGETS)}")
    reduction_of(reading.reduction)
    every = [r for r in select_runs(times.runs, reading.where or {}) if r.component == TOTAL]
    most = reading.most
    runs = [r for r in every if r.valid and reading.least <= r.n and (not most or r.n <= most)]
    if not runs:
        raise P3SError("no run of the whole program counts; are there rows with a time?")
    columns = _columns(runs)
    labels = _labels(runs, (*words, AFFINITY))
    several = [name for name, values in labels.items() if len(set(values)) > 1]
    levels = {name: _levels(labels, name) for name in several}
    for name, words_ in levels.items():
        columns[name] = np.array([float(words_.index(word)) for word in labels[name]])
    y = _take_target(columns, _seconds(runs), reading)
    table = _reduce_rows(Table(columns, y, levels), reading)
    table = _add_variables(table, labels, reading)
    notes = list(times.notes)
    aside = sum(not run.valid for run in every)
    if aside:
        notes.append(f"{plural(aside, 'run')} set aside")
    same = {name: values[0] for name, values in labels.items() if name not in levels}
    return TreeRuns(table, same, tuple(notes))


def _seconds(runs: Sequence[RunTime]) -> Floats:
    return np.array([run.seconds for run in runs], dtype=float)


def _columns(runs: Sequence[RunTime]) -> dict[str, Floats]:
    names = inputs_of(runs)
    values = np.array([[value for _, value in run.inputs] for run in runs]).reshape(len(runs), -1)
    columns = {name: values[:, i] for i, name in enumerate(names)}
    return columns | {"processes": np.array([float(run.n) for run in runs])}


def _labels(runs: Sequence[RunTime], words: Sequence[str]) -> dict[str, list[str]]:
    """Return the labels of all runs by name; P3SError where one differs and is no variable."""
    labels = {name: [dict(run.labels).get(name, "") for run in runs] for name, _ in runs[0].labels}
    for name, values in labels.items():
        if len(set(values)) > 1 and name not in words:
            one, other = sorted(set(values))[:2]
            raise P3SError(
                f"run times of different kinds: {name} is {one!r} and {other!r}; choose one: "
                f"--where {name}={one}, or split on it: --split {name},..."
            )
    return labels


def _levels(labels: Mapping[str, Sequence[str]], name: str) -> tuple[str, ...]:
    return tuple(sorted(set(labels[name])))


def _one_of(columns: Mapping[str, Floats], accepted: Sequence[str]) -> str | None:
    return next((name for name in columns if name.lower() in accepted), None)


def _take_target(columns: dict[str, Floats], seconds: Floats, reading: Reading) -> Floats:
    """Return what the tree is to tell of each run; takes the columns it needs for it away."""
    computed, busy = _one_of(columns, _COMPUTED), _one_of(columns, _BUSY)
    popped = {name: columns.pop(name) for name in (computed, busy) if name}
    if reading.target == "time":
        return seconds
    column_name = computed if reading.target == "index" else busy
    if column_name is None:
        accepted = _COMPUTED if reading.target == "index" else _BUSY
        description = "computation of all workers" if reading.target == "index" else "busy threads"
        raise P3SError(
            f"--target {reading.target}: no column with the seconds of {description}, added up;"
            " name it " + join_words(accepted, "or")
        )
    resources = columns["processes"] - reading.others
    if reading.target == "core-index":
        resources = resources * _threads(columns)
    return index(resources, seconds, popped[column_name])


def _threads(columns: Mapping[str, Floats]) -> Floats:
    name = _one_of(columns, _THREADS)
    return columns[name] if name else np.ones(len(columns["processes"]))


def _reduce_rows(table: Table, reading: Reading) -> Table:
    """Return one row per configuration and workload, in the order of their values."""
    names = list(table.columns)
    values = np.stack([table.columns[name] for name in names], axis=1)
    distinct, index = np.unique(values, axis=0, return_inverse=True)
    order = np.argsort(index, kind="stable")
    parts = np.split(table.y[order], np.flatnonzero(np.diff(index[order])) + 1)
    reduce = reduction_of(reading.reduction)
    y = np.array([reduce(part.tolist()) for part in parts])
    return Table(dict(zip(names, distinct.T.copy(), strict=True)), y, table.levels)


def _add_variables(table: Table, labels: Mapping[str, Sequence[str]], reading: Reading) -> Table:
    """Return the table with the variables that follow from others."""
    variables = dict(table.columns)
    name = reading.workload or _one_of(variables, _WORKLOAD)
    threads = _one_of(variables, _THREADS)
    if not name:
        rest = [n for n in variables if n not in (threads, "processes", *table.levels)]
        if len(rest) > 1:
            raise P3SError(
                f"which column is the workload? name it so, or say it: --workload {rest[0]}"
            )
        name = rest[0] if rest else _WORKLOAD[0]
        variables.setdefault(name, np.ones(len(table)))
    if name not in variables:
        raise P3SError(f"--workload {name}: is no column of numbers; there are {table.names}")
    workers = variables["processes"] - reading.others
    if (workers < 1).any():
        least = int(variables["processes"].min())
        raise P3SError(f"--workers {reading.workers}: a run of {least} has no worker")
    thread = _threads(variables)
    workload = variables[name]
    for old in (name, threads):
        variables.pop(old or "", None)
    variables |= derive_features(workload, workers, thread)
    if reading.cores:
        far = _mask_far(table, labels)
        variables |= count_sharers(
            reading.cores, variables["processes"], thread, reading.per_node, far
        )
    return Table(variables, table.y, table.levels)


def _mask_far(table: Table, labels: Mapping[str, Sequence[str]]) -> Floats:
    """Return which runs are placed far; P3SError for a placement that is none."""
    for word in sorted(set(labels.get(AFFINITY, ())) - {*AFFINITIES}):
        raise P3SError(f"affinity {word!r:.20}: is neither {' nor '.join(AFFINITIES)}")
    if AFFINITY in table.levels:
        return np.asarray(table.columns[AFFINITY] == table.levels[AFFINITY].index("far"))
    return np.full(len(table), labels.get(AFFINITY, [""])[0] == "far")


#: Eq. 4.3 of the thesis, and the variables of its table 5.4 but those of caches.
EXPRESSION = "b3*W**2/(K*T) + b2*W/(K*T) + b1*K + b0"
VARIABLES = ("w2", "w1", "workers", "workload", "local_workld", "threads")


@dataclass(frozen=True)
class Plan:
    """What a tree is grown of.

    ``variables``: it may split on these (none: the usual ones, and those of caches and placement
    that the runs have); ``validate``: every so many-th workload is kept out (0: none); ``prune``:
    with these workloads.
    """

    expression: str = EXPRESSION
    variables: tuple[str, ...] = ()
    growing: Growing = field(default_factory=Growing)
    reading: Reading = field(default_factory=Reading)
    validate: int = 0
    prune: bool = False


def grown(times: Times, plan: Plan) -> StoredTree:
    """Return a tree of run times with what is needed to ask it.

    Errors: as of :func:`p3s.methods.baseline.treeruns.table_of` and
    :func:`p3s.methods.baseline.trees.grow.grow`.
    """
    if plan.validate == 1:
        raise UsageError("--validate 1: leaves no workload to grow a tree from; give at least 2")
    runs = table_of(times, plan.reading, plan.variables)
    variables = plan.variables or _usual(runs)
    train, held_rows = by_workload(runs.table.column("workload"), plan.validate)
    tree = grow(runs.table.only(train), plan.expression, variables, plan.growing)
    tree = replace(tree, target=plan.reading.target)
    if plan.prune:
        tree = _prune_tree(tree, runs, held_rows)
    return _pack_tree(tree, runs, train, plan)


def _usual(runs: TreeRuns) -> tuple[str, ...]:
    columns = runs.table.columns
    counters = [name for name in columns if COUNTER.fullmatch(name) and np.ptp(columns[name]) > 0]
    return (*VARIABLES, *counters, *runs.table.levels)


def _prune_tree(tree: Tree, runs: TreeRuns, held_rows: Ints) -> Tree:
    """Return a pruned tree; workloads that it was pruned with are none to validate it with."""
    if not len(held_rows):
        raise UsageError("--prune needs workloads to prune with; give --validate 4")
    workloads_seen = sorted({*tree.workloads, *runs.table.columns["workload"].tolist()})
    return replace(prune(tree, runs.table.only(held_rows)), workloads=tuple(workloads_seen))


def _pack_tree(tree: Tree, runs: TreeRuns, train: Ints, plan: Plan) -> StoredTree:
    mine = runs.table.only(train).columns
    placements = runs.table.levels.get(AFFINITY, (runs.labels.get(AFFINITY, ""),))
    return StoredTree(
        tree,
        plan.reading.others,
        plan.reading.cores,
        plan.reading.per_node,
        tuple(sorted(set(mine["workers"].tolist()))),
        tuple(sorted(set(mine["threads"].tolist()))),
        tuple(filter(None, placements)),
        len(train),
        runs.notes,
        datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        runs.labels,
    )


def check_tree(stored: StoredTree, times: Times, reading: Reading) -> Report:
    """Return how good a tree is on run times; ``reading``: its rows and column of the workload."""
    others = f"-{stored.others}" if stored.others else ""
    mine = replace(
        reading,
        workers=f"n{others}",
        target=stored.tree.target,
        cores=stored.cores,
        per_node=stored.per_node,
    )
    return report(stored.tree, table_of(times, mine, tuple(stored.tree.levels)).table)
