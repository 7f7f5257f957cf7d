"""Slots: one communication of the program as equations (partner, guard, count, bytes, work).

An *item* is what one node (site, operation, tag) does towards one relation or on one kind of
communicator; a *slot* is an item with one size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from p3s.laws.counts import Law, WorkLaw
from p3s.laws.exact import evaluate_int
from p3s.laws.expr import symbols_of, whole_number
from p3s.laws.lawfinder import find_law
from p3s.laws.statistics import RIVAL_BITS
from p3s.model.grid.at import GridAt, Guard
from p3s.model.grid.atoms import Above, HasPartner
from p3s.model.grid.guardfit import fit_guards
from p3s.model.law_types import CountLaw, IterationsLaw, RootLaw, SizeLaw
from p3s.model.partners.relation import Shift
from p3s.model.partners.stencil import at_stage
from p3s.model.reasons import Code, Reason
from p3s.model.sizes import pairs
from p3s.model.sizes.forms import Search
from p3s.model.sizes.joint import JointSizes
from p3s.model.sizes.numbers import fit_count, fit_root, fit_turns, turns_matter
from p3s.model.sizes.observations import Observations, distinct, distinct_columns, joined_symbols
from p3s.model.sizes.observed import ObservedRows, Rows, env_of
from p3s.model.types import Slot

MAX_VARIANTS = 32


def _matrix(item: ObservedRows, n: int, values: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    out = np.zeros(shape, dtype=np.int64)
    np.add.at(out, (item.stage[n], item.rows[n].rank), values)
    return out


def _variants(item: ObservedRows, counts: list[int]) -> dict[int, np.ndarray] | None:
    """Number the sizes that each (stage, rank) uses, in order of appearance; None if irregular."""
    out: dict[int, np.ndarray] = {}
    widths: set[int] = set()
    for n in counts:
        rows, stage = item.rows[n], item.stage[n]
        number = np.zeros(len(rows.rank), dtype=np.int64)
        cell = stage * item.grids[n].n + rows.rank
        order = np.lexsort((rows.first, cell))
        sizes: dict[int, list[int]] = {}
        for i in order:
            known = sizes.setdefault(int(cell[i]), [])
            b = int(rows.nbytes[i])
            if b not in known:
                known.append(b)
            number[i] = known.index(b)
        cared, sized = item.care[n], item.sized(n)
        for c, known in sizes.items():
            s, r = divmod(c, item.grids[n].n)
            if cared[s, r]:
                widths.add(len(known))
            elif not sized[s, r]:  # another item's sizes are mixed in
                number[cell == c] = 0
        out[n] = number
    if len(widths) > 1 or (widths and max(widths) > MAX_VARIANTS):
        return None
    return out


#: A slot with the sizes that its law is found from, None where there is none to be found.
SizedSlot = tuple[Slot, Observations | None]


def fit_item(item: ObservedRows, counts: list[int]) -> list[Slot]:
    """Return the slots of an item whose sizes no other one helps to find."""
    search = Search()
    sized = fit_sizes(item, counts, search, False)
    laws = JointSizes(
        {k: obs for k, (_, obs) in enumerate(sized) if obs is not None}, search
    ).with_rivals()
    slots = finish_slots(item, counts, False, sized)
    return [with_size(slot, laws[k]) if k in laws else slot for k, slot in enumerate(slots)]


def fit_sizes(
    item: ObservedRows, counts: list[int], search: Search, varying: bool
) -> list[SizedSlot]:
    """Return the slots of an item with the laws of numbers, and what is seen of sizes: one slot, by
    turn where iterations tell sizes or roots apart; else one per size in order of appearance, or
    one with statistical sizes. The laws of sizes, who takes part and the work are to come.

    counts: all process counts of the study, also those at which the item was not seen.
    """
    if any(_by_turn(item, n) for n in counts if len(item.rows[n].rank)):
        slot, obs = _fit_slot(item, item, counts, varying, mixed=False, turned=True)
        sure_root = all(reason.code != Code.ROOT_VARIES for reason in slot.why)
        known = obs is not None and bool(search.hypotheses(distinct(obs)))
        if slot.turns is not None and known and sure_root:
            return [(slot, obs)]
    parts = _by_size(item, counts)
    if parts is None:
        return [_fit_slot(item, item, counts, varying, mixed=True)]
    return [_fit_slot(item, part, counts, varying, mixed=False) for part in parts]


def numbers_of(item: ObservedRows, counts: list[int], varying: bool) -> list[CountLaw]:
    """Return the laws of the numbers of :func:`fit_sizes`; none where they may be by iteration."""
    if any(_by_turn(item, n) for n in counts if len(item.rows[n].rank)):
        return []
    parts = _by_size(item, counts) or [item]
    return [fit_count(item, _times(part, counts), counts, varying)[0] for part in parts]


def finish_slots(
    item: ObservedRows, counts: list[int], varying: bool, sized: Sequence[SizedSlot]
) -> list[Slot]:
    """Return the slots of :func:`fit_sizes` with who takes part and the work."""
    parts: Sequence[ObservedRows] | None = [item]
    if len(sized) > 1 or sized[0][0].turns is None:
        parts = _by_size(item, counts)
    out = []
    for part, (slot, _) in zip(parts or [item], sized, strict=True):
        guards, why = _fit_guards(item, _times(part, counts), counts, varying)
        work, points = _fit_work(part, counts)
        slot = replace(slot, guard=next(iter(guards), None), guard_rivals=tuple(guards[1:]))
        out.append(replace(slot, work=work, work_points=points, why=(*why, *slot.why)))
    return out


def _by_size(item: ObservedRows, counts: list[int]) -> list[ObservedRows] | None:
    """Return the parts of an item, one per size in order of appearance; None if irregular."""
    numbers = _variants(item, [n for n in counts if len(item.rows[n].rank)])
    if numbers is None:
        return None
    parts = []
    for k in range(1 + max((int(v.max()) for v in numbers.values() if len(v)), default=0)):
        picks = {n: numbers[n] == k if n in numbers else np.zeros(0, bool) for n in counts}
        rows = {n: item.rows[n].take(pick) for n, pick in picks.items()}
        stage = {n: item.stage[n][pick] for n, pick in picks.items()}
        parts.append(replace(item, rows=rows, stage=stage))
    return parts


def _times(item: ObservedRows, counts: list[int]) -> dict[int, np.ndarray]:
    """Return how often each rank does it at each stage, (stages, n) per count."""
    out = {}
    for n in counts:
        shape = (len(item.peers[n]) if item.peers is not None else 1, item.grids[n].n)
        out[n] = _matrix(item, n, item.rows[n].count, shape)
    return out


def _by_turn(item: ObservedRows, n: int) -> bool:
    """Tell whether the iterations of the cells that are known tell sizes or roots apart at
    ``n``."""
    rows, stage = item.rows[n], item.stage[n]
    keep = item.sized(n)[stage, rows.rank]
    mine = rows.take(keep)
    return turns_matter(
        stage[keep] * item.grids[n].n + mine.rank, mine.turn, (mine.nbytes, mine.root)
    )


def _fit_slot(
    item: ObservedRows,
    part: ObservedRows,
    counts: list[int],
    varying: bool,
    mixed: bool,
    turned: bool = False,
) -> SizedSlot:
    times = _times(part, counts)
    count, why_count = fit_count(item, times, counts, varying)
    turns = _fit_turns(part, counts) if turned else None
    elements, elem_bytes, obs, why_size = _fit_bytes(part, counts, mixed)
    root, why_root = _fit_root(part, counts, turns is not None)
    slot = Slot(
        relation=item.relation,
        place=item.place,
        seen=tuple(n for n in counts if times[n].any()),
        guard=None,
        count=count,
        elements=elements,
        elem_bytes=elem_bytes,
        root=root,
        work=WorkLaw((), 0.0, 0),
        work_points=(),
        turns=turns,
        why=(*why_count, *why_size, *why_root),
    )
    return slot, obs


def _fit_guards(
    item: ObservedRows, times: dict[int, np.ndarray], counts: list[int], varying: bool
) -> tuple[list[Guard], list[Reason]]:
    """Return who takes part (none: no rule) with its rivals, and what there is to say of it."""
    seen = [n for n in counts if times[n].any()]
    grids: list[GridAt] = []
    sets: list[np.ndarray] = []
    peers: list[np.ndarray] = []
    cares: list[np.ndarray] = []
    for n in counts:
        for s in range(len(times[n])):
            grids.append(at_stage(item.relation, item.grids[n], s, len(times[n])))
            # who takes part, whichever partner it happened to have in this run
            if varying and item.peers is not None:
                sets.append(np.any(times[n] > 0, axis=0) & (item.peers[n][s] >= 0))
            else:
                sets.append(np.asarray(times[n][s] > 0))
            cares.append(item.taken.get(n, item.care[n])[s])
            if item.peers is not None:
                peers.append(item.peers[n][s])
    if not grids:
        return [Guard()], []
    found = fit_guards(grids, sets, peers if item.peers is not None else None, cares)
    if not found and seen and seen[0] > counts[0]:
        late = [i for i, g in enumerate(grids) if g.n >= seen[0]]
        found = fit_guards(
            [grids[i] for i in late],
            [sets[i] for i in late],
            [peers[i] for i in late] if peers else None,
            [cares[i] for i in late],
        )
        if found:
            below = Guard((Above(max(n for n in counts if n < seen[0])),))
            return [g + below for g in _near(found)], [Reason(Code.FIRST_SEEN, at=seen[0])]
    return _near(found), [] if found else [Reason(Code.NO_RANKS)]


def _near(guards: Sequence[Guard]) -> list[Guard]:
    """Return the first guard and those that are named in few bits more."""
    return [g for g in guards if g.bits <= guards[0].bits + RIVAL_BITS]


def _known_rows(item: ObservedRows, n: int) -> tuple[dict[str, np.ndarray], Rows, np.ndarray]:
    """Return the symbols and the rows of the cells that are the item's own, and their stages."""
    rows, stage = item.rows[n], item.stage[n]
    keep = item.sized(n)[stage, rows.rank]
    if not keep.any() and not any(
        item.sized(m).any() and len(item.rows[m].rank) for m in item.rows
    ):
        keep = np.ones(len(rows.rank), dtype=bool)
    mine, stage = rows.take(keep), stage[keep]
    peers = item.peers[n][stage, mine.rank] if item.peers is not None else None
    grid = item.grids[n]
    return env_of(grid, mine.rank, peers, stage, mine.turn, item.relation), mine, stage


