"""What a run costs to look at does not grow with its iterations, and nothing else changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import corpus
import numpy as np
import pytest
import timed_study as ts
from commands import cli

from p3s.base.study import Study
from p3s.program.order import sections as shorten
from p3s.program.order.sections import sections_of
from p3s.program.scaled import read_order, read_scaled
from p3s.simulate.steps import Section

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
def study(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Study:
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
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, order = read_scaled(study.scaled_dir(N)), read_order(study.scaled_dir(N))
    whole = sections_of(trace, order)
    monkeypatch.setattr(shorten, "MOST_EVENTS", 1000)
    monkeypatch.setattr(shorten, "_KEPT", 60)
    short, _, times = shorten.shortened(trace, order)
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


@pytest.mark.parametrize("parents", [(None, 1), (1, 0), (None, None), (None, 2), (None, -1)])
def test_phases_that_lie_in_each_other_are_refused(
    tmp_path: Path, parents: tuple[int | None, int | None]
) -> None:
    study, _ = ts.put_study(tmp_path / "study", ts.sweeps(1 << 20, 10), (4, 8, 16))
    model = json.loads(study.model_path.read_text())
    del model["digest"]
    for phase, parent in zip(model["phases"], parents, strict=True):
        phase["parent"] = parent
    study.model_path.write_text(json.dumps(model))
    said = cli(f"scale {study.root} -n {N}", code=1).err.strip()
    assert "the nest of phases is broken" in said or "parent" in said
    assert said.count("\n") == 0 and not study.scaled_path(N).exists()
