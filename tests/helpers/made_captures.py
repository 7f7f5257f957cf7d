"""Captures of the corpus' programs, made of the events of corpus.run without MPI."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from zlib import crc32

import corpus
import numpy as np
from capture_writer import CPU, Writer
from load_captures import CHUNK, RankFile

from p3s.base.study import Study, write_json

COMMAND = ["mpiexec", "-n", "{np}", "./app"]
#: ns between a call and the work before it, and inside each call.
GAP_NS, CALL_NS = 20, 500


def write_study(
    root: Path,
    program: corpus.Program,
    counts: Iterable[int],
    left: Mapping[int, corpus.Program] | None = None,
) -> Path:
    """Write a study with a complete run of a program at each count; return its directory.

    left: of counts whose runs were ended once the phases were known, the program up to there.
    """
    study, left = Study.create(root, COMMAND), left or {}
    for n in counts:
        folder = study.runs_dir(n, 0)
        folder.mkdir(parents=True)
        run = corpus.run(left.get(n, program), n)
        for rank in run.ranks:
            _write_rank(folder, run, rank, ended=n in left)
        info = {"status": "stopped" if n in left else "complete", "np": n}
        info |= {"wall_s": 1.0, "exit_code": 0, "cores": n}
        info |= {"command": COMMAND, "work_unit": "cpu_ns", "oversubscribed": False}
        write_json(folder / "run.json", {"schema": "p3s.run", "schema_version": 1, **info})
    study.update()
    return root


def _write_rank(folder: Path, run: corpus.Any, rank: corpus.Any, ended: bool) -> None:
    """Write the events of one rank, with what it needs of communicators, sites and calls."""
    upto = len(rank.call) - ended  # MPI_Finalize is the last
    called = rank.call[:upto]
    w = Writer(rank.rank, run.np, work_source=CPU, minor=4, room=CHUNK, run=run.np << 32)
    w.launched = run.np
    calls = [run.calls[k] for k in np.unique(called)]
    ops = sorted({call.op for call in calls})
    for number, name in enumerate(ops):
        w.opname(number, name)
    for number, comm in enumerate(run.comms):
        if rank.rank in comm.members:
            _write_comm(w, number, comm)
    sites = {k: w.site(*_site(run.sites[k].key)) for k in sorted({call.site for call in calls})}
    number = {
        key: w.call(
            ops.index(call.op),
            sites[call.site],
            call.comm,
            call.peer,
            call.tag,
            call.root,
            call.bytes,
            call.elem_bytes,
            call.bytes // call.elem_bytes,
        )
        for key, call in zip(np.unique(called).tolist(), calls, strict=True)
    }
    with open(folder / f"rank-{rank.rank:06d}.p3t", "wb") as out:
        file = RankFile(out, w)
        file.definitions()
        work = rank.work[:upto].astype(np.int64)
        took = np.full(len(work), CALL_NS)
        file.events(np.array([number[k] for k in called.tolist()]), work + GAP_NS, took, work)
        file.done(*_completions([run.calls[k] for k in called.tolist()]))
        if not ended:
            file.end()


def _write_comm(w: Writer, number: int, comm: corpus.Any) -> None:
    if not number:
        w.comm(0, list(comm.members), "MPI_COMM_WORLD")
    elif comm.dims is None:
        w.comm(number, list(comm.members), "MPI_Comm_split", 0)
    else:
        dims, place = list(comm.dims), comm.members.index(w.rank)
        coords = [int(c) for c in np.unravel_index(place, dims)]
        cart = (dims, [int(p) for p in comm.periods], coords)
        w.comm(number, list(comm.members), "MPI_Cart_create", 0, cart)


def _site(name: str) -> tuple[int, str]:
    key = crc32(name.encode())
    return key, f"app+0x{key:x}"


def _completions(calls: list[corpus.Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return completing and posting events: a wait completes the newest requests that are open."""
    posted: list[int] = []
    pairs: list[tuple[int, int]] = []
    for k, call in enumerate(calls):
        if call.op in ("MPI_Isend", "MPI_Irecv"):
            posted.append(k)
        elif call.op in ("MPI_Wait", "MPI_Waitall"):
            first = max(len(posted) - call.bytes, 0)
            pairs += [(k, post) for post in posted[first:]]
            del posted[first:]
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]
