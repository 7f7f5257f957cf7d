"""How the work of a phase differs between its ranks: a correction to their mean, seldom needed.

Kinds of profiles: all ranks alike ("even"), ranks at the border of the grid or rank 0 do more or
less ("faces"), what the laws of the segments say of each rank ("segments"), what lies in its part
of the domain ("position"), what belongs to the number of a rank whatever the count ("rank": an
irregular domain cut by rank). Each predicts the largest count from the others, where the ratios it
leaves unexplained take so many bits; a profile other than "even" costs bits itself, so that
differences that are noise stay noise. What a class of ranks does is as sure as the laws that say
it. Where ranks differ and nothing says which do more, the distribution is known and the rest is
"drawn": who does more hardly matters, as all wait for the busiest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from p3s.laws.statistics import SAME_WITHIN
from p3s.model.grid.at import RELATION_BITS, GridAt
from p3s.model.sizes.forms import BUDGET
from p3s.model.types import Model, Phase
from p3s.model.work_types import Profile


def marginals(grid: GridAt, ratio: np.ndarray) -> tuple[tuple[float, ...], ...]:
    """Return the mean ratio of the blocks at each place of every dimension; ratio: of all ranks."""
    out = []
    for d, p in enumerate(grid.dims):
        at = grid.coords[d]
        sums = np.bincount(at, weights=ratio, minlength=p)
        out.append(tuple((sums / np.maximum(np.bincount(at, minlength=p), 1)).tolist()))
    return tuple(out)


def at_position(
    along: Sequence[Sequence[float]], grid: GridAt, ranks: np.ndarray
) -> np.ndarray | None:
    """Return the ratios of ranks to their mean; None on a grid of other dimensions, or not of all.

    along: of ``marginals``, at any count.
    """
    if len(along) != len(grid.dims) or not grid.inside.all():
        return None
    every = np.ones(grid.n)
    for d, (values, p) in enumerate(zip(along, grid.dims, strict=True)):
        every *= _shares(np.asarray(values, dtype=float), p)[grid.coords[d]]
    return np.asarray(every[ranks] / every.mean())


def _shares(values: np.ndarray, blocks: int) -> np.ndarray:
    """Return the ratios of so many blocks along a dimension whose traced blocks have ``values``."""
    if len(values) == 1 or not values.sum() > 0:
        return np.ones(blocks)
    known = np.concatenate([[0.0], np.cumsum(values) / values.sum()])
    share = _monotone(known, np.linspace(0.0, len(values), blocks + 1))
    return np.asarray(np.diff(share) * blocks)


def _monotone(known: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return what cubics between the values at 0, 1, 2, ..., which never fall, are at other places.

    Slopes as those of ``scipy.interpolate.PchipInterpolator``, which takes a quarter of a second to
    import: harmonic means inside, at the ends of a parabola through three values.
    """
    rise = np.diff(known)
    slope = np.empty(len(known))
    both = rise[:-1] + rise[1:]
    slope[1:-1] = 2.0 * rise[:-1] * rise[1:] / np.where(both > 0, both, 1.0)
    for end, inner in ((0, 1), (-1, -2)):
        slope[end] = max(1.5 * rise[end] - 0.5 * rise[inner], 0.0)
    k = np.minimum(at.astype(np.int64), len(rise) - 1)
    t = at - k
    off = slope[k] - rise[k], slope[k + 1] - rise[k]
    return np.asarray(known[k] + t * (rise[k] + (1 - t) * ((1 - t) * off[0] - t * off[1])))


#: Errors below are none.
EXACT = 1e-3
#: Least correlation of the work of ranks in two phases for the same ranks to be busy.
ALIKE = 0.5
#: From which differences on it matters that ranks have them.
UNEVEN = 0.02
#: By how much a trend has to lower the sum of squares: 95 % of chi squared (1 degree of freedom).
SIGNIFICANT = 3.84
#: How much steeper the power may be: noise of independent parts grows as n^(1/2), of one as n^0.
STEEPER = 0.25
#: Parts of 1 whose multiples fill it evenly.
GOLDEN, SILVER = 0.6180339887498949, 0.41421356237309503
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
    true = points[-1].ratio
    even = _rms(np.ones_like(true), true)
    found = [*_of_segments(points), *_held_out(points, even), Profile("even", even)]
    best = min(found, key=lambda f: _bits(f, len(true)))
    return _fit_distribution(points, even) or best if best.kind == "even" else best


