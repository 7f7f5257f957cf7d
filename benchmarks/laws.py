"""How well laws are recovered: laws right at 4,096, errors and intervals under noise, chance laws.

    python benchmarks/all.py --only laws,laws:noisy,laws:chance

The laws, counts and noise are those of the anchors measured with Extra-P 4.2.5, whose numbers
stand beside ours (its best option, allow_negative_exponents).
"""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import time
from collections.abc import Callable

import numpy as np
from figures import Figure, Found

from p3s.laws.lawfinder import REFUSED, find_law
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


def right_laws() -> int:
    """Return how many of the laws are right within 0.1 % from five points."""
    found = {name: find_law([(p, law(p)) for p in POWERS]) for name, law in LAWS.items()}
    return sum(
        found[name].verdict != REFUSED and abs(found[name].value(FAR) / law(FAR) - 1) <= 1e-3
        for name, law in LAWS.items()
    )


def noisy(quick: bool) -> Found:
    """Return errors and coverage at 1,024 over seeded trials of five counts with five repeats."""
    out, trials, noise, far = [], 100 if quick else 1000, 0.01, 1024
    ns = [p for p in POWERS for _ in range(5)]
    for name, (law, extra_p) in NOISY.items():
        truth = law(far)
        errors, held = [], 0
        for seed in range(trials):
            rng = np.random.default_rng(seed)
            y = np.array([law(p) for p in ns]) * (1 + noise * rng.standard_normal(len(ns)))
            found = fit_work(ns, y)
            low, high = found.interval(far)
            errors.append(100 * abs(float(found.value(far)) / truth - 1))
            held += low <= truth <= high
        of = f"{name}, 1 % noise"
        median, most = (float(np.quantile(errors, q)) for q in (0.5, 0.9))
        theirs = [float(each) for each in extra_p.split("/") if each.strip() != "-"] or [None] * 2
        out.append(Figure(f"{of}: median error", median, "%", 5, False, "Extra-P", theirs[0]))
        out.append(Figure(f"{of}: 90th percentile", most, "%", None, False, "Extra-P", theirs[1]))
        out.append(Figure(f"{of}: 90 % interval holds", 100 * held / trials, "%", 85, True))
    return Found(tuple(out))


def chance(quick: bool) -> Found:
    """Return the share of random whole numbers that some exact law is claimed for."""
    out, trials = [], 100 if quick else 1000
    for counts in (POWERS, SQUARES, POWERS[:4], SQUARES[:4], POWERS[:3]):
        for most in (10, 100, 10_000):
            rng = random.Random(most)
            hits = sum(
                find_law({p: rng.randint(0, most) for p in counts}, "whole").law is not None
                for _ in range(trials)
            )
            name = f"a law by chance at {','.join(map(str, counts))}, up to {most:,}"
            out.append(Figure(name, 100 * hits / trials, "%", 1 if len(counts) > 3 else None))
    return Found(tuple(out))


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
    right = right_laws()
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


PARTS = {"noisy": noisy, "chance": chance}
