"""Programs with neighbourhood collectives, traced at small counts, beside a run at a larger one."""

from __future__ import annotations

from pathlib import Path

import pytest
from patterns import ALL, Program, outcome
from tracer_helpers import PROGRAMS, usable_mpi

TABLE = (
    Program("cart2.c", "p", (2, 4, 6), (8,)),
    Program("nine.c", "", (2, 4, 6), (8,)),
    Program("graph.c", "", (4, 6, 8), (10,)),
    Program("gossip.c", "", (3, 4, 5, 8), (10,)),
)


@pytest.mark.parametrize("program", TABLE, ids=lambda program: f"{program.source}-{program.args}")
def test_messages_at_a_larger_count_are_those_of_the_model(program: Program, tmp_path: Path):
    usable_mpi()
    found = outcome(program, PROGRAMS / "neighbours", tmp_path)
    assert not {at.n: at.exact_wrong for at in found.at if at.exact_wrong}
    assert [at.level for at in found.at] == [ALL]
