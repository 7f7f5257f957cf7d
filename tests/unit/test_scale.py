"""The scaled trace on disk: its stable schema, its order, and that it says what the model says."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import corpus
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from p3s.base.errors import P3SError
from p3s.base.study import Study, write_json
from p3s.formats.scaled import Scaled
from p3s.model.grid.grids import Balanced
from p3s.model.partners.communicator_laws import Axes, Modulo
from p3s.model.partners.members import Communicators
from p3s.pipeline.stages import fit_model
from p3s.program import events_of
from p3s.program.collectives.choose import library_of
from p3s.program.generate import some_dir, write_scaled
from p3s.program.scaled import read_members, read_order, read_scaled
from p3s.signature.store import SIGNATURE, load_table, signature_of, write_tables

SCHEMA = {
    "rank": pa.int32(),
    "phase": pa.int32(),
    "index": pa.int32(),
    "op": pa.string(),
    "kind": pa.string(),
    "peer": pa.int32(),
    "bytes": pa.int64(),
    "comm": pa.int32(),
    "tag": pa.int32(),
    "root": pa.int32(),
    "repeat": pa.int64(),
    "work": pa.float64(),
    "work_unit": pa.string(),
    "slot": pa.int32(),
    "verdict": pa.string(),
    "stage": pa.int32(),
    "turn": pa.int32(),
}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A study of the conjugate gradient whose signatures come from the corpus."""
    root = tmp_path_factory.mktemp("study")
    made = Study.create(root, ["mpiexec", "-n", "{np}", "./cg"])
    for n in (2, 4, 8, 16):
        table = corpus.table(corpus.cg(), n)
        made.signature_path(n).parent.mkdir(exist_ok=True)
        write_tables(table, made.signature_path(n))
        write_json(made.signature_path(n), SIGNATURE.data(signature_of(table)))
    fit_model(made)
    return made


def rows(study, n):
    write_scaled(study.root, n)
    parts = sorted(study.scaled_dir(n).glob("*.parquet"))
    return pa.concat_tables(pq.read_table(p) for p in parts)


def test_schema_and_order(study):
    table = rows(study, 64)
    assert {f.name: f.type for f in table.schema} == SCHEMA
    keys = list(
        zip(
            table["rank"].to_pylist(),
            table["phase"].to_pylist(),
            table["index"].to_pylist(),
            strict=True,
        )
    )
    assert keys == sorted(keys) and len(set(keys)) == len(keys)
    assert set(table["rank"].to_pylist()) == set(range(64))
    assert min(table["repeat"].to_pylist()) >= 1
    assert min(table["work"].to_pylist()) >= 0


def test_rows_say_what_the_program_does(study):
    table = rows(study, 64).to_pylist()
    said = Counter()
    for r in table:
        if r["kind"] == "send":
            said[(r["rank"], r["peer"], r["bytes"])] += r["repeat"]
    truth = Counter()
    run = corpus.run(corpus.cg(), 64)
    for rank in run.ranks:
        for c in rank.call:
            call = run.calls[c]
            if call.op in ("MPI_Send", "MPI_Sendrecv"):
                truth[(rank.rank, call.peer, call.bytes)] += 1
    assert said == truth


def test_stages_of_an_exchange_alternate(study):
    """Receive, send, wait of one stage come before those of the next."""
    table = [r for r in rows(study, 64).to_pylist() if r["rank"] == 5 and r["phase"] == 2]
    ops = [r["op"].removeprefix("MPI_") for r in table][:9]
    assert ops == ["Irecv", "Send", "Wait"] * 3


def test_communicators_are_listed(study):
    write_scaled(study.root, 32)
    comms = json.loads((study.scaled_dir(32) / "comms.json").read_text())["comms"]
    assert comms[0]["id"] == 0 and comms[0]["members"] == list(range(32))


def truth_of(program, n, rank):
    run = corpus.run(program, n)
    return [(c.op, c.peer, c.bytes) for c in (run.calls[k] for k in run.ranks[rank].call)]


def test_rows_unfold_into_the_events_of_the_program(study):
    write_scaled(study.root, 64)
    for rank in (0, 5, 63):
        events = events_of(study.scaled_dir(64), rank)
        assert [(op, peer) for op, peer, _ in events] == [
            (op, peer) for op, peer, _ in truth_of(corpus.cg(), 64, rank)
        ]
        assert Counter(events) == Counter(truth_of(corpus.cg(), 64, rank))
    with pytest.raises(P3SError, match="rank 64"):
        events_of(study.scaled_dir(64), 64)


def test_some_ranks_are_those_of_the_whole_trace(study):
    whole = rows(study, 2048).to_pylist()
    wanted = [0, 3, 700, 701, 1500]  # of several parts
    head = write_scaled(study.root, 2048, wanted)
    there = some_dir(study.scaled_dir(2048), wanted)
    parts = pa.concat_tables(pq.read_table(p) for p in sorted(there.glob("*.parquet")))
    assert parts.to_pylist() == [r for r in whole if r["rank"] in wanted]
    assert head.ranks == ((0, 0), (3, 3), (700, 701), (1500, 1500))
    assert head.rows == len(parts) and head.n == 2048
    assert events_of(there, 701) == events_of(study.scaled_dir(2048), 701)


