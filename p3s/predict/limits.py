"""What limits scaling: the core time that every phase loses, by what, and from which count on."""

from __future__ import annotations

import math
from collections.abc import Sequence

from p3s.base.text import processes
from p3s.predict.types import Because, Count, Limit, PhaseAt, part_s

PARTS: tuple[Because, ...] = ("compute", "io", "transfer", "waiting", "software")
#: Phases with less than this share of the lost core time are not named.
LEAST_SHARE = 0.001

_WORDS = {
    "compute": "computation that does not shrink with the number of processes",
    "io": "files",
    "transfer": "transfer of messages",
    "waiting": "waiting for other ranks",
    "software": "the calls themselves",
}


def limits(rows: Sequence[Count], threshold: float, *, weak: bool = False) -> tuple[Limit, ...]:
    """Return the phases that lose core time from the smallest to the largest count, worst first.

    Lost core time of phase i at n: n t_i(n) - n0 t_i(n0), of the model; in ``weak`` scaling
    n t_i(n) - n t_i(n0). ``share``: of what all phases that lose any lose together; ``n``: from
    which count on this phase alone, all others scaling ideally, keeps the efficiency below the
    threshold (between two counts straight in log n), None if not at the largest; ``because``: the
    part that has grown most.
    """
    if len(rows) < 2:
        return ()
    base, last = rows[0], rows[-1]

    def ideal(row: Count) -> int:
        """Return by what seconds at the base are multiplied to give the ideal core time."""
        return row.n if weak else base.n

    def lost(row: Count, key: int, part: str = "time") -> float:
        return row.n * _seconds(row, key, part) - ideal(row) * _seconds(base, key, part)

    phases = {phase.phase: phase for phase in last.phases}
    losses = {key: lost(last, key) for key in phases}
    whole = sum(value for value in losses.values() if value > 0)
    found = []
    for key, value in sorted(losses.items(), key=lambda item: -item[1]):
        if value <= 0 or value < LEAST_SHARE * whole:
            continue
        phase, share = phases[key], value / whole
        parts = {part: lost(last, key, part) for part in PARTS}
        if all(part_s(phase, part) is None for part in PARTS[2:]):
            # an estimator that does not tell the parts of communication apart
            parts["transfer"] = lost(last, key, "comm")
        because = max(PARTS, key=lambda part: parts[part])
        at = None
        if 0.0 < threshold < 1.0 and base.model_s > 0.0:
            spare = [ideal(row) * base.model_s * (1.0 / threshold - 1.0) for row in rows]
            ratios = [lost(row, key) / most for row, most in zip(rows, spare, strict=True)]
            at = _where([row.n for row in rows], ratios)
        text = _text(phase, share, because, last.n, at, threshold)
        found.append(Limit(key, phase.name, at, share, because, text))
    return tuple(found)


def _seconds(row: Count, key: int, part: str) -> float:
    return next((part_s(each, part) or 0.0 for each in row.phases if each.phase == key), 0.0)


def _where(counts: Sequence[int], ratios: Sequence[float]) -> int | None:
    """Return from which count on a ratio stays above 1, straight in log n between two counts."""
    below = [at for at, ratio in enumerate(ratios) if ratio <= 1.0]
    if not below or below[-1] == len(ratios) - 1:
        return None
    at = below[-1]
    share = (1.0 - ratios[at]) / (ratios[at + 1] - ratios[at])
    grown: float = (counts[at + 1] / counts[at]) ** share
    return min(math.ceil(counts[at] * grown), counts[at + 1])


def _text(
    phase: PhaseAt, share: float, because: Because, n: int, at: int | None, threshold: float
) -> str:
    text = (
        f"phase {phase.name}: {100 * share:.0f} % of the core time lost at {processes(n)}, "
        f"mostly {_WORDS[because]}"
    )
    if at is not None:
        text += (
            f"; alone it would bring the efficiency below {100 * threshold:.0f} % from "
            f"{processes(at)} on"
        )
    return text
