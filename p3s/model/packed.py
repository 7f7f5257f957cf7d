"""Calls with datatypes that are not contiguous: how many bytes these have in a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from p3s.model.types import Packed

if TYPE_CHECKING:
    from p3s.signature.tables import PointTable

#: Averages that are closer than this share are one.
_EVEN = 1e-3


def packed_of(tables: Sequence[PointTable]) -> tuple[Packed, ...]:
    """Return the calls some of whose datatypes have gaps; tables: by count, ascending."""
    keys = dict.fromkeys(key for t in tables for key, found in t.pieces.items() if found[2] > 0)
    return tuple(_packed(key, tables) for key in keys)


def _packed(key: str, tables: Sequence[PointTable]) -> Packed:
    op, site = key.split(" ", 1)
    found = {t.np: t.pieces[key] for t in tables if key in t.pieces}
    block = {str(n): gaps / pieces for n, (_, gaps, pieces) in found.items() if pieces > 0}
    whole, gaps, _ = found[max(found)]
    return Packed(op, site, block, gaps / whole if whole > 0 else 0.0)


def block_at(block: Mapping[int, float], n: int) -> tuple[float, float, float]:
    """Return the bytes in a row at a count: least, usual, largest; ``block``: by traced count.

    A power of the count from its first to its last value; beyond the traced counts between the
    last value and that. Never below one byte.
    """
    import numpy as np

    counts = sorted(block)
    values = [block[c] for c in counts]
    if max(values) - min(values) <= _EVEN * max(values):
        return (values[-1],) * 3
    logs = np.log(counts), np.log(values)
    if n <= counts[-1]:
        inside = float(np.exp(np.interp(np.log(n), *logs)))
        return (inside,) * 3
    slope = (logs[1][-1] - logs[1][0]) / (logs[0][-1] - logs[0][0])
    trend = max(float(values[-1] * (n / counts[-1]) ** slope), 1.0)
    return min(trend, values[-1]), trend, max(trend, values[-1])
