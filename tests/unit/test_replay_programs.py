"""Programs of a replay: what measured ranks and black holes execute, and that they end."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from loaded_ranks import load
from replay_made import classes_of
from scripted_mpi import TEMPERS, ScriptError, execute
from steps_builder import Builder

from p3s.replay.plan.build import build_program
from p3s.replay.plan.build_holes import Noise
from p3s.replay.plan.build_traffic import WHY_TEXT, SkipReason, needs_hole
from p3s.replay.plan.check import ProvenProgram, check, describe, prove_program
from p3s.replay.plan.classes import MessageClass
from p3s.replay.plan.executed import fits
from p3s.replay.plan.loaded import Loaded
from p3s.replay.plan.micro import link_programs, pair_programs
from p3s.replay.plan.program import MEASURED, NOISE, TAG_NOISE, Code, Program, World, lay_out
from p3s.simulate.steps import Steps


def one_node(steps: Steps) -> tuple[Loaded, World]:
    """Load all ranks on one node."""
    loaded = load(steps, (list(range(steps.n)), []))
    return loaded, lay_out((steps.n, 0), needs_hole(loaded), False)


def codes(program: Program, process: int) -> list[Code]:
    """Return what a process does."""
    return [Code(int(code)) for code in program.of(process)["code"]]


def outside(
    calls: list[tuple[str, int]], sides: tuple = ((0,), (1,)), **named: object
) -> tuple[Program, Loaded]:
    """Build a program of four ranks, of which 0 makes these calls and 2 and 3 are absent."""
    builder = Builder(4)
    for call, peer in calls:
        builder.add(0, call, peer, 100 + peer, tag=5)
        if "Send" in call:
            builder.add(peer, "MPI_Recv", 0, 100 + peer, tag=5)
        elif "ecv" in call:
            builder.add(peer, "MPI_Send", 0, 100 + peer, tag=5)
    steps = builder.build()
    loaded = load(steps, sides, np.arange(len(steps)) * 1000.0)
    world = lay_out((1, 1), needs_hole(loaded), False)
    return prove_program(loaded, world, **named).program, loaded  # type: ignore[arg-type]


def test_only_calls_between_loaded_ranks_are_sampled_beside_immediate_black_holes() -> None:
    builder = Builder(3)
    for rank in range(3):
        builder.add(rank, "MPI_Irecv", (rank - 1) % 3, 50)
        builder.add(rank, "MPI_Isend", (rank + 1) % 3, 50, work_ns=500.0)
        builder.add(rank, "MPI_Waitall")
    loaded = load(builder.build(), ((0,), (1,)))
    world = lay_out((1, 1), needs_hole(loaded), False)
    program = prove_program(loaded, world).program
    sampled = [Code(int(e["code"])) for e in program.events if e["sample"] >= 0]
    assert sampled == [Code.ISEND, Code.IRECV]  # 0 -> 1; both Waitalls wait for rank 2 as well
    timed = prove_program(loaded, world, kind="timed").program
    assert (timed.events["sample"] >= 0).sum() == 6
    pairing = program.pairing
    assert pairing is not None and len(pairing.cls) == 1
    assert (pairing.sender[0], pairing.receiver[0], pairing.alone[0]) == (0, 1, 0)
    assert program.of(0)[pairing.sent[0]]["work_ns"] == 500
    assert codes(program, 1)[pairing.received[0]] == Code.WAIT


def test_collectives_run_as_such_where_all_members_are_loaded_and_agree() -> None:
    builder = Builder(4, {1: [1, 0], 2: [0, 2], 3: [0, 1]})
    for comm, members in ((1, (0, 1)), (2, (0, 2))):
        for rank in members:
            builder.add(rank, "MPI_Bcast", members[1], 64, comm=comm)
    for rank in (0, 1):
        builder.add(rank, "MPI_Allgatherv", nbytes=8 + rank, comm=3)
        builder.add(rank, "MPI_Iallreduce", nbytes=8, comm=3)
        builder.add(rank, "MPI_Wait")
    steps = builder.build()
    good = fits(steps, np.array([0, 1]))
    assert [steps.calls[c] for c in steps.call[good]] == ["MPI_Bcast", "MPI_Iallreduce"] * 2
    loaded = load(steps, ((0,), (1,)))
    result = prove_program(loaded, lay_out((1, 1), [], False))
    assert result.program.comms == ((1, 0), (0, 1))
    assert codes(result.program, 0) == [Code.COLLECTIVE, Code.COLLECTIVE_START, Code.WAIT, Code.END]
    assert result.program.of(0)["peer"][0] == 1  # the root, as a process
    assert {entry.why for entry in result.left_out} == {WHY_TEXT[SkipReason.NOT_REPLAYED]}
    assert execute(result.program, 1).collectives == 2


def test_large_messages_are_left_out_at_both_ends_and_named() -> None:
    builder = Builder(2)
    for rank in (0, 1):
        builder.add(rank, "MPI_Isend", 1 - rank, 65 << 20, work_ns=10.0)
        builder.add(rank, "MPI_Recv", 1 - rank, 65 << 20)
        builder.add(rank, "MPI_Wait", work_ns=5.0)
        builder.add(rank, "MPI_Sendrecv", 1 - rank, 8)
    loaded, world = one_node(builder.build())
    result = prove_program(loaded, world)
    assert codes(result.program, 0) == [Code.SENDRECV, Code.SECOND, Code.END]
    assert result.program.of(0)["work_ns"][0] == 15
    assert {(entry.call, entry.why) for entry in result.left_out} == {
        ("MPI_Isend", WHY_TEXT[SkipReason.TOO_LARGE]),
        ("MPI_Recv", WHY_TEXT[SkipReason.TOO_LARGE]),
    }


@pytest.mark.parametrize("nbytes", [1 << 31, (1 << 32) + 8])
def test_collectives_of_more_bytes_than_mpi_counts_are_left_out(nbytes: int) -> None:
    builder = Builder(2)
    for rank in (0, 1):
        builder.add(rank, "MPI_Allreduce", nbytes=nbytes)
        builder.add(rank, "MPI_Isend", 1 - rank, nbytes)
        builder.add(rank, "MPI_Recv", 1 - rank, nbytes)
        builder.add(rank, "MPI_Wait")
        builder.add(rank, "MPI_Allreduce", nbytes=(1 << 20))
    loaded, world = one_node(builder.build())
    result = prove_program(loaded, world)
    assert codes(result.program, 0) == [Code.COLLECTIVE, Code.END]
    assert {(entry.call, entry.why) for entry in result.left_out} == {
        (call, WHY_TEXT[SkipReason.TOO_LARGE])
        for call in ("MPI_Allreduce", "MPI_Isend", "MPI_Recv")
    }


@pytest.mark.parametrize(("nbytes", "size"), [(100, "of up to 4096 B"), (100_000, "of any size")])
def test_rings_of_blocking_sends_are_buffered_and_it_is_said(nbytes: int, size: str) -> None:
    builder = Builder(4)
    for rank in range(4):
        builder.add(rank, "MPI_Send", (rank + 1) % 4, nbytes)
        builder.add(rank, "MPI_Recv", (rank - 1) % 4, nbytes)
    loaded, world = one_node(builder.build())
    strict = check(build_program(loaded, world)[0])
    assert len(strict.stuck) == 4 and not strict.ends
    assert "SEND" in describe(strict)
    result = prove_program(loaded, world)
    assert len(result.notes) == 1 and result.notes[0].endswith(size)
    assert codes(result.program, 0) == [Code.BUFFERED, Code.RECV, Code.END]
    execute(result.program, 1, buffering="none")


def crossed() -> Builder:
    """Make two ranks that wait for each other's second message first."""
    builder = Builder(3)
    for rank in (0, 1):
        builder.add(rank, "MPI_Recv", 1 - rank, 77, tag=9)
        builder.add(rank, "MPI_Ssend", 1 - rank, 77, tag=9)
        builder.add(rank, "MPI_Sendrecv", 1 - rank, 8)
    return builder


