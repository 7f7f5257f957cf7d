"""Steps of a scaled trace: order, requests, partners, weights, and what is left out."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from dataclasses import replace
from pathlib import Path

import corpus
import numpy as np
import pytest
import timed_study as ts
from replay_patterns import Trace, halo
from steps_builder import Builder, steps_of_lists

from p3s.base.errors import P3SError
from p3s.program.generate import write_scaled
from p3s.program.order.calls import count_unmatched
from p3s.program.order.completions import count_completions, first_in_first_out
from p3s.program.order.pairs import pair
from p3s.program.order.sections import read_sections, sections_of
from p3s.program.order.unstick import _ends_simulated, ends, unstuck
from p3s.program.scaled import ScaledTrace, read_scaled
from p3s.simulate.packed import surely_end
from p3s.simulate.steps import RECEIVES, REQUESTS, SENDS, WAITS, Op, Section, Steps, of_ranks


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """Scaled traces of PROGRAMS, made once each."""
    known: dict[str, Path] = {}

    def of(name: str) -> Path:
        if name not in known:
            program, counts, n, _ = PROGRAMS[name]
            known[name] = scaled(tmp_path_factory.mktemp("study"), program, counts, n)
        return known[name]

    return of


def scaled(root: Path, program: corpus.Program, counts: tuple[int, ...], n: int) -> Path:
    """Write the scaled trace of a program of the corpus at n processes; return its directory."""
    study, _ = ts.put_study(root, program, counts, "cpu_ns")
    write_scaled(root, n)
    return study.scaled_dir(n)


def checked(trace: ScaledTrace, sections: tuple[Section, ...]) -> dict[str, float]:
    """Check what holds for all sections; return the events left out per reason."""
    weight = np.zeros(trace.rows)
    left = np.zeros(trace.rows, dtype=bool)
    why: dict[str, float] = defaultdict(float)
    for section in sections:
        s = section.steps
        check_steps(s)
        mine = s.row >= 0
        weight += np.bincount(s.row[mine], weights=s.weight[mine], minlength=trace.rows)
        second = s.row[s.op == Op.SENDRECV] + 1  # the receive half stands for as many
        weight += np.bincount(second, weights=s.weight[s.op == Op.SENDRECV], minlength=trace.rows)
        assert s.turn.min(initial=0) >= 0 and s.turn.max(initial=0) < section.turns
        for one in section.left_out:
            assert not left[one.rows].any() and one.events == trace.repeat[one.rows].sum()
            left[one.rows] = True
            why[one.why] += one.events
    np.testing.assert_allclose(weight, np.where(left, 0, trace.repeat), rtol=1e-9)
    return dict(why)


def check_work(trace: ScaledTrace, sections: tuple[Section, ...]) -> None:
    """Check that no computation is lost but what lies before MPI_Init."""
    work = sum(float((s.steps.work_ns * s.steps.weight).sum()) for s in sections)
    inside = ~trace.is_op("MPI_Init")
    assert work == pytest.approx(float((trace.work * trace.repeat)[inside].sum()), rel=0.02)


def check_steps(s: Steps) -> None:
    """Check the links between steps: partners as by hand, requests of the same rank, before."""
    sends, receives = (np.isin(s.op, [int(op) for op in ops]) for ops in (SENDS, RECEIVES))
    at = np.arange(len(s))
    linked = s.to >= 0
    assert sends[linked].all() and (s.source[s.to[linked]] == at[linked]).all()
    linked = s.source >= 0
    assert receives[linked].all() and (s.to[s.source[linked]] == at[linked]).all()
    by = np.repeat(at, np.diff(s.done_start))
    assert (s.done < by).all() and (s.rank[s.done] == s.rank[by]).all()
    assert np.isin(s.op[s.done], [int(op) for op in REQUESTS]).all()
    assert np.isin(s.op[by], [int(op) for op in WAITS]).all()
    assert (s.number[np.isin(s.op, [int(op) for op in WAITS])] > 0).all()
    alone = np.isin(s.op[by], [int(Op.WAIT)])
    assert len(np.unique(s.done[alone])) == alone.sum()


def by_hand(s: Steps) -> tuple[list[int], list[int]]:
    """Pair sends and receives one by one."""
    to, source = [-1] * len(s), [-1] * len(s)
    waiting: dict[tuple[int, ...], deque[int]] = defaultdict(deque)
    rank = s.rank.tolist()
    for i in range(len(s)):
        if s.op[i] in SENDS and s.tag[i] >= 0:
            waiting[rank[i], int(s.peer[i]), int(s.comm[i]), int(s.tag[i])].append(i)
    for i in range(len(s)):
        half = s.op[i] == Op.SENDRECV
        peer, tag = (s.peer2[i], s.tag2[i]) if half else (s.peer[i], s.tag[i])
        if s.op[i] in RECEIVES and tag >= 0:
            queue = waiting[int(peer), rank[i], int(s.comm[i]), int(tag)]
            if queue:
                source[i] = queue.popleft()
                to[source[i]] = i
    return to, source


def calls(s: Steps, rank: int) -> list[str]:
    return [s.calls[c].removeprefix("MPI_") for c in s.call[s.of(rank)].tolist()]


def test_steps_by_hand() -> None:
    b = Builder(3, {1: (2, 0)})
    for rank in range(2):
        b.add(rank, "MPI_Irecv", 1 - rank, 64)
        b.add(rank, "MPI_Isend", 1 - rank, 64, work_ns=5.0)
        b.add(rank, "MPI_Waitall")
    b.add(0, "MPI_Sendrecv", 1, 8, tag=3, peer2=2, tag2=4, bytes2=16)
    b.add(1, "MPI_Recv", 0, 8, tag=3)
    b.add(2, "MPI_Ssend", 0, 16, tag=4)
    b.add(2, "MPI_Bcast", 2, 32, comm=1)
    s = b.build()
    check_steps(s)
    assert calls(s, 0) == ["Irecv", "Isend", "Waitall", "Sendrecv"]
    assert s.done.tolist() == [0, 1, 4, 5] and s.number[2] == 2
    assert s.to.tolist() == [-1, 4, -1, 7, -1, 0, -1, -1, 3, -1]
    assert s.source[3] == 8 and s.bytes2[3] == 16 and s.work_ns[1] == 5.0
    assert s.members[1].tolist() == [2, 0] and s.peer[9] == 2 and s.tag[9] == -1
    with pytest.raises(P3SError, match="MPI_Comm_free"):
        b.add(0, "MPI_Comm_free")
    with pytest.raises(P3SError, match="step 2, which leaves"):
        b.add(0, "MPI_Wait", done=[2])


def test_any_and_some_list_what_can_be_complete() -> None:
    b = Builder(1)
    for _ in range(3):
        b.add(0, "MPI_Irecv", 0)
    b.add(0, "MPI_Isend", 0)
    first = b.add(0, "MPI_Waitany")
    b.add(0, "MPI_Waitsome", number=2)
    b.add(0, "MPI_Wait")
    s = b.build()
    lists = [s.done[s.done_start[i] : s.done_start[i + 1]].tolist() for i in range(first, len(s))]
    assert lists == [[0, 1, 2], [0, 1, 2], [3]]  # all receives, then the send
    assert s.op[first:].tolist() == [Op.WAITANY, Op.WAITSOME, Op.WAIT]
    assert s.number[first:].tolist() == [1, 2, 1]


def test_requests_of_isendrecv_and_bsend() -> None:
    s = steps_of_lists(
        2,
        {
            0: [
                ("MPI_Isendrecv", 1, 8),
                ("MPI_Isendrecv_recv", 1, 8),
                ("MPI_Ibsend", 1, 8, 2),
                ("MPI_Recv_init", 1, 8, 5),
                ("MPI_Wait", -1, 0),
                ("MPI_Wait", -1, 0),
                ("MPI_Wait", -1, 0),
            ]
        },
    )
    assert s.op.tolist() == [Op.ISEND, Op.IRECV, Op.BSEND, Op.START_RECV, *[Op.WAIT] * 3]
    assert np.diff(s.done_start).tolist() == [0, 0, 0, 0, 2, 0, 1] and s.done.tolist() == [0, 1, 3]


def test_requests_in_their_order_as_one_by_one() -> None:
    rng = random.Random(7)
    for _ in range(200):
        posts = [rng.choice((0, 0, 1)) for _ in range(rng.randrange(30))]
        wants = [0 if p else rng.choice((0, 1, 3)) for p in posts]
        waiting: deque[int] = deque()
        expected, number = [], 0
        for p, w in zip(posts, wants, strict=True):
            expected.append([waiting.popleft() for _ in range(min(w, len(waiting)))])
            waiting.extend(range(number, number + p))
            number += p
        begin, end = first_in_first_out(np.array(posts, dtype=int), np.array(wants, dtype=int))
        assert [list(range(a, b)) for a, b in zip(begin, end, strict=True)] == expected


@pytest.mark.parametrize("seed", range(5))
def test_partners_as_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    b = Builder(4, {7: (0, 1, 2, 3)})
    for _ in range(300):
        rank, peer = rng.randrange(4), rng.randrange(4)
        op = rng.choice(["MPI_Send", "MPI_Irecv", "MPI_Recv", "MPI_Sendrecv", "MPI_Isend"])
        b.add(
            rank,
            op,
            peer,
            8,
            tag=rng.choice((0, 1, 1 << 30)),
            comm=rng.choice((0, 7)),
            peer2=rng.randrange(4),
            tag2=rng.randrange(2),
        )
    s = b.build()
    to, source = pair(s)
    assert (to.tolist(), source.tolist()) == by_hand(s)


@corpus.program
def now_and_then(rec: corpus.Recorder, iters: int = 30) -> None:
    """A first turn of its own, and two that do more than the others."""
    for k in range(iters):
        rec("Isend", peer=(rec.rank + 1) % rec.n, nbytes=400)
        rec("Recv", peer=(rec.rank - 1) % rec.n, nbytes=400)
        rec("Wait", nbytes=1)
        if k == 0:
            rec("Barrier")
        if k in (11, 17):
            rec("Gather", nbytes=80, root=0)
        rec("Allreduce", nbytes=8)


@corpus.program
def pipelined(rec: corpus.Recorder, iters: int = 20) -> None:
    """A receive is posted one turn before the message is sent and completed."""
    right, left = (rec.rank + 1) % rec.n, (rec.rank - 1) % rec.n
    rec("Irecv", site="first", peer=left, nbytes=80)
    for _ in range(iters):
        rec("Send", peer=right, nbytes=80)
        rec("Wait", nbytes=1)
        rec("Irecv", peer=left, nbytes=80)
    rec("Send", site="last", peer=right, nbytes=80)
    rec("Wait", site="last wait", nbytes=1)


@corpus.program
def line(rec: corpus.Recorder, iters: int = 6) -> None:
    """Neighbours on a line, and once around; MPI_Waitall completes the sends only."""
    near = [r for r in (rec.rank - 1, rec.rank + 1) if 0 <= r < rec.n]
    last = rec.rank == rec.n - 1
    for _ in range(iters):
        for peer in near:
            rec("Irecv", peer=peer, nbytes=80)
        if last:
            rec("Irecv", peer=0, nbytes=16, site="around")
        if rec.rank == 0:
            rec("Isend", peer=rec.n - 1, nbytes=16, site="around")
        for peer in near:
            rec("Isend", peer=peer, nbytes=80)
        rec("Waitall", nbytes=len(near) + (rec.rank == 0))
        for _ in range(len(near) + last):
            rec("Wait", nbytes=1)
        rec("Allreduce", nbytes=8)


#: Program, traced counts, count, name of a section; the model of a small program is made fast.
PROGRAMS = {
    "halo": (corpus.jacobi2d(iters=9), (4, 8, 9, 16), 36, "loop 1, 3 of 9 iterations"),
    "wavefront": (corpus.wavefront(sweeps=7), (4, 9, 16, 25), 49, "3 of 7 iterations"),
    "every tenth": (corpus.every_tenth(), (4, 8, 16), 32, "3 of 5 iterations"),
    "stages": (corpus.hypercube(iters=9), (4, 8, 16), 32, "3 of 9 iterations"),
    "now and then": (now_and_then(), (4, 8, 16), 8, "4 of 30 iterations"),
    "pipelined": (pipelined(), (4, 8, 16), 6, "3 of 20 iterations"),
    "line": (line(), (4, 8, 16), 12, "3 of 6 iterations"),
}
#: These take longer to model.
SLOW = {
    "cg": (corpus.cg(outer=8, inner=2), (4, 8, 16), 32, "3 of 8 iterations"),
    "root and others": (corpus.gather_to_root(rounds=5), (4, 8, 16), 24, "3 of 5 iterations"),
}
PROGRAMS |= SLOW


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in PROGRAMS],
)
def test_weights_of_a_window_are_those_of_the_run(name: str, traces) -> None:
    where = traces(name)
    trace = read_scaled(where)
    for turns, most_steps in ((3, 4096), (2, 4096), (1, 4096), (3, 4), (10**6, 10**6)):
        sections = read_sections(where, turns=turns, most_steps=most_steps)
        why = checked(trace, sections)
        if name != "pipelined":  # there, one turn has none of the other end
            assert set(why) <= {
                "the start and the end of the program are not replayed",
                "communicators are not constructed in the replay",
            }
            check_work(trace, sections)
            for section in sections:
                s = section.steps
                assert (s.to.tolist(), s.source.tolist()) == by_hand(s)
        for section in sections:
            s = section.steps
            ends = np.isin(s.op, [int(op) for op in SENDS])
            assert (s.to[ends] >= 0).all()
            assert (
                s.bytes[ends] == np.where(s.op == Op.SENDRECV, s.bytes2, s.bytes)[s.to[ends]]
            ).all()
        if (turns, most_steps) == (3, 4096):
            window = PROGRAMS[name][3]
            assert any(window in section.name for section in sections), [s.name for s in sections]


def test_turns_and_what_they_stand_for(traces) -> None:
    loop = next(s for s in read_sections(traces("now and then")) if s.run_turns == 30)
    assert (loop.turns, loop.first_turn, loop.entries) == (4, 0, 1.0)
    s = loop.steps
    first = ["Isend", "Recv", "Wait"]
    assert calls(s, 3) == [
        *first,
        "Barrier",
        "Allreduce",
        *[*first, "Allreduce"] * 2,
        *first,
        "Gather",
        "Allreduce",
    ]
    mine = s.of(3)
    assert s.turn[mine].tolist() == [0] * 5 + [1] * 4 + [2] * 4 + [3] * 5
    # Turn 0 stands for itself, two for 27 that are alike, one for the two with a gather.
    assert s.weight[mine].tolist() == [1.0] * 5 + [13.5] * 8 + [2.0] * 5


def test_messages_across_turns(traces) -> None:
    loop = next(s for s in read_sections(traces("pipelined")) if s.run_turns == 20)
    s = loop.steps
    sends = np.flatnonzero(s.op == Op.SEND)
    # The send of turn 1 meets the receive posted in turn 0; that of turn 0 none in the window.
    assert set(s.turn[sends].tolist()) == {1, 2}
    assert (s.turn[s.to[sends]] == s.turn[sends] - 1).all()
    waits = np.flatnonzero(s.op == Op.WAIT)
    assert (s.turn[s.done] == s.turn[waits] - 1).all()
    assert s.weight[sends].tolist() == [10.0] * len(sends)


def test_calls_that_meet_only_calls_of_another_loop_stay_together(tmp_path: Path) -> None:
    def program(rec: corpus.Recorder) -> None:
        if rec.rank == 0:
            for other in range(1, rec.n):
                rec("Recv", peer=other, nbytes=16)
        else:
            rec("Send", peer=0, nbytes=16)
        for _ in range(9):
            rec("Allreduce", nbytes=8)

    where = scaled(tmp_path, program, (4, 8, 16), 24)
    why = checked(read_scaled(where), read_sections(where, turns=3))
    assert len(why) <= 1


def test_left_out_and_why(tmp_path: Path) -> None:
    trace = Trace(2)
    for rank in range(2):
        other = 1 - rank
        trace.add(rank, "MPI_Init", work=1e9)
        trace.add(rank, "MPI_Comm_free", work=50.0)
        trace.add(rank, "MPI_Probe", work=7.0)
        trace.add(rank, "MPI_Isend", other, 8, work=3.0)
        trace.add(rank, "MPI_Recv", other, 8)
        trace.add(rank, "MPI_Isend", other, 8, tag=9)
        trace.add(rank, "MPI_Waitall", nbytes=2)
        trace.add(rank, "MPI_Wait", nbytes=1)
        trace.add(rank, "MPI_Send", -1, 8, repeat=4)
        trace.add(rank, "MPI_Allreduce", nbytes=8, verdict="unknown")
        trace.add(rank, "MPI_Put")
        trace.add(rank, "MPI_Finalize", work=11.0)
    for row in trace.rows:
        row["kind"] = {"MPI_Probe": "completion", "MPI_Put": "rma", "MPI_Comm_free": "comm"}.get(
            row["op"], row["kind"]
        )
    read = read_scaled(trace.write(tmp_path))
    (section,) = sections_of(read, None)
    why = checked(read, (section,))
    assert why == {
        "the start and the end of the program are not replayed": 40.0,
        "it is not known which ranks it waits for, or it waits for none": 20.0,
        "the receive behind it does its waiting": 20.0,
        "no call of the partner in the same stretch of the program matches it": 20.0,
        "no executed request is outstanding where it completes one": 20.0,
        "its partner is not known": 8.0,
        "the model has no law for it": 20.0,
        "the replay does not know this call": 20.0,
    }
    assert count_unmatched(read, section.left_out) == {
        "events": 20.0,
        "of": 48.0,
        "calls": ["MPI_Isend"],
    }
    s = section.steps
    assert calls(s, 1) == ["Isend", "Recv", "Waitall", "REST"]
    # Nothing of the computation is lost but what lies before MPI_Init.
    assert s.work_ns[s.of(1)].tolist() == [60.0, 0.0, 0.0, 11.0]
    assert np.diff(s.done_start)[s.of(1)].tolist() == [0, 0, 1, 0]


def test_messages_without_a_known_tag_meet_by_size(tmp_path: Path) -> None:
    trace = Trace(2)
    for rank in range(2):
        other = 1 - rank
        for size in (100, 200):
            trace.add(rank, "MPI_Irecv", other, size, tag=-1)
        for size in (200, 100):
            trace.add(rank, "MPI_Send", other, size, tag=5 if size == 200 else -1)
        trace.add(rank, "MPI_Waitall", nbytes=2)
        trace.add(rank, "MPI_Send", other, 300, tag=-1)
    read = read_scaled(trace.write(tmp_path))
    (section,) = sections_of(read, None)
    why = checked(read, (section,))
    assert why == {"its tag is not known, and its partner has no call left that meets it": 20.0}
    s = section.steps
    assert s.to[s.of(0)].tolist() == [-1, -1, 6, 5, -1]
    assert (s.tag[s.to[2]] == s.tag[2]) and s.tag[2] != s.tag[3] and s.tag[2] >= 0


def test_messages_without_a_known_tag_whose_sizes_differ_meet_in_order(tmp_path: Path) -> None:
    """Sizes that are drawn for senders and receivers, each by itself, meet nowhere else."""
    trace = Trace(2)
    for tag, nbytes in ((-1, 8), (-1, 24), (7, 16), (5, 64)):
        trace.add(0, "MPI_Send", 1, nbytes, tag=tag)
    for tag, nbytes in ((-1, 10), (-1, 20), (-1, 30), (5, 64), (-1, 40)):
        trace.add(1, "MPI_Recv", 0, nbytes, tag=tag)
    read = read_scaled(trace.write(tmp_path))
    (section,) = sections_of(read, None)
    # One receive more than there are sends: nothing else is left out.
    why = checked(read, (section,))
    assert why == {"its tag is not known, and its partner has no call left that meets it": 10.0}
    s = section.steps
    sends, receives = np.flatnonzero(s.op == Op.SEND), np.flatnonzero(s.op == Op.RECV)
    assert s.to[sends].tolist() == receives.tolist()
    assert s.bytes[receives].tolist() == [10, 20, 30, 64]


def test_a_border_sends_in_one_iteration_and_receives_in_the_next(tmp_path: Path) -> None:
    """What the last rank receives is no half of what it has sent before it computed."""

    def program(rec: corpus.Recorder) -> None:
        below, above = rec.rank - 1, rec.rank + 1 if rec.rank + 1 < rec.n else -1
        for _ in range(6):
            work = 1e6 / rec.n
            for site, to, source in (("up", above, below), ("down", below, above)):
                if to >= 0:
                    rec("Sendrecv", site, peer=to, nbytes=8, work=work)
                if source >= 0:
                    rec("Sendrecv_recv", site, peer=source, nbytes=8, work=0 if to >= 0 else work)
                work = 0

    sections = read_sections(scaled(tmp_path, program, (2, 4, 6), 8))
    (section,) = [each for each in sections if 1 in each.phases]
    steps = section.steps
    last = slice(*steps.start[-2:])
    receives, sends = (np.flatnonzero(steps.op[last] == op) for op in (Op.RECV, Op.SEND))
    assert len(sends) == len(receives) >= 3 and Op.SENDRECV not in steps.op[last]
    assert np.all(steps.work_ns[last][receives] > 1e4) and np.all(steps.work_ns[last][sends] < 1e4)
    assert Op.SENDRECV in steps.op, "of ranks with two neighbours"


def test_some_ranks(tmp_path: Path) -> None:
    trace = read_scaled(halo(12).write(tmp_path))
    (whole,) = sections_of(trace, None)
    (some,) = sections_of(trace, None, ranks=np.array([5, 6]))
    s = some.steps
    check_steps(s)
    assert s.ranks.tolist() == [5, 6] and calls(s, 5) == calls(whole.steps, 5)
    assert len(of_ranks(whole.steps, np.array([5, 6]))) == len(s)
    inside = np.isin(s.peer, [5, 6]) & np.isin(s.op, [int(op) for op in SENDS])
    assert (s.to[inside] >= 0).all() and (s.to[~inside] < 0).all()


def test_average_numbers_of_requests_give_way_to_what_is_outstanding() -> None:
    # 3 receives and 3 sends; a call for "5" of them on average, three that complete one each.
    posts = np.array([1, 1, 1, 1, 1, 1, 0, 0, 0, 0] * 2)
    wants = np.array([0, 0, 0, 0, 0, 0, 5, 1, 1, 1] * 2)
    many = np.array([0, 0, 0, 0, 0, 0, 1, 0, 0, 0] * 2)
    assert count_completions(posts, wants, many).tolist() == [0] * 6 + [3, 1, 1, 1] + [0] * 6 + [
        3,
        1,
        1,
        1,
    ]
    # Two calls in a row share as their averages say.
    assert count_completions(
        np.array([1, 1, 1, 1, 1, 1, 0, 0]), np.array([0] * 6 + [8, 4]), np.array([0] * 6 + [1, 1])
    ).tolist() == [0] * 6 + [4, 2]
    # Averages that fit are kept, also where they leave requests for the next turn.
    fits = np.array([0, 0, 1, 0, 2])
    assert (
        count_completions(np.array([1, 1, 0, 1, 0]), fits, np.array([0, 0, 1, 0, 1])).tolist()
        == fits.tolist()
    )


def test_who_completes_sends_is_seen_at_the_border(traces) -> None:
    s = next(s for s in read_sections(traces("line")) if s.run_turns == 6).steps
    for i in np.flatnonzero(s.op == Op.WAIT).tolist():
        ops = s.op[s.done[s.done_start[i] : s.done_start[i + 1]]]
        expected = Op.ISEND if s.calls[s.call[i]] == "MPI_Waitall" else Op.IRECV
        assert (ops == expected).all() and len(ops)


def test_a_collective_that_not_all_call_is_left_out(tmp_path: Path) -> None:
    trace = Trace(3)
    for rank in range(3):
        trace.add(rank, "MPI_Allreduce", nbytes=8)
        if rank != 1:
            trace.add(rank, "MPI_Allreduce", nbytes=16)
    read = read_scaled(trace.write(tmp_path))
    (section,) = sections_of(read, None)
    assert section.steps.bytes.tolist() == [8] * 3 and section.entries == 10
    assert list(checked(read, (section,)).values()) == [20.0]


def test_sends_that_everybody_waits_for_are_moved_ahead() -> None:
    b = Builder(4)
    b.add(0, "MPI_Irecv", 1, 8, tag=3)
    b.add(0, "MPI_Wait")
    b.add(0, "MPI_Isend", 1, 8, tag=2, work_ns=4.0)
    b.add(0, "MPI_Wait")
    b.add(1, "MPI_Recv", 0, 8, tag=2)
    b.add(1, "MPI_Send", 0, 8, tag=3)
    for rank in range(4):
        b.add(rank, "MPI_Barrier")
    b.add(2, "MPI_Recv", 3, 8)
    b.add(3, "MPI_Send", 2, 8)
    steps = b.build()
    assert not ends(steps)
    moved, number = unstuck(steps)
    assert number == 1 and ends(moved)
    check_steps(moved)
    # Whose send is moved is open: either opens the circle.
    assert sorted(calls(moved, 0) + calls(moved, 1)) == sorted(calls(steps, 0) + calls(steps, 1))
    assert (moved.to.tolist(), moved.source.tolist()) == by_hand(moved)
    assert moved.work_ns.sum() == 4.0
    again, none = unstuck(moved)
    assert none == 0 and again is moved


_CALLS = (
    "MPI_Send MPI_Isend MPI_Bsend MPI_Recv MPI_Recv MPI_Irecv MPI_Irecv MPI_Sendrecv MPI_Wait "
    "MPI_Waitall MPI_Allreduce MPI_Bcast MPI_Reduce MPI_Scan MPI_Ibarrier REST"
).split()


def any_steps(seed: int, calls: list[str]) -> Steps:
    """Return what some ranks do; most wait for each other for ever, many do not."""
    rng = random.Random(seed)
    n = rng.randint(1, 4)
    b = Builder(n, ranks=range(rng.randint(max(1, n - 1), n)))
    for _ in range(rng.randint(1, 10)):
        call, rank = rng.choice(calls), rng.choice(b.ranks)
        peer = rng.randrange(n)
        if call in ("MPI_Allreduce", "MPI_Bcast", "MPI_Reduce", "MPI_Scan", "MPI_Ibarrier"):
            root = peer if call in ("MPI_Bcast", "MPI_Reduce") else -1
            for each in b.ranks if rng.random() < 0.9 else [rank]:
                b.add(each, call, root)
        elif call in ("MPI_Wait", "MPI_Waitall", "MPI_Waitany", "REST"):
            b.add(rank, call)
        elif call == "MPI_Sendrecv":
            b.add(rank, call, peer, 8, peer2=rng.randrange(n), bytes2=8)
        else:
            b.add(rank, call, peer, 8)
            other = "MPI_Irecv" if call == "MPI_Send" else "MPI_Recv"
            if "end" in call and peer in b.ranks and rng.random() < 0.8:
                b.add(peer, other, rank, 8)
    return b.build()


def test_whether_ranks_come_to_their_ends_is_told_without_a_simulation() -> None:
    told = {True: 0, False: 0}
    for seed in range(600):
        steps = any_steps(seed, _CALLS)
        said, true = surely_end(steps), _ends_simulated(steps)
        told[said] += 1
        # A broadcast that a member never calls ends for those who have heard from its root.
        rooted = any(name in ("MPI_Bcast", "MPI_Reduce", "MPI_Scan") for name in steps.calls)
        assert said == true or (true and rooted), seed
    assert min(told.values()) > 100
    other = [*_CALLS, "MPI_Ssend", "MPI_Issend", "MPI_Waitany"]
    for seed in range(300):
        steps = any_steps(seed, other)
        assert _ends_simulated(steps) or not surely_end(steps), seed
        assert ends(steps) == _ends_simulated(steps), seed


def test_steps_that_refer_to_what_is_not_there_do_not_surely_end() -> None:
    b = Builder(2)
    b.add(0, "MPI_Send", 1, 8)
    b.add(1, "MPI_Recv", 0, 8)
    steps = b.build()
    assert surely_end(steps)
    for name, value in (("to", 0), ("source", 1), ("bytes", -1), ("work_ns", np.nan), ("op", 99)):
        column = getattr(steps, name).copy()
        column[:] = value
        assert not surely_end(replace(steps, **{name: column})), name


def test_what_cannot_be_mended_stays_as_it_is() -> None:
    b = Builder(2)
    b.add(0, "MPI_Barrier")
    b.add(0, "MPI_Sendrecv", 1, 8)
    b.add(1, "MPI_Sendrecv", 0, 8)
    b.add(1, "MPI_Barrier")
    steps = b.build()
    assert unstuck(steps) == (steps, 0)
