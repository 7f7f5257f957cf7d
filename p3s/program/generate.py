"""Write scaled/npNNNNNN: part-*.parquet, comms.json, order.json, scaled.json (written last).

Ranks are independent of each other: the trace is made and written some ranks at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from p3s.artefacts import write_bytes
from p3s.costs.apply import Costs, PhaseSums, Timed
from p3s.costs.stage import load as load_compute
from p3s.costs.types import ComputeModel
from p3s.errors import P3SError
from p3s.files.stage import FileSums, files_of_study
from p3s.files.times import FileTimes
from p3s.model.evaluate import Evaluator, ScaledRows, phase_weight
from p3s.model.law_types import OrderedItem, OrderedSlot, TraceOrder
from p3s.model.order.unfold import places_asked_for
from p3s.model.packed import block_at
from p3s.model.reasons import Verdict
from p3s.model.stage import load
from p3s.model.types import Model, Phase
from p3s.model.verdicts import judged_at
from p3s.model.work.workload import RankWork, rank_work
from p3s.program.emptied import below_one, emptied
from p3s.program.types import NoTrend, PackedCall, RowShare, ScaledHead, ScaledPhase, UnknownCall
from p3s.serialise import to_data
from p3s.staging import discard
from p3s.tables import TableFacts, facts_of, parquet_bytes, sums_of_rows

RANKS_PER_PART = 1024
#: Largest count all of whose ranks are written: more can be had in parts.
MOST_RANKS = 1 << 22


def write_scaled(
    study_dir: Path, n: int, ranks: Sequence[int] | None = None, compute: ComputeModel | None = None
) -> ScaledHead:
    """Write the scaled trace of ``n`` processes and return its head (scaled.json).

    ranks: only these, into a directory of its own (scaled/npNNNNNN.ranks). compute: laws of the
    computation time to use instead of the study's own compute.json.
    """
    from p3s.study import Study, write_json

    if n < 1:
        raise P3SError(f"scale: {n} processes cannot be; give a count of 1 or more")
    study = Study.open(Path(study_dir))
    model = judged_at(load(study.root), n)
    wanted = None if ranks is None else _checked(ranks, n)
    if wanted is None and n > MOST_RANKS:
        raise P3SError(f"scale: {n} processes have too many rows to write; name some with --ranks")
    evaluator = Evaluator(model, n)
    laws = compute if compute is not None else load_compute(study.root)
    costs = Costs(laws, model) if laws is not None else None
    files = files_of_study(study.root, model)
    target = scaled_dir(study.scaled_dir(n), ranks)
    staged = study.stage_run(target)
    try:
        head = _Head(model, evaluator, costs)
        uses = FileSums(files, model) if files is not None else None
        tables: dict[str, TableFacts] = {}
        parts = (
            np.array_split(wanted, range(RANKS_PER_PART, len(wanted), RANKS_PER_PART))
            if wanted is not None
            else (np.arange(a, min(a + RANKS_PER_PART, n)) for a in range(0, n, RANKS_PER_PART))
        )
        for k, some in enumerate(parts):
            rows = evaluator.rows(some)
            found = rank_work(
                model,
                rows.grid,
                {name: getattr(rows, name) for name in ("rank", "item", "nbytes", "repeat")},
                means=rows.means,
            )
            timed = costs.of(evaluator.grid, found) if costs is not None else None
            once = compute_ns(model, rows, timed) if timed is not None else None
            at_files = files.times(model, rows, n) if files is not None else None
            if uses is not None and at_files is not None:
                uses.add(rows, at_files)
            part = staged / f"part-{k:05d}.parquet"
            tables[part.name] = _write_part(model, rows, once, at_files, part)
            head.add(rows, found, timed)
        write_json(
            staged / "comms.json",
            {"schema": "p3s.comms", "schema_version": 1, "comms": evaluator.comms.to_json()},
        )
        write_json(staged / "order.json", _order(model, evaluator))
        out = head.of(n, None) if wanted is None else head.of(len(wanted), _ranges(wanted))
        if uses is not None:
            out = replace(out, files=uses.uses(), files_from=uses.source)
        out = replace(out, tables=tables)
        write_json(staged / "scaled.json", as_file(out))
        study.commit_run(staged, target)
    finally:
        discard(staged)
    return out


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


def _index_in_phase(rows: ScaledRows) -> np.ndarray:
    """Return each row's position inside its phase on its rank (rows are sorted by both)."""
    if not len(rows.rank):
        return np.zeros(0, dtype=np.int64)
    new = np.ones(len(rows.rank), dtype=bool)
    new[1:] = (rows.rank[1:] != rows.rank[:-1]) | (rows.phase[1:] != rows.phase[:-1])
    starts = np.flatnonzero(new)
    return np.arange(len(rows.rank)) - np.repeat(starts, np.diff([*starts, len(rows.rank)]))


def compute_ns(model: Model, rows: ScaledRows, timed: Timed) -> np.ndarray:
    """Return the time before one call of every row in ns: its work times its place's cost."""
    if not len(rows.rank):
        return np.zeros(0)
    number = {
        tuple(p.place): k
        for k, p in enumerate(p for phase in model.phases for p in phase.work.places)
    }
    of_item = np.array([number.get((it.site, it.op), -1) for it in model.items], dtype=np.int64)
    place, column = of_item[rows.item], np.searchsorted(timed.ranks, rows.rank)
    cost = timed.rest[rows.phase, column]
    if len(timed.cost):
        cost = np.where(place >= 0, timed.cost[place, column], cost)
    return np.asarray(rows.work * cost)


def _rules(model: Model) -> np.ndarray:
    """Return the number of each item's first slot among all slots."""
    return np.cumsum([0, *(len(it.slots) for it in model.items)])


