"""What the computation of a rank may depend on: its blocks, its place, its messages, n.

A feature is an expression in n, r, the extents p_d and the own coordinates c_d, times the bytes of
a message or over the number of turns where it says so. All are non-negative everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np

from p3s.laws.expr import Expr, add, evaluate, mul, num, power, sym
from p3s.laws.sums import GROWING, SELDOM

#: Extents of one dimension that are tried, most used first.
_EXTENTS = 2
#: What a feature may be multiplied by: nothing, the bytes of the message at the segment's end or at
#: its start, the inverse of how often the segment occurs (what is done once in a run).
NONE, HERE, BEFORE, ONCE = "", "here", "before", "once"


@dataclass(frozen=True)
class Feature:
    """A shape of the work of a segment; bits: how far-fetched it is, from 0 (a constant) on.

    nest: a part of what a nest of loops over the block costs.
    """

    expr: Expr
    bits: float
    message: str = NONE
    nest: bool = False


def values_of(expr: Expr, env: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return a feature's expression for the ranks of ``env`` (symbol -> array), float64."""
    value = np.maximum(np.asarray(evaluate(expr, env), dtype=float), 0.0)
    return np.broadcast_to(value, (len(env["n"]),))


#: Own coordinate along each extent.
_AT = {"n": "r", **{f"p{d}": f"c{d}" for d in range(4)}}


def blocks_of(sizes: Iterable[Expr], ndims: int) -> dict[str, list[Expr]]:
    """Return the blocks in the sizes of a model's messages: extent symbol -> blocks.

    Blocks at the partner's coordinate are taken at the own one; most used first.
    """
    used: dict[str, dict[str, tuple[int, Expr]]] = {}
    for size in sizes:
        for found in _blocks(size):
            block = _take_own_block(found, ndims)
            if block is not None:
                per = used.setdefault(block[3][1], {})
                key = repr(block)
                per[key] = (per.get(key, (0, block))[0] + 1, block)
    return {
        p: [b for _, b in sorted(per.values(), key=lambda x: (-x[0], repr(x[1])))][:_EXTENTS]
        for p, per in sorted(used.items())
    }


def _blocks(expr: Any) -> Iterator[Expr]:
    if isinstance(expr, list) and expr:
        if expr[0] == "block":
            yield expr
        for part in expr[1:]:
            yield from _blocks(part)


def _take_own_block(block: Expr, ndims: int) -> Expr | None:
    """Return a block at the own coordinate, None where it is no plain block of the grid."""
    _, kind, extent, parts, at = block
    if extent[0] != "num" or parts[0] != "sym":
        return None
    if at[0] == "num":
        return block
    if parts[1] == "n":
        own = "r" if ndims > 1 else at[1] if at[1] == "r" else "r"
    else:
        own = "c" + parts[1][1:]
    return ["block", kind, extent, parts, sym(own)]


def features(sizes: Iterable[Expr], ndims: int) -> list[Feature]:
    """Return all features of a program, simplest first; sizes: the equations of its messages."""
    blocks = blocks_of(sizes, ndims)
    out = [
        Feature(num(1), 0.0, NONE, True),
        Feature(num(1), 1.0, HERE, True),
        Feature(num(1), 1.0, BEFORE, True),
        Feature(num(1), 1.4, ONCE),
    ]
    out += list(_of_blocks(blocks, ndims))
    names = [f"p{d}" for d in range(ndims)] if ndims > 1 else ["n"]
    out += list(_of_counts(ndims, 2.0 if all(p in blocks for p in names) else 1.0))
    out += list(_of_position(blocks, ndims))
    seen: dict[str, Feature] = {}
    for f in sorted(out, key=lambda f: f.bits):
        seen.setdefault(f"{f.message}{f.expr}", f)
    return list(seen.values())


