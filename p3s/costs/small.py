"""Many small triangular systems at once: an array for every entry, one element per system."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

#: Lower triangle: row by row the entries up to the diagonal.
Lower = list[list[np.ndarray]]


def cholesky(matrix: Lower) -> Lower:
    """Return the Cholesky factors of symmetric matrices given by their lower triangles."""
    low: Lower = []
    for i, row in enumerate(matrix):
        out: list[np.ndarray] = []
        for j in range(i + 1):
            s = row[j]
            for p in range(j):
                s = s - out[p] * (out[p] if i == j else low[j][p])
            out.append(np.sqrt(np.maximum(s, 1e-12)) if i == j else s / low[j][j])
        low.append(out)
    return low


def forward(low: Lower, b: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return y with L y = b."""
    y: list[np.ndarray] = []
    for i, row in enumerate(low):
        s = b[i]
        for p in range(i):
            s = s - row[p] * y[p]
        y.append(s / row[i])
    return y


def backward(low: Lower, y: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return x with L^T x = y."""
    x: list[np.ndarray] = list(y)
    for i in reversed(range(len(low))):
        for p in range(i + 1, len(low)):
            x[i] = x[i] - low[p][i] * x[p]
        x[i] = x[i] / low[i][i]
    return x


def inverse_diagonal(low: Lower) -> list[np.ndarray]:
    """Return the diagonals of the inverses of L L^T."""
    out = []
    for i in range(len(low)):
        column = [1.0 / low[i][i]]
        for r in range(i + 1, len(low)):
            s = low[r][i] * column[0]
            for p in range(i + 1, r):
                s = s + low[r][p] * column[p - i]
            column.append(-s / low[r][r])
        total = column[0] * column[0]
        for c in column[1:]:
            total = total + c * c
        out.append(total)
    return out