def test_what_waits_for_ever_is_left_out() -> None:
    loaded, world = one_node(crossed().build())
    result = prove_program(loaded, world)
    (receive, send) = sorted(result.left_out, key=lambda entry: entry.call)
    assert (receive.call, send.call) == ("MPI_Recv", "MPI_Ssend")
    assert receive.why == send.why == WHY_TEXT[SkipReason.DEADLOCK]
    assert receive.events == send.events == 1.0
    assert not result.notes
    execute(result.program, 1, buffering="none")


def damaged(result: ProvenProgram, field: str, value: int, code: Code) -> Program:
    """Change one field of the first event of a kind."""
    events = result.program.events.copy()
    events[field][np.flatnonzero(events["code"] == code)[0]] = value
    return replace(result.program, events=events)


@pytest.mark.parametrize(
    ("field", "value", "code", "words"),
    [
        ("tag", 999, Code.RECV, "no other end"),
        ("bytes", 1, Code.RECV, "meets"),
        ("bytes", 1 << 20, Code.SEND, "meets"),
        ("peer", 55, Code.SEND, "no such process"),
        ("slot", 99, Code.ISEND, "slot does not exist"),
        ("bytes", 1, Code.ASK, "meets"),
    ],
)
def test_faults_of_a_program_are_seen(field: str, value: int, code: Code, words: str) -> None:
    builder = Builder(4)
    for rank in range(4):
        builder.add(rank, "MPI_Isend", (rank + 1) % 4, 64)
        builder.add(rank, "MPI_Recv", (rank - 1) % 4, 64)
        builder.add(rank, "MPI_Wait")
    for rank in (0, 1):
        builder.add(rank, "MPI_Send" if rank else "MPI_Recv", 1 - rank, 64)
    builder.members[1] = np.array([0, 1])
    for rank in (0, 1):
        builder.add(rank, "MPI_Allreduce", nbytes=8, comm=1)
    loaded = load(builder.build(), ((0, 1), ()))
    result = prove_program(loaded, lay_out((2, 0), needs_hole(loaded), False))
    assert check(result.program).ends
    verdict = check(damaged(result, field, value, code))
    assert not verdict.ends
    assert words in describe(verdict)