def _bits(profile: Profile, ranks: int) -> float:
    """Return the bits of what a profile leaves of the ratios of so many ranks, and of itself.

    What is exact has met every rank; laws of segments are there anyway, other profiles are not.
    """
    price = {"even": 0.0, "segments": BUDGET if profile.error > EXACT else 0.0}
    left = ranks * float(np.log2(max(profile.error, EXACT)))
    return left + price.get(profile.kind, RELATION_BITS)


def _of_segments(points: Sequence[Spent]) -> Iterator[Profile]:
    """Yield what the laws of segments say of each rank; of all counts they may say less."""
    last = points[-1]
    held, said = last.held[last.there], last.said[last.there]
    if np.isfinite(held).all() and held.any() and said.any():
        error = max(_rms(each / each.mean(), last.ratio) for each in (held, said))
        yield Profile("segments", error)


def _held_out(points: Sequence[Spent], even: float) -> Iterator[Profile]:
    """Yield the other profiles that there may be, with their error at the largest count.

    It is that of the ranks which smaller counts tell of, where all ranks alike have ``even``.
    """
    last, true = points[-1], points[-1].ratio
    for make in (_faces, _position, _average_ratios) if len(points) > 2 and even else ():
        if (told := make(points[:-1])) is None or (whole := make(points)) is None:
            continue
        said = ratios(told, np.ones_like(true), last.grid, np.flatnonzero(last.there))
        seen = slice(len(told.coefficients) if told.kind == "rank" else None)
        alike = max(_rms(np.ones_like(true[seen]), true[seen]), 1e-300)
        yield replace(whole, error=even * _rms(said[seen], true[seen]) / alike)


def _fit_distribution(points: Sequence[Spent], error: float) -> Profile | None:
    """Return the distribution of ranks that differ without a rule.

    None where they don't, or where smaller counts do not tell how far the busiest is above the
    mean at the largest one.
    """
    largest = _largest(points)
    if len(largest) < 3 or largest[-1][1] < UNEVEN:
        return None
    n, true = largest[-1]
    if abs(largest_at(largest[:-1], n) - true) * SAME_WITHIN > true:
        return None
    coefficients = tuple(points[-1].ratio.tolist())
    return Profile("drawn", error, coefficients=coefficients, largest=largest)


def undrawn(model: Model) -> Model:
    """Return the model with even ranks where these are drawn."""
    phases = tuple(
        replace(p, work=replace(p.work, profile=EVEN)) if has_distribution(p) else p
        for p in model.phases
    )
    return replace(model, phases=phases)


def has_distribution(phase: Phase) -> bool:
    """Tell whether the model draws how much more or less the ranks of a phase do."""
    return phase.work.profile is not None and phase.work.profile.kind == "drawn"


def same_order(profiles: Sequence[Profile], last: Sequence[Spent]) -> list[Profile]:
    """Return the profiles; those of which the same ranks are busy have the same order.

    last: the largest count of each phase.
    """
    first: list[int] = []
    out = list(profiles)
    for k, (profile, one) in enumerate(zip(profiles, last, strict=True)):
        if profile.kind != "drawn":
            continue
        same = (j for j in first if _agree(last[j], one))
        order = next(same, k)
        if order == k:
            first.append(k)
        out[k] = replace(profile, order=order)
    return out


def _agree(a: Spent, b: Spent) -> bool:
    both = a.there & b.there
    x, y = a.work[both], b.work[both]
    return len(x) > 1 and np.ptp(x) > 0 < np.ptp(y) and bool(np.corrcoef(x, y)[0, 1] > ALIKE)


