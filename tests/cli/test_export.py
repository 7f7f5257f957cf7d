"""Exports of the scaled trace: whole runs, SimGrid's traces, GOAL, timelines."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import corpus
import numpy as np
import pytest
import timed_study as ts
from commands import cli
from steps_builder import Builder

from p3s.base.errors import P3SError, UsageError
from p3s.base.ops import MAKES_COMM
from p3s.base.settings import traces_of
from p3s.base.study import Study
from p3s.formats import goal
from p3s.formats.calls import programs_of_steps
from p3s.formats.command import WRITERS
from p3s.formats.exported import ExportResult, Options, check_free, new_directory, new_file
from p3s.formats.simgrid import format as simgrid
from p3s.formats.simgrid.platform import lines_of, settings, write_platform
from p3s.formats.study import export
from p3s.program.collectives.choose import library_of
from p3s.program.collectives.expand import expand
from p3s.program.generate import write_scaled
from p3s.program.order.sections import read_sections, whole_run
from p3s.program.order.unstick import ends, unstuck
from p3s.program.scaled import read_order, read_scaled
from p3s.simulate.network import Curve, Network, line, rough_network
from p3s.simulate.network import Path as PathOf
from p3s.simulate.steps import Op


def overlapped(rec: corpus.Recorder) -> None:
    """A ring of persistent messages, and a reduction in rows that overlaps with it."""
    left, right = (rec.rank - 1) % rec.n, (rec.rank + 1) % rec.n
    row = rec.comm(tuple(r for r in range(rec.n) if r // 4 == rec.rank // 4))
    rec("Comm_split", site="split")
    for _ in range(4):
        rec("Iallreduce", comm=row, nbytes=64)
        rec("Recv_init", peer=left, nbytes=80, tag=3)
        rec("Send_init", peer=right, nbytes=80, tag=3)
        rec("Waitall", nbytes=3)
        rec("Allreduce", nbytes=8)


LIBRARY = library_of("openmpi", "4.1")
PROGRAMS = {
    "halo": (corpus.jacobi2d(iters=4), (4, 8, 16), 24),
    "transpose": (corpus.fft2d(iters=2), (4, 8, 16), 16),
    "exchange": (corpus.hypercube(iters=3), (4, 8, 16), 16),
    "overlapped": (overlapped, (8, 12, 16), 24),
}
needs_simgrid = pytest.mark.skipif(
    shutil.which("smpirun") is None, reason="SimGrid (smpirun) is not installed"
)


def written(study: Study, to: str, n: int, target: Path, options: Options) -> ExportResult:
    """Write an export; return what is said of it."""
    return export(traces_of(study), WRITERS[to], n, target, options, lambda text: None)


def whole(study: Study, n: int):
    """The whole run of a scaled trace, and its steps with all collectives as messages."""
    where = study.scaled_dir(n)
    section = whole_run(read_scaled(where), read_order(where))
    return section, expand(section.steps, LIBRARY).steps


@pytest.fixture(scope="module")
def studies(tmp_path_factory):
    """Studies of PROGRAMS with a scaled trace, made once each: name -> (study, n)."""
    known: dict[str, Study] = {}

    def of(name: str) -> tuple[Study, int]:
        program, counts, n = PROGRAMS[name]
        if name not in known:
            study, _ = ts.put_study(tmp_path_factory.mktemp(name), program, counts, "cpu_ns")
            write_scaled(study.root, n)
            known[name] = study
        return known[name], n

    return of


def truth(name: str) -> dict[int, list[tuple[str, int, int]]]:
    """What each rank of the program itself does: (call, partner, bytes); no completions."""
    program, _, n = PROGRAMS[name]
    run = corpus.run(program, n)
    return {
        rank.rank: [
            (call.op, call.peer, call.bytes)
            for call in (run.calls[c] for c in rank.call.tolist())
            if re.search("send|recv|Send|Recv|Allreduce|Bcast|Alltoall", call.op)
        ]
        for rank in run.ranks
    }


def plain(op: str) -> str:
    return op.removeprefix("MPI_").lower()


@pytest.mark.parametrize("name", ["halo", "transpose", "exchange"])
def test_a_whole_run_does_what_the_program_does(name, studies) -> None:
    study, n = studies(name)
    programs = {p.rank: p for p in programs_of_steps(whole(study, n)[0].steps)}
    assert sorted(programs) == list(range(n))
    for rank, wanted in truth(name).items():
        p = programs[rank]
        found = []
        for k in range(len(p)):
            if p.op[k] in (Op.REST, Op.WAIT):
                continue
            call = p.names[int(p.call[k])].removesuffix("_recv")
            if call in MAKES_COMM:
                continue
            collective = p.op[k] == Op.COLLECTIVE
            found.append((call, -1 if collective else int(p.peer[k]), int(p.bytes[k])))
        assert found == [
            (
                op.removesuffix("_recv"),
                -1 if plain(op) in ("allreduce", "bcast", "alltoall") else peer,
                size,
            )
            for op, peer, size in wanted
        ]
        # Every request is completed once, after it was left behind.
        assert len(set(p.done.tolist())) == len(p.done)
        waits = np.repeat(np.arange(len(p)), np.diff(p.done_start))
        assert (p.done < waits).all()
        left = np.isin(p.op, (int(Op.ISEND), int(Op.IRECV), int(Op.ISSEND)))
        assert left.sum() == len(p.done)


@pytest.mark.parametrize("name", PROGRAMS)
def test_collectives_become_the_messages_that_sections_have(name, studies) -> None:
    study, n = studies(name)
    section, steps = whole(study, n)
    found: Counter = Counter()
    work = 0.0
    for p in programs_of_steps(steps):
        sends = np.isin(p.op, (int(Op.SEND), int(Op.ISEND)))
        told = p.peer[sends].tolist(), p.bytes[sends].tolist()
        found.update(zip([p.rank] * int(sends.sum()), *told, strict=True))
        assert not (p.op == Op.COLLECTIVE).any()
        work += float(p.work_ns.sum())
    wanted: Counter = Counter()
    for section in read_sections(study.scaled_dir(n), turns=10**6, most_steps=10**6):
        s = expand(section.steps, LIBRARY).steps
        sends = s.is_op(Op.SEND, Op.ISEND, Op.SENDRECV, Op.START_SEND)
        wanted.update(
            zip(
                s.rank[sends].tolist(), s.peer[sends].tolist(), s.bytes[sends].tolist(), strict=True
            )
        )
    assert found == wanted
    trace = read_scaled(study.scaled_dir(n))
    inside = ~trace.is_op("MPI_Init")
    assert work == pytest.approx(float((trace.work * trace.repeat)[inside].sum()), rel=1e-9)
    assert {left.call for left in section.left_out} <= {
        *("MPI_Init", "MPI_Finalize", "MPI_Comm_split", "MPI_Cart_create")
    }
    # It can be executed: the simulation comes to its end.
    assert ends(steps) and not section.moved
    assert (steps.to[steps.is_op(Op.SEND, Op.ISEND)] >= 0).all()


def shortened(trace, rank: int, op: str):
    """The same trace with one event less in a row of a rank that has several."""
    row = np.flatnonzero((trace.rank == rank) & trace.is_op(op) & (trace.repeat > 1))[0]
    repeat = trace.repeat.copy()
    repeat[row] -= 1
    return replace(trace, repeat=repeat)


def test_what_has_no_partner_is_left_out(studies, tmp_path: Path, monkeypatch) -> None:
    study, n = studies("halo")
    trace = read_scaled(study.scaled_dir(n))
    no_partner = "no call of the partner in the same stretch of the program matches it"
    inside = ~trace.is_op("MPI_Init")
    for op, left in (
        ("", {}),
        ("MPI_Isend", {("MPI_Irecv", no_partner): 1.0}),
        ("MPI_Allreduce", {("MPI_Allreduce", no_partner): n - 1.0}),
    ):
        less = shortened(trace, 5, op) if op else trace
        monkeypatch.setattr("p3s.program.scaled.read_scaled", lambda where, less=less: less)
        work: list[float] = []

        def texts(program, done, work=work) -> list[str]:
            work.append(float(program.work_ns.sum()))
            return []

        monkeypatch.setattr(goal, "_rank", texts)
        done = written(study, "goal", n, tmp_path / f"{op}.goal", Options())
        assert done.left_out == left
        assert not any("wait for each other" in note for note in done.notes)
        wanted = float((less.work * less.repeat)[inside].sum())
        assert sum(work) == pytest.approx(wanted, rel=1e-9)


def test_without_an_order_there_are_only_sections(tmp_path: Path) -> None:
    from replay_patterns import halo

    study = Study.create(tmp_path / "study", ["mpiexec", "-n", "{np}", "./x"])
    halo(9).write(study.scaled_dir(9))
    with pytest.raises(P3SError, match="--turns"):
        written(study, "simgrid", 9, tmp_path / "out", Options())
    assert not (tmp_path / "out").exists()
    done = written(study, "simgrid", 9, tmp_path / "out", Options(turns=1))
    assert len(done.sections) == 1 and (tmp_path / "out" / "section-000" / "trace.txt").exists()


def two_ranks() -> Builder:
    """All kinds of requests between two ranks, on two communicators."""
    b = Builder(2, {1: (1, 0)})
    for rank in range(2):
        other = 1 - rank
        b.add(rank, "MPI_Irecv", other, 64, tag=5, work_ns=1000.5)
        b.add(rank, "MPI_Recv_init", other, 64, tag=5, comm=1)
        b.add(rank, "MPI_Isend", other, 64, tag=5)
        b.add(rank, "MPI_Send_init", other, 64, tag=5, comm=1)
        b.add(rank, "MPI_Waitall")
        b.add(rank, "MPI_Sendrecv", other, 8, tag=3, work_ns=7.0)
        for _ in range(2):
            b.add(rank, "MPI_Irecv", other, 0, tag=9)
        for _ in range(2):
            b.add(rank, "MPI_Ssend" if rank else "MPI_Issend", other, 0, tag=9)
            b.add(rank, "MPI_Waitany", done=(6, 7) if rank else None)
        b.add(rank, "MPI_Bcast", 1, 100)
        b.add(rank, "MPI_Allreduce", nbytes=16)
        b.add(rank, "REST", work_ns=3.0)
    return b


def lines(directory: Path, rank: int) -> list[str]:
    return (directory / simgrid.file_of(rank)).read_text().splitlines()


def test_simgrid_trace_by_hand(tmp_path: Path) -> None:
    b = Builder(2, {1: (1, 0)})
    for rank in range(2):
        other = 1 - rank
        b.add(rank, "MPI_Irecv", other, 64, tag=5, work_ns=1000.5)
        b.add(rank, "MPI_Recv_init", other, 32, tag=5, comm=1)
        b.add(rank, "MPI_Isend", other, 64, tag=5)
        b.add(rank, "MPI_Send_init", other, 32, tag=5, comm=1)
        b.add(rank, "MPI_Waitall", work_ns=2.0)
        b.add(rank, "MPI_Sendrecv", other, 8, tag=3, work_ns=7.0)
        b.add(rank, "MPI_Bcast", 1, 100)
        b.add(rank, "MPI_Barrier")
        b.add(rank, "REST", work_ns=3.0)
    done = ExportResult("simgrid", 2, tmp_path)
    simgrid.write_trace(programs_of_steps(b.build()), done, tmp_path)
    assert (tmp_path / simgrid.INDEX).read_text() == "rank-000000.txt\nrank-000001.txt\n"
    wanted = [
        "init",
        "compute 1000.5",
        "irecv 1 1 64",
        "irecv 1 2 32",
        "isend 1 1 64",
        "isend 1 2 32",
        "compute 2",
        "wait 1 0 1",
        "wait 1 0 2",
        "wait 0 1 1",
        "wait 0 1 2",
        "compute 7",
        "isend 1 0 8",
        "recv 1 0 8",
        "wait 0 1 0",
        "bcast 100 1",
        "barrier",
        "compute 3",
        "finalize",
    ]
    assert lines(tmp_path, 0) == [f"0 {text}" for text in wanted]
    assert done.records == 2 * len(wanted) and not done.left_out and not done.changed


def test_a_waitany_takes_the_oldest_request(tmp_path: Path) -> None:
    b = Builder(3)
    for other in (1, 2):
        b.add(0, "MPI_Irecv", other, 8)
        b.add(other, "MPI_Send", 0, 8)
    for _ in range(2):
        b.add(0, "MPI_Waitany")
    steps = b.build()
    simgrid.write_trace(programs_of_steps(steps), ExportResult("simgrid", 3, tmp_path), tmp_path)
    assert lines(tmp_path, 0)[1:-1] == [
        "0 irecv 1 0 8",
        "0 irecv 2 0 8",
        "0 wait 1 0 0",
        "0 wait 2 0 0",
    ]


def test_what_is_changed_and_left_out_is_said(tmp_path: Path) -> None:
    b = Builder(2)
    for rank in range(2):
        b.add(rank, "MPI_Issend", 1 - rank, 0)
        b.add(rank, "MPI_Recv", 1 - rank, 0)
        b.add(rank, "MPI_Wait")
        b.add(rank, "MPI_Reduce_scatter", nbytes=8)
    done = ExportResult("simgrid", 2, tmp_path)
    simgrid.write_trace(programs_of_steps(b.build()), done, tmp_path)
    assert done.changed == {
        "messages without bytes carry one byte": 2.0,
        "synchronous sends are plain sends": 2.0,
    }
    assert [(call, events) for (call, _), events in done.left_out.items()] == [
        ("MPI_Reduce_scatter", 2.0)
    ]


def goal_ranks(text: str) -> list[list[tuple]]:
    """Read a GOAL schedule: per rank (label, kind, amount, partner, tag, requires, irequires)."""
    n = int(re.match(r"num_ranks (\d+)\n", text)[1])
    ranks: list[list[tuple]] = []
    for number, body in re.findall(r"^rank (\d+) {\n(.*?)^}$", text, re.M | re.S):
        assert int(number) == len(ranks)
        ops: dict[str, list] = {}
        for entry in body.splitlines():
            if not entry:
                continue
            if found := re.fullmatch(r"(l\d+): calc (\d+)", entry):
                ops[found[1]] = ["calc", int(found[2]), -1, -1, [], []]
            elif found := re.fullmatch(
                r"(l\d+): (send|recv) (\d+)b (?:to|from) (\d+) tag (\d+)", entry
            ):
                ops[found[1]] = [found[2], int(found[3]), int(found[4]), int(found[5]), [], []]
            else:
                found = re.fullmatch(r"(l\d+) (i?requires) (l\d+)", entry)
                assert found, entry
                ops[found[1]][4 if found[2] == "requires" else 5].append(found[3])
                assert found[3] in ops  # defined before
        ranks.append([(label, *op) for label, op in ops.items()])
    assert len(ranks) == n
    return ranks


def goal_ends(ranks: list[list[tuple]]) -> bool:
    """Execute a schedule: sends return at once, receives when their message was sent."""
    sent: Counter = Counter()
    taken: Counter = Counter()
    ended: list[set[str]] = [set() for _ in ranks]
    begun: list[set[str]] = [set() for _ in ranks]
    slot: dict[tuple[int, str], tuple] = {}
    moved = True
    while moved:
        moved = False
        for r, ops in enumerate(ranks):
            for label, kind, _, peer, tag, needs, starts in ops:
                if label in ended[r]:
                    continue
                if label not in begun[r]:
                    if not (set(needs) <= ended[r] and set(starts) <= begun[r]):
                        continue
                    begun[r].add(label)
                    moved = True
                    if kind == "send":
                        sent[r, peer, tag] += 1
                    elif kind == "recv":
                        taken[peer, r, tag] += 1
                        slot[r, label] = (peer, r, tag, taken[peer, r, tag])
                if kind == "recv" and sent[slot[r, label][:3]] < slot[r, label][3]:
                    continue
                ended[r].add(label)
                moved = True
    return all(len(done) == len(ops) for done, ops in zip(ended, ranks, strict=True))


@pytest.mark.parametrize("name", PROGRAMS)
def test_goal_has_all_messages_and_can_be_executed(name, studies, tmp_path: Path) -> None:
    study, n = studies(name)
    target = tmp_path / "x.goal"
    done = written(study, "goal", n, target, Options())
    ranks = goal_ranks(target.read_text())
    steps = whole(study, n)[1]
    sends, receives = Counter(), Counter()
    work = 0
    for r, ops in enumerate(ranks):
        for _, kind, amount, peer, tag, *_ in ops:
            if kind == "send":
                sends[r, peer, amount, tag] += 1
            elif kind == "recv":
                receives[peer, r, amount, tag] += 1
            else:
                work += amount
    assert sends == receives and sends.total() > 0
    kinds = (Op.SEND, Op.ISEND, Op.SENDRECV, Op.START_SEND)
    assert sends.total() == int((steps.is_op(*kinds) & (steps.peer >= 0)).sum())
    trace = read_scaled(study.scaled_dir(n))
    inside = ~trace.is_op("MPI_Init")
    wanted = float((trace.work * trace.repeat)[inside].sum())
    assert work == pytest.approx(wanted, rel=1e-3)
    assert goal_ends(ranks)
    assert done.records == sum(map(len, ranks)) and not done.partial


def test_goal_by_hand(tmp_path: Path) -> None:
    b = Builder(2)
    for rank in range(2):
        b.add(rank, "MPI_Irecv", 1 - rank, 8, work_ns=10.0)
        b.add(rank, "MPI_Send", 1 - rank, 8)
        b.add(rank, "MPI_Wait")
    with new_file(tmp_path / "x.goal") as file:
        goal.write_goal(programs_of_steps(b.build()), ExportResult("goal", 2, tmp_path), file)
    part = [
        "l1: calc 10",
        "l2: recv 8b from {} tag 0",
        "l2 requires l1",
        "l3: send 8b to {} tag 0",
        "l3 irequires l2",
        "l4: calc 0",
        "l4 requires l3",
        "l4 requires l2",
    ]
    wanted = ["num_ranks 2"]
    for rank in range(2):
        wanted += ["", f"rank {rank} {{", *(text.format(1 - rank) for text in part), "}"]
    assert (tmp_path / "x.goal").read_text().splitlines() == wanted
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.goal"]


@needs_simgrid
def test_simgrid_replays_it_as_the_simulation_does() -> None:
    from p3s.formats.simgrid.smpirun import replay
    from p3s.simulate.simulate import simulate

    network = rough_network(inside_latency_ns=2000, inside_rate=12.5, inside_eager_bytes=16384)
    node_of = np.arange(2)
    steps = two_ranks().build()
    steps = expand(steps, LIBRARY).steps
    first = np.array([0.0, 500.0])
    theirs = replay(steps, node_of, network, first_ns=first, patience_s=60)
    ours = simulate(steps, node_of, network, first_ns=first)
    assert theirs.end_ns.max() == pytest.approx(ours.end_ns.max(), rel=0.02)
    assert (theirs.end_ns >= theirs.begin_ns - 1e-6).all()
    assert theirs.written.changed["messages without bytes carry one byte"] == 4


@needs_simgrid
@pytest.mark.parametrize(
    "name", [pytest.param("halo", marks=pytest.mark.slow), "exchange", "overlapped"]
)
def test_simgrid_agrees_on_whole_runs(name, studies) -> None:
    from p3s.formats.simgrid.smpirun import replay
    from p3s.simulate.simulate import simulate

    study, n = studies(name)
    steps = whole(study, n)[1]
    network = rough_network(inside_latency_ns=2000, inside_rate=12.5, inside_eager_bytes=16384)
    network = replace(network, post=0.0)  # SimGrid has no cost of a completed request
    node_of = np.arange(n)
    theirs = replay(steps, node_of, network, patience_s=60)
    ours = simulate(steps, node_of, network)
    assert theirs.end_ns.max() == pytest.approx(ours.end_ns.max(), rel=0.02)


@needs_simgrid
def test_a_trace_that_waits_for_ever_is_an_error() -> None:
    from p3s.formats.simgrid.smpirun import replay

    b = Builder(2)
    b.add(0, "MPI_Recv", 1, 8)
    b.add(1, "MPI_Recv", 0, 8)
    with pytest.raises(P3SError, match="SimGrid's replay"):
        replay(b.build(), np.arange(2), rough_network(), patience_s=30)


def test_order_that_cannot_be_executed_is_mended() -> None:
    b = Builder(2)
    for rank in range(2):
        b.add(rank, "MPI_Recv", 1 - rank, 8)
        b.add(rank, "MPI_Send", 1 - rank, 8)
    mended, moved = unstuck(b.build())
    assert moved and ends(mended)


def test_a_run_that_waits_for_ever_is_said(studies, tmp_path: Path, monkeypatch) -> None:
    study, n = studies("halo")
    monkeypatch.setattr("p3s.program.order.unstick.ends", lambda steps: False)
    done = written(study, "goal", n, tmp_path / "x.goal", Options())
    assert any("wait for each other for ever" in note for note in done.notes)


def test_platform_gives_the_costs_of_the_network(tmp_path: Path) -> None:
    curve = Curve((0.0, 1000.0, 10000.0), (500.0, 700.0, 1600.0))
    found = lines_of(curve)
    for nbytes in (1.0, 400.0, 999.0, 1001.0, 9000.0, 50000.0):
        piece = [line for line in found if line.above < nbytes][-1]
        assert piece.ns + piece.per_byte * nbytes == pytest.approx(float(curve.at(nbytes)))
    network = rough_network()
    sizes = (1, 700, 16384, 16385, 10**6)
    cluster, config = settings(network, sizes)
    # Latency, 16 bytes more on the link, and what both calls take make the transfer.
    latency = 2e9 * float(cluster["lat"].removesuffix("s"))
    factors = [tuple(map(float, text.split(":"))) for text in config["smpi/lat-factor"].split(";")]
    for nbytes in sizes:
        factor = [x for above, x in factors if nbytes + 16 > above][-1]
        soft = 400.0 if nbytes <= 16384 else 0.0
        found = latency * factor + (nbytes + 16) / 12.5 + soft
        assert found == pytest.approx(2000 + nbytes / 12.5, rel=1e-5)
    assert config["smpi/bw-factor"] == "0:1"
    free = Network({1: PathOf(curve, line(0.0), line(0.0), 1e4, False)})
    pairs = [
        tuple(map(float, x.split(":")))[1] for x in settings(free)[1]["smpi/bw-factor"].split(";")
    ]
    assert pairs == pytest.approx([0.5, 1.0]) and settings(free)[0]["sharing_policy"] == "FATPIPE"
    assert config["smpi/os"].startswith("0:2e-07:0")
    assert config["smpi/async-small-thresh"] == "16385"
    write_platform(tmp_path, network, np.arange(8) // 2)
    text = (tmp_path / "platform.xml").read_text()
    assert 'radical="0-3"' in text and 'core="2"' in text and "SPLITDUPLEX" in text
    assert (tmp_path / "hosts.txt").read_text().split() == [f"node-{k // 2}" for k in range(8)]
    assert settings(rough_network(rate=1e9))[0]["bw"]
    assert lines_of(line(300.0))[0].ns == 300.0


def test_sections_of_some_turns(studies, tmp_path: Path) -> None:
    study, n = studies("halo")
    done = written(study, "simgrid", n, tmp_path / "out", Options(turns=2))
    told = json.loads((tmp_path / "out" / "export.json").read_text())
    assert told["schema"] == "p3s.export" and told["sections"] == done.sections
    assert [s["turns"] for s in done.sections] == [1, 2]
    for k in range(2):
        inner = tmp_path / "out" / f"section-{k:03d}"
        assert len((inner / simgrid.INDEX).read_text().split()) == n
    all_ = written(study, "simgrid", n, tmp_path / "whole", Options())
    assert all_.events > done.events and not all_.partial
    names = {path.name for path in (tmp_path / "whole").iterdir()}
    assert {"platform.xml", "hosts.txt", "trace.txt", "export.json"} < names
    assert list(tmp_path.glob(".*")) == []


def test_timeline(studies, tmp_path: Path) -> None:
    study, n = studies("halo")
    target = tmp_path / "t.json"
    written(study, "perfetto", n, target, Options(turns=2, ranks_per_node=4))
    told = json.loads(target.read_text())
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    flows: dict[int, list[dict]] = defaultdict(list)
    for event in told["traceEvents"]:
        assert {"ph", "pid", "tid"} <= set(event)
        if event["ph"] == "X":
            assert event["dur"] >= 0 and event["ts"] >= 0 and event["name"]
            tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        elif event["ph"] in "sf":
            flows[event["id"]].append(event)
        else:
            assert event["ph"] == "M" and event["name"] in (
                "process_name",
                "thread_name",
                "process_labels",
            )
    assert len(tracks) == n + 1
    for spans in tracks.values():  # readers leave out slices that overlap by a ns
        whole = sorted((round(1e3 * begin), round(1e3 * end)) for begin, end in spans)
        assert all(a[1] <= b[0] for a, b in zip(whole, whole[1:], strict=False))
    assert flows
    for start, end in flows.values():
        assert (start["ph"], end["ph"]) == ("s", "f") and start["ts"] <= end["ts"] + 1e-3
    few = tmp_path / "few.json"
    written(study, "perfetto", n, few, Options(ranks=(0, 1)))
    assert {e["tid"] for e in json.loads(few.read_text())["traceEvents"] if e["pid"]} == {0, 1}


def test_nothing_half_written_stays(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), new_directory(tmp_path / "d") as inside:
        (inside / "a").write_text("x")
        raise RuntimeError
    with pytest.raises(RuntimeError), new_file(tmp_path / "f") as file:
        file.write("x")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    for text in ("old", "new"):
        with new_directory(tmp_path / "d") as inside:
            (inside / "export.json").write_text(text)
    assert (tmp_path / "d" / "export.json").read_text() == "new"
    with pytest.raises(UsageError, match="there already"):
        check_free(tmp_path / "d", False)
    check_free(tmp_path / "d", True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "work.txt").write_text("precious")
    with pytest.raises(UsageError, match="no export"):
        check_free(tmp_path / "mine", True)
    with pytest.raises(P3SError, match="cannot be written"), new_file(Path("/proc/x/y")):
        pass


def test_command(studies, tmp_path: Path) -> None:
    study, n = studies("halo")
    where = str(tmp_path / "x.goal")
    said = cli(f"export {study.root} --to goal -n {n} -o", where)
    assert said.out.strip() == where and "left out: " not in said.err and "txt2bin" in said.err
    again = ["export", str(study.root), "--to", "goal", "-n", str(n), "-o", where, "--json"]
    cli(*again, code=2)
    told = cli(*again, "--force").data
    assert told["schema"] == "p3s.export" and told["to"] == "goal" and told["n"] == n
