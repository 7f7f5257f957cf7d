"""How well laws are recovered: laws right at 4,096, errors and intervals under noise, chance laws.

    python benchmarks/laws.py [--trials 1000] [--json]

The laws, counts and noise are those of the anchors measured with Extra-P 4.2.5, whose numbers
stand beside ours (its best option, allow_negative_exponents). Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parent))
from figures import Figure, Found

from p3s.laws.lawfinder import EXACT, REFUSED, find_law
from p3s.laws.worklaws import fit_work

POWERS, SQUARES = (4, 8, 16, 32, 64), (4, 9, 16, 25, 36)
A, B, C = 1000.0, 1.0, 10.0
FAR = 4096

Law = Callable[[int], float]

#: The 13 laws, as programs give them: exact whole numbers where they are counts.
LAWS: dict[str, Law] = {
    "4": lambda p: 4,
    "P-1": lambda p: p - 1,
    "sqrt(P)": lambda p: math.sqrt(p),
    "ceil(log2 P)": lambda p: (p - 1).bit_length(),
    "4P-4sqrt(P)": lambda p: 4 * p - 4 * math.sqrt(p),
    "2sqrt(P)-1": lambda p: 2 * math.sqrt(p) - 1,
    "c/sqrt(P)": lambda p: A / math.sqrt(p),
    "c/P^(2/3)": lambda p: A / p ** (2 / 3),
    "c/P^2": lambda p: A / p**2,
    "c/P": lambda p: A / p,
    "c/P+s": lambda p: A / p + C,
    "a/P+b*log2P+c": lambda p: A / p + B * math.log2(p) + C,
    "a/P+b*P": lambda p: A / p + 0.5 * p,
}

#: Extra-P's laws right of 13 with 5 powers of two and with 5 squares.
EXTRA_P_RIGHT = {POWERS: "10 (5 by default)", SQUARES: "9"}


def grid(n: int) -> dict[str, int]:
    """Return n processes on a 2-D grid as square as powers of two allow."""
    k = n.bit_length() - 1
    return {"n": n, "p0": 1 << (k + 1) // 2, "p1": 1 << k // 2}


#: Further laws of the symbols, the counts they are found from, extents known beforehand.
FURTHER: dict[str, tuple[Callable[[dict[str, int]], int], tuple[int, ...], tuple[int, ...]]] = {
    "ceil(L/p)": (lambda e: -(-1000037 // e["n"]), POWERS, ()),
    "floor(L/p)": (lambda e: 1000037 // e["n"], POWERS, ()),
    "L mod p": (lambda e: 2503 % e["n"], SQUARES, ()),
    "L mod p, L known": (lambda e: 100003 % e["n"], POWERS, (100003,)),
    "ceil(L/px)*ceil(M/py)": (lambda e: -(-3001 // e["p0"]) * -(-1999 // e["p1"]), POWERS, ()),
    "p(p-1)": (lambda e: e["n"] * (e["n"] - 1), POWERS, ()),
    "log2 of an extent": (lambda e: 3 * (e["p0"].bit_length() - 1), POWERS, ()),
    "2^k": (lambda e: 1 << (e["n"].bit_length() - 1), (4, 9, 16, 25, 36), ()),
    "parity of log2 n": (
        lambda e: (3 if e["n"].bit_length() % 2 else 5) * (1 << (e["n"].bit_length() - 1) // 2),
        POWERS,
        (),
    ),
}

#: Laws with noise: (law, Extra-P's median and 90th percentile of the error at 1,024, in per cent).
NOISY: dict[str, tuple[Law, str]] = {
    "c/P+s (1000, 10)": (lambda p: A / p + 10, "6.5 / 14.7"),
    "c/P+s (1000, 1)": (lambda p: A / p + 1, "6.5 / 14.7"),
    "c/P+s (640, 0.5)": (lambda p: 640 / p + 0.5, "6.5 / 14.7"),
    "a/P+b*log2P+c (1000, 1, 10)": (lambda p: A / p + math.log2(p) + 10, "20.5 / 31.3"),
    "a/P+b*log2P+c (1000, 1, 5)": (lambda p: A / p + math.log2(p) + 5, "20.5 / 31.3"),
    "a/P+b*log2P+c (1000, 5, 20)": (lambda p: A / p + 5 * math.log2(p) + 20, "20.5 / 31.3"),
    "a/P+b*log2P+c (100, 0.5, 1)": (lambda p: 100 / p + 0.5 * math.log2(p) + 1, "20.5 / 31.3"),
    "a/P+b*P (1000, 0.5)": (lambda p: A / p + 0.5 * p, "72.5 / 79.8"),
    "sqrt(P)": (lambda p: 3 * math.sqrt(p), "0.6 / 5.6"),
    "c/P": (lambda p: A / p, "-"),
}


def noise_free() -> list[dict[str, Any]]:
    """Return the 13 laws from five and from four points: right within 0.1 %, slowest law."""
    out: list[dict[str, Any]] = []
    find_law({4: 1.1, 8: 2.3, 16: 3.2, 32: 4.9})  # imports and tables are made once
    for counts in (POWERS, SQUARES, POWERS[:4], SQUARES[:4]):
        wrong, slowest = [], 0.0
        for name, law in LAWS.items():
            points = [(p, law(p)) for p in counts]
            start = time.process_time()
            found = find_law(points)
            slowest = max(slowest, time.process_time() - start)
            if found.verdict == REFUSED or abs(found.value(FAR) / law(FAR) - 1) > 1e-3:
                wrong.append(name)
        out.append(
            {
                "counts": list(counts),
                "right": len(LAWS) - len(wrong),
                "wrong": wrong,
                "slowest_ms": 1e3 * slowest,
                "extra_p": EXTRA_P_RIGHT.get(counts, "-"),
            }
        )
    return out


def further() -> list[dict[str, Any]]:
    """Return the further laws: what is found and whether it is right at 4,096."""
    out = []
    for name, (law, counts, known) in FURTHER.items():
        on_grid = "p0" in law.__code__.co_consts
        points = [grid(p) if on_grid else {"n": p} for p in counts]
        found = find_law([(e, law(e)) for e in points], known=known)
        far = grid(FAR) if on_grid else {"n": FAR}
        out.append(
            {
                "law": name,
                "counts": list(counts),
                "found": found.text(),
                "verdict": found.verdict,
                "right": found.verdict != REFUSED and found.value(far) == law(far),
            }
        )
    return out


def noisy(
    trials: int, noise: float = 0.01, repeats: int = 5, far: int = 1024
) -> list[dict[str, Any]]:
    """Return errors and coverage at ``far`` over seeded trials of five counts with repeats."""
    out = []
    for name, (law, extra_p) in NOISY.items():
        truth = law(far)
        errors, held, refused, negative, spent, width = [], 0, 0, 0, 0.0, []
        for seed in range(trials):
            rng = np.random.default_rng(seed)
            ns = [p for p in POWERS for _ in range(repeats)]
            y = np.array([law(p) for p in ns]) * (1 + noise * rng.standard_normal(len(ns)))
            start = time.process_time()
            found = fit_work(ns, y)
            spent = max(spent, time.process_time() - start)
            low, high = found.interval(far)
            errors.append(abs(float(found.value(far)) / truth - 1))
            width.append((high - low) / 2 / truth)
            held += low <= truth <= high
            refused += found.refused is not None
            negative += bool(np.any(found.value(np.geomspace(1, 1e7, 60)) < 0)) or low < 0
        out.append(
            {
                "law": name,
                "median": float(np.median(errors)),
                "p90": float(np.quantile(errors, 0.9)),
                "held": held / trials,
                "half_width": float(np.median(width)),
                "refused": refused / trials,
                "negative": negative,
                "slowest_ms": 1e3 * spent,
                "extra_p": extra_p,
            }
        )
    return out


def chance(trials: int) -> list[dict[str, Any]]:
    """Return the share of random whole numbers that some exact law is claimed for."""
    out = []
    for counts in (POWERS, SQUARES, POWERS[:4], SQUARES[:4], POWERS[:3]):
        for most in (10, 100, 10_000):
            rng = random.Random(most)
            hits = sum(
                find_law({p: rng.randint(0, most) for p in counts}, "whole").law is not None
                for _ in range(trials)
            )
            out.append({"counts": list(counts), "most": most, "claimed": hits / trials})
    return out


#: Extra-P's best law of each set of points that it reads; prints CPU seconds, without its start,
#: and the values of the laws at a count.
_EXTRA_P = """import json, sys, time
from extrap.entities.coordinate import Coordinate
from extrap.entities.measurement import Measurement
from extrap.entities.callpath import Callpath
from extrap.entities.metric import Metric
from extrap.modelers.single_parameter.basic import SingleParameterModeler
sets = [[Measurement(Coordinate(p), Callpath("a"), Metric("b"), [v]) for p, v in points]
        for points in json.loads(sys.stdin.readline())]
