"""Moves the laws of computation time of a study from its machine to another one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from p3s.base.arrays import Floats
from p3s.base.errors import P3SError
from p3s.costs.laws import CostLaw
from p3s.costs.points import OWN
from p3s.costs.posterior import Column
from p3s.costs.types import About, ComputeModel, LawEntry, Moved, MovedPlace
from p3s.machine.factor import Factor, Sizes, factor_of, resident_sizes
from p3s.machine.machinefile import Machine, differences
from p3s.signature.clock import TIMES

#: Places below this share of the time are not told of one by one.
SHOWN = 0.01
#: Interval ends of a law that are no less than this share of it.
_LEAST = 1e-6


def refuse(base: Machine, target: Machine, unit: str) -> None:
    """Raise P3SError where nothing carries over: counts of instructions of another architecture."""
    one, other = (str(machine.facts.architecture) for machine in (base, target))
    if one != other and unit not in TIMES:
        raise P3SError(
            f"{target.name} is {other}, the runs were made on {base.name}, {one}: a program has "
            "other instructions there, so counts of instructions do not carry over; trace with "
            "--work cpu into another study, or trace on that machine"
        )


def transfer_law(law: CostLaw, factor: Factor) -> CostLaw:
    """Return a law of cost on the target: the law times the factor, intervals combined.

    Relative errors of the law and of the factor are independent; so their logarithms add in
    quadrature, below and above the value each.
    """
    if not len(law.at):
        return law
    at = np.unique(
        np.concatenate([law.at, factor.at[(factor.at > law.at[0]) & (factor.at < law.at[-1])]])
    )
    x = np.exp2(at)
    least, typical = law.cost(x), law.typical(x)
    value, low, high = factor.of(x)
    ends = law.interval(x)
    below = np.hypot(_log(typical / np.maximum(ends[0], _LEAST * typical)), _log(value / low))
    above = np.hypot(_log(ends[1] / np.maximum(typical, 1e-300)), _log(high / value))
    moved = typical * value
    middle = float(np.interp(np.log2(law.covered).mean(), at, least * value))
    # The likeliest curve of the base is none of the target: what is shown is the level.
    return replace(
        law,
        kind=f"moved {law.kind}",
        columns=(Column("one"),),
        coefficients=(middle,),
        rivals=(),
        at=at,
        middle=least * value,
        usual=moved,
        low=moved * np.exp(-below),
        high=moved * np.exp(above),
    )


def _log(ratio: Floats) -> Floats:
    return np.asarray(np.log(np.maximum(ratio, 1.0)))


def own_sizes(entry: LawEntry, nbytes: Mapping[int, float]) -> Sizes | None:
    """Return working set candidates of a law's places from memory filled at traced counts.

    nbytes: by count, mean over the ranks.
    """
    at: dict[int, list[tuple[float, float]]] = {}
    for point in entry.points:
        if point.source == OWN:
            at.setdefault(point.traced, []).append((point.x, float(point.ranks)))
    x, known = [], []
    for count, some in sorted(at.items()):
        ranks = sum(weight for _, weight in some)
        if nbytes.get(count, 0.0) > 0 and ranks > 0:
            x.append(sum(value * weight for value, weight in some) / ranks)
            known.append(nbytes[count])
    return resident_sizes(x, known)


def move(
    compute: ComputeModel, base: Machine, target: Machine, nbytes: Mapping[int, float] | None = None
) -> ComputeModel:
    """Return the compute model of the target: the laws times their factors.

    compute: of the study, measured on ``base``. nbytes: memory that a rank has filled, by traced
    count. Every entry of ``laws`` gets its ``factor``; ``machine`` tells of both machines, what is
    doubtful, and the range of factors. The regressions of the thesis are of the base: they are
    left out. Raises P3SError where nothing carries over.
    """
    unit = compute.work_unit
    refuse(base, target, unit)
    factors = [
        factor_of(entry.law, base, target, own_sizes(entry, nbytes or {})) for entry in compute.laws
    ]
    each = list(zip(compute.laws, factors, strict=True))
    return replace(
        compute,
        laws=tuple(replace(e, law=transfer_law(e.law, f), factor=f) for e, f in each),
        rest=transfer_law(compute.rest, factor_of(compute.rest, base, target)),
        phases=tuple(replace(p, crm_i=None, crm_c=None) for p in compute.phases),
        machine=Moved(
            _about(base),
            _about(target),
            {str(n): value for n, value in sorted((nbytes or {}).items())},
            (*differences(base, target), *_doubts(unit, nbytes or {})),
            tuple(_place(e, f) for e, f in each if e.kind != "phase" and e.share >= SHOWN),
        ),
    )


def _about(machine: Machine) -> About:
    return About(
        machine.name,
        str(machine.facts.processor),
        str(machine.facts.architecture),
        machine.created,
        machine.facts.cores,
    )


def _place(entry: LawEntry, factor: Factor) -> MovedPlace:
    """Return the factor of a place where it was measured, and what it rests on."""
    ends = np.array([factor.of(x) for x in entry.law.covered])
    return MovedPlace(
        entry.phase,
        entry.places,
        entry.share,
        tuple(ends[:, 0].tolist()),
        float(ends[:, 1].min()),
        float(ends[:, 2].max()),
        factor.bound,
        factor.why,
        factor.misfit,
    )


def _doubts(unit: str, nbytes: Mapping[int, float]) -> list[str]:
    if unit in TIMES:
        return [
            "work is CPU or wall time, which does not tell computing from waiting for memory: "
            "the factors span all kernels; with --work instructions they are narrower"
        ]
    if not any(value > 0 for value in nbytes.values()):
        return [
            "how much memory the ranks filled is not known: working sets were found by where "
            "the cost has its steps"
        ]
    return []
