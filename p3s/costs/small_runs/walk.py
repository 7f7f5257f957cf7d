"""What a run must be to give a far point, which counts it is run at, and when its cost is least.

It is the same program and phases with less to do. Nothing here needs a model: the runs are folded
together with those of the study, and compared phase by phase, per iteration, so that another number
of time steps is no larger or smaller workload.

Source: thesis section 6.2, step 3: from the smallest count upwards, along the counts the program
admits, until cycles per instruction stop falling, or resources end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from p3s.base.errors import P3SError
from p3s.base.ops import COMPLETION, INIT_OPS
from p3s.base.serialise import Natural, ProcessCount
from p3s.costs.small_runs.places import FOREIGN, share, used
from p3s.model.evaluate import model_grid
from p3s.model.grid import admissible
from p3s.model.tree import phase_stages
from p3s.model.types import Admissible, Model, Phase
from p3s.signature.phases import RELEVANT_SHARE
from p3s.signature.rank import INSTRUCTIONS
from p3s.signature.structure import Node, Structure, structure
from p3s.signature.tables import PointTable

Turns = dict[tuple[int, int], float]


def together(own: Sequence[PointTable], other: Sequence[PointTable]) -> Structure:
    """Return one tree of the runs of two workloads; counts of the other one are negative.

    The largest count decides what is a walk from partner to partner, and is the study's own.
    """
    return structure([*own, *(replace(t, np=-t.np) for t in other)])


def phase_turns(own: Sequence[PointTable], other: Sequence[PointTable], model: Model) -> Turns:
    """Return (phase of the model, count) -> iterations in the other workload's runs, on the rank
    with
    most of them; what cannot be told is left out.

    The loop of a phase is the innermost one around its calls that turns, at every count of the
    study, as often as the model says. Where there is none the calls of an iteration tell.
    """
    s = together(own, other)
    number = {node: k for k, node in enumerate(s.nodes)}
    out: Turns = {}
    for phase in model.phases:
        nodes = sorted(
            {
                number[key]
                for i in phase.items
                for it in [model.items[i]]
                if (key := (it.site, it.op)) in number
            }
        )
        loop = _loop_of(s, nodes, phase, model)
        for t in other:
            if phase.parent is None:
                found: float | None = 1.0
            elif loop is not None:
                found = _turns(s, loop, -t.np, _stages(model, phase, t.np))
            else:
                found = _by_calls(own, t, phase, model)
            if found:
                out[(phase.phase, t.np)] = found
    return out


def _loop_of(s: Structure, nodes: Sequence[int], phase: Phase, model: Model) -> int | None:
    """Return the number of the loop that a phase is in the tree of both workloads."""
    around = {int(k) for v in nodes for k in s.nest.around[v] if k > 0}
    wanted = {n: v for n, v in phase.weight_points if n in s.counts}
    for k in sorted(around, reverse=True):  # inner loops have higher numbers
        if wanted and all(
            _turns(s, k, n, _stages(model, phase, n)) == v for n, v in wanted.items()
        ):
            return k
    return None


def _turns(s: Structure, loop: int, n: int, stages: int) -> float:
    return max((t for (m, _), t in s.nest.loops[loop].turns.items() if m == n), default=0) // max(
        stages, 1
    )


def _stages(model: Model, phase: Phase, n: int) -> int:

    if not phase.fused_stages:
        return 1
    try:
        return phase_stages(phase, model.items, model_grid(model, n))
    except P3SError:  # the rule for the grid does not admit a count that ran
        return 1


def _by_calls(
    own: Sequence[PointTable], other: PointTable, phase: Phase, model: Model
) -> float | None:
    """Return the iterations by the calls that a rank makes in each, where that number is always
    one."""
    weights = {n: v for n, v in phase.weight_points if v}
    votes = []
    for place in {(model.items[i].site, model.items[i].op) for i in phase.items}:
        per_turn = {_most_calls(t, place) / weights[t.np] for t in own if t.np in weights}
        calls = _most_calls(other, place)
        if len(per_turn) == 1 and (each := per_turn.pop()) and calls:
            votes.append(calls / each)
    return float(np.median(votes)) if votes else None


def _most_calls(t: PointTable, place: tuple[str, str]) -> int:
    mine = np.array([(g.site, g.op) == place for g in t.groups], dtype=bool)
    there = mine[t.group] if len(t.group) else np.zeros(0, dtype=bool)
    return int(np.bincount(t.rank[there], weights=t.count[there], minlength=t.np).max(initial=0))


#: By how much a workload may exceed the study's, or stay below it, and still be as large.
_MORE, _LESS = 1.02, 0.98
_SHOWN = 3


@dataclass(frozen=True)
class Sums:
    """Totals over all ranks of one phase in a run; turns: the mean of the ranks that make any.

    Where ranks take their work as they get to it the most of a rank changes from run to run.
    """

    turns: float
    work: float
    nbytes: float
    time: float
    calls: int


def refuse(own: Sequence[PointTable], far: PointTable) -> None:
    """Raise P3SError where a run is no far point of the study's runs, in one line that says why.

    own: the study's counts; far: one count of the other workload.
    """
    where = f"np={far.np}"
    if far.np < 2:
        raise P3SError(
            f"{where}: one process has nobody to communicate with, so there are no "
            "phases to compare; run it at two or more"
        )
    _unit(own, far, where)
    _places(own, far, where)
    s = together(own, [far])
    _phases(s, own, far, where)
    _size(s, own, far, where)


def _unit(own: Sequence[PointTable], far: PointTable, where: str) -> None:
    units = {t.work_unit for t in own}
    if (far.work_unit == INSTRUCTIONS) != (INSTRUCTIONS in units):
        raise P3SError(
            f"{where}: work was measured in {far.work_unit} and in "
            f"{' and '.join(sorted(units))} in the study; leave out --work"
        )


def _places(own: Sequence[PointTable], far: PointTable, where: str) -> None:
    """Refuse another program: one whose places the study mostly does not know."""
    known = {node for t in own for node in used(t)}
    here = used(far)
    unknown = [node for node in here if node not in known]
    plain = {(site.partition("#")[0], op) for site, op in known}
    apart = [node for node in unknown if (node[0].partition("#")[0], node[1]) in plain]
    if apart and share(far, apart) > RELEVANT_SHARE:
        raise P3SError(
            f"{where}: calls that are made through one line of the program cannot be "
            f"told apart as they are in the study ({_named(apart, far)}); choose an "
            "input with more iterations"
        )
    if len(unknown) > FOREIGN * len(here):
        raise P3SError(
            f"{where}: a different program: {len(unknown)} of its {len(here)} places "
            f"are not in the study ({_named(unknown, far)}); run the study's own "
            f"program ({_module(own)}) with a smaller input"
        )
    part = share(far, unknown)
    if part > RELEVANT_SHARE:
        raise P3SError(
            f"{where}: other phases: {100 * part:.0f} % of the computation is at "
            f"places that the study does not reach ({_named(unknown, far)}); choose an "
            "input that takes the same way through the program"
        )


def _named(nodes: Sequence[Node], t: PointTable) -> str:
    shown = [
        f"{op} in {t.sites[site][0] if t.sites.get(site) else site or '?'}"
        for site, op in nodes[:_SHOWN]
    ]
    return ", ".join(shown) + (", ..." if len(nodes) > _SHOWN else "")


def _module(own: Sequence[PointTable]) -> str:
    """Return the name of the file that most of the study's calls are made from."""
    names = [frames[0].partition("+")[0] for t in own for frames in t.sites.values() if frames]
    return max(sorted(set(names)), key=names.count) if names else "the same file"