def apart(last: Spent) -> float:
    """Return how far off the differences are that laws of segments say ranks have (rms).

    The laws are fitted without the ratios that they are compared with. Laws that say no differences
    have none that could grow into the sum.
    """
    held = last.held[last.there]
    if not (np.isfinite(held).all() and held.any() and last.work[last.there].any()):
        return 0.0
    said = held / held.mean()
    return min(_rms(said, last.ratio), _rms(said, np.ones_like(said)))


def _rms(told: np.ndarray, true: np.ndarray) -> float:
    return float(np.sqrt(np.mean((told - true) ** 2)))


def _columns(grid: GridAt, ranks: np.ndarray) -> np.ndarray:
    """Return rank 0 and the sides of every dimension: (ranks, 1 + 2 dimensions), means of zero.

    One layer of a block is in proportion to the extent: the block has that part of the domain.
    """
    out = [(ranks == 0) * float(grid.n) - 1.0]
    for d, p in enumerate(grid.dims if len(grid.dims) > 1 else ()):
        at = grid.coords[d][ranks]
        out += [(at == side) * float(p) - 1.0 for side in (0, p - 1)]
    return np.stack(out, axis=1)


def _faces(points: Sequence[Spent]) -> Profile | None:
    """Return what rank 0 and the sides add, by least squares; every count weighs the same."""
    rows, values = [], []
    for p in points:
        if p.grid.n > 1:
            ranks = np.flatnonzero(p.there)
            rows.append(_columns(p.grid, ranks) / len(ranks) ** 0.5)
            values.append((p.ratio - 1.0) / len(ranks) ** 0.5)
    if not rows:
        return None
    found = np.linalg.lstsq(np.concatenate(rows), np.concatenate(values), rcond=1e-9)[0]
    return Profile("faces", 0.0, coefficients=tuple(found.tolist()))


def _position(points: Sequence[Spent]) -> Profile | None:
    """Return the ratios of the blocks along each dimension; None unless all ranks take part."""
    last = points[-1]
    if not last.grid.inside.all() or not all(p.there.all() for p in points):
        return None
    return Profile("position", 0.0, along=marginals(last.grid, last.ratio))


def _average_ratios(points: Sequence[Spent]) -> Profile | None:
    """Return the ratio of each rank to the mean at the largest count, on average over counts."""
    if not all(p.there.all() for p in points):
        return None
    last = points[-1].ratio
    total, seen = np.zeros((2, len(last)))
    for k, p in enumerate(points):
        m = p.grid.n
        weight = float(k + 1)  # larger counts are nearer to what is asked
        total[:m] += weight * p.ratio * (last[:m].mean() / p.ratio.mean())
        seen[:m] += weight
    own = tuple((total / np.maximum(seen, 1e-300)).tolist())
    return Profile("rank", 0.0, coefficients=own, largest=_largest(points))


def ratios(profile: Profile, said: np.ndarray, grid: GridAt, ranks: np.ndarray) -> np.ndarray:
    """Return work over its mean of ``ranks``, 0 of those that take no part.

    said: what the laws of segments say of these ratios.
    """
    if profile.kind == "segments":
        return said
    told: np.ndarray | None = None
    if profile.kind == "faces":
        told = 1.0 + _columns(grid, ranks) @ np.asarray(profile.coefficients)
    elif profile.kind == "position":
        told = at_position(profile.along, grid, ranks)
    elif profile.kind != "even":
        told = _of_all(profile, grid.n)[ranks]
    return np.where(said > 0, np.ones(len(ranks)) if told is None else np.maximum(told, 0.0), 0.0)


@lru_cache(maxsize=8)  # parts of a trace ask for some ranks at a time
def _of_all(profile: Profile, n: int) -> np.ndarray:
    """Return the ratios of all ranks by the distribution of those that were traced.

    Where ranks are drawn the busiest at n stays who it was and says how far those above the mean
    go; the further, the fewer they are, so that they have as large a part of all work. Else those
    that were seen keep theirs, and the last of the others has the largest that is expected of n.
    """
    seen, most = np.asarray(profile.coefficients), largest_at(profile.largest, n)
    level = np.modf((np.arange(n) + 1) * GOLDEN + profile.order * SILVER)[0]
    if profile.kind == "drawn":
        level[seen[:n].argmax()] += seen.argmax() < n
        ratio = _stretched(np.sort(seen), most, n)[np.argsort(np.argsort(level))]
    else:
        ratio = _quantiles(np.sort(seen), n)[np.argsort(np.argsort(level))]
        ratio[n - 1] = max(1.0 + most, float(seen.max()))
        ratio[: len(seen)] = seen[:n]
    return np.asarray(ratio / ratio.mean())


