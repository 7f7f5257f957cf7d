"""Process grids: which extents a program gives its grid at each process count."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import numpy as np

from p3s.laws.extents import dims_balanced, dims_greedy, dims_nested
from p3s.model.grid.at import GridAt, low_power


def _power_of_two_dims(n: int, order: tuple[int, ...]) -> tuple[int, ...] | None:
    if n & (n - 1):
        return None
    dims = [1] * len(order)
    for k in range(n.bit_length() - 1):
        dims[order[k % len(order)]] *= 2
    return tuple(dims)


def _root(n: int, k: int) -> int | None:
    r = round(n ** (1 / k))
    return r if r**k == n else None


_RULES = {"greedy": dims_greedy, "balanced": dims_balanced, "nested": dims_nested}
LAYOUTS = ("row", "column", "reverse")


@dataclass(frozen=True)
class GridFamily:
    """A rule from process count to grid extents and to the order of the ranks on the grid.

    kind: line | greedy | balanced | nested | the three with _up (the other way round) | power2 |
    cube | fixed | bits | listed; order: for power2, the dimension doubled first, second, ...; for
    fixed, the position of the fixed extent is order[0], its value ``extent``, the kind of the rest
    ``rest``; for bits, the dimensions to which the bits of the rank are dealt in turn, from the
    highest down (extent 0) or from the lowest up (extent 1); for listed, the extents at some counts
    are in ``listed``, those at others by the rule ``rest`` (empty: none). layout: row-major,
    column-major, row-major from the last rank down (reverse), or the dimensions from the slowest to
    the fastest ("102"). part: which ranks form the grid: all (empty), all but the last or the first
    one (last, first), the first of a number that the rule admits: the largest square, cube, ...
    (root) or power of two (power).
    """

    kind: str
    ndims: int
    order: tuple[int, ...] = ()
    extent: int = 0
    rest: str = "balanced"
    layout: str = "row"
    part: str = ""
    listed: tuple[tuple[int, tuple[int, ...]], ...] = ()

    def members(self, n: int) -> tuple[int, int]:
        """Return the first rank of the grid and how many ranks it has."""
        if self.part == "root":
            k = int(n ** (1 / self.ndims) + 1e-9)
            return 0, k**self.ndims
        if self.part == "power":
            return 0, low_power(n)
        return (int(self.part == "first"), n - 1) if self.part else (0, n)

    def dims(self, n: int) -> tuple[int, ...] | None:
        """Return the extents at ``n`` processes, or None where the rule does not admit ``n``.

        One process has one place, whatever the rule says of several.
        """
        n = self.members(n)[1]
        if n < 1:
            return None
        if n == 1 and not self.part:
            return (1,) * self.ndims
        if self.kind == "line":
            return (n,)
        if self.kind == "listed":
            found = dict(self.listed).get(n)
            if found is None and self.rest:
                found = GridFamily(self.rest, self.ndims).dims(n)
            return found
        name = self.kind.removesuffix("_up")
        if name in _RULES:
            dims = _RULES[name](n, self.ndims)
            return dims[::-1] if name != self.kind else dims
        if self.kind in ("power2", "bits"):
            return _power_of_two_dims(n, self.order)
        if self.kind == "cube":
            root = _root(n, self.ndims)
            return None if root is None else (root,) * self.ndims
        if self.kind == "fixed":
            if n % self.extent:
                return None
            at = self.order[0]
            order = self.order[1:]
            rest = (
                GridFamily("line", 1)
                if self.ndims == 2
                else GridFamily(self.rest, self.ndims - 1, order)
            )
            others = rest.dims(n // self.extent)
            return None if others is None else (*others[:at], self.extent, *others[at:])
        return None

    def at(self, n: int) -> GridAt | None:
        """Return the grid at ``n`` processes, or None where the rule does not admit ``n``."""
        dims = self.dims(n)
        if dims is None:
            return None
        if self.part:
            first, m = self.members(n)
            coords = np.full((len(dims), n), -1, dtype=np.int64)
            coords[:, first : first + m] = coords_of(dims, m)
            return GridAt(n, dims, coords, np.arange(first, first + m), layout=self.part)
        if self.kind == "bits":
            coords = _dealt(n, self.order, bool(self.extent))
            order = np.empty(n, dtype=np.int64)
            order[np.ravel_multi_index(tuple(coords), dims)] = np.arange(n)
            return GridAt(n, dims, coords, order, layout=f"bits{self.order}{self.extent}")
        if self.layout == "row":
            return GridAt(n, dims, coords_of(dims, n))
        if self.layout == "reverse":
            coords = coords_of(dims, n)[:, ::-1]
        else:
            slow_first = dimensions(self.layout, self.ndims)
            coords = np.empty((len(dims), n), dtype=np.int64)
            coords[list(slow_first)] = coords_of(tuple(dims[d] for d in slow_first), n)
        order = np.empty(n, dtype=np.int64)
        order[np.ravel_multi_index(tuple(coords), dims)] = np.arange(n)
        return GridAt(n, dims, coords, order, layout=self.layout)

    def to_json(self) -> dict[str, Any]:
        """Return the rule as plain data."""
        out: dict[str, Any] = {
            "kind": self.kind,
            "ndims": self.ndims,
            "order": list(self.order),
            "extent": self.extent,
        }
        if self.kind == "fixed" and self.ndims > 2:
            out["rest"] = self.rest
        if self.layout != "row":
            out["layout"] = self.layout
        if self.part:
            out["part"] = self.part
        if self.kind == "listed":
            out.update(rest=self.rest, listed=[[n, list(dims)] for n, dims in self.listed])
        return out

    @staticmethod
    def from_json(data: dict[str, Any]) -> GridFamily:
        """Return the rule from :meth:`to_json` data."""
        return GridFamily(
            str(data["kind"]),
            int(data["ndims"]),
            tuple(data["order"]),
            int(data["extent"]),
            str(data.get("rest", "balanced")),
            str(data.get("layout", "row")),
            str(data.get("part", "")),
            tuple((int(n), tuple(map(int, dims))) for n, dims in data.get("listed", ())),
        )

    def text(self) -> str:
        """Return a short description for people."""
        first = str(self.order[0]) if self.order else ""
        what = {
            "greedy": "MPI_Dims_create (Open MPI), descending",
            "balanced": "MPI_Dims_create (balanced), descending",
            "greedy_up": "MPI_Dims_create (Open MPI), ascending",
            "balanced_up": "MPI_Dims_create (balanced), ascending",
            "nested": "largest divisor below the root, ascending",
            "nested_up": "largest divisor below the root, descending",
            "power2": f"powers of two, dimension {first} doubled first",
            "cube": "equal extents",
            "fixed": f"extent {self.extent} fixed in dimension {first}",
            "bits": "recursive bisection, dimension " + first + " first"
            if not self.extent
            else f"bits of the rank dealt from the lowest up, dimension {first} first",
            "listed": "of stated extents",
        }
        order = {"row": "", "column": ", column-major", "reverse": ", last rank first"}.get(
            self.layout, f", dimension {self.layout[-1]} fastest, {self.layout[0]} slowest"
        )
        parts = {
            "": "",
            "last": ", the last rank apart",
            "first": ", the first rank apart",
            "root": ", of the largest such number of ranks",
            "power": ", of the largest power of two of the ranks",
        }
        return (
            ("1-D" if self.kind == "line" else f"{self.ndims}-D {what[self.kind]}")
            + order
            + parts[self.part]
        )


def dimensions(layout: str, ndims: int) -> tuple[int, ...]:
    """Return the dimensions from the slowest to the fastest of a layout other than reverse."""
    if layout in ("row", "column"):
        return tuple(range(ndims)) if layout == "row" else tuple(range(ndims))[::-1]
    return tuple(map(int, layout))


def layout_of(slow_first: Sequence[int]) -> str:
    """Return the layout in which the dimensions run from the slowest to the fastest."""
    names = {tuple(range(len(slow_first))): "row", tuple(range(len(slow_first)))[::-1]: "column"}
    return names.get(tuple(slow_first), "".join(map(str, slow_first)))


def _dealt(n: int, order: tuple[int, ...], upwards: bool) -> np.ndarray:
    """Return coordinates made of the bits of the rank, dealt to the dimensions in turn."""
    ranks = np.arange(n, dtype=np.int64)
    bits = n.bit_length() - 1
    coords = np.zeros((len(order), n), dtype=np.int64)
    for k in range(bits):
        d = order[k % len(order)]
        if upwards:
            coords[d] |= (ranks >> k & 1) << (k // len(order))
        else:
            coords[d] = 2 * coords[d] + (ranks >> (bits - 1 - k) & 1)
    return coords


def all_families(counts: Sequence[int]) -> list[GridFamily]:
    """Return all rules of extents, simplest first."""
    out = [GridFamily("line", 1)]
    for nd in (2, 3, 4):
        out.append(GridFamily("cube", nd))
        out += [GridFamily(k, nd) for k in ("balanced", "greedy", "balanced_up", "greedy_up")]
        forward = tuple(range(nd))
        orders = list(permutations(forward)) if nd == 3 else [forward, forward[::-1]]
        orders.sort(key=lambda o: o not in (forward, forward[::-1]))
        out += [GridFamily("power2", nd, o) for o in orders]
        if nd > 2:
            out += [GridFamily(k, nd) for k in ("nested", "nested_up")]
        out += [
            GridFamily("bits", nd, o, up)
            for up in (0, 1)
            for o in (forward, forward[::-1])
            if nd < 4
        ]
    gcd = math.gcd(*counts)
    extents = [e for e in range(2, min(gcd, 64) + 1) if gcd % e == 0]
    out += [GridFamily("fixed", 2, (pos,), e) for e in extents for pos in (0, 1)]
    for e in extents:
        for pos in (0, 1, 2):
            out += [
                GridFamily("fixed", 3, (pos,), e, rest)
                for rest in ("cube", "balanced", "balanced_up", "greedy", "greedy_up")
            ]
            out += [GridFamily("fixed", 3, (pos, *o), e, "power2") for o in ((0, 1), (1, 0))]
    return out


def part_families(counts: Sequence[int]) -> list[GridFamily]:
    """Return rules of grids that leave ranks out: servers, ranks beyond a square."""
    out = []
    for part in ("last", "first", "root", "power"):
        for nd in (1, 2, 3):
            forward = tuple(range(nd))
            rules = (
                [GridFamily("cube", nd)]
                if part == "root"
                else [
                    GridFamily("cube", nd),
                    GridFamily("balanced", nd),
                    GridFamily("balanced_up", nd),
                    GridFamily("power2", nd, forward),
                    GridFamily("power2", nd, forward[::-1]),
                ]
            )
            if nd == 1:
                rules = [GridFamily("line", 1)]
            out += [replace(f, part=part) for f in rules]
    return [
        f
        for f in out
        if all(f.dims(n) is not None for n in counts)
        and any(f.members(n)[1] < n for n in counts)
        and not (f.ndims == 1 and f.part == "root")
        and (f.ndims == 1 or any(sum(x > 1 for x in f.dims(n) or ()) > 1 for n in counts))
    ]


def candidate_families(
    counts: list[int],
    cart: dict[int, tuple[int, ...]] | None = None,
    order: dict[int, tuple[int, ...]] | None = None,
) -> list[GridFamily]:
    """Return the families that admit every count, simplest first.

    Where the program made a Cartesian communicator over all ranks (``cart``: count ->
    extents; ``order``: count -> its members), only families that reproduce its extents and the
    order of its ranks are kept.
    """
    out = all_families(counts)
    if cart and order and any(m != tuple(range(n)) for n, m in order.items()):
        out = [replace(f, layout=way) for f in out if f.kind != "bits" for way in LAYOUTS[1:]] + [
            f for f in out if f.kind == "bits"
        ]
    kept = []
    for fam in out:
        dims = [fam.dims(n) for n in counts]
        if any(d is None for d in dims):
            continue
        if cart:
            if any(fam.dims(n) != d for n, d in cart.items()):
                continue
            if order and any(not _orders(fam, n, m) for n, m in order.items()):
                continue
        elif fam.ndims > 1 and all(d is not None and sum(x > 1 for x in d) < 2 for d in dims):
            continue  # never more than one extent above 1: nothing that the line does not say
        # Families equal on every traced count stay apart: they differ at other counts, and
        # the first in the list (the simplest) wins ties.
        kept.append(fam)
    return kept


def _orders(fam: GridFamily, n: int, members: tuple[int, ...]) -> bool:
    grid = fam.at(n)
    return (
        grid is not None
        and (tuple(range(n)) if grid.order is None else tuple(grid.order.tolist())) == members
    )


def coords_of(dims: tuple[int, ...], n: int) -> np.ndarray:
    """Return the row-major coordinates of ranks 0..n-1, shape (ndims, n)."""
    return np.array(np.unravel_index(np.arange(n), dims), dtype=np.int64).reshape(len(dims), n)


def rank_of(dims: tuple[int, ...], coords: np.ndarray) -> np.ndarray:
    """Return row-major ranks of ``coords``, shape (ndims, m), all inside the grid."""
    result: np.ndarray = np.ravel_multi_index(tuple(coords), dims).astype(np.int64)
    return result
