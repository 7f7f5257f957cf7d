"""Fit how far run times are off by what no part of an interval knows (p3s/predict/scale.toml).

    python benchmarks/interval_scale.py

ln(predicted / true) of the rows of benchmarks/results/run-times.csv and public-run-times.csv is
taken as Student's t with 4 degrees of freedom, whose scale is the root of the sum of squares of
three terms: of the run time (floor), of the time in calls (messages), and of that for each doubling
beyond 32, the largest traced count (doubling). The likeliest coefficients on a grid are printed,
and how often 90 % intervals hold for programs left out of the fit. Programs refused for what is not
fitted here are left out: their structure is not known, or their computation is uncertain.
"""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results"
FREEDOM, T90 = 4, 2.1318
#: Reasons with which a program is fitted.
KEPT = {"", "none", "other-calls"}
#: Where the share of communication is not in a table.
USUAL_SHARE = 0.5
GRID = (np.geomspace(5e-4, 0.1, 30), [0.0, *np.geomspace(2e-3, 0.3, 25)])


@dataclass(frozen=True)
class Row:
    """A run time: ln(predicted / true), share of communication, doublings beyond the traced."""

    program: str
    off: float
    share: float
    doublings: int


def rows() -> list[Row]:
    """Return the rows of all programs that are fitted."""
    found = []
    for name in ("run-times.csv", "public-run-times.csv"):
        for line in csv.DictReader((RESULTS / name).open()):
            if line["reason of exit code 3"] not in KEPT:
                continue
            errors = line["error at 64, 128, 256, %"].split(",")
            shares = (line.get("communication there, %") or "").split(",")
            for k, error in enumerate(errors):
                share = float(shares[k]) / 100 if k < len(shares) and shares[k] else USUAL_SHARE
                found.append(Row(line["program"], math.log1p(float(error) / 100), share, k + 1))
    return found


def scale(found: Sequence[Row], floor: float, messages: float, doubling: float) -> np.ndarray:
    """Return the scale of each row."""
    share = np.array([row.share for row in found])
    doublings = np.array([row.doublings for row in found])
    return np.sqrt(floor**2 + share**2 * (messages**2 + (doubling * doublings) ** 2))


def fitted(found: Sequence[Row]) -> tuple[float, float, float]:
    """Return the likeliest coefficients."""
    off = np.array([row.off for row in found])

    def unlikely(coefficients: tuple[float, float, float]) -> float:
        width = scale(found, *coefficients)
        tail = np.log1p((off / width) ** 2 / FREEDOM)
        return float((np.log(width) + (FREEDOM + 1) / 2 * tail).sum())

    return min(itertools.product(*GRID, GRID[1]), key=unlikely)


def main() -> None:
    """Print the coefficients, and what intervals of those of other programs hold."""
    found = rows()
    print("floor, messages, doubling:", *(f"{each:.4f}" for each in fitted(found)))
    programs = sorted({row.program for row in found})
    held, widths = 0, []
    for program in programs:
        mine = [row for row in found if row.program == program]
        rest = fitted([row for row in found if row.program != program])
        width = T90 * scale(mine, *rest)
        held += int((np.abs([row.off for row in mine]) <= width).sum())
        widths += width.tolist()
    print(
        f"{len(programs)} programs, each left out: {held} of {len(found)} intervals hold, "
        f"median half width {100 * float(np.median(widths)):.1f} %"
    )


if __name__ == "__main__":
    main()
