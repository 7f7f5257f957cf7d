"""Trees of regressions: accuracy and advice on a synthetic machine, p-values, false splits, time.

    python benchmarks/trees.py [--seeds 5] [--first 0] [--only machine,pvalues] [--out trees.json]

The machine is tests/helpers/hybrid_machine.py: true times are known, runs have a noise of 2 %.
Errors are those of validation runs, at workloads that the tree has not seen, with noise of their
own (1.35 % in the median); regret is of true times. Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
HERE = Path(__file__).resolve().parent
# This directory has a replay.py, which must not be taken for the package.
sys.path = [
    *(path for path in sys.path if Path(path).resolve() != HERE),
    str(ROOT),
    str(ROOT / "tests" / "helpers"),
    str(HERE),
]

import hybrid_machine as machine  # noqa: E402
from andrews import LEVELS, critical_values  # noqa: E402
from figures import Figure, Found  # noqa: E402

from p3s.base.text import percent, table  # noqa: E402
from p3s.methods.baseline.trees.choose import Limits, admissible, choose  # noqa: E402
from p3s.methods.baseline.trees.diagnostics import gate  # noqa: E402
from p3s.methods.baseline.trees.evaluate import Evaluator  # noqa: E402
from p3s.methods.baseline.trees.grow import grow, p_value, tail  # noqa: E402
from p3s.methods.baseline.trees.store import Stored  # noqa: E402
from p3s.methods.baseline.trees.types import Growing, Table  # noqa: E402

LITERAL = Growing.thesis()
MODES = {
    "as by default": Growing(),
    "default, cuts not blended": Growing(blend=False),
    "default, nothing held to its leaf": Growing(clip=False),
    "default, few values not counted": Growing(few_values=False),
    "the thesis's": LITERAL,
    "the thesis's, 10 rows a leaf": replace(LITERAL, min_rows=10),
}


@dataclass(frozen=True)
class Scores:
    """One tree on the validation set: errors against runs and truth, advice, leaves, seconds."""

    leaves: float
    median: float
    median_true: float
    p90: float
    outliers: float
    exact: float
    regret: float
    regret_worst: float
    top3: float
    top3_worst: float
    seconds: float


def scores(program: str, growing: Growing, seed: int, noise: float = 0.02) -> Scores:
    """Return how a tree of one seed does; training and validation runs have noise of their own."""
    of = machine.workloads(machine.VALIDATION[program])
    train = machine.runs(program, machine.workloads(machine.TRAINING[program]), noise, seed)
    fresh = machine.runs(program, of, noise, 1000 + seed)
    began = time.process_time()
    tree = grow(train, machine.EXPRESSION[program], machine.VARIABLES, growing)
    took = time.process_time() - began
    c = fresh.columns
    told = Evaluator.of(tree).predict(c).value
    true, _ = machine.times(program, c["workload"], c["workers"], c["threads"].astype(int))
    errors = np.abs(told - fresh.y) / fresh.y
    value, real = told.reshape(len(of), -1), true.reshape(len(of), -1)
    order = np.argsort(value, axis=1, kind="stable")
    ratio = np.take_along_axis(real, order, axis=1) / real.min(axis=1)[:, None] - 1
    top = ratio[:, :3].min(axis=1)
    return Scores(
        len(tree.leaves),
        float(np.median(errors)),
        float(np.median(np.abs(told - true) / true)),
        float(np.percentile(errors, 90)),
        gate(errors, c["workload"]).outliers,
        float(np.sum(order[:, 0] == real.argmin(axis=1))),
        float(ratio[:, 0].mean()),
        float(ratio[:, 0].max()),
        float(np.mean(top <= 0.05)),
        float(top.max()),
        took,
    )


def _row(name: str, found: list[Scores]) -> list[str]:
    def mean(field: str) -> float:
        return float(np.mean([getattr(s, field) for s in found]))

    def most(field: str) -> float:
        return max(getattr(s, field) for s in found)

    return [
        name,
        f"{mean('leaves'):.0f}",
        f"{percent(mean('median'))} ({percent(most('median'))})",
        percent(mean("median_true")),
        f"{percent(mean('p90'))} ({percent(most('p90'))})",
        percent(mean("outliers")),
        f"{mean('exact'):.0f}",
        f"{percent(mean('regret'))} ({percent(most('regret'))})",
        percent(most("regret_worst")),
        f"{percent(min(s.top3 for s in found))}",
        percent(most("top3_worst")),
        f"{mean('seconds'):.1f}",
    ]


_HEAD = [
    "",
    "leaves",
    "median (worst seed)",
    "to truth",
    "p90",
    "outliers",
    "exact",
    "mean regret",
    "worst",
    "top 3 in 5 %",
    "worst",
    "s",
]


def on_machine(seeds: range) -> dict[str, Any]:
    """Print errors and advice of all modes."""
    found: dict[str, Any] = {}
    for program in ("nb", "ht"):
        rows = []
        for name, growing in MODES.items():
            mine = [scores(program, growing, seed) for seed in seeds]
            rows.append(_row(name, mine))
            found[f"{program}: {name}"] = [vars(s) for s in mine]
        one = replace(Growing(), minsplit=1e9)
        for name, growing in (
            ("one regression, relative", one),
            ("the same, thesis's weights", replace(LITERAL, minsplit=1e9)),
        ):
            rows.append(_row(name, [scores(program, growing, seed) for seed in seeds]))
        print(
            f"\n{program}, noise 2 %, seeds {seeds.start} to {seeds.stop - 1}\n{table(rows, _HEAD)}"
        )
    return found


def more(seeds: range) -> dict[str, Any]:
    """Print minsplit and noise."""
    for program in ("nb", "ht"):
        rows = [
            _row(f"minsplit {m:g}", [scores(program, Growing(minsplit=m), s) for s in seeds])
            for m in (10, 15, 20, 25, 30, 40, 60)
        ]
        rows.append(_row("noise 10 %", [scores(program, Growing(), s, 0.10) for s in seeds]))
        rows.append(
            _row("noise 10 %, the thesis's", [scores(program, LITERAL, s, 0.10) for s in seeds])
        )
        print(f"\n{program}\n{table(rows, _HEAD)}")
    return {}


def p_values(_: range) -> dict[str, Any]:
    """Print p-values at published critical values."""
    print("\nclosed form of the tail")
    for k, x, known in ((1, 8.68, 0.0506), (2, 11.72, 0.0509), (3, 14.13, 0.0520)):
        print(f"  k={k} pi=.15 x={x}: {math.exp(tail(x, k, 0.15)):.4f} (published {known:.4f})")
    found: dict[tuple[float, float], list[tuple[float, float, float]]] = {}
    for pi, k, level, x in critical_values():
        each = (
            p_value(x, k, pi),
            p_value(x, k, pi, 3600),
            math.exp(tail(x, k, pi)) if pi < 0.5 else math.nan,
        )
        found.setdefault((pi, level), []).append(each)
    rows = []
    for (pi, level), values in found.items():
        off = np.array(values) - level
        walk = np.abs(off[:, 1])
        rows.append(
            [
                f"{pi:g}",
                f"{level:g}",
                *(f"{1e4 * v:+.1f}" for v in off.mean(axis=0)),
                f"{1e4 * off[:, 1].std():.1f}",
                f"{1e4 * walk.max():.1f}",
                f"{np.mean(walk <= 5e-4):.2f}",
            ]
        )
    head = [
        "pi",
        "level",
        "exact",
        "of 3,600 steps",
        "tail",
        "its deviation",
        "largest",
        "share within 5e-4",
    ]
    print(
        "\np at Andrews' (2003) critical values less the level, in 1e-4, mean of 1 to 20 parameters"
    )
    print(table(rows, head))
    every = {
        level: [each[1] - at for (_, at), values in found.items() if at == level for each in values]
        for level in LEVELS
    }
    return {f"{level:g}": float(np.mean(np.abs(off))) for level, off in every.items()}


def false_splits(_: range) -> dict[str, Any]:
    """Print how often a tree of constant parameters is split."""
    rows = []
    for size, k, kind in (
        (100, 2, "random"),
        (300, 2, "random"),
        (1000, 2, "random"),
        (300, 5, "random"),
        (300, 2, "four values"),
        (300, 2, "words"),
    ):
        split = sum(_splits(np.random.default_rng(seed), size, k, kind) for seed in range(1000))
        rows.append([str(size), str(k), kind, percent(split / 1000)])
    print(
        "\nfalse splits at alpha 0.05, four variables, 1,000 tables\n"
        + table(rows, ["rows", "coefficients", "variables", "split"])
    )
    return {}


def _splits(rng: np.random.Generator, size: int, k: int, kind: str) -> bool:
    columns = {f"x{i}": rng.random(size) for i in range(k - 1)}
    y = 2 + sum(columns.values()) + 0.1 * rng.standard_normal(size)
    names = [f"z{i}" for i in range(4)]
    for name in names:
        columns[name] = rng.random(size) if kind == "random" else rng.integers(0, 4, size) * 1.0
    levels = {name: tuple("abcd") for name in names} if kind == "words" else {}
    expression = " + ".join([*(f"b{i + 1}*x{i}" for i in range(k - 1)), "b0"])
    return len(grow(Table(columns, y, levels), expression, names, Growing("plain")).nodes) > 1


def sine(_: range) -> dict[str, Any]:
    """Print where the sine of the thesis's figure 4.1 is split."""
    x = np.linspace(0, 2 * np.pi, 200)
    cuts, leaves = [], []
    for seed in range(100):
        y = 10 + np.sin(x) + 0.1 * np.random.default_rng(seed).standard_normal(200)
        tree = grow(Table({"x": x}, y), "b2*x**2 + b1*x + b0", ["x"], Growing("plain", minsplit=25))
        leaves.append(len(tree.leaves))
        cuts.append(tree.nodes[0].split.low if tree.nodes[0].split else math.nan)
    print(
        f"\nsine, 100 seeds: two leaves in {leaves.count(2)}, first split at {np.median(cuts):.2f} "
        f"({min(cuts):.2f} to {max(cuts):.2f}); the thesis's is near 3.2"
    )
    return {}


