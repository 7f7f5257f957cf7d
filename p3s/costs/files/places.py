"""The places of a program that use files: what they do, who shares a file, in which pattern."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from p3s.base.ops import OPEN, POSIX, READ, SYNC, WRITE, file_work, is_file_collective
from p3s.machine.filesystem import DENSE, OWN, SHARED, STRIDED
from p3s.model.types import Model
from p3s.signature.fileuse import FileUse

#: From this share of the accesses on, those with holes make a place strided.
_HOLES = 0.5
_STREAMS = ("fopen", "fclose", "fread", "fwrite", "fflush", "fprintf")


@dataclass(frozen=True)
class Seen:
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
    seen: tuple[Seen, ...]

    @property
    def last(self) -> Seen:
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


def places_of(study_dir: Path, model: Model) -> dict[tuple[str, str], FilePlace]:
    """Return the places of a study's traced runs that use files, by site and operation."""
    from p3s.signature.beside import load_uses

    uses = {n: found for n in model.counts if (found := load_uses(study_dir, n)) is not None}
    group = {(it.site, it.op): it.phase for it in model.items}
    seen: dict[tuple[str, str], list[tuple[Seen, np.ndarray]]] = {}
    for n, use in sorted(uses.items()):
        written = _written(use, group)
        for k, place in enumerate(use.places):
            rows = np.flatnonzero(use.place == k)
            if len(rows):
                seen.setdefault(place, []).append(
                    (_seen(n, use, place[1], rows, written.get(group.get(place, -1), {})), rows)
                )
    return {
        place: _place(place, [one for one, _ in found], uses[found[-1][0].n], found[-1][1])
        for place, found in seen.items()
    }


def _written(
    use: FileUse, group: Mapping[tuple[str, str], int]
) -> dict[int, dict[int, tuple[float, float]]]:
    """Return phase -> rank -> (bytes written, syncs) at one count."""
    out: dict[int, dict[int, tuple[float, float]]] = {}
    events, nbytes = use.column("events"), use.column("bytes")
    for i, (rank, k) in enumerate(zip(use.rank.tolist(), use.place.tolist(), strict=True)):
        what = file_work(use.places[k][1])
        if what in (WRITE, SYNC):
            ranks = out.setdefault(group.get(use.places[k], -1), {})
            before = ranks.get(rank, (0.0, 0.0))
            more = (float(nbytes[i]), 0.0) if what == WRITE else (0.0, float(events[i]))
            ranks[rank] = before[0] + more[0], before[1] + more[1]
    return out


def _seen(
    n: int, use: FileUse, op: str, rows: np.ndarray, written: Mapping[int, tuple[float, float]]
) -> Seen:
    events = use.column("events")[rows].astype(np.float64)
    took = use.column("elapsed_ns")[rows] / events / 1e9
    files = len(np.unique(use.column("file")[rows]))
    nbytes = float((use.column("bytes")[rows] / events).mean())
    if file_work(op) == SYNC:
        each = [written[r] for r in use.rank[rows].tolist() if r in written]
        nbytes = float(np.mean([b / max(k, 1.0) for b, k in each])) if each else 0.0
    again = use.column("truncates")[rows] - use.column("files")[rows]
    stays = [r in written and written[r][0] > 0 and not written[r][1] for r in use.rank[rows]]
    return Seen(
        n,
        len(rows),
        len(rows) / max(files, 1),
        float((use.column("calls")[rows] / events).mean()),
        nbytes,
        float(took.min() if is_file_collective(op) else took.max()),
        float((np.maximum(again, 0) * stays / events).mean()),
    )


def _place(
    place: tuple[str, str], seen: Sequence[Seen], use: FileUse, rows: np.ndarray
) -> FilePlace:
    site, op = place
    placed = int(use.column("placed")[rows].sum())
    dense = int(use.column("dense")[rows].sum())
    follows = int(use.column("follows")[rows].sum())
    holes = placed and 1 - dense / placed >= _HOLES
    return FilePlace(
        site,
        op,
        file_work(op),
        _way(op, use.column("aggregated")[rows]),
        SHARED if seen[-1].sharing > 1 or is_file_collective(op) else OWN,
        _sharing(op, seen),
        STRIDED if holes else DENSE,
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


def _sharing(op: str, seen: Sequence[Seen]) -> str:
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
