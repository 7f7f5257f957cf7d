"""Rows of the collectives: blocking, nonblocking, persistent, and over neighbours.

A row is written once. ``COLL(root, count, type)`` stands for what says it: an event now, or,
for a persistent collective, what is known of its request until MPI_Start.
"""

from __future__ import annotations

from p3s.signature_runner.tracer.wrapper import POSTED, Wrapper

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


def rows() -> dict[str, Wrapper]:
    """Return the wrappers of all collectives: blocking, ``I...`` and ``..._init``."""
    out = {}
    for name, (args, text) in {**_blocking(), **_neighbours()}.items():
        now = text.replace("COLL(", "p3s_coll(&h, comm, ")
        now = now.replace(" MOVED(m)", " p3s_coll_bytes(&h, comm, m.bytes, m.type)")
        later = text.replace("COLL(", "p3s_coll_init(&h, P3S_HANDLE(*request), comm, ")
        later = later.replace(
            " MOVED(m)", " p3s_coll_bytes_init(&h, P3S_HANDLE(*request), comm, m.bytes, m.type)"
        )
        if name == "Barrier":
            now = "p3s_plain(&h, comm);"
        out[name] = Wrapper(args, now)
        out["I" + name.lower()] = Wrapper(f"{args} request", f"{now} {POSTED}")
        out[name + "_init"] = Wrapper(f"{args} info request", later)
    return out
