"""The rows of some ranks with their times: a part of a scaled trace, or a trace in memory."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from p3s.base.arrays import Floats, Ints, place_in_run, starts
from p3s.base.tables import TableFacts, column, facts_of, parquet_bytes, sums_of_rows, texts, whole
from p3s.costs.apply import ComputationTimes, Costs
from p3s.costs.files import FilesOf, FileSums, FileTimes, files_of_study
from p3s.costs.types import ComputeModel
from p3s.costs.types import load as load_compute
from p3s.model.evaluate import Amounts, Evaluator, ScaledRows, phase_weight
from p3s.model.grid.at import GridAt
from p3s.model.reasons import Verdict
from p3s.model.stage import load
from p3s.model.types import Model, block_at
from p3s.model.verdicts import judged_at, structure_open
from p3s.model.work.workload import RankWork, of_rows, rank_work
from p3s.program.scaled import ScaledTrace, build
from p3s.program.types import PackedCall

#: Kinds of calls whose rows have a tag.
P2P = ("send", "recv")
#: Those whose rows have a size.
_SIZED = ("send", "recv", "collective")
#: Columns in the order of the files.
_ORDER = (
    *("rank", "phase", "index", "op", "kind", "peer", "bytes", "comm", "tag", "root", "repeat"),
    *("work", "work_unit", "slot", "verdict", "stage", "turn", "compute_ns", "io_ns"),
)


@dataclass(frozen=True)
class Laws:
    """What rows are made from; None: no time was taken, no call uses files."""

    model: Model
    compute: ComputeModel | None = None
    files: FilesOf | None = None


@dataclass(frozen=True)
class Rows:
    """Rows of some ranks. ``once``: ns before one call of each, None where not known; ``files``:
    what one takes in files, None where no call uses any; ``work``, ``timed``: of their ranks."""

    rows: ScaledRows
    work: RankWork
    timed: ComputationTimes | None
    once: Floats | None
    files: FileTimes | None


class Builder:
    """Makes the rows of any ranks at one process count.

    ``grid``, ``amounts``: as of Evaluator, of a smaller grid whose ranks stand for others.
    """

    def __init__(
        self, laws: Laws, n: int, grid: GridAt | None = None, amounts: Amounts | None = None
    ) -> None:
        self.laws, self.model, self.n = laws, laws.model, n
        self.evaluator = Evaluator(laws.model, n, grid=grid, amounts=amounts)
        self.costs = Costs(laws.compute, laws.model) if laws.compute is not None else None

    @property
    def amounts(self) -> GridAt:
        """The grid whose amounts the ranks have."""
        larger = self.evaluator.amounts
        return self.evaluator.grid if larger is None else larger.grid

    def rows(self, ranks: Sequence[int] | np.ndarray | None = None) -> Rows:
        """Return the rows of all ranks, or of some, ascending."""
        model, evaluator, larger = self.model, self.evaluator, self.evaluator.amounts
        chosen = None if ranks is None else np.asarray(ranks)
        rows = evaluator.rows(chosen, work=False)
        means = evaluator.means if chosen is not None and len(chosen) < self.n else None
        large = rows
        if larger is not None:
            means = larger.means
            large = replace(rows, rank=larger.ranks[rows.rank], grid=larger.grid, n=larger.grid.n)
        names = ("rank", "item", "stage", "nbytes", "repeat", "work")
        columns = {name: getattr(large, name) for name in names}
        work_found = rank_work(model, large.grid, columns, means=means)
        large = replace(large, work=of_rows(model, work_found, columns), means=means)
        timed = self.costs.of(self.amounts, work_found) if self.costs is not None else None
        files = self.laws.files
        return Rows(
            replace(rows, work=large.work, means=means),
            work_found,
            timed,
            compute_ns(model, large, timed) if timed is not None else None,
            files.times(model, large, large.n) if files is not None else None,
        )

    def trace(self) -> ScaledTrace:
        """Return the scaled trace of all ranks."""
        model, large = self.model, self.amounts
        own_rows = self.rows()
        item = own_rows.rows.item
        op, ops = _number_names([each.op for each in model.items])
        kind, kinds = _number_names([each.kind for each in model.items])
        is_known = np.array([each.verdict != Verdict.UNKNOWN for each in model.items], dtype=bool)
        comms = self.evaluator.comms
        trace = build(
            self.n,
            columns_of(model, own_rows.rows),
            own_rows.rows.work if own_rows.once is None else own_rows.once,
            op[item],
            ops,
            kind[item],
            kinds,
            is_known[item],
            {number: comms.members(number) for number in range(len(comms))},
            {k: float(phase_weight(p, large)) for k, p in enumerate(model.phases)},
            {k: p.name for k, p in enumerate(model.phases)},
        )
        if own_rows.files is not None:
            trace = replace(trace, files=own_rows.files.ns[trace.place])
        return replace(trace, packed=packed_at(model, large.n))


def _number_names(names: Sequence[str]) -> tuple[Ints, tuple[str, ...]]:
    distinct_names = tuple(dict.fromkeys(names))
    return np.array([distinct_names.index(name) for name in names], dtype=np.int64), distinct_names


def packed_at(model: Model, n: int) -> tuple[PackedCall, ...]:
    """Return which rows have datatypes with gaps at ``n``."""
    first = first_slots(model)
    return tuple(
        PackedCall(
            item.op,
            item.site,
            (int(first[k]), int(first[k + 1]) - 1),
            one.share,
            block_at({int(c): b for c, b in one.block.items()}, n),
        )
        for k, item in enumerate(model.items)
        if item.slots
        for one in model.packed
        if (one.op, one.site) == (item.op, item.site)
    )


# ---- parts of a scaled trace -------------------------------------------------------------------
@dataclass(frozen=True)
class Call:
    """What is scaled: the study in ``root`` to ``n`` processes; no two calls are equal."""

    root: Path
    n: int
    name: str = field(default_factory=lambda: secrets.token_hex(16))


@lru_cache(maxsize=1)
def builder_of(call: Call) -> Builder:
    """Return what makes the rows of a call; each process reads its laws once."""
    model = judged_at(load(call.root), call.n)
    laws = Laws(model, load_compute(call.root), files_of_study(call.root, model))
    return Builder(laws, call.n)


@dataclass(frozen=True)
class RankSums:
    """Sums over the rows of some ranks that make scaled.json.

    work, events, half: per phase; share: (3, verdicts), of events, bytes and work; open: (2,) of
    events and bytes, those whose grid or partners are open; short: how many ranks have items with
    less than one element.
    """

    rows: int
    work: Floats
    events: Ints
    half: Floats
    share: Floats
    open: Floats
    short: Counter[int]

    def __add__(self, other: RankSums) -> RankSums:
        return RankSums(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True)
class Part:
    """The rows of some ranks as a Parquet file, what the head says of that, and their sums."""

    data: bytes
    facts: TableFacts
    sums: RankSums
    timed: ComputationTimes | None
    uses: FileSums | None


def part_of(call: Call, ranks: Sequence[int] | np.ndarray) -> Part:
    """Return the rows of some ranks, ascending; for whoever computes (p3s.base.workers)."""
    builder = builder_of(call)
    own_rows, uses = builder.rows(ranks), None
    if own_rows.files is not None:
        uses = FileSums(len(builder.model.items))
        uses.add(own_rows.rows, own_rows.files)
    table = _table(builder.model, own_rows)
    return Part(*table, _sums(builder.model, own_rows), own_rows.timed, uses)


def verdicts_of(model: Model) -> list[str]:
    """Return the verdicts that a model has, in the order of the sums' shares."""
    return sorted({item.verdict for item in model.items})


