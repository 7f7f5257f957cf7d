"""Relations of intervals that are cut in two again and again: (lo, mid, hi) until one rank is left.

An odd interval has the rank in the middle in its lower or in its upper half.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from p3s.model.grid.at import GridAt
from p3s.model.grid.axes import Axis, Line
from p3s.model.partners.relation import StagedRelation, Tried, along, describe_axis, digits
from p3s.model.registry import left_out

#: What a rank has to do with the other half: first with first, each with its like, or from the end.
_FORMS = {
    "first": "the first ranks of its halves",
    "like": "ranks of equal place in its halves",
    "mirror": "ranks of its halves from the ends inwards",
}


@dataclass(frozen=True)
class _Interval:
    """The interval of every rank at a depth: first rank, length, length of the lower half."""

    lo: np.ndarray
    size: np.ndarray
    half: np.ndarray

    @property
    def mid(self) -> np.ndarray:
        """The first rank of the upper half."""
        middle: np.ndarray = self.lo + self.half
        return middle


def _intervals(ln: Line, ceil: bool) -> Iterator[_Interval]:
    """Yield the intervals of all ranks, the whole line first."""
    lo, size = np.zeros(ln.n, dtype=np.int64), ln.p.astype(np.int64)
    for _ in range(digits(ln.longest)):
        here = _Interval(lo, size, (size + ceil) // 2)
        yield here
        upper = ln.c >= here.mid
        lo = np.where(upper, here.mid, lo)
        size = np.where(upper, size - here.half, here.half)


@dataclass(frozen=True, kw_only=True)
class Halves(StagedRelation, kind="halves"):
    """Between the halves of an interval, which are cut in two again; form: who is whose partner.

    sign: from the lower half to the upper (1), back (-1), both ways (0). ceil: the lower half of an
    odd interval is the longer one. Stage s is the depth.
    """

    form: str
    sign: int
    ceil: bool = left_out(False)
    axis: Axis = along()
    sparse = True

    @classmethod
    def on_long_line(cls, axis: Axis, ndims: int, sign: int) -> Tried:
        for ceil in (False, True):
            cost = 1.75 + 0.05 * ceil
            yield cost, cls(form="first", sign=sign, ceil=ceil, axis=axis)
            yield cost + 0.05, cls(form="like", sign=sign, ceil=ceil, axis=axis)
            yield cost + 0.1, cls(form="mirror", sign=sign, ceil=ceil, axis=axis)

    @property
    def tree(self) -> bool:  # type: ignore[override]
        return self.form == "first" and self.sign != 0

    def stages(self, ln: Line, g: GridAt) -> list[np.ndarray]:
        out = []
        for each in _intervals(ln, self.ceil):
            upper = ln.c >= each.mid
            to, there = self._partner(ln.c, each, upper)
            if self.sign:
                there &= upper == (self.sign < 0)
            out.append(ln.ranks(to, there & (each.size > 1)))
        return out

    def _partner(
        self, c: np.ndarray, each: _Interval, upper: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the place of the partner, and who has one."""
        if self.form == "first":
            return np.where(upper, each.lo, each.mid), (c == each.lo) | (c == each.mid)
        if self.form == "mirror":
            to = 2 * each.lo + each.size - 1 - c
            return to, to != c
        to = np.where(upper, c - each.half, c + each.half)
        return to, np.where(upper, to < each.mid, to < each.lo + each.size)

    def text(self) -> str:
        way = {1: "upwards", -1: "downwards", 0: "both ways"}[self.sign]
        cut = "ceil" if self.ceil else "floor"
        return f"{_FORMS[self.form]}, {way}, intervals halved ({cut}){describe_axis(self.axis)}"


@dataclass(frozen=True, kw_only=True)
class SearchTree(StagedRelation, kind="searchtree"):
    """The middle of an interval and those of the intervals on both sides of it, which go on so.

    sign: from the middle to those of the sides (1), or back (-1). ceil: of an even interval the
    upper one of two middle ranks. Stages 2 s and 2 s + 1 are the lower and the upper side.
    """

    tree = True
    sign: int
    ceil: bool = left_out(False)
    axis: Axis = along()
    sparse = True

    @classmethod
    def on_long_line(cls, axis: Axis, ndims: int, sign: int) -> Tried:
        if sign:
            yield 1.85, cls(sign=sign, axis=axis)
            yield 1.9, cls(sign=sign, ceil=True, axis=axis)

    def _middle(self, lo: np.ndarray, size: np.ndarray) -> np.ndarray:
        middle: np.ndarray = lo + (size - 1 + self.ceil) // 2
        return middle

    def stages(self, ln: Line, g: GridAt) -> list[np.ndarray]:
        lo, size = np.zeros(ln.n, dtype=np.int64), ln.p.astype(np.int64)
        out = []
        for _ in range(digits(ln.longest + 1)):
            mid = self._middle(lo, size)
            below, above = mid - lo, lo + size - 1 - mid
            sides = ((lo, below), (mid + 1, above))
            for k, (first, length) in enumerate(sides):
                to = self._middle(first, length)
                there = (size > 0) & (length > 0)
                inside = ln.c < mid if k == 0 else ln.c > mid
                if self.sign > 0:
                    out.append(ln.ranks(to, there & (ln.c == mid)))
                else:
                    out.append(ln.ranks(mid, there & inside & (ln.c == to)))
            upper = ln.c > mid
            size = np.where(ln.c == mid, 0, np.where(upper, above, below))
            lo = np.where(upper, mid + 1, lo)
        return out

    def levels(self, used: np.ndarray, table: np.ndarray, g: GridAt) -> int:
        return len(np.unique(np.flatnonzero(used.any(axis=1)) // 2))

    def text(self) -> str:
        cut = "upper" if self.ceil else "lower"
        way = "to" if self.sign > 0 else "from"
        return (
            f"{way} the middles of both sides of an interval's middle, and so on ({cut} of two)"
            f"{describe_axis(self.axis)}"
        )
