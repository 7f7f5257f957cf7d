"""How many times as long a place computes on another machine, over its work per turn.

The cost of a place over x (work per iteration) is a sum of a constant, for whatever touches no
memory, and of costs of memory kernels at the working set that belongs to x; no part is negative.
Usually several mixtures explain a curve as well: all of them are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from p3s.base.arrays import Floats
from p3s.laws.statistics import Z90

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
    kernels = [
        Kernel(name, base.curves[name], target.curves[name])
        for name in base.curves
        if name in target.curves
    ]
    for name in dict.fromkeys([*base.loaded.curves, *target.loaded.curves]):
        one, other = base.loaded.curves.get(name), target.loaded.curves.get(name)
        kernels.append(
            Kernel(f"{name} on all cores", one or base.curves[name], other or target.curves[name])
        )
    return kernels


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
    log_sizes = np.arange(SMALLEST, LARGEST + 1e-9, 1.0 / EACH)
    rows = [
        (size - exponent * middle, exponent, _likely(middle - size - LIKELY, LIKELY_WIDTH))
        for exponent in EXPONENTS
        for size in log_sizes
    ]
    return Sizes(*np.array(rows).T)


def _likely(distance: float, width: float) -> float:
    return -0.5 * (distance / width) ** 2


def resident_sizes(x: Sequence[float], nbytes: Sequence[float]) -> Sizes | None:
    """Return candidates from memory filled per rank at some x: a place works on a share of it.

    None where no memory is known.
    """
    points = [(np.log2(a), np.log2(b)) for a, b in zip(x, nbytes, strict=True) if a > 0 and b > 0]
    if not points:
        return None
    u, w = np.array(points).T
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
    groups: list[tuple[int, ...]] = [(a,) for a in numbers]
    groups += combinations(numbers, 2)
    groups += [(0, a, b) for a, b in combinations(range(1, len(table)), 2)]
    fits: list[tuple[np.ndarray, np.ndarray, FloatArray, FloatArray]] = []
    for group in groups:
        if len(group) > len(u):
            continue
        part, misfit = _solve_parts(table[list(group)])
        good = (part > 0).all(axis=1)
        for k, number in enumerate(group):
            if most is not None and number in most:
                good &= part[:, k] <= most[number]
        at = np.flatnonzero(good)
        columns = np.full((len(at), 3), -1)
        columns[:, : len(group)] = group
        padded = np.zeros((len(at), 3))
        padded[:, : len(group)] = part[at]
        fits.append((at, columns, padded, misfit[at]))
    size, columns, parts, misfit = (np.concatenate(column) for column in zip(*fits, strict=True))
    if not len(misfit):
        return Explanations(size, columns, parts, misfit)
    limit = np.hypot(ABOUT_AS_WELL * misfit.min(), max(tolerance, ALLOWED))
    keep = misfit <= limit
    return Explanations(size[keep], columns[keep], parts[keep], misfit[keep])


def _solve_parts(columns: FloatArray) -> tuple[FloatArray, FloatArray]:
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


#: A kernel that makes less than this share of a cost does not bound its factor by itself.
COUNTS_FROM = 0.05
#: Misfit beyond the best one that takes a mixture half its weight, about.
CLOSE = 0.02
#: Points per doubling of x, at which curves are compared and factors given.
POINTS = 4
#: Units of work that are times: they say nothing about cost per operation.
TIME_UNITS = ("cpu_ns", "wall_ns")


class Cost(Protocol):
    """What is needed of a law of cost (p3s.costs.laws.CostLaw)."""

    @property
    def unit(self) -> str: ...
    @property
    def covered(self) -> tuple[float, float]: ...
    def cost(self, x: Any) -> np.ndarray: ...
    def typical(self, x: Any) -> np.ndarray: ...
    def interval(self, x: Any) -> tuple[np.ndarray, np.ndarray]: ...


@dataclass(frozen=True)
class Factor:
    """Cost on the target over cost on the base, over x.

    at: log2 x, ascending; value, low, high: there. bound: "core", "memory", "both", or "unknown",
    what the place waits for where it was measured. working_set: smallest and largest that explain
    it, bytes, in the middle of the points. misfit: of the best explanation, relative. why: a
    sentence.
    """

    at: Floats
    value: Floats
    low: Floats
    high: Floats
    bound: str
    working_set: tuple[float, float]
    misfit: float
    why: str

    def of(self, x: Any) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return value, low and high at x; beyond the ends they stay."""
        u = np.log2(np.maximum(np.asarray(x, dtype=float), 1e-300))
        value, low, high = (
            np.exp2(np.interp(u, self.at, np.log2(part)))
            for part in (self.value, self.low, self.high)
        )
        return value, low, high


