"""The one table of MPI calls the tracer wraps, and what each wrapper records.

A row holds the argument names of a call in the order of the MPI standard and C text for the
generated wrapper: ``before`` the real call, ``passed`` instead of an argument, ``after`` it when
it succeeded, ``always`` after it. Types come from the ``mpi.h`` in use, so one row serves both
``MPI_X`` and its large-count twin ``MPI_X_c``. Byte rules: docs/capture-format.md.
"""

from __future__ import annotations

from p3s.signature_runner.tracer import table_collectives, table_windows
from p3s.signature_runner.tracer.wrapper import POSTED, Wrapper, names

CALLS: dict[str, Wrapper] = {}

_OWN = "MPI_Status own;"
_WILD_STATUS = _OWN + " MPI_Status *st = p3s_status(status, &own, source, {tag});"
_ANY_STATUS = _OWN + " MPI_Status *st = p3s_any_status(status, &own);"
_ST = {"status": "st"}


def _point_to_point() -> None:
    ends = {
        peer: (f"buf count type {peer} tag comm", f"comm, {peer}, tag, count, type")
        for peer in ("dest", "source")
    }
    (to, said_to), (source, said_from) = ends.values()
    later = "p3s_persistent(&h, comm, {}, tag, P3S_NO_RANK, count, type, P3S_HANDLE(*request));"
    for mode in ("Send", "Ssend", "Bsend", "Rsend"):
        sent = f"p3s_p2p(&h, {said_to});"
        CALLS[mode] = Wrapper(to, sent)
        CALLS["I" + mode.lower()] = Wrapper(f"{to} request", f"{sent} {POSTED}")
        CALLS[mode + "_init"] = Wrapper(f"{to} request", later.format("dest"))
    wild = _WILD_STATUS.format(tag="tag")
    CALLS["Recv"] = Wrapper(
        f"{source} status", f"p3s_recv(&h, {said_from}, st);", before=wild, passed=_ST
    )
    CALLS["Irecv"] = Wrapper(
        f"{source} request", f"p3s_irecv(&h, {said_from}, P3S_HANDLE(*request));"
    )
    CALLS["Recv_init"] = Wrapper(f"{source} request", later.format("source"))
    CALLS["Start"] = Wrapper("request", "p3s_start(&h, 1, request);")
    CALLS["Startall"] = Wrapper("count requests", "p3s_start(&h, count, requests);")
    both = _WILD_STATUS.format(tag="recvtag")
    # One request completes both halves; it is the receive's, whose partner may be open.
    halves = (
        "p3s_p2p(&h, comm, dest, sendtag, {}); h.op = P3S_OP_Isendrecv_recv;"
        " p3s_second_half(&h, comm, source, recvtag, {}, P3S_HANDLE(*request));"
    )
    at_once = "p3s_sendrecv(&h, comm, dest, sendtag, {}, source, recvtag, {}, st);"
    for name, args, sizes in (
        (
            "endrecv",
            "sendbuf sendcount sendtype dest sendtag recvbuf recvcount recvtype source recvtag",
            ("sendcount, sendtype", "recvcount, recvtype"),
        ),
        (
            "endrecv_replace",
            "buf count type dest sendtag source recvtag",
            ("count, type", "count, type"),
        ),
    ):
        CALLS[f"S{name}"] = Wrapper(f"{args} comm status", at_once.format(*sizes), both, passed=_ST)
        CALLS[f"Is{name}"] = Wrapper(f"{args} comm request", halves.format(*sizes))
    parts = "p3s_partitioned(&h, comm, {}, tag, partitions, count, type, P3S_HANDLE(*request));"
    for name, peer in (("Psend_init", "dest"), ("Precv_init", "source")):
        args = f"buf partitions count type {peer} tag comm info request"
        CALLS[name] = Wrapper(args, parts.format(peer))
    for name, args, which in (
        ("Pready", "partition request", "1, partition, NULL"),
        ("Pready_range", "low high request", "high - low + 1, low, NULL"),
        ("Pready_list", "length list request", "length, 0, list"),
    ):
        CALLS[name] = Wrapper(args, f"p3s_ready(&h, P3S_HANDLE(request), {which});")


def _probes() -> None:
    wild = _WILD_STATUS.format(tag="tag")
    found = "p3s_probe(&h, comm, source, tag, st);"
    matched = found + " p3s_message_put(P3S_HANDLE(*message), comm, st);"
    for ending, message, told, begin in (
        ("probe", "", found, wild),
        ("mprobe", "message ", matched, _ANY_STATUS),
    ):
        args, nonblocking = f"source tag comm {message}status", f"I{ending}"
        CALLS[ending.capitalize()] = Wrapper(args, told, begin, passed=_ST)
        args = f"source tag comm flag {message}status"
        CALLS[nonblocking] = Wrapper(args, _if("flag", told), begin, passed=_ST)
    take = "struct p3s_message m = p3s_message_take(P3S_HANDLE(*message));"
    received = "p3s_mrecv(&h, &m, count, type);"
    CALLS["Mrecv"] = Wrapper("buf count type message status", received, take)
    CALLS["Imrecv"] = Wrapper("buf count type message request", f"{received} {POSTED}", take)


def _if(flag: str, done: str) -> str:
    """Return what records a call that has found something only where its flag is set."""
    return f"if (*{flag}) {{ {done} }} else p3s_poll(&h);"


