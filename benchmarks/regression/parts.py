"""Decomposed extrapolation: computation and communication fitted separately, then added.

Source: Barnes et al., views (ii) and (iii): the parts are regressed separately, each with a form of
its own, which is reported to be clearly better than one regression of the total.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from p3s.base.errors import P3SError
from p3s.methods.baseline.families import FAMILIES, Data
from p3s.methods.baseline.model import Choice, choose

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Parts:
    """Fits of all parts, by name."""

    choices: Mapping[str, Choice]

    def predict(self, n: Sequence[int] | Array) -> Array:
        """Return the sum of the parts in seconds."""
        result: Array = np.sum(list(self.each(n).values()), axis=0)
        return result

    def each(self, n: Sequence[int] | Array) -> dict[str, Array]:
        """Return the parts in seconds, none below zero."""
        return {
            name: np.maximum(choice.fitted.predict(n), 0.0) for name, choice in self.choices.items()
        }


def fit_parts(
    parts: Mapping[str, Mapping[int, float]],
    families: Sequence[str] = (),
    *,
    weights: str = "relative",
    hold: int | None = None,
) -> Parts:
    """Fit the seconds of every part over the counts, choosing a family for each by itself.

    A part that is zero at some counts (no communication on one process) is fitted from the others.
    Errors: P3SError where a part has fewer than two counts.
    """
    names = list(families) or [name for name, f in FAMILIES.items() if f.automatic]
    found = {}
    for part, times in parts.items():
        kept = {n: seconds for n, seconds in sorted(times.items()) if seconds > 0}
        if len(kept) < 2:
            raise P3SError(f"{part}: {len(kept)} count with a time; two are needed")
        data = Data(
            np.array(list(kept), dtype=np.float64),
            np.array(list(kept.values())),
            np.zeros((len(kept), 0)),
        )
        found[part] = choose(data, names, weights=weights, hold=hold)
    return Parts(found)
