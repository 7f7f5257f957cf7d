"""Models trained on small counts against the truth at large ones, without MPI."""

from __future__ import annotations

import json

import corpus
import pytest
from corpus.cases import FIRST, GRIDS, QUICK, listed

from p3s.model.compare import compare
from p3s.model.comparison import Overlap
from p3s.model.evaluate import generate
from p3s.model.holdout import build_model
from p3s.model.stage import as_file
from p3s.predict.doubts import of_validation
from p3s.report.equations import render

#: Those that take long; of the programs on grids all but the quick ones do.
SLOW = {"size/multipartition-extents"} | {f"grid/{name}" for name, *_ in GRIDS if name not in QUICK}


@pytest.mark.parametrize(
    ("program", "counts", "targets"), [c[1:] for c in FIRST], ids=[c[0] for c in FIRST]
)
def test_all_of_a_program_is_exact_at_large_counts(program, counts, targets):
    model = build_model([corpus.table(program, n) for n in counts])
    assert render(model)
    for n in targets:
        result = compare(model, corpus.table(program, n))
        for got in (result.p2p_triples, result.collectives):
            assert got.all_equal, (n, got)
        assert result.weights.exact == result.weights.phases, result.weights
        assert result.unmodelled.events == 0
        assert not result.items_wrong


@pytest.mark.parametrize(
    ("program", "counts", "targets"),
    [
        pytest.param(
            program,
            counts,
            (*(counts if part == "neighbour" else ()), *targets[: 2 if name in QUICK else None]),
            id=f"{part}/{name}",
            marks=pytest.mark.slow if f"{part}/{name}" in SLOW else (),
        )
        for part in ("grid", "size", "neighbour")
        for name, program, counts, targets in listed()[part]
    ],
)
def test_messages_and_collectives_are_exact_at_large_counts(program, counts, targets):
    model = build_model([corpus.table(program, n) for n in counts], holdout=False)
    for n in targets:
        result = compare(model, corpus.table(program, n))
        for got in (result.p2p_triples, result.collectives):
            assert got.all_equal, (n, got)
        assert result.unmodelled.events == 0
        # where a dimension never had more than two ranks, the direction is open and said to be
        wrong = [model.items[i] for i in result.items_wrong]
        assert all(i.verdict == "ambiguous" for i in wrong), (n, [i.site for i in wrong])


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(QUICK))
def test_quick_programs_are_exact_at_all_counts(name):
    ((_, program, counts, targets),) = [case for case in GRIDS if case[0] == name]
    model = build_model([corpus.table(program, n) for n in counts], holdout=False)
    for n in targets[2:]:
        result = compare(model, corpus.table(program, n))
        assert result.p2p_triples.all_equal and result.collectives.all_equal, n


def checkpoint(record):
    for _ in range(4):
        record("Allreduce", nbytes=8)
        record("File_write_at_all", nbytes=4096)
        record("File_write_at", "Header", nbytes=64)


def test_calls_on_files_are_no_collectives():
    model = build_model([corpus.table(checkpoint, n) for n in (2, 4, 8)])
    found = compare(model, corpus.table(checkpoint, 16))
    assert found.collectives == Overlap(64, 64, 64) and found.files == Overlap(128, 128, 128)
    assert [noun for noun, _ in found.told] == ["message", "collective", "file call"]
    assert "file calls: 64 of 64 equal" in render(model)

    def changed(record):
        checkpoint(record)
        record("File_write_at", "Header", nbytes=64)

    found = compare(model, corpus.table(changed, 16))
    assert found.files == Overlap(144, 128, 128) and not found.all_equal
    assert found.collectives.all_equal
    told = of_validation(found)
    assert [r.code for r in told] == ["validate-missed"] and "16 of 144 file calls" in told[0].text


def test_weights_are_those_of_the_source():
    tables = [corpus.table(corpus.cg(outer=3, inner=5), n) for n in (2, 4, 8, 16)]
    model = build_model(tables, holdout=False)
    weights = {p.name: p.weight_points[-1][1] for p in model.phases}
    assert sorted(weights.values()) == [1, 3, 15]


def test_directions_stay_ambiguous_with_two_ranks_per_dimension():
    model = build_model([corpus.table(corpus.halo3d(), n) for n in (2, 4, 8)])
    p2p = [i for i in model.items if i.relation]
    assert p2p and {i.verdict for i in p2p} == {"ambiguous"}
    assert min(model.next[0].dims) > 2
    assert model.shares["ambiguous"].bytes > 0.9


def test_a_program_that_changes_its_rule_is_caught_by_the_hold_out():
    def program(rec):
        for _ in range(5 if rec.n < 16 else 9):
            rec.exchange("Sendrecv", (rec.rank + 1) % rec.n, (rec.rank - 1) % rec.n, 80)

    model = build_model([corpus.table(program, n) for n in (4, 8, 16)])
    held = model.holdout.comparison.p2p_triples
    assert held.equal < held.true
    assert not any(i.verdict == "exact" for i in model.items if i.relation)


def test_events_without_a_rule_count_against_the_model():
    def program(rec):
        partner = (rec.rank * 7 + rec.n * rec.rank * rec.rank + 3) % rec.n
        for _ in range(4):
            rec("Isend", peer=partner, nbytes=8 * (1 + rec.rank * rec.rank % 5))
            rec("Waitall", nbytes=1)

    model = build_model([corpus.table(program, n) for n in (5, 7, 11, 13)])
    result = compare(model, corpus.table(program, 29))
    assert result.p2p_triples.equal < result.p2p_triples.true
    assert model.shares["exact"].events < 1.0


