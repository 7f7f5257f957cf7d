"""Barrier, Allgather(v), Alltoall(v, w), making communicators: algorithms as messages.

Read from Open MPI 4.1.4 (unchanged in 5.0.9), ompi/mca/coll/base/coll_base_{barrier,allgather,
allgatherv,alltoall,alltoallv}.c and ompi/mca/coll/basic/coll_basic_alltoallw.c, and from MPICH
5.0.1, src/mpi/coll/{barrier,allgather,allgatherv,alltoall,alltoallv,alltoallw}/.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import zip_longest

import numpy as np

from p3s.base.arrays import Ints
from p3s.program.collectives.job import (
    Job,
    around,
    binomial_moves,
    masks,
    power_below,
    shares,
    whole,
)
from p3s.program.collectives.registry import CREATIONS, algorithm, in_turn
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
    w.move(r, 0, 0, 0, UNITE, takes=Op.IRECV, pieces=_token)
    w.wait([0])
    w.move(0, r, 0, 0, UNITE, pieces=_token)


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
    w.exchange(extra, helper, 0, 0, helper, 0, UNITE, _token)
    w.recv(helper, extra, 0, UNITE)
    for mask in masks(power):
        w.trade(v, v ^ mask, 0, 0, UNITE, pieces=_token)
    w.send(helper, extra, 0, 0, op=Op.SSEND, pieces=_token)


@algorithm("dissemination", "barrier")
def barrier_dissemination(w: Writer, job: Job) -> None:
    """Tell the member 1, 2, 4, ... further on."""
    p, r = job.p, job.everyone
    for distance in masks(p):
        w.trade(r, (r + distance) % p, 0, 0, UNITE, pieces=_token)


@algorithm("tree", "barrier")
def barrier_tree(w: Writer, job: Job) -> None:
    """Up a binomial tree to member 0 and down again."""
    zeros = np.zeros(job.p, dtype=np.int64)
    for up in (True, False):
        binomial_moves(w, job.p, zeros, how=UNITE, up=up, pieces=_token)


algorithm("linear", "allgather", "allgatherv")(in_turn("gather", "bcast"))
algorithm("default", "allgatherv")(in_turn("gatherv", "bcast"))


@algorithm("bruck", "allgather", "allgatherv")
def allgather_bruck(w: Writer, job: Job) -> None:
    """All that is known goes to the member 1, 2, 4, ... before."""
    p, r = job.p, job.everyone
    for distance in masks(p):
        first, n = job.blocks(r, min(distance, p - distance))
        w.trade(r, (r - distance) % p, first, n)


@algorithm("recursive_doubling", "allgather", "allgatherv")
def allgather_recursive_doubling(w: Writer, job: Job) -> None:
    """All that is known is exchanged with partners 1, 2, 4, ... away; else as Bruck."""
    if job.p & (job.p - 1):
        allgather_bruck(w, job)
        return
    r = job.everyone
    for mask in masks(job.p):
        first, n = job.blocks(r & ~(mask - 1), mask)
        w.trade(r, r ^ mask, first, n)


@algorithm("pairwise", "allgather", "allgatherv")
@algorithm("ring", "allgather", "allgatherv")
def allgather_ring(w: Writer, job: Job) -> None:
    """Every block goes around."""
    around(w, job, *job.blocks(job.everyone, 1))


@algorithm("ring_cut", "allgatherv")
def allgatherv_ring_cut(w: Writer, job: Job) -> None:
    """Every block goes around in segments; nothing is not sent (MPICH)."""
    p = job.p
    first, n = job.blocks(job.everyone, 1)
    cut = max(RING_SEGMENT // job.element, 1) * job.element
    pieces = np.maximum(-(-n // cut), 1)
    passed = [_passing(member, p, first, n, pieces, cut) for member in range(p)]
    for turn in zip_longest(*passed, fillvalue=(0, 0)):
        first, n = np.array(turn).T
        w.trade(job.everyone, (job.everyone + 1) % p, first, n, empty=False)


def _passing(
    member: int, p: int, first: Ints, n: Ints, pieces: Ints, cut: int
) -> list[tuple[int, int]]:
    """Return (first byte, bytes) of all that a member passes on: all blocks but the next one's."""
    ranges_passed = []
    for i in range(p - 1):
        block = (member - i) % p
        for piece in range(int(pieces[block])):
            lo = piece * cut
            ranges_passed.append((int(first[block]) + lo, int(min(cut, n[block] - lo))))
    return ranges_passed


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
    w.trade(r, neighbor[0], first, n)
    sent = np.where(even, r, r - 1)
    block_of = [sent, sent]
    for i in range(1, p // 2):
        turn = i % 2
        step = np.where(even == (turn == 0), 2, -2)
        block_of[turn] = (block_of[turn] + step) % p
        first, n = job.blocks(sent, 2)
        w.trade(r, neighbor[turn], first, n)
        sent = block_of[turn]


@dataclass(frozen=True)
class _Matrix:
    """The blocks of an all-to-all, in the vector of all: what member s sends to member d.

    All to all members divided evenly, the first ones get one byte more.
    """

    w: Writer
    job: Job

    def block(self, source: Ints, to: Ints) -> tuple[Ints, Ints]:
        """Return (first byte, bytes) in the vector of all blocks."""
        total = np.diff(self.job.at)[source]
        share, more = total // self.job.p, total % self.job.p
        return (self.job.at[source] + to * share + np.minimum(to, more), share + (to < more))

    def post(self, other: Ints, sending: bool, empty: bool = True) -> Handle:
        """Post a send to (receive from) ``other`` of each member; ``empty``: of nothing, too."""
        r = self.job.everyone
        first, n = self.block(r, other) if sending else self.block(other, r)
        members = np.ones(self.job.p, dtype=bool) if empty else n > 0
        if sending:
            return self.w.isend(r[members], other[members], first[members], n[members])
        return self.w.irecv(r[members], other[members], n[members])


def _further(job: Job, i: int, sending: bool) -> Ints:
    """Return the member i before (sending) or i further on."""
    return (job.everyone - i if sending else job.everyone + i) % job.p


def _from_first(job: Job, i: int) -> Ints:
    """Return the i-th other member of each."""
    return np.where(job.everyone < i, i, i - 1)


@algorithm("linear", "alltoall")
def alltoall_linear(w: Writer, job: Job) -> None:
    """All receives and sends are posted at once, receives upwards, sends downwards."""
    _post_batches(w, job, empty=True, at_a_time=job.p)


def _post_all(w: Writer, job: Job, *, empty: bool) -> None:
    """Post all receives and sends at once, both from member 0 on; ``empty``: of nothing, too."""
    blocks = _Matrix(w, job)
    for sending in (False, True):
        for i in range(1, job.p):
            blocks.post(_from_first(job, i), sending, empty)
    w.wait(job.everyone)


algorithm("linear", "alltoallv", "alltoallw")(partial(_post_all, empty=True))
algorithm("linear_nonempty", "alltoallv", "alltoallw")(partial(_post_all, empty=False))


@algorithm("posted", "allgather", "allgatherv")
def allgather_posted(w: Writer, job: Job) -> None:
    """Every member sends its block to all others, all at once."""
    r = job.everyone
    first, n = job.blocks(r, 1)
    for i in range(1, job.p):
        other = _from_first(job, i)
        w.irecv(r, other, n[other])
        w.isend(r, other, first, n)
    w.wait(r)


@algorithm("linear_sync", "alltoall")
def alltoall_linear_sync(w: Writer, job: Job) -> None:
    """As linear, but at most OUTSTANDING receives and sends; the oldest is waited for first."""
    if job.p - 1 <= OUTSTANDING:
        alltoall_linear(w, job)
        return
    r, blocks = job.everyone, _Matrix(w, job)
    handles = {
        (i, sending): blocks.post(_further(job, i, sending), sending)
        for sending in (False, True)
        for i in range(1, OUTSTANDING + 1)
    }
    for i in range(OUTSTANDING + 1, job.p):
        for sending in (False, True):
            w.wait(r, handles.pop((i - OUTSTANDING, sending)))
            handles[i, sending] = blocks.post(_further(job, i, sending), sending)
    w.wait(r)


@algorithm("pairwise", "alltoall", "alltoallv", "alltoallw")
def alltoall_pairwise(w: Writer, job: Job) -> None:
    """To the member i further on, from the one i before."""
    p, r, blocks = job.p, job.everyone, _Matrix(w, job)
    for i in range(1, p):
        w.trade(r, (r + i) % p, *blocks.block(r, (r + i) % p))


@algorithm("pairwise_xor", "alltoall")
def alltoall_pairwise_xor(w: Writer, job: Job) -> None:
    """With the member whose number differs in the bits of i; if p is no power of two by rings."""
    if job.p & (job.p - 1):
        alltoall_pairwise(w, job)
        return
    r, blocks = job.everyone, _Matrix(w, job)
    for i in range(1, job.p):
        w.trade(r, r ^ i, *blocks.block(r, r ^ i))


def _post_batches(w: Writer, job: Job, *, empty: bool, at_a_time: int = THROTTLE) -> None:
    """Post so many receives and sends at a time (MPICH); ``empty``: of nothing, too.

    A member's message to itself is left out.
    """
    blocks = _Matrix(w, job)
    for begin in range(0, job.p, at_a_time):
        turns = range(max(begin, 1), min(begin + at_a_time, job.p))
        for sending in (False, True):
            for i in turns:
                blocks.post(_further(job, i, sending), sending, empty)
        if len(turns):
            w.wait(job.everyone)


algorithm("scattered", "alltoall")(partial(_post_batches, empty=True))
algorithm("scattered", "alltoallv", "alltoallw")(partial(_post_batches, empty=False))


@algorithm("bruck", "alltoall")
def alltoall_bruck(w: Writer, job: Job) -> None:
    """log2 p messages; each carries all blocks whose way has that bit."""
    p, r, blocks = job.p, job.everyone, _Matrix(w, job)
    way = np.arange(p)
    for distance in masks(p):
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
        w.trade(r, (r + distance) % p, 0, n, pieces=carried)


_LEAVING = "comm_disconnect"
#: Calls that gather colour and key of every member first; those of Open MPI and MPICH differ.
_SPLITS = {
    "agree": ("comm_split", "cart_sub"),
    "mask": ("comm_split", "comm_split_type", "cart_sub"),
}
_COUNTED = "dist_graph_create"
_FROM_FAR = "intercomm_create"
#: Bytes: of an integer, of colour and key, of the kind of a split, of MPICH's mask.
_INTEGER, _PAIR, _KIND, _MASK = 4, 8, 16, 260
#: Bytes of each member's numbers of neighbours in MPI_Dist_graph_create.
_DEGREES = {"agree": 16, "mask": 8}


def _offset_blocks(job: Job, nbytes: int) -> Ints:
    return nbytes * np.arange(job.p + 1)


def _before(w: Writer, job: Job, call: str, how: str) -> None:
    """Write what comes before the agreement on a number."""
    if call in _SPLITS[how]:
        job.perform(w, "allgather", _offset_blocks(job, _PAIR), 0)
    if call == _COUNTED:
        total = _DEGREES[how] * job.p
        job.perform(w, "reduce_scatter_block", shares(job.p, total, _INTEGER), 0)
    if call == _FROM_FAR:  # the leader tells of the other side; taken to be as large as this one
        job.perform(w, "bcast", whole(job.p, _PAIR * job.p), 0)


def _define_agreement(call: str) -> None:
    """Define how the members of a communicator agree in a call, in either library."""

    @algorithm("agree", call)
    def agree(w: Writer, job: Job) -> None:
        """As Open MPI: three nonblocking all-reductions of an integer; leaving is a barrier."""
        if call == _LEAVING:
            job.perform(w, "barrier", whole(job.p, 0), 0)
            return
        _before(w, job, call, "agree")
        if call == "comm_split_type":  # all must ask for the same
            job.perform(w, "allreduce", whole(job.p, _KIND), 0)
        for _ in range(3):
            job.perform(w, "iallreduce", whole(job.p, _INTEGER), 0)

    @algorithm("mask", call)
    def mask(w: Writer, job: Job) -> None:
        """As MPICH: one all-reduction of a mask; leaving sends nothing."""
        if call == _LEAVING:
            return
        _before(w, job, call, "mask")
        job.perform(w, "allreduce", whole(job.p, _MASK), 0)


for _call in CREATIONS:
    _define_agreement(_call)