def _sums(model: Model, part_rows: Rows) -> RankSums:
    rows, phases, verdicts = part_rows.rows, len(model.phases), verdicts_of(model)
    of_item = np.array([verdicts.index(each.verdict) for each in model.items], dtype=np.int64)
    work, verdict = rows.work * rows.repeat, of_item[rows.item]
    is_open = np.array([structure_open(each) for each in model.items], dtype=bool)[rows.item]
    return RankSums(
        rows=len(rows.rank),
        work=np.bincount(rows.phase, weights=work, minlength=phases).astype(np.float64),
        events=np.bincount(rows.phase, minlength=phases),
        half=part_rows.work.half_width.sum(axis=1),
        share=np.array(
            [
                np.bincount(verdict, weights=weights, minlength=len(verdicts))
                for weights in (rows.repeat, rows.repeat * rows.nbytes, work)
            ]
        ),
        open=np.array([rows.repeat @ is_open, (rows.repeat * rows.nbytes) @ is_open], dtype=float),
        short=Counter(below_one(model, rows)),
    )


def compute_ns(model: Model, rows: ScaledRows, timed: ComputationTimes) -> Floats:
    """Return the time before one call of every row in ns: its work times its place's cost."""
    if not len(rows.rank):
        return np.zeros(0)
    number = {
        tuple(p.place): k
        for k, p in enumerate(p for phase in model.phases for p in phase.work.places)
    }
    of_item = np.array(
        [number.get((item.site, item.op), -1) for item in model.items], dtype=np.int64
    )
    place, column = of_item[rows.item], np.searchsorted(timed.ranks, rows.rank)
    cost = timed.rest[rows.phase, column]
    if len(timed.cost):
        cost = np.where(place >= 0, timed.cost[place, column], cost)
    return np.asarray(rows.work * cost)


