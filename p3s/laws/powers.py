"""Real laws in the parameters of an input: sums of products of powers, chosen by settings left out.

Parameters are few, at a handful of settings, and act together: what a mixture of sums in n weighs
(mixture.py) is here one product of powers, and perhaps a constant, that predicts each setting best
from the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from p3s.base.errors import P3SError
from p3s.laws.shapes import Settings


@dataclass(frozen=True)
class Powers:
    """A sum of terms (coefficient, power of each of the parameters ``names``).

    ``error``: root mean square of the relative errors at settings left out.
    """

    names: tuple[str, ...]
    terms: tuple[tuple[float, tuple[float, ...]], ...]
    error: float

    def text(self) -> str:
        """Return the law as one line of text."""
        parts = []
        for coef, powers in self.terms:
            named = zip(self.names, powers, strict=True)
            factors = [name if e == 1 else f"{name}**{e:g}" for name, e in named if e]
            parts.append("*".join([f"{coef:.4g}", *factors]))
        return " + ".join(parts) or "0"

    def value(self, setting: Mapping[str, Fraction]) -> float:
        """Return the value at a setting; raises P3SError where it has none."""
        at = [float(setting[name]) for name in self.names]
        try:
            return sum(
                c * math.prod(math.pow(v, e) for v, e in zip(at, p, strict=True))
                for c, p in self.terms
            )
        except (ValueError, OverflowError) as err:  # math.pow: of 0 and below
            raise P3SError("model: a law of the parameters has no value there") from err


def fit_powers(settings: Settings, values: Sequence[float]) -> Powers:
    """Return terms c * product of powers of the parameters, and their error where one is left out.

    One or two terms with positive coefficients; the error is the root mean square of the
    relative errors at each setting left out in turn, 1 where none can be left out.
    """
    names = tuple(settings[0])
    x = np.array([[float(s[name]) for name in names] for s in settings])
    y = np.array(values, dtype=float)
    flat = tuple(0.0 for _ in names)
    if len(y) < 2 or np.all(y == y[0]):
        return Powers(names, ((float(y[0]), flat),), 1.0 if len(y) < 2 else 0.0)
    if np.any(y < 0) or not np.all(np.isfinite(y)):
        return Powers(names, ((float(y.mean()), flat),), 1.0)
    steps = (-1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
    shapes = [flat]
    for d in range(len(names)):
        if len(np.unique(x[:, d])) > 1:
            has = np.all(x[:, d] > 0)  # powers have no value at 0 and below but some
            shapes += [
                tuple(e if k == d else s[k] for k in range(len(names)))
                for s in list(shapes)
                for e in steps
                if e and (has or e > 0 and e == round(e))
            ]
    columns = {s: np.prod(x ** np.array(s), axis=1) for s in dict.fromkeys(shapes)}
    sets: list[tuple[tuple[float, ...], ...]] = [(s,) for s in columns]
    if len(y) > 2:
        sets += [(flat, s) for s in columns if s != flat]
    best: tuple[float, float, Any] | None = None
    size = np.maximum(y, 1e-3 * y.max())
    for some in sets:
        matrix = np.stack([columns[s] for s in some], axis=1)
        coef = _positive(matrix, y, size)
        if coef is None:
            continue
        missed = []
        for k in range(len(y)):
            keep = np.arange(len(y)) != k
            part = _positive(matrix[keep], y[keep], size[keep])
            told = float(matrix[k] @ part) if part is not None else 0.0
            missed.append((told - y[k]) / size[k])
        error = float(np.sqrt(np.mean(np.square(missed))))
        key = (error + 1e-6) * (1.5 if len(some) > 1 else 1.0)
        if best is None or key < best[0]:
            best = (key, error, tuple((float(c), s) for c, s in zip(coef, some, strict=True)))
    if best is None:
        return Powers(names, ((float(y.mean()), flat),), 1.0)
    return Powers(names, best[2], best[1])


def _positive(matrix: np.ndarray, y: np.ndarray, size: np.ndarray) -> np.ndarray | None:
    """Return the least-squares coefficients, None unless all are positive; size: of y, positive."""
    if matrix.shape[0] < matrix.shape[1]:
        return None
    weight = 1.0 / size
    scale = np.abs(matrix).max(axis=0)
    if not np.all(scale > 0):
        return None
    coef, _, rank, _ = np.linalg.lstsq(matrix / scale * weight[:, None], y * weight, rcond=None)
    if rank < matrix.shape[1] or np.any(coef <= 0):
        return None
    return np.asarray(coef / scale)
