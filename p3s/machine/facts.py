"""What a machine says of itself: processor, caches, cores, memory, kernel, hardware threads."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from p3s.base.host.cores import CPUS, cores, numbers_of, physical_cores, text_of
from p3s.base.host.mpi import ask
from p3s.base.serialise import Natural, ProcessCount

_SIZE = re.compile(r"^(\d+)([KMG]?)$")
_GETCONF = {
    1: "LEVEL1_DCACHE_SIZE",
    2: "LEVEL2_CACHE_SIZE",
    3: "LEVEL3_CACHE_SIZE",
    4: "LEVEL4_CACHE_SIZE",
}


#: Smallest and largest working set: last-level caches of some servers have a GiB; four times that
#: takes minutes to fill.
SMALLEST, MOST_BYTES = 8 << 10, 2 << 30
#: What is assumed of a machine that does not tell its caches.
NO_CACHE_KNOWN = 32 << 20


@dataclass(frozen=True)
class Cache:
    """A data cache: level, bytes, bytes of a line, how many cores share it (0: not known).

    source: sysfs, or getconf where sysfs has none; the sizes of getconf may be those of a whole
    package.
    """

    level: Natural
    bytes: Natural
    line_bytes: Natural = 0
    cores: Natural = 0
    source: str = ""


@dataclass(frozen=True)
class Facts:
    """What a machine says of itself; None: not known. Cores: physical ones, and as granted."""

    host: str | None = None
    processor: str | None = None
    architecture: str | None = None
    cores: ProcessCount | None = None
    hardware_threads: Natural | None = None
    granted_cores: Natural | None = None
    caches: tuple[Cache, ...] = ()
    memory_bytes: Natural | None = None
    page_bytes: Natural | None = None
    huge_pages: str | None = None
    kernel: str | None = None


def _bytes(text: str) -> int:
    match = _SIZE.match(text)
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]] if match else 0


def caches(cpu: int = 0, root: Path = CPUS) -> tuple[Cache, ...]:
    """Return the data caches that a core sees, innermost first."""
    found = []
    for index in sorted((root / f"cpu{cpu}" / "cache").glob("index*")):
        size = _bytes(text_of(index / "size"))
        level = text_of(index / "level")
        if text_of(index / "type") == "Instruction" or not size or not level.isdigit():
            continue
        line = text_of(index / "coherency_line_size")
        shared = len(numbers_of(text_of(index / "shared_cpu_list")))
        line_bytes = int(line) if line.isdigit() else 0
        found.append(Cache(int(level), size, line_bytes, shared, "sysfs"))
    return tuple(sorted(found, key=lambda cache: cache.level)) or _of_getconf()


def _of_getconf() -> tuple[Cache, ...]:
    sizes = {level: ask(["getconf", name]) or "" for level, name in _GETCONF.items()}
    found = {level: _bytes(text.strip()) for level, text in sizes.items()}
    return tuple(Cache(level, size, source="getconf") for level, size in found.items() if size)


def processor(path: Path = Path("/proc/cpuinfo")) -> str:
    """Return the name of the processor; that of the architecture where Linux does not say."""
    fields: dict[str, str] = {}
    for line in text_of(path).splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip().lower(), value.strip())
    named = next(
        (fields[k] for k in ("model name", "cpu model", "cpu", "hardware") if fields.get(k)), ""
    )
    numbers = [
        f"{word} {fields[word]}"
        for word in ("cpu family", "model", "stepping", "cpu implementer", "cpu part")
        if fields.get(word)
    ]
    return (named or platform.machine()) + (f" ({', '.join(numbers)})" if numbers else "")


def memory_bytes(field: str = "MemTotal") -> int:
    """Return a field of /proc/meminfo in bytes, 0 when it is not there."""
    match = re.search(rf"^{field}:\s+(\d+) kB", text_of(Path("/proc/meminfo")), re.MULTILINE)
    return int(match[1]) * 1024 if match else 0


def granted_bytes() -> int:
    """Return how much memory the control group leaves, or what is available, if that is less."""
    available = memory_bytes("MemAvailable") or memory_bytes() // 2
    limit = text_of(Path("/sys/fs/cgroup/memory.max"))
    if limit.isdigit():
        used = text_of(Path("/sys/fs/cgroup/memory.current"))
        available = min(available, max(int(limit) - (int(used) if used.isdigit() else 0), 0))
    return available


def working_sets(caches: Sequence[Cache], granted_bytes: int, quick: bool) -> list[int]:
    """Return the working sets in bytes: 8 KiB to four times the last-level cache.

    At most a quarter of the memory that is free. Steps of 2, and of about the root of 2 unless
    ``quick``: every working set is 2^k or 3 * 2^k.
    """
    last = max((cache.bytes for cache in caches), default=NO_CACHE_KNOWN)
    largest = min(4 * last, granted_bytes // 4, MOST_BYTES)
    sizes = []
    size = SMALLEST
    while size <= max(largest, 4 * SMALLEST):
        sizes.append(size)
        if not quick and size * 3 // 2 <= largest:
            sizes.append(size * 3 // 2)
        size *= 2
    return sizes


def facts() -> Facts:
    """Return what is known of this machine without measuring."""
    huge = re.search(r"\[(\w+)\]", text_of(Path("/sys/kernel/mm/transparent_hugepage/enabled")))
    return Facts(
        host=platform.node() or "unknown",
        processor=processor(),
        architecture=platform.machine() or "unknown",
        cores=len(physical_cores()),
        hardware_threads=len(os.sched_getaffinity(0)),
        granted_cores=cores(),
        caches=caches(min(os.sched_getaffinity(0))),
        memory_bytes=memory_bytes(),
        page_bytes=os.sysconf("SC_PAGE_SIZE"),
        huge_pages=huge[1] if huge else "unknown",
        kernel=f"{platform.system()} {platform.release()}",
    )
