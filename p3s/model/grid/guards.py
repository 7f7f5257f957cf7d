"""Guards: which ranks execute a slot, as predicates on rank and grid coordinates.

A guard is a list of atoms (a conjunction); an atom is a list whose first element names it, and
["not", atom, ...] holds where the conjunction of its atoms does not. All atoms are evaluated for
all ranks of a count at once, at one stage of a family of partners or iteration of a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from p3s.errors import P3SError

Atom = list[Any]


@dataclass(frozen=True)
class GridAt:
    """The process grid at one count: n, extents, coordinates (ndims, n).

    order: rank at each place of the grid in row-major order (None: the place itself); ranks that
    are not on the grid have coordinates of -1. stage of how many stages, turn: where guards
    are evaluated. Rules are evaluated for all ranks, or for some (``only``): then coords are those
    of the ``ranks``, and ``whole`` is the grid of all."""

    n: int
    dims: tuple[int, ...]
    coords: np.ndarray
    order: np.ndarray | None = None
    stage: int = 0
    stages: int = 1
    turn: int = 0
    layout: str = "row"
    ranks: np.ndarray | None = None
    whole: GridAt | None = None

    def only(self, ranks: np.ndarray) -> GridAt:
        """Return the grid for some of its ranks (numbers of ranks), ascending."""
        whole = self.whole or self
        return replace(self, coords=whole.coords[:, ranks], ranks=ranks, whole=whole)

    @property
    def r(self) -> np.ndarray:
        """The ranks that rules are evaluated for."""
        return np.arange(self.n) if self.ranks is None else self.ranks

    @property
    def size(self) -> int:
        """How many these are."""
        return self.n if self.ranks is None else len(self.ranks)

    def at(self, stage: int = 0, stages: int = 1, turn: int = 0) -> GridAt:
        """Return the same grid at a stage and a turn."""
        if (stage, stages, turn) == (self.stage, self.stages, self.turn):
            return self
        return replace(self, stage=stage, stages=stages, turn=turn)

    def rank_at(self, coords: np.ndarray) -> np.ndarray:
        """Return the ranks at ``coords``, shape (ndims, m), all inside the grid."""
        place = np.ravel_multi_index(tuple(coords), self.dims).astype(np.int64)
        result: np.ndarray = place if self.order is None else self.order[place]
        return result

    @property
    def inside(self) -> np.ndarray:
        """Which ranks are on the grid; the coordinates of the others are -1."""
        return np.asarray(self.coords[0] >= 0)

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells grids apart, stages and iterations left out."""
        return (self.n, self.dims, self.layout)


#: Atoms that depend on the rank alone, not on partner, stage or turn.
RANK_ATOMS = frozenset(
    {
        "rank",
        "notrank",
        "rankmod",
        "notrankmod",
        "below",
        "from",
        "parity",
        "diag",
        "offdiag",
        "less",
        "anti",
        "first",
        "notfirst",
        "last",
        "notlast",
        "mod",
        "wide",
        "lower",
        "upper",
        "mid",
        "notmid",
        "above",
        "ingrid",
        "outgrid",
    }
)


def low_power(n: int) -> int:
    """Return the largest power of two that is at most ``n``."""
    return 1 << (n.bit_length() - 1)


def _rank_atom(atom: Atom, g: GridAt, r: np.ndarray) -> np.ndarray | None:
    op, n = atom[0], g.n
    if op in ("rank", "notrank"):  # r == 0, r == n - 1
        hit = r == (atom[1] if atom[1] >= 0 else n + atom[1])
        return np.asarray(hit if op == "rank" else ~hit)
    if op in ("rankmod", "notrankmod"):
        hit = r % atom[1] == atom[2]
        return np.asarray(hit if op == "rankmod" else ~hit)
    if op in ("below", "from"):  # the bound is a number or a law of n
        return r < _bound(atom[1], n) if op == "below" else r >= _bound(atom[1], n)
    return None


def _bound(name: int | str, n: int) -> int:
    """Return a bound on ranks: a number; n // 2; what pairs cover; powers of two and the rest."""
    if isinstance(name, int):
        return name
    low = low_power(n)
    bounds = {
        "half": n // 2,
        "pairs": n // 2 * 2,
        "power": low,
        "rest": n - low,
        "folded": 2 * (n - low),
    }
    if name not in bounds:
        raise P3SError(f"model: unknown bound {name!r}; the file was made by another version")
    return bounds[name]


def _coordinate_atom(atom: Atom, g: GridAt) -> np.ndarray | None:
    value = _on_grid(atom, g)
    return value if value is None or len(g.dims) == 0 or g.inside.all() else value & g.inside


