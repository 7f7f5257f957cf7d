"""The engine of the replay: programs written by hand, executed by real processes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from replay_jobs import Mpi, Script, measure, mpis, program_of, run_job, settings_of, world_of

from p3s.base.errors import P3SError
from p3s.replay.engine.collect import Collector, Offsets, part_of, record_columns
from p3s.replay.engine.inner import Timings
from p3s.replay.engine.job import DONE, read_job, result_path, write_job
from p3s.replay.engine.results import (
    Place,
    ProgramResult,
    median_interval,
    read_result,
    save_result,
)
from p3s.replay.plan.program import Code, Collective, Pairing, Program

FOUND = mpis()
both = pytest.mark.parametrize("mpi", FOUND, ids=[mpi.family for mpi in FOUND])


# ---- programs ------------------------------------------------------------------------------
def ping_pong(turns: int = 20, nbytes: int = 1000) -> Program:
    scripts = [Script() for _ in range(4)]
    sent, received = [], []
    for _ in range(turns):
        sent.append(scripts[0].add(Code.SEND, peer=1, tag=3, bytes=nbytes, sample=0))
        scripts[0].add(Code.RECV, peer=1, tag=4, bytes=nbytes)
        received.append(scripts[1].add(Code.RECV, peer=0, tag=3, bytes=nbytes, sample=1))
        scripts[1].add(Code.SEND, peer=0, tag=4, bytes=nbytes)
    places, zero = np.array(received), np.zeros(turns, dtype=np.int64)
    pairing = Pairing(
        cls=zero + 7,
        sender=zero,
        receiver=zero + 1,
        sent=np.array(sent),
        sent_end=np.array(sent),
        posted=places,
        received=places,
        alone=np.ones(turns, dtype=np.int64),
    )
    return program_of(scripts, name="ping-pong", pairing=pairing)


def halo() -> Program:
    """A ring of four with Irecv, Isend, Waitall; slots not in order on odd ranks."""
    scripts = [Script() for _ in range(4)]
    for rank, script in enumerate(scripts):
        for turn in range(5):
            slots = [8, 2, 5, 1] if rank % 2 else [0, 1, 2, 3]
            for k, step in enumerate((1, 3)):
                script.add(
                    Code.IRECV,
                    peer=(rank + step) % 4,
                    tag=10 + step,
                    bytes=3000,
                    offset=3008 * k,
                    slot=slots[k],
                    work_ns=50_000 if turn and not k else 0,
                )
            for k, step in enumerate((1, 3)):
                script.add(
                    (Code.ISEND, Code.ISSEND)[k],
                    peer=(rank + step) % 4,
                    tag=10 + (4 - step),
                    bytes=3000,
                    slot=slots[2 + k],
                )
            script.wait(*slots, sample=2)
        script.add(Code.END)
    return program_of(scripts, name="halo")


def some_and_any() -> Program:
    """Process 0 takes messages of the others as they come, partly by WAITSOME."""
    scripts = [Script() for _ in range(4)]
    for source in (1, 2, 3):
        scripts[0].add(Code.IRECV, peer=source, tag=1, bytes=40, slot=source - 1)
    for slot in (3, 4, 5):
        scripts[0].add(Code.IRECV, peer=-1, tag=-1, bytes=40, slot=slot)
    scripts[0].wait(0, 2, 1, code=Code.WAITANY, sample=0)
    scripts[0].wait(0, 1, 2, code=Code.WAITSOME, arg=2, sample=1)
    scripts[0].wait(0, 1, 2, code=Code.WAITANY)  # all taken: passes at once
    scripts[0].wait(3, 4, 5)
    scripts[0].add(Code.SEND, peer=-2, bytes=8)
    for source in (1, 2, 3):
        scripts[source].add(Code.BUFFERED, peer=0, tag=1, bytes=40)
        scripts[source].add(Code.SSEND, peer=0, tag=1, bytes=40)
    return program_of(scripts, name="some and any")


def collectives() -> Program:
    """Every collective on processes 3, 1 and 2, in this order, blocking and not."""
    scripts = [Script() for _ in range(4)]
    for rank in (1, 2, 3):
        for call in Collective:
            nbytes = 0 if call == Collective.BARRIER else 24 if call % 2 else 17
            if call in (Collective.ALLTOALL, Collective.REDUCE_SCATTER_BLOCK):
                nbytes *= 3
            for code in (Code.COLLECTIVE, Code.COLLECTIVE_START):
                scripts[rank].add(
                    code, arg=int(call), comm=1, peer=1, bytes=nbytes, sample=int(call), slot=0
                )
            scripts[rank].wait(0)
    return program_of(scripts, name="collectives", comms=[(0, 1), (3, 1, 2)])


def black_hole() -> Program:
    """Process 0 sends to 1, its black hole, and asks it for messages; 2 and 3 exchange."""
    scripts = [Script() for _ in range(4)]
    for k in range(4):
        scripts[1].add(Code.IRECV, peer=0, tag=100 + k, bytes=100_000, slot=k)
    for k in range(4):
        scripts[0].add(Code.SEND, peer=1, tag=100 + k, bytes=100_000)
        scripts[0].add(Code.ASK, peer=1, tag=200 + k, bytes=5000 * k, arg=1)
        scripts[0].add(Code.RECV, peer=1, tag=200 + k, bytes=5000 * k)
        scripts[1].add(Code.ANSWER, peer=0, tag=200 + k, bytes=5000 * k)
    for rank in (2, 3):
        for _ in range(3):
            scripts[rank].add(Code.SENDRECV, peer=5 - rank, tag=1, bytes=9000, sample=0)
            scripts[rank].add(Code.SECOND, peer=5 - rank, tag=1, bytes=9000)
    return program_of(scripts, name="black hole")


AT_NS = (3_000_000, 6_000_000, 9_000_000)


def timed_black_hole() -> Program:
    """Process 1 acts by the clock: sends at the times, posts a rendezvous receive last."""
    scripts = [Script() for _ in range(4)]
    for k, at_ns in enumerate(AT_NS):
        scripts[1].add(Code.BUFFERED, peer=0, tag=k, bytes=10, at_ns=at_ns)
        scripts[0].add(Code.RECV, peer=1, tag=k, bytes=10, sample=k)
    scripts[0].add(Code.SSEND, peer=1, tag=9, bytes=10, sample=9)
    scripts[1].add(Code.IRECV, peer=0, tag=9, bytes=10, slot=0, at_ns=15_000_000)
    return program_of(scripts, name="timed", what="timed", timed=True)


def link() -> Program:
    scripts = [Script() for _ in range(4)]
    for rank in (0, 1):
        scripts[rank].add(Code.LINK_SEND, peer=rank + 2, tag=1, bytes=20_000, number=40)
        scripts[rank + 2].add(Code.LINK_RECV, peer=rank, tag=1, bytes=20_000, number=40)
    return program_of(scripts, name="link", what="link")


PROGRAMS = [ping_pong, halo, some_and_any, collectives, black_hole, timed_black_hole, link]


# ---- with real processes -------------------------------------------------------------------
@both
def test_programs_of_every_kind(tmp_path: Path, mpi: Mpi) -> None:
    programs = [make() for make in PROGRAMS]
    pages = "huge" if mpi.family == "openmpi" else "small"
    results = measure(tmp_path, mpi, programs, 4, budget_s=600.0, most_passes=16, pages=pages)
    found = dict(zip([program.name for program in programs], results, strict=True))
    for program in programs:
        result = found[program.name]
        sampled = np.flatnonzero(program.events["sample"] >= 0)
        assert result.passes >= 8
        assert np.array_equal(result.event, sampled)
        assert result.event_ns.shape == (result.passes, len(sampled))
        assert result.pass_ns.shape == (result.passes, 4)
        assert (result.event_ns >= 0).all()
        assert (result.begin_ns >= 0).all()
        assert result.clock_error_ns == 0.0
        # What a process did one after the other began one after the other.
        owner = np.searchsorted(program.start, result.event, "right")
        for process in np.unique(owner):
            assert (np.diff(result.begin_ns[owner == process]) >= 0).all()
    assert found["ping-pong"].transfer_ns.shape == (found["ping-pong"].passes, 20)
    assert np.isfinite(found["ping-pong"].transfer_ns).any()
    assert np.nanmin(found["ping-pong"].transfer_ns) > 0
    # Pieces of halo that have computation: 4 turns on 4 processes, in all passes that were made.
    assert len(found["halo"].work_error_ns) >= found["halo"].passes * 16
    assert found["link"].link_ns.shape[1] == 80 and (found["link"].link_ns > 0).all()
    # Processes that only answer are not waited for before their time, nor late by much.
    timed = found["timed"]
    end_ns = timed.begin_ns + np.median(timed.event_ns, axis=0)
    for at_ns, reached_ns in zip((*AT_NS, 15_000_000), end_ns, strict=True):
        assert reached_ns > at_ns
    places = found["ping-pong"].places
    assert len(places) == 4 and len({place.kernel for place in places}) == 1
    done = json.loads((tmp_path / DONE).read_text())
    assert done["programs"] == len(programs) and done["skipped"] == 0


def test_what_is_measured_is_not_measured_again(tmp_path: Path) -> None:
    mpi, programs = FOUND[0], [ping_pong(), halo(), ping_pong(5)]
    write_job(tmp_path, programs, world_of(4), settings_of(mpi, budget_s=600.0, most_passes=16))
    kept = ProgramResult(0, np.zeros((0, 4)))
    save_result(result_path(tmp_path, 1), kept)
    ended = run_job(tmp_path, mpi, 4)
    assert ended.code == 0, ended.stderr
    lines = [line for line in ended.stdout.splitlines() if "measured" in line]
    assert len(lines) == 2 and all("measured ping-pong: " in line for line in lines)
    assert lines[0].endswith("1 programs left")
    assert read_result(result_path(tmp_path, 1)).passes == 0
    assert read_result(result_path(tmp_path, 2)).passes >= 8
    assert {path.name for path in result_path(tmp_path, 0).parent.iterdir()} == {
        f"program-{number:03d}.npz" for number in range(3)
    }


def test_a_spent_budget_leaves_programs_out_but_none_of_a_kind(tmp_path: Path) -> None:
    mpi = FOUND[0]
    write_job(
        tmp_path,
        [link(), ping_pong(), ping_pong(), halo(), timed_black_hole()],
        world_of(4),
        settings_of(mpi, budget_s=1e-6),
    )
    ended = run_job(tmp_path, mpi, 4)
    assert ended.code == 0, ended.stderr
    there = [result_path(tmp_path, number).exists() for number in range(5)]
    assert there == [True, True, False, False, True]
    assert json.loads((tmp_path / DONE).read_text())["skipped"] == 2


OTHER_KERNELS = """
import os, sys
from p3s.replay.engine import watchdog, worker

