"""Loops whose number of iterations is no law of the process count, and numbers that the user
states.

A loop that runs until it converges, until time is up or as long as there is work runs as often
as the data, the machine or chance want. Such a loop is refused a law, with the reason; its user
may know the number (``p3s model STUDY --trips SITE=COUNT``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from p3s.base.errors import P3SError
from p3s.laws.expr import mul, num
from p3s.laws.lawfinder import find_law
from p3s.model.grid.at import GridAt
from p3s.model.law_types import CountLaw
from p3s.model.sizes.observed import ObservedRows
from p3s.model.tree import item_of_rows
from p3s.model.types import Item, Model, Phase, Refusal, Slot
from p3s.signature.tables import PointTable

#: Relative spread over counts up to which the time of a loop counts as the same.
SAME_TIME = 0.08
#: Iterations have to differ this much before a time that does not is a sign.
_TURNS_DIFFER = 1.25
#: From how many iterations on, and within which ratio, their numbers are nearly the same.
_MANY, _ALIKE = 8, 1.1
MAX_TRIPS = 1 << 40
#: Calls whose result may tell all ranks to end a loop.
_REDUCTIONS = ("MPI_Allreduce", "MPI_Iallreduce", "MPI_Reduce")


def judge_trips(
    phases: Sequence[Phase],
    items: Sequence[Item],
    tables: Sequence[PointTable],
    grids: Mapping[int, GridAt],
    split: Mapping[tuple[str, str], bool],
    typed: Collection[int] = (),
) -> list[Phase]:
    """Return the phases, those whose iterations are no law of the count with a refusal.

    Iterations that differ between runs lose a law that seemed to fit; those that take the same
    time at all counts lose one that needs as many numbers as it explains. A constant keeps it,
    marked where a tolerance may be what ends the loop and no argument (typed) says the number.
    """
    recounted = {name: t.np for t in tables for name in t.recounted}
    seconds = _seconds(phases, items, tables, grids, split)
    said = _list_candidates(typed)
    out = []
    for k, phase in enumerate(phases):
        why = _refusal(phase, items, recounted, seconds[k])
        if why is not None:
            out.append(_refuse_trips(phase, why))
        else:
            out.append(replace(phase, trips=_tolerance(phase, phases, items, said)))
    return out


def _list_candidates(typed: Collection[int]) -> set[int]:
    """Return the numbers of iterations that arguments say: themselves, one more or less, every
    k-th, and two loops in one."""
    known = set(typed)
    known |= {a * b for a in typed for b in typed}
    known |= {v for a in typed for b in typed if b for v in (a // b, -(-a // b))}
    return {v + d for v in known for d in (-1, 0, 1)}


def _tolerance(
    phase: Phase, phases: Sequence[Phase], items: Sequence[Item], said: set[int]
) -> Refusal | None:
    """Return that a tolerance may end a loop of as many iterations at every count, or nearly so."""
    once = _per_entry(phase, phases)
    if not once or once <= said or not any(_one_number(items[i]) for i in phase.items):
        return None
    if len(once) == 1:
        return Refusal("tolerance", n=once.pop())
    alike = min(once) >= _MANY and max(once) <= _ALIKE * min(once)
    return Refusal("tolerance") if alike else None


def _per_entry(phase: Phase, phases: Sequence[Phase]) -> set[int]:
    """Return the iterations of a loop for one of the loop around it; none where they are parts."""
    if phase.parent is None:
        return set()
    around = dict(phases[phase.parent].weight_points)
    ratios = {Fraction(v, around.get(n) or 1) for n, v in phase.weight_points}
    whole = all(ratio > 1 and ratio.denominator == 1 for ratio in ratios)
    return {int(ratio) for ratio in ratios} if whole else set()


def _one_number(item: Item) -> bool:
    """Tell whether an item reduces one number over all ranks of a communicator."""
    return item.op in _REDUCTIONS and any(s.elements.expr == num(1) for s in item.slots)


def _refusal(
    phase: Phase, items: Sequence[Item], recounted: Mapping[str, int], seconds: Sequence[float]
) -> Refusal | None:
    """Return why the iterations of a phase have no law, None where nothing speaks against it."""
    if phase.parent is None or not phase.items:
        return None
    law, values = phase.weight, [v for _, v in phase.weight_points]
    own = [f"{items[i].site}:{items[i].op}" for i in phase.items]
    if all(name in recounted for name in own):
        return Refusal("repeats", n=recounted[own[0]])
    loose = law.expr is None or law.expr[0] != "num" and (law.free or 0) >= len(values) - 1
    differ = len(values) > 1 and max(values) >= _TURNS_DIFFER * min(values)
    if loose and differ and len(values) > 2 and _is_constant(seconds):
        return Refusal("time", seconds=float(np.mean(seconds)))
    return Refusal("data") if law.expr is None else None


def _refuse_trips(phase: Phase, why: Refusal) -> Phase:
    if phase.weight.expr is None:
        return replace(phase, trips=why)
    points = phase.weight_points
    mean = find_law(points, "work").fit
    return replace(phase, trips=why, weight=CountLaw(stat=mean))


def refusal_text(phase: Phase) -> str:
    """Return in words why the iterations of a phase have no law; "" where they have one."""
    why = phase.trips
    if why is None:
        return ""
    if why.kind == "repeats":
        return (
            f"it runs differently often in the repeats at {why.n} processes: it may run until "
            "something converges, or as long as there is work; no rule in the process count is "
            "sought"
        )
    if why.kind == "time":
        return (
            f"it has {_list_values(phase.weight_points)} iterations, and takes about "
            f"{why.seconds:.3g} s at every count: it seems to end when a time is over"
        )
    if why.kind == "tolerance":
        number = (
            f"{why.n} iterations each time that it is entered, at every count, which is none of "
            "the program's arguments"
        )
        if not why.n:
            number = (
                f"{_list_values(phase.weight_points)} iterations, hardly more or less at any count"
            )
        return (
            f"it has {number}, and reduces one number in them: it may run until something converges"
        )
    return (
        f"it has {_list_values(phase.weight_points)} iterations, by no rule found: it may run "
        "until something converges, or as long as there is work"
    )


def _list_values(points: Sequence[tuple[int, int]]) -> str:
    return ", ".join(f"{v}" for _, v in points) + f" (at {', '.join(str(n) for n, _ in points)})"


def _is_constant(values: Sequence[float]) -> bool:
    v = np.asarray(values, dtype=float)
    return bool(len(v) > 2 and v.min() > 0 and np.ptp(v) <= SAME_TIME * v.mean())


def _seconds(
    phases: Sequence[Phase],
    items: Sequence[Item],
    tables: Sequence[PointTable],
    grids: Mapping[int, GridAt],
    split: Mapping[tuple[str, str], bool],
) -> list[list[float]]:
    """Return per phase, inner ones included, the mean time of its ranks at every count, in s."""
    out: list[list[float]] = [[] for _ in phases]
    inside = [list(_subtree(phases, k)) for k in range(len(phases))]
    for t in tables:
        if t.elapsed_ns.sum() == 0:  # under emulation times tell nothing
            continue
        phase_of = np.array([it.phase for it in items] + [len(phases)], dtype=np.int64)
        of_row = item_of_rows(items, t, grids[t.np], split)
        time = np.bincount(phase_of[of_row], (t.work + t.elapsed_ns).astype(float), len(phases) + 1)
        for k, mine in enumerate(inside):
            out[k].append(float(time[mine].sum()) / t.np / 1e9)
    return out


def _subtree(phases: Sequence[Phase], k: int) -> Iterator[int]:
    yield k
    for phase in phases:
        if phase.parent == k:
            yield from _subtree(phases, phase.phase)


def resolve(model: Model, where: str) -> int:
    """Return the phase that a user names: its number, a call site of its own, or a function.

    A function names the outermost loop with a call made in it or below it. Raises P3SError in
    one line when nothing or several loops fit.
    """
    phases, items = model.phases, model.items
    if where.isdigit():
        if not 0 < int(where) < len(phases):
            raise P3SError(
                f"--trips {where}: no such phase; the loops are phases 1 to {len(phases) - 1}"
            )
        return int(where)
    found = [
        p.phase
        for p in phases
        if p.parent is not None and any(_is_at(model, items[i].site, where) for i in p.items)
    ]
    if not found:
        raise P3SError(
            f"--trips {where}: no loop has a call of that site or function; "
            "p3s model without it shows them, phases can be named by their number"
        )
    around = [k for k in found if all(j in set(_subtree(phases, k)) for j in found)]
    if not around:
        raise P3SError(
            f"--trips {where}: fits the loops of phases "
            f"{', '.join(map(str, found))}; name one by its number"
        )
    return int(around[0])


def _is_at(model: Model, site: str, where: str) -> bool:
    names = [
        frame.split()[0].split("(")[0].split("+0x")[0]
        for frame in model.sites.get(site, ())
        if frame.split()
    ]
    return site == where or where in names


def per_turn(seen: ObservedRows, turns: Mapping[int, int]) -> ObservedRows | None:
    """Return an item as it is in one iteration of a loop, None where its calls do not divide.

    turns: of the loop, per count.
    """
    rows = {}
    for n, r in seen.rows.items():
        if not len(r.rank):
            rows[n] = r
            continue
        w = turns.get(n, 0)
        if not w or np.any(r.count % w):
            return None
        rows[n] = replace(r, count=r.count // w, work=r.work // w)
    return replace(seen, rows=rows)


def multiply_slots(slots: Sequence[Slot], trips: int) -> tuple[Slot, ...]:
    """Return slots fitted to one iteration for ``trips`` of them."""
    return tuple(
        replace(slot, count=_times(replace(slot.count, per_turn=once), trips))
        if (once := slot.count.expr or slot.count.total) is not None
        else slot
        for slot in slots
    )


def _times(law: CountLaw, trips: int) -> CountLaw:
    """Return the law of one iteration for so many of them."""
    all_ = mul(num(trips), law.per_turn or [])
    return replace(law, expr=all_) if law.expr is not None else replace(law, total=all_)


def as_traced(model: Model, n: int) -> Model:
    """Return the model with the iterations that stated loops had at a traced count."""
    traced = {
        k: dict(p.weight_points).get(n)
        for p in model.phases
        if p.weight.stated is not None
        for k in _subtree(model.phases, p.phase)
    }
    if not traced:
        return model

    def at_count(slot: Slot, turns: int | None) -> Slot:
        if turns is None or slot.count.per_turn is None:
            return slot
        return replace(slot, count=_times(slot.count, turns))

    items = tuple(
        replace(item, slots=tuple(at_count(s, traced.get(item.phase)) for s in item.slots))
        for item in model.items
    )
    return replace(model, items=items)


def subtree_items(phases: Sequence[Phase], k: int) -> list[int]:
    """Return the items of a phase and of all phases inside it."""
    return sorted(i for j in _subtree(phases, k) for i in phases[j].items)


def state(phase: Phase, trips: int) -> Phase:
    """Return a phase with the number of iterations that the user states."""
    points = len(phase.weight_points)
    return replace(phase, weight=CountLaw(expr=num(trips), points=points, free=0, stated=trips))


def follow_counts(model: Model) -> Model:
    """Return the model with the iterations of refused and stated loops taken from their calls."""
    if model.order is None:
        return model
    loops = {loop.loop: loop for loop in model.order.loops}
    for phase in model.phases:
        refused = phase.trips is not None and phase.trips.kind != "tolerance"
        if not refused and phase.weight.stated is None:
            continue
        around = [model.items[i].loops or () for i in phase.items]
        common = [level[0] for level in zip(*around, strict=False) if len(set(level)) == 1]
        own = [k for k in common if loops[k].walk is None]
        if own:
            loop = loops[own[-1]]
            loops[own[-1]] = replace(
                loop, trips=tuple(replace(rule, law=None) for rule in loop.trips)
            )
    return replace(model, order=replace(model.order, loops=tuple(loops.values())))
