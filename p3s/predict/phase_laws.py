"""Time of every phase and its parts as functions of n, through the predicted counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from p3s.predict.types import Count, Law, PhaseAt, PhaseLaw, part_s

PARTS = ("time", "compute", "transfer", "waiting", "software")
#: Of phases that use files this too.
FILES = "io"
#: A law that misses a count by more than this is none.
WORST_MISS = 0.25
#: Phases with less than this share of the time at every count get no laws.
LEAST_SHARE = 0.005
#: Values below this share of the phase's time at their count do not decide on a law.
_SMALL = 1e-4


def phase_laws(rows: Sequence[Count]) -> tuple[PhaseLaw, ...]:
    """Return laws over n of every phase's time and parts (rows of prediction.json).

    Sums of non-negative terms in n and log2 n, found by p3s.laws.lawfinder as those of the work
    are. ``error``: largest relative miss at the counts. A part has no law ("" as text) where fewer
    counts are there than its terms need and one to check them, or where the best law misses one
    by more than a quarter.
    """
    found = []
    table = [{phase.phase: phase for phase in row.phases} for row in rows]
    for number, name in _names(rows).items():
        mine = [(row.n, phases.get(number)) for row, phases in zip(rows, table, strict=True)]
        large = any(
            phase is not None and phase.time_s >= LEAST_SHARE * row.model_s
            for row, (_, phase) in zip(rows, mine, strict=True)
        )
        found.append(
            PhaseLaw(number, name, {part: _law(part, mine, large) for part in _parts(mine)})
        )
    return tuple(found)


def _parts(mine: Sequence[tuple[int, PhaseAt | None]]) -> tuple[str, ...]:
    return (*PARTS, FILES) if any(phase and phase.io_s for _, phase in mine) else PARTS


def _names(rows: Sequence[Count]) -> dict[int, str]:
    return {phase.phase: phase.name for row in rows for phase in row.phases}


def _law(part: str, mine: Sequence[tuple[int, PhaseAt | None]], large: bool) -> Law:
    from p3s.laws.lawfinder import find_law

    points = [
        (n, seconds, phase.time_s)
        for n, phase in mine
        if phase is not None and (seconds := part_s(phase, part)) is not None
    ]
    counts = tuple(n for n, _, _ in points)
    none = Law(text="", latex="", error=None, counts=counts)
    if not large or len(points) < 3:
        return none
    if not any(value > _SMALL * whole for _, value, whole in points):
        return replace(none, text="0", latex="0", error=0.0)
    law = find_law(
        ((n, value) for n, value, _ in points),
        "work",
        resolution=[_SMALL * whole for _, _, whole in points],
    ).fit
    if len(law.terms) >= len(points):
        return none
    miss = max(
        (
            abs(float(law.value(n)) - value) / value
            for n, value, whole in points
            if value > _SMALL * whole
        ),
        default=0.0,
    )
    if not miss <= WORST_MISS:
        return none
    return Law(
        text=law.text(),
        latex=law.latex(),
        terms=tuple(map(tuple, law.to_json()["terms"])),
        error=miss,
        counts=counts,
    )
