"""Barrier, Allgather(v) and Alltoall(v, w): algorithms as messages.

Read from Open MPI 4.1.4 (unchanged in 5.0.9), ompi/mca/coll/base/coll_base_{barrier,allgather,
allgatherv,alltoall,alltoallv}.c and ompi/mca/coll/basic/coll_basic_alltoallw.c, and from MPICH
5.0.1, src/mpi/coll/{barrier,allgather,allgatherv,alltoall,alltoallv,alltoallw}/.
"""

from __future__ import annotations

import numpy as np

from p3s.base.arrays import Ints
from p3s.program.collectives.job import Job, in_order, power_below, whole
from p3s.program.collectives.registry import algorithm
from p3s.program.collectives.writer import UNITE, Handle, Pieces, Writer
from p3s.simulate.steps import Op

#: Open MPI keeps at most this many receives (and sends) of an all-to-all outstanding
#: (coll_tuned_component.c, init_max_requests), MPICH starts so many at a time
#: (MPIR_CVAR_ALLTOALL_THROTTLE).
OUTSTANDING = 128
THROTTLE = 32
#: MPICH cuts the messages of its ring for MPI_Allgatherv (MPIR_CVAR_ALLGATHERV_PIPELINE_MSG_SIZE).
RING_SEGMENT = 32768


def _token() -> Pieces:
    return [(0, 1)]


@algorithm("linear", "barrier")
def barrier_linear(w: Writer, job: Job) -> None:
    """All tell member 0, it tells all."""
    r = job.everyone[1:]
    for member in r.tolist():
        w.irecv([0], member, 0, UNITE)
    w.wait([0])
    w.send(r, 0, 0, 0, pieces=_token)
    w.send(np.zeros(len(r), dtype=np.int64), r, 0, 0, pieces=_token)
    w.recv(r, 0, 0, UNITE)


@algorithm("double_ring", "barrier")
def barrier_double_ring(w: Writer, job: Job) -> None:
    """Twice around a ring."""
    p, r = job.p, job.everyone
    for op in (Op.SEND, Op.SSEND):
        w.recv(r[1:], r[:-1], 0, UNITE)
        w.send(r, (r + 1) % p, 0, 0, op=op, pieces=_token)
        w.recv([0], p - 1, 0, UNITE)


@algorithm("recursive_doubling", "barrier")
def barrier_recursive_doubling(w: Writer, job: Job) -> None:
    """Partners 1, 2, 4, ... away among the largest power of two, the others before and after."""
    power = power_below(job.p)
    v = np.arange(power)
    extra, helper = np.arange(power, job.p), np.arange(job.p - power)
    w.exchange(extra, helper, 0, 0, helper, 0, UNITE, pieces=_token)
    w.recv(helper, extra, 0, UNITE)
    mask = 1
    while mask < power:
        w.exchange(v, v ^ mask, 0, 0, v ^ mask, 0, UNITE, pieces=_token)
        mask <<= 1
    w.send(helper, extra, 0, 0, op=Op.SSEND, pieces=_token)


@algorithm("dissemination", "barrier")
def barrier_dissemination(w: Writer, job: Job) -> None:
    """Tell the member 1, 2, 4, ... further on."""
    p, r = job.p, job.everyone
    distance = 1
    while distance < p:
        w.exchange(r, (r + distance) % p, 0, 0, (r - distance) % p, 0, UNITE, pieces=_token)
        distance <<= 1


@algorithm("tree", "barrier")
def barrier_tree(w: Writer, job: Job) -> None:
    """Up a binomial tree to member 0 and down again."""
    parent, kids = in_order(job.p)
    child = job.everyone[1:]
    for column in range(kids.shape[1]):
        has = np.flatnonzero(kids[:, column] >= 0)
        w.recv(has, kids[has, column], 0, UNITE)
    w.send(child, parent[child], 0, 0, pieces=_token)
    w.recv(child, parent[child], 0, UNITE)
    for column in reversed(range(kids.shape[1])):
        has = np.flatnonzero(kids[:, column] >= 0)
        w.send(has, kids[has, column], 0, 0, pieces=_token)


@algorithm("linear", "allgather", "allgatherv")
def allgather_linear(w: Writer, job: Job) -> None:
    """Gather to member 0, then Bcast."""
    job.perform(w, "Gather", job.at, 0)
    job.perform(w, "Bcast", whole(job.p, job.nbytes), 0)


@algorithm("default", "allgatherv")
def allgatherv_default(w: Writer, job: Job) -> None:
    """Gatherv to member 0, then Bcast."""
    job.perform(w, "Gatherv", job.at, 0)
    job.perform(w, "Bcast", whole(job.p, job.nbytes), 0)


@algorithm("bruck", "allgather", "allgatherv")
def allgather_bruck(w: Writer, job: Job) -> None:
    """All that is known goes to the member 1, 2, 4, ... before."""
    p, r = job.p, job.everyone
    distance = 1
    while distance < p:
        number = min(distance, p - distance)
        first, n = job.blocks(r, number)
        source = (r + distance) % p
        w.exchange(r, (r - distance) % p, first, n, source, n[source])
        distance <<= 1


