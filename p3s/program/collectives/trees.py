"""Trees over the members of a communicator, by distance from the root (root = 0).

Each returns (parent, kids): parent of every member (-1: root) and a matrix with the children of
each member in the order in which they are served, -1 where there are no more. Shapes as in Open
MPI 4.1.4, ompi/mca/coll/base/coll_base_topo.c (the same in 5.0.9); MPICH's binomial tree
(src/mpi/coll/bcast/bcast_intra_binomial.c, 5.0.1) is ``in_order`` with the children backwards.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from p3s.simulate.steps import Ints

Tree = tuple[Ints, Ints]


def _width(p: int) -> int:
    return max((p - 1).bit_length(), 1)


@cache
def binary(p: int) -> Tree:
    """Every member of level l has children 2^l and 2^(l+1) further on."""
    v = np.arange(p)
    level = np.floor(np.log2(v + 1)).astype(np.int64)
    kids = v[:, None] + (1 << level)[:, None] * np.array([1, 2])
    return _parents(p, np.where(kids < p, kids, -1))


@cache
def binomial(p: int) -> Tree:
    """Children are the members with one higher bit set, the nearest first."""
    v = np.arange(p)
    above = np.where(v > 0, 1 << np.floor(np.log2(np.maximum(v, 1)) + 1).astype(np.int64), 1)
    kids = np.full((p, _width(p)), -1, dtype=np.int64)
    for i in range(_width(p)):
        bit = above << i
        kids[:, i] = np.where((bit < p) & (v + bit < p), v + bit, -1)
    return _parents(p, kids)


@cache
def in_order(p: int) -> Tree:
    """Children are the members with one of the trailing zero bits set, the nearest first."""
    v = np.arange(p)
    kids = np.full((p, _width(p)), -1, dtype=np.int64)
    for i in range(_width(p)):
        bit = 1 << i
        fits = (v & (2 * bit - 1) == 0) & (v + bit < p)
        kids[:, i] = np.where(fits, v + bit, -1)
    return _parents(p, kids)


@cache
def knomial(p: int, radix: int) -> Tree:
    """As binomial in base ``radix``, the biggest subtree first."""
    v = np.arange(p)
    masks = [1]
    while masks[-1] * radix < p:
        masks.append(masks[-1] * radix)
    columns = []
    for mask in reversed(masks):
        for times in range(1, radix):
            kid = v + mask * times
            columns.append(np.where((v % (radix * mask) == 0) & (kid < p), kid, -1))
    return _parents(p, np.stack(columns, axis=1))


@cache
def chain(p: int) -> Tree:
    """Every member has the next one as its child."""
    kids = np.append(np.arange(1, p), -1)[:, None]
    return _parents(p, kids)


@cache
def in_order_binary(p: int) -> Tree:
    """Binary tree whose left and right subtrees are runs of members, root p - 1, by member."""
    kids = np.full((p, 2), -1, dtype=np.int64)
    todo = [(0, p)]
    while todo:
        first, size = todo.pop()
        parent, right = first + size - 1, size >> 1
        left = size - right - 1
        if size > 1:
            kids[parent, 0] = parent - 1
        if left > 0:
            todo.append((first + right, left))
        if size > 2:
            kids[parent, 1] = first + right - 1
            todo.append((first, right))
    parent_of = np.full(p, -1, dtype=np.int64)
    for column in range(2):
        has = kids[:, column] >= 0
        parent_of[kids[has, column]] = np.flatnonzero(has)
    return parent_of, kids


def _parents(p: int, kids: Ints) -> Tree:
    parent = np.full(p, -1, dtype=np.int64)
    for column in range(kids.shape[1]):
        has = kids[:, column] >= 0
        parent[kids[has, column]] = np.flatnonzero(has)
    return parent, kids


def turned(tree: Tree, root: int) -> Tree:
    """Return a tree by member instead of by distance from the root."""
    parent, kids = tree
    p = len(parent)
    away = (np.arange(p) - root) % p
    parent, kids = parent[away], kids[away]
    return (
        np.where(parent >= 0, (parent + root) % p, -1),
        np.where(kids >= 0, (kids + root) % p, -1),
    )
