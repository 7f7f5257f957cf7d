"""The first run of a new user: the examples from few small counts, every stage to the report."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from artefacts import no_numbers
from commands import cli
from paths import EXAMPLES
from tracer_helpers import the_mpi

ARGUMENTS = {
    "ring": "--bodies 401 --steps 3",
    "jacobi2d": "--nx 203 --ny 151 --iterations 6",
    "halo3d": "--nx 29 --ny 23 --nz 19 --iterations 4",
    "cg": "--n 603 --iterations 2 --inner 4",
    "wavefront": "--nx 37 --ny 31 --iterations 2",
    "master_worker": "--tasks 20 --points 1000",
}
COUNTS = ("1,2,4", "1,2,4,8", "2,3,5")
#: Of these `make test` runs the first counts; all others are slow.
QUICK = ("ring", "jacobi2d")


def _cases():
    for name in ARGUMENTS:
        for counts in COUNTS:
            if (name == "cg" and "3" in counts) or (name == "master_worker" and "1" in counts):
                continue  # powers of two only; a master and a worker at least
            quick = name in QUICK and counts == COUNTS[0]
            yield pytest.param(
                name,
                counts,
                id=f"{name}-{counts.replace(',', '-')}",
                marks=() if quick else pytest.mark.slow,
            )


@pytest.mark.parametrize(("name", "counts"), list(_cases()))
def test_a_first_run_ends_with_a_report(name, counts, examples, tmp_path, capfd):
    """No stage fails, prints a library's warning or writes what is no number."""
    program = (
        [sys.executable, str(EXAMPLES / f"{name}.py")]
        if name == "master_worker"
        else [str(examples / name)]
    )
    study = str(tmp_path / "study")
    launcher = [the_mpi().mpiexec, "-n", "{np}", *program, *ARGUMENTS[name].split()]
    first = cli("characterize -n", counts, "--timeout", "60", "-o", study, "--", *launcher)
    said = first.out + first.err
    larger = "12" if counts == "2,3,5" else "16"
    for words in (
        ["model", study],
        ["model", study, "--compute"],
        ["scale", study, "-n", f"1,{larger}"],
        ["predict", study, "-n", f"1,{larger}", "--no-replay"],
        ["report", study],
    ):
        shown = cli(*words, code=(0, 3))
        said += shown.out + shown.err
    said += "".join(capfd.readouterr())
    assert "Warning" not in said and "internal error" not in said
    assert no_numbers(Path(study)) == []
