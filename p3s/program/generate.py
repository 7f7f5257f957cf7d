"""Write scaled/npNNNNNN: part-*.parquet, comms.json, order.json, scaled.json (written last).

Ranks are independent of each other: the trace is made and written some ranks at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from p3s.base import workers
from p3s.base.artefacts import write_bytes
from p3s.base.errors import P3SError
from p3s.base.records import commit_run, stage_run
from p3s.base.serialise import to_data
from p3s.base.staging import discard
from p3s.base.tables import TableFacts
from p3s.costs.apply import Costs, PhaseSums
from p3s.costs.files.places import FileSums
from p3s.model.evaluate import Evaluator, phase_weight, spread_ranks
from p3s.model.law_types import OrderedItem, OrderedSlot, TraceOrder
from p3s.model.order.unfold import places_asked_for
from p3s.model.reasons import Verdict
from p3s.model.types import Model, Phase, block_at
from p3s.model.verdicts import chance_of_another, other_extents, structure_open
from p3s.program.parts import (
    Call,
    RankSums,
    emptied,
    first_slots,
    forget,
    laws_of,
    part_of,
    verdicts_of,
)
from p3s.program.types import (
    MOST_RANKS,
    NoTrend,
    OpenStructure,
    PackedCall,
    RowShare,
    ScaledHead,
    ScaledPhase,
    UnknownCall,
)

RANKS_PER_PART = 2048


def write_scaled(
    study_dir: Path, n: int, ranks: Sequence[int] | None = None, *, spread: bool = False
) -> ScaledHead:
    """Write the scaled trace of ``n`` processes and return its head (scaled.json).

    ranks: only these, into a directory of its own (scaled/npNNNNNN.ranks). spread: where there are
    more than MOST_RANKS, only ranks that stand for all (:func:`p3s.model.evaluate.spread_ranks`).
    """
    from p3s.base.study import Study, write_json

    if n < 1:
        raise P3SError(f"scale: {n} processes cannot be; give a count of 1 or more")
    study = Study.open(Path(study_dir))
    wanted = None if ranks is None else _checked(ranks, n)
    few = wanted is None and spread and n > MOST_RANKS
    if few:
        wanted = spread_ranks(n)
    if wanted is None and n > MOST_RANKS:
        raise P3SError(f"scale: {n} processes have too many rows to write; name some with --ranks")
    call = Call(study.root.absolute(), n)
    target = scaled_dir(study.scaled_dir(n), ranks)
    staged = stage_run(target)
    try:
        laws = laws_of(call)
        model, evaluator, files = laws.model, laws.evaluator, laws.files
        head = _Head(model, evaluator, laws.costs)
        uses = FileSums(len(model.items)) if files is not None else None
        tables: dict[str, TableFacts] = {}
        tasks = [(call, some) for some in _parts(wanted, n)]
        for k, made in enumerate(workers.each(part_of, tasks, study.model_path)):
            part = staged / f"part-{k:05d}.parquet"
            write_bytes(part, made.data)
            tables[part.name] = made.facts
            if uses is not None and made.sums.uses is not None:
                uses.join(made.sums.uses)
            head.take(made.sums)
        write_json(
            staged / "comms.json",
            {"schema": "p3s.comms", "schema_version": 1, "comms": evaluator.comms.to_json()},
        )
        write_json(staged / "order.json", _order(model, evaluator, places=not few))
        out = head.of(n, None) if wanted is None else head.of(len(wanted), _ranges(wanted))
        if few and wanted is not None:
            share = n / len(wanted)
            short = [replace(one, ranks=round(one.ranks * share)) for one in out.emptied]
            out = replace(out, emptied=tuple(short))
        if uses is not None and files is not None:
            out = replace(out, files=uses.uses(files, model), files_from=files.source)
        out = replace(out, tables=tables)
        write_json(staged / "scaled.json", as_file(out), [study.model_path, study.compute_path])
        commit_run(staged, target)
    finally:
        forget()
        discard(staged)
    return out


def _parts(wanted: np.ndarray | None, n: int) -> list[np.ndarray | range]:
    """Return the ranks of each part: those wanted, or all of ``n``."""
    if wanted is None:
        return [range(a, min(a + RANKS_PER_PART, n)) for a in range(0, n, RANKS_PER_PART)]
    return list(np.array_split(wanted, range(RANKS_PER_PART, len(wanted), RANKS_PER_PART)))


def as_file(head: ScaledHead) -> dict[str, Any]:
    """Return a head as it is written: scaled.json with the name and version of its schema."""
    return {"schema": "p3s.scaled", "schema_version": 1, **to_data(head)}


def _ranges(ranks: np.ndarray) -> tuple[tuple[int, int], ...]:
    """Return (first, last) of ascending ranks without gaps between them."""
    parts = np.split(ranks, np.flatnonzero(np.diff(ranks) > 1) + 1)
    return tuple((int(part[0]), int(part[-1])) for part in parts)


def scaled_dir(whole: Path, ranks: Sequence[int] | None) -> Path:
    """Return the directory of a scaled trace; that of some ranks stands beside the whole one."""
    return whole if ranks is None else whole.with_name(whole.name + ".ranks")


def _checked(ranks: Sequence[int], n: int) -> np.ndarray:
    wanted = np.unique(np.asarray(ranks, dtype=np.int64))
    if not len(wanted) or wanted[0] < 0 or wanted[-1] >= n:
        raise P3SError(
            f"scale: rank {int(wanted[-1]) if len(wanted) else 'none'} is none of the "
            f"{n} processes; name ranks from 0 to {n - 1}"
        )
    return wanted


def _order(model: Model, evaluator: Evaluator, places: bool) -> dict[str, Any]:
    """Return order.json; ``places``: with those of all ranks, where loops ask for them."""
    order = order_of(model, evaluator, places)
    return {"schema": "p3s.order", "schema_version": 1, **to_data(order)}


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
                it.op, it.kind, it.loops, it.at, tuple(OrderedSlot(s.when) for s in it.slots)
            )
            for it in model.items
        ),
    )


def packed_at(model: Model, n: int) -> tuple[PackedCall, ...]:
    """Return which rows have datatypes with gaps at ``n``."""
    first = first_slots(model)
    return tuple(
        PackedCall(
            it.op,
            it.site,
            (int(first[k]), int(first[k + 1]) - 1),
            one.share,
            block_at({int(c): b for c, b in one.block.items()}, n),
        )
        for k, it in enumerate(model.items)
        if it.slots
        for one in model.packed
        if (one.op, one.site) == (it.op, it.site)
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


class _Head:
    """Sums over the rows that make scaled.json."""

    def __init__(self, model: Model, evaluator: Evaluator, costs: Costs | None) -> None:
        self.model, self.evaluator = model, evaluator
        self.times = PhaseSums(costs) if costs is not None else None
        phases = len(model.phases)
        self.work, self.events, self.half = np.zeros((3, phases))
        self.verdicts = verdicts_of(model)
        self.share = np.zeros((3, len(self.verdicts)))
        self.open = np.zeros(2)
        self.rows = 0
        self.short: Counter[int] = Counter()

    def take(self, part: RankSums) -> None:
        """Take in the sums over some ranks."""
        self.rows += part.rows
        self.short.update(part.short)
        self.work += part.work
        self.half += part.half
        self.events += part.events
        self.share += part.share
        self.open += part.open
        if self.times is not None and part.timed is not None:
            self.times.add(part.timed)

    def _time(self, phase: int) -> dict[str, Any]:
        """Return the time of a phase as ScaledPhase has it; nothing where it is not known."""
        time = self.times.of_phase(phase, self.evaluator.grid) if self.times is not None else None
        return {} if time is None else time.to_json()

    def _open(self, total: np.ndarray) -> OpenStructure | None:
        """Return what is open of the structure; ``total``: all events and bytes; None: nothing."""
        calls = sum(structure_open(item) for item in self.model.items)
        if not calls:
            return None
        events, nbytes = (
            float(part / whole) if whole else 0.0
            for part, whole in zip(self.open, total, strict=False)
        )
        n = self.evaluator.n
        chance = chance_of_another(self.model, n)
        return OpenStructure(calls, events, nbytes, other_extents(self.model, n), chance)

    def of(self, ranks: int, of: tuple[tuple[int, int], ...] | None) -> ScaledHead:
        """Return the head; ranks: how many the rows are of, and ``of`` which, None for all."""
        model, evaluator = self.model, self.evaluator
        phases = [
            ScaledPhase(
                k,
                p.name,
                p.depth,
                p.parent,
                weight=phase_weight(p, evaluator.grid),
                events_per_iteration=float(self.events[k]) / ranks,
                work=float(self.work[k]),
                work_rel_half_width=float(self.half[k] / self.work[k]) if self.work[k] else 0.0,
                no_trend=no_trend(p, evaluator.n, float(self.work[k]) / ranks),
                **self._time(k),
            )
            for k, p in enumerate(model.phases)
        ]
        total = self.share.sum(axis=1)
        share = {
            str(verdict): RowShare(
                *(float(self.share[k, v] / total[k]) if total[k] else 0.0 for k in range(3))
            )
            for v, verdict in enumerate(self.verdicts)
        }
        return ScaledHead(
            n=evaluator.n,
            work_unit=model.work_unit,
            work_units=model.work_units,
            grid=tuple(evaluator.grid.dims),
            grid_rule=model.grid.text,
            rows=self.rows,
            counts=model.counts,
            extrapolation=evaluator.n / max(model.counts),
            first_seen=model.first_seen,
            unmodelled_ops=model.unmodelled_ops,
            not_modelled=model.not_modelled,
            tracing=model.tracing,
            buffers=model.buffers,
            packed=packed_at(model, evaluator.n),
            phases=tuple(phases),
            share=share,
            traced_share=model.shares,
            unknown=tuple(
                UnknownCall(it.op, it.site, tuple(reason.sentence for reason in it.why))
                for it in model.items
                if it.verdict == Verdict.UNKNOWN
            ),
            open=self._open(total),
            emptied=emptied(model, self.short),
            ranks=of,
        )
