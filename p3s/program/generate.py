"""Write scaled/npNNNNNN: part-*.parquet, comms.json, order.json, scaled.json (written last).

Ranks are independent of each other: the trace is made and written some ranks at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from p3s.base import workers
from p3s.base.artefacts import write_bytes, write_json
from p3s.base.errors import P3SError
from p3s.base.records import commit_run, scaled_dir, stage_run
from p3s.base.staging import discard
from p3s.base.tables import TableFacts
from p3s.costs.apply import PhaseSums
from p3s.costs.files import FileSums
from p3s.model.evaluate import Evaluator, phase_weight, spread_ranks
from p3s.model.law_types import OrderedItem, OrderedSlot, TraceOrder
from p3s.model.order.unfold import places_asked_for
from p3s.model.reasons import Verdict
from p3s.model.stage import NAME as MODEL
from p3s.model.types import Model, Phase
from p3s.model.verdicts import chance_of_another, other_extents, structure_open
from p3s.program.parts import (
    Builder,
    Call,
    RankSums,
    below_one,
    builder_of,
    packed_at,
    part_of,
    verdicts_of,
)
from p3s.program.types import (
    COMMS,
    MOST_RANKS,
    ORDER,
    SCALED,
    Emptied,
    NoTrend,
    OpenStructure,
    RowShare,
    ScaledHead,
    ScaledPhase,
    UnknownCall,
)

RANKS_PER_PART = 2048


def write_scaled(
    root: Path, n: int, ranks: Sequence[int] | None = None, *, spread: bool = False
) -> ScaledHead:
    """Write the scaled trace of ``n`` processes into a study and return its head (scaled.json).

    ranks: only these, into a directory of its own (scaled/npNNNNNN.ranks). spread: where there are
    more than MOST_RANKS, only ranks that stand for all (:func:`p3s.model.evaluate.spread_ranks`).
    """
    if n < 1:
        raise P3SError(f"scale: {n} processes cannot be; give a count of 1 or more")
    chosen_ranks = None if ranks is None else _check_ranks(ranks, n)
    few = chosen_ranks is None and spread and n > MOST_RANKS
    if few:
        chosen_ranks = spread_ranks(n)
    if chosen_ranks is None and n > MOST_RANKS:
        raise P3SError(f"scale: {n} processes have too many rows to write; name some with --ranks")
    call = Call(root.absolute(), n)
    target = some_dir(scaled_dir(root, n), ranks)
    made_of = [root / MODEL, root / "compute.json"]
    staged = stage_run(target)
    try:
        builder = builder_of(call)
        model, evaluator = builder.model, builder.evaluator
        sums: RankSums | None = None
        times = PhaseSums(builder.costs) if builder.costs is not None else None
        uses = FileSums(len(model.items))
        tables: dict[str, TableFacts] = {}
        tasks = [(call, part) for part in _parts(chosen_ranks, n)]
        for k, part_result in enumerate(workers.run_tasks(part_of, tasks, root / MODEL)):
            part = staged / f"part-{k:05d}.parquet"
            write_bytes(part, part_result.data)
            tables[part.name] = part_result.facts
            sums = part_result.sums if sums is None else sums + part_result.sums
            if times is not None and part_result.timed is not None:
                times.add(part_result.timed)
            if part_result.uses is not None:
                uses.join(part_result.uses)
        comms = {"schema": COMMS.schema, "schema_version": COMMS.version}
        write_json(staged / "comms.json", {**comms, "comms": evaluator.comms.to_json()})
        order = order_of(model, evaluator, places=not few)
        write_json(staged / "order.json", ORDER.data(order))
        assert sums is not None
        out = replace(head_of(builder, sums, times, uses, chosen_ranks), tables=tables)
        if few and chosen_ranks is not None:
            share = n / len(chosen_ranks)
            short = [replace(one, ranks=round(one.ranks * share)) for one in out.emptied]
            out = replace(out, emptied=tuple(short))
        write_json(staged / "scaled.json", SCALED.data(out), made_of)
        commit_run(staged, target)
    finally:
        builder_of.cache_clear()
        discard(staged)
    return out


def _parts(ranks: np.ndarray | None, n: int) -> list[np.ndarray | range]:
    """Return the ranks of each part: those wanted, or all of ``n``."""
    if ranks is None:
        return [range(a, min(a + RANKS_PER_PART, n)) for a in range(0, n, RANKS_PER_PART)]
    return list(np.array_split(ranks, range(RANKS_PER_PART, len(ranks), RANKS_PER_PART)))


def _ranges(ranks: np.ndarray) -> tuple[tuple[int, int], ...]:
    """Return (first, last) of ascending ranks without gaps between them."""
    parts = np.split(ranks, np.flatnonzero(np.diff(ranks) > 1) + 1)
    return tuple((int(part[0]), int(part[-1])) for part in parts)


def some_dir(whole: Path, ranks: Sequence[int] | None) -> Path:
    """Return the directory of a scaled trace; that of some ranks stands beside the whole one."""
    return whole if ranks is None else whole.with_name(whole.name + ".ranks")


def _check_ranks(ranks: Sequence[int], n: int) -> np.ndarray:
    distinct_ranks = np.unique(np.asarray(ranks, dtype=np.int64))
    if not len(distinct_ranks) or distinct_ranks[0] < 0 or distinct_ranks[-1] >= n:
        raise P3SError(
            f"scale: rank {int(distinct_ranks[-1]) if len(distinct_ranks) else 'none'} is none of"
            f" the {n} processes; name ranks from 0 to {n - 1}"
        )
    return distinct_ranks


def order_of(model: Model, evaluator: Evaluator, places: bool = True) -> TraceOrder:
    """Return what unfolds rows into the sequence of events (p3s.program.order.sequence).

    ``places``: with those of all ranks, where loops ask for them.
    """
    loops = model.order.loops if model.order is not None else None
    grid = evaluator.grid.whole or evaluator.grid
    return TraceOrder(
        n=evaluator.n,
        grid=tuple(grid.dims),
        loops=loops,
        coordinates=tuple(tuple(map(int, c)) for c in grid.coords)
        if places and places_asked_for(model.items, loops or ())
        else None,
        items=tuple(
            OrderedItem(
                item.op,
                item.kind,
                item.loops,
                item.at,
                tuple(OrderedSlot(s.when) for s in item.slots),
            )
            for item in model.items
        ),
    )


def no_trend(phase: Phase, n: int, mean: float) -> NoTrend | None:
    """Return what is said of a phase whose work has no clear trend; None where it has one.

    The laws that fit its traced points differ at ``n``: ``low`` and ``high`` are their ends as
    multiples of ``mean``, the work of a rank that the model says.
    """
    law = phase.work.law
    if not law.refused or n <= law.max_n or mean <= 0:
        return None
    low, high = (end / mean for end in law.interval(n))
    return NoTrend(law.refused, min(low, 1.0), max(high, 1.0))


def head_of(
    builder: Builder,
    sums: RankSums,
    times: PhaseSums | None,
    uses: FileSums,
    chosen_ranks: np.ndarray | None,
) -> ScaledHead:
    """Return the head of a trace from the sums over its rows; ``chosen_ranks``: None for all.

    times: of the phases, None where no time is known.
    """
    model, evaluator, files = builder.model, builder.evaluator, builder.laws.files
    n, grid = evaluator.n, evaluator.grid
    ranks = n if chosen_ranks is None else len(chosen_ranks)
    phases = [
        ScaledPhase(
            k,
            p.name,
            p.depth,
            p.parent,
            weight=phase_weight(p, grid),
            events_per_iteration=float(sums.events[k]) / ranks,
            work=float(sums.work[k]),
            work_rel_half_width=float(sums.half[k] / sums.work[k]) if sums.work[k] else 0.0,
            no_trend=no_trend(p, n, float(sums.work[k]) / ranks),
            **(times.data_of(k, grid) if times is not None else {}),
        )
        for k, p in enumerate(model.phases)
    ]
    total = sums.share.sum(axis=1)
    shares = np.divide(sums.share.T, total, out=np.zeros(sums.share.T.shape), where=total != 0)
    return ScaledHead(
        n=n,
        work_unit=model.work_unit,
        work_units=model.work_units,
        grid=tuple(grid.dims),
        grid_rule=model.grid.text,
        rows=sums.rows,
        counts=model.counts,
        extrapolation=n / max(model.counts),
        first_seen=model.first_seen,
        unmodelled_ops=model.unmodelled_ops,
        not_modelled=model.not_modelled,
        tracing=model.tracing,
        buffers=model.buffers,
        packed=packed_at(model, n),
        phases=tuple(phases),
        share={
            verdict: RowShare(*row)
            for verdict, row in zip(verdicts_of(model), shares.tolist(), strict=True)
        },
        traced_share=model.shares,
        unknown=tuple(
            UnknownCall(item.op, item.site, tuple(reason.sentence for reason in item.why))
            for item in model.items
            if item.verdict == Verdict.UNKNOWN
        ),
        open=_open_structure(model, n, sums.open, total),
        emptied=find_emptied(model, sums.short),
        ranks=None if chosen_ranks is None else _ranges(chosen_ranks),
        files=() if files is None else uses.uses(files, model),
        files_from="" if files is None else files.source,
    )


def _open_structure(
    model: Model, n: int, part: np.ndarray, total: np.ndarray
) -> OpenStructure | None:
    """Return what is open of the structure; None: nothing.

    part: events and bytes of it; total: all of them.
    """
    calls = sum(structure_open(item) for item in model.items)
    if not calls:
        return None
    events, nbytes = (
        float(some / whole) if whole else 0.0 for some, whole in zip(part, total, strict=False)
    )
    chance = chance_of_another(model, n)
    return OpenStructure(calls, events, nbytes, other_extents(model, n), chance)


def find_emptied(model: Model, short: Counter[int]) -> tuple[Emptied, ...]:
    """Return items with messages of less than one element as at no count that the model rests on.

    short: how many ranks have those of each item (``below_one``).
    """
    if not short:
        return ()
    before: set[int] = set()
    for n in model.counts:
        before.update(below_one(model, Evaluator(model, n).rows()))
    return tuple(
        Emptied(model.items[k].op, model.items[k].site, ranks)
        for k, ranks in sorted(short.items())
        if k not in before
    )
