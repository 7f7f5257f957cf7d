"""A fitted model as functions of the process count and the rank.

This is what a module written by ``p3s model --python`` imports: it holds the equations as data,
and the functions here evaluate them, as for the scaled trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from p3s.base.errors import P3SError
from p3s.base.serialise import from_data
from p3s.base.text import visible
from p3s.model.evaluate import Evaluator, model_grid
from p3s.model.tree import phase_weight
from p3s.model.types import Item, Model
from p3s.model.types import Phase as TypedPhase

#: Version of the data that :func:`phases` reads.
VERSION = 2
#: Ranks evaluated at once; process counts whose grids, and blocks of ranks whose rows, are kept.
_BLOCK, _KEPT_COUNTS, _KEPT_BLOCKS = 256, 16, 64


class Row(NamedTuple):
    """A call of one rank: how often in the run, and what one of them is.

    call, slot: number of the rule; stage: of several partners one after the other; turn: iteration
    of the loop, where it matters; partner and root: ranks in MPI_COMM_WORLD, -1 if there is none;
    times: in the whole run; work: before one call.
    """

    call: int
    slot: int
    op: str
    kind: str
    stage: int
    turn: int
    partner: int
    bytes: int
    times: int
    root: int
    tag: int
    work: float


@dataclass(frozen=True)
class Phase:
    """A phase of the model: functions of the process count n, and of a rank.

    A count that the program's process grid does not admit raises ValueError.
    """

    number: int
    name: str
    parent: int | None
    weight_verdict: str
    _equations: _Equations = field(repr=False)

    def weight(self, n: int) -> int:
        """Return how many iterations the phase has in the run."""
        return self._equations.weight(self.number, n)

    def work(self, n: int) -> float:
        """Return the work of a rank in the whole run, in WORK_UNIT of its module."""
        return self._equations.work(self.number, n)

    def rows(self, rank: int, n: int) -> list[Row]:
        """Return all calls of the phase in program order; stages of a loop one by one."""
        return list(self._equations.rows(self.number, rank, n))

    def destinations(self, rank: int, n: int) -> list[int]:
        """Return whom the rank sends to, a partner per row that sends."""
        return [row.partner for row in self.rows(rank, n) if row.kind == "send"]

    def sources(self, rank: int, n: int) -> list[int]:
        """Return from whom the rank receives, a partner per row that receives."""
        return [row.partner for row in self.rows(rank, n) if row.kind == "recv"]

    def bytes(self, rank: int, n: int) -> list[int]:
        """Return the bytes of each message in ``destinations``."""
        return [row.bytes for row in self.rows(rank, n) if row.kind == "send"]


def phases(version: int, model: Mapping[str, Any]) -> dict[int, Phase]:
    """Return the phases of a model by number; model: as :func:`bare` has it, as plain data.

    Raises P3SError for data of another version.
    """
    if version != VERSION:
        raise P3SError(
            f"equations of version {version}, but this p3s reads version {VERSION}; "
            "write them again with p3s model --python"
        )
    equations = _Equations(from_data(Model, model))
    return {
        phase.phase: Phase(phase.phase, phase.name, phase.parent, phase.weight_verdict, equations)
        for phase in equations.model.phases
    }


def bare(model: Model) -> Model:
    """Return a model without what its equations were fitted to and measured by."""
    return replace(
        model,
        items=tuple(_bare_item(item) for item in model.items),
        phases=tuple(_bare_phase(phase) for phase in model.phases),
        tracing={},
        buffers={},
        packed=(),
        sites={},
        unmodelled_ops={},
        not_modelled=(),
        first_seen={},
        growth=replace(model.growth, steps=()),
        order=None,
        holdout=None,
        shares={},
        next=(),
    )


def _bare_item(item: Item) -> Item:
    slots = tuple(
        replace(
            slot,
            count=replace(slot.count, rivals=None),
            elements=replace(slot.elements, rivals=None, means=None),
            work=replace(slot.work, band=()),
            work_points=(),
            why=(),
            when=None,
        )
        for slot in item.slots
    )
    return replace(
        item,
        slots=slots,
        notes=(),
        why=(),
        loops=None,
        at=None,
        met_holdout=None,
        holdout=None,
        share=None,
        measured=None,
        rivals=(),
    )


def _bare_phase(phase: TypedPhase) -> TypedPhase:
    places = tuple(
        replace(place, segments=tuple(replace(s, rivals=(), error=0.0) for s in place.segments))
        for place in phase.work.places
    )
    law = replace(phase.work.law, band=())
    work = replace(phase.work, law=law, points=(), measured={}, places=places)
    weight = replace(phase.weight, rivals=None)
    return replace(
        phase, name=visible(phase.name), weight=weight, weight_points=(), trips=None, work=work
    )


class _Equations:
    """A model evaluated for blocks of ranks; what was asked for before is kept."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._at = lru_cache(_KEPT_COUNTS)(self._evaluator)
        self._block = lru_cache(_KEPT_BLOCKS)(self._rows)

    def weight(self, phase: int, n: int) -> int:
        return phase_weight(self.model.phases[phase], self._at(n).grid)

    def work(self, phase: int, n: int) -> float:
        return float(self.model.phases[phase].work.law.value(n))

    def _evaluator(self, n: int) -> Evaluator:
        try:
            model_grid(self.model, n)
        except P3SError as error:
            raise ValueError(str(error).removeprefix("scale: ")) from error
        return Evaluator(self.model, n)

    def rows(self, phase: int, rank: int, n: int) -> list[Row]:
        self._at(n)
        if not 0 <= rank < n:
            raise ValueError(f"rank {rank}: of {n} processes, ranks are 0 to {n - 1}")
        return self._block(rank // _BLOCK, n).get((phase, rank), [])

    def _rows(self, block: int, n: int) -> dict[tuple[int, int], list[Row]]:
        """Return the rows of a block of ranks, by phase and rank."""
        found = self._at(n).rows(np.arange(_BLOCK * block, min(_BLOCK * (block + 1), n)))
        where = (found.phase, found.rank, found.item, found.slot)
        what = (found.stage, found.turn, found.peer, found.nbytes, found.repeat, found.root)
        columns = [column.tolist() for column in (*where, *what, found.work)]
        out: dict[tuple[int, int], list[Row]] = {}
        for phase, rank, call, slot, *amounts, root, work in zip(*columns, strict=True):
            item = self.model.items[call]
            row = Row._make([call, slot, item.op, item.kind, *amounts, root, item.tag_value, work])
            out.setdefault((phase, rank), []).append(row)
        return out
