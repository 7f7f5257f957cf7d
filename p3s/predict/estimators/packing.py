"""What ranks do by themselves in calls, beside messages: packing, making communicators."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from p3s.predict.estimated import Communication

if TYPE_CHECKING:
    from p3s.program.creation import OwnPart
    from p3s.program.packing import PackCosts
    from p3s.program.scaled import ScaledTrace
    from p3s.simulate.steps import Floats

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
    parts = packing_ns(trace, found.phases, costs)
    what = "the cost of packing non-contiguous datatypes"
    return _with_software(found, parts, what, costs.measured, ends)


def with_creation(
    found: Communication, trace: ScaledTrace, costs: OwnPart, ends: bool = True
) -> Communication:
    """Return communication with what ranks do by themselves when they make communicators."""
    from p3s.program.creation import creation_ns

    parts = creation_ns(trace, found.phases, costs)
    what = "what making a communicator costs a rank itself"
    return _with_software(found, parts, what, costs.measured, ends)


def _with_software(
    found: Communication, parts_ns: Floats, what: str, measured: bool, ends: bool
) -> Communication:
    """Return communication with more software time; its low end, typical value and high end."""
    low, typical, high = parts_ns / _NS_PER_S
    if not high.any():
        return found
    return replace(
        found,
        comm=found.comm + typical,
        low=found.low + (low if ends else typical),
        high=found.high + (high if ends else typical),
        software=found.software + typical,
        notes=(*found.notes, f"{what} {'was measured' if measured else 'is a typical figure'}"),
    )
