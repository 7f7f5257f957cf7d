"""Which count of the original input gives a process as much: the look-up of thesis 6.2, step 4.

The thesis takes the nearest entry of the instruction table. Here the model is evaluated for the
ranks that do what the measured ones do, at counts the program accepts, and its curve is crossed
between two of them; that the total of a phase is constant in n is not needed. The other way round,
which phases lack runs of a smaller input for a target count, and the input that gives them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import numpy as np

from p3s.base.errors import P3SError
from p3s.costs.small_runs.cells import Cells, PredictedCells, interpolate_value
from p3s.model.evaluate import model_grid
from p3s.model.grid import admissible
from p3s.model.types import Model
from p3s.model.work.scic import instruction_groups
from p3s.signature.phases import CONSTANT_WORK, RELEVANT_SHARE
from p3s.signature.rank import INSTRUCTIONS

#: Counts up to so many times the largest traced one are looked at, and never more than this.
_REACH, _MOST = 1 << 12, 1 << 20
#: A curve that moves by less, relative, over so many doublings does not depend on the count.
_FLAT, _FLAT_STEPS = 1e-3, 6
#: Ways to take part in a phase that are told apart by how often calls are made.
_KINDS = 32
#: How far around a crossing counts are looked at, relative, how many, and grids made for them.
_AROUND, _EXAMINED, _GRIDS = 0.25, 4000, 40


@dataclass(frozen=True)
class Role:
    """Ranks that make the same calls: how often each in an iteration, and their share of a group.

    calls: per place of the phase; most: the same for the ranks that make it most often. low, high:
    where they stand among all ranks with these calls, from most work (0) to least (1).
    """

    calls: tuple[float, ...]
    most: tuple[float, ...]
    share: float
    low: float
    high: float


@dataclass(frozen=True)
class Match:
    """Where a curve has a value: a real number, or why it is nowhere."""

    n: float | None = None
    why: str = ""


def rank_groups(
    level: np.ndarray, calls: np.ndarray, apart: bool
) -> list[tuple[np.ndarray, list[Role]]]:
    """Return groups of ranks alike in ``level`` (per rank, most first), each with its roles.

    calls: (places of the phase, ranks), how often a rank makes each call in a turn. apart: each
    role is a group of its own.
    """
    kinds, kind = kinds_of(calls)
    most = tuple(float(c) for c in calls.max(axis=1, initial=0.0))
    place, sizes = np.empty(len(level), dtype=np.int64), np.bincount(kind)
    for k in range(len(kinds)):
        alike = np.flatnonzero(kind == k)
        place[alike[np.argsort(-level[alike], kind="stable")]] = np.arange(len(alike))
    out: list[tuple[np.ndarray, list[Role]]] = []
    for mine in instruction_groups(level):
        parts = []
        for k in np.unique(kind[mine]).tolist():
            part = mine[kind[mine] == k]
            low, high = place[part].min() / sizes[k], (place[part].max() + 1) / sizes[k]
            share = 1.0 if apart else len(part) / len(mine)
            calls_ = tuple(float(x) for x in kinds[k])
            parts.append((part, [Role(calls_, most, share, float(low), float(high))]))
        out += parts if apart else [(mine, [role for _, (role,) in parts])]
    return out


def kinds_of(calls: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct ways to take part in a phase, (kinds, places), and each rank's.

    Where there are many, as in irregular programs, only which calls are made tells them apart.
    """
    kinds, first, kind = np.unique(
        np.round(calls.T, 6), axis=0, return_index=True, return_inverse=True
    )
    if len(kinds) > _KINDS:
        _, first, kind = np.unique(calls.T > 0, axis=0, return_index=True, return_inverse=True)
        kinds = calls.T[first]
    return kinds, kind.ravel()


