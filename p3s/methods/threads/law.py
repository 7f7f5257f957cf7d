"""The law of computing time over work, processes, threads and places, fitted to runs.

    law = fit_law(samples.of_phase(3), node)
    law.draws(uses([256], [4], [16]), work)      seconds of one iteration

What the law is a sum of: p3s.methods.threads.columns; what it takes for usual: priors; how it is
fitted: sampler; what it misses: misfit. All of it is kept as draws, so that times of many uses can
be told jointly: errors that uses share do not decide between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from p3s.base.arrays import Floats, Ints
from p3s.base.errors import P3SError
from p3s.laws.statistics import low_median_high
from p3s.machine.machinefile import OpenMP
from p3s.machine.topology.inside import Node
from p3s.methods.threads import columns
from p3s.methods.threads.columns import Curve, Rows, Shapes
from p3s.methods.threads.places import Misfit, covariance, features, misfit, places
from p3s.methods.threads.sampler import Problem, State, prior_of, sample, unit_of
from p3s.methods.threads.types import (
    Envelope,
    Part,
    Samples,
    TracedRange,
    Uses,
    Value,
    round_digits,
)

SHARE, THREADS, RATIO = "share", "threads", "ratio"
#: Shapes that people understand, with their units.
_SHAPES = {
    "memory": RATIO,
    "fill": THREADS,
    "smt": RATIO,
    "clock": RATIO,
    "remote": RATIO,
    "sockets": RATIO,
}
#: The runs tell a number where it is known to this part of what is usual, a share where it is
#: known to this part of itself or is at most so large.
_NARROWER, _KNOWN, _SMALL = 0.5, 0.5, 0.02


def parts_of(state: State, design: Floats) -> tuple[Part, ...]:
    """Return the parts of a law; design: (draws, columns) at the use that shares are of."""
    return tuple(_parts(state, design))


def _parts(state: State, design: Floats) -> Iterator[Part]:
    share = state.coefficient * design
    share /= share.sum(axis=1, keepdims=True)
    for k, name in enumerate(columns.NAMES):
        low, value, high = _ends(share[:, k])
        is_known = high - low < _KNOWN * value or high < _SMALL
        yield Part(name, SHARE, value, low, high, is_known)
    for k, each in enumerate(fields(columns.Shapes)):
        if each.name in _SHAPES:
            least, _, most = _ends(state.cube[:, k])
            low, value, high = _ends(getattr(state.shapes, each.name))
            is_known = most - least < _NARROWER
            yield Part(each.name, _SHAPES[each.name], value, low, high, is_known)


def _ends(draws: Floats) -> tuple[float, float, float]:
    low, middle, high = low_median_high(draws)
    return float(low), float(middle), float(high)


#: Errors of measured parts are so many times those of whole times, and at least this share of the
#: whole counts.
_PART_ERROR, _PART_LEAST = 2.0, 0.1
#: A misfit beyond this, in logarithms, is no misfit.
_MOST = 1.0


@dataclass(frozen=True, eq=False)
class Measured:
    """What was measured of the node: bandwidth and empty regions over threads; empty: not."""

    bandwidth: Curve
    fork: Curve


NOT_MEASURED = Measured(Curve(np.zeros(0), np.zeros(0)), Curve(np.zeros(0), np.zeros(0)))


@dataclass(frozen=True, eq=False)
class ThreadLaw:
    """Seconds of one iteration of a phase over work, processes, threads and places, as draws.

    unit: least seconds of a thread for a unit of work. regions: in an iteration. shapes,
    coefficient (by column, a value per draw), error (draws,), misfit: the draws. fit: how far the
    middle is off at the samples, relative (root mean square). parts: what it is made of at the
    largest traced use.
    """

    phase: int
    node: Node
    unit: float
    regions: float
    envelope: Envelope
    measured: Measured
    shapes: Shapes
    coefficient: Mapping[str, Floats]
    error: Floats
    misfit: Misfit
    fit: float
    parts: tuple[Part, ...]

    def valid(self) -> None:
        """Raise ValueError where its draws do not hold together."""
        shapes = [getattr(self.shapes, each.name) for each in fields(Shapes)]
        each = [*shapes, *self.coefficient.values(), self.misfit.pull]
        same = {len(self.error)} == {len(one) for one in each}
        if not same or not len(self.error) or set(self.coefficient) != set(columns.NAMES):
            raise ValueError("the draws do not hold together")

    @cached_property
    def matrix(self) -> Floats:
        """Coefficients as an array, shape (draws, columns)."""
        return np.stack([self.coefficient[name] for name in columns.NAMES], axis=1)

    def at(self, uses: Uses) -> PreparedLaw:
        """Return what the law says of uses, ready for any work."""
        rows = rows_of(uses, self.node, self.measured)
        off = self.misfit.draws(features(uses, rows.places), len(self.error)) * self.error[:, None]
        return PreparedLaw(self, rows, np.exp(np.clip(off, -_MOST, _MOST)))

    def draws(self, uses: Uses, work: Floats, work_error: float = 0.0) -> Floats:
        """Return seconds of an iteration: (draws, uses); work: of one process, for each use."""
        return self.at(uses).draws(work, work_error)

    def busy(self, uses: Uses, work: Floats) -> Floats:
        """Return busy seconds of all threads of a process in an iteration: (draws, uses)."""
        rows = rows_of(uses, self.node, self.measured)
        table = columns.table(self.shapes, rows, work, 0.0)
        table[..., columns.BY_TEAM] /= columns.idle(self.shapes, rows, work)[..., None]
        once = table[..., columns.ONCE] @ self.matrix[:, columns.ONCE, None]
        team = table[..., columns.BY_TEAM] @ self.matrix[:, columns.BY_TEAM, None]
        return np.asarray(once[..., 0] + uses.threads * team[..., 0])

    def outside(self, uses: Uses) -> tuple[Floats, Floats, Floats]:
        """Return the ratios by which uses lie outside the traced ones; 1 inside.

        Of processes, threads, and threads of a node.
        """
        box = self.envelope
        on_node = np.minimum(uses.per_node, uses.n) * uses.threads
        pairs = ((uses.n, box.n), (uses.threads, box.threads), (on_node, box.on_node))
        n, threads, of_node = (
            np.maximum(1.0, np.maximum(x / high, low / x)) for x, (low, high) in pairs
        )
        return n, threads, of_node


@dataclass(frozen=True, eq=False)
class PreparedLaw:
    """A law at some uses; factor: of its misfit there, (draws, uses)."""

    law: ThreadLaw
    rows: Rows
    factor: Floats

    def draws(self, work: Floats, work_error: float = 0.0) -> Floats:
        """Return seconds of an iteration: (draws, uses); work: of one process, for each use."""
        table = columns.table(self.law.shapes, self.rows, work, self.law.regions)
        out = (table @ self.law.matrix[..., None])[..., 0] * self.factor
        if work_error > 0:
            normal = np.random.default_rng(3).standard_normal(len(out))
            out *= np.exp(work_error * normal)[:, None]
        return np.asarray(out)


def value_of(draws: Floats) -> Value:
    """Return the median of draws and their 90 % interval, for each use."""
    low, middle, high = low_median_high(draws)
    return Value(middle, low, high)


def rows_of(uses: Uses, node: Node, measured: Measured) -> Rows:
    """Return uses as columns take them."""
    use_places = places(uses, node)
    threads = uses.threads.astype(float)
    ones = np.ones(len(threads))
    fork = measured.fork.at(threads) if measured.fork else 0.0 * ones
    slower = ones
    if measured.bandwidth:
        # measured on cores one after another: what the threads of the first domain share
        cores = float(node.domains[0])
        inside = measured.bandwidth.at(np.minimum(use_places.crowd, cores))
        slower = np.maximum(inside * np.maximum(use_places.crowd / cores, 1.0), 1.0)
    return Rows(use_places, uses.n.astype(float), threads, node.smt, fork, slower)


def measured_of(machine: OpenMP, node: Node) -> Measured:
    """Return what was measured of a node, at powers of two of threads and at all cores."""
    counts = sorted({*(1 << k for k in range(node.cores.bit_length())), node.cores})
    threads = np.array(counts, dtype=float)
    rate = np.array([machine.bandwidth(t, False) for t in counts])
    fork = np.array([machine.fork_join(t) for t in counts])
    if not (np.all(rate > 0) and np.all(fork >= 0)):
        raise P3SError("the machine's bandwidth or empty regions are no numbers; measure it again")
    return Measured(Curve(threads, rate[0] * threads / rate), Curve(threads, fork))


def fit_law(samples: Samples, node: Node, *, measured: Measured = NOT_MEASURED) -> ThreadLaw:
    """Return the law of one phase's samples: of the mean of ranks.

    Equal samples give equal laws. Errors: P3SError, in one line, where a row has more threads than
    the node has hardware threads, or rows of several phases are given.
    """
    if len(samples.phases) > 1:
        raise P3SError("samples of threads: rows of several phases; fit each by itself")
    check_uses(samples.uses, node)
    y = samples.seconds
    rows = rows_of(samples.uses, node, measured)
    regions, counted = _regions(samples)
    known_of = (bool(measured.bandwidth), bool(measured.fork))
    prior = prior_of(samples, y, rows, node, counted, known_of)
    where = features(samples.uses, rows.places)
    stacked = _StackedRows(samples, y, rows, regions, where)
    random = np.random.default_rng(20140626 + samples.phases[0])
    state = sample(Problem(stacked.design, stacked.target, prior), random)
    design = columns.table(state.shapes, rows, samples.work, regions)
    fitted = (design @ state.coefficient[..., None])[..., 0]
    most = int(np.argmax(samples.n * samples.threads))
    residuals = np.log(y / np.maximum(fitted, 1e-300)) / state.error[:, None]
    off = misfit(where, residuals, 7 + 2 * samples.phases[0])
    return ThreadLaw(
        samples.phases[0],
        node,
        unit_of(samples, y),
        regions,
        envelope(samples),
        measured,
        Shapes(*(round_digits(getattr(state.shapes, each.name)) for each in fields(Shapes))),
        dict(zip(columns.NAMES, map(round_digits, state.coefficient.T), strict=True)),
        round_digits(state.error),
        off,
        float(np.sqrt(np.mean((np.median(fitted, axis=0) / y - 1.0) ** 2))),
        parts_of(state, design[:, most]),
    )


def _regions(samples: Samples) -> tuple[float, bool]:
    """Return the regions of an iteration, and whether they are known; 1 where not."""
    known_regions = samples.regions[(samples.threads > 1) & (samples.regions > 0)]
    return (float(np.median(known_regions)), True) if len(known_regions) else (1.0, False)


def fit_laws(
    samples: Samples, node: Node, *, measured: Measured = NOT_MEASURED
) -> tuple[ThreadLaw, ...]:
    """Return the laws of all phases (:func:`fit_law`)."""
    return tuple(fit_law(samples.of_phase(k), node, measured=measured) for k in samples.phases)


def check_uses(uses: Uses, node: Node) -> None:
    """Raise P3SError where more threads are on a node than it has hardware threads."""
    on_node = np.minimum(uses.per_node, uses.n) * uses.threads
    if len(uses) and int(on_node.max()) > node.slots:
        at = int(np.argmax(on_node))
        raise P3SError(
            f"{node.source}: {on_node[at]} threads on a node of {node.slots} hardware threads "
            f"({uses.per_node[at]} processes of {uses.threads[at]}): times of threads that take "
            "turns tell little; leave the run out"
        )


def envelope(samples: Samples) -> Envelope:
    """Return what samples cover."""
    on_node = np.minimum(samples.per_node, samples.n) * samples.threads
    n, threads, of_node, work = (
        TracedRange(float(x.min()), float(x.max()))
        for x in (samples.n, samples.threads, on_node, samples.work)
    )
    in_all, rows = float((samples.n * samples.threads).max()), bool(np.all(samples.rows > 0))
    return Envelope(n, threads, of_node, work, bool(samples.far.any()), in_all, rows)


class _StackedRows:
    """Rows that a law is fitted to: whole times, and parts where they were measured; relative to
    the times, and independent of each other."""

    def __init__(
        self, samples: Samples, y: Floats, rows: Rows, regions: float, where: Floats
    ) -> None:
        self.samples, self.rows, self.regions = samples, rows, regions
        root = np.linalg.cholesky(covariance(where))
        self.whole = np.linalg.inv(root) / y
        self.parts = list(_measured_parts(samples))
        self.scale = [
            _PART_ERROR * np.maximum(value, _PART_LEAST * samples.seconds[at])
            for at, _, value in self.parts
        ]
        scaled_parts = [v / s for (_, _, v), s in zip(self.parts, self.scale, strict=True)]
        self.target = np.concatenate([self.whole @ y, *scaled_parts])

    def design(self, shapes: Shapes) -> Floats:
        """Return the columns of shapes: (shapes, rows, columns)."""
        table = columns.table(shapes, self.rows, self.samples.work, self.regions)
        out = [np.einsum("ij,djp->dip", self.whole, table)]
        even = table / columns.idle(shapes, self.rows, self.samples.work)[..., None]
        late = table - even
        for (at, kind, _), scale in zip(self.parts, self.scale, strict=True):
            part = np.zeros((len(shapes), len(at), len(columns.NAMES)))
            for indices, of in _COLUMNS[kind]:
                part[..., indices] = {"all": table, "even": even, "late": late}[of][:, at][
                    ..., indices
                ]
            out.append(part / scale[:, None])
        return np.concatenate(out, axis=1)


#: Columns of the measured parts: all of them, or as if threads had even parts, or what is more.
_COLUMNS: dict[str, tuple[tuple[tuple[int, ...], str], ...]] = {
    "serial": ((columns.ONCE, "all"),),
    "busy": ((columns.BY_TEAM, "even"),),
    "late": (((columns.BALANCE,), "all"), (columns.BY_TEAM, "late")),
    "overhead": (((columns.FORK, columns.TEAM), "all"),),
}


def _measured_parts(samples: Samples) -> Iterator[tuple[Ints, str, Floats]]:
    """Yield rows, kind and seconds of each kind of part that was measured."""
    each = samples.busy / samples.threads
    kinds = {
        "serial": samples.serial,
        "busy": each,
        "late": samples.longest - each,
        "overhead": samples.overhead,
    }
    for kind, value in kinds.items():
        at = np.flatnonzero(np.isfinite(value))
        if len(at):
            yield at, kind, np.maximum(value[at], 0.0)
