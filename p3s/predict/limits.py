"""What limits scaling: the core time that every phase loses, by what, and from which count on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from p3s.base.text import processes
from p3s.predict.types import Because, Count, Limit, PhaseAt, part_s

PARTS: tuple[Because, ...] = ("compute", "io", "transfer", "waiting", "software")
#: Phases with less than this share of the lost core time are not named.
LEAST_SHARE = 0.001

#: Count and its phases by number.
Point = tuple[int, Mapping[int, PhaseAt]]
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
    table = [(row.n, {phase.phase: phase for phase in row.phases}) for row in rows]
    base, last = _Base(*table[0], rows[0].model_s, weak), table[-1]
    lost = {key: base.lost(last, key, "time") for key in last[1]}
    whole = sum(value for value in lost.values() if value > 0)
    found = []
    for key, value in sorted(lost.items(), key=lambda item: -item[1]):
        if value <= 0 or value < LEAST_SHARE * whole:
            continue
        phase = last[1][key]
        at, because = _where(table, base, key, threshold), _because(base, last, key)
        found.append(
            Limit(
                key,
                phase.name,
                at,
                value / whole,
                because,
                _text(phase, value / whole, because, last[0], at, threshold),
            )
        )
    return tuple(found)


@dataclass(frozen=True)
class _Base:
    """The smallest count: its phases by number and its time, and how time scales ideally."""

    n: int
    phases: Mapping[int, PhaseAt]
    time_s: float
    weak: bool

    def cores(self, n: int) -> int:
        """Return by what the time at the base is multiplied to give the ideal core time at n."""
        return n if self.weak else self.n

    def lost(self, point: Point, key: int, part: str) -> float:
        """Return the core time that a part of a phase takes more than ideally."""
        n, phases = point
        now, then = (
            (part_s(some[key], part) or 0.0) if key in some else 0.0
            for some in (phases, self.phases)
        )
        return n * now - self.cores(n) * then

    def spare(self, n: int, threshold: float) -> float:
        """Return the core time that may be lost at an efficiency of the threshold."""
        return self.cores(n) * self.time_s * (1.0 / threshold - 1.0)


def _because(base: _Base, last: Point, key: int) -> Because:
    parts = {part: base.lost(last, key, part) for part in PARTS}
    phase = last[1][key]
    if all(part_s(phase, part) is None for part in PARTS[2:]):
        # an estimator that does not tell the parts of communication apart
        parts["transfer"] = base.lost(last, key, "comm")
    return max(PARTS, key=lambda part: parts[part])


def _where(table: Sequence[Point], base: _Base, key: int, threshold: float) -> int | None:
    """Return from which count on the phase loses more than the threshold spares."""
    if not 0.0 < threshold < 1.0 or base.time_s <= 0.0:
        return None
    ratios = [base.lost(point, key, "time") / base.spare(point[0], threshold) for point in table]
    below = [at for at, ratio in enumerate(ratios) if ratio <= 1.0]
    if not below or below[-1] == len(table) - 1:
        return None
    one, other = below[-1], below[-1] + 1
    share = (1.0 - ratios[one]) / (ratios[other] - ratios[one])
    counts = table[one][0], table[other][0]
    result: int | None = min(math.ceil(counts[0] * (counts[1] / counts[0]) ** share), counts[1])
    return result


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
