"""The one table of MPI calls the tracer wraps, and what each wrapper records.

A row holds the argument names of a call in the order of the MPI standard and C text for the
generated wrapper: ``before`` the real call, ``passed`` instead of an argument, ``after`` it when
it succeeded, ``always`` after it. Types come from the ``mpi.h`` in use, so one row serves both
``MPI_X`` and its large-count twin ``MPI_X_c``. Byte rules: docs/capture-format.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Wrapper:
    """One MPI call: its arguments and the C text around the real call."""

    args: str
    after: str = ""
    before: str = ""
    always: str = ""
    passed: dict[str, str] = field(default_factory=dict)
    traced: bool = True  # False: bookkeeping only, the wrapper does not enter


CALLS: dict[str, Wrapper] = {}

_DROP = "p3s_posted(P3S_HANDLE(*request));"
_OWN = "MPI_Status own;"
_WILD_STATUS = _OWN + " MPI_Status *st = p3s_status(status, &own, source, {tag});"
_ANY_STATUS = _OWN + " MPI_Status *st = p3s_any_status(status, &own);"
_ST = {"status": "st"}


def _point_to_point() -> None:
    message = "buf count type {peer} tag comm"
    described = "comm, {peer}, tag, count, type"
    to, source = message.format(peer="dest"), message.format(peer="source")
    said_to, said_from = described.format(peer="dest"), described.format(peer="source")
    for mode in ("Send", "Ssend", "Bsend", "Rsend"):
        lower = mode.lower()
        CALLS[mode] = Wrapper(to, f"p3s_p2p(&h, {said_to});")
        CALLS["I" + lower] = Wrapper(f"{to} request", f"p3s_p2p(&h, {said_to}); {_DROP}")
        CALLS[mode + "_init"] = Wrapper(
            f"{to} request",
            "p3s_persistent(&h, comm, dest, tag, P3S_NO_RANK, count, type, P3S_HANDLE(*request));",
        )
    wild = _WILD_STATUS.format(tag="tag")
    CALLS["Recv"] = Wrapper(
        f"{source} status", f"p3s_recv(&h, {said_from}, st);", before=wild, passed=_ST
    )
    CALLS["Irecv"] = Wrapper(
        f"{source} request", f"p3s_irecv(&h, {said_from}, P3S_HANDLE(*request));"
    )
    CALLS["Recv_init"] = Wrapper(
        f"{source} request",
        "p3s_persistent(&h, comm, source, tag, P3S_NO_RANK, count, type, P3S_HANDLE(*request));",
    )
    CALLS["Start"] = Wrapper("request", "p3s_start(&h, 1, request);")
    CALLS["Startall"] = Wrapper("count requests", "p3s_start(&h, count, requests);")
    both = _WILD_STATUS.format(tag="recvtag")
    CALLS["Sendrecv"] = Wrapper(
        "sendbuf sendcount sendtype dest sendtag recvbuf recvcount recvtype source recvtag comm"
        " status",
        "p3s_sendrecv(&h, comm, dest, sendtag, sendcount, sendtype, source, recvtag, recvcount,"
        " recvtype, st);",
        before=both,
        passed=_ST,
    )
    CALLS["Sendrecv_replace"] = Wrapper(
        "buf count type dest sendtag source recvtag comm status",
        "p3s_sendrecv(&h, comm, dest, sendtag, count, type, source, recvtag, count, type, st);",
        before=both,
        passed=_ST,
    )


def _probes() -> None:
    wild = _WILD_STATUS.format(tag="tag")
    found = "p3s_probe(&h, comm, source, tag, st);"
    matched = found + " p3s_message_put(P3S_HANDLE(*message), comm, st);"
    CALLS["Probe"] = Wrapper("source tag comm status", found, before=wild, passed=_ST)
    CALLS["Iprobe"] = Wrapper(
        "source tag comm flag status",
        f"if (*flag) {{ {found} }} else p3s_poll(&h);",
        before=wild,
        passed=_ST,
    )
    CALLS["Mprobe"] = Wrapper(
        "source tag comm message status", matched, before=_ANY_STATUS, passed=_ST
    )
    CALLS["Improbe"] = Wrapper(
        "source tag comm flag message status",
        f"if (*flag) {{ {matched} }} else p3s_poll(&h);",
        before=_ANY_STATUS,
        passed=_ST,
    )
    take = "struct p3s_message m = p3s_message_take(P3S_HANDLE(*message));"
    CALLS["Mrecv"] = Wrapper(
        "buf count type message status", "p3s_mrecv(&h, &m, count, type);", before=take
    )
    CALLS["Imrecv"] = Wrapper(
        "buf count type message request",
        f"p3s_mrecv(&h, &m, count, type); {_DROP}",
        before=take,
    )


def _completions() -> None:
    one = (
        "struct p3s_wait w;"
        " MPI_Status *st = p3s_wait_begin(&w, 1, request, status, status == MPI_STATUS_IGNORE);"
    )
    one_end = "p3s_wait_end(&w, rc, request);"
    one_done = "p3s_completed(&h, w.nonnull); p3s_resolve(&w, 0, st);"
    CALLS["Wait"] = Wrapper("request status", one_done, one, one_end, _ST)
    CALLS["Test"] = Wrapper(
        "request flag status",
        f"if (*flag) {{ {one_done} }} else p3s_poll(&h);",
        one,
        one_end,
        _ST,
    )
    many = (
        "struct p3s_wait w; MPI_Status *st = p3s_wait_begin(&w, {n}, requests, statuses,"
        " statuses == MPI_STATUSES_IGNORE);"
    )
    all_begin, some_begin = many.format(n="count"), many.format(n="incount")
    many_end = "p3s_wait_end(&w, rc, requests);"
    every = (
        "p3s_completed(&h, w.nonnull);"
        " for (int i = 0; w.tracked && i < count; i++) p3s_resolve(&w, i, st + i);"
    )
    passed = {"statuses": "st"}
    CALLS["Waitall"] = Wrapper("count requests statuses", every, all_begin, many_end, passed)
    CALLS["Testall"] = Wrapper(
        "count requests flag statuses",
        f"if (*flag) {{ {every} }} else p3s_poll(&h);",
        all_begin,
        many_end,
        passed,
    )
    any_begin = (
        "struct p3s_wait w; MPI_Status *st = p3s_wait_begin(&w, count, requests, status,"
        " status == MPI_STATUS_IGNORE);"
    )
    any_done = (
        "p3s_completed(&h, *index != MPI_UNDEFINED);"
        " if (*index != MPI_UNDEFINED) p3s_resolve(&w, *index, st);"
    )
    CALLS["Waitany"] = Wrapper("count requests index status", any_done, any_begin, many_end, _ST)
    CALLS["Testany"] = Wrapper(
        "count requests index flag status",
        f"if (*flag) {{ {any_done} }} else p3s_poll(&h);",
        any_begin,
        many_end,
        _ST,
    )
    some = (
        "int done = *outcount == MPI_UNDEFINED ? 0 : *outcount; p3s_completed(&h, done);"
        " for (int i = 0; w.tracked && i < done; i++) p3s_resolve(&w, indices[i], st + i);"
    )
    CALLS["Waitsome"] = Wrapper(
        "incount requests outcount indices statuses", some, some_begin, many_end, passed
    )
    CALLS["Testsome"] = Wrapper(
        "incount requests outcount indices statuses",
        f"if (*outcount) {{ {some} }} else p3s_poll(&h);",
        some_begin,
        many_end,
        passed,
    )
    # Looks without completing: no event, but not the program's work either.
    CALLS["Request_get_status"] = Wrapper("request flag status", "if (!*flag) p3s_poll(&h);")
    CALLS["Parrived"] = Wrapper("request partition flag", "if (!*flag) p3s_poll(&h);")
    CALLS["Win_test"] = Wrapper("win flag", "if (*flag) p3s_nowhere(&h); else p3s_poll(&h);")
    CALLS["Request_free"] = Wrapper(
        "request", before="p3s_request_free(P3S_HANDLE(*request));", traced=False
    )
    CALLS["Type_free"] = Wrapper("type", before="p3s_type_free(*type);", traced=False)


def _collectives() -> None:
    """The blocking collectives and, from the same rules, their nonblocking twins.

    On an intercommunicator a negative root (MPI_ROOT, MPI_PROC_NULL) makes some arguments
    meaningless; those are not looked at.
    """
    rows: dict[str, tuple[str, str]] = {}

    def row(name: str, args: str, root: str, count: str, datatype: str) -> None:
        root = "root" if root else "P3S_NO_RANK"
        rows[name] = (args, f"p3s_coll(&h, comm, {root}, {count}, {datatype});")

    null = "p3s_mpi.type_null"
    rows["Barrier"] = ("comm", "p3s_plain(&h, comm);")
    row("Bcast", "buf count type root comm", "root", "root == MPI_PROC_NULL ? 0 : count", "type")
    row("Reduce", "sendbuf recvbuf count type op root comm", "root",
        "root == MPI_PROC_NULL ? 0 : count", "type")  # fmt: skip
    for name in ("Allreduce", "Scan", "Exscan"):
        row(name, "sendbuf recvbuf count type op comm", "", "count", "type")
    gather = "sendbuf sendcount sendtype recvbuf recvcount recvtype"
    mine = "P3S_IN(sendbuf) ? {recv} : sendcount"
    mine_type = "P3S_IN(sendbuf) ? recvtype : sendtype"
    rows["Gather"] = (
        f"{gather} root comm",
        "if (root == MPI_ROOT || root == MPI_PROC_NULL)"
        f" p3s_coll(&h, comm, root, 0, {null}); else"
        f" p3s_coll(&h, comm, root, {mine.format(recv='recvcount')}, {mine_type});",
    )
    rows["Gatherv"] = (
        "sendbuf sendcount sendtype recvbuf recvcounts displs recvtype root comm",
        "if (root == MPI_ROOT || root == MPI_PROC_NULL)"
        f" p3s_coll(&h, comm, root, 0, {null}); else"
        f" p3s_coll(&h, comm, root, {mine.format(recv='recvcounts[p3s_me(comm)]')},"
        f" {mine_type});",
    )
    theirs_type = "P3S_IN(recvbuf) ? sendtype : recvtype"
    rows["Scatter"] = (
        f"{gather} root comm",
        "if (root == MPI_ROOT || root == MPI_PROC_NULL)"
        f" p3s_coll(&h, comm, root, 0, {null}); else"
        f" p3s_coll(&h, comm, root, P3S_IN(recvbuf) ? sendcount : recvcount, {theirs_type});",
    )
    rows["Scatterv"] = (
        "sendbuf sendcounts displs sendtype recvbuf recvcount recvtype root comm",
        "if (root == MPI_ROOT || root == MPI_PROC_NULL)"
        f" p3s_coll(&h, comm, root, 0, {null}); else"
        " p3s_coll(&h, comm, root, P3S_IN(recvbuf) ? sendcounts[p3s_me(comm)] : recvcount,"
        f" {theirs_type});",
    )
    row("Allgather", f"{gather} comm", "", mine.format(recv="recvcount"), mine_type)
    row("Allgatherv", "sendbuf sendcount sendtype recvbuf recvcounts displs recvtype comm", "",
        mine.format(recv="recvcounts[p3s_me(comm)]"), mine_type)  # fmt: skip
    row("Alltoall", f"{gather} comm", "",
        "(int64_t)p3s_fan(comm) * (P3S_IN(sendbuf) ? recvcount : sendcount)",
        mine_type)  # fmt: skip
    row("Alltoallv",
        "sendbuf sendcounts sdispls sendtype recvbuf recvcounts rdispls recvtype comm", "",
        "P3S_IN(sendbuf) ? P3S_SUM(recvcounts, p3s_fan(comm))"
        " : P3S_SUM(sendcounts, p3s_fan(comm))", mine_type)  # fmt: skip
    rows["Alltoallw"] = (
        "sendbuf sendcounts sdispls sendtypes recvbuf recvcounts rdispls recvtypes comm",
        "if (P3S_IN(sendbuf)) P3S_ALLTOALLW(&h, comm, recvcounts, recvtypes);"
        " else P3S_ALLTOALLW(&h, comm, sendcounts, sendtypes);",
    )
    row("Reduce_scatter", "sendbuf recvbuf recvcounts type op comm", "",
        "P3S_SUM(recvcounts, p3s_here_size(comm))", "type")  # fmt: skip
    row("Reduce_scatter_block", "sendbuf recvbuf recvcount type op comm", "",
        "(int64_t)p3s_here_size(comm) * recvcount", "type")  # fmt: skip
    for name, (args, after) in rows.items():
        CALLS[name] = Wrapper(args, after)
        CALLS["I" + name.lower()] = Wrapper(f"{args} request", f"{after} {_DROP}")


def _communicators() -> None:
    made = "p3s_comm_made(&h, {parent}, *made);"
    of_comm = made.format(parent="comm")
    for name, args in {
        "Comm_dup": "comm made",
        "Comm_dup_with_info": "comm info made",
        "Comm_split": "comm color key made",
        "Comm_split_type": "comm kind key info made",
        "Comm_create": "comm group made",
        "Comm_create_group": "comm group tag made",
        "Cart_create": "comm ndims dims periods reorder made",
        "Cart_sub": "comm remain made",
        "Graph_create": "comm nnodes index edges reorder made",
        "Dist_graph_create": "comm n sources degrees destinations weights info reorder made",
        "Dist_graph_create_adjacent": (
            "comm indegree sources sourceweights outdegree destinations destweights info reorder"
            " made"
        ),
        "Intercomm_create": "comm leader peer remote_leader tag made",
        "Intercomm_merge": "comm high made",
    }.items():
        CALLS[name] = Wrapper(args, of_comm)
    forget = "int id = p3s_comm_forget(*comm);"
    for name in ("Comm_free", "Comm_disconnect"):
        CALLS[name] = Wrapper("comm", "p3s_comm_freed(&h, id);", before=forget)


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_point_to_point()
_probes()
_completions()
_collectives()
_communicators()

#: Calls that communicate but are not modelled: recorded with their own name, no bytes. Their
#: arguments are taken from mpi.h; the first communicator among them is recorded, and a request
#: that comes last is noted as new.
OTHER = _names("""
Comm_idup Comm_idup_with_info Comm_create_from_group Intercomm_create_from_groups
Comm_spawn Comm_spawn_multiple Comm_accept Comm_connect Comm_join
Isendrecv Isendrecv_replace Pready Pready_range Pready_list
Neighbor_allgather Neighbor_allgatherv Neighbor_alltoall Neighbor_alltoallv Neighbor_alltoallw
Ineighbor_allgather Ineighbor_allgatherv Ineighbor_alltoall Ineighbor_alltoallv
Ineighbor_alltoallw
Win_create Win_allocate Win_allocate_shared Win_create_dynamic Win_free Win_fence Win_start
Win_complete Win_post Win_wait Win_lock Win_unlock Win_lock_all Win_unlock_all Win_flush
Win_flush_all Win_flush_local Win_flush_local_all Win_sync
Put Get Accumulate Get_accumulate Fetch_and_op Compare_and_swap
Rput Rget Raccumulate Rget_accumulate
File_open File_close File_delete File_set_size File_preallocate File_set_view File_sync
File_read File_read_all File_read_at File_read_at_all File_read_shared File_read_ordered
File_write File_write_all File_write_at File_write_at_all File_write_shared File_write_ordered
File_iread File_iread_all File_iread_at File_iread_at_all File_iread_shared
File_iwrite File_iwrite_all File_iwrite_at File_iwrite_at_all File_iwrite_shared
File_read_all_begin File_read_all_end File_read_at_all_begin File_read_at_all_end
File_read_ordered_begin File_read_ordered_end File_write_all_begin File_write_all_end
File_write_at_all_begin File_write_at_all_end File_write_ordered_begin File_write_ordered_end
""")

#: Persistent requests that are not point-to-point: an event at each MPI_Start, own name, no bytes.
OTHER_INIT = _names("""
Psend_init Precv_init Barrier_init Bcast_init Reduce_init Allreduce_init Gather_init Gatherv_init
Scatter_init Scatterv_init Allgather_init Allgatherv_init Alltoall_init Alltoallv_init
Alltoallw_init Reduce_scatter_init Reduce_scatter_block_init Scan_init Exscan_init
Neighbor_allgather_init Neighbor_allgatherv_init Neighbor_alltoall_init Neighbor_alltoallv_init
Neighbor_alltoallw_init
""")

#: PMPI functions the C runtime calls itself.
RUNTIME = _names("""
Comm_rank Comm_size Comm_group Comm_remote_group Comm_remote_size Comm_test_inter Group_free
Group_translate_ranks Topo_test Cartdim_get Cart_get Type_size_x Type_free Type_get_envelope
Type_get_contents Type_get_envelope_c Type_get_contents_c Get_elements_x Test_cancelled
""")
