"""Sizes that follow the stage of an exchange or the iteration of a loop: levels, halves, chunks.

A law in the iteration that all ranks share; what the finest level obeys, halved (or grouped in
pairs) from level to level; a fixed chunk with a short last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np

from p3s.laws.counts import MAX_DENOMINATOR
from p3s.laws.exact import evaluate_int, roundness
from p3s.laws.expr import Expr, add, evaluate, mul, num, power, sym
from p3s.laws.lawfinder import find_law
from p3s.model.sizes.hypotheses import Hypothesis, around, blocks_in, written
from p3s.model.sizes.observations import Observations, distinct_columns, moving

#: Finds the hypotheses of sizes inside other ones.
Inner = Callable[[Observations], list[Hypothesis]]


def _last(obs: Observations, u: str) -> Expr | None:
    """Return the law of the largest iteration (or stage) of each count: their number less one."""
    points = [
        (env, 1 + int(obs.env[u][obs.env["n"] == env["n"]].max())) for env, _ in obs.by_count()
    ]
    law = find_law(points, "whole").law
    return add(law.expr, num(-1)) if law is not None and law.free < law.points else None


def _exponents(obs: Observations, u: str) -> Iterator[Expr]:
    yield sym(u)
    last = _last(obs, u)
    if last is not None:
        yield add(last, mul(num(-1), sym(u)))


def in_turns(obs: Observations) -> Iterator[Hypothesis]:
    """Yield the laws of sizes that all ranks share at each count, iteration and stage, and that
    change there."""
    if not moving(obs):
        return
    turns = [obs.env[u] for u in ("n", "t", "s") if u in obs.env]
    _, first, same = distinct_columns(turns)
    if np.any(obs.value[first][same] != obs.value) or obs.even():
        return
    obs = obs.take(first)
    if len(np.unique(obs.value)) < 3 or len(obs.counts) < 2:
        return
    for shape in _shapes(obs):
        at = np.asarray(evaluate(shape, obs.env), dtype=float)
        if np.all(np.isfinite(at)) and np.any(at != at[0]):
            for law in (_ratio(shape, at, obs.value), *_round_multiple(shape, at, obs)):
                if law is not None:
                    yield written(law, 1)


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


def _round_multiple(shape: Expr, at: np.ndarray, obs: Observations) -> Iterator[Expr]:
    """Yield a multiple of a shape, rounded down or up, that gives all sizes."""
    value = obs.value
    if np.any(at <= 0):
        return
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
            law: Expr = [op, mul(num(max(range(a, b + 1), key=roundness)), shape)]
            if np.array_equal(evaluate_int(law, obs.env), value):
                yield law


def by_level(obs: Observations, inner: Inner) -> Iterator[Hypothesis]:
    """Yield the laws of the finest level carried to all levels."""
    for u in moving(obs):
        for at_end, e in enumerate(_exponents(obs, u)):
            edge = np.zeros(len(obs.value), dtype=np.int64)
            for n in obs.counts:
                rows = obs.env["n"] == n
                edge[rows] = obs.env[u][rows].max() if at_end else obs.env[u][rows].min()
            if not at_end and np.any(edge) or not _scales(obs, e, obs.env[u] == edge):
                continue
            groups = np.exp2(np.asarray(evaluate(e, obs.env), dtype=float)).max()
            grouped = bool(groups <= obs.env["n"].max())
            for law in inner(obs.take(obs.env[u] == edge).without(u)):
                for expr in _coarser(law.expr(), e, grouped):
                    if np.array_equal(evaluate_int(expr, obs.env, undefined=-1), obs.value):
                        yield around(law, expr, 0)


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
        yield _replace_blocks(expr, lambda b, how=how: inside(b, how))  # type: ignore[misc]
    if len(blocks) > 1:
        for only in blocks:
            for how in ways:
                yield _replace_blocks(
                    expr,
                    lambda b, how=how, only=only: (  # type: ignore[misc]
                        inside(b, how) if b == only else b
                    ),
                )
    yield ["quot", expr, two]
    yield up(expr)
    yield mul(two, expr)


def _replace_blocks(expr: Expr, by: Callable[[Expr], Expr]) -> Expr:
    """Return an equation with every block replaced."""
    if expr[0] == "block":
        return by(expr)
    return [_replace_blocks(a, by) if isinstance(a, list) else a for a in expr]


def in_chunks(obs: Observations, inner: Inner) -> Iterator[Hypothesis]:
    """Yield the laws of a message cut into chunks of one size, the last one short.

    The first iteration is 0 on every rank and none is left out.
    """
    if moving(obs) != ["t"]:
        return
    chunk, t = int(obs.value.max()), obs.env["t"]
    _, first, which = distinct_columns([obs.env["n"], obs.env["r"], obs.env["s"]])
    last = np.zeros(len(first), dtype=np.int64)
    np.maximum.at(last, which, t)
    total = np.zeros(len(first), dtype=np.int64)
    np.add.at(total, which, obs.value)
    if np.any(np.bincount(which) != last + 1) or np.any((obs.value != chunk) & (t < last[which])):
        return
    for law in inner(obs.take(first).of(total).without("t")):
        left = add(law.expr(), mul(num(-chunk), sym("t")))
        yield around(law, ["min", num(chunk), ["max", left, num(0)]])
