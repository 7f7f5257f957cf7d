"""How long the calls on files of a scaled trace take: on a file system, or as the runs tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from p3s.base.ops import IO, OPEN, READ, SYNC, WRITE, file_work
from p3s.costs.files.places import FilePlace, Seen
from p3s.machine.filesystem import OWN, RENEW, FileSystem, Span

if TYPE_CHECKING:
    from p3s.model.evaluate import ScaledRows
    from p3s.model.types import Model


@dataclass(frozen=True)
class FileTimes:
    """Nanoseconds of each row of a part of a scaled trace in one occurrence, and their ends."""

    ns: np.ndarray
    low_ns: np.ndarray
    high_ns: np.ndarray


def file_times(
    model: Model,
    rows: ScaledRows,
    n: int,
    places: Mapping[tuple[str, str], FilePlace],
    system: FileSystem | None,
) -> FileTimes:
    """Return how long the rows of ``n`` processes take in files; 0 for other calls.

    A sync brings to the disk what its process wrote in the same phase since the one before; opening
    a file waits for what is on its way there.
    """
    out = np.zeros((3, len(rows.rank)))
    nbytes = rows.nbytes.astype(np.float64)
    _with_written(model, rows, nbytes)
    for i in np.unique(rows.item).tolist():
        item = model.items[i]
        place = places.get((item.site, item.op))
        if item.kind != IO or place is None:
            continue
        mine = np.flatnonzero(rows.item == i)
        sizes, where = np.unique(nbytes[mine], return_inverse=True)
        mean = float(nbytes[mine].mean())
        spans = [span_of(place, n, size, mean, system) for size in sizes.tolist()]
        for row, end in zip(out, ("s", "low_s", "high_s"), strict=True):
            row[mine] = np.array([getattr(span, end) for span in spans])[where] * 1e9
    return FileTimes(*out)


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
        found = _on(system, place, n, place.what, nbytes)
        if found is not None and place.what == OPEN and place.sharing == OWN and place.last.renews:
            waits = _on(system, place, n, RENEW, nbytes * place.last.renews)
            return found.plus(waits) if waits is not None else found
        if found is not None:
            return found
    return as_traced(place, n, nbytes, mean * place.processes(n))


def _on(system: FileSystem, place: FilePlace, n: int, what: str, nbytes: float) -> Span | None:
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
    seconds = max(own, limited) if _saturated(moving, rates) else own
    return Span(seconds, min(own, limited) / 2, max(own, limited) * 2)


def _saturated(seen: Sequence[Seen], rates: Sequence[float]) -> bool:
    """Tell whether the rate of all grew by less than half of what the processes did at the end."""
    if len(seen) < 2:
        return False
    more = seen[-1].processes / seen[-2].processes
    return more > 1 and rates[-1] / rates[-2] < more**0.5


def _trend(seen: Sequence[Seen], n: int) -> Span:
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
