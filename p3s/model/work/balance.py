"""How the work of a phase differs between its ranks: a correction to their mean, seldom needed.

Kinds of profiles: all ranks alike ("even"), ranks at the border of the grid or rank 0 do more or
less ("faces"), what the laws of the segments say of each rank ("segments"), what belongs to the
number of a rank whatever the count ("rank": an irregular domain cut by rank). Each predicts the
largest count from the others; another one than "even" is taken only where it divides the error
there. So no class of ranks has a law of its own that could run away from the mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from p3s.model.grid.guards import GridAt
from p3s.model.types import Profile, WorkPlace

#: A profile has to divide the error of ranks that are all alike by this.
GAIN = 1.5
#: Errors below are none; how far beyond the traced ratios that of a class of ranks may go.
EXACT, FARTHER = 1e-3, 2.0
#: Least correlation of a rank's ratios at two counts for them to be its own.
ALIKE = 0.5
#: From which differences on it matters where ranks have them; how far a place may follow them.
UNEVEN, MOST = 0.02, 8.0
EVEN = Profile("even", 0.0)


@dataclass(frozen=True)
class Spent:
    """The work of a phase at one count: per rank, as the laws of segments say, and as those say
    that were fitted without the largest count (NaN where none were); there: which ranks take part.
    """

    grid: GridAt
    work: np.ndarray
    said: np.ndarray
    held: np.ndarray
    there: np.ndarray

    @property
    def ratio(self) -> np.ndarray:
        """Work over its mean, of the ranks that take part."""
        work = self.work[self.there]
        return np.asarray(work / max(float(work.mean()), 1e-300))


def fit_profile(points: Sequence[Spent]) -> Profile:
    """Return the profile of a phase; points: of ascending counts."""
    points = [p for p in points if p.there.any() and p.work[p.there].any()]
    if len(points) < 2:
        return EVEN
    last = points[-1]
    true = last.ratio
    even = _rms(np.ones_like(true), true)
    found = [(even / GAIN, Profile("even", even))]
    found += [(f.error, f) for f in _candidates(points, true, even)]
    # what is exact has met every rank: no even share is as good
    exact = [f for f in found if f[1].kind == "segments" and f[1].ends is None]
    return min(exact or found, key=lambda f: f[0])[1]


def gains(said: Sequence[np.ndarray], done: Sequence[np.ndarray]) -> np.ndarray | None:
    """Return how far each place follows what a rank does more or less than its segments say.

    said, done: work per (place, rank) by the laws and measured, of ascending counts. Part of a
    phase may be even while all the differences are in one loop. None where all places may follow
    alike: gains of the second largest count have to divide the error at the largest by GAIN.
    """
    if len(said) < 2:
        return None
    before = _gains(said[-2], done[-2])
    if before is None or (now := _gains(said[-1], done[-1])) is None:
        return None
    whole = done[-1].sum(axis=0)
    errors = [
        float(np.abs(shared_out(said[-1], whole, g) - done[-1]).sum())
        for g in (np.ones_like(before), before)
    ]
    return now if errors[1] * GAIN < errors[0] else None


def with_gains(
    places: list[WorkPlace],
    said: Sequence[Sequence[np.ndarray]],
    done: Sequence[Sequence[np.ndarray]],
) -> list[WorkPlace]:
    """Return the places of a phase with how far each follows the differences between ranks."""
    if not places:
        return places
    found = gains(
        *([np.stack(one) for one in zip(*values, strict=True)] for values in (said, done))
    )
    if found is None:
        return places
    return [replace(p, gain=round(float(g), 4)) for p, g in zip(places, found, strict=True)]


def _gains(said: np.ndarray, done: np.ndarray) -> np.ndarray | None:
    off, sure = _off(said, done.sum(axis=0))
    if np.sqrt(np.mean(off**2)) < UNEVEN:
        return None
    out = np.ones(len(said))
    for k, (told, true) in enumerate(zip(said, done, strict=True)):
        some = sure & (told > 0)
        weight = told[some] * off[some]
        against = float(weight @ off[some])
        if against > 0 and true[some].any():
            mean = true[some].sum() / told[some].sum()
            out[k] = float(weight @ (true[some] / told[some] / mean - 1.0)) / against
    return np.asarray(out.clip(0.0, MOST))


def _off(said: np.ndarray, whole: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return by which part each rank differs from what is said of it, and of which it is known."""
    told = said.sum(axis=0)
    sure = (told > 0) & (whole > 0)
    if not sure.any():
        return np.zeros(len(told)), sure
    ratio = np.divide(whole, told, out=np.zeros_like(whole), where=sure)
    return np.where(sure, ratio / (whole[sure].sum() / told[sure].sum()) - 1.0, 0.0), sure


