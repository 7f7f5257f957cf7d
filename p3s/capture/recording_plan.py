"""What the tracer must know to run a signature: the loop nest, its phases, when it is enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

#: What decides that a phase was seen often enough: work + time in calls, or the work alone.
TIME, WORK = "time", "work"
#: File in the run directory.
NAME = "signature.plan"

# Sizes in p3s_phase.c.
_BATCHES = 32
_LONGEST_OP = 39
_LEAST_SHARE = 1e-4
#: Of the iterations of a phase, the share that is measured at most, and at which it is left.
SHARE, LEFT_AT = 0.05, 0.09


@dataclass(frozen=True)
class Enough:
    """When a phase has been seen often enough.

    The mean time of its iterations is known to ``width`` (relative half width of the confidence
    interval), or it had ``largest`` iterations, or SHARE of all that it has; never before
    ``smallest``, unless the program is to be stopped. The ``early`` iterations before these are
    taken as they are: memory is touched first, caches are cold, connections are made.
    ``measure``: TIME or WORK."""

    width: float = 0.02
    confidence: float = 0.95
    smallest: int = 20
    largest: int = 1000
    measure: str = TIME
    early: int = 5

    def most(self, weight: int, stop: bool) -> int:
        """Return after how many iterations of ``weight`` in a run a phase is left at most.

        Of a program that is stopped, no others are left to see it better.
        """
        share = int(SHARE * weight)
        if stop:
            return max(1, min(self.early + self.largest, share))
        return self.early + max(self.smallest, min(self.largest, share - self.early))

    def quantile(self, batches: int) -> float:
        """Return Student's t for the mean of so many batches of turns."""
        from scipy.stats import t

        return float(t.ppf(0.5 + self.confidence / 2, max(batches - 1, 1)))


@dataclass(frozen=True)
class Row:
    """A loop: the loop around it (-1 the root's), its place in that, its phase (-1: a walk)."""

    parent: int
    place: int
    phase: int


@dataclass(frozen=True)
class KnownCall:
    """A call of the program: site key (hex), operation, its loop and place in it, its phase."""

    site: str
    op: str
    loop: int
    place: int
    phase: int


@dataclass(frozen=True)
class Plan:
    """The loops, outer ones first, the calls, and which phases are relevant.

    ``shares``: of the time of a run, by phase (all of it where not given). A phase with a share s
    is known at the width divided by the root of s: what the run takes is then known to the width.
    ``weights``: iterations of a run by phase (unknown where not given).
    ``ranks``: phase -> how many ranks must have seen it often enough before the program may be
    stopped; a phase with all of the others stops nothing. ``stop``: ranks that know their phases
    wait for that, after LEFT_AT of the iterations.
    """

    loops: Sequence[Row]
    calls: Sequence[KnownCall]
    relevant: Sequence[bool]
    enough: Enough = field(default_factory=Enough)
    ranks: Mapping[int, int] = field(default_factory=dict)
    shares: Sequence[float] = ()
    weights: Sequence[int] = ()
    stop: bool = False

    def text(self) -> str:
        """Return what p3s_phase.c reads."""
        e = self.enough
        calls = [call for call in self.calls if len(call.op) <= _LONGEST_OP]
        bounds = [0.0, 0.0, *((e.width / e.quantile(n)) ** 2 for n in range(2, _BATCHES + 1))]
        shares = self.shares or [1.0] * len(self.relevant)
        largest = [e.most(w, self.stop) for w in self.weights]
        largest = largest or [e.early + e.largest] * len(shares)
        remaining = [max(1, int(LEFT_AT * w)) if self.stop else 0 for w in self.weights]
        remaining = remaining or [0] * len(shares)
        sizes = (len(self.loops), len(calls), len(self.relevant), len(bounds))
        lines = [
            "p3s-plan 2",
            f"sizes {' '.join(map(str, sizes))} {e.early} {e.smallest} {e.measure}",
            *(f"loop {row.parent} {row.place} {row.phase}" for row in self.loops),
            *(f"call {c.site} {c.op} {c.loop} {c.place} {c.phase}" for c in calls),
            *(
                f"phase {int(relevant)} {round(1e6 / min(max(share, _LEAST_SHARE), 1.0))} "
                f"{most} {end}"
                for relevant, share, most, end in zip(
                    self.relevant, shares, largest, remaining, strict=True
                )
            ),
            *(f"bound {round(bound * 1e15)}" for bound in bounds),
        ]
        return "\n".join(lines) + "\n"

    def write(self, run_dir: Path) -> None:
        """Write the plan where the ranks read it."""
        (run_dir / NAME).write_text(self.text())
