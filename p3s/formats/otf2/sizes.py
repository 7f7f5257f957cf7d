"""Bytes of collectives as Score-P counts them, and as captures do (docs/capture-format.md).

Score-P counts what a rank sends to all members and receives from all, itself included; with
MPI_IN_PLACE itself not. An archive does not say which of the two it was: it shows where only one
gives whole bytes, or elements that computers have.
"""

from __future__ import annotations

from p3s.base.ops import blocking_of

_SAME_TO_ALL = frozenset({"Allreduce", "Allgather", "Allgatherv", "Reduce_scatter_block"})
_WHOLE = frozenset({"Alltoall", "Alltoallv", "Alltoallw", "Reduce_scatter"})
_TO_ROOT = frozenset({"Gather", "Gatherv", "Reduce"})
_FROM_ROOT = frozenset({"Bcast", "Scatter", "Scatterv"})
#: Bytes of the elements that most buffers have.
_ELEMENTS = (8, 4, 2)


def to_sizes(op: str, nbytes: int, members: int, place: int, at_root: bool) -> tuple[int, int]:
    """Return what a member sends and receives in a collective in which it has so many bytes.

    place: its rank in the communicator. Not known, and left as if all had the same: what the root
    of a Gatherv or Scatterv, and what a member of an Allgatherv or Alltoallv gets from others.
    """
    name = blocking_of(op).removeprefix("MPI_")
    if name == "Reduce_scatter_block":
        return nbytes, nbytes
    if name in _SAME_TO_ALL:
        return members * nbytes, members * nbytes
    if name in _WHOLE:
        return nbytes, nbytes
    if name in _TO_ROOT:
        return nbytes, members * nbytes if at_root else 0
    if name in _FROM_ROOT:
        return members * nbytes if at_root else 0, nbytes
    if name == "Scan":
        return (members - place) * nbytes, (place + 1) * nbytes
    if name == "Exscan":
        return (members - place - 1) * nbytes, place * nbytes
    return 0, 0


def from_sizes(op: str, sent: int, received: int, members: int, place: int) -> int:
    """Return the bytes of a member of a collective, given what Score-P says it sent and received.

    place: its rank in the communicator.
    """
    name = blocking_of(op).removeprefix("MPI_")
    if name == "Reduce_scatter_block":
        return sent
    if name in _SAME_TO_ALL:
        return _share(sent, members)
    if name in _WHOLE:
        return sent
    if name in _TO_ROOT:  # the root sends nothing where it works in place
        return sent if sent or name == "Gatherv" else received // max(members - 1, 1)
    if name in _FROM_ROOT:
        return received if received or name == "Scatterv" else sent // max(members - 1, 1)
    if name in ("Scan", "Exscan"):
        in_place = name == "Exscan" or received * (members - place) != sent * (place + 1)
        return (sent + received) // max(members - 1 if in_place else members + 1, 1)
    return 0


def _share(total: int, members: int) -> int:
    """Return what one member gave of what was sent to all, or to all others."""
    shares = [total // n for n in (members, members - 1) if n > 0 and total % n == 0]
    for size in _ELEMENTS:
        for share in shares:
            if share % size == 0:
                return share
    return shares[0] if shares else total // max(members, 1)
