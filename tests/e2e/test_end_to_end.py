"""Real programs traced small and compared at a count nobody traced, through the command line."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from commands import p3s
from endings import only_work
from paths import EXAMPLES
from tracer_helpers import PROGRAMS, compile_c, the_mpi, usable_mpi

IN_MELT = Path("/usr/share/lammps/examples/melt/in.melt")


@pytest.fixture(scope="session")
def launcher() -> list[str]:
    install = usable_mpi()
    return [install.mpiexec, "-n", "{np}"]


CASES = [
    (
        "jacobi2d",
        ["--nx", "203", "--ny", "151", "--iterations", "8"],
        "4,8,9,16",
        (64, 60, 36, 48, 100),
    ),
    ("ring", ["--bodies", "1003", "--steps", "2"], "2,4,8,16", (64, 37)),
    (
        "halo3d",
        ["--nx", "41", "--ny", "37", "--nz", "29", "--iterations", "4"],
        "8,12,18,27",
        (64, 36, 125),
    ),
    ("cg", ["--n", "1403", "--iterations", "2", "--inner", "4"], "2,4,8,16", (64, 128)),
    ("wavefront", ["--nx", "67", "--ny", "53", "--iterations", "2"], "2,4,8,16", (64, 48, 96)),
    # tests/programs/phases
    ("vcycle", ["5"], "4,8,16,27", (64, 36, 100)),
    ("multipartition", ["7"], "4,9,16,25", (64, 36, 49)),
    ("rankring", ["3"], "4,8,16", (64, 36)),
    ("recursive", ["5"], "4,8,16,27", (64, 36, 100)),
    ("fft", ["6"], "4,8,16,27", (64, 36)),
    ("tenth", ["25", "10"], "4,8,16", (64, 36)),
    ("tenth", ["40", "10"], "4,8,16", (64, 36)),
    ("octants", ["3", "4", "0"], "4,9,16,25", (64, 36)),
    ("octants", ["3", "4", "1"], "4,9,16,25", (64, 36)),
    ("bisected", ["6"], "4,8,16", (64, 128)),
    ("turns", ["9"], "4,8,16", (64, 36)),
    ("trips", ["8"], "4,9,16,25", (64, 36)),
    ("fused", ["4", "3"], "4,8,16", (64, 36)),
    ("wrapper", ["10"], "4,9,16,25", (64, 36)),
    ("waitany", ["7"], "4,9,16,25", (64, 36)),
    ("intercomm", ["11"], "4,8,16", (64, 36)),
]
#: Those that `make test` runs, at their first target; all others are slow.
QUICK = ("jacobi2d", "ring", "halo3d", "cg", "wavefront")


def _cases():
    for case in CASES:
        name, args, counts, targets = case
        quick = name in QUICK
        one = f"{name}-{'-'.join(a for a in args if a.isdigit())}"
        yield pytest.param(
            name,
            args,
            counts,
            targets[:1] if quick else targets,
            id=one,
            marks=() if quick else pytest.mark.slow,
        )
        if quick and targets[1:]:
            yield pytest.param(
                name, args, counts, targets[1:], id=f"{one}-more", marks=pytest.mark.slow
            )


@pytest.fixture(scope="session")
def corpus(examples) -> Path:
    """Build the programs of tests/programs/phases where the examples are."""
    for name in {case[0] for case in CASES}:
        source = PROGRAMS / "phases" / f"{name}.c"
        if source.exists():
            compile_c(source, examples / name, "-lm")
    return examples


@pytest.mark.parametrize(("program", "args", "counts", "targets"), list(_cases()))
def test_large_counts_are_predicted_exactly(
    program, args, counts, targets, corpus, launcher, tmp_path
):
    command = [*launcher, str(corpus / program), *args]
    study = tmp_path / "study"
    done = p3s(f"characterize -n {counts} -o {study} --", *command)
    done = p3s(f"model {study}", code=(0, 3))  # 3: the hold-out, fitted with one count fewer
    for n in targets:
        done = p3s(f"validate {study} -n", str(n), "--json", "--", *command, code=None)
        result = done.data
        for key in ("p2p_triples", "collectives"):
            got = result[key]
            assert got["true"] == got["predicted"] == got["equal"], (n, key, got)
        assert result["p2p_triples"]["true"] + result["collectives"]["true"] > 0
        assert result["weights"]["exact"] == result["weights"]["phases"] > 0
        assert result["unmodelled"]["events"] == 0
        order = result["order"]  # every event of every rank where it is in the run
        assert order["equal"] == order["ranks"] == n, (n, order["first"])
        assert only_work(done.code, done.err), done.err


def test_two_ranks_per_dimension_leave_directions_open(examples, launcher, tmp_path):
    command = [*launcher, str(examples / "halo3d"), "--nx", "21", "--iterations", "3"]
    study = tmp_path / "study"
    assert p3s(f"characterize -n 2,4,8 -o {study} --", *command, code=None).code == 0
    said = p3s(f"model {study}", code=None).out
    assert "direction open in dimension" in said
    assert "run next: 27 processes (3x3x3)" in said
    model = json.loads((study / "model.json").read_text())
    sends = [item for item in model["items"] if item["op"] == "MPI_Isend"]
    assert sends and all(item["verdict"] == "ambiguous" for item in sends)
    opposite = {tuple(item["relation"]["vec"]) for item in sends}
    assert {tuple(-v for v in vec) for vec in opposite} == opposite  # siblings go both ways


def test_master_and_workers_are_statistical(launcher, tmp_path):
    command = [
        *launcher,
        sys.executable,
        str(EXAMPLES / "master_worker.py"),
        "--tasks",
        "40",
        "--points",
        "20000",
    ]
    study = tmp_path / "study"
    done = p3s(f"characterize -n 2,4,8 -r 2 -o {study} --", *command)
    done = p3s(f"model {study} --json", code=(0, 3))
    model = done.data
    moving = [i for i in model["items"] if i["kind"] in ("send", "recv")]
    assert moving and any(i["verdict"] == "statistical" for i in moving)
    assert all(i["site"] in model["sites"] for i in moving)
    assert any("master_worker.py" in f for i in moving for f in model["sites"][i["site"]])
    done = p3s(f"validate {study} -n 16 --json --", *command, code=None)
    result = done.data
    assert result["p2p_triples"]["predicted"] > 0


@pytest.mark.skipif(
    shutil.which("lmp") is None or not IN_MELT.exists() or shutil.which("mpiexec.openmpi") is None,
    reason="LAMMPS or its Open MPI is not installed",
)
def test_lammps_claims_nothing_that_is_not_so(tmp_path):
    script = tmp_path / "in.melt"
    script.write_text(re.sub(r"(?m)^run\s.*$", "run 30", IN_MELT.read_text()))
    command = ["mpiexec.openmpi", "-n", "{np}", "lmp", "-in", str(script), "-log", "none"]
    study = tmp_path / "study"
    done = p3s(f"characterize -n 2,4,8,16 -o {study} --", *command)
    done = p3s(f"model {study} --json", code=(0, 3))
    model = done.data
    done = p3s(f"validate {study} -n 32 --json --", *command, code=(0, 3))
    result = done.data
    claimed = {i for i, item in enumerate(model["items"]) if item.get("verdict") == "exact"}
    assert claimed and not claimed & set(result["items_wrong"])
    assert result["collectives"]["true"] > 0
    assert abs(sum(s["time"] for s in model["shares"].values()) - 1) < 1e-6


@pytest.mark.slow
def test_nonblocking_and_persistent_collectives_go_the_whole_way(launcher, tmp_path, monkeypatch):
    install = the_mpi()  # some ways of Open MPI to do one-sided communication fail here and there
    assert install is not None
    monkeypatch.setenv("OMPI_MCA_osc", "^ucx,rdma" if install.version.startswith("4") else "^ucx")
    command = [*launcher, str(compile_c(PROGRAMS / "overlap.c", tmp_path / "overlap")), "6"]
    study = tmp_path / "study"
    done = p3s(f"characterize -n 2,3,4,6 -o {study} --", *command)
    assert "seen, not modelled" not in done.out
    done = p3s(f"model {study}", code=(0, 3))
    (reduction,) = (
        item
        for item in json.loads((study / "model.json").read_text())["items"]
        if item["op"] == "MPI_Iallreduce"
    )
    (slot,) = reduction["slots"]
    assert reduction["verdict"] == "exact" and slot["place"]["kind"] == "world"
    assert slot["elem_bytes"] == 8 and slot["elements"]["expr"] == ["num", 1, 1]
    assert slot["guard"] == [] and slot["count"]["expr"] == ["num", 6, 1]
    done = p3s(f"validate {study} -n 12 --json --", *command, code=(0, 3))
    result = done.data
    twins = 2 if "MPI_Bcast_init" in (study / "model.json").read_text() else 0
    assert result["collectives"] == dict.fromkeys(
        ("true", "predicted", "equal"), 12 * 6 * (2 + twins + 2)
    )  # a fence is a barrier
    assert result["p2p_triples"]["equal"] == result["p2p_triples"]["true"] >= 12 * 6 + 6
    assert result["unmodelled"]["events"] == 0
    p3s(
        f"predict {study} -n 8 --estimator simulation --budget 2",
        code=(0, 3),
        out="replayed without progress between the call and its completion:",
    )
    assert p3s(f"report {study}", code=None).code in (0, 3)
    page = (study / "report.html").read_text()
    assert "MPI_Iallreduce" in page and "without progress between" in page
