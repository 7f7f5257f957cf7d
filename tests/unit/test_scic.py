"""The instruction table: the thesis's own numbers, groups of ranks, measured against predicted."""

from __future__ import annotations

import csv
import io

import corpus
import numpy as np
import pytest

from p3s.laws.lawfinder import find_law
from p3s.laws.worklaws import fit_work
from p3s.model.holdout import build_model
from p3s.model.work.scic import (
    group_guard,
    group_total,
    instruction_groups,
    instruction_table,
    larger_counts,
    next_sizes,
    ranges,
    ranges_text,
    work_per_process,
)
from p3s.report.compute import instruction_csv, instruction_text

#: NPB BT class D, phase 1: processes -> weight, instructions per process (thesis Table 5.2).
BT_WEIGHT = {16: 1255, 25: 1506, 36: 1757, 49: 2008, 64: 2259, 81: 2510, 100: 2761}
BT_INSTRUCTIONS = {
    16: 1_539_358_893,
    25: 820_993_294,
    49: 314_154_733,
    64: 213_799_791,
    100: 111_953_973,
}


def test_the_total_of_bt_is_constant():
    for n, instructions in BT_INSTRUCTIONS.items():
        assert group_total(instructions, n, BT_WEIGHT[n]) == pytest.approx(3.091e13, rel=1e-4)


def test_the_weight_of_bt_follows_the_side_of_the_grid():
    law = find_law({n: BT_WEIGHT[n] for n in (16, 25, 36, 49, 64)}, "whole").law
    from p3s.laws.exact import evaluate_int

    for n, weight in {**BT_WEIGHT, 1024: 8283, 1600: 10_291, 1681: 10_542}.items():
        assert int(evaluate_int(law.expr, {"n": n})) == weight


def test_the_instructions_of_bt_at_100_follow_from_16_to_64():
    counts = (16, 25, 49, 64)
    per_rank = fit_work(list(counts), [BT_INSTRUCTIONS[n] * BT_WEIGHT[n] for n in counts])
    found = work_per_process(float(per_rank.value(100)) * 100, 100, BT_WEIGHT[100])
    assert found == pytest.approx(BT_INSTRUCTIONS[100], rel=1e-3)
    # Table 5.2 goes on to 1,681 processes
    assert work_per_process(3.091031583e13, 1681, 10_542) == pytest.approx(1_744_266, rel=1e-4)


def test_the_bytes_of_n_body_fall_with_n():
    from p3s.laws.exact import evaluate_int

    law = find_law({n: 128_000_000 // n for n in (16, 32, 64, 128)}, "whole").law
    assert int(evaluate_int(law.expr, {"n": 512})) == 250_000


def test_ranks_within_five_per_cent_are_a_group():
    groups = instruction_groups(np.array([100.0, 50.0, 96.0, 49.0, 94.0]))
    assert [g.tolist() for g in groups] == [[0, 2], [4], [1, 3]]
    assert instruction_groups(np.array([])) == []
    assert [g.tolist() for g in instruction_groups(np.zeros(3))] == [[0, 1, 2]]


def test_ranges_join_neighbours():
    assert ranges(np.array([0, 1, 2, 5, 7, 8])) == [[0, 2], [5, 5], [7, 8]]
    assert ranges(np.array([], dtype=int)) == []
    assert ranges_text([[0, 2], [5, 5]]) == "0-2, 5"
    assert ranges_text([[i, i] for i in range(0, 20, 2)]) == "0, 2, 4, 6, ..."


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ((4, 9, 16), [36, 64, 144, 256]),
        ((8, 27), [64, 125, 216, 512]),
        ((4, 8, 16), [32, 64, 128, 256]),
        ((3, 6, 12), [24, 48, 96, 192]),
    ],
)
def test_larger_counts_are_of_the_same_kind(counts, expected):
    assert next_sizes(counts) == expected


@pytest.fixture(scope="module")
def model():
    return build_model([corpus.table(corpus.jacobi2d(97, 61, 3), n) for n in (4, 6, 9, 16)])


def test_the_table_has_what_was_measured_and_what_is_predicted(model):
    table = instruction_table(model, [36])
    truth = corpus.table(corpus.jacobi2d(97, 61, 3), 36)
    assert {r.n for r in table.rows if r.measured} == {4, 6, 9, 16}
    assert {r.n for r in table.rows if not r.measured} == {4, 6, 9, 16, 36}
    total = sum(table.total(p, 36, False) or 0 for p in {r.phase for r in table.rows})
    assert total == pytest.approx(float(truth.work.sum()), rel=0.005)
    for r in table.rows:
        assert r.total == pytest.approx(group_total(r.work, r.ranks, r.weight))
        assert r.half_width >= 0


def test_text_and_csv_hold_the_same_rows(model):
    lines = list(csv.DictReader(io.StringIO(instruction_csv(instruction_table(model, [36])))))
    assert len(lines) == len(instruction_table(model, [36]).rows)
    assert {line["part"] for line in lines} == {"measured", "predicted"}
    assert {line["unit"] for line in lines} == {"cpu_ns"}
    text = instruction_text(instruction_table(model, [36]))
    assert "measured" in text and "predicted" in text and "weight" in text
    assert instruction_csv(instruction_table(model, [36])) == instruction_csv(
        instruction_table(model, [36])
    )


def test_counts_are_chosen_where_none_are_given(model):
    parts = {
        int(line["processes"])
        for line in csv.DictReader(
            io.StringIO(instruction_csv(instruction_table(model, larger_counts(model))))
        )
    }
    assert parts > {4, 6, 9, 16} and max(parts) == 256


def test_groups_that_follow_the_grid_are_named():
    model = build_model([corpus.table(borders, n) for n in (4, 9, 16, 25)])
    assert group_guard(model, 1, 0) is not None
    text = instruction_text(instruction_table(model, [36]))
    assert "if c" in text
    table = instruction_table(model, [36])
    sizes = {r.group: r.ranks for r in table.rows if (r.phase, r.n) == (1, 36)}
    assert sizes == {0: 6, 1: 30}


def borders(rec):
    """A ring in each row of a square grid; the first column computes twice as much."""
    p = round(rec.n**0.5)
    row, column = divmod(rec.rank, p)
    for _ in range(6):
        rec.exchange(
            "Sendrecv",
            row * p + (column + 1) % p,
            row * p + (column - 1) % p,
            80,
            work=2000000.0 / rec.n if column == 0 else 1000000.0 / rec.n,
            rest=0,
        )
        rec.exchange(
            "down", (row + 1) % p * p + column, (row - 1) % p * p + column, 80, work=0, rest=0
        )
