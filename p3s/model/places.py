"""Communicator laws: which ranks form the communicator that a rank uses, at any count."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from p3s.characterize.tables import Place
from p3s.errors import P3SError
from p3s.model.guards import GridAt

PlaceLaw = dict[str, Any]


def place_law(place: Place, rank: int, g: GridAt) -> PlaceLaw:
    """Return the law that gives ``place.members`` for ``rank``: world, self, axes, part, ...

    axes: all ranks that agree in the other grid coordinates; half: ranks of equal rank modulo
    k or equal rank // (n/k); without: all but one rank; odd: no law found.
    """
    members = place.members
    if members == tuple(range(g.n)):
        return {"kind": "world", "ordinal": place.ordinal}
    if members == (rank,):
        return {"kind": "self", "ordinal": place.ordinal}
    if len(g.dims) > 1:
        for size in range(1, len(g.dims)):
            for axes in combinations(range(len(g.dims)), size):
                if _along(axes, g, rank) == members:
                    return {"kind": "axes", "axes": list(axes), "ordinal": place.ordinal}
    for k in (2, 3, 4, 8):
        if tuple(range(rank % k, g.n, k)) == members:
            return {"kind": "modulo", "k": k, "ordinal": place.ordinal}
        if g.n % k == 0:
            part = g.n // k
            if tuple(range(rank // part * part, rank // part * part + part)) == members:
                return {"kind": "parts", "k": k, "ordinal": place.ordinal}
    for out in (0, g.n - 1):
        if tuple(r for r in range(g.n) if r != out) == members:
            return {"kind": "without", "rank": 0 if out == 0 else -1, "ordinal": place.ordinal}
    if len(members) < g.n and len(members) > 1 and members[-1] - members[0] + 1 == len(members) \
            and members[0] % len(members) == 0:
        return {"kind": "nodes", "size": len(members), "ordinal": place.ordinal}
    return {"kind": "odd", "ordinal": place.ordinal}


def _along(axes: tuple[int, ...], g: GridAt, rank: int) -> tuple[int, ...]:
    same = np.ones(g.n, dtype=bool)
    for d in range(len(g.dims)):
        if d not in axes:
            same &= g.coords[d] == g.coords[d][rank]
    return tuple(int(r) for r in np.flatnonzero(same))


def instances(law: PlaceLaw, g: GridAt) -> tuple[np.ndarray, list[tuple[int, ...]]]:
    """Return (instance number per rank, -1 for non-members; members per instance)."""
    kind = law["kind"]
    ranks = np.arange(g.n)
    if kind == "world":
        return np.zeros(g.n, dtype=np.int64), [tuple(range(g.n))]
    if kind == "self":
        return ranks.astype(np.int64), [(int(r),) for r in ranks]
    if kind == "without":
        out = law["rank"] % g.n
        label = np.where(ranks == out, -1, 0)
    elif kind == "modulo":
        label = ranks % law["k"]
    elif kind == "parts":
        label = ranks // max(g.n // law["k"], 1)
    elif kind == "nodes":
        label = ranks // law["size"]
    elif kind == "axes":
        label = np.zeros(g.n, dtype=np.int64)
        for d, p in enumerate(g.dims):
            if d not in law["axes"]:
                label = label * p + g.coords[d]
    elif kind == "odd":
        return np.full(g.n, -1, dtype=np.int64), []
    else:
        raise P3SError(f"model: unknown communicator law {kind!r}; made by another version")
    names = np.unique(label[label >= 0])
    number = np.full(g.n, -1, dtype=np.int64)
    members = []
    for i, name in enumerate(names):
        where = np.flatnonzero(label == name)
        number[where] = i
        members.append(tuple(int(r) for r in where))
    return number, members


def text(law: PlaceLaw) -> str:
    """Return a communicator law for people."""
    kind = law["kind"]
    return {
        "world": "all ranks", "self": "the rank alone", "odd": "unknown members",
        "axes": "ranks along dimension " + ",".join(str(a) for a in law.get("axes", [])),
        "modulo": f"ranks with equal r mod {law.get('k')}",
        "parts": f"one of {law.get('k')} equal parts", "nodes": f"{law.get('size')} ranks in a row",
        "without": f"all but rank {law.get('rank')}",
    }[kind]
