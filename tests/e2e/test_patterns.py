"""Programs of one communication pattern each, traced small and compared at larger counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from paths import PROGRAMS
from pattern_table import NEIGHBOURS, QUICK, TABLE
from patterns import ALL, LEVELS, At, Program, fortran, outcome
from tracer_helpers import usable_mpi

SOURCES = PROGRAMS / "patterns"


def _cases():
    for program in NEIGHBOURS:
        yield pytest.param("neighbours", program, id=f"neighbours-{program.id}")
    for program in TABLE:
        marks = () if program.id in QUICK else pytest.mark.slow
        yield pytest.param("patterns", program, id=program.id, marks=marks)


def _said(at: At) -> str:
    return f"{at.n}: {at.refused or (at.pairs, at.triples, at.collectives)}"


@pytest.mark.parametrize(("folder", "program"), list(_cases()))
def test_a_pattern_is_predicted_and_nothing_exact_is_wrong(
    folder: str, program: Program, tmp_path: Path
):
    usable_mpi()
    if program.source.endswith(".f90") and fortran() is None:
        pytest.skip("no Fortran compiler of this MPI")
    found = outcome(program, PROGRAMS / folder, tmp_path)
    assert not {at.n: at.exact_wrong for at in found.at if at.exact_wrong}
    judged = [at for at in found.at if at.n not in program.open_at]
    least = min((at.level for at in judged), key=LEVELS.index)
    assert LEVELS.index(least) >= LEVELS.index(program.level), [_said(at) for at in judged]
    assert least == program.level, f"{least} is right now: say so in pattern_table.py"


def test_the_table_says_why():
    for program in TABLE:
        assert (program.level == ALL and not program.open_at) == (not program.why_not), program.id
    assert {program.source for program in TABLE} == {
        path.name for path in SOURCES.iterdir() if path.suffix in (".c", ".f90", ".py")
    }
