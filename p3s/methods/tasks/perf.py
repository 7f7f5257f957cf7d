"""Counters of Linux (perf_event_open) for the calling thread."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import struct
from collections.abc import Sequence

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
