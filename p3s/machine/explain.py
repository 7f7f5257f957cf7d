"""Which mixtures of a machine's kernels cost as a place does: what its time is made of.

The cost of a place over x (work per iteration) is a sum of a constant, for whatever touches no
memory, and of costs of memory kernels at the working set that belongs to x; no part is negative.
Usually several mixtures explain a curve as well: all of them are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from p3s.machine.machinefile import Curve, Machine

#: Operations of a kernel that one instruction can do at most: eight doubles of the widest vector.
MOST_PER_INSTRUCTION = 8.0
#: Relative misfit that is always allowed: kernels are no programs.
ALLOWED = 0.03
#: A misfit so much larger than the best is still about as good.
ABOUT_AS_WELL = 1.3
#: Misfit above which the kernels do not explain the curve.
UNEXPLAINED = 0.25
#: Working sets in the middle of the points where nothing is known: from, to, steps per doubling.
SMALLEST, LARGEST, EACH = 12.0, 31.0, 3
#: Exponents of the working set over the work: all data is touched a fixed number of times per
#: iteration; matrices are multiplied; all pairs meet.
EXPONENTS = (1.0, 2.0 / 3.0, 0.5)
#: Shares of the filled memory that a place may work on, in powers of two; most work on most of it.
SHARES, SHARE_WIDTH = np.arange(0.0, -6.5, -0.5), 2.0
#: log2 of instructions per byte of a working set, as programs have them (4), and its standard
#: deviation in doublings (a factor of ten).
LIKELY, LIKELY_WIDTH = 2.0, 3.3
#: What each memory kernel more takes from the logarithm of how likely a mixture is.
SIMPLER = 1.5

FloatArray = np.ndarray


@dataclass(frozen=True)
class Kernel:
    """A memory kernel on both machines: name ("read", "read on all cores"), curves."""

    name: str
    base: Curve
    target: Curve


def memory_kernels(base: Machine, target: Machine) -> list[Kernel]:
    """Return the memory kernels of two machines; those of all cores where either has them.

    Where a machine has no curve of all cores (it has one core) the one alone takes its place.
    """
    found = [
        Kernel(name, base.curves[name], target.curves[name])
        for name in base.curves
        if name in target.curves
    ]
    for name in dict.fromkeys([*base.loaded.curves, *target.loaded.curves]):
        one, other = base.loaded.curves.get(name), target.loaded.curves.get(name)
        found.append(
            Kernel(f"{name} on all cores", one or base.curves[name], other or target.curves[name])
        )
    return found


@dataclass(frozen=True)
class Sizes:
    """Candidates for the working set over x: log2 w = first + exponent log2 x, one each.

    prior: logarithm of how likely each is beforehand; it moves the value of a factor, no interval.
    """

    first: FloatArray
    exponent: FloatArray
    prior: FloatArray

    def at(self, u: FloatArray) -> FloatArray:
        """Return log2 of the working set at u = log2 x: shape (candidates, len(u))."""
        return np.asarray(self.first[:, None] + self.exponent[:, None] * u[None, :])


def unknown_sizes(middle: float) -> Sizes:
    """Return candidates where nothing tells the working set; middle: log2 x of the points."""
    there = np.arange(SMALLEST, LARGEST + 1e-9, 1.0 / EACH)
    rows = [
        (size - exponent * middle, exponent, _likely(middle - size - LIKELY, LIKELY_WIDTH))
        for exponent in EXPONENTS
        for size in there
    ]
    return Sizes(*np.array(rows).T)


def _likely(distance: float, width: float) -> float:
    return -0.5 * (distance / width) ** 2


def resident_sizes(x: Sequence[float], nbytes: Sequence[float]) -> Sizes | None:
    """Return candidates from memory filled per rank at some x: a place works on a share of it.

    None where no memory is known.
    """
    known = [(np.log2(a), np.log2(b)) for a, b in zip(x, nbytes, strict=True) if a > 0 and b > 0]
    if not known:
        return None
    u, w = np.array(known).T
    exponents = [EXPONENTS[0]]
    if np.ptp(u) > 0.5:
        slope = float(np.clip(np.polyfit(u, w, 1)[0], 0.0, 1.5))
        exponents = [slope, *([1.0] if abs(slope - 1.0) > 0.1 else [])]
    rows = [
        (w.mean() - exponent * u.mean() + share, exponent, _likely(share, SHARE_WIDTH))
        for exponent in exponents
        for share in SHARES
    ]
    return Sizes(*np.array(rows).T)


@dataclass(frozen=True)
class Explanations:
    """Mixtures that explain a curve about as well as the best one.

    size: number of the working set candidate of each; columns: (mixtures, 3), number of the memory
    kernel, 0 for the constant plus one, -1 for none; parts: (mixtures, 3), operations per unit of
    work (the constant: ns); misfit: relative, root of the mean square; best: the least.
    """

    size: np.ndarray
    columns: np.ndarray
    parts: FloatArray
    misfit: FloatArray

    @property
    def best(self) -> float:
        """The least misfit, infinite where nothing is left."""
        return float(self.misfit.min()) if len(self.misfit) else float("inf")


def logs(curve: Curve) -> tuple[FloatArray, FloatArray]:
    """Return log2 of working sets and of costs."""
    return np.log2(np.array(curve.working_set, float)), np.log2(np.array(curve.ns, float))


def costs(curves: Sequence[Curve], w: FloatArray) -> FloatArray:
    """Return the costs of curves at log2 working sets: shape (curves, *w.shape)."""
    return np.array([np.exp2(np.interp(w, *logs(curve))) for curve in curves])


def explain(
    u: FloatArray,
    cost: FloatArray,
    sizes: Sizes,
    kernels: Sequence[Kernel],
    *,
    tolerance: float,
    most: Mapping[int, float] | None = None,
) -> Explanations:
    """Return all mixtures of a constant and up to two memory kernels that explain a curve.

    u: log2 x of the points of the curve; cost: there, ns per unit. tolerance: relative error of
    the curve. most: largest part of a column (number as in ``columns``), where there is one.
    """
    base = costs([kernel.base for kernel in kernels], sizes.at(u))  # (kernels, sizes, points)
    table = np.concatenate([np.ones((1, *base.shape[1:])), base]) / cost
    numbers = range(len(table))
    wanted: list[tuple[int, ...]] = [(a,) for a in numbers]
    wanted += combinations(numbers, 2)
    wanted += [(0, a, b) for a, b in combinations(range(1, len(table)), 2)]
    found: list[tuple[np.ndarray, np.ndarray, FloatArray, FloatArray]] = []
    for some in wanted:
        if len(some) > len(u):
            continue
        part, misfit = _solved(table[list(some)])
        good = (part > 0).all(axis=1)
        for k, number in enumerate(some):
            if most is not None and number in most:
                good &= part[:, k] <= most[number]
        at = np.flatnonzero(good)
        columns = np.full((len(at), 3), -1)
        columns[:, : len(some)] = some
        padded = np.zeros((len(at), 3))
        padded[:, : len(some)] = part[at]
        found.append((at, columns, padded, misfit[at]))
    size, columns, parts, misfit = (np.concatenate(column) for column in zip(*found, strict=True))
    if not len(misfit):
        return Explanations(size, columns, parts, misfit)
    limit = np.hypot(ABOUT_AS_WELL * misfit.min(), max(tolerance, ALLOWED))
    keep = misfit <= limit
    return Explanations(size[keep], columns[keep], parts[keep], misfit[keep])


def _solved(columns: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return least-squares parts that add columns up to one, and the misfit, per candidate.

    columns: (columns, candidates, points). Without a bound: a mixture with a negative part is
    found again, without that part, among the smaller mixtures.
    """
    matrix = np.moveaxis(columns, 0, -1)  # (candidates, points, columns)
    scale = np.linalg.norm(matrix, axis=1)
    matrix = matrix / scale[:, None, :]
    square = np.einsum("cpi,cpj->cij", matrix, matrix)
    right = matrix.sum(axis=1)
    square += 1e-9 * np.eye(square.shape[-1])
    part = np.linalg.solve(square, right[..., None])[..., 0]
    rest = np.einsum("cpi,ci->cp", matrix, part) - 1.0
    return part / scale, np.sqrt((rest**2).mean(axis=1))