def _completions() -> None:
    each = " for (int i = 0; w.tracked && i < {}; i++) p3s_resolve(&w, {}, st + i);"
    some = "int done = *outcount == MPI_UNDEFINED ? 0 : *outcount; p3s_completed(&h, done);"
    for ending, args, flag, status, done in (
        ("", "request", "flag", "status", "p3s_completed(&h, w.nonnull); p3s_resolve(&w, 0, st);"),
        (
            "all",
            "count requests",
            "flag",
            "statuses",
            "p3s_completed(&h, w.nonnull);" + each.format("count", "i"),
        ),
        (
            "any",
            "count requests index",
            "flag",
            "status",
            "p3s_completed(&h, *index != MPI_UNDEFINED);"
            " if (*index != MPI_UNDEFINED) p3s_resolve(&w, *index, st);",
        ),
        (
            "some",
            "incount requests outcount indices",
            "outcount",
            "statuses",
            some + each.format("done", "indices[i]"),
        ),
    ):
        count, requests = args.split()[:2] if ending else ("1", "request")
        begin = (
            f"struct p3s_wait w; MPI_Status *st = p3s_wait_begin(&w, {count}, {requests}, {status},"
            f" {status} == MPI_{status.upper()}_IGNORE);"
        )
        end, passed = f"p3s_wait_end(&w, rc, {requests});", {status: "st"}
        tested = f"{args} {status}" if flag in args.split() else f"{args} {flag} {status}"
        CALLS["Wait" + ending] = Wrapper(f"{args} {status}", done, begin, end, passed)
        CALLS["Test" + ending] = Wrapper(tested, _if(flag, done), begin, end, passed)
        # Looks without completing: no event, but not the program's work either.
        name = "_".join(filter(None, ("Request_get_status", ending)))
        CALLS[name] = Wrapper(tested, f"if (!*{flag}) p3s_poll(&h);")
    CALLS["Parrived"] = Wrapper("request partition flag", "if (!*flag) p3s_poll(&h);")
    # Waits for the messages that were sent from a buffer; their requests, if any, are not these.
    for name, args in {
        "Buffer_detach": "buffer size",
        "Buffer_flush": "",
        "Comm_detach_buffer": "comm buffer size",
        "Comm_flush_buffer": "comm",
        "Session_detach_buffer": "session buffer size",
        "Session_flush_buffer": "session",
    }.items():
        CALLS[name] = Wrapper(args, "p3s_completed(&h, 0);")
    for name, args, noted in (
        ("Request_free", "request", "p3s_request_free(*request, nested);"),
        ("Cancel", "request", "if (!nested) p3s_cancel(P3S_HANDLE(*request));"),
        ("Type_free", "type", "p3s_type_free(*type);"),
    ):
        CALLS[name] = Wrapper(args, before=noted, traced=False)


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
        "Comm_spawn": "command arguments most info root comm made codes",
        "Comm_spawn_multiple": "count commands arguments most infos root comm made codes",
        "Comm_accept": "port info root comm made",
        "Comm_connect": "port info root comm made",
    }.items():
        CALLS[name] = Wrapper(args, of_comm)
    # Usable only when the request is complete: recorded at first use.
    idup = f"p3s_comm_idup(&h, comm); {POSTED}"
    CALLS["Comm_idup"] = Wrapper("comm made request", idup)
    CALLS["Comm_idup_with_info"] = Wrapper("comm info made request", idup)
    alone = "p3s_comm_from_groups(&h, *made);"
    CALLS["Comm_create_from_group"] = Wrapper("group name info handler made", alone)
    CALLS["Intercomm_create_from_groups"] = Wrapper(
        "group leader remote remote_leader name info handler made", alone
    )
    CALLS["Comm_join"] = Wrapper("fd made", "p3s_comm_joined(&h, *made);")
    forget = "uint64_t was = P3S_HANDLE(*comm); struct p3s_comm *c = p3s_comm_forget(*comm);"
    for name in ("Comm_free", "Comm_disconnect"):
        CALLS[name] = Wrapper(
            "comm",
            "p3s_comm_freed(&h, c);",
            before=forget,
            always="if (rc != MPI_SUCCESS) p3s_comm_kept(was, c);",
            nested="p3s_comm_gone(*comm);",
        )


_point_to_point()
_probes()
_completions()
CALLS.update(table_collectives.rows())
_communicators()
CALLS.update(table_windows.rows())

#: Names of events that are no MPI function: the receive half of one that sends and receives.
HALVES = ("Sendrecv_recv", "Isendrecv_recv")

#: Calls of the C library on files, events under the name POSIX_X; p3s_libc.c has their wrappers.
POSIX = names("""
open close read write pread pwrite readv writev fsync fdatasync
fopen fclose fread fwrite fflush fprintf
""")

#: Calls that pass through, but run callbacks (an attribute's delete function, an error handler) or
#: communicate inside: what they call is no event. Not simply all calls: programs look for some
#: names to find out whether an MPI library is loaded.
GUARDED = names("""
Attr_put Attr_delete Comm_set_attr Comm_delete_attr Type_set_attr Type_delete_attr Type_dup
Win_set_attr Win_delete_attr Comm_call_errhandler Win_call_errhandler File_call_errhandler
Session_call_errhandler Grequest_complete File_set_info File_set_atomicity File_get_size
File_seek_shared File_get_position_shared
""")

#: PMPI functions the C runtime calls itself.
RUNTIME = names("""
Graph_neighbors Dist_graph_neighbors
Comm_get_parent Comm_rank Comm_size Comm_group Comm_remote_group Comm_remote_size Comm_test_inter
Group_free Group_size Group_translate_ranks Group_rank Group_from_session_pset Topo_test
Cartdim_get Cart_get Cart_shift Graph_neighbors_count Dist_graph_neighbors_count
File_get_position File_get_byte_offset File_get_info Info_free Info_get Type_get_extent
Type_size_x Type_free Type_get_envelope
Type_get_extent_x Type_get_true_extent_x Type_get_contents Type_get_envelope_c
Type_get_contents_c Get_elements_x Test_cancelled
Query_thread Get_library_version Initialized
""")
