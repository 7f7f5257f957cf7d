"""What kind of thing each MPI call is, as far as the model is concerned."""

from __future__ import annotations

SEND = "send"
RECV = "recv"
COLLECTIVE = "collective"
COMPLETION = "completion"
COMM = "comm"
#: Recorded with bytes and partner, but there is no model of them.
NEIGHBOR = "neighbor"
PARTITIONED = "partitioned"
RMA = "rma"
IO = "io"
PROCESS = "process"
OTHER = "other"

#: Kinds that the model describes and the replay measures or leaves out for a stated reason.
MODELLED = frozenset({SEND, RECV, COLLECTIVE, COMPLETION, COMM, IO})

#: Run time begins where these end: what is computed before them is no part of it.
INIT_OPS = ("MPI_Init", "MPI_Init_thread")
#: Receive half of MPI_Sendrecv; the event follows its send half ``MPI_Sendrecv``.
SENDRECV_RECV = "MPI_Sendrecv_recv"
#: Receive half of MPI_Isendrecv and MPI_Isendrecv_replace; their one request is the receive's.
ISENDRECV_RECV = "MPI_Isendrecv_recv"

#: Events of their own, in the capture too: the second of one call.
HALVES = frozenset({SENDRECV_RECV, ISENDRECV_RECV})

#: Their request is counted at the receive half.
HALF_OF_ONE = frozenset({"MPI_Isendrecv", "MPI_Isendrecv_replace"})

_KINDS: dict[str, str] = {}
_BLOCKING: dict[str, str] = {}
#: Parts of a call that is read as messages (p3s.capture.rewrite): the call that does what they do,
#: and the MPI function that the program calls.
_LIKE: dict[str, str] = {}
_CALLED: dict[str, str] = {}


def _declare(kind: str, names: str) -> None:
    for name in names.split():
        _KINDS["MPI_" + name] = kind


def _declare_collectives(kind: str, names: str) -> None:
    """Declare blocking collectives with their nonblocking and persistent twins."""
    for name in names.split():
        for twin in (name, "I" + name.lower(), name + "_init"):
            _KINDS["MPI_" + twin] = kind
            _BLOCKING["MPI_" + twin] = "MPI_" + name


def _declare_parts(name: str, likes: dict[str, str]) -> None:
    """Declare the parts of a call: MPI_X_send that acts like MPI_Isend, and the like."""
    for part, like in likes.items():
        part_name = f"MPI_{name}_{part}"
        _KINDS[part_name] = _KINDS[like]
        _LIKE[part_name], _CALLED[part_name] = like, "MPI_" + name


# A started persistent operation carries the name of the call that made it
# (MPI_Send_init, ...); the *_init call itself moves nothing and is not an event.
_declare(
    SEND,
    "Send Ssend Bsend Rsend Isend Issend Ibsend Irsend"
    " Send_init Ssend_init Bsend_init Rsend_init Sendrecv Sendrecv_replace"
    " Isendrecv Isendrecv_replace",
)
_declare(RECV, "Recv Irecv Recv_init Mrecv Imrecv Sendrecv_recv Isendrecv_recv")
_declare(
    COMPLETION,
    "Wait Waitall Waitany Waitsome Test Testall Testany Testsome Probe Iprobe Mprobe Improbe",
)
#: They wait for what was sent from a buffer, and complete no request.
_FLUSHES = (
    "Buffer_detach Buffer_flush Comm_detach_buffer Comm_flush_buffer Session_detach_buffer"
    " Session_flush_buffer"
)
_declare(COMPLETION, _FLUSHES)
_LIKE |= dict.fromkeys(("MPI_" + name for name in _FLUSHES.split()), "MPI_Waitall")
_declare_collectives(
    COLLECTIVE,
    "Barrier Bcast Reduce Allreduce Gather Gatherv Scatter Scatterv"
    " Allgather Allgatherv Alltoall Alltoallv Alltoallw"
    " Reduce_scatter Reduce_scatter_block Scan Exscan",
)
_declare(
    COMM,
    "Comm_dup Comm_dup_with_info Comm_idup Comm_idup_with_info Comm_split"
    " Comm_split_type Comm_create Comm_create_group Comm_create_from_group Comm_free"
    " Comm_disconnect"
    " Cart_create Cart_sub Graph_create Dist_graph_create Dist_graph_create_adjacent"
    " Intercomm_create Intercomm_create_from_groups Intercomm_merge"
    " Win_create Win_allocate Win_allocate_shared Win_create_dynamic Win_free",
)
_BLOCKING["MPI_Comm_idup"] = "MPI_Comm_dup"
_BLOCKING["MPI_Comm_idup_with_info"] = "MPI_Comm_dup_with_info"
_declare_collectives(
    NEIGHBOR,
    "Neighbor_allgather Neighbor_allgatherv Neighbor_alltoall"
    " Neighbor_alltoallv Neighbor_alltoallw",
)
for _name in "allgather allgatherv alltoall alltoallv alltoallw".split():
    _declare_parts(
        f"Neighbor_{_name}", {"recv": "MPI_Irecv", "send": "MPI_Isend", "wait": "MPI_Waitall"}
    )
    _declare_parts(f"Ineighbor_{_name}", {"recv": "MPI_Irecv", "send": "MPI_Isend"})
    _declare_parts(f"Neighbor_{_name}_init", {"recv": "MPI_Recv_init", "send": "MPI_Send_init"})
