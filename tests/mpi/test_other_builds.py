"""Each process count runs a build of its own, without symbols: the model is that of one build."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import p3s
from paths import EXAMPLES
from tracer_helpers import compile_c, the_mpi, usable_mpi

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(the_mpi() is None, reason="no usable MPI")]


@pytest.mark.parametrize(
    ("name", "counts", "larger"),
    [("cg", (4, 8, 16), 32), ("jacobi2d", (4, 8, 9, 16), 25), ("halo3d", (8, 12, 18), 27)],
)
def test_calls_of_other_builds(name: str, counts: tuple[int, ...], larger: int, tmp_path: Path):
    for n, level in zip((*counts, larger), ("-O0", "-O1", "-O2", "-O3", "-Os"), strict=False):
        compile_c(EXAMPLES / f"{name}.c", tmp_path / f"{name}{n}", level, "-g0", "-s", "-lm")
    launcher = [usable_mpi().mpiexec, "-n", "{np}", f"./{name}{{np}}"]
    few = ",".join(map(str, counts))
    p3s(f"characterize -n {few} -o study --", *launcher, cwd=tmp_path)
    shown = p3s("phases study", cwd=tmp_path).out
    assert "matched with those at" in shown and "by functional similarity" in " ".join(
        shown.split()
    )
    matched = p3s("phases study --json", cwd=tmp_path).data["matched"]
    assert set(matched) == {str(n) for n in counts[:-1]}
    assert all(each["alike"] == each["calls"] for each in matched.values())
    p3s("model study", code=None, cwd=tmp_path)  # how sure it is of the work does not matter
    found = p3s(f"validate study -n {larger} --json", code=None, cwd=tmp_path).data
    for key in ("p2p_triples", "collectives"):
        assert found[key]["true"] == found[key]["predicted"] == found[key]["equal"]
    assert found["p2p_triples"]["equal"] > 0
    assert found["weights"]["exact"] == found["weights"]["phases"]
