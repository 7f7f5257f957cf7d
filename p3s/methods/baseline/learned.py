"""Learned models, fitted by scikit-learn (optional) and evaluated here from plain numbers.

A saved model is numbers only: nothing of it is ever run as code, and it predicts the same without
scikit-learn. Features are log2 of the count and of the inputs, standardised; what is learned is
log2 of the time, so that relative errors are what is made small. Source of the network's shape:
Ipek et al. (16 hidden sigmoid units), as Kazmina and Antonov give it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from p3s.base.arrays import Floats
from p3s.base.errors import P3SError

HIDDEN = 16
TREES = 100
#: Width of the Gaussian of rbf and svm, in standardised features.
GAMMA = 0.5
WHAT = {
    "mlp": f"a network of one layer of {HIDDEN} sigmoid units",
    "forest": f"a random forest of {TREES} trees; constant beyond what was run",
    "svm": "support vector regression with Gaussians",
    "rbf": "a sum of Gaussians around the runs",
}

Fit = Callable[[Floats, Floats, Floats, Floats, Sequence[str]], dict[str, Any]]


def fitter(name: str) -> Fit:
    """Return what fits the learned model ``name``."""

    def fit(q: Floats, t: Floats, x: Floats, w: Floats, _names: Sequence[str]) -> dict[str, Any]:
        _needed(name)
        raw = _features(q, x)
        middle, width = raw.mean(axis=0), raw.std(axis=0)
        width[width == 0] = 1.0
        target = np.log2(t)
        centre, size = float(target.mean()), float(target.std()) or 1.0
        importance = (w * t) ** 2
        found = _FITS[name](
            (raw - middle) / width, (target - centre) / size, importance / importance.mean()
        )
        return {
            "kind": name,
            "middle": middle.tolist(),
            "width": width.tolist(),
            "centre": centre,
            "size": size,
            **found,
        }

    return fit


def _needed(name: str) -> None:
    try:
        import sklearn  # noqa: F401
    except ImportError as error:
        raise P3SError(
            f"{name}: needs scikit-learn, which is not installed; pip install 'p3s[baseline]'"
        ) from error


def _features(q: Floats, x: Floats) -> Floats:
    if (x <= 0).any():
        raise P3SError("an input is zero or negative, so it has no logarithm; leave it out")
    return np.column_stack([np.log2(q), np.log2(x)])


def value(p: Mapping[str, Any], q: Floats, x: Floats) -> Floats:
    """Return T in seconds of a learned model."""
    z = (_features(q, x) - np.array(p["middle"])) / np.array(p["width"])
    return np.asarray(np.exp2(_VALUES[p["kind"]](p, z) * p["size"] + p["centre"]))


# ---- network -------------------------------------------------------------------------------


def _fit_mlp(z: Floats, y: Floats, _importance: Floats) -> dict[str, Any]:
    import warnings

    from sklearn.neural_network import MLPRegressor

    net = MLPRegressor(
        hidden_layer_sizes=(HIDDEN,),
        activation="logistic",
        solver="lbfgs",
        alpha=1e-3,
        max_iter=5000,
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it could be trained for longer
        net.fit(z, y)
    layers = [
        {"weights": weights.tolist(), "shift": shift.tolist()}
        for weights, shift in zip(net.coefs_, net.intercepts_, strict=True)
    ]
    return {"layers": layers, "n_params": sum(w.size for w in [*net.coefs_, *net.intercepts_])}


def _mlp(p: Mapping[str, Any], z: Floats) -> Floats:
    first, last = p["layers"]
    hidden = z @ np.array(first["weights"]) + np.array(first["shift"])
    hidden = 1.0 / (1.0 + np.exp(-hidden))
    return np.asarray((hidden @ np.array(last["weights"]) + np.array(last["shift"]))[:, 0])


# ---- forest --------------------------------------------------------------------------------


def _fit_forest(z: Floats, y: Floats, importance: Floats) -> dict[str, Any]:
    from sklearn.ensemble import RandomForestRegressor

    forest = RandomForestRegressor(TREES, random_state=0)
    forest.fit(z, y, sample_weight=importance)
    trees = []
    for each in forest.estimators_:
        tree = each.tree_
        trees.append(
            {
                "left": tree.children_left.tolist(),
                "right": tree.children_right.tolist(),
                "feature": tree.feature.tolist(),
                "threshold": tree.threshold.tolist(),
                "value": tree.value[:, 0, 0].tolist(),
            }
        )
    return {"trees": trees, "n_params": sum(len(tree["value"]) for tree in trees)}


def _forest(p: Mapping[str, Any], z: Floats) -> Floats:
    z = z.astype(np.float32).astype(np.float64)  # scikit-learn compares single precision
    result: Floats = np.mean([_tree(tree, z) for tree in p["trees"]], axis=0)
    return result


def _tree(tree: Mapping[str, Any], z: Floats) -> Floats:
    left, right = np.array(tree["left"]), np.array(tree["right"])
    feature, threshold = np.array(tree["feature"]), np.array(tree["threshold"])
    at = np.zeros(len(z), dtype=np.int64)
    while (inner := left[at] >= 0).any():
        down = z[np.arange(len(z)), np.where(inner, feature[at], 0)] <= threshold[at]
        at = np.where(inner, np.where(down, left[at], right[at]), at)
    return np.asarray(np.array(tree["value"])[at])


# ---- Gaussians -----------------------------------------------------------------------------


def _fit_svm(z: Floats, y: Floats, importance: Floats) -> dict[str, Any]:
    from sklearn.svm import SVR

    machine = SVR(kernel="rbf", gamma=GAMMA, C=100.0, epsilon=0.01).fit(z, y, importance)
    return {
        "centres": machine.support_vectors_.tolist(),
        "heights": machine.dual_coef_[0].tolist(),
        "level": float(machine.intercept_[0]),
        "n_params": len(machine.support_) + 1,
    }


def _fit_rbf(z: Floats, y: Floats, importance: Floats) -> dict[str, Any]:
    from sklearn.kernel_ridge import KernelRidge

    ridge = KernelRidge(alpha=1e-3, kernel="rbf", gamma=GAMMA).fit(z, y, importance)
    return {
        "centres": z.tolist(),
        "heights": ridge.dual_coef_.tolist(),
        "level": 0.0,
        "n_params": len(z),
    }


def _gaussians(p: Mapping[str, Any], z: Floats) -> Floats:
    centres = np.array(p["centres"])
    squares = ((z[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2)
    return np.asarray(np.exp(-GAMMA * squares) @ np.array(p["heights"]) + p["level"])


_FITS: dict[str, Callable[[Floats, Floats, Floats], dict[str, Any]]] = {
    "mlp": _fit_mlp,
    "forest": _fit_forest,
    "svm": _fit_svm,
    "rbf": _fit_rbf,
}
_VALUES: dict[str, Callable[[Mapping[str, Any], Floats], Floats]] = {
    "mlp": _mlp,
    "forest": _forest,
    "svm": _gaussians,
    "rbf": _gaussians,
}
