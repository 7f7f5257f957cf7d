"""What was measured about computation: one point per place, process count and group of ranks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Point:
    """The computation before the calls of one place, of a group of ranks in runs at one count.

    place: (site, operation); phase: number in the model. n: process count of the original workload
    that has this much work per process: the traced count itself, or for another workload what it
    was matched to (``matched``), a real number, NaN where no count has it. work: of one rank in the
    run, mean over the group; x: the rank's work per iteration of the phase, what stands for its
    working set. least_ns, typical_ns: time of the same rank in the run, the least over the repeats
    and their median. spread: relative, of the repeats (largest over least, less 1; 0 for one
    repeat). ranks: in the group. repeats: runs. source: "own", or the name of the other workload
    ("far/w1", "at/size=2000"); traced: process count of the run itself."""

    place: tuple[str, str]
    phase: int
    n: float
    work: float
    x: float
    least_ns: float
    typical_ns: float
    spread: float
    ranks: int
    repeats: int
    source: str = "own"
    traced: int = 0

    @property
    def cost(self) -> float:
        """Nanoseconds per unit of work, by the least time."""
        return self.least_ns / self.work if self.work > 0 else 0.0
