"""Models that predict the time of a phase from its features, learned from measured phases.

Boosted trees with absolute loss (GBRT of Papadopoulou 2017) of the logarithm of the time: else only
the longest phases count. A line over a few features may go first, and trees then say by how much it
is off. Scores are those of groups (allocations, programs) that a model has not seen. Trees say
nothing beyond the values that they were trained with, so each prediction tells which features are
outside, and its interval widens.

Intervals are conformal: widened by what they miss groups by that were left out together. Beyond the
values of training they widen further, by what was missed where the largest values of a feature
were left out.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from p3s.base.arrays import Bools, Floats, Ints
from p3s.base.artefacts import write_json
from p3s.base.errors import OtherVersion, P3SError
from p3s.base.serialise import FileFormat
from p3s.base.text import percent
from p3s.methods.placement.lines import FITS, Line, Product, feature_of
from p3s.methods.placement.ranking import Agreement, agreement
from p3s.methods.placement.trees import Trees, of_boosting, require_sklearn
from p3s.predict.types import Reason
from p3s.simulate.network import Network

#: Share of the times that intervals are to hold.
HELD = 0.9
_FOLDS = 5
#: Share of the rows that are left out for the large values of a feature.
_LARGE = 0.25
#: A line says at least so many seconds.
_LEAST_S = 1e-12
#: Features that a split chooses from at least, where there are as many.
_FEW = 5
#: Shrinkage leaves this share of what there is to learn; more is a warning.
_LEFT = 0.05


@dataclass(frozen=True)
class Widening:
    """What is added to both ends of an interval, of the logarithm of the time.

    ``always``; ``doubling``: for each doubling that a feature is beyond the values of training.
    """

    always: float = 0.0
    doubling: float = 0.0

    def at(self, beyond: Floats) -> Floats:
        """Return what is added to the ends of phases that are so many doublings beyond."""
        return self.always + self.doubling * beyond


def measure_miss(low: Floats, high: Floats, truth: Floats) -> Floats:
    """Return by how much truth is outside of intervals; less than 0 where it is inside."""
    return np.maximum(low - truth, truth - high)


def doublings(rows: Floats, least: Floats, most: Floats) -> Floats:
    """Return by how many doublings the farthest feature of each row is beyond the box.

    Of features that are counts or bytes: 1 is added to all, so that 0 is a value like others.
    """
    if not rows.shape[1]:
        return np.zeros(len(rows))
    values, low, high = (np.log2(1.0 + np.maximum(x, 0.0)) for x in (rows, least, most))
    return np.asarray(np.maximum(values - high, low - values).max(axis=1).clip(0.0))


def widening(near: Sequence[Floats], far: Floats, beyond: Floats) -> Widening:
    """Return how far intervals have to be widened.

    ``near``: what was missed of groups left out, for each way to group: intervals are to hold
    whichever is left out. ``far``: of rows left out for their large values,
    ``beyond``: by how many doublings these are beyond the others.
    """
    always = max(map(_held, near))
    rows = beyond > 0
    if not rows.any():
        return Widening(always)
    return Widening(always, max(_held((far[rows] - always) / beyond[rows]), 0.0))


def _held(values: Floats) -> float:
    return float(np.quantile(values, min(HELD * (1 + 1 / len(values)), 1.0)))


@dataclass(frozen=True)
class Settings:
    """How trees are fitted. ``share``: of the rows of a tree, of the features of each split."""

    trees: int = 400
    rate: float = 0.05
    depth: int = 6
    leaf: int = 2
    share: tuple[float, float] = (0.7, 0.5)
    seed: int = 0

    @property
    def left(self) -> float:
        """Share of what there is to learn that shrinkage leaves."""
        return float((1.0 - self.rate) ** self.trees)


@dataclass(frozen=True)
class Way:
    """What a model is made of: features, and products of them of which a line goes first.

    ``fit``: how the line is fitted (p3s.methods.placement.lines.FITS).
    """

    names: tuple[str, ...]
    first: tuple[Product, ...] = ()
    fit: str = ""
    settings: Settings = Settings()


@dataclass(frozen=True)
class Card:
    """What a model is of, and how good it was where it had not seen the phases.

    ``machine``, ``network``: where its phases were measured. ``rows``, ``groups``: how many of
    them. ``caveats``: codes of what limits it. ``features``: code of those that it uses.
    ``compared``: scores of other ways to tell the times of the same phases, by their codes.
    ``facts``: how they were measured, by name. ``named``: whether somebody said what the machine is
    called; else ``machine`` only says what it was measured with. ``topology``: its network, as it
    was described, "" where nobody did.
    """

    machine: str
    network: str
    rows: int
    groups: int
    settings: Settings = Settings()
    scores: Agreement | None = None
    caveats: tuple[str, ...] = ()
    features: str = ""
    compared: Mapping[str, Agreement] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    named: bool = True
    topology: str = ""


#: Mean error of held-out phases above which times are known roughly, and above which nothing
#: speaks for them: what class C and the best formula of measured latencies and bandwidths missed on
#: ARIS, the worst of three machines (Papadopoulou 2017, section 6.3.3).
ROUGH, POOR = 0.2661, 0.4484


def doubts(card: Card) -> list[Reason]:
    """Return what a model's errors on phases that it had not seen say against its times."""
    error = card.scores.mmre if card.scores is not None else float("inf")
    if error <= ROUGH:
        return []
    message = (
        f"the learned model ({card.features or 'trees'}) misses phases that it had not seen by "
        f"{percent(error)} (limit {percent(POOR if error > POOR else ROUGH)})"
        if np.isfinite(error)
        else "the learned model was checked on no phases that it had not seen"
    )
    advice = "learn it from more phases (p3s machine learn --phases, --budget), or by another --way"
    return [Reason("learned-off", message, advice, error > POOR, error <= POOR)]


