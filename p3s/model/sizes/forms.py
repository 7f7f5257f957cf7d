"""Forms of sizes: each proposes the equations of its kind that give every size of a slot.

A form decides nothing: what it proposes has a price, and all slots together choose
(p3s.model.sizes.joint). Forms that seldom are any program's are asked where the common ones take
more bits than a list of the sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import combinations, product

import numpy as np

from p3s.laws.counts import candidates, is_quotient
from p3s.laws.exact import evaluate_int
from p3s.laws.expr import BLOCK_KINDS, Expr, add, block, block_size, mul, num, sym
from p3s.laws.shares import divisors
from p3s.model.sizes.diagonal import over_diagonals
from p3s.model.sizes.hypotheses import (
    Constant,
    Hypothesis,
    Written,
    around,
    bits_of,
    blocks_in,
    likeliest,
    listed_bits,
    whole_bits,
    written,
)
from p3s.model.sizes.levels import by_level, in_chunks, in_turns
from p3s.model.sizes.observations import Observations, decides, distinct_columns, moving, plain_axes
from p3s.model.sizes.positions import by_position
from p3s.model.sizes.products import Products, TermsKnown, composite_products, plain_products
from p3s.model.sizes.travelling import travelling

#: Bits by which a rival may cost more.
BUDGET = 10.0
#: Different values that a symbol needs at one count, and rows beyond the numbers of a law.
_VALUES, _SPARE = 3, 3
#: Hypotheses of sizes inside others that are kept.
_MOST_INSIDE = 8
#: Bytes of an element, and the longest head that is believed: mpi4py pickles arrays.
_WIDTHS, _LONGEST_HEAD = (8, 4, 16, 2), 4096
#: Multiples of the factor that are tried as elements beside a block; factors of a difference.
_BESIDE, _FACTORS = 9, 16

Propose = Callable[[Observations, "Search"], Iterator[Hypothesis]]


class Search:
    """Finds the hypotheses of slots.

    typed: numbers among the program's arguments, which may be extents; known: extents that are
    tried where sizes leave them open; support: how many slots may use a constant; counted: the
    numbers are how often ranks act, which seldom are blocks.
    """

    def __init__(self, typed: frozenset[int] = frozenset(), counted: bool = False) -> None:
        self.typed, self.counted = typed, counted
        self.learn({})
        self._written: dict[object, list[Hypothesis]] = {}
        self.terms: TermsKnown = {}
        self._products: dict[tuple[bytes, bool], Products] = {}

    def learn(self, support: dict[Constant, float], most: int = 0) -> None:
        """Note what slots may share, and take so many extents of it for the program's."""
        extents = sorted((c for c in support if c[0] == "extent"), key=lambda c: (-support[c], c))
        self.support = support
        self.known = tuple(sorted(self.typed | {int(str(c[1])) for c in extents[:most]}))
        self._found: dict[object, list[tuple[float, Hypothesis]]] = {}

    def price(self, constant: Constant) -> float:
        """Return the bits of a constant, of which each of the slots that use it has its part."""
        return bits_of(constant, self.typed) / max(self.support.get(constant, 0.0), 1.0)

    def hypotheses(self, obs: Observations) -> list[tuple[float, Hypothesis]]:
        """Return the hypotheses that give every size of a slot with their bits, cheapest first."""
        if obs.digest not in self._found:
            self._found[obs.digest] = self._proposed(obs)
        return self._found[obs.digest]

    def _proposed(self, obs: Observations) -> list[tuple[float, Hypothesis]]:
        if not len(obs.value):
            return []
        found = self.products(obs)
        every = (COUNTED if self.counted else COMMON, RARE)
        for forms in every if len(obs.counts) > 1 else ((_constant,),):
            key = (obs.digest, forms is RARE, self.known)
            if key not in self._written:
                self._written[key] = [h for propose in forms for h in propose(obs, self)]
            found += map(self.priced, self._written[key])
            if found and min(cost for cost, _ in found) < listed_bits(obs.value):
                break
        return likeliest(found)

    def priced(self, h: Hypothesis) -> tuple[float, Hypothesis]:
        """Return a hypothesis with its bits."""
        return h.own() + sum(map(self.price, h.constants)), h

    def products(
        self, obs: Observations, composite: bool = False
    ) -> list[tuple[float, Hypothesis]]:
        """Return the products of blocks that give every size, cheapest first."""
        if not may_be_cut(obs):
            return []
        key = (obs.digest, composite)
        if key not in self._products:
            make = composite_products if composite else plain_products
            self._products[key] = make(obs, self.terms)
        search = self._products[key]
        of = (search.digest(), composite)
        if of not in self._found:
            self._found[of] = [*search.hypotheses(self.known, self.price)]
        return list(self._found[of])

    def inside(self, obs: Observations) -> list[Hypothesis]:
        """Return the likeliest hypotheses of sizes of which others are made."""
        return [h for _, h in self.hypotheses(obs)[:_MOST_INSIDE]]

    def blocks_inside(self, obs: Observations) -> list[Hypothesis]:
        """Return the likeliest products of sizes of which others are made."""
        return [h for _, h in self.products(obs)[:_MOST_INSIDE]]


