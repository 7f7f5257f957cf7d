"""What the model does not know, and that it says so: open rules, odd loops, growing programs."""

from __future__ import annotations

import zlib
from dataclasses import replace
from types import SimpleNamespace

import corpus
import numpy as np
import pytest
from corpus import drawn

from p3s.base.errors import P3SError
from p3s.capture.callpath import FrameInfo
from p3s.laws.expr import num
from p3s.model.compare import compare
from p3s.model.evaluate import generate
from p3s.model.fit import fit_model
from p3s.model.fit import text as growth_text
from p3s.model.grid import admissible
from p3s.model.holdout import build_model
from p3s.model.tripcounts import refusal_text
from p3s.model.verdicts import judged_at
from p3s.predict.doubts import judge_holdout
from p3s.report.equations import render
from p3s.signature.tables import point_table


@corpus.program
def ring_of(rec, turns, elapsed=500):
    """A ring whose loop turns turns(n) times, one turn costing elapsed / turns."""
    for _ in range(turns(rec.n)):
        rec.exchange("Sendrecv", (rec.rank + 1) % rec.n, (rec.rank - 1) % rec.n, 80)
        rec("Allreduce", nbytes=8)


@corpus.program
def padded(rec, elements=1000):
    """A ring whose blocks are rounded up: even on 2, 4 and 8 ranks."""
    for _ in range(3):
        size = 8 * -(-elements // rec.n)
        rec.exchange("Sendrecv", (rec.rank + 1) % rec.n, (rec.rank - 1) % rec.n, size)


def test_what_the_smaller_counts_leave_open_is_settled_by_the_largest_not_missed():
    model = build_model([corpus.table(padded(), n) for n in (2, 4, 8, 16)])
    there = model.holdout.comparison
    assert 2 * there.p2p_triples.equal == there.p2p_triples.true
    assert all(call.open for call in there.slots if call.true_bytes)
    assert judge_holdout(model.holdout) == []
    assert {item.verdict for item in judged_at(model, 64).items} == {"exact"}
    sure = replace(there, slots=tuple(replace(call, open=False) for call in there.slots))
    assert [each.code for each in judge_holdout(replace(model.holdout, comparison=sure))] == [
        "holdout-missed"
    ]


def wrong_exact(seed, make=drawn.make):
    """Return how many items of a made-up program are exact at larger counts, and how many wrong."""
    program, counts, targets, typed, _ = make(seed)
    model = build_model([corpus.table(program, n) for n in counts], typed=typed)
    total = wrong = 0
    for n in targets:
        try:
            there = judged_at(model, n)
            found = compare(model, corpus.table(program, n))
        except P3SError:
            continue
        exact = {i for i, item in enumerate(there.items) if item.verdict == "exact"}
        total += len(exact)
        wrong += len(exact & set(found.items_wrong))
    return total, wrong


@pytest.mark.parametrize(
    "seed",
    [8, 114, 9107, *(pytest.param(s, marks=pytest.mark.slow) for s in (5, 15, 30, 199, 203, 7001))],
)
def test_what_is_called_exact_is_right(seed):
    assert wrong_exact(seed)[1] == 0


@pytest.mark.parametrize(
    "seed", [3, 11, *(pytest.param(s, marks=pytest.mark.slow) for s in (30, 37, 39, 42, 55))]
)
def test_what_is_called_exact_of_a_domain_is_right(seed):
    assert wrong_exact(seed, drawn.make_domain)[1] == 0


@pytest.mark.slow
def test_what_is_called_exact_is_right_over_hundreds_of_programs():
    found = [wrong_exact(seed) for seed in range(160)]
    found += [wrong_exact(seed, drawn.make_domain) for seed in range(115)]
    total, wrong = (sum(x) for x in zip(*found, strict=True))
    assert total > 3000 and wrong <= 0.001 * total, (total, wrong)


def test_an_even_division_is_not_exact():
    """608 steps over 4, 8 and 16 ranks: 608/n, or 608//n as the program has it?"""
    model = build_model([corpus.table(corpus.shares_of_steps(608), n) for n in (2, 4, 8, 16)])
    item = next(i for i in model.items if i.kind == "collective")
    right = not compare(model, corpus.table(corpus.shares_of_steps(608), 48)).items_wrong
    assert right or item.verdict != "exact"


def test_a_loop_that_converges_is_refused_a_law():
    turns = {4: 61, 8: 47, 12: 66, 16: 58}
    model = build_model([corpus.table(ring_of(turns.get), n) for n in turns])
    (phase,) = [p for p in model.phases if p.trips]
    assert phase.trips.kind == "data" and "61, 47, 66, 58" in refusal_text(phase)
    assert phase.weight_verdict == "statistical"


def repeated(program_a, program_b, n):
    runs = [corpus.run(program_a, n), corpus.run(program_b, n)]
    return point_table(runs)


def test_turns_that_differ_between_repeats_are_refused_a_law():
    tables = [repeated(ring_of(lambda n: 20), ring_of(lambda n: 23), n) for n in (4, 8, 16)]
    model = build_model(tables)
    (phase,) = [p for p in model.phases if p.trips]
    assert phase.trips.kind == "repeats" and phase.weight.stat is not None
    assert all(
        i.verdict == "statistical" for i in model.items if i.phase == phase.phase and i.relation
    )


def test_sizes_that_differ_between_repeats_do_not_make_turns_uncertain():
    def program(salt):
        def one(rec):
            for _ in range(20):
                rec("Allreduce", nbytes=8)
                size = 800 + 8 * (zlib.crc32(repr((salt, rec.n, rec.rank)).encode()) % 9)
                rec("Isend", peer=(rec.rank + 1) % rec.n, nbytes=size)

        return one

    model = build_model([repeated(program(1), program(2), n) for n in (4, 8, 16)], typed={20})
    assert not any(p.trips for p in model.phases)
    send = next(i for i in model.items if i.kind == "send")
    assert send.slots[0].count.expr == num(20)


def test_a_loop_that_ends_when_time_is_over_is_told_from_one_that_converges():
    turns = {4: 120, 8: 205, 12: 288, 16: 330}

    def timed(n):
        run = corpus.run(ring_of(turns.get), n)
        for rank in run.ranks:
            rank.elapsed_ns = np.full(len(rank.elapsed_ns), 10**9 // turns[n])
            rank.work = np.zeros(len(rank.work), dtype=np.int64)
        return point_table([run])

    model = build_model([timed(n) for n in turns])
    (phase,) = [p for p in model.phases if p.trips]
    assert phase.trips.kind == "time" and "when a time is over" in refusal_text(phase)


def test_stated_turns_are_taken_and_the_rest_is_fitted_to_one_turn():
    turns = {4: 61, 8: 47, 12: 66, 16: 58}

    def program(rec):
        for _ in range(turns.get(rec.n, 250)):
            for _ in range(3):
                rec.exchange("Sendrecv", (rec.rank + 1) % rec.n, (rec.rank - 1) % rec.n, 80)
            rec("Allreduce", nbytes=8)

    tables = [corpus.table(program, n) for n in turns]
    loose = build_model(tables)
    assert any(p.trips for p in loose.phases)
    model = build_model(tables, trips={"Allreduce": 250})
    assert {p.weight_verdict for p in model.phases} == {"exact", "stated"} or "fitted" in {
        p.weight_verdict for p in model.phases
    }
    result = compare(model, corpus.table(program, 64))
    assert result.p2p_triples.equal == result.p2p_triples.true == result.p2p_triples.predicted
    assert result.collectives.equal == result.collectives.true
    assert result.weights.exact == result.weights.phases
    assert all(i.verdict == "exact" for i in model.items if i.relation)
    assert result.order.equal == result.order.ranks
    held = model.holdout.comparison.p2p_triples
    assert held.equal == held.true
    with pytest.raises(P3SError, match="no loop has a call"):
        build_model(tables, trips={"nowhere": 3})
    with pytest.raises(P3SError, match="no such phase"):
        build_model(tables, trips={"99": 3})


def test_calls_that_come_with_larger_counts_are_named_and_bounded():
    def program(rec):
        for _ in range(10):
            rec("Allreduce", nbytes=8)
        if rec.n >= 8 and rec.rank * 7 % 5 == 1:
            rec("Send", site="late8", peer=0, nbytes=80)
        if rec.n >= 16 and rec.rank * 3 % 7 == 2:
            rec("Send", site="late16", peer=0, nbytes=80)

    model = build_model([corpus.table(program, n) for n in (2, 4, 8, 16)])
    found = model.growth
    assert found.still and [s.calls for s in found.steps] == [0, 1, 1]
    assert 0 < found.bound.events < 0.1
    assert any("late16" in line for line in growth_text(found))
    (frame,) = {x.frame for x in found.steps[-1].named}
    where = FrameInfo(frame, "app", "late", "exchange.c", 16)
    assert "(MPI_Send at late exchange.c:16)" in " ".join(render(model, {frame: where}).split())
    assert growth_text(found)[-1].startswith("the set of calls still grows")
    still = build_model([corpus.table(corpus.ring(), n) for n in (2, 4, 8)]).growth
    assert not still.still and not growth_text(still)


def test_counts_are_learned_from_what_ran_and_what_failed():
    squares = admissible.learn([4, 9, 16], [6, 8])
    assert squares.kind == "squares" and squares.sure
    assert admissible.admits(squares, 64) and not admissible.admits(squares, 32)
    assert admissible.doubt(squares, 36) is None
    assert "squares only" in admissible.doubt(squares, 32)
    assert "failed at 8" in admissible.doubt(squares, 8)
    chosen = admissible.learn([4, 8, 16], [])  # nothing failed: the user chose them
    assert chosen.kind == "any" and admissible.doubt(chosen, 12) is None
    powers = admissible.learn([4, 8, 16], [6, 12])
    assert powers.kind == "powers" and powers.sure
    assert "powers of two only" in admissible.doubt(powers, 24)
    assert admissible.learn([4, 6, 12, 16], [9, 15]).kind == "multiples"
    assert admissible.doubt(admissible.learn([2, 3, 4, 6]), 5) is None
    assert admissible.doubt(None, 5) is None


def test_the_next_count_settles_most_and_says_what():
    model = build_model([corpus.table(corpus.halo3d(), n) for n in (2, 4, 8)])
    first = model.next[0]
    assert min(first.dims) > 2 and all(0 < d.share <= 1 for d in first.decides)
    assert "direction" in first.why
    cut = build_model([corpus.table(corpus.halo3d(tags=False), n) for n in (8, 12, 18, 27)])
    assert not any("direction" in each.why for each in cut.next)


def test_hold_out_is_reported_per_call():
    def program(rec):
        rec("Bcast", nbytes=8, root=0)
        rec("Allreduce", nbytes=8 if rec.n < 16 else 16)

    model = build_model([corpus.table(program, n) for n in (4, 8, 16)])
    by_op = {i.op: i.holdout for i in model.items if i.holdout}
    assert by_op["MPI_Bcast"].equal == by_op["MPI_Bcast"].true == 16
    assert by_op["MPI_Allreduce"].equal == 0 and by_op["MPI_Allreduce"].true == 16


def test_work_units_are_kept_where_times_tell_nothing():
    """Under emulation no loop is taken for one that time ends."""
    turns = {4: 120, 8: 205, 12: 288, 16: 330}
    tables = []
    for n in turns:
        run = corpus.run(ring_of(turns.get), n)
        tables.append(point_table([SimpleNamespace(**{**vars(run), "work_unit": "instructions"})]))
    kinds = {p.trips.kind for p in fit_model(tables).phases if p.trips}
    assert kinds == {"data"}


def partitioned(points=20000, turns=2, seed=0):
    """A halo exchange on random points cut by recursive bisection, as tests/programs/partition.c"""
    rng = np.random.default_rng(seed)
    x = rng.random((points, 2))
    wide = int((points / 2.5) ** 0.5)
    cell = np.floor(x * wide).astype(int)
    order = np.lexsort((cell[:, 1], cell[:, 0]))
    key = cell[order, 0] * wide + cell[order, 1]
    near = []
    for dx in (-1, 0, 1):
        for dy in (-1, 0, 1):
            there = (cell[:, 0] + dx) * wide + cell[:, 1] + dy
            inside = (
                (cell[:, 0] + dx >= 0)
                & (cell[:, 0] + dx < wide)
                & (cell[:, 1] + dy >= 0)
                & (cell[:, 1] + dy < wide)
            )
            low, high = np.searchsorted(key, there), np.searchsorted(key, there, "right")
            for k in range(int((high - low).max())):
                has = inside & (low + k < high)
                pair = np.stack([np.flatnonzero(has), order[(low + k)[has]]], axis=1)
                far = ((x[pair[:, 0]] - x[pair[:, 1]]) ** 2).sum(axis=1)
                near.append(pair[far <= 1.0 / wide**2])
    pairs = np.concatenate(near)
    halos = {}

    def halo(n):
        part = np.zeros(points, dtype=int)

        def bisect(mine, first, parts):
            if parts == 1:
                part[mine] = first
                return
            axis = int(np.ptp(x[mine, 1]) > 1.0001 * np.ptp(x[mine, 0]))
            mine = mine[np.argsort(x[mine, axis], kind="stable")]
            cut = len(mine) * (parts // 2) // parts
            bisect(mine[:cut], first, parts // 2)
            bisect(mine[cut:], first + parts // 2, parts - parts // 2)

        bisect(np.arange(points), 0, n)
        sent = np.unique(np.stack([pairs[:, 0], part[pairs[:, 1]]], axis=1), axis=0)
        sent = np.stack([part[sent[:, 0]], sent[:, 1]], axis=1)
        edge, size = np.unique(sent[sent[:, 0] != sent[:, 1]], axis=0, return_counts=True)
        return {(int(a), int(b)): int(s) for (a, b), s in zip(edge, size, strict=True)}

    def program(rec):
        sizes = halos.setdefault(rec.n, None) or halo(rec.n)
        halos[rec.n] = sizes
        for _ in range(turns):
            for q in range(rec.n):
                if (q, rec.rank) in sizes:
                    rec("Irecv", peer=q, nbytes=8 * sizes[q, rec.rank])
            for q in range(rec.n):
                if (rec.rank, q) in sizes:
                    rec("Isend", peer=q, nbytes=8 * sizes[rec.rank, q])
            rec("Waitall")
            rec("Allreduce", nbytes=8)

    return program


def test_irregular_neighbourhoods_are_sampled_with_the_right_totals():
    program = partitioned()
    model = build_model([corpus.table(program, n) for n in (4, 8, 16)])
    sends, recvs = ([i for i in model.items if i.kind == kind] for kind in ("send", "recv"))
    assert len(sends) == len(recvs) == 1
    assert sends[0].relation.kind == recvs[0].relation.kind == "sample"
    assert sends[0].verdict == recvs[0].verdict == "statistical"
    for n in (32, 64):
        result = compare(model, corpus.table(program, n))
        (sent,) = [s for s in result.slots if s.op == "MPI_Isend"]
        assert abs(sent.predicted / sent.true - 1) < 0.05
        assert abs(sent.predicted_bytes / sent.true_bytes - 1) < 0.05
        assert result.collectives.equal == result.collectives.true
    rows = generate(model, 48)
    kind = np.array([i.kind for i in model.items])[rows.item]
    sent = sorted(
        zip(
            rows.rank[kind == "send"].tolist(),
            rows.peer[kind == "send"].tolist(),
            rows.nbytes[kind == "send"].tolist(),
            strict=True,
        )
    )
    got = sorted(
        zip(
            rows.peer[kind == "recv"].tolist(),
            rows.rank[kind == "recv"].tolist(),
            rows.nbytes[kind == "recv"].tolist(),
            strict=True,
        )
    )
    assert sent == got and len(set(sent)) == len(sent)  # what is sent is received, size and all
    degree = np.bincount([a for a, _, _ in sent], minlength=48)
    assert degree.min() >= 1 and degree.max() <= 16
    again = generate(model, 48)
    assert np.array_equal(again.peer, rows.peer) and np.array_equal(again.nbytes, rows.nbytes)


def test_partners_without_a_rule_that_are_one_per_rank_are_no_neighbourhood():
    def program(rec):
        partner = (rec.rank * 7 + rec.n * rec.rank * rec.rank + 3) % rec.n
        for _ in range(4):
            rec("Isend", peer=partner, nbytes=8 * (1 + rec.rank * rec.rank % 5))
            rec("Waitall", nbytes=1)

    model = build_model([corpus.table(program, n) for n in (5, 7, 11, 13)], holdout=False)
    assert not any(i.relation and i.relation.kind == "sample" for i in model.items)


@corpus.program
def slabs(rec, rows=32, columns=40):
    """A transposition of slabs: own rows times the columns of the partner."""
    for _ in range(3):
        for q in (q for q in range(rec.n) if q != rec.rank):
            size, other = (
                corpus.block(rows, rec.n, a) * corpus.block(columns, rec.n, b)
                for a, b in ((rec.rank, q), (q, rec.rank))
            )
            rec.exchange("Sendrecv", q, q, 16 * size, received=16 * other)


@corpus.program
def lengths(rec, own=(7104, 6992, 7168, 7148)):
    """Four ranks send a length of their own to the next one, the same at every count."""
    if rec.rank < len(own):
        rec("Send", peer=len(own), nbytes=8 * own[rec.rank])
    elif rec.rank == len(own):
        for q, size in enumerate(own):
            rec("Recv", peer=q, nbytes=8 * size)
    rec("Allreduce", nbytes=8)


@pytest.mark.parametrize(
    ("program", "counts", "n"),
    [(slabs(), (2, 3, 4, 6), 12), (lengths(), (6, 8, 12), 15)],
    ids=["slabs", "lengths"],
)
def test_sizes_of_transposed_blocks_and_of_single_ranks(program, counts, n):
    model = build_model([corpus.table(program, m) for m in counts], holdout=False)
    assert compare(model, corpus.table(program, n)).p2p_triples.all_equal


@corpus.program
def rows(rec, words=48, wrap=False):
    """Neighbours of a row exchange messages as long as an extent, around a ring or to its ends."""
    for _ in range(3):
        for step in (1, -1):
            there = rec.rank + step, rec.rank - step
            to, source = (q % rec.n if wrap or 0 <= q < rec.n else None for q in there)
            if source is not None:
                rec("Irecv", peer=source, nbytes=8 * words)
            if to is not None:
                rec("Isend", peer=to, nbytes=8 * words)
        rec("Allreduce", nbytes=80)


def test_neighbours_are_open_where_blocks_are_thinner_than_what_they_send():
    """A domain that is as wide as it is long has no more blocks than that; a ring may be longer."""
    for wrap in (False, True):
        tables = [corpus.table(rows(wrap=wrap), n) for n in (4, 6, 8, 12)]
        model = build_model(tables, typed={48})
        for n in (32, 64):
            there = {i.verdict for i in judged_at(model, n).items if i.relation is not None}
            assert there == ({"ambiguous"} if n > 48 and not wrap else {"exact"})
        beyond = [each for each in model.next if "further away" in each.why]
        assert [each.n for each in beyond] == ([] if wrap else [64])
