"""How good advice is where the truth is known: regret, and whether intervals hold it.

    python benchmarks/advise.py [--programs fresh] [--runs 9,16,24] [--seeds 2] [--rows]
    python benchmarks/advise.py --next

The machine of synthetic_node.py: 32 nodes of 64 cores, programs at several workloads. Trained on
runs of one, two and four nodes with noise of 2 %; advised among all admissible configurations up to
32 nodes and all hardware threads. Communication is the true one with errors as a simulation has
them, of latency and of bandwidth (5 % each), and of each case (1.5 %), and the interval that
belongs to these: simulations are measured elsewhere. Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
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
from p3s.methods.threads.advise.advisor import Advisor, Workload, next_runs
from p3s.methods.threads.advise.text import what
from p3s.methods.threads.advise.types import Configuration, Limits, Objective, admissible
from p3s.methods.threads.law import ThreadLaw, fit_law, value_of
from p3s.methods.threads.types import Value, samples

PROGRAMS = {"seen": SEEN, "kept-back": KEPT_BACK, "fresh": FRESH}
NODE = read_node("2x4x8+smt2")
#: Noise of runs; errors of what messages take at least, of what their bytes take, and beside both
#: of each number of processes in all and on a node.
NOISE, MESSAGES, OWN = 0.02, 0.05, 0.015
#: Runs before the first one is proposed, and how many are.
FEW, MORE = 4, 3


def runs(number: int, same_input: bool = False) -> list[tuple[Used, float]]:
    """Return the runs that a user makes, and the part of the workload in each.

    Runs of an eighth of it on four nodes have as much work for a process as the whole on 32 (the
    small runs of p3s characterize --far); same_input: none of those, other threads instead.
    """
    least = [
        (Used(64, 1, 64), 1.0),
        (Used(4, 16, 4), 1.0),
        (Used(256, 1, 64), 1.0),
        (Used(16, 16, 4), 1.0),
        (Used(32, 4, 16), 1.0),
        (Used(256, 1, 64), 0.125),
        (Used(16, 16, 4), 0.125),
        (Used(64, 2, 64), 1.0),
        (Used(8, 4, 8), 1.0),
    ]
    more = [
        (Used(8, 4, 8, True), 1.0),
        (Used(1, 64, 1), 1.0),
        (Used(4, 64, 1), 0.125),
        (Used(64, 4, 16), 0.35),
        (Used(256, 2, 64), 0.125),
        (Used(16, 4, 16), 1.0),
        (Used(8, 8, 8), 1.0),
        (Used(64, 4, 16), 1.0),
        (Used(8, 16, 4), 1.0),
        (Used(128, 1, 64), 1.0),
        (Used(16, 1, 16, True), 1.0),
        (Used(4, 1, 4), 1.0),
        (Used(8, 32, 2), 0.125),
        (Used(32, 16, 8), 0.35),
        (Used(32, 2, 16, True), 0.5),
    ]
    other = {0.125: 1.0, 0.35: 1.0, 0.5: 1.0, 1.0: 1.0}
    found = (least + more)[:number]
    return [(u, other[w]) for u, w in found] if same_input else found


@dataclass(frozen=True)
class Given:
    """What a case is tried with: chance, and whether iterations of loops are known."""

    seed: int
    rows: bool = False


@dataclass(frozen=True)
class Outcome:
    """What came of one workload: regret of the first and of the best of three, relative; whether
    intervals held the truth: of the first, and of what part of all; predicted regret; widths."""

    regret: float
    best_of_three: float
    held: bool
    held_of_all: float
    said: float
    width: float
    error: float
    seconds: float
    chosen: str
    best: str


Run = tuple[Used, float]


def advised(program: Program, elements: float, traced: list[Run], given: Given) -> Outcome:
    """Return how good the advice is for one workload, from some runs."""
    random = np.random.default_rng([given.seed, int(elements), len(program.name), len(traced)])
    began = time.perf_counter()
    laws = fitted(program, elements, traced, given)
    took = time.perf_counter() - began
    chosen = admissible(Limits(NODE, NODES, smt=True))
    advisor, (work, truth) = Advisor(laws, chosen), asked(program, elements, chosen, random)
    return _outcome(advisor, work, truth, took)


def fitted(
    program: Program, elements: float, traced: list[Run], given: Given
) -> tuple[ThreadLaw, ...]:
    """Return the laws of all phases; a run has the same noise whatever other runs there are."""
    used, part = zip(*traced, strict=True)
    n = np.array([u.n for u in used])
    whole = elements * np.array(part)
    told = np.array([computing(program, w, u) for w, u in zip(whole, used, strict=True)])
    for row, (u, w) in zip(told, traced, strict=True):
        key = [given.seed, int(elements), u.n, u.threads, u.per_node, u.far, int(1000 * w)]
        row *= np.random.default_rng(key).lognormal(0.0, NOISE, len(row))
    laws = []
    for k, phase in enumerate(program.phases):
        known = {"regions": np.full(len(n), float(phase.regions))}
        if given.rows:
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


def _outcome(advisor: Advisor, work: Workload, truth: np.ndarray, took: float) -> Outcome:
    found, chosen = advisor.advise(work), advisor.configurations
    value = value_of(advisor.objective(work, Objective.TIME))
    inside = (value.low <= truth) & (truth <= value.high)
    at = [chosen.index(c.configuration) for c in found.choices]
    best = truth.min()
    first = found.best
    return Outcome(
        truth[at[0]] / best - 1,
        truth[at].min() / best - 1,
        bool(inside[at[0]]),
        float(inside.mean()),
        first.regret,
        float(np.median(value.high / value.low)),
        float(np.median(np.abs(value.seconds / truth - 1))),
        took,
        what(first.configuration),
        what(chosen[int(truth.argmin())]),
    )


def following(program: Program, elements: float, given: Given) -> dict[str, list[Outcome]]:
    """Return what comes of FEW runs and up to MORE further ones: proposed, and any others."""
    random = np.random.default_rng([given.seed, int(elements)])
    traced, every = runs(FEW), runs(24)
    out = {"proposed": [advised(program, elements, traced, given)]}
    out["any"] = list(out["proposed"])
    some = [every[k] for k in random.permutation(np.arange(FEW, 24))[:MORE]]
    for k in range(MORE):
        traced = [*traced, proposed(program, elements, traced, every, given)]
        out["proposed"].append(advised(program, elements, traced, given))
        out["any"].append(advised(program, elements, runs(FEW) + some[: k + 1], given))
    return out


def proposed(
    program: Program, elements: float, traced: list[Run], every: list[Run], given: Given
) -> Run:
    """Return the run that is proposed next, among those not made."""
    left = [run for run in every if run not in traced]
    chosen = admissible(Limits(NODE, NODES, smt=True))
    advisor = Advisor(fitted(program, elements, traced, given), chosen)
    work, _ = asked(program, elements, chosen, np.random.default_rng(given.seed))
    n, part = np.array([u.n for u, _ in left]), np.array([w for _, w in left])
    some = [
        Configuration(u.n, u.threads, u.per_node, -(-u.n // u.per_node), u.far) for u, _ in left
    ]
    none = np.zeros(len(left))
    each = np.array([most(p, elements * part, n) for p in program.phases])
    times = np.ones((len(program.phases), 1))
    told = Workload(each, times, Value(none, none, none))
    best = next_runs(advisor, work, some, told, workloads=part)[0]
    return left[
        next(k for k, c in enumerate(some) if (c, part[k]) == (best.configuration, best.workload))
    ]


def _used(c: Configuration) -> Used:
    return Used(c.processes, c.threads, c.per_node, c.far)


def main() -> None:
    """Print a line per program and workload, and what came of all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", choices=PROGRAMS, default="seen")
    parser.add_argument("--runs", default="16")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--of", default="")
    parser.add_argument("--same-input", action="store_true")
    parser.add_argument("--rows", action="store_true", help="iterations of loops are known")
    parser.add_argument("--next", action="store_true", help="runs as proposed, beside any others")
    options = parser.parse_args()
    programs = [p for p in PROGRAMS[options.programs] if options.of in ("", p.name)]
    cases = [
        (program, elements, Given(seed, options.rows))
        for program in programs
        for elements in program.workloads
        for seed in range(options.seeds)
    ]
    if options.next:
        _print_next([following(*case) for case in cases])
        return
    for number in map(int, options.runs.split(",")):
        rows = []
        for program, elements, given in cases:
            out = advised(program, elements, runs(number, options.same_input), given)
            rows.append(out)
            print(
                f"{program.name:13} {elements:8.2g} {given.seed} "
                f"regret {out.regret:6.1%} (3: {out.best_of_three:6.1%}, said "
                f"{out.said:6.1%}) held {out.held!s:5} {out.held_of_all:4.0%} width "
                f"{out.width:5.2f} error {out.error:5.1%} {out.chosen} | {out.best}",
                flush=True,
            )
        _summary(number, rows)