def ranks_like(role: Role, level: np.ndarray, calls: np.ndarray) -> np.ndarray:
    """Return the ranks of another count that are what ``role`` is; arguments as above.

    These make the same calls; of them, those that make most of the calls equally often (the
    corners of a mesh have the same neighbours at every count), or as often as compared with the
    rank that makes them most often (where their number grows with the count).
    """
    there = np.flatnonzero(calls.any(axis=0))
    if not len(there):
        return there
    here, wanted = calls[:, there], np.array(role.calls)[:, None]
    apart = ((here > 0) != (wanted > 0)).sum(axis=0)
    equal = (np.abs(here - wanted) <= 1e-6 * (1 + wanted)).sum(axis=0)
    tops = np.maximum(calls.max(axis=1), 1e-300)[:, None]
    parts = wanted / np.maximum(np.array(role.most)[:, None], 1e-300)
    off = np.abs(np.log((here / tops + 1e-3) / (parts + 1e-3))).sum(axis=0).round(6)
    best = np.lexsort((off, -equal, apart))[0]
    alike = there[(apart == apart[best]) & (equal == equal[best]) & (off == off[best])]
    order = alike[np.argsort(-level[alike], kind="stable")]
    first = min(int(role.low * len(order)), len(order) - 1)
    return np.asarray(order[first : max(math.ceil(role.high * len(order) - 1e-9), first + 1)])


@dataclass(frozen=True)
class Curve:
    """What one process of a group does in one iteration of a phase, as the model predicts it.

    by_work: ranks are put in order by their work, else by the bytes of their messages. of: what is
    looked at, place: before or in the calls of one place, None: of the phase.
    """

    predicted: PredictedCells
    phase: int
    roles: Sequence[Role]
    by_work: bool = True
    of: Literal["work", "nbytes"] = "work"
    place: int | None = None

    def value(self, n: int) -> float | None:
        """Return the value at a count, the mean over the group; None where nobody is like it."""
        cells = self.predicted.at(n)
        if cells is None:
            return None
        mine, weight = self.predicted.phase == self.phase, cells.weight[self.phase]
        level = (cells.work if self.by_work else cells.nbytes)[mine].sum(axis=0)
        calls = cells.calls[mine] / weight
        every: np.ndarray = getattr(cells, self.of)
        values = (every[mine].sum(axis=0) if self.place is None else every[self.place]) / weight
        total = 0.0
        for role in self.roles:
            ranks = ranks_like(role, level, calls)
            if not len(ranks):
                return None
            total += role.share * float(values[ranks].mean())
        return total

    def has(self, n: float) -> bool:
        """Tell whether ranks of the count nearest to ``n`` make just the calls of the group."""
        m = min(ladder(self.predicted.model), key=lambda m: abs(math.log(m / n)))
        cells = self.predicted.at(m)
        if cells is None:
            return False
        there = cells.calls[self.predicted.phase == self.phase] > 0
        wanted = np.array([role.calls for role in self.roles]) > 0
        return all(np.any(np.all(there == row[:, None], axis=0)) for row in wanted)

    def at(self, n: float) -> float | None:
        """Return the value at a real count, between the nearest of :func:`ladder`."""
        steps = ladder(self.predicted.model)
        near = min(steps, key=lambda m: abs(m - n))
        if abs(n - near) < 1e-9 * near:
            return self.value(near)
        above = int(np.searchsorted(steps, n))
        found = {m: self.value(m) for m in steps[max(above - 1, 0) : above + 1]}
        known = {m: value for m, value in found.items() if value is not None}
        return interpolate_value(known, n) if len(known) == 2 else None


def _crossing(value: float, a: int, low: float, b: int, high: float) -> float:
    if low == high:
        return float(a)
    if low <= 0 or high <= 0 or value <= 0:
        return a + (b - a) * (value - low) / (high - low)
    return float(a * (b / a) ** (math.log(value / low) / math.log(high / low)))


