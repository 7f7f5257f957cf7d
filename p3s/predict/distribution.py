"""The predictive distribution of a run time: joint draws of all that is not known exactly.

Each source of uncertainty (a part) has two ends, multiples of the time with the part moved to the
ends of its own 90 % interval. A draw moves all parts at once, each by a split log-normal factor
through its ends; what no part knows is Student's t. A part moves the times of all counts, phases
and changes in the same draw by the same deviate, so that ratios and differences are of draws, too.
Draws are always the same: they follow from the ends and the names of the parts alone.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from statistics import NormalDist
from zlib import crc32

import numpy as np

from p3s.base.arrays import Floats
from p3s.laws.statistics import LOW_MEDIAN_HIGH
from p3s.predict.estimated import COMM, HIGH, LOW
from p3s.predict.times import PhaseTimes, total

#: Low and high end as multiples of the value: low <= 1 <= high.
Factors = tuple[float, float]
#: The same of a value; None: not known.
Ends = Factors | tuple[None, None]
#: Parts that are known of one estimate alone, and all of them.
OWN = ("work", "cost", "replay", "files")
RESIDUAL = "residual"
PARTS = (*OWN, RESIDUAL)
#: Joint draws.
NUMBER = 1024
#: 95 % quantile of Student's t with 4 degrees of freedom.
T90 = 2.1318
#: Ends of a 90 % interval, as shares of the draws.
_ENDS = LOW_MEDIAN_HIGH[0], LOW_MEDIAN_HIGH[2]
#: A low end of nothing, as a multiple.
_LEAST = 0.01
#: What messages take that are not those of the model: half to twice as long.
_RIVAL = (0.5, 2.0)


# ---- draws ---------------------------------------------------------------------------------
@dataclass(frozen=True)
class Rival:
    """Another explanation of the traced runs: its reason, and how likely it is.

    share: of the run time, what it has in another way.
    """

    code: str
    chance: float
    share: float

    def factors(self) -> Floats:
        """Return the multiple of the time of each draw: 1 where the model is right, (NUMBER,)."""
        chosen = (_order(f"chosen {self.code}") + 0.5) / NUMBER < self.chance
        moved = _draw_factors(f"rival {self.code}", _RIVAL)
        return np.where(chosen, 1.0 + min(self.share, 1.0) * (moved - 1.0), 1.0)


def draws(parts: Mapping[str, Factors | None], rivals: Iterable[Rival] = ()) -> Floats:
    """Return joint draws of a time as multiples of it, (NUMBER,)."""
    found = np.ones(NUMBER)
    for name, ends in parts.items():
        if ends is not None:
            found *= _draw_factors(name, ends)
    for rival in rivals:
        found *= rival.factors()
    return found


def ends_of(found: Floats, value: float = 1.0) -> Factors:
    """Return the 90 % interval of draws, which holds the value."""
    low, high = np.quantile(found, _ENDS, method="hazen")
    return min(float(low), value), max(float(high), value)


def known_ends(found: Floats | None, value: float = 1.0) -> Ends:
    """Return the interval of draws as :func:`ends_of`; None: they are not known."""
    return (None, None) if found is None else ends_of(found, value)


def ratio(one: Floats | None, other: Floats | None, factor: float = 1.0) -> Floats | None:
    """Return draws of a factor times one time over another; None: either is not known."""
    if one is None or other is None:
        return None
    return np.asarray(factor * one / np.maximum(other, 1e-300))


def evenly(low: float, high: float) -> Floats:
    """Return draws that lie evenly between two times, (NUMBER,)."""
    return np.asarray(low + (high - low) * (_order("repeats") + 0.5) / NUMBER)


def _draw_factors(name: str, ends: Factors) -> Floats:
    """Return the factors of a part's draws, (NUMBER,)."""
    low, high = (math.log(max(end, _LEAST)) for end in ends)
    deviate = _deviates(name)
    return np.exp(np.where(deviate > 0, high, -low) * deviate)