def _on_grid(atom: Atom, g: GridAt) -> np.ndarray | None:
    op = atom[0]
    if op == "parity":  # of the sum of all coordinates
        return np.asarray(g.coords.sum(axis=0) % 2 == atom[1])
    if op in ("diag", "offdiag", "less", "anti"):
        a, b = g.coords[atom[1]], g.coords[atom[2]]
        if op == "less":
            return np.asarray(a < b)
        if op == "anti":
            return np.asarray(a + b == g.dims[atom[1]] - 1)
        return np.asarray(a == b if op == "diag" else a != b)
    if op not in (
        "first",
        "notfirst",
        "last",
        "notlast",
        "mod",
        "wide",
        "lower",
        "upper",
        "mid",
        "notmid",
    ):
        return None
    d = atom[1]
    c, p = g.coords[d], g.dims[d]
    if op == "mod":
        return np.asarray(c % atom[2] == atom[3])
    if op == "wide":
        return np.full(g.size, p > atom[2])
    return np.asarray(
        {
            "first": c == 0,
            "notfirst": c != 0,
            "last": c == p - 1,
            "notlast": c != p - 1,
            "lower": c < p // 2,
            "upper": c >= p // 2,
            "mid": c == p // 2,
            "notmid": c != p // 2,
        }[op]
    )


def _stage_atom(atom: Atom, g: GridAt, r: np.ndarray) -> np.ndarray | None:
    op, s = atom[0], g.stage
    if op in ("stage", "notstage"):  # the first or the last stage
        hit = s == (0 if atom[1] == 0 else g.stages - 1)
        return np.full(g.size, hit if op == "stage" else not hit)
    if op in ("early", "late"):  # the first half of the stages
        hit = s < (g.stages + atom[1]) // 2
        return np.full(g.size, hit if op == "early" else not hit)
    if op in ("turn", "notturn"):
        hit = g.turn == atom[1]
        return np.full(g.size, hit if op == "turn" else not hit)
    if op in ("within", "beyond"):  # r < 2**(s + k)
        bound = 1 << min(s + atom[1], 62)
        result: np.ndarray | None = r < bound if op == "within" else r >= bound
        return result
    if op == "smod":  # multiples of 2**(s + k), of all coordinates (-2), the rank (-1) or one
        step = 1 << min(s + atom[2], 62)
        if atom[1] == -2:
            return np.asarray((g.coords % step == 0).all(axis=0))
        c = r if atom[1] == -1 else g.coords[atom[1]]
        return np.asarray(c % step == 0)
    if op == "sbit":  # bit s of the rank (-1) or of a coordinate
        c = r if atom[1] == -1 else g.coords[atom[1]]
        return np.asarray((c >> s) & 1 == atom[2])
    return None


def eval_atom(atom: Atom, g: GridAt, peers: np.ndarray | None = None) -> np.ndarray:
    """Return a bool array over ranks; ``peers`` are the slot's partners (-1 outside the grid)."""
    op = atom[0]
    ranks = g.r
    if op in ("peer", "notself", "down", "up"):
        if peers is None:
            return np.ones(g.size, dtype=bool)
        # the partner lies inside the grid, is another rank, a lower or a higher one
        result: np.ndarray = {
            "peer": peers >= 0,
            "notself": peers != ranks,
            "down": peers < ranks,
            "up": peers > ranks,
        }[op]
        return result
    if op == "not":
        return ~eval_guard(atom[1:], g, peers)
    if op == "partner":  # what the partner is
        there = np.zeros(g.size, dtype=bool)
        if peers is not None:
            there[peers >= 0] = eval_atom(atom[1], g.only(peers[peers >= 0]))
        return there
    if op == "above":  # only at more than atom[1] processes
        return np.full(g.size, g.n > atom[1])
    if op in ("ingrid", "outgrid"):
        return g.inside if op == "ingrid" else ~g.inside
    for kind in (
        _rank_atom(atom, g, ranks),
        _coordinate_atom(atom, g),
        _stage_atom(atom, g, ranks),
    ):
        if kind is not None:
            return kind
    raise P3SError(f"model: unknown guard {op!r}; the file was made by another version")


def eval_guard(guard: Sequence[Atom], g: GridAt, peers: np.ndarray | None = None) -> np.ndarray:
    """Return the conjunction of the atoms over all ranks."""
    mask = np.ones(g.size, dtype=bool)
    for atom in guard:
        mask &= eval_atom(atom, g, peers)
    return mask


_COST = {
    "wide": 1.2,
    "mod": 1.5,
    "parity": 1.4,
    "diag": 1.4,
    "offdiag": 1.2,
    "less": 1.5,
    "anti": 1.6,
    "lower": 1.5,
    "upper": 1.5,
    "mid": 1.6,
    "notmid": 1.6,
    "down": 1.1,
    "up": 1.1,
    "stage": 1.3,
    "notstage": 1.3,
    "early": 1.5,
    "late": 1.5,
    "turn": 1.3,
    "notturn": 1.3,
    "within": 1.5,
    "beyond": 1.5,
    "smod": 1.3,
    "sbit": 1.4,
    "peer": 0.0,
}