@algorithm("recursive_doubling", "allgather", "allgatherv")
def allgather_recursive_doubling(w: Writer, job: Job) -> None:
    """All that is known is exchanged with partners 1, 2, 4, ... away; else as Bruck."""
    if job.p & (job.p - 1):
        allgather_bruck(w, job)
        return
    r = job.everyone
    mask = 1
    while mask < job.p:
        first, n = job.blocks(r & ~(mask - 1), mask)
        w.exchange(r, r ^ mask, first, n, r ^ mask, n[r ^ mask])
        mask <<= 1


@algorithm("pairwise", "allgather", "allgatherv")
@algorithm("ring", "allgather", "allgatherv")
def allgather_ring(w: Writer, job: Job) -> None:
    """Every block goes around."""
    p, r = job.p, job.everyone
    first, n = job.blocks(r, 1)
    for i in range(p - 1):
        mine, theirs = (r - i) % p, (r - i - 1) % p
        w.exchange(r, (r + 1) % p, first[mine], n[mine], (r - 1) % p, n[theirs])


@algorithm("ring_cut", "allgatherv")
def allgatherv_ring_cut(w: Writer, job: Job) -> None:
    """Every block goes around in segments; nothing is not sent (MPICH)."""
    p = job.p
    first, n = job.blocks(job.everyone, 1)
    cut = max(RING_SEGMENT // job.element, 1) * job.element
    pieces = np.maximum(-(-n // cut), 1)
    for member in range(p):
        # The sequence of pieces that pass on to the right, and of those that come from the left.
        out = _passing(member, p, first, n, pieces, cut)
        come = _passing((member - 1) % p, p, first, n, pieces, cut)
        me = np.array([member])
        right, left = (member + 1) % p, (member - 1) % p
        for i in range(max(len(out), len(come))):
            goes = out[i] if i < len(out) else (0, 0)
            comes = come[i] if i < len(come) else (0, 0)
            if goes[1] and comes[1]:
                w.exchange(me, right, *goes, left, comes[1])
            elif comes[1]:
                w.recv(me, left, comes[1])
            elif goes[1]:
                w.send(me, right, *goes)


def _passing(
    member: int, p: int, first: Ints, n: Ints, pieces: Ints, cut: int
) -> list[tuple[int, int]]:
    """Return (first byte, bytes) of all that a member passes on: all blocks but the next one's."""
    told = []
    for i in range(p - 1):
        block = (member - i) % p
        for piece in range(int(pieces[block])):
            lo = piece * cut
            told.append((int(first[block]) + lo, int(min(cut, n[block] - lo))))
    return told


@algorithm("neighbor", "allgather", "allgatherv")
def allgather_neighbor(w: Writer, job: Job) -> None:
    """Pairs of blocks go back and forth between neighbours; a ring if p is odd."""
    if job.p % 2:
        allgather_ring(w, job)
        return
    p, r = job.p, job.everyone
    even = r % 2 == 0
    neighbor = (np.where(even, r + 1, r - 1) % p, np.where(even, r - 1, r + 1) % p)
    first, n = job.blocks(r, 1)
    w.exchange(r, neighbor[0], first, n, neighbor[0], n[neighbor[0]])
    sent = np.where(even, r, r - 1)
    known = [sent.copy(), sent.copy()]
    for i in range(1, p // 2):
        turn = i % 2
        step = np.where(even == (turn == 0), 2, -2)
        known[turn] = (known[turn] + step) % p
        first, n = job.blocks(sent, 2)
        w.exchange(r, neighbor[turn], first, n, neighbor[turn], job.blocks(known[turn], 2)[1])
        sent = known[turn]


class _Matrix:
    """Sizes and places of the blocks of an all-to-all: what member s sends to member d.

    All to all members divided evenly, the first ones get one byte more.
    """

    def __init__(self, job: Job) -> None:
        self.p = job.p
        self.at = job.at
        self.own = np.diff(job.at)

    def block(self, source: Ints, to: Ints) -> tuple[Ints, Ints]:
        """Return (first byte, bytes) in the vector of all blocks."""
        total = self.own[source]
        share, more = total // self.p, total % self.p
        return (self.at[source] + to * share + np.minimum(to, more), share + (to < more))


@algorithm("linear", "alltoall")
def alltoall_linear(w: Writer, job: Job) -> None:
    """All receives and sends are posted at once, receives upwards, sends downwards."""
    _posted(w, job, upwards_from_self=True, empty=True)


@algorithm("linear", "alltoallv", "alltoallw")
def alltoallv_linear(w: Writer, job: Job) -> None:
    """All receives and sends are posted at once, both from member 0 on."""
    _posted(w, job, upwards_from_self=False, empty=True)


@algorithm("linear_nonempty", "alltoallv", "alltoallw")
def alltoallw_linear(w: Writer, job: Job) -> None:
    """As alltoallv_linear; nothing is not sent."""
    _posted(w, job, upwards_from_self=False, empty=False)


def _posted(w: Writer, job: Job, *, upwards_from_self: bool, empty: bool) -> None:
    p, r, blocks = job.p, job.everyone, _Matrix(job)
    for sending in (False, True):
        for i in range(1, p):
            if upwards_from_self:
                other = (r - i if sending else r + i) % p
            else:
                other = np.where(r < i, i, i - 1)
            first, n = blocks.block(r, other) if sending else blocks.block(other, r)
            some = np.ones(p, dtype=bool) if empty else n > 0
            if sending:
                w.isend(r[some], other[some], first[some], n[some])
            else:
                w.irecv(r[some], other[some], n[some])
    w.wait(r)


@algorithm("linear_sync", "alltoall")
def alltoall_linear_sync(w: Writer, job: Job) -> None:
    """As linear, but at most OUTSTANDING receives and sends; the oldest is waited for first."""
    p, r, blocks = job.p, job.everyone, _Matrix(job)
    if p - 1 <= OUTSTANDING:
        alltoall_linear(w, job)
        return

    def posted(i: int, sending: bool) -> Handle:
        other = (r - i if sending else r + i) % p
        if sending:
            return w.isend(r, other, *blocks.block(r, other))
        return w.irecv(r, other, blocks.block(other, r)[1])

    handles = {
        (i, sending): posted(i, sending)
        for sending in (False, True)
        for i in range(1, OUTSTANDING + 1)
    }
    for i in range(OUTSTANDING + 1, p):
        for sending in (False, True):
            w.wait(r, handles.pop((i - OUTSTANDING, sending)))
            handles[i, sending] = posted(i, sending)
    w.wait(r)


@algorithm("pairwise", "alltoall", "alltoallv", "alltoallw")
def alltoall_pairwise(w: Writer, job: Job) -> None:
    """To the member i further on, from the one i before."""
    p, r, blocks = job.p, job.everyone, _Matrix(job)
    for i in range(1, p):
        to, source = (r + i) % p, (r - i) % p
        w.exchange(r, to, *blocks.block(r, to), source, blocks.block(source, r)[1])


@algorithm("pairwise_xor", "alltoall")
def alltoall_pairwise_xor(w: Writer, job: Job) -> None:
    """With the member whose number differs in the bits of i; if p is no power of two by rings."""
    if job.p & (job.p - 1):
        alltoall_pairwise(w, job)
        return
    r, blocks = job.everyone, _Matrix(job)
    for i in range(1, job.p):
        other = r ^ i
        w.exchange(r, other, *blocks.block(r, other), other, blocks.block(other, r)[1])


@algorithm("scattered", "alltoall")
def alltoall_scattered(w: Writer, job: Job) -> None:
    """THROTTLE receives and sends at a time (MPICH); its message to itself is left out."""
    _scattered(w, job, empty=True)


@algorithm("scattered", "alltoallv", "alltoallw")
def alltoallv_scattered(w: Writer, job: Job) -> None:
    """As alltoall_scattered; nothing is not sent."""
    _scattered(w, job, empty=False)


def _scattered(w: Writer, job: Job, *, empty: bool) -> None:
    p, r, blocks = job.p, job.everyone, _Matrix(job)
    for begin in range(0, p, THROTTLE):
        turns = range(max(begin, 1), min(begin + THROTTLE, p))
        for sending in (False, True):
            for i in turns:
                other = (r - i if sending else r + i) % p
                first, n = blocks.block(r, other) if sending else blocks.block(other, r)
                some = np.ones(p, dtype=bool) if empty else n > 0
                if sending:
                    w.isend(r[some], other[some], first[some], n[some])
                else:
                    w.irecv(r[some], other[some], n[some])
        if len(turns):
            w.wait(r)


@algorithm("bruck", "alltoall")
def alltoall_bruck(w: Writer, job: Job) -> None:
    """log2 p messages; each carries all blocks whose way has that bit."""
    p, r, blocks = job.p, job.everyone, _Matrix(job)
    way = np.arange(p)
    distance = 1
    while distance < p:
        ways = way[(way & distance) > 0]

        def carried(ways: Ints = ways, distance: int = distance) -> Pieces:
            # After the lower bits, the block on its way d has come d % distance members far.
            pieces = []
            for d in ways.tolist():
                source = (r - d % distance) % p
                pieces.append(blocks.block(source, (source + d) % p))
            return pieces

        n = np.zeros(p, dtype=np.int64)
        for source, d in ((np.asarray((r - d % distance) % p), d) for d in ways.tolist()):
            n += blocks.block(source, (source + d) % p)[1]
        source = (r - distance) % p
        w.exchange(r, (r + distance) % p, 0, n, source, n[source], pieces=carried)
        distance <<= 1