def _of_blocks(blocks: Mapping[str, list[Expr]], ndims: int) -> Iterator[Feature]:
    names = [f"p{d}" for d in range(ndims)] if ndims > 1 else ["n"]
    cut = [p for p in names if p in blocks]
    for size in range(len(cut), 0, -1):
        for dims in combinations(cut, size):
            # dimensions whose extent no message shows are shared out evenly
            rest = [power(sym(p), -1) for p in names if p not in cut] if size == len(cut) else []
            for k, chosen in enumerate(product(*(blocks[p] for p in dims))):
                volume = mul(*chosen, *rest)
                yield Feature(volume, 1.0 + 0.1 * (len(cut) - size) + (k > 0), NONE, k == 0)
                if size == len(cut) == 1 and volume[0] == "block" and volume[1] in ("low", "high"):
                    # messages padded to the largest block: the own one may be smaller
                    own = ["block", "first", volume[2], volume[3], sym(_AT[dims[0]])]
                    yield Feature(own, 1.3 + (k > 0))
                    yield Feature(mul(own, volume), 1.7 + (k > 0))
                    yield Feature(mul(own, volume), SELDOM + 0.2 + (k > 0), ONCE)
                if size == len(cut):
                    yield Feature(mul(volume, ["log2", ["max", volume, num(1)]]), 2.0 + (k > 0))
                    yield Feature(mul(volume, volume), (1.6 if ndims == 1 else 2.5) + (k > 0))
                    yield Feature(volume, SELDOM + (k > 0), ONCE)
                    yield Feature(mul(volume, volume), SELDOM + 0.5 + (k > 0), ONCE)
    if ndims > 1:
        for block in blocks.get("n", []):
            yield Feature(block, 1.5)


def _of_counts(ndims: int, times: float) -> Iterator[Feature]:
    """Yield powers of n; times: of their bits, dearer where blocks are known instead."""
    n = sym("n")
    yield Feature(power(n, -1), 1.2)
    if times == 1:
        yield Feature(power(n, -1), SELDOM + 0.2, ONCE)
    for a, b, bits in (
        (-1, 2, 1.8),
        (-2, 3, 1.8),
        (-1, 3, 2.0),
        (-2, 1, 2.0),
        (1, 2, GROWING),
        (1, 1, GROWING),
    ):
        yield Feature(["pow", n, a, b] if (a, b) != (1, 1) else n, bits * times)
    yield Feature(["log2", n], GROWING)
    yield Feature(mul(n, ["log2", n]), GROWING)
    yield Feature(mul(["log2", n], power(n, -1)), 2.5 * times)
    for d in range(ndims if ndims > 1 else 0):
        p = sym(f"p{d}")
        yield Feature(power(p, -1), 1.9 * times)
        yield Feature(p, GROWING)
    for dims in combinations(range(ndims), 2) if ndims > 2 else ():
        yield Feature(mul(*(power(sym(f"p{d}"), -1) for d in dims)), 1.9 * times)


def _is_zero(e: Expr) -> Expr:
    """Return 1 where a non-negative whole number is 0, else 0."""
    return add(num(1), mul(num(-1), ["min", e, num(1)]))


def _of_position(blocks: Mapping[str, list[Expr]], ndims: int) -> Iterator[Feature]:
    """Yield what some ranks do besides or more of: alone, per own block, per face, at the root."""
    names = [f"p{d}" for d in range(ndims)] if ndims > 1 else ["n"]
    whole = (
        mul(*(blocks[p][0] for p in names))
        if all(p in blocks for p in names)
        else power(sym("n"), -1)
    )
    first = _is_zero(sym("r"))
    last = _is_zero(add(sym("n"), num(-1), mul(num(-1), sym("r"))))
    yield Feature(mul(first, sym("n")), GROWING)
    sides: list[tuple[Expr, int | None, float]] = [(first, None, 2.2), (last, None, 2.6)]
    borders = []
    for d in range(ndims if ndims > 1 else 0):
        low = _is_zero(sym(f"c{d}"))
        high = _is_zero(add(sym(f"p{d}"), num(-1), mul(num(-1), sym(f"c{d}"))))
        borders += [low, high]
        sides += [(low, d, 2.4), (high, d, 2.4)]
    for a, b in combinations(range(ndims if ndims > 1 else 0), 2):
        ca, cb = sym(f"c{a}"), sym(f"c{b}")
        apart = ["max", add(ca, mul(num(-1), cb)), add(cb, mul(num(-1), ca))]
        sides.append((_is_zero(apart), None, 2.6))
    for side, along, bits in sides:
        yield Feature(side, bits)
        yield Feature(mul(side, whole), bits + 0.4)
        across = [blocks[f"p{e}"][0] for e in range(ndims) if e != along and f"p{e}" in blocks]
        if across and along is not None:
            yield Feature(mul(side, *across), bits + 0.4)
    if borders:
        yield Feature(add(*borders), 2.2)
