"""What is known of the process grid beside the traces: used, checked, and refused."""

from __future__ import annotations

import math
from dataclasses import replace

import corpus
import models
import pytest
from corpus import Grid
from corpus import grids as g

from p3s.base.errors import P3SError
from p3s.base.study import Study
from p3s.model import holdout as check
from p3s.model.compare import compare
from p3s.model.evaluate import model_grid
from p3s.model.fit import fit_model
from p3s.model.grid.choose import choose_grid
from p3s.model.grid.grids import Cube, FixedExtent, ListedGrid
from p3s.model.grid.nodes import collect_nodes
from p3s.model.grid.stated import LAST, Contradiction, Statement, of_arguments, rules
from p3s.model.holdout import build_model
from p3s.model.nextcount import questions
from p3s.model.stage import check_dims
from p3s.model.text import grid_text
from p3s.pipeline.records import keep_dims, known_of, parse_dims
from p3s.pipeline.records import stated_grid as stated
from p3s.report.equations import notes


def tables(program, counts):
    return [corpus.table(program, n) for n in counts]


def equal(model, program, n):
    got = compare(model, corpus.table(program, n)).p2p_triples
    return got.true, got.predicted, got.equal


# ---- it changes the model ----------------------------------------------------------------------
@pytest.mark.parametrize(
    ("dims", "wrap", "counts"), [(2, True, (2, 4, 8)), (3, False, (2, 4, 8, 12))]
)
def test_a_statement_of_dimensions_is_kept_beside_what_the_traces_say(dims, wrap, counts):
    program = g.one_call(dims, wrap)
    there = tables(program, counts)
    true, predicted, met = equal(fit_model(there), program, 27)
    assert true == predicted == met
    model = fit_model(there, known=Statement(dims, by_user=True))
    assert equal(model, program, 27) == (true, true, true)
    assert len(model.grid.dims["8"]) == dims
    assert grid_text(model).endswith(f", stated: {dims} dimensions")


def test_a_stencil_of_all_neighbours_is_one_rule_on_a_grid_that_is_known_or_not():
    there = tables(
        g.both(
            lambda r, n: [
                q
                for q in range(n)
                if q != r
                and all(abs(a - b) < 2 for a, b in zip(_place(r, n), _place(q, n), strict=True))
            ]
        ),
        (4, 8, 12),
    )
    nodes = collect_nodes(there, {})
    for known in (Statement(3), None):
        found = choose_grid(nodes, there, known).explained.values()
        assert all(len(e.relations) == 26 and not e.unexplained for e in found)


def _place(rank, n):
    px, py, _ = g.dims_balanced(n, 3)
    return rank % px, rank // px % py, rank // (px * py)


def settled(there, known):
    return check.check_statement(there, known, ())