watchdog.kernel = lambda: "machine " + os.environ.get("OMPI_COMM_WORLD_RANK",
                                                      os.environ.get("PMI_RANK", "0"))
worker.main(sys.argv[1:])
"""


def test_clocks_that_may_differ_are_compared(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text(OTHER_KERNELS)
    mpi = FOUND[0]
    write_job(tmp_path, [ping_pong()], world_of(4), settings_of(mpi, most_passes=16))
    ended = run_job(tmp_path, mpi, 4, worker=[str(script)])
    assert ended.code == 0, ended.stderr
    result = read_result(result_path(tmp_path, 0))
    assert result.clock_error_ns > 0  # it is one clock really, but that was not known
    assert len({place.kernel for place in result.places}) == 4


def test_an_event_that_cannot_be_is_named(tmp_path: Path) -> None:
    mpi = FOUND[0]
    scripts = [Script() for _ in range(2)]
    scripts[1].add(Code.NOTHING)
    scripts[1].add(Code.IRECV, peer=0, tag=1, bytes=4, slot=0)
    program = program_of(scripts)
    program.slots[1] = 0
    write_job(tmp_path, [program], world_of(2), settings_of(mpi))
    ended = run_job(tmp_path, mpi, 2)
    assert ended.code != 0 and not ended.timed_out
    (line,) = ended.marked
    assert "cannot be executed at process 1" in line and "event 1 IRECV peer 0" in line


# ---- without ---------------------------------------------------------------------------------
def timings(
    times: list[list[tuple[int, int]]],
    *,
    start: int = 0,
    late: int = 0,
    links: list[list[int]] | None = None,
) -> Timings:
    passes = len(times)
    return Timings(
        np.full(passes, start),
        np.full(passes, start + 900),
        np.full(passes, late),
        np.array(times, dtype=np.int64).reshape(passes, -1, 2),
        np.array(links or [[] for _ in times], dtype=np.int64),
        np.zeros(0, dtype=np.int64),
    )


def message(posted_by_irecv: bool) -> Program:
    """One message from 0 to 1; received by RECV, or by IRECV and WAIT."""
    sender, receiver = Script(), Script()
    sent = sender.add(Code.SEND, peer=1, bytes=8, sample=4)
    if posted_by_irecv:
        posted = receiver.add(Code.IRECV, peer=0, bytes=8, slot=0)
        got = receiver.wait(0, sample=5)
    else:
        posted = got = receiver.add(Code.RECV, peer=0, bytes=8, sample=5)
    one = [np.array([number]) for number in (0, 0, 1, sent, sent, posted, got, 1)]
    return program_of([sender, receiver], pairing=Pairing(*one))


@pytest.mark.parametrize(
    ("sender", "receiver", "expected"),
    [
        ([(100, 110)], [(50, 60), (70, 5000)], 4900),  # waited for by a call that began before
        ([(100, 110)], [(50, 60), (3000, 3100)], None),  # had come before anybody waited
        ([(100, 110)], [(50, 60), (3000, 9000)], 8900),  # the call came later, but waited
        ([(100, 110)], [(200, 210), (220, 4000)], None),  # the sender had gone on: it lay there
        ([(100, 4100)], [(200, 210), (220, 4000)], 3800),  # the sender waited for the receive
    ],
)
def test_transfer_only_where_somebody_waited(
    sender: list, receiver: list, expected: float | None
) -> None:
    program = message(posted_by_irecv=True)
    collector = Collector(program, record_columns(program))
    none = Offsets.none(2)
    collector.add([timings([sender]), timings([receiver])], none, none)
    (value,) = collector.result().transfer_ns[0]
    assert np.isnan(value) if expected is None else value == expected


def test_clock_of_another_node_is_taken_off_linearly() -> None:
    program = message(posted_by_irecv=False)
    collector = Collector(program, record_columns(program))
    # Process 1 is 10,000 ns ahead at first, gains 1 ns per 100, and the loop went by the first.
    before = Offsets(np.array([0, 10_000]), np.array([0, 30]), np.array([0, 10_000]))
    after = Offsets(np.array([0, 10_100]), np.array([0, 50]), np.array([0, 20_000]))
    collector.add(
        [timings([[(1000, 5000)]], start=500), timings([[(11_000, 15_000)]], start=10_500)],
        before,
        after,
    )
    result = collector.result()
    assert result.clock_error_ns == 100
    assert result.begin_ns.tolist() == [500, 490]
    assert result.event_ns.tolist() == [[4000, 4000]]  # by the process's own clock
    assert result.transfer_ns.tolist() == [[15_000 - 10_000 - 50 - 1000]]


def test_passes_that_somebody_joined_late_do_not_count() -> None:
    program = message(posted_by_irecv=False)
    collector = Collector(program, record_columns(program))
    none = Offsets.none(2)
    collector.add([timings([[(1, 2)]]), timings([[(1, 2)]], late=5)], none, none)
    assert collector.passes == 0 and collector.dropped == 1 and not collector.is_known(0.05)
    assert collector.result().passes == 0 and collector.result().pass_ns.shape == (0, 2)
    collector.add([timings([[(1, 2)]] * 8), timings([[(1, 2)]] * 8)], none, none)
    assert collector.passes == 8 and collector.is_known(0.05)


def test_only_what_is_needed_is_recorded() -> None:
    program = message(posted_by_irecv=True)
    assert record_columns(program).tolist() == [0, 0, 1]
    assert part_of(program, 1, record_columns(program)).records == 2
    assert record_columns(link()).tolist() == [0, 0, 0, 0]
    assert record_columns(halo())[:5].tolist() == [-1, -1, -1, -1, 0]


def test_job_comes_back_as_written(tmp_path: Path) -> None:
    programs = [ping_pong(), halo(), collectives()]
    settings = settings_of(FOUND[0], pages="huge", work_scale=0.5, most_passes=9, stall_s=7.0)
    job = read_job(tmp_path, write_job(tmp_path, programs, world_of(4), settings))
    assert job.settings == settings and job.world == world_of(4)
    for number, program in enumerate(programs):
        found = job.program(number)
        for name in ("events", "start", "lists", "list_start", "slots"):
            assert np.array_equal(getattr(found, name), getattr(program, name)), name
        assert found.comms == program.comms and found.name == program.name
        assert (found.pairing is None) == (program.pairing is None)
    assert np.array_equal(job.program(0).pairing.sent, programs[0].pairing.sent)


@pytest.mark.parametrize("bad", [{"pages": "none"}, {"budget_s": 0.0}, {"stall_s": -1.0}])
def test_settings_that_cannot_be(tmp_path: Path, bad: dict) -> None:
    with pytest.raises(P3SError) as caught:
        write_job(tmp_path, [], world_of(2), settings_of(FOUND[0], **bad))
    assert "\n" not in str(caught.value)


def test_damaged_files_are_one_line(tmp_path: Path) -> None:
    write_job(tmp_path, [ping_pong()], world_of(4), settings_of(FOUND[0]))
    path = result_path(tmp_path, 0)
    for content in (b"", b"PK\x03\x04 cut short", b"no archive"):
        path.write_bytes(content)
        with pytest.raises(P3SError, match="damaged") as caught:
            read_result(path)
        assert "\n" not in str(caught.value)
    with pytest.raises(P3SError, match="missing"):
        read_result(tmp_path / "none.npz")
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(P3SError, match="plan.json"):
        read_job(tmp_path, "")


def test_results_come_back_as_written(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    result = ProgramResult(
        3,
        rng.random((3, 4)),
        np.arange(6),
        rng.random((3, 6)),
        rng.random(6),
        rng.random((3, 2)),
        rng.random((3, 5)),
        12.5,
        rng.random(9),
        (Place("n0", "k", (0, 2)), Place("n1", "k", (1,), "slurm")),
    )
    save_result(tmp_path / "r.npz", result)
    found = read_result(tmp_path / "r.npz")
    assert found.passes == 3 and found.clock_error_ns == 12.5
    assert found.places == result.places
    for name in set(vars(result)) - {"places"}:
        assert np.array_equal(getattr(found, name), getattr(result, name)), name


def test_intervals_of_medians() -> None:
    found = median_interval(np.arange(1, 101))
    assert (found.cost_ns, found.low_ns, found.high_ns) == (50.5, 40.0, 61.0)
    assert median_interval([100.0, 104.0, 96.0]).half_width == pytest.approx(0.04)
    assert median_interval([np.nan]).half_width == 0.0
