"""Guards: which ranks execute a slot, as predicates on rank and grid coordinates.

A guard is a list of atoms (a conjunction); an atom is a list whose first element names it, and
["not", atom, ...] holds where the conjunction of its atoms does not. All atoms are evaluated for
all ranks of a count at once, at one stage of a family of partners or turn of a loop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from p3s.errors import P3SError

Atom = list[Any]


@dataclass(frozen=True)
class GridAt:
    """The process grid at one count: n, extents, coordinates (ndims, n).

    order: rank at each place of the grid in row-major order (None: the place itself). stage of
    how many stages, turn: where guards are evaluated.
    """

    n: int
    dims: tuple[int, ...]
    coords: np.ndarray
    order: np.ndarray | None = None
    stage: int = 0
    stages: int = 1
    turn: int = 0
    layout: str = "row"

    def at(self, stage: int = 0, stages: int = 1, turn: int = 0) -> GridAt:
        """Return the same grid at a stage and a turn."""
        if (stage, stages, turn) == (self.stage, self.stages, self.turn):
            return self
        return replace(self, stage=stage, stages=stages, turn=turn)

    def rank_at(self, coords: np.ndarray) -> np.ndarray:
        """Return the ranks at ``coords``, shape (ndims, m), all inside the grid."""
        place = np.ravel_multi_index(tuple(coords), self.dims).astype(np.int64)
        return place if self.order is None else self.order[place]

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells grids apart, stages and turns left out."""
        return (self.n, self.dims, self.layout)


def low_power(n: int) -> int:
    """Return the largest power of two that is at most ``n``."""
    return 1 << (n.bit_length() - 1)


def _rank_atom(atom: Atom, g: GridAt, r: np.ndarray) -> np.ndarray | None:
    op, n = atom[0], g.n
    if op in ("rank", "notrank"):  # r == 0, r == n - 1
        hit = r == (atom[1] if atom[1] >= 0 else n + atom[1])
        return hit if op == "rank" else ~hit
    if op in ("rankmod", "notrankmod"):
        hit = r % atom[1] == atom[2]
        return hit if op == "rankmod" else ~hit
    if op in ("below", "from"):  # the bound is a number or a law of n
        return r < _bound(atom[1], n) if op == "below" else r >= _bound(atom[1], n)
    return None


def _bound(name: int | str, n: int) -> int:
    """Return a bound on ranks: a number; n // 2; what pairs cover; powers of two and the rest."""
    if isinstance(name, int):
        return name
    low = low_power(n)
    bounds = {"half": n // 2, "pairs": n // 2 * 2, "power": low, "rest": n - low,
              "folded": 2 * (n - low)}
    if name not in bounds:
        raise P3SError(f"model: unknown bound {name!r}; the file was made by another version")
    return bounds[name]


