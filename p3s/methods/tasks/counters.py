"""Hardware counters by sampling: sets that exclude each other take turns over the iterations.

Source: A. Castellanos Carrazana, UAB 2014, section 3.5.1: processors do not count every pair of
events at once, so each thread reads one set in some of its iterations, drawn at random, and scales
each count to all of them. Events are those of Linux (perf_event_open), for the calling thread.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from p3s.base.errors import P3SError, UsageError

#: Blocks of iterations that take turns for each set, at least, where there are iterations enough.
BLOCKS = 32


class Backend(Protocol):
    """What counts events of the calling thread."""

    def why_not(self, events: Sequence[str]) -> str:
        """Return why these cannot be counted together here, "" where they can."""

    def start(self, events: Sequence[str]) -> None:
        """Begin to count."""

    def stop(self) -> Sequence[float]:
        """End, and return the counts in the order of the events."""


@dataclass(frozen=True)
class Sampled:
    """A scaled count: of all iterations; read: in how many of them it was counted."""

    event: str
    count: float
    read: int
    iterations: int


def sample(
    backend: Backend,
    sets: Sequence[Sequence[str]],
    iterations: int,
    body: Callable[[int, int], None],
    *,
    seed: int = 0,
) -> list[Sampled]:
    """Run ``body`` (first, past the last iteration) over all iterations and return all counts.

    sets: events that are counted together, one set at a time. Iterations are cut into blocks that
    sets are drawn for; every set has as many blocks, give or take one. P3SError where a set cannot
    be counted here or there are fewer iterations than sets.
    """
    if not sets or not all(sets) or iterations < len(sets):
        raise UsageError(
            f"{iterations} iterations cannot be shared by {len(sets)} sets of counters"
        )
    for events in sets:
        why = backend.why_not(events)
        if why:
            raise P3SError(f"counters {', '.join(events)}: unavailable: {why}")
    bounds = _bounds(iterations, len(sets))
    turns = _turns(len(bounds) - 1, len(sets), seed)
    totals = {event: 0.0 for events in sets for event in events}
    read = dict.fromkeys(totals, 0)
    for which, first, last in zip(turns, bounds[:-1], bounds[1:], strict=True):
        backend.start(sets[which])
        body(first, last)
        for event, count in zip(sets[which], backend.stop(), strict=True):
            totals[event] += count
            read[event] += last - first
    return [
        Sampled(event, total * iterations / read[event], read[event], iterations)
        for event, total in totals.items()
    ]


def _bounds(iterations: int, sets: int) -> list[int]:
    """Return where blocks of iterations begin, and the end."""
    blocks = min(BLOCKS * sets, iterations // sets * sets)
    return [int(at) for at in np.linspace(0, iterations, blocks + 1).round()]


def _turns(blocks: int, sets: int, seed: int) -> list[int]:
    """Return the set of each block: in every row of blocks each set once, in random order.

    So no set is bound to a part of the loop, and a rate that rises along it is met by all.
    """
    rng = np.random.default_rng(seed)
    rows = [rng.permutation(sets) for _ in range(-(-blocks // sets))]
    return [int(which) for which in np.concatenate(rows)[:blocks]]


#: Type and config of an event: linux/perf_event.h. The last two are caches: cache, read, miss.
EVENTS = {
    "cycles": (0, 0),
    "instructions": (0, 1),
    "page_faults": (1, 2),
    "cache_misses": (3, 2 | 0 << 8 | 1 << 16),
    "tlb_misses": (3, 3 | 0 << 8 | 1 << 16),
}
#: What the model of a worker needs: two sets, since not every processor counts both misses at once.
SETS = (("cycles", "instructions", "cache_misses"), ("cycles", "instructions", "tlb_misses"))
_CALL = {"x86_64": 298, "aarch64": 241, "ppc64le": 319, "riscv64": 241}
#: perf_event_attr of version 0: 64 bytes; disabled, without kernel and hypervisor.
_SIZE, _FLAGS = 64, 1 | 1 << 5 | 1 << 6
_ENABLE, _DISABLE, _RESET = 0x2400, 0x2401, 0x2403


class Perf:
    """Counts events of the calling thread in user mode."""

    def __init__(self) -> None:
        self._open: list[int] = []

    def why_not(self, events: Sequence[str]) -> str:
        """Return why these cannot be counted together here, "" where they can."""
        try:
            self.start(events)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM):
                return "perf events may not be opened here (kernel.perf_event_paranoid)"
            return "no such hardware counters on this machine (perf_event_open)"
        except KeyError as error:
            return f"{error.args[0]} is no event or machine that is known"
        self.stop()
        return ""

    def start(self, events: Sequence[str]) -> None:
        """Begin to count; OSError where the kernel refuses."""
        try:
            for event in events:
                self._open.append(_opened(*EVENTS[event], self._open[0] if self._open else -1))
        except (OSError, KeyError):
            self._close()
            raise
        for number in self._open:
            fcntl.ioctl(number, _RESET, 0)
            fcntl.ioctl(number, _ENABLE, 0)

    def stop(self) -> list[float]:
        """End, and return the counts in the order of the events."""
        for number in self._open:
            fcntl.ioctl(number, _DISABLE, 0)
        counts = [float(struct.unpack("q", os.read(number, 8))[0]) for number in self._open]
        self._close()
        return counts

    def _close(self) -> None:
        for number in self._open:
            os.close(number)
        self._open = []


def why_unavailable() -> str:
    """Return why the analytical model has no counters here, "" where it has."""
    return next((why for events in SETS if (why := Perf().why_not(events))), "")


def _opened(kind: int, config: int, group: int) -> int:
    attributes = struct.pack("IIQQQQQ", kind, _SIZE, config, 0, 0, 0, _FLAGS).ljust(_SIZE, b"\0")
    libc = ctypes.CDLL(None, use_errno=True)
    this_thread, any_cpu, flags = ctypes.c_long(0), ctypes.c_long(-1), ctypes.c_ulong(0)
    call = ctypes.c_long(_CALL[platform.machine()])
    number = int(
        libc.syscall(
            call, ctypes.c_char_p(attributes), this_thread, any_cpu, ctypes.c_long(group), flags
        )
    )
    if number < 0:
        raise OSError(ctypes.get_errno(), "perf_event_open")
    return number
