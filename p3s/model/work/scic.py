"""The instruction table: work per process, weight and total of every phase, measured and predicted.

Source: thesis section 5.3 and Table 5.2 (Scalable Computational Instruction Count). Processes
whose work is alike within 5 % are an instruction group; the table has a part for each of them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from p3s.base.errors import P3SError
from p3s.model.grid.at import Guard
from p3s.model.types import Model, Phase

#: Ranks of one instruction group differ by no more than this share of their work.
SIMILAR = 0.05


@dataclass(frozen=True)
class Row:
    """One group of one phase at one count.

    group: from 0, most work first; where: which ranks, as text; ranks: how many of them; weight:
    iterations of the phase in the run; work: of one process in one iteration; total: of all ranks
    of the group in the run; half_width: of the 90 % interval of ``total``, 0 where it was measured.
    """

    phase: int
    name: str
    group: int
    where: str
    measured: bool
    n: int
    ranks: int
    weight: float
    work: float
    total: float
    half_width: float


@dataclass(frozen=True)
class InstructionTable:
    """All rows of the instruction table: by phase, group, measured ones first, and count.

    guards: which ranks are in a group at every traced count, by phase and group, of phases with
    several groups of which that is known.
    """

    unit: str
    rows: tuple[Row, ...]
    guards: Mapping[tuple[int, int], str]

    def total(self, phase: int, n: int, measured: bool) -> float | None:
        """Return the work of all ranks in a phase at ``n``, None if the table lacks it."""
        found = [r.total for r in self.rows if (r.phase, r.n, r.measured) == (phase, n, measured)]
        return sum(found) if found else None


def group_total(work: float, ranks: int, weight: float) -> float:
    """Return the work of a group in the run from that of one process in one iteration (Eq. 5.5)."""
    return work * ranks * weight


def work_per_process(total: float, ranks: int, weight: float) -> float:
    """Return the work of one process in one iteration from its group's in the run (Eq. 5.6)."""
    return total / (ranks * weight) if ranks and weight else 0.0


def instruction_groups(work: np.ndarray) -> list[np.ndarray]:
    """Return the positions of ranks that are alike within 5 %, most work first.

    work: per rank, non-negative. Every group reaches from its largest down to 5 % less.
    """
    order = np.argsort(-work, kind="stable")
    out: list[np.ndarray] = []
    start = 0
    while start < len(order):
        least = work[order[start]] * (1.0 - SIMILAR)
        end = start + int(np.searchsorted(-work[order[start:]], -least, side="right"))
        out.append(np.sort(order[start : max(end, start + 1)]))
        start = max(end, start + 1)
    return out


def ranges(ranks: np.ndarray) -> list[list[int]]:
    """Return ascending ranks as [first, last] of each contiguous run."""
    if not len(ranks):
        return []
    cuts = np.flatnonzero(np.diff(ranks) != 1)
    return [
        [int(a), int(b)]
        for a, b in zip(
            ranks[np.append(0, cuts + 1)], ranks[np.append(cuts, len(ranks) - 1)], strict=True
        )
    ]


def ranges_text(parts: Sequence[Sequence[int]], most: int = 4) -> str:
    """Return ranges as text, for example "0, 4-7, ..."."""
    shown = [str(a) if a == b else f"{a}-{b}" for a, b in parts[:most]]
    return ", ".join(shown + (["..."] if len(parts) > most else []))


def instruction_table(model: Model, counts: Iterable[int] = ()) -> InstructionTable:
    """Return the table: measured at the traced counts, predicted there and at ``counts``.

    At a traced count the groups are those that were measured. Phases without work are left out.
    Raises P3SError for a count that the program's process grid does not admit.
    """
    rows = [row for phase in model.phases for row in list_measured(phase)]
    traced = {(r.phase, r.n) for r in rows}
    for n in sorted({*model.counts, *counts}):
        rows += _predict_rows(model, n, traced)
    worth = {r.phase for r in rows if r.total > 0}
    order = sorted(
        (r for r in rows if r.phase in worth), key=lambda r: (r.phase, r.group, not r.measured, r.n)
    )
    several = {(r.phase, r.group) for r in order if r.group > 0}
    several |= {(phase, 0) for phase, _ in several}
    guards = {key: guard.text() for key in several if (guard := group_guard(model, *key))}
    return InstructionTable(str(model.work_unit), tuple(order), guards)


