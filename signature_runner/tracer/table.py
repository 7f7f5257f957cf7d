"""The one table of MPI calls the tracer wraps, and what each wrapper records.

A row holds the argument names of a call in the order of the MPI standard and C text for the
generated wrapper: ``before`` the real call, ``passed`` instead of an argument, ``after`` it when
it succeeded, ``always`` after it. Types come from the ``mpi.h`` in use, so one row serves both
``MPI_X`` and its large-count twin ``MPI_X_c``. Byte rules: docs/capture-format.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Wrapper:
    """One MPI call: its arguments and the C text around the real call."""

    args: str
    after: str = ""
    before: str = ""
    always: str = ""
    passed: dict[str, str] = field(default_factory=dict)
    nested: str = ""  # before the real call, if it is made inside another one
    traced: bool = True  # False: bookkeeping only, the wrapper does not enter


#: A request that a call has made: what its handle once meant is forgotten.
POSTED = "p3s_posted(P3S_HANDLE(*request));"


def names(text: str) -> tuple[str, ...]:
    """Return the names in a text."""
    return tuple(text.split())


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
    for name, args, arguments in (
        ("Pready", "partition request", "1, partition, NULL"),
        ("Pready_range", "low high request", "high - low + 1, low, NULL"),
        ("Pready_list", "length list request", "length, 0, list"),
    ):
        CALLS[name] = Wrapper(args, f"p3s_ready(&h, P3S_HANDLE(request), {arguments});")


def _probes() -> None:
    wild = _WILD_STATUS.format(tag="tag")
    probed = "p3s_probe(&h, comm, source, tag, st);"
    matched = probed + " p3s_message_put(P3S_HANDLE(*message), comm, st);"
    for ending, message, record, begin in (
        ("probe", "", probed, wild),
        ("mprobe", "message ", matched, _ANY_STATUS),
    ):
        args, nonblocking = f"source tag comm {message}status", f"I{ending}"
        CALLS[ending.capitalize()] = Wrapper(args, record, begin, passed=_ST)
        args = f"source tag comm flag {message}status"
        CALLS[nonblocking] = Wrapper(args, _if("flag", record), begin, passed=_ST)
    take = "struct p3s_message m = p3s_message_take(P3S_HANDLE(*message));"
    received = "p3s_mrecv(&h, &m, count, type);"
    CALLS["Mrecv"] = Wrapper("buf count type message status", received, take)
    CALLS["Imrecv"] = Wrapper("buf count type message request", f"{received} {POSTED}", take)


def _if(flag: str, record: str) -> str:
    """Return what records a call that has found something only where its flag is set."""
    return f"if (*{flag}) {{ {record} }} else p3s_poll(&h);"


def _completions() -> None:
    each = " for (int i = 0; w.tracked && i < {}; i++) p3s_resolve(&w, {}, st + i);"
    some_done = "int done = *outcount == MPI_UNDEFINED ? 0 : *outcount; p3s_completed(&h, done);"
    for ending, args, flag, status, record in (
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
            some_done + each.format("done", "indices[i]"),
        ),
    ):
        count, requests = args.split()[:2] if ending else ("1", "request")
        begin = (
            f"struct p3s_wait w; MPI_Status *st = p3s_wait_begin(&w, {count}, {requests}, {status},"
            f" {status} == MPI_{status.upper()}_IGNORE);"
        )
        end, passed = f"p3s_wait_end(&w, rc, {requests});", {status: "st"}
        tested = f"{args} {status}" if flag in args.split() else f"{args} {flag} {status}"
        CALLS["Wait" + ending] = Wrapper(f"{args} {status}", record, begin, end, passed)
        CALLS["Test" + ending] = Wrapper(tested, _if(flag, record), begin, end, passed)
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
    record = "p3s_comm_made(&h, {parent}, *made);"
    of_comm = record.format(parent="comm")
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


# ---- collectives: blocking, nonblocking, persistent, and over neighbours
_NULL = "p3s_mpi.type_null"
_GATHER = "sendbuf sendcount sendtype recvbuf recvcount recvtype"
_GATHERV = "sendbuf sendcount sendtype recvbuf recvcounts displs recvtype"
_ALLTOALLV = "sendbuf sendcounts sdispls sendtype recvbuf recvcounts rdispls recvtype"
_ALLTOALLW = "sendbuf sendcounts sdispls sendtypes recvbuf recvcounts rdispls recvtypes"
#: On an intercommunicator a negative root makes some arguments meaningless: not looked at.
_ASIDE = f"if (root == MPI_ROOT || root == MPI_PROC_NULL) COLL(root, 0, {_NULL}); else "


def _plain(root: str, count: str, datatype: str) -> str:
    return f"COLL({root or 'P3S_NO_RANK'}, {count}, {datatype});"


def _blocking() -> dict[str, tuple[str, str]]:
    """Return name -> (arguments, text) of the blocking collectives."""
    mine = "P3S_IN(sendbuf) ? {recv} : sendcount"
    mine_type = "P3S_IN(sendbuf) ? recvtype : sendtype"
    theirs = "P3S_IN(recvbuf) ? {send} : recvcount"
    theirs_type = "P3S_IN(recvbuf) ? sendtype : recvtype"
    at_me = mine.format(recv="recvcounts[p3s_me(comm)]")
    beside = "root == MPI_PROC_NULL ? 0 : count"
    rows = {
        "Barrier": ("comm", _plain("", "0", _NULL)),
        "Bcast": ("buf count type root comm", _plain("root", beside, "type")),
        "Reduce": ("sendbuf recvbuf count type op root comm", _plain("root", beside, "type")),
        "Gather": (
            f"{_GATHER} root comm",
            _ASIDE + _plain("root", mine.format(recv="recvcount"), mine_type),
        ),
        "Gatherv": (f"{_GATHERV} root comm", _ASIDE + _plain("root", at_me, mine_type)),
        "Scatter": (
            f"{_GATHER} root comm",
            _ASIDE + _plain("root", theirs.format(send="sendcount"), theirs_type),
        ),
        "Scatterv": (
            "sendbuf sendcounts displs sendtype recvbuf recvcount recvtype root comm",
            _ASIDE + _plain("root", theirs.format(send="sendcounts[p3s_me(comm)]"), theirs_type),
        ),
        "Allgather": (f"{_GATHER} comm", _plain("", mine.format(recv="recvcount"), mine_type)),
        "Allgatherv": (f"{_GATHERV} comm", _plain("", at_me, mine_type)),
        "Alltoall": (
            f"{_GATHER} comm",
            _plain("", f"(int64_t)p3s_fan(comm) * ({mine.format(recv='recvcount')})", mine_type),
        ),
        "Alltoallv": (
            f"{_ALLTOALLV} comm",
            _plain(
                "",
                "P3S_IN(sendbuf) ? P3S_SUM(recvcounts, p3s_fan(comm))"
                " : P3S_SUM(sendcounts, p3s_fan(comm))",
                mine_type,
            ),
        ),
        "Alltoallw": (
            f"{_ALLTOALLW} comm",
            "struct p3s_moved m = P3S_IN(sendbuf) ? P3S_MOVED(recvcounts, recvtypes, p3s_fan(comm))"
            " : P3S_MOVED(sendcounts, sendtypes, p3s_fan(comm)); MOVED(m);",
        ),
        "Reduce_scatter": (
            "sendbuf recvbuf recvcounts type op comm",
            _plain("", "P3S_SUM(recvcounts, p3s_here_size(comm))", "type"),
        ),
        "Reduce_scatter_block": (
            "sendbuf recvbuf recvcount type op comm",
            _plain("", "(int64_t)p3s_here_size(comm) * recvcount", "type"),
        ),
    }
    for name in ("Allreduce", "Scan", "Exscan"):
        rows[name] = ("sendbuf recvbuf count type op comm", _plain("", "count", "type"))
    return rows


def _neighbours() -> dict[str, tuple[str, str]]:
    """Return the neighbourhood collectives: what this rank sends to all that it sends to.

    Beyond the edge of a grid that is not periodic there is nobody; nothing is sent there.
    """
    begin = "struct p3s_neighbours *n = p3s_neighbours(comm);"
    same = "p3s_sizes_same(&h, n, sendcount, sendtype, recvcount, recvtype)"
    every = f"{begin} int64_t sent = {same}; {_plain('', 'sent', 'sendtype')}"
    return {
        "Neighbor_allgather": (f"{_GATHER} comm", every),
        "Neighbor_alltoall": (f"{_GATHER} comm", every),
        "Neighbor_allgatherv": (
            f"{_GATHERV} comm",
            f"{begin} P3S_COUNTS(n, 1, n->in, recvcounts);"
            " int64_t sent = p3s_sizes_gathered(&h, n, sendcount, sendtype, recvtype);"
            f" {_plain('', 'sent', 'sendtype')}",
        ),
        "Neighbor_alltoallv": (
            f"{_ALLTOALLV} comm",
            f"{begin} P3S_COUNTS(n, 0, n->out, sendcounts);"
            " P3S_COUNTS(n, n->out, n->in, recvcounts);"
            " int64_t sent = p3s_sizes_each(&h, n, sendtype, recvtype);"
            f" {_plain('', 'sent', 'sendtype')}",
        ),
        "Neighbor_alltoallw": (
            f"{_ALLTOALLW} comm",
            f"{begin} P3S_COUNTS(n, 0, n->out, sendcounts);"
            " P3S_COUNTS(n, n->out, n->in, recvcounts);"
            " struct p3s_moved m = p3s_sizes_typed(&h, n, sendtypes, recvtypes); MOVED(m);",
        ),
    }


def _collectives() -> None:
    """Fill in all collectives: blocking, ``I...`` and ``..._init``.

    A row is written once. ``COLL(root, count, type)`` stands for what says it: an event now, or,
    for a persistent collective, what is known of its request until MPI_Start.
    """
    for name, (args, text) in {**_blocking(), **_neighbours()}.items():
        now = text.replace("COLL(", "p3s_coll(&h, comm, ")
        now = now.replace(" MOVED(m)", " p3s_coll_bytes(&h, comm, m.bytes, m.type)")
        later = text.replace("COLL(", "p3s_coll_init(&h, P3S_HANDLE(*request), comm, ")
        later = later.replace(
            " MOVED(m)", " p3s_coll_bytes_init(&h, P3S_HANDLE(*request), comm, m.bytes, m.type)"
        )
        if name == "Barrier":
            now = "p3s_plain(&h, comm);"
        CALLS[name] = Wrapper(args, now)
        CALLS["I" + name.lower()] = Wrapper(f"{args} request", f"{now} {POSTED}")
        CALLS[name + "_init"] = Wrapper(f"{args} info request", later)


# ---- one-sided communication and files: each event has its window's communicator
_WINDOW = "P3S_WINDOW, P3S_HANDLE(win)"
_FILE = "P3S_FILE, P3S_HANDLE(file)"
_NOBODY = "P3S_NO_RANK"
_NOTHING = "0, p3s_mpi.type_null"


def _call_on(where: str, peer: str = _NOBODY, moved: str = _NOTHING) -> str:
    return f"p3s_on(&h, {where}, {peer}, {moved});"


def _asserting(peer: str) -> str:
    return f"p3s_sync(&h, P3S_HANDLE(win), {peer}, assert);"


def _close_wrapper(name: str, kind: str) -> Wrapper:
    return Wrapper(
        name,
        "p3s_closed(&h, o);",
        f"uint64_t was = P3S_HANDLE(*{name}); struct p3s_opened *o = p3s_closing({kind}, was);",
        f"if (rc != MPI_SUCCESS) p3s_not_closed({kind}, was, o);",
    )


def _one_sided() -> dict[str, Wrapper]:
    """Return what moves data: to or from ``target``, as many bytes as this rank passed."""
    origin = "origin count type"
    target = "target disp target_count target_type"
    result = "result result_count result_type"
    # What MPI_NO_OP does not send it still fetches, and then nobody looks at the origin's part.
    fetched = _call_on(_WINDOW, "target", "result_count, result_type")
    moved = _call_on(_WINDOW, "target", "count, type")
    one = _call_on(_WINDOW, "target", "1, type")
    out = {
        "Put": Wrapper(f"{origin} {target} win", moved),
        "Get": Wrapper(f"{origin} {target} win", moved),
        "Accumulate": Wrapper(f"{origin} {target} op win", moved),
        "Get_accumulate": Wrapper(f"{origin} {result} {target} op win", fetched),
        "Fetch_and_op": Wrapper("origin result type target disp op win", one),
        "Compare_and_swap": Wrapper("origin compare result type target disp win", one),
    }
    for name in ("Put", "Get", "Accumulate", "Get_accumulate"):
        row = out[name]
        out["R" + name.lower()] = Wrapper(f"{row.args} request", f"{row.after} {POSTED}")
    return out


def _windows() -> dict[str, Wrapper]:
    record = "p3s_opened(&h, comm, P3S_WINDOW, P3S_HANDLE(*win));"
    out = {
        name: Wrapper(args, record)
        for name, args in {
            "Win_create": "base size unit info comm win",
            "Win_allocate": "size unit info comm base win",
            "Win_allocate_shared": "size unit info comm base win",
            "Win_create_dynamic": "info comm win",
        }.items()
    }
    out["Win_free"] = _close_wrapper("win", "P3S_WINDOW")
    for name in ("Win_fence", "Win_lock_all"):
        out[name] = Wrapper("assert win", _asserting(_NOBODY))
    for name in ("Win_start", "Win_post"):
        out[name] = Wrapper(
            "group assert win", "p3s_sync_group(&h, P3S_HANDLE(win), group, assert);"
        )
    out["Win_lock"] = Wrapper("type target assert win", _asserting("target"))
    for name, args in {
        "Win_complete": "win",
        "Win_wait": "win",
        "Win_unlock_all": "win",
        "Win_flush_all": "win",
        "Win_flush_local_all": "win",
        "Win_sync": "win",
    }.items():
        out[name] = Wrapper(args, _call_on(_WINDOW))
    for name, args in {
        "Win_unlock": "target win",
        "Win_flush": "target win",
        "Win_flush_local": "target win",
    }.items():
        out[name] = Wrapper(args, _call_on(_WINDOW, "target"))
    out["Win_test"] = Wrapper("win flag", f"if (*flag) {_call_on(_WINDOW)} else p3s_poll(&h);")
    return out


def _note_moved(how: str, offset: str = "0") -> str:
    return f"p3s_file_moved(&h, file, {how}, {offset}, count, type);"


def _files() -> dict[str, Wrapper]:
    opened = "p3s_file_opened(&h, comm, name, mode, *file);"
    viewed = "p3s_file_view(&h, file, disp, etype, filetype);"
    closed = _close_wrapper("file", "P3S_FILE")
    out = {
        "File_open": Wrapper("comm name mode info file", opened),
        "File_close": replace(closed, after=f"{closed.after} p3s_file_closed(was);"),
        "File_delete": Wrapper("name info", "p3s_nowhere(&h);"),
        "File_set_view": Wrapper("file disp etype filetype rep info", viewed),
    }
    for name, args in {
        "File_set_size": "file size",
        "File_preallocate": "file size",
        "File_seek_shared": "file offset whence",
        "File_set_atomicity": "file flag",
        "File_sync": "file",
    }.items():
        out[name] = Wrapper(args, _call_on(_FILE))
    for name in names(
        "read read_all read_shared read_ordered write write_all write_shared write_ordered"
    ):
        moved = _note_moved(_pointer(name))
        out[f"File_{name}"] = Wrapper("file buf count type status", moved)
        if "ordered" not in name:
            out[f"File_i{name}"] = Wrapper("file buf count type request", f"{moved} {POSTED}")
    at = _note_moved("P3S_AT", "offset")
    for name in names("read_at read_at_all write_at write_at_all"):
        out[f"File_{name}"] = Wrapper("file offset buf count type status", at)
        out[f"File_i{name}"] = Wrapper("file offset buf count type request", f"{at} {POSTED}")
    for name in names("read_all write_all read_ordered write_ordered read_at_all write_at_all"):
        where = "file offset" if "_at_" in name else "file"
        moved = at if "_at_" in name else _note_moved(_pointer(name))
        out[f"File_{name}_begin"] = Wrapper(f"{where} buf count type", moved)
        out[f"File_{name}_end"] = Wrapper("file buf status", _call_on(_FILE))
    return out


def _pointer(name: str) -> str:
    """Return which pointer a call without an offset moves."""
    return "P3S_SHARED" if name.endswith(("_shared", "_ordered")) else "P3S_OWN"


_point_to_point()
_probes()
_completions()
_collectives()
_communicators()
for rows in (_one_sided(), _windows(), _files()):
    CALLS.update(rows)

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
