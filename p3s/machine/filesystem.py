"""What files cost: latencies and rates of a file system, measured with some processes at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from p3s.base.artefacts import write_json
from p3s.base.errors import P3SError
from p3s.base.serialise import FileFormat, NotNegative, Positive
from p3s.machine.published import FOLDER, read_published

SCHEMA, VERSION = "p3s.filesystem", 1
#: Name of the file, in a study, of the file system that is predicted for.
NAME = "files.json"
#: How a program gets at files: descriptors and streams of the C library, MPI alone, all processes
#: together with the MPI's own choice, through some of them, each for itself.
WAYS = ("posix", "stdio", "mpi", "collective", "aggregated", "direct")
#: A file of each process, or one of all.
OWN, SHARED = "own", "shared"
DENSE, STRIDED = "dense", "strided"
#: What a file that is truncated takes longer while the system still writes what was in it.
RENEW = "renew"
#: What else is tried where a way was not measured.
_INSTEAD = {
    "stdio": ("posix",),
    "mpi": ("posix",),
    "collective": ("aggregated", "direct", "mpi", "posix"),
    "aggregated": ("collective", "direct", "mpi", "posix"),
    "direct": ("collective", "mpi", "posix"),
}
#: From so much growth of a time with the processes on, per doubling, it is taken to be a limit
#: that they share: half of what a limit makes.
_LIMITED = 0.5


@dataclass(frozen=True)
class Rate:
    """What one thing costs a process when ``processes`` of them do it at once.

    A call takes ``call_s``, each byte of the process ``byte_s`` more; ``spread``: half of what the
    repeats differ by, relative.
    """

    way: str
    sharing: str
    what: str
    pattern: str
    processes: Positive
    call_s: NotNegative
    byte_s: NotNegative
    spread: NotNegative = 0.0


@dataclass(frozen=True)
class Span:
    """Seconds, and the ends of what they may be."""

    s: float
    low_s: float
    high_s: float

    def times(self, factor: float) -> Span:
        """Return it a number of times."""
        return Span(self.s * factor, self.low_s * factor, self.high_s * factor)

    def plus(self, other: Span) -> Span:
        """Return one after the other."""
        return Span(self.s + other.s, self.low_s + other.low_s, self.high_s + other.high_s)


@dataclass(frozen=True)
class FileSystem:
    """A file system: what it costs, and what all processes together get at most.

    ``limits``: bytes/s by what is done ("read", "write"), where they are published. ``kind``: as
    the system names it (ext4, lustre); ``source``: where the figures are from, one line each.
    """

    name: str
    kind: str
    rates: tuple[Rate, ...]
    directory: str = ""
    created: str = ""
    mpi: str = ""
    limits: Mapping[str, float] = field(default_factory=dict)
    source: tuple[str, ...] = ()

    def of(self, way: str, sharing: str, action: str, pattern: str) -> tuple[Rate, ...]:
        """Return what was measured of one thing, by ascending processes; else of the most alike."""
        ways = (way, *_INSTEAD.get(way, ()))
        for one in ways:
            for other in (sharing, SHARED if sharing == OWN else OWN):
                for shape in dict.fromkeys((pattern, DENSE)):
                    key = (one, other, action, shape)
                    rates = [r for r in self.rates if (r.way, r.sharing, r.what, r.pattern) == key]
                    if rates:
                        return tuple(sorted(rates, key=lambda r: r.processes))
        return ()

    def seconds(
        self,
        way: str,
        sharing: str,
        action: str,
        pattern: str,
        *,
        processes: float,
        calls: float,
        nbytes: float,
    ) -> Span | None:
        """Return what ``calls`` that move ``nbytes`` take each of some processes; None: not known.

        Time of calls and time of bytes, each for itself: beyond the measured numbers of processes
        it stays what it is, or, where it grew towards the end as what is shared out does, goes on
        as their number does. So bytes take the larger of own bytes over own rate and all bytes
        over the limit.
        """
        rates = self.of(way, sharing, action, pattern)
        if not rates:
            return None
        at = [r.processes for r in rates]
        parts = [
            _interpolate_time(at, [calls * r.call_s for r in rates], processes),
            _interpolate_time(at, [nbytes * r.byte_s for r in rates], processes),
        ]
        low_s, s, high_s = (sum(part[k] for part in parts) for k in range(3))
        if limit := self.limits.get(action):
            s = max(low_s, nbytes * processes / limit)
            high_s = s
        spread = 1.0 + max(r.spread for r in rates)
        return Span(s, min(low_s, s) / spread, max(high_s, s) * spread)

    def valid(self) -> None:
        """Raise ValueError where a limit is not above 0."""
        if any(not limit > 0 for limit in self.limits.values()):
            raise ValueError("a limit is not above 0")

    def save(self, path: Path) -> None:
        """Write it as a file of its own; P3SError when the place cannot be written."""
        write_json(path, FILE_SYSTEM.data(self))

    @classmethod
    def load(cls, path: Path) -> FileSystem:
        """Read a file of its own; P3SError when it is absent, damaged or another thing."""
        return FILE_SYSTEM.read(Path(path))


FILE_SYSTEM = FileFormat(
    SCHEMA, VERSION, FileSystem, again="measure it again: p3s machine measure --io DIR -o FILE"
)


def names() -> list[str]:
    """Return the names of the typical file systems."""
    return list(read_published(SCHEMA))


def typical(name: str) -> FileSystem:
    """Return a typical file system by its name; P3SError when there is none of it."""
    if name not in names():
        raise P3SError(f"no file system {name!r}; there are {', '.join(names())}")
    return FileSystem.load(FOLDER / f"{name}.json")


def _interpolate_time(
    at: Sequence[int], took: Sequence[float], processes: float
) -> tuple[float, float, float]:
    """Return a time at a number of processes: if no limit shows, what to expect, if one begins.

    Between the measured numbers straight over their logarithm.
    """
    import numpy as np

    inside = float(np.interp(math.log(max(processes, 1.0)), np.log(at), took))
    beyond = inside * max(processes / at[-1], 1.0)
    return inside, beyond if _growth(at, took) > _LIMITED else inside, beyond


def _growth(at: Sequence[int], took: Sequence[float]) -> float:
    """Return by which power of the processes a time grew towards the end; 0 for one point."""
    if len(at) < 2 or min(took[-2:]) <= 0:
        return float(len(at) > 1 and took[-1] > 0)
    return math.log(took[-1] / took[-2]) / math.log(at[-1] / at[-2])


def parse_rates(text: str, processes: int) -> list[Rate]:
    """Return the rates in what files.c printed; P3SError where that makes no sense.

    A thing is timed with small and with large calls: time = calls x call_s + bytes x byte_s.
    """
    import statistics

    rows_of: dict[tuple[str, str, str, str], list[tuple[float, float, float, float]]] = {}
    try:
        for line in text.splitlines():
            words = line.split()
            way, sharing, action, pattern = words[:4]
            size, calls, *took = (float(word) for word in words[4:])
            middle = statistics.median(took)
            row = calls, calls * size, middle, _spread(took, middle)
            rows_of.setdefault((way, sharing, action, pattern), []).append(row)
    except ValueError as error:
        raise P3SError(
            f"the measurement of files ended with {line[:80]!r}; measure again"
        ) from error
    return [_rate(key, processes, rows) for key, rows in rows_of.items()]


def _spread(took: Sequence[float], middle: float) -> float:
    """Return half of what the middle half of the repeats differs by, relative to the median."""
    import numpy as np

    low, high = np.quantile(took, (0.25, 0.75))
    return float((high - low) / 2 / middle) if middle > 0 else 0.0


def _rate(
    key: tuple[str, str, str, str],
    processes: int,
    rows: Sequence[tuple[float, float, float, float]],
) -> Rate:
    way, sharing, action, pattern = key
    spread = max(row[3] for row in rows)
    if action in ("open", "close", "reopen"):
        once = sum(row[2] for row in rows) / len(rows)
        return Rate(way, sharing, action, pattern, processes, once, 0.0, spread)
    calls = [1.0 if action in ("sync", RENEW) else row[0] for row in rows]
    moved, took = [row[1] for row in rows], [row[2] for row in rows]
    # Through the two of them; where that makes one of the two costs less than nothing it is none.
    below = calls[0] * moved[-1] - calls[-1] * moved[0]
    call_s = (took[0] * moved[-1] - took[-1] * moved[0]) / below if below else 0.0
    byte_s = (calls[0] * took[-1] - calls[-1] * took[0]) / below if below else 0.0
    if call_s < 0 or not below:
        call_s, byte_s = 0.0, took[-1] / moved[-1]
    if byte_s < 0:
        call_s, byte_s = took[0] / calls[0], 0.0
    return Rate(way, sharing, action, pattern, processes, call_s, byte_s, spread)


def measure_files(
    directory: Path,
    launcher: Sequence[str] | None,
    processes: Sequence[int],
    nbytes: int,
    repeats: int,
) -> FileSystem:
    """Measure a directory's file system with each of these numbers of processes.

    ``nbytes``: written by each process at a time, 1 and more; above 1 MiB whole MiB of it. Errors:
    P3SError when the directory cannot be written, there is no launcher or compiler, or a run fails.
    """
    import os
    from datetime import UTC, datetime

    from p3s.machine.programs import FILES, for_ranks, launcher_of, run_ranks

    place = Path(directory).absolute()
    if not place.is_dir() or not os.access(place, os.W_OK):
        raise P3SError(f"--io {directory}: no directory that can be written; name one")
    if nbytes < 1:
        raise P3SError(f"--io {directory}: {nbytes} bytes of each process; 1 and more can be timed")
    mpi_launcher = launcher_of(launcher)
    install = mpi_launcher.install
    program = for_ranks(FILES, install.mpicc, mpi_launcher.libmpi)
    rates: list[Rate] = []
    for n in processes:
        argv = [*mpi_launcher.argv(n), *program.words, str(place), str(nbytes), str(repeats)]
        rates += parse_rates(run_ranks(argv, 600.0, f"{n} ranks that measure files", n), n)
    return FileSystem(
        kind_of(place),
        kind_of(place),
        tuple(rates),
        str(place),
        datetime.now(UTC).isoformat(timespec="seconds"),
        f"{install.family} {install.version}",
        source=(
            f"measured in {place}, {nbytes} bytes of each process, median of {repeats}; writes end"
            " in the page cache, sync brings them to the disk; read: what was just written",
        ),
    )


def kind_of(directory: Path) -> str:
    """Return the kind of a directory's file system, as /proc/mounts names it."""
    best, kind = "", "unknown"
    try:
        lines = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return kind
    for line in lines:
        _, place, name, *_ = line.split()
        inside = str(directory) == place or str(directory).startswith(place.rstrip("/") + "/")
        if inside and len(place) >= len(best):
            best, kind = place, name
    return kind
