"""The machine file: what `p3s machine measure` has found, as columns and names (p3s.machine).

Also what a machine says of itself, and what teams of OpenMP threads cost. Sources of the latter: A.
Castellanos Carrazana, UAB 2014, section 3.4 (overheads, piecewise linear in the iterations per
thread, one curve per construct and number of threads) and table 3.1 (latencies).
"""

from __future__ import annotations

import math
import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from p3s.base.artefacts import write_json
from p3s.base.errors import DamagedFile, P3SError, UsageError
from p3s.base.host.cores import CPUS, cores, numbers_of, physical_cores, text_of
from p3s.base.host.mpi import ask
from p3s.base.serialise import (
    FileFormat,
    Natural,
    NotNegative,
    Positive,
    ProcessCount,
    check_columns,
    from_data,
)
from p3s.base.text import quote_word
from p3s.machine.filesystem import FileSystem

MACHINE_SCHEMA = "p3s.machine"
MACHINE_VERSION = 1
#: Name of the file that belongs to a study: of the machine its runs were made on.
NAME = "machine.json"

#: Loops that touch no memory: name -> what one operation is.
CORE_KERNELS = {
    "int_add": "integer additions that wait for each other",
    "fp_add": "floating point additions that wait for each other",
    "multiply_add": "independent multiply-adds, two at a time",
    "divide": "floating point divisions that wait for each other",
    "branch": "branches on random bits",
}
#: Loops over a working set: name -> what one access is.
CURVE_KERNELS = {
    "read": "8 bytes read, one after the other",
    "triad": "a = b + s c: 8 bytes of each",
    "strided": "8 bytes read every 1088 bytes",
    "gather": "8 bytes read at random places",
    "chase": "8 bytes read where the last read says",
}
#: Those of them that are also measured on all cores at once.
LOADED_KERNELS = ("read", "triad")


@dataclass(frozen=True)
class Cost:
    """Cost of one operation: ns is the least of the repeats, spread their median over it less 1."""

    ns: NotNegative
    spread: NotNegative
    repeats: Positive

    def valid(self) -> None:
        """Raise ValueError for a cost of 0 ns."""
        if self.ns <= 0:
            raise ValueError("a cost of 0 ns")


@dataclass(frozen=True)
class Curve:
    """Cost of one access over the working set.

    working_set: bytes, ascending. ns, spread, repeats: as in Cost, one entry per working set.
    """

    working_set: tuple[Positive, ...]
    ns: tuple[NotNegative, ...]
    spread: tuple[NotNegative, ...]
    repeats: tuple[Positive, ...]

    def valid(self) -> None:
        """Raise ValueError where working sets do not ascend, or have not one cost each, above 0."""
        check_columns(self, "working_set", "ns")

    def at(self, working_set: float) -> float:
        """Return the cost at a working set, straight between points on logarithmic axes.

        Beyond the ends it stays what it is there.
        """
        return math.exp(
            _interpolate(self.working_set, [math.log(ns) for ns in self.ns], working_set)
        )

    def spread_at(self, working_set: float) -> float:
        """Return the spread at a working set, as ``at`` does."""
        return _interpolate(self.working_set, self.spread, working_set)


def _interpolate(sizes: Sequence[int], values: Sequence[float], size: float) -> float:
    import numpy as np

    at = math.log(max(size, 1.0))
    return float(np.interp(at, np.log(np.array(sizes, dtype=float)), np.array(values)))


@dataclass(frozen=True)
class Loaded:
    """Costs with so many cores busy at once."""

    processes: Positive = 1
    curves: Mapping[str, Curve] = field(default_factory=dict)


@dataclass(frozen=True)
class Sizes:
    """Columns of messages between two ranks, an entry for each size.

    receive_ns: None where a message cannot have arrived before its receive.
    """

    bytes: tuple[Natural, ...]
    one_way_ns: tuple[NotNegative, ...]
    one_way_median_ns: tuple[NotNegative, ...]
    send_ns: tuple[NotNegative, ...]
    receive_ns: tuple[NotNegative | None, ...]
    gap_ns: tuple[NotNegative, ...]

    def valid(self) -> None:
        """Raise ValueError where columns differ in length, or sizes do not ascend."""
        check_columns(self, "bytes")