def shared_out(said: np.ndarray, whole: np.ndarray, gain: np.ndarray) -> np.ndarray:
    """Return work per (place, rank) that sums to ``whole`` per rank; gain: of the places."""
    _, sure = _off(said, whole)
    mean = whole[sure].sum() / max(float(said[:, sure].sum()), 1e-300)
    told = mean * said
    follow = gain[:, None] * said
    followed = follow.sum(axis=0)
    share = np.divide(follow, followed, out=np.zeros_like(follow), where=followed > 0)
    told = np.maximum(told + share * (whole - told.sum(axis=0)), 0.0)
    total = told.sum(axis=0)
    return np.asarray(told * np.divide(whole, total, out=np.zeros_like(whole), where=total > 0))


def apart(last: Spent) -> float:
    """Return how far the ratios of ranks are off by laws of segments fitted without them (rms)."""
    held = last.held[last.there]
    if not (np.isfinite(held).all() and held.any() and last.work[last.there].any()):
        return 0.0
    return _rms(held / held.mean(), last.ratio)


def _candidates(points: Sequence[Spent], true: np.ndarray, even: float) -> list[Profile]:
    last = points[-1]
    held = last.held[last.there]
    out = []
    if np.isfinite(held).all() and held.any():
        error = apart(last)
        out.append(Profile("segments", error, ends=_range(points) if error > EXACT else None))
    if len(points) < 3:
        return out
    if coef := _faces(points[:-1]):
        told = faces_at(coef, last.grid, np.flatnonzero(last.there))
        error = _rms(told / told.mean(), true)
        out.append(Profile("faces", error, coefficients=_faces(points)))
    if last.there.all() and all(p.there.all() for p in points):
        ranks = _own(points[:-1])
        seen = min(len(ranks), len(true))
        alike = _rms(np.ones(seen), true[:seen])
        error = even * _rms(ranks[:seen], true[:seen]) / max(alike, 1e-300)
        varies = min(np.ptp(ranks[:seen]), np.ptp(true[:seen])) > 0
        if varies and np.corrcoef(ranks[:seen], true[:seen])[0, 1] > ALIKE:
            out.append(Profile("rank", float(error), coefficients=tuple(_own(points).tolist())))
    return out


def _rms(told: np.ndarray, true: np.ndarray) -> float:
    return float(np.sqrt(np.mean((told - true) ** 2)))


def _range(points: Sequence[Spent]) -> tuple[float, float]:
    """Return the least and the largest ratio that a class of ranks may come to."""
    every = np.concatenate([p.ratio for p in points])
    return (
        max(1.0 - FARTHER * (1.0 - float(every.min())), 0.0),
        1.0 + FARTHER * (float(every.max()) - 1.0),
    )


def _columns(grid: GridAt, ranks: np.ndarray) -> np.ndarray:
    """Return rank 0 and the sides of every dimension: (ranks, 1 + 2 dimensions), means of zero.

    One layer of a block is in proportion to the extent: the block has that part of the domain.
    """
    out = [(ranks == 0) * float(grid.n) - 1.0]
    for d, p in enumerate(grid.dims if len(grid.dims) > 1 else ()):
        at = grid.coords[d][ranks]
        out += [(at == side) * float(p) - 1.0 for side in (0, p - 1)]
    return np.stack(out, axis=1)