def may_be_cut(obs: Observations) -> bool:
    """Tell whether sizes may be blocks: they differ, or the extents of a face never did."""
    if not len(obs.value) or obs.value.min() < 1 or moving(obs):
        return False
    if len(obs.counts) < 2 and not obs.across:
        return False
    if np.any(obs.value != obs.value[0]):
        return True
    extents = [obs.env[f"p{d}"] for d in obs.across]
    return any(bool(np.all(p == p[0])) for p in extents)


def _constant(obs: Observations, search: Search) -> Iterator[Hypothesis]:
    if np.all(obs.value == obs.value[0]):
        yield written(num(int(obs.value[0])), 1)


def _of_count(obs: Observations, search: Search) -> Iterator[Hypothesis]:
    """Yield laws of n and the extents alone, where all ranks agree at every count."""
    if not obs.even() or np.all(obs.value == obs.value[0]):
        return
    points = obs.by_count()
    envs, values = [env for env, _ in points], [value for _, value in points]
    found = candidates(envs, values, obs.ndims, search.known)
    for c in found:
        if c.bits > found[0].bits + BUDGET:
            return
        more = _beside_share(c.expr)
        rounded = search.blocks_inside(obs.of(obs.value - more)) if more is not None else []
        if more and rounded:
            yield from (around(h, add(num(more), h.expr())) for h in rounded)
        elif not rounded:
            yield written(c.expr, c.free)


def _beside_share(expr: Expr) -> int | None:
    """Return what a law has beside a share of an extent, None where it is no share.

    Products have all ways to round a share, of which sizes that are even at all counts tell none.
    """
    more = 0
    if expr[0] == "add" and len(expr) == 3 and expr[2][0] == "num" and expr[2][2] == 1:
        expr, more = expr[1], int(expr[2][1])
    share = is_quotient(expr) and expr[0] == "mul" and expr[-1][1][0] == "sym"
    return more if share or blocks_in(expr) else None


def _of_branch(obs: Observations, search: Search) -> Iterator[Hypothesis]:
    """Yield a number times the ranks of a tree's branch: data dealt down a tree."""
    ranks = obs.env.get("b")
    if ranks is None or np.any(ranks <= 0) or len(np.unique(ranks)) < _VALUES:
        return
    factor = int(obs.value[0]) // int(ranks[0])
    if factor and np.array_equal(obs.value, factor * ranks):
        yield written(mul(num(factor), sym("b")), 1)


