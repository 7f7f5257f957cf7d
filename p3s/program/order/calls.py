"""Which step each MPI call of a scaled trace is."""

from __future__ import annotations

from p3s.base.ops import COLLECTIVE as COLLECTIVE_KIND
from p3s.base.ops import (
    HALF_OF_ONE,
    ISENDRECV_RECV,
    MAKES_COMM,
    NOT_BY_ALL,
    SENDRECV_RECV,
    is_file_collective,
    kind_of,
    leaves_file_request,
    leaves_request,
    like,
    parts_like,
    unwaited,
)
from p3s.simulate.steps import Op

#: A started persistent operation carries the name of the call that made it.
_OPS = {
    "MPI_Send": Op.SEND,
    "MPI_Rsend": Op.SEND,
    "MPI_Ssend": Op.SSEND,
    "MPI_Bsend": Op.BSEND,
    "MPI_Isend": Op.ISEND,
    "MPI_Irsend": Op.ISEND,
    "MPI_Ibsend": Op.BSEND,
    "MPI_Issend": Op.ISSEND,
    "MPI_Send_init": Op.START_SEND,
    "MPI_Rsend_init": Op.START_SEND,
    "MPI_Bsend_init": Op.BSEND,
    "MPI_Ssend_init": Op.START_SSEND,
    "MPI_Isendrecv": Op.ISEND,
    "MPI_Isendrecv_replace": Op.ISEND,
    ISENDRECV_RECV: Op.IRECV,
    "MPI_Sendrecv": Op.SENDRECV,
    "MPI_Sendrecv_replace": Op.SENDRECV,
    SENDRECV_RECV: Op.RECV,
    "MPI_Recv": Op.RECV,
    "MPI_Mrecv": Op.RECV,
    "MPI_Irecv": Op.IRECV,
    "MPI_Imrecv": Op.IRECV,
    "MPI_Recv_init": Op.START_RECV,
    "MPI_Wait": Op.WAIT,
    "MPI_Waitall": Op.WAIT,
    "MPI_Test": Op.WAIT,
    "MPI_Testall": Op.WAIT,
    "MPI_Waitany": Op.WAITANY,
    "MPI_Testany": Op.WAITANY,
    "MPI_Waitsome": Op.WAITSOME,
    "MPI_Testsome": Op.WAITSOME,
}
#: Completions that may complete more than one request.
MANY = frozenset({"MPI_Waitall", "MPI_Testall", "MPI_Waitsome", "MPI_Testsome"}) | parts_like(
    "MPI_Waitall"
)
#: Calls whose request is complete at once: it has its turn among the requests, but nobody waits.
AT_ONCE = frozenset({"MPI_Ibsend", "MPI_Bsend_init"})
#: Calls that look for a message without receiving it.
PROBES = frozenset({"MPI_Probe", "MPI_Iprobe", "MPI_Mprobe", "MPI_Improbe"})
#: Calls in which all members of a communicator agree on a new one, or on leaving it.
AGREEING = MAKES_COMM - NOT_BY_ALL | {"MPI_Comm_disconnect"}


def op_of(call: str) -> Op | None:
    """Return the step that an MPI call is, None if the replay has none for it."""
    found = _OPS.get(like(call))
    if found is None and (kind_of(call) == COLLECTIVE_KIND or call in AGREEING):
        return Op.ICOLLECTIVE if leaves_request(call) else Op.COLLECTIVE
    if is_file_collective(call) and not leaves_file_request(call):
        return Op.COLLECTIVE
    return found


def step_name(call: str) -> str:
    """Return the name of the step that a call is: what all do on a file is a barrier of them.

    The time that it takes at the file is computation's place before it: the same for all.
    """
    return "MPI_Barrier" if is_file_collective(call) else call


def requests_of(call: str) -> int:
    """Return how many requests a call leaves for completions to count: 0 or 1.

    The one request of MPI_Isendrecv is that of its receive half; nobody waits for what a process
    does for a one-sided call of another that synchronises alone.
    """
    if call in AT_ONCE or leaves_file_request(call):
        return 1
    op = op_of(call)
    leaves = op in (
        Op.ISEND,
        Op.ISSEND,
        Op.START_SEND,
        Op.START_SSEND,
        Op.IRECV,
        Op.START_RECV,
        Op.ICOLLECTIVE,
    )
    return int(leaves and call not in HALF_OF_ONE and not unwaited(call))
