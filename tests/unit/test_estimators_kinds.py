"""Smaller grids where ranks are of kinds that repeat, calls that no grid has, and variation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import corpus
import numpy as np
import pytest
from corpus import grids, nests
from test_any_counts import put_times

from p3s.base.settings import traces_of
from p3s.base.study import Study
from p3s.model.holdout import build_model
from p3s.model.partners.relation import Shift
from p3s.model.stage import load as load_model
from p3s.model.types import Model
from p3s.pipeline.costing import build_compute
from p3s.predict.estimated import Communication
from p3s.predict.estimators import Setting, estimate
from p3s.predict.estimators import check as of_check
from p3s.predict.estimators import fewer as of_fewer
from p3s.predict.estimators.check import UnseenCalls, unseen, with_unseen
from p3s.predict.times import computation, with_communication
from p3s.program.fewer import Fewer, fewer, inner_places, longer
from p3s.program.generate import write_scaled

Program = Callable[[corpus.Recorder], None]
LARGE = 512


@pytest.fixture
def study_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Study]:
    """Studies of programs with a scaled trace of LARGE ranks, more than are all simulated."""

    def made(program: Program, counts: tuple[int, ...]) -> Study:
        study = put_times(tmp_path / "study", program, counts, "cpu_ns")
        build_compute(study.root)
        write_scaled(study.root, LARGE)
        return study

    monkeypatch.setattr(of_fewer, "EVERY_RANK", 64)
    return made


def mean_time(study: Study, setting: Setting) -> tuple[float, float]:
    """Return the mean communication of all ranks, and their mean time."""
    found = estimate("machine", traces_of(study), LARGE, setting=setting)
    times = with_communication(computation(study.scaled_dir(LARGE)), found)
    comm = times.mpi.comm.sum(axis=1)
    return float(comm.mean()), float((times.own.sum(axis=1) + comm).mean())


def test_every_third_rank_is_stood_for_by_one_of_its_kind(study_of: Callable[..., Study]) -> None:
    """Of a node's three ranks one sends on to rank 0: others do neither its work nor its calls."""
    study = study_of(grids.node_gather(), (4, 8, 16, 32))
    few = fewer(load_model(study.root), LARGE, 4)
    assert isinstance(few, Fewer) and few.periods == (12,)
    assert ((few.stood_for_by - np.arange(LARGE)) % 3 == 0).all()
    assert few.weight.sum() == LARGE
    told, every = (
        mean_time(study, Setting(ranks_per_node=4, vary=False, every_rank=each))
        for each in (False, True)
    )
    assert told == pytest.approx(every, rel=0.03)


def test_where_all_between_the_ends_are_alike_nothing_repeats(
    study_of: Callable[..., Study],
) -> None:
    study = study_of(corpus.ring(), (4, 8, 16, 32))
    few = fewer(load_model(study.root), LARGE, 4)
    assert isinstance(few, Fewer) and few.periods == (1,)


@pytest.mark.parametrize("period", [1, 3, 5, 12, 99])
def test_places_take_turns_in_whole_periods(period: int) -> None:
    inner = inner_places(32, 512, period)
    between = inner[8:-8]
    turn = 16 // period * period or 16
    assert sorted(set(between.tolist())) == list(range(8, 8 + turn))
    if turn % period == 0:
        at = range(8, 8 + len(between))
        assert all((a - b) % period == 0 for a, b in zip(between.tolist(), at, strict=True))
    assert inner[:8].tolist() == list(range(8)) and inner[-8:].tolist() == list(range(24, 32))


def test_what_variation_adds_is_checked_as_well(study_of: Callable[..., Study]) -> None:
    """Most of what ranks wait for here is that others are late: where nothing varies, smaller
    grids meet all ranks far better than where something does."""
    study = study_of(nests.vcycle_exits(), (4, 9, 16, 25))
    still, varied = (
        estimate(
            "machine", traces_of(study), LARGE, setting=Setting(ranks_per_node=4, vary=vary)
        ).stand_ins
        for vary in (False, True)
    )
    assert still is not None and varied is not None and still.checked_n == varied.checked_n
    assert still.checked_missed is not None and abs(still.checked_missed) < 0.03
    assert varied.checked_missed is not None and varied.checked_missed < -0.05