@dataclass(frozen=True)
class SizeRange:
    """Costs of a range of message sizes, as LogGP has them."""

    from_bytes: Natural
    to_bytes: Natural
    L_ns: NotNegative
    o_send_ns: NotNegative
    o_receive_ns: NotNegative
    g_ns: NotNegative
    G_ns_per_byte: NotNegative


@dataclass(frozen=True)
class Messages:
    """What is used of messages between two ranks; inside: two of one host, where measured too."""

    hosts: tuple[str, str]
    sizes: Sizes
    ranges: tuple[SizeRange, ...]
    eager_bytes: int
    mpi: str = ""
    post_ns: NotNegative | None = None
    inside: Messages | None = None


@dataclass(frozen=True)
class Machine:
    """A measured machine.

    name: for people, the host's. facts: what the machine says of itself. settings: how it was
    measured. core: cost by kernel. curves: by kernel, one core alone. network: messages between
    two ranks (Messages, and more), None with ``network_missing`` saying why. loaded: as ``curves``,
    with cores busy at once, none with one core. openmp: teams of threads, files: a file system,
    both None where they were not asked for. disturbed: what speaks against the measurement.
    """

    name: str
    created: str
    p3s_version: str
    facts: Facts
    settings: Mapping[str, Any]
    core: Mapping[str, Cost]
    curves: Mapping[str, Curve]
    loaded: Loaded = field(default_factory=Loaded, metadata={"always": True})
    network: Mapping[str, Any] | None = field(default=None, metadata={"always": True})
    network_missing: str = field(default="", metadata={"always": True})
    openmp: OpenMP | None = field(default=None, metadata={"always": True})
    files: FileSystem | None = None
    disturbed: tuple[str, ...] = field(default=(), metadata={"always": True})

    def valid(self) -> None:
        """Raise ValueError where a kernel is missing, or messages are damaged."""
        absent = [name for name in CORE_KERNELS if name not in self.core]
        absent += [name for name in CURVE_KERNELS if name not in self.curves]
        if absent:
            raise ValueError(f"kernel {absent[0]} is missing")
        if self.network is not None:
            from_data(Messages, self.network, more=True)

    def save(self, path: Path) -> None:
        """Write the machine file; P3SError when the place cannot be written."""
        write_json(path, MACHINE.data(self))

    @classmethod
    def load(cls, path: Path) -> Machine:
        """Read a machine file; P3SError, one line, when it is absent, damaged or another thing."""
        return MACHINE.read(Path(path))


MACHINE = FileFormat(
    MACHINE_SCHEMA,
    MACHINE_VERSION,
    Machine,
    more=True,
    again="measure that machine again: p3s machine measure -o FILE",
)


def differences(first: Machine, second: Machine) -> list[str]:
    """Return what makes the two measurements no like-for-like comparison, as sentences."""
    notes = []
    one, other = (str(machine.facts.architecture) for machine in (first, second))
    if one != other:
        notes.append(
            f"{first.name} is {one}, {second.name} is {other}: other instruction sets, so "
            "counts of instructions do not carry over"
        )
    for key, subject in (("compiler_version", "compilers"), ("flags", "compiler flags")):
        one, other = (str(machine.settings.get(key)) for machine in (first, second))
        if one != other:
            notes.append(f"the kernels were compiled with other {subject} ({one}; {other})")
    one, other = (str(machine.facts.huge_pages) for machine in (first, second))
    if one != other:
        notes.append(f"huge pages are {one} on {first.name} and {other} on {second.name}")
    for machine in dict.fromkeys((first.name, second.name)):
        texts = [text for one in (first, second) if one.name == machine for text in one.disturbed]
        if texts:
            notes.append(f"measuring {machine} was disturbed: {'; '.join(dict.fromkeys(texts))}")
    return notes