def ladder(model: Model) -> list[int]:
    """Return counts that the program accepts, each about twice the one before, the traced among
    them; squares and cubes where it runs at those only."""
    counts = sorted(model.counts)
    top = min(counts[-1] * _REACH, max(_MOST, counts[-1]))
    known = model.admissible or admissible.learn(counts)
    power = {"squares": 2, "cubes": 3}.get(known.kind, 0)
    found = set(counts)
    if power:
        root = 1.0
        while round(root) ** power <= top:
            found.add(round(root) ** power)
            root *= 1.25 if power == 2 else 1.15
    else:
        unit = counts[-1]
        while unit % 2 == 0:
            unit //= 2
        while unit <= top:
            found.add(unit)
            unit *= 2
    return [n for n in sorted(found) if n in counts or (n > 1 and admissible.admits(known, n))]


def look_up(curve: Curve, value: float, start: int, refine: bool = True) -> Match:
    """Return where a curve has a value; of several places the nearest at or above ``start``,
    the count that was run, else the nearest below.

    refine: between the counts of the ladder the others that the program accepts are looked at.
    """
    below: float | None = None
    last: tuple[int, float] | None = None
    seen: list[float] = []
    for n in ladder(curve.predicted.model):
        here = curve.value(n)
        if here is None or here <= 0:  # nobody does this there
            continue
        if last is not None and _is_between(value, last[1], here) and last[1] != here:
            crossing = _crossing(value, *last, n, here)
            if crossing >= start:
                below = crossing
                break
            below = crossing
        if n >= start:
            seen.append(here)
            steps = seen[-_FLAT_STEPS - 1 :]
            if len(steps) > _FLAT_STEPS and _is_flat(steps):
                break
        last = (n, here)
    if below is not None:
        return Match(_refine(curve, below, value) if refine else below)
    if len(seen) > 1 and _is_flat(seen):
        return Match(why="is the same at every count")
    return Match(why="is that of no count" if seen else "cannot be predicted")


def _is_between(value: float, one: float, other: float) -> bool:
    return min(one, other) <= value <= max(one, other)


def _is_flat(values: Sequence[float]) -> bool:
    return max(values) - min(values) <= _FLAT * max(values)


def _refine(curve: Curve, n: float, value: float) -> float:
    """Return a crossing of the ladder made finer with the counts around it."""
    model = curve.predicted.model
    steps = [m for m in ladder(model) if n / 4 <= m <= n * 4]
    values = {m: v for m in {*steps, *_around(model, n)} if (v := curve.value(m)) is not None}
    low = max((m for m in values if m <= n), default=None)
    high = min((m for m in values if m >= n), default=None)
    if low is None or high is None or low == high:
        return n
    if not _is_between(value, values[low], values[high]):
        return n
    return _crossing(value, low, values[low], high, values[high])


def _around(model: Model, n: float) -> list[int]:
    """Return the two counts below and above ``n`` that the program is likely to take."""
    out: list[int] = []
    far = min(int(_AROUND * n + 2), _EXAMINED)
    for near in (range(math.floor(n), 1, -1), range(math.floor(n) + 1, math.floor(n) + far)):
        some = (m for m in near[:far] if admissible.admits(model.admissible, m))
        out += islice((m for m in islice(some, _GRIDS) if model.grid.family.dims(m)), 2)
    return sorted(out)


#: The target when none is given: so many times the largest traced count.
TIMES = 16
#: Less work per iteration than measured, by more than this, relative, is outside of what is known.
_OUTSIDE = 0.05
#: Messages whose size changes by less, relative, between the traced counts and the target.
_SAME_SIZE = 0.01
Range = tuple[float, float]


def default_target(model: Model) -> int:
    """Return the count proposals are for: 16 times the largest traced one, or the next the
    program accepts."""
    wanted = TIMES * max(model.counts)
    return min((n for n in ladder(model) if n >= wanted), default=max(model.counts))