def far(rec: corpus.Recorder) -> None:
    """A ring, and messages to a rank that is five away."""
    for _ in range(4):
        rec("Sendrecv", peer=(rec.rank + 1) % rec.n, nbytes=80)
        rec("Sendrecv_recv", site="Sendrecv", peer=(rec.rank - 1) % rec.n, nbytes=80)
        if rec.rank + 5 < rec.n:
            rec("Send", site="far", peer=rec.rank + 5, nbytes=8)
        if rec.rank >= 5:
            rec("Recv", site="far", peer=rec.rank - 5, nbytes=8)


def unseen_of(model: Model, checked: int | None = None) -> dict[str, tuple[int, int]]:
    """Return what ranks of LARGE make more of than those of grids of up to 128, by operation."""
    few = fewer(model, LARGE, 4)
    assert isinstance(few, Fewer) and few.n == 32
    grids = [few, *(longer(few, [0], times) for times in (2, 4))]
    found = unseen(few, grids, checked)
    return {model.items[one.item].op: (one.there, one.seen) for one in found}


def test_partners_farther_away_than_a_grid_is_long_are_on_none() -> None:
    model = build_model([corpus.table(far, n) for n in (8, 13, 16)])

    def at(distance: int) -> Model:
        way = {"MPI_Send": distance, "MPI_Recv": -distance}
        items = []
        for item in model.items:
            if item.op in way:
                to = Shift(vec=(way[item.op],), wrap=(False,))
                slots = tuple(replace(slot, relation=to) for slot in item.slots)
                item = replace(item, relation=to, slots=slots)
            items.append(item)
        return replace(model, items=tuple(items))

    assert unseen_of(model) == {}
    assert unseen_of(at(150)) == {"MPI_Send": (1, 0), "MPI_Recv": (1, 0)}
    assert unseen_of(at(150), checked=256) == {}, "they were simulated there"
    assert unseen_of(at(40)) == {}, "a longer grid has them"


def test_what_grows_with_the_ranks_is_on_smaller_grids() -> None:
    """A root that hears from all: how it grows is what they tell."""
    tables = [corpus.table(corpus.gather_to_root(), n) for n in (4, 8, 16)]
    assert unseen_of(build_model(tables, holdout=False)) == {}


def test_levels_that_no_simulated_grid_has_are_told(study_of: Callable[..., Study]) -> None:
    """A cycle has one level more with each doubling: the interval is as wide, and it is said."""
    study = study_of(nests.vcycle_exits(), (4, 9, 16, 25))
    found = estimate(
        "machine", traces_of(study), LARGE, setting=Setting(ranks_per_node=4, vary=False)
    )
    (said,) = (note for note in found.notes if "no simulated grid has" in note)
    assert said.startswith(f"at {LARGE} processes ranks make calls of MPI_Recv and MPI_Send ")
    assert "up to 9 different ones of MPI_Recv, and 8 where ranks were simulated" in said


@pytest.mark.parametrize(("seen", "share"), [(8, 1 / 9), (0, 1.0)])
def test_the_interval_covers_what_was_never_simulated(
    monkeypatch: pytest.MonkeyPatch, seen: int, share: float
) -> None:
    model = build_model([corpus.table(corpus.ring(), n) for n in (4, 8, 16)], holdout=False)
    few = fewer(model, LARGE, 4)
    assert isinstance(few, Fewer)
    item = next(i for i, one in enumerate(model.items) if one.phase == 1)
    monkeypatch.setattr(of_check, "unseen", lambda *_: [UnseenCalls(item, 9, seen)])
    ones = np.ones((few.n, 2))
    made = Communication("machine", few.n, (0, 1), np.stack([ones] * 6))
    found = with_unseen(made, few, [few], None)
    assert found.low[:, 0] == pytest.approx(1.0) and found.high[:, 0] == pytest.approx(1.0)
    assert found.low[:, 1] == pytest.approx(1 - share)
    assert found.high[:, 1] == pytest.approx(1 + share)
    assert ("what they take is not known" in found.notes[-1]) == (seen == 0)
