"""Shares of an extent: floor(L/p), ceil(L/p), their squares, L mod p, products of two over a grid.

At square counts p is sqrt(n), too: k * ceil(L/sqrt(n))**2 is the face of a block of a cube.

The extent is solved from the values: each value leaves an interval (or a residue class) of
extents, and a law is a non-empty intersection.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from fractions import Fraction

import numpy as np

from p3s.laws.exact import Envs, Settings, bits_of, roundness, value_at
from p3s.laws.expr import Expr, mul, num, power, sym

#: What the form costs besides its extents and dimensions, in bits.
SHARE_BITS, REMAINDER_BITS, PRODUCT_BITS, ROUNDED_BITS = 3.0, 4.0, 5.0, 5.0
#: What an extent of a dimension costs, one of several; and the root of n as one, or a square.
EXTENT_BITS, ROOT_BITS = 1.0, 2.0
#: Largest value whose divisors are listed, largest factor of a share.
MAX_PRODUCT, MAX_FACTOR = 10**10, 64

Found = tuple[Expr, float, int]  # law, bits, free numbers


def fit(envs: Envs, y: Sequence[int], ndims: int, known: Collection[int] = ()) -> Iterator[Found]:
    """Yield the shares that equal ``y`` at every count, with their price and free numbers."""
    if min(y) < 0 or max(y) > 1 << 50:
        return
    names = ("n", *(f"p{d}" for d in range(ndims if ndims > 1 else 0)))
    extents = {name: np.array([int(e[name]) for e in envs], dtype=np.int64) for name in names}
    value = np.array(y, dtype=np.int64)
    for name, p in extents.items():
        if np.all(p == p[0]):
            continue
        bits = EXTENT_BITS if name != "n" else 0.0
        yield from _shares(sym(name), p, value, 1, bits, known)
        yield from _remainder(name, p, value, known)
    root = np.array([math.isqrt(n) for n in extents["n"].tolist()], dtype=np.int64)
    if np.all(root**2 == extents["n"]) and len(names) == 1:
        side = power(sym("n"), Fraction(1, 2))
        yield from _shares(side, root, value, 1, ROOT_BITS, known)
        yield from _shares(side, root, value, 2, 2 * ROOT_BITS, known)
    for a, b in ((f"p{i}", f"p{j}") for i in range(ndims) for j in range(i + 1, ndims)):
        if a in extents and b in extents:
            yield from _product(a, b, extents[a], extents[b], value, known)


def _shares(
    parts: Expr, p: np.ndarray, value: np.ndarray, degree: int, bits: float, known: Collection[int]
) -> Iterator[Found]:
    """Yield k * floor(L/p)**degree and the same with ceil; parts: p as an expression."""
    for factor in _factors(value.tolist(), degree):
        one = value // factor
        if degree == 2:
            one = np.array([math.isqrt(v) for v in one.tolist()], dtype=np.int64)
            if np.any(one**2 * factor != value):
                continue
        for kind in ("low", "high"):
            got = _extents(kind, p, one)
            if got is not None and got[0] >= 2 * int(p.max()):
                extent = choose(range(got[0], min(got[1], got[0] + 4096) + 1), known)
                share = ["block", kind, num(extent), parts, num(0)]
                yield (
                    mul(num(factor), power(share, degree)),
                    SHARE_BITS + bits + _price(extent, got, known) + (bits_of(factor) - 1),
                    1,
                )


def choose(options: Sequence[int], known: Collection[int]) -> int:
    """Return the extent to believe in: a known one, else the roundest, else the smallest."""
    return next((e for e in options if e in known), None) or max(options, key=roundness)


def _factors(y: Sequence[int], degree: int) -> list[int]:
    """Return the factors that shares, or powers of them, may be multiplied by."""
    g = math.gcd(*y)
    if degree > 1:
        return [g // k**degree for k in range(1, MAX_FACTOR + 1) if g and g % k**degree == 0]
    return [k for k in range(1, MAX_FACTOR + 1) if g and g % k == 0] + (
        [g] if g > MAX_FACTOR else []
    )


def _extents(kind: str, p: np.ndarray, v: np.ndarray) -> tuple[int, int] | None:
    """Return the smallest and largest extent whose share is ``v`` everywhere."""
    low, high = (v * p, v * p + p - 1) if kind == "low" else ((v - 1) * p + 1, v * p)
    a, b = int(low.max()), int(high.min())
    return (a, b) if 1 <= a <= b else None


def _price(extent: int, interval: tuple[int, int], known: Collection[int]) -> float:
    """Return the bits of an extent that is known only to an interval."""
    if extent in known:
        return 2.0
    return bits_of(extent) - math.log2(interval[1] - interval[0] + 1)


def residue(p: Sequence[int], v: Sequence[int]) -> tuple[int, int] | None:
    """Return (x, m) where x mod m are all numbers that leave ``v`` when divided by ``p``."""
    x, m = 0, 1
    for a, b in zip(v, p, strict=True):
        g = math.gcd(m, b)
        if not 0 <= a < b or (a - x) % g:
            return None
        x += m * ((a - x) // g * pow(m // g, -1, b // g) % (b // g))
        m = m // g * b
        x %= m
    return x, m


def remainder(
    p: Sequence[int], v: Sequence[int], known: Collection[int] = ()
) -> tuple[int, int, float] | None:
    """Return (L, m, bits) for v = L mod p: all L + k*m fit; bits of evidence that it is no chance.

    L is a known extent, else the smallest that is not below all of p. Counts that nearly divide
    each other leave L open, and with it everything above them: None.
    """
    met = residue(p, v)
    if met is None:
        return None
    x, m = met
    top = max(p)
    fits = [e for e in known if e % m == x and e >= top]
    if not fits and m < 8 * top:
        return None
    evidence = math.log2(math.prod(p) / m)
    if fits:
        return max(fits), m, evidence + math.log2(m) - math.log2(1 + len(known))
    return (x if x >= top else x + m), m, evidence


def _remainder(
    name: str, p: np.ndarray, value: np.ndarray, known: Collection[int]
) -> Iterator[Found]:
    """Yield L mod p where the extent is known, or where the counts tell it."""
    found = remainder(p.tolist(), value.tolist(), known)
    if found is not None:
        extent, _, evidence = found
        spent = sum(bits_of(v) for v in value.tolist())
        yield (
            ["mod", num(extent), sym(name)],
            spent - evidence + REMAINDER_BITS + (1.0 if name != "n" else 0.0),
            1,
        )


def _product(
    a: str, b: str, p: np.ndarray, q: np.ndarray, value: np.ndarray, known: Collection[int]
) -> Iterator[Found]:
    """Yield ceil(L/p)*ceil(M/q) and floor(L/p)*floor(M/q), the nearest to a square first."""
    if value.min() < 1 or value.max() > MAX_PRODUCT or np.all(p == p[0]) or np.all(q == q[0]):
        return
    first = int(np.lexsort((q, p))[0])
    parts = np.array(divisors(int(value[first])), dtype=np.int64)
    for kind in ("high", "low"):
        inside = np.arange(int(p[first]), dtype=np.int64)
        base = parts * p[first] if kind == "low" else (parts - 1) * p[first] + 1
        extents = np.unique((base[:, None] + inside[None, :]).ravel())
        extents = extents[extents >= 2 * int(p.max())]
        size = extents[:, None] // p if kind == "low" else -(-extents[:, None] // p)
        extents, size = (x[np.all(value % size == 0, axis=1)] for x in (extents, size))
        options: dict[int, tuple[int, int]] = {}
        for e, s in zip(extents.tolist(), size, strict=True):
            other = _extents(kind, q, value // s)
            if other is not None and other[0] >= 2 * int(q.max()):
                options[e] = other
        if options:
            yield _best_product(kind, a, b, options, known)


def _best_product(
    kind: str, a: str, b: str, options: dict[int, tuple[int, int]], known: Collection[int]
) -> Found:
    pairs = [
        (e, choose(range(i[0], min(i[1], i[0] + 4096) + 1), known), i) for e, i in options.items()
    ]

    def worth(pair: tuple[int, int, tuple[int, int]]) -> tuple[float, int, float, int]:
        e, f, _ = pair
        return (
            -sum(x in known for x in (e, f)),
            -(roundness(e) + roundness(f)),
            max(e / f, f / e),
            e,
        )

    e, f, interval = min(pairs, key=worth)
    bits = PRODUCT_BITS + bits_of(e) - math.log2(len(options)) + _price(f, interval, known)
    return (
        mul(["block", kind, num(e), sym(a), num(0)], ["block", kind, num(f), sym(b), num(0)]),
        bits,
        2,
    )


def divisors(v: int) -> list[int]:
    """Return the divisors of a whole number, ascending."""
    trial = np.arange(1, math.isqrt(v) + 1, dtype=np.int64)
    small = trial[v % trial == 0]
    return sorted({*small.tolist(), *(v // small).tolist()})


def find_rounded_shares(settings: Settings, y: Sequence[Fraction]) -> Iterator[Found]:
    """Yield k * floor(s / d) and k * ceil(s / d) of a parameter s that d does not always divide."""
    if any(v.denominator != 1 for v in y):
        return
    step = Fraction(math.gcd(*(int(v) for v in y)))
    for name in settings[0]:
        s = [each[name] for each in settings]
        last = y[s.index(max(s))]
        if len(set(s)) < 3 or not step:
            continue
        for k in dict.fromkeys((Fraction(1), step)):
            ratio = int(max(s) * k / last) if last else 0
            for d in sorted({max(ratio, 1), ratio + 1}):
                if not 1 < d <= MAX_FACTOR or all((v / d).denominator == 1 for v in s):
                    continue
                for op in ("floor", "ceil"):
                    expr = mul(num(k), [op, mul(num(Fraction(1, d)), sym(name))])
                    if all(value_at(expr, {name: v}) == w for v, w in zip(s, y, strict=True)):
                        yield expr, ROUNDED_BITS + bits_of(k) + bits_of(d), 2