def phases_in(s: Structure) -> dict[int, list[int]]:
    """Return the phases of a tree: number of the loop -> its calls, as numbers of nodes."""
    out: dict[int, list[int]] = {}
    for v in range(len(s.nodes)):
        out.setdefault(s.phase_loop(int(s.nest.around[v, s.nest.depth[v]])), []).append(v)
    return out


def sums(s: Structure, t: PointTable, key: int) -> dict[int, Sums]:
    """Return the totals of every phase in a run; key: its count in the tree."""
    number = {node: k for k, node in enumerate(s.nodes)}
    node = np.array([number[(g.site, g.op)] for g in t.groups] or [0])[t.group]
    count = np.array([g.op not in INIT_OPS for g in t.groups] or [True])[t.group]
    moves = np.array([g.kind != COMPLETION for g in t.groups] or [False])[t.group]
    out = {}
    for loop, calls in phases_in(s).items():
        mine = np.isin(node, calls)
        turns = [v for (n, _), v in s.nest.loops[loop].turns.items() if n == key and v]
        out[loop] = Sums(
            float(np.mean(turns)) if loop and turns else float(not loop),
            float((t.work * count)[mine].sum()),
            float((t.nbytes * t.count * moves)[mine].sum()),
            float(((t.work + t.elapsed_ns) * count)[mine].sum()),
            int(t.count[mine].sum()),
        )
    return out


