"""Clocks of the nodes: how far each is from that of process 0.

Nodes whose processes run on one kernel share its clock; offset and error are 0 then. Otherwise the
first process of every node exchanges small messages with process 0: its clock minus the peer's
is taken from the shortest round trip, whose half is the error. This is done before and after
passes are made; in between the offset is taken as linear.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from p3s.base.arrays import Floats, Ints
from p3s.replay.engine.inner import InnerLoop

ROUNDS = 40


def kernel() -> str:
    """Return what processes with the same monotonic clock have in common."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = os.uname().nodename
    try:
        # A time namespace has a monotonic clock of its own.
        return f"{boot} {os.readlink('/proc/self/ns/time')}"
    except OSError:
        return boot


@dataclass(frozen=True)
class Offsets:
    """Clock of every process minus that of process 0, its error, and when it was so (its clock)."""

    offset_ns: Ints
    error_ns: Ints
    when_ns: Ints

    @staticmethod
    def none(size: int) -> Offsets:
        """Return the offsets of processes that share one clock."""
        zero = np.zeros(size, dtype=np.int64)
        return Offsets(zero, zero, zero)


def compare(comm: Any, loop: InnerLoop, kernels: Sequence[str], rounds: int = ROUNDS) -> Offsets:
    """Measure the offsets; all processes of ``comm`` call this together.

    ``kernels``: kernel() of every process.
    """
    first = {name: rank for rank, name in reversed(list(enumerate(kernels)))}
    if len(first) == 1:
        return Offsets.none(comm.size)
    handle = comm.py2f()
    mine = np.zeros(3, dtype=np.int64)
    for name, rank in sorted(first.items(), key=lambda item: item[1]):
        if name == kernels[0]:
            continue
        if comm.rank == rank:
            mine[:] = loop.compare_clocks(handle, 0, True, rounds)
        elif comm.rank == 0:
            loop.compare_clocks(handle, rank, False, rounds)
    everybody = np.zeros((comm.size, 3), dtype=np.int64)
    comm.Allgather(mine, everybody)
    leaders = everybody[[first[name] for name in kernels]]
    return Offsets(*(np.ascontiguousarray(leaders[:, column]) for column in range(3)))


def to_first(times_ns: Floats, before: Offsets, after: Offsets, process: int) -> Floats:
    """Return times of a process's clock in that of process 0, by the offset linear in time."""
    begin, end = int(before.when_ns[process]), int(after.when_ns[process])
    first, last = float(before.offset_ns[process]), float(after.offset_ns[process])
    if end <= begin:
        return times_ns - first
    return times_ns - (first + (last - first) * (times_ns - begin) / (end - begin))


def error_of(before: Offsets, after: Offsets) -> float:
    """Return how far clocks of two processes may be off after to_first, in ns: both errors."""
    return 2.0 * float(max(before.error_ns.max(), after.error_ns.max()))
