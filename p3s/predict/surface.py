"""Run times over processes and threads: what one file, surface.json, holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from p3s.base.artefacts import write_json
from p3s.base.serialise import FileFormat
from p3s.base.text import plural
from p3s.predict.types import Count, Prediction, Reason, TimeFrom, filter_untrusted, prefix_reasons


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A number of processes with a number of threads each, on nodes that are filled.

    per_node: processes of a node; speedup, efficiency: relative to the cell with the fewest cores,
    by cores; cost_core_h: of the cores that threads have; trusted: whether the prediction at this
    number of threads is; traced: whether runs had these threads. Ends of
    compute_s and comm_s: of 90 % intervals.
    """

    n: int
    threads: int
    per_node: int
    nodes: int
    time_s: float
    low_s: float | None
    high_s: float | None
    time_from: TimeFrom
    compute_s: float
    compute_low_s: float
    compute_high_s: float
    comm_s: float
    comm_low_s: float
    comm_high_s: float
    work_s: float
    measured_s: float | None
    speedup: float
    efficiency: float
    cost_core_h: float
    doubtful: bool
    trusted: bool
    traced: bool

    @property
    def cores(self) -> int:
        """Cores that the threads have."""
        return self.n * self.threads


@dataclass(frozen=True, kw_only=True)
class Surface:
    """Run times over processes and threads, and what speaks against them.

    setting: values of the input's parameters, "" without any; base: (processes, threads) that
    speedups relate to; reasons: of all predictions, each once.
    """

    setting: str
    cores_per_node: int
    base: tuple[int, int]
    network: str
    cells: tuple[Cell, ...]
    reasons: tuple[Reason, ...]
    notes: tuple[str, ...]

    @property
    def threads(self) -> list[int]:
        """Numbers of threads, ascending."""
        return sorted({cell.threads for cell in self.cells})

    @property
    def counts(self) -> list[int]:
        """Process counts, ascending."""
        return sorted({cell.n for cell in self.cells})

    def at(self, n: int, threads: int) -> Cell | None:
        """Return a cell, None where it was not predicted."""
        return next((c for c in self.cells if (c.n, c.threads) == (n, threads)), None)


@dataclass(frozen=True)
class Column:
    """A prediction at one number of threads, and whether runs had them."""

    threads: int
    per_node: int
    traced: bool
    prediction: Prediction


def surface_of(
    columns: Sequence[Column],
    counts: Sequence[int],
    setting: str,
    cores_per_node: int,
    differ: Sequence[Reason] = (),
) -> Surface:
    """Put predictions at several numbers of threads together: of these process counts.

    differ: what speaks against taking messages from runs with other threads. Notes are those of the
    most threads.
    """
    cells = [
        _cell(column, row)
        for column in columns
        for row in column.prediction.counts
        if row.n in counts
    ]
    first = min(cells, key=lambda cell: (cell.cores, cell.threads))
    most = max(columns, key=lambda each: each.threads)
    network = columns[0].prediction.network
    return Surface(
        setting=setting,
        cores_per_node=cores_per_node,
        base=(first.n, first.threads),
        network=network.label if network is not None else "",
        cells=tuple(_add_speedup(cell, first) for cell in cells),
        reasons=(*differ, *once(columns)),
        notes=tuple(dict.fromkeys(most.prediction.notes)),
    )


def _cell(column: Column, row: Count) -> Cell:
    """Return a row of a prediction as a cell; its speedup is that of the prediction."""
    per_node = min(column.per_node, row.n)
    low, high = (
        sum(p.compute_s if (end := getattr(p, name)) is None else end for p in row.phases)
        for name in ("compute_low_s", "compute_high_s")
    )
    own: dict[str, Any] = {
        "threads": column.threads,
        "per_node": per_node,
        "nodes": -(-row.n // per_node),
        "compute_low_s": low,
        "compute_high_s": high,
        "comm_low_s": row.comm_s if row.comm_low_s is None else row.comm_low_s,
        "comm_high_s": row.comm_s if row.comm_high_s is None else row.comm_high_s,
        "cost_core_h": row.n * column.threads * row.time_s / 3600,
        "trusted": not filter_untrusted(column.prediction.reasons),
        "traced": column.traced,
    }
    shared = (each.name for each in fields(Cell) if each.name not in own)
    return Cell(**own, **{name: getattr(row, name) for name in shared})


def _add_speedup(cell: Cell, base: Cell) -> Cell:
    speedup = base.time_s / cell.time_s if cell.time_s > 0 else 0.0
    return replace(cell, speedup=speedup, efficiency=speedup * base.cores / cell.cores)


def once(columns: Sequence[Column]) -> Iterable[Reason]:
    """Yield the reasons of all predictions, one of a kind: that of the most threads, by name.

    The others have figures of their own, which their predictions tell.
    """
    found: dict[tuple[str, bool], tuple[int, Reason]] = {}
    for column in sorted(columns, key=lambda each: each.threads):
        for reason in column.prediction.reasons:
            kind = reason.code, reason.untrustworthy
            found[kind] = column.threads, reason
    for threads, reason in found.values():
        yield from (
            prefix_reasons([reason], f"with {plural(threads, 'thread')}")
            if len(columns) > 1
            else [reason]
        )


# ---- the file ----------------------------------------------------------------------------------
SURFACE = FileFormat("p3s.surface", 1, Surface, again="run p3s predict --threads again")


def surface_path(root: Path, setting: str = "") -> Path:
    """Return where the surface of a study is, of one value of its input's parameters."""
    return root / (f"surface-{setting}.json" if setting else "surface.json")


def write(root: Path, surface: Surface) -> Path:
    """Write surface.json; return its path."""
    path = surface_path(root, surface.setting)
    write_json(path, SURFACE.data(surface))
    return path
