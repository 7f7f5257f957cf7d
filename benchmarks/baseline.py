"""How far regressions of run times miss: the whole run against its parts, and the published case.

    python benchmarks/accuracy/run.py --dir DIR --out raw.json      (programs in a simulator)
    python benchmarks/baseline.py --dir DIR --raw raw.json [--out baseline.json]
    python benchmarks/baseline.py                                    (only the published case)

The first table takes the small runs of every program of the accuracy benchmark: regressions of the
run time, and of computation and communication each by itself, are compared with the truth at
larger counts, beside the prediction from traces. The second is Linpack by its cost model, with the
process counts of Kazmina and Antonov. Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
HERE = Path(__file__).resolve().parent
# This directory has a replay.py, which must not be taken for the package.
sys.path = [*(path for path in sys.path if Path(path).resolve() != HERE), str(ROOT), str(HERE)]

from figures import Figure, Found  # noqa: E402

from benchmarks.regression import explicit  # noqa: E402
from benchmarks.regression.parts import fit_parts  # noqa: E402
from p3s.base.errors import P3SError  # noqa: E402
from p3s.base.study import Study  # noqa: E402
from p3s.laws.statistics import relative_error, scores  # noqa: E402
from p3s.methods.baseline.families import FAMILIES, Data, fit, weights_of  # noqa: E402
from p3s.methods.baseline.fromstudy import times_of_study  # noqa: E402
from p3s.methods.baseline.model import fit_series  # noqa: E402
from p3s.methods.baseline.times import from_mapping, series_of  # noqa: E402

AUTOMATIC = [name for name, family in FAMILIES.items() if family.automatic]
SMALL = np.arange(16.0, 129.0, 4.0)
LARGE = np.array([144.0, 256.0, 400.0, 576.0, 784.0, 1024.0])
#: Operations and bytes per second of a core, seconds of a message: the two machines.
MACHINES = {"older": (10e9, 3.2e9, 2e-6), "newer": (30e9, 6.0e9, 1.5e-6)}
SERIES = (("older", 16384.0), ("older", 25600.0), ("newer", 25600.0), ("newer", 50000.0))
SEEDS = 50


# ---- programs of the accuracy benchmark ----------------------------------------------------


def of_program(study: Study, truth: Mapping[int, float]) -> list[dict[str, Any]]:
    """Return, for every count above the traced ones, what the regressions say and miss by."""
    found = times_of_study(study)
    whole = fit_series(series_of(found.runs))
    seconds: dict[str, dict[int, float]] = {}
    for part in ("compute", "comm"):
        series = series_of(found.runs, component=part)
        seconds[part] = {point.n: point.seconds for point in series.points}
    parts = fit_parts(seconds)
    last = max(whole.counts)
    rows = []
    for n, true in sorted(truth.items()):
        if n <= last:
            continue
        said = whole.say([n])[0]
        every = {}
        for name in AUTOMATIC:
            data = Data.of(whole.points)
            told = float(fit(name, data, weights_of("relative", data.seconds)).predict([n])[0])
            every[name] = relative_error(told, true)
        each = {name: float(value[0]) for name, value in parts.each([n]).items()}
        rows.append(
            {
                "n": n,
                "truth_s": true,
                "family": whole.fitted.family,
                "whole": relative_error(said.seconds, true),
                "covered": None if said.low is None else bool(said.low <= true <= said.high),
                "every": every,
                "parts_s": each,
                "families": {name: c.fitted.family for name, c in parts.choices.items()},
                "parts": relative_error(sum(each.values()), true),
            }
        )
    return rows


def programs(directory: Path, raw: Path | None) -> list[dict[str, Any]]:
    """Return the rows of all programs in a directory that the accuracy benchmark kept."""
    traced: dict[tuple[str, int], float] = {}
    if raw is not None:
        for row in json.loads(raw.read_text())["programs"]:
            for count in row["counts"]:
                traced[row["program"], count["n"]] = count["error"]
    found = []
    for place in sorted(directory.glob("*/simulated.json")):
        truth = {int(n): float(t) for n, t in json.loads(place.read_text())["truth_s"].items()}
        try:
            rows = of_program(Study.open(place.parent / "study"), truth)
        except P3SError as error:
            print(f"{place.parent.name}: {error}", file=sys.stderr)
            continue
        for row in rows:
            row["traces"] = traced.get((place.parent.name, row["n"]))
        found.append({"program": place.parent.name, "counts": rows})
    return found


def signed(error: float | None) -> str:
    """Return an error in percent with its sign."""
    return "-" if error is None else f"{100 * error:+.1f} %"


def programs_table(found: Sequence[Mapping[str, Any]]) -> str:
    """Return a Markdown table of all larger counts, and what closer means at the largest."""
    lines = [
        "| program | n | truth, ms | run time (form) | T(n) | computation + communication "
        "(forms) | closer | from traces |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for program in found:
        for row in program["counts"]:
            forms = " + ".join(row["families"].values())
            closer = "parts" if abs(row["parts"]) < abs(row["whole"]) else "run time"
            lines.append(
                f"| {program['program']} | {row['n']} | {1e3 * row['truth_s']:.2f} | "
                f"{signed(row['whole'])} ({row['family']}) | "
                f"{signed(row['every']['three-term'])} | {signed(row['parts'])} ({forms}) | "
                f"{closer} | {signed(row['traces'])} |"
            )
    at_last = [program["counts"][-1] for program in found]
    for what in ("whole", "parts", "traces"):
        errors = scores(row[what] for row in at_last)
        if errors.count:
            lines.append(
                f"\n{what}: at the largest count median {100 * errors.median:.1f} %, mean "
                f"{100 * errors.mean:.1f} %, largest {100 * errors.largest:.1f} % "
                f"({errors.count} programs)"
            )
    won = sum(abs(row["parts"]) < abs(row["whole"]) for row in at_last)
    told = [row["covered"] for p in found for row in p["counts"] if row["covered"] is not None]
    lines.append(
        f"\nparts closer at the largest count: {won} of {len(at_last)}; intervals of the "
        f"run time's regression that hold the truth: {sum(told)} of {len(told)}"
    )
    return "\n".join(lines)


# ---- Linpack by its cost model -------------------------------------------------------------


def linpack(n: float, q: np.ndarray, machine: str) -> np.ndarray:
    """Return seconds by the cost model of HPL's authors on the squarest P x Q grid.

    2 N^3 / 3PQ operations, N^2 (3P+Q) / 2PQ words, N ((NB+1) log2 P + P) / NB messages, NB = 128.
    """
    speed, bandwidth, latency = MACHINES[machine]
    counts = np.asarray(q, dtype=int)
    p = np.array([max(i for i in range(1, math.isqrt(k) + 1) if k % i == 0) for k in counts])
    return np.asarray(
        2 * n**3 / (3 * counts) / speed
        + n * n * (3 * p + counts / p) / (2 * counts) * 8 / bandwidth
        + latency * n * (129 * np.log2(p) + p) / 128
    )


def slower(seconds: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Return times of runs that were disturbed: never faster."""
    return np.asarray(seconds * (1 + share * np.abs(rng.standard_normal(len(seconds)))))


