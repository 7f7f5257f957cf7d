"""Work in wall time, CPU time and instructions, from the runs to the times."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import corpus
import pytest
from handmade import phase, put_scaled

from p3s.base.errors import P3SError
from p3s.base.study import Study, read_json, write_json
from p3s.base.text import mixed_clocks
from p3s.capture import Call, RankTrace, RunTrace
from p3s.model.fit import fit_model
from p3s.model.holdout import build_model
from p3s.predict.times import read_head
from p3s.report.equations import render
from p3s.signature.store import SIGNATURE, load_table, signature_of, write_tables
from p3s.signature.tables import PointTable, point_table


def run(n: int, unit: str) -> SimpleNamespace:
    made = corpus.run(corpus.cg(), n)
    made.work_unit = unit
    return made


def tables(*units: str) -> list[PointTable]:
    return [point_table([run(n, unit)]) for n, unit in zip((4, 8, 16), units, strict=True)]


def test_one_unit_goes_all_the_way(tmp_path: Path) -> None:
    study = Study.create(tmp_path, ["mpiexec", "-n", "{np}", "./app"])
    path = study.signature_path(4)
    path.parent.mkdir()
    for unit in ("wall_ns", "cpu_ns", "instructions"):
        made = tables(unit, unit, unit)
        assert fit_model(made).work_unit == unit
        signature = SIGNATURE.data(signature_of(made[0]))
        assert (signature["work_unit"], signature["work"]) == (unit, int(made[0].work.sum()))
        write_tables(made[0], path)
        write_json(path, signature)
        again = load_table(tmp_path, 4)
        assert again.work_unit == unit and again.work.tolist() == made[0].work.tolist()


def test_times_under_emulation_are_no_times() -> None:
    timed, counted = tables("cpu_ns", "instructions", "cpu_ns")[:2]
    assert timed.elapsed_ns.any() and not counted.elapsed_ns.any() and counted.work.any()
    text = render(build_model(tables("instructions", "instructions", "instructions"), False))
    assert "work is in instructions" in text and "work of a rank in the run = " in text
    shares = [p["per_count"]["8"]["share"] for p in SIGNATURE.data(signature_of(counted))["phases"]]
    assert sum(shares) == pytest.approx(1.0), "shares are of instructions"


def test_wall_and_cpu_time_are_mixed_with_a_note() -> None:
    model = build_model(tables("wall_ns", "wall_ns", "cpu_ns"), False)
    assert model.work_unit == "cpu_ns"
    note = "work was measured in wall time at 4 and 8 processes and CPU time at 16 processes"
    assert mixed_clocks(model.work_units).startswith(note) and note in render(model)
    assert mixed_clocks(fit_model(tables("cpu_ns", "cpu_ns", "cpu_ns")).work_units) == ""
    assert mixed_clocks({}) == ""


def test_instructions_do_not_mix_with_time() -> None:
    with pytest.raises(P3SError, match="instructions at 8 processes and in cpu_ns at") as caught:
        fit_model(tables("cpu_ns", "instructions", "cpu_ns"))
    assert "\n" not in str(caught.value)
    with pytest.raises(P3SError, match="repeats at 4 processes mix work in instructions"):
        point_table([run(4, "cpu_ns"), run(4, "instructions")])
    assert point_table([run(4, "cpu_ns"), run(4, "wall_ns")]).work_unit == "cpu_ns"


def test_times_need_a_study_in_time(tmp_path: Path) -> None:
    study = Study.create(tmp_path, ["mpiexec", "-n", "{np}", "./app"])
    put_scaled(study, 2, [(0, 0, 1, 1.0)], [phase(0)])
    path = study.scaled_path(2)
    head = read_json(path, "p3s.scaled")
    write_json(path, {**head, "work_unit": "wall_ns"})
    assert read_head(study.scaled_dir(2), 2)["work_unit"] == "wall_ns"
    write_json(path, {**head, "work_unit": "instructions"})
    with pytest.raises(P3SError, match="instructions.*need a study in CPU or wall time") as caught:
        read_head(study.scaled_dir(2), 2)
    assert "\n" not in str(caught.value)


def test_calls_that_the_table_does_not_tell_apart_share_a_row() -> None:
    """Recursion depth, window and element count make other calls, not other rows."""
    import numpy as np

    call = Call("MPI_Barrier", 0, 0, -1, 0, 1, -1, -1)
    calls = (call, replace(call, depth=2), replace(call, count=3))
    numbers = np.array([0, 1, 2, 0], dtype=np.int32)
    base = np.arange(4, dtype=np.int64)
    made = point_table(
        [
            RunTrace(
                np=1,
                path=Path("."),
                calls=calls,
                comms=corpus_comms(),
                sites=corpus_sites(),
                ranks=(RankTrace(0, True, numbers, base, base, base),),
            )
        ]
    )
    assert made.count.tolist() == [4] and made.work.tolist() == [6]
    assert made.edges.tolist() == [[0, -1, 0, 1, 0], [0, 0, 0, 3, 1], [0, 0, -2, 1, 4]]


def corpus_comms() -> tuple:
    from p3s.capture import Comm

    return (Comm((0,), "MPI_COMM_WORLD", -1, None, None, 0),)


def corpus_sites() -> tuple:
    from p3s.capture import Site

    return (Site("0" * 16, ("app+0x1",)),)
