"""Packing and unpacking of datatypes that are not contiguous, added to what messages take."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from p3s.predict.estimated import Communication

if TYPE_CHECKING:
    from p3s.program.packing import PackCosts
    from p3s.program.scaled import ScaledTrace

_NS_PER_S = 1e9


def with_packing(
    found: Communication, trace: ScaledTrace, costs: PackCosts, ends: bool = True
) -> Communication:
    """Return communication with packing as software time; without ``ends`` of no interval.

    That others wait for a rank that packs is not in it.
    """
    from p3s.program.packing import packing_ns

    if not trace.packed:
        return found
    low, typical, high = packing_ns(trace, found.phases, costs) / _NS_PER_S
    if not high.any():
        return found
    where = "was measured" if costs.measured else "is a typical figure"
    return replace(
        found,
        comm=found.comm + typical,
        low=found.low + (low if ends else typical),
        high=found.high + (high if ends else typical),
        software=found.software + typical,
        notes=(*found.notes, f"the cost of packing non-contiguous datatypes {where}"),
    )
