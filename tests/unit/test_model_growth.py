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
from p3s.model import holdout
from p3s.model.fit import fit_model
from p3s.model.grid.stated import Statement
from p3s.model.holdout import build_model
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
    few, some, many = (calls(k) for k in (10, 30, 90))
    assert many - some < 3.2 * (some - few), "three times as many more call sites"


def in_space(rec: corpus.Recorder) -> None:
    """Exchange with the neighbours across the faces, edges and corners of blocks of a domain."""
    dims = dims_balanced(rec.n, 3)
    here = np.unravel_index(rec.rank, dims)
    own = [block(e, p, int(c)) for e, p, c in zip((157, 211, 133), dims, here, strict=True)]
    for k in range(2):
        for step in product((-1, 0, 1), repeat=3):
            to = [int(c) + s for c, s in zip(here, step, strict=True)]
            inside = all(0 <= c < p for c, p in zip(to, dims, strict=True))
            if any(step) and inside and (not k or sum(map(abs, step)) == 1):
                peer = int(np.ravel_multi_index(to, dims))
                size = 8 * int(np.prod([x for x, s in zip(own, step, strict=True) if not s]))
                for op in ("Irecv", "Isend"):
                    rec(op, site=f"{k}{op}", peer=peer, nbytes=size)
        rec("Waitall", site=f"{k}w")


SEEN = "P3S_TEST_SEEN"
against = holdout._against


def told(model: Any, t: Any) -> Any:
    with Path(os.environ[SEEN]).open("a") as file:
        file.write(f"{t.np}\n")
    return against(model, t)


@pytest.mark.parametrize(
    ("options", "numbers"),
    [({}, (1, 2)), ({"holdout": False}, (2,)), ({"known": Statement(ndims=3, by_user=True)}, (5,))],
)
def test_the_model_is_the_same_with_any_number_of_processes(
    options: dict[str, Any],
    numbers: tuple[int, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables = [table(in_space, n) for n in (4, 8, 12)]
    here = json.dumps(as_file(build_model(tables, **options)))
    monkeypatch.setattr(holdout, "_against", told)
    for cores in numbers:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: set(range(cores)))
        seen = tmp_path / str(cores)
        monkeypatch.setenv(SEEN, str(seen))
        made = build_model(tables[::-1], **options, shared=Path(__file__))
        assert json.dumps(as_file(made)) == here
        assert sorted(map(int, seen.read_text().split())) == [4, 8, 12], "each count once"
