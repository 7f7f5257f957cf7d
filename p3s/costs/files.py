"""The places of a program that use files, and the time of them on a file system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from p3s.base.errors import P3SError
from p3s.base.ops import IO, OPEN, POSIX, READ, SYNC, WRITE, file_work, is_file_collective
from p3s.costs.types import FileUseAt
from p3s.machine import filesystem, machinefile
from p3s.machine.filesystem import DENSE, OWN, RENEW, SHARED, STRIDED, FileSystem, Span
from p3s.model.evaluate import ScaledRows
from p3s.model.types import Model
from p3s.signature.beside import load_uses
from p3s.signature.fileuse import FileUse

#: From this share of the accesses on, those with holes make a place strided.
_HOLES = 0.5
_STREAMS = ("fopen", "fclose", "fread", "fwrite", "fflush", "fprintf")


@dataclass(frozen=True)
class FileSample:
    """What a place did at one traced count.

    Of one event of one process: ``calls``, ``nbytes`` (of a sync: what was written since the one
    before), ``seconds`` of the slowest process (of what all do together: of the last to come).
    ``processes`` do it; each file is used by ``sharing`` of them. ``renews``: the share of events
    that truncate a file with data in it that no sync has brought to the disk.
    """

    n: int
    processes: int
    sharing: float
    calls: float
    nbytes: float
    seconds: float
    renews: float = 0.0


@dataclass(frozen=True)
class FilePlace:
    """A call site that uses files: ``what`` is done, which ``way``, in which ``pattern``.

    ``sharing``: SHARED, or OWN for a file per process; ``ranks_per_file``: in words, as it goes
    with n; ``follows``: share of the accesses that begin where the one before ended.
    """

    site: str
    op: str
    what: str
    way: str
    sharing: str
    ranks_per_file: str
    pattern: str
    follows: float
    seen: tuple[FileSample, ...]

    @property
    def last(self) -> FileSample:
        """What was done at the largest traced count."""
        return self.seen[-1]

    def processes(self, n: int) -> float:
        """Return how many processes do it at a count: as many as always, or the same share."""
        if len({one.processes for one in self.seen}) == 1 and len(self.seen) > 1:
            return float(min(self.last.processes, n))
        return max(self.last.processes / self.last.n * n, 1.0)

    def calls(self) -> float:
        """Return the calls in an event of one process: the mean over the traced counts."""
        return float(np.mean([one.calls for one in self.seen]))


def places_of(root: Path, model: Model) -> dict[tuple[str, str], FilePlace]:
    """Return the places of a study's traced runs that use files, by site and operation."""
    group = {(it.site, it.op): it.phase for it in model.items}
    seen: dict[tuple[str, str], list[FileSample]] = {}
    last: dict[tuple[str, str], tuple[FileUse, np.ndarray]] = {}
    for n in sorted(model.counts):
        use = load_uses(root, n)
        if use is None:
            continue
        written = _written(use, group)
        for k, place in enumerate(use.places):
            rows = np.flatnonzero(use.place == k)
            if len(rows):
                mine = written[group.get(place, -1)]
                seen.setdefault(place, []).append(_sample_use(n, use, place[1], rows, mine))
                last[place] = use, rows
    return {place: _place(place, found, *last[place]) for place, found in seen.items()}


def _written(use: FileUse, group: Mapping[tuple[str, str], int]) -> np.ndarray:
    """Return (bytes written, syncs) of each rank in each phase at one count: (phases, ranks, 2)."""
    what = np.array([file_work(op) for _, op in use.places] or [""])[use.place]
    phase = np.array([group.get(place, -1) for place in use.places] or [-1])[use.place]
    out = np.zeros((max(group.values(), default=-1) + 2, int(use.rank.max(initial=0)) + 1, 2))
    for k, (done, amount) in enumerate(((WRITE, "bytes"), (SYNC, "events"))):
        mine = what == done
        np.add.at(out, (phase[mine], use.rank[mine], k), use.column(amount)[mine])
    return out


def _sample_use(n: int, use: FileUse, op: str, rows: np.ndarray, written: np.ndarray) -> FileSample:
    events = use.column("events")[rows].astype(np.float64)
    took = use.column("elapsed_ns")[rows] / events / 1e9
    nbytes, syncs = written[use.rank[rows]].T
    each = use.column("bytes")[rows] / events
    if file_work(op) == SYNC:  # what was written since the one before
        some = (nbytes > 0) | (syncs > 0)
        each = (nbytes / np.maximum(syncs, 1.0))[some] if some.any() else np.zeros(1)
    again = np.maximum(use.column("truncates")[rows] - use.column("files")[rows], 0)
    return FileSample(
        n,
        len(rows),
        len(rows) / max(len(np.unique(use.column("file")[rows])), 1),
        float((use.column("calls")[rows] / events).mean()),
        float(each.mean()),
        float(took.min() if is_file_collective(op) else took.max()),
        float((again * ((nbytes > 0) & (syncs == 0)) / events).mean()),
    )


