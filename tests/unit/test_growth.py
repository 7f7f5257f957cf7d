"""What grows with a program grows no faster than it: counted, not timed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from load_captures import Program, many_sites, write_run

from p3s.base.settings import traces_of
from p3s.base.study import Study
from p3s.model import tree
from p3s.model.stage import build
from p3s.signature import clones as copies
from p3s.signature.part import Sites, join_files
from p3s.signature.signature import characterize
from p3s.signature.tables import PointTable, table_of


def table_from(folder: Path, program: Program) -> PointTable:
    """The table of a run of two processes."""
    write_run(folder, 2, program, 3)
    files = sorted((folder / "runs" / "np0002.r0").glob("*.p3t"))
    return table_of([join_files(files, Sites())], [None], str(folder))


def counted(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[int]:
    """Count the calls of a function of a module."""
    calls, inner = [0], getattr(module, name)

    def counting(*args: Any) -> Any:
        calls[0] += 1
        return inner(*args)

    monkeypatch.setattr(module, name, counting)
    return calls


def test_copies_are_not_looked_for_among_all_pairs_of_sites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a thousand sites of one function in one loop, made equally often, none is compared."""
    table = table_from(tmp_path, many_sites(2000))
    compared = counted(monkeypatch, copies, "_unlike")
    functions = dict.fromkeys(table.sites, ("main",))
    found = copies.copied_calls(table, functions)
    assert all(site == one for site, one in found.items()) and len(found) == 2002
    assert compared[0] <= 10


def test_a_call_is_looked_up_by_its_own_communicators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Places of the program times communicators is what it would be otherwise."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})  # calls elsewhere are not counted
    asked = []
    for sites in (20, 40):
        study = tmp_path / str(sites)
        for size in (2, 4, 8):
            write_run(study, size, many_sites(sites), 2)
        for size in (2, 4, 8):
            characterize(traces_of(Study(study)), size)
        with monkeypatch.context() as patched:
            calls = counted(patched, tree, "same_communicator")
            build(study)
            asked.append(calls[0])
    assert 0 < asked[1] <= 2.5 * asked[0]
