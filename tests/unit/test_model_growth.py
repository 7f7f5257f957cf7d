"""What the model step does grows in proportion to the call sites; equal call sites share it."""

from __future__ import annotations

import cProfile
import json
import os
import pstats
from itertools import product
from pathlib import Path
from typing import Any

import corpus
import numpy as np
import pytest
from corpus import block, table

from p3s.base.extents import dims_balanced
from p3s.model import evaluate, holdout, sizing
from p3s.model.fit import fit_model
from p3s.model.grid.stated import Statement
from p3s.model.holdout import build_model
from p3s.model.order import unfold
from p3s.model.order.unfold import compare_order
from p3s.model.stage import as_file


@corpus.program
def many_sites(rec: corpus.Recorder, sites: int) -> None:
    """Return a program that exchanges with two neighbours in a ring at many places, in turns."""
    for _ in range(2):
        for k in range(sites):
            for step in (1, -1):
                peer = (rec.rank + step) % rec.n
                rec("Irecv", site=f"{k}r", peer=peer, nbytes=8 * (k % 5 + 1))
                rec("Isend", site=f"{k}s", peer=peer, nbytes=8 * (k % 5 + 1))
            rec("Waitall", site=f"{k}w")
            rec("Allreduce", site=f"{k}a", nbytes=16)


def calls(sites: int) -> int:
    """Return how many functions are called to fit the model of so many call sites."""
    tables = [table(many_sites(sites), n) for n in (3, 5)]
    profile = cProfile.Profile()
    profile.runcall(fit_model, tables)
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


def test_calls_are_in_proportion_to_call_sites() -> None:
    few, some, many = (calls(k) for k in (20, 60, 180))
    assert many - some < 3.2 * (some - few), "three times as many more call sites"


def test_rows_of_equal_call_sites_are_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fit_model([table(many_sites(20), n) for n in (3, 5, 8)])
    asked: list[object] = []
    bytes_of = evaluate.bytes_of
    monkeypatch.setattr(evaluate, "bytes_of", lambda *a: asked.append(a) or bytes_of(*a))
    rows = evaluate.generate(model, 16, work=False)
    assert len(asked) <= 40 < 100 < len(set(rows.item.tolist()))
    sizes = {
        (item.site, item.op): sorted(rows.nbytes[rows.item == i].tolist())
        for i, item in enumerate(model.items)
        if item.kind == "send"
    }
    for k in range(5, 20):
        assert (
            sizes[f"{k}s", "MPI_Isend"] == sizes[f"{k % 5}s", "MPI_Isend"] == [8 * (k % 5 + 1)] * 16
        )


def in_space(rec: corpus.Recorder) -> None:
    """Exchange with the neighbours across the faces, edges and corners of blocks of a domain."""
    dims = dims_balanced(rec.n, 3)
    here = np.unravel_index(rec.rank, dims)
    own = [block(e, p, int(c)) for e, p, c in zip((157, 211, 133), dims, here, strict=True)]
    for k in range(4):
        for step in product((-1, 0, 1), repeat=3):
            to = [int(c) + s for c, s in zip(here, step, strict=True)]
            inside = all(0 <= c < p for c, p in zip(to, dims, strict=True))
            if any(step) and inside and (not k or sum(map(abs, step)) == 1):
                peer = int(np.ravel_multi_index(to, dims))
                size = 8 * int(np.prod([x for x, s in zip(own, step, strict=True) if not s]))
                for op in ("Irecv", "Isend"):
                    rec(op, site=f"{k}{op}", peer=peer, nbytes=size)
        rec("Waitall", site=f"{k}w")


def test_a_grid_that_is_too_dear_is_left_before_its_sizes_are_fitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables = [table(in_space, n) for n in (4, 8, 12, 18)]
    asked: list[tuple[int, Any, float]] = []
    fitted: list[int] = []
    begin, fit_sizes = sizing.Sizing.__init__, sizing.fit_sizes

    def init(self: Any, nodes: Any, choice: Any, tables: Any, typed: Any, most: float) -> None:
        asked.append((choice.family.ndims, (nodes, choice, tables, typed), most))
        begin(self, *asked[-1][1], most)

    def sizes(seen: Any, *rest: Any) -> Any:
        fitted.append(len(next(iter(seen.grids.values())).dims))
        return fit_sizes(seen, *rest)

    monkeypatch.setattr(sizing.Sizing, "__init__", init)
    monkeypatch.setattr(sizing, "fit_sizes", sizes)
    assert fit_model(tables).grid.family.ndims == 3
    others = [(words, most) for ndims, words, most in asked if ndims != 3]
    assert others and set(fitted) == {3}
    monkeypatch.undo()
    assert all(sizing.Sizing(*words).cost() > most for words, most in others)


SEEN = "P3S_TEST_SEEN"
against = holdout._against


def told(model: Any, t: Any) -> Any:
    with Path(os.environ[SEEN]).open("a") as file:
        file.write(f"{t.np}\n")
    return against(model, t)


@pytest.mark.parametrize(
    "options", [{}, {"holdout": False}, {"known": Statement(ndims=3, by_user=True)}]
)
def test_the_model_is_the_same_with_any_number_of_processes(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = [table(in_space, n) for n in (4, 8, 12)]
    here = json.dumps(as_file(build_model(tables, **options)))
    monkeypatch.setattr(holdout, "_against", told)
    for cores in (1, 2, 5):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: set(range(cores)))
        seen = tmp_path / str(cores)
        monkeypatch.setenv(SEEN, str(seen))
        made = build_model(tables[::-1], **options, shared=Path(__file__))
        assert json.dumps(as_file(made)) == here
        assert sorted(map(int, seen.read_text().split())) == [4, 8, 12], "each count once"


def test_iterations_of_rules_that_go_alike_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(rec: Any) -> None:
        for turn in range(3):
            for k in range(20):
                rec("Allreduce", site=f"{k}a", nbytes=8)
                if not turn:
                    rec("Bcast", site=f"{k}b", nbytes=8)

    tables = [table(program, n) for n in (2, 3, 5)]
    model = fit_model(tables)
    asked: list[object] = []
    hold = unfold.all_hold
    monkeypatch.setattr(unfold, "all_hold", lambda *a: asked.append(a) or hold(*a))
    found = compare_order(model, tables[-1], evaluate.generate(model, 5, work=False))
    assert found is not None and found.equal == 5
    assert 1 <= len(asked) <= 4 * len(model.order.loops)