def test_noise_is_on_the_way_at_its_ticks_and_ends() -> None:
    for calls in ([("MPI_Recv", 2)], [("MPI_Send", 2)]):
        for what in ("trace", "timed"):
            _, loaded = outside(calls)
            world = lay_out((1, 1), needs_hole(loaded), True)
            noise = Noise(np.array([1, 0, 4]), 1000, 5e4, 2.0)
            program = prove_program(loaded, world, kind=what, noise=noise).program
            assert program.noise
            for side in (0, 1):
                mine = program.of(world.rank_of(NOISE)[side, 0])
                moved = mine[np.isin(mine["code"], (Code.ISEND, Code.IRECV))]
                assert len(moved) == 5 and set(moved["tag"].tolist()) == {TAG_NOISE}
                assert moved["at_ns"].tolist() == [0, *[100_000] * 4]
            for temper in TEMPERS:
                execute(program, 1, temper, "none")


@pytest.mark.parametrize("slots", [(1, 1), (4, 4), (3, 2), (2, 0)])
def test_micro_programs_end_and_pair_what_they_measure(slots: tuple[int, int]) -> None:
    world = lay_out(slots, [], False)
    messages = [
        MessageClass(64, 0, 1, 1.0),
        MessageClass(64, 1, 1, 1.0),
        MessageClass(70_000, 1, 4, 1.0),
        MessageClass(100 << 20, 1, 1, 1.0),
    ]
    programs = pair_programs(messages, world)
    links = link_programs(world)
    assert [program.name for program in programs] == ["one way", "calls"]
    assert classes_of(programs[0]) == ({0, 1, 2} if slots[1] else {0})
    assert len(links) == (0 if not slots[1] else 1 if slots == (1, 1) else 2)
    for program in (*programs, *links):
        for temper in TEMPERS:
            met = {
                ((a.process, a.event), (b.process, b.event))
                for a, b in execute(program, 1, temper).met
            }
        pairing = program.pairing
        assert (pairing is None) == (program.what == "link")
        for k in range(0 if pairing is None else len(pairing.cls)):
            receive = (pairing.receiver[k], pairing.posted[k])
            assert ((pairing.sender[k], pairing.sent[k]), receive) in met
        for at, kind in program.own:
            process = int(np.searchsorted(program.start, at, "right")) - 1
            assert program.events["sample"][at] >= 0 and process in world.rank_of(MEASURED).values()
            assert {
                "send": Code.SEND,
                "late": Code.SEND,
                "receive": Code.RECV,
                "wait": Code.WAIT,
            }.get(kind, int(program.events["code"][at])) == program.events["code"][at]


