"""Directions that dimensions of two ranks leave open: they are as siblings show them.

On two ranks a step up is a step down, and round the edge. What decides is, in this order: what a
neighbourhood collective on a grid says, the other relations of the node, other nodes of its call
site, the other half of a combined call, and the order in which siblings go to both sides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from p3s.base.ops import RECV, SEND
from p3s.capture.neighbours import side_of
from p3s.model.grid.at import GridAt
from p3s.model.grid.nodes import Node, pairs_on
from p3s.model.memory import Memory
from p3s.model.partners.infer_partners import Explanation
from p3s.model.partners.relation import Relation, Shift
from p3s.model.partners.stencil import as_often, leads, ways_between

Vector = tuple[int, ...]
#: Both directions, and what a sign says of a node otherwise.
_BOTH = 0
#: How the receiving half of a combined call is named.
_HALF = "_recv"


@dataclass(frozen=True)
class _Kind:
    """How neighbours are reached: up (1), down (-1) or both (0), periodic, messages a way at n."""

    sign: int
    wrap: bool
    rate: float


def settle(
    nodes: Sequence[Node],
    explained: Mapping[int, Explanation],
    grids: Mapping[int, GridAt],
    periods: tuple[bool, ...] | None,
) -> dict[int, Explanation]:
    """Return the explanations of nodes with the directions that are open as siblings show them."""
    found = dict(explained)
    if not grids:
        return found
    here = _Directions(nodes, found, grids)
    if periods is None:
        here.borders()
    here.signs()
    return found


class _Directions:
    """The explanations, changed in place; open: dimensions that never had three ranks."""

    def __init__(
        self, nodes: Sequence[Node], explained: dict[int, Explanation], grids: Mapping[int, GridAt]
    ) -> None:
        self.nodes, self.explained, self.grids = nodes, explained, grids
        widest = np.max([g.dims for g in grids.values()], axis=0)
        self.open = {d for d, p in enumerate(widest) if p <= 2}
        self._rates: Memory[float | None] = Memory()
        self._steps: Memory[list[Vector]] = Memory()
        self.kinds = {i: kind for i, e in explained.items() if (kind := self._kind(i, e))}

    def _pairs(self, i: int) -> tuple[object, ...]:
        """Return what tells the messages of a node from those of others."""
        rows = self.nodes[i].rows.items()
        return tuple((n, *(x.tobytes() for x in (r.rank, r.peer, r.count))) for n, r in rows)

    def _kind(self, i: int, e: Explanation) -> _Kind | None:
        """Return how a node reaches its neighbours in the dimensions that show it."""
        if e.unexplained or not e.relations:
            return None
        shifts = [r for r in e.relations if isinstance(r, Shift) and not _along(r) & self.open]
        if (
            not shifts
            or len(shifts) < len(e.relations)
            or any(abs(x) > 1 for s in shifts for x in s.vec)
        ):
            return None
        sign = _side([s.vec for s in shifts])
        wraps = {s.wrap[d] for s in shifts for d in _along(s)}
        rate = self._rate(i, shifts)
        if sign is None or len(wraps) != 1 or rate is None:
            return None
        return _Kind(sign, wraps.pop(), rate)

    def _rate(self, i: int, rels: Sequence[Relation]) -> float | None:
        """Return the messages of each way to a partner at the largest count; None: not constant,
        or other partners."""
        return self._rates.of((*rels, *self._pairs(i)), lambda: self._rate_of(i, rels))

    def _rate_of(self, i: int, rels: Sequence[Relation]) -> float | None:
        rate = None
        for n, rows in self.nodes[i].rows.items():
            p = pairs_on(rows, self.grids[n])
            if p.times is None or not leads(rels, p, oneself=False) or not as_often(rels, p):
                return None
            rate = float(rows.count[rows.peer >= 0].sum() / ways_between(rels, p).sum())
        return rate

    # ---- borders and both directions -------------------------------------------------------------
    def borders(self) -> None:
        """Let nodes that move along open dimensions alone do as siblings of the same operation."""
        for i, e in list(self.explained.items()):
            vectors = self._vectors(i)
            if not vectors:
                continue
            for kind in self._siblings(i):
                shifts = self._as(kind, vectors)
                if shifts and self._rate(i, shifts) == kind.rate:
                    axes = sorted({d for s in shifts for d in _along(s)})
                    if sorted(map(_line, e.relations)) != sorted(map(_line, shifts)):
                        self.explained[i] = Explanation(list(shifts), e.cost, 0, axes)
                    break

    def _vectors(self, i: int) -> list[Vector]:
        """Return the steps of a node that moves along open dimensions alone, as absolute values.

        Across an edge of which one dimension has a single rank a step is one along the other.
        """
        return self._steps.of(self._pairs(i), lambda: self._vectors_of(i))

    def _vectors_of(self, i: int) -> list[Vector]:
        steps: dict[Vector, set[Vector]] = {}
        for n, rows in self.nodes[i].rows.items():
            p = pairs_on(rows, self.grids[n])
            if not p.grid.inside.all():
                return []
            step = np.unique(np.abs(p.grid.coords[:, p.peer] - p.grid.coords[:, p.rank]), axis=1)
            for c in step.T:
                steps.setdefault(tuple(map(int, c)), set()).add(p.grid.dims)
            if len(steps) > 1 << len(p.grid.dims):
                return []
        moved = {d for v in steps for d, x in enumerate(v) if x}
        whole = (v for v, seen in steps.items() if not _is_shortened(v, seen, steps))
        return sorted(v for v in whole if any(v)) if moved <= self.open else []

    def _siblings(self, i: int) -> list[_Kind]:
        """Return how siblings do it: those of the call site first, then those of the operation."""
        near: Counter[_Kind] = Counter()
        for j, kind in self.kinds.items():
            if self.nodes[j].op == self.nodes[i].op:
                near[kind] += 1000 if self.nodes[j].site == self.nodes[i].site else 1
        return [kind for kind, _ in near.most_common()]

    def _as(self, kind: _Kind, vectors: Sequence[Vector]) -> list[Shift]:
        """Return shifts along the vectors as a sibling makes them."""
        wrap = (kind.wrap,) * len(vectors[0])
        if kind.sign != _BOTH:
            if any(sum(v) > 1 for v in vectors):
                return []
            return [Shift(vec=tuple(kind.sign * x for x in v), wrap=wrap) for v in vectors]
        both = sorted({w for v in vectors for w in product(*((x, -x) for x in v))}, reverse=True)
        return [Shift(vec=v, wrap=wrap) for v in both]

    # ---- signs -----------------------------------------------------------------------------------
    def signs(self) -> None:
        """Give nodes of one direction each the one that their siblings leave for them."""
        nodes = self.nodes
        order = sorted(self.explained, key=lambda i: (nodes[i].tag is None, nodes[i].tag or 0))
        sent: dict[tuple[Vector, int], set[int]] = {}
        for kind in (SEND, RECV):
            mine = [i for i in order if nodes[i].kind == kind]
            usual = _first_sign([self.explained[i] for i in mine], -1 if kind == SEND else 1)
            next_: dict[tuple[Vector, str], int] = {}
            for i in mine:
                unclear = self._unclear(i)
                if not unclear:
                    continue
                key = _line(unclear[0])[0]
                tag = nodes[i].only_tag
                stated = None if tag is None else side_of(nodes[i].op, tag)
                sign = self._shown(i) if stated is None else stated
                if sign is None and kind == RECV and tag is not None:
                    sign = _opposite(sent.get((key, tag), set()))
                if sign is None:
                    sign = next_.get((key, nodes[i].op), usual)
                next_[(key, nodes[i].op)] = -sign
                if kind == SEND and tag is not None:
                    sent.setdefault((key, tag), set()).add(sign)
                self._turn(i, unclear, sign, known=stated is not None)

    def _unclear(self, i: int) -> list[Shift]:
        """Return the shifts of a node whose direction is open; none where it has both."""
        e = self.explained[i]
        unclear = [r for r in e.relations if isinstance(r, Shift) and _along(r) & set(e.ambiguous)]
        if not unclear or not all(_along(r) <= self.open for r in unclear):
            return []
        return unclear if _side([r.vec for r in unclear]) in (1, -1) else []

    def _shown(self, i: int) -> int | None:
        """Return the direction that the node, its call site or the other half of the call show."""
        node = self.nodes[i]
        own = _pick_direction(self._sides([i]))
        if own is not None:
            return own
        same = _pick_direction(self._sides(self._of_call(node.site, node.op)))
        if same is not None:
            return same
        half = node.op.removesuffix(_HALF) if node.op.endswith(_HALF) else node.op + _HALF
        return _opposite(set(self._sides(self._of_call(node.site, half))))

    def _of_call(self, site: str, op: str) -> list[int]:
        return [j for j in self.explained if self.nodes[j].site == site and self.nodes[j].op == op]

    def _sides(self, which: Sequence[int]) -> Iterator[int]:
        """Yield the directions of the shifts of nodes along dimensions that show them."""
        for j in which:
            for r in self.explained[j].relations:
                if isinstance(r, Shift) and not _along(r) & self.open:
                    side = _side([r.vec])
                    yield _BOTH if side is None else side

    def _turn(self, i: int, unclear: Sequence[Shift], sign: int, *, known: bool) -> None:
        """Let shifts go in a direction; known: the program says it, so that nothing is open."""
        e = self.explained[i]
        clear = {d for r in unclear for d in _along(r)} if known else set()
        turned = [
            replace(r, vec=tuple(sign * abs(x) for x in r.vec))
            if any(r is u for u in unclear) and isinstance(r, Shift)
            else r
            for r in e.relations
        ]
        ambiguous = [d for d in e.ambiguous if d not in clear]
        self.explained[i] = Explanation(turned, e.cost, e.unexplained, ambiguous)


def _is_shortened(vector: Vector, seen: Iterable[Vector], steps: Iterable[Vector]) -> bool:
    """Return whether a step is another one wherever it was seen, on grids of these extents."""
    return any(
        other != vector
        and all(
            vector == tuple(x if p > 1 else 0 for x, p in zip(other, dims, strict=True))
            for dims in seen
        )
        for other in steps
    )


def _along(shift: Shift) -> set[int]:
    return {d for d, x in enumerate(shift.vec) if x}


def _line(rel: Relation) -> tuple[Vector, tuple[bool, ...]]:
    """Return what a shift is without its direction; nothing of other relations."""
    if not isinstance(rel, Shift):
        return (), ()
    wraps = tuple(w and bool(x) for w, x in zip(rel.wrap, rel.vec, strict=True))
    return tuple(map(abs, rel.vec)), wraps


def _side(vectors: Sequence[Vector]) -> int | None:
    """Return whether vectors lead up, down, or both ways (0); None: some here, some there."""
    if all(min(v) >= 0 for v in vectors):
        return 1
    if all(max(v) <= 0 for v in vectors):
        return -1
    return _BOTH if {tuple(-x for x in v) for v in vectors} == set(vectors) else None


def _pick_direction(signs: Iterator[int]) -> int | None:
    """Return the one direction that there is."""
    found = set(signs)
    return found.pop() if found in ({1}, {-1}) else None


def _opposite(signs: set[int]) -> int | None:
    return -next(iter(signs)) if signs in ({1}, {-1}) else None


def _first_sign(explained: Sequence[Explanation], default: int) -> int:
    """Return the direction of the first of siblings, as most of those that show it have it."""
    first: dict[Vector, int] = {}
    votes = 0
    for e in explained:
        only = e.relations[0] if len(e.relations) == 1 else None
        if e.ambiguous or not isinstance(only, Shift):
            continue
        axis = tuple(map(abs, only.vec))
        sign = 1 if next((v for v in only.vec if v), 0) > 0 else -1
        if first.get(axis, 0) == -sign:  # the second of a pair
            votes += first.pop(axis)
        else:
            first[axis] = sign
    return default if votes == 0 else 1 if votes > 0 else -1
