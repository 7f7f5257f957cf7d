"""What the libraries take for nonblocking collectives.

Open MPI: component "libnbc", read from 4.1.4 (the same choices in 5.0.9),
ompi/mca/coll/libnbc/nbc_i*.c. Its trees swap member 0 and the root instead of turning around the
ring. MPICH: the entries "i..." of maint/tuning/coll/mpir/generic.json, 5.0.1.
"""

from __future__ import annotations

import numpy as np

from p3s.program.collectives.job import Job, power_below
from p3s.program.collectives.registry import algorithm
from p3s.program.collectives.rooted import (
    bcast_binomial,
    bcast_pipeline,
    reduce_binomial_blocking,
    reduce_pipeline,
    scatter_linear_posted,
)
from p3s.program.collectives.writer import Writer

#: Bytes of the fragments of a chain.
REDUCE_FRAGMENT = 8192


def _swapped(w: Writer, job: Job, segment: int = 0) -> tuple[Writer, Job]:
    """Return writer and job in which member 0 is the root."""
    names = np.arange(job.p)
    names[0], names[job.root] = job.root, 0
    pieces = -(-job.nbytes // segment) if segment else 1
    return w.among(names), Job(job.p, 0, job.at, job.element, 0, job.radix, job.perform, pieces)


@algorithm("swapped_binomial", "bcast")
def bcast_swapped_binomial(w: Writer, job: Job) -> None:
    """Binomial tree from the root, which has changed places with member 0."""
    bcast_binomial(*_swapped(w, job))


@algorithm("swapped_chain", "bcast")
def bcast_swapped_chain(w: Writer, job: Job) -> None:
    """Chain in fragments from the root, which has changed places with member 0."""
    bcast_pipeline(*_swapped(w, job, 8192 if job.nbytes < 524288 else 32768))


@algorithm("swapped_binomial", "reduce")
def reduce_swapped_binomial(w: Writer, job: Job) -> None:
    """Binomial tree to the root, which has changed places with member 0."""
    reduce_binomial_blocking(*_swapped(w, job))


@algorithm("swapped_chain", "reduce")
def reduce_swapped_chain(w: Writer, job: Job) -> None:
    """Chain in fragments to the root, which has changed places with member 0."""
    reduce_pipeline(*_swapped(w, job, REDUCE_FRAGMENT))


@algorithm("trees", "allreduce")
def allreduce_trees(w: Writer, job: Job) -> None:
    """Binomial reduce to member 0, binomial broadcast."""
    rooted = Job(job.p, 0, job.at, job.element, 0, job.radix, job.perform)
    reduce_binomial_blocking(w, rooted)
    bcast_binomial(w, rooted)


@algorithm("tree", "reduce_scatter", "reduce_scatter_block")
def reduce_scatter_tree(w: Writer, job: Job) -> None:
    """Binomial reduce to member 0, which sends every member its block."""
    rooted = Job(job.p, 0, job.at, job.element, 0, job.radix, job.perform)
    reduce_binomial_blocking(w, rooted)
    scatter_linear_posted(w, rooted)


@algorithm("posted", "allgather", "allgatherv")
def allgather_posted(w: Writer, job: Job) -> None:
    """Every member sends its block to all others, all at once."""
    p, r = job.p, job.everyone
    first, n = job.blocks(r, 1)
    for i in range(1, p):
        other = np.where(r < i, i, i - 1)
        w.irecv(r, other, n[other])
        w.isend(r, other, first, n)
    w.wait(r)


def libnbc(call: str, p: int, total: int, element: int) -> str:
    """Return the name of the algorithm that Open MPI takes for a nonblocking call."""
    enough = total // element >= power_below(p)
    if call == "bcast":
        # A chain from 65,536 bytes on only where libnbc_ibcast_skip_dt_decision is off.
        return "linear" if p <= 4 else "swapped_binomial"
    if call == "reduce":
        if p > 2 and enough:
            return "rabenseifner"
        return "swapped_binomial" if p > 4 or total < 65536 else "swapped_chain"
    if call == "allreduce":
        return "trees" if p < 4 or total < 65536 else "rabenseifner"
    return {
        "barrier": "dissemination",
        "reduce_scatter": "tree",
        "reduce_scatter_block": "tree",
        "scan": "linear",
        "exscan": "linear",
        "alltoall": "linear",
        "alltoallv": "linear",
        "alltoallw": "linear_nonempty",
        "allgather": "posted",
        "allgatherv": "posted",
        "gather": "linear_posted",
        "scatter": "linear_posted",
    }.get(call, "linear_posted_all")


def mpich(call: str, p: int, total: int, size: int, blocking: str) -> str:
    """Return the name of MPICH's algorithm where it is not the ``blocking`` one."""
    if call == "allreduce" and total <= 2048:
        return "recursive_doubling"
    if call == "alltoall" and p > 8 and 256 < size <= 2048:
        return "bruck"
    if call == "bcast" and total == 12288 and p >= 8:  # its table says "<" instead of "<="
        return "scatter_ring" if p & (p - 1) else "scatter_doubling"
    if call == "reduce_scatter_block" and size < 524288:
        return "halving"  # its table compares one block
    return blocking