def larger_counts(model: Model) -> list[int]:
    """Return a few larger counts of the same kind as the traced ones that the grid admits."""
    fits = []
    for n in next_sizes(model.counts):
        try:
            instruction_table(replace(model, counts=(n,)))
        except P3SError:
            continue
        fits.append(n)
    return fits


def list_measured(phase: Phase) -> Iterator[Row]:
    """Yield the rows of a phase that were measured, by count and group."""
    weights = {n: float(w) for n, w in phase.weight_points}
    for n, groups in phase.work.measured.items():
        weight = weights.get(int(n)) or 1.0
        for k, g in enumerate(groups):
            ranks = sum(b - a + 1 for a, b in g.ranks)
            one = g.work / weight
            yield Row(
                phase.phase,
                phase.name,
                k,
                ranges_text(g.ranks),
                True,
                int(n),
                ranks,
                weight,
                one,
                group_total(one, ranks, weight),
                0.0,
            )


def _predict_rows(model: Model, n: int, traced: Container[tuple[int, int]]) -> Iterator[Row]:
    from p3s.model.evaluate import generate, phase_weight
    from p3s.model.work.workload import rank_work

    scaled = generate(model, n)
    found = rank_work(
        model, scaled.grid, {c: getattr(scaled, c) for c in ("rank", "item", "nbytes", "repeat")}
    )
    work, half = found.per_phase(), found.half_width
    for phase in model.phases:
        k = phase.phase
        there = np.flatnonzero(np.isin(found.ranks, scaled.rank[scaled.phase == k]))
        weight = float(max(phase_weight(phase, scaled.grid), 1))
        if (k, n) in traced:
            members = [
                np.concatenate([np.arange(a, b + 1) for a, b in g.ranks])
                for g in phase.work.measured[str(n)]
            ]
            groups = [np.flatnonzero(np.isin(found.ranks, m)) for m in members]
        else:
            groups = [there[mine] for mine in instruction_groups(work[k][there])]
        for g, mine in enumerate(groups):
            total = float(work[k][mine].sum())
            yield Row(
                k,
                phase.name,
                g,
                ranges_text(ranges(found.ranks[mine])),
                False,
                n,
                len(mine),
                weight,
                work_per_process(total, len(mine), weight),
                total,
                float(half[k][mine].sum()),
            )


def group_guard(model: Model, phase: int, group: int) -> Guard | None:
    """Return which ranks are in a group at every traced count, as a guard; None without a rule."""
    from p3s.model.evaluate import model_grid
    from p3s.model.grid.guardfit import fit_guard

    grids, sets = [], []
    for n, groups in model.phases[phase].work.measured.items():
        if len(groups) <= group:
            return None
        grids.append(model_grid(model, int(n)))
        sets.append(np.zeros(int(n), dtype=bool))
        for a, b in groups[group].ranks:
            sets[-1][a : b + 1] = True
    return fit_guard(grids, sets) if grids else None


def next_sizes(counts: Sequence[int], how_many: int = 4) -> list[int]:
    """Return counts of the same kind as the traced ones, each about twice the one before.

    Squares stay squares, cubes stay cubes; all others are doubled.
    """
    top = max(counts)
    for power in (2, 3):
        roots = [round(n ** (1.0 / power)) for n in counts]
        if all(r**power == n for r, n in zip(roots, counts, strict=True)):
            return [
                int(np.ceil(round(top ** (1 / power)) * 2 ** (k / power) - 1e-9)) ** power
                for k in range(1, how_many + 1)
            ]
    return [top * 2**k for k in range(1, how_many + 1)]