def figures(quick: bool) -> Found:
    """Return regret and intervals of advice from 16 runs, for each group of programs."""
    out = []
    for group in ("seen",) if quick else tuple(PROGRAMS):
        rows = [
            advised(program, elements, runs(16), Given(0, False))
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


def _print_next(found: list[dict[str, list[Outcome]]]) -> None:
    for name in ("proposed", "any"):
        for k in range(MORE + 1):
            some = [each[name][k] for each in found]
            regret = np.array([x.regret for x in some])
            print(
                f"{FEW} runs and {k} {name:8}: mean regret {regret.mean():.1%}, within 5 % in "
                f"{np.mean(regret <= 0.05):.0%}, ends apart by "
                f"{np.mean([x.width for x in some]):.2f}, error "
                f"{np.mean([x.error for x in some]):.1%}"
            )


def _summary(number: int, rows: list[Outcome]) -> None:
    regret = np.array([r.regret for r in rows])
    print(
        f"{number} runs, {len(rows)} workloads: within 5 % in {np.mean(regret <= 0.05):.0%} "
        f"(of three {np.mean([r.best_of_three <= 0.05 for r in rows]):.0%}), mean regret "
        f"{regret.mean():.1%}, largest {regret.max():.1%}; interval of the first held "
        f"{np.mean([r.held for r in rows]):.0%}, of all "
        f"{np.mean([r.held_of_all for r in rows]):.0%}, ends apart by "
        f"{np.median([r.width for r in rows]):.2f}; median error "
        f"{np.median([r.error for r in rows]):.1%}; "
        f"fit {np.mean([r.seconds for r in rows]):.2f} s"
    )


if __name__ == "__main__":
    main()
