"""Slots whose size or root changes from turn to turn: which turns a rank has, and what it sends.

A cell is one stage of one rank. Its iterations are ``first``, ``first + step``, ..., as many as the
law of their number says; the slot's count is that of all turns together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from p3s.laws.expr import Expr, add, evaluate, mul, num, sym
from p3s.laws.whole import evaluate_int
from p3s.model.law_types import IterationsLaw
from p3s.model.sizes.blocks import ExtentPool, Observations
from p3s.model.sizes.elements import fit_elements
from p3s.model.sizes.levels import scalar_law

Env = dict[str, np.ndarray]


def turns_matter(cell: np.ndarray, turn: np.ndarray, what: Sequence[np.ndarray]) -> bool:
    """Tell whether some cell has several sizes or roots and each of its iterations has one.

    cell, iteration and the columns of ``what``: one entry per row of one count.
    """
    order = np.lexsort((turn, cell))
    same_cell = cell[order][1:] == cell[order][:-1]
    same_turn = same_cell & (turn[order][1:] == turn[order][:-1])
    changes = np.zeros(len(same_cell), dtype=bool)
    for column in what:
        changes |= column[order][1:] != column[order][:-1]
    return bool(np.any(changes & same_cell)) and not np.any(changes & same_turn)


def fit_turns(
    parts: Sequence[tuple[Env, np.ndarray, np.ndarray]], ndims: int
) -> IterationsLaw | None:
    """Return the laws of the iterations of every cell, or None.

    parts: per count the symbols of each row, the number of its cell and how often it was made. All
    iterations of a cell have to be made equally often.
    """
    firsts, numbers, envs = [], [], []
    steps: set[int] = set()
    for env, cell, count in parts:
        order = np.lexsort((env["t"], cell))
        key, turn = cell[order], env["t"][order]
        start = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
        lengths = np.diff(np.append(start, len(key)))
        inside = key[1:] == key[:-1]
        steps |= set(np.unique(np.diff(turn)[inside]).tolist())
        if np.any(count[order][1:][inside] != count[order][:-1][inside]):
            return None
        firsts.append(turn[start])
        numbers.append(lengths)
        envs.append({k: v[order][start] for k, v in env.items()})
    if len(steps) > 1 or 0 in steps:
        return None
    names = set(envs[0])
    env = {k: np.concatenate([e[k] for e in envs]) for k in names}
    env["t"] = np.zeros(len(env["n"]), dtype=np.int64)
    laws = []
    for values in (firsts, numbers):
        law = fit_elements(Observations(env, np.concatenate(values), ndims), ExtentPool())
        if law is None or (law.free >= law.points and len(parts) > 1 and law.expr[0] != "num"):
            return None
        laws.append(law.expr)
    return IterationsLaw(steps.pop() if steps else 1, *laws)


def turns_at(
    law: IterationsLaw | None, env: Env, m: int
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield (iteration, which of m ranks have it, the how-manieth of how many) for every turn."""
    if law is None:
        yield 0, np.arange(m), np.stack([np.zeros(m, dtype=np.int64), np.ones(m, dtype=np.int64)])
        return
    first = np.broadcast_to(evaluate_int(law.first, env), (m,))
    number = np.broadcast_to(evaluate_int(law.number, env), (m,))
    step = law.step
    if not m or not number.any():
        return
    last = first + (number - 1) * step
    for t in range(int(first.min()), int(last.max()) + 1):
        has = np.flatnonzero((first <= t) & (t <= last) & ((t - first) % step == 0))
        if len(has):
            yield t, has, np.stack([(t - first[has]) // step, number[has]])


def share(total: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Return how many of ``total`` calls are made in one iteration (place: from
    :func:`turns_at`)."""
    out: np.ndarray = total // place[1] + (place[0] < total % place[1])
    return out


def fit_root(env: Env, root: np.ndarray, ndims: int) -> Expr | None:
    """Return the law of a root (its place in the communicator) in iterations, coordinates,
    counts."""

    def ring(e: Expr, p: str) -> Expr:
        return ["mod", e, sym(p)]

    extents = ["n", *(f"p{d}" for d in range(ndims if ndims > 1 else 0))]
    own: list[Callable[[], Iterator[Expr]]] = [
        lambda: (sym(f"c{d}") for d in range(ndims)),
        lambda: (e for e in (sym("t"),)),
        lambda: (ring(add(sym("t"), num(k)), p) for k in (0, 1, -1) for p in extents),
        lambda: (
            ring(add(sym(p), num(-k), mul(num(-1), sym("t"))), p)
            for k in (1, 0, 2)
            for p in extents
        ),
        lambda: (ring(add(sym(f"c{d}"), sym("t")), f"p{d}") for d in range(ndims)),
        lambda: (ring(add(sym(f"c{d}"), mul(num(-1), sym("t"))), f"p{d}") for d in range(ndims)),
        lambda: (ring(add(sym(f"c{d}"), num(k)), f"p{d}") for k in (1, -1) for d in range(ndims)),
    ]
    for group in own:
        for e in group():
            if np.array_equal(np.broadcast_to(np.rint(evaluate(e, env)), root.shape), root):
                return e
    law = scalar_law(Observations(env, root, ndims))
    return law[0] if law is not None else None
