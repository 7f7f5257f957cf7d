"""Signatures made rank by rank, or by several processes, are those of the whole run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import corpus
import numpy as np
import pytest
from tracer_helpers import the_mpi

from p3s.characterize.parallel import from_bytes, to_bytes
from p3s.characterize.part import Part, join, part_of
from p3s.characterize.phases import phases_json
from p3s.characterize.structure import structure
from p3s.characterize.tables import table_of
from p3s.signature_runner.recording import SHARING

PROGRAMS = [corpus.jacobi2d(), corpus.ring(), corpus.halo3d(), corpus.cg(), corpus.wavefront()]


def ranks_of(program: corpus.Program, n: int) -> list[Part]:
    """Return one part per rank, as if each had a file of its own."""
    run = corpus.run(program, n)
    every = run.ranks
    parts = []
    for rank in every:
        run.ranks = [rank]
        parts.append(part_of(run))
    return parts


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_parts_of_the_ranks_make_the_whole(program: corpus.Program) -> None:
    whole = phases_json(structure([corpus.table(program, 16)]))
    parts = ranks_of(program, 16)
    sent = [from_bytes(to_bytes(part)) for part in parts]
    for made in (parts, sent):
        table = table_of([join(made)], [None], "here")
        again = phases_json(structure([table]))
        assert without_numbers(again["tree"]) == without_numbers(whole["tree"])
        assert again["accounting"] == whole["accounting"]
        assert [p["per_count"] for p in again["phases"]] == [
            p["per_count"] for p in whole["phases"]
        ]


def without_numbers(node: dict) -> dict:
    """Drop the numbers of calls, which follow the order in which ranks are met."""
    return {
        k: [without_numbers(c) for c in v] if k == "body" else v
        for k, v in node.items()
        if k != "call"
    }


def test_bytes_of_a_part_are_the_part() -> None:
    part = ranks_of(corpus.jacobi2d(), 4)[2]
    part.sites["odd \udcff"] = ("name \udcfe",)
    again = from_bytes(to_bytes(part))
    for name in ("np", "work_unit", "groups", "places", "sites", "nodes", "events", "tracing"):
        assert getattr(again, name) == getattr(part, name), name
    assert all((again.table[c] == part.table[c]).all() for c in part.table)
    assert (again.edges == part.edges).all() and list(again.samples) == [2]
    assert np.array_equal(again.samples[2], part.samples[2])


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A traced study of three counts."""
    if the_mpi() is None:
        pytest.skip("no MPI")
    folder = tmp_path_factory.mktemp("parallel")
    script = folder / "hello.py"
    script.write_text(
        "from mpi4py import MPI\nc = MPI.COMM_WORLD\n"
        "for k in range(7):\n"
        "    c.sendrecv(k, dest=(c.rank + 1) % c.size)\n    c.Barrier()\n"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "p3s",
            "characterize",
            "-n",
            "1,2,3",
            "-o",
            str(folder / "study"),
            "--",
            the_mpi().mpiexec,
            "-n",
            "{np}",
            sys.executable,
            str(script),
        ],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "study"


def by_processes(study: Path, processes: int) -> subprocess.CompletedProcess:
    env = {
        **os.environ,
        **SHARING,
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    return subprocess.run(
        [
            the_mpi().mpiexec,
            "-n",
            str(processes),
            sys.executable,
            "-m",
            "p3s.characterize.parallel",
            str(study),
        ],
        capture_output=True,
        text=True,
        timeout=240,
        env=env,
        check=False,
    )


def signatures(study: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((study / "signature").iterdir())}


def test_two_processes_write_the_same_bytes(study: Path, tmp_path: Path) -> None:
    before = signatures(study)
    copy = tmp_path / "copy"
    shutil.copytree(study, copy)
    shutil.rmtree(copy / "signature")
    done = by_processes(copy, 2)
    assert done.returncode == 0, done.stderr
    assert signatures(copy) == before


def test_a_damaged_run_ends_all_processes_with_one_line(study: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(study, copy)
    (copy / "runs" / "np0003.r0" / "rank-000001.p3t").write_bytes(b"no capture")
    before = signatures(copy)
    done = by_processes(copy, 3)
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if line.startswith("p3s: ")]
    assert len(lines) == 1 and "rank-000001.p3t" in lines[0], done.stderr
    assert "Traceback" not in done.stderr
    assert {k: v for k, v in signatures(copy).items() if "0003" in k} == {
        k: v for k, v in before.items() if "0003" in k
    }