def _fit_turns(item: ObservedRows, counts: list[int]) -> IterationsLaw | None:
    parts = []
    for n in counts:
        if len(item.rows[n].rank):
            env, rows, stage = _known_rows(item, n)
            if len(rows.rank):  # else all cells are shared with another relation
                parts.append((env, stage * item.grids[n].n + rows.rank, rows.count))
    return fit_turns(parts, len(item.grids[counts[0]].dims)) if parts else None


def _fit_bytes(
    item: ObservedRows, counts: list[int], mixed: bool
) -> tuple[SizeLaw, int, Observations | None, list[Reason]]:
    """Return the means of the elements of a message, bytes of one, the elements, what is open."""
    parts: list[tuple[dict[str, np.ndarray], np.ndarray]] = []
    elem = 1
    sizes = {int(e) for n in counts for e in np.unique(item.rows[n].elem)}
    if len(sizes) == 1:
        elem = sizes.pop()
    means: list[tuple[int, float, int]] = []
    for n in counts:
        rows = item.rows[n]
        if not len(rows.rank):
            continue
        total = float((rows.nbytes * rows.count).sum())
        means.append((n, total / float(rows.count.sum()), int(rows.count.sum())))
        if np.any(rows.nbytes % elem):
            elem = 1
        env, known, _ = _known_rows(item, n)
        parts.append((env, known.nbytes))
    why, obs = Code.SIZES_VARY, None
    if not mixed and parts:
        env = joined_symbols([e for e, _ in parts])
        obs = Observations(
            env,
            np.concatenate([v for _, v in parts]) // elem,
            len(item.grids[counts[0]].dims),
            _across(item),
            _all_there(env),
        )
        why = Code.NO_SIZE
    # The law comes when all sizes are known (amounts.fit_amounts): they share what they show.
    law_of_means = SizeLaw(means=tuple((n, b / elem, k) for n, b, k in means))
    return law_of_means, elem, obs, [Reason(why)]