def _text(model):
    return json.dumps(as_file(model))


def test_same_tables_give_the_same_model():
    tables = [corpus.table(corpus.jacobi2d(iters=4), n) for n in (2, 4, 8)]
    assert _text(build_model(tables)) == _text(build_model(tables[::-1]))


def test_an_undecided_way_of_cutting_is_not_exact():
    """1007 cut into 2, 4, 8 and 16 blocks: remainder to the first, or ceil with a short last."""

    def program(rec):
        size = -(-1007 // rec.n)
        mine = min(1007, (rec.rank + 1) * size) - min(1007, rec.rank * size)
        rec("Sendrecv", peer=(rec.rank + 1) % rec.n, nbytes=8 * mine)

    model = build_model([corpus.table(program, n) for n in (2, 4, 8, 16)])
    sent = next(i for i in model.items if i.kind == "send")
    right = not compare(model, corpus.table(program, 64)).items_wrong
    assert right or sent.verdict == "ambiguous"
    assert sent.verdict == "ambiguous" and model.next


def test_a_mean_that_rounds_right_is_not_exact():
    """Turns without a rule: the hold-out may hit by chance, and that shows nothing."""
    turns = {4: 49, 6: 33, 8: 25, 12: 17, 16: 12}

    def program(rec):
        for _ in range(turns[rec.n]):
            rec("Allreduce", nbytes=8)

    model = build_model([corpus.table(program, n) for n in turns])
    item = next(i for i in model.items if i.kind == "collective")
    assert item.verdict != "exact"
    assert model.phases[item.phase].weight_verdict != "exact"


def test_a_moving_root_follows_the_turn():
    def program(rec):
        for t in range(6):
            rec("Bcast", nbytes=80 * (t + 1), root=t % rec.n)

    model = build_model([corpus.table(program, n) for n in (2, 4, 6)])
    assert {i.verdict for i in model.items if i.kind == "collective"} == {"exact"}
    rows = generate(model, 4)
    mine = (rows.rank == 2) & (rows.root >= 0)
    assert rows.root[mine].tolist() == [0, 1, 2, 3, 0, 1]
    assert rows.nbytes[mine].tolist() == [80, 160, 240, 320, 400, 480]


def test_a_root_without_a_rule_is_not_exact():
    def program(rec):
        for t in range(6):
            rec("Bcast", nbytes=80, root=(t * t * 7 + t // 2) % rec.n)

    model = build_model([corpus.table(program, n) for n in (3, 5, 7)])
    assert {i.verdict for i in model.items if i.kind == "collective"} == {"statistical"}


def test_operations_that_are_not_modelled_are_unknown():
    from types import SimpleNamespace

    from p3s.signature.tables import point_table

    def program(rec):
        rec("Put", peer=0, nbytes=800)
        rec("Allreduce", nbytes=8)

    tables = []
    for n in (2, 4, 8):
        run = corpus.run(program, n)
        tables.append(point_table([SimpleNamespace(**{**vars(run), "unmodelled": {"MPI_Put": n}})]))
    model = build_model(tables)
    assert {i.verdict for i in model.items if i.op == "MPI_Put"} == {"unknown"}
    assert model.shares["unknown"].bytes > 0.9
    assert compare(model, tables[-1]).unmodelled.events == 8
    (row,) = model.not_modelled
    assert (row.op, row.kind, row.np, row.events) == ("MPI_Put", "rma", 8, 8)
    assert row.share_of_events == 8 / tables[-1].count.sum() and 0 < row.share_of_time < 1
    assert any(
        line.startswith("seen, not modelled: MPI_Put 8 events at 8 processes (")
        for line in render(model).splitlines()
    )


def test_a_call_that_only_ever_moves_nothing_is_part_of_the_order_alone():
    """All partners are MPI_PROC_NULL, at every count: nothing to model, nothing to fail at."""

    def program(rec):
        for _ in range(5):
            rec("Send", site="null", peer=-3, nbytes=8)
            rec("Allreduce", nbytes=8)

    model = build_model([corpus.table(program, n) for n in (2, 3, 5)])
    assert [p.weight_points for p in model.phases] == [
        ((2, 1), (3, 1), (5, 1)),
        ((2, 5), (3, 5), (5, 5)),
    ]
    assert all(item.site != "null" for item in model.items)


def test_a_turn_that_the_smallest_count_does_not_show():
    """One rank has no neighbour: its first turn, without the reduction, is not seen."""

    def program(rec):
        for turn in range(10):
            if turn:
                rec("Allreduce", nbytes=8)
            for _ in range(rec.n > 1):
                rec("Sendrecv", peer=(rec.rank + 1) % rec.n, nbytes=80)
                rec("Sendrecv_recv", peer=(rec.rank - 1) % rec.n, nbytes=80)

    model = build_model([corpus.table(program, n) for n in (1, 4, 8, 16)])
    assert model.phases[1].weight_points == ((1, 9), (4, 10), (8, 10), (16, 10))
    assert model.phases[1].weight.holds_from == 4
    assert compare(model, corpus.table(program, 64)).weights.exact == 2
    assert "(from 4 processes on)" in render(model)
