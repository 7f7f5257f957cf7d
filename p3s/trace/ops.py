"""What kind of thing each MPI call is, as far as the model is concerned."""

from __future__ import annotations

SEND = "send"
RECV = "recv"
COLLECTIVE = "collective"
COMPLETION = "completion"
COMM = "comm"
OTHER = "other"

#: Receive half of MPI_Sendrecv; the event follows its send half ``MPI_Sendrecv``.
SENDRECV_RECV = "MPI_Sendrecv_recv"

_KINDS: dict[str, str] = {}


def _declare(kind: str, names: str) -> None:
    for name in names.split():
        _KINDS["MPI_" + name] = kind


# A started persistent operation carries the name of the call that made it
# (MPI_Send_init, ...); the *_init call itself moves nothing and is not an event.
_declare(SEND, "Send Ssend Bsend Rsend Isend Issend Ibsend Irsend"
               " Send_init Ssend_init Bsend_init Rsend_init Sendrecv Sendrecv_replace")
_declare(RECV, "Recv Irecv Recv_init Mrecv Imrecv Sendrecv_recv")
_declare(COMPLETION, "Wait Waitall Waitany Waitsome Test Testall Testany Testsome"
                     " Probe Iprobe Mprobe Improbe")
_declare(COLLECTIVE, "Barrier Bcast Reduce Allreduce Gather Gatherv Scatter Scatterv Allgather"
                     " Allgatherv Alltoall Alltoallv Alltoallw Reduce_scatter"
                     " Reduce_scatter_block Scan Exscan")
_declare(COMM, "Comm_dup Comm_dup_with_info Comm_split Comm_split_type Comm_create"
               " Comm_create_group Comm_free Cart_create Cart_sub Graph_create"
               " Dist_graph_create Dist_graph_create_adjacent Intercomm_create Intercomm_merge")

#: Collectives with a root.
ROOTED = frozenset(
    "MPI_Bcast MPI_Reduce MPI_Gather MPI_Gatherv MPI_Scatter MPI_Scatterv".split()
)


def kind_of(op: str) -> str:
    """Return the kind of an MPI call name: send, recv, collective, completion, comm or other."""
    return _KINDS.get(op, OTHER)
