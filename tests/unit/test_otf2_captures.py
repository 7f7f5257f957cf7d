"""OTF2 archives as captures: those that P3S writes, and those that other tracers write."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import cli
from made_runs import call, run_of, world

from p3s.base.errors import P3SError, PartialResult
from p3s.capture import Comm, RunTrace, read_run
from p3s.capture.events import decode, encode, unzigzag, zigzag
from p3s.capture.types import ANY_SOURCE, PROC_NULL
from p3s.cli.main import run as p3s
from p3s.formats.exported import ExportResult
from p3s.formats.otf2.archive import write_archive
from p3s.formats.otf2.capture import archive_at, import_archive
from p3s.formats.otf2.definitions import mpi_name
from p3s.formats.otf2.library import library
from p3s.formats.otf2.sizes import from_sizes, to_sizes
from p3s.formats.paraver import write_trace
from p3s.formats.run import Run

otf2 = pytest.importorskip("otf2")
library()  # mends what its classes lack
TICKS = 10**6


# ---- sizes of collectives
@pytest.mark.parametrize("members", [1, 2, 5])
@pytest.mark.parametrize(
    "name",
    "Bcast Reduce Allreduce Gather Gatherv Scatter Scatterv Allgather Allgatherv Alltoall Alltoallv"
    " Reduce_scatter Scan Exscan Barrier".split(),
)
def test_sizes_are_read_as_they_are_written(name: str, members: int) -> None:
    nbytes = 0 if name == "Barrier" else 48
    for place in range(members):
        if name == "Exscan" and members == 1:
            continue  # moves nothing
        sizes = to_sizes("MPI_" + name, nbytes, members, place, place == 0)
        assert from_sizes("MPI_" + name, *sizes, members, place) == nbytes


def test_what_works_in_place_is_told_by_its_sizes() -> None:
    # 4 members, one double: each sends it to the three others.
    assert from_sizes("MPI_Allreduce", 24, 24, 4, 0) == 8
    assert from_sizes("MPI_Allreduce", 32, 32, 4, 0) == 8
    assert from_sizes("MPI_Allgather", 7 * 4, 7 * 4, 8, 0) == 4
    # A root in place sends nothing, and receives from all others.
    assert from_sizes("MPI_Reduce", 0, 3 * 16, 4, 0) == 16
    assert from_sizes("MPI_Gather", 0, 3 * 16, 4, 0) == 16
    assert from_sizes("MPI_Scatter", 3 * 16, 0, 4, 0) == 16
    # Rank 1 of 4: not in place it sends to 3 and receives from 2; in place 2 and 1.
    assert from_sizes("MPI_Scan", 3 * 8, 2 * 8, 4, 1) == 8
    assert from_sizes("MPI_Scan", 2 * 8, 1 * 8, 4, 1) == 8


def test_numbers_are_encoded_as_they_are_read() -> None:
    chance = np.random.default_rng(3)
    signed = chance.integers(-(1 << 62), 1 << 62, (50, 3)) >> chance.integers(0, 62, (50, 3))
    raw, ends = encode(zigzag(signed))
    assert (signed == unzigzag(decode(raw.tobytes(), 3)).T).all()
    assert len(ends) == 50 and ends[-1] == len(raw)


def test_names_of_calls() -> None:
    names = ("MPI_SEND", "PMPI_Send", "MPI_Send()", "MPI_Send_c", "mpi_send")
    assert {mpi_name(name) for name in names} == {"MPI_Send"}
    assert mpi_name("MPI_REDUCE_SCATTER_BLOCK") == "MPI_Reduce_scatter_block"


# ---- what P3S has written
def back(run: RunTrace, directory: Path) -> RunTrace:
    """Write a run as an archive, and read that as a capture."""
    (directory / "archive").mkdir(parents=True)
    (directory / "capture").mkdir()
    write_archive(otf2, Run(run), directory / "archive", ExportResult("otf2", run.np, directory))
    anchor = archive_at(directory / "archive")
    assert anchor is not None
    import_archive(anchor, directory / "capture")
    found = read_run(directory / "capture")
    assert not found.problem and found.work_unit == "wall_ns"
    return found


def told(run: RunTrace, rank: int) -> list[tuple[Any, ...]]:
    """What a rank does, event by event, with its communicators by their members."""
    calls = [run.calls[k] for k in run.ranks[rank].call.tolist()]
    return [
        (c.op, run.comms[c.comm].members if c.comm >= 0 else (), c.peer, c.bytes, c.tag, c.root)
        for c in calls
    ]


def test_a_run_is_read_back_as_it_was(tmp_path: Path) -> None:
    sub = Comm((2, 0), "MPI_Comm_split", 0, None, None, 0)
    grid = Comm((0, 1, 2), "MPI_Cart_create", 0, (3, 1), (True, False), 1)
    ranks = [
        [
            (call("Init"), -100, 100),
            (call("Comm_split", comm=0), 2, 2),
            (call("Cart_create", comm=0), 5, 2),
            (call("Irecv", 2, 64, 7), 10, 1),
            (call("Isend", 2, 32, 8, comm=2), 12, 1),
            (call("Waitall", comm=-1, nbytes=2), 20, 30),
            (call("Bcast", nbytes=100, root=2, comm=1), 60, 5),
            (call("Send", PROC_NULL, 0), 70, 0),
            (call("Iallreduce", nbytes=40), 71, 1),
            (call("Wait", comm=-1, nbytes=1), 75, 10),
            (call("Comm_free", comm=1), 90, 1),
            (call("Finalize"), 99, 0),
        ],
        [
            (call("Init"), -80, 80),
            (call("Comm_split", comm=0), 2, 2),
            (call("Cart_create", comm=0), 5, 2),
            (call("Recv", 2, 8, 3), 8, 2),
            (call("Iallreduce", nbytes=40), 70, 1),
            (call("Wait", comm=-1, nbytes=1), 75, 10),
            (call("Finalize"), 99, 0),
        ],
        [
            (call("Init"), -90, 90),
            (call("Comm_split", comm=0), 2, 2),
            (call("Cart_create", comm=0), 5, 2),
            (call("Send_init", 0, 64, 7), 15, 2),
            (call("Wait", comm=-1, nbytes=1), 17, 1),
            (call("Sendrecv", 1, 8, 3), 18, 6),
            (call("Sendrecv_recv", 0, 32, 8, comm=2), 24, 0),
            (call("Bcast", nbytes=100, root=2, comm=1), 61, 2),
            (call("Iallreduce", nbytes=40), 70, 1),
            (call("Wait", comm=-1, nbytes=1), 75, 10),
            (call("Comm_free", comm=1), 90, 1),
            (call("Finalize"), 99, 0),
        ],
    ]
    done = [[(5, 3), (5, 4), (9, 8)], [(5, 4)], [(4, 3), (9, 8)]]
    run = run_of(ranks, done, (world(3), sub, grid))
    found = back(run, tmp_path)
    for rank in range(3):
        assert told(found, rank) == told(run, rank)
        mine, theirs = run.ranks[rank], found.ranks[rank]
        assert theirs.start_ns.tolist() == mine.start_ns.tolist()
        assert theirs.elapsed_ns.tolist() == mine.elapsed_ns.tolist()
        assert sorted(map(tuple, theirs.done.tolist())) == sorted(map(tuple, mine.done.tolist()))
    assert found.ranks[0].work.tolist()[3:6] == [3, 1, 7]  # from the end of the call before
    by_op = {comm.op: comm for comm in found.comms}
    assert by_op["MPI_Cart_create"].dims == (3, 1)
    assert by_op["MPI_Cart_create"].periods == (True, False)
    assert by_op["MPI_Comm_split"].members == (2, 0)


def test_cancelled_requests_and_unknown_partners(tmp_path: Path) -> None:
    ranks = [
        [(call("Init"), -9, 9), (call("Irecv", 1, 8, 0), 1, 1), (call("Wait"), 3, 1)]
        + [(call("Finalize"), 9, 0)],
        [(call("Init"), -9, 9), (call("Recv", ANY_SOURCE, 8), 1, 1), (call("Finalize"), 9, 0)],
    ]
    found = back(run_of(ranks, [[(2, 1)], []], (world(2),), {0: [True]}), tmp_path)
    assert found.ranks[0].cancelled.tolist() == [True]
    assert told(found, 0)[1][:3] == ("MPI_Irecv", (0, 1), ANY_SOURCE)


def test_threads_of_a_rank(tmp_path: Path) -> None:
    ranks = [
        [
            (call("Init"), -9, 9),
            (call("Send", 1, 8, 0), 5, 10),
            (call("Send", 1, 16, 1), 4, 12),
            (call("Finalize"), 40, 0),
        ],
        [
            (call("Init"), -9, 9),
            (call("Recv", 0, 8, 0), 5, 10),
            (call("Recv", 0, 16, 1), 15, 12),
            (call("Finalize"), 40, 0),
        ],
    ]
    run = run_of(ranks, [[], []], (world(2),))
    threads = np.array([0, 0, 1, 0], dtype=np.int32)
    run = replace(run, ranks=[replace(run.ranks[0], thread=threads), run.ranks[1]])
    found = back(run, tmp_path)
    assert found.ranks[0].thread is not None
    assert found.ranks[0].thread.tolist() == [0, 0, 1, 0]
    assert told(found, 0) == told(run, 0) and found.ranks[1].thread is None
    # Paraver has a processor and a thread for each.
    directory = tmp_path / "paraver"
    directory.mkdir()
    write_trace(Run(run), directory, ExportResult("paraver", 2, directory))
    lines = (directory / "run.prv").read_text().splitlines()
    assert lines[0].endswith(":1(3):1:2(2:1,1:1),1")
    assert [line for line in lines if line.startswith("3:")] == [
        "3:2:1:1:2:13:13:3:1:2:1:24:36:16:1",
        "3:1:1:1:1:14:14:3:1:2:1:14:24:8:0",
    ]


# ---- what other tracers write
class Tracer:
    """Writes an archive as Score-P does: regions with lines, wrappers of MPI, one rank a time."""

    def __init__(self, size: int, directory: Path) -> None:
        self.out = otf2.writer.Writer(str(directory), timer_resolution=TICKS)
        self.out.creator = "Score-P 9.0"
        enums, defs = otf2.enums, self.out.definitions
        self.enums, self.defs, self.size = enums, defs, size
        machine = defs.system_tree_node("cluster", class_name="machine", parent=None)
        self.locations = []
        for rank in range(size):
            node = defs.system_tree_node(f"n{rank // 2}", class_name="node", parent=machine)
            group = defs.location_group(f"MPI Rank {rank}", system_tree_parent=node)
            self.locations.append(defs.location("Master thread", group=group))
        mpi = enums.Paradigm.MPI
        kinds = enums.GroupType
        defs.group("", group_type=kinds.COMM_LOCATIONS, paradigm=mpi, members=self.locations)
        self.world = self.comm("MPI_COMM_WORLD", range(size))
        alone = defs.group("", group_type=kinds.COMM_SELF, paradigm=mpi, members=[])
        self.own = defs.comm("MPI_COMM_SELF", group=alone)

    def comm(self, name: str, members: Any, parent: Any = None) -> Any:
        """A communicator of these ranks."""
        group = self.defs.group(
            name,
            group_type=self.enums.GroupType.COMM_GROUP,
            paradigm=self.enums.Paradigm.MPI,
            members=[self.locations[rank] for rank in members],
        )
        return self.defs.comm(name, group=group, parent=parent)

    def region(self, name: str, line: int = 0) -> Any:
        mpi = name.startswith("MPI_")
        return self.defs.region(
            name,
            paradigm=self.enums.Paradigm.MPI if mpi else self.enums.Paradigm.COMPILER,
            source_file="MPI" if mpi else "solver.f90",
            begin_line_number=line,
        )


class Process:
    """The events of one rank; every step takes 10 ticks."""

    def __init__(self, tracer: Tracer, rank: int) -> None:
        self.of, self.now = tracer, 1000 * rank
        self.writer = tracer.out.event_writer_from_location(tracer.locations[rank])

    def enter(self, name: str, line: int = 0) -> None:
        self.now += 10
        self.writer.enter(self.now, self.of.region(name, line))

    def leave(self, name: str, line: int = 0) -> None:
        self.now += 10
        self.writer.leave(self.now, self.of.region(name, line))

    def call(self, name: str, *records: Callable[[Any, int], None]) -> None:
        """An MPI call with what is recorded inside of it."""
        self.enter(name)
        for record in records:
            self.now += 10
            record(self.writer, self.now)
        self.leave(name)


def isend(to: int, comm: Any, request: int) -> Callable[[Any, int], None]:
    return lambda writer, now: writer.mpi_isend(now, to, comm, 5, 800, request)


def halo_as_score_p_does(size: int, turns: int, directory: Path) -> Path:
    """A ring of messages and a sum on pairs of ranks, from two functions; with failing polls."""
    tracer = Tracer(size, directory)
    ops = tracer.enums.CollectiveOp
    none = tracer.enums.CollectiveRoot.NONE
    pairs = [tracer.comm("", (r, r + 1), tracer.world) for r in range(0, size, 2)]
    for rank in range(size):
        p, left, right = Process(tracer, rank), (rank - 1) % size, (rank + 1) % size
        pair = pairs[rank // 2]
        p.writer.program_begin(p.now, "./solver", ["input"])
        p.enter("main", 3)
        p.call("MPI_Init")
        p.call("MPI_Comm_rank")
        p.call(
            "MPI_Comm_split",
            lambda w, t: w.mpi_collective_begin(t),
            lambda w, t, pair=pair: w.comm_create(t, pair),
            lambda w, t: w.mpi_collective_end(t, ops.CREATE_HANDLE, tracer.world, none, 0, 0),
        )
        for turn in range(turns):
            one, two = 2 * turn, 2 * turn + 1
            p.enter("exchange", 40)
            p.call("MPI_Irecv", lambda w, t, one=one: w.mpi_irecv_request(t, one))
            p.call("MPI_Isend", isend(right, tracer.world, two))
            p.call("MPI_Testall", lambda w, t, one=one: w.mpi_request_test(t, one))
            p.call(
                "MPI_Waitall",
                lambda w, t, one=one, left=left: w.mpi_irecv(t, left, tracer.world, 5, 800, one),
                lambda w, t, two=two: w.mpi_isend_complete(t, two),
            )
            p.leave("exchange", 40)
            p.enter("norm", 60)
            p.call(
                "MPI_Allreduce",
                lambda w, t: w.mpi_collective_begin(t),
                lambda w, t, pair=pair: w.mpi_collective_end(t, ops.ALLREDUCE, pair, none, 16, 16),
            )
            p.leave("norm", 60)
        p.call(
            "MPI_Barrier",
            lambda w, t: w.mpi_collective_begin(t),
            lambda w, t: w.mpi_collective_end(t, ops.BARRIER, tracer.own, none, 0, 0),
        )
        p.call("MPI_Finalize")
        p.leave("main", 3)
        p.writer.program_end(p.now, 0)
    tracer.out.close()
    return directory / "traces.otf2"


def test_an_archive_as_score_p_writes_it(tmp_path: Path) -> None:
    anchor = halo_as_score_p_does(4, 3, tmp_path / "archive")
    (tmp_path / "capture").mkdir()
    made = import_archive(anchor, tmp_path / "capture")
    run = read_run(tmp_path / "capture")
    assert run.np == 4 and not made.left_out
    events = told(run, 1)
    everyone = (0, 1, 2, 3)
    assert [event[0] for event in events] == [
        "MPI_Init",
        "MPI_Comm_split",
        *["MPI_Irecv", "MPI_Isend", "MPI_Waitall", "MPI_Allreduce"] * 3,
        "MPI_Barrier",
        "MPI_Finalize",
    ]
    assert events[2] == ("MPI_Irecv", everyone, 0, 800, 5, -1)
    assert events[3] == ("MPI_Isend", everyone, 2, 800, 5, -1)
    assert events[4] == ("MPI_Waitall", (), -1, 2, -1, -1)
    assert events[5] == ("MPI_Allreduce", (0, 1), -1, 8, -1, -1)
    assert events[-2][:2] == ("MPI_Barrier", (1,))
    rank = run.ranks[1]
    assert rank.done.tolist()[:2] == [[4, 2], [4, 3]]
    # Ticks are microseconds; polls that found nothing are counted, their time is in no work.
    assert rank.failed_polls == 3 and rank.failed_poll_ns == 3 * 20_000
    assert rank.elapsed_ns[0] == 10_000 and rank.start_ns[0] == -10_000
    assert rank.work[4] == 20_000  # to the poll, and from it to the call
    assert rank.work[1] == 30_000  # MPI_Comm_rank is no event: its time is the program's
    frames = {run.calls[k].op: run.sites[run.calls[k].site].frames for k in rank.call.tolist()}
    assert frames["MPI_Isend"] == ("solver.f90:exchange:40", "solver.f90:main:3")
    assert frames["MPI_Allreduce"][0] == "solver.f90:norm:60"
    assert json.loads((tmp_path / "capture" / "run.json").read_text())["argv"] == [
        "./solver",
        "input",
    ]


def test_archives_make_a_study_with_equations(tmp_path: Path, capsys) -> None:
    archives = [halo_as_score_p_does(n, 6, tmp_path / f"np{n}").parent for n in (4, 6, 8)]
    study = str(tmp_path / "study")
    cli("add", study, *map(str, archives), out=f"{archives[0]}", err="wall time")
    cli("model", study, out=("exchange solver.f90", "Isend"))
    model = json.loads((tmp_path / "study" / "model.json").read_text())
    sends = [item for item in model["items"] if item["op"] == "MPI_Isend"]
    assert len(sends) == 1
    assert p3s(["add", study, str(archives[0])]) == 1  # the same run again
    assert f"{archives[0]}: is the same run as" in capsys.readouterr().err


def test_archives_that_cannot_be_used(tmp_path: Path) -> None:
    def one(name: str, *calls: str, end: str = "MPI_Finalize") -> Path:
        tracer = Tracer(2, tmp_path / name)
        for rank in range(2):
            p = Process(tracer, rank)
            for op in ("MPI_Init", *calls, end):
                p.call(op)
        tracer.out.close()
        (tmp_path / f"{name}-capture").mkdir()
        return tmp_path / name / "traces.otf2"

    with pytest.raises(P3SError, match="2 calls of MPI_Put are in it"):
        import_archive(one("put", "MPI_Put"), tmp_path / "put-capture")
    with pytest.raises(PartialResult, match="rank 0 does not come to MPI_Finalize"):
        import_archive(one("cut", end="MPI_Comm_rank"), tmp_path / "cut-capture")
    made = import_archive(one("io", "MPI_File_write"), tmp_path / "io-capture")
    assert made.left_out == (("MPI_File_write", 2),)
    broken = tmp_path / "broken.otf2"
    broken.write_bytes(b"no archive")
    with pytest.raises(P3SError, match="cannot be read as an OTF2 archive"):
        import_archive(broken, tmp_path / "io-capture")


@pytest.mark.parametrize(
    ("name", "whose"),
    [
        ("traces.def", "definitions of all ranks"),
        ("traces/0.evt", "events of rank 0"),
        ("traces/1.evt", "events of rank 1"),
        ("traces/1.def", "definitions of rank 1"),
        ("traces.otf2", ""),
    ],
)
def test_damaged_archives_name_the_part_and_the_rank(
    tmp_path: Path, name: str, whose: str, capfd
) -> None:
    anchor = halo_as_score_p_does(2, 40, tmp_path / "archive")
    file = anchor.parent / name
    whole = file.read_bytes()
    for damaged, how in ((whole[: len(whole) // 2], "cut"), (b"", "empty"), (None, "missing")):
        if damaged is None:
            file.unlink()
        else:
            file.write_bytes(damaged)
        directory = tmp_path / how
        directory.mkdir()
        with pytest.raises(P3SError) as told_of:
            import_archive(anchor, directory)
        text = str(told_of.value)
        assert text.startswith(f"{anchor}: {name} is {how}, the {whose}" if whose else str(anchor))
        assert "\n" not in text
    assert capfd.readouterr().err == ""


def test_all_missing_parts_are_counted(tmp_path: Path) -> None:
    anchor = halo_as_score_p_does(4, 2, tmp_path / "archive")
    for file in (tmp_path / "archive" / "traces").glob("*.evt"):
        file.unlink()
    with pytest.raises(P3SError, match="0.evt is missing, the events of rank 0, and 3 more parts"):
        import_archive(anchor, tmp_path)


def test_an_archive_without_ranks_is_told(tmp_path: Path) -> None:
    with otf2.writer.open(str(tmp_path / "a"), timer_resolution=TICKS) as out:
        node = out.definitions.system_tree_node("n", parent=None)
        group = out.definitions.location_group("p", system_tree_parent=node)
        writer = out.event_writer("t", group=group)
        region = out.definitions.region("main")
        writer.enter(0, region)
        writer.leave(1, region)
    with pytest.raises(P3SError, match="names no ranks of MPI"):
        import_archive(tmp_path / "a" / "traces.otf2", tmp_path)


def read_back(tracer: Tracer, tmp_path: Path) -> tuple[RunTrace, Any]:
    tracer.out.close()
    (tmp_path / "capture").mkdir()
    made = import_archive(tmp_path / "archive" / "traces.otf2", tmp_path / "capture")
    return read_run(tmp_path / "capture"), made


@pytest.mark.skipif(
    not hasattr(otf2.event_writer.EventWriter, "mpi_probe"), reason="otf2 before 3.1 has no probes"
)
def test_probes_exchanges_persistent_and_nonblocking_calls(tmp_path: Path) -> None:
    tracer = Tracer(2, tmp_path / "archive")
    ops, everyone = tracer.enums.CollectiveOp, tracer.world
    for rank in range(2):
        p, other = Process(tracer, rank), 1 - rank
        p.call("MPI_Init")
        p.call(
            "MPI_Sendrecv",
            lambda w, t, other=other: w.mpi_send(t, other, everyone, 1, 24),
            lambda w, t, other=other: w.mpi_recv(t, other, everyone, 2, 48),
        )
        p.call("MPI_Send_init")  # makes a request: no event
        p.call("MPI_Recv_init")
        p.call(
            "MPI_Startall",
            lambda w, t: w.mpi_irecv_request(t, 7),
            lambda w, t, other=other: w.mpi_isend(t, other, everyone, 3, 16, 8),
        )
        p.call(
            "MPI_Waitall",
            lambda w, t, other=other: w.mpi_irecv(t, other, everyone, 3, 16, 7),
            lambda w, t: w.mpi_isend_complete(t, 8),
        )
        p.call("MPI_Iprobe")
        p.call("MPI_Mprobe", lambda w, t, other=other: w.mpi_probe(t, other, everyone, 9, 77))
        p.call("MPI_Mrecv", lambda w, t: w.mpi_mrecv(t, 77, 40))
        p.call("MPI_Ireduce", lambda w, t: w.non_blocking_collective_request(t, 12))
        received = 160 * (rank == 1)
        p.call(
            "MPI_Wait",
            lambda w, t, received=received: w.non_blocking_collective_complete(
                t, ops.REDUCE, everyone, 1, 80, received, 12
            ),
        )
        p.call(
            "MPI_Bcast",
            lambda w, t: w.mpi_collective_begin(t),
            lambda w, t, rank=rank: w.mpi_collective_end(
                t, ops.BCAST, everyone, 0, 64 * (rank == 0), 32
            ),
        )
        p.call("MPI_Recv")  # from MPI_PROC_NULL
        p.call("MPI_Finalize")
    run, made = read_back(tracer, tmp_path)
    both = (0, 1)
    assert told(run, 0)[1:-1] == [
        ("MPI_Sendrecv", both, 1, 24, 1, -1),
        ("MPI_Sendrecv_recv", both, 1, 48, 2, -1),
        ("MPI_Recv_init", both, 1, 16, 3, -1),
        ("MPI_Send_init", both, 1, 16, 3, -1),
        ("MPI_Waitall", (), -1, 2, -1, -1),
        ("MPI_Mprobe", both, 1, 1, 9, -1),
        ("MPI_Mrecv", both, 1, 40, 9, -1),
        ("MPI_Ireduce", both, -1, 80, -1, 1),
        ("MPI_Wait", (), -1, 1, -1, -1),
        ("MPI_Bcast", both, -1, 32, -1, 0),
        ("MPI_Recv", both, PROC_NULL, 0, -1, -1),
    ]
    assert run.ranks[0].done.tolist() == [[5, 3], [5, 4], [9, 8]]
    assert run.ranks[0].failed_polls == 1 and not made.left_out


def test_lines_of_calls_from_unwinding_and_recursion(tmp_path: Path) -> None:
    tracer = Tracer(1, tmp_path / "archive")
    defs, p = tracer.defs, Process(tracer, 0)
    barrier, none = tracer.enums.CollectiveOp.BARRIER, tracer.enums.CollectiveRoot.NONE
    p.call("MPI_Init")
    main, solve, sync = (tracer.region(name) for name in ("main", "solve", "MPI_Barrier"))
    lines = [defs.source_code_location("solver.f90", line) for line in (10, 20, 30)]
    outer = defs.calling_context(main, lines[0], parent=None)
    inner = defs.calling_context(solve, lines[1], parent=outer)
    call_at = defs.calling_context(sync, lines[2], parent=inner)
    for context in (outer, inner, inner, inner, call_at):  # solve calls itself
        p.now += 10
        p.writer.calling_context_enter(p.now, context, 2)
    p.writer.mpi_collective_end(p.now, barrier, tracer.world, none, 0, 0)
    for context in (call_at, inner, inner, inner, outer):
        p.now += 10
        p.writer.calling_context_leave(p.now, context)
    p.call("MPI_Finalize")
    run, _ = read_back(tracer, tmp_path)
    found = run.calls[int(run.ranks[0].call[1])]
    assert found.op == "MPI_Barrier" and found.depth == 2
    assert run.sites[found.site].frames == ("solver.f90:solve:30", "solver.f90:main:10")


def test_intercommunicators(tmp_path: Path) -> None:
    tracer = Tracer(4, tmp_path / "archive")
    kinds, mpi = tracer.enums.GroupType, tracer.enums.Paradigm.MPI
    sides = [
        tracer.defs.group("", kinds.COMM_GROUP, mpi, members=[tracer.locations[r] for r in ranks])
        for ranks in ((0, 1), (3, 2))
    ]
    bridge = tracer.defs.inter_comm("bridge", *sides, parent=tracer.world)
    for rank in range(4):
        p = Process(tracer, rank)
        p.call("MPI_Init")
        if rank == 0:  # to rank 0 of the other group
            p.call("MPI_Send", lambda w, t: w.mpi_send(t, 0, bridge, 1, 24))
        if rank == 3:
            p.call("MPI_Recv", lambda w, t: w.mpi_recv(t, 0, bridge, 1, 24))
        p.call("MPI_Finalize")
    run, _ = read_back(tracer, tmp_path)
    assert told(run, 0)[1] == ("MPI_Send", (0, 1, 2, 3), 3, 24, 1, -1)
    assert told(run, 3)[1] == ("MPI_Recv", (0, 1, 2, 3), 0, 24, 1, -1)
    assert [comm.inter for comm in run.comms] == [False, True]


def test_a_trace_without_mpi_init_begins_with_it(tmp_path: Path) -> None:
    tracer = Tracer(1, tmp_path / "archive")
    p = Process(tracer, 0)
    p.enter("main", 3)
    p.call("MPI_File_open")
    p.call("MPI_Comm_dup")
    p.call("MPI_Finalize")
    p.leave("main", 3)
    run, made = read_back(tracer, tmp_path)
    assert [event[0] for event in told(run, 0)] == ["MPI_Init", "MPI_Finalize"]
    assert made.left_out == (("MPI_File_open", 1),)
    assert any("MPI_Comm_dup is left out" in note for note in made.notes)
    assert any("without MPI_Init" in note for note in made.notes)
