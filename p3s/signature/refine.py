"""What the graph of transitions leaves open, decided by the order of events of some ranks.

"Every tenth step" and a nest of ten iterations have the same transitions; two loops of different
ranks can be the branches of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from p3s.signature.fold import Edge, Loop, count_turns
from p3s.signature.parse import Ints, Nest, Parsed, nest_of, parse, trips


def refine(
    root: Loop,
    members: Mapping[Any, Mapping[Edge, int]],
    sequences: Mapping[Any, Sequence[int] | Ints],
    nodes: int,
) -> tuple[Nest, dict[Any, Parsed]]:
    """Put regular guards in place of irregular nests, join branches; return the nest, parsed.

    root: changed in place; members: transitions of all ranks; sequences: node numbers in program
    order of some of them, one of each kind of rank is enough; nodes: how many there are.
    """
    number = {
        m: np.bincount(np.asarray(s, dtype=np.int64), minlength=nodes) for m, s in sequences.items()
    }
    while True:
        nest = nest_of(root, nodes)
        parsed = {m: parse(nest, s) for m, s in sequences.items()}
        pick = _guarded(nest, {m: trips(p) for m, p in parsed.items()}, number)
        if pick is None:
            break
        outer, inner = pick
        at = outer.children.index(inner)
        outer.children[at : at + 1] = inner.children
        count_turns(root, members)
    joined = False
    while _join(root):
        joined = True
        count_turns(root, members)
    if joined:
        nest = nest_of(root, nodes)
        parsed = {m: parse(nest, s) for m, s in sequences.items()}
    return nest, parsed


def _guarded(
    nest: Nest, found: Mapping[Any, Mapping[int, Ints]], number: Mapping[Any, Ints]
) -> tuple[Loop, Loop] | None:
    """Return an outer and an inner loop that are one loop with a call in every k-th turn."""
    index = {id(loop): k for k, loop in enumerate(nest.loops)}
    for outer in nest.loops[1:]:
        own = outer.own_nodes()
        for inner in outer.children:
            if not isinstance(inner, Loop):
                continue
            at = outer.children.index(inner)
            if 0 < at < len(outer.children) - 1:
                continue  # calls on both sides of the inner loop: a nest
            rows = [
                (
                    t[index[id(outer)]],
                    t[index[id(inner)]],
                    int(number[m][own].max()) if own else None,
                )
                for m, t in found.items()
                if index[id(outer)] in t and index[id(inner)] in t
            ]
            if _every_kth(rows, before=at > 0):
                return outer, inner
    return None


def _every_kth(rows: Sequence[tuple[Ints, Ints, int | None]], before: bool) -> bool:
    """Tell whether inner loops run k times in all iterations of the outer but its first and last.

    rows: trips per entry of the outer and of the inner loop, and how often a call of the outer
    loop's own is made, one per rank; before: it comes before the inner loop. A nest whose inner
    trips are all equal stays a nest, and so does one with the call in an iteration that is too
    short for it."""
    steps: set[int] = set()
    uneven = False
    for outer, inner, _ in rows:
        if int(outer.sum()) != len(inner):
            return False  # some iterations lack the inner loop
        ends = np.cumsum(outer)
        for stop, turns in zip(ends.tolist(), outer.tolist(), strict=True):
            each = inner[stop - turns : stop]
            if turns < 3:
                if turns == 2 and each[0] != each[1]:
                    uneven = True
                continue
            middle = np.unique(each[1:-1])
            if len(middle) > 1 or middle[0] < 2 or max(each[0], each[-1]) > middle[0]:
                return False
            steps.add(int(middle[0]))
            uneven |= bool(each[0] != middle[0] or each[-1] != middle[0])
    if len(steps) != 1 or not uneven:
        return False
    step = steps.pop()
    for outer, inner, calls in rows:
        last = np.cumsum(outer)
        edge = inner[last - outer] if before else inner[last - 1]
        if calls and calls != len(inner) - int((edge < step).sum()):
            return False
    return True


def _join(root: Loop) -> bool:
    """Join one pair of neighbouring loops of different ranks with the same iterations
    everywhere."""
    for parent in root.loops():
        for k in range(len(parent.children) - 1):
            a, b = parent.children[k : k + 2]
            if not isinstance(a, Loop) or not isinstance(b, Loop):
                continue
            mine, other = _per_count(a), _per_count(b)
            if mine is None or mine != other or max(mine.values(), default=0) < 2:
                continue
            if a.turns.keys() & b.turns.keys():
                continue
            parent.children[k : k + 2] = [Loop([*a.children, *b.children])]
            return True
    return False


def _per_count(loop: Loop) -> dict[Any, int] | None:
    """Return the iterations at each count if they are the same on all ranks that take part."""
    out: dict[Any, int] = {}
    for member, turns in loop.turns.items():
        if out.setdefault(member[0] if isinstance(member, tuple) else None, turns) != turns:
            return None
    return out
