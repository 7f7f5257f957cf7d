"""How good advice is where the truth is known: regret, and whether intervals hold it.

    python benchmarks/all.py --only advise

The machine of synthetic_node.py: 32 nodes of 64 cores, programs at several workloads. Trained on
runs of one, two and four nodes with noise of 2 %; advised among all admissible configurations up to
32 nodes and all hardware threads. Communication is the true one with errors as a simulation has
them, of latency and of bandwidth (5 % each), and of each case (1.5 %), and the interval that
belongs to these: simulations are measured elsewhere.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from figures import Figure, Found
from synthetic_node import (
    FRESH,
    KEPT_BACK,
    NODES,
    SEEN,
    Phase,
    Program,
    Used,
    communicating,
    computing,
    most_work,
    rows_of,
)

from p3s.machine.topology.inside import read_node
from p3s.methods.threads.advise.advisor import Advisor, Workload
from p3s.methods.threads.advise.types import Configuration, Limits, Objective, admissible
from p3s.methods.threads.law import ThreadLaw, fit_law, value_of
from p3s.methods.threads.types import Value, samples

Run = tuple[Used, float]
PROGRAMS = {"seen": SEEN, "kept-back": KEPT_BACK, "fresh": FRESH}
NODE = read_node("2x4x8+smt2")
#: Noise of runs; errors of what messages take at least, of what their bytes take, and beside both
#: of each number of processes in all and on a node.
NOISE, MESSAGES, OWN = 0.02, 0.05, 0.015


def runs() -> list[Run]:
    """Return the runs that a user makes, and the part of the workload in each.

    Runs of an eighth of it on four nodes have as much work for a process as the whole on 32 (the
    small runs of p3s characterize --far).
    """
    return [
        (Used(64, 1, 64), 1.0),
        (Used(4, 16, 4), 1.0),
        (Used(256, 1, 64), 1.0),
        (Used(16, 16, 4), 1.0),
        (Used(32, 4, 16), 1.0),
        (Used(256, 1, 64), 0.125),
        (Used(16, 16, 4), 0.125),
        (Used(64, 2, 64), 1.0),
        (Used(8, 4, 8), 1.0),
        (Used(8, 4, 8, True), 1.0),
        (Used(1, 64, 1), 1.0),
        (Used(4, 64, 1), 0.125),
        (Used(64, 4, 16), 0.35),
        (Used(256, 2, 64), 0.125),
        (Used(16, 4, 16), 1.0),
        (Used(8, 8, 8), 1.0),
    ]


@dataclass(frozen=True)
class Outcome:
    """Relative regret of the first advice, and whether its interval held the truth."""

    regret: float
    held: bool


def advised(program: Program, elements: float, known_rows: bool) -> Outcome:
    """Return how good the advice is for one workload; known_rows: iterations of loops are known."""
    traced = runs()
    random = np.random.default_rng([0, int(elements), len(program.name), len(traced)])
    chosen = admissible(Limits(NODE, NODES, smt=True))
    advisor = Advisor(fitted(program, elements, traced, known_rows), chosen)
    work, truth = asked(program, elements, chosen, random)
    first = advisor.advise(work).best.configuration
    value = value_of(advisor.objective(work, Objective.TIME))
    at = advisor.configurations.index(first)
    held = bool(value.low[at] <= truth[at] <= value.high[at])
    return Outcome(truth[at] / truth.min() - 1, held)


def fitted(
    program: Program, elements: float, traced: list[Run], known_rows: bool
) -> tuple[ThreadLaw, ...]:
    """Return the laws of all phases; a run has the same noise whatever other runs there are."""
    used, part = zip(*traced, strict=True)
    n = np.array([u.n for u in used])
    whole = elements * np.array(part)
    told = np.array([computing(program, w, u) for w, u in zip(whole, used, strict=True)])
    for row, (u, w) in zip(told, traced, strict=True):
        key = [0, int(elements), u.n, u.threads, u.per_node, u.far, int(1000 * w)]
        row *= np.random.default_rng(key).lognormal(0.0, NOISE, len(row))
    laws = []
    for k, phase in enumerate(program.phases):
        known = {"regions": np.full(len(n), float(phase.regions))}
        if known_rows:
            known["rows"] = rows_in(phase, whole) / n
        seen = samples(
            phase=k,
            n=n,
            threads=[u.threads for u in used],
            per_node=[u.per_node for u in used],
            far=[u.far for u in used],
            work=most(phase, whole, n),
            seconds=told[:, k],
            **known,
        )
        laws.append(fit_law(seen, NODE))
    return tuple(laws)


def rows_in(phase: Phase, elements: np.ndarray) -> np.ndarray:
    """Return the iterations of the outermost loop, of all processes together."""
    return np.array([rows_of(phase, w) for w in elements * phase.share])


def most(phase: Phase, elements: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Return the work of the process that has most of it, as the model of work tells it."""
    pairs = zip(elements * phase.share, n, strict=True)
    return np.array([most_work(phase, w, k) for w, k in pairs])


def asked(
    program: Program,
    elements: float,
    chosen: tuple[Configuration, ...],
    random: np.random.Generator,
) -> tuple[Workload, np.ndarray]:
    """Return the workload that the advisor is asked about, and the true times."""
    used = [_used(c) for c in chosen]
    compute = np.array([computing(program, elements, u) for u in used]).sum(axis=1)
    messages = np.array([communicating(program, elements, u) for u in used])
    truth = (compute + messages.sum(axis=1)) * program.iterations
    n = np.array([c.processes for c in chosen])
    said = (messages @ np.exp(MESSAGES * random.standard_normal(2))) * program.iterations
    pair = np.unique([(c.processes, c.per_node) for c in chosen], axis=0, return_inverse=True)[1]
    said *= np.exp(OWN * random.standard_normal(len(n))[pair.ravel()])
    ends = np.exp(1.645 * MESSAGES)
    work = Workload(
        np.array([most(p, np.full(len(n), elements), n) for p in program.phases]),
        np.full((len(program.phases), 1), float(program.iterations)),
        Value(said, said / ends, said * ends),
    )
    return work, truth


def _used(c: Configuration) -> Used:
    return Used(c.processes, c.threads, c.per_node, c.far)


def figures(quick: bool, known_rows: bool = False) -> Found:
    """Return regret and intervals of advice from 16 runs, for each group of programs."""
    out = []
    for group in ("seen",) if quick else tuple(PROGRAMS):
        rows = [
            advised(program, elements, known_rows)
            for program in PROGRAMS[group]
            for elements in program.workloads
        ]
        regret = np.array([row.regret for row in rows])
        of = f"advice for {len(rows)} workloads of programs {group}"
        out += [
            Figure(f"{of}: within 5 % of the best", 100 * np.mean(regret <= 0.05), "%", more=True),
            Figure(f"{of}: mean regret", 100 * regret.mean(), "%"),
            Figure(f"{of}: largest regret", 100 * regret.max(), "%"),
            Figure(f"{of}: interval held", 100 * np.mean([r.held for r in rows]), "%", more=True),
        ]
    return Found(tuple(out))


PARTS = {"rows": functools.partial(figures, known_rows=True)}