def _cores(base: Machine, target: Machine, ns: FloatArray) -> tuple[FloatArray, ...]:
    """Return ratios of the core kernels that constants of ``ns`` per unit can be made of.

    Middle, least and largest, and the error of their measurement, an entry for each of ``ns``.
    """
    names = sorted(
        (name for name in base.core if name in target.core), key=lambda name: -base.core[name].ns
    )
    ratio = [target.core[name].ns / base.core[name].ns for name in names]
    spread = [
        Z90 * float(np.hypot(base.core[name].spread, target.core[name].spread)) for name in names
    ]
    number = range(1, len(names) + 1)
    table = np.array(
        [(np.median(ratio[:k]), min(ratio[:k]), max(ratio[:k]), max(spread[:k])) for k in number]
    )
    # An instruction does so many operations at most: what is too cheap is none of them.
    limits = MOST_PER_INSTRUCTION * np.array([base.core[name].ns for name in names])
    able = (ns[:, None] <= limits).sum(axis=1)
    return tuple(table[np.where(able == 0, len(names), able) - 1].T)


def factor_of(law: Cost, base: Machine, target: Machine, sizes: Sizes | None = None) -> Factor:
    """Return the factor of a place from its law of cost on the base.

    sizes: what is known of its working set. The interval spans every mixture of kernels that
    explains the law about as well as the best does, all core kernels for its constant part, the
    ratios of all kernels that make up a share of it, and the spread of both measurements.
    """
    low, high = law.covered
    ends = np.log2([max(low, 1e-300), max(high, low, 1e-300)])
    u = np.linspace(ends[0], ends[1], int(np.ceil((ends[1] - ends[0]) * POINTS)) + 1)
    cost = np.asarray(law.cost(np.exp2(u)), dtype=float)
    kernels = memory_kernels(base, target)
    at = np.arange(np.floor(ends[0] - 10) * POINTS, np.ceil(ends[1] + 7) * POINTS + 1) / POINTS
    counted = law.unit not in TIME_UNITS
    candidates = sizes or unknown_sizes(float(u.mean()))
    middle = candidates.at(np.array([u.mean()]))
    unexplained = partial(_unknown_factor, at, base, target, kernels)
    if not (cost > 0).all():
        every = np.repeat(np.arange(*SIZES, 0.5)[:, None], len(at), axis=1)
        return unexplained("it was not measured", every, np.array(SIZES))
    # In CPU time the unit has the step of the cost in itself: the law is flat whatever it does.
    # So every mixture may be: nothing is fitted.
    if not counted:
        why = "its work is a time, which does not tell what it waits for"
        return unexplained(why, candidates.at(at), middle)
    ends_of_law = law.interval(np.exp2(u))
    typical = np.asarray(law.typical(np.exp2(u)), dtype=float)
    wide = float(np.median((ends_of_law[1] - ends_of_law[0]) / np.maximum(typical, 1e-300))) / 4
    most = dict.fromkeys(range(1, len(kernels) + 1), MOST_PER_INSTRUCTION)
    most[0] = MOST_PER_INSTRUCTION * max(cost.ns for cost in base.core.values())
    explanations = explain(u, cost, candidates, kernels, tolerance=min(wide, 0.2), most=most)
    if explanations.best > UNEXPLAINED:
        why = "no mixture of the kernels costs as it does"
        return unexplained(why, candidates.at(at), middle)
    return _span_factor(at, u, explanations, candidates, kernels, base, target)


