"""Relations: who a rank's partner is, in process-grid coordinates.

A relation is plain data, {"kind": ...}. Most lead along an axis (axes.py): all ranks (None), a
dimension or a communicator; c is the place on it, p its length. Families have several stages,
numbered s = 0, 1, ... in the order in which they run; all others have one. ``partners`` gives the
partners of all ranks at one count.

    self; shift vec wrap                  the grid moved by a vector, bordered or periodic
    root rank                             rank 0, -1 (the last), "half", or any other, for all
    place axis rank                       place 0, -1, "half", k or own coordinate "c0" of the axis
    along axis by wrap                    c + by
    skew axis of sign                     c plus or minus own coordinate "of", periodic
    far axis k sign wrap                  c + sign * (p // k), bordered: inside k equal parts
    mirror axis; opposite                 p - 1 - c; (r + n // 2) mod n
    transpose axes                        coordinates exchanged (also 2:1)
    modulo k                              r mod k
    fold sign                             c - 2**floor(log2 p) (sign -1), or plus, inside
    xor axis fold                         c xor 2**s; fold "power": c < 2**floor(log2 p) only;
                                          "pairs": of the numbers left when the first ranks pair up
    stride axis sign wrap base            c + sign * base**s
    level axis sign wrap all anchor       ((c >> s) + sign) << s of the multiples of 2**s; all: of
                                          all coordinates; anchor "last": counted from the end
    tree sign root form axis base         binomial tree; form "low": 2**s ranks hand on in stage s
    heap axis k sign                      children k c + 1 + s (sign 1); parent (c - 1) // k (-1)
    others axis walk                      all others: (c + s), (c - s), c xor s, (s - c), s
    steps axis by                         c + by * (s + 1), inside
    sample                                no rule: a sample of an irregular neighbourhood
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from p3s.errors import P3SError
from p3s.model.grid.axes import Line, axis_key, line, low_powers
from p3s.model.grid.guards import GridAt
from p3s.model.partners import irregular
from p3s.model.partners.places import text as place_text

Relation = dict[str, Any]
#: One partner for every rank, at any count.
PERMUTATIONS = ("transpose", "mirror", "opposite")
FAMILIES = ("xor", "stride", "level", "others", "tree", "heap", "steps")

_TABLES: dict[tuple[object, ...], np.ndarray] = {}


def relation_key(rel: Relation) -> tuple[object, ...]:
    """Return a hashable name of a relation."""
    return tuple(
        (k, axis_key(v) if k == "axis" else tuple(v) if isinstance(v, list) else v)
        for k, v in sorted(rel.items())
    )


def partners(rel: Relation, g: GridAt) -> np.ndarray:
    """Return partners, shape (stages, n): world ranks, -1 where there is none (read-only)."""
    if rel["kind"] == "sample":
        sample = irregular.partners(rel, g.n)
        return sample if g.ranks is None else sample[:, g.ranks]
    if g.ranks is not None:
        some = _partners(rel, g)
        return np.ascontiguousarray(some[::-1]) if rel.get("descending") else some
    key = (*g.key, relation_key(rel))
    table = _TABLES.get(key)
    if table is None:
        table = _partners(rel, g)
        if rel.get("descending"):
            table = np.ascontiguousarray(table[::-1])
        table.setflags(write=False)
        if g.n <= 1024:  # the search asks for the same small tables again and again
            if len(_TABLES) > 8192:
                _TABLES.clear()
            _TABLES[key] = table
    return table


def at_stage(rel: Relation | None, g: GridAt, stage: int, stages: int, turn: int = 0) -> GridAt:
    """Return the grid at a stage of the relation, as guards want it: 2**stage is the distance."""
    if rel is not None and rel.get("descending"):
        stage = stages - 1 - stage
    return g.at(stage, stages, turn)


def _stack(rows: list[np.ndarray], n: int) -> np.ndarray:
    return np.array(rows, dtype=np.int64).reshape(len(rows), n)


def place_on(rank: int | str, p: Any, g: GridAt) -> Any:
    """Return a place on lines of length p: 0, 1, ..., -1 (the last), "half", or own "c0"."""
    if isinstance(rank, str):
        return p // 2 if rank == "half" else g.coords[int(rank[1:])]
    return rank + 0 * p if rank >= 0 else p + rank


def _partners(rel: Relation, g: GridAt) -> np.ndarray:
    kind = rel["kind"]
    ranks = g.r
    if kind == "self":
        return ranks[None, :].copy()
    if kind == "root":
        r = int(place_on(rel["rank"], g.n, g))
        return np.full((1, g.size), r if 0 <= r < g.n else -1, dtype=np.int64)
    if kind == "shift":
        return _shifted(rel, g)
    if kind == "transpose":
        return _transposed(rel.get("axes", [0, 1]), g)
    if kind == "opposite":
        return ((ranks + g.n // 2) % g.n)[None, :]
    if kind == "modulo":
        result: np.ndarray = (ranks % rel["k"])[None, :]
        return result
    ln = line(rel.get("axis"), g)
    c, p = ln.c, ln.p
    if kind == "mirror":
        return ln.ranks(p - 1 - c)[None, :]
    if kind == "place":
        to = place_on(rel["rank"], p, g)
        return ln.ranks(to)[None, :]
    if kind == "along":
        to = c + rel["by"]
        return ln.ranks(to % np.maximum(p, 1) if rel["wrap"] else to)[None, :]
    if kind == "skew":
        return ln.ranks((c + rel["sign"] * g.coords[rel["of"]]) % np.maximum(p, 1))[None, :]
    if kind == "far":
        to = c + rel["sign"] * (p // rel["k"])
        if rel["wrap"]:
            return ln.ranks(to % np.maximum(p, 1))[None, :]
        parts = rel["k"] * (p // rel["k"])
        return ln.ranks(to, (c < parts) & (to < parts))[None, :]
    if kind == "fold":
        low = low_powers(p)
        up = rel["sign"] > 0
        return ln.ranks(c + low if up else c - low, c < low if up else c >= low)[None, :]
    rows = _FAMILIES.get(kind)
    if rows is None:
        raise P3SError(f"model: unknown relation {kind!r}; the file was made by another version")
    return _stack(rows(rel, g, ln), g.size)


def _shifted(rel: Relation, g: GridAt) -> np.ndarray:
    coords = g.coords + np.array(rel["vec"], dtype=np.int64)[:, None]
    inside = g.inside.copy()
    for d, p in enumerate(g.dims):
        if rel["wrap"][d]:
            coords[d] %= p
        else:
            inside &= (coords[d] >= 0) & (coords[d] < p)
    out = np.full(g.size, -1, dtype=np.int64)
    out[inside] = g.rank_at(coords[:, inside])
    return out[None, :]


def _transposed(axes: list[int], g: GridAt) -> np.ndarray:
    a, b = axes
    rows, cols = g.dims[a], g.dims[b]
    i, j = g.coords[a], g.coords[b]
    to = g.coords.copy()
    if rows == cols:
        to[a], to[b] = j, i
    elif cols == 2 * rows:
        to[a], to[b] = j // 2, 2 * i + j % 2
    elif rows == 2 * cols:
        to[a], to[b] = 2 * j + i % 2, i // 2
    else:
        return np.full((1, g.size), -1, dtype=np.int64)
    out = np.full(g.size, -1, dtype=np.int64)
    out[g.inside] = g.rank_at(to[:, g.inside])
    return out[None, :]


def _digits(p: int, base: int = 2) -> int:
    """Return how many powers of ``base`` are below p."""
    k = 0
    while base**k < p:
        k += 1
    return k


def _xor(rel: Relation, g: GridAt, ln: Line) -> list[np.ndarray]:
    fold = rel.get("fold")
    low = low_powers(ln.p)
    if fold is None:
        return [ln.ranks(ln.c ^ (1 << i)) for i in range(_digits(ln.longest))]
    stages = range(int(low.max()).bit_length() - 1)
    if fold == "power":
        return [ln.ranks(ln.c ^ (1 << i), (ln.c < low) & ((ln.c ^ (1 << i)) < low)) for i in stages]
    rest = ln.p - low
    left = (ln.c >= 2 * rest) | (ln.c % 2 == 1)
    new = np.where(ln.c < 2 * rest, ln.c // 2, ln.c - rest)
    out = []
    for i in stages:
        to = new ^ (1 << i)
        out.append(ln.ranks(np.where(to < rest, 2 * to + 1, to + rest), left & (to < low)))
    return out


def _stride(rel: Relation, g: GridAt, ln: Line) -> list[np.ndarray]:
    base = rel.get("base", 2)
    out = []
    for i in range(_digits(ln.longest, base)):
        to = ln.c + rel["sign"] * base**i
        out.append(ln.ranks(to % np.maximum(ln.p, 1) if rel["wrap"] else to))
    return out


def _level(rel: Relation, g: GridAt, ln: Line) -> list[np.ndarray]:
    last = rel.get("anchor") == "last"  # those that go on working are the last of their groups
    c = ln.p - 1 - ln.c if last else ln.c
    sign = -rel["sign"] if last else rel["sign"]
    out = []
    for s in range(_digits(ln.longest)):
        many = (ln.p + (1 << s) - 1) >> s
        works = c % (1 << s) == 0
        if rel.get("all"):  # all dimensions coarsen to as many working ranks
            for d, p in enumerate(g.dims):
                step = max((p << s) // max(ln.longest, 1), 1)
                works = works & ((p - 1 - g.coords[d] if last else g.coords[d]) % step == 0)
        to = (c >> s) + sign
        if rel["wrap"]:
            to = to % np.maximum(many, 1)
        to = np.where(to >= 0, to << s, -1)
        out.append(ln.ranks(np.where((to >= 0) & last, ln.p - 1 - to, to), works & (many > 1)))
    return out


def _tree(rel: Relation, g: GridAt, ln: Line) -> list[np.ndarray]:
    root = place_on(rel.get("root", 0), ln.p, g)
    p = np.maximum(ln.p, 1)
    v, base, out = (ln.c - root) % p, rel.get("base", 2), []
    for s in range(_digits(ln.longest, base)):
        step = base**s
        for k in range(1, base):  # the k-th child of a stage
            if rel.get("form") == "low":
                there = v < step if rel["sign"] > 0 else (v >= k * step) & (v < (k + 1) * step)
            elif rel["sign"] > 0:
                there = v % (base * step) == 0
            else:
                there = v % (base * step) == k * step
            to = v + rel["sign"] * k * step
            out.append(ln.ranks((to + root) % p, there & (to < p) & (to >= 0)))
    return out


def _heap(rel: Relation, g: GridAt, ln: Line) -> list[np.ndarray]:
    if rel["sign"] < 0:
        return [ln.ranks((ln.c - 1) // rel["k"], ln.c > 0)]
    return [ln.ranks(rel["k"] * ln.c + k) for k in range(1, rel["k"] + 1)]


def _others(rel: Relation, g: GridAt, ln: Line) -> list[np.ndarray]:
    walk, p, c = rel.get("walk", "plus"), np.maximum(ln.p, 1), ln.c
    most = ln.longest
    if walk == "xor":
        stages = range(1, 1 << _digits(most))
        return [ln.ranks(c ^ s) for s in stages]
    if walk in ("plus", "minus"):
        sign = 1 if walk == "plus" else -1
        return [ln.ranks((c + sign * s) % p, s < ln.p) for s in range(1, most)]
    if walk == "meet":  # (s - c) mod p, as in tournaments
        return [ln.ranks((s - c) % p, ((s - c) % p != c) & (s < ln.p)) for s in range(most)]
    order = range(most) if walk == "up" else range(most - 1, -1, -1)
    return [ln.ranks(np.full(ln.n, s), c != s) for s in order]


def _steps(rel: Relation, g: GridAt, ln: Line) -> list[np.ndarray]:
    by = rel["by"]
    return [ln.ranks(ln.c + by * s) for s in range(1, (ln.longest - 1) // by + 1)]


_FAMILIES = {
    "xor": _xor,
    "stride": _stride,
    "level": _level,
    "tree": _tree,
    "heap": _heap,
    "others": _others,
    "steps": _steps,
}


def stages_depend_on_n(rel: Relation) -> bool:
    """Return whether the relation is a family whose number of partners is a law."""
    return rel["kind"] in FAMILIES and rel["kind"] != "heap"


def walks(rel: Relation) -> list[Relation]:
    """Return the same family with its stages in every order in which programs go through them."""
    if rel["kind"] == "others":
        return [
            {**rel, "walk": w} if w != "plus" else rel
            for w in ("plus", "minus", "xor", "up", "meet", "down")
        ]
    if rel["kind"] in FAMILIES:
        return [rel, {**rel, "descending": True}]
    return [rel]


def text(rel: Relation) -> str:
    """Return a relation for people."""
    if rel["kind"] == "sample":
        return irregular.text(rel)
    kind, axis = rel["kind"], rel.get("axis")
    where = (
        ""
        if axis is None
        else f" in dimension {axis}"
        if isinstance(axis, int)
        else f" among {place_text(axis)}"
    )

    def sign(k: int) -> str:
        return "+" if k > 0 else "-"

    def end(k: Any) -> str:
        return {"half": "half-way", -1: "last"}.get(k, str(k))

    wrap = " mod p" if rel.get("wrap") else ""
    base = rel.get("base", 2)
    texts: dict[str, Callable[[], str]] = {
        "self": lambda: "self",
        "shift": lambda: (
            "shift ("
            + ", ".join(
                f"{v:+d}{' periodic' if w and v else ''}" if v else "0"
                for v, w in zip(rel["vec"], rel["wrap"], strict=True)
            )
            + ")"
        ),
        "root": lambda: "rank " + {"half": "n//2", -1: "n-1"}.get(rel["rank"], str(rel["rank"])),
        "place": lambda: f"place {end(rel['rank'])}{where}",
        "along": lambda: f"c {rel['by']:+d}{wrap}{where}",
        "skew": lambda: f"c {sign(rel['sign'])} c{rel['of']} mod p{where}",
        "far": lambda: f"c {sign(rel['sign'])} p//{rel['k']}{wrap}{where}",
        "mirror": lambda: f"p - 1 - c{where}" if axis is not None else "n - 1 - r",
        "opposite": lambda: "(r + n//2) mod n",
        "transpose": lambda: (
            "transpose of dimensions " + ",".join(map(str, rel.get("axes", [0, 1])))
        ),
        "modulo": lambda: f"rank r mod {rel['k']}",
        "fold": lambda: f"c {sign(rel['sign'])} 2**floor(log2 p){where}",
        "xor": lambda: (
            "c xor 2**s, s < log2(p)"
            + {"power": ", c < 2**floor(log2 p)", "pairs": ", the first ranks paired up"}.get(
                rel.get("fold", ""), ""
            )
            + where
        ),
        "stride": lambda: f"c {sign(rel['sign'])} {base}**s{wrap}{where}",
        "level": lambda: (
            f"next multiple of 2**s, {sign(rel['sign'])}{wrap}{where}"
            + (", from the end" if rel.get("anchor") else "")
            + (", others idle in all dimensions" if rel.get("all") else "")
        ),
        "tree": lambda: (
            ("doubling" if rel.get("form") else "binomial" if base == 2 else f"{base}-nomial")
            + " tree, "
            + ("r + " if rel["sign"] > 0 else "r - ")
            + f"{base}**s"
            + (f" from {end(rel['root'])}" if rel.get("root", 0) != 0 else "")
            + where
        ),
        "heap": lambda: (
            (f"children {rel['k']}c + 1 ..." if rel["sign"] > 0 else f"parent (c - 1)//{rel['k']}")
            + where
        ),
        "others": lambda: (
            f"all others{where}"
            + {
                "plus": "",
                "minus": ", downwards",
                "xor": " by c xor s",
                "up": " in order",
                "down": " in falling order",
                "meet": " by (s - c) mod p",
            }[rel.get("walk", "plus")]
        ),
        "steps": lambda: f"every {rel['by']}-th rank above{where}",
    }
    return texts[kind]()