def linpack_rows() -> list[dict[str, Any]]:
    """Return medians of T(n) over targets and seeds, per noise and weights."""
    rows = []
    for noise in (0.0, 0.01, 0.02, 0.05):
        for weights in ("absolute", "relative"):
            medians = {}
            for machine, n in SERIES:
                each = []
                for seed in range(SEEDS if noise else 1):
                    seconds = slower(linpack(n, SMALL, machine), noise, np.random.default_rng(seed))
                    made = fit_series(
                        from_mapping(
                            dict(zip(SMALL.astype(int).tolist(), seconds.tolist(), strict=True))
                        ),
                        ["three-term"],
                        weights=weights,
                    )
                    told, true = made.fitted.predict(LARGE), linpack(n, LARGE, machine)
                    each.append(scores((told - true) / true).median)
                medians[f"{machine}, N={n:.0f}"] = float(np.median(each))
            rows.append(
                {
                    "noise": noise,
                    "weights": weights,
                    "medians": medians,
                    "range": (min(medians.values()), max(medians.values())),
                }
            )
    return rows


def explicit_rows() -> dict[str, Any]:
    """Return what the model with all small times as inputs does: rank, refusal, errors."""
    errors: list[float] = []
    rank, why = 0, ""
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        small_counts = np.arange(4.0, 129.0, 4.0)
        small, large = [], []
        for machine, n in SERIES:
            for counts, into in ((small_counts, small), (LARGE, large)):
                seconds = slower(linpack(n, counts, machine), 0.02, rng)
                into.append(dict(zip(counts.astype(int).tolist(), seconds.tolist(), strict=True)))
        rows = explicit.design(small, large, [{"size": n} for _, n in SERIES])
        rank = rows.rank
        try:
            explicit.fit(rows)
        except P3SError as error:
            why = str(error)
        for left in range(len(SERIES)):
            out = np.array(rows.series) == left
            told = explicit.fit(rows.only(~out), anyway=True).predict(rows.only(out))
            errors += (told / rows.seconds[out] - 1).tolist()
    found = scores(errors)
    return {
        "rows": 24,
        "coefficients": 34,
        "rank": rank,
        "why": why,
        "median": found.median,
        "mean": found.mean,
    }