def test_extents_by_no_rule_hold_where_they_are_stated():
    def dims_of(n):
        return {4: (1, 4), 8: (4, 2), 16: (2, 8), 32: (1, 32)}[n]

    program = g._halo(dims_of)
    said = Statement(extents=tuple((n, dims_of(n)) for n in (4, 8, 16, 32)), by_user=True)
    model = fit_model(tables(program, (4, 8, 16)), known=said)
    assert model.grid.family.kind == "listed"
    assert len(set(equal(model, program, 32))) == 1
    with pytest.raises(P3SError, match="no form at 64 processes"):
        equal(model, g._halo(lambda n: (8, n // 8)), 64)
    less = Statement(extents=((8, (4, 2)), (16, (2, 8))), by_user=True)
    with pytest.raises(Contradiction, match=r"at the other traced counts too \(4\)"):
        settled(tables(program, (4, 8, 16)), less)


@pytest.mark.parametrize(
    ("family", "n", "near"),
    [
        (Cube(3), 1024, "1,024 processes; the nearest with one are 1,000 and 1,331"),
        (FixedExtent(2, (1,), 2), 3, "at 3 processes; the nearest with one are 2 and 4"),
        (Cube(2, part="last"), 1, "at 1 process; the nearest with one is 2"),
        (ListedGrid(2, rest="", listed=((4, (2, 2)),)), 30, "the nearest with one is 4"),
    ],
)
def test_counts_near_one_without_a_grid_are_named(family, n, near):
    model = models.built("ring")
    grid = replace(model.grid, family=family, cart=False)
    model = replace(model, grid=grid, counts=(4, 8))
    with pytest.raises(P3SError, match=near) as err:
        model_grid(model, n)
    assert "(traced: 4 and 8); the traces alone say" in str(err.value)
    model = replace(model, grid=replace(grid, cart=True))
    with pytest.raises(P3SError, match=r"\(traced: 4 and 8\)$"):
        model_grid(model, n)


def test_one_process_has_one_place_whatever_the_rule():
    for family in (FixedExtent(3, (1,), 2), ListedGrid(2, rest="")):
        assert family.dims(1) == (1,) * family.ndims and family.dims(3) is None


# ---- it is checked -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("program", "counts", "wrong", "why"),
    [
        (
            g._halo(lambda n: g.dims_balanced(n, 2)),
            (2, 4, 8),
            Statement(3),
            "need .* rules on a grid",
        ),
        (g._halo(lambda n: g.dims_balanced(n, 2)), (4, 6, 9), Statement(1), "grid of 9"),
        (
            g.one_call(2),
            (4, 6, 9),
            Statement(extents=((6, (3, 2)),), fastest=LAST),
            r"grid of 3x2 \(dimension 1 fastest\), and one on 2x3|on a grid of 3x3",
        ),
        (
            g.one_call(3),  # halvings explain its partners on any grid
            (2, 4, 8, 12),
            Statement(extents=((12, (2, 2, 3)),), fastest=0),
            "are neighbours on a grid of .*, and not on .*: rank 0 and its partner",
        ),
        (g.one_call(3), (2, 4, 8, 12), Statement(1), "and not on 12 in one dimension: rank 0"),
        (g.one_call(2), (4, 6, 9), Statement(extents=((6, (6, 1)),)), "no rule gives 6x1 at 6"),
        (
            corpus.jacobi2d(97, 61, 3),
            (4, 6, 9),
            Statement(3),
            "MPI_Cart_create: 3x3 at 9 processes, 2 dimensions, not 3",
        ),
        (
            corpus.jacobi2d(97, 61, 3),
            (4, 6, 9),
            Statement(extents=((6, (2, 3)),)),
            "MPI_Cart_create: 3x2 at 6 processes, not 2x3",
        ),
        (
            corpus.jacobi2d(97, 61, 3),
            (4, 6, 9),
            Statement(2, fastest=0),
            "MPI_Cart_create, whose last dimension is the fastest",
        ),
    ],
)
def test_what_the_traces_contradict_is_refused(program, counts, wrong, why):
    there = tables(program, counts)
    by_user = Statement(wrong.ndims, wrong.extents, wrong.fastest, by_user=True)
    with pytest.raises(Contradiction, match=why):
        settled(there, by_user)
    dropped, reason = settled(there, wrong)  # of arguments alone: not used, and said
    assert dropped is None and reason


@pytest.mark.parametrize(
    ("program", "counts", "known"),
    [
        (g.one_call(2), (4, 6, 9), Statement(extents=((6, (3, 2)),), fastest=0)),
        (g.one_call(2), (4, 6, 9), Statement(extents=((6, (2, 3)),), fastest=LAST)),
        (corpus.jacobi2d(97, 61, 3), (4, 6, 9), Statement(2, ((6, (3, 2)),), LAST)),
        (g.halving_doubling(), (2, 4, 8, 16), Statement(1)),
        (g.halving_doubling(), (2, 4, 8, 16), Statement(2)),  # nothing speaks against it
        (g.io_server(), (5, 10, 17), Statement(extents=((17, (4, 4)),))),
        (corpus.ring(), (2, 3, 5), Statement(1)),
    ],
)
def test_what_the_traces_allow_is_kept(program, counts, known):
    by_user = Statement(known.ndims, known.extents, known.fastest, by_user=True)
    assert settled(tables(program, counts), by_user) == (by_user, "")


def test_rules_of_smaller_counts_that_miss_a_larger_one_refuse_a_grid():
    there = tables(g._halo(lambda n: g.dims_balanced(n, 3), first_fastest=True), (2, 4, 8, 16))
    with pytest.raises(Contradiction, match="rules of the smaller counts miss .* at 16 processes"):
        build_model(there, known=Statement(2, by_user=True))


# ---- the grid as arguments ---------------------------------------------------------------------
def test_arguments_give_the_extents_and_their_names():
    there = tables(g.one_call(3), (2, 4, 8, 12))
    model = fit_model(there, known=of_arguments(3, {}))
    assert model.grid.family.kind == "balanced"
    assert model.grid.dims["12"] == (3, 2, 2)  # px fastest, as the program has it
    assert model.grid.family.layout == "column"
    assert grid_text(model).endswith("as in the program's arguments")
    (tied,) = {
        other.rule for other in model.grid.others
    }  # py and pz are equal at all counts, so either may come next
    assert tied.dims(18) == (3, 3, 2) and tied.layout == "120"
    asked = {18: model_grid(model, 18)}
    assert any(q.decides(asked[18]) for q in questions(model, asked))


def test_listed_arguments_hold_beside_those_of_dims_create():
    slabs = {4: (1, 4), 8: (1, 8), 16: (1, 16)}
    program = g._halo(lambda n: slabs.get(n) or g.dims_balanced(n, 2))
    model = fit_model(tables(program, (4, 8, 12, 16)), known=of_arguments(2, slabs))
    assert model.grid.dims == {"4": (1, 4), "8": (1, 8), "12": (4, 3), "16": (1, 16)}
    assert len(set(equal(model, program, 36))) == 1


def test_arguments_that_are_no_grid_of_the_program_are_dropped_and_it_is_said():
    model = build_model(
        tables(corpus.jacobi2d(97, 61, 3), (4, 6, 9)), holdout=False, known=of_arguments(3, {})
    )
    assert model.grid.dropped.said == of_arguments(3, {})
    assert model.grid.stated is None and model.grid.dims["9"] == (3, 3)
    dropped = "the extents in the program's arguments"
    assert any(line.startswith(dropped) for line in notes(model, {}))


def _all_but_the_first(rank, n):
    """Neighbours of a 2-D grid that begins with rank 1."""
    if rank == 0:
        return []
    grid = Grid(g.dims_balanced(n - 1, 2), rank - 1)
    near = [grid.step(d, step) for d in (0, 1) for step in (-1, 1)]
    return [1 + each for each in near if each is not None]


def test_arguments_are_no_grid_of_some_ranks_only():
    """A grid without the first rank fits irregular partners by chance: it was not given that."""
    there = tables(g.both(_all_but_the_first), (5, 10))
    assert choose_grid(collect_nodes(there, {}), there).family.part == "first"
    said, dropped = settled(there, of_arguments(3, {}))
    assert (said, dropped) == (of_arguments(3, {}), "")


def test_a_cartesian_grid_may_have_the_arguments_in_another_order():
    table = {8: (8, 1, 1), 12: (2, 2, 3)}
    given = of_arguments(3, table)
    turned = {n: (table.get(n) or g.dims_balanced(n, 3))[::-1] for n in (4, 8, 12)}
    (found,) = rules(given, [4, 8, 12], turned, {})
    assert [found.dims(n) for n in (4, 8, 12, 18)] == [*turned.values(), (2, 3, 3)]
    mixed = {8: (2, 2, 2), 12: (2, 3, 2)}
    assert {f.dims(12) for f in rules(of_arguments(3, {}), [8, 12], mixed, {})} == {(2, 3, 2)}
    with pytest.raises(
        Contradiction,
        match="2x2x2 with MPI_Cart_create at 8 processes, where its arguments are 8x1x1",
    ):
        rules(given, [8], {8: (2, 2, 2)}, {})


def test_rules_of_arguments_run_in_any_order_of_their_dimensions():
    found = rules(of_arguments(3, {8: (8, 1, 1)}), [4, 8], {}, {})
    assert len(found) == 6 == len({fam.layout for fam in found})
    assert {fam.dims(8) for fam in found} == {(8, 1, 1)} and found[0].dims(12) == (3, 2, 2)
    assert [f.dims(6) for f in rules(of_arguments(1, {}), [2, 4], {}, {})] == [(6,)]


# ---- as it is kept -----------------------------------------------------------------------------
def test_statements_survive_as_data_and_read_well():
    said = Statement(3, ((16, (4, 2, 2)), (18, (4, 2, 2))), LAST, by_user=True)
    assert Statement.from_json(said.to_json()) == said and said
    assert said.text() == "4x2x2 at 16, 4x2x2 at 18 with 2 ranks apart, the last dimension fastest"
    assert Statement(2, fastest=0).text() == "2 dimensions, dimension 0 fastest"
    assert not Statement() and Statement.from_json({}) == Statement()


def test_what_a_user_says_goes_before_what_arguments_say():
    given = of_arguments(3, {16: (4, 2, 2)})
    assert Statement(fastest=0, by_user=True).merged(given) == Statement(
        3, ((16, (4, 2, 2)),), 0, arguments=True, by_user=True
    )
    for other in (Statement(2, by_user=True), Statement(extents=((16, (2, 2, 4)),), by_user=True)):
        assert other.merged(given) == other


def test_words_of_the_command_line():
    known = stated(["3", "4x2x2@16"], "first", Statement())
    assert known == Statement(3, ((16, (4, 2, 2)),), 0)
    assert stated(["3", "2"], "", Statement()).ndims == 2, "the last one counts"
    assert stated(["8x2x2@32"], "", known).extents == ((16, (4, 2, 2)), (32, (8, 2, 2)))
    assert stated(["none@16"], "none", known) == Statement(3)
    assert stated(["none"], "", known) == Statement()
    assert stated(["none,2"], "last", known) == Statement(2, fastest=LAST)


COMMAND = ["mpiexec", "-n", "{np}", "app", "-x={px}", "{py}", "{pz}"]


def test_extents_are_kept_with_the_study_and_found_from_inside_it(tmp_path):
    study = Study.create(tmp_path / "s", COMMAND)
    keep_dims(study, parse_dims("16=4x2x2, 8=8x1x1", COMMAND))
    keep_dims(study, {32: (2, 4, 4)})
    inside = Study.create(study.far_dir("w1"), COMMAND)
    for each in (study, inside):
        assert known_of(each).extents == {8: (8, 1, 1), 16: (4, 2, 2), 32: (2, 4, 4)}
    assert known_of(study).grid == of_arguments(3, known_of(study).extents)
    assert math.prod(known_of(study).extents[32]) == 32
    study.update(grid=Statement(2).to_json())
    assert known_of(study).grid == Statement(2, by_user=True)
    check_dims(known_of(study), {8: (2, 2, 2)}, [])  # no run at 8 yet
