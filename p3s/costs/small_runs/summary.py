"""far.json: what the runs with other inputs stand for, for people and for reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from p3s.base.errors import P3SError
from p3s.base.serialise import FileFormat, ProcessCount
from p3s.costs.small_runs.cells import InputRuns
from p3s.costs.small_runs.match import Found, match_all
from p3s.costs.small_runs.places import HOW, SITE
from p3s.costs.small_runs.walk import PhaseCost, Reference


@dataclass(frozen=True)
class FarWorkload:
    """Runs of another input: what they stand for, or why they cannot be compared.

    places: how call sites were matched, in words.
    """

    name: str
    command: tuple[str, ...]
    counts: tuple[ProcessCount, ...]
    error: str | None
    places: str
    rows: tuple[Found, ...]
    minimum: tuple[PhaseCost, ...]


@dataclass(frozen=True)
class FarFile:
    """What far.json holds; phases: their names."""

    work_unit: str
    phases: tuple[str, ...]
    workloads: tuple[FarWorkload, ...]

    def valid(self) -> None:
        """Raise ValueError where a row is of no phase."""
        if any(row.phase >= len(self.phases) for one in self.workloads for row in one.rows):
            raise ValueError("a row is of no phase")


FAR = FileFormat("p3s.far", 2, FarFile, True, "run p3s characterize --far again")


def far_file(reference: Reference, inputs: Sequence[InputRuns]) -> FarFile:
    """Return what all other inputs of a study were matched to."""
    matches = match_all(reference, inputs)
    workloads = []
    for one in inputs:
        groups = matches[one.name]
        made = FarWorkload(one.name, one.command, one.counts, None, HOW[SITE], (), ())
        if isinstance(groups, P3SError):
            workloads.append(replace(made, error=str(groups)))
            continue
        rows = tuple(g for _, some in sorted(groups.items()) for g in some)
        least = tuple(reference.costs(one))
        workloads.append(replace(made, places=one.how, rows=rows, minimum=least))
    names = tuple(p.name for p in reference.model.phases)
    return FarFile(reference.model.work_unit, names, tuple(workloads))
