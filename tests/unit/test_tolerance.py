"""Loops that a tolerance may end: as many iterations at every traced count prove no law."""

from __future__ import annotations

import corpus
import pytest

from p3s.model.holdout import build_model
from p3s.model.tripcounts import refusal_text


@corpus.program
def solver(rec: corpus.Recorder, turns: int, words: int = 1, inner: int = 1) -> None:
    """A ring whose every iteration ends with a reduction."""
    for _ in range(turns):
        for _ in range(inner):
            rec.exchange("Sendrecv", (rec.rank + 1) % rec.n, (rec.rank - 1) % rec.n, 80)
        rec("Allreduce", nbytes=8 * words)
    rec("Barrier")


def verdicts(program: corpus.Program, **known: object) -> dict[str, str]:
    model = build_model([corpus.table(program, n) for n in (3, 4, 6)], **known)
    found = {str(item.op): str(item.verdict) for item in model.items}
    return {**found, "loop": str(model.phases[1].weight_verdict)}


def test_a_constant_that_nothing_says_is_fitted() -> None:
    found = verdicts(solver(99))
    assert found["loop"] == found["MPI_Allreduce"] == found["MPI_Sendrecv"] == "fitted"
    assert found["MPI_Barrier"] == "exact"


@pytest.mark.parametrize("typed", [{99}, {100}, {33, 3}])
def test_a_constant_that_the_arguments_say_is_exact(typed: set[int]) -> None:
    assert set(verdicts(solver(99), typed=typed).values()) == {"exact"}


def test_a_constant_that_the_user_states_is_stated() -> None:
    assert verdicts(solver(99), trips={"Allreduce": 99})["loop"] == "stated"


def test_a_reduction_of_a_field_ends_no_loop() -> None:
    assert set(verdicts(solver(99, words=40)).values()) == {"exact"}


def test_loops_inside_are_as_sure_as_the_one_around() -> None:
    model = build_model([corpus.table(solver(99, inner=5), n) for n in (3, 4, 6)])
    outer, inner = model.phases[1:3]
    assert "none of the program's arguments" in refusal_text(outer)
    assert inner.trips is None and inner.weight_verdict == "fitted"
    assert {model.items[i].verdict for i in inner.items} == {"fitted"}


def test_numbers_that_hardly_differ_prove_no_law_either() -> None:
    """81, 82 and 84 are 78 + n at 3, 4 and 6; a residual gives them, too."""

    def program(rec: corpus.Recorder) -> None:
        solver(78 + rec.n)(rec)

    assert verdicts(program)["loop"] == "fitted"
    assert verdicts(lambda rec: solver(2 * rec.n)(rec))["loop"] == "exact"
