"""Bcast, Reduce, Gather(v), Scatter(v): algorithms as messages.

Read from Open MPI 4.1.4 (unchanged in 5.0.9), ompi/mca/coll/base/coll_base_{bcast,reduce,gather,
scatter}.c and ompi/mca/coll/basic/coll_basic_{gatherv,scatterv}.c, and from MPICH 5.0.1,
src/mpi/coll/{bcast,reduce,gather,gatherv,scatter,scatterv}/.
"""

from __future__ import annotations

import numpy as np

from p3s.program.collectives.job import (
    Folded,
    Job,
    Tree,
    binary,
    binomial,
    chain,
    gather_back,
    halve,
    in_order,
    in_order_binary,
    knomial,
    power_below,
    turned,
    windows_of,
)
from p3s.program.collectives.registry import algorithm
from p3s.program.collectives.writer import ADD, Handle, Writer


def _down(w: Writer, job: Job, tree: Tree, *, blocking: bool = False) -> None:
    """Every member passes on what its parent gave it; segments in a pipeline of two."""
    parent, kids = turned(tree, job.root)
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
    w: Writer, inner: np.ndarray, kids: np.ndarray, first: int, n: int, blocking: bool
) -> None:
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


@algorithm("pipeline", "bcast")
def bcast_pipeline(w: Writer, job: Job) -> None:
    """A chain through all members."""
    _down(w, job, chain(job.p))


@algorithm("binary", "bcast")
def bcast_binary(w: Writer, job: Job) -> None:
    """Binary tree."""
    _down(w, job, binary(job.p))


@algorithm("binomial", "bcast")
def bcast_binomial(w: Writer, job: Job) -> None:
    """Binomial tree, the nearest child first."""
    _down(w, job, binomial(job.p))


@algorithm("binomial_far", "bcast")
def bcast_binomial_far(w: Writer, job: Job) -> None:
    """Binomial tree by blocking sends, the biggest subtree first."""
    parent, kids = in_order(job.p)
    _down(w, job, (parent, kids[:, ::-1]), blocking=True)


@algorithm("knomial", "bcast")
def bcast_knomial(w: Writer, job: Job) -> None:
    """k-nomial tree."""
    _down(w, job, knomial(job.p, job.radix))


