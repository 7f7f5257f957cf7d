"""What the model step does grows in proportion to the call sites; equal call sites share it."""

from __future__ import annotations

import cProfile
import pstats
from typing import Any

import pytest
from corpus import Program, table

from p3s.model import evaluate
from p3s.model.fit import fit_model


def many_sites(sites: int) -> Program:
    """Return a program that exchanges with two neighbours in a ring at many places, in turns."""

    def program(rec: Any) -> None:
        for _ in range(2):
            for k in range(sites):
                for step in (1, -1):
                    peer = (rec.rank + step) % rec.n
                    rec("Irecv", site=f"{k}r", peer=peer, nbytes=8 * (k % 5 + 1))
                    rec("Isend", site=f"{k}s", peer=peer, nbytes=8 * (k % 5 + 1))
                rec("Waitall", site=f"{k}w")
                rec("Allreduce", site=f"{k}a", nbytes=16)

    return program


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
