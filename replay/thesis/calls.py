"""How each MPI call of a scaled trace is executed by the replay."""

from __future__ import annotations

from enum import IntEnum


class Code(IntEnum):
    """Operations of the interpreter; the numbers are those of inner.c."""

    SEND = 1
    SSEND = 2
    ISEND = 3
    ISSEND = 4
    BUFFERED = 5  # an Isend that nobody waits for before the end of the pass
    RECV = 6
    IRECV = 7
    SENDRECV = 8  # followed by SECOND
    SECOND = 9  # the receive half of the SENDRECV before it
    WAIT = 10  # for the oldest `arg` requests
    NOTHING = 11  # keeps the place of a request that the replay leaves out
    ASK = 12  # control message to the black hole
    ANSWER = 13  # black hole: take a control message, send what it asks for
    END = 14  # wait for everything that is outstanding
    REST = 15  # computation at the end of a pass


#: A persistent operation that was started is a non-blocking one; a buffered send returns at once.
SEND_CODES = {
    "MPI_Send": Code.SEND,
    "MPI_Rsend": Code.SEND,
    "MPI_Ssend": Code.SSEND,
    "MPI_Bsend": Code.BUFFERED,
    "MPI_Isend": Code.ISEND,
    "MPI_Irsend": Code.ISEND,
    "MPI_Ibsend": Code.ISEND,
    "MPI_Issend": Code.ISSEND,
    "MPI_Send_init": Code.ISEND,
    "MPI_Rsend_init": Code.ISEND,
    "MPI_Bsend_init": Code.ISEND,
    "MPI_Ssend_init": Code.ISSEND,
    "MPI_Sendrecv": Code.SENDRECV,
    "MPI_Sendrecv_replace": Code.SENDRECV,
    # Its one request is that of the receive half.
    "MPI_Isendrecv": Code.BUFFERED,
    "MPI_Isendrecv_replace": Code.BUFFERED,
}
SENDRECV_RECV = "MPI_Sendrecv_recv"
RECV_CODES = {
    "MPI_Recv": Code.RECV,
    "MPI_Mrecv": Code.RECV,
    "MPI_Irecv": Code.IRECV,
    "MPI_Imrecv": Code.IRECV,
    "MPI_Recv_init": Code.IRECV,
    SENDRECV_RECV: Code.SECOND,
    "MPI_Isendrecv_recv": Code.IRECV,
}
#: Calls that complete requests, and whether they may complete all at once.
COMPLETIONS = {
    "MPI_Wait": False,
    "MPI_Test": False,
    "MPI_Waitany": False,
    "MPI_Testany": False,
    "MPI_Waitsome": True,
    "MPI_Testsome": True,
    "MPI_Waitall": True,
    "MPI_Testall": True,
}
#: Calls that leave a request behind.
REQUEST_CODES = frozenset({Code.ISEND, Code.ISSEND, Code.IRECV})
