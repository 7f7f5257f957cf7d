"""Calls with processes of another MPI_COMM_WORLD are left out by name, others are modelled."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from capture_writer import Writer, put_run_json
from test_times import new_study

from p3s.base.artefacts import add_digest
from p3s.base.errors import DamagedFile, Defect
from p3s.base.settings import traces_of
from p3s.base.study import Study
from p3s.model.fit import fit_model
from p3s.signature.signature import characterize
from p3s.signature.store import load_table

OPS = "Init Comm_spawn Send Recv Intercomm_merge Sendrecv Allreduce Comm_free Finalize".split()


def put_spawning(study: Study, np: int) -> None:
    """A run whose ranks start as many processes, and exchange with them and with each other."""
    target = study.runs_dir(np)
    target.mkdir(parents=True)
    for rank in range(np):
        w = Writer(rank, np)
        for number, name in enumerate(OPS):
            w.opname(number, f"MPI_{name}")
            w.site(0x100 + number, f"app+{16 + number:#x}")
        world, both = list(range(np)), [-1] * np + list(range(np))
        w.comm(0, world, "MPI_COMM_WORLD")
        w.event(w.call(0), start=-100, elapsed=100)
        w.event(w.call(1, 1, 0))
        w.comm(1, both, "MPI_Comm_spawn", 0)
        w.event(w.call(2, 2, 1, tag=1, nbytes=80, elem=8))
        w.event(w.call(3, 3, 1, tag=1, nbytes=80, elem=8))
        w.event(w.call(4, 4, 1))
        w.comm(2, both[np:] + both[:np], "MPI_Intercomm_merge", 1)
        to_next = w.call(5, 5, 2, peer=(rank + 1) % np, tag=0, nbytes=80, elem=8)
        own = w.call(6, 6, 0, nbytes=80, elem=8)
        for _ in range(5):
            w.event(to_next)
            w.event(own)
        w.event(w.call(7, 7, 2))
        w.event(w.call(8, 8, 0))
        w.end()
        w.save(target)
    put_run_json(target, np)
    characterize(traces_of(study), np)


def test_what_involves_processes_of_another_world_is_left_out_by_name(tmp_path: Path) -> None:
    study = new_study(tmp_path)
    for np in (2, 4, 8):
        put_spawning(study, np)
    tables = [load_table(study.root, np) for np in (2, 4, 8)]
    outside = {"Send", "Recv", "Intercomm_merge", "Sendrecv", "Comm_free"}
    for t in tables:
        assert all(min(place.members) >= 0 for place in t.places)
        assert set(t.unmodelled) == {"MPI_Comm_spawn", *(f"MPI_{op}_outside" for op in outside)}
        assert {g.comm for g in t.groups if g.op.endswith("_outside")} == {-1}
    model = fit_model(tables)
    known = {item.op for item in model.items if all(s.guard is not None for s in item.slots)}
    assert known == {"MPI_Init", "MPI_Allreduce", "MPI_Finalize"}
    assert {row.kind for row in model.not_modelled} == {"process"}
    assert model.not_modelled[0].np == 8


def test_a_signature_that_is_as_written_is_no_damage(tmp_path: Path) -> None:
    study = new_study(tmp_path)
    put_spawning(study, 2)
    path = study.signature_path(2)
    whole = path.read_bytes()
    wrong = re.sub(rb'"first": 0', b'"first": -1', whole)
    assert wrong != whole
    path.write_bytes(add_digest(wrong))
    with pytest.raises(Defect, match="as p3s wrote it; this is a bug") as caught:
        load_table(study.root, 2)
    assert caught.value.exit_code == 1 and "again" not in str(caught.value)
    path.write_bytes(whole)
    table = path.with_suffix(".parquet")
    table.write_bytes(table.read_bytes()[:-1])
    with pytest.raises(DamagedFile, match="characterize` again$"):
        load_table(study.root, 2)
