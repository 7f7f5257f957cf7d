"""A part of a scaled trace: the rows of some ranks, made by whoever computes (p3s.base.workers)."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from p3s.base.arrays import place_in_run, starts
from p3s.base.tables import TableFacts, column, facts_of, parquet_bytes, sums_of_rows, texts, whole
from p3s.costs.apply import Costs, Timed
from p3s.costs.files.places import FilesOf, FileSums, FileTimes, files_of_study
from p3s.costs.types import load as load_compute
from p3s.model.evaluate import Evaluator, ScaledRows
from p3s.model.stage import load
from p3s.model.types import Model
from p3s.model.verdicts import judged_at, structure_open
from p3s.model.work.workload import RankWork, of_rows, rank_work
from p3s.program.types import Emptied

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
class Call:
    """What is scaled: the study in ``root`` to ``n`` processes; no two calls are equal."""

    root: Path
    n: int
    name: str = field(default_factory=lambda: secrets.token_hex(16))


@dataclass(frozen=True)
class Laws:
    """What the rows of any ranks are made from; ``files``: None where no call uses any."""

    model: Model
    evaluator: Evaluator
    costs: Costs | None
    files: FilesOf | None


@dataclass(frozen=True)
class RankSums:
    """Sums over the rows of some ranks that make scaled.json.

    work, events, half: per phase; share: (3, verdicts), of events, bytes and work; open: (2,) of
    events and bytes, those whose grid or partners are open; short: how many ranks have items with
    less than one element.
    """

    rows: int
    work: np.ndarray
    events: np.ndarray
    half: np.ndarray
    share: np.ndarray
    open: np.ndarray
    short: dict[int, int]
    timed: Timed | None
    uses: FileSums | None


@dataclass(frozen=True)
class Part:
    """The rows of some ranks as a Parquet file, what the head says of that, and their sums."""

    data: bytes
    facts: TableFacts
    sums: RankSums


#: Those of the call that this process has made a part of last, by its name.
_laws: dict[str, Laws] = {}


def laws_of(call: Call) -> Laws:
    """Return what rows are made from, read by each process once."""
    if call.name not in _laws:
        forget()
        model = judged_at(load(call.root), call.n)
        laws = load_compute(call.root)
        _laws[call.name] = Laws(
            model,
            Evaluator(model, call.n),
            Costs(laws, model) if laws is not None else None,
            files_of_study(call.root, model),
        )
    return _laws[call.name]


def forget() -> None:
    """Forget what rows were made from."""
    _laws.clear()


def part_of(call: Call, ranks: Sequence[int] | np.ndarray) -> Part:
    """Return the rows of some ranks, ascending."""
    laws = laws_of(call)
    model, costs = laws.model, laws.costs
    evaluator = laws.evaluator
    rows = evaluator.rows(np.asarray(ranks), work=False)
    means = evaluator.means if len(ranks) < call.n else None
    names = ("rank", "item", "stage", "nbytes", "repeat", "work")
    columns = {name: getattr(rows, name) for name in names}
    found = rank_work(model, rows.grid, columns, means=means)
    rows = replace(rows, work=of_rows(model, found, columns), means=means)
    timed = costs.of(evaluator.grid, found) if costs is not None else None
    once = compute_ns(model, rows, timed) if timed is not None else None
    files, uses = laws.files, None
    at_files = files.times(model, rows, call.n) if files is not None else None
    if at_files is not None:
        uses = FileSums(len(model.items))
        uses.add(rows, at_files)
    return Part(*_table(model, rows, once, at_files), _sums(model, rows, found, timed, uses))


def verdicts_of(model: Model) -> list[str]:
    """Return the verdicts that a model has, in the order of the sums' shares."""
    return sorted({it.verdict for it in model.items})


def _sums(
    model: Model, rows: ScaledRows, found: RankWork, timed: Timed | None, uses: FileSums | None
) -> RankSums:
    phases, verdicts = len(model.phases), verdicts_of(model)
    of_item = np.array([verdicts.index(it.verdict) for it in model.items], dtype=np.int64)
    work, verdict = rows.work * rows.repeat, of_item[rows.item]
    is_open = np.array([structure_open(it) for it in model.items], dtype=bool)[rows.item]
    return RankSums(
        rows=len(rows.rank),
        work=np.bincount(rows.phase, weights=work, minlength=phases),
        events=np.bincount(rows.phase, minlength=phases),
        half=found.half_width.sum(axis=1),
        share=np.array(
            [
                np.bincount(verdict, weights=weights, minlength=len(verdicts))
                for weights in (rows.repeat, rows.repeat * rows.nbytes, work)
            ]
        ),
        open=np.array([rows.repeat @ is_open, (rows.repeat * rows.nbytes) @ is_open], dtype=float),
        short=below_one(model, rows),
        timed=timed,
        uses=uses,
    )


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


