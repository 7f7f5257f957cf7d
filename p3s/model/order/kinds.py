"""Kinds of ranks: which calls they make, whoever their partners are and whatever they send."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from p3s.base.errors import P3SError

if TYPE_CHECKING:
    from p3s.model.types import Model

#: Of more processes, those of a half, a quarter ... are looked at: kinds repeat.
MOST = 512


@dataclass(frozen=True)
class Kinds:
    """The kinds of ranks that a model has at any count; two are alike that make the same calls."""

    model: Model
    _known: dict[int, np.ndarray] = field(default_factory=dict, repr=False, compare=False)

    def unseen(self, n: int, counts: Collection[int]) -> tuple[int, np.ndarray]:
        """Return a count, ``n`` if it is not too large, and its ranks of kinds not in ``counts``.

        Raises P3SError where the program's grid has no form at any count that is looked at.
        """
        at, here = self._at(n)
        there = [self._at(each)[1] for each in counts]
        return at, np.flatnonzero(~np.isin(here, np.concatenate([*there, here[:0]])))

    def _at(self, n: int) -> tuple[int, np.ndarray]:
        from p3s.model.evaluate import model_grid

        last: P3SError | None = None
        for at in (n >> k for k in range(n.bit_length())):
            if at > MOST:
                continue
            try:
                model_grid(self.model, at)
            except P3SError as err:
                last = last or err
                continue
            return at, self._known.setdefault(at, self._kinds(at))
        raise last or P3SError(f"{n} is no number of processes")

    def _kinds(self, n: int) -> np.ndarray:
        """Return a number for the kind of each rank."""
        from p3s.model.evaluate import generate
        from p3s.model.tripcounts import as_traced

        model = as_traced(self.model, n) if n in self.model.counts else self.model
        rows = generate(model, n, work=False)
        made = rows.repeat > 0
        calls = np.unique(np.stack([rows.rank, rows.item, rows.slot])[:, made], axis=1)
        number = _mixed(calls[1] * (int(calls[2].max(initial=0)) + 1) + calls[2])
        kinds = np.zeros(n, dtype=np.uint64)
        np.add.at(kinds, calls[0], number)
        return kinds


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """Return numbers with their bits mixed (splitmix64), so that sums of them tell sets apart."""
    z = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