def files_of(path: Path) -> FileSystem:
    """Return the file system in a file of its own or in a machine file; P3SError where neither."""
    try:
        return FileSystem.load(path)
    except DamagedFile:
        raise
    except P3SError:
        files = Machine.load(path).files
    if files is None:
        raise P3SError(
            f"{path}: says nothing of files; measure them: "
            f"p3s machine measure --io DIR -o {quote_word(path)}"
        )
    return files


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
    caches_found = []
    for index in sorted((root / f"cpu{cpu}" / "cache").glob("index*")):
        size = _bytes(text_of(index / "size"))
        level = text_of(index / "level")
        if text_of(index / "type") == "Instruction" or not size or not level.isdigit():
            continue
        line = text_of(index / "coherency_line_size")
        shared = len(numbers_of(text_of(index / "shared_cpu_list")))
        line_bytes = int(line) if line.isdigit() else 0
        caches_found.append(Cache(int(level), size, line_bytes, shared, "sysfs"))
    return tuple(sorted(caches_found, key=lambda cache: cache.level)) or _of_getconf()


def _of_getconf() -> tuple[Cache, ...]:
    sizes = {level: ask(["getconf", name]) or "" for level, name in _GETCONF.items()}
    sizes_found = {level: _bytes(text.strip()) for level, text in sizes.items()}
    return tuple(
        Cache(level, size, source="getconf") for level, size in sizes_found.items() if size
    )


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


#: Constructs that are measured: name -> what one of them is.
CONSTRUCTS = {
    "parallel": "a parallel region: threads begin and end together",
    "reduction": "a parallel region with a sum over its threads",
    "static": "a loop in a region, schedule(static), with its barrier",
    "dynamic": "a loop in a region, schedule(dynamic, 1), with its barrier",
    "guided": "a loop in a region, schedule(guided, 1), with its barrier",
    "barrier": "a barrier in a region",
    "single": "a single block in a region, with its barrier",
    "critical": "an entry into a critical block that all threads want",
    "task": "a task of each thread",
}
#: Those of them whose cost depends on the iterations of a thread.
LOOPS = ("static", "dynamic", "guided")
#: Iterations per thread at which these are measured.
ITERATIONS = (1, 8, 64, 512)


@dataclass(frozen=True)
class Overhead:
    """Cost of a construct with a number of threads, over the iterations per thread (ascending).

    ns: least time with bodies less least time of the bodies alone, 0 where that is negative;
    median_ns: the same of medians. One entry per number of iterations.
    """

    threads: Positive
    iterations: tuple[Positive, ...]
    ns: tuple[NotNegative, ...]
    median_ns: tuple[float, ...]
    repeats: tuple[int, ...]

    def valid(self) -> None:
        """Raise ValueError where iterations do not ascend, or have not one time each."""
        check_columns(self, "iterations")

    def at(self, iterations: float) -> float:
        """Return ns, straight between the points; on with the last slope, never less than 0."""
        return max(line_at(self.iterations, self.ns, iterations), 0.0)


@dataclass(frozen=True)
class Bandwidth:
    """Bytes per second of a triad by all threads together: most of the repeats, and the median."""

    threads: tuple[Positive, ...]
    bytes_per_s: tuple[float, ...]
    median_bytes_per_s: tuple[float, ...]
    repeats: tuple[int, ...]

    def valid(self) -> None:
        """Raise ValueError where threads do not ascend, or have not one rate each, above 0."""
        check_columns(self, "threads", "bytes_per_s")

    def at(self, threads: float) -> float:
        """Return bytes per second, straight between points; beyond the ends what it is there."""
        return float(np.interp(threads, self.threads, self.bytes_per_s))


@dataclass(frozen=True)
class Latency:
    """ns of a read whose place the last one says, over the bytes that the places span."""

    bytes: tuple[Positive, ...]
    ns: tuple[float, ...]
    median_ns: tuple[float, ...]
    repeats: tuple[int, ...]

    def valid(self) -> None:
        """Raise ValueError where bytes do not ascend, or have not one time each, above 0."""
        check_columns(self, "bytes", "ns")

    def at(self, size: float) -> float:
        """Return ns, straight on logarithmic axes; beyond the ends what it is there."""
        ns = np.interp(np.log(max(size, 1.0)), np.log(self.bytes), np.log(self.ns))
        return float(np.exp(ns))


