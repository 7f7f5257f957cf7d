"""Every MPI call has a row in the table or is known to be left alone, and docs/ says which."""

from __future__ import annotations

import re

import pytest
from calls_page import page
from paths import ROOT
from tracer_helpers import the_mpi

from p3s.base import ops
from p3s.base.host import mpi
from p3s.signature_runner.tracer import generate, table

PAGE = ROOT / "docs" / "mpi-calls.md"


def header() -> str:
    """The preprocessed mpi.h of the tests' MPI."""
    install = the_mpi()
    if install is None:
        pytest.skip("no usable MPI")
    text = mpi.preprocess(install.mpicc, "#include <mpi.h>\n")
    assert text
    return text


def functions(text: str) -> set[str]:
    """Names without MPI_ of all MPI functions that return an int, large-count twins left out."""
    found = {name[4:] for name in re.findall(r"\bint\s+(MPI_[A-Z]\w*)\s*\(", text)}
    return {name for name in found if not (name.endswith("_c") and name[:-2] in found)}


def test_the_page_is_what_the_table_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), (
        "run: python docs/make/calls_page.py docs/mpi-calls.md"
    )


def test_the_page_has_every_function_of_this_mpi() -> None:
    text = PAGE.read_text(encoding="utf-8")
    known = functions(header())
    assert len(known) > 300
    assert {name for name in known if not re.search(rf"\bMPI_{name}\b", text)} == set()


def test_no_row_is_lost_because_its_arguments_do_not_fit() -> None:
    """A row with another number of arguments than mpi.h has would silently not be wrapped."""
    known = generate.prototypes(header())
    wrapped = set(re.findall(r"\bint (?:p3s_)?MPI_(\w+)\(", generate.generate(header())[1]))
    for name in table.CALLS:
        for twin in (name, name + "_c"):
            if "MPI_" + twin in known:
                assert twin in wrapped, f"MPI_{twin} has {len(known['MPI_' + twin])} arguments"


def test_every_collective_has_its_twins() -> None:
    for name in table.CALLS:
        kind = ops.kind_of("MPI_" + name)
        assert kind != ops.OTHER or name in (
            "Start",
            "Startall",
            "Parrived",
            "Request_free",
            "Type_free",
            "Cancel",
            "Request_get_status",
            "Request_get_status_any",
            "Request_get_status_all",
            "Request_get_status_some",
        )
        if kind in (ops.COLLECTIVE, ops.NEIGHBOR):
            blocking = ops.blocking_of("MPI_" + name)
            assert ops.leaves_request("MPI_" + name) == ("MPI_" + name != blocking)
            assert blocking.removeprefix("MPI_") in table.CALLS
    assert ops.blocking_of("MPI_Iallreduce") == ops.blocking_of("MPI_Allreduce_init")
    assert ops.blocking_of("MPI_Iallreduce") == "MPI_Allreduce"
    assert ops.blocking_of("MPI_Isend") == "MPI_Isend" and not ops.leaves_request("MPI_Isend")
    assert {"MPI_Ibcast", "MPI_Scatterv_init"} <= ops.ROOTED
    assert "MPI_Iallreduce" not in ops.ROOTED
