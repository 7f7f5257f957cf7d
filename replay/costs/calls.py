"""What calls cost as the thesis measures them: time around the call, class by class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from p3s.base.arrays import Floats
from p3s.replay.engine.results import ProgramResult
from p3s.replay.plan.classes import CallClass
from p3s.replay.plan.program import Program
from p3s.replay.stats import NOTHING, Estimate, median_interval

MEASURED = "measured"
COMPOSED = "composed"
INTERPOLATED = "interpolated"
NONE = "none"


@dataclass(frozen=True)
class CallCost:
    """Cost of a call class, how it was found, and a word on that."""

    estimate: Estimate
    how: str
    detail: str = ""


def call_costs(
    classes: Sequence[CallClass], programs: Sequence[Program], results: Mapping[int, ProgramResult]
) -> tuple[CallCost, ...]:
    """Return the cost of every call class: mean of a pass, median over passes and programs.

    Sampled events of trace programs carry their call class; all their partners are loaded. Only
    programs with immediate black holes are used. Classes without a sample: see `interpolated`.
    """
    whole: dict[int, list[Floats]] = {}
    number: dict[int, int] = {}
    for index, result in sorted(results.items()):
        program = programs[index]
        if program.what != "trace" or program.timed or not result.passes or not len(result.event):
            continue
        cls = program.events["sample"][result.event]
        for c in np.unique(cls[(cls >= 0) & (cls < len(classes))]).tolist():
            samples = result.event_ns[:, cls == c]
            whole.setdefault(c, []).append(samples.mean(axis=1))
            number[c] = number.get(c, 0) + samples.size
    costs = []
    for c in range(len(classes)):
        if c in whole:
            costs.append(CallCost(median_interval(np.concatenate(whole[c]), number[c]), MEASURED))
        else:
            costs.append(CallCost(NOTHING, NONE))
    return tuple(costs)


def interpolated(classes: Sequence[CallClass], costs: Sequence[CallCost]) -> tuple[CallCost, ...]:
    """Give classes without a cost that of their relatives, by bytes.

    From the same call at the same distance and load; then any load; then any distance; then from
    calls of the same kind.
    """
    known = [c for c in range(len(classes)) if costs[c].how in (MEASURED, COMPOSED)]
    filled = list(costs)
    for c, cls in enumerate(classes):
        if costs[c].how != NONE or cls.members:
            continue
        for same, word in (
            (("call", "distance", "load"), "same call and load"),
            (("call", "distance"), "same call"),
            (("kind", "distance", "load"), "calls of its kind"),
            (("kind", "distance"), "calls of its kind"),
            (("call",), "same call at another distance"),
            (("kind",), "calls of its kind at another distance"),
        ):
            near = [
                k
                for k in known
                if not classes[k].members
                and all(getattr(classes[k], name) == getattr(cls, name) for name in same)
            ]
            if near:
                filled[c] = CallCost(
                    _between(cls.bytes, near, classes, costs),
                    INTERPOLATED,
                    f"from the {word}" if word.startswith("same") else f"from {word}",
                )
                break
    return tuple(filled)


def _between(
    nbytes: int, near: Sequence[int], classes: Sequence[CallClass], costs: Sequence[CallCost]
) -> Estimate:
    """Return costs at a size, by straight lines; of equal sizes the mean."""
    sizes = np.array([classes[k].bytes for k in near], dtype=np.float64)
    values = np.array([(e.cost_ns, e.low_ns, e.high_ns) for e in (costs[k].estimate for k in near)])
    x, group = np.unique(sizes, return_inverse=True)
    y = np.stack([np.bincount(group, values[:, i]) / np.bincount(group) for i in range(3)], axis=1)
    at = [float(np.interp(nbytes, x, y[:, i])) for i in range(3)]
    if nbytes > x[-1] and len(x) > 1:
        slope = np.maximum(y[-1] - y[0], 0.0) / (x[-1] - x[0])
        at = (y[-1] + slope * (nbytes - x[-1])).tolist()
    return Estimate(at[0], min(at[1], at[0]), max(at[2], at[0]), 0)
