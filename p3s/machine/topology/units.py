"""Speeds and times as people write them."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_SPEED = re.compile(r"([0-9]*\.?[0-9]+)([kmgt]?)(bit/s|bit|bps|b/s|byte/s)", re.IGNORECASE)
_PREFIX = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_TIME = re.compile(r"([0-9]*\.?[0-9]+)(ns|us|ms|s)")
_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}


def speed_of(text: str) -> float | None:
    """Return bytes per ns of a text like 200Gbit/s or 12.5GB/s; None where it is none."""
    found = _SPEED.fullmatch(text.strip())
    if found is None or not float(found[1]) > 0:
        return None
    in_bytes = found[3] == "B/s" or found[3].lower() == "byte/s"
    return float(found[1]) * _PREFIX[found[2].lower()] * (1.0 if in_bytes else 0.125) * 1e-9


def ns_of(text: str) -> float | None:
    """Return ns of a text like 300ns or 2us; None where it is no time."""
    found = _TIME.fullmatch(text.strip())
    return None if found is None else float(found[1]) * _NS[found[2]]
