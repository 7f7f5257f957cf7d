"""From samples to costs: a cost and an interval for every class, and time per rank and phase."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from replay.scaled import COLLECTIVE, COMM, COMPLETION, RECV, SEND, Floats
from replay.thesis.calls import COMPLETIONS, RECV_CODES, REQUEST_CODES, SEND_CODES
from replay.thesis.classes import INTER, INTRA, EventClass
from replay.thesis.collectives import MESSAGE, Composition
from replay.thesis.plan import ReplayPlan
from replay.thesis.stats import Estimate, median_interval

MEASURED = "measured"
WITH_BLACK_HOLES = "measured with black holes"
COMPOSED = "composed"
INTERPOLATED = "interpolated"
NOT_REPLAYED = "not replayed"
NONE = "none"


@dataclass(frozen=True)
class ClassCost:
    """Cost of a class, how it was found, and a word on that."""

    estimate: Estimate
    how: str
    detail: str = ""


class Curve:
    """Cost against bytes: straight lines between measured points, none below the smallest."""

    def __init__(self, points: Sequence[tuple[int, Estimate]]) -> None:
        ordered = sorted(points, key=lambda point: point[0])
        self.bytes = np.array([nbytes for nbytes, _ in ordered], dtype=np.float64)
        self.values = np.array([(e.cost_ns, e.low_ns, e.high_ns) for _, e in ordered])

    def at(self, nbytes: float) -> Estimate:
        """Return the estimate at a size; beyond the largest point, along its line from 0 bytes."""
        values = [float(np.interp(nbytes, self.bytes, column)) for column in self.values.T]
        if nbytes > self.bytes[-1] > 0 and len(self.bytes) > 1:
            first, last = self.values[0], self.values[-1]
            slope = np.maximum(last - first, 0.0) / (self.bytes[-1] - self.bytes[0])
            values = (last + slope * (nbytes - self.bytes[-1])).tolist()
        return Estimate(values[0], values[1], values[2])


Samples = Mapping[int, tuple[Sequence[float], int]]


def class_costs(plan: ReplayPlan, samples: Samples) -> list[ClassCost]:
    """Return the cost of every class of a plan.

    ``samples`` maps a sample number to the mean of the class's events in each pass, in ns, and
    the number of timed events.
    """
    found: dict[int, ClassCost] = {}
    for cls in range(len(plan.classes)):
        means, number = samples.get(cls, ((), 0))
        if means:
            how = WITH_BLACK_HOLES if plan.partial[cls] else MEASURED
            found[cls] = ClassCost(median_interval(means, number), how)
    curves = _primitive_curves(plan, samples)
    for cls, composition in plan.compositions.items():
        if (cost := _composed(composition, curves)) is not None:
            found[cls] = cost
    return [found[cls] if cls in found else _estimated(plan, cls, found, curves)
            for cls in range(len(plan.classes))]


def _primitive_curves(plan: ReplayPlan, samples: Samples) -> dict[tuple[str, str], Curve]:
    points: dict[tuple[str, str], list[tuple[int, Estimate]]] = {}
    for index, primitive in enumerate(plan.primitives):
        means, number = samples.get(len(plan.classes) + index, ((), 0))
        if means:
            key = (primitive.name, primitive.distance)
            points.setdefault(key, []).append((primitive.bytes, median_interval(means, number)))
    return {key: Curve(values) for key, values in points.items()}


def _composed(
    composition: Composition, curves: Mapping[tuple[str, str], Curve]
) -> ClassCost | None:
    """Return the sum of the rounds, or None when a primitive was not measured."""
    total = np.zeros(3)
    for part in composition.rounds:
        curve = curves.get((part.primitive, INTER if part.inter else INTRA))
        if curve is None:
            return None
        one = curve.at(part.bytes)
        total += part.times * np.array([one.cost_ns, one.low_ns, one.high_ns])
    estimate = Estimate(float(total[0]), float(total[1]), float(total[2]))
    return ClassCost(estimate, COMPOSED, composition.algorithm)


def _family(cls: EventClass) -> str:
    """Return a name shared by the calls whose cost can stand for each other's."""
    code = SEND_CODES.get(cls.op) or RECV_CODES.get(cls.op)
    if code is not None:
        return f"{cls.kind} post" if code in REQUEST_CODES else f"{cls.kind} blocking"
    return cls.kind


