"""Computation outside of what was measured: by how much, and when that is too much."""

from __future__ import annotations

from collections.abc import Sequence

from p3s.base.text import processes
from p3s.predict.types import Count, PhaseAt

#: Phases below this share of the computation at a count are not looked at.
SHARE = 0.05
#: Ratio of work per turn to the nearest measured one from which it is noted.
NOTED = 1.5
#: The same, above which a prediction is not to be trusted: the working set may be in another
#: level of memory by then, which are 8 to 32 times smaller or larger than their neighbours.
LIMIT = 16.0


def outside(row: Count, limit: float) -> list[PhaseAt]:
    """Return the phases of a row of prediction.json that are outside by more than a ratio."""
    total = sum(phase.compute_s for phase in row.phases)
    return [
        phase
        for phase in row.phases
        if phase.compute_s > SHARE * total and (phase.outside or 1.0) > limit
    ]


def ratio_text(phase: PhaseAt) -> str:
    """Return how far a phase is outside, for example "1/6 of the least work per iteration"."""
    ratio = phase.outside or 1.0
    number = f"{ratio:.0f}" if ratio >= 9.5 else f"{ratio:.2g}"
    if phase.below in (None, True):
        return f"1/{number} of the least work per iteration"
    return f"{number} times the most work per iteration"


def notes(rows: Sequence[Count]) -> list[str]:
    """Say where each process computes less, or more, per iteration than was measured anywhere."""
    found = {row.n: phases for row in rows if (phases := outside(row, NOTED))}
    if not found:
        return []
    last = max(found)
    at = "" if len(found) == 1 else f" at {processes(last)}"
    return [
        f"at {processes(list(found))} the computation is extrapolated: each process has"
        f"{at} {ratios(found[last])}"
    ]


def ratios(phases: Sequence[PhaseAt], most: int = 3) -> str:
    """Return the ratios of some phases, the same ratio once."""
    found: dict[str, list[str]] = {}
    for phase in sorted(phases, key=lambda p: -p.compute_s):
        name = str(phase.phase if phase.phase >= 0 else phase.name)
        found.setdefault(ratio_text(phase), []).append(name)
    parts = [
        f"{text} that was measured (phase {', '.join(names[:most])}"
        f"{', ...' if len(names) > most else ''})"
        for text, names in list(found.items())[:most]
    ]
    return ", ".join(parts) + (", ..." if len(found) > most else "")
