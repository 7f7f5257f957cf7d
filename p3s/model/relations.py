"""Relations: who a rank's partner is, in process-grid coordinates.

A relation is plain data, {"kind": ...}. Families (xor, dissemination, others) have several
stages; all others have one. ``partners`` gives the partners of all ranks at one count.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from p3s.errors import P3SError
from p3s.model.grids import rank_of
from p3s.model.guards import GridAt

Relation = dict[str, Any]
#: One partner for every rank, at any count.
PERMUTATIONS = ("transpose", "mirror", "opposite")


def _log2_exact(p: int) -> int | None:
    return p.bit_length() - 1 if p > 0 and p & (p - 1) == 0 else None


def _axis(rel: Relation, g: GridAt) -> tuple[np.ndarray, int]:
    """Return coordinate and extent along the relation's axis (None: all ranks)."""
    if rel["axis"] is None:
        return np.arange(g.n), g.n
    return g.coords[rel["axis"]], g.dims[rel["axis"]]


def _replace(rel: Relation, g: GridAt, c: np.ndarray, inside: np.ndarray) -> np.ndarray:
    out = np.full(g.n, -1, dtype=np.int64)
    if rel["axis"] is None:
        out[inside] = c[inside]
        return out
    coords = g.coords.copy()
    coords[rel["axis"]] = np.where(inside, c, 0)
    full = rank_of(g.dims, coords)
    out[inside] = full[inside]
    return out


_TABLES: dict[tuple[object, ...], np.ndarray] = {}


def partners(rel: Relation, g: GridAt) -> np.ndarray:
    """Return partners, shape (stages, n): world ranks, -1 where there is none (read-only)."""
    key = (g.n, g.dims, *((k, tuple(v) if isinstance(v, list) else v)
                          for k, v in sorted(rel.items())))
    table = _TABLES.get(key)
    if table is None:
        table = _partners(rel, g)
        table.setflags(write=False)
        if g.n <= 1024:  # the search asks for the same small tables again and again
            if len(_TABLES) > 4096:
                _TABLES.clear()
            _TABLES[key] = table
    return table


def _partners(rel: Relation, g: GridAt) -> np.ndarray:
    kind = rel["kind"]
    ranks = np.arange(g.n)
    if kind == "self":
        return ranks[None, :].copy()
    if kind == "root":
        r = rel["rank"] if rel["rank"] >= 0 else g.n + rel["rank"]
        return np.full((1, g.n), r if 0 <= r < g.n else -1, dtype=np.int64)
    if kind == "shift":
        coords = g.coords + np.array(rel["vec"], dtype=np.int64)[:, None]
        inside = np.ones(g.n, dtype=bool)
        for d, p in enumerate(g.dims):
            if rel["wrap"][d]:
                coords[d] %= p
            else:
                inside &= (coords[d] >= 0) & (coords[d] < p)
        out = np.full(g.n, -1, dtype=np.int64)
        out[inside] = rank_of(g.dims, coords[:, inside])
        return out[None, :]
    if kind == "xor":
        c, p = _axis(rel, g)
        k = _log2_exact(p)
        if k is None:
            return np.empty((0, g.n), dtype=np.int64)
        stages = range(k - 1, -1, -1) if rel.get("descending") else range(k)
        every = np.ones(g.n, dtype=bool)
        return np.array([_replace(rel, g, c ^ (1 << i), every) for i in stages],
                        dtype=np.int64).reshape(k, g.n)
    if kind == "stride":  # partner at distance 2^i along the axis
        c, p = _axis(rel, g)
        table = []
        for i in range((p - 1).bit_length()):
            target = c + rel["sign"] * (1 << i)
            inside = (target >= 0) & (target < p)
            if rel["wrap"]:
                target, inside = target % p, np.ones(g.n, dtype=bool)
            table.append(_replace(rel, g, target, inside))
        if rel.get("descending"):
            table.reverse()
        return np.array(table, dtype=np.int64).reshape(len(table), g.n)
    if kind == "tree":  # binomial tree with root 0: down to r + 2^s, up to r - 2^s
        stairs = []
        for s in range((g.n - 1).bit_length()):
            step = 1 << s
            if rel["sign"] > 0:
                there = (ranks % (2 * step) == 0) & (ranks + step < g.n)
            else:
                there = ranks % (2 * step) == step
            stairs.append(np.where(there, ranks + rel["sign"] * step, -1))
        if rel.get("descending"):
            stairs.reverse()
        return np.array(stairs, dtype=np.int64).reshape(len(stairs), g.n)
    if kind == "mirror":
        return (g.n - 1 - ranks)[None, :]
    if kind == "opposite":
        return ((ranks + g.n // 2) % g.n)[None, :]
    if kind == "others":
        c, p = _axis(rel, g)
        every = np.ones(g.n, dtype=bool)
        return np.array([_replace(rel, g, (c + s) % p, every) for s in range(1, p)],
                        dtype=np.int64).reshape(p - 1, g.n)
    if kind == "transpose":
        rows, cols = g.dims
        i, j = g.coords
        if rows == cols:
            return (j * cols + i)[None, :]
        if cols == 2 * rows:
            return (j // 2 * cols + 2 * i + j % 2)[None, :]
        if rows == 2 * cols:
            return ((2 * j + i % 2) * cols + i // 2)[None, :]
        return np.full((1, g.n), -1, dtype=np.int64)
    raise P3SError(f"model: unknown relation {kind!r}; the file was made by another version")


def stages_depend_on_n(rel: Relation) -> bool:
    """Return whether the relation is a family whose number of partners is a law."""
    return rel["kind"] in ("xor", "stride", "others", "tree")


def text(rel: Relation) -> str:
    """Return a relation for people."""
    kind = rel["kind"]
    where = "" if rel.get("axis", 0) is None else f" in dimension {rel.get('axis')}"
    if kind == "shift":
        return "shift (" + ", ".join(
            f"{v:+d}{' periodic' if w and v else ''}" if v else "0"
            for v, w in zip(rel["vec"], rel["wrap"], strict=True)) + ")"
    if kind == "root":
        return f"rank {rel['rank'] if rel['rank'] >= 0 else 'n-1'}"
    if kind == "xor":
        return f"c xor 2**s, s < log2(p){where}"
    if kind == "stride":
        return f"c {'+' if rel['sign'] > 0 else '-'} 2**s{' mod p' if rel['wrap'] else ''}{where}"
    if kind == "tree":
        return "binomial tree, " + ("r + 2**s" if rel["sign"] > 0 else "r - 2**s")
    return {"mirror": "n - 1 - r", "opposite": "(r + n//2) mod n",
            "self": "self", "others": f"all others{where}",
            "transpose": "transpose (i,j) -> (j,i)"}[kind]
