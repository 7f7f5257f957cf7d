"""Bcast, Reduce, Gather(v), Scatter(v): algorithms as messages.

Read from Open MPI 4.1.4 (unchanged in 5.0.9), ompi/mca/coll/base/coll_base_{bcast,reduce,gather,
scatter}.c and ompi/mca/coll/basic/coll_basic_{gatherv,scatterv}.c, and from MPICH 5.0.1,
src/mpi/coll/{bcast,reduce,gather,gatherv,scatter,scatterv}/. The trees of Open MPI's "libnbc" swap
member 0 and the root instead of turning around the ring.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from p3s.base.arrays import Ints
from p3s.program.collectives.job import (
    Folded,
    Job,
    Tree,
    around,
    binary,
    binomial,
    chain,
    climb,
    descend,
    from_root,
    gather_back,
    halve,
    in_order,
    in_order_binary,
    knomial,
    masks,
    power_below,
    windows_of,
    without_partner,
)
from p3s.program.collectives.registry import algorithm
from p3s.program.collectives.writer import ADD, Handle, Writer

#: Passes a vector along a tree.
Way = Callable[[Writer, Job, Tree], None]


def down(w: Writer, job: Job, tree: Tree, *, blocking: bool = False) -> None:
    """Every member passes on what its parent gave it; segments in a pipeline of two."""
    parent, kids = tree
    child = np.flatnonzero(parent >= 0)
    inner = np.flatnonzero((kids >= 0).any(axis=1))
    pieces = job.cut()
    if len(pieces) == 1:
        w.recv(child, parent[child], pieces[0][1])
        _give(w, inner, kids, *pieces[0], blocking)
        return
    coming = w.irecv(child, parent[child], pieces[0][1])
    for i, (first, n) in enumerate(pieces):
        arrived = coming
        if i + 1 < len(pieces):
            coming = w.irecv(child, parent[child], pieces[i + 1][1])
        w.wait(child, arrived)
        _give(w, inner, kids, first, n, blocking)


def _give(w: Writer, inner: Ints, kids: Ints, first: int, n: int, blocking: bool) -> None:
    single = (kids[inner] >= 0).sum(axis=1) == 1
    handles = []
    for column in range(kids.shape[1]):
        to = kids[inner, column]
        at_once = (to >= 0) & (single | blocking)
        w.send(inner[at_once], to[at_once], first, n)
        later = (to >= 0) & ~(single | blocking)
        handles.append(w.isend(inner[later], to[later], first, n))
    if not blocking:
        w.wait(inner[~single], *handles)


@algorithm("linear", "bcast")
def bcast_linear(w: Writer, job: Job) -> None:
    """The root sends to all."""
    w.recv(job.others, job.root, job.nbytes)
    w.isend(np.full(job.p - 1, job.root), job.others, 0, job.nbytes)
    w.wait([job.root])


def _along(w: Writer, job: Job, *, way: Way, tree: Callable[[int], Tree]) -> None:
    """Go down from the root, or up to it, along a tree of the members."""
    way(*from_root(w, job), tree(job.p))


#: A chain through all members, a binary tree, a binomial one with the nearest child first.
for _name, _tree in (("pipeline", chain), ("binary", binary), ("binomial", binomial)):
    algorithm(_name, "bcast")(partial(_along, way=down, tree=_tree))
bcast_pipeline = partial(_along, way=down, tree=chain)
bcast_binomial = partial(_along, way=down, tree=binomial)


@algorithm("binomial_far", "bcast")
def bcast_binomial_far(w: Writer, job: Job) -> None:
    """Binomial tree by blocking sends, the biggest subtree first."""
    down(*from_root(w, job), knomial(job.p, 2), blocking=True)


@algorithm("knomial", "bcast")
def bcast_knomial(w: Writer, job: Job) -> None:
    """k-nomial tree."""
    down(*from_root(w, job), knomial(job.p, job.radix))


@algorithm("split_binary", "bcast")
def bcast_split_binary(w: Writer, job: Job) -> None:
    """Halves go down the two sides of a binary tree, then pairs exchange them."""
    w, job = from_root(w, job)
    count = job.count
    half = (count - count // 2) * job.element
    if count < 2 or job.p < 3:
        bcast_pipeline(w, job)
        return
    parent, kids = binary(job.p)
    p, v = job.p, job.everyone
    side = (v + 1) % 2  # odd distances from the root are on the left
    first = np.where(side == 0, 0, half)
    n = np.where(side == 0, half, job.nbytes - half)
    inner = v[1:][(kids[1:] >= 0).any(axis=1)]
    w.recv(v[1:], parent[1:], n[1:])
    for column in range(2):
        if kids[0, column] >= 0:
            w.send([0], kids[0, column], first[kids[0, column]], n[kids[0, column]])
        to = kids[inner, column]
        has = to >= 0
        w.send(inner[has], to[has], first[inner[has]], n[inner[has]])
    pair = np.where(side == 0, v + 1, v - 1)
    swap = v[1:] if p % 2 else v[1:-1]
    w.exchange(swap, pair[swap], first[swap], n[swap], pair[swap], n[pair[swap]])
    if p % 2 == 0:
        w.send([0], p - 1, half, job.nbytes - half)
        w.recv([p - 1], 0, job.nbytes - half)


def _scatter_for_bcast(w: Writer, job: Job) -> tuple[Ints, Ints, int]:
    """Give member v its share from member 0; return first byte and bytes held by v, share."""
    p, total = job.p, job.nbytes
    unit = job.element
    share = -(-(total // unit) // p) * unit
    v = job.everyone
    held = np.minimum(np.maximum(total - v * share, 0), share)
    low = np.where(v > 0, v & -v, 1 << (p - 1).bit_length())
    bytes_of = np.maximum(np.minimum(total, (v + low) * share) - v * share, 0)
    takes = (v > 0) & (bytes_of > 0)
    w.recv(v[takes], (v - low)[takes], bytes_of[takes])
    for mask in reversed(masks(p)):
        sends = (mask < low) & (v + mask < p)
        to = np.where(sends, v + mask, 0)
        sends &= bytes_of[to] > 0
        w.send(v[sends], to[sends], to[sends] * share, bytes_of[to[sends]])
    return v * share, held, share


@algorithm("scatter_ring", "bcast")
def bcast_scatter_ring(w: Writer, job: Job) -> None:
    """Scatter by a binomial tree, then a ring."""
    if job.count < job.p:
        bcast_linear(w, job)
        return
    w, job = from_root(w, job)
    first, held, _ = _scatter_for_bcast(w, job)
    around(w, job, first, held)


@algorithm("scatter_doubling", "bcast")
def bcast_scatter_doubling(w: Writer, job: Job) -> None:
    """Scatter by a binomial tree, then recursive doubling."""
    if job.count < job.p:
        bcast_linear(w, job)
        return
    w, job = from_root(w, job)
    _, _, share = _scatter_for_bcast(w, job)
    p, v = job.p, job.everyone
    bound = np.minimum(np.arange(2 * p + 1) * share, job.nbytes)

    def owned(tree: Ints, mask: int) -> Ints:
        end = np.minimum(np.minimum(tree + mask, p), 2 * p)
        return np.asarray(bound[end] - bound[np.minimum(tree, p)])

    for mask in masks(p):
        other = v ^ mask
        tree, far = v & ~(mask - 1), other & ~(mask - 1)
        pair = other < p
        w.exchange(
            v[pair],
            other[pair],
            tree[pair] * share,
            owned(tree, mask)[pair],
            other[pair],
            owned(far, mask)[pair],
        )
        n = owned(tree + mask, mask)
        for other, has, lacks in without_partner(p, mask, tree, far):
            w.send(v[has], other[has], (tree + mask)[has] * share, n[has])
            w.recv(v[lacks], other[lacks], n[lacks])


def up(w: Writer, job: Job, tree: Tree) -> None:
    """Every member combines its children's vectors, two receives posted, and sends up."""
    parent, kids = tree
    child = np.flatnonzero(parent >= 0)
    pieces = job.cut()
    if len(pieces) == 1 and kids.shape[1] == 1:  # a chain: nothing to overlap
        has = np.flatnonzero(kids[:, 0] >= 0)
        w.recv(has, kids[has, 0], job.nbytes, ADD)
        w.send(child, parent[child], *pieces[0])
        return
    member = np.full(job.p, -1, dtype=np.int64)  # of the request that is outstanding
    record = np.full(job.p, -1, dtype=np.int64)

    def settle(who: Ints) -> None:
        who = who[record[who] >= 0]
        w.wait(who, Handle(member[who], record[who]))
        record[who] = -1

    for i, (_first, n) in enumerate(pieces):
        for column in range(kids.shape[1]):
            has = np.flatnonzero(kids[:, column] >= 0)
            posted = w.irecv(has, kids[has, column], n, ADD)
            settle(has)
            member[has], record[has] = posted.member, posted.record
            if column == 0 and i:
                w.send(child, parent[child], *pieces[i - 1])
    settle(np.flatnonzero((kids >= 0).any(axis=1)))
    w.send(child, parent[child], *pieces[-1])


