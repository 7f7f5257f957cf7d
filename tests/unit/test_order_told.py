"""An order of calls that no traced rank has is told with the model, and with what rests on it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import corpus
import pytest
import timed_study as ts
from capture_writer import begun, put_run_json
from commands import cli
from corpus.grids import bitonic
from test_any_counts import PROGRAMS, put_times

from p3s.base.errors import P3SError
from p3s.base.study import Study
from p3s.model.compare import order_at
from p3s.model.comparison import Moved, OrderAgreement
from p3s.model.evaluate import generate
from p3s.model.fit import fit_model
from p3s.model.holdout import build_model
from p3s.model.order.kinds import Kinds
from p3s.model.order.unfold import compare_order, left_to_chance, with_chance
from p3s.pipeline.saved import read_prediction
from p3s.predict.doubts import of_order


def test_the_model_and_what_is_predicted_from_it_say_so(tmp_path: Path) -> None:
    """All messages of a bitonic sort are known, and no rank sends them in the model's order."""
    study = put_times(tmp_path / "study", bitonic(), (4, 8, 16, 32), "cpu_ns")
    told = cli("model", study.root, code=3)
    assert "order of calls: another one at 60 of 60 ranks of 4, 8, 16 and 32 processes" in told.out
    assert (
        "do not rely on this model (order): at 4, 8, 16 and 32 processes 60 of 60 ranks of the "
        "traced runs make their calls in another order than the model says; messages and sizes "
        f"are valid; fit the run times alone: p3s baseline fit {study.root}\n"
    ) in told.err
    cli("predict -n 64 --what-if none", study.root, code=3)
    codes = {each.code for each in read_prediction(study.prediction_path).reasons}
    assert "order" in codes and "holdout-missed" not in codes


def test_an_order_that_is_right_is_not_told() -> None:
    model = build_model([corpus.table(corpus.ring(), n) for n in (2, 4, 8, 16)])
    assert model.order is not None and model.order.moved == ()
    assert of_order(model.order, model.holdout, limit=1.0) == []


@corpus.program
def turned(rec: corpus.Recorder, late: int, more: int = 0) -> None:
    """Two collectives in turn, the other way round from ``late`` processes on.

    ``more``: further calls that ranks of so many processes make.
    """
    for _ in range(3):
        for name in ("Bcast", "Reduce") if rec.n < late else ("Reduce", "Bcast"):
            rec(name, nbytes=8, root=0)
    for _ in range(4 if rec.n == more else 0):
        rec("Barrier")


def test_what_is_not_as_often_is_no_matter_of_order() -> None:
    """Calls that the model lacks are told as such; between them the others are in order."""
    model = fit_model([corpus.table(turned(99), n) for n in (2, 4, 8)])
    rows = generate(model, 16)
    for late, moved in ((99, ()), (16, tuple(range(16)))):
        order = compare_order(model, corpus.table(turned(late, more=16), 16), rows)
        assert order is not None and order.equal == 0 and order.moved == moved


@pytest.mark.parametrize(("moved", "limit", "told"), [(1, 0.9, 0), (1, 1.0, 1), (2, 0.9, 1)])
def test_the_limit_is_a_share_of_the_ranks(moved: int, limit: float, told: int) -> None:
    """Where all counts leave no order open, the fit without the largest does not matter."""
    model = build_model([corpus.table(corpus.ring(), n) for n in (2, 4, 8)])
    assert model.order is not None and model.holdout and model.holdout.comparison
    ranks = tuple(range(moved))
    known = replace(model.order, moved=(Moved(10, ranks, 10),))
    assert [each.code for each in of_order(known, None, limit)] == ["order"] * told
    there = model.holdout.comparison
    held = replace(there, order=OrderAgreement(10, 10 - moved, 0, {}, None, moved=ranks))
    reasons = of_order(model.order, replace(model.holdout, comparison=held), limit)
    assert [each.code for each in reasons] == ["order"] * told


def put_run(folder: Path, *, anybody: int, size: int = 3) -> None:
    """A run of which one rank receives from anybody."""
    folder.mkdir(parents=True)
    put_run_json(folder, size)
    for rank in range(size):
        w = begun("MPI_Recv", rank, size)
        at = w.event(w.call(0, peer=-2 if rank == anybody else (rank + 1) % size))
        if rank == anybody:
            w.resolved(at, (rank + 1) % size, 5, 0)
        w.end()
        w.save(folder)


def test_what_chance_decides_is_held_against_no_model(tmp_path: Path) -> None:
    study = Study.create(tmp_path, ["mpiexec", "-n", "{np}", "./program"])
    put_run(study.runs_dir(3), anybody=1)
    order = OrderAgreement(3, 0, 0, {}, None, shuffled=(0, 1), moved=(0, 1, 2))
    told = left_to_chance(order, study.runs_dir(3))
    assert (told.by_chance, told.moved) == (1, (0, 2))
    with pytest.raises(P3SError):
        left_to_chance(order, study.runs_dir(4))
    model = build_model([corpus.table(corpus.ring(), n) for n in (2, 3, 4)])
    assert model.order is not None
    known = (Moved(3, (1,), 3), Moved(4, (1,), 4))  # no run of 4 is there to ask
    moved = replace(model, order=replace(model.order, moved=known))
    model = with_chance(moved, {3: study.runs_dir(3)})
    assert model.order is not None and model.order.moved == known[1:]


@pytest.mark.parametrize(("counts", "told"), [((4, 8, 16), False), ((2, 4, 8), True)])
def test_an_order_that_nothing_could_tell_matters_where_such_ranks_are_not_traced(
    counts: tuple[int, ...], told: bool
) -> None:
    """Fitted without the largest, no rank has neighbours on all sides; with 16 there are some."""
    program = PROGRAMS["column-major"]
    model = build_model([ts.counted(program, n, "cpu_ns") for n in counts])
    assert model.order is not None and model.order.moved == ()
    assert [each.code for each in of_order(model.order, model.holdout)] == ["order"]
    kinds = Kinds(model)
    assert of_order(model.order, model.holdout, limit=1.0, kinds=kinds) == []
    reasons = of_order(model.order, model.holdout, kinds=kinds, counts=[49])
    truth = order_at(model, ts.counted(program, 49, "cpu_ns"), generate(model, 49, work=False))
    assert truth is not None and bool(truth.moved) == told
    assert [each.code for each in reasons] == ["order"] * told
    assert not told or f"{len(truth.moved)} of 49 ranks make" in reasons[0].text


def test_kinds_of_ranks_are_the_calls_that_they_make() -> None:
    model = build_model([corpus.table(corpus.jacobi2d(), n) for n in (4, 9, 16, 25)])
    kinds = Kinds(model)
    at, new = kinds.unseen(36, [4])
    inside = [r for r in range(36) if 0 < r // 6 < 5 or 0 < r % 6 < 5]
    assert at == 36 and new.tolist() == inside  # only corners have two neighbours
    assert kinds.unseen(36, [16])[1].tolist() == []
    at, new = kinds.unseen(1 << 20, [25])
    assert at == 512 and not len(new)