def phase_name(s: Structure, loop: int) -> str:
    """Return a phase as its operations."""
    ops = dict.fromkeys(s.nodes[v][1].removeprefix("MPI_") for v in phases_in(s)[loop])
    names = [op for op in ops if not op.endswith("_recv")]
    return "+".join(names[:3]) + ("+..." if len(names) > 3 else "")


def relevant(of: dict[int, Sums]) -> list[int]:
    """Return the phases with more than 1 % of the time of a run (thesis ch. 4.2)."""
    total = sum(each.time for each in of.values())
    return [k for k, each in of.items() if each.time > RELEVANT_SHARE * total]


def _phases(s: Structure, own: Sequence[PointTable], far: PointTable, where: str) -> None:
    nearest = min(own, key=lambda t: (abs(math.log(t.np / far.np)), t.np))
    there, here = sums(s, nearest, nearest.np), sums(s, far, -far.np)
    missing = [k for k in relevant(there) if k and not here[k].calls]
    if missing:
        names = ", ".join(phase_name(s, k) for k in missing[:_SHOWN])
        raise P3SError(
            f"{where}: other phases: what takes "
            f"{_percent(there, missing)} of the study's time ({names}) does not occur; "
            "choose an input that takes the same way through the program"
        )


def _percent(of: dict[int, Sums], phases: Sequence[int]) -> str:
    total = sum(each.time for each in of.values())
    return f"{100 * sum(of[k].time for k in phases) / max(total, 1e-300):.0f} %"


def _size(s: Structure, own: Sequence[PointTable], far: PointTable, where: str) -> None:
    """Refuse a workload that is not smaller, per process and iteration of the phases.

    Where work is time, which wanders from run to run, bytes alone tell a larger one. What carries
    as many is no larger for having taken longer: it is compared with nothing (match.py says so)."""
    work, nbytes = ratios(s, own, far)
    exact = far.work_unit == INSTRUCTIONS
    larger = nbytes > _MORE or (exact and work > _MORE)
    equal = exact and work > _LESS
    told = f"{work:.3g} times its {'work' if exact else 'time'}"
    if not math.isnan(nbytes):
        told += f" and {nbytes:.3g} times its bytes"
    if larger:
        raise P3SError(
            f"{where}: a larger workload: {told} per process and iteration of the phases, "
            "compared with the study's own; give a smaller input"
        )
    if equal:
        raise P3SError(
            f"{where}: no smaller workload than the study's own ({told} per process "
            "and iteration of the phases); give a smaller input"
        )


def ratios(s: Structure, own: Sequence[PointTable], far: PointTable) -> tuple[float, float]:
    """Return work and bytes of a run as parts of the study's at as many processes.

    Compared are the relevant phases, each with as many iterations as the study makes; what the
    study has at a count between its own is interpolated, totals being nearly constant in strong
    scaling. Bytes are NaN where the study moves none."""
    tables = {t.np: sums(s, t, t.np) for t in own}
    here = sums(s, far, -far.np)
    nearest = min(tables, key=lambda n: (abs(math.log(n / far.np)), n))
    phases = relevant(tables[nearest])
    phases = [k for k in phases if k] or phases
    out = []
    for what in ("work", "nbytes"):
        mine = theirs = 0.0
        for k in phases:
            points = {
                n: (getattr(of[k], what), of[k].turns) for n, of in tables.items() if of[k].turns
            }
            turns = interpolated({n: t for n, (_, t) in points.items()}, far.np)
            theirs += interpolated({n: v for n, (v, _) in points.items()}, far.np)
            if here[k].turns:
                mine += getattr(here[k], what) * turns / here[k].turns
        out.append(mine / theirs if theirs > 0 else math.nan)
    return out[0], out[1]


def interpolated(points: dict[int, float], n: int) -> float:
    """Return a value at ``n`` from those at the two counts next to it, by a power law."""
    if n in points:
        return points[n]
    counts = sorted(points)
    if not counts:
        return 0.0
    above = next((k for k, m in enumerate(counts) if m > n), len(counts))
    pair = counts[max(above - 2 if above == len(counts) else above - 1, 0) :][:2]
    low, high = pair[0], pair[-1]
    a, b = points[low], points[high]
    if low == high or a <= 0 or b <= 0:
        return a if abs(low - n) <= abs(high - n) else b
    return float(a * (n / low) ** (math.log(b / a) / math.log(high / low)))


