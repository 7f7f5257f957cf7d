"""Allreduce, Reduce_scatter(_block), Scan and Exscan: algorithms as messages.

Read from Open MPI 4.1.4 (unchanged in 5.0.9), ompi/mca/coll/base/coll_base_{allreduce,
reduce_scatter,reduce_scatter_block,scan,exscan}.c, and from MPICH 5.0.1,
src/mpi/coll/{allreduce,reduce_scatter,reduce_scatter_block,scan,exscan}/. Operations are taken to
be commutative and predefined.
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
    around,
    blocks_of,
    double_back,
    elements_of,
    halve,
    masks,
    power_below,
    shares,
    subtrees,
    without_partner,
)
from p3s.program.collectives.registry import Algorithm, algorithm, in_turn
from p3s.program.collectives.rooted import (
    bcast_binomial,
    bcast_linear,
    reduce_binomial_blocking,
    reduce_linear,
    scatter_linear_posted,
)
from p3s.program.collectives.writer import ADD, ADD_BOTH, Pieces, Writer


def _to_first(w: Writer, job: Job, *, each: tuple[Algorithm, ...]) -> None:
    """Write algorithms one after the other, to member 0 and from it."""
    for write in each:
        write(w, replace(job, root=0, segment=0))


_BOTH = ("reduce_scatter", "reduce_scatter_block")
allreduce_linear = partial(_to_first, each=(reduce_linear, bcast_linear))
algorithm("linear", "allreduce")(allreduce_linear)
algorithm("nonoverlapping", "allreduce")(in_turn("reduce", "bcast"))
algorithm("trees", "allreduce")(partial(_to_first, each=(reduce_binomial_blocking, bcast_binomial)))
algorithm("nonoverlapping", *_BOTH)(in_turn("reduce", "scatterv"))
algorithm("linear", *_BOTH)(in_turn("reduce", "scatter"))
algorithm("tree", *_BOTH)(
    partial(_to_first, each=(reduce_binomial_blocking, scatter_linear_posted))
)


@algorithm("recursive_doubling", "allreduce")
def allreduce_recursive_doubling(w: Writer, job: Job) -> None:
    """Whole vectors with partners 1, 2, 4, ... away, after folding to a power of two."""
    folded = PowerOfTwo.whole(w, job, keep_odd=True)
    v = np.arange(len(folded.real))
    for mask in masks(len(v)):
        w.trade(folded.real, folded.real[v ^ mask], 0, job.nbytes, ADD)
    folded.give_back(w, job)


def _rabenseifner(w: Writer, job: Job, *, blocks: bool) -> None:
    """Reduce-scatter by halving in elements (Open MPI) or blocks (MPICH), all-gather back."""
    if not blocks and job.count < power_below(job.p):
        allreduce_linear(w, job)
        return
    folded = PowerOfTwo.whole(w, job, keep_odd=True) if blocks else PowerOfTwo.by_halves(w, job)
    units = blocks_of(job, folded, even=True) if blocks else elements_of(job)
    double_back(w, folded, halve(w, folded, units))
    folded.give_back(w, job)


algorithm("rabenseifner", "allreduce")(partial(_rabenseifner, blocks=False))
algorithm("rabenseifner_blocks", "allreduce")(partial(_rabenseifner, blocks=True))


@algorithm("ring_segmented", "allreduce")
@algorithm("ring", "allreduce")
def allreduce_ring(w: Writer, job: Job) -> None:
    """Blocks go around once to be reduced and once to be distributed."""
    if job.count < job.p:
        allreduce_recursive_doubling(w, job)
        return
    divided = replace(job, at=shares(job.p, job.nbytes, job.element))
    _reduce_around(w, divided, 0)
    around(w, job, *divided.blocks(job.everyone, 1), ahead=1)


def _reduce_around(w: Writer, job: Job, shift: int) -> None:
    """Block r - ``shift`` of member r starts around the ring; a receive is posted ahead."""
    p, r = job.p, job.everyone
    right, left = (r + 1) % p, (r - 1) % p
    first, n = job.blocks(r, 1)

    def sent(k: int) -> Ints:
        return (r - shift - k) % p

    posted = w.irecv(r, left, n[sent(1)], ADD)
    w.send(r, right, first[sent(0)], n[sent(0)])
    for k in range(2, p):
        arrived = posted
        posted = w.irecv(r, left, n[sent(k)], ADD)
        w.wait(r, arrived)
        w.send(r, right, first[sent(k - 1)], n[sent(k - 1)])
    w.wait(r, posted)


@algorithm("ring", "reduce_scatter", "reduce_scatter_block")
def reduce_scatter_ring(w: Writer, job: Job) -> None:
    """Blocks go around once."""
    _reduce_around(w, job, 1)


@algorithm("halving", "reduce_scatter", "reduce_scatter_block")
def reduce_scatter_halving(w: Writer, job: Job) -> None:
    """Recursive halving, far partners first, after folding to a power of two."""
    folded = PowerOfTwo.whole(w, job, keep_odd=True)
    halve(w, folded, blocks_of(job, folded, even=False), far_first=True, empty=False)
    first, n = job.blocks(folded.out, 1)
    full = n > 0
    w.move(folded.keeper[full], folded.out[full], first[full], n[full])


@algorithm("butterfly", "reduce_scatter")
def reduce_scatter_butterfly(w: Writer, job: Job) -> None:
    """Halving with near partners first; shares then go to the owner of the mirrored number."""
    folded = PowerOfTwo.whole(w, job, keep_odd=True)
    halve(w, folded, blocks_of(job, folded, even=False))
    mirror = _mirror(len(folded.real))
    pair, moves = mirror < folded.rest, mirror != np.arange(len(mirror))
    w.move(folded.real[pair], 2 * mirror[pair], *job.blocks(2 * mirror[pair], 1))
    # a share's second block, or its only one
    to = folded.real[mirror[moves]]
    w.trade(folded.real[moves], to, *job.blocks(to, 1))


def _mirror(power: int) -> Ints:
    """Return every number below a power of two with its bits backwards."""
    v, bits = np.arange(power), (power - 1).bit_length()
    mirror = np.zeros(power, dtype=np.int64)
    for i in range(bits):
        mirror |= (v >> i & 1) << (bits - 1 - i)
    return mirror


@algorithm("butterfly", "reduce_scatter_block")
def reduce_scatter_block_butterfly(w: Writer, job: Job) -> None:
    """As butterfly; for a power of two the blocks are put in mirrored order before."""
    if job.p & (job.p - 1):
        reduce_scatter_butterfly(w, job)
        return
    r, mirror = job.everyone, _mirror(job.p)
    first, n = job.blocks(mirror, 1)
    start, half = np.zeros(job.p, dtype=np.int64), job.p // 2
    for mask in masks(job.p):
        upper = (r & mask) > 0
        given_away = np.where(upper, start, start + half)
        start = np.where(upper, start + half, start)

        def sent(blocks: Ints = given_away, half: int = half) -> Pieces:
            return [(first[blocks + i], n[blocks + i]) for i in range(half)]

        size = n[0] * half  # all blocks are equal
        w.trade(r, r ^ mask, 0, size, ADD, pieces=sent)
        half //= 2


@algorithm("doubling", "reduce_scatter", "reduce_scatter_block")
def reduce_scatter_doubling(w: Writer, job: Job) -> None:
    """All blocks but those of the own subtree, with partners 1, 2, 4, ... away (Open MPI)."""
    p, r = job.p, job.everyone
    for mask in masks(p):
        other, tree, far = subtrees(p, mask)

        def beyond(tree: Ints, mask: int = mask) -> tuple[Ints, Ints]:
            """Return (first byte, bytes) of all blocks but those of a subtree."""
            tree = np.minimum(tree, p)
            first, n = job.blocks(tree + mask, p - np.minimum(mask, p - tree))
            last = tree + mask >= p
            return np.where(last, 0, first), np.where(last, job.at[tree], n)

        first, n = beyond(tree)
        pair = other < p
        w.trade(r[pair], other[pair], first[pair], n[pair], ADD)
        _, beyond_far = beyond(far)
        for has, to in without_partner(p, mask):
            w.move(has, to, 0, beyond_far[has], ADD, pieces=forward_last(beyond_far[has]))


def forward_last(n: Ints) -> Callable[[], Pieces]:
    """Return what tells that the last message received is sent on."""
    return lambda: [(-1, np.maximum(n, 1))]


@algorithm("pairwise", "reduce_scatter", "reduce_scatter_block")
def reduce_scatter_pairwise(w: Writer, job: Job) -> None:
    """Member r sends the block of member r + i, i = 1, 2, ... (MPICH)."""
    r = job.everyone
    first, n = job.blocks(r, 1)
    for i in range(1, job.p):
        to = (r + i) % job.p
        w.trade(r, to, first[to], n[to], ADD)


@algorithm("linear", "scan", "exscan")
def scan_linear(w: Writer, job: Job) -> None:
    """From member to member."""
    r = job.everyone
    w.move(r[:-1], r[1:], 0, job.nbytes, ADD_BOTH)


@algorithm("recursive_doubling", "scan", "exscan")
def scan_doubling(w: Writer, job: Job) -> None:
    """Partial results with partners 1, 2, 4, ... away."""
    r = job.everyone
    for mask in masks(job.p):
        who = r[r ^ mask < job.p]
        other = who ^ mask
        w.trade(who, other, 0, job.nbytes, np.where(other < who, ADD_BOTH, ADD))