def propose(
    model: Model, target: int, known: Mapping[int, Range], up_to: Mapping[int, float] | None = None
) -> dict[str, Any]:
    """Return which phases lack a far point for ``target`` processes, and what would give it.

    known: phase -> least and most work per iteration of a process that was measured; where a phase
    is missing, what the model says of the traced counts. up_to: the same where work is time, as the
    largest count that was measured or that a far point stands for.

    Keys of the result: target; at (the largest traced count); input (the part of the input's size
    that gives each of ``at`` processes what it has at the target, where the work is shared out
    evenly); counts; stands_for (with that input, one for each of ``counts``); phases (those with
    more than 1 % of the work that compute on less than ever measured: phase, name, work (per
    iteration, the least of the ranks), measured, outside (ratio), of_largest (work per iteration as
    part of that at ``at`` processes, None where none is done there), even (the total work is the
    same at both)); above (names of phases with more work per iteration than measured: no smaller
    workload shows that); unmatched (work is time, and no size of a message tells the count). Raises
    P3SError where the program's process grid has no form at the target."""
    model_grid(model, target)  # says which counts there are
    predicted = PredictedCells(model)
    own = {n: cells for n in model.counts if (cells := predicted.at(n)) is not None}
    there = predicted.at(target)
    if there is None or not own:
        raise P3SError(f"next: the model cannot be evaluated at {target} processes")
    counts = [n for n in sorted(own) if n > 1]
    at = counts[-1]
    phases: list[dict[str, Any]] = []
    above: list[str] = []
    for k in _relevant(predicted, own[at], there):
        low, high = known.get(k) or _range([_per_turn(predicted, c, k) for c in own.values()])
        here = _per_turn(predicted, there, k)
        if up_to and k in up_to:
            low = float(here.min()) * target / up_to[k]
            high = max(high, low)
        name = str(model.phases[k].name)
        if here.max() > high * (1 + _OUTSIDE):
            above.append(name)
        if here.min() < low / (1 + _OUTSIDE):
            largest = float(_per_turn(predicted, own[at], k).mean())
            part = float(here.mean()) / largest if largest > 0 else None
            phases.append(
                {
                    "phase": k,
                    "name": name,
                    "work": float(here.min()),
                    "measured": [low, high],
                    "outside": low / float(here.min()) if here.min() > 0 else None,
                    "of_largest": part,
                    "even": part is not None and abs(part * target / at - 1) <= CONSTANT_WORK,
                }
            )
    return {
        "target": target,
        "at": at,
        "input": at / target,
        "counts": counts,
        "stands_for": [n * target / at for n in counts],
        "phases": phases,
        "above": above,
        "unmatched": bool(phases)
        and model.work_unit != INSTRUCTIONS
        and not _sizes_tell(predicted, own[at], there),
    }


def _per_turn(predicted: PredictedCells, cells: Cells, k: int) -> np.ndarray:
    """Return the work per iteration of every rank that takes part in a phase."""
    mine = predicted.phase == k
    work = cells.work[mine].sum(axis=0)[(cells.calls[mine] > 0).any(axis=0)]
    return (work if len(work) else np.zeros(1)) / max(float(cells.weight[k]), 1.0)


def _range(values: Sequence[np.ndarray]) -> Range:
    worth = [v[v > 0] for v in values if (v > 0).any()]
    return (
        (min(float(v.min()) for v in worth), max(float(v.max()) for v in worth))
        if worth
        else (0.0, 0.0)
    )


def _relevant(predicted: PredictedCells, *cells: Cells) -> list[int]:
    """Return the phases with more than 1 % of the work at one of the counts."""
    out = set()
    for c in cells:
        totals = [float(c.work[predicted.phase == k].sum()) for k in range(len(c.weight))]
        out |= {k for k, v in enumerate(totals) if v > RELEVANT_SHARE * sum(totals)}
    return sorted(out)


def _sizes_tell(predicted: PredictedCells, own: Cells, there: Cells) -> bool:
    """Tell whether the bytes per iteration of some phase are others at the target."""
    for k in range(len(own.weight)):
        mine = predicted.phase == k
        a, b = (
            float(c.nbytes[mine].sum(axis=0).max(initial=0) / max(float(c.weight[k]), 1.0))
            for c in (own, there)
        )
        if a > 0 and abs(b - a) > _SAME_SIZE * a:
            return True
    return False
