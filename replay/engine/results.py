"""What one program of a replay has measured, and its file."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from replay.steps import Floats, Ints


@dataclass(frozen=True)
class ProgramResult:
    """Measurements of one program; times in ns, passes in the order they were made.

    ``pass_ns`` (passes, processes): from the start of the pass to the end of the process's last
    event. ``comm_ns`` (passes, processes): time in sampled events. ``event``: positions in
    Program.events of the sampled events; ``event_ns`` (passes, sampled events): how long each
    took; ``begin_ns`` (sampled events): when it began after the start of the pass, median.
    ``transfer_ns`` (passes, messages of Program.pairing): completion minus the later start, NaN
    where nobody waited. ``link_ns`` (passes, messages): when each message of a link program had
    arrived, after the first send began. ``clock_error_ns``: how far clocks of two nodes may be
    off in this. ``work_error_ns``: what emulated computation took beyond its length, every one.
    """

    passes: int
    pass_ns: Floats
    comm_ns: Floats
    event: Ints
    event_ns: Floats
    begin_ns: Floats
    transfer_ns: Floats
    link_ns: Floats
    clock_error_ns: float
    work_error_ns: Floats

    @staticmethod
    def empty(processes: int) -> ProgramResult:
        """Return the result of no pass."""
        none = np.zeros((0, 0))
        return ProgramResult(0, np.zeros((0, processes)), np.zeros((0, processes)),
                             np.zeros(0, dtype=np.int64), none, np.zeros(0), none, none, 0.0,
                             np.zeros(0))
