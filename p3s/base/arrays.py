"""The three kinds of numpy arrays that functions take and return, and small work on columns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def starts(counts: npt.ArrayLike) -> Ints:
    """Return where parts of these lengths start in one column, and its length (parts + 1,)."""
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int64)


def place_in_run(*keys: np.ndarray) -> Ints:
    """Return each entry's place, from 0, among neighbours whose keys (columns) are all equal."""
    place = np.arange(len(keys[0]), dtype=np.int64)
    new = np.ones(len(place), dtype=bool)
    if len(new):
        new[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    return place - np.maximum.accumulate(np.where(new, place, 0))


def mix_bits(x: npt.ArrayLike) -> npt.NDArray[np.uint64]:
    """Return numbers with their bits mixed (splitmix64)."""
    z = np.asarray(x).astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
