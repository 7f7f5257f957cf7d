"""Scaled traces: written, and shortened."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import corpus
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import timed_study as ts
from commands import cli

from p3s.base.errors import P3SError
from p3s.base.study import Study, write_json
from p3s.formats.scaled import ScaledSource
from p3s.model.grid.grids import BalancedGrid
from p3s.model.partners.communicator_laws import Axes, Modulo
from p3s.model.partners.members import Communicators
from p3s.program import events_of
from p3s.program.collectives.choose import library_of
from p3s.program.generate import some_dir, write_scaled
from p3s.program.order import sections as shorten
from p3s.program.order.sections import sections_of
from p3s.program.scaled import read_members, read_order, read_scaled
from p3s.signature.store import load_table
from p3s.simulate.steps import Section

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
    return ts.put_study(root, corpus.cg(), (2, 4, 8, 16), "cpu_ns")[0]


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
        scaled = ScaledSource(
            where, other, read_order(where), library_of("openmpi", "4.1"), None, print
        )
        with pytest.raises(P3SError, match=why):
            scaled.whole()


def test_ranks_that_are_not_there_are_refused(study):
    for bad in ([64], [-1], []):
        with pytest.raises(P3SError, match="name ranks from 0 to 63"):
            write_scaled(study.root, 64, bad)


def test_a_rank_of_a_very_large_trace_is_evaluated_alone(study):
    write_scaled(study.root, 1 << 18, [12345])
    there = some_dir(study.scaled_dir(1 << 18), [12345])
    events = events_of(there, 12345)
    row, column = divmod(12345, 512)
    partners = {peer for op, peer, _ in events if op == "MPI_Send"}
    assert partners == {row * 512 + (column ^ (1 << s)) for s in range(9)}


def test_communicators_of_large_counts_are_rules(tmp_path):
    grid = BalancedGrid(2).at(6400)
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
    made, _ = ts.put_study(tmp_path / "s", corpus.halo9(), (4, 9, 16), "cpu_ns")
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

    ts.put_study(tmp_path, program, (4, 8, 12, 16), "cpu_ns")
    found = {each.op: each.ranks for each in write_scaled(tmp_path, n).emptied}
    assert found == ({"MPI_Isend": empty, "MPI_Recv": empty} if empty else {})


N, ITERS = 24, 1200


def nested(rec: Any) -> None:
    """A loop with a first, a last and every tenth iteration of their own, and a loop inside."""
    ahead, behind = (rec.rank + 1) % rec.n, (rec.rank - 1) % rec.n
    rec("Bcast", nbytes=16, root=0, work=5000)
    for i in range(ITERS):
        if i == 0:
            rec("Barrier", work=10)
        for _ in range(3):
            rec.exchange("Sendrecv", ahead, behind, 4096, work=400, rest=0)
        if i % 10 == 9:
            rec("Allreduce", nbytes=8, work=300)
        if i < ITERS - 1:
            rec("Allgather", nbytes=8, work=300)
    rec("Reduce", nbytes=8, root=0, work=700)


PROGRAMS = {"plain": ts.sweeps(1 << 20, ITERS), "nested": nested}


@pytest.fixture(scope="module", params=PROGRAMS)
def stuck_study(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Study:
    root = tmp_path_factory.mktemp(request.param) / "study"
    program: corpus.Program = PROGRAMS[request.param]
    made, _ = ts.put_study(root, program, (4, 8, 16))
    cli(f"scale {root} -n {N}")
    return made


def totals(sections: Sequence[Section]) -> np.ndarray:
    """Return the calls that the steps of each operation stand for; last those left out."""
    found = np.zeros(64)
    for section in sections:
        found += np.bincount(section.steps.op, weights=section.steps.weight, minlength=64)
        found[-1] += sum(one.events for one in section.left_out)
    return found


def test_a_shortened_loop_is_cut_as_a_long_one(
    stuck_study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, order = read_scaled(stuck_study.scaled_dir(N)), read_order(stuck_study.scaled_dir(N))
    whole = sections_of(trace, order)
    monkeypatch.setattr(shorten, "MOST_EVENTS", 1000)
    monkeypatch.setattr(shorten, "_KEPT", 60)
    short, _, times = shorten.shorten_loops(trace, order)
    assert list(times.values()) == [ITERS / 60]
    assert shorten.most_events(short) < shorten.most_events(trace) / 15
    fewer = sections_of(trace, order)
    assert [one.name for one in fewer] == [one.name for one in whole]
    for one, other in zip(fewer, whole, strict=True):
        assert (one.run_turns, one.entries, one.turns) == (
            other.run_turns,
            other.entries,
            other.turns,
        )
        assert one.steps.op.tolist() == other.steps.op.tolist()
        # The first iteration stands for a little more.
        assert one.steps.weight.sum() == pytest.approx(other.steps.weight.sum(), rel=1e-9)
    assert totals(fewer) == pytest.approx(totals(whole), rel=1e-9)


def put_iterations(root: Path, number: int, trips: bool) -> None:
    """Give a model's loop another number of iterations; without ``trips`` its order keeps its."""
    path = root / "model.json"
    model = json.loads(path.read_text())
    del model["digest"]

    def put(law: Any) -> None:
        if law["expr"] == ["num", ITERS, 1]:
            law["expr"] = ["num", number, 1]

    for phase in model["phases"]:
        put(phase["weight"])
    for item in model["items"]:
        for slot in item["slots"]:
            put(slot["count"])
    for loop in model["order"]["loops"] if trips else ():
        for one in loop["trips"]:
            put(one["law"])
    path.write_text(json.dumps(model))


@pytest.mark.parametrize("trips", [True, False])
def test_iterations_cost_nothing(tmp_path: Path, trips: bool) -> None:
    study, _ = ts.put_study(tmp_path / "study", PROGRAMS["plain"], (4, 8, 16))
    put_iterations(study.root, 10**12, trips)
    cli(f"scale {study.root} -n {N}")
    trace, order = read_scaled(study.scaled_dir(N)), read_order(study.scaled_dir(N))
    assert shorten.most_events(trace) > 2 * 10**12
    sections = sections_of(trace, order)
    assert sum(len(one.steps) for one in sections) < 1000 * N
    assert totals(sections).sum() == pytest.approx(trace.repeat.sum(), rel=0.5)
    if trips:
        assert max(one.run_turns for one in sections) == 10**12