@dataclass(frozen=True, eq=False)
class PhaseEstimates:
    """Seconds of phases, ends of their intervals, and the features outside the training."""

    seconds: Floats
    low: Floats
    high: Floats
    outside: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, eq=False)
class LearnedModel:
    """A model with what it was trained on.

    ``names``: features, in the order of their columns. ``least``, ``most``: their values in
    training. ``middle``: logarithm of the seconds, over what ``first`` says if that is there;
    ``low``, ``high``: ends of the interval, which ``wider`` is added to. ``network``: what
    messages cost, where a feature is the simulated time.
    """

    card: Card
    names: tuple[str, ...]
    least: Floats
    most: Floats
    wider: Widening
    first: Line | None
    network: Network | None
    middle: Trees
    low: Trees
    high: Trees

    def valid(self) -> None:
        """Raise ValueError where ends of features, trees, or the line are of other features."""
        if not len(self.least) == len(self.most) == len(self.names) == len(set(self.names)):
            raise ValueError("the values of its features do not fit their names")
        if (self.least > self.most).any():
            raise ValueError("the least value of a feature is above the most")
        line = self.first
        if line is not None and (
            not {feature_of(x) for product in line.products for x in product} <= set(self.names)
            or len(line.products) != len(line.coefficients)
        ):
            raise ValueError("the line that goes first does not fit its features")
        for trees in (self.middle, self.low, self.high):
            trees.check(len(self.names))

    def predict(self, rows: Sequence[Mapping[str, float]]) -> PhaseEstimates:
        """Return the times of phases from their features. Errors: P3SError for a missing one."""
        x = columns(rows, self.names)
        middle, low, high = _logarithms(
            self.first, self.names, (self.middle, self.low, self.high), x
        )
        wider = self.wider.at(doublings(x, self.least, self.most))
        out = (x < self.least) | (x > self.most)
        return PhaseEstimates(
            np.exp(middle),
            np.exp(np.minimum(low - wider, middle)),
            np.exp(np.maximum(high + wider, middle)),
            tuple(tuple(np.array(self.names)[row].tolist()) for row in out),
        )

    def check(self, machine: str, network: str) -> None:
        """Raise P3SError where the model is one of another machine or network; "" is any.

        A machine that nobody has named may be any.
        """
        card = self.card
        if network and card.network != network:
            topology_hint = (
                f"give --topology {shlex.quote(card.topology)}, or " if card.topology else ""
            )
            raise P3SError(
                f"the communication model is of network {card.network}, not of {network}; "
                f"{topology_hint}learn one there"
            )
        if machine and card.named and card.machine != machine:
            raise P3SError(
                f"the communication model is of machine {card.machine}, not of {machine}; learn "
                f"one there, with p3s machine learn --name {shlex.quote(machine)}"
            )