def _linear(obs: Observations, search: Search) -> Iterator[Hypothesis]:
    """Yield a * x + b and a * x + e * p + b, with whole numbers.

    x: the rank or a coordinate, or the partner's, the iteration or the stage; p: n or an extent.
    """
    steps = [u for u in _symbols(obs, "rcqts") if _several(obs, u)]
    extents = [u for u in _symbols(obs, "np") if len(np.unique(obs.env[u])) > 1]
    pairs = (*product(steps, extents), *combinations(steps, 2))
    for names in (*((x,) for x in steps), *pairs):
        expr = _solve_sum(obs, names)
        if expr is not None:
            yield written(expr, len(names) + 1)


def _symbols(obs: Observations, letters: str) -> list[str]:
    names = {"n", "r", "t", "s"} | {f"{k}{d}" for k in "pcq" for d in range(obs.ndims)}
    if obs.ndims == 1:
        names -= {"p0", "c0"}
    return [u for u in obs.env if u in names and u[0] in letters]


def _several(obs: Observations, name: str) -> bool:
    n = obs.env["n"]
    return any(len(np.unique(obs.env[name][n == m])) >= _VALUES for m in obs.counts)


def _solve_sum(obs: Observations, names: Sequence[str]) -> Expr | None:
    """Return the sum that meets every size, None where there is none or too little to show it."""
    columns = np.stack(
        [*(obs.env[u].astype(float) for u in names), np.ones(len(obs.value))], axis=1
    )
    if len(np.unique(columns, axis=0)) < columns.shape[1] + _SPARE:
        return None
    numbers, _, rank, _ = np.linalg.lstsq(columns, obs.value.astype(float), rcond=None)
    whole = np.rint(numbers).astype(np.int64)
    if rank < columns.shape[1] or np.any(np.abs(numbers - whole) > 1e-6) or np.any(whole[:-1] == 0):
        return None
    terms = [mul(num(int(k)), sym(u)) for k, u in zip(whole[:-1], names, strict=True)]
    expr = add(*terms, num(int(whole[-1])))
    return expr if np.array_equal(evaluate_int(expr, obs.env), obs.value) else None


def _with_empty(obs: Observations, search: Search) -> Iterator[Hypothesis]:
    """Yield blocks of which some ranks have none."""
    there = np.flatnonzero(obs.value)
    if 0 < len(there) < len(obs.value):
        for h in search.blocks_inside(obs.take(there)):
            if np.array_equal(h.values(obs.env), obs.value):
                yield h


def _beside(obs: Observations, search: Search) -> Iterator[Hypothesis]:
    """Yield blocks and a few elements beside them, or the head of an object put into bytes.

    Only where blocks differ inside a count: their difference is the factor.
    """
    n = obs.env["n"]
    sizes = [np.unique(obs.value[n == m]) for m in obs.counts]
    step = int(np.gcd.reduce(np.concatenate([np.diff(some) for some in sizes])) if sizes else 0)
    if step < 1 or moving(obs):
        return
    first = int(obs.value[0]) % step
    tried = [(first + k * step, step) for k in range(_BESIDE)]
    heads = list(_heads(obs)) if obs.whole else []
    tried += [(head, w) for head in heads for w in _WIDTHS if step % w == 0]
    for more, factor in dict.fromkeys(tried):
        value = (obs.value - more) // factor
        if more and np.all(value > 0) and not np.any((obs.value - more) % factor):
            for h in search.blocks_inside(obs.of(value)):
                yield around(h, add(num(more), mul(num(factor), h.expr())), 1 + (factor != 1))


def _heads(obs: Observations) -> Iterator[int]:
    """Yield the lengths of the head by which all ranks of some line have one extent.

    The bytes of all ranks of a line are as many heads as there are ranks, and the elements.
    """
    n = obs.env["n"]
    means = [Fraction(int(v.sum()), len(v)) for m in obs.counts for v in [obs.value[n == m]]]
    for name in ("n", *(f"p{d}" for d in range(obs.ndims))):
        ranks = [env[name] for env, _ in obs.by_count()]
        totals = [p * mean for p, mean in zip(ranks, means, strict=True)]
        slopes = {
            (b - a) / (q - p)
            for p, q, a, b in zip(ranks, ranks[1:], totals, totals[1:], strict=False)
            if q != p
        }
        head = slopes.pop() if len(slopes) == 1 else Fraction(0)
        if head.denominator == 1 and 0 < head <= min(_LONGEST_HEAD, int(obs.value.min())):
            yield int(head)