def disordered(seed: int, choosy: bool) -> Steps:
    """Return calls of a few ranks in an order in which they may wait for ever."""
    rng = random.Random(seed)
    n = rng.randint(2, 5)
    builder = Builder(n, {1: [0, 1]})
    calls: list[list[tuple[str, int, int, int]]] = [[] for _ in range(n)]
    for _ in range(rng.randint(2, 7)):
        a, b, nbytes, tag = (
            rng.randrange(n),
            rng.randrange(n),
            rng.choice((100, 5000)),
            rng.randint(0, 1),
        )
        calls[a].append((rng.choice(("MPI_Send", "MPI_Ssend", "MPI_Isend")), b, nbytes, tag))
        calls[b].append((rng.choice(("MPI_Recv", "MPI_Irecv")), a, nbytes, tag))
    if rng.random() < 0.3:
        for rank in (0, 1):
            calls[rank].append(("MPI_Allreduce", -1, 8, -1))
    for rank, mine in enumerate(calls):
        for _ in range(rng.randint(0, 2)):
            i = rng.randrange(max(len(mine) - 1, 1))
            mine[i : i + 2] = mine[i : i + 2][::-1]
        left: list[int] = []
        for call, peer, nbytes, tag in mine:
            step = builder.add(rank, call, peer, nbytes, tag=tag, comm=int(peer < 0))
            if call in ("MPI_Isend", "MPI_Irecv"):
                left.append(step)
            if left and rng.random() < 0.5:
                if choosy and rng.random() < 0.4:
                    builder.add(rank, "MPI_Waitany", done=left)
                elif rng.random() < 0.5:
                    builder.add(rank, "MPI_Wait", done=[left.pop()])
                else:
                    builder.add(rank, "MPI_Waitall", done=left)
                    left = []
        if left:
            builder.add(rank, "MPI_Waitall", done=left)
    return builder.build()


def ends(program: Program, seed: int, buffering: str) -> bool:
    """Execute a program; tell whether it comes to its end."""
    try:
        execute(program, seed, TEMPERS[seed % 4], buffering)
    except ScriptError as err:
        assert "deadlock" in str(err)
        return False
    return True


@pytest.mark.parametrize("choosy", [False, True])
def test_the_proof_agrees_with_the_execution_of_disordered_calls(choosy: bool) -> None:
    refused = 0
    for seed in range(60):
        steps = disordered(seed, choosy)
        loaded = load(steps, (list(range(random.Random(seed).choice((steps.n, 2)))), []))
        world = lay_out((len(loaded.steps.ranks), 0), needs_hole(loaded), False)
        program = build_program(loaded, world)[0]
        verdict = check(program)
        assert not verdict.faults and not verdict.uneven
        found = {ends(program, again, "none") for again in range(4 if choosy else 1)}
        if verdict.ends:
            assert found == {True}
        elif not choosy:
            assert found == {False}
        refused += not verdict.ends
        execute(prove_program(loaded, world).program, seed, "random", "none")
    assert 15 < refused < 55
