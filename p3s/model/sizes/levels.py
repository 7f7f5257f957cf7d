"""Sizes that follow the stage of an exchange or the iteration of a loop: levels, halves, chunks.

A scalar law in the iteration alone first; then what the finest level obeys, halved (or grouped in
pairs) from level to level; then a fixed chunk with a short last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np

from p3s.laws.counts import MAX_DENOMINATOR
from p3s.laws.exact import evaluate_int, roundness
from p3s.laws.expr import Expr, add, evaluate, mul, num, power, sym
from p3s.laws.lawfinder import find_law
from p3s.model.sizes.blocks import ExtentPool, FittedSize, Observations
from p3s.model.sizes.positions import moving

Recurse = Callable[[Observations, ExtentPool], FittedSize | None]


def _last(obs: Observations, u: str) -> Expr | None:
    """Return the law of the largest iteration (or stage) of each count: their number less one."""
    envs, values = [], []
    for n in np.unique(obs.env["n"]):
        rows = obs.env["n"] == n
        envs.append(
            {"n": int(n), **{f"p{d}": int(obs.env[f"p{d}"][rows][0]) for d in range(obs.ndims)}}
        )
        values.append(1 + int(obs.env[u][rows].max()))
    law = find_law(zip(envs, values, strict=True), "whole").law
    return add(law.expr, num(-1)) if law is not None and law.free < law.points else None


def _exponents(obs: Observations, u: str) -> Iterator[Expr]:
    yield sym(u)
    last = _last(obs, u)
    if last is not None:
        yield add(last, mul(num(-1), sym(u)))


def scalar_law(obs: Observations) -> tuple[Expr, int] | None:
    """Return (law, free numbers) of sizes that all ranks share at each count and iteration, or
    None."""
    value = obs.value
    if np.all(value == value[0]):
        return num(int(value[0])), int(value[0] != 1)
    key = obs.env["n"].copy()
    for u in ("t", "s"):
        if u in obs.env:
            key = key * (int(obs.env[u].max()) + 1) + obs.env[u]
    _, first, same = np.unique(key, return_index=True, return_inverse=True)
    if np.any(value[first][same] != value):
        return None
    obs = obs.take(first)
    if not _follows(obs):
        return _plain(obs)
    if len(np.unique(obs.value)) < 3 or len(np.unique(obs.env["n"])) < 2:
        return None
    shapes = list(_shapes(obs))
    for fit in (_ratio, _rounded):
        for shape in shapes:
            at = np.asarray(evaluate(shape, obs.env), dtype=float)
            if np.all(np.isfinite(at)) and np.any(at != at[0]):
                law = fit(shape, at, obs.value)
                if law is not None:
                    return law, 1
    return None


def _follows(obs: Observations) -> bool:
    """Tell whether the sizes of one count differ."""
    return any(len(np.unique(obs.value[obs.env["n"] == n])) > 1 for n in np.unique(obs.env["n"]))


def _plain(obs: Observations) -> tuple[Expr, int] | None:
    """Return a law in the count and the extents."""
    _, rows = np.unique(obs.env["n"], return_index=True)
    names = ["n", *(f"p{d}" for d in range(obs.ndims))]
    law = find_law(
        (({k: int(obs.env[k][i]) for k in names}, int(obs.value[i])) for i in rows), "whole"
    ).law
    return (law.expr, law.free) if law is not None and law.free < law.points else None


def _shapes(obs: Observations) -> Iterator[Expr]:
    over = [num(1), power(sym("n"), -1)]
    if obs.ndims > 1:
        over += [power(sym(f"p{d}"), -1) for d in range(obs.ndims)]
    over.append(sym("n"))
    for u in moving(obs):
        levels: list[Expr] = []
        for e in _exponents(obs, u):
            levels += [["exp2", mul(num(-1), e)], ["exp2", e]]
        linear = [add(sym(u), num(k)) for k in (1, 0, 2)]
        ends = [
            sym("n"),
            *(sym(f"p{d}") for d in range(obs.ndims if obs.ndims > 1 else 0)),
            num(int(obs.env[u].max()) + 1),
        ]
        linear += [add(end, num(-k), mul(num(-1), sym(u))) for end in ends for k in (0, 1, 2)]
        for shape in (*levels, *linear):
            for o in over:
                yield mul(shape, o)


def _ratio(shape: Expr, at: np.ndarray, value: np.ndarray) -> Expr | None:
    k = int(np.argmax(np.abs(at)))
    if at[k] == 0:
        return None
    factor = Fraction(float(value[k] / at[k])).limit_denominator(MAX_DENOMINATOR)
    if factor <= 0 or np.any(np.abs(float(factor) * at - value) > 1e-9 * np.maximum(1, value)):
        return None
    return mul(num(factor), shape)


def _rounded(shape: Expr, at: np.ndarray, value: np.ndarray) -> Expr | None:
    if np.any(at <= 0):
        return None
    for op, low, high in (
        ("floor", value / at, (value + 1) / at),
        ("ceil", (value - 1) / at, value / at),
    ):
        # the bound that counts is open: an extent just below, or just above
        a = int(np.ceil(low.max() - 1e-9)) if op == "floor" else int(np.floor(low.max() + 1e-9)) + 1
        b = (
            int(np.ceil(high.min() - 1e-9)) - 1
            if op == "floor"
            else int(np.floor(high.min() + 1e-9))
        )
        if 8 <= a <= b <= a + 4096:
            best = max(range(a, b + 1), key=roundness)
            law: Expr = [op, mul(num(best), shape)]
            if np.all(np.rint(evaluate(law, {})) == value) if _constant(shape) else True:
                return law
    return None


def _constant(shape: Expr) -> bool:
    result: bool = shape[0] == "num"
    return result


def fit_levels(obs: Observations, pool: ExtentPool, recurse: Recurse) -> FittedSize | None:
    """Return the law of the finest level carried to all levels, or None.

    recurse: fits the sizes of one level.
    """
    points = len(np.unique(obs.env["n"]))
    for u in moving(obs):
        for at_end, e in enumerate(_exponents(obs, u)):
            edge = np.zeros(len(obs.value), dtype=np.int64)
            for n in np.unique(obs.env["n"]):
                rows = obs.env["n"] == n
                edge[rows] = obs.env[u][rows].max() if at_end else obs.env[u][rows].min()
            if not at_end and np.any(edge) or not _scales(obs, e, obs.env[u] == edge):
                continue
            level = obs.take(obs.env[u] == edge)
            level.env[u] = np.zeros(len(level.value), dtype=np.int64)
            law = recurse(level, pool)
            if law is None:
                continue
            groups = np.exp2(np.asarray(evaluate(e, obs.env), dtype=float)).max()
            grouped = groups <= obs.env["n"].max()
            laws = (law.expr, *law.others)
            for expr in (x for one in laws for x in _coarser(one, e, grouped)):
                if np.array_equal(evaluate_int(expr, obs.env, undefined=-1), obs.value):
                    return FittedSize(expr, law.free, points, law.even, law.rivals)
    return None


def _scales(obs: Observations, e: Expr, finest: np.ndarray) -> bool:
    """Tell whether the coarsest level is smaller or larger by about a power of 2**e at all.

    Sizes that depend on the data are of one magnitude at all iterations; this is seen at once.
    """
    level = np.asarray(evaluate(e, obs.env), dtype=float) + np.zeros(len(obs.value))
    top = float(level.max(initial=0.0))
    mean, far = float(obs.value[finest].mean()), float(obs.value[level == top].mean())
    if top < 2 or mean < 4.0 * 2.0**top or far <= 0:
        return True  # too near to each other, or rounding is all there is
    result: bool = abs(np.log2(far / mean)) >= 0.5 * top - 0.5
    return result


def _coarser(expr: Expr, e: Expr, grouped: bool) -> Iterator[Expr]:
    """Yield the ways in which a law of the finest level goes on to coarser ones.

    grouped: the blocks of a group of 2**e ranks may go together.
    """
    ways = range(6 if grouped else 5)
    two: Expr = ["exp2", e]

    def up(x: Expr) -> Expr:
        return ["quot", add(x, two, num(-1)), two]

    def inside(b: Expr, how: int) -> Expr:
        kind, extent, p, c = b[1:]
        if how == 0:
            return ["block", kind, ["quot", extent, two], p, c]
        if how == 1:
            return ["block", kind, up(extent), p, c]
        if how == 2:
            return ["quot", b, two]
        if how == 3:
            return up(b)
        if how == 4:
            return ["block", kind, mul(extent, two), p, c]
        first = mul(["quot", c, two], two)
        return ["sum", two, ["block", kind, extent, p, add(first, sym("j"))]]

    blocks = blocks_in(expr)
    for how in ways if blocks else ():
        yield replaced(expr, lambda b, how=how: inside(b, how))  # type: ignore[misc]
    if len(blocks) > 1:
        for only in blocks:
            for how in ways:
                yield replaced(
                    expr,
                    lambda b, how=how, only=only: (  # type: ignore[misc]
                        inside(b, how) if b == only else b
                    ),
                )
    yield ["quot", expr, two]
    yield up(expr)
    yield mul(two, expr)


def blocks_in(expr: Expr) -> list[Expr]:
    """Return all blocks in an equation."""
    if expr[0] == "block":
        return [expr]
    return [b for a in expr[1:] if isinstance(a, list) for b in blocks_in(a)]


def replaced(expr: Expr, by: Callable[[Expr], Expr]) -> Expr:
    """Return an equation with every block replaced."""
    if expr[0] == "block":
        return by(expr)
    return [replaced(a, by) if isinstance(a, list) else a for a in expr]


def fit_chunks(obs: Observations, pool: ExtentPool, recurse: Recurse) -> FittedSize | None:
    """Return the law of a message cut into chunks of one size, the last one short, or None.

    The first iteration is 0 on every rank and none is left out.
    """
    if moving(obs) != ["t"]:
        return None
    chunk = int(obs.value.max())
    t = obs.env["t"]
    _, first, which = np.unique(
        np.stack([obs.env["n"], obs.env["r"], obs.env["s"]]),
        axis=1,
        return_index=True,
        return_inverse=True,
    )
    last = np.zeros(len(first), dtype=np.int64)
    np.maximum.at(last, which, t)
    total = np.zeros(len(first), dtype=np.int64)
    np.add.at(total, which, obs.value)
    if np.any(np.bincount(which) != last + 1) or np.any((obs.value != chunk) & (t < last[which])):
        return None
    whole = obs.take(first).of(total)
    whole.env["t"] = np.zeros(len(first), dtype=np.int64)
    law = recurse(whole, pool)
    if law is None:
        return None
    left = add(law.expr, mul(num(-chunk), sym("t")))
    return FittedSize(
        ["min", num(chunk), ["max", left, num(0)]],
        law.free + 1,
        law.points,
        law.even,
        law.rivals,
        law.others,
    )
