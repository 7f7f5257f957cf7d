"""How far a simulation followed the messages of the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Followed:
    """How far a simulation could follow the messages and loops of the model.

    unmatched: messages that no call of the partner meets, out of ``messages`` of the kind (sends,
    or receives) of which most are; calls: the MPI calls that send or receive them. unsettled: share
    of the time in calls that rests on loops whose iterations went on changing; change: by how
    much they did, largest share of their time. reordered: calls that had to be made earlier, or
    taken as not waiting, so that all ranks come to their end.
    """

    unmatched: float = 0.0
    messages: float = 0.0
    calls: tuple[str, ...] = ()
    unsettled: float = 0.0
    change: float = 0.0
    reordered: int = 0

    @property
    def lost(self) -> float:
        """Which share of the messages was left out."""
        return self.unmatched / self.messages if self.messages > 0 else 0.0

    def with_unmatched(self, found: Mapping[str, Any]) -> Followed:
        """Return it with what ``p3s.program.order.reasons.unmatched`` says."""
        return replace(
            self,
            unmatched=float(found.get("events") or 0.0),
            messages=float(found.get("of") or 0.0),
            calls=tuple(str(call) for call in found.get("calls") or ()),
        )


@dataclass(frozen=True)
class StandIns:
    """Smaller process grids that were simulated instead of all ranks.

    grids: how many, ranks: of the largest; changes_with: what times change with, of log (of the
    ranks), sides and ranks; missed: by how much the smaller of them miss the communication of the
    largest, as a share. checked_n: the count at which every rank was simulated as well,
    checked_missed: how much more communication smaller grids say there than that (less than 0:
    less), as a share, and checked_slowest: the same of the rank that takes longest, by how much
    longer the run takes; null where there is no such count. most_missed: the most of these, of
    what phases miss there, weighted by their communication, and of what the largest of the smaller
    grids takes longer than the others say, as a share.
    """

    grids: int
    ranks: int
    changes_with: tuple[str, ...]
    missed: float
    most_missed: float
    checked_n: int | None = None
    checked_missed: float | None = None
    checked_slowest: float | None = None
