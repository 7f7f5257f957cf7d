"""Communicator laws: which ranks form the communicator that a rank uses, at any count.

A law is plain data, {"kind": ..., "ordinal": k-th with these members}. It colours the ranks
(``labels``); those of one colour are a communicator, in the order of their ranks or as "order"
says: "reverse", or "grid" (places on the process grid, row-major).

    world; self
    axes axes grid      ranks that agree in the other coordinates (of another grid: "grid")
    modulo k; nodes size    r mod k; r // size
    parts k cut         k parts: None n divisible, "floor" r*k//n, "tail" the last takes what is
                        left, "short" r // (n//k), "ceil" r // ceil(n/k), "first" one more each
    spread k            r mod (n // k)
    without rank        all but one
    where guard both    the ranks for which a guard holds (both: and those for which not)
    odd                 no law found
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from p3s.errors import P3SError
from p3s.model.grid.grids import GridFamily
from p3s.model.grid.guards import GridAt, eval_guard
from p3s.model.grid.guards import text as guard_text

PlaceLaw = dict[str, Any]
CUTS = ("floor", "tail", "first", "ceil", "short")


def _parts(law: PlaceLaw, n: int, ranks: np.ndarray) -> np.ndarray:
    k, cut = law["k"], law.get("cut")
    if cut is None or cut == "short":
        return np.asarray(ranks // max(n // k, 1))
    if cut == "floor":
        return np.asarray(ranks * k // n)
    if cut == "tail":
        return np.asarray(np.minimum(ranks // max(n // k, 1), k - 1))
    if cut == "ceil":
        return np.asarray(ranks // -(-n // k))
    more, size = n % k, n // k
    return np.asarray(
        np.where(
            ranks < more * (size + 1),
            ranks // (size + 1),
            more + (ranks - more * (size + 1)) // max(size, 1),
        )
    )


def labels(law: PlaceLaw, g: GridAt) -> np.ndarray:
    """Return the colour of every rank, int64, -1 for ranks that are in no communicator."""
    kind = law["kind"]
    ranks = np.arange(g.n, dtype=np.int64)
    if kind == "world":
        return np.zeros(g.n, dtype=np.int64)
    if kind == "self":
        return ranks
    if kind == "without":
        return np.where(ranks == law["rank"] % g.n, -1, 0)
    if kind == "modulo":
        return np.asarray(ranks % law["k"])
    if kind == "nodes":
        return np.asarray(ranks // law["size"])
    if kind == "parts":
        return _parts(law, g.n, ranks)
    if kind == "spread":
        return np.asarray(ranks % max(g.n // law["k"], 1))
    if kind == "where":
        holds = eval_guard(law["guard"], g)
        return np.where(holds, 1, 0 if law.get("both") else -1).astype(np.int64)
    if kind == "axes":
        if "grid" in law:
            other = GridFamily.from_json(law["grid"]).at(g.n)
            if other is None:
                return np.full(g.n, -1, dtype=np.int64)
            g = other
        label = np.zeros(g.n, dtype=np.int64)
        for d, p in enumerate(g.dims):
            if d not in law["axes"]:
                label = label * p + g.coords[d]
        return np.where(g.inside, label, -1)
    if kind == "odd":
        return np.full(g.n, -1, dtype=np.int64)
    raise P3SError(f"model: unknown communicator law {kind!r}; made by another version")


def numbered(law: Mapping[str, Any], g: GridAt) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the instances of a communicator law, none of them listed apart.

    Instance number per rank (-1 for non-members), members of all instances one after the other,
    and where each begins (and the last ends), int64.
    """
    label = labels(dict(law), g)
    sequence = np.arange(g.n, dtype=np.int64)
    if law.get("order") == "reverse":
        sequence = sequence[::-1]
    elif law.get("order") == "grid":
        on = np.flatnonzero(g.inside)
        place = np.ravel_multi_index(tuple(g.coords[:, on]), g.dims)
        sequence = on[np.argsort(place, kind="stable")]
    sequence = sequence[label[sequence] >= 0]
    names, number_of = np.unique(label[sequence], return_inverse=True)
    number = np.full(g.n, -1, dtype=np.int64)
    number[sequence] = number_of
    starts = np.append(0, np.cumsum(np.bincount(number_of, minlength=len(names))))
    return number, sequence[np.argsort(number_of, kind="stable")], starts.astype(np.int64)


def instances(law: PlaceLaw, g: GridAt) -> tuple[np.ndarray, list[tuple[int, ...]]]:
    """Return (instance number per rank, -1 for non-members; members per instance)."""
    number, members, starts = numbered(law, g)
    return number, [tuple(part.tolist()) for part in np.split(members, starts[1:-1])] if len(
        starts
    ) > 1 else []


def text(law: PlaceLaw) -> str:
    """Return a communicator law for people."""
    kind = law["kind"]
    order = {"reverse": ", last rank first", "grid": ", in grid order"}.get(
        law.get("order", ""), ""
    )
    texts: dict[str, Callable[[], str]] = {
        "world": lambda: "all ranks",
        "self": lambda: "the rank alone",
        "odd": lambda: "unknown members",
        "axes": lambda: (
            "ranks along dimension "
            + ",".join(str(a) for a in law["axes"])
            + (f" of {GridFamily.from_json(law['grid']).text()}" if "grid" in law else "")
        ),
        "modulo": lambda: f"ranks with equal r mod {law['k']}",
        "parts": lambda: (
            f"one of {law['k']} "
            + {
                None: "equal parts",
                "floor": "parts, r*k//n",
                "tail": "parts, the last takes the rest",
                "first": "parts, the first take the rest",
                "ceil": "parts of ceil(n/k)",
                "short": "or more parts of n//k",
            }[law.get("cut")]
        ),
        "spread": lambda: f"ranks with equal r mod (n//{law['k']})",
        "nodes": lambda: f"{law['size']} ranks in a row",
        "without": lambda: f"all but rank {law['rank'] if law['rank'] >= 0 else 'n-1'}",
        "where": lambda: (
            f"ranks with {guard_text(law['guard'])}"
            + (" and the others" if law.get("both") else "")
        ),
    }
    return texts[kind]() + order
