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
    Job,
    PowerOfTwo,
    Tree,
    around,
    binary,
    binomial,
    binomial_moves,
    blocks_of,
    chain,
    elements_of,
    from_root,
    gather_back,
    halve,
    in_order,
    in_order_binary,
    knomial,
    masks,
    power_below,
    subtrees,
    without_partner,
)
from p3s.program.collectives.registry import COLLECTIVES, algorithm
from p3s.program.collectives.writer import ADD, Handle, Writer
from p3s.simulate.steps import Op

#: Passes a vector along a tree, and says which member has which number in it.
Way = Callable[[Writer, Job, Tree], None]
Start = Callable[[Writer, Job], tuple[Writer, Job]]
KNOMIAL_RADIX = 4


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


def _give(
    w: Writer, inner: Ints, kids: Ints, first: Ints | int, n: Ints | int, blocking: bool
) -> None:
    """Send to all children; first, n: first byte and bytes of what each member receives."""
    first, n = (np.broadcast_to(each, len(kids)) for each in (first, n))
    at_once = ((kids[inner] >= 0).sum(axis=1) == 1) | blocking
    handles = []
    for column in range(kids.shape[1]):
        to = kids[inner, column]
        now, later = (to >= 0) & at_once, (to >= 0) & ~at_once
        w.send(inner[now], to[now], first[to[now]], n[to[now]])
        handles.append(w.isend(inner[later], to[later], first[to[later]], n[to[later]]))
    if not blocking:
        w.wait(inner[~at_once], *handles)


@algorithm("linear", "bcast")
def bcast_linear(w: Writer, job: Job) -> None:
    """The root sends to all."""
    w.move(job.root, job.others, 0, job.nbytes, sends=Op.ISEND)
    w.wait([job.root])


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
    w.recv(v[1:], parent[1:], n[1:])
    _give(w, v[(kids >= 0).any(axis=1)], kids, first, n, True)
    swap = v[1:] if p % 2 else v[1:-1]
    w.trade(swap, np.where(side == 0, v + 1, v - 1)[swap], first[swap], n[swap])
    if p % 2 == 0:
        w.move(0, p - 1, half, job.nbytes - half)