def _coordinate_atom(atom: Atom, g: GridAt) -> np.ndarray | None:
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
    if op not in ("first", "notfirst", "last", "notlast", "mod", "wide", "lower", "upper", "mid",
                  "notmid"):
        return None
    d = atom[1]
    c, p = g.coords[d], g.dims[d]
    if op == "mod":
        return np.asarray(c % atom[2] == atom[3])
    if op == "wide":
        return np.full(g.n, p > atom[2])
    return np.asarray({"first": c == 0, "notfirst": c != 0, "last": c == p - 1,
                       "notlast": c != p - 1, "lower": c < p // 2, "upper": c >= p // 2,
                       "mid": c == p // 2, "notmid": c != p // 2}[op])


def _stage_atom(atom: Atom, g: GridAt, r: np.ndarray) -> np.ndarray | None:
    op, s = atom[0], g.stage
    if op in ("stage", "notstage"):  # the first or the last stage
        hit = s == (0 if atom[1] == 0 else g.stages - 1)
        return np.full(g.n, hit if op == "stage" else not hit)
    if op in ("turn", "notturn"):
        hit = g.turn == atom[1]
        return np.full(g.n, hit if op == "turn" else not hit)
    if op in ("within", "beyond"):  # r < 2**(s + k)
        bound = 1 << min(s + atom[1], 62)
        return r < bound if op == "within" else r >= bound
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
    ranks = np.arange(g.n)
    if op in ("peer", "notself", "down", "up"):
        if peers is None:
            return np.ones(g.n, dtype=bool)
        # the partner lies inside the grid, is another rank, a lower or a higher one
        return {"peer": peers >= 0, "notself": peers != ranks, "down": peers < ranks,
                "up": peers > ranks}[op]
    if op == "not":
        return ~eval_guard(atom[1:], g, peers)
    if op == "above":  # only at more than atom[1] processes
        return np.full(g.n, g.n > atom[1])
    for kind in (_rank_atom(atom, g, ranks), _coordinate_atom(atom, g),
                 _stage_atom(atom, g, ranks)):
        if kind is not None:
            return kind
    raise P3SError(f"model: unknown guard {op!r}; the file was made by another version")


def eval_guard(guard: Sequence[Atom], g: GridAt, peers: np.ndarray | None = None) -> np.ndarray:
    """Return the conjunction of the atoms over all ranks."""
    mask = np.ones(g.n, dtype=bool)
    for atom in guard:
        mask &= eval_atom(atom, g, peers)
    return mask


_COST = {"wide": 1.2, "mod": 1.5, "parity": 1.4, "diag": 1.4, "offdiag": 1.2, "less": 1.5,
         "anti": 1.6, "lower": 1.5, "upper": 1.5, "mid": 1.6, "notmid": 1.6, "down": 1.1,
         "up": 1.1, "stage": 1.3, "notstage": 1.3, "turn": 1.3, "notturn": 1.3, "within": 1.5,
         "beyond": 1.5, "smod": 1.3, "sbit": 1.4, "peer": 0.0}


def atom_cost(atom: Atom) -> float:
    """Return how much an atom costs: geometric ones least, remainders and numbers most."""
    op = atom[0]
    if op == "not":
        return 0.4 + guard_cost(atom[1:])
    if op in ("rankmod", "notrankmod"):
        return 2.0 + atom[1] / 16
    if op == "mod" and atom[2] > 2:
        return 2.0 + atom[2] / 8
    if op in ("below", "from"):
        return 2.0 + min(atom[1], 16) / 16 if isinstance(atom[1], int) else 1.7
    if op in ("rank", "notrank") and atom[1] not in (0, -1):
        return 2.2
    return _COST.get(op, 1.0)


#: Atoms up to this cost speak of places on the grid; dearer ones of numbers.
_GEOMETRIC = 1.7


def guard_cost(guard: Sequence[Atom]) -> float:
    """Return the cost of a conjunction."""
    return sum(atom_cost(a) for a in guard) + 0.2 * max(len(guard) - 1, 0)


def _plain_atoms(ndims: int) -> list[Atom]:
    """Return the atoms that depend on rank and coordinates alone."""
    atoms: list[Atom] = [["rank", 0], ["notrank", 0], ["rank", -1], ["notrank", -1]]
    for d in range(ndims):
        atoms += [["first", d], ["notfirst", d], ["last", d], ["notlast", d]]
    atoms += [["wide", d, k] for d in range(ndims) for k in (1, 2)]
    atoms += [[w, a, b] for a, b in combinations(range(ndims), 2) for w in ("offdiag", "diag")]
    atoms += [["parity", k] for k in (0, 1)]
    for d in range(ndims):
        atoms += [["mod", d, m, k] for m in (2, 4, 8) for k in range(m)]
        atoms += [[w, d] for w in ("lower", "upper", "mid", "notmid")]
    for a, b in combinations(range(ndims), 2):
        atoms += [["less", a, b], ["less", b, a], ["anti", a, b]]
    atoms += [[w, b] for b in ("half", "pairs", "power", "rest", "folded")
              for w in ("below", "from")]
    atoms += [["rankmod", m, k] for m in range(2, 9) for k in range(m)]
    atoms += [["notrankmod", m, k] for m in range(3, 9) for k in range(m)]
    return atoms


def _stage_atoms(ndims: int) -> list[Atom]:
    """Return the atoms that depend on the stage of a family."""
    atoms: list[Atom] = [[w, k] for k in (0, -1) for w in ("stage", "notstage")]
    where = [-1, *([-2, *range(ndims)] if ndims > 1 else [])]
    atoms += [["smod", d, k] for d in where for k in (0, 1)]
    atoms += [["sbit", d, k] for d in where if d != -2 for k in (0, 1)]
    return atoms + [[w, k] for k in (0, 1) for w in ("within", "beyond")]


_BLOCKS: dict[Any, np.ndarray] = {}
_MATRICES: dict[Any, tuple[list[Atom], np.ndarray]] = {}


def _block(atoms: Sequence[Atom], g: GridAt, key: Any) -> np.ndarray:
    """Return the values of atoms at one grid, shape (atoms, n), remembered under a key."""
    found = _BLOCKS.get(key)
    if found is None:
        found = np.array([eval_atom(a, g) for a in atoms])
        if len(_BLOCKS) > 1024 or found.size > 1 << 20:
            _BLOCKS.clear()
        _BLOCKS[key] = found
    return found


def _matrix(grids: Sequence[GridAt], numbers: tuple[int, ...]) -> tuple[list[Atom], np.ndarray]:
    """Return all atoms that need no partner and their values, shape (atoms, cells)."""
    key = (numbers, *((g.key, g.stage, g.stages, g.turn) for g in grids))
    found = _MATRICES.get(key)
    if found is None:
        ndims = len(grids[0].dims)
        atoms = _plain_atoms(ndims)
        values = [np.concatenate([_block(atoms, g, g.key) for g in grids], axis=1)]
        if any(g.stages > 1 for g in grids):
            more = _stage_atoms(ndims)
            values.append(np.concatenate([_block(more, g, (g.key, g.stage, g.stages))
                                          for g in grids], axis=1))
            atoms += more
        extra: list[Atom] = [[w, k] for k in numbers for w in ("below", "from", "rank", "notrank")]
        if any(g.turn for g in grids):
            extra += [["turn", 0], ["notturn", 0]]
        if extra:
            values.append(np.array([np.concatenate([eval_atom(a, g) for g in grids])
                                    for a in extra]))
            atoms += extra
        table = np.concatenate(values)
        # of atoms equal everywhere the first, the simplest, stands for all
        order = sorted(range(len(atoms)), key=lambda i: atom_cost(atoms[i]))
        first: dict[bytes, int] = {}
        for i in order:
            first.setdefault(table[i].tobytes(), i)
        kept = list(first.values())
        found = ([atoms[i] for i in kept], table[kept])
        if len(_MATRICES) > 256 or table.size > 1 << 24:
            _MATRICES.clear()
        _MATRICES[key] = found
    return found


def fit_guard(
    grids: Sequence[GridAt], sets: Sequence[np.ndarray],
    peers: Sequence[np.ndarray] | None = None, care: Sequence[np.ndarray] | None = None,
) -> list[Atom] | None:
    """Return the simplest guard equal to the observed sets at every count, or None.

    grids: one per count, stage and turn (GridAt.at); sets: a bool array over ranks for each;
    peers: the partner per rank (-1 outside); care: ranks whose membership is known (others are
    left out of the comparison).
    """
    found = fit_guards(grids, sets, peers, care)
    return found[0] if found else None


def fit_guards(
    grids: Sequence[GridAt], sets: Sequence[np.ndarray],
    peers: Sequence[np.ndarray] | None = None, care: Sequence[np.ndarray] | None = None,
) -> list[list[Atom]]:
    """Return the guards equal to the observed sets, cheapest first (a few of them at most)."""
    cares = np.concatenate(list(care)) if care is not None else None
    whole = np.concatenate(list(sets))
    truth = whole if cares is None else whole[cares]
    start = np.ones(len(truth), dtype=bool)
    base: list[Atom] = []
    if peers is not None:
        base = [["peer"]]
        inside = np.concatenate([p >= 0 for p in peers])
        start = inside if cares is None else inside[cares]
    if np.array_equal(start, truth):
        return [base]
    if np.any(truth & ~start):
        return []
    atoms, values = _matrix(grids, _numbers(grids, sets))
    if peers is not None:
        more: list[Atom] = [["notself"], ["down"], ["up"]]
        atoms = [*more, *atoms]
        values = np.concatenate([np.array([np.concatenate(
            [eval_atom(a, g, p) for g, p in zip(grids, peers, strict=True)])
            for a in more]), values])
    if cares is not None:
        values = values[:, cares]
    costs = np.array([atom_cost(a) for a in atoms])
    found = [(guard_cost(c), c) for c in _cover(atoms, values, costs, start, truth)]
    if not found or found[0][0] > 2.2:
        found += [(0.4 + guard_cost(c), [["not", *c]])
                  for c in _cover(atoms, values, costs, start, start & ~truth) if len(c) > 1]
    bits = _evidence(grids, sets, start, cares)
    return [[*base, *c] for _, c in sorted(found, key=lambda f: f[0]) if _bits(c) <= bits][:6]


def _evidence(grids: Sequence[GridAt], sets: Sequence[np.ndarray], start: np.ndarray,
              cares: np.ndarray | None) -> float:
    """Return how many bits it takes to say which of those who could take part do.

    At one count alone anything is as good as any other guess: no bound.
    """
    place = np.concatenate([np.full(len(s), g.n) for g, s in zip(grids, sets, strict=True)])
    truth = np.concatenate(list(sets))
    if cares is not None:
        place, truth = place[cares], truth[cares]
    counts = sorted({g.n for g in grids})
    if len(counts) == 1:
        return math.inf
    bits, whole, none = 0.0, 0, 0
    for n in counts:
        could = int(((place == n) & start).sum())
        do = int(((place == n) & truth & start).sum())
        bits += math.log2(math.comb(could, do))
        whole += could > 0 and do == could
        none += could > 0 and do == 0
    return bits + math.log2(math.comb(whole + none, none))


def _bits(guard: Sequence[Atom]) -> float:
    """Return how many bits it takes to name a guard; geometric atoms come to mind first."""
    total = 0.0
    for a in guard:
        cost = atom_cost(a)
        if a[0] == "not":
            total += 1.0 + _bits(a[1:])
        elif a[0] in ("notself", "wide"):
            total += 1.0
        else:
            total += 2.5 if cost <= 1.2 else 4.5 if cost <= _GEOMETRIC else 7.0
    return total


def _numbers(grids: Sequence[GridAt], sets: Sequence[np.ndarray]) -> tuple[int, ...]:
    """Return numbers that may bound the ranks: how many there are, if always the same."""
    sizes = {int(s.sum()) for s in sets if s.any()}
    if len(sizes) != 1 or len({g.n for g, s in zip(grids, sets, strict=True) if s.any()}) < 2:
        return ()
    size = sizes.pop()
    low = {int(np.argmax(s)) for s in sets if s.any()}
    rest = {g.n - size for g in grids}
    out = {size} | (low if len(low) == 1 else set()) | (rest if len(rest) == 1 else set())
    return tuple(sorted(k for k in out if 0 < k <= 64))


def _cover(atoms: Sequence[Atom], values: np.ndarray, costs: np.ndarray, start: np.ndarray,
           truth: np.ndarray) -> list[list[Atom]]:
    """Return conjunctions equal to ``truth`` inside ``start``, cheapest first.

    An atom is of use if it holds for all of the truth; a conjunction is right if no rank outside
    the truth is in all of its atoms.
    """
    useful = np.flatnonzero((values | ~truth).all(axis=1))
    useful = useful[np.argsort(costs[useful], kind="stable")]
    wrong = values[useful][:, start & ~truth].astype(np.float32)
    keep = wrong.sum(axis=1) < wrong.shape[1]  # the others exclude nobody
    useful, wrong = useful[keep], wrong[keep]
    if (wrong > 0).all(axis=0).any():  # some rank is in all of them, or there are none
        return []
    cost = costs[useful]
    found: list[tuple[float, tuple[int, ...]]] = []
    found += [(float(cost[i]), (int(i),)) for i in np.flatnonzero(wrong.sum(axis=1) == 0)[:3]]
    if found and found[0][0] <= 1.6:
        return [[atoms[useful[i]] for i in c] for _, c in found]
    pairs = np.argwhere(np.triu(wrong @ wrong.T == 0, 1))
    if len(pairs):
        total = cost[pairs].sum(axis=1) + 0.2
        found += [(float(total[k]), tuple(int(x) for x in pairs[k]))
                  for k in np.argsort(total, kind="stable")[:3]]
    if not found:
        few = wrong[:48]
        for i in range(len(few)):
            rest = np.argwhere(np.triu((few * few[i]) @ few.T == 0, 1))
            rest = rest[rest[:, 0] > i]
            if len(rest):
                total = cost[i] + cost[rest].sum(axis=1) + 0.4
                k = int(np.argmin(total))
                found.append((float(total[k]), (i, int(rest[k][0]), int(rest[k][1]))))
    if not found and len(wrong):
        found += _greedy(wrong, cost)
    found.sort(key=lambda f: f[0])
    return [[atoms[useful[i]] for i in c] for _, c in found[:4]]


def _greedy(wrong: np.ndarray, cost: np.ndarray) -> list[tuple[float, tuple[int, ...]]]:
    """Return a conjunction of at most six atoms, each the one that excludes most."""
    left = np.ones(wrong.shape[1], dtype=bool)
    chosen: list[int] = []
    cheap = np.flatnonzero(cost <= _GEOMETRIC)  # many atoms that are not geometric fit anything
    while left.any() and len(chosen) < 6:
        out = (wrong[cheap][:, left] == 0).sum(axis=1)
        if not len(out) or out.max() == 0:
            return []
        best = int(cheap[int(np.argmax(out))])
        chosen.append(best)
        left &= wrong[best] > 0
    if left.any():
        return []
    for i in list(chosen):
        rest = [j for j in chosen if j != i]
        if rest and not (wrong[rest] > 0).all(axis=0).any():
            chosen = rest
    return [(float(cost[chosen].sum()) + 0.2 * (len(chosen) - 1), tuple(chosen))]


_BOUNDS = {"half": "n//2", "pairs": "2*(n//2)", "power": "2**floor(log2 n)",
           "rest": "n - 2**floor(log2 n)", "folded": "2*(n - 2**floor(log2 n))"}


def text(guard: Sequence[Atom]) -> str:
    """Return a guard for people."""
    return " and ".join(_text(a) for a in guard) or "all"


def _text(a: Atom) -> str:
    op = a[0]

    def end(k: int) -> str:
        return str(k) if k >= 0 else "n-1"

    def who(d: int) -> str:
        return {-1: "r", -2: "all c"}.get(d, f"c{d}")

    return {
        "peer": lambda: "partner in grid", "notself": lambda: "partner != self",
        "down": lambda: "partner < r", "up": lambda: "partner > r",
        "not": lambda: f"not ({text(a[1:])})", "above": lambda: f"n > {a[1]}",
        "rank": lambda: f"r == {end(a[1])}", "notrank": lambda: f"r != {end(a[1])}",
        "rankmod": lambda: f"r mod {a[1]} == {a[2]}",
        "notrankmod": lambda: f"r mod {a[1]} != {a[2]}",
        "below": lambda: f"r < {_BOUNDS.get(a[1], a[1])}",
        "from": lambda: f"r >= {_BOUNDS.get(a[1], a[1])}",
        "first": lambda: f"c{a[1]} == 0", "notfirst": lambda: f"c{a[1]} != 0",
        "last": lambda: f"c{a[1]} == p{a[1]}-1", "notlast": lambda: f"c{a[1]} != p{a[1]}-1",
        "lower": lambda: f"c{a[1]} < p{a[1]}//2", "upper": lambda: f"c{a[1]} >= p{a[1]}//2",
        "mid": lambda: f"c{a[1]} == p{a[1]}//2", "notmid": lambda: f"c{a[1]} != p{a[1]}//2",
        "wide": lambda: f"p{a[1]} > {a[2]}",
        "mod": lambda: f"c{a[1]} mod {a[2]} == {a[3]}",
        "parity": lambda: f"sum of c mod 2 == {a[1]}",
        "diag": lambda: f"c{a[1]} == c{a[2]}", "offdiag": lambda: f"c{a[1]} != c{a[2]}",
        "less": lambda: f"c{a[1]} < c{a[2]}",
        "anti": lambda: f"c{a[1]} + c{a[2]} == p{a[1]}-1",
        "stage": lambda: "first stage" if a[1] == 0 else "last stage",
        "notstage": lambda: "not the first stage" if a[1] == 0 else "not the last stage",
        "turn": lambda: f"t == {a[1]}", "notturn": lambda: f"t != {a[1]}",
        "within": lambda: f"r < 2**(s+{a[1]})", "beyond": lambda: f"r >= 2**(s+{a[1]})",
        "smod": lambda: f"{who(a[1])} mod 2**(s+{a[2]}) == 0",
        "sbit": lambda: f"bit s of {who(a[1])} == {a[2]}",
    }[op]()
