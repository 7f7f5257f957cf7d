"""Rows of whole numbers in columns: which are equal."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np


def distinct_columns(columns: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the distinct entries of columns, where each is first, and which one every row has.

    columns: whole numbers, of equal length; the entries are in ascending order, (columns, entries).
    """
    key, most = np.zeros(len(columns[0]), dtype=np.int64), 1
    for column in columns:
        low = int(column.min(initial=0))
        many = int(column.max(initial=0)) - low + 1
        if most * many > 1 << 62:
            key = np.unique(key, return_inverse=True)[1].ravel()
            most = len(key)
        key, most = key * many + (column - low), most * many
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    return np.stack([column[first] for column in columns]), first, which.ravel()


def cells_of(columns: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the same as :func:`distinct_columns`, remembered: many slots have equal rows."""
    return _cells_of(tuple(column.tobytes() for column in columns))


@lru_cache(maxsize=512)
def _cells_of(columns: tuple[bytes, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    found = distinct_columns([np.frombuffer(column, dtype=np.int64) for column in columns])
    for part in found:
        part.setflags(write=False)
    return found