for _name in ("Pready", "Pready_range", "Pready_list"):
    _declare_parts(_name, {"send": "MPI_Isend"})
_declare_parts("Psend_init", {"send": "MPI_Send_init"})
_declare_parts("Precv_init", {"recv": "MPI_Recv_init"})
#: One-sided operations: whether data go to the target, and whether they come from it.
ONE_SIDED = {
    **dict.fromkeys("Put Accumulate Rput Raccumulate".split(), (True, False)),
    **dict.fromkeys("Get Rget".split(), (False, True)),
    **dict.fromkeys(
        "Get_accumulate Rget_accumulate Fetch_and_op Compare_and_swap".split(), (True, True)
    ),
}
#: Those that leave a request.
REQUEST_BASED = frozenset("MPI_" + name for name in ONE_SIDED if name.startswith("R"))
for _name, (_to, _from) in ONE_SIDED.items():
    if _to:
        _declare_parts(
            _name,
            {
                "send": "MPI_Bsend" if _from else "MPI_Isend",
                "target_recv": "MPI_Irecv",
                "passive_recv": "MPI_Irecv",
            },
        )
    if _from:
        _declare_parts(_name, {"recv": "MPI_Irecv", "target_send": "MPI_Issend"})
for _name in (
    "fence post start complete wait test lock lock_all unlock unlock_all flush flush_all"
    " flush_local flush_local_all sync".split()
):
    _declare_parts(f"Win_{_name}", {"wait": "MPI_Waitall"})
for _name in "lock unlock unlock_all flush flush_all".split():
    _declare_parts(f"Win_{_name}", {"recv": "MPI_Irecv", "target_send": "MPI_Issend"})
for _name in "fence wait test".split():
    _declare_parts(f"Win_{_name}", {"target_wait": "MPI_Waitall"})
for _name in "start wait test".split():
    _declare_parts(f"Win_{_name}", {"recv": "MPI_Recv"})
for _name in "post complete".split():
    _declare_parts(f"Win_{_name}", {"send": "MPI_Bsend"})
_declare_parts("Win_fence", {"barrier": "MPI_Barrier"})
_CALLED |= {SENDRECV_RECV: "MPI_Sendrecv", ISENDRECV_RECV: "MPI_Isendrecv"}
_declare(PARTITIONED, "Psend_init Precv_init Pready Pready_range Pready_list")
_declare(PROCESS, "Comm_spawn Comm_spawn_multiple Comm_accept Comm_connect Comm_join")

#: Calls that make a communicator.
MAKES_COMM = frozenset(
    name
    for name, kind in _KINDS.items()
    if kind == COMM and name not in ("MPI_Comm_free", "MPI_Comm_disconnect")
)
#: Called by a part of the communicator only, or without one that all its callers share.
NOT_BY_ALL = frozenset(
    {"MPI_Comm_create_group", "MPI_Comm_create_from_group", "MPI_Intercomm_create_from_groups"}
)

#: Collectives with a root.
ROOTED = frozenset(
    name
    for name, blocking in _BLOCKING.items()
    if blocking.removeprefix("MPI_") in "Bcast Reduce Gather Gatherv Scatter Scatterv".split()
)

#: Ends the name of a call on a communicator with processes of another world (p3s.capture.types).
_OUTSIDE = "_outside"

#: Queues of requests: a completion completes the oldest of its own one.
ORDINARY, OF_ORIGIN, OF_TARGET = range(3)


def kind_of(op: str) -> str:
    """Return the kind of an MPI call name, one of the constants of this module."""
    kind = _KINDS.get(op)
    if kind is not None:
        return kind
    if op.endswith(_OUTSIDE):
        return PROCESS
    if op.removeprefix("MPI_") in ONE_SIDED or op.startswith("MPI_Win_"):
        return RMA
    return IO if op.startswith(("MPI_File_", POSIX)) else OTHER


#: Calls of the C library on files; a run of adjacent ones is one event.
POSIX = "POSIX_"
#: Calls on a file of MPI that all its processes make, beside those that end in _all or _ordered.
_OF_ALL = frozenset(
    "MPI_File_" + name
    for name in "open close set_view set_size preallocate set_atomicity sync seek_shared".split()
)
_OPENING = frozenset({"MPI_File_open", "POSIX_open", "POSIX_fopen"})
_CLOSING = frozenset({"MPI_File_close", "POSIX_close", "POSIX_fclose"})
_SYNCING = frozenset({"MPI_File_sync", "POSIX_fsync", "POSIX_fdatasync"})
#: What a call does to a file.
READ, WRITE, SYNC, OPEN, CLOSE = "read", "write", "sync", "open", "close"


