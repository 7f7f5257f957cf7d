"""Parameters through the command line: real programs at several sizes, and every wrong use."""

from __future__ import annotations

import json
import shutil

import pytest
from commands import p3s
from endings import only_work
from tracer_helpers import compile_c, usable_mpi

from p3s.api import open_study
from p3s.base.errors import UsageError
from p3s.base.study import Study
from p3s.costs.types import load as load_compute
from p3s.methods.placement.ranked.types import path_of

#: A line of ranks below 50 points, a square of them above: another program, to all who look.
TURNING = """
#include <mpi.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int size = atoi(argv[1]), rank, n, dims[2] = {0, size < 50 ? 1 : 0}, periods[2] = {1, 1};
    MPI_Comm cart;
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    MPI_Dims_create(n, 2, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &cart);
    MPI_Comm_rank(cart, &rank);
    char *out = calloc(size, 1), *in = calloc(size, 1);
    for (int k = 0; k < 5; k++)
        for (int d = 0; d < 2; d++) {
            int from, to;
            MPI_Cart_shift(cart, d, 1, &from, &to);
            if (dims[d] > 1)
                MPI_Sendrecv(out, size, MPI_CHAR, to, d, in, size, MPI_CHAR, from, d, cart,
                             MPI_STATUS_IGNORE);
        }
    MPI_Finalize();
    return 0;
}
"""


@pytest.fixture(scope="module")
def mpi():
    return usable_mpi()


@pytest.fixture(scope="module")
def programs(examples):
    compile_c(TURNING, examples / "turning")
    return examples


@pytest.fixture(scope="module")
def study(tmp_path_factory, mpi, programs):
    """jacobi2d traced at three sizes and three counts each, and fitted."""
    root = tmp_path_factory.mktemp("studies") / "study"
    p3s(
        f"characterize -n 4,6,9 --param size=31,40,53 -o {root} -- {mpi.mpiexec} -n "
        f"{{np}} {programs / 'jacobi2d'} --nx {{size}} --ny {{size}} --iterations 6"
    )
    fitted = p3s(f"model {root}", code=None)
    assert only_work(fitted.code, fitted.err), fitted.err
    assert "block_first(size, p1, c1)" in fitted.out and "[exact]" in fitted.out
    return root


def test_a_size_never_traced_equals_the_run(study):
    made = p3s(f"model {study} --param size=67", code=None)
    assert only_work(made.code, made.err), made.err
    assert "Equations at size=67, by laws of the parameters from size=31" in made.out
    at = study / "at" / "size=67"
    manifest = json.loads((at / "study.json").read_text())
    assert manifest["derived"] and "67" in manifest["commands"][0]
    done = p3s(f"validate {at} -n 12 --json", code=None)
    result = done.data
    for key in ("p2p_triples", "collectives"):
        assert result[key]["true"] == result[key]["predicted"] == result[key]["equal"] > 0
    assert result["weights"]["exact"] == result["weights"]["phases"] == 2
    assert result["order"]["equal"] == 12
    assert only_work(done.code, done.err), done.err


@pytest.mark.slow
def test_derived_studies_go_through_every_stage(study):
    done = p3s(f"predict {study} -n 16 --param size=80 --estimator simulation --budget 2", code=3)
    assert "message costs were not measured as in a real run" in done.err
    at = study / "at" / "size=80"
    derived = "derived from size=31, size=40, size=53; 1.51 times outside the traced values"
    assert f"{derived}, {at}" in done.err
    rows = json.loads((at / "prediction.json").read_text())["counts"]
    assert [row["n"] for row in rows] == [4, 6, 9, 16] and all(r["time_s"] > 0 for r in rows)
    found = load_compute(at)
    assert found is not None  # the cost of computation, from the times of all traced sizes
    sources = {p.source for law in found.laws for p in law.points}
    assert sources == {"at/size=31", "at/size=40", "at/size=53"}
    for words in (("report", at), ("scale", at, "-n", "25"), ("explain", at, "1"), ("next", at)):
        p3s(*words, code=3 if words[0] == "report" else 0)
    again = p3s(f"model {at}", code=None)
    assert only_work(again.code, again.err) and "Equations at size=80" in again.out


def test_ranks_are_placed_at_any_size(study):
    words = ("place", study, "-n", 12, "--nodes", 3, "--ppn", 4, "--topology", "torus:2x2")
    fast = ("--candidates", 8, "--simulate", 2, "--json")
    for value in (40, 80):
        done = p3s(*words, *fast, "--param", f"size={value}", code=(0, 3))
        assert done.data["ranked"]
        assert path_of(study / "at" / f"size={value}", 12).exists()
    p3s(*words, code=2, err="add --param size=VALUE")


def test_weak_scaling(study):
    done = p3s(f"predict {study} -n 9 --weak size~n^0.5 --estimator simulation --budget 2", code=3)
    assert done.out.startswith("Do not rely on this prediction: ")
    assert "message costs were not measured as in a real run" in " ".join(done.out.split())
    assert "not-representative: communication at 4 and 9 processes was not" in done.out
    assert "weak efficiency" in done.out and "at 9 processes size is rounded" in done.err
    found = json.loads((study / "weak-size.json").read_text())
    assert [row["setting"]["size"] for row in found["counts"]] == ["31", "47"]
    first, last = found["counts"]
    assert last["efficiency"] == pytest.approx(first["time_s"] / last["time_s"])
    assert (found["schema"], found["weak"], found["base_n"]) == ("p3s.weak", "size~n^(1/2)", 4)
    same = open_study(study).predict_weak(9, "size~n^0.5", network="slingshot")
    assert [row.n for row in same.counts] == [4, 9]
    with pytest.raises(UsageError, match="no parameter of this study"):
        open_study(study).predict_weak(9, "length~n")


def test_values_with_few_counts_check_the_laws(study, tmp_path, mpi, programs):
    copy = tmp_path / "copy"
    shutil.copytree(study, copy)
    before = {p: p.stat().st_mtime_ns for p in copy.glob("at/size=*/runs/*/run.json")}
    p3s(f"characterize -n 8 --param size=60 -o {copy} --", *Study(copy).command())
    assert all(p.stat().st_mtime_ns == when for p, when in before.items())
    fitted = p3s(f"model {copy} --json", code=None)
    found = fitted.data
    (check,) = found["checks"]
    assert check["setting"] == "size=60" and check["possible"]
    for row in check["each"]:
        messages = row["p2p_triples"]
        assert messages["true"] == messages["predicted"] == messages["equal"] > 0
    assert only_work(fitted.code, fitted.err), fitted.err


@pytest.mark.slow
def test_a_program_that_changes_with_size_is_refused(tmp_path, mpi, programs):
    root = tmp_path / "study"
    p3s(
        f"characterize -n 4,6,9 --param size=20,40,60 -o {root} -- {mpi.mpiexec} -n "
        f"{{np}} {programs / 'turning'} {{size}}"
    )
    p3s(f"model {root}", code=None, out="left out: size=60 has")
    p3s(f"model {root} --param size=30", code=(0, 3), out="size=20, size=40")
    p3s(f"model {root} --param size=100", code=1, err="no model at size=100")
    assert not (root / "at" / "size=100").exists()


# ---- wrong uses ---------------------------------------------------------------------------------