def _faces(points: Sequence[Spent]) -> tuple[float, ...]:
    """Return what rank 0 and the sides add, by least squares; every count weighs the same."""
    rows, values = [], []
    for p in points:
        if p.grid.n > 1:
            ranks = np.flatnonzero(p.there)
            rows.append(_columns(p.grid, ranks) / len(ranks) ** 0.5)
            values.append((p.ratio - 1.0) / len(ranks) ** 0.5)
    if not rows:
        return ()
    found = np.linalg.lstsq(np.concatenate(rows), np.concatenate(values), rcond=1e-9)[0]
    return tuple(float(c) for c in found)


def ratios(profile: Profile, said: np.ndarray, grid: GridAt, ranks: np.ndarray) -> np.ndarray:
    """Return work over its mean of ``ranks``, 0 of those that take no part.

    said: what the laws of segments say of these ratios.
    """
    if profile.kind == "segments":
        return said if profile.ends is None else np.where(said > 0, said.clip(*profile.ends), 0.0)
    told = np.ones(len(ranks))
    if profile.kind == "faces":
        told = faces_at(profile.coefficients, grid, ranks)
    elif profile.kind == "rank":
        told = own_at(profile.coefficients, grid.n, ranks)
    return np.where(said > 0, told, 0.0)


def faces_at(coefficients: Sequence[float], grid: GridAt, ranks: np.ndarray) -> np.ndarray:
    """Return the ratios to the mean that faces and rank 0 lead to, of some ranks."""
    told = 1.0 + _columns(grid, ranks) @ np.asarray(coefficients)
    return np.asarray(np.maximum(told, 0.0))


def _own(points: Sequence[Spent]) -> np.ndarray:
    """Return the ratio of each rank to the mean at the largest count, on average over counts."""
    last = points[-1].ratio
    total, seen = np.zeros((2, len(last)))
    for k, p in enumerate(points):
        m = p.grid.n
        weight = float(k + 1)  # larger counts are nearer to what is asked
        total[:m] += weight * p.ratio * (last[:m].mean() / p.ratio.mean())
        seen[:m] += weight
    return np.asarray(total / np.maximum(seen, 1e-300))


def own_at(known: Sequence[float], n: int, ranks: np.ndarray) -> np.ndarray:
    """Return the ratios of ranks that were seen, and of others from the distribution of these.

    The largest of m draws is taken to grow with the logarithm of m, as it did with the seen ones:
    the last unseen rank has it.
    """
    seen = np.asarray(known)
    m = len(seen)
    if n <= m:
        return np.asarray(seen[:n][ranks] / seen[:n].mean())
    ordered = np.sort(seen)
    # ranks in the order of a sequence that fills the interval evenly
    level = np.modf((np.arange(n) + 1) * 0.6180339887498949)[0]
    ratio = np.interp(level, (np.arange(m) + 0.5) / m, ordered)
    ratio[:m] = seen
    ratio[n - 1] = max(largest_at(known, n), float(ordered[-1]))
    return np.asarray(ratio[ranks] / ratio.mean())


def largest_at(known: Sequence[float], n: int) -> float:
    """Return the largest ratio that is to be expected of n ranks: linear in the logarithm of n."""
    seen = np.asarray(known)
    sizes = [2**k for k in range(1, int(np.log2(len(seen))) + 1)]
    if len(sizes) < 2:
        return float(seen.max())
    # the mean over all parts of so many ranks
    largest = [seen[: len(seen) // m * m].reshape(-1, m).max(axis=1).mean() for m in sizes]
    slope, level = np.polyfit(np.log(sizes), largest, 1)
    return float(max(level + slope * np.log(n), seen.max()))