def atom_cost(atom: Atom) -> float:
    """Return how much an atom costs: geometric ones least, remainders and numbers most."""
    op = atom[0]
    if op == "not":
        return 0.4 + guard_cost(atom[1:])
    if op == "partner":
        return 0.4 + atom_cost(atom[1])
    if op in ("rankmod", "notrankmod"):
        return 2.0 + float(atom[1]) / 16
    if op == "mod" and atom[2] > 2:
        return 2.0 + float(atom[2]) / 8
    if op in ("below", "from"):
        return 2.0 + min(atom[1], 16) / 16 if isinstance(atom[1], int) else 1.7
    if op in ("rank", "notrank") and atom[1] not in (0, -1):
        return 2.2
    return _COST.get(op, 1.0)


#: Atoms up to this cost speak of places on the grid; dearer ones of numbers. Above the second a
#: guard is no obvious one, and less usual ones are tried.
GEOMETRIC, DEAR = 1.7, 2.2


def guard_cost(guard: Sequence[Atom]) -> float:
    """Return the cost of a conjunction."""
    return sum(atom_cost(a) for a in guard) + 0.2 * max(len(guard) - 1, 0)


_BOUNDS = {
    "half": "n//2",
    "pairs": "2*(n//2)",
    "power": "2**floor(log2 n)",
    "rest": "n - 2**floor(log2 n)",
    "folded": "2*(n - 2**floor(log2 n))",
}


def text(guard: Sequence[Atom]) -> str:
    """Return a guard for people."""
    return " and ".join(_text(a) for a in guard) or "all"


def _text(a: Atom) -> str:
    op = a[0]

    def end(k: int) -> str:
        return str(k) if k >= 0 else "n-1"

    def who(d: int) -> str:
        return {-1: "r", -2: "all c"}.get(d, f"c{d}")

    texts: dict[str, Callable[[], str]] = {
        "peer": lambda: "partner in grid",
        "notself": lambda: "partner != self",
        "down": lambda: "partner < r",
        "up": lambda: "partner > r",
        "partner": lambda: f"partner's {_text(a[1])}",
        "not": lambda: f"not ({text(a[1:])})",
        "above": lambda: f"n > {a[1]}",
        "ingrid": lambda: "on the grid",
        "outgrid": lambda: "not on the grid",
        "rank": lambda: f"r == {end(a[1])}",
        "notrank": lambda: f"r != {end(a[1])}",
        "rankmod": lambda: f"r mod {a[1]} == {a[2]}",
        "notrankmod": lambda: f"r mod {a[1]} != {a[2]}",
        "below": lambda: f"r < {_BOUNDS.get(a[1], a[1])}",
        "from": lambda: f"r >= {_BOUNDS.get(a[1], a[1])}",
        "first": lambda: f"c{a[1]} == 0",
        "notfirst": lambda: f"c{a[1]} != 0",
        "last": lambda: f"c{a[1]} == p{a[1]}-1",
        "notlast": lambda: f"c{a[1]} != p{a[1]}-1",
        "lower": lambda: f"c{a[1]} < p{a[1]}//2",
        "upper": lambda: f"c{a[1]} >= p{a[1]}//2",
        "mid": lambda: f"c{a[1]} == p{a[1]}//2",
        "notmid": lambda: f"c{a[1]} != p{a[1]}//2",
        "wide": lambda: f"p{a[1]} > {a[2]}",
        "mod": lambda: f"c{a[1]} mod {a[2]} == {a[3]}",
        "parity": lambda: f"sum of c mod 2 == {a[1]}",
        "diag": lambda: f"c{a[1]} == c{a[2]}",
        "offdiag": lambda: f"c{a[1]} != c{a[2]}",
        "less": lambda: f"c{a[1]} < c{a[2]}",
        "anti": lambda: f"c{a[1]} + c{a[2]} == p{a[1]}-1",
        "stage": lambda: "first stage" if a[1] == 0 else "last stage",
        "notstage": lambda: "not the first stage" if a[1] == 0 else "not the last stage",
        "early": lambda: "first half of the stages",
        "late": lambda: "second half of the stages",
        "turn": lambda: f"t == {a[1]}",
        "notturn": lambda: f"t != {a[1]}",
        "within": lambda: f"r < 2**(s+{a[1]})",
        "beyond": lambda: f"r >= 2**(s+{a[1]})",
        "smod": lambda: f"{who(a[1])} mod 2**(s+{a[2]}) == 0",
        "sbit": lambda: f"bit s of {who(a[1])} == {a[2]}",
    }
    return texts[op]()
