"""What a machine says of itself: processor, caches, cores, memory, kernel, hardware threads."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from p3s.base.serialise import Natural, ProcessCount

CPUS = Path("/sys/devices/system/cpu")
_SIZE = re.compile(r"^(\d+)([KMG]?)$")
_GETCONF = {
    1: "LEVEL1_DCACHE_SIZE",
    2: "LEVEL2_CACHE_SIZE",
    3: "LEVEL3_CACHE_SIZE",
    4: "LEVEL4_CACHE_SIZE",
}


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


def text_of(path: Path) -> str:
    """Return what a file says, "" where it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _bytes(text: str) -> int:
    match = _SIZE.match(text)
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]] if match else 0


def cores_of(text: str) -> list[int]:
    """Return the numbers of a list as Linux writes them: 0-3,8; empty when it is none."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            return []
        found.extend(range(int(first), int(last or first) + 1))
    return found


def caches(cpu: int = 0, root: Path = CPUS) -> tuple[Cache, ...]:
    """Return the data caches that a core sees, innermost first."""
    found = []
    for index in sorted((root / f"cpu{cpu}" / "cache").glob("index*")):
        size = _bytes(text_of(index / "size"))
        level = text_of(index / "level")
        if text_of(index / "type") == "Instruction" or not size or not level.isdigit():
            continue
        line = text_of(index / "coherency_line_size")
        shared = len(cores_of(text_of(index / "shared_cpu_list")))
        line_bytes = int(line) if line.isdigit() else 0
        found.append(Cache(int(level), size, line_bytes, shared, "sysfs"))
    return tuple(sorted(found, key=lambda cache: cache.level)) or _of_getconf()


def _of_getconf() -> tuple[Cache, ...]:
    found = []
    for level, name in _GETCONF.items():
        try:
            done = subprocess.run(
                ["getconf", name],
                capture_output=True,
                text=True,
                timeout=10,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.SubprocessError):
            return ()
        size = _bytes(done.stdout.strip())
        if size:
            found.append(Cache(level, size, source="getconf"))
    return tuple(found)


def physical_cores(root: Path = CPUS) -> list[int]:
    """Return one hardware thread per core among those this process may use, ascending."""
    allowed = sorted(os.sched_getaffinity(0))
    chosen: list[int] = []
    taken: set[int] = set()
    for cpu in allowed:
        siblings = cores_of(text_of(root / f"cpu{cpu}" / "topology" / "thread_siblings_list"))
        if not taken.intersection([cpu, *siblings]):
            chosen.append(cpu)
        taken.update([cpu, *siblings])
    return chosen


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


def facts() -> Facts:
    """Return what is known of this machine without measuring."""
    from p3s.base.host.cores import cores

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


@dataclass(frozen=True, order=True)
class Place:
    """A hardware thread: what it is part of, the widest first (numbers, -1 where not told)."""

    package: int
    domain: int
    l3: int
    l2: int
    core: int
    number: int


def places(root: Path = CPUS) -> list[Place]:
    """Return the hardware threads that this process may use, as sysfs describes them."""
    return [_place(root, number) for number in sorted(os.sched_getaffinity(0))]


def close(found: Sequence[Place]) -> list[int]:
    """Return them so that those that share caches follow each other.

    Cores first: the second hardware thread of a core comes after the first of all.
    """
    first, more = _by_turn(found)
    return [place.number for place in [*first, *more]]


def far(found: Sequence[Place]) -> list[int]:
    """Return them so that the first ones share as little as possible, cores first too."""
    first, more = _by_turn(found)
    return [*_spread(first, 0), *_spread(more, 0)]


def domains(found: Sequence[Place]) -> int:
    """Return how many memory domains they lie in."""
    return len({(place.package, place.domain) for place in found})


def _by_turn(found: Sequence[Place]) -> tuple[list[Place], list[Place]]:
    """Return one hardware thread of every core, and the others."""
    first: dict[tuple[int, int], Place] = {}
    for place in sorted(found):
        first.setdefault((place.package, place.core), place)
    rest = sorted(set(found) - set(first.values()))
    return sorted(first.values()), rest


_LEVELS = ("package", "domain", "l3", "l2", "core", "number")


def _spread(found: Sequence[Place], level: int) -> list[int]:
    """Return numbers taken in turn from each part of a level, spread in the parts as well."""
    if level == len(_LEVELS):
        return [place.number for place in found]
    parts: dict[int, list[Place]] = {}
    for place in found:
        parts.setdefault(getattr(place, _LEVELS[level]), []).append(place)
    lists = [_spread(part, level + 1) for part in parts.values()]
    return [number for row in zip_longest(*lists) for number in row if number is not None]


def _place(root: Path, number: int) -> Place:
    folder = root / f"cpu{number}"
    siblings = cores_of(text_of(folder / "topology" / "thread_siblings_list"))
    return Place(
        _number(text_of(folder / "topology" / "physical_package_id")),
        next((int(m[1]) for p in folder.glob("node*") if (m := _NODE.fullmatch(p.name))), -1),
        _shared(folder, "3"),
        _shared(folder, "2"),
        min(siblings, default=number),
        number,
    )


_NODE = re.compile(r"node(\d+)")


def _number(text: str) -> int:
    return int(text) if text.isdigit() else -1


def _shared(folder: Path, level: str) -> int:
    """Return the first hardware thread that shares a cache, -1 where there is none such."""
    for index in sorted((folder / "cache").glob("index*")):
        if text_of(index / "level") == level and text_of(index / "type") != "Instruction":
            return min(cores_of(text_of(index / "shared_cpu_list")), default=-1)
    return -1