def _span_factor(
    at: FloatArray,
    u: FloatArray,
    cases: Explanations,
    sizes: Sizes,
    kernels: list[Kernel],
    base: Machine,
    target: Machine,
) -> Factor:
    """Return the factor that all explanations span."""
    log_size = sizes.at(at)  # (sizes, at)
    names = [kernel.base for kernel in kernels]
    on_base, on_target = (
        costs(names, log_size),
        costs([kernel.target for kernel in kernels], log_size),
    )
    ratio = on_target / on_base
    spread = _spreads(kernels, log_size)
    # What a kernel costs in the innermost cache is the core's time.
    inside = np.array([kernel.base.ns[0] for kernel in kernels])[:, None]
    ends = [int(np.argmin(np.abs(at - end))) for end in (u[0], u[-1])]
    parts = np.zeros((len(kernels) + 1, len(cases.misfit)))
    for k in range(len(parts)):
        parts[k] = np.where(cases.columns == k, cases.parts, 0.0).sum(axis=1)
    value, low, high, waiting = [], [], [], []
    for size in np.unique(cases.size):
        mixtures = parts[:, cases.size == size]
        core = _cores(base, target, mixtures[0])
        ns = mixtures[1:, :, None] * on_base[:, size][:, None, :]  # (kernels, mixtures, at)
        whole = mixtures[0][:, None] + ns.sum(axis=0)
        shares = np.concatenate([(mixtures[0][:, None] / whole)[None], ns / whole])
        middles, least, most, errors = (
            np.concatenate(
                [
                    np.broadcast_to(one[None, :, None], (1, *whole.shape)),
                    np.broadcast_to(part[:, size][:, None, :], ns.shape),
                ]
            )
            for one, part in zip(core, (ratio, ratio, ratio, spread), strict=True)
        )
        counts = shares >= COUNTS_FROM
        widest = 1.0 + np.where(counts, errors, 0.0).max(axis=0)
        under = np.minimum((shares * least).sum(axis=0), np.where(counts, least, np.inf).min(0))
        over = np.maximum((shares * most).sum(axis=0), np.where(counts, most, 0.0).max(0))
        value.append((shares * middles).sum(axis=0))
        low.append(under / widest)
        high.append(over * widest)
        beyond = mixtures[1:, :, None] * np.maximum(on_base[:, size] - inside, 0.0)[:, None, :]
        waiting.append((beyond.sum(axis=0) / whole)[:, ends])
    order = np.argsort(cases.size, kind="stable")  # as the mixtures come out of the loop
    cases = Explanations(
        cases.size[order], cases.columns[order], cases.parts[order], cases.misfit[order]
    )
    likely = sizes.prior[cases.size] - SIMPLER * (cases.columns > 0).sum(axis=1)
    likely -= 0.5 * ((cases.misfit - cases.best) / CLOSE) ** 2
    weight = np.exp(likely - likely.max())
    middle_value = _middle(np.concatenate(value), weight)
    least_, most_ = np.concatenate(low).min(axis=0), np.concatenate(high).max(axis=0)
    span = np.exp2(sizes.at(np.array([u.mean()]))[cases.size, 0])
    bound, why = _bound(np.concatenate(waiting), float(span.min()), float(span.max()))
    return Factor(
        at,
        np.clip(middle_value, least_, most_),
        least_,
        most_,
        bound,
        (float(span.min()), float(span.max())),
        cases.best,
        why,
    )


def _middle(values: FloatArray, weight: FloatArray) -> FloatArray:
    """Return the weighted median over the explanations at each x."""
    order = np.argsort(values, axis=0)
    total = np.cumsum(weight[order], axis=0)
    at = (total >= 0.5 * total[-1]).argmax(axis=0)
    columns = np.arange(values.shape[1])
    return np.asarray(values[order[at, columns], columns])


def _spreads(kernels: list[Kernel], w: FloatArray) -> FloatArray:
    """Return the relative error of each kernel's ratio: shape (kernels, *w.shape)."""

    def of(curve: Curve) -> FloatArray:
        return np.asarray(np.interp(w, logs(curve)[0], np.array(curve.spread)))

    return Z90 * np.array([np.hypot(of(k.base), of(k.target)) for k in kernels])


def _bound(waiting: FloatArray, small: float, large: float) -> tuple[str, str]:
    """Return what a place waits for, by the shares of time beyond the innermost cache.

    waiting: (explanations, 2), at the smallest and at the largest work per iteration measured.
    """
    from p3s.base.text import size_text

    near = f"working set in the middle of the points {size_text(small)}"
    near += f" to {size_text(large)}" if large > 1.01 * small else ""
    first, last = np.median(waiting, axis=0)
    if waiting.max() <= 0.1:
        return "core", "it waits for the core, not for memory"
    if float(np.ptp(waiting, axis=0).max()) > 0.5:
        return "unknown", (
            "its cost does not tell whether it waits for the core or for caches "
            f"and memory ({near})"
        )
    text = (
        f"{100 * first:.0f} % of its time waits for caches or memory at the smallest work per "
        f"iteration measured, {100 * last:.0f} % at the largest ({near})"
    )
    return "memory" if min(first, last) >= 0.5 else "both", text


def _unknown_factor(
    at: FloatArray,
    base: Machine,
    target: Machine,
    kernels: list[Kernel],
    why: str,
    w: FloatArray,
    middle: FloatArray,
) -> Factor:
    """Return the factor of which nothing is known: between those of all kernels at all sizes.

    w: log2 of the sizes, shape (sizes, at); middle: those in the middle of the points.
    """
    ratio = costs([k.target for k in kernels], w) / costs([k.base for k in kernels], w)
    spread = _spreads(kernels, w)
    _, least, most, error = (float(part[0]) for part in _cores(base, target, np.zeros(1)))
    low = np.minimum((ratio / (1 + spread)).min(axis=(0, 1)), least / (1 + error))
    high = np.maximum((ratio * (1 + spread)).max(axis=(0, 1)), most * (1 + error))
    return Factor(
        at,
        np.sqrt(low * high),
        low,
        high,
        "unknown",
        (float(np.exp2(middle.min())), float(np.exp2(middle.max()))),
        0.0,
        f"{why}: its factor lies between those of all kernels",
    )


#: log2 of the smallest and largest working set looked at where nothing is known.
SIZES = (13.0, 31.0)