far = int(sys.argv[1])
modeler = SingleParameterModeler()
modeler.allow_negative_exponents = True
modeler.create_model(sets[0])
begin = time.process_time()
found = [modeler.create_model(points) for points in sets]
took = time.process_time() - begin
print(took, *[float(one.hypothesis.function.evaluate(far)) for one in found])
"""


def extra_p(sets: list[list[tuple[int, float]]]) -> tuple[float, list[float]] | None:
    """Return in how many CPU seconds Extra-P finds laws, and their values at FAR; None without."""
    python = os.environ.get("P3S_BENCH_EXTRAP")
    if not python:
        return None
    done = subprocess.run(
        [python, "-c", _EXTRA_P, str(FAR)],
        input=json.dumps(sets),
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    took, *values = map(float, done.stdout.splitlines()[-1].split())
    return took, values


def figures(quick: bool) -> Found:
    """Return how many of the 13 laws are right, and how long they take, beside Extra-P."""
    sets = [[(p, float(law(p))) for p in POWERS] for law in LAWS.values()]
    right = noise_free()[0]["right"]
    begin = time.process_time()
    for points in sets:
        find_law(points)
    ours = (time.process_time() - begin) / len(sets)
    peer = extra_p(sets)
    missing = "missing: P3S_BENCH_EXTRAP is no Python with it" if peer is None else ""
    right_there = theirs = None
    if peer is not None:
        theirs = 1e3 * peer[0] / len(sets)
        truth = [law(FAR) for law in LAWS.values()]
        right_there = sum(
            abs(value / true - 1) <= 1e-3 for value, true in zip(peer[1], truth, strict=True)
        )
    name = "laws right of 13, five counts"
    return Found(
        (
            Figure(name, right, "laws", 13, True, "Extra-P", right_there, missing),
            Figure("a law, CPU time", 1e3 * ours, "ms", None, False, "Extra-P", theirs, missing),
        )
    )


def main() -> int:
    """Print the tables, or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--noise", type=float, default=0.01)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    data = {
        "noise_free": noise_free(),
        "further": further(),
        "noisy": noisy(args.trials, args.noise),
        "chance": chance(args.trials),
    }
    if args.json:
        json.dump(data, sys.stdout, indent=1)
        return 0
    print(f"13 laws without noise, right within 0.1 % at {FAR} processes")
    for r in data["noise_free"]:
        print(
            f"  {str(r['counts']):24} {r['right']:>2} of {len(LAWS)}   slowest "
            f"{r['slowest_ms']:5.1f} ms   Extra-P {r['extra_p']}"
            + (f"   wrong: {', '.join(r['wrong'])}" if r["wrong"] else "")
        )
    print(f"further laws at {FAR} processes")
    for r in data["further"]:
        print(
            f"  {r['law']:24} {'right' if r['right'] else 'WRONG':6} {r['verdict']:10} {r['found']}"
        )
    print(
        f"{100 * args.noise:g} % noise, 5 counts x 5 repeats, {args.trials} trials, error at "
        "1,024 (per cent)"
    )
    print(
        f"  {'law':30}{'median':>8}{'p90':>8}{'interval holds':>16}{'half width':>12}"
        f"{'refused':>9}{'negative':>10}{'ms':>7}   Extra-P median / p90"
    )
    for r in data["noisy"]:
        print(
            f"  {r['law']:30}{100 * r['median']:8.1f}{100 * r['p90']:8.1f}"
            f"{100 * r['held']:14.1f} %{100 * r['half_width']:10.1f} %{100 * r['refused']:7.1f} %"
            f"{r['negative']:10}{r['slowest_ms']:7.1f}   {r['extra_p']}"
        )
    print("random whole numbers for which an exact law is claimed")
    for r in data["chance"]:
        print(f"  {str(r['counts']):24} 0..{r['most']:<7} {100 * r['claimed']:6.2f} %")
    print(f"verdict {EXACT!r}: met exactly, with points to spare")
    return 0


if __name__ == "__main__":
    sys.exit(main())