def linpack_table(rows: Sequence[Mapping[str, Any]], explicitly: Mapping[str, Any]) -> str:
    """Return both as Markdown."""
    names = list(rows[0]["medians"])
    lines = [
        f"| noise | weights | {' | '.join(names)} | range |",
        f"|---|---|{'---|' * len(names)}---|",
    ]
    for row in rows:
        low, high = row["range"]
        cells = " | ".join(f"{100 * row['medians'][name]:.1f} %" for name in names)
        lines.append(
            f"| {100 * row['noise']:.0f} % | {row['weights']} | {cells} | "
            f"{100 * low:.1f}-{100 * high:.1f} % |"
        )
    lines.append(
        f"\nexplicit model: {explicitly['rows']} rows, {explicitly['coefficients']} "
        f"coefficients, rank {explicitly['rank']}; median error of a series left out "
        f"{100 * explicitly['median']:.0f} %, mean {100 * explicitly['mean']:.0f} %; "
        f"refused: {explicitly['why']}"
    )
    return "\n".join(lines)


def figures(quick: bool) -> Found:
    """Return the medians of T(n) for Linpack's cost model, and what the explicit model misses by.

    Those of programs need what benchmarks/accuracy/run.py keeps.
    """
    out = [
        Figure(
            f"Linpack, {machine}, {row['noise']:.0%} noise, {row['weights']} weights: median error",
            100 * median,
            "%",
        )
        for row in linpack_rows()
        for machine, median in row["medians"].items()
    ]
    name = "Linpack, all small times as inputs, refused: median error"
    return Found((*out, Figure(name, 100 * explicit_rows()["median"], "%")))


def main() -> int:
    """Run the benchmark; print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--dir", type=Path, help="what benchmarks/accuracy/run.py --dir kept")
    parser.add_argument("--raw", type=Path, help="what it wrote with --out")
    parser.add_argument("--out", type=Path, help="write everything that was seen, as JSON")
    args = parser.parse_args()
    seen: dict[str, Any] = {}
    if args.dir is not None:
        seen["programs"] = programs(args.dir, args.raw)
        if not seen["programs"]:
            print(f"baseline.py: {args.dir}: nothing of the accuracy benchmark", file=sys.stderr)
            return 1
        print(programs_table(seen["programs"]), end="\n\n")
    seen["linpack"], seen["explicit"] = linpack_rows(), explicit_rows()
    print(linpack_table(seen["linpack"], seen["explicit"]))
    if args.out is not None:
        args.out.write_text(json.dumps(seen, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
