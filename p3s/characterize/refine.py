"""What the graph of transitions leaves open, decided by the order of events of some ranks.

"Every tenth step" and a nest of ten turns have the same transitions; two loops of different
ranks can be the branches of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from p3s.characterize.fold import Edge, Loop, count_turns
from p3s.characterize.parse import Ints, Nest, nest_of, parse, trips


def refine(root: Loop, members: Mapping[Any, Mapping[Edge, int]],
           sequences: Mapping[Any, Sequence[int] | Ints], nodes: int) -> Loop:
    """Return the tree with regular guards in place of irregular nests, branches joined.

    members: transitions of all ranks; sequences: node numbers in program order of some of them,
    one of each kind of rank is enough; nodes: how many there are.
    """
    while True:
        nest = nest_of(root, nodes)
        found = {m: trips(parse(nest, s)) for m, s in sequences.items()}
        pick = _guarded(nest, found)
        if pick is None:
            break
        outer, inner = pick
        at = outer.children.index(inner)
        outer.children[at:at + 1] = inner.children
        count_turns(root, members)
    while _join(root):
        count_turns(root, members)
    return root


def _guarded(nest: Nest, found: Mapping[Any, Mapping[int, Ints]]) -> tuple[Loop, Loop] | None:
    """Return an outer and an inner loop that are one loop with a call in every k-th turn."""
    number = {id(loop): k for k, loop in enumerate(nest.loops)}
    for outer in nest.loops[1:]:
        for inner in outer.children:
            if not isinstance(inner, Loop):
                continue
            at = outer.children.index(inner)
            if 0 < at < len(outer.children) - 1:
                continue  # calls on both sides of the inner loop: a nest
            rows = [(t[number[id(outer)]], t[number[id(inner)]]) for t in found.values()
                    if number[id(outer)] in t and number[id(inner)] in t]
            if _every_kth(rows):
                return outer, inner
    return None


def _every_kth(rows: Sequence[tuple[Ints, Ints]]) -> bool:
    """Tell whether inner loops turn k times in all turns of the outer but its first and last.

    rows: trips per entry of the outer and of the inner loop, one pair per rank. A nest whose
    inner trips are all equal stays a nest.
    """
    steps: set[int] = set()
    uneven = False
    for outer, inner in rows:
        if int(outer.sum()) != len(inner):
            return False  # some turns lack the inner loop
        ends = np.cumsum(outer)
        for stop, turns in zip(ends.tolist(), outer.tolist(), strict=True):
            each = inner[stop - turns:stop]
            if turns < 3:
                if turns == 2 and each[0] != each[1]:
                    uneven = True
                continue
            middle = np.unique(each[1:-1])
            if len(middle) > 1 or middle[0] < 2 or max(each[0], each[-1]) > middle[0]:
                return False
            steps.add(int(middle[0]))
            uneven |= bool(each[0] != middle[0] or each[-1] != middle[0])
    return len(steps) == 1 and uneven


def _join(root: Loop) -> bool:
    """Join one pair of neighbouring loops of different ranks with the same turns everywhere."""
    for parent in root.loops():
        for k in range(len(parent.children) - 1):
            a, b = parent.children[k:k + 2]
            if not isinstance(a, Loop) or not isinstance(b, Loop):
                continue
            mine, other = _per_count(a), _per_count(b)
            if mine is None or mine != other or max(mine.values(), default=0) < 2:
                continue
            if a.turns.keys() & b.turns.keys():
                continue
            parent.children[k:k + 2] = [Loop([*a.children, *b.children])]
            return True
    return False


def _per_count(loop: Loop) -> dict[Any, int] | None:
    """Return the turns at each count if they are the same on all ranks that take part."""
    out: dict[Any, int] = {}
    for member, turns in loop.turns.items():
        if out.setdefault(member[0] if isinstance(member, tuple) else None, turns) != turns:
            return None
    return out
