"""Kinds of relations along an axis of some length: exchanges by powers of two, trees, far ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import ClassVar

import numpy as np

from p3s.laws.expr import mul, num, sym
from p3s.model.grid.at import GridAt
from p3s.model.grid.axes import Axis, Line, line, low_powers
from p3s.model.partners.pairs import Pairs
from p3s.model.partners.relation import (
    Coordinate,
    Place,
    Relation,
    StagedRelation,
    Tried,
    along,
    coordinate,
    describe_axis,
    digits,
    index_of,
    mod_p,
    place_text,
    plus,
    shift_coordinate,
)
from p3s.model.registry import left_out


@dataclass(frozen=True, kw_only=True)
class Xor(StagedRelation, kind="xor"):
    """c xor 2**s; fold "power": c < 2**floor(log2 p) only; "pairs": of the numbers left when the
    first ranks pair up."""

    fold: str | None = left_out(None)
    axis: Axis = along()

    @classmethod
    def on_long_line(cls, axis: Axis, ndims: int, sign: int) -> Tried:
        if not sign:
            yield 1.5, cls(axis=axis)
            yield 1.6, cls(fold="power", axis=axis)
            yield 1.7, cls(fold="pairs", axis=axis)

    def stages(self, ln: Line, g: GridAt) -> list[np.ndarray]:
        if self.fold is None:
            return [ln.ranks(ln.c ^ (1 << i)) for i in range(digits(ln.longest))]
        low = low_powers(ln.p)
        stages = range(int(low.max()).bit_length() - 1)
        if self.fold == "power":
            to = [ln.c ^ (1 << i) for i in stages]
            return [ln.ranks(t, (ln.c < low) & (t < low)) for t in to]
        rest = ln.p - low
        left = (ln.c >= 2 * rest) | (ln.c % 2 == 1)
        new = np.where(ln.c < 2 * rest, ln.c // 2, ln.c - rest)
        to = [new ^ (1 << i) for i in stages]
        return [ln.ranks(np.where(t < rest, 2 * t + 1, t + rest), left & (t < low)) for t in to]

    def text(self) -> str:
        how = {"power": ", c < 2**floor(log2 p)", "pairs": ", the first ranks paired up"}
        return f"c xor 2**s, s < log2(p){how.get(self.fold or '', '')}{describe_axis(self.axis)}"


@dataclass(frozen=True, kw_only=True)
class Level(StagedRelation, kind="level"):
    """((c >> s) + sign) << s of the multiples of 2**s.

    all: of all coordinates; anchor "last": counted from the end.
    """

    sign: int
    wrap: bool
    all: bool = False
    anchor: str | None = left_out(None)
    axis: Axis = along()
    sparse = True

    @classmethod
    def on_long_line(cls, axis: Axis, ndims: int, sign: int) -> Tried:
        if not sign:
            return
        for cost, anchor in ((1.6, None), (1.75, "last")):
            for wrap in (True, False):
                for every in (True, False) if ndims > 1 else (False,):
                    yield cost, cls(sign=sign, wrap=wrap, all=every, anchor=anchor, axis=axis)

    def stages(self, ln: Line, g: GridAt) -> list[np.ndarray]:
        last = self.anchor == "last"  # those that go on working are the last of their groups
        c = ln.p - 1 - ln.c if last else ln.c
        sign = -self.sign if last else self.sign
        out = []
        for s in range(digits(ln.longest)):
            many = (ln.p + (1 << s) - 1) >> s
            works = c % (1 << s) == 0
            if self.all:  # all dimensions coarsen to as many working ranks
                for d, p in enumerate(g.dims):
                    step = max((p << s) // max(ln.longest, 1), 1)
                    works = works & ((p - 1 - g.coords[d] if last else g.coords[d]) % step == 0)
            to = (c >> s) + sign
            if self.wrap:
                to = to % np.maximum(many, 1)
            to = np.where(to >= 0, to << s, -1)
            to = np.where((to >= 0) & last, ln.p - 1 - to, to)
            out.append(ln.ranks(to, works & (many > 1)))
        return out

    def text(self) -> str:
        return (
            f"next multiple of 2**s, {plus(self.sign)}{mod_p(self.wrap)}{describe_axis(self.axis)}"
            + (", from the end" if self.anchor else "")
            + (", others idle in all dimensions" if self.all else "")
        )


@dataclass(frozen=True, kw_only=True)
class Steps(StagedRelation, kind="steps"):
    """c + by * (s + 1), inside."""

    axis: Axis = along()
    by: int

    @classmethod
    def read_off(cls, pairs: Sequence[Pairs]) -> Tried:
        apart = [np.unique(np.abs(p.peer - p.rank)) for p in pairs]
        steps = {gcd(*map(int, each)) for each in apart if len(each) > 1}
        if len(steps) == 1 and (by := steps.pop()) and all((p.peer > p.rank).all() for p in pairs):
            yield 1.9, cls(by=by)

    def stages(self, ln: Line, g: GridAt) -> list[np.ndarray]:
        return [ln.ranks(ln.c + self.by * s) for s in range(1, (ln.longest - 1) // self.by + 1)]

    def text(self) -> str:
        if self.by == 1:
            return f"each rank above{describe_axis(self.axis)}"
        return f"every {self.by}-th rank above{describe_axis(self.axis)}"


@dataclass(frozen=True, kw_only=True)
class Tree(StagedRelation, kind="tree"):
    """A binomial tree (of another ``base``: k-nomial); form "low": 2**s ranks hand on in stage s.

    sign: from parent to children (1) or back.
    """

    tree = True
    sign: int
    root: Place = 0
    form: str | None = left_out(None)
    base: int = left_out(2)
    axis: Axis = along()

    @classmethod
    def on_long_line(cls, axis: Axis, ndims: int, sign: int) -> Tried:
        if not sign:
            for way in (1, -1):
                yield from ((1.95, cls(sign=way, base=k, axis=axis)) for k in (3, 4))
            return
        yield 1.6, cls(sign=sign, axis=axis)
        yield 1.65, cls(sign=sign, form="low", axis=axis)
        yield 1.8, cls(sign=sign, root=-1, axis=axis)
        yield 1.85, cls(sign=sign, root="half", axis=axis)
        if isinstance(axis, int):
            for d in range(ndims):
                if d != axis:
                    yield 1.85, cls(sign=sign, root=f"c{d}", axis=axis)

    @classmethod
    def read_off(cls, pairs: Sequence[Pairs]) -> Tried:
        # a rank that receives from nobody but all others lead to, or that sends to nobody
        free = [set(range(p.grid.n)) - (set(p.rank.tolist()) & set(p.peer.tolist())) for p in pairs]
        for root in sorted(set.intersection(*free))[:3]:
            if root:
                yield from ((1.9, cls(sign=sign, root=root)) for sign in (1, -1))

    def stages(self, ln: Line, g: GridAt) -> list[np.ndarray]:
        root = index_of(self.root, ln.p, g)
        p = np.maximum(ln.p, 1)
        v, base, sign, out = (ln.c - root) % p, self.base, self.sign, []
        for s in range(digits(ln.longest, base)):
            step = base**s
            for k in range(1, base):  # the k-th child of a stage
                if self.form == "low":
                    there = v < step if sign > 0 else (v >= k * step) & (v < (k + 1) * step)
                else:
                    there = v % (base * step) == (0 if sign > 0 else k * step)
                to = v + sign * k * step
                out.append(ln.ranks((to + root) % p, there & (to < p) & (to >= 0)))
        return out

    def levels(self, used: np.ndarray, table: np.ndarray, g: GridAt) -> int:
        if is_star(self, index_of(self.root, line(self.axis, g).p, g), used, table, g):
            return 1
        return len(np.unique(np.flatnonzero(used.any(axis=1)) // (self.base - 1)))

    def text(self) -> str:
        form = "binomial" if self.base == 2 else f"{self.base}-nomial"
        return (
            f"{'doubling' if self.form else form} tree, r {plus(self.sign)} {self.base}**s"
            + (f" from {place_text(self.root)}" if self.root != 0 else "")
            + describe_axis(self.axis)
        )


@dataclass(frozen=True, kw_only=True)
class Stride(StagedRelation, kind="stride"):
    """c + sign * base**s."""

    words = "c {plus} {base}**s{mod}{on}"
    sign: int
    wrap: bool
    base: int = left_out(2)
    axis: Axis = along()

    @classmethod
    def on_long_line(cls, axis: Axis, ndims: int, sign: int) -> Tried:
        if sign:
            yield from ((1.55, cls(sign=sign, wrap=w, axis=axis)) for w in (True, False))
            return
        for way in (1, -1):
            yield from ((1.95, cls(sign=way, wrap=True, base=k, axis=axis)) for k in (3, 4))

    def stages(self, ln: Line, g: GridAt) -> list[np.ndarray]:
        to = [ln.c + self.sign * self.base**i for i in range(digits(ln.longest, self.base))]
        return [ln.ranks(t % np.maximum(ln.p, 1) if self.wrap else t) for t in to]

    def formula(self) -> list[Coordinate]:
        if self.base != 2:
            return []
        return shift_coordinate(self.axis, mul(num(self.sign), ["exp2", sym("s")]), self.wrap)


@dataclass(frozen=True, kw_only=True)
class Heap(StagedRelation, kind="heap"):
    """Children k c + 1 + s (sign 1), or the parent (c - 1) // k (-1)."""

    tree = True
    k: int
    sign: int
    axis: Axis = along()
    grows: ClassVar[bool] = False

    @classmethod
    def on_long_line(cls, axis: Axis, ndims: int, sign: int) -> Tried:
        if sign:
            yield from ((1.9, cls(k=k, sign=sign, axis=axis)) for k in (2, 3, 4))

    def stages(self, ln: Line, g: GridAt) -> list[np.ndarray]:
        if self.sign < 0:
            return [ln.ranks((ln.c - 1) // self.k, ln.c > 0)]
        return [ln.ranks(self.k * ln.c + k) for k in range(1, self.k + 1)]

    def levels(self, used: np.ndarray, table: np.ndarray, g: GridAt) -> int:
        return 1 if is_star(self, 0, used, table, g) else 2

    def text(self) -> str:
        where = describe_axis(self.axis)
        if self.sign < 0:
            return f"parent (c - 1)//{self.k}{where}"
        return f"children {self.k}c + 1 ...{where}"


def is_star(
    tree: Tree | Heap, root: int | np.ndarray, used: np.ndarray, table: np.ndarray, g: GridAt
) -> bool:
    """Return whether only the root of a tree has children, in the cells that are used."""
    parent = np.where(tree.sign > 0, np.arange(g.n)[None, :], table)[used]
    return not bool((line(tree.axis, g).c != root)[parent].any())


@dataclass(frozen=True, kw_only=True)
class FractionOfLine(Relation, kind="far"):
    """c + sign * (p // k); bordered: inside k equal parts."""

    words = "c {plus} p//{k}{mod}{on}"
    k: int
    sign: int
    wrap: bool
    axis: Axis = along()

    @classmethod
    def on_long_line(cls, axis: Axis, ndims: int, sign: int) -> Tried:
        if not sign:
            return
        for k in (2, 3, 4):
            for wrap in (False, True):
                if not (wrap and k == 2 and sign < 0):
                    cost = 1.5 + k / 20 if k > 2 else 1.1
                    yield cost, cls(k=k, sign=sign, wrap=wrap, axis=axis)

    def to(self, g: GridAt) -> np.ndarray:
        ln = line(self.axis, g)
        to = ln.c + self.sign * (ln.p // self.k)
        if self.wrap:
            return ln.ranks(to % np.maximum(ln.p, 1))
        parts = self.k * (ln.p // self.k)
        return ln.ranks(to, (ln.c < parts) & (to < parts))

    def formula(self) -> list[Coordinate]:
        _, extent = coordinate(self.axis if isinstance(self.axis, int) else None)
        by = mul(num(self.sign), ["quot", extent, num(self.k)])
        return shift_coordinate(self.axis, by, self.wrap)


@dataclass(frozen=True, kw_only=True)
class Others(StagedRelation, kind="others"):
    """All others; walk: how the stages go through them (WALKS)."""

    axis: Axis = along()
    walk: str = left_out("plus")

    @classmethod
    def on_long_line(cls, axis: Axis, ndims: int, sign: int) -> Tried:
        if not sign:
            yield 2.0, cls(axis=axis)

    def stages(self, ln: Line, g: GridAt) -> list[np.ndarray]:
        walk, p, c, most = self.walk, np.maximum(ln.p, 1), ln.c, ln.longest
        if walk == "xor":
            return [ln.ranks(c ^ s) for s in range(1, 1 << digits(most))]
        if walk in ("plus", "minus"):
            sign = 1 if walk == "plus" else -1
            return [ln.ranks((c + sign * s) % p, s < ln.p) for s in range(1, most)]
        if walk == "meet":  # as in tournaments
            return [ln.ranks((s - c) % p, ((s - c) % p != c) & (s < ln.p)) for s in range(most)]
        order = range(most) if walk == "up" else range(most - 1, -1, -1)
        return [ln.ranks(np.full(ln.n, s), c != s) for s in order]

    def walks(self) -> list[Relation]:
        return [replace(self, walk=walk) for walk in WALKS]

    def text(self) -> str:
        return f"all others{describe_axis(self.axis)}{WALKS[self.walk]}"


#: Ways to go through all others: (c + s), (c - s), c xor s, s, (s - c), s from the last down.
WALKS = {
    "plus": "",
    "minus": ", downwards",
    "xor": " by c xor s",
    "up": " in order",
    "meet": " by (s - c) mod p",
    "down": " in falling order",
}
