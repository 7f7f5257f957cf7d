"""Measure the communication of a scaled trace on a few nodes (thesis ch. 7).

The full run's ranks are cut into ranges of one node; two ranges at a time are loaded on two
measurement nodes, and black-hole processes on two other nodes stand in for everybody else. What
messages cost is fed to a simulation of all ranks (p3s/simulate).
"""

from __future__ import annotations

from p3s.replay.driver import run
from p3s.replay.settings import ReplaySettings

__all__ = ["ReplaySettings", "run"]
