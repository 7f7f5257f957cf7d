"""Models that predict the time of a phase from its features, learned from measured phases.

Boosted trees with absolute loss (GBRT of Papadopoulou 2017) or extremely randomised trees (Jain et
al., SC13), of the logarithm of the time: else only the longest phases count. Scores are those of
groups (allocations, programs) that a model has not seen. Trees say nothing beyond the values that
they were trained with, so each prediction tells which features are outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from p3s.artefacts import read_json, write_json
from p3s.errors import Damaged, P3SError
from p3s.placement.ranking import Agreement, agreement
from p3s.placement.trees import Trees, needed, of_boosting, of_forest, trees_from
from p3s.serialise import ShapeError, from_data
from p3s.topology.units import Floats, Ints

BOOSTED, RANDOM = "boosted", "random"
_SCHEMA, _VERSION = "p3s.communication", 1
#: Names of a model's three ensembles.
_TREES = ("middle", "low", "high")
#: Share of the times that intervals are to hold.
_HELD = 0.9
_FOLDS = 5
#: Features that a split chooses from at least, where there are as many.
_FEW = 5
#: Shrinkage leaves this share of what there is to learn; more is a warning.
_LEFT = 0.05


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
class Card:
    """What a model is of, and how good it was where it had not seen the phases.

    ``machine``, ``network``: where its phases were measured. ``rows``, ``groups``: how many of
    them. ``caveats``: codes of what limits it.
    """

    kind: str
    machine: str
    network: str
    rows: int
    groups: int
    settings: Settings = Settings()
    scores: Agreement | None = None
    caveats: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outside:
    """A feature that is outside the values of training, and on which side."""

    feature: str
    above: bool


@dataclass(frozen=True, eq=False)
class Predicted:
    """Seconds of phases, the ends of their intervals, and what is outside the training."""

    seconds: Floats
    low: Floats
    high: Floats
    outside: tuple[tuple[Outside, ...], ...]


@dataclass(frozen=True, eq=False)
class Learned:
    """A model with what it was trained on.

    ``names``: features, in the order of their columns. ``least``, ``most``: their values in
    training. ``middle``: logarithm of the seconds; ``low``, ``high``: ends of the interval, which
    ``wider`` (of the logarithm) is added to.
    """

    card: Card
    names: tuple[str, ...]
    least: Floats
    most: Floats
    middle: Trees
    low: Trees
    high: Trees
    wider: float = field(default=0.0)

    def predict(self, rows: Sequence[Mapping[str, float]]) -> Predicted:
        """Return the times of phases from their features. Errors: P3SError for a missing one."""
        x = columns(rows, self.names)
        middle = self.middle.predict(x)
        low = np.minimum(self.low.predict(x) - self.wider, middle)
        high = np.maximum(self.high.predict(x) + self.wider, middle)
        outside = tuple(tuple(self._outside(row)) for row in x)
        return Predicted(np.exp(middle), np.exp(low), np.exp(high), outside)

    def _outside(self, row: Floats) -> Iterator[Outside]:
        for k in np.flatnonzero((row < self.least) | (row > self.most)).tolist():
            yield Outside(self.names[k], bool(row[k] > self.most[k]))

    def check(self, machine: str, network: str) -> None:
        """Raise P3SError where the model is one of another machine or network."""
        for what, own, other in (
            ("machine", self.card.machine, machine),
            ("network", self.card.network, network),
        ):
            if own != other:
                raise P3SError(
                    f"the communication model is of {what} {own}, not of {other}; learn one there"
                )


def columns(rows: Sequence[Mapping[str, float]], names: Sequence[str]) -> Floats:
    """Return the named features of phases, shape (phases, names). Errors: P3SError."""
    missing = [name for name in names if any(name not in row for row in rows)]
    if missing:
        raise P3SError(f"feature {missing[0]} is missing; the model needs {len(names)} of them")
    found = np.array([[row[name] for name in names] for row in rows], dtype=np.float64)
    return found.reshape(len(rows), len(names))


def learn(
    rows: Sequence[Mapping[str, float]],
    seconds: Floats,
    groups: Ints,
    names: Sequence[str],
    *,
    kind: str = BOOSTED,
    machine: str = "",
    network: str = "",
    settings: Settings = Settings(),
) -> Learned:
    """Return a model of measured phases.

    ``groups``: what belongs together (an allocation, a program) and is left out together for the
    scores of the card. Errors: P3SError with fewer than 20 phases, times that are none, and
    without scikit-learn.
    """
    needed("learning the times of phases")
    x, t = columns(rows, names), np.asarray(seconds, dtype=np.float64)
    if len(t) < 20 or len(t) != len(x) or len(groups) != len(t):
        raise P3SError(f"{len(t)} phases are too few for a model; measure 20 or more")
    if not (np.isfinite(t).all() and t.min() > 0):
        raise P3SError("a phase took no time, or what is no time; leave it out")
    y = np.log(t)
    unseen = _unseen(x, y, groups, kind, settings)
    made = _fitted(x, y, kind, settings)
    scores = agreement(t, np.exp(unseen[0]))
    card = Card(
        kind, machine, network, len(t), len(np.unique(groups)), settings,
        scores if np.isfinite(scores.score) else None, tuple(_caveats(kind, settings, groups)),
    )  # fmt: skip
    off = np.maximum(unseen[1] - y, y - unseen[2])
    wider = float(np.quantile(off, min(_HELD * (1 + 1 / len(off)), 1.0)))
    return Learned(card, tuple(names), x.min(axis=0), x.max(axis=0), *made, wider)


def cross_validated(
    rows: Sequence[Mapping[str, float]],
    seconds: Floats,
    groups: Ints,
    names: Sequence[str],
    *,
    kind: str = BOOSTED,
    settings: Settings = Settings(),
) -> Agreement:
    """Return how good models are on groups that they have not seen."""
    needed("learning the times of phases")
    t = np.asarray(seconds, dtype=np.float64)
    found = _unseen(columns(rows, names), np.log(t), groups, kind, settings)
    return agreement(t, np.exp(found[0]))


def ranked_features(
    rows: Sequence[Mapping[str, float]], seconds: Floats, names: Sequence[str]
) -> list[str]:
    """Return features, the one that matters most first.

    Recursive elimination by a linear support vector regression of the logarithms, as the source.
    """
    needed("choosing features")
    from sklearn.feature_selection import RFE
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import LinearSVR

    x = StandardScaler().fit_transform(np.log1p(columns(rows, names)))
    regression = LinearSVR(loss="squared_epsilon_insensitive", dual=False, random_state=0)
    found = RFE(regression, n_features_to_select=1).fit(x, np.log(seconds))
    return [names[k] for k in np.argsort(found.ranking_, kind="stable").tolist()]


def _caveats(kind: str, settings: Settings, groups: Ints) -> Iterator[str]:
    if kind == BOOSTED and settings.left > _LEFT:
        yield "not-converged"
    if len(np.unique(groups)) < 2:
        yield "one-group"


def _unseen(
    x: Floats, y: Floats, groups: Ints, kind: str, settings: Settings
) -> tuple[Floats, Floats, Floats]:
    """Return middle, low and high of each row from models that have not seen its group."""
    names, of = np.unique(groups, return_inverse=True)
    of = of.ravel()
    if len(names) < 2:  # nothing to leave out together: by rows
        names, of = np.arange(_FOLDS), np.arange(len(y)) % _FOLDS
    mixed = np.random.default_rng(settings.seed).permutation(len(names))
    fold = (mixed % min(_FOLDS, len(names)))[of]
    found = np.empty((3, len(y)))
    for number in np.unique(fold):
        out = fold == number
        for k, trees in enumerate(_fitted(x[~out], y[~out], kind, settings)):
            found[k, out] = trees.predict(x[out])
    return found[0], found[1], found[2]


def _fitted(x: Floats, y: Floats, kind: str, settings: Settings) -> tuple[Trees, Trees, Trees]:
    """Return trees of the middle and of both ends of the interval."""
    if kind not in _FITS:
        raise P3SError(f"{kind} is no kind of model; there are {', '.join(_FITS)}")
    return _FITS[kind](x, y, settings)


def _boosted(x: Floats, y: Floats, settings: Settings) -> tuple[Trees, Trees, Trees]:
    from sklearn.ensemble import GradientBoostingRegressor

    number = x.shape[1]
    seen = min(max(round(settings.share[1] * number), _FEW), number)

    def fit(**loss: Any) -> Trees:
        model = GradientBoostingRegressor(
            n_estimators=settings.trees,
            learning_rate=settings.rate,
            max_depth=settings.depth,
            min_samples_leaf=settings.leaf,
            subsample=settings.share[0],
            max_features=seen,
            random_state=settings.seed,
            **loss,
        )
        return of_boosting(model.fit(x, y))

    edge = (1 - _HELD) / 2
    low, high = (fit(loss="quantile", alpha=a) for a in (edge, 1 - edge))
    return fit(loss="absolute_error"), low, high


def _random(x: Floats, y: Floats, settings: Settings) -> tuple[Trees, Trees, Trees]:
    """Return one forest three times: how wide the interval is, groups that are left out say."""
    from sklearn.ensemble import ExtraTreesRegressor

    forest = ExtraTreesRegressor(
        settings.trees, min_samples_leaf=1, max_features=1.0, random_state=settings.seed
    )
    made = of_forest(forest.fit(x, y))
    return made, made, made


_FITS: Mapping[str, Callable[[Floats, Floats, Settings], tuple[Trees, Trees, Trees]]] = {
    BOOSTED: _boosted,
    RANDOM: _random,
}


def save(path: Path, model: Learned) -> None:
    """Write a model as an artefact of numbers. Errors: P3SError."""
    trees = {name: getattr(model, name).columns() for name in _TREES}
    write_json(
        path,
        {
            "schema": _SCHEMA,
            "schema_version": _VERSION,
            "card": asdict(model.card),
            "names": list(model.names),
            "least": model.least,
            "most": model.most,
            "wider": model.wider,
            **trees,
        },
    )


def load(path: Path) -> Learned:
    """Read a model. Errors: P3SError, in one line, where it cannot be read or is damaged."""
    data = read_json(path, _SCHEMA, _VERSION)
    try:
        return _read(data)
    except (ShapeError, KeyError, TypeError, ValueError) as err:
        raise Damaged(f"{path}: no communication model, or a damaged one; learn it again") from err
    except Damaged as err:
        raise Damaged(f"{path}: {err}; learn it again") from err


def _read(data: Mapping[str, Any]) -> Learned:
    names = from_data(tuple[str, ...], data["names"])
    least, most = (np.array(from_data(tuple[float, ...], data[key])) for key in ("least", "most"))
    if len(least) != len(names) or len(most) != len(names):
        raise Damaged("the values of its features do not fit their names")
    middle, low, high = (trees_from(data[name], len(names)) for name in _TREES)
    card, wider = from_data(Card, data["card"]), from_data(float, data["wider"])
    return Learned(card, names, least, most, middle, low, high, wider)
