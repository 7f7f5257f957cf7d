"""From captured runs to signatures: tables per process count, loops, phases and weights."""

from __future__ import annotations

from p3s.characterize.phases import load_phases, write_phases
from p3s.characterize.signature import characterize
from p3s.characterize.store import load_table

__all__ = ["characterize", "load_phases", "load_table", "write_phases"]
