"""Exports of traced runs and of points: OTF2 read back by its own reader, Extra-P's JSON Lines."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pytest
from made_runs import call, run_of, world

from p3s.base.errors import P3SError
from p3s.capture import Comm, RunTrace
from p3s.capture.types import ANY_SOURCE, PROC_NULL
from p3s.formats import extrap
from p3s.formats.exported import ExportResult
from p3s.formats.otf2.archive import write_archive
from p3s.formats.otf2.library import library
from p3s.formats.run import Run
from p3s.signature.phase_file import Loop, Phase, PhaseCost, Phases


def written(
    run: RunTrace, directory: Path
) -> tuple[list[tuple[int, int, str, dict]], ExportResult]:
    """Write an archive, read it back: (rank, time, record, its values) and what was told."""
    otf2 = pytest.importorskip("otf2")
    done = ExportResult("otf2", run.np, directory)
    write_archive(library(), Run(run), directory, done)
    found = []
    with otf2.reader.open(str(directory / "traces.otf2")) as reader:
        assert reader.timer_resolution == 10**9
        for location, event in reader.events:
            values = {
                name: getattr(event, name)
                for name in (
                    "receiver",
                    "sender",
                    "msg_length",
                    "msg_tag",
                    "request_id",
                    "communicator",
                    "region",
                    "root",
                    "collective_op",
                    "size_sent",
                )
                if hasattr(event, name)
            }
            rank = int(location.group.name.removeprefix("MPI Rank "))
            found.append((rank, event.time, type(event).__name__, values))
    return found, done


def test_otf2_has_regions_messages_requests_and_collectives(tmp_path: Path) -> None:
    sub = Comm((2, 0), "MPI_Comm_split", 0, None, None, 0)
    ranks = [
        [
            (call("Init"), -100, 100),
            (call("Irecv", 2, 64, 7), 10, 1),
            (call("Isend", 2, 32, 8), 12, 1),
            (call("Waitall", nbytes=2), 20, 30),
            (call("Bcast", nbytes=100, root=2, comm=1), 60, 5),
            (call("Send", PROC_NULL, 8, 0), 70, 0),
            (call("Ibarrier"), 71, 1),
            (call("Wait"), 75, 10),
            (call("Finalize"), 99, 0),
        ],
        [
            (call("Init"), -80, 80),
            (call("Recv", ANY_SOURCE, 8, 3), 5, 5),
            (call("Ibarrier"), 70, 1),
            (call("Wait"), 75, 10),
            (call("Finalize"), 99, 0),
        ],
        [
            (call("Init"), -90, 90),
            (call("Send", 0, 64, 7), 15, 2),
            (call("Sendrecv", 1, 8, 3), 17, 6),
            (call("Sendrecv_recv", 0, 32, 8), 23, 0),
            (call("Bcast", nbytes=100, root=2, comm=1), 61, 2),
            (call("Ibarrier"), 70, 1),
            (call("Wait"), 75, 10),
            (call("Finalize"), 99, 0),
        ],
    ]
    done = [[(3, 1), (3, 2), (7, 6)], [(3, 2)], [(6, 5)]]
    events, told = written(run_of(ranks, done, (world(3), sub)), tmp_path)
    names = Counter(name for _, _, name, _ in events)
    shown = sum(map(len, ranks)) - 1  # both halves of an exchange are one region
    assert names["Enter"] == names["Leave"] == shown
    assert names == {
        "Enter": shown,
        "Leave": shown,
        "MpiIrecvRequest": 1,
        "MpiIrecv": 1,
        "MpiIsend": 1,
        "MpiIsendComplete": 1,
        "MpiSend": 2,
        "MpiRecv": 1,
        "MpiCollectiveBegin": 2,
        "MpiCollectiveEnd": 2,
        "NonBlockingCollectiveRequest": 3,
        "NonBlockingCollectiveComplete": 3,
    }
    arrived = next(e for e in events if e[2] == "MpiIrecv")
    # Clocks begin at the end of MPI_Init: 100 after the first time of all.
    assert arrived[:2] == (0, 150) and arrived[3]["msg_length"] == 64
    assert arrived[3]["communicator"].location(arrived[3]["sender"]).group.name == "MPI Rank 2"
    received = next(e for e in events if e[2] == "MpiRecv")
    assert received[:2] == (2, 123) and received[3]["msg_length"] == 32
    casts = [e for e in events if e[2] == "MpiCollectiveEnd"]
    assert {(rank, values["root"], values["size_sent"]) for rank, _, _, values in casts} == {
        (0, 0, 0),
        (2, 0, 200),
    }
    assert all(
        casts[0][3]["communicator"].location(r).group.name == f"MPI Rank {(2, 0)[r]}"
        for r in range(2)
    )
    for rank in range(3):
        times = [time for r, time, _, _ in events if r == rank]
        assert times == sorted(times)
    assert told.left_out == {("MPI_Recv", "whom it received from is not known"): 1.0}
    assert told.partial


def test_otf2_of_cancelled_requests_and_hostile_names(tmp_path: Path) -> None:
    odd = Comm((0, 1), "MPI_Comm_<é\u0000>", 0, None, None, 0)
    ranks = [
        [(call("Irecv", 1, 8, 0, comm=1), 0, 1), (call("Wait"), 2, 5), (call("Finalize"), 9, 0)],
        [(call("File_write", nbytes=8, comm=1), 0, 3), (call("Finalize"), 9, 0)],
    ]
    events, told = written(run_of(ranks, [[(1, 0)], []], (world(2), odd), {0: [True]}), tmp_path)
    names = Counter(name for _, _, name, _ in events)
    assert names["MpiRequestCancelled"] == 1 and "MpiIrecv" not in names
    assert told.events == 5


def test_otf2_of_a_rank_without_events(tmp_path: Path) -> None:
    events, _ = written(run_of([[(call("Finalize"), 0, 0)], []], [[], []], (world(2),)), tmp_path)
    assert len(events) == 2


def test_without_the_package_one_line_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "otf2", None)
    with pytest.raises(P3SError, match=r"pip install 'p3s\[otf2\]'"):
        library()


def test_points_of_phases() -> None:
    def cost(weight: int, events: int, nbytes: int, work_s: int, calls_s: int) -> PhaseCost:
        nanoseconds = work_s * 10**9, calls_s * 10**9
        return PhaseCost(weight, weight, 4, events, nbytes, *nanoseconds, 0.5, True, {})

    each = (
        ("outside", {4: cost(1, 8, 16, 4, 4)}),
        ("a -> b", {16: cost(7, 160, 320, 16, 8), 4: cost(7, 40, 80, 16, 8)}),
    )
    rows = (
        Phase(k, k, None, 0, name, (), costs, None, None, False)
        for k, (name, costs) in enumerate(each)
    )
    tree = Loop(0, None, {}, ())
    phases = Phases((4, 16), "cpu_ns", {}, tree, tuple(rows), {})
    found = {(n, path, metric): value for n, path, metric, value in extrap._phases(phases)}
    one = extrap.callpath(1, "a -> b")
    assert one == "run->1 a - > b"
    assert found[4, one, "calls"] == 10 and found[16, one, "bytes"] == 20
    assert found[4, one, "computation"] == 4.0 and found[16, one, "computation"] == 1.0
    assert found[4, "run", "calls"] == 12 and found[4, "run", "computation"] == 5.0
    assert found[16, one, "weight"] == 7.0
    times = {(n, path): value for n, path, _, value in extrap._phase_times(phases, {4})}
    assert times == {(4, "run->0 outside"): 2.0, (4, one): 6.0}


def test_every_metric_has_a_value_at_every_count() -> None:
    points = [
        (2, "run", "calls", 4.0),
        (4, "run", "calls", 5.0),
        (4, "run->1", "calls", 1.0),
        (4, "run->1", "calls", 3.0),
    ]
    told = [json.loads(text) for text in extrap.lines(points)]
    assert [(t["params"], t["callpath"], t["metric"], t["value"]) for t in told] == [
        ({"p": 2}, "run", "calls", 4.0),
        ({"p": 4}, "run", "calls", 5.0),
        ({"p": 2}, "run->1", "calls", 0.0),
        ({"p": 4}, "run->1", "calls", 1.0),
        ({"p": 4}, "run->1", "calls", 3.0),
    ]


def test_predicted_points() -> None:
    from made_predictions import made_prediction, record

    made = record(made_prediction((4, 8, 64), 2))
    found = list(extrap._yield_points(made))
    assert {n for n, *_ in found} == {4, 8, 64}
    row = made.counts[2]
    assert (64, "run", "predicted time", row.model_s) in found
    phase = row.phases[1]
    path = extrap.callpath(phase.phase, phase.name)
    assert (64, path, "predicted communication", phase.comm_s) in found


def test_extrap_reads_the_lines(tmp_path: Path) -> None:
    reader = pytest.importorskip("extrap.fileio.file_reader.jsonlines_file_reader")
    points = [(n, extrap.callpath(1, "x"), "calls", float(n)) for n in (2, 4, 8, 16, 32)]
    points += [(8, "run", "calls", 3.0)]
    (tmp_path / "points.jsonl").write_text("".join(extrap.lines(points)))
    experiment = reader.read_jsonlines_file(str(tmp_path / "points.jsonl"))
    assert len(experiment.coordinates) == 5
