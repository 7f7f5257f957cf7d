"""Programs of the benchmark: what is run, where it is traced, where it is predicted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
COMPUTE = ROOT / "tests" / "programs" / "compute"


@dataclass(frozen=True)
class Program:
    """A program: C source, arguments, process counts that are traced, and that are predicted.

    With ``build`` the source is a directory of C, C++ or Fortran, that shell command makes
    ``executable`` in it. In arguments ``{np}`` is the process count; ``at`` has those of counts
    that need others. ``half``: whether P3S was developed with it, or it was kept.
    """

    name: str
    source: Path
    arguments: tuple[str, ...]
    traced: tuple[int, ...] = (4, 8, 16, 32)
    predicted: tuple[int, ...] = (64, 128, 256)
    build: str = ""
    executable: str = ""
    at: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    half: str = "developed"

    def arguments_at(self, n: int) -> tuple[str, ...]:
        """Return the arguments of a run on ``n`` processes."""
        return tuple(word.replace("{np}", str(n)) for word in self.at.get(n, self.arguments))


def _example(name: str, arguments: str, source: str = "") -> Program:
    return Program(name, EXAMPLES / f"{source or name}.c", tuple(arguments.split()))


def _compute(name: str, arguments: str) -> Program:
    return Program(name, COMPUTE / f"{name}.c", tuple(arguments.split()), half="kept")


#: Extents and numbers of bodies are no multiples of the process counts.
PROGRAMS = {
    program.name: program
    for program in (
        _example("jacobi2d", "--nx 1201 --ny 1003 --iterations 80 --check 8"),
        _example("halo3d", "--nx 97 --ny 89 --nz 101 --iterations 30"),
        _example("wavefront", "--nx 121 --ny 118 --nz 80 --planes 4 --iterations 4"),
        _example("cg", "--n 4201 --nonzeros 40 --iterations 4 --inner 15"),
        _example("ring", "--bodies 4001 --steps 4"),
        _example("ring-overlap", "--bodies 4001 --steps 4 --overlap --packed", "ring"),
    )
}
#: Run after all of P3S was as it is: nothing was changed for them.
HELD_OUT = {
    program.name: program
    for program in (
        _compute("pencils", "--nx 40 --ny 112 --nz 120 --steps 3 --turns 4 --sweeps 1 --solves 1"),
        _compute("sparse", "--rows 96000 --steps 4 --turns 6 --inner 1"),
        _compute(
            "particles",
            "--bodies 2560 --width 256 --height 1280 --dust 65536 --steps 3 --turns 4 --passes 1",
        ),
        _compute(
            "table", "--entries 65536 --keys 262144 --probes 2 --passes 2 --steps 2 --turns 3"
        ),
    )
}