def columns(rows: Sequence[Mapping[str, float]], names: Sequence[str]) -> Floats:
    """Return the named features of phases, shape (phases, names). Errors: P3SError."""
    missing = [name for name in names if any(name not in row for row in rows)]
    if missing:
        raise P3SError(f"feature {missing[0]} is missing; the model needs {len(names)} of them")
    table = np.array([[row[name] for name in names] for row in rows], dtype=np.float64)
    return table.reshape(len(rows), len(names))


def learn(
    rows: Sequence[Mapping[str, float]],
    seconds: Floats,
    groups: Ints,
    way: Way,
    *,
    machine: str = "",
    network: str = "",
    apart: Sequence[Ints] = (),
    beyond: Sequence[str] = (),
) -> LearnedModel:
    """Return a model of measured phases.

    ``groups``: what belongs together (an allocation, a program) and is left out together for the
    scores of the card. ``apart``: other groups, of what unseen phases may differ in, that are left
    out to see how wide intervals have to be. ``beyond``: features whose largest values are left out
    for the same. Errors: P3SError with fewer than 20 phases, times that are none, and without
    scikit-learn.
    """
    data = _data(rows, seconds, groups, way)
    unseen = data.unseen(groups)
    line, trees = data.fitted(np.ones(len(data.seconds), dtype=bool))
    scores = agreement(data.seconds, np.exp(unseen[0]))
    card = Card(
        machine, network, len(data.seconds), len(np.unique(groups)), way.settings,
        scores if np.isfinite(scores.score) else None, tuple(_caveats(way.settings, groups)),
    )  # fmt: skip
    near = [data.missed_by(ends) for ends in (unseen, *map(data.unseen, apart))]
    return LearnedModel(
        card,
        way.names,
        data.x.min(axis=0),
        data.x.max(axis=0),
        widening(near, *data.beyond([name for name in beyond if name in way.names])),
        line,
        None,
        *trees,
    )


def cross_validated(
    rows: Sequence[Mapping[str, float]], seconds: Floats, groups: Ints, way: Way
) -> Agreement:
    """Return how good models are on groups that they have not seen."""
    data = _data(rows, seconds, groups, way)
    return agreement(data.seconds, np.exp(data.unseen(groups, ends=False)[0]))


@dataclass(frozen=True, eq=False)
class _Data:
    """Measured phases, and how models are fitted to them."""

    x: Floats
    seconds: Floats
    way: Way

    def fitted(self, rows: Bools, ends: bool = True) -> tuple[Line | None, tuple[Trees, ...]]:
        """Return the line and trees of some rows; ``ends``: also the ends of the interval."""
        x, t, way = self.x[rows], self.seconds[rows], self.way
        line = None
        if way.first or way.fit:
            line = FITS[way.fit](way.first, dict(zip(way.names, x.T, strict=True)), t)
        y = np.log(t) - _logarithms(line, way.names, (), x)
        return line, _boost_trees(x, y, way.settings, ends)

    def logarithms(self, rows: Bools, out: Bools, ends: bool = True) -> Floats:
        """Return what is fitted to some rows says of others, shape (ensembles, rows)."""
        line, trees = self.fitted(rows, ends)
        return _logarithms(line, self.way.names, trees, self.x[out])

    def unseen(self, groups: Ints, ends: bool = True) -> Floats:
        """Return middle, low and high of each row from models that have not seen its group."""
        ends_of = np.zeros((3 if ends else 1, len(self.seconds)))
        fold = _left_out(groups, self.way.settings.seed)
        for number in np.unique(fold):
            out = fold == number
            ends_of[:, out] = self.logarithms(~out, out, ends)
        return ends_of

    def missed_by(self, ends_of: Floats) -> Floats:
        """Return by how much intervals of all rows miss their times."""
        return measure_miss(ends_of[1], ends_of[2], np.log(self.seconds))

    def beyond(self, features: Sequence[str]) -> tuple[Floats, Floats]:
        """Return what is missed of rows with large values by the others, and how far they are."""
        off, far = [np.zeros(0)], [np.zeros(0)]
        for name in features:
            column = self.x[:, self.way.names.index(name)]
            out = column > np.quantile(column, 1 - _LARGE)
            if min(out.sum(), (~out).sum()) < _FEW:
                continue
            _, low, high = self.logarithms(~out, out)
            inner = self.x[~out]
            off.append(measure_miss(low, high, np.log(self.seconds[out])))
            far.append(doublings(self.x[out], inner.min(axis=0), inner.max(axis=0)))
        return np.concatenate(off), np.concatenate(far)