@dataclass(frozen=True)
class Clock:
    """Clock of the cores that work, in Hz, by the number of threads.

    hz: what the system tells meanwhile, empty where it does not: then ``why`` says why. additions:
    additions per second of one thread that wait for each other: the clock where one takes a cycle.
    """

    threads: tuple[Positive, ...]
    hz: tuple[float, ...]
    additions: tuple[float, ...]
    source: str = ""
    why: str = ""

    def valid(self) -> None:
        """Raise ValueError where threads do not ascend, or have not one clock each, above 0."""
        check_columns(self, "threads", "hz", may_lack="hz")


@dataclass(frozen=True)
class OpenMP:
    """What was measured of OpenMP threads on a machine.

    runtime: libgomp or libomp. environment: variables found that say how threads wait. cores,
    hardware_threads: that may be used; more threads than these share one. domains: of memory
    (NUMA). overheads: by construct, by threads. far: None where the machine has no other place for
    threads than the close one. line, page: latencies through memory line by line and page by page.
    array_bytes: of each of the triad's three.
    """

    runtime: str
    compiler: str
    compiler_version: str
    flags: str
    environment: Mapping[str, str]
    cores: int
    hardware_threads: int
    domains: int
    seconds: float
    overheads: Mapping[str, tuple[Overhead, ...]]
    array_bytes: int
    close: Bandwidth
    far: Bandwidth | None
    line: Latency
    page: Latency
    clock: Clock
    disturbed: tuple[str, ...] = ()

    def valid(self) -> None:
        """Raise ValueError where a construct was not measured, or threads do not ascend."""
        for name in CONSTRUCTS:
            threads = [curve.threads for curve in self.overheads.get(name, ())]
            if not threads or threads != sorted(set(threads)):
                raise ValueError(f"openmp.overheads has no {name} by ascending threads")

    @property
    def threads(self) -> tuple[int, ...]:
        """Numbers of threads that were measured, ascending."""
        return tuple(each.threads for each in self.overheads["parallel"])

    def oversubscribed(self, threads: int) -> bool:
        """Return whether so many threads share hardware threads."""
        return threads > self.hardware_threads

    def overhead(self, construct: str, threads: float, iterations: float = 1.0) -> float:
        """Return seconds of a construct, straight between measured threads and iterations.

        Beyond the most threads and iterations it goes on with the last slope. UsageError for a
        construct that is not measured.
        """
        if construct not in self.overheads:
            raise UsageError(f"{construct}: no construct that is measured: {', '.join(CONSTRUCTS)}")
        curves = self.overheads[construct]
        values = [curve.at(iterations) for curve in curves]
        return max(line_at([curve.threads for curve in curves], values, threads), 0.0) * 1e-9

    def fork_join(self, threads: float) -> float:
        """Return seconds of an empty parallel region."""
        return self.overhead("parallel", threads)

    def bandwidth(self, threads: float, far: bool = False) -> float:
        """Return bytes per second that threads move together; far: spread over the node."""
        return (self.far if far and self.far is not None else self.close).at(threads)

    @property
    def memory_s(self) -> float:
        """Seconds of a read from memory whose page is known (``Lat_mem`` of eq. 3.3)."""
        return self.line.ns[-1] * 1e-9

    @property
    def walk_s(self) -> float:
        """Seconds that a read takes longer where its page has to be looked up in memory.

        One line of each of many pages, less as many lines of few pages, which lie in the same
        cache.
        """
        lines = self.line.at(self.page.bytes[-1] * _LINE / _PAGE)
        return max(self.page.ns[-1] - lines, 0.0) * 1e-9

    @property
    def tlb_s(self) -> float:
        """Seconds of a read from memory whose page has to be looked up (``Lat_tlb``)."""
        return self.memory_s + self.walk_s


_LINE, _PAGE = 64, 4096


def line_at(knots: Iterable[float], values: Iterable[float], at: float) -> float:
    """Return the value at a place, straight between ascending knots.

    Before the first it is constant, beyond the last it goes on with the last slope.
    """
    xs, ys = np.array(list(knots), dtype=float), np.array(list(values), dtype=float)
    if at > xs[-1] and len(xs) > 1:
        slope = (ys[-1] - ys[-2]) / (xs[-1] - xs[-2])
        return float(ys[-1] + slope * (at - xs[-1]))
    return float(np.interp(at, xs, ys))