def speed(_: range) -> dict[str, Any]:
    """Print how long advice for another workload takes."""
    train = machine.runs("nb", machine.workloads(machine.TRAINING["nb"]), 0.02, 0)
    variables = [name for name in machine.VARIABLES if not name.startswith("l2")]
    stored = Stored(grow(train, machine.EXPRESSION["nb"], variables))
    evaluator = Evaluator.of(stored.tree)
    pairs = admissible(range(2, 29), range(1, 9), Limits())[:200]
    took = []
    for workload in np.geomspace(100, 50000, 300):
        began = time.perf_counter()
        choose(evaluator, stored.columns(float(workload), pairs, {}))
        took.append(1e3 * (time.perf_counter() - began))
    print(f"\nadvice over 200 configurations: {np.median(took):.2f} ms in the median")
    return {"advice_ms": float(np.median(took))}


def figures(quick: bool) -> Found:
    """Return errors of trees, of one regression and of the thesis's trees, means over the seeds."""
    out, seeds = [], range(1 if quick else 5)
    for program in ("nb", "ht"):
        for name, growing in (
            ("tree", Growing()),
            ("the thesis's tree", LITERAL),
            ("one regression", replace(Growing(), minsplit=1e9)),
        ):
            mine = [scores(program, growing, seed) for seed in seeds]
            median = 100 * float(np.mean([one.median for one in mine]))
            regret = 100 * float(np.mean([one.regret for one in mine]))
            out.append(Figure(f"{program}, {name}: median error", median, "%"))
            out.append(Figure(f"{program}, {name}: mean regret", regret, "%"))
    return Found(tuple(out))


PARTS: dict[str, Callable[[range], dict[str, Any]]] = {
    "machine": on_machine,
    "more": more,
    "pvalues": p_values,
    "false": false_splits,
    "sine": sine,
    "speed": speed,
}


def main() -> None:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.seeds)
    found = {name: PARTS[name](seeds) for name in given.only.split(",")}
    if given.out:
        given.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
