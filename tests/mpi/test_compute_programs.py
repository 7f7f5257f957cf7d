"""Programs with cache steps (tests/programs/compute): they run and are modelled exactly."""

from __future__ import annotations

import pytest
from commands import cli
from tracer_helpers import PROGRAMS, compile_c, usable_mpi

#: Small inputs: seconds for all of them together.
CASES = {
    "heat": "--nx 70 --ny 64 --steps 3 --turns 3 --sweeps 2 --solves 2",
    "sparse": "--rows 6400 --steps 3 --turns 3 --inner 2",
    "table": "--entries 4096 --keys 4096 --steps 3 --turns 3",
    "pencils": "--nx 9 --ny 41 --nz 43 --steps 3 --turns 3 --sweeps 2",
    "particles": "--bodies 128 --width 20 --height 70 --dust 200 --steps 3 --turns 3",
}
#: Those that `make test-mpi` models; all others are slow.
QUICK = ("table",)
LIMIT_S = 120


@pytest.fixture(scope="module")
def mpiexec() -> str:
    install = usable_mpi()
    return install.mpiexec


EACH = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in CASES]


@pytest.mark.parametrize("name", EACH)
def test_the_logic_is_predicted_exactly(name, mpiexec, tmp_path):
    program = compile_c(
        PROGRAMS / "compute" / f"{name}.c",
        tmp_path / name,
        "-std=c11",
        "-D_XOPEN_SOURCE=700",
        "-Wall",
        "-Werror",
        "-lm",
    )
    study = tmp_path / "study"
    cli(
        f"characterize -n 2,4,8,16 --work cpu -o {study} -- {mpiexec} -n {{np}} {program}",
        *CASES[name].split(),
    )
    cli(f"model {study}", code=(0, 3))
    result = cli(f"validate {study} -n 32 --json", code=None).data
    for key in ("p2p_triples", "collectives"):
        got = result[key]
        assert got["true"] == got["predicted"] == got["equal"], (key, got)
    assert result["collectives"]["true"] > 0
    assert result["weights"]["exact"] == result["weights"]["phases"] >= 3
    assert result["unmodelled"]["events"] == 0