def first_slots(model: Model) -> Ints:
    """Return the number of each item's first slot among all slots."""
    return starts([len(item.slots) for item in model.items])


def columns_of(model: Model, rows: ScaledRows) -> dict[str, Ints]:
    """Return the columns of whole numbers that a scaled trace has, by name."""
    items, item = model.items, rows.item
    tags = [one.tag if one.tag is not None else one.tag_value for one in items]
    tag = np.array([t if one.kind in P2P else -1 for t, one in zip(tags, items, strict=True)])
    return {
        "rank": rows.rank,
        "phase": rows.phase,
        "index": place_in_run(rows.rank, rows.phase),
        "peer": rows.peer,
        "bytes": rows.nbytes,
        "comm": rows.comm,
        "tag": tag.astype(np.int64)[item],
        "root": rows.root,
        "repeat": rows.repeat,
        "slot": first_slots(model)[item] + rows.slot,
        "stage": rows.stage,
        "turn": rows.turn,
    }


def _table(model: Model, part: Rows) -> tuple[bytes, TableFacts]:
    """Return the rows of some ranks as a Parquet file, and what the head is to say of them."""
    import pyarrow as pa

    items, rows, once = model.items, part.rows, part.once
    item, each = rows.item, columns_of(model, rows)
    amounts = {name: column(each.pop(name).astype(np.int64)) for name in ("bytes", "repeat")}
    columns = {name: whole(values) for name, values in each.items()} | amounts
    columns |= {
        "op": texts([x.op for x in items], item),
        "kind": texts([x.kind for x in items], item),
        "work": column(rows.work.astype(np.float64)),
        "work_unit": texts([model.work_unit], np.zeros(len(item), dtype=np.int64)),
        "verdict": texts([x.verdict for x in items], item),
        **({} if once is None else {"compute_ns": column(once.astype(np.float64))}),
        **({} if part.files is None else {"io_ns": column(part.files.ns.astype(np.float64))}),
    }
    table = pa.table({name: columns[name] for name in _ORDER if name in columns})
    data = parquet_bytes(table)
    sums = sums_of_rows(rows.repeat, rows.nbytes, rows.work)
    if once is not None:
        sums["compute_ns"] = sums_of_rows(rows.repeat, rows.nbytes, once)["work"]
    return data, facts_of(data, table.num_rows, sums)


def below_one(model: Model, rows: ScaledRows) -> Mapping[int, int]:
    """Return the items with messages of less than one element, and how many ranks have them.

    Only sizes with an equation count: those of irregular programs may be nothing at any count.
    """
    least = [
        [
            slot.elem_bytes if item.kind in _SIZED and slot.elements.expr is not None else 0
            for slot in item.slots
        ]
        for item in model.items
    ]
    flat = np.array([number for each in least for number in each], dtype=np.int64)
    if not len(rows.rank) or not len(flat):
        return {}
    short = np.flatnonzero(rows.nbytes < flat[first_slots(model)[rows.item] + rows.slot])
    ranks = int(rows.rank.max()) + 1
    items = np.unique(rows.item[short] * ranks + rows.rank[short]) // ranks
    number = np.bincount(items)
    return {item: int(number[item]) for item in np.flatnonzero(number).tolist()}
