"""The examples jacobi2d, halo3d and wavefront, built and traced at small counts."""

from __future__ import annotations

import subprocess
from pathlib import Path

from figures import P3S, ROOT, chosen_mpi, whole

#: Program -> the counts that it is traced at: what makes its process grids known.
TRACED = {"jacobi2d": "4,8,9,16", "halo3d": "8,12,18,27", "wavefront": "4,9,16,25"}


def traced(name: str, study: Path) -> None:
    """Trace an example into ``study``; raises SystemExit where there is no MPI."""
    found = chosen_mpi()
    built = study.parent / f"{name}-bin"
    make = ["make", "-sC", str(ROOT / "examples"), f"MPICC={found.mpicc}", f"BIN={built}"]
    subprocess.run([*make, str(built / name)], check=True, timeout=300)
    program = [str(found.mpiexec), "-n", "{np}", built / name]
    whole([*P3S, "trace", "-n", TRACED[name], "-o", study, "--timeout", "300", "--", *program])


def modelled(name: str, study: Path) -> None:
    """The same, with its model."""
    traced(name, study)
    whole([*P3S, "model", study], ok=(0, 3))
