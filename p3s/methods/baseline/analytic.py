"""An iteration of a master and workers from counters: the analytical model.

    T_iter = mu_m(W) + K lambda(out) + mu_w(W, K, T) + lambda(back)                     (3.1, 3.4)
    mu_w   = CPI_ideal instructions / f(T)                                                   (3.2)
           + LL Lat_mem Ovrlp_cache + TLB Lat_tlb Ovrlp_tlb + Theta(T)                       (3.3)

W is the workload, K the workers, T the threads of each. Instructions and misses of the last-level
cache (LL) and the TLB are those of a thread: a polynomial of W over K T (3.5). The overlaps are a
regression of what a worker takes beyond its instructions (3.6) on the times of its misses (3.7).
The machine says clock, latencies, cost of a parallel region (Theta) and times of messages (lambda).
Source: A. Castellanos Carrazana, UAB 2014, chapter 3.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import t as student

from p3s.base.arrays import Floats
from p3s.base.errors import P3SError
from p3s.base.ops import RECV, SEND, kind_of
from p3s.base.settings import THREADS
from p3s.base.text import join_words, percent
from p3s.capture import RunTrace, read_run
from p3s.machine.machinefile import Machine, OpenMP, line_at
from p3s.methods.baseline.fromstudy import traces_in
from p3s.methods.baseline.read import read
from p3s.methods.baseline.regression import least_norm
from p3s.methods.baseline.times import RunTime, Times
from p3s.methods.baseline.treeruns import Reading, table_of
from p3s.methods.baseline.trees.prototype import Prototype
from p3s.methods.baseline.trees.types import Table

#: What a thread of the slowest worker counts in an iteration; that of TLB misses may be missing.
CYCLES, INSTRUCTIONS, CACHE, TLB = "cycles", "instructions", "llc-misses", "dtlb-misses"
_NEEDED = ("mu_m", "mu_w", "out_bytes", "back_bytes", CYCLES, INSTRUCTIONS, CACHE)
_POWERS = ("b0", "b1*W", "b2*W**2", "b3*W**3")
_SUMS = ("b1*W + b0", "b2*W**2 + b1*W", "b2*W**2 + b1*W + b0", "b3*W**3 + b2*W**2 + b1*W + b0")
#: Forms of counts (3.5 and section 3.6), and of the bytes of a message.
SHARED = tuple(f"({form})/(K*T)" for form in (*_POWERS, *_SUMS))
_BYTES = (*_POWERS, *(f"{p}/K" for p in _POWERS), *(f"{p} + b9{p[2:]}/K" for p in _POWERS))
#: AICc units that are no difference (Burnham and Anderson 2002); runs that eq. 3.7 needs; share of
#: the penalty from which on a factor shows, and confidence of its interval.
_ALIKE, _FEWEST, _LEAST_SHARE, _CONFIDENCE = 6.0, 5, 0.05, 0.90


def read_table(source: Path) -> Table:
    """Return an iteration of each run of a study or table as columns: times in s, counts, bytes."""
    table = table_of(times_in(source) if source.is_dir() else read(source), Reading("n-1")).table
    if missing := [name for name in _NEEDED if name not in table.columns]:
        raise P3SError(
            f"{source}: no {join_words(missing)}, which equations 3.1 to 3.7 need; trace with p3s "
            f"characterize --counters {CYCLES},{INSTRUCTIONS},{CACHE},{TLB}, or add these columns"
        )
    return table


def times_in(root: Path) -> Times:
    """Return the time of an iteration of every run of a study, what else is known as inputs."""
    runs = []
    for setting, traces in traces_in(root):
        values = {name: float(value) for name, value in setting.items()}
        others = [name for name in values if name != THREADS] or ["workload"]
        values["workload"] = values.pop(others[0], 1.0)
        for n in sorted({run.np for run in traces.runs if run.np > 1} - traces.unused):
            for record in traces.complete(n):
                row = values | time_iteration(read_run(record.path, whole=True))
                runs.append(RunTime(n, row.pop("seconds"), record.rep, tuple(row.items())))
    return Times(tuple(runs))


def time_iteration(run: RunTrace) -> dict[str, float]:
    """Return means of all iterations of a run but the first: times in s, bytes, counters.

    An iteration of rank 0, the master, ends with the last receive before it sends again.
    """
    master = run.ranks[0]
    end_ns, calls = master.start_ns + master.elapsed_ns, [run.calls[k] for k in master.call]
    kind = np.array([kind_of(call.op) for call in calls])
    at = np.flatnonzero((kind == SEND) | (kind == RECV))
    ends = at[(kind[at] == RECV) & np.append(kind[at[1:]] == SEND, True)] if len(at) else at
    if len(ends) < 3:
        raise P3SError(f"{run.path}: no three iterations of a master that sends, then receives")
    part, turns = np.arange(ends[0] + 1, ends[-1] + 1), len(ends) - 1
    whole = float(end_ns[ends[-1]] - end_ns[ends[0]]) / turns
    sizes, kind = np.array([calls[k].bytes for k in part]), kind[part]
    workers = [_time_worker(run, rank, turns) for rank in range(1, run.np)]
    return {
        **max(workers, key=lambda worker: worker["mu_w"]),
        "mu_m": 1e-9 * max(whole - float(master.elapsed_ns[part].sum()) / turns, 1.0),
        "out_bytes": float(sizes[kind == SEND].mean()),
        "back_bytes": float(sizes[kind == RECV].mean()),
        "seconds": 1e-9 * whole,
    }


def _time_worker(run: RunTrace, number: int, turns: int) -> dict[str, float]:
    """Return what a worker computes and counts before its message to the master."""
    rank = run.ranks[number]
    to_master = [call.peer == 0 and kind_of(call.op) == SEND for call in run.calls]
    at = np.flatnonzero(np.array(to_master)[rank.call])[1 : turns + 1]
    if not len(at):
        raise P3SError(f"{run.path}: rank {number} sends nothing to rank 0, the master")
    columns = dict(zip(run.counter_names, rank.counters.T, strict=True))
    if run.work_unit == INSTRUCTIONS:
        columns[INSTRUCTIONS] = rank.work
    columns["mu_w"] = 1e-9 * (rank.start_ns - np.roll(rank.start_ns + rank.elapsed_ns, 1))
    columns_used = ("mu_w", CYCLES, INSTRUCTIONS, CACHE, TLB)
    return {name: float(columns[name][at].mean()) for name in columns_used if name in columns}


class Node:
    """What the machine of the runs adds; P3SError where its file lacks threads or messages."""

    def __init__(self, machine: Machine) -> None:
        if machine.openmp is None or machine.network is None:
            raise P3SError(
                f"machine {machine.name}: nothing is known of threads, memory or messages; run p3s "
                "machine measure --openmp, with a --launcher that starts two ranks"
            )
        self.openmp: OpenMP = machine.openmp
        self._nbytes, self._ns = (machine.network["sizes"][x] for x in ("bytes", "one_way_ns"))

    def hertz(self, threads: Floats) -> Floats:
        """Return the clock; where the system tells none, additions that wait for each other."""
        clock = self.openmp.clock
        return np.interp(threads, clock.threads, clock.hz or clock.additions)

    def messages(self, nbytes: Floats) -> Floats:
        """Return the seconds of messages, straight between sizes, on with the last slope."""
        return np.array([1e-9 * line_at(self._nbytes, self._ns, x) for x in nbytes.tolist()])

    def misses(self, counted: Mapping[str, Floats]) -> dict[str, Floats]:
        """Return the seconds of misses that are counted, by counter."""
        latency = {CACHE: self.openmp.memory_s, TLB: self.openmp.tlb_s}
        return {x: counted[x] * s for x, s in latency.items() if np.any(counted.get(x, 0))}


@dataclass(frozen=True)
class Law:
    """A function of W, K and T: expression, coefficients, root mean square relative error."""

    expression: str
    coefficients: tuple[float, ...]
    error: float = 0.0

    def at(self, columns: Mapping[str, Floats]) -> Floats:
        """Return the values at rows."""
        return np.asarray(Prototype(self.expression).design(columns) @ self.coefficients)

    @property
    def text(self) -> str:
        """The expression with its numbers."""
        value_of = dict(
            zip(Prototype(self.expression).coefficients, self.coefficients, strict=True)
        )
        return re.sub(r"b\d", lambda match: f"{value_of[match[0]]:.4g}", self.expression)


def fit_law(quantity: str, forms: Sequence[str], columns: Mapping[str, Floats], y: Floats) -> Law:
    """Return the form with fewest coefficients among those about as likely as the best (AICc).

    Squares of relative errors are least. P3SError for a value that is not above 0.
    """
    if not (y > 0).all():
        raise P3SError(f"{quantity}: 0 or less in some runs; leave out those that counted nothing")
    candidates = []
    for form in forms:
        rows = Prototype(form).design(columns) / y[:, None]
        solved, rank = least_norm(rows, np.ones(len(y)))
        size, free = rows.shape[1], len(y) - rows.shape[1] - 2
        if rank == size:
            error = float(np.mean((rows @ solved - 1.0) ** 2))
            # Rounding, where a form is exact, is no misfit that could be smaller.
            likely = len(y) * math.log(max(error, 1e-24))
            aicc = likely + 2 * (size + 1) * (1 + (size + 2) / free) if free > 0 else math.inf
            candidates.append((size, aicc, Law(form, tuple(solved.tolist()), math.sqrt(error))))
    limit = min(aicc for _, aicc, _ in candidates) + _ALIKE
    return min((each for each in candidates if each[1] <= limit), key=lambda each: each[:2])[2]


@dataclass(frozen=True)
class Factor:
    """An overlap, half of its 90 % interval; share: of its term in the penalty, the median."""

    value: float
    half_width: float
    share: float

    @property
    def doubt(self) -> str:
        """Why it is no share of a penalty; empty where it is one."""
        if self.share < _LEAST_SHARE or not math.isfinite(self.half_width):
            return "not identifiable"
        return "" if 0 <= self.value <= 1 else "no share, as of an inexact CPI_ideal"


def fit_overlaps(penalty: Floats, terms: Mapping[str, Floats]) -> dict[str, Factor]:
    """Return the factor of each term (s) in a penalty (s), beside a constant (eq. 3.7).

    Squares of relative errors are least. P3SError for few penalties, or one of 0.
    """
    if len(penalty) < _FEWEST or not penalty.all():
        raise P3SError(
            f"{len(penalty)} runs: eq. 3.7 needs {_FEWEST}; trace more counts, threads or workloads"
        )
    rows = np.stack([*terms.values(), np.ones(len(penalty))], axis=-1) / np.abs(penalty)[:, None]
    factors, rank = least_norm(rows, np.sign(penalty))
    missed, free = rows @ factors - np.sign(penalty), max(len(penalty) - rank, 1)
    scale = np.linalg.norm(rows, axis=0)
    spread = np.diag(np.linalg.pinv((rows / scale).T @ (rows / scale))) / scale**2
    wide = np.sqrt(spread * (missed @ missed) / free) * student.ppf((1 + _CONFIDENCE) / 2, free)
    wide = wide if rank == len(scale) else np.full(len(scale), math.inf)
    each = zip(terms, factors, wide, np.median(np.abs(factors * rows), axis=0), strict=False)
    return {name: Factor(*map(float, numbers)) for name, *numbers in each}


@dataclass(frozen=True)
class WorkerModel:
    """CPI_ideal, laws of the columns of runs by their names, and overlaps by their counters."""

    cpi: float
    laws: Mapping[str, Law]
    overlaps: Mapping[str, Factor]

    def terms(self, node: Node, columns: Mapping[str, Floats]) -> dict[str, Floats]:
        """Return the terms of eq. 3.1 to 3.4 in s at rows of W, K and T, and their sum."""
        work = {name: law.at(columns) for name, law in self.laws.items()}
        terms_by_name = {
            "master": work["mu_m"],
            "to workers": columns["workers"] * node.messages(work["out_bytes"]),
            INSTRUCTIONS: self.cpi * work[INSTRUCTIONS] / node.hertz(columns["threads"]),
            **{name: s * self.overlaps[name].value for name, s in node.misses(work).items()},
            "regions": np.array([node.openmp.fork_join(t) for t in columns["threads"].tolist()]),
            "back": node.messages(work["back_bytes"]),
        }
        return {**terms_by_name, "iteration": np.sum(list(terms_by_name.values()), axis=0)}


def fit_model(table: Table, node: Node, cpi: float | None = None) -> WorkerModel:
    """Return the model of runs; cpi: CPI_ideal [default: that of the least work of a worker]."""
    c = table.columns
    if cpi is None:
        small = c["local_workld"] == c["local_workld"].min()
        cpi = float(np.median(c[CYCLES][small] / c[INSTRUCTIONS][small]))
    misses = node.misses(c)
    forms = {"mu_m": (*_POWERS, *_SUMS), "out_bytes": _BYTES, "back_bytes": _BYTES}
    forms |= dict.fromkeys((INSTRUCTIONS, *misses), SHARED)
    laws = {name: fit_law(name, law_forms, c, c[name]) for name, law_forms in forms.items()}
    penalty = c["mu_w"] - cpi * c[INSTRUCTIONS] / node.hertz(c["threads"])
    return WorkerModel(cpi, laws, fit_overlaps(penalty, misses))


def held_out(table: Table, node: Node, cpi: float) -> str:
    """Say how far a model of the runs without those of most workers misses these."""
    most = table.columns["workers"] == table.columns["workers"].max()
    try:
        terms = fit_model(table.only(~most), node, cpi).terms(node, table.only(most).columns)
    except P3SError:
        return "nothing is held out: too few runs"
    error = float(np.mean(np.abs(terms["iteration"] / table.y[most] - 1)))
    return f"fitted without those of most workers, these are missed by {percent(error)}"