@cache
def _deviates(name: str) -> Floats:
    """Return the deviates of a part, 1 and -1 at the ends of its 90 % interval, (NUMBER,)."""
    shares = (np.arange(NUMBER) + 0.5) / NUMBER
    if name == RESIDUAL:
        square = np.sqrt(4.0 * shares * (1.0 - shares))  # the quantile of 4 degrees of freedom
        size = 2.0 * np.sqrt(np.maximum(np.cos(np.arccos(square) / 3.0) / square - 1.0, 0.0))
        sorted_ = np.sign(shares - 0.5) * size
    else:
        normal = NormalDist()
        sorted_ = np.array([normal.inv_cdf(share) for share in shares.tolist()])
    return np.asarray(sorted_[_order(name)] / np.quantile(sorted_, _ENDS[1], method="hazen"))


@cache
def _order(name: str) -> np.ndarray:
    """Return the numbers of all draws in an order of a part's own, (NUMBER,)."""
    return np.random.Generator(np.random.PCG64(crc32(name.encode()))).permutation(NUMBER)


# ---- parts of an estimate ------------------------------------------------------------------
def own_parts(
    times: PhaseTimes, rank: int | None = None, slot: int | None = None
) -> dict[str, Factors | None] | None:
    """Return the parts that follow from the estimate itself: of the run, or of one phase of a rank.

    A part is null where nothing is known of it in any phase; the result is None where a phase
    that computes has neither an interval of its work nor of its time.
    """
    ranks = slice(None) if rank is None else slice(rank, rank + 1)
    slots = list(range(len(times.phases))) if slot is None else [slot]
    io = np.zeros_like(times.compute) if times.io is None else times.io
    compute, io = (part[ranks][:, slots] for part in (times.compute, io))
    mpi = times.mpi.seconds[:, ranks][:, :, slots] + io
    comm = mpi[COMM]
    parts = [times.parts_of(number) for number in slots]
    busy = np.asarray((compute > 0.0).any(axis=0))
    if any(there and part == (None, None) for there, part in zip(busy, parts, strict=True)):
        return None

    def moved(*ends: Floats) -> Factors:
        low, high = (total(each, times.mpi.estimator) for each in ends)
        return factors(total(compute + comm, times.mpi.estimator), low, high)

    found: dict[str, Factors | None] = dict.fromkeys(OWN)
    for k, name in enumerate(("work", "cost")):
        if any(part[k] is not None for part in parts):
            low, high = np.array([part[k] or (1.0, 1.0) for part in parts]).T
            found[name] = moved(compute * low + comm, compute * high + comm)
    if times.n > 1:
        found["replay"] = moved(compute + mpi[LOW], compute + mpi[HIGH])
    if io.any():
        low, high = times.io_ends()
        found["files"] = moved(
            compute + comm + (low - 1.0) * io, compute + comm + (high - 1.0) * io
        )
    return found


def factors(value: float, low: float, high: float) -> Factors:
    """Return two ends as multiples of a value; of nothing, 1 and 1."""
    if value <= 0.0:
        return 1.0, 1.0
    return min(low / value, 1.0), max(high / value, 1.0)


# ---- what no part knows --------------------------------------------------------------------
def residual_ends(
    communication: float, doublings: float, residual: float, hold_out: float
) -> Factors:
    """Return the ends of what no part knows: of Student's t, 90 %.

    Its scale is of what is known of a program's errors at a count, as shares of the run time there:
    communication: all time in calls; doublings: of the count, beyond the traced ones; residual:
    what runs took beyond what the parts allow; hold_out: how far computation was off where the
    model was checked, beyond what its own interval allows.
    """
    known = coefficients()
    scale = T90 * math.hypot(
        known["floor"],
        known["messages"] * communication,
        known["doubling"] * communication * doublings,
        known["residual"] * residual,
        known["hold_out"] * hold_out,
    )
    return math.exp(-scale), math.exp(scale)


@cache
def coefficients() -> Mapping[str, float]:
    """Return the coefficients of the scale; scale.toml says where they are from."""
    text = files("p3s.predict").joinpath("scale.toml").read_text(encoding="utf-8")
    found: Mapping[str, float] = tomllib.loads(text)["scale"]
    return found
