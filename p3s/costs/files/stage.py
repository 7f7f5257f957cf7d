"""The time of files in a scaled trace: from a study's runs, and the file system it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from p3s.base.errors import P3SError
from p3s.costs.files.places import FilePlace, FileTimes, file_times, places_of
from p3s.costs.files.types import FileUseAt
from p3s.machine import filesystem, machinefile
from p3s.machine.filesystem import FileSystem

if TYPE_CHECKING:
    from p3s.model.evaluate import ScaledRows
    from p3s.model.types import Model


@dataclass(frozen=True)
class FilesOf:
    """What a study knows of its program's files; ``system``: None where the runs alone tell."""

    places: Mapping[tuple[str, str], FilePlace]
    system: FileSystem | None

    def times(self, model: Model, rows: ScaledRows, n: int) -> FileTimes:
        """Return what the rows of ``n`` processes take in files."""
        return file_times(model, rows, n, self.places, self.system)

    @property
    def source(self) -> str:
        """Whose costs they are, as a part of a sentence."""
        if self.system is None:
            return "the traced runs' own times"
        name, directory = self.system.name, self.system.directory
        return f"{name} in {directory}" if directory else name


def files_of_study(root: Path, model: Model) -> FilesOf | None:
    """Return what is known of a study's files, None where its runs use none."""
    places = places_of(_home(root), model)
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


def _home(root: Path) -> Path:
    """Return the study whose runs they are: that for another machine lies in on/ of it."""
    return root.parent.parent if root.absolute().parent.name == "on" else root


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