def file_work(op: str) -> str:
    """Return what a call does to a file: READ, WRITE, SYNC, OPEN, CLOSE; OTHER for any other."""
    for work, names in ((SYNC, _SYNCING), (OPEN, _OPENING), (CLOSE, _CLOSING)):
        if op in names:
            return work
    if kind_of(op) != IO or op.endswith("_end"):
        return OTHER
    name = op.removeprefix("MPI_File_").removeprefix(POSIX)
    if "read" in name:
        return READ
    return WRITE if "write" in name or name in ("fprintf", "fflush") else OTHER


def is_file_collective(op: str) -> bool:
    """Tell whether all processes that opened a file make this call together."""
    name = op.removesuffix("_begin")
    return op in _OF_ALL or (op.startswith("MPI_File_") and name.endswith(("_all", "_ordered")))


def is_on_comm(op: str) -> bool:
    """Tell whether a call is made by the members of a communicator together."""
    return kind_of(op) in (COLLECTIVE, COMM) or is_file_collective(op)


def leaves_file_request(op: str) -> bool:
    """Tell whether a call on a file is completed by a later one, as MPI_File_iwrite_all is."""
    return op.startswith(("MPI_File_iread", "MPI_File_iwrite"))


def blocking_of(op: str) -> str:
    """Return the blocking twin of a collective: MPI_Allreduce of MPI_Iallreduce.

    Of a persistent one (MPI_Allreduce_init) too; any other name is returned as it is.
    """
    return _BLOCKING.get(op, like(op) if kind_of(op) == COLLECTIVE else op)


#: Receives that a later call completes.
POSTED = frozenset({"MPI_Irecv", "MPI_Recv_init"})


def leaves_request(op: str) -> bool:
    """Tell whether a collective is completed by a later call: nonblocking or persistent."""
    return op in _BLOCKING and _BLOCKING[op] != op


def waits(op: str) -> bool:
    """Tell whether a call may wait for another rank: it neither starts nor prepares a transfer."""
    starts = like(op).startswith("MPI_I") and kind_of(op) in (SEND, RECV, COLLECTIVE)
    return not (starts or op.endswith("_init"))


def like(op: str) -> str:
    """Return the call that does what a part of a call that is read as messages does.

    MPI_Isend of MPI_Neighbor_alltoall_send; any other name is returned as it is.
    """
    return _LIKE.get(op, op)


def parts_like(op: str) -> frozenset[str]:
    """Return the parts of calls that do what a call does."""
    return frozenset(part for part, other in _LIKE.items() if other == op)


def queue_of(op: str) -> int:
    """Return which requests a call leaves or completes: ORDINARY, OF_ORIGIN or OF_TARGET.

    What one-sided operations leave is completed by the synchronisation of their window alone.
    """
    function = resolve_function(op)
    if function == op or function in REQUEST_BASED or kind_of(function) != RMA:
        return ORDINARY
    return OF_TARGET if op.endswith(("_target_recv", "_target_wait")) else OF_ORIGIN


def is_answer(op: str) -> bool:
    """Tell whether a call is the target's, that answers without a call of its own."""
    return op.endswith("_target_send")


def lacks_waiter(op: str) -> bool:
    """Tell whether nobody waits for the request of a part of a one-sided call.

    The target's half, where the origin alone synchronises, and what it answers.
    """
    return is_answer(op) or op.endswith("_passive_recv")


def outside(op: str) -> str:
    """Return the name of a call that involves processes of another MPI_COMM_WORLD."""
    return op + _OUTSIDE


def resolve_function(op: str) -> str:
    """Return the function that the program calls: MPI_Sendrecv of MPI_Sendrecv_recv."""
    op = op.removesuffix(_OUTSIDE)
    return _CALLED.get(op, op)


def name_phase_op(op: str) -> str:
    """Return the name by which a phase is called: that of the function, but of halves their own."""
    return op if op in HALVES else resolve_function(op)


def of_one_call(op: str) -> bool:
    """Tell whether a call is several such messages: one after the other they are no loop."""
    several = kind_of(resolve_function(op)) in (NEIGHBOR, PARTITIONED)
    return op in _LIKE and several and op != "MPI_Pready_send"


def place_of(op: str) -> str:
    """Return what makes a call one place of the program: started operations are MPI_Start."""
    function = resolve_function(op)
    return "MPI_Start" if function.endswith("_init") else function


def is_modelled(op: str) -> bool:
    """Tell whether the model covers a call; MPI_Init and MPI_Finalize need no model."""
    return kind_of(op) in MODELLED or op in ("MPI_Init", "MPI_Init_thread", "MPI_Finalize")
