"""Trees of regressions: accuracy and advice on a synthetic machine.

    python benchmarks/all.py --only trees

The machine is tests/helpers/hybrid_machine.py: true times are known, runs have a noise of 2 %.
Errors are those of validation runs, at workloads that the tree has not seen, with noise of their
own (1.35 % in the median); regret is of true times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import hybrid_machine as machine
import numpy as np
from figures import Figure, Found

from p3s.methods.baseline.trees.evaluate import Evaluator
from p3s.methods.baseline.trees.grow import grow
from p3s.methods.baseline.trees.types import Growing

LITERAL = Growing.thesis()
MODES = {
    "tree": Growing(),
    "the thesis's tree": LITERAL,
    "one regression": replace(Growing(), minsplit=1e9),
}


@dataclass(frozen=True)
class Scores:
    """One tree on the validation set: errors against runs, and regret of what it advises."""

    median: float
    p90: float
    regret: float
    regret_worst: float


def scores(program: str, growing: Growing, seed: int, noise: float = 0.02) -> Scores:
    """Return how a tree of one seed does; training and validation runs have noise of their own."""
    of = machine.workloads(machine.VALIDATION[program])
    train = machine.runs(program, machine.workloads(machine.TRAINING[program]), noise, seed)
    fresh = machine.runs(program, of, noise, 1000 + seed)
    tree = grow(train, machine.EXPRESSION[program], machine.VARIABLES, growing)
    c = fresh.columns
    told = Evaluator.of(tree).predict(c).value
    true, _ = machine.times(program, c["workload"], c["workers"], c["threads"].astype(int))
    errors = np.abs(told - fresh.y) / fresh.y
    value, real = told.reshape(len(of), -1), true.reshape(len(of), -1)
    first = np.argmin(value, axis=1)[:, None]
    regret = np.take_along_axis(real, first, axis=1)[:, 0] / real.min(axis=1) - 1
    return Scores(
        float(np.median(errors)),
        float(np.percentile(errors, 90)),
        float(regret.mean()),
        float(regret.max()),
    )


def figures(quick: bool) -> Found:
    """Return errors of trees, of one regression and of the thesis's trees, means over the seeds."""
    out, seeds = [], range(1 if quick else 5)
    for program in ("nb", "ht"):
        for name, growing in MODES.items():
            mine = [scores(program, growing, seed) for seed in seeds]
            for what, values in (
                ("median error", [one.median for one in mine]),
                ("90th percentile", [one.p90 for one in mine]),
                ("mean regret", [one.regret for one in mine]),
                ("largest regret", [one.regret_worst for one in mine]),
            ):
                of = f"{program}, {name}: {what}"
                out.append(Figure(of, 100 * float(np.mean(values)), "%"))
    return Found(tuple(out))