def _stretched(ordered: np.ndarray, most: float, n: int) -> np.ndarray:
    """Return n ascending ratios like those in order whose largest is ``most`` above the mean."""
    above = ordered[ordered > 1.0]
    farther = max(most / float(above[-1] - 1.0), 1.0)
    busy = max(min(round(n / len(ordered) / farther * len(above)), n - 1), 1)
    more = _quantiles(above, busy) - 1.0
    more *= most / more[-1]
    less = _quantiles(ordered[ordered <= 1.0], n - busy)
    less *= max(n - busy - float(more.sum()), 0.0) / max(float(less.sum()), 1e-300)
    return np.concatenate([less, 1.0 + more])


def _quantiles(ordered: np.ndarray, n: int) -> np.ndarray:
    """Return n ascending values of a distribution, evenly drawn."""
    m = len(ordered)
    return np.asarray(np.interp((np.arange(n) + 0.5) / n, (np.arange(m) + 0.5) / m, ordered))


def _largest(points: Sequence[Spent]) -> tuple[tuple[int, float], ...]:
    """Return (count, largest ratio less one) of the counts of several ranks."""
    return tuple((p.grid.n, float(p.ratio.max()) - 1.0) for p in points if p.grid.n > 1)


def largest_at(largest: Sequence[tuple[int, float]], n: int, steeper: float = 0.0) -> float:
    """Return by how much the busiest of n ranks is above the mean.

    It goes through that of the largest count and grows as the largest of n draws does, times a
    power of n where the counts show one, at most as n, as one rank with the same work at any count
    does. What is noise is drawn oftener among more ranks, and no more.

    largest: (count, largest ratio less one), ascending. steeper: added to the power.
    """
    if not largest:
        return 0.0
    last_n, last = largest[-1]
    ratio = n / last_n
    growth = _largest_draw(n) / _largest_draw(last_n) * ratio ** (_trend(largest) + steeper)
    return float(last * (min(growth, ratio) if ratio > 1.0 else max(growth, ratio)))


def _largest_draw(n: int) -> float:
    """Return the largest of n normal deviates, on average (Blom 1958), of at least 2."""
    n = max(n, 2)
    return NormalDist().inv_cdf((n - 0.375) / (n + 0.25))


def _trend(largest: Sequence[tuple[int, float]]) -> float:
    """Return the power of n with which deviations grow beside what more draws lead to.

    By least squares of logarithms, each of the variance that the largest of so many draws has
    (Gumbel: pi^2 / 12 ln n, over its square). 0 where the squares fall by less than SIGNIFICANT.
    """
    points = [(n, excess / _largest_draw(n)) for n, excess in largest if excess > 0.0]
    if len(points) < 3:
        return 0.0
    x, y = np.log(np.array(points, dtype=float)).T
    weight = 12.0 / np.pi**2 * x * np.array([_largest_draw(n) for n, _ in points]) ** 2
    x, y = x - np.average(x, weights=weight), y - np.average(y, weights=weight)
    square = float(weight @ x**2)
    power = float(weight @ (x * y)) / square
    return power if power**2 * square > SIGNIFICANT else 0.0


def largest_half_width(profile: Profile, n: int) -> float:
    """Return how far the busiest rank may be off: what it grows beyond the traced counts, or what
    it would be with a steeper power, whichever is more."""
    if not profile.largest or n <= profile.largest[-1][0]:
        return 0.0
    there = largest_at(profile.largest, n)
    more = largest_at(profile.largest, n, STEEPER) - there
    return max(there - profile.largest[-1][1], more) / (1.0 + there)