def _data(rows: Sequence[Mapping[str, float]], seconds: Floats, groups: Ints, way: Way) -> _Data:
    require_sklearn("learning the times of phases")
    x, t = columns(rows, way.names), np.asarray(seconds, dtype=np.float64)
    if len(t) < 20 or len(t) != len(x):
        raise P3SError(f"{len(t)} phases are too few for a model; measure 20 or more")
    if not (np.isfinite(t).all() and t.min() > 0):
        raise P3SError("a phase took no time, or what is no time; leave it out")
    if len(groups) != len(t):
        raise P3SError(f"{len(groups)} groups for {len(t)} phases")
    return _Data(x, t, way)


def _logarithms(
    line: Line | None, names: Sequence[str], trees: Sequence[Trees], x: Floats
) -> Floats:
    """Return what a line and ensembles of trees on it say of rows, shape (ensembles, rows).

    Without trees what the line says, shape (rows,), 0 without a line.
    """
    base = np.zeros(len(x))
    if line is not None and len(x):
        line_seconds = line.seconds(dict(zip(names, x.T, strict=True)))
        base = np.asarray(np.log(np.maximum(line_seconds, _LEAST_S)), dtype=np.float64)
    return np.stack([base + each.predict(x) for each in trees]) if trees else base


def _caveats(settings: Settings, groups: Ints) -> Iterator[str]:
    if settings.left > _LEFT:
        yield "not-converged"
    if len(np.unique(groups)) < 2:
        yield "one-group"


def _left_out(groups: Ints, seed: int) -> Ints:
    """Return which fold each row is in; rows of a group are in one, a single group is split."""
    names, of = np.unique(groups, return_inverse=True)
    of = of.ravel()
    if len(names) < 2:
        names, of = np.arange(_FOLDS), np.arange(len(groups)) % _FOLDS
    mixed = np.random.default_rng(seed).permutation(len(names))
    return np.asarray((mixed % min(_FOLDS, len(names)))[of], dtype=np.int64)


def _boost_trees(x: Floats, y: Floats, settings: Settings, ends: bool) -> tuple[Trees, ...]:
    from sklearn.ensemble import GradientBoostingRegressor

    number = x.shape[1]
    features_tried = min(max(round(settings.share[1] * number), _FEW), number)

    def fit(**loss: Any) -> Trees:
        model = GradientBoostingRegressor(
            n_estimators=settings.trees,
            learning_rate=settings.rate,
            max_depth=settings.depth,
            min_samples_leaf=settings.leaf,
            subsample=settings.share[0],
            max_features=features_tried,
            random_state=settings.seed,
            **loss,
        )
        return of_boosting(model.fit(x, y))

    edge = (1 - HELD) / 2
    quantiles = (edge, 1 - edge) if ends else ()
    return fit(loss="absolute_error"), *(fit(loss="quantile", alpha=a) for a in quantiles)


MODEL = FileFormat(
    "p3s.communication",
    2,
    LearnedModel,
    more=True,
    again="learn it again: p3s machine learn",
    show="p3s.methods.placement.training.card:shown",
)


def save(path: Path, model: LearnedModel) -> None:
    """Write a model as an artefact of numbers. Errors: P3SError."""
    write_json(path, MODEL.data(model))


def load(path: Path) -> LearnedModel:
    """Read a model. Errors: P3SError, in one line, where it cannot be read or is damaged."""
    try:
        return MODEL.read(path)
    except OtherVersion as err:
        raise OtherVersion(
            f"{path}: a communication model of another version of p3s; learn it again"
        ) from err
