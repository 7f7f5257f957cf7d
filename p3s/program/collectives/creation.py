"""Communicators: what the members of one send each other until they have a new one.

Open MPI (4.1.4, compared message by message): the new communicator's number is agreed on by two
nonblocking all-reductions of an integer (the largest that a member proposes, and whether it is
free with all; once where it is, as everywhere outside of programs that make communicators in
several threads), a third one makes sure that all members are ready for its messages. MPICH (not
compared): the numbers that a member has left are a mask of 64 words, all-reduced together with
one more. Both gather colour and key of every member before they split.
"""

from __future__ import annotations

import numpy as np

from p3s.program.collectives.job import Job, shares, whole
from p3s.program.collectives.registry import CREATIONS, algorithm
from p3s.program.collectives.writer import Writer
from p3s.simulate.steps import Ints

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


def _each(job: Job, nbytes: int) -> Ints:
    return nbytes * np.arange(job.p + 1)


def _before(w: Writer, job: Job, call: str, how: str) -> None:
    """Write what comes before the agreement on a number."""
    if call in _SPLITS[how]:
        job.perform(w, "allgather", _each(job, _PAIR), 0)
    if call == _COUNTED:
        total = _DEGREES[how] * job.p
        job.perform(w, "reduce_scatter_block", shares(job.p, total, _INTEGER), 0)
    if call == _FROM_FAR:  # the leader tells of the other side; taken to be as large as this one
        job.perform(w, "bcast", whole(job.p, _PAIR * job.p), 0)


def _agreed(call: str) -> None:
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
    _agreed(_call)