def test_a_whole_run_of_no_events_or_of_too_many_is_refused(study):
    write_scaled(study.root, 64)
    trace = read_scaled(study.scaled_dir(64))
    for repeat, why in ((0, "no calls to write"), (1 << 62, "has [0-9,]* events, more than")):
        other = replace(trace, repeat=np.full_like(trace.repeat, repeat))
        where = study.scaled_dir(64)
        scaled = Scaled(where, other, read_order(where), library_of("openmpi", "4.1"), None, print)
        with pytest.raises(P3SError, match=why):
            scaled.whole()


def test_ranks_that_are_not_there_are_refused(study):
    for bad in ([64], [-1], []):
        with pytest.raises(P3SError, match="name ranks from 0 to 63"):
            write_scaled(study.root, 64, bad)


def test_a_rank_of_a_very_large_trace_is_evaluated_alone(study):
    write_scaled(study.root, 1 << 20, [12345])
    there = some_dir(study.scaled_dir(1 << 20), [12345])
    events = events_of(there, 12345)
    row, column = divmod(12345, 1024)
    partners = {peer for op, peer, _ in events if op == "MPI_Send"}
    assert partners == {row * 1024 + (column ^ (1 << s)) for s in range(10)}


def test_communicators_of_large_counts_are_rules(tmp_path):
    grid = Balanced(2).at(6400)
    comms = Communicators(grid)
    ranks = np.array([0, 81, 6399])
    rows_ = comms.ids(Axes(axes=(1,), ordinal=0), ranks)
    columns = comms.ids(Axes(axes=(0,), ordinal=0), ranks)
    uneven = comms.ids(Modulo(k=7, ordinal=0), ranks)
    assert rows_.tolist() == [1, 2, 80] and comms.sizes(rows_).tolist() == [80, 80, 80]
    assert comms[2] == tuple(range(80, 160)) and comms[columns[1]] == tuple(range(1, 6400, 80))
    assert comms.member(columns, np.array([0, 1, -1])).tolist() == [0, 81, 6399]
    assert comms.member(columns, np.array([80, 80, 80])).tolist() == [-1, -1, -1]
    told = comms.to_json()
    assert told[0] == {"id": 0, "first": 0, "size": 6400}
    assert told[1] == {"id": 1, "number": 80, "firsts": [[0, 80, 80]], "offsets": [[0, 1, 80]]}
    assert told[2] == {"id": 81, "number": 80, "firsts": [[0, 1, 80]], "offsets": [[0, 80, 80]]}
    assert [entry["id"] for entry in told[3:]] == list(range(161, 168))
    assert told[3]["members"] == list(range(0, 6400, 7)) and uneven[0] == 161
    write_json(tmp_path / "comms.json", {"schema": "p3s.comms", "schema_version": 1, "comms": told})
    members = read_members(tmp_path)
    assert len(members) == len(comms)
    assert all(tuple(members[k].tolist()) == comms[k] for k in (0, 1, 80, 81, 160, 161, 167))


def test_a_count_that_the_grid_does_not_admit_is_refused(tmp_path):
    made = Study.create(tmp_path / "s", ["mpiexec", "-n", "{np}", "./halo"])
    for n in (4, 9, 16):
        table = corpus.table(corpus.halo9(), n)
        made.signature_path(n).parent.mkdir(exist_ok=True)
        write_tables(table, made.signature_path(n))
        write_json(made.signature_path(n), SIGNATURE.data(signature_of(table)))
    fit_model(made)
    with pytest.raises(P3SError, match="48"):
        write_scaled(made.root, 48)
    assert not made.scaled_dir(48).exists()


def test_signatures_survive_the_disk(study):
    table = load_table(study.root, 8)
    again = corpus.table(corpus.cg(), 8)
    assert table.groups == again.groups and table.places == again.places
    assert (table.edges == again.edges).all() and (table.work == again.work).all()


@pytest.mark.parametrize(("n", "empty"), [(40, 0), (41, 1), (64, 24)])
def test_ranks_that_have_nothing_left_are_told(n: int, empty: int, tmp_path: Path) -> None:
    """40 rows are dealt to the ranks, which pass them around: above 40 ranks some have none."""

    def program(rec: corpus.Recorder) -> None:
        rows = corpus.block(40, rec.n, rec.rank)
        before = corpus.block(40, rec.n, (rec.rank - 1) % rec.n)
        for _ in range(5):
            rec("Isend", peer=(rec.rank + 1) % rec.n, nbytes=16 * rows)
            rec("Recv", peer=(rec.rank - 1) % rec.n, nbytes=16 * before)
            rec("Wait")
        rec("Barrier")

    study = Study.create(tmp_path, ["mpiexec", "-n", "{np}", "./program"])
    for count in (4, 8, 12, 16):
        table = corpus.table(program, count)
        study.signature_path(count).parent.mkdir(exist_ok=True)
        write_tables(table, study.signature_path(count))
        write_json(study.signature_path(count), SIGNATURE.data(signature_of(table)))
    fit_model(study)
    found = {each.op: each.ranks for each in write_scaled(tmp_path, n).emptied}
    assert found == ({"MPI_Isend": empty, "MPI_Recv": empty} if empty else {})