def _place(
    place: tuple[str, str], seen: Sequence[FileSample], use: FileUse, rows: np.ndarray
) -> FilePlace:
    site, op = place
    placed, dense, follows = (
        int(use.column(name)[rows].sum()) for name in ("placed", "dense", "follows")
    )
    return FilePlace(
        site,
        op,
        file_work(op),
        _way(op, use.column("aggregated")[rows]),
        SHARED if seen[-1].sharing > 1 or is_file_collective(op) else OWN,
        _sharing(op, seen),
        STRIDED if placed and 1 - dense / placed >= _HOLES else DENSE,
        follows / placed if placed else 0.0,
        tuple(seen),
    )


def _way(op: str, aggregated: np.ndarray) -> str:
    """Return how an operation gets at a file, one of p3s.machine.filesystem.WAYS."""
    if op.startswith(POSIX):
        return "stdio" if op.removeprefix(POSIX) in _STREAMS else "posix"
    if file_work(op) in (READ, WRITE) and is_file_collective(op):
        return {1: "aggregated", 0: "direct"}.get(int(aggregated[0]), "collective")
    return "collective" if is_file_collective(op) else "mpi"


def _sharing(op: str, seen: Sequence[FileSample]) -> str:
    """Return how many processes use a file, as a law of n in words."""
    if file_work(op) == OPEN and is_file_collective(op):
        return "one for all that open it"
    each = [one.sharing for one in seen]
    if all(one == 1 for one in each):
        return "a file for each process" if seen[-1].processes > 1 else "one process alone"
    files = [one.processes / one.sharing for one in seen]
    if all(abs(one - files[0]) < 1e-9 for one in files):
        return "one file for all" if files[0] == 1 else f"{files[0]:.0f} files for all"
    return f"{each[-1]:.3g} processes a file"


@dataclass(frozen=True)
class FileTimes:
    """Nanoseconds of each row of a part of a scaled trace in one occurrence, and their ends."""

    ns: np.ndarray
    low_ns: np.ndarray
    high_ns: np.ndarray


@dataclass(frozen=True)
class FilesOf:
    """What a study knows of its program's files; ``system``: None where the runs alone tell."""

    places: Mapping[tuple[str, str], FilePlace]
    system: FileSystem | None

    def times(self, model: Model, rows: ScaledRows, n: int) -> FileTimes:
        """Return how long the rows of ``n`` processes take in files; 0 for other calls.

        A sync brings to the disk what its process wrote in the same phase since the one before;
        opening a file waits for what is on its way there.
        """
        out = np.zeros((3, len(rows.rank)))
        nbytes = rows.nbytes.astype(np.float64)
        _with_written(model, rows, nbytes)
        for i in np.unique(rows.item).tolist():
            item = model.items[i]
            place = self.places.get((item.site, item.op))
            if item.kind != IO or place is None:
                continue
            mine = np.flatnonzero(rows.item == i)
            sizes, where = np.unique(nbytes[mine], return_inverse=True)
            mean = float(nbytes[mine].mean())
            spans = [span_of(place, n, size, mean, self.system) for size in sizes.tolist()]
            ends = np.array([(span.s, span.low_s, span.high_s) for span in spans])
            out[:, mine] = ends[where].T * 1e9
        return FileTimes(*out)

    @property
    def source(self) -> str:
        """Whose costs they are, as a part of a sentence."""
        if self.system is None:
            return "the traced runs' own times"
        name, directory = self.system.name, self.system.directory
        return f"{name} in {directory}" if directory else name


def _with_written(model: Model, rows: ScaledRows, nbytes: np.ndarray) -> None:
    """Give the rows of syncs, and of opening, the bytes that were written from one to the next."""
    what = np.array([file_work(it.op) for it in model.items] or [""])[rows.item]
    writes = what == WRITE
    if not writes.any():
        return
    key = rows.rank.astype(np.int64) * (len(model.phases) + 1) + rows.phase
    size = int(key.max()) + 1
    written = np.bincount(key[writes], weights=(nbytes * rows.repeat)[writes], minlength=size)
    for ends in (what == SYNC, what == OPEN):
        times = np.bincount(key[ends], weights=rows.repeat[ends], minlength=size)
        nbytes[ends] = (written / np.maximum(times, 1.0))[key[ends]]


def span_of(
    place: FilePlace, n: int, nbytes: float, mean: float, system: FileSystem | None
) -> Span:
    """Return the time of one event of a process that moves ``nbytes``, ``mean`` of all of them."""
    if system is not None:
        found = _estimate_time(system, place, n, place.what, nbytes)
        if found is not None and place.what == OPEN and place.sharing == OWN and place.last.renews:
            waits = _estimate_time(system, place, n, RENEW, nbytes * place.last.renews)
            return found.plus(waits) if waits is not None else found
        if found is not None:
            return found
    return as_traced(place, n, nbytes, mean * place.processes(n))


def _estimate_time(
    system: FileSystem, place: FilePlace, n: int, what: str, nbytes: float
) -> Span | None:
    return system.seconds(
        place.way,
        place.sharing,
        what,
        place.pattern,
        processes=place.processes(n),
        calls=1.0 if what in (SYNC, RENEW) else place.calls(),
        nbytes=nbytes,
    )


