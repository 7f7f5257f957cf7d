"""Signatures made by many processes, one rank's trace at a time each (thesis A.4).

    mpiexec -n 16 python -m p3s.characterize.parallel STUDY [COUNT ...]

Every process reads its share of the files of a run; process 0 joins their parts in the order of
the ranks, so that the result is the same, byte for byte, as that of one process. Parts travel as
bytes (JSON and numpy arrays, no pickles).
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from p3s.characterize.part import COLUMNS, Group, Part, Place, Sites, join, part_of
from p3s.errors import P3SError

if TYPE_CHECKING:
    from mpi4py import MPI

    from p3s.trace.rewrite import Messages

_PLAIN = (
    "np",
    "work_unit",
    "inside",
    "events",
    "null_events",
    "failed_polls",
    "counted_events",
    "unmodelled",
    "tracing",
    "buffers",
    "pieces",
    "problem",
    "sites",
    "time_unit",
)


def to_bytes(part: Part) -> bytes:
    """Return a part as bytes; :func:`from_bytes` is the way back."""
    head = {name: getattr(part, name) for name in _PLAIN}
    head["groups"] = [[getattr(g, f.name) for f in fields(Group)] for g in part.groups]
    head["places"] = [asdict(p) for p in part.places]
    head["nodes"] = part.nodes
    head["samples"], head["sequences"] = list(part.samples), list(part.sequences)
    sink = io.BytesIO()
    np.savez(
        sink,
        allow_pickle=False,
        edges=part.edges,
        segments=part.segments,
        times=part.times,
        loads=part.loads,
        teams=part.teams,
        files=part.files,
        head=np.frombuffer(json.dumps(head).encode("utf-8", "surrogateescape"), np.uint8),
        **part.table,
        **{f"sample{k}": s for k, s in enumerate(part.samples.values())},
        **{f"sequence{k}": s for k, s in enumerate(part.sequences.values())},
    )
    return sink.getvalue()


def from_bytes(data: bytes) -> Part:
    """Return a part from its bytes."""
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        head = json.loads(file["head"].tobytes().decode("utf-8", "surrogateescape"))
        part = Part(**{name: head[name] for name in _PLAIN})
        part.table = {c: file[c] for c in COLUMNS}
        part.edges, part.segments = file["edges"], file["segments"]
        part.times, part.loads, part.teams = file["times"], file["loads"], file["teams"]
        part.files = file["files"]
        part.samples = {rank: file[f"sample{k}"] for k, rank in enumerate(head["samples"])}
        part.sequences = {rank: file[f"sequence{k}"] for k, rank in enumerate(head["sequences"])}
    part.sites = {key: tuple(frames) for key, frames in part.sites.items()}
    part.groups = [Group(*g) for g in head["groups"]]
    part.nodes = [(site, op) for site, op in head["nodes"]]
    part.places = [
        Place(
            tuple(p["members"]),
            p["ordinal"],
            p["op"],
            None if p["dims"] is None else tuple(p["dims"]),
            None if p["periods"] is None else tuple(p["periods"]),
        )
        for p in head["places"]
    ]
    return part


def _part_or_error(messages: Messages, path: Path, sites: Sites) -> bytes:
    try:
        return b"p" + to_bytes(part_of(messages.read(path), sites))
    except P3SError as err:
        return b"e" + str(err).encode("utf-8", "surrogateescape")


def _send_parts(comm: MPI.Comm, files: Sequence[Path], sites: Sites) -> None:
    """Send process 0 the parts of this process's files."""
    from p3s.trace.rewrite import Messages

    messages = Messages(files)
    for path in files[comm.rank :: comm.size]:
        data = np.frombuffer(_part_or_error(messages, path, sites), dtype=np.uint8)
        comm.Send(np.array([len(data)], dtype=np.int64), dest=0)
        comm.Send(data, dest=0)


def _parts(comm: MPI.Comm, files: Sequence[Path], sites: Sites) -> Iterator[Part]:
    """Yield the parts of all files in order, at process 0; an error comes when all are there."""
    from p3s.trace.rewrite import Messages

    error, messages = "", Messages(files)
    for k, path in enumerate(files):
        source = k % comm.size
        if source == 0:
            data = _part_or_error(messages, path, sites)
        else:
            length = np.empty(1, dtype=np.int64)
            comm.Recv(length, source=source)
            buffer = np.empty(int(length[0]), dtype=np.uint8)
            comm.Recv(buffer, source=source)
            data = buffer.tobytes()
        if data[:1] == b"e":
            error = error or data[1:].decode("utf-8", "surrogateescape")
        else:
            yield from_bytes(data[1:])
    if error:
        raise P3SError(error)


def _tell(comm: MPI.Comm, files: Sequence[Path], sites: Sites) -> None:
    """Tell the other processes the files of the next run; none: there is no other."""
    taken = [sorted(sites.apart), dict(sites.same), dict(sites.waits)]
    told = json.dumps([[str(path) for path in files], *taken])
    text = told.encode("utf-8", "surrogateescape")
    comm.Bcast(np.array([len(text)], dtype=np.int64), root=0)
    comm.Bcast(np.frombuffer(text, dtype=np.uint8).copy(), root=0)


def _told(comm: MPI.Comm) -> tuple[list[Path], Sites]:
    length = np.empty(1, dtype=np.int64)
    comm.Bcast(length, root=0)
    text = np.empty(int(length[0]), dtype=np.uint8)
    comm.Bcast(text, root=0)
    files, apart, same, waits = json.loads(text.tobytes().decode("utf-8", "surrogateescape"))
    return [Path(name) for name in files], Sites(frozenset(apart), same, waits)


def _lead(comm: MPI.Comm, root: Path, counts: Sequence[int]) -> None:
    from p3s.characterize.phases import write_phases
    from p3s.characterize.signature import characterize

    def join_run(files: Sequence[Path], sites: Sites) -> Part:
        _tell(comm, files, sites)
        return join(_parts(comm, files, sites))

    for count in counts:
        characterize(root, count, join_run)
    _tell(comm, [], Sites())
    write_phases(root)


def main(args: Sequence[str]) -> int:
    """Make the signatures of a study anew, at the counts given or at all."""
    from mpi4py import MPI

    from p3s.study import Study

    comm = MPI.COMM_WORLD
    try:
        if not args or not all(word.isdigit() for word in args[1:]):
            raise P3SError(
                "give a study and, if not all, its counts: "
                "mpiexec -n 16 python -m p3s.characterize.parallel STUDY 64 128"
            )
        if comm.rank == 0:
            study = Study.open(Path(args[0]))
            _lead(comm, study.root, [int(word) for word in args[1:]] or study.counts())
        else:
            while (told := _told(comm))[0]:
                _send_parts(comm, *told)
    except P3SError as err:
        if comm.rank == 0:
            sys.stderr.write(f"p3s: {err}\n")
            sys.stderr.flush()
            comm.Abort(1)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