#: What is open about sizes.
OF_SIZES = (Code.CUT_OPEN, Code.NO_SIZE)


def with_size(slot: Slot, law: Law) -> Slot:
    """Return a slot with the law of its size and the rivals that meet its points too."""
    why = [w for w in slot.why if w.code not in OF_SIZES]
    if law.others:
        why.append(Reason(Code.CUT_OPEN))
    size = SizeLaw(expr=law.expr, points=law.points, free=law.free, rivals=law.others)
    return replace(slot, elements=size, why=tuple(why))


def _all_there(env: dict[str, np.ndarray]) -> bool:
    """Tell whether every rank is there at every count, stage and iteration at which any is."""
    cells = distinct_columns([env[k] for k in ("n", "s", "t", "r")])[0]
    _, first, which = distinct_columns(list(cells[:3]))
    return bool(np.all(np.bincount(which) == cells[0][first]))


def _across(item: ObservedRows) -> tuple[int, ...]:
    """Return the dimensions a shift does not move along; empty for all else."""
    rel = item.relation
    if not isinstance(rel, Shift) or len(rel.vec) < 2 or not any(rel.vec):
        return ()
    return tuple(d for d, v in enumerate(rel.vec) if v == 0)


def _fit_root(
    item: ObservedRows, counts: Sequence[int], turned: bool
) -> tuple[RootLaw | None, list[Reason]]:
    """Return the law of the root; turned: it may depend on the iteration."""
    roots = {(int(r), n) for n in counts for r in np.unique(item.rows[n].root)}
    where = {r for r, _ in roots}
    if where <= {-1}:
        return None, []
    if len(where) == 1:
        return RootLaw(index=where.pop()), []
    if roots and all(r == item.grids[n].n - 1 for r, n in roots):
        return RootLaw(index=-1), []
    if all(r == item.grids[n].n // 2 for r, n in roots):
        return RootLaw(half=True), []
    parts = [_known_rows(item, n) for n in counts if len(item.rows[n].rank)]
    env = joined_symbols([e for e, _, _ in parts])
    if not turned:
        env["t"] = np.zeros(len(env["n"]), dtype=np.int64)
    law = fit_root(
        env, np.concatenate([r.root for _, r, _ in parts]), len(item.grids[counts[0]].dims)
    )
    if law is not None:
        return RootLaw(expr=law), []
    return RootLaw(index=0), [Reason(Code.ROOT_VARIES)]


def _fit_work(
    item: ObservedRows, counts: Sequence[int]
) -> tuple[WorkLaw, tuple[tuple[int, float], ...]]:
    """Return the law of the work of one occurrence, and its points."""
    points = []
    for n in counts:
        rows = item.rows[n]
        if len(rows.rank) and rows.count.sum():
            points.append((n, float(rows.work.sum()) / float(rows.count.sum())))
    return find_law(points, "work").fit, tuple(points)


def sample_slots(item: ObservedRows, counts: Sequence[int]) -> tuple[Slot, ...]:
    """Return the slots of an item whose relation is a sample (p3s.model.partners.irregular)."""
    rows = {n: item.rows[n] for n in counts if len(item.rows[n].rank)}
    units = {int(e) for r in rows.values() for e in np.unique(r.elem)}
    elem = units.pop() if len(units) == 1 else 1
    if any(np.any(r.nbytes % elem) for r in rows.values()):
        elem = 1
    root, why = _fit_root(item, counts, False)
    work, points = _fit_work(item, counts)
    return tuple(
        Slot(
            relation=item.relation,
            place=item.place,
            seen=tuple(sorted(rows)),
            guard=Guard((HasPartner(),)),
            count=count,
            elements=elements,
            elem_bytes=elem,
            root=root,
            work=work,
            work_points=points,
            why=(Reason(Code.SAMPLE), *why),
        )
        for count, elements in pairs.laws(pairs.calls_of(rows), elem)
    )


def count_of(
    slot: Slot,
    g: GridAt,
    ranks: np.ndarray,
    peers: np.ndarray | None,
    stage: np.ndarray,
    cells: tuple[int, int],
) -> np.ndarray:
    """Return how often each rank executes the slot in the run, int64.

    cells: number of (stage, rank) cells before these and in all, to share out a total.
    """
    law = slot.count
    if law.sample is not None and peers is not None:
        unit = replace(slot, count=replace(law, sample=None))
        each = count_of(unit, g, ranks, None, stage, cells)
        return np.asarray(each * pairs.of_pairs(slot.relation, law.sample, g.n, ranks, peers))
    if law.expr is not None:
        value = evaluate_int(law.expr, env_of(g, ranks, peers, stage))
        return np.broadcast_to(value, (len(ranks),)).astype(np.int64)
    if law.total is not None:
        total = int(np.max(evaluate_int(law.total, env_of(g, np.zeros(1, dtype=np.int64)))))
        shares = max(cells[1], 1)
        return total // shares + (cells[0] + np.arange(len(ranks)) < total % shares)
    if law.stat is None:
        raise ValueError("a number of calls has no law")
    return np.full(len(ranks), whole_number(float(law.stat.value(g.n)), g.n), dtype=np.int64)


def bytes_of(
    slot: Slot,
    g: GridAt,
    ranks: np.ndarray,
    peers: np.ndarray | None,
    stage: np.ndarray,
    turn: int = 0,
) -> np.ndarray:
    """Return the bytes of one occurrence for each rank, int64."""
    law = slot.elements
    if law.sample is not None and peers is not None:
        elements = pairs.of_pairs(slot.relation, law.sample, g.n, ranks, peers)
        return np.asarray(elements * slot.elem_bytes)
    if law.expr is not None:
        tree = slot.relation if "b" in symbols_of(law.expr) else None
        value = evaluate_int(law.expr, env_of(g, ranks, peers, stage, turn, tree))
        elements = np.broadcast_to(value, (len(ranks),)).astype(np.int64)
        return np.asarray(elements * slot.elem_bytes)
    if law.stat is None:
        raise ValueError("a size has no law")
    mean = float(law.stat.value(g.symbols)) * slot.elem_bytes
    return np.full(len(ranks), whole_number(mean, g.n), dtype=np.int64)