def first_slots(model: Model) -> np.ndarray:
    """Return the number of each item's first slot among all slots."""
    return starts([len(it.slots) for it in model.items])


def columns_of(model: Model, rows: ScaledRows) -> dict[str, np.ndarray]:
    """Return the columns of whole numbers that a scaled trace has, by name."""
    items, it = model.items, rows.item
    tags = [one.tag if one.tag is not None else one.tag_value for one in items]
    tag = np.array([t if one.kind in P2P else -1 for t, one in zip(tags, items, strict=True)])
    return {
        "rank": rows.rank,
        "phase": rows.phase,
        "index": place_in_run(rows.rank, rows.phase),
        "peer": rows.peer,
        "bytes": rows.nbytes,
        "comm": rows.comm,
        "tag": tag.astype(np.int64)[it],
        "root": rows.root,
        "repeat": rows.repeat,
        "slot": first_slots(model)[it] + rows.slot,
        "stage": rows.stage,
        "turn": rows.turn,
    }


def _table(
    model: Model, rows: ScaledRows, once: np.ndarray | None, files: FileTimes | None
) -> tuple[bytes, TableFacts]:
    """Return the rows of some ranks as a Parquet file, and what the head is to say of them.

    once: time before one call of each, None if not known.

    files: what each takes in files, None where no call uses any.
    """
    import pyarrow as pa

    items, it = model.items, rows.item
    each = columns_of(model, rows)
    amounts = {name: column(each.pop(name).astype(np.int64)) for name in ("bytes", "repeat")}
    made = {name: whole(values) for name, values in each.items()} | amounts
    made |= {
        "op": texts([x.op for x in items], it),
        "kind": texts([x.kind for x in items], it),
        "work": column(rows.work.astype(np.float64)),
        "work_unit": texts([model.work_unit], np.zeros(len(it), dtype=np.int64)),
        "verdict": texts([x.verdict for x in items], it),
        **({} if once is None else {"compute_ns": column(once.astype(np.float64))}),
        **({} if files is None else {"io_ns": column(files.ns.astype(np.float64))}),
    }
    table = pa.table({name: made[name] for name in _ORDER if name in made})
    data = parquet_bytes(table)
    sums = sums_of_rows(rows.repeat, rows.nbytes, rows.work)
    if once is not None:
        sums["compute_ns"] = sums_of_rows(rows.repeat, rows.nbytes, once)["work"]
    return data, facts_of(data, table.num_rows, sums)


def below_one(model: Model, rows: ScaledRows) -> dict[int, int]:
    """Return the items with messages of less than one element, and how many ranks have them.

    Only sizes with an equation count: those of irregular programs may be nothing at any count.
    """
    least = [
        [
            slot.elem_bytes if it.kind in _SIZED and slot.elements.expr is not None else 0
            for slot in it.slots
        ]
        for it in model.items
    ]
    first = starts([len(each) for each in least])
    flat = np.array([number for each in least for number in each], dtype=np.int64)
    if not len(rows.rank) or not len(flat):
        return {}
    short = np.flatnonzero(rows.nbytes < flat[first[rows.item] + rows.slot])
    ranks = int(rows.rank.max()) + 1
    items = np.unique(rows.item[short] * ranks + rows.rank[short]) // ranks
    number = np.bincount(items)
    return {item: int(number[item]) for item in np.flatnonzero(number).tolist()}


def emptied(model: Model, found: dict[int, int]) -> tuple[Emptied, ...]:
    """Return what ``below_one`` found that happens at no count that the model rests on."""
    if not found:
        return ()
    before = _at_traced(model)
    return tuple(
        Emptied(model.items[k].op, model.items[k].site, ranks)
        for k, ranks in sorted(found.items())
        if k not in before
    )


def _at_traced(model: Model) -> set[int]:
    every: Iterable[set[int]] = (
        set(below_one(model, Evaluator(model, n).rows())) for n in model.counts
    )
    return set().union(*every)
