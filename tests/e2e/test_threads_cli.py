"""Threads through the command line: a real program with OpenMP, and every wrong use."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from commands import p3s
from tracer_helpers import PROGRAMS, compile_c, the_mpi, usable_mpi

from p3s.base.study import Study
from p3s.signature.beside import load_teams

ITERATIONS = 10
pytestmark = [pytest.mark.skipif(the_mpi() is None, reason="no usable MPI")]


def launcher() -> str:
    found = usable_mpi()
    return str(found.mpiexec)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return compile_c(
            PROGRAMS / "hybrid.c", tmp_path_factory.mktemp("hybrid") / "hybrid", "-O1", "-fopenmp"
        )
    except subprocess.CalledProcessError:
        pytest.skip("the C compiler has no OpenMP")


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, program: Path) -> Study:
    root = tmp_path_factory.mktemp("threads") / "study"
    p3s(
        *("characterize", "-n", "2,4,8", "--threads", "1,2,4", "--oversubscribe"),
        *("--work", "cpu", "-o", root, "--"),
        *(launcher(), "-n", "{np}", program, 40000, ITERATIONS),
    )
    return Study.open(root)


def test_every_number_of_threads_is_a_study(study: Study) -> None:
    assert study.manifest()["parameters"] == {"threads": ["1", "2", "4"]}
    for threads in (1, 2, 4):
        at = Study.open(study.at_dir(f"threads={threads}"))
        assert at.signature_counts() == [2, 4, 8]
        (run,) = at.runs(4)
        assert run.info["threads"]["count"] == threads
        said = (run.path / "stdout.txt").read_text()
        assert f"regions {2 * ITERATIONS} threads {threads}" in said


def test_regions_and_teams_are_those_of_the_program(study: Study) -> None:
    for threads in (1, 2, 4):
        for n in (2, 4, 8):
            seen = load_teams(study.at_dir(f"threads={threads}"), n)
            assert seen is not None
            assert seen.total("regions") == 2 * ITERATIONS * n
            assert seen.total("team") == threads
            assert seen.total("busy") > 0


def test_model_compares_messages_over_threads(study: Study) -> None:
    p3s(f"model {study.root}", out="messages do not depend on threads: 6 runs with 2 and 4 threads")
    told = p3s(f"model {study.root} --json", code=None).data
    assert all(check["equal"] for check in told["threads"]["checks"])
    assert [law["phase"] for law in told["threads"]["laws"]]


def test_predict_over_threads_and_advise(study: Study, tmp_path: Path) -> None:
    done = p3s(f"predict {study.root} -n 16 --threads 1,4,8 --node 2x8 --json", code=(0, 3))
    told = done.data
    cells = {(c["n"], c["threads"]): c for c in told["cells"]}
    assert {(16, 1), (16, 4), (16, 8)} <= set(cells)
    assert cells[16, 1]["compute_s"] > cells[16, 4]["compute_s"] > cells[16, 8]["compute_s"]
    assert [cells[16, t]["traced"] for t in (1, 4, 8)] == [True, True, False]
    assert [cells[16, t]["nodes"] for t in (1, 4, 8)] == [1, 4, 8]

    done = p3s(f"advise {study.root} --cores 32 --nodes 4 --node 2x4 --json", code=(0, 3))
    told = done.data
    best = told["advice"]["choices"][0]["configuration"]
    assert best["processes"] * best["threads"] <= 32 and best["nodes"] <= 4
    if done.code == 3:
        assert any(r["untrustworthy"] for r in told["reasons"]) or any(
            r["untrustworthy"] for r in told["advice"]["choices"][0]["reasons"]
        )

    page = tmp_path / "page.html"
    p3s(f"report {study.root} -o {page}", code=(0, 3))
    assert page.read_text().count("<svg") == 2
    assert p3s(f"next {study.root}", code=None).code == 0


def test_what_more_threads_save_is_in_the_table(study: Study) -> None:
    words = ("-n", "16", "--param", "threads=2", "--what-if", "table", "--json")
    done = p3s("predict", study.root, *words, code=(0, 3))
    rows = {row["text"]: row["counts"][-1] for row in done.data["what_if"]}
    assert rows["threads=4"]["saved_low_s"] < rows["threads=4"]["saved_s"]


def test_a_number_of_threads_that_was_not_traced_can_be_validated(study: Study) -> None:
    p3s(f"predict {study.root} -n 16 --threads 3 --node 2x6", code=None)
    done = p3s("validate", study.at_dir("threads=3"), "-n", "4", "--json", code=(0, 3))
    told = done.data
    assert told["p2p_triples"]["equal"] == told["p2p_triples"]["true"] > 0
    info = json.loads((study.at_dir("threads=3") / "validate/np000004.r0/run.json").read_text())
    assert info["threads"]["count"] == 3