def _write_part(
    model: Model, rows: ScaledRows, once: np.ndarray | None, files: FileTimes | None, path: Path
) -> TableFacts:
    """Write the rows of some ranks; return what the head is to say of them.

    once: time before one call of each, None if not known.

    files: what each takes in files, None where no call uses any.
    """
    import pyarrow as pa

    items = model.items
    tags = np.array(
        [it.tag if it.tag is not None else it.tag_value for it in items], dtype=np.int64
    )
    kinds = [it.kind for it in items]
    it = rows.item
    p2p = (
        np.array([x in ("send", "recv") for x in kinds], dtype=bool)[it]
        if len(items)
        else np.zeros(0, dtype=bool)
    )

    def labels(values: list[str], codes: np.ndarray) -> Any:
        return pa.DictionaryArray.from_arrays(
            pa.array(codes, pa.int32()), pa.array(values, pa.string())
        ).cast(pa.string())

    table = pa.table(
        {
            "rank": pa.array(rows.rank, pa.int32()),
            "phase": pa.array(rows.phase, pa.int32()),
            "index": pa.array(_index_in_phase(rows), pa.int32()),
            "op": labels([x.op for x in items], it),
            "kind": labels(kinds, it),
            "peer": pa.array(rows.peer, pa.int32()),
            "bytes": pa.array(rows.nbytes, pa.int64()),
            "comm": pa.array(rows.comm, pa.int32()),
            "tag": pa.array(np.where(p2p, tags[it], -1), pa.int32()),
            "root": pa.array(rows.root, pa.int32()),
            "repeat": pa.array(rows.repeat, pa.int64()),
            "work": pa.array(rows.work, pa.float64()),
            "work_unit": labels([model.work_unit], np.zeros(len(it), dtype=np.int64)),
            "slot": pa.array(_rules(model)[it] + rows.slot, pa.int32()),
            "verdict": labels([x.verdict for x in items], it),
            "stage": pa.array(rows.stage, pa.int32()),
            "turn": pa.array(rows.turn, pa.int32()),
            **({} if once is None else {"compute_ns": pa.array(once, pa.float64())}),
            **({} if files is None else {"io_ns": pa.array(files.ns, pa.float64())}),
        }
    )
    data = parquet_bytes(table)
    write_bytes(path, data)
    sums = sums_of_rows(rows.repeat, rows.nbytes, rows.work)
    if once is not None:
        sums["compute_ns"] = sums_of_rows(rows.repeat, rows.nbytes, once)["work"]
    return facts_of(data, table.num_rows, sums)


def _order(model: Model, evaluator: Evaluator) -> dict[str, Any]:
    """Return what unfolds rows into the sequence of events (p3s.program.events)."""
    loops = model.order.loops if model.order is not None else None
    grid = evaluator.grid.whole or evaluator.grid
    order = TraceOrder(
        n=evaluator.n,
        grid=tuple(grid.dims),
        loops=loops,
        coordinates=tuple(tuple(map(int, c)) for c in grid.coords)
        if places_asked_for(model.items, loops or ())
        else None,
        items=tuple(
            OrderedItem(
                it.op, it.kind, it.loops, it.at, tuple(OrderedSlot(s.when) for s in it.slots)
            )
            for it in model.items
        ),
    )
    return {"schema": "p3s.order", "schema_version": 1, **to_data(order)}


def _packed(model: Model, n: int) -> tuple[PackedCall, ...]:
    """Return which rows have datatypes with gaps at ``n``."""
    first = _rules(model)
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
        self.verdicts = sorted({it.verdict for it in model.items})
        self.of_item = np.array(
            [self.verdicts.index(it.verdict) for it in model.items], dtype=np.int64
        )
        self.share = np.zeros((3, len(self.verdicts)))
        self.rows = 0
        self.short: dict[int, set[int]] = {}

    def add(self, rows: ScaledRows, found: RankWork, timed: Timed | None) -> None:
        """Take in the rows of some ranks, their work and the time it takes."""
        phases = len(self.work)
        work = rows.work * rows.repeat
        self.rows += len(rows.rank)
        for item, short in below_one(self.model, rows).items():
            self.short.setdefault(item, set()).update(short)
        self.work += np.bincount(rows.phase, weights=work, minlength=phases)
        if self.times is not None and timed is not None:
            self.times.add(timed)
        self.half += found.half_width.sum(axis=1)
        self.events += np.bincount(rows.phase, minlength=phases)
        verdict = self.of_item[rows.item]
        for k, weights in enumerate((rows.repeat, rows.repeat * rows.nbytes, work)):
            self.share[k] += np.bincount(verdict, weights=weights, minlength=len(self.verdicts))

    def of(self, ranks: int, of: tuple[tuple[int, int], ...] | None) -> ScaledHead:
        """Return the head; ranks: how many the rows are of, and ``of`` which, None for all."""
        model, evaluator = self.model, self.evaluator
        phases = [
            ScaledPhase(
                k,
                p.name,
                p.depth,
                p.parent,
                phase_weight(p, evaluator.grid),
                float(self.events[k]) / ranks,
                float(self.work[k]),
                float(self.half[k] / self.work[k]) if self.work[k] else 0.0,
                no_trend(p, evaluator.n, float(self.work[k]) / ranks),
                self.times.of_phase(k, evaluator.grid) if self.times is not None else None,
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
            packed=_packed(model, evaluator.n),
            phases=tuple(phases),
            share=share,
            traced_share=model.shares,
            unknown=tuple(
                UnknownCall(it.op, it.site, tuple(reason.sentence for reason in it.why))
                for it in model.items
                if it.verdict == Verdict.UNKNOWN
            ),
            emptied=emptied(model, self.short),
            ranks=of,
        )