@algorithm("linear", "reduce")
def reduce_linear(w: Writer, job: Job) -> None:
    """The root receives from all, the last member first."""
    for member in job.others[::-1].tolist():
        w.recv([job.root], member, job.nbytes, ADD)
    w.send(job.others, job.root, 0, job.nbytes)


#: The same to the root: two receives are posted at a time.
for _name, _tree in (("pipeline", chain), ("binary", binary), ("binomial", in_order)):
    algorithm(_name, "reduce")(partial(_along, way=up, tree=_tree))


@algorithm("binomial_blocking", "reduce")
def reduce_binomial_blocking(w: Writer, job: Job) -> None:
    """Binomial tree, one receive after the other."""
    w, job = from_root(w, job)
    climb(w, in_order(job.p), np.full(job.p, job.nbytes), how=ADD)


@algorithm("in_order_binary", "reduce")
def reduce_in_order_binary(w: Writer, job: Job) -> None:
    """Binary tree that keeps the order of members, to the last one; it sends to the root."""
    last = job.p - 1
    up(w, job, in_order_binary(job.p))
    if job.root != last:
        w.send([last], job.root, 0, job.nbytes)
        w.recv([job.root], last, job.nbytes)


#: Bytes of the fragments of a chain.
REDUCE_FRAGMENT = 8192