def _scatter_for_bcast(w: Writer, job: Job) -> int:
    """Give each member its share from member 0; return the bytes of a share."""
    v, total = job.everyone, job.nbytes
    share = -(-job.count // job.p) * job.element
    low = np.where(v > 0, v & -v, job.p)
    n = np.maximum(np.minimum(total, (v + low) * share) - v * share, 0)
    binomial_moves(w, job.p, n, v * share, up=False, empty=False)
    return share


@algorithm("scatter_ring", "bcast")
def bcast_scatter_ring(w: Writer, job: Job) -> None:
    """Scatter by a binomial tree, then a ring."""
    if job.count < job.p:
        bcast_linear(w, job)
        return
    w, job = from_root(w, job)
    share = _scatter_for_bcast(w, job)
    first = job.everyone * share
    around(w, job, first, np.clip(job.nbytes - first, 0, share))


@algorithm("scatter_doubling", "bcast")
def bcast_scatter_doubling(w: Writer, job: Job) -> None:
    """Scatter by a binomial tree, then recursive doubling."""
    if job.count < job.p:
        bcast_linear(w, job)
        return
    w, job = from_root(w, job)
    share, p, v = _scatter_for_bcast(w, job), job.p, job.everyone

    def owned(tree: Ints, mask: int) -> tuple[Ints, Ints]:
        both = np.minimum(np.stack((tree, tree + mask)), p) * share
        low, high = np.minimum(both, job.nbytes)
        return tree * share, high - low

    for mask in masks(p):
        other, tree, _ = subtrees(p, mask)
        pair = other < p
        first, n = owned(tree, mask)
        w.trade(v[pair], other[pair], first[pair], n[pair])
        first, n = owned(tree + mask, mask)
        for has, to in without_partner(p, mask):
            w.move(has, to, first[has], n[has])


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
    w.move(job.others[::-1], job.root, 0, job.nbytes, ADD)


@algorithm("in_order_binary", "reduce")
def reduce_in_order_binary(w: Writer, job: Job) -> None:
    """Binary tree that keeps the order of members, to the last one; it sends to the root."""
    last = job.p - 1
    up(w, job, in_order_binary(job.p))
    if job.root != last:
        w.move(last, job.root, 0, job.nbytes)


def far_first(w: Writer, job: Job, tree: Tree) -> None:
    """Go down by blocking sends."""
    down(w, job, tree, blocking=True)


def one_by_one(w: Writer, job: Job, _tree: Tree) -> None:
    """Go up the binomial tree that keeps the order of members, one receive after the other."""
    binomial_moves(w, job.p, np.full(job.p, job.nbytes), how=ADD, up=True)


#: Bytes of the fragments of a chain to the root, and from it: of short vectors and of long ones.
REDUCE_FRAGMENT, _FRAGMENTS, _LONG = 8192, (8192, 32768), 524288


def swap_root(w: Writer, job: Job, segment: int = 0) -> tuple[Writer, Job]:
    """Return writer and job in which member 0 is the root; they have changed places."""
    names = job.everyone
    names[0], names[job.root] = job.root, 0
    pieces = -(-job.nbytes // segment) if segment else 1
    return w.among(names), replace(job, root=0, segment=0, pieces=pieces)


def _sent_in_fragments(w: Writer, job: Job) -> tuple[Writer, Job]:
    return swap_root(w, job, _FRAGMENTS[job.nbytes >= _LONG])


def _reduced_in_fragments(w: Writer, job: Job) -> tuple[Writer, Job]:
    return swap_root(w, job, REDUCE_FRAGMENT)


def _along(w: Writer, job: Job, *, way: Way, tree: Callable[[int], Tree], start: Start) -> None:
    """Go down from the root, or up to it, along a tree of the members."""
    way(*start(w, job), tree(job.p))


#: How a vector goes along a tree: the way (up: two receives are posted at a time), the tree, and
#: which member has which number in it.
_ALONG: dict[str, dict[str, tuple[Way, Callable[[int], Tree], Start]]] = {
    "bcast": {
        "pipeline": (down, chain, from_root),
        "binary": (down, binary, from_root),
        "binomial": (down, binomial, from_root),
        "binomial_far": (far_first, partial(knomial, radix=2), from_root),
        "knomial": (down, partial(knomial, radix=KNOMIAL_RADIX), from_root),
        "swapped_binomial": (down, binomial, swap_root),
        "swapped_chain": (down, chain, _sent_in_fragments),
    },
    "reduce": {
        "pipeline": (up, chain, from_root),
        "binary": (up, binary, from_root),
        "binomial": (up, in_order, from_root),
        "binomial_blocking": (one_by_one, in_order, from_root),
        "swapped_binomial": (one_by_one, in_order, swap_root),
        "swapped_chain": (up, chain, _reduced_in_fragments),
    },
}
for _call, _ways in _ALONG.items():
    for _name, (_way, _tree, _start) in _ways.items():
        algorithm(_name, _call)(partial(_along, way=_way, tree=_tree, start=_start))
bcast_pipeline = COLLECTIVES["bcast"].algorithms["pipeline"]
bcast_binomial = COLLECTIVES["bcast"].algorithms["binomial"]
reduce_binomial_blocking = COLLECTIVES["reduce"].algorithms["binomial_blocking"]


def _rabenseifner(w: Writer, job: Job, *, blocks: bool) -> None:
    """Reduce-scatter by halving in elements (Open MPI), or blocks (MPICH); gather to the root."""
    if not blocks and (power_below(job.p) < 2 or job.count < power_below(job.p)):
        reduce_linear(w, job)
        return
    folded = PowerOfTwo.whole(w, job, keep_odd=False) if blocks else PowerOfTwo.by_halves(w, job)
    units = blocks_of(job, folded, even=True) if blocks else elements_of(job)
    gather_back(w, job, folded, halve(w, folded, units))


algorithm("rabenseifner", "reduce")(partial(_rabenseifner, blocks=False))
algorithm("rabenseifner_blocks", "reduce")(partial(_rabenseifner, blocks=True))


def _linear(w: Writer, job: Job, *, gather: bool, at_once: bool, empty: bool) -> None:
    """The root receives from all, or sends to all, one after the other or ``at_once``.

    ``empty``: of nothing, too.
    """
    first, n = job.blocks(job.everyone, 1)
    members = job.others if empty else job.others[n[job.others] > 0]
    sends = Op.ISEND if at_once and not gather else Op.SEND
    takes = Op.IRECV if at_once and gather else Op.RECV
    root = np.full_like(members, job.root)
    who, to = (members, root) if gather else (root, members)
    w.move(who, to, first[members], n[members], sends=sends, takes=takes)
    if at_once and len(members):
        w.wait([job.root])


scatter_linear_posted = partial(_linear, gather=False, at_once=True, empty=True)
for _call in ("gather", "scatter"):
    _write = partial(_linear, gather=_call == "gather")
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


def _subtrees(w: Writer, job: Job, *, up: bool) -> None:
    """Binomial tree; every member sends, or gets, the blocks of its subtree."""
    away = job.everyone
    low = np.where(away > 0, away & -away, job.p)
    first, n = job.blocks(away + job.root, np.minimum(low, job.p - away))
    binomial_moves(from_root(w, job)[0], job.p, n, first, up=up)


algorithm("binomial", "gather")(partial(_subtrees, up=True))
algorithm("binomial", "scatter")(partial(_subtrees, up=False))
