"""Neighbourhoods, intervals and halved communicators of real programs, modelled from few counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from tracer_helpers import PROGRAMS, compile_c, the_mpi, trace

from p3s.model.compare import compare
from p3s.model.holdout import build_model
from p3s.signature.tables import PointTable, point_table

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(the_mpi() is None, reason="no usable MPI")]


def _tables(name: str, counts: tuple[int, ...], work: Path) -> list[PointTable]:
    program = compile_c(PROGRAMS / "partners" / f"{name}.c", work / name)
    return [point_table([trace([str(program)], n, work / f"run{n}")]) for n in counts]


@pytest.mark.parametrize(
    ("name", "counts", "target"),
    [
        ("halo26", (8, 12, 18), 27),
        ("star_last_first", (2, 4, 8, 12), 18),
        ("interval_tree", (3, 5, 6, 7, 9), 22),
    ],
)
def test_partners_are_right_at_a_larger_count(
    name: str, counts: tuple[int, ...], target: int, tmp_path: Path
) -> None:
    *traced, real = _tables(name, (*counts, target), tmp_path)
    model = build_model(traced)
    found = compare(model, real)
    assert found.p2p_triples.all_equal
    assert found.collectives.all_equal


def test_every_traced_stage_of_halved_communicators_is_right(tmp_path: Path) -> None:
    *traced, real = _tables("halved_comms", (4, 6, 8, 12, 16, 24), tmp_path)
    model = build_model(traced)
    assert all(compare(model, t).collectives.all_equal for t in traced)
    found = compare(model, real).collectives
    assert found.predicted == found.equal and found.equal > 0.8 * found.true