def _multiply_blocks(obs: Observations, search: Search) -> Iterator[Hypothesis]:
    """Yield products of blocks times p, p - 1 or p - 2 of any extent."""
    names = ["n"] if obs.ndims == 1 else [*(f"p{d}" for d in range(obs.ndims)), "n"]
    for name, k in product(names, (1, 0, 2)):
        times = obs.env[name] - k
        if np.any(times <= 0) or np.any(obs.value % times) or np.all(times == times[0]):
            continue
        for h in search.blocks_inside(obs.of(obs.value // times)):
            yield around(h, mul(add(sym(name), num(-k)), h.expr()))


def _all_but_own(obs: Observations, search: Search) -> Iterator[Hypothesis]:
    """Yield everything but the own block: f * (L - block)."""
    if not may_be_cut(obs):
        return
    axes = [a for a in plain_axes(obs) if a.varies() and a.count.min() > 1 and decides(obs, [a])]
    factors = divisors(int(np.gcd.reduce(obs.value)))[:_FACTORS]
    for f, axis in product(factors, axes):
        k = int(np.argmin(axis.count))
        near = int(obs.value[k] // f * axis.count[k] // (axis.count[k] - 1))
        for extent, kind in product(range(max(near - 4, 1), near + 5), BLOCK_KINDS[:5]):
            if np.all(extent - obs.value // f == block_size(kind, extent, axis.count, axis.at)):
                own = mul(num(-1), block(kind, extent, axis.p, axis.c))
                # the extent is that of the block: no number of its own
                h = written(mul(num(f), own), 1 + (f != 1))
                yield around(h, mul(num(f), add(num(extent), own)), 0)


def _of_each_rank(obs: Observations, search: Search) -> Iterator[Hypothesis]:
    """Yield the sizes rank by rank, where the same ranks have the same ones at every count."""
    if moving(obs) or len(obs.counts) < 2:
        return
    for axis in plain_axes(obs):
        ranks, first, which = np.unique(axis.at, return_index=True, return_inverse=True)
        there = distinct_columns([obs.env["n"], axis.at])[0]
        everywhere = there.shape[1] == len(ranks) * len(obs.counts)
        if axis.name != "n" or not everywhere or np.any(obs.value[first][which] != obs.value):
            continue
        sizes = obs.value[first]
        steps = [(int(a), int(b)) for a, b in zip(ranks[1:], np.diff(sizes), strict=True) if b]
        from_on: list[Expr] = [
            mul(num(b), ["min", num(1), ["max", num(0), add(axis.c, num(1 - a))]]) for a, b in steps
        ]
        bits = 1.0 + whole_bits(int(sizes[0]))
        bits += sum(whole_bits(a) + whole_bits(abs(b)) for a, b in steps)
        yield Written(add(num(int(sizes[0])), *from_on), bits, len(ranks))


#: Forms by how common they are, beside products of blocks; those of how often ranks act.
COMMON: tuple[Propose, ...] = (_constant, _of_count, _of_branch, lambda obs, _: in_turns(obs))
COUNTED: tuple[Propose, ...] = (*COMMON, lambda obs, _: by_position(obs))
RARE: tuple[Propose, ...] = (
    _linear,
    _with_empty,
    _beside,
    _multiply_blocks,
    lambda obs, search: (h for _, h in search.products(obs, composite=True)),
    lambda obs, search: travelling(obs, search.known, search.price, search.terms),
    lambda obs, search: over_diagonals(obs, search.known),
    _all_but_own,
    lambda obs, search: by_level(obs, search.inside),
    lambda obs, search: in_chunks(obs, search.inside),
    _of_each_rank,
)