@algorithm("split_binary", "bcast")
def bcast_split_binary(w: Writer, job: Job) -> None:
    """Halves go down the two sides of a binary tree, then pairs exchange them."""
    count = job.count
    half = (count - count // 2) * job.element
    if count < 2 or job.p < 3:
        bcast_pipeline(w, job)
        return
    parent, kids = binary(job.p)
    p, root = job.p, job.root
    away = np.arange(p)
    side = (away + 1) % 2  # odd distances from the root are on the left
    first = np.where(side == 0, 0, half)
    n = np.where(side == 0, half, job.nbytes - half)
    real = (away + root) % p
    inner = away[1:][(kids[1:] >= 0).any(axis=1)]
    w.recv(real[1:], real[parent[1:]], n[1:])
    for column in range(2):
        if kids[0, column] >= 0:
            w.send([root], real[kids[0, column]], first[kids[0, column]], n[kids[0, column]])
        to = kids[inner, column]
        has = to >= 0
        w.send(real[inner[has]], real[to[has]], first[inner[has]], n[inner[has]])
    pair = np.where(side == 0, away + 1, away - 1)
    swap = away[1:] if p % 2 else away[1:-1]
    w.exchange(real[swap], real[pair[swap]], first[swap], n[swap], real[pair[swap]], n[pair[swap]])
    if p % 2 == 0:
        w.send([root], real[p - 1], half, job.nbytes - half)
        w.recv([real[p - 1]], root, job.nbytes - half)


def _scatter_for_bcast(w: Writer, job: Job) -> tuple[np.ndarray, np.ndarray, int]:
    """Give member v of the tree its share; returns first byte and bytes held by v, share."""
    p, total = job.p, job.nbytes
    unit = job.element
    share = -(-(total // unit) // p) * unit
    v = np.arange(p)
    held = np.minimum(np.maximum(total - v * share, 0), share)
    real = (v + job.root) % p
    low = np.where(v > 0, v & -v, 1 << (p - 1).bit_length())
    bytes_of = np.maximum(np.minimum(total, (v + low) * share) - v * share, 0)
    takes = (v > 0) & (bytes_of > 0)
    w.recv(real[takes], real[(v - low)[takes]], bytes_of[takes])
    mask = 1 << ((p - 1).bit_length() - 1)
    while mask:
        sends = (mask < low) & (v + mask < p)
        to = np.where(sends, v + mask, 0)
        sends &= bytes_of[to] > 0
        w.send(real[sends], real[to[sends]], to[sends] * share, bytes_of[to[sends]])
        mask >>= 1
    return v * share, held, share


@algorithm("scatter_ring", "bcast")
def bcast_scatter_ring(w: Writer, job: Job) -> None:
    """Scatter by a binomial tree, then a ring."""
    if job.count < job.p:
        bcast_linear(w, job)
        return
    first, held, _ = _scatter_for_bcast(w, job)
    p = job.p
    v = np.arange(p)
    real = (v + job.root) % p
    for i in range(1, p):
        mine, theirs = (v - i + 1) % p, (v - i) % p
        w.exchange(
            real, real[(v + 1) % p], first[mine], held[mine], real[(v - 1) % p], held[theirs]
        )


@algorithm("scatter_doubling", "bcast")
def bcast_scatter_doubling(w: Writer, job: Job) -> None:
    """Scatter by a binomial tree, then recursive doubling."""
    if job.count < job.p:
        bcast_linear(w, job)
        return
    first, held, share = _scatter_for_bcast(w, job)
    p = job.p
    v = np.arange(p)
    real = (v + job.root) % p
    bound = np.minimum(np.arange(2 * p + 1) * share, job.nbytes)

    def owned(tree: np.ndarray, mask: int) -> np.ndarray:
        end = np.minimum(np.minimum(tree + mask, p), 2 * p)
        return np.asarray(bound[end] - bound[np.minimum(tree, p)])

    mask = 1
    while mask < p:
        other = v ^ mask
        tree, far = v & ~(mask - 1), other & ~(mask - 1)
        pair = other < p
        w.exchange(
            real[pair],
            real[other[pair]],
            tree[pair] * share,
            owned(tree, mask)[pair],
            real[other[pair]],
            owned(far, mask)[pair],
        )
        # Those without a partner get what the others of their subtree have received.
        complete = p - tree - mask
        half = mask >> 1
        while half:
            other = v ^ half
            bottom = v & ~(2 * half - 1)
            short = (far + mask > p) & (tree + mask < p) & (other < p)
            has = short & (other > v) & (v < bottom + complete) & (other >= bottom + complete)
            lacks = short & (other < v) & (other < bottom + complete) & (v >= bottom + complete)
            n = owned(tree + mask, mask)
            w.send(real[has], real[other[has]], (tree + mask)[has] * share, n[has])
            w.recv(real[lacks], real[other[lacks]], n[lacks])
            half >>= 1
        mask <<= 1


def _up(w: Writer, job: Job, tree: Tree, root: int) -> None:
    """Every member combines its children's vectors, two receives posted, and sends up."""
    parent, kids = turned(tree, root)
    child = np.flatnonzero(parent >= 0)
    pieces = job.cut()
    if len(pieces) == 1 and kids.shape[1] == 1:  # a chain: nothing to overlap
        has = np.flatnonzero(kids[:, 0] >= 0)
        w.recv(has, kids[has, 0], job.nbytes, ADD)
        w.send(child, parent[child], *pieces[0])
        return
    member = np.full(job.p, -1, dtype=np.int64)  # of the request that is outstanding
    record = np.full(job.p, -1, dtype=np.int64)

    def settle(who: np.ndarray) -> None:
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


@algorithm("pipeline", "reduce")
def reduce_pipeline(w: Writer, job: Job) -> None:
    """A chain through all members to the root."""
    _up(w, job, chain(job.p), job.root)


@algorithm("binary", "reduce")
def reduce_binary(w: Writer, job: Job) -> None:
    """Binary tree."""
    _up(w, job, binary(job.p), job.root)


@algorithm("binomial", "reduce")
def reduce_binomial(w: Writer, job: Job) -> None:
    """Binomial tree, two receives posted at a time."""
    _up(w, job, in_order(job.p), job.root)


@algorithm("binomial_blocking", "reduce")
def reduce_binomial_blocking(w: Writer, job: Job) -> None:
    """Binomial tree, one receive after the other."""
    parent, kids = turned(in_order(job.p), job.root)
    for column in range(kids.shape[1]):
        has = np.flatnonzero(kids[:, column] >= 0)
        w.recv(has, kids[has, column], job.nbytes, ADD)
    child = np.flatnonzero(parent >= 0)
    w.send(child, parent[child], 0, job.nbytes)


@algorithm("in_order_binary", "reduce")
def reduce_in_order_binary(w: Writer, job: Job) -> None:
    """Binary tree that keeps the order of members, to the last one; it sends to the root."""
    last = job.p - 1
    _up(w, job, in_order_binary(job.p), 0)
    if job.root != last:
        w.send([last], job.root, 0, job.nbytes)
        w.recv([job.root], last, job.nbytes)


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


@algorithm("linear_posted_all", "gatherv")
@algorithm("linear_posted", "gather")
def gather_linear_posted(w: Writer, job: Job) -> None:
    """The root posts receives from all."""
    _gather(w, job, at_once=True, empty=True)


@algorithm("linear", "gather")
def gather_linear(w: Writer, job: Job) -> None:
    """The root receives from all, one after the other."""
    _gather(w, job, at_once=False, empty=True)


@algorithm("linear", "gatherv")
def gatherv_linear(w: Writer, job: Job) -> None:
    """The root receives from all, one after the other; nothing is not sent."""
    _gather(w, job, at_once=False, empty=False)


@algorithm("linear_posted", "gatherv")
def gatherv_linear_posted(w: Writer, job: Job) -> None:
    """The root posts receives from all; nothing is not sent."""
    _gather(w, job, at_once=True, empty=False)


def _gather(w: Writer, job: Job, *, at_once: bool, empty: bool) -> None:
    first, n = job.blocks(job.everyone, 1)
    giving = job.others if empty else job.others[n[job.others] > 0]
    for member in giving.tolist():
        (w.irecv if at_once else w.recv)([job.root], member, n[member])
    if at_once and len(giving):
        w.wait([job.root])
    w.send(giving, job.root, first[giving], n[giving])


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
    first, n, parent, kids = _subtrees(job)
    for column in range(kids.shape[1]):
        has = np.flatnonzero(kids[:, column] >= 0)
        w.recv(has, kids[has, column], n[kids[has, column]])
    child = np.flatnonzero(parent >= 0)
    w.send(child, parent[child], first[child], n[child])


@algorithm("binomial", "scatter")
def scatter_binomial(w: Writer, job: Job) -> None:
    """Binomial tree; every member gets the blocks of its subtree, the biggest goes first."""
    first, n, parent, kids = _subtrees(job)
    child = np.flatnonzero(parent >= 0)
    w.recv(child, parent[child], n[child])
    for column in reversed(range(kids.shape[1])):
        has = np.flatnonzero(kids[:, column] >= 0)
        to = kids[has, column]
        w.send(has, to, first[to], n[to])


def _subtrees(job: Job) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    away = (job.everyone - job.root) % job.p
    low = np.where(away > 0, away & -away, job.p)
    first, n = job.blocks(job.everyone, np.minimum(low, job.p - away))
    parent, kids = turned(in_order(job.p), job.root)
    return first, n, parent, kids


@algorithm("linear", "scatter")
def scatter_linear(w: Writer, job: Job) -> None:
    """The root sends to all, one after the other."""
    _scatter(w, job, at_once=False, empty=True)


@algorithm("linear_posted_all", "scatterv")
@algorithm("linear_posted", "scatter")
def scatter_linear_posted(w: Writer, job: Job) -> None:
    """The root posts sends to all."""
    _scatter(w, job, at_once=True, empty=True)


@algorithm("linear", "scatterv")
def scatterv_linear(w: Writer, job: Job) -> None:
    """The root sends to all, one after the other; nothing is not sent."""
    _scatter(w, job, at_once=False, empty=False)


@algorithm("linear_posted", "scatterv")
def scatterv_linear_posted(w: Writer, job: Job) -> None:
    """The root posts sends to all; nothing is not sent."""
    _scatter(w, job, at_once=True, empty=False)


def _scatter(w: Writer, job: Job, *, at_once: bool, empty: bool) -> None:
    first, n = job.blocks(job.everyone, 1)
    taking = job.others if empty else job.others[n[job.others] > 0]
    root = np.full(len(taking), job.root)
    (w.isend if at_once else w.send)(root, taking, first[taking], n[taking])
    if at_once and len(taking):
        w.wait([job.root])
    w.recv(taking, job.root, n[taking])
