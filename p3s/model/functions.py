"""A fitted model as functions of the process count and the rank.

This is what a module written by ``p3s model --python`` imports: it holds the equations as data,
and the functions here evaluate them, as for the scaled trace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from p3s.errors import P3SError
from p3s.laws.worklaws import WorkLaw
from p3s.model.evaluate import Evaluator, model_grid
from p3s.model.tree import phase_weight
from p3s.text import visible

#: Version of the data that :func:`phases` reads.
VERSION = 1
#: Ranks evaluated at once; process counts whose grids, and blocks of ranks whose rows, are kept.
_BLOCK, _KEPT_COUNTS, _KEPT_BLOCKS = 256, 16, 64
#: What evaluation reads of model.json, and what it does not need of a law.
_GRID = ("family", "cart", "stated")
_ITEM = ("op", "site", "kind", "tag_value", "phase", "order", "loop_start", "stages_of")
_SLOT = ("relation", "place", "guard", "root", "count", "turns", "elements", "elem_bytes", "work")
_PHASE = ("phase", "parent", "name", "weight")
_WORK = ("place", "from", "cases", "items", "rows", "calls_at", "size")
_FITTED = frozenset({"free", "even", "rivals", "open", "others", "band", "refused"})


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


def phases(
    version: int,
    counts: Sequence[int],
    grid: Mapping[str, Any],
    laws: Sequence[Mapping[str, Any]],
    calls: Sequence[Mapping[str, Any]],
    segments: Sequence[Mapping[str, Any]],
) -> dict[int, Phase]:
    """Return the phases of a model by number, made of the parts of a :class:`Data`.

    Raises P3SError for data of another version.
    """
    if version != VERSION:
        raise P3SError(
            f"equations of version {version}, but this p3s reads version {VERSION}; "
            "write them again with p3s model --python"
        )
    equations = _Equations(counts, Data(grid, laws, calls, segments))
    return {
        law["phase"]: Phase(
            law["phase"], law["name"], law["parent"], law["weight_verdict"], equations
        )
        for law in laws
    }


@dataclass(frozen=True)
class Data:
    """What evaluation needs of a model.

    grid: rule of the process grid; laws: one per phase; calls: one per item, its rules; segments:
    the work before the calls of one place, one entry per place.
    """

    grid: Mapping[str, Any]
    laws: Sequence[Mapping[str, Any]]
    calls: Sequence[Mapping[str, Any]]
    segments: Sequence[Mapping[str, Any]]


def data_of(model: Mapping[str, Any]) -> Data:
    """Return what evaluation needs of a model, no more."""
    return Data(
        _kept(model["grid"], _GRID),
        [
            {
                **_kept(phase, _PHASE),
                "name": visible(str(phase["name"])),
                "weight_verdict": visible(str(phase.get("weight_verdict", ""))),
                "work": _bare(phase["work"]["law"]),
            }
            for phase in model["phases"]
        ],
        [
            {**_kept(item, _ITEM), "slots": [_kept(slot, _SLOT) for slot in item["slots"]]}
            for item in model["items"]
        ],
        [
            {
                "phase": phase["phase"],
                **_kept(place, _WORK),
                "segments": [{"terms": segment["terms"]} for segment in place["segments"]],
            }
            for phase in model["phases"]
            for place in phase["work"]["places"]
        ],
    )


def _kept(part: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: _bare(part[name]) for name in names if name in part}


def _bare(law: Any) -> Any:
    """Return a law without what it was fitted to."""
    if not isinstance(law, Mapping) or not law.keys() & {"expr", "terms", "total", "stat"}:
        return law
    dropped = _FITTED if "rel_half_width" in law else _FITTED | {"points"}
    return {key: _bare(value) for key, value in law.items() if key not in dropped}


class _Equations:
    """A model evaluated for blocks of ranks; what was asked for before is kept."""

    def __init__(self, counts: Sequence[int], data: Data) -> None:
        self.laws = {law["phase"]: law for law in data.laws}
        self.model: dict[str, Any] = {
            "counts": counts,
            "grid": data.grid,
            "phases": [
                {**law, "work": {"places": _places(data, k)}} for k, law in self.laws.items()
            ],
            "items": data.calls,
        }
        self._at = lru_cache(_KEPT_COUNTS)(self._evaluator)
        self._block = lru_cache(_KEPT_BLOCKS)(self._rows)

    def weight(self, phase: int, n: int) -> int:
        return phase_weight(self.laws[phase], self._at(n).grid)

    def work(self, phase: int, n: int) -> float:
        return float(WorkLaw.from_json(self.laws[phase]["work"]).value(n))

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
            item = self.model["items"][call]
            row = Row._make(
                [call, slot, item["op"], item["kind"], *amounts, root, item["tag_value"], work]
            )
            out.setdefault((phase, rank), []).append(row)
        return out


def _places(data: Data, phase: int) -> list[Mapping[str, Any]]:
    return [place for place in data.segments if place["phase"] == phase]