def _estimated(
    plan: ReplayPlan, number: int, found: Mapping[int, ClassCost],
    curves: Mapping[tuple[str, str], Curve],
) -> ClassCost:
    """Return a cost from the nearest relatives of a class that nobody could measure."""
    cls = plan.classes[number]
    zero = Estimate(0.0, 0.0, 0.0)
    if cls.kind not in (SEND, RECV, COMPLETION, COLLECTIVE):
        return ClassCost(zero, NOT_REPLAYED)
    if cls.kind == COLLECTIVE:
        return ClassCost(zero, NONE, "no known algorithm, or nothing to measure its rounds with")
    if cls.kind == COMPLETION and cls.op not in COMPLETIONS:
        return ClassCost(zero, NOT_REPLAYED)
    measured = {c: cost for c, cost in found.items() if cost.how in (MEASURED, WITH_BLACK_HOLES)}
    other = INTRA if cls.distance == INTER else INTER
    for distance in (cls.distance, other):
        word = "" if distance == cls.distance else f" ({distance} instead of {cls.distance})"
        here = {c: cost for c, cost in measured.items() if plan.classes[c].distance == distance}
        same_op = _points(plan, here, lambda c: c.op == cls.op)
        if cls.kind == COMPLETION and cls.requests == 0:  # nobody knows what it completes
            sizes = [nbytes for nbytes, _ in same_op]
            if sizes:
                return ClassCost(Curve(same_op).at(float(np.median(sizes))), INTERPOLATED,
                                 f"from {cls.op} of the median size{word}")
            continue
        if same_op:
            return ClassCost(Curve(same_op).at(cls.bytes), INTERPOLATED, f"from {cls.op}{word}")
        family = _points(plan, here, lambda c: _family(c) == _family(cls))
        if family:
            return ClassCost(Curve(family).at(cls.bytes), INTERPOLATED,
                             f"from {_family(cls)} calls{word}")
        if (MESSAGE, distance) in curves:
            return ClassCost(curves[MESSAGE, distance].at(cls.bytes), INTERPOLATED,
                             f"from messages{word}")
    return ClassCost(zero, NONE, "nothing like it could be measured")


def _points(plan: ReplayPlan, measured: Mapping[int, ClassCost],
            wanted: Callable[[EventClass], bool]) -> list[tuple[int, Estimate]]:
    return [(plan.classes[c].bytes, cost.estimate) for c, cost in measured.items()
            if wanted(plan.classes[c])]


@dataclass(frozen=True)
class PhaseCosts:
    """Communication of the whole run in ns, of shape (ranks, phases): value, low, high."""

    phases: tuple[int, ...]
    value: Floats
    low: Floats
    high: Floats


def phase_costs(plan: ReplayPlan, costs: Sequence[ClassCost]) -> PhaseCosts:
    """Sum repeat x class cost over the rows of each rank and phase."""
    trace = plan.trace
    phases = tuple(sorted(set(plan.trace.weights) | set(np.unique(trace.phase).tolist())))
    column = np.searchsorted(np.asarray(phases, dtype=np.int64), trace.phase)
    place = trace.rank * len(phases) + column
    cost = np.array([(c.estimate.cost_ns, c.estimate.low_ns, c.estimate.high_ns) for c in costs]
                    or [(0.0, 0.0, 0.0)])
    cls = plan.classified.of_row
    of_row = np.where(cls[:, None] >= 0, cost[np.maximum(cls, 0)], 0.0) * trace.repeat[:, None]
    shape = (trace.n, len(phases))
    value, low, high = (
        np.bincount(place, weights=of_row[:, i], minlength=trace.n * len(phases))
        .astype(np.float64).reshape(shape)
        for i in range(3)
    )
    return PhaseCosts(phases, value, np.minimum(low, value), np.maximum(high, value))


#: Kinds of rows that are set-up rather than communication of a phase.
SETUP_KINDS = (COMM, "other")