Times = Mapping[tuple[str, str], float] | None
# ---- the walk upwards ---------------------------------------------------------------------------
#: The next count is at least so many times the one before.
_STEP = 1.3
#: Cost that falls by no more than this, relative, has stopped falling.
FALLS = 0.02
#: A cost has fallen where it is lower than it was by more than this.
FLAT = 0.05
REACHED, FALLING, STEADY, UNKNOWN = "reached", "falling", "steady", "unknown"


def counts_upward(known: Admissible, traced: Sequence[int], up_to: int) -> list[int]:
    """Return the counts of the walk: from the smallest traced one (two at least) to ``up_to``.

    known: of p3s.model.grid.admissible.learn. Traced counts are preferred, else about doubled.
    """
    first = min((n for n in traced if n > 1), default=2)
    out = [first] if first <= up_to else []
    while out:
        low, high = out[-1] * _STEP, out[-1] * 2
        mine = [
            n for n in range(out[-1] + 1, up_to + 1) if n >= low and admissible.admits(known, n)
        ]
        if not mine:
            break
        near = [n for n in mine if n <= high] or mine[:1]
        liked = [n for n in near if n in traced]
        out.append(max(liked or near))
    return out


@dataclass(frozen=True)
class PhaseCost:
    """Cost per unit of work of one phase at ascending counts, and whether its least was reached.

    cost: ns per instruction; where work is time, its time per iteration over all ranks, which falls
    as its cost does as long as the work of all ranks together stays the same. at: the count of the
    least cost; status: one of REACHED, FALLING, STEADY (it has not fallen at all), UNKNOWN. phase:
    its number, None while there is no model."""

    name: str
    counts: tuple[ProcessCount, ...]
    cost: tuple[float, ...]
    status: str
    at: Natural | None
    phase: Natural | None = None

    def valid(self) -> None:
        """Raise ValueError unless there is a cost for each count."""
        if len(self.counts) != len(self.cost):
            raise ValueError("there is not one cost for each count")


def minimum(
    counts: Sequence[int], cost: Sequence[float], before: float = 0.0
) -> tuple[str, int | None]:
    """Return whether the cost has stopped falling, and at which of the ascending counts.

    before: the largest cost seen elsewhere (the study's own), 0 if none. Cost that is even before
    it has fallen at all has not reached its least: the working set may not fit the cache yet.
    """
    if len(cost) < 2 or min(cost) <= 0:
        return UNKNOWN, None
    least = int(np.argmin(cost))
    if cost[-1] < (1 - FALLS) * cost[-2]:
        return FALLING, None
    if min(cost) > (1 - FLAT) * max(*cost[: least + 1], before):
        return STEADY, None
    # the largest count that costs as little: the thesis takes 100 processes where 81 cost the same
    return REACHED, max(
        n for n, c in zip(counts, cost, strict=True) if c <= (1 + FALLS) * cost[least]
    )


def costs(
    own: Sequence[PointTable],
    far: Sequence[PointTable],
    far_times: Mapping[int, Times],
    own_times: Mapping[int, Times],
) -> list[PhaseCost]:
    """Return the cost of every relevant phase of the study over the counts of a smaller workload.

    own_times, far_times: count -> place -> ns before its calls, over all ranks; None: not known.
    """
    s = together(own, far)
    exact = bool(far) and far[0].work_unit == INSTRUCTIONS
    nearest = min(own, key=lambda t: t.np)
    out = []

    def cost(t: PointTable, key: int, loop: int, times: Times) -> float | None:
        of = sums(s, t, key)[loop]
        if times is None or not of.turns or not of.work:
            return None
        time = sum(times.get(s.nodes[v], 0.0) for v in phases_in(s)[loop])
        return time / (of.work if exact else of.turns)

    for loop in relevant(sums(s, nearest, nearest.np)):
        if not loop:
            continue
        found = [
            (t.np, c)
            for t in sorted(far, key=lambda t: t.np)
            if (c := cost(t, -t.np, loop, far_times.get(t.np)))
        ]
        # times per iteration of another workload are no costs that can be compared with it
        before = [c for t in own if exact and (c := cost(t, t.np, loop, own_times.get(t.np)))]
        counts, values = tuple(n for n, _ in found), tuple(c for _, c in found)
        status, at = minimum(counts, values, max(before, default=0.0))
        out.append(PhaseCost(phase_name(s, loop), counts, values, status, at))
    return out


def stop(found: Sequence[PhaseCost]) -> bool:
    """Tell whether no phase gets cheaper at larger counts, as far as is known."""
    return bool(found) and all(each.status == REACHED for each in found)