def _swapped(w: Writer, job: Job, segment: int = 0) -> tuple[Writer, Job]:
    """Return writer and job in which member 0 is the root; they have changed places."""
    names = job.everyone
    names[0], names[job.root] = job.root, 0
    pieces = -(-job.nbytes // segment) if segment else 1
    return w.among(names), replace(job, root=0, segment=0, pieces=pieces)


@algorithm("swapped_binomial", "bcast")
def bcast_swapped_binomial(w: Writer, job: Job) -> None:
    """Binomial tree from the root, which has changed places with member 0."""
    down(*_swapped(w, job), binomial(job.p))


@algorithm("swapped_chain", "bcast")
def bcast_swapped_chain(w: Writer, job: Job) -> None:
    """Chain in fragments from the root, which has changed places with member 0."""
    down(*_swapped(w, job, 8192 if job.nbytes < 524288 else 32768), chain(job.p))


@algorithm("swapped_binomial", "reduce")
def reduce_swapped_binomial(w: Writer, job: Job) -> None:
    """Binomial tree to the root, which has changed places with member 0."""
    reduce_binomial_blocking(*_swapped(w, job))


@algorithm("swapped_chain", "reduce")
def reduce_swapped_chain(w: Writer, job: Job) -> None:
    """Chain in fragments to the root, which has changed places with member 0."""
    up(*_swapped(w, job, REDUCE_FRAGMENT), chain(job.p))


@algorithm("rabenseifner", "reduce")
def reduce_rabenseifner(w: Writer, job: Job) -> None:
    """Reduce-scatter by halving in elements, gather to the root (Open MPI)."""
    power = power_below(job.p)
    if power < 2 or job.count < power:
        reduce_linear(w, job)
        return
    folded = Folded.by_halves(w, job)
    gather_back(w, job, folded, halve(w, job, folded, windows_of(job, power, blocks=False)))


@algorithm("rabenseifner_blocks", "reduce")
def reduce_rabenseifner_blocks(w: Writer, job: Job) -> None:
    """Reduce-scatter by halving in blocks, gather to the root (MPICH)."""
    power = power_below(job.p)
    folded = Folded.into_even(w, job)
    gather_back(w, job, folded, halve(w, job, folded, windows_of(job, power, blocks=True)))


def _gather(w: Writer, job: Job, *, at_once: bool, empty: bool) -> None:
    """The root receives from all, one after the other or ``at_once``; ``empty``: nothing, too."""
    first, n = job.blocks(job.everyone, 1)
    giving = job.others if empty else job.others[n[job.others] > 0]
    for member in giving.tolist():
        (w.irecv if at_once else w.recv)([job.root], member, n[member])
    if at_once and len(giving):
        w.wait([job.root])
    w.send(giving, job.root, first[giving], n[giving])


def _scatter(w: Writer, job: Job, *, at_once: bool, empty: bool) -> None:
    """The root sends to all, one after the other or ``at_once``; ``empty``: nothing, too."""
    first, n = job.blocks(job.everyone, 1)
    taking = job.others if empty else job.others[n[job.others] > 0]
    root = np.full(len(taking), job.root)
    (w.isend if at_once else w.send)(root, taking, first[taking], n[taking])
    if at_once and len(taking):
        w.wait([job.root])
    w.recv(taking, job.root, n[taking])


scatter_linear_posted = partial(_scatter, at_once=True, empty=True)
for _call, _write in (("gather", _gather), ("scatter", _scatter)):
    algorithm("linear_posted", _call)(partial(_write, at_once=True, empty=True))
    algorithm("linear", _call)(partial(_write, at_once=False, empty=True))
    algorithm("linear_posted_all", f"{_call}v")(partial(_write, at_once=True, empty=True))
    algorithm("linear", f"{_call}v")(partial(_write, at_once=False, empty=False))
    algorithm("linear_posted", f"{_call}v")(partial(_write, at_once=True, empty=False))


@algorithm("linear_sync", "gather")
def gather_linear_sync(w: Writer, job: Job) -> None:
    """The root asks one after the other; the answer comes in two parts."""
    first, n = job.blocks(job.everyone, 1)
    part = np.minimum(n, job.segment) if job.segment else n
    rest = []
    for member in job.others.tolist():
        begun = w.irecv([job.root], member, part[member])
        w.send([job.root], member, 0, 0)
        rest.append(w.irecv([job.root], member, n[member] - part[member]))
        w.wait([job.root], begun)
    w.wait([job.root])
    who = job.others
    w.recv(who, job.root, 0)
    w.send(who, job.root, first[who], part[who])
    w.send(who, job.root, first[who] + part[who], (n - part)[who])


@algorithm("binomial", "gather")
def gather_binomial(w: Writer, job: Job) -> None:
    """Binomial tree; every member sends the blocks of its subtree."""
    first, n = _subtrees(job)
    climb(from_root(w, job)[0], in_order(job.p), n, first)


@algorithm("binomial", "scatter")
def scatter_binomial(w: Writer, job: Job) -> None:
    """Binomial tree; every member gets the blocks of its subtree, the biggest goes first."""
    first, n = _subtrees(job)
    descend(from_root(w, job)[0], in_order(job.p), n, first)


def _subtrees(job: Job) -> tuple[Ints, Ints]:
    """Return (first byte, bytes) of the blocks of subtrees, by distance from the root."""
    away = job.everyone
    low = np.where(away > 0, away & -away, job.p)
    return job.blocks(away + job.root, np.minimum(low, job.p - away))