def as_traced(place: FilePlace, n: int, nbytes: float, all_bytes: float) -> Span:
    """Return the time of one event as the traced runs tell it.

    What moves bytes: the larger of own bytes at the rate of a process at the smallest count, and
    all bytes at the highest rate that all together had. The ends: as if there were no limit, and
    as if the highest rate were one. Else a trend of the traced times.
    """
    moving = [one for one in place.seen if one.nbytes > 0 and one.seconds > 0]
    if not moving or place.what not in (READ, WRITE, SYNC):
        return _trend(place.seen, n)
    own = nbytes * moving[0].seconds / moving[0].nbytes
    rates = [one.processes * one.nbytes / one.seconds for one in moving]
    limited = all_bytes / max(rates)
    seconds = max(own, limited) if _is_saturated(moving, rates) else own
    return Span(seconds, min(own, limited) / 2, max(own, limited) * 2)


def _is_saturated(seen: Sequence[FileSample], rates: Sequence[float]) -> bool:
    """Tell whether the rate of all grew by less than half of what the processes did at the end."""
    if len(seen) < 2:
        return False
    more = seen[-1].processes / seen[-2].processes
    return more > 1 and rates[-1] / rates[-2] < more**0.5


def _trend(seen: Sequence[FileSample], n: int) -> Span:
    """Return the time at a count as it goes with the traced ones; between theirs and n times it."""
    from p3s.laws.lawfinder import find_law

    points = [(one.n, one.seconds) for one in seen]
    last = seen[-1].seconds
    if len(points) < 2 or last <= 0:
        return Span(last, last / 2, last * max(2.0, n / seen[-1].n))
    law = find_law(points, "work").fit
    value = float(law.value(n)) if law is not None else last
    low, high = min(last, value) / 2, max(last, value) * 2
    return Span(value, low, high)


def files_of_study(root: Path, model: Model) -> FilesOf | None:
    """Return what is known of a study's files, None where its runs use none."""
    # the study whose runs they are: that for another machine lies in on/ of it
    home = root.parent.parent if root.absolute().parent.name == "on" else root
    places = places_of(home, model)
    return FilesOf(places, system_of(root)) if places else None


def system_of(root: Path) -> FileSystem | None:
    """Return the file system to predict for: that of files.json, else that of machine.json."""
    own = root / filesystem.NAME
    if own.exists():
        found = FileSystem.load(own)
        return found if found.rates else None
    measured = root / machinefile.NAME
    if not measured.exists():
        return None
    try:
        return machinefile.Machine.load(measured).files
    except P3SError:
        return None  # who asks for its computation or messages is told


def inputs_of_study(root: Path) -> list[Path]:
    """Return the files that the time of files rests on, beside the model."""
    return [path for path in (root / filesystem.NAME, root / machinefile.NAME) if path.exists()]


class FileSums:
    """Sums over the rows of a scaled trace, part by part; ``items``: how many its model has."""

    def __init__(self, items: int) -> None:
        self._most = np.zeros((items, 3))
        self._bytes, self._events, self._ranks = np.zeros((3, items))

    def add(self, rows: ScaledRows, times: FileTimes) -> None:
        """Take in the rows of some ranks."""
        if not len(rows.rank):
            return
        items, repeat = len(self._bytes), rows.repeat.astype(np.float64)
        key = (rows.rank - rows.rank.min()).astype(np.int64) * items + rows.item
        size = (int(key.max()) // items + 1) * items
        for k, each in enumerate((times.ns, times.low_ns, times.high_ns)):
            sums = np.bincount(key, weights=each * repeat, minlength=size).reshape(-1, items)
            self._most[:, k] = np.maximum(self._most[:, k], sums.max(axis=0) / 1e9)
        self._bytes += np.bincount(rows.item, weights=rows.nbytes * repeat, minlength=items)
        self._events += np.bincount(rows.item, weights=repeat, minlength=items)
        self._ranks += np.bincount(np.unique(key) % items, minlength=items)

    def join(self, other: FileSums) -> None:
        """Take in the sums over other ranks."""
        self._most = np.maximum(self._most, other._most)
        self._bytes += other._bytes
        self._events += other._events
        self._ranks += other._ranks

    def uses(self, known: FilesOf, model: Model) -> tuple[FileUseAt, ...]:
        """Return what each call site does, those that take longest first."""
        found = []
        for i, item in enumerate(model.items):
            place = known.places.get((item.site, item.op))
            if place is None or not self._events[i]:
                continue
            seconds, low, high = (float(x) for x in self._most[i])
            found.append(
                FileUseAt(
                    place.op,
                    place.site,
                    place.what,
                    place.way,
                    place.ranks_per_file,
                    place.pattern,
                    place.follows,
                    int(self._ranks[i]),
                    float(self._bytes[i]),
                    float(self._events[i] * place.calls()),
                    seconds,
                    low,
                    high,
                )
            )
        return tuple(sorted(found, key=lambda use: -use.seconds))
