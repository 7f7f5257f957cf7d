"""Run times over processes and threads: what one file, surface.json, holds."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from p3s.base.artefacts import write_json
from p3s.base.serialise import Published
from p3s.base.study import Study
from p3s.predict.types import Count, Prediction, Reason, TimeFrom, untrusted

#: Laws of threads make an interval wide where theirs is this part of it, in logarithms: then half
#: of its square.
_MOSTLY = math.sqrt(0.5)
#: In which notes on other numbers of threads may differ.
_FIGURES = re.compile(r"\d[\d.,]*")


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
    """A prediction at one number of threads, and whether runs had them.

    open: upper over lower end of what laws of threads leave open of computation there.
    """

    threads: int
    per_node: int
    traced: bool
    prediction: Prediction
    open: float = 1.0


def surface_of(
    columns: Sequence[Column],
    counts: Sequence[int],
    setting: str,
    cores_per_node: int,
    differ: Sequence[Reason] = (),
) -> Surface:
    """Put predictions at several numbers of threads together: of these process counts.

    differ: what speaks against taking messages from runs with other threads.
    """
    cells = [
        _cell(column, row)
        for column in columns
        for row in column.prediction.counts
        if row.n in counts
    ]
    first = min(cells, key=lambda cell: (cell.cores, cell.threads))
    network = columns[0].prediction.network
    return Surface(
        setting=setting,
        cores_per_node=cores_per_node,
        base=(first.n, first.threads),
        network=network.label if network is not None else "",
        cells=tuple(_related(cell, first) for cell in cells),
        reasons=(*differ, *once(columns)),
        notes=tuple(_notes(columns)),
    )


def _cell(column: Column, row: Count) -> Cell:
    per_node = min(column.per_node, row.n)
    compute = [
        sum(each.compute_s if end is None else end for each, end in ends)
        for ends in (
            [(each, each.compute_low_s) for each in row.phases],
            [(each, each.compute_high_s) for each in row.phases],
        )
    ]
    return Cell(
        n=row.n,
        threads=column.threads,
        per_node=per_node,
        nodes=-(-row.n // per_node),
        time_s=row.time_s,
        low_s=row.low_s,
        high_s=row.high_s,
        time_from=row.time_from,
        compute_s=row.compute_s,
        compute_low_s=compute[0],
        compute_high_s=compute[1],
        comm_s=row.comm_s,
        comm_low_s=row.comm_s if row.comm_low_s is None else row.comm_low_s,
        comm_high_s=row.comm_s if row.comm_high_s is None else row.comm_high_s,
        work_s=row.work_s,
        measured_s=row.measured_s,
        speedup=1.0,
        efficiency=1.0,
        cost_core_h=row.n * column.threads * row.time_s / 3600,
        doubtful=row.doubtful,
        trusted=not untrusted(column.prediction.reasons),
        traced=column.traced,
    )


def _related(cell: Cell, base: Cell) -> Cell:
    speedup = base.time_s / cell.time_s if cell.time_s > 0 else 0.0
    return replace(cell, speedup=speedup, efficiency=speedup * base.cores / cell.cores)


def once(columns: Sequence[Column]) -> Iterable[Reason]:
    """Yield the reasons of all predictions, one of a kind: that of the most threads.

    The others have figures of their own, which their predictions tell.
    """
    found: dict[tuple[str, bool], dict[int, Reason]] = {}
    for column in columns:
        for reason in column.prediction.reasons:
            alike = found.setdefault((reason.code, reason.untrustworthy), {})
            alike[column.threads] = _of_threads(reason, column)
    for alike in found.values():
        texts = {threads: reason.text for threads, reason in alike.items()}
        yield replace(alike[max(alike)], text=_together(texts, len(columns) > 1))


def _notes(columns: Sequence[Column]) -> Iterable[str]:
    """Yield the notes of all predictions, those alike but for their figures once.

    Notes of one prediction may be alike as well, as those of two phases: these are all told.
    """
    found: dict[tuple[str, int], dict[int, str]] = {}
    for column in columns:
        before: Counter[str] = Counter()
        for note in dict.fromkeys(column.prediction.notes):
            words = _FIGURES.sub("", note)
            found.setdefault((words, before[words]), {})[column.threads] = note
            before[words] += 1
    yield from (_together(alike, False) for alike in found.values())


def _together(alike: Mapping[int, str], named: bool) -> str:
    """Return the text of the most threads, and which others have it, or have other figures.

    ``named``: also where all have the same.
    """
    text = alike[max(alike)]
    same = [threads for threads in alike if alike[threads] == text]
    rest = [threads for threads in alike if threads not in same]
    where = f"with {_listed(same)}: " if named or rest else ""
    return f"{where}{text}" + (f"; with {_listed(rest)}, too, in other figures" if rest else "")


def _of_threads(reason: Reason, column: Column) -> Reason:
    """Return a wide interval's reason with what helps where it is mostly of the laws of threads."""
    if reason.code != "wide" or column.traced:
        return reason
    spans = [row.high_s / row.low_s for row in column.prediction.counts if row.low_s and row.high_s]
    if column.open < max(spans, default=math.inf) ** _MOSTLY:
        return reason
    return replace(
        reason,
        advice=f"trace runs with {_listed([column.threads])}, too: no run had so many, and the "
        f"laws of threads leave computation open by a factor of {column.open:.2f}",
    )


def _listed(threads: Sequence[int]) -> str:
    return f"{', '.join(map(str, threads))} thread{'s' if list(threads) != [1] else ''}"


# ---- the file ----------------------------------------------------------------------------------
SURFACE = Published("p3s.surface", 1, Surface, again="run p3s predict --threads again")


def surface_path(study: Study, setting: str = "") -> Path:
    """Return where the surface of a study is, of one value of its input's parameters."""
    return study.root / (f"surface-{setting}.json" if setting else "surface.json")


def write(study: Study, surface: Surface) -> Path:
    """Write surface.json; return its path."""
    path = surface_path(study, surface.setting)
    write_json(path, SURFACE.data(surface))
    return path
